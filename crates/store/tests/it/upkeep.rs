//! The machinery's own rows: workers and quotas.

use std::time::Duration;

use futures_util::future::join_all;
use tashika_store::WorkerRow;

use crate::support::*;

on_both!(
    workers_are_heard_of_until_they_are_gone,
    a_probe_is_no_worker,
    a_quota_is_granted_up_to_its_limit,
    a_quota_is_never_exceeded_by_many_at_once,
    what_is_returned_can_be_granted_again,
    days_and_clients_have_quotas_of_their_own,
    quotas_of_past_days_are_forgotten,
    the_database_tells_about_itself,
);

async fn workers_are_heard_of_until_they_are_gone(db: Db) {
    let store = db.open().await;
    let lease = Duration::from_secs(120);
    store.worker_alive("host:2", at(1), lease).await.unwrap();
    store.worker_alive("host:1", at(2), lease).await.unwrap();
    store.worker_alive("host:2", at(60), lease).await.unwrap();
    let worker = |id: &str, started, heard| WorkerRow {
        id: id.into(),
        started_at: at(started),
        heartbeat_at: at(heard),
        lease_ms: 120_000,
    };
    let expected = [worker("host:1", 2, 2), worker("host:2", 1, 60)];
    assert_eq!(store.workers().await.unwrap(), expected);
    store.worker_gone("host:2").await.unwrap();
    assert_eq!(store.workers().await.unwrap(), expected[..1]);
}

/// The rescuer reads the whole table when a worker's time is over; a probe has none.
async fn a_probe_is_no_worker(db: Db) {
    let store = db.open().await;
    store.probe(at(1)).await.unwrap();
    store.probe(at(2)).await.unwrap();
    assert_eq!(store.workers().await.unwrap(), []);
}

async fn a_quota_is_granted_up_to_its_limit(db: Db) {
    let store = db.open().await;
    let grants = [(4, 4), (4, 4), (4, 2), (4, 0), (0, 0)];
    for (want, granted) in grants {
        assert_eq!(store.reserve_quota("c", 1, want, 10).await.unwrap(), granted);
    }
    // A limit that was lowered since takes nothing back.
    assert_eq!(store.reserve_quota("c", 1, 4, 5).await.unwrap(), 0);
    assert_eq!(store.reserve_quota("c", 1, 4, 12).await.unwrap(), 2);
}

async fn a_quota_is_never_exceeded_by_many_at_once(db: Db) {
    let stores = [db.open().await, db.open().await];
    let callers = (0..60).map(|n| {
        let store = stores[n % 2].clone();
        tokio::spawn(async move { store.reserve_quota("c", 1, 3, 100).await.unwrap() })
    });
    let grants: Vec<i64> = join_all(callers).await.into_iter().map(|g| g.unwrap()).collect();
    assert_eq!(grants.iter().sum::<i64>(), 100, "{grants:?}");
    assert_eq!(db.number("select used from quotas").await, 100);
}

async fn what_is_returned_can_be_granted_again(db: Db) {
    let store = db.open().await;
    assert_eq!(store.reserve_quota("c", 1, 10, 10).await.unwrap(), 10);
    store.return_quota("c", 1, 4).await.unwrap();
    assert_eq!(db.number("select used from quotas").await, 6);
    assert_eq!(store.reserve_quota("c", 1, 10, 10).await.unwrap(), 4);
}

async fn days_and_clients_have_quotas_of_their_own(db: Db) {
    let store = db.open().await;
    for (client, day) in [("a", 1), ("a", 2), ("b", 1)] {
        assert_eq!(store.reserve_quota(client, day, 9, 5).await.unwrap(), 5);
    }
    store.return_quota("a", 2, 3).await.unwrap();
    for (client, day, left) in [("a", 1, 0), ("a", 2, 3), ("b", 1, 0)] {
        assert_eq!(store.reserve_quota(client, day, 9, 5).await.unwrap(), left);
    }
}

async fn quotas_of_past_days_are_forgotten(db: Db) {
    let store = db.open().await;
    for day in 1..=3 {
        store.reserve_quota("c", day, 5, 5).await.unwrap();
    }
    assert_eq!(store.prune_quotas(3).await.unwrap(), 2);
    assert_eq!(store.reserve_quota("c", 3, 5, 5).await.unwrap(), 0);
}

async fn the_database_tells_about_itself(db: Db) {
    let found = db.open().await.diagnose().await.unwrap();
    assert!(found.version.starts_with(db.pick("SQLite 3.", "PostgreSQL ")), "{}", found.version);
    assert_eq!(found.time.is_some(), db.dialect() == tashika_store::Dialect::Postgres);
    assert!(found.size > 10_000, "{}", found.size);
}
