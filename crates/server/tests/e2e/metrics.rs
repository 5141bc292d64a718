//! `/metrics`: every name of the contract, with its labels, after some traffic.

use serde_json::json;
use tashika_domain::order::broker_code;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::{Broker, Request, Server, Setup, order};

on_both!(every_metric_of_the_contract_is_there);

/// The value of a series, by its name and labels as they are written.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|number| number.parse().unwrap())
}

async fn traffic(server: &Server, broker: &Broker) {
    broker.scripted.script_for("down-000001", [Act::busy()]);
    broker.scripted.script_for("lost-000001", [Act::LoseBefore]);
    broker.scripted.script_for("rejected-01", [Act::refuse(broker_code::BAD_REQUEST)]);
    broker.scripted.script_for("internal-01", [Act::refuse(broker_code::UNAUTHORIZED)]);
    for key in ["fine-000001", "down-000001", "lost-000001", "rejected-01", "internal-01"] {
        server.accepted(&order(key)).await;
        server.settled(key).await;
    }
    let mut other = order("fine-000001");
    other["qty"] = json!(7);
    assert_eq!(server.place(&other).await.status, 409);
    other["qty"] = json!(-7);
    assert_eq!(server.place(&other).await.status, 422);
    assert_eq!(
        server.ask(Request::post("other-0001", order("key-0001").to_string())).await.status,
        422
    );
    assert_eq!(server.place(&order("fine-000001")).await.status, 200);
    assert_eq!(server.place(&order("too-many-01")).await.status, 429);
}

async fn every_metric_of_the_contract_is_there(db: TestDb) {
    let broker = Broker::with_keys().await;
    let setup = Setup::of(&db).broker(&broker).set("RL_RATE_PER_MIN", "0.01").set("RL_BURST", 5);
    let server = setup.start().await;
    traffic(&server, &broker).await;
    // The last settlement is answered by the ledger before it is counted.
    let metrics = until("the last attempt to be counted", async || {
        let answer = server.get("/metrics").await;
        assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
        let settled = value(&answer.body, "outbox_processed_total{outcome=\"aborted\"}");
        (settled == Some(2.0)).then_some(answer.body)
    })
    .await;
    for (series, expected) in [
        ("order_requests_total{outcome=\"accepted\"}", 5.0),
        ("order_requests_total{outcome=\"succeeded\"}", 3.0),
        ("order_requests_total{outcome=\"failed\"}", 2.0),
        ("order_requests_total{outcome=\"conflict\"}", 1.0),
        ("order_requests_total{outcome=\"validation\"}", 2.0),
        ("order_requests_total{outcome=\"rate_limited\"}", 1.0),
        ("idempotency_conflicts_total", 1.0),
        ("broker_requests_total{adapter=\"http\",outcome=\"ok\"}", 3.0),
        ("broker_requests_total{adapter=\"http\",outcome=\"down\"}", 1.0),
        ("broker_requests_total{adapter=\"http\",outcome=\"timeout\"}", 1.0),
        ("broker_requests_total{adapter=\"http\",outcome=\"rejected\"}", 1.0),
        ("broker_requests_total{adapter=\"http\",outcome=\"internal\"}", 1.0),
        ("outbox_claimed_total", 7.0),
        ("outbox_processed_total{outcome=\"succeeded\"}", 3.0),
        ("outbox_processed_total{outcome=\"failed\"}", 2.0),
        ("outbox_processed_total{outcome=\"aborted\"}", 2.0),
        ("outbox_retry_total{attempt=\"1\"}", 2.0),
        ("outbox_lock_lease_expired_total", 0.0),
        ("outbox_latency_ms_count{phase=\"send\"}", 7.0),
        ("outbox_latency_ms_count{phase=\"commit\"}", 7.0),
        ("outbox_age_seconds_count", 7.0),
        ("do_order_latency_ms_count{phase=\"broker_rtt\"}", 7.0),
        ("do_order_latency_ms_count{phase=\"total\"}", 5.0),
    ] {
        assert_eq!(value(&metrics, series), Some(expected), "{series}\n{metrics}");
    }
    for series in [
        "outbox_latency_ms_count{phase=\"claim\"}",
        "do_order_latency_ms_count{phase=\"validation\"}",
        "do_order_latency_ms_count{phase=\"accept\"}",
        "outbox_pending_count",
        "idempo_ledger_rows",
    ] {
        assert!(value(&metrics, series).is_some(), "{series}\n{metrics}");
    }
    assert!(metrics.contains("outbox_age_seconds_bucket{le="), "a p95 can be computed");
    server.stop().await;
}
