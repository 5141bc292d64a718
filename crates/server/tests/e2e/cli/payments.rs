//! `tashika payments`.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use super::NOBODY;
use crate::support::Setup;
use crate::support::payments::{Gateway, id, payment};
use crate::watch;

on_both!(payments_are_looked_at_captured_and_refunded, the_gateway_is_asked_at_once);

async fn payments_are_looked_at_captured_and_refunded(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway);
    let server = setup.start().await;
    let empty = setup.print(&["payments", "list"]).await;
    assert_eq!(empty, "there are no such payments\n");
    let paid = server.paid("cli-1001", &payment("pm_card_visa"), 201, "AUTHORIZED").await;
    let id = &id(&paid);
    let listed = setup.print_json(&["payments", "list", "--status", "AUTHORIZED", "--json"]).await;
    assert_eq!(listed, server.get("/payments?status=AUTHORIZED").await.json());
    let table = setup.print(&["payments", "list", "--user-id", "u-1"]).await;
    assert!(table.contains(id) && table.contains("100 EUR"), "{table}");
    let shown = setup.print_json(&["payments", "show", id, "--json"]).await;
    assert_eq!(shown["timeline"], Value::from(server.timeline(id).await));
    let read = setup.print(&["payments", "show", id]).await;
    assert!(read.contains("What happened") && read.contains("AUTHORIZED"), "{read}");

    let capture = ["payments", "capture", id, "--key", "capture-1", "--json"];
    let asked = setup.refused(&capture[..5]).await;
    assert!(asked.contains("--yes"), "{asked}");
    assert_eq!(server.payment(id).await["status"], "AUTHORIZED");
    let yes = [&capture[..], &["--yes"]].concat();
    assert_eq!(setup.print_json(&yes).await["status"], "CAPTURED");
    assert_eq!(setup.print_json(&yes).await["capturedAmount"], 100, "a repeat takes nothing");
    let refund = |key, amount| {
        ["payments", "refund", id, "--amount", amount, "--key", key, "--reason", "asked", "--yes"]
    };
    let said = setup.print(&refund("refund-1", "30")).await;
    assert!(said.contains("done: nothing about this payment is in doubt"), "{said}");
    let again = setup.print(&refund("refund-1", "30")).await;
    assert!(again.contains("asked for before"), "{again}");
    assert_eq!(server.payment(id).await["refundedAmount"], 30);
    let other = setup.refused(&refund("refund-1", "31")).await;
    assert!(other.contains("IDEMPOTENCY_CONFLICT"), "{other}");
    let much = setup.refused(&refund("refund-2", "71")).await;
    assert!(much.contains("AMOUNT_TOO_HIGH") && much.contains("70"), "{much}");
    let negative = ["payments", "refund", id, "--amount=-5", "--key", "refund-3", "--yes"];
    assert!(setup.refused(&negative).await.contains("amount"));
    let void = setup.refused(&["payments", "void", id, "--key", "void-1", "--yes"]).await;
    assert!(void.contains("PAYMENT_STATE_CONFLICT"), "{void}");
    let missing = setup.refused(&["payments", "show", NOBODY]).await;
    assert!(missing.contains(NOBODY) && missing.contains("PAYMENT_NOT_FOUND"), "{missing}");
    let (code, usage) = setup.fail(&["payments", "capture", id]).await;
    assert!(code == 2 && usage.contains("--key"), "{usage}");
    server.stop().await;
}

async fn the_gateway_is_asked_at_once(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = watch::setup(&db, &gateway);
    let server = setup.start().await;
    let (stuck, _) = watch::stuck(&server, &gateway, "cli-1002").await;
    server.stop().await;
    let silent = setup.print_json(&["payments", "verify", &stuck, "--json"]).await;
    assert_eq!(silent["status"], "PENDING", "nobody answers");
    let text = setup.print(&["payments", "show", &stuck]).await;
    assert!(
        text.contains("A person has to decide") && text.contains("tashika cases show"),
        "{text}"
    );
    for operation in [Operation::Retrieve, Operation::List, Operation::Search, Operation::Refunds] {
        gateway.world.usually(operation, Fault::Answer);
    }
    let said = setup.print(&["payments", "verify", &stuck]).await;
    assert!(said.contains("nothing about this payment is in doubt"), "{said}");
    let found = setup.print_json(&["payments", "show", &stuck, "--json"]).await;
    assert_eq!((&found["status"], found.get("case")), (&json!("AUTHORIZED"), None), "{found}");
}
