//! Each row of the contract's table of failures: what the caller is told in the end.

use serde_json::{Value, json};
use tashika_domain::Status;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::{ExecResult, broker_code, code};
use tashika_domain::outcome::Reason;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{Rig, body, patience, place, policy, stop};

on_both!(
    every_failure_is_told_by_its_public_code,
    a_result_tells_everything_the_contract_names,
    an_error_tells_that_nothing_was_executed,
);

const ATTEMPTS: u32 = 2;

/// What the broker does every time, the public code, the HTTP status, and how many attempts it takes.
fn failures() -> Vec<(&'static str, Act, &'static str, u16, u32)> {
    let refuse = Act::refuse;
    vec![
        ("rejected", refuse("BROKER_REJECTED"), code::REJECTED, 400, 1),
        ("bad-request", refuse(broker_code::BAD_REQUEST), code::REJECTED, 400, 1),
        ("unauthorized", refuse(broker_code::UNAUTHORIZED), code::INTERNAL, 500, 1),
        ("unknown-refusal", refuse(broker_code::UNKNOWN), code::INTERNAL, 500, 1),
        ("rate-limited", Act::busy(), code::DOWN, 503, ATTEMPTS),
        ("server-error", Act::Fail { executed: false }, code::DOWN, 503, ATTEMPTS),
        ("timed-out", Act::LoseBefore, code::TIMEOUT, 504, ATTEMPTS),
        ("panicking", Act::Panic("a defect of ours"), code::INTERNAL, 500, ATTEMPTS),
    ]
}

async fn every_failure_is_told_by_its_public_code(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    for (key, act, ..) in failures() {
        rig.broker.script_for(key, vec![act; ATTEMPTS as usize]);
        rig.place(key).await;
    }
    let running = rig.start(patience(ATTEMPTS));
    for (key, _, public, http_status, attempts) in failures() {
        let row = rig.aborted(key).await;
        assert_eq!(row.attempts, attempts, "{key}");
        assert_eq!(rig.broker.sent(key), attempts as usize, "{key}");
        let entry = rig.entry(key).await;
        assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, http_status), "{key}");
        let (told_status, told) = rig.replay(key).await;
        assert_eq!((told_status, told["reason_code"].as_str()), (http_status, Some(public)));
        let view = rig.find(key).await;
        assert_eq!(serde_json::from_str::<Value>(&view.body).unwrap(), told, "{key}");
        // Only what may have been executed is worth a person's time.
        assert_eq!(view.case.is_some(), row.in_doubt, "{key}");
    }
    stop(running).await;
}

async fn a_result_tells_everything_the_contract_names(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let mut request = body("key-0001");
    for (field, value) in [
        ("order_id", json!("o-1")),
        ("side", json!("SELL")),
        ("qty", json!(0.3)),
        ("price", json!(150.25)),
        ("trace_id", json!("t-1")),
        ("requested_at", json!("2020-01-01T00:00:00Z")),
    ] {
        request[field] = value;
    }
    place(&rig.orders, &request).await.unwrap();
    let running = rig.start(policy());
    rig.succeeded("key-0001").await;

    let entry = rig.entry("key-0001").await;
    let told: Value = serde_json::from_str(&entry.response).unwrap();
    for field in [
        "status",
        "order_id",
        "instrument",
        "side",
        "requested_at",
        "completed_at",
        "trace_id",
        "idempotency_key",
        "fills",
        "avg_price",
        "executed_qty",
        "cost",
        "slippage",
        "broker",
        "latency_ms",
        "reason_code",
        "warnings",
    ] {
        assert!(told.get(field).is_some(), "{field} is missing: {told}");
    }
    assert_eq!((&told["order_id"], &told["trace_id"]), (&json!("o-1"), &json!("t-1")));
    assert_eq!((&told["side"], &told["executed_qty"]), (&json!("SELL"), &json!(0.3)));
    assert_eq!((&told["avg_price"], &told["slippage"]), (&json!(150.25), &json!(0.0)));
    assert_eq!(told["requested_at"], json!("2020-01-01T00:00:00.000000Z"));
    for phase in ["queue", "broker_rtt", "total"] {
        assert!(told["latency_ms"][phase].is_u64(), "{phase}");
    }
    let result: ExecResult = serde_json::from_value(told).unwrap();
    assert_eq!(entry.result_digest, Some(result.digest()));
    stop(running).await;
}

async fn an_error_tells_that_nothing_was_executed(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::Refuse(Reason::new(broker_code::BAD_REQUEST, "no margin"))]);
    rig.place("key-0001").await;
    let running = rig.start(policy());

    assert_eq!(rig.aborted("key-0001").await.status, Status::Aborted);
    let told = rig.replay("key-0001").await.1;
    assert_eq!(told["status"], json!("error"));
    assert_eq!((&told["fills"], &told["avg_price"]), (&json!([]), &json!(null)));
    assert_eq!(told["executed_qty"].as_f64(), Some(0.0));
    assert!(!told.to_string().contains("no margin"), "the broker's words are the operator's");
    stop(running).await;
}
