//! `tashika cases`.

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use super::{NOBODY, text};
use crate::support::payments::Gateway;
use crate::support::{Setup, rows};
use crate::watch;

on_both!(a_case_is_looked_at_and_decided, of_two_decisions_one_counts, orders_are_decided_too);

async fn a_case_is_looked_at_and_decided(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = watch::setup(&db, &gateway);
    let server = setup.start().await;
    let none = setup.print(&["cases", "list", "--status", "open"]).await;
    assert!(none.contains("no case is open"), "{none}");
    assert_eq!(setup.print_json(&["cases", "list", "--json"]).await, json!({"items": []}));
    let (payment, case) = watch::stuck(&server, &gateway, "cli-0001").await;
    let id = text(&case["id"]);

    // The same as over HTTP.
    let listed = setup.print_json(&["cases", "list", "--json", "--kind", "payment_unknown"]).await;
    assert_eq!(listed, server.get("/cases?kind=payment_unknown").await.json());
    let shown = setup.print_json(&["cases", "show", id, "--json"]).await;
    assert_eq!(shown, server.get(&format!("/cases/{id}")).await.json());
    let table = setup.print(&["cases", "list", "--subject-id", &payment]).await;
    assert!(table.contains(id) && table.contains("SUMMARY"), "{table}");
    let read = setup.print(&["cases", "show", id]).await;
    for part in
        ["What happened", "What was tried", "What may be done now", "attempt", "asked about"]
    {
        assert!(read.contains(part), "{part}: {read}");
    }
    for choice in shown["choices"].as_array().unwrap() {
        assert!(read.contains(text(&choice["consequence"])), "{choice}: {read}");
        let how = format!("tashika cases decide {id} {}", text(&choice["action"]));
        assert!(read.contains(&how), "{read}");
    }

    // Nobody to ask, nothing to say, not offered, a card number: nothing changes.
    let decide = |action, more: &[&'static str]| {
        [&["cases", "decide", id, action, "--by", "aiko"][..], more].concat()
    };
    let asked = setup.refused(&decide("charged", &["--note", "seen"])).await;
    assert!(asked.contains("--yes"), "{asked}");
    let silent = setup.refused(&decide("charged", &["--yes"])).await;
    assert!(silent.contains("note: is required"), "{silent}");
    let other = setup.refused(&decide("requeue", &["--note", "seen", "--yes"])).await;
    assert!(other.contains("CASE_ACTION_NOT_ALLOWED") && other.contains("not_charged"), "{other}");
    let card = setup.refused(&decide("charged", &["--note", "4242 4242 4242 4242", "--yes"])).await;
    assert!(card.contains("card number") && !card.contains("4242"), "{card}");
    let missing = setup.refused(&["cases", "show", NOBODY]).await;
    assert!(missing.contains(NOBODY) && missing.contains("CASE_NOT_FOUND"), "{missing}");
    assert_eq!(server.payment(&payment).await["status"], "PENDING");
    assert_eq!(server.open_cases().await.len(), 1);

    let charged = decide("charged", &["--note", "seen in the dashboard", "--yes", "--json"]);
    let closed = setup.print_json(&charged).await;
    assert_eq!(
        (&closed["status"], &closed["resolution"], &closed["resolvedBy"]),
        (&json!("resolved"), &json!("charged"), &json!("aiko"))
    );
    assert_eq!(setup.print_json(&charged).await, closed, "a repeat is answered as the first");
    let late = setup.refused(&decide("refunded", &["--note", "no", "--yes"])).await;
    assert!(late.contains("CASE_ALREADY_RESOLVED"), "{late}");
    assert_eq!(server.payment(&payment).await["status"], "AUTHORIZED");
    let audited = setup.print_json(&["audit", "list", "--action", "case.resolved", "--json"]).await;
    assert_eq!(audited, server.get("/audit-logs?action=case.resolved").await.json());
    assert_eq!(audited["items"].as_array().unwrap().len(), 1, "{audited}");
    assert_eq!(audited["items"][0]["actorId"], "aiko");
    server.stop().await;
}

/// Two people decide at the same moment, in processes of their own, and nobody serves.
async fn of_two_decisions_one_counts(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = watch::setup(&db, &gateway);
    let server = setup.start().await;
    let (payment, case) = watch::stuck(&server, &gateway, "cli-0002").await;
    server.stop().await;
    let id = text(&case["id"]);
    let decide = |action, by| {
        ["cases", "decide", id, action, "--note", "looked", "--by", by, "--yes", "--json"]
    };
    let (charged, refunded) = (decide("charged", "aiko"), decide("refunded", "ken"));
    let (first, second) = tokio::join!(setup.run(&charged), setup.run(&refunded));
    let won = [first.status.success(), second.status.success()];
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{first:?} {second:?}");
    let (lost, expected) =
        if won[0] { (second, ("AUTHORIZED", "aiko")) } else { (first, ("REFUNDED", "ken")) };
    let said = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(said.contains("CASE_ALREADY_RESOLVED"), "{said}");
    let found = setup.print_json(&["payments", "show", &payment, "--json"]).await;
    assert_eq!(found["status"], expected.0, "{found}");
    let decided = rows(&db.url(), "select resolved_by from cases").await;
    assert_eq!(decided, [[expected.1]]);
    let lines = "select actor_id from audit_logs where action = 'case.resolved'";
    assert_eq!(rows(&db.url(), lines).await, [[expected.1]], "what lost left no trace");
    // Whoever comes and goes leaves no process behind.
    assert_eq!(rows(&db.url(), "select id from workers where lease_ms > 0").await, [[""; 0]; 0]);
}

/// A decision that needs more than a word.
async fn orders_are_decided_too(db: TestDb) {
    use crate::support::{Broker, KEY, order};
    use tashika_testkit::broker::{Account, Act};
    use tashika_testkit::gate::until;
    let broker = Broker::without_keys().await;
    broker.scripted.usual_account(Account::Lose);
    broker.scripted.script_for(KEY, [Act::ExecuteThenLose]);
    let setup = Setup::of(&db).broker(&broker).set("OUTBOX_MAX_ATTEMPTS", 2);
    let server = setup.start().await;
    server.accepted(&order(KEY)).await;
    let case = until("the case", async || server.open_cases().await.first().cloned()).await;
    let id = text(&case["id"]);
    let bare = ["cases", "decide", id, "executed", "--note", "the desk says so", "--yes"];
    let refused = setup.refused(&bare).await;
    assert!(refused.contains("execution: is required"), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("execution.json");
    let execution = json!({"order_ref": "desk-7", "cost": 0, "warnings": [],
        "fills": [{"px": 150.25, "qty": 1000, "ts": "2026-11-15T09:30:00Z"}]});
    std::fs::write(&path, execution.to_string()).unwrap();
    let whole = [&bare[..], &["--execution", path.to_str().unwrap()]].concat();
    let said = setup.print(&whole).await;
    assert_eq!(said, "resolved: executed\n");
    assert_eq!(server.executed(KEY).await["broker"]["order_ref"], "desk-7");
    server.stop().await;
}
