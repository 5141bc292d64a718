//! Reading an event out of a body that was verified.

use serde_json::Value;
use tashika_domain::time::Timestamp;

use super::{DEPTH_MAX, Event, ID_MAX, Refused, TYPE_MAX};

pub(super) const NO_ID: &str = "no event id";
pub(super) const NO_TYPE: &str = "no event type";

/// One JSON object.
///
/// A key that stands twice is no reason to refuse, as it is in requests to our own API: the bytes are
/// the sender's own, and refusing them would only lose the event.
pub(super) fn object(body: &[u8]) -> Result<Value, Refused> {
    let value: Value = serde_json::from_slice(body).map_err(|_| Refused::payload("not JSON"))?;
    if !value.is_object() {
        return Err(Refused::payload("not a JSON object"));
    }
    if !within(&value, DEPTH_MAX) {
        return Err(Refused::payload("nested too deeply"));
    }
    Ok(value)
}

/// Whether there are at most `levels` of nesting. The parser's own limit bounds the recursion.
fn within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|item| within(item, levels - 1)),
        _ => true,
    }
}

/// The text at a path of fields. Whole numbers are text too: many ids are numbers.
pub(super) fn text(payload: &Value, path: &str) -> Option<String> {
    match path.split('.').try_fold(payload, |value, field| value.get(field))? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

/// A point in time, written as seconds since 1970 or as RFC 3339.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => {
            number.as_i64()?.checked_mul(1_000_000).map(Timestamp::from_micros)
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// An event whose id and type can be kept and sent on.
pub(super) fn event(
    id: Option<String>,
    kind: Option<String>,
    occurred_at: Option<Timestamp>,
    payload: Value,
) -> Result<Event, Refused> {
    let printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let id = id.filter(|id| !id.is_empty()).ok_or(Refused::payload(NO_ID))?;
    if id.len() > ID_MAX || !printable(&id) {
        return Err(Refused::payload("event id too long or not printable"));
    }
    let kind = kind.filter(|kind| !kind.is_empty()).ok_or(Refused::payload(NO_TYPE))?;
    if kind.len() > TYPE_MAX || !printable(&kind) {
        return Err(Refused::payload("event type too long or not printable"));
    }
    Ok(Event { id, kind, occurred_at, payload })
}
