use super::*;
use crate::mail::attempt::{Begin, MailLease, begin};
use crate::mail::batch::BatchStatus;
use crate::mail::tests::delivery;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn patience() -> Patience {
    Patience { max_attempts: 3, waits: [2, 4, 8].map(Duration::from_secs).to_vec() }
}

/// A lease that is still held.
fn lease(effect_id: Uuid, fence: i64) -> MailLease {
    MailLease { effect_id, fence, held: Some(fence) }
}

fn begun() -> Delivery {
    let fed = Delivery { effect_id: Some(Uuid::from_u128(7)), ..delivery() };
    match begin(&fed, None, lease(Uuid::from_u128(7), 1), NOW) {
        Begin::Go { delivery, .. } => *delivery,
        other => panic!("{other:?}"),
    }
}

fn after(delivery: &Delivery, came: Came) -> Concluded {
    let patience = patience();
    let attempt = Attempted { came, started_at: NOW, now: NOW, patience: &patience };
    conclude(delivery, &attempt)
}

fn refused(class: MailFault) -> Came {
    let text = "said to taro@example.com".to_owned();
    Came::Result(MailResult::Refused { class, code: Some(451), text })
}

/// The waits of a mail that fails in this way until it is given up, and where it ends.
fn story(class: MailFault) -> (Vec<u64>, Status, bool) {
    let mut waits = Vec::new();
    let mut now = begun();
    loop {
        let Concluded { verdict, delivery, .. } = after(&now, refused(class));
        match verdict {
            Verdict::Retry { run_at, in_doubt, .. } => {
                assert_eq!(in_doubt, class == MailFault::PossiblySent);
                waits.push(run_at.since(NOW).as_secs());
            }
            Verdict::Aborted { in_doubt, .. } => return (waits, delivery.status, in_doubt),
            Verdict::Succeeded => panic!("{delivery:?}"),
        }
        now = delivery;
    }
}

#[test]
fn each_class_ends_as_the_table_says() {
    use MailFault as F;
    assert_eq!(story(F::Retryable), (vec![2, 4], Status::Failed, false));
    assert_eq!(story(F::Recipient), (vec![], Status::Failed, false));
    assert_eq!(story(F::Template), (vec![], Status::Failed, false));
    assert_eq!(story(F::PossiblySent), (vec![2, 4], Status::PossiblySent, true));
}

#[test]
fn more_attempts_wait_for_eight_seconds_and_go_on_so() {
    let patience = Patience { max_attempts: 9, ..patience() };
    let waits: Vec<u64> = (1..6).map(|n| patience.wait_after(n).as_secs()).collect();
    assert_eq!(waits, [2, 4, 8, 8, 8]);
}

#[test]
fn a_mail_that_is_sent_after_a_lost_answer_says_so() {
    let lost = after(&begun(), refused(MailFault::PossiblySent)).delivery;
    assert!(lost.possibly_duplicate && lost.sending.is_none());
    let sent = after(&lost, Came::Result(MailResult::Sent { response: "Ok".into() })).delivery;
    assert_eq!((sent.status, sent.possibly_duplicate, sent.attempts), (Status::Sent, true, 2));
    let outcomes: Vec<&str> = sent.history.iter().map(|t| t.outcome.as_str()).collect();
    assert_eq!(outcomes, ["possibly_sent", "sent"]);
}

#[test]
fn a_refusal_says_nothing_about_an_earlier_attempt_that_was_lost() {
    let lost = after(&begun(), refused(MailFault::PossiblySent)).delivery;
    let end = after(&lost, refused(MailFault::Recipient)).delivery;
    assert_eq!(end.status, Status::PossiblySent);
}

#[test]
fn a_lost_worker_costs_no_attempt_and_leaves_doubt_only_where_it_was_sending() {
    let lapsed = || Came::Lapsed { why: "gone".into() };
    let waiting = after(&delivery(), lapsed());
    assert!(waiting.changes.is_empty(), "nothing was sent");
    assert!(matches!(waiting.verdict, Verdict::Retry { in_doubt: false, .. }));
    let sending = after(&begun(), lapsed());
    assert!(matches!(sending.verdict, Verdict::Retry { run_at: NOW, in_doubt: true, .. }));
    let delivery = sending.delivery;
    assert_eq!((delivery.attempts, delivery.possibly_duplicate), (0, true));
    assert_eq!(delivery.fault.unwrap().class, WORKER_LOST);
    let mut unlucky = begun();
    for lapse in 0..LAPSES_MAX {
        let concluded = after(&unlucky, lapsed());
        assert_eq!(concluded.delivery.status, Status::Queued, "{lapse}");
        unlucky = Delivery { sending: begun().sending, ..concluded.delivery };
    }
    assert_eq!(after(&unlucky, lapsed()).delivery.status, Status::PossiblySent);
}

#[test]
fn whoever_was_cancelled_meanwhile_is_told_what_happened_nevertheless() {
    let cancelled = super::super::cancel(&begun(), NOW).unwrap();
    assert_eq!(cancelled.status, Status::Cancelled);
    let sent = Came::Result(MailResult::Sent { response: "Ok".into() });
    let end = after(&cancelled, sent);
    assert_eq!((end.delivery.status, end.verdict), (Status::Sent, Verdict::Succeeded));
    let end = after(&cancelled, refused(MailFault::Retryable));
    assert_eq!((end.delivery.status, end.verdict), (Status::Cancelled, Verdict::Succeeded));
    let end = after(&cancelled, refused(MailFault::PossiblySent));
    assert_eq!(end.delivery.status, Status::PossiblySent);
    assert_eq!(after(&cancelled, refused(MailFault::Recipient)).delivery.status, Status::Cancelled);
}

#[test]
fn what_the_lane_is_to_blame_for_is_no_attempt() {
    let patience = patience();
    let came = refused(MailFault::Quota);
    let attempt = Attempted { came, started_at: NOW, now: NOW, patience: &patience };
    let hold = |found: &Delivery| hold_up(found, MailFault::Quota, Some(454), "q", NOW, &attempt);
    let concluded = hold(&begun());
    let [Write::MailUpdate(held), Write::Audit(line)] = concluded.changes.writes() else {
        panic!("{concluded:?}")
    };
    assert_eq!((held.attempts, held.status, held.sending), (0, Status::Queued, None));
    assert_eq!(held.history.len(), 1);
    assert_eq!(line.action, "mail.held_up");
    assert!(matches!(concluded.verdict, Verdict::Retry { run_at: NOW, in_doubt: false, .. }));
    let cancelled = super::super::cancel(&begun(), NOW).unwrap();
    assert_eq!(hold(&cancelled).verdict, Verdict::Succeeded);
}

#[test]
fn addresses_in_what_servers_say_are_masked_and_histories_are_short() {
    let end = after(&begun(), refused(MailFault::Retryable)).delivery;
    assert_eq!(end.history[0].text, "said to t***@example.com");
    let mut long = end;
    for _ in 0..50 {
        long = remembering(long.clone(), long.history[0].clone());
    }
    assert_eq!(long.history.len(), HISTORY_MAX);
}

#[test]
fn only_the_newest_lease_of_the_newest_effect_sends() {
    let mine = Uuid::from_u128(7);
    let fed = Delivery { effect_id: Some(mine), ..delivery() };
    assert!(matches!(begin(&fed, None, lease(Uuid::from_u128(8), 1), NOW), Begin::Over));
    let marked = begun();
    assert_eq!(begin(&marked, None, lease(mine, 1), NOW), Begin::Elsewhere);
    let Begin::Go { delivery, .. } = begin(&marked, None, lease(mine, 2), NOW) else {
        panic!("goes")
    };
    assert!(delivery.possibly_duplicate, "nobody has said what became of the first attempt");
    let sent = Delivery { status: Status::Sent, ..fed.clone() };
    assert_eq!(begin(&sent, None, lease(mine, 1), NOW), Begin::Over);
    let failed = Delivery { status: Status::Failed, ended_at: Some(NOW), ..fed.clone() };
    let Begin::Go { delivery, .. } = begin(&failed, None, lease(mine, 5), NOW) else {
        panic!("goes")
    };
    assert_eq!((delivery.status, delivery.effect_id), (Status::Queued, Some(mine)));
    assert_eq!(begin(&fed, Some(BatchStatus::Cancelled), lease(mine, 1), NOW), Begin::Cancelled);
    // Whoever has slept past the end of his lease, while another has it or nobody any more.
    for held in [None, Some(2)] {
        let asleep = MailLease { held, ..lease(mine, 1) };
        for found in [&fed, &failed] {
            assert_eq!(begin(found, None, asleep, NOW), Begin::Elsewhere, "{held:?}");
        }
    }
}

/// What is in doubt when it is cancelled ends as possibly sent, and so does what a person may requeue: the
/// effect that was to try again must not take the one for the other.
#[test]
fn what_was_cancelled_in_doubt_is_not_sent_again() {
    let (mine, stopped) = (Uuid::from_u128(7), Some(BatchStatus::Cancelled));
    let waiting = after(&begun(), refused(MailFault::PossiblySent)).delivery;
    let cancelled = crate::mail::cancel(&waiting, NOW).unwrap();
    assert_eq!(cancelled.status, Status::PossiblySent);
    assert_eq!(begin(&cancelled, stopped, lease(mine, 2), NOW), Begin::Over);

    // The same while the mark of an attempt that was given up stands.
    let Begin::Go { delivery: marked, .. } = begin(&waiting, None, lease(mine, 2), NOW) else {
        panic!("goes")
    };
    let cancelled = crate::mail::cancel(&marked, NOW).unwrap();
    assert_eq!(begin(&cancelled, stopped, lease(mine, 3), NOW), Begin::Cancelled);
    let over = after(&cancelled, Came::Cancelled).delivery;
    assert_eq!((over.status, over.sending), (Status::PossiblySent, None));
}

/// Marked, then given back without a word (there was no permit any more, or nobody knew whether the mark was
/// written), then cancelled: whoever has it next finds the mark, and takes it away.
#[test]
fn a_mark_does_not_stay_on_what_was_cancelled() {
    let (mine, stopped) = (Uuid::from_u128(7), Some(BatchStatus::Cancelled));
    let cancelled = crate::mail::cancel(&begun(), NOW).unwrap();
    assert_eq!((cancelled.status, cancelled.effect_id), (Status::Cancelled, Some(mine)));
    assert_eq!(begin(&cancelled, stopped, lease(mine, 2), NOW), Begin::Cancelled);
    let over = after(&cancelled, Came::Cancelled);
    let (status, mark) = (over.delivery.status, over.delivery.sending);
    assert_eq!((status, mark), (Status::PossiblySent, None), "it may have arrived");
    assert_eq!(over.verdict, Verdict::Succeeded, "and is not sent again");
}

#[test]
fn a_notification_is_audited_when_it_is_sent_and_not_before() {
    let on_sent = crate::mail::OnSent {
        action: "deadline_notification_sent".into(),
        target_id: "staff-1".into(),
        office_id: Some("office-1".into()),
        details: json!({"staff_name": "x"}),
    };
    let begun = Delivery { on_sent: Some(on_sent), ..begun() };
    let lines = |concluded: Concluded| -> Vec<String> {
        let all = concluded.changes.writes().iter().filter_map(|write| match write {
            Write::Audit(line) => Some(line.action.clone()),
            _ => None,
        });
        all.collect()
    };
    assert_eq!(lines(after(&begun, refused(MailFault::Retryable))), ["mail.attempt_failed"]);
    let sent = Came::Result(MailResult::Sent { response: "Ok".into() });
    assert_eq!(lines(after(&begun, sent)), ["mail.sent", "deadline_notification_sent"]);
}
