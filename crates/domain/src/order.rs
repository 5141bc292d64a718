//! Orders: reliable sending through a broker.
//!
//! Decides what a caller's request becomes ([`accept`]), whether an order may be sent or must be
//! asked about first ([`next_step`]), and what is written when an attempt has ended ([`settle`]).
//! Guarantees: an order in doubt is never sent again to a broker that does not recognise repeats,
//! and an order that nobody can account for ends as a case, not as a guess.

pub mod choices;
pub mod request;
pub mod result;

use serde_json::{Value, json};
use uuid::Uuid;

pub use request::{OrderRequest, OrderRules, Side, Violation, request_digest};
pub use result::{BrokerRef, Circumstances, ExecResult, Execution, Fill, Latency};

use crate::audit::{Actor, NewAudit, line_id};
use crate::case::NewCase;
use crate::changes::{Changes, Write};
use crate::effect::{Effect, EffectId, NewEffect, Verdict};
use crate::lane::Lane;
use crate::ledger::{LedgerEntry, LedgerKey, LedgerSettlement, LedgerStatus, NewLedgerEntry};
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

/// The effect kind and the ledger scope of orders.
pub const KIND: &str = "order";
/// The case that is opened when nobody can say what became of an order.
pub const CASE_UNANSWERED: &str = "order_unanswered";

/// Public reason codes, the ones a caller sees.
pub mod code {
    pub const REJECTED: &str = "BROKER_REJECTED";
    pub const TIMEOUT: &str = "BROKER_TIMEOUT";
    pub const DOWN: &str = "BROKER_DOWN";
    pub const INTERNAL: &str = "INTERNAL_ERROR";
}

/// Reason codes of a broker, the ones an operator sees.
pub mod broker_code {
    pub const UNAUTHORIZED: &str = "BROKER_UNAUTHORIZED";
    pub const BAD_REQUEST: &str = "BROKER_BAD_REQUEST";
    pub const RATE_LIMITED: &str = "BROKER_RATE_LIMITED";
    pub const SERVER_ERROR: &str = "BROKER_5XX";
    pub const TIMEOUT: &str = "BROKER_TIMEOUT";
    pub const UNREACHABLE: &str = "BROKER_DOWN";
    pub const UNKNOWN: &str = "BROKER_UNKNOWN";
}

/// The public code and HTTP status for whatever ended an order.
#[must_use]
pub fn public_failure(reason_code: &str) -> (&'static str, u16) {
    match reason_code {
        broker_code::BAD_REQUEST | code::REJECTED => (code::REJECTED, 400),
        broker_code::TIMEOUT => (code::TIMEOUT, 504),
        broker_code::SERVER_ERROR | broker_code::RATE_LIMITED | broker_code::UNREACHABLE => {
            (code::DOWN, 503)
        }
        _ => (code::INTERNAL, 500),
    }
}

/// What the shell brings to an acceptance: identity, time and trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    pub id: EffectId,
    pub now: Timestamp,
    pub expires_at: Timestamp,
    pub traceparent: Option<String>,
}

/// Accepts a valid order: its ledger entry and its effect, together.
///
/// Returns what to write and the light acknowledgement for the caller.
#[must_use]
pub fn accept(order: &OrderRequest, body: &Value, at: Acceptance) -> (Changes, Value) {
    let digest = request_digest(body);
    let ack = acknowledgement(order, &digest, at.now);
    let entry = NewLedgerEntry {
        key: LedgerKey::new(KIND, &order.idempotency_key),
        request_digest: digest.clone(),
        http_status: 200,
        response: ack.to_string(),
        now: at.now,
        expires_at: at.expires_at,
    };
    let effect = NewEffect {
        id: at.id,
        lane: Lane::ORDERS,
        kind: KIND.into(),
        key: Some(order.idempotency_key.clone()),
        digest: Some(digest),
        payload: body.to_string(),
        run_at: at.now,
        created_at: at.now,
        expires_at: at.expires_at,
        traceparent: at.traceparent,
        held_by: None,
    };
    let changes = Changes::from(Write::LedgerAccept(entry)).with(Write::Enqueue(effect));
    (changes, ack)
}

fn acknowledgement(order: &OrderRequest, digest: &str, accepted_at: Timestamp) -> Value {
    json!({
        "status": "accepted",
        "order_id": order.order_id,
        "idempotency_key": order.idempotency_key,
        "request_digest": digest,
        "accepted_at": accepted_at,
        "trace_id": order.trace_id,
    })
}

/// What a caller is told about an order that the ledger knows.
///
/// The stored answer; but an entry that was settled once and is open again (a requeue) still stores
/// the failure of its first life, which is no longer the answer.
#[must_use]
pub fn standing(entry: &LedgerEntry) -> (u16, String) {
    if entry.status != LedgerStatus::Accepted || entry.result_digest.is_none() {
        return (entry.http_status, entry.response.clone());
    }
    let ack = json!({
        "status": "accepted",
        "idempotency_key": entry.key.key,
        "request_digest": entry.request_digest,
        "accepted_at": entry.first_seen_at,
    });
    (200, ack.to_string())
}

/// What to do with an order that a worker has in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send it: it was never sent, or the broker recognises a repeat.
    Send,
    /// Ask by client order id whether it happened; send only if it did not.
    AskFirst,
}

#[must_use]
pub fn next_step(in_doubt: bool, broker_takes_keys: bool) -> Step {
    if in_doubt && !broker_takes_keys && !mutant::on(Mutant::OrderSentWithoutAsking) {
        Step::AskFirst
    } else {
        Step::Send
    }
}

/// How an order's attempt ended, with what is needed to write the answer.
pub struct Ending<'a> {
    pub effect: &'a Effect,
    pub order: &'a OrderRequest,
    pub verdict: &'a Verdict,
    /// The execution, if the attempt brought one.
    pub execution: Option<&'a Execution>,
    pub broker_takes_keys: bool,
    /// Whether it was accepted by us, and so has an entry in the ledger.
    pub recorded: bool,
    pub at: Circumstances<'a>,
    pub expires_at: Timestamp,
    /// Names the case, if one must be opened.
    pub case_id: Uuid,
}

/// What is written about an order together with its effect's settlement.
#[must_use]
pub fn settle(ending: &Ending<'_>) -> Changes {
    match (ending.verdict, ending.execution) {
        (Verdict::Succeeded, Some(execution)) => {
            let result = ExecResult::ok(ending.order, execution, &ending.at);
            ledger(ending, LedgerStatus::Succeeded, 200, &result)
        }
        // Settled from the ledger (W-105): the ledger already has the answer.
        (Verdict::Succeeded, None) | (Verdict::Retry { .. }, _) => Changes::new(),
        (Verdict::Aborted { reason, in_doubt }, _) => {
            let (public, http_status) = match public_failure(&reason.code) {
                // "Rejected" invites the caller to order again, and an earlier attempt of this order
                // may have been executed.
                (code::REJECTED, _) if *in_doubt => (code::TIMEOUT, 504),
                failure => failure,
            };
            let mut changes = Changes::new();
            // Where a repeat would be a second order, "failed" would be a guess: the entry stays
            // open until a person has decided.
            if !in_doubt || ending.broker_takes_keys {
                let result = ExecResult::error(ending.order, Some(public), &ending.at);
                changes.extend(ledger(ending, LedgerStatus::Failed, http_status, &result));
            } else if !ending.recorded {
                // An application's order: without an entry, its key would look free.
                changes.extend(open(ending));
            }
            if *in_doubt {
                changes.push(Write::OpenCase(unanswered(ending)));
            }
            changes
        }
    }
}

/// The audit line of an order that has ended. One that is tried again has not.
///
/// It also says when the order was accepted, so that one line tells an order's whole life: a line of its
/// own at the acceptance would be one more insert on the path that callers wait for.
#[must_use]
pub fn audit(effect: &Effect, verdict: &Verdict, now: Timestamp) -> Option<Write> {
    let (action, details) = match verdict {
        Verdict::Succeeded => {
            ("order.succeeded", json!({"outbox_id": effect.id, "accepted_at": effect.created_at}))
        }
        Verdict::Aborted { reason, in_doubt } => (
            "order.failed",
            json!({"outbox_id": effect.id, "accepted_at": effect.created_at,
                "reason_code": reason.code, "in_doubt": in_doubt}),
        ),
        Verdict::Retry { .. } => return None,
    };
    let target = effect.key.clone().unwrap_or_else(|| effect.id.to_string());
    Some(audit_line(Actor::SYSTEM, action, target, &details, now, effect.fence))
}

/// An audit line about an order.
#[must_use]
pub fn audit_line(
    actor: Actor,
    action: &str,
    target_id: String,
    details: &Value,
    now: Timestamp,
    nth: i64,
) -> Write {
    Write::Audit(Box::new(NewAudit {
        id: line_id(now, &target_id, action, nth.unsigned_abs()),
        actor,
        action: action.to_owned(),
        target_type: KIND,
        target_id,
        office_id: None,
        details: details.to_string(),
        now,
    }))
}

/// What is written about an order that cannot be read: that it has failed, and no more.
#[must_use]
pub fn settle_unreadable(
    effect: &Effect,
    verdict: &Verdict,
    now: Timestamp,
    expires_at: Timestamp,
) -> Changes {
    let (Verdict::Aborted { reason, .. }, Some(key), Some(digest)) =
        (verdict, &effect.key, &effect.digest)
    else {
        return Changes::new();
    };
    let (_, http_status) = public_failure(&reason.code);
    let response = unreadable(key, &reason.code);
    Changes::from(Write::LedgerSettle(LedgerSettlement {
        key: LedgerKey::new(KIND, key),
        request_digest: digest.clone(),
        status: LedgerStatus::Failed,
        http_status,
        result_digest: Some(crate::digest::digest(&response, &["idempotency_key"])),
        response: response.to_string(),
        now,
        expires_at,
    }))
}

/// The answer for an order of which nothing is known but its key and what ended it.
#[must_use]
pub fn unreadable(key: &str, reason_code: &str) -> Value {
    let (public, _) = public_failure(reason_code);
    json!({"status": "error", "idempotency_key": key, "reason_code": public})
}

fn ledger(
    ending: &Ending<'_>,
    status: LedgerStatus,
    http_status: u16,
    result: &ExecResult,
) -> Changes {
    let response = serde_json::to_string(result).unwrap_or_default();
    entry(ending, status, http_status, response, Some(result.digest()))
}

/// The entry that an order has from its acceptance on, if it was not accepted by us.
fn open(ending: &Ending<'_>) -> Changes {
    let digest = ending.effect.digest.as_deref().unwrap_or_default();
    let ack = acknowledgement(ending.order, digest, ending.at.accepted_at);
    entry(ending, LedgerStatus::Accepted, 200, ack.to_string(), None)
}

fn entry(
    ending: &Ending<'_>,
    status: LedgerStatus,
    http_status: u16,
    response: String,
    result_digest: Option<String>,
) -> Changes {
    let (Some(key), Some(digest)) = (&ending.effect.key, &ending.effect.digest) else {
        // Enqueued by an application that keeps no ledger.
        return Changes::new();
    };
    Changes::from(Write::LedgerSettle(LedgerSettlement {
        key: LedgerKey::new(KIND, key),
        request_digest: digest.clone(),
        status,
        http_status,
        response,
        result_digest,
        now: ending.at.now,
        expires_at: ending.expires_at,
    }))
}

/// What a person may decide about an order that nobody answered for.
pub const UNANSWERED_ACTIONS: [&str; 3] = ["executed", "not_executed", "resend"];

fn unanswered(ending: &Ending<'_>) -> NewCase {
    let order = ending.order;
    NewCase {
        id: ending.case_id,
        kind: CASE_UNANSWERED,
        subject_type: KIND,
        subject_id: order.idempotency_key.clone(),
        summary: format!(
            "The broker {} never said what became of {} {} {}; it may have been executed.",
            ending.at.broker,
            order.side.as_str(),
            order.qty,
            order.instrument,
        ),
        actions: UNANSWERED_ACTIONS.to_vec(),
        details: json!({
            "outbox_id": ending.effect.id,
            "client_order_id": order.idempotency_key,
            "broker": ending.at.broker,
            "attempts": ending.effect.attempts + 1,
        })
        .to_string(),
        now: ending.at.now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn order() -> OrderRequest {
        OrderRequest::from_stored(
            r#"{"instrument":"USDJPY","side":"BUY","qty":1,"idempotency_key":"key-0001"}"#,
        )
        .unwrap()
    }

    fn effect() -> Effect {
        Effect {
            id: EffectId(Uuid::nil()),
            lane: Lane::ORDERS,
            kind: KIND.into(),
            key: Some("key-0001".into()),
            digest: Some("sha256:d".into()),
            payload: String::new(),
            attempts: 5,
            in_doubt: false,
            fence: 1,
            has_row: true,
            created_at: NOW,
            run_at: NOW,
            traceparent: None,
        }
    }

    fn written(verdict: &Verdict, execution: Option<&Execution>, keys: bool) -> Vec<String> {
        written_if(true, verdict, execution, keys)
    }

    fn written_if(
        recorded: bool,
        verdict: &Verdict,
        execution: Option<&Execution>,
        keys: bool,
    ) -> Vec<String> {
        let (effect, order) = (effect(), order());
        let changes = settle(&Ending {
            effect: &effect,
            order: &order,
            verdict,
            execution,
            broker_takes_keys: keys,
            recorded,
            at: Circumstances {
                broker: "http",
                accepted_at: NOW,
                now: NOW,
                latency: Latency::default(),
            },
            expires_at: NOW,
            case_id: Uuid::nil(),
        });
        changes
            .writes()
            .iter()
            .map(|write| match write {
                Write::LedgerSettle(s) => format!("ledger {} {}", s.status.as_str(), s.http_status),
                Write::OpenCase(case) => format!("case {}", case.kind),
                other => format!("{other:?}"),
            })
            .collect()
    }

    fn aborted(code: &str, in_doubt: bool) -> Verdict {
        Verdict::Aborted { reason: Reason::new(code, ""), in_doubt }
    }

    #[test]
    fn every_ending_writes_what_it_must() {
        let execution =
            Execution { order_ref: "r".into(), fills: vec![], cost: 0.0, warnings: vec![] };
        let done = Verdict::Succeeded;
        let retry = Verdict::Retry { run_at: NOW, reason: Reason::new("X", ""), in_doubt: true };
        assert_eq!(written(&done, Some(&execution), true), ["ledger succeeded 200"]);
        assert!(written(&done, None, true).is_empty());
        assert!(written(&retry, None, true).is_empty());
        for (code, status) in [
            ("BROKER_BAD_REQUEST", 400),
            ("BROKER_TIMEOUT", 504),
            ("BROKER_5XX", 503),
            ("BROKER_RATE_LIMITED", 503),
            ("BROKER_DOWN", 503),
            ("BROKER_UNAUTHORIZED", 500),
            ("BROKER_UNKNOWN", 500),
            ("HANDLER_PANICKED", 500),
        ] {
            let expected = [format!("ledger failed {status}")];
            assert_eq!(written(&aborted(code, false), None, true), expected, "{code}");
        }
        assert_eq!(
            written(&aborted("BROKER_TIMEOUT", true), None, true),
            ["ledger failed 504", "case order_unanswered"],
        );
        assert_eq!(
            written(&aborted("BROKER_BAD_REQUEST", true), None, true),
            ["ledger failed 504", "case order_unanswered"],
            "refusing the repeat says nothing about the first",
        );
        assert_eq!(
            written(&aborted("BROKER_TIMEOUT", true), None, false),
            ["case order_unanswered"],
            "without keys the ledger must not guess",
        );
        assert_eq!(
            written_if(false, &aborted("BROKER_TIMEOUT", true), None, false),
            ["ledger accepted 200", "case order_unanswered"],
            "but it must know the key",
        );
    }

    #[test]
    fn a_reopened_entry_is_open_whatever_its_first_life_left_behind() {
        let entry = |status, result_digest: Option<&str>| LedgerEntry {
            key: LedgerKey::new(KIND, "key-0001"),
            request_digest: "sha256:d".into(),
            result_digest: result_digest.map(Into::into),
            status,
            http_status: 504,
            response: "stored".into(),
            first_seen_at: NOW,
            last_seen_at: NOW,
            expires_at: NOW,
        };
        let stored = (504, "stored".to_owned());
        assert_eq!(standing(&entry(LedgerStatus::Accepted, None)), stored);
        assert_eq!(standing(&entry(LedgerStatus::Failed, Some("sha256:r"))), stored);
        let (http_status, body) = standing(&entry(LedgerStatus::Accepted, Some("sha256:r")));
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((http_status, &body["status"]), (200, &json!("accepted")));
        assert_eq!(body["idempotency_key"], "key-0001");
    }

    #[test]
    fn only_doubt_without_keys_asks_first() {
        assert_eq!(next_step(false, false), Step::Send);
        assert_eq!(next_step(false, true), Step::Send);
        assert_eq!(next_step(true, true), Step::Send);
        assert_eq!(next_step(true, false), Step::AskFirst);
    }
}
