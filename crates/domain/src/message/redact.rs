//! What answers show in place of what a caller asked to hide.
//!
//! A digest takes the place of the value, so that two values can still be told apart. Deliveries do
//! not come here: they have the originals.

use super::asked::{Headers, Redact};
use crate::digest;

/// The headers as an answer may show them.
#[must_use]
pub fn headers(headers: &Headers, redact: &Redact) -> Headers {
    headers
        .iter()
        .map(|(name, values)| {
            let hidden = redact.headers || redact.named.contains(name);
            let values = if hidden {
                values.iter().map(|value| hidden_value(value.as_bytes())).collect()
            } else {
                values.clone()
            };
            (name.clone(), values)
        })
        .collect()
}

/// What stands for the body, if it is hidden.
#[must_use]
pub fn body(body: &[u8], redact: &Redact) -> Option<String> {
    redact.body.then(|| hidden_value(body))
}

fn hidden_value(bytes: &[u8]) -> String {
    format!("REDACTED:{}", digest::sha256(bytes).trim_start_matches("sha256:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf hello | sha256sum
    const HELLO: &str = "REDACTED:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn sent() -> Headers {
        let header = |name: &str, values: &[&str]| {
            (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        Headers::from([
            header("Authorization", &["hello"]),
            header("Content-Type", &["text/plain", "hello"]),
        ])
    }

    #[test]
    fn nothing_is_hidden_unasked() {
        assert_eq!(headers(&sent(), &Redact::default()), sent());
        assert_eq!(body(b"hello", &Redact::default()), None);
    }

    #[test]
    fn a_digest_takes_the_place_of_what_is_hidden() {
        let all = Redact { headers: true, body: true, ..Redact::default() };
        assert_eq!(body(b"hello", &all).as_deref(), Some(HELLO));
        let shown = headers(&sent(), &all);
        assert_eq!(shown["Authorization"], [HELLO]);
        assert_eq!(shown["Content-Type"][1], HELLO);
        assert_ne!(shown["Content-Type"][0], HELLO);

        let named = Redact { named: vec!["Authorization".to_owned()], ..Redact::default() };
        let shown = headers(&sent(), &named);
        assert_eq!(shown["Authorization"], [HELLO]);
        assert_eq!(shown["Content-Type"], sent()["Content-Type"]);
        assert_eq!(body(b"hello", &named), None);
    }
}
