//! Conditions of a list that callers choose from.

use crate::row::Param;

/// What a row must be, collected one condition at a time.
#[derive(Default)]
pub(crate) struct Filter {
    conditions: Vec<String>,
    params: Vec<Param>,
}

impl Filter {
    /// `comparison` is a column and an operator, as in `status =`; without a value everything passes.
    pub fn add(&mut self, comparison: &str, value: Option<impl Into<Param>>) {
        if let Some(value) = value {
            self.params.push(value.into());
            self.conditions.push(format!("{comparison} ${}", self.params.len()));
        }
    }

    /// A condition without a value.
    pub fn require(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    /// The end of a statement: the newest first, at most `limit`; and its parameters.
    pub fn newest(mut self, limit: i64) -> (String, Vec<Param>) {
        self.params.push(Param::Int(limit));
        let conditions = if self.conditions.is_empty() {
            "true".to_owned()
        } else {
            self.conditions.join(" and ")
        };
        let sql = format!("where {conditions} order by id desc limit ${}", self.params.len());
        (sql, self.params)
    }
}
