//! Leases: kept by heartbeats, lost without them, and worth nothing once lost.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{LEASE_EXPIRED, Verdict};
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::{Changes, Lane, LanePolicy, Status, Write};
use tashika_engine::{Clock, Rescuer};
use tashika_store::Store;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::support::{HOUR, KEY, Rig, claim, patience, policy, stop};

on_both!(
    heartbeats_keep_a_long_running_effect,
    a_settlement_after_the_lease_was_lost_writes_nothing,
    what_lost_its_lease_in_the_queue_is_not_sent,
    a_lapsed_lease_of_a_settled_order_ends_well,
    a_sweep_takes_what_has_lapsed_and_nothing_else,
    a_lane_with_a_short_lease_does_not_wait_for_one_with_a_long_lease,
    a_worker_that_was_thought_dead_goes_on,
    a_process_does_not_take_away_what_it_holds_itself,
);

async fn heartbeats_keep_a_long_running_effect(db: TestDb) {
    let lease = Duration::from_millis(1500);
    let short = LanePolicy { lease, ..policy() };
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place(KEY).await;
    let running = rig.engine("host:1:a", short.clone()).start();
    rig.broker.until_sends(1).await;
    let other_store = rig.db.open().await;
    let other = tashika_engine::Engine::new(
        other_store.clone(),
        Clock::System,
        tashika_engine::Ids::random(Clock::System),
        crate::support::settings("host:2:b"),
    )
    .lane(Lane::ORDERS, short)
    .effect(tashika_domain::order::KIND, rig.handler())
    .start();

    let began = rig.row(KEY).await.locked_at.unwrap();
    let two_leases_later = began.plus(2 * lease);
    let row = rig
        .until_row(KEY, "heartbeats", |row| row.locked_at.is_none_or(|at| at > two_leases_later))
        .await;
    assert_eq!((row.status, row.locked_by.as_deref()), (Status::Sending, Some("host:1:a")));
    assert_eq!((row.fence, row.attempts), (1, 0), "nobody has taken it over");
    gate.open();

    let row = rig.succeeded(KEY).await;
    assert_eq!((row.fence, row.attempts), (1, 0));
    assert_eq!(rig.broker.sent(KEY), 1);
    stop(running).await;
    stop(other).await;
}

/// Ends the leases of an engine as if they had run out.
async fn take_away(rig: &Rig, policy: LanePolicy) {
    let rescuer = Rescuer::new(Arc::new(rig.engine("host:2:b", policy.clone())));
    let later = Clock::System.now().plus(HOUR);
    // A sign of life in the very moment of the sweep keeps the lease; the next one is far away.
    until("a lease that can be taken away", async || {
        let swept = rescuer.sweep_lane(&Lane::ORDERS, &policy, later).await.unwrap();
        (swept.rescued > 0).then_some(())
    })
    .await;
}

async fn a_settlement_after_the_lease_was_lost_writes_nothing(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place(KEY).await;
    let running = rig.start(policy());
    rig.broker.until_sends(1).await;

    // It was the last attempt: the rescuer gives the order up.
    take_away(&rig, patience(1)).await;
    let (row, entry) = (rig.row(KEY).await, rig.entry(KEY).await);
    assert_eq!((row.status, row.in_doubt), (Status::Aborted, true));
    assert_eq!(row.last_error_code.as_deref(), Some(LEASE_EXPIRED));
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 500));

    gate.open();
    stop(running).await;
    assert_eq!(rig.broker.executed(KEY), 1);
    assert_eq!(rig.row(KEY).await, row);
    assert_eq!(rig.entry(KEY).await, entry);
    assert_eq!(rig.outcomes(KEY).await, ["lapsed"]);
    assert_eq!(rig.open_cases(KEY).await.len(), 1, "a person will find that it was executed");
}

/// Waits until a worker has given two more signs of life: one of them began after this call.
async fn heartbeats(store: &Store, worker: &str) {
    let last = async || {
        let workers = store.workers().await.unwrap();
        workers.into_iter().find(|row| row.id == worker).map(|row| row.heartbeat_at)
    };
    let before = last().await;
    let first = until("a heartbeat", async || last().await.filter(|at| Some(*at) > before)).await;
    until("a heartbeat", async || last().await.filter(|at| *at > first)).await;
}

/// Claimed, waiting for its turn, and taken over by somebody else meanwhile: a broker that does not
/// take keys would execute it twice.
async fn what_lost_its_lease_in_the_queue_is_not_sent(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script_for("order-00", [Act::Execute.behind(&gate)]);
    for key in ["order-00", "order-01"] {
        rig.place(key).await;
    }
    let one = LanePolicy {
        concurrency: 1,
        lease: Duration::from_secs(2),
        backoff: vec![HOUR],
        ..policy()
    };
    let running = rig.start(one);
    rig.broker.until_sends(1).await;
    let queued = rig.until_status("order-01", Status::Sending).await;

    // Somebody else sends the second order, and settles it.
    rig.db
        .sql("update outbox set fence = fence + 1, locked_by = 'host:2:b' where idempotency_key = 'order-01'")
        .await;
    let now = Clock::System.now();
    let lease = Lease { id: queued.id, fence: queued.fence + 1 };
    let settle = Settle {
        lease,
        verdict: Verdict::Succeeded,
        now,
        expires_at: now.plus(HOUR),
        unheard_since: None,
    };
    rig.store.commit(Changes::from(Write::Settle(settle))).await.unwrap();
    heartbeats(&rig.store, "host:1:a").await;

    gate.open();
    rig.succeeded("order-00").await;
    rig.place("order-02").await;
    rig.succeeded("order-02").await;
    stop(running).await;
    assert_eq!(rig.broker.sent("order-01"), 0, "it was no longer ours to send");
}

/// A worker that died between the ledger and the row; on the last attempt, too.
async fn a_lapsed_lease_of_a_settled_order_ends_well(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let held = claim(&rig.store, "host:9:dead", Clock::System.now()).await;
    rig.db.sql("update idempo_ledger set status = 'succeeded'").await;
    let entry = rig.entry(KEY).await;
    rig.db.last_heard(held[0].id, Clock::System.now().minus(HOUR)).await;

    let running = rig.start(patience(1));
    rig.succeeded(KEY).await;
    assert_eq!(rig.entry(KEY).await, entry);
    assert_eq!(rig.broker.seen().heard, []);
    stop(running).await;
}

async fn a_sweep_takes_what_has_lapsed_and_nothing_else(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let lease = policy().lease;
    rig.place("fresh-01").await;
    claim(&rig.store, "host:1:a", Clock::System.now()).await;
    rig.place("lapsed-1").await;
    let now = Clock::System.now();
    let held = claim(&rig.store, "host:1:a", now).await;
    rig.db.last_heard(held[0].id, now.minus(lease)).await;

    let rescuer = Rescuer::new(Arc::new(rig.engine("host:2:b", policy())));
    let sweep = async || rescuer.sweep_lane(&Lane::ORDERS, &policy(), now).await.unwrap().rescued;
    assert_eq!(sweep().await, 1);
    assert_eq!(sweep().await, 0);

    assert_eq!(rig.row("fresh-01").await.status, Status::Sending);
    let row = rig.row("lapsed-1").await;
    assert_eq!((row.status, row.attempts, row.in_doubt), (Status::Failed, 1, true));
    assert_eq!(row.next_run_at, now, "the lease was the wait");
    assert_eq!(row.last_error_code.as_deref(), Some(LEASE_EXPIRED));
}

async fn a_lane_with_a_short_lease_does_not_wait_for_one_with_a_long_lease(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let now = Clock::System.now();
    let held = claim(&rig.store, "host:1:a", now).await;
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(600));
    rig.db.last_heard(held[0].id, now.minus(2 * short)).await;

    let engine = rig.engine("host:2:b", LanePolicy { lease: short, ..policy() });
    let engine = engine.lane(Lane::MAIL, LanePolicy { lease: long, ..policy() });
    assert_eq!(Rescuer::new(Arc::new(engine)).run_once().await.unwrap(), 1);
    assert_eq!(rig.row(KEY).await.status, Status::Failed);
}

/// The worker's row is removed when its effects are taken back; a worker that lives puts it back.
async fn a_worker_that_was_thought_dead_goes_on(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let running = rig.start(LanePolicy { lease: Duration::from_secs(1), ..policy() });
    heartbeats(&rig.store, "host:1:a").await;
    rig.store.worker_gone("host:1:a").await.unwrap();
    heartbeats(&rig.store, "host:1:a").await;
    rig.place(KEY).await;
    rig.succeeded(KEY).await;
    stop(running).await;
}

/// After an outage longer than the lease the rescuer may look before the renewer has spoken.
async fn a_process_does_not_take_away_what_it_holds_itself(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    let running = rig.start(policy());
    // Its first sign of life is given; the next one is half a minute away.
    let workers = async || rig.store.workers().await.unwrap();
    until("a heartbeat", async || (!workers().await.is_empty()).then_some(())).await;
    rig.place(KEY).await;
    rig.broker.until_sends(1).await;
    let held = rig.row(KEY).await;
    let hour_ago = Clock::System.now().minus(HOUR);
    rig.db.last_heard(held.id, hour_ago).await;

    // A dead worker is the reason to look; its row goes when the look is over.
    rig.store.worker_alive("host:9:dead", hour_ago, policy().lease).await.unwrap();
    until("a sweep", async || {
        workers().await.iter().all(|worker| worker.id != "host:9:dead").then_some(())
    })
    .await;

    let row = rig.row(KEY).await;
    assert_eq!((row.status, row.fence, row.attempts), (Status::Sending, held.fence, 0));
    gate.open();
    rig.succeeded(KEY).await;
    assert_eq!(rig.broker.sent(KEY), 1);
    stop(running).await;
}
