//! `tashika top`.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::payments::Gateway;
use crate::support::{Broker, KEY, order};
use crate::watch;

on_both!(what_flows_and_what_stands_is_seen);

fn lane<'a>(reading: &'a Value, name: &str) -> &'a Value {
    let mut lanes = reading["lanes"].as_array().unwrap().iter();
    lanes.find(|lane| lane["lane"] == name).unwrap_or_else(|| panic!("{reading}"))
}

async fn what_flows_and_what_stands_is_seen(db: TestDb) {
    let (gateway, broker) = (Gateway::start().await, Broker::with_keys().await);
    let setup = watch::setup(&db, &gateway).broker(&broker);
    setup.print(&["migrate"]).await;
    let empty = setup.print(&["top", "--once"]).await;
    assert!(empty.contains("0 open cases") && empty.contains("no process works"), "{empty}");
    let server = setup.start().await;
    watch::stuck(&server, &gateway, "cli-3001").await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    let seen = until("the alert", async || {
        let seen = setup.print_json(&["top", "--json"]).await;
        (!seen["alerts"].as_array().unwrap().is_empty()).then_some(seen)
    })
    .await;
    assert_eq!(
        (&seen["counts"]["openCases"], &lane(&seen, "orders")["succeeded"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(seen["processes"][0]["alive"], true, "{seen}");
    // Standard output is no terminal: one frame, and the end.
    let shown = setup.print(&["top"]).await;
    for part in ["1 open cases", "payment_unknown", "manual_case", "LANE", "orders", "alive"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains('\x1b'), "no terminal, no colours: {shown:?}");
    server.stop().await;

    // Accepted while nobody sends: it waits, and is seen to.
    let closed = setup.clone().set("OUTBOX_ENABLED", false);
    let server = closed.start().await;
    server.accepted(&order("waits-0001")).await;
    let seen = setup.print_json(&["top", "--json"]).await;
    assert_eq!(lane(&seen, "orders")["waiting"], 1, "{seen}");
    assert!(lane(&seen, "orders")["oldestDueAt"].is_string(), "{seen}");
    server.stop().await;
}
