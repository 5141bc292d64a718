//! Forgetting what is over, and only that.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::KIND;
use tashika_domain::{LanePolicy, Status};
use tashika_engine::commands::order::{Placed, Resolution};
use tashika_engine::{Clock, Engine, Pruner, Settings};
use tashika_testkit::broker::{Act, ScriptedBroker};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::{
    HOUR, KEY, REMEMBER, Rig, ahead, all_rows, body, orders, patience, place, policy, settings,
    stop, unlimited,
};

on_both!(
    what_is_over_is_pruned_and_what_is_open_stays,
    the_engine_prunes_by_itself,
    an_expired_key_counts_as_new,
    an_expired_key_counts_as_new_while_its_effect_is_kept,
    an_order_in_doubt_keeps_its_key_for_as_long_as_it_takes,
);

async fn what_is_over_is_pruned_and_what_is_open_stays(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script_for("failed-01", [Act::refuse("BROKER_REJECTED")]);
    for key in ["good-0001", "failed-01"] {
        rig.place(key).await;
    }
    let running = rig.start(policy());
    rig.succeeded("good-0001").await;
    rig.aborted("failed-01").await;
    stop(running).await;
    rig.place("open-0001").await;

    let pruner = |clock: Clock| Pruner::new(Arc::new(rig.engine_at(clock, "host:1:a", policy())));
    let early = pruner(ahead(47 * HOUR)).run_once().await.unwrap();
    assert_eq!((early.ledger, early.effects), (0, 0));
    let late = pruner(ahead(49 * HOUR)).run_once().await.unwrap();
    assert_eq!((late.ledger, late.effects), (2, 2));

    assert_eq!(rig.row("open-0001").await.status, Status::Pending);
    assert_eq!(rig.store.ledger_rows().await.unwrap(), 1);
    assert_eq!(rig.orders.find("good-0001").await.unwrap(), None);
    assert_eq!(all_rows(&rig.store).await.len(), 1);
}

async fn the_engine_prunes_by_itself(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    stop(running).await;

    let settings = Settings { prune_every: Duration::from_millis(10), ..settings("host:1:a") };
    let clock = ahead(2 * REMEMBER);
    let running =
        Engine::new(rig.store.clone(), clock, tashika_engine::Ids::random(clock), settings).start();
    until("an empty ledger", async || {
        let gone = rig.store.ledger_rows().await.unwrap() == 0;
        (gone && all_rows(&rig.store).await.is_empty()).then_some(())
    })
    .await;
    stop(running).await;
}

async fn an_expired_key_counts_as_new(db: TestDb) {
    used_again(db, policy()).await;
}

/// `OUTBOX_KEEP_HOURS` may be longer than `IDEMPO_TTL_HOURS`.
async fn an_expired_key_counts_as_new_while_its_effect_is_kept(db: TestDb) {
    used_again(db, LanePolicy { keep: 10 * REMEMBER, ..policy() }).await;
}

async fn used_again(db: TestDb, policy: LanePolicy) {
    let rig = Rig::without_keys(db).await;
    rig.place(KEY).await;
    let running = rig.start(policy.clone());
    let first = rig.succeeded(KEY).await;
    stop(running).await;

    // Nobody has pruned: it is the time that counts.
    let clock = ahead(REMEMBER + HOUR);
    let later = orders(&rig.store, clock, unlimited());
    assert_eq!(later.find(KEY).await.unwrap(), None);
    let mut other = body(KEY);
    other["qty"] = json!(7);
    let placed = place(&later, &other).await.unwrap();
    assert!(matches!(placed, Placed::Accepted(_)), "{placed:?}");

    let running = rig.engine_at(clock, "host:1:a", policy).start();
    let second = rig.succeeded(KEY).await;
    assert_ne!(first.id, second.id);
    assert_eq!(rig.broker.executed(KEY), 2);
    assert_eq!(rig.entry(KEY).await.request_digest, second.digest.unwrap());
    stop(running).await;
}

/// The ledger entry of an order that nobody answered for stays open, and the case is what a person
/// needs to close it: neither may be forgotten before.
async fn an_order_in_doubt_keeps_its_key_for_as_long_as_it_takes(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let broker: &ScriptedBroker = &rig.broker;
    broker.usually(Act::LoseBefore);
    broker.usual_account(tashika_testkit::broker::Account::Lose);
    rig.place(KEY).await;
    let running = rig.start(patience(2));
    rig.aborted(KEY).await;
    stop(running).await;

    let clock = ahead(2 * REMEMBER);
    let later = orders(&rig.store, clock, unlimited());
    let placed = place(&later, &body(KEY)).await.unwrap();
    assert!(matches!(placed, Placed::Replayed { http_status: 200, .. }), "{placed:?}");
    let pruner = Pruner::new(Arc::new(rig.engine_at(clock, "host:1:a", policy())));
    assert_eq!(pruner.run_once().await.unwrap().effects, 0);
    assert!(rig.store.effect_by_key(KIND, KEY).await.unwrap().is_some());
    later.resolve(KEY, Resolution::NotExecuted, "after a long holiday").await.unwrap();
    assert_eq!(rig.open_cases(KEY).await, []);
    assert_eq!(later.find(KEY).await.unwrap().unwrap().status, LedgerStatus::Failed);
}
