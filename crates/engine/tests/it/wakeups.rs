//! Wake-ups are hints, the poll is the guarantee: each is enough without the other.

use std::time::Duration;

use tashika_domain::order::KIND;
use tashika_domain::{Lane, LanePolicy, Timestamp};
use tashika_engine::{Clock, Engine, Ids, Settings};
use tashika_store::{Dialect, Store};
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{HOUR, KEY, Rig, body, effect, enqueue, policy, settings, stop};

on_both!(
    new_work_is_found_without_the_poll,
    a_retry_is_found_without_the_poll,
    a_requeue_is_found_without_the_poll,
    work_of_another_process_is_found,
    work_for_later_is_done_later,
    two_processes_share_the_work_and_send_nothing_twice,
);

fn polling(rig: &Rig, store: &Store, poll: Duration, policy: LanePolicy) -> Engine {
    let (clock, settings) = (Clock::System, Settings { poll, ..settings("host:1:a") });
    Engine::new(store.clone(), clock, Ids::random(clock), settings)
        .lane(Lane::ORDERS, policy)
        .effect(KIND, rig.handler())
}

async fn new_work_is_found_without_the_poll(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let running = polling(&rig, &rig.store, HOUR, policy()).start();
    for key in ["order-00", "order-01", "order-02"] {
        rig.place(key).await;
        rig.succeeded(key).await;
    }
    stop(running).await;
}

async fn a_retry_is_found_without_the_poll(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::busy(), Act::LoseBefore]);
    let waits = vec![Duration::from_millis(1), Duration::from_millis(300)];
    let patient = LanePolicy { backoff: waits, ..policy() };
    let running = polling(&rig, &rig.store, HOUR, patient).start();
    rig.place(KEY).await;
    assert_eq!(rig.succeeded(KEY).await.attempts, 2);
    stop(running).await;
}

async fn a_requeue_is_found_without_the_poll(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::refuse("BROKER_REJECTED")]);
    let running = polling(&rig, &rig.store, HOUR, policy()).start();
    rig.place(KEY).await;
    let row = rig.aborted(KEY).await;
    rig.outbox.requeue(row.id).await.unwrap();
    rig.succeeded(KEY).await;
    stop(running).await;
}

/// PostgreSQL tells; a SQLite file does not, and is looked at.
async fn work_of_another_process_is_found(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let poll = match rig.db.dialect() {
        Dialect::Postgres => HOUR,
        Dialect::Sqlite => Duration::from_millis(20),
    };
    let theirs = rig.db.open().await;
    let running = polling(&rig, &theirs, poll, policy()).start();
    for key in ["order-00", "order-01", "order-02"] {
        rig.place(key).await;
        rig.succeeded(key).await;
    }
    stop(running).await;
}

async fn work_for_later_is_done_later(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let later = |key: &str, run_at: Timestamp| {
        let mut order = effect(&Lane::ORDERS, KIND, Some(key), &body(key));
        order.run_at = run_at;
        order
    };
    let now = Clock::System.now();
    let soon = now.plus(Duration::from_millis(300));
    let running = polling(&rig, &rig.store, HOUR, policy()).start();
    enqueue(&rig.store, [later("order-00", now.plus(HOUR)), later("order-01", soon)]).await;
    rig.succeeded("order-01").await;
    assert!(rig.attempts("order-01").await[0].started_at >= soon);
    assert_eq!(rig.broker.sent("order-00"), 0);
    stop(running).await;
}

async fn two_processes_share_the_work_and_send_nothing_twice(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let theirs = rig.db.open().await;
    let many = LanePolicy { concurrency: 8, ..policy() };
    let poll = Duration::from_millis(20);
    let one = polling(&rig, &rig.store, poll, many.clone()).start();
    let two = polling(&rig, &theirs, poll, many).start();
    let keys: Vec<String> = (0..200).map(|n| format!("order-{n:03}")).collect();
    for key in &keys {
        rig.place(key).await;
    }
    for key in &keys {
        assert_eq!(rig.succeeded(key).await.attempts, 0);
        assert_eq!((rig.broker.sent(key), rig.broker.executed(key)), (1, 1), "{key}");
    }
    stop(one).await;
    stop(two).await;
}
