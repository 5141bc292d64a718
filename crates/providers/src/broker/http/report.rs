//! Reading a broker's JSON.
//!
//! Strict where it matters: an execution counts only if every number in it makes sense and it is
//! about our order. A report that cannot be read is no report (`None`), never a failure. Unknown
//! fields are ignored.

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::decimal::Decimal;
use tashika_domain::order::{Execution, Fill, code};
use tashika_domain::outcome::Reason;

use super::Whereabouts;
use crate::http::Answer;

/// Longest piece of a broker's own words that is kept.
const WORDS_MAX: usize = 200;

#[derive(Deserialize)]
struct Report {
    client_order_id: Option<String>,
    status: Option<String>,
    order_ref: Option<String>,
    fills: Option<Vec<Fill>>,
    #[serde(default)]
    cost: f64,
    #[serde(default)]
    warnings: Vec<String>,
}

/// What a successful reply says about the order `id`; `None` if it cannot be understood.
///
/// Without a `status` it is an execution, if it has all that one needs.
pub(super) fn whereabouts(body: &[u8], id: &str) -> Option<Whereabouts> {
    let report: Report = serde_json::from_slice(body).ok()?;
    if report.client_order_id.as_deref().is_some_and(|other| other != id) {
        // Somebody else's answer.
        return None;
    }
    match report.status.as_deref() {
        None | Some("executed" | "filled" | "ok") => execution(report).map(Whereabouts::Executed),
        Some("working") => Some(Whereabouts::Working),
        Some("not_found") => Some(Whereabouts::NotFound),
        Some("rejected" | "error") => {
            let words = words(body).unwrap_or_else(|| "no reason given".to_owned());
            let message = format!("the broker rejected the order: {words}");
            Some(Whereabouts::Rejected(Reason::new(code::REJECTED, message)))
        }
        Some(_) => None,
    }
}

/// The execution that a conflict encloses: as `execution`, or as the reply itself.
pub(super) fn enclosed_execution(body: &[u8], id: &str) -> Option<Execution> {
    let reply: Value = serde_json::from_slice(body).ok()?;
    let enclosed = reply.get("execution").map(ToString::to_string);
    match whereabouts(enclosed.as_deref().map_or(body, str::as_bytes), id)? {
        Whereabouts::Executed(execution) => Some(execution),
        _ => None,
    }
}

fn execution(report: Report) -> Option<Execution> {
    let order_ref = report.order_ref.filter(|name| !name.trim().is_empty())?;
    let fills = report.fills?;
    // Prices may be negative, quantities may not; both must be decimals that we can add up.
    let sensible = |fill: &Fill| {
        fill.qty > 0.0
            && Decimal::from_f64(fill.qty).is_some()
            && Decimal::from_f64(fill.px).is_some()
    };
    if !fills.iter().all(sensible) || !report.cost.is_finite() {
        return None;
    }
    // A NUL cannot be kept by every database, and an execution that cannot be written down is lost.
    let clean = |text: String| text.replace('\0', "");
    Some(Execution {
        order_ref: clean(order_ref),
        fills,
        cost: report.cost,
        warnings: report.warnings.into_iter().map(clean).collect(),
    })
}

pub(super) fn is_already_processed(body: &[u8]) -> bool {
    says(body, &["ALREADY_PROCESSED"])
}

pub(super) fn is_key_conflict(body: &[u8]) -> bool {
    says(body, &["IDEMPOTENCY_CONFLICT"])
}

pub(super) fn is_not_found(body: &[u8]) -> bool {
    says(body, &["ORDER_NOT_FOUND", "NOT_FOUND"])
}

/// Whether the reply carries one of these codes, with or without `BROKER_` in front.
fn says(body: &[u8], codes: &[&str]) -> bool {
    let Ok(reply) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let fields = ["code", "reason", "reason_code", "error", "status"];
    fields.iter().any(|field| {
        let said = reply.get(field).and_then(Value::as_str).unwrap_or_default();
        let said = said.to_ascii_uppercase();
        codes.contains(&said.strip_prefix("BROKER_").unwrap_or(&said))
    })
}

/// An answer in a sentence: `the broker answered 422: INSUFFICIENT_MARGIN: not enough margin`.
pub(super) fn sentence(answer: &Answer) -> String {
    let status = answer.status.as_u16();
    match words(&answer.body) {
        Some(words) => format!("the broker answered {status}: {words}"),
        None => format!("the broker answered {status}"),
    }
}

/// The broker's code and message, shortened and without control characters: they are shown to
/// operators, and a stranger wrote them.
fn words(body: &[u8]) -> Option<String> {
    let reply: Value = serde_json::from_slice(body).ok()?;
    let first = |fields: &[&str]| {
        let text = fields.iter().find_map(|field| reply.get(field)?.as_str())?;
        let clean = text.chars().filter(|c| !c.is_control());
        let clean: String = clean.take(WORDS_MAX).collect();
        (!clean.is_empty()).then_some(clean)
    };
    let code = first(&["code", "reason_code", "reason", "error"]);
    match (code, first(&["message", "detail"])) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Option<Whereabouts> {
        whereabouts(body.to_string().as_bytes(), "key-0001")
    }

    fn full() -> Value {
        json!({
            "status": "executed",
            "client_order_id": "key-0001",
            "order_ref": "B-1",
            "fills": [{"px": 150, "qty": 0.1, "ts": "2026-11-15T09:30:00Z"}],
            "cost": 0.5,
            "warnings": ["th\u{0}in"],
            "something": "else",
        })
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = full();
        body[field] = value;
        body
    }

    #[test]
    fn an_execution_is_read_whole() {
        let Some(Whereabouts::Executed(execution)) = read(&full()) else {
            panic!("not read");
        };
        assert_eq!(execution.order_ref, "B-1");
        assert_eq!(execution.fills.len(), 1);
        assert_eq!(execution.warnings, ["thin"]);
        for status in ["filled", "ok"] {
            assert!(read(&with("status", json!(status))).is_some());
        }
        let bare = json!({"order_ref": "B-1", "fills": []});
        assert!(matches!(read(&bare), Some(Whereabouts::Executed(_))));
    }

    #[test]
    fn whatever_is_not_quite_an_execution_is_not_one() {
        for (field, value) in [
            ("client_order_id", json!("key-0002")),
            ("order_ref", json!(null)),
            ("order_ref", json!(" ")),
            ("order_ref", json!(7)),
            ("fills", json!(null)),
            ("fills", json!({})),
            ("fills", json!([{"px": 150, "qty": 0.1}])),
            ("fills", json!([{"px": 150, "qty": 0, "ts": "2026-11-15T09:30:00Z"}])),
            ("fills", json!([{"px": 150, "qty": -1, "ts": "2026-11-15T09:30:00Z"}])),
            ("fills", json!([{"px": 1e300, "qty": 1, "ts": "2026-11-15T09:30:00Z"}])),
            ("fills", json!([{"px": "150", "qty": 1, "ts": "2026-11-15T09:30:00Z"}])),
            ("fills", json!([{"px": 150, "qty": 1, "ts": "yesterday"}])),
            ("cost", json!("free")),
            ("status", json!("settling")),
            ("status", json!(1)),
        ] {
            assert_eq!(read(&with(field, value.clone())), None, "{field} = {value}");
        }
        for body in [&b""[..], b"<html>", b"[]", b"null", b"\xff\xfe", b"{}"] {
            assert_eq!(whereabouts(body, "key-0001"), None);
        }
    }

    #[test]
    fn other_states_need_no_report() {
        assert_eq!(read(&json!({"status": "working"})), Some(Whereabouts::Working));
        assert_eq!(read(&json!({"status": "not_found"})), Some(Whereabouts::NotFound));
        let Some(Whereabouts::Rejected(reason)) =
            read(&json!({"status": "rejected", "code": "NO_MARGIN", "message": "too\u{7} little"}))
        else {
            panic!("not read");
        };
        assert_eq!(reason.code, "BROKER_REJECTED");
        assert_eq!(reason.message, "the broker rejected the order: NO_MARGIN: too little");
    }

    #[test]
    fn codes_are_found_wherever_brokers_put_them() {
        for body in [
            r#"{"code":"BROKER_ALREADY_PROCESSED"}"#,
            r#"{"reason":"ALREADY_PROCESSED"}"#,
            r#"{"reason_code":"already_processed"}"#,
            r#"{"error":"ALREADY_PROCESSED"}"#,
        ] {
            assert!(is_already_processed(body.as_bytes()), "{body}");
        }
        for body in [
            r#"{"code":"DUPLICATE"}"#,
            r#"{"message":"ALREADY_PROCESSED"}"#,
            "ALREADY_PROCESSED",
            "",
        ] {
            assert!(!is_already_processed(body.as_bytes()), "{body}");
        }
    }
}
