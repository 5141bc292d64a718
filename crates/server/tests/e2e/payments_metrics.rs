//! `/metrics`: the names and labels of payments, exactly as the contract has them.

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Request, Setup};

on_both!(every_payment_metric_of_the_contract_is_there);

/// The value of a series, by its name and labels as they are written.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|number| number.parse().unwrap())
}

async fn every_payment_metric_of_the_contract_is_there(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_VERIFY_MAX_ATTEMPTS", 1);
    let server = setup.clone().set("PAYMENT_VERIFY_INTERVAL_SEC", 3600).start().await;
    // What alerts watch is there before anything has happened.
    let metrics = until("the gauges", async || {
        let body = server.get("/metrics").await.body;
        let all =
            ["PENDING", "AUTHORIZED"].map(|s| format!("payment_active_count{{status=\"{s}\"}}"));
        let there = all.iter().all(|series| value(&body, series).is_some());
        (there && value(&body, "payment_pending_verification_count").is_some()).then_some(body)
    })
    .await;
    for (series, kind) in [
        ("payment_verification_failed_total", "counter"),
        ("payment_gateway_timeout_total", "counter"),
        ("payment_idempotency_hit_total", "counter"),
        ("payment_pending_verification_count", "gauge"),
    ] {
        assert_eq!(value(&metrics, series), Some(0.0), "{series}\n{metrics}");
        assert!(metrics.contains(&format!("# TYPE {series} {kind}\n")), "{series}\n{metrics}");
        assert!(metrics.contains(&format!("# HELP {series} ")), "{series}\n{metrics}");
    }
    for status in ["PENDING", "AUTHORIZED"] {
        let series = format!("payment_active_count{{status=\"{status}\"}}");
        assert_eq!(value(&metrics, &series), Some(0.0), "{series}\n{metrics}");
    }

    let mut automatic = payment("pm_card_visa");
    automatic["capture"] = json!("automatic");
    server.paid("metrics-1", &payment("pm_card_visa"), 201, "AUTHORIZED").await;
    let captured = id(&server.paid("metrics-2", &automatic, 201, "CAPTURED").await);
    server.act(&captured, "refund", "metrics-r", &json!({})).await.payment(200, "REFUNDED");
    let mut yen = payment("pm_card_chargeDeclined");
    yen["currency"] = json!("JPY");
    yen["amount"] = json!(700);
    server.paid("metrics-3", &yen, 402, "FAILED").await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    let lost = id(&server.paid("metrics-4", &payment("pm_card_visa"), 202, "PENDING").await);
    assert!(server.ask(Request::pay("metrics-1", &payment("pm_card_visa"))).await.replayed());
    let metrics = server.get("/metrics").await.body;
    let gateway_request = |operation: &str, status: &str| {
        format!(
            "payment_gateway_request_total{{gateway=\"stripe\",operation=\"{operation}\",status=\"{status}\"}}"
        )
    };
    for (series, expected) in [
        ("payment_create_total{status=\"AUTHORIZED\",currency=\"EUR\"}".to_owned(), 1.0),
        ("payment_create_total{status=\"CAPTURED\",currency=\"EUR\"}".to_owned(), 1.0),
        ("payment_create_total{status=\"PENDING\",currency=\"EUR\"}".to_owned(), 1.0),
        ("payment_create_total{status=\"FAILED\",currency=\"JPY\"}".to_owned(), 1.0),
        ("payment_create_duration_seconds_count{status=\"AUTHORIZED\"}".to_owned(), 1.0),
        ("payment_create_duration_seconds_count{status=\"PENDING\"}".to_owned(), 1.0),
        ("payment_idempotency_hit_total".to_owned(), 1.0),
        (gateway_request("authorize", "ok"), 2.0),
        (gateway_request("authorize", "declined"), 1.0),
        (gateway_request("authorize", "timeout"), 1.0),
        (gateway_request("capture", "ok"), 1.0),
        (gateway_request("refund", "ok"), 1.0),
        (
            "payment_gateway_duration_seconds_count{gateway=\"stripe\",operation=\"authorize\"}"
                .to_owned(),
            4.0,
        ),
        ("payment_gateway_timeout_total".to_owned(), 1.0),
        ("payment_amount_total{currency=\"EUR\",status=\"AUTHORIZED\"}".to_owned(), 200.0),
        ("payment_amount_total{currency=\"EUR\",status=\"CAPTURED\"}".to_owned(), 100.0),
        ("payment_amount_total{currency=\"EUR\",status=\"REFUNDED\"}".to_owned(), 100.0),
        ("payment_amount_total{currency=\"JPY\",status=\"FAILED\"}".to_owned(), 700.0),
        ("payment_verification_failed_total".to_owned(), 0.0),
    ] {
        assert_eq!(value(&metrics, &series), Some(expected), "{series}\n{metrics}");
    }
    assert!(
        metrics.contains("payment_create_duration_seconds_bucket{status=\"AUTHORIZED\",le="),
        "{metrics}"
    );

    // The gauges count rows, so a process that has just started knows them.
    server.stop().await;
    let server = setup.clone().set("OUTBOX_PAYMENTS_ENABLED", false).start().await;
    until("the gauges", async || {
        let metrics = server.get("/metrics").await.body;
        let gauges = [
            "payment_active_count{status=\"PENDING\"}",
            "payment_active_count{status=\"AUTHORIZED\"}",
            "payment_pending_verification_count",
        ];
        (gauges.map(|series| value(&metrics, series)) == [Some(1.0); 3]).then_some(())
    })
    .await;
    server.stop().await;

    gateway.world.usually(Operation::Retrieve, Fault::DropBefore);
    let server = setup.start().await;
    // Due in an hour: whoever cannot wait asks by hand, which does not count as a question.
    db.sql("update outbox set next_run_at = created_at where kind = 'payment'").await;
    server.payment_given_up(&lost).await;
    until("the count", async || {
        let metrics = server.get("/metrics").await.body;
        (value(&metrics, "payment_verification_failed_total") == Some(1.0)).then_some(())
    })
    .await;
    server.stop().await;
}
