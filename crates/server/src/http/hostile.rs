//! Whatever strangers send to the parsers of this layer: no panic, and what is taken is what was sent.
//!
//! Those of the layers below have fuzz targets (`fuzz/`); building this one for the fuzzer would take
//! longer than all of theirs together, so its parsers are tried here, with every run of the tests.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::idempotency;
use super::json::{MAX_DEPTH, parse};
use super::mail_stream::{Format, Splitter};
use super::page::Query;
use super::request_id::RequestIds;
use crate::telemetry::trace::{parse_traceparent, render_traceparent};

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Documents, small and sometimes deep.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~\\n\"\\\\{}\\[\\],:é確]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..5)
                .prop_map(|map| { Value::Object(map.into_iter().collect::<Map<String, Value>>()) }),
        ]
    })
}

/// Text that looks a little like JSON.
fn almost_json() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "[\\[\\]{}\",:0-9a-z\\\\ue+.\\- \\n]{0,200}".prop_map(String::into_bytes),
        (document(), any::<usize>(), any::<u8>()).prop_map(|(value, at, byte)| {
            let mut bytes = value.to_string().into_bytes();
            let at = at % bytes.len().max(1);
            bytes[at] = byte;
            bytes
        }),
    ]
}

/// What a splitter makes of a body that comes in such pieces.
fn split(format: Format, body: &[u8], cuts: &[usize]) -> Option<(Option<Value>, Vec<Value>)> {
    let mut splitter = Splitter::new(format, 1 << 20);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    for piece in cuts.windows(2) {
        splitter.feed(&body[piece[0]..piece[1]]).ok()?;
    }
    splitter.end().ok()?;
    let mut recipients = Vec::new();
    while let Some(recipient) = splitter.next_recipient().ok()? {
        recipients.push(recipient);
    }
    Some((splitter.head().cloned(), recipients))
}

proptest! {
    #[test]
    fn documents_are_read_as_they_are(value in document()) {
        let read = parse(value.to_string().as_bytes());
        if depth(&value) <= MAX_DEPTH {
            prop_assert_eq!(read.ok(), Some(value));
        } else {
            prop_assert!(read.is_err());
        }
    }

    #[test]
    fn what_others_cannot_read_we_do_not_read_either(bytes in almost_json()) {
        if let Ok(value) = parse(&bytes) {
            prop_assert!(depth(&value) <= MAX_DEPTH);
            prop_assert_eq!(serde_json::from_slice::<Value>(&bytes).ok(), Some(value));
        }
    }

    #[test]
    fn a_batch_is_the_same_however_its_bytes_arrive(
        recipients in proptest::collection::vec(document(), 0..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
        late in any::<bool>(),
    ) {
        let recipients: Vec<Value> =
            recipients.into_iter().map(|data| json!({"to": "a@example.com", "data": data})).collect();
        let list = Value::from(recipients.clone());
        let body = if late {
            format!("{{\"recipients\": {list}, \"template\": \"]t\"}}")
        } else {
            format!("{{\"template\": \"]t\", \"recipients\": {list} }}")
        };
        let whole = split(Format::Document, body.as_bytes(), &[]);
        let Some((head, found)) = whole.clone() else { return Err(TestCaseError::fail(body)) };
        prop_assert_eq!(head.and_then(|head| head.get("template").cloned()), Some(json!("]t")));
        prop_assert_eq!(found, recipients);
        prop_assert_eq!(split(Format::Document, body.as_bytes(), &cuts), whole);
    }

    #[test]
    fn a_batch_of_anything_is_taken_or_refused(
        body in almost_json(),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        for format in [Format::Document, Format::Lines] {
            prop_assert_eq!(split(format, &body, &cuts), split(format, &body, &[]));
        }
    }

    #[test]
    fn pages_stay_within_their_limits(query in ".{0,80}|(limit|cursor|status)=[0-9a-f%+-]{0,40}") {
        if let Ok(page) = Query::read(Some(&query), &["status"]).and_then(|query| query.page()) {
            prop_assert!((1..=500).contains(&page.limit));
        }
    }

    #[test]
    fn keys_and_ids_are_what_was_sent(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", value.clone());
        headers.insert("x-request-id", value);
        if let Ok(Some(key)) = idempotency::key(&headers) {
            prop_assert!(!key.is_empty());
            prop_assert!(String::from_utf8_lossy(&bytes).contains(key));
        }
        let id = RequestIds::from_seed(7).of(&headers);
        prop_assert!((1..=128).contains(&id.as_str().len()));
        prop_assert!(id.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn traces_are_read_as_they_are_written(
        text in ".{0,70}|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}",
    ) {
        if let Some(context) = parse_traceparent(&text) {
            let written = render_traceparent(&context);
            prop_assert_eq!(&written[3..52], &text.trim()[3..52]);
            prop_assert_eq!(parse_traceparent(&written), Some(context));
        }
    }
}
