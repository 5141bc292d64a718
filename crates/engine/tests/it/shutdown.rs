//! Stopping: nothing new is started, what runs is finished, the rest goes back.

use std::time::Duration;

use tashika_domain::{LanePolicy, Status};
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::Gate;
use tashika_testkit::on_both;

use crate::support::{Rig, all_rows, policy, stop};

on_both!(
    what_was_not_started_goes_back_and_is_picked_up_by_another,
    what_does_not_end_in_time_is_left_to_its_lease,
);

async fn what_was_not_started_goes_back_and_is_picked_up_by_another(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script_for("order-00", [Act::Execute.behind(&gate)]);
    let keys: Vec<String> = (0..5).map(|n| format!("order-0{n}")).collect();
    for key in &keys {
        rig.place(key).await;
    }
    let running = rig.start(LanePolicy { concurrency: 1, ..policy() });
    rig.broker.until_sends(1).await;
    for key in &keys {
        rig.until_status(key, Status::Sending).await;
    }

    let stopping = tokio::spawn(stop(running));
    for key in &keys[1..] {
        let row = rig.until_status(key, Status::Pending).await;
        assert_eq!((row.attempts, row.in_doubt, row.locked_by), (0, false, None));
        assert!(rig.attempts(key).await.is_empty());
    }
    assert_eq!(rig.row("order-00").await.status, Status::Sending, "it runs to its end");
    gate.open();
    stopping.await.unwrap();
    assert_eq!(rig.row("order-00").await.status, Status::Succeeded);
    assert_eq!(rig.broker.seen().sends(), 1);

    let running = rig.engine("host:2:b", policy()).start();
    for key in &keys {
        assert_eq!(rig.succeeded(key).await.attempts, 0);
        assert_eq!((rig.broker.sent(key), rig.broker.asked(key)), (1, 0), "{key}");
    }
    stop(running).await;
}

async fn what_does_not_end_in_time_is_left_to_its_lease(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place("order-00").await;
    let running = rig.start(policy());
    rig.broker.until_sends(1).await;

    assert!(!running.stop(Duration::from_millis(50)).await, "it said so");

    let row = &all_rows(&rig.store).await[0];
    assert_eq!((row.status, row.locked_by.as_deref()), (Status::Sending, Some("host:1:a")));
    // The deadline was the caller's; the send itself still ends as it should.
    gate.open();
    rig.succeeded("order-00").await;
}
