//! Batches: received in portions, sent as a whole or not at all, cancelled and tried again; and notifications.

use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::mail::batch::{BatchStatus, RECEIVE_PATIENCE};
use tashika_domain::mail::{MailFault, Status};
use tashika_engine::Clock;
use tashika_engine::commands::mail::{BatchView, Counts, MailError};
use tashika_store::AuditFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::mail_rig::{Node, TEMPLATE, World, addresses, data, refuses, rules, takes};
use crate::support::{HOUR, ahead, stop};

on_both!(
    one_recipient_does_not_hold_up_the_others,
    a_batch_is_the_same_under_its_key,
    a_batch_that_breaks_off_sends_nothing_and_may_come_again,
    a_batch_with_a_wrong_recipient_sends_nothing,
    a_batch_is_cancelled_in_the_middle,
    what_failed_is_tried_again,
    a_large_batch_lets_a_single_mail_pass,
    notifications_go_to_those_for_whom_something_is_due,
    notifications_wait_for_their_moment,
);

async fn one_recipient_does_not_hold_up_the_others(db: TestDb) {
    let world = World::new(|parcel, _| match parcel.to.as_str() {
        "r3@example.com" => refuses(MailFault::Recipient),
        "r4@example.com" => refuses(MailFault::PossiblySent),
        _ => takes(),
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let taken = node.batch(&addresses(150), None).await.unwrap();
    assert_eq!(taken.row.total, 150);
    let view = node.finished(taken.row.id).await;
    stop(running).await;
    let expected = Counts { sent: 148, failed: 1, possibly_sent: 1, ..Counts::default() };
    assert_eq!(view.counts, expected);
    let mut failures: Vec<&str> = view.failures.iter().map(|mail| mail.to.as_str()).collect();
    failures.sort_unstable();
    assert_eq!(failures, ["r3@example.com", "r4@example.com"]);
    let arrived = world.arrived();
    assert_eq!(arrived.len(), 148);
    assert!(arrived.values().all(|count| *count == 1));
    assert!(world.most() <= 5, "{}", world.most());
}

async fn a_batch_is_the_same_under_its_key(db: TestDb) {
    let node = Node::new(&db, &World::fine()).await;
    let first = node.batch(&addresses(3), Some("k")).await.unwrap();
    let again = node.batch(&addresses(3), Some("k")).await.unwrap();
    assert!(again.replayed && again.row.id == first.row.id);
    let other = node.batch(&addresses(4), Some("k")).await;
    assert!(matches!(other, Err(MailError::Conflict)), "{other:?}");
    let head = json!({"template": TEMPLATE, "idempotencyKey": "x"});
    let refused = node.mails.receive(&head, Some("y"), "client").await.map(drop);
    assert!(matches!(refused, Err(MailError::KeyMismatch)));
    assert_eq!(node.view(first.row.id).await.counts.queued, 3);
    assert_eq!(node.mails.batches(None, 10).await.unwrap().len(), 1);
}

async fn a_batch_that_breaks_off_sends_nothing_and_may_come_again(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let head = json!({"template": TEMPLATE});
    let mut receiving = node.mails.receive(&head, Some("k"), "client").await.unwrap();
    for to in addresses(1500) {
        receiving.add(&json!({"to": to, "data": data()})).await.unwrap();
    }
    // Visible while it comes, and nobody else's meanwhile.
    let views = node.mails.batches(None, 10).await.unwrap();
    let id = views[0].batch.id;
    assert_eq!((views[0].batch.status, views[0].batch.total), (BatchStatus::Receiving, 1000));
    let meanwhile = node.batch(&addresses(3), Some("k")).await;
    assert!(matches!(meanwhile, Err(MailError::InProgress)), "{meanwhile:?}");
    drop(receiving);
    stop(running).await;
    let patience = RECEIVE_PATIENCE + Duration::from_secs(1);
    let later = Node::with(&db, &world, ahead(patience), rules(), "host:2:b").await;
    let running = later.start();
    let view = later.until_batch(id, "the end", |view| view.counts.cancelled == 1000).await;
    assert_eq!((view.batch.status, world.count()), (BatchStatus::Aborted, 0));
    let again = later.batch(&addresses(3), Some("k")).await.unwrap();
    assert!(!again.replayed && again.row.id != id);
    later.finished(again.row.id).await;
    stop(running).await;
    assert_eq!(world.count(), 3);
}

async fn a_batch_with_a_wrong_recipient_sends_nothing(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let mut to = addresses(1200);
    to[1100] = "nobody".into();
    let refused = node.batch(&to, Some("k")).await;
    let Err(MailError::Invalid(wrong)) = refused else { panic!("{refused:?}") };
    assert_eq!(wrong[0].field, "recipients[1100].to");
    let id = node.mails.batches(None, 10).await.unwrap()[0].batch.id;
    let view = node.finished(id).await;
    assert_eq!((view.batch.status, view.counts.cancelled), (BatchStatus::Aborted, 1000));
    to.truncate(10);
    let corrected = node.batch(&to, Some("k")).await.unwrap();
    assert_eq!(node.finished(corrected.row.id).await.counts.sent, 10);
    let empty = node.batch(&[], None).await;
    assert!(matches!(empty, Err(MailError::Invalid(_))), "{empty:?}");
    stop(running).await;
    assert_eq!(world.count(), 10);
}

async fn a_batch_is_cancelled_in_the_middle(db: TestDb) {
    let gate = Gate::closed();
    let world = World::new({
        let gate = gate.clone();
        move |parcel, _| match parcel.to.as_str() {
            "r0@example.com" => refuses(MailFault::Retryable).behind(&gate),
            _ => takes().behind(&gate),
        }
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let batch = node.batch(&addresses(120), None).await.unwrap().row;
    world.until_heard(5).await;
    node.mails.cancel(batch.id, "client").await.unwrap();
    let view = node.until_batch(batch.id, "the rest cancelled", |v| v.counts.queued == 0).await;
    assert_eq!((view.batch.status, view.counts.cancelled), (BatchStatus::Cancelled, 120));
    gate.open();
    // What was under way is not called back, and what it brought is told.
    let view = node.until_batch(batch.id, "the four that arrived", |v| v.counts.sent == 4).await;
    assert_eq!(view.counts.cancelled, 116);
    assert_eq!(world.count(), 5, "one of them failed, and is not tried again");
    let again = node.mails.cancel(batch.id, "client").await;
    assert!(matches!(again, Err(MailError::WrongState(_))), "{again:?}");
    node.mails.retry(batch.id, &[Status::Cancelled], "client").await.unwrap();
    let all = |view: &BatchView| view.counts.sent == 119 && view.counts.failed == 1;
    node.until_batch(batch.id, "everything sent or failed", all).await;
    stop(running).await;
    assert!(world.arrived().values().all(|count| *count == 1));
}

async fn what_failed_is_tried_again(db: TestDb) {
    let world = World::new(|parcel, before| {
        let number: usize = parcel.to[1..].split('@').next().unwrap().parse().unwrap();
        if before == 0 && number.is_multiple_of(3) {
            refuses(MailFault::Recipient)
        } else {
            takes()
        }
    });
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let batch = node.batch(&addresses(30), None).await.unwrap().row;
    let view = node.finished(batch.id).await;
    assert_eq!((view.counts.sent, view.counts.failed), (20, 10));
    node.mails.retry(batch.id, &[Status::Failed], "client").await.unwrap();
    node.until_batch(batch.id, "everything sent", |view| view.counts.sent == 30).await;
    stop(running).await;
    let actions = node.audited(&batch.id.to_string()).await;
    assert_eq!(actions, ["mail.batch_accepted", "mail.batch_retried"]);
    assert!(world.arrived().values().all(|count| *count == 1));
}

async fn a_large_batch_lets_a_single_mail_pass(db: TestDb) {
    let gate = Gate::closed();
    let world = World::new({
        let gate = gate.clone();
        move |parcel, _| match parcel.to.as_str() {
            "single@example.com" => takes(),
            _ => takes().behind(&gate),
        }
    });
    let mut limited = rules();
    limited.limits.rate_per_sec = 10.0;
    let node = Node::with(&db, &world, Clock::System, limited, "host:1:a").await;
    let running = node.start();
    let batch = node.batch(&addresses(1500), None).await.unwrap().row;
    world.until_heard(5).await;
    let waiting = until("a lane that is fed", async || {
        let lane = tashika_domain::Lane::MAIL;
        let waiting = node.store.waiting_in_lane(&lane).await.unwrap();
        (waiting >= 195).then_some(waiting)
    })
    .await;
    assert!(waiting <= 205, "fed a little ahead, not all of it: {waiting}");
    gate.open();
    let single = node.send("single@example.com").await;
    node.mails.cancel(batch.id, "client").await.unwrap();
    assert_eq!(node.ended(single).await.status, Status::Sent);
    stop(running).await;
}

fn deadlines() -> Value {
    json!({
        "dashboardUrl": "https://app.example.com/dashboard",
        "offices": [{
            "id": "office-1", "name": "ひまわり",
            "staff": [
                {"id": "s1", "email": "a@example.com", "lastName": "山田", "firstName": "太郎", "emailThresholdDays": 30},
                {"id": "s2", "email": "b@example.com", "lastName": "佐藤", "firstName": "花子", "emailThresholdDays": 7},
            ],
            "renewalAlerts": [{"name": "利用者A", "daysLeft": 20}],
            "assessmentAlerts": [],
        }],
    })
}

async fn notifications_go_to_those_for_whom_something_is_due(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let running = node.start();
    let notified = node.mails.notify(Some("k"), &deadlines(), "client").await.unwrap();
    assert_eq!((notified.batch.total, notified.skipped), (1, Some(1)));
    let view = node.finished(notified.batch.id).await;
    assert_eq!(view.counts.sent, 1);
    let again = node.mails.notify(Some("k"), &deadlines(), "client").await.unwrap();
    assert!(again.replayed && again.batch.id == notified.batch.id);
    let mut other = deadlines();
    other["offices"][0]["name"] = json!("さくら");
    let other = node.mails.notify(Some("k"), &other, "client").await;
    assert!(matches!(other, Err(MailError::Conflict)), "{other:?}");
    stop(running).await;
    assert_eq!(world.heard()[0].to, "a@example.com");
    let filter =
        AuditFilter { action: Some("deadline_notification_sent".into()), ..AuditFilter::default() };
    let lines = node.store.audit_logs(&filter, 10).await.unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.target_type.as_str(), line.target_id.as_str()), ("email_notification", "s1"));
    assert_eq!(line.office_id.as_deref(), Some("office-1"));
    assert_eq!(
        serde_json::from_str::<Value>(&line.details).unwrap(),
        json!({"recipient_email": "a@example.com", "office_name": "ひまわり",
            "renewal_alert_count": 1, "assessment_alert_count": 0,
            "staff_name": "山田 太郎", "email_threshold_days": 30})
    );
}

async fn notifications_wait_for_their_moment(db: TestDb) {
    let world = World::fine();
    let node = Node::new(&db, &world).await;
    let mut body = deadlines();
    body["runAt"] = json!(Clock::System.now().plus(HOUR));
    let scheduled = node.mails.notify(None, &body, "client").await.unwrap();
    let unwanted = node.mails.notify(None, &body, "client").await.unwrap();
    assert_eq!(scheduled.batch.status, BatchStatus::Scheduled);
    node.mails.cancel(unwanted.batch.id, "client").await.unwrap();
    let later = Node::with(&db, &world, ahead(HOUR * 2), rules(), "host:2:b").await;
    let running = later.start();
    later.until_batch(scheduled.batch.id, "the mail", |view| view.counts.sent == 1).await;
    stop(running).await;
    assert_eq!(world.count(), 1);
    assert_eq!(later.view(unwanted.batch.id).await.batch.status, BatchStatus::Cancelled);
}
