//! Conditions of a list that callers choose from.

use uuid::Uuid;

use crate::message::Order;
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

    /// `comparison` has a `?` for the value; one of the values must fit. Without any, everything
    /// passes.
    pub fn any(&mut self, comparison: &str, values: Vec<Param>) {
        // A chain of "or" is as deep as it is long, and databases limit the depth.
        if let (Some(column), true) = (comparison.strip_suffix(" = ?"), values.len() > 1) {
            let first = self.params.len() + 1;
            self.params.extend(values);
            let places: Vec<String> =
                (first..=self.params.len()).map(|place| format!("${place}")).collect();
            self.conditions.push(format!("{column} in ({})", places.join(", ")));
            return;
        }
        let mut choices = Vec::with_capacity(values.len());
        for value in values {
            self.params.push(value);
            choices.push(comparison.replace('?', &format!("${}", self.params.len())));
        }
        if !choices.is_empty() {
            self.conditions.push(format!("({})", choices.join(" or ")));
        }
    }

    /// A condition without a value.
    pub fn require(&mut self, condition: &str) {
        self.conditions.push(condition.to_owned());
    }

    /// The end of a statement: the newest first, at most `limit`; and its parameters.
    pub fn newest(self, limit: i64) -> (String, Vec<Param>) {
        self.page("id", None, Order::NewestFirst, limit)
    }

    /// The end of a statement: one page in the order of a column of ids, after the page before.
    pub fn page(
        mut self,
        column: &str,
        after: Option<Uuid>,
        order: Order,
        limit: i64,
    ) -> (String, Vec<Param>) {
        let (beyond, direction) = match order {
            Order::NewestFirst => ("<", "desc"),
            Order::OldestFirst => (">", "asc"),
        };
        self.add(&format!("{column} {beyond}"), after.map(Param::Uuid));
        self.params.push(Param::Int(limit));
        let conditions = if self.conditions.is_empty() {
            "true".to_owned()
        } else {
            self.conditions.join(" and ")
        };
        let limit = self.params.len();
        let sql = format!("where {conditions} order by {column} {direction} limit ${limit}");
        (sql, self.params)
    }
}
