//! Queues, flow controls, groups of URLs, schedules and signing keys.

use std::time::Duration;

use tashika_domain::Write;
use tashika_domain::message::gate::{FlowControl, Queue};
use tashika_domain::message::group::Group;
use tashika_domain::message::schedule::Schedule;
use tashika_store::Key;

use crate::message_rig::*;
use crate::support::*;

on_both!(
    a_queue_reads_back,
    a_flow_control_reads_back,
    a_group_reads_back,
    a_schedule_reads_back,
    signing_keys_read_back,
    names_are_taken_once,
    names_at_the_same_moment_are_taken_once,
    a_name_is_free_again_after_deletion,
    a_version_is_written_once,
    all_kinds_are_written_together_or_not_at_all,
);

async fn a_queue_reads_back(db: Db) {
    let store = db.open().await;
    let one = Queue { parallelism: u32::MAX, paused: true, ..queue(1, "q") };
    let other = queue(2, "Q");
    for queue in [&one, &other] {
        done(&store, [Write::QueueInsert(Box::new(queue.clone()))]).await;
    }
    assert_eq!(store.queue("q").await.unwrap(), Some(one.clone()));
    assert_eq!(store.queue("none").await.unwrap(), None);
    let after = Queue { version: 2, parallelism: 3, paused: false, updated_at: at(9), ..one };
    done(&store, [Write::QueueUpdate(Box::new(after.clone()))]).await;
    assert_eq!(store.queue("q").await.unwrap(), Some(after));
    assert_eq!(store.queues().await.unwrap().len(), 2);
}

async fn a_flow_control_reads_back(db: Db) {
    let store = db.open().await;
    let one = control(1);
    done(&store, [Write::FlowInsert(Box::new(one.clone()))]).await;
    assert_eq!(store.flow_control("k/1").await.unwrap(), Some(one.clone()));
    let after = FlowControl {
        version: 2,
        parallelism: None,
        rate: None,
        period: Duration::from_secs(7 * 86_400),
        period_start: at(5),
        period_count: u32::MAX,
        paused: true,
        pinned_parallelism: true,
        pinned_rate: true,
        updated_at: at(9),
        ..one
    };
    done(&store, [Write::FlowUpdate(Box::new(after.clone()))]).await;
    assert_eq!(store.flow_controls().await.unwrap(), [after]);
}

async fn a_group_reads_back(db: Db) {
    let store = db.open().await;
    let one = group(1, "team");
    done(&store, [Write::GroupInsert(Box::new(one.clone()))]).await;
    assert_eq!(store.url_group("team").await.unwrap(), Some(one.clone()));
    let after = Group { version: 2, endpoints: Vec::new(), updated_at: at(9), ..one };
    done(&store, [Write::GroupUpdate(Box::new(after.clone()))]).await;
    assert_eq!(store.url_groups().await.unwrap(), [after]);
}

async fn a_schedule_reads_back(db: Db) {
    let store = db.open().await;
    let one = schedule(1, "s");
    done(&store, [Write::ScheduleInsert(Box::new(one.clone()))]).await;
    assert_eq!(store.schedule("s").await.unwrap(), Some(one.clone()));
    let after = Schedule {
        version: 2,
        cron: "* * * * *".into(),
        destination: "team".into(),
        delay: None,
        paused: false,
        last_at: None,
        next_at: None,
        last_messages: Vec::new(),
        error: None,
        ..one
    };
    done(&store, [Write::ScheduleUpdate(Box::new(after.clone()))]).await;
    assert_eq!(store.schedule_by_id(after.id).await.unwrap(), Some(after.clone()));
    assert_eq!(store.schedules().await.unwrap(), std::slice::from_ref(&after));
    let gone = Schedule { version: 3, deleted_at: Some(at(9)), ..after };
    done(&store, [Write::ScheduleUpdate(Box::new(gone.clone()))]).await;
    assert_eq!(store.schedule("s").await.unwrap(), None);
    assert_eq!(store.schedule_by_id(gone.id).await.unwrap(), None);
}

async fn signing_keys_read_back(db: Db) {
    let store = db.open().await;
    assert_eq!(store.signing_keys().await.unwrap(), None);
    let insert = || Write::KeysInsert(Box::new(keys()));
    done(&store, [insert()]).await;
    assert_eq!(commit(&store, [insert()]).await, Said::Taken(Key::Name), "there is one row");
    let rotated = keys().rotated("sig_c".into());
    let update = || Write::KeysUpdate(Box::new(rotated.clone()));
    done(&store, [update()]).await;
    assert_eq!(commit(&store, [update()]).await, Said::Outdated("signing_keys"));
    assert_eq!(store.signing_keys().await.unwrap(), Some(rotated));
}

fn inserts(number: u64) -> [Write; 4] {
    [
        Write::QueueInsert(Box::new(queue(number, "n"))),
        Write::FlowInsert(Box::new(control(number))),
        Write::GroupInsert(Box::new(group(number, "n"))),
        Write::ScheduleInsert(Box::new(schedule(number, "n"))),
    ]
}

async fn names_are_taken_once(db: Db) {
    let store = db.open().await;
    done(&store, inserts(1)).await;
    let before = db.content().await;
    for write in inserts(2) {
        // What stands beside it is not written either.
        let beside = Write::Enqueue(effect(9));
        assert_eq!(commit(&store, [beside, write]).await, Said::Taken(Key::Name));
    }
    assert_eq!(db.content().await, before);
}

async fn names_at_the_same_moment_are_taken_once(db: Db) {
    let (one, two) = (db.open().await, db.open().await);
    let calls = (0..16).map(|number| {
        let store = if number % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move {
            let beside = Write::Enqueue(effect(number));
            let queue = Write::QueueInsert(Box::new(queue(number, "n")));
            commit(&store, [beside, queue]).await
        })
    });
    let calls: Vec<_> = calls.collect();
    let mut won = 0;
    for call in calls {
        match call.await.unwrap() {
            Said::Done => won += 1,
            said => assert_eq!(said, Said::Taken(Key::Name)),
        }
    }
    assert_eq!((won, all(&one).await.len()), (1, 1));
}

async fn a_name_is_free_again_after_deletion(db: Db) {
    let store = db.open().await;
    done(&store, inserts(1)).await;
    for (number, version) in [(2, 2), (3, 2)] {
        let deleted_at = Some(at(5));
        let before = number - 1;
        let gone = [
            Write::QueueUpdate(Box::new(Queue { version, deleted_at, ..queue(before, "n") })),
            Write::FlowUpdate(Box::new(FlowControl { version, deleted_at, ..control(before) })),
            Write::GroupUpdate(Box::new(Group { version, deleted_at, ..group(before, "n") })),
            Write::ScheduleUpdate(Box::new(Schedule {
                version,
                deleted_at,
                ..schedule(before, "n")
            })),
        ];
        done(&store, gone).await;
        assert_eq!(store.queue("n").await.unwrap(), None);
        done(&store, inserts(number)).await;
    }
    assert_eq!(store.queue("n").await.unwrap().map(|queue| queue.id), Some(id(3).0));
    assert_eq!(store.flow_controls().await.unwrap().len(), 1);
    assert_eq!(store.url_groups().await.unwrap().len(), 1);
    assert_eq!(store.schedules().await.unwrap().len(), 1);
}

async fn a_version_is_written_once(db: Db) {
    let store = db.open().await;
    done(&store, inserts(1)).await;
    for version in [1, 3] {
        let writes = [
            ("queues", Write::QueueUpdate(Box::new(Queue { version, ..queue(1, "n") }))),
            ("flow_controls", Write::FlowUpdate(Box::new(FlowControl { version, ..control(1) }))),
            ("url_groups", Write::GroupUpdate(Box::new(Group { version, ..group(1, "n") }))),
            (
                "schedules",
                Write::ScheduleUpdate(Box::new(Schedule { version, ..schedule(1, "n") })),
            ),
        ];
        for (table, write) in writes {
            let beside = Write::Enqueue(effect(9));
            assert_eq!(commit(&store, [beside, write]).await, Said::Outdated(table));
        }
    }
    assert!(all(&store).await.is_empty());
}

async fn all_kinds_are_written_together_or_not_at_all(db: Db) {
    let store = db.open().await;
    let (message, accepting) = plain(1);
    let everything = || {
        let mut writes: Vec<Write> = inserts(1).into();
        writes.push(Write::KeysInsert(Box::new(keys())));
        writes.push(Write::MessageLog(Box::new(line(1, message.id))));
        writes.extend(accepting.writes().iter().cloned());
        writes
    };
    let empty = db.content().await;
    let mut failing = everything();
    failing.push(Write::QueueUpdate(Box::new(queue(8, "not there"))));
    assert_eq!(commit(&store, failing).await, Said::Outdated("queues"));
    assert_eq!(db.content().await, empty);
    done(&store, everything()).await;
    for (table, rows) in db.content().await {
        let written = ["outbox", "messages", "message_log", "queues", "flow_controls"]
            .contains(&table)
            || ["url_groups", "schedules", "signing_keys"].contains(&table)
            // Its one row comes with the table.
            || table == "mail_control";
        assert_eq!(rows.len(), usize::from(written), "{table}");
    }
}
