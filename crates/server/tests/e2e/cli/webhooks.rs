//! `tashika webhooks`.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use super::{NOBODY, text};
use crate::webhooks::{PAID, ended, event, setup, stripe, taken};

on_both!(events_are_looked_at_and_processed_again);

async fn events_are_looked_at_and_processed_again(db: TestDb) {
    let setup = setup(&db);
    let server = setup.start().await;
    let none = setup.print(&["webhooks", "list", "--status", "failed"]).await;
    assert_eq!(none, "no event has failed\n");
    let mut ids = Vec::new();
    for name in ["evt_1", "evt_2", "evt_3"] {
        let answer = server.ask(stripe(&event(name, PAID, "cus_nobody"))).await;
        ids.push(taken(&answer, name));
        ended(&server, ids.last().unwrap(), "failed").await;
    }
    let listed = setup.print_json(&["webhooks", "list", "--json", "--status", "failed"]).await;
    assert_eq!(listed, server.get("/webhook-events?status=failed").await.json());
    let table = setup.print(&["webhooks", "list", "--type", PAID, "--limit", "1"]).await;
    assert!(table.contains("evt_3") && table.contains("more: --cursor"), "{table}");
    let shown = setup.print(&["webhooks", "show", &ids[0]]).await;
    assert!(shown.contains("UNKNOWN_CUSTOMER") && !shown.contains("planted@"), "{shown}");
    let stats = setup.print(&["webhooks", "stats"]).await;
    assert!(stats.contains(PAID) && stats.contains("failed"), "{stats}");
    server.stop().await;

    // One that is there, one that is not.
    let output =
        setup.run(&["webhooks", "replay", &ids[0], NOBODY, "--by", "aiko", "--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["replayed"], &said["items"][0]["status"]), (&json!(1), &json!("pending")));
    assert_eq!(said["refused"][0]["id"], NOBODY);
    assert!(text(&said["refused"][0]["why"]).contains("WEBHOOK_EVENT_NOT_FOUND"), "{said}");
    // It waits for its turn already.
    let twice = setup.run(&["webhooks", "replay", &ids[0]]).await;
    let complaint = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert_eq!(twice.status.code(), Some(1));
    assert!(
        complaint.contains("WEBHOOK_EVENT_NOT_FAILED") && complaint.contains(&ids[0]),
        "{complaint}"
    );
    let other = setup.print(&["webhooks", "replay", "--all", "--source", "shopify"]).await;
    assert_eq!(other, "replayed 0\n");
    let rest = setup.print_json(&["webhooks", "replay", "--all", "--type", PAID, "--json"]).await;
    assert_eq!(rest, json!({"replayed": 2}));
    let audited = setup.print_json(&["audit", "search", "--target-id", &ids[0], "--json"]).await;
    let who: Vec<&Value> =
        audited["items"].as_array().unwrap().iter().map(|line| &line["actorId"]).collect();
    assert!(who.contains(&&json!("aiko")), "{audited}");
    let server = setup.start().await;
    for id in &ids {
        ended(&server, id, "failed").await;
    }
    server.stop().await;
}
