//! Which changes leave an audit line, and what is in it.

use serde_json::{Value, json};
use tashika_domain::audit::Audit;
use tashika_store::{AuditFilter, Store};
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::payments_support::{Town, asks};
use crate::support::{Rig, body, place, policy, stop};

on_both!(
    an_order_leaves_one_line_that_tells_its_life,
    a_payment_leaves_a_line_for_whatever_becomes_true_of_it,
);

/// Oldest first.
async fn lines(store: &Store, target: &str) -> Vec<Audit> {
    let filter = AuditFilter { target_id: Some(target.to_owned()), ..AuditFilter::default() };
    let mut lines = store.audit_logs(&filter, 100).await.unwrap();
    lines.reverse();
    lines
}

fn details(line: &Audit) -> Value {
    serde_json::from_str(&line.details).unwrap()
}

async fn an_order_leaves_one_line_that_tells_its_life(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::Execute, Act::refuse("BROKER_BAD_REQUEST")]);
    for key in ["key-0001", "key-0002"] {
        place(&rig.orders, &body(key)).await.unwrap();
        assert_eq!(lines(&rig.store, key).await, [], "its row and its entry are the record so far");
    }
    let running = rig.start(policy());
    let mut actions = Vec::new();
    for key in ["key-0001", "key-0002"] {
        let line = until("the order's end", async || lines(&rig.store, key).await.pop()).await;
        let row = rig.row(key).await;
        assert_eq!((line.actor_id.as_deref(), line.actor_role.as_str()), (None, "system"));
        assert_eq!(details(&line)["outbox_id"], json!(row.id));
        assert_eq!(details(&line)["accepted_at"], json!(row.created_at));
        assert_eq!(lines(&rig.store, key).await.len(), 1);
        actions.push(line.action);
    }
    stop(running).await;
    actions.sort();
    assert_eq!(actions, ["order.failed", "order.succeeded"]);
}

async fn a_payment_leaves_a_line_for_whatever_becomes_true_of_it(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(2));
    let payment = shop.authorized("k-1").await.id;
    town.world.script(Operation::Cancel, [Fault::DropBefore]);
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    shop.void(payment, "v").await.unwrap();
    shop.given_up(payment).await;
    let found = lines(&town.store, &payment.to_string()).await;
    let actions: Vec<&str> = found.iter().map(|line| line.action.as_str()).collect();
    let expected = [
        "payment.created",
        "payment.authorized",
        "payment.void_asked",
        "payment.verification_failed",
    ];
    assert_eq!(actions, expected);
    shop.stop().await;
}
