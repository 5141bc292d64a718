//! Rows of PostgreSQL that somebody has locked and does not let go: a process that stands still in the middle of a
//! transaction, or a stranger. The other process takes over what is free at once, and the rest when the lock is gone.

use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tokio_postgres::{Client, NoTls};

use super::town::LEASE_SEC;
use crate::support::{Broker, Server, Setup, order, rows};

const LOCKED: &str = "locked-1";
const FREE: &str = "free-0001";

/// Two processes. The first one has two orders in its hands. One was executed, and it waits for a lock in the middle of
/// writing that down when it is suspended; the other one is with the broker. The second process has had nothing to do.
struct Scene {
    broker: Broker,
    /// Behind which the broker has the order that is not locked.
    gate: Gate,
    sleeper: Server,
    other: Server,
    /// Has locked the row of one of the orders.
    stranger: Client,
}

async fn scene(db: &TestDb) -> Scene {
    let (broker, first, gate) = (Broker::with_keys().await, Gate::closed(), Gate::closed());
    broker.scripted.script_for(LOCKED, [Act::Execute.behind(&first)]);
    broker.scripted.script_for(FREE, [Act::Execute.behind(&gate)]);
    let setup = Setup::of(db)
        .broker(&broker)
        .set("OUTBOX_LOCK_LEASE_SEC", LEASE_SEC)
        .set("OUTBOX_BACKOFF_SEC", "0.05");
    let sleeper = setup.start().await;
    for key in [LOCKED, FREE] {
        sleeper.accepted(&order(key)).await;
    }
    broker.scripted.until_sends(2).await;
    let other = setup.start().await;
    let (stranger, connection) = tokio_postgres::connect(&db.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock =
        format!("begin; select id from outbox where idempotency_key = '{LOCKED}' for update");
    stranger.batch_execute(&lock).await.unwrap();

    first.open();
    sessions(db, "wait_event_type = 'Lock' and xact_start < query_start").await;
    sleeper.signal("STOP").await;
    Scene { broker, gate, sleeper, other, stranger }
}

/// Waits until the database has a session of ours like that.
async fn sessions(db: &TestDb, such: &str) {
    let sql =
        format!("select 1 from pg_stat_activity where application_name = 'tashika' and {such}");
    until(such, async || rows(&db.url(), &sql).await.pop()).await;
}

impl Scene {
    async fn ends_well(self) {
        for key in [LOCKED, FREE] {
            self.other.executed(key).await;
        }
        self.gate.open();
        self.sleeper.signal("CONT").await;
        for key in [LOCKED, FREE] {
            self.sleeper.executed(key).await;
            assert_eq!(self.broker.scripted.executed(key), 1, "{key}");
        }
        self.sleeper.stop().await;
        self.other.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_a_stranger_has_locked_keeps_nothing_else_waiting_postgres() {
    let db = TestDb::postgres();
    let scene = scene(&db).await;
    scene.other.executed(FREE).await;
    assert_eq!(scene.other.find(LOCKED).await["status"], "accepted");
    scene.stranger.batch_execute("rollback").await.unwrap();
    scene.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_still_in_the_middle_of_a_transaction_loses_its_locks_postgres() {
    let db = TestDb::postgres();
    let scene = scene(&db).await;
    // Its statement has the lock now, and nobody sends the next one.
    scene.stranger.batch_execute("rollback").await.unwrap();
    sessions(&db, "state = 'idle in transaction'").await;
    scene.ends_well().await;
}
