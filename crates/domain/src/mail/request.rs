//! What callers ask for, read field by field.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::check::{Check, Violation};

use super::batch::Recipient;
use super::{Address, Letter, Locale};

/// The longest key, as everywhere.
pub const KEY_MAX: usize = 255;
/// The longest name of a template.
const TEMPLATE_MAX: usize = 100;
/// How much data one mail may carry, as JSON text.
pub const DATA_MAX: usize = 65_536;

/// A request for one mail, `POST /mail`.
#[derive(Clone, Debug, PartialEq)]
pub struct MailRequest {
    pub template: String,
    pub recipient: Recipient,
    pub key: Option<String>,
}

impl MailRequest {
    pub fn parse(body: &Value) -> Result<Self, Vec<Violation>> {
        let mut check = Check::of(body)?;
        known(&mut check, &["to", "template", "locale", "data", "idempotencyKey"]);
        let template = check.text("template", 1..=TEMPLATE_MAX, true).unwrap_or_default();
        let key = check.text("idempotencyKey", 1..=KEY_MAX, false);
        let recipient = recipient(&mut check, None);
        let read = recipient.map(|recipient| Self { template, recipient, key });
        finished(check, read)
    }

    #[must_use]
    pub fn letter(self, id: Uuid) -> Letter {
        Letter {
            id,
            to: self.recipient.to,
            template: self.template,
            locale: self.recipient.locale,
            data: self.recipient.data,
            batch_id: None,
            key: self.key,
        }
    }
}

/// The head of a batch: everything but its recipients.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchHead {
    pub template: String,
    /// For recipients that name none.
    pub locale: Option<Locale>,
    pub key: Option<String>,
}

impl BatchHead {
    pub fn parse(body: &Value) -> Result<Self, Vec<Violation>> {
        let mut check = Check::of(body)?;
        known(&mut check, &["template", "locale", "idempotencyKey", "recipients"]);
        let template = check.text("template", 1..=TEMPLATE_MAX, true).unwrap_or_default();
        let key = check.text("idempotencyKey", 1..=KEY_MAX, false);
        let locale = locale(&mut check);
        check.finish(Self { template, locale, key })
    }
}

/// Reads one recipient of a batch; `fallback` is for those that name no locale.
pub fn read_recipient(body: &Value, fallback: Option<Locale>) -> Result<Recipient, Vec<Violation>> {
    let mut check = Check::of(body)?;
    known(&mut check, &["to", "locale", "data"]);
    let read = recipient(&mut check, fallback);
    finished(check, read)
}

fn recipient(check: &mut Check<'_>, fallback: Option<Locale>) -> Option<Recipient> {
    let to = check.text("to", 1..=1000, true);
    let to = to.and_then(|text| match text.parse::<Address>() {
        Ok(address) => Some(address.as_str().to_owned()),
        Err(error) => {
            check.wrong("to", error.to_string());
            None
        }
    });
    let locale = locale(check).or(fallback).unwrap_or(Locale::Ja);
    let data = match check.map.get("data") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(data @ Value::Object(_)) => {
            let text = data.to_string();
            if text.len() > DATA_MAX {
                check.wrong("data", format!("must have at most {DATA_MAX} bytes as JSON"));
            }
            if text.contains("\\u0000") {
                check.wrong("data", "must not contain NUL");
            }
            data.clone()
        }
        Some(_) => {
            check.wrong("data", "must be an object");
            Value::Null
        }
    };
    Some(Recipient { to: to?, locale, data })
}

fn locale(check: &mut Check<'_>) -> Option<Locale> {
    let text = check.text("locale", 1..=16, false)?;
    let read = text.parse().ok();
    if read.is_none() {
        check.wrong("locale", "must be `ja` or `en`");
    }
    read
}

/// A name that nobody knows is a typing error, and would be a silent one.
fn known(check: &mut Check<'_>, names: &[&str]) {
    let unknown: Vec<String> =
        check.map.keys().filter(|name| !names.contains(&name.as_str())).cloned().collect();
    for name in unknown {
        check.wrong(&name, "is not known");
    }
}

fn finished<T>(check: Check<'_>, read: Option<T>) -> Result<T, Vec<Violation>> {
    let wrong = |violations: Vec<Violation>| Err(violations);
    match read {
        Some(read) => check.finish(read),
        None if check.violations.is_empty() => {
            wrong(vec![Violation { field: String::new(), problem: "is not valid".into() }])
        }
        None => wrong(check.violations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_read_whole() {
        let body = json!({"to": "Taro@Example.com", "template": "t", "locale": "en",
            "data": {"a": 1}, "idempotencyKey": "k"});
        let read = MailRequest::parse(&body).unwrap();
        assert_eq!(read.recipient.to, "Taro@example.com");
        assert_eq!((read.recipient.locale, read.key.as_deref()), (Locale::En, Some("k")));
        let least = json!({"to": "a@example.com", "template": "t"});
        let read = MailRequest::parse(&least).unwrap();
        assert_eq!((read.recipient.locale, read.recipient.data), (Locale::Ja, json!({})));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let body = json!({"to": "nobody", "locale": "fr", "data": [], "tempalte": "t"});
        let fields: Vec<String> =
            MailRequest::parse(&body).unwrap_err().into_iter().map(|v| v.field).collect();
        assert_eq!(fields, ["tempalte", "template", "to", "locale", "data"]);
        let large = json!({"to": "a@example.com", "data": {"x": "y".repeat(DATA_MAX)}});
        assert_eq!(read_recipient(&large, None).unwrap_err()[0].field, "data");
        let nul = json!({"to": "a@example.com", "data": {"x": "\0"}});
        assert_eq!(read_recipient(&nul, None).unwrap_err()[0].field, "data");
    }

    #[test]
    fn a_recipient_falls_back_to_its_batchs_locale() {
        let body = json!({"to": "a@example.com"});
        assert_eq!(read_recipient(&body, Some(Locale::En)).unwrap().locale, Locale::En);
    }
}
