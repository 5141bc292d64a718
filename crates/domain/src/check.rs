//! Checking a JSON document field by field, and saying everything that is wrong with it at once.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub field: String,
    pub problem: String,
}

/// A whole number, however it is written: `193.0` is one, and some writers of JSON know no other way.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    // Beyond this, not every whole number can be told from its neighbours.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within bounds")]
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
    })
}

/// A document under examination.
pub(crate) struct Check<'a> {
    pub map: &'a Map<String, Value>,
    pub violations: Vec<Violation>,
}

impl<'a> Check<'a> {
    pub fn of(body: &'a Value) -> Result<Self, Vec<Violation>> {
        match body.as_object() {
            Some(map) => Ok(Self { map, violations: Vec::new() }),
            None => Err(vec![Violation {
                field: String::new(),
                problem: "the body must be a JSON object".into(),
            }]),
        }
    }

    /// What was read, if nothing is wrong.
    pub fn finish<T>(self, read: T) -> Result<T, Vec<Violation>> {
        if self.violations.is_empty() { Ok(read) } else { Err(self.violations) }
    }

    pub fn wrong(&mut self, field: &str, problem: impl Into<String>) {
        self.violations.push(Violation { field: field.into(), problem: problem.into() });
    }

    pub fn text(
        &mut self,
        field: &str,
        length: RangeInclusive<usize>,
        required: bool,
    ) -> Option<String> {
        let (min, max) = (*length.start(), *length.end());
        match self.map.get(field) {
            None if required => self.wrong(field, "is required"),
            None => {}
            Some(Value::Null) if !required => {}
            Some(Value::String(text)) if text.contains('\0') => {
                self.wrong(field, "must not contain NUL");
            }
            Some(Value::String(text)) if length.contains(&text.chars().count()) => {
                return Some(text.clone());
            }
            Some(Value::String(_)) => {
                self.wrong(field, format!("must have {min} to {max} characters"));
            }
            Some(_) => self.wrong(field, "must be a string"),
        }
        None
    }
}
