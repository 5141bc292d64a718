//! `tashika alerts`, and the audit log.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use super::{NOBODY, text};
use crate::support::payments::Gateway;
use crate::watch;

on_both!(alerts_are_seen_and_silenced);

async fn alerts_are_seen_and_silenced(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = watch::setup(&db, &gateway);
    let server = setup.start().await;
    let nothing = setup.print(&["alerts", "list", "--state", "firing"]).await;
    assert_eq!(nothing, "nothing fires\n");
    watch::stuck(&server, &gateway, "cli-2001").await;
    let firing = ["alerts", "list", "--state", "firing", "--rule", "manual_case", "--json"];
    let alert = until("the alert", async || {
        setup.print_json(&firing).await["items"].as_array().unwrap().first().cloned()
    })
    .await;
    let id = text(&alert["id"]);
    // Nobody else writes it from here on.
    server.stop().await;
    let table = setup.print(&["alerts", "list", "--severity", "critical"]).await;
    assert!(table.contains(id) && table.contains("manual_case"), "{table}");

    let ack = |by| ["alerts", "acknowledge", id, "--note", "looking", "--by", by];
    assert_eq!(setup.print(&ack("aiko")).await, "acknowledged by aiko\n");
    assert_eq!(setup.print(&ack("ken")).await, "acknowledged by aiko\n", "whoever was first stays");
    let silence =
        ["alerts", "silence", id, "--for", "2h", "--reason", "known", "--by", "aiko", "--json"];
    let silenced = setup.print_json(&silence).await;
    assert_eq!(
        (&silenced["silenceReason"], &silenced["silencedBy"]),
        (&json!("known"), &json!("aiko"))
    );
    let shown = setup.print_json(&["alerts", "show", id, "--json"]).await;
    assert_eq!(shown, silenced);
    let long = setup.refused(&["alerts", "silence", id, "--for", "31d", "--reason", "quiet"]).await;
    assert!(long.contains("minutes"), "{long}");
    let over = ["alerts", "silence", id, "--over", "--reason", "done", "--by", "aiko"];
    assert_eq!(setup.print(&over).await, "people are told about it again\n");
    for verb in ["acknowledge", "show"] {
        let missing = setup.refused(&["alerts", verb, NOBODY]).await;
        assert!(missing.contains(NOBODY) && missing.contains("ALERT_NOT_FOUND"), "{missing}");
    }

    let log = setup.print_json(&["audit", "list", "--target-type", "alert", "--json"]).await;
    let did: Vec<&str> =
        log["items"].as_array().unwrap().iter().map(|line| text(&line["action"])).collect();
    assert_eq!(did, ["alert.unsilenced", "alert.silenced", "alert.acknowledged"]);
    let page = setup.print_json(&["audit", "list", "--limit", "1", "--json"]).await;
    let next = ["audit", "list", "--limit", "1", "--json", "--cursor", text(&page["nextCursor"])];
    assert_ne!(setup.print_json(&next).await["items"], page["items"]);
    let table = setup.print(&["audit", "search", "--action", "alert.silenced"]).await;
    assert!(table.contains("aiko") && table.contains(id), "{table}");
    let none = setup.print(&["audit", "list", "--to", "2001-01-01T00:00:00Z"]).await;
    assert_eq!(none, "the log has no such lines\n");
    let verified = setup.print_json(&["audit", "verify", "--json"]).await;
    assert_eq!(
        (&verified["state"], &verified["findings"]),
        (&json!("intact"), &Value::from(Vec::<Value>::new()))
    );
}
