//! Canonical JSON and the digests made of it.
//!
//! Two requests are the same if their digests are: keys sorted, no white space, Unicode in NFC,
//! volatile fields left out. Numbers are written as they are read (`1` and `1.0` differ, as they do
//! for every canonical form that keeps the sender's number).

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

/// `sha256:<hex>` over canonical JSON, top-level fields in `without` left out.
#[must_use]
pub fn digest(value: &Value, without: &[&str]) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !without.contains(&key.as_str()));
            write_object(kept, &mut text);
        }
        other => write_value(other, &mut text),
    }
    sha256(text.as_bytes())
}

/// `sha256:<hex>` of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(7 + 64);
    text.push_str("sha256:");
    for byte in Sha256::digest(bytes) {
        text.extend([byte >> 4, byte & 15].map(|nibble| HEX[usize::from(nibble)] as char));
    }
    text
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Canonical JSON text.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map.iter(), out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_string(text, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn write_object<'a>(entries: impl Iterator<Item = (&'a String, &'a Value)>, out: &mut String) {
    let mut entries: Vec<(String, &Value)> =
        entries.map(|(key, value)| (nfc(key), value)).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    out.push('{');
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&Value::String(nfc(text)).to_string());
}

fn nfc(text: &str) -> String {
    if is_nfc(text) { text.to_owned() } else { text.nfc().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_sorts_packs_and_normalises() {
        // "が" composed, and decomposed as か + combining mark.
        let composed = json!({"b": [1, 2.5, null], "a": {"z": true, "y": "\u{304c}"}});
        let decomposed = json!({"a": {"y": "\u{304b}\u{3099}", "z": true}, "b": [1, 2.5, null]});
        assert_eq!(canonical(&composed), r#"{"a":{"y":"が","z":true},"b":[1,2.5,null]}"#);
        assert_eq!(canonical(&composed), canonical(&decomposed));
    }

    #[test]
    fn digest_is_sha256_of_the_canonical_text() {
        // printf '{"a":1}' | sha256sum
        let expected = "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(digest(&json!({"a": 1, "trace_id": "t"}), &["trace_id"]), expected);
    }

    #[test]
    fn only_top_level_fields_are_left_out() {
        let nested = |trace: &str| json!({"a": {"trace_id": trace}});
        assert_ne!(digest(&nested("1"), &["trace_id"]), digest(&nested("2"), &["trace_id"]));
    }
}
