use super::drive::BUSY_PAGE;
use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn batch() -> Batch {
    draft(Uuid::from_u128(1), "t", Some("k".into()), NOW)
}

fn recipients(count: usize) -> Vec<Recipient> {
    let one = |n| Recipient {
        to: format!("r{n}@example.com"),
        locale: Locale::Ja,
        data: json!({"n": n}),
    };
    (0..count).map(one).collect()
}

const fn ahead(waiting: i64) -> Ahead {
    Ahead { most: 100, waiting, look_again: Duration::from_secs(5) }
}

fn updated(changes: &Changes) -> Batch {
    let found = changes.writes().iter().find_map(|write| match write {
        Write::MailBatchUpdate(batch) => Some((**batch).clone()),
        _ => None,
    });
    found.expect("the batch is written")
}

fn next_due(changes: &Changes) -> Option<Timestamp> {
    changes.writes().iter().find_map(|write| match write {
        Write::Enqueue(effect) if effect.kind == KIND => Some(effect.run_at),
        _ => None,
    })
}

fn fed(changes: &Changes) -> usize {
    let is_mail = |write: &&Write| matches!(write, Write::Enqueue(e) if e.lane == Lane::MAIL);
    changes.writes().iter().filter(is_mail).count()
}

#[test]
fn ids_sort_as_the_recipients_came() {
    let batch = batch();
    let ids: Vec<Uuid> = (0..RECIPIENTS_MAX).map(|nth| delivery_id(&batch, nth)).collect();
    assert!(ids.is_sorted());
    assert!(ids.windows(2).all(|two| two[0] != two[1]));
    assert!(ids.iter().all(|id| id.get_version_num() == 7));
    let other = draft(Uuid::from_u128(2), "t", None, NOW);
    assert_ne!(delivery_id(&other, 5), ids[5]);
}

#[test]
fn portions_follow_each_other() {
    let (first, _) = take(&batch(), recipients(3), NOW).unwrap();
    let (second, changes) = take(&first, recipients(2), NOW).unwrap();
    assert_eq!((second.total, second.version), (5, 3));
    let ids: Vec<Uuid> = changes
        .writes()
        .iter()
        .filter_map(|write| match write {
            Write::MailInsert(delivery) => Some(delivery.id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [delivery_id(&second, 3), delivery_id(&second, 4)]);
}

#[test]
fn nothing_is_fed_before_everything_is_there() {
    let (receiving, changes) = take(&batch(), recipients(3), NOW).unwrap();
    assert_eq!(fed(&changes), 0);
    assert_eq!(look(&receiving, ahead(0)), Look::Nothing);
    let (accepted, _) = complete(&receiving, "sha256:x".into(), Actor::SYSTEM, NOW, NOW).unwrap();
    assert_eq!(accepted.status, BatchStatus::Accepted);
    assert!(matches!(look(&accepted, ahead(0)), Look::Page { limit: 100, .. }));
}

#[test]
fn a_batch_that_stops_coming_is_aborted_and_lets_go_of_its_key() {
    let batch = batch();
    let soon = NOW.plus(RECEIVE_PATIENCE / 2);
    let changes = drive(&batch, 1, &[], ahead(0), soon, soon);
    assert_eq!(next_due(&changes), Some(NOW.plus(RECEIVE_PATIENCE)), "it is looked at again");
    let late = NOW.plus(RECEIVE_PATIENCE);
    let after = updated(&drive(&batch, 1, &[], ahead(0), late, late));
    assert_eq!((after.status, after.key, after.work), (BatchStatus::Aborted, None, Work::Cancel));
    assert!(take(&Batch { status: BatchStatus::Aborted, ..batch }, vec![], late).is_err());
}

#[test]
fn the_lane_is_fed_a_little_ahead_and_no_more() {
    let (receiving, _) = take(&batch(), recipients(3), NOW).unwrap();
    let (accepted, _) = complete(&receiving, "d".into(), Actor::SYSTEM, NOW, NOW).unwrap();
    assert_eq!(look(&accepted, ahead(100)), Look::Nothing);
    let changes = drive(&accepted, accepted.run, &[], ahead(100), NOW, NOW);
    assert_eq!(next_due(&changes), Some(NOW.plus(Duration::from_secs(5))));
    let start = Batch { total: 0, ..accepted.clone() };
    let page: Vec<Delivery> = deliveries(&start, recipients(3)).collect();
    let changes = drive(&accepted, accepted.run, &page, ahead(0), NOW, NOW);
    assert_eq!((fed(&changes), next_due(&changes)), (3, Some(NOW)));
    let after = updated(&changes);
    assert_eq!(after.work, Work::Feed { after: Some(page[2].id) });
    let changes = drive(&after, after.run, &[], ahead(3), NOW, NOW);
    assert_eq!((updated(&changes).work, next_due(&changes)), (Work::Nothing, None));
}

#[test]
fn a_driver_of_an_older_run_does_nothing() {
    let (accepted, _) = complete(&batch(), "d".into(), Actor::SYSTEM, NOW, NOW).unwrap();
    let (cancelled, _) = cancel_rest(&accepted, Actor::SYSTEM, NOW, NOW).unwrap();
    assert!(drive(&cancelled, accepted.run, &[], ahead(0), NOW, NOW).is_empty());
    assert!(!drive(&cancelled, cancelled.run, &[], ahead(0), NOW, NOW).is_empty());
}

#[test]
fn cancelling_takes_few_that_are_in_the_lane_and_all_that_are_not() {
    let (accepted, _) = complete(&batch(), "d".into(), Actor::SYSTEM, NOW, NOW).unwrap();
    let (cancelled, _) = cancel_rest(&accepted, Actor::SYSTEM, NOW, NOW).unwrap();
    let start = Batch { total: 0, ..accepted };
    let mut page: Vec<Delivery> = deliveries(&start, recipients(100)).collect();
    for delivery in &mut page[..50] {
        delivery.effect_id = Some(delivery.id);
    }
    let changes = drive(&cancelled, cancelled.run, &page, ahead(0), NOW, NOW);
    let count =
        changes.writes().iter().filter(|write| matches!(write, Write::MailUpdate(_))).count();
    assert_eq!(count, 50 + BUSY_PAGE);
    assert_eq!(updated(&changes).work, Work::Cancel);
    let changes = drive(&cancelled, cancelled.run, &[], ahead(0), NOW, NOW);
    assert_eq!((updated(&changes).work, next_due(&changes)), (Work::Nothing, None));
}

#[test]
fn a_retry_goes_through_its_statuses_and_then_feeds() {
    let (accepted, _) = complete(&batch(), "d".into(), Actor::SYSTEM, NOW, NOW).unwrap();
    let wanted = [Status::Failed, Status::Cancelled];
    let (retried, _) = retry_rest(&accepted, &wanted, Actor::SYSTEM, NOW, NOW).unwrap();
    assert!(matches!(look(&retried, ahead(999)), Look::Page { status: Status::Failed, .. }));
    let start = Batch { total: 0, ..accepted };
    let page: Vec<Delivery> = deliveries(&start, recipients(1))
        .map(|found| Delivery { status: Status::Failed, ended_at: Some(NOW), ..found })
        .collect();
    let after = updated(&drive(&retried, retried.run, &page, ahead(0), NOW, NOW));
    assert!(matches!(&after.work, Work::Reopen { after: Some(_), .. }));
    let after = updated(&drive(&after, after.run, &[], ahead(0), NOW, NOW));
    assert!(matches!(look(&after, ahead(0)), Look::Page { status: Status::Cancelled, .. }));
    let after = updated(&drive(&after, after.run, &[], ahead(0), NOW, NOW));
    assert_eq!(after.work, Work::Feed { after: None });
}

#[test]
fn digests_are_of_everything_in_order() {
    let of = |template: &str, list: &[Recipient]| {
        let mut digest = RunningDigest::new(template);
        for recipient in list {
            digest.add(recipient);
        }
        digest.finish()
    };
    let mut list = recipients(3);
    let all = of("t", &list);
    assert_eq!(all, of("t", &list));
    assert_ne!(all, of("u", &list));
    list.swap(0, 1);
    assert_ne!(all, of("t", &list));
}
