//! What makes two messages the same, when the caller leaves it to their content.

use std::fmt::Write as _;

use super::asked::{Asked, Headers};
use crate::digest;

/// How a request names its messages, so that none is taken twice.
pub struct Dedup {
    /// The caller's own name for it.
    pub id: Option<String>,
    /// Without a name: what has the same content is the same.
    pub by_content: bool,
}

impl Dedup {
    /// The key of one message. A key of the caller's counts everywhere, except that a group sends it once to each of its URLs.
    #[must_use]
    pub fn key(&self, asked: &Asked, body: &[u8]) -> Option<String> {
        let key = match &self.id {
            Some(id) => format!("id:{id}"),
            None if self.by_content => {
                format!("content:{}", content_key(&asked.url, body, &asked.headers))
            }
            None => return None,
        };
        Some(match &asked.topic {
            Some(_) => format!("{key}:{}", asked.url),
            None => key,
        })
    }
}

/// A key of the destination, the body and the forwarded headers, `Content-Type` among them.
///
/// It contains a `:`, which a caller's own deduplication id must not: the two never meet.
fn content_key(url: &str, body: &[u8], headers: &Headers) -> String {
    let mut text = digest::sha256(body);
    let mut add = |part: &str| {
        // With its length, so that ("ab", "c") and ("a", "bc") differ. Writing to a string does not
        // fail.
        write!(text, "\n{}:{part}", part.len()).unwrap_or_default();
    };
    add(url);
    for (name, values) in headers {
        add(name);
        add(&values.len().to_string());
        for value in values {
            add(value);
        }
    }
    digest::sha256(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(url: &str, body: &str, headers: &[(&str, &[&str])]) -> String {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let headers =
            headers.iter().map(|(name, values)| ((*name).to_owned(), owned(values))).collect();
        content_key(url, body.as_bytes(), &headers)
    }

    #[test]
    fn the_same_content_has_the_same_key() {
        let one = key("https://a.example/", "x", &[("A", &["1"]), ("B", &["2", "3"])]);
        let two = key("https://a.example/", "x", &[("B", &["2", "3"]), ("A", &["1"])]);
        assert_eq!(one, two);
        assert!(one.starts_with("sha256:"));
    }

    #[test]
    fn any_difference_is_another_key() {
        let keys = [
            key("https://a.example/", "", &[]),
            key("https://a.example/", "x", &[]),
            key("https://a.example/x", "", &[]),
            key("https://a.example/", "", &[("A", &["1"])]),
            key("https://a.example/", "", &[("A", &["2"])]),
            key("https://a.example/", "", &[("A", &["1", "2"])]),
            key("https://a.example/", "", &[("A", &["2", "1"])]),
            key("https://a.example/", "", &[("A", &["1", "B", "1", "2"])]),
            key("https://a.example/", "", &[("A", &["1"]), ("B", &["2"])]),
            key("https://a.example/", "", &[("A", &[]), ("B", &["1", "2"])]),
            key("https://a.example/", "", &[("B", &["1"])]),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
