//! Mails, batches, and what all processes together may send.

use std::time::Duration;

use serde_json::json;
use tashika_domain::audit::Actor;
use tashika_domain::mail::batch::{self, Batch};
use tashika_domain::mail::control;
use tashika_domain::mail::pace::{Leave, Limits, frees_at, minute};
use tashika_domain::mail::{Delivery, Fault, Letter, Locale, OnSent, Sending, Status, Try};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_store::{CommitError, Dialect, Key, MailFilter, PermitWish, Store, StoreError};
use uuid::Uuid;

use crate::support::*;

on_both!(
    a_mail_comes_back_as_it_was,
    a_mail_that_has_moved_on_is_not_overwritten,
    a_key_is_taken_once,
    mails_are_found_by_whom_what_and_where,
    batches_are_counted_and_walked_in_order,
    of_two_wishes_about_a_batch_in_one_moment_the_second_is_outdated,
    permits_are_as_many_as_the_rate,
    permits_of_a_clock_that_was_put_back_do_not_last,
    many_who_ask_at_once_get_no_more,
    the_quota_counts_a_day,
    a_closed_lane_gives_nothing,
    what_is_over_is_forgotten_with_its_batch,
);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn mail(number: u64, to: &str) -> Delivery {
    Letter {
        id: uuid(number),
        to: to.into(),
        template: "t".into(),
        locale: Locale::En,
        data: json!({"名前": "確か", "n": 1}),
        batch_id: None,
        key: None,
    }
    .delivery(at(1))
}

fn insert(mail: &Delivery) -> Write {
    Write::MailInsert(Box::new(mail.clone()))
}

fn update(mail: &Delivery) -> Write {
    Write::MailUpdate(Box::new(mail.clone()))
}

async fn commit(store: &Store, write: Write) -> Result<(), CommitError> {
    store.commit(Changes::from(write)).await
}

/// A mail in which everything is set.
fn full() -> Delivery {
    Delivery {
        batch_id: Some(uuid(50)),
        key: Some("k".into()),
        digest: Some("sha256:x".into()),
        on_sent: Some(OnSent {
            action: "sent".into(),
            target_id: "s".into(),
            office_id: Some("o".into()),
            details: json!({"a": 1}),
        }),
        traceparent: Some("00-x".into()),
        effect_id: Some(uuid(1)),
        attempts: 2,
        possibly_duplicate: true,
        sending: Some(Sending { since: at(2), fence: 7 }),
        fault: Some(Fault { class: "retryable".into(), text: "451".into() }),
        history: vec![Try {
            at: at(2),
            outcome: "retryable".into(),
            code: Some(451),
            text: "later".into(),
        }],
        ..mail(1, "Taro@example.com")
    }
}

async fn a_mail_comes_back_as_it_was(db: Db) {
    let store = db.open().await;
    done(&store, [insert(&full()), insert(&mail(2, "b@example.com"))]).await;
    assert_eq!(store.mail(uuid(1)).await.unwrap(), Some(full()));
    assert_eq!(store.mail(uuid(2)).await.unwrap(), Some(mail(2, "b@example.com")));
    let sent = Delivery {
        version: 2,
        status: Status::Sent,
        sent_at: Some(at(3)),
        ended_at: Some(at(3)),
        sending: None,
        fault: None,
        ..full()
    };
    done(&store, [update(&sent)]).await;
    assert_eq!(store.mail_of_key("k").await.unwrap(), Some(sent));
    assert_eq!(store.mail(uuid(3)).await.unwrap(), None);
}

async fn a_mail_that_has_moved_on_is_not_overwritten(db: Db) {
    let store = db.open().await;
    let first = mail(1, "a@example.com");
    done(&store, [insert(&first)]).await;
    let second = Delivery { version: 2, attempts: 1, ..first.clone() };
    done(&store, [update(&second)]).await;
    let late = commit(&store, update(&Delivery { version: 2, attempts: 9, ..first })).await;
    assert!(matches!(late, Err(CommitError::Outdated { table: "mail_deliveries", .. })));
    assert_eq!(store.mail(uuid(1)).await.unwrap(), Some(second));
    let contradiction = Delivery { status: Status::Sent, ..mail(2, "b@example.com") };
    assert!(commit(&store, insert(&contradiction)).await.is_err(), "sent, and not ended");
}

async fn a_key_is_taken_once(db: Db) {
    let store = db.open().await;
    let keyed = |number| Delivery {
        key: Some("k".into()),
        digest: Some("d".into()),
        ..mail(number, "a@example.com")
    };
    let (left, right) =
        tokio::join!(commit(&store, insert(&keyed(1))), commit(&store, insert(&keyed(2))));
    let lost = [left, right].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(matches!(lost[..], [CommitError::Taken(Key::Mail)]), "{lost:?}");
    let batch = |number| {
        let draft = batch::draft(uuid(number), "t", Some("k".into()), at(1));
        Write::MailBatchInsert(Box::new(draft))
    };
    done(&store, [batch(10)]).await;
    let taken = commit(&store, batch(11)).await;
    assert!(matches!(taken, Err(CommitError::Taken(Key::Mail))), "{taken:?}");
    assert_eq!(store.mail_batch_of_key("k").await.unwrap().unwrap().id, uuid(10));
}

async fn mails_are_found_by_whom_what_and_where(db: Db) {
    let store = db.open().await;
    let failed =
        |mail: Delivery| Delivery { status: Status::Failed, ended_at: Some(at(2)), ..mail };
    let of_batch = |mail: Delivery| Delivery { batch_id: Some(uuid(50)), ..mail };
    let all = [
        mail(1, "A@example.com"),
        of_batch(mail(2, "b@example.com")),
        failed(of_batch(mail(3, "a@example.com"))),
        failed(mail(4, "c@example.com")),
    ];
    done(&store, all.each_ref().map(insert)).await;
    let found = async |filter: MailFilter| -> Vec<Uuid> {
        store.mails(&filter, 10).await.unwrap().iter().map(|mail| mail.id).collect()
    };
    let none = MailFilter::default;
    assert_eq!(found(none()).await, [4, 3, 2, 1].map(uuid));
    let to = Some("a@EXAMPLE.com".to_owned());
    assert_eq!(found(MailFilter { to: to.clone(), ..none() }).await, [3, 1].map(uuid));
    let batch = Some(uuid(50));
    assert_eq!(found(MailFilter { batch, ..none() }).await, [3, 2].map(uuid));
    let status = Some(Status::Failed);
    assert_eq!(found(MailFilter { status, ..none() }).await, [4, 3].map(uuid));
    assert_eq!(found(MailFilter { to, batch, status, before: None }).await, [uuid(3)]);
    assert_eq!(found(MailFilter { before: Some(uuid(3)), ..none() }).await, [2, 1].map(uuid));
    assert_eq!(store.mail_queue().await.unwrap(), (2, Some(at(1))));
}

async fn batches_are_counted_and_walked_in_order(db: Db) {
    let store = db.open().await;
    let draft = batch::draft(uuid(50), "t", None, at(1));
    let recipients = (0..5).map(|n| batch::Recipient {
        to: format!("r{n}@example.com"),
        locale: Locale::Ja,
        data: json!({}),
    });
    done(&store, [Write::MailBatchInsert(Box::new(draft.clone()))]).await;
    let (after, changes) = batch::take(&draft, recipients.collect(), at(2)).unwrap();
    store.commit(changes.clone()).await.unwrap();
    assert!(matches!(
        store.commit(changes).await,
        Err(CommitError::Taken(_) | CommitError::Outdated { .. })
    ));
    assert_eq!(store.mail_batch(uuid(50)).await.unwrap(), Some(after.clone()));
    let page = store.mails_of_batch(uuid(50), Status::Queued, None, 2).await.unwrap();
    assert_eq!(
        page.iter().map(|m| m.to.as_str()).collect::<Vec<_>>(),
        ["r0@example.com", "r1@example.com"]
    );
    let rest = store.mails_of_batch(uuid(50), Status::Queued, Some(page[1].id), 9).await.unwrap();
    assert_eq!(rest.len(), 3);
    let gone = Delivery {
        version: 2,
        status: Status::Cancelled,
        ended_at: Some(at(3)),
        ..page[0].clone()
    };
    done(&store, [update(&gone)]).await;
    let counts = store.mail_counts(uuid(50)).await.unwrap();
    let counts: Vec<(Status, i64)> = counts.iter().map(|c| (c.status, c.count)).collect();
    assert_eq!(counts, [(Status::Cancelled, 1), (Status::Queued, 4)]);
    let listed: Vec<Batch> = store.mail_batches(None, 10).await.unwrap();
    assert_eq!(listed, [after]);
}

/// Both name their driver alike: it is the row of the batch that must tell the second one.
async fn of_two_wishes_about_a_batch_in_one_moment_the_second_is_outdated(db: Db) {
    let store = db.open().await;
    let draft = batch::draft(uuid(50), "t", None, at(1));
    let accepted = Batch { status: batch::BatchStatus::Accepted, ..draft };
    done(&store, [Write::MailBatchInsert(Box::new(accepted.clone()))]).await;
    let (_, changes) = batch::cancel_rest(&accepted, Actor::SYSTEM, at(2), at(9)).unwrap();
    store.commit(changes.clone()).await.unwrap();
    let late = store.commit(changes).await;
    assert!(matches!(late, Err(CommitError::Outdated { table: "mail_batches", .. })), "{late:?}");
}

fn wish(number: u64, rate_per_sec: f64, daily_quota: i64, now: Timestamp) -> PermitWish {
    PermitWish {
        id: uuid(number),
        worker: "host:1:a".into(),
        now,
        limits: Limits { rate_per_sec, daily_quota },
        at_most: Duration::from_secs(3600),
    }
}

async fn permits_are_as_many_as_the_rate(db: Db) {
    let store = db.open().await;
    let ask =
        async |number| store.take_mail_permit(wish(number, 3.0, 0, at(100))).await.unwrap().leave;
    for number in 0..3 {
        assert_eq!(ask(number).await, Leave::Granted);
    }
    assert!(matches!(ask(3).await, Leave::Wait(_)));
    // One that rests still counts; one whose rest is over does not.
    let (rest, over) = (Duration::from_secs(3600), Duration::ZERO);
    store.end_mail_permit(uuid(0), at(100), rest, false, at(100)).await.unwrap();
    assert!(matches!(ask(4).await, Leave::Wait(_)));
    store.end_mail_permit(uuid(1), at(100), over, false, at(100)).await.unwrap();
    assert_eq!(ask(5).await, Leave::Granted);
    assert!(matches!(ask(6).await, Leave::Wait(_)));
}

async fn permits_of_a_clock_that_was_put_back_do_not_last(db: Db) {
    let store = db.open().await;
    let ask = async |number, now| {
        let wish = PermitWish { at_most: Duration::from_secs(30), ..wish(number, 2.0, 0, now) };
        store.take_mail_permit(wish).await.unwrap().leave
    };
    // PostgreSQL goes by the server's clock in any case.
    let later = at(100).plus(Duration::from_secs(3600));
    for number in 0..2 {
        assert_eq!(ask(number, later).await, Leave::Granted);
    }
    assert!(matches!(ask(2, later).await, Leave::Wait(_)));
    // Somebody whose moment is a little older has only waited longer for the database.
    let earlier = later.minus(Duration::from_secs(5));
    assert!(matches!(ask(3, earlier).await, Leave::Wait(_)));
    if db.dialect() == Dialect::Sqlite {
        assert_eq!(ask(4, at(100)).await, Leave::Granted);
    }
}

async fn many_who_ask_at_once_get_no_more(db: Db) {
    let (one, two) = (db.open().await, db.open().await);
    let asking = (0..40).map(|number| {
        let store = if number % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move {
            loop {
                // On a busy machine the lock may take longer than a statement may wait for it.
                match store.take_mail_permit(wish(number, 1000.0, 25, at(100))).await {
                    Ok(answer) => return answer.leave,
                    Err(StoreError::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut granted = 0;
    for answer in asking {
        match answer.await.unwrap() {
            Leave::Granted => granted += 1,
            Leave::UsedUp { until } => assert_eq!(until, frees_at(minute(at(100)))),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 25);
    assert_eq!(one.mail_usage(at(100)).await.unwrap().0, 25);
}

async fn the_quota_counts_a_day(db: Db) {
    let store = db.open().await;
    let ask = async |number, now| {
        store.take_mail_permit(wish(number, 1000.0, 2, now)).await.unwrap().leave
    };
    let (early, late) = (at(60), at(7200));
    assert_eq!(ask(0, early).await, Leave::Granted);
    assert_eq!(ask(1, late).await, Leave::Granted);
    let frees = frees_at(minute(early));
    assert_eq!(ask(2, late).await, Leave::UsedUp { until: frees });
    // Given back where nothing was sent, and to the minute it was taken from.
    store.end_mail_permit(uuid(1), late, Duration::ZERO, true, late).await.unwrap();
    assert_eq!(store.mail_usage(late).await.unwrap().0, 1);
    assert_eq!(ask(3, late).await, Leave::Granted);
    assert_eq!(ask(4, late).await, Leave::UsedUp { until: frees });
    assert_eq!(ask(5, frees).await, Leave::Granted, "the first one counts no more");
    assert_eq!(store.prune_mail_quota(frees).await.unwrap(), 0);
    assert!(store.prune_mail_quota(frees.plus(Duration::from_secs(7200))).await.unwrap() > 0);
}

async fn a_closed_lane_gives_nothing(db: Db) {
    let store = db.open().await;
    let control = store.mail_control().await.unwrap();
    store.commit(control::stop(&control, at(200), "535", at(100))).await.unwrap();
    let outdated = store.commit(control::park(&control, at(200), "quota", at(100))).await;
    assert!(matches!(outdated, Err(CommitError::Outdated { table: "mail_control", .. })));
    let answer = store.take_mail_permit(wish(1, 10.0, 0, at(100))).await.unwrap();
    assert_eq!(answer.leave, Leave::Closed);
    let stopped = store.mail_control().await.unwrap();
    assert_eq!(stopped.reason.as_deref(), Some("535"));
    let open = control::reopen(&stopped, tashika_domain::audit::Actor::SYSTEM, at(101));
    store.commit(open).await.unwrap();
    let answer = store.take_mail_permit(wish(2, 10.0, 0, at(101))).await.unwrap();
    assert_eq!(answer.leave, Leave::Granted);
}

async fn what_is_over_is_forgotten_with_its_batch(db: Db) {
    let store = db.open().await;
    let draft = batch::draft(uuid(50), "t", None, at(1));
    let accepted = Batch { status: batch::BatchStatus::Accepted, ..draft };
    let over = |number| Delivery {
        batch_id: Some(uuid(50)),
        status: Status::Failed,
        ended_at: Some(at(10)),
        ..mail(number, "a@example.com")
    };
    let waiting = Delivery { batch_id: Some(uuid(50)), ..mail(3, "b@example.com") };
    let rows = [insert(&over(1)), insert(&over(2)), insert(&waiting)];
    done(&store, rows).await;
    done(&store, [Write::MailBatchInsert(Box::new(accepted))]).await;
    let much_later = Timestamp::from_micros(4_000_000_000_000_000);
    assert_eq!(store.prune_mails(at(10), 10).await.unwrap(), 0, "not before its time");
    assert_eq!(store.prune_mails(much_later, 1).await.unwrap(), 1);
    assert_eq!(store.prune_mails(much_later, 10).await.unwrap(), 1);
    assert_eq!(store.prune_mail_batches(much_later, 10).await.unwrap(), 0, "one is queued");
    let ended =
        Delivery { version: 2, status: Status::Cancelled, ended_at: Some(at(11)), ..waiting };
    done(&store, [update(&ended)]).await;
    assert_eq!(store.prune_mails(much_later, 10).await.unwrap(), 1);
    assert_eq!(store.prune_mail_batches(much_later, 10).await.unwrap(), 1);
    assert!(store.mails(&MailFilter::default(), 10).await.unwrap().is_empty());
}
