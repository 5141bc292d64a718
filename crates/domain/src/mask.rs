//! Masking: what people may see of other people's data.
//!
//! For what the API and logs show of payloads that came from outside. What is stored stays as it is.

use serde_json::Value;

/// Names whose values are secrets.
const SECRET_NAMES: [&str; 9] = [
    "password",
    "secret",
    "client_secret",
    "token",
    "access_token",
    "refresh_token",
    "api_key",
    "authorization",
    "signature",
];

const HIDDEN: &str = "***";

/// The document with e-mail addresses and secrets made unreadable.
#[must_use]
pub fn masked(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().map(|(name, value)| (name.clone(), masked_field(name, value))).collect(),
        ),
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::String(text) => Value::String(masked_text(text)),
        other => other.clone(),
    }
}

fn masked_field(name: &str, value: &Value) -> Value {
    let name = name.to_ascii_lowercase();
    let secret =
        SECRET_NAMES.iter().any(|known| name == *known || name.ends_with(&format!("_{known}")));
    match value {
        Value::String(_) | Value::Number(_) if secret => Value::String(HIDDEN.to_owned()),
        Value::Null => Value::Null,
        Value::Object(map) if secret => {
            Value::Object(map.keys().map(|name| (name.clone(), HIDDEN.into())).collect())
        }
        other => masked(other),
    }
}

/// A text with its e-mail addresses made unreadable: the first letter and the domain stay.
#[must_use]
pub fn masked_text(text: &str) -> String {
    if !text.contains('@') {
        return text.to_owned();
    }
    let is_part = |c: char| c.is_alphanumeric() || "._%+-".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let start = before.char_indices().rev().take_while(|(_, c)| is_part(*c)).last();
        let start = start.map_or(at, |(start, _)| start);
        out.push_str(&before[..start]);
        if let Some(first) = before[start..].chars().next() {
            out.push(first);
            out.push_str(HIDDEN);
        }
        out.push('@');
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_and_secrets_are_unreadable() {
        let payload = json!({
            "email": "taro@example.com",
            "text": "from 花子 <hanako.y@example.co.jp>, cc x@y.z",
            "client_secret": "pi_123_secret_456",
            "nested": [{"stripe_api_key": "sk_live_1", "amount": 3000, "token": null}],
            "Authorization": {"scheme": "Bearer", "value": "t0p"},
        });
        assert_eq!(
            masked(&payload),
            json!({
                "email": "t***@example.com",
                "text": "from 花子 <h***@example.co.jp>, cc x***@y.z",
                "client_secret": "***",
                "nested": [{"stripe_api_key": "***", "amount": 3000, "token": null}],
                "Authorization": {"scheme": "***", "value": "***"},
            })
        );
    }

    #[test]
    fn everything_else_stays() {
        for text in ["", "@", "a b", "確か"] {
            assert_eq!(masked_text(text), text);
        }
    }
}
