//! Two worker processes on one PostgreSQL, and one of them dies in the middle of sending.

use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::Gate;

use crate::support::{Broker, KEY, Server, Setup, order, rows};

/// The worker in whose hands the order is, by its process id in `hostname:pid:…`.
async fn holder(db: &TestDb) -> u32 {
    let held = rows(&db.url(), "select locked_by from outbox where status = 'sending'").await;
    let name = &held[0][0];
    name.split(':').nth(1).unwrap().parse().unwrap_or_else(|error| panic!("{error}: {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_worker_takes_over_after_the_lease_and_the_order_is_executed_once() {
    let db = TestDb::postgres();
    let (broker, gate) = (Broker::with_keys().await, Gate::closed());
    // The first send hangs, and goes on when nobody waits for it any more.
    broker.scripted.script([Act::Execute.behind(&gate)]);
    let setup = Setup::of(&db)
        .broker(&broker)
        .set("OUTBOX_LOCK_LEASE_SEC", 4)
        .set("BROKER_TIMEOUT_MS", 3900);
    let api = Setup::of(&db).role("api").start().await;
    let workers = [setup.clone().role("worker").start().await, setup.role("worker").start().await];

    api.accepted(&order(KEY)).await;
    broker.scripted.until_sends(1).await;
    let held_by = holder(&db).await;
    let (dying, living): (Vec<Server>, Vec<Server>) =
        workers.into_iter().partition(|worker| worker.pid() == held_by);
    assert_eq!((dying.len(), living.len()), (1, 1), "the order is held by one of the two");
    for worker in dying {
        worker.kill().await;
    }

    let result = api.executed(KEY).await;
    gate.open();
    broker.scripted.until("the end of the first send", |seen| seen.in_flight == 0).await;
    assert_eq!((broker.scripted.sent(KEY), broker.scripted.executed(KEY)), (2, 1));
    assert_eq!(result["broker"]["order_ref"], "B-1");
    let sql = "select l.status, o.status, o.attempts, o.locked_by
                 from idempo_ledger l join outbox o using (idempotency_key)";
    assert_eq!(rows(&db.url(), sql).await, [["succeeded", "succeeded", "1", ""]]);
    let attempts = rows(&db.url(), "select outcome from outbox_attempts order by fence").await;
    assert_eq!(attempts, [["lapsed"], ["done"]]);
    for worker in living {
        let metrics = worker.get("/metrics").await.body;
        assert!(metrics.contains("\noutbox_lock_lease_expired_total 1\n"), "{metrics}");
        worker.stop().await;
    }
    api.stop().await;
}
