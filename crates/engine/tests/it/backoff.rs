//! How long a failure waits.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::order::KIND;
use tashika_domain::{Lane, LanePolicy, Status, Timestamp};
use tashika_engine::{Clock, OrderHandler};
use tashika_store::{Gate, Moment, Passing, Store};
use tashika_testkit::broker::{Act, ScriptedBroker};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{KEY, REMEMBER, Rig, ahead, body, engine, orders, place, stop, unlimited};

on_both!(failures_wait_as_the_table_says, retry_after_lengthens_the_wait_and_never_shortens_it);

const TABLE: [u64; 6] = [5, 10, 20, 40, 80, 160];

/// Each failure is met by an engine whose clock stands where the wait before it has passed.
async fn failures_wait_as_the_table_says(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.usually(Act::busy());
    rig.place(KEY).await;
    let default = LanePolicy { max_attempts: 7, ..LanePolicy::default() };

    let mut passed = Duration::ZERO;
    for (failures, seconds) in (1..).zip(TABLE) {
        let running = rig.engine_at(ahead(passed), "host:1:a", default.clone()).start();
        let row = rig.until_row(KEY, "a failure", |row| row.attempts == failures).await;
        assert_eq!(row.status, Status::Failed);
        let wait = Duration::from_secs(seconds);
        assert_eq!(row.next_run_at, row.updated_at.plus(wait), "after failure {failures}");
        stop(running).await;
        passed += wait + Duration::from_secs(60);
    }
    let running = rig.engine_at(ahead(passed), "host:1:a", default).start();
    assert_eq!(rig.aborted(KEY).await.attempts, 7);
    stop(running).await;
}

async fn retry_after_lengthens_the_wait_and_never_shortens_it(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    for (key, asked) in [("asks-for-more", 30), ("asks-for-less", 1)] {
        let retry_after = Some(Duration::from_secs(asked));
        rig.broker.script_for(key, [Act::Busy { retry_after }]);
        rig.place(key).await;
    }
    let running = rig.start(LanePolicy::default());
    for (key, wait) in [("asks-for-more", 30), ("asks-for-less", 5)] {
        let row = rig.until_status(key, Status::Failed).await;
        assert_eq!(row.next_run_at, row.updated_at.plus(Duration::from_secs(wait)), "{key}");
    }
    stop(running).await;
}

struct Open;

impl Gate for Open {
    fn pass(&self, _: Moment) -> Passing<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A whole life under the default policy, on simulated time: five waits, six attempts, a dead letter.
#[tokio::test(start_paused = true)]
async fn a_whole_life_under_the_default_policy_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_simulated(&folder.path().join("db"), Arc::new(Open)).unwrap();
    let clock = Clock::simulated(Timestamp::from_micros(1_700_000_000_000_000));
    let broker = ScriptedBroker::with_keys();
    broker.usually(Act::LoseBefore);
    place(&orders(&store, clock, unlimited()), &body(KEY)).await.unwrap();
    let id = store.effect_by_key(KIND, KEY).await.unwrap().unwrap().id;

    let handler = OrderHandler::new(Arc::new(broker.clone()), REMEMBER);
    let running = engine(&store, clock, "host:1:a")
        .lane(Lane::ORDERS, LanePolicy::default())
        .effect(KIND, handler)
        .start();
    let row = loop {
        let row = store.effect(id).await.unwrap().unwrap();
        if row.status.is_settled() {
            break row;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    stop(running).await;

    assert_eq!((row.status, row.attempts), (Status::Aborted, 6));
    let attempts = store.attempts(id).await.unwrap();
    let waits: Vec<u64> = attempts
        .windows(2)
        .map(|pair| pair[1].started_at.since(pair[0].finished_at).as_secs())
        .collect();
    assert_eq!(waits, TABLE[..5]);
    assert_eq!(broker.sent(KEY), 6);
}
