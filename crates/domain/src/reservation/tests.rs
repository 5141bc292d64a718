//! Decisions about reservations, one by one.

use std::time::Duration;

use super::compensate::{DUPLICATE_CANCEL, EXPIRED_AFTER_PAYMENT, RENDER_FAILURE, SLOT_CONFLICT};
use super::decide::{Asked, At, check_out, expired, happen, hold};
use super::status::{Event, Refused};
use super::*;
use crate::changes::{Changes, Write};
use crate::effect::{Effect, Verdict};
use crate::outcome::Outcome;
use crate::payment::checkout::Going;
use crate::payment::conclude::{Finding, Heard, Via, conclude};
use crate::payment::hear::hear_session;
use crate::payment::session::{RemoteSession, SessionState};
use crate::payment::{self, OperationKind, Payment, PaymentRules, RefundStatus, RequestKey};

const NOW: Timestamp = Timestamp::from_micros(1_794_744_000_000_000);

struct World {
    rules: ReservationRules,
    payments: PaymentRules,
}

impl World {
    fn new(late_payment: LatePayment) -> Self {
        let rules = ReservationRules { late_payment, ..ReservationRules::default() };
        Self { rules, payments: PaymentRules::default() }
    }

    fn at(&self, seconds: u64) -> At<'_> {
        let now = NOW.plus(Duration::from_secs(seconds));
        let (rules, payments) = (&self.rules, &self.payments);
        At { now, rules, payments, slot_taken: false }
    }

    fn pay_at(&self, seconds: u64) -> payment::At<'_> {
        let now = NOW.plus(Duration::from_secs(seconds));
        payment::At { now, rules: &self.payments, worker: None }
    }

    fn held(&self) -> Reservation {
        let request = ReservationRequest {
            video_id: 7,
            projection_date: "2026-12-24".into(),
            slot_number: 3,
            user_id: "u-1".into(),
            user_email: "a@example.com".into(),
            locale: Locale::En,
            amount: 1500,
            currency: "JPY".into(),
        };
        let key = RequestKey { key: "k".into(), digest: "d".into() };
        let asked = Asked { id: Uuid::from_u128(1), key, traceparent: None };
        hold(request, asked, None, self.at(0)).reservation
    }

    /// A reservation whose page is open.
    fn paying(&self) -> (Reservation, Payment) {
        let held = self.held();
        let (decided, paying) = check_out(&held, Uuid::from_u128(2), "g", Some("w"), self.at(10));
        let opening = paying.next.unwrap();
        let (payment, verdict) = self.heard(
            &paying.payment,
            &opening,
            Outcome::Done(page(SessionState::Open, false)),
            11,
        );
        assert_eq!(verdict, Verdict::Succeeded);
        (decided.reservation, payment)
    }

    fn heard(
        &self,
        payment: &Payment,
        effect: &Effect,
        outcome: Outcome<RemoteSession>,
        seconds: u64,
    ) -> (Payment, Verdict) {
        let outcome = outcome.map(Finding::Session);
        let heard = Heard {
            via: Via::Sent,
            outcome: &outcome,
            exchange: None,
            checked: None,
            began_at: NOW,
        };
        let (decided, verdict) = conclude(payment, effect, &heard, self.pay_at(seconds)).unwrap();
        (decided.payment, verdict)
    }

    /// The payment, captured at a moment, as part of a larger decision.
    fn paid<'a>(&'a self, payment: &'a Payment, seconds: u64) -> Going<'a> {
        let session = page(SessionState::Complete, true);
        let decided = hear_session(payment, &session, &serde_json::json!({}), self.pay_at(seconds));
        assert!(decided.is_some(), "it is news");
        Going { before: payment, decided }
    }
}

fn page(state: SessionState, paid: bool) -> RemoteSession {
    RemoteSession {
        id: "cs_1".into(),
        url: Some("https://pay.example/cs_1".into()),
        state,
        paid,
        gateway_id: paid.then(|| "pi_1".into()),
        amount: 1500,
        currency: "JPY".into(),
        expires_at: NOW.plus(Duration::from_secs(3600)),
    }
}

fn refunds(changes: &Changes) -> usize {
    changes.writes().iter().filter(|write| matches!(write, Write::RefundInsert(_))).count()
}

fn payment_rows(changes: &Changes) -> usize {
    changes.writes().iter().filter(|write| matches!(write, Write::PaymentUpdate(_))).count()
}

fn letters(changes: &Changes) -> Vec<String> {
    let letter = |write: &Write| match write {
        Write::MailInsert(mail) => Some(format!("{} {}", mail.template, mail.data)),
        _ => None,
    };
    changes.writes().iter().filter_map(letter).collect()
}

#[test]
fn money_in_time_confirms() {
    let world = World::new(LatePayment::Refund);
    let (reservation, payment) = world.paying();
    let going = world.paid(&payment, 899);
    let decided = happen(&reservation, Event::Paid, Some(going), world.at(899)).unwrap();
    assert_eq!(decided.reservation.status, Status::Confirmed);
    assert_eq!(decided.payment.unwrap().status, payment::Status::Captured);
    assert_eq!((refunds(&decided.changes), payment_rows(&decided.changes)), (0, 1));
    assert!(decided.races.is_empty());
}

#[test]
fn money_at_the_deadline_goes_back_whether_or_not_the_timer_has_come() {
    let world = World::new(LatePayment::Refund);
    let (reservation, payment) = world.paying();
    let timed_out = expired(&reservation, world.at(900)).reservation;
    assert_eq!(timed_out.status, Status::Expired);
    for before in [reservation, timed_out] {
        let going = world.paid(&payment, 900);
        let decided = happen(&before, Event::Paid, Some(going), world.at(900)).unwrap();
        assert_eq!(decided.reservation.status, Status::Expired);
        let paid = decided.payment.unwrap();
        assert_eq!(paid.version, payment.version + 1, "capture and refund are one change");
        assert_eq!(paid.refunds[0].status, RefundStatus::Pending);
        assert_eq!(paid.refunds[0].amount, 1500);
        assert_eq!((refunds(&decided.changes), payment_rows(&decided.changes)), (1, 1));
        assert_eq!(decided.races[0].scenario, EXPIRED_AFTER_PAYMENT);
        assert_eq!(decided.told, Some("EXPIRED_RESERVATION_REFUNDED"));
        let letters = letters(&decided.changes);
        assert!(letters[0].contains("reservation-expired-refunded"), "{letters:?}");
        // The same news again: there is nothing left to give back.
        let again = Going::of(&paid);
        let decided =
            happen(&decided.reservation, Event::Paid, Some(again), world.at(901)).unwrap();
        assert_eq!(refunds(&decided.changes), 0);
        assert!(decided.races.is_empty());
    }
}

#[test]
fn reclaiming_takes_a_free_slot_and_no_other() {
    let world = World::new(LatePayment::Reclaim);
    let (reservation, payment) = world.paying();
    let over = expired(&reservation, world.at(900)).reservation;
    let going = world.paid(&payment, 960);
    let decided = happen(&over, Event::Paid, Some(going), world.at(960)).unwrap();
    assert_eq!((decided.reservation.status, refunds(&decided.changes)), (Status::Confirmed, 0));
    assert_eq!(decided.reservation.expired_at, None);
    let taken = At { slot_taken: true, ..world.at(960) };
    let going = world.paid(&payment, 960);
    let decided = happen(&over, Event::Paid, Some(going), taken).unwrap();
    assert_eq!((decided.reservation.status, refunds(&decided.changes)), (Status::Expired, 1));
    assert_eq!(decided.races[0].scenario, SLOT_CONFLICT);
}

#[test]
fn a_cancelled_reservation_gives_its_money_back_once() {
    let world = World::new(LatePayment::Refund);
    let (reservation, payment) = world.paying();
    let going = world.paid(&payment, 60);
    let decided = happen(&reservation, Event::Paid, Some(going), world.at(60)).unwrap();
    let (confirmed, paid) = (decided.reservation, decided.payment.unwrap());
    let decided = happen(&confirmed, Event::Cancel, Some(Going::of(&paid)), world.at(70)).unwrap();
    assert_eq!((decided.reservation.status, refunds(&decided.changes)), (Status::Cancelled, 1));
    assert!(decided.reservation.cancelled_at.is_some());
    let (cancelled, given) = (decided.reservation, decided.payment.unwrap());
    for event in [Event::Cancel, Event::Deadline, Event::GiveUp, Event::Paid] {
        let going = Some(Going::of(&given));
        let decided = happen(&cancelled, event, going, world.at(80)).unwrap();
        assert_eq!(decided.reservation.status, Status::Cancelled, "{event:?}");
        assert_eq!(refunds(&decided.changes), 0, "{event:?}");
    }
}

#[test]
fn a_hold_that_is_cancelled_closes_its_page_and_late_money_goes_back() {
    let world = World::new(LatePayment::Refund);
    let (reservation, payment) = world.paying();
    let watching = payment.operation.as_ref().unwrap().effect;
    let decided =
        happen(&reservation, Event::Cancel, Some(Going::of(&payment)), world.at(60)).unwrap();
    let closing = decided.payment.unwrap();
    assert_ne!(closing.operation.as_ref().unwrap().effect, watching, "somebody closes it now");
    assert_eq!(closing.checkout.as_ref().unwrap().closes_at, world.at(60).now);
    let going = world.paid(&closing, 61);
    let decided = happen(&decided.reservation, Event::Paid, Some(going), world.at(61)).unwrap();
    assert_eq!((decided.reservation.status, refunds(&decided.changes)), (Status::Cancelled, 1));
    assert_eq!(decided.races[0].scenario, DUPLICATE_CANCEL);
}

#[test]
fn it_is_too_late_to_cancel_what_has_expired() {
    let world = World::new(LatePayment::Refund);
    let held = world.held();
    let refused = happen(&held, Event::Cancel, None, world.at(900)).unwrap_err();
    assert_eq!(refused, Refused::TooLate(Status::Expired));
}

#[test]
fn a_render_that_was_given_up_gives_the_money_back_and_tells_the_customer() {
    let world = World::new(LatePayment::Refund);
    let (reservation, payment) = world.paying();
    let going = world.paid(&payment, 60);
    let decided = happen(&reservation, Event::Paid, Some(going), world.at(60)).unwrap();
    let (confirmed, paid) = (decided.reservation, decided.payment.unwrap());
    let decided =
        happen(&confirmed, Event::GiveUp, Some(Going::of(&paid)), world.at(90_000)).unwrap();
    assert_eq!((decided.reservation.status, refunds(&decided.changes)), (Status::Cancelled, 1));
    assert_eq!(decided.races[0].scenario, RENDER_FAILURE);
    assert_eq!(decided.told, Some("RENDER_FAILED_AUTO_REFUND"));
    assert!(letters(&decided.changes)[0].contains("\"videoId\":7"));
}

/// What the gateway can say about a page, and what becomes of the payment.
#[test]
fn a_page_ends_as_the_gateway_says() {
    let world = World::new(LatePayment::Refund);
    let (_, payment) = world.paying();
    let closing = closing_of(&payment);
    let (after, verdict) =
        world.heard(&payment, &closing, Outcome::Done(page(SessionState::Expired, false)), 900);
    assert_eq!((after.status, verdict), (payment::Status::Failed, Verdict::Succeeded));
    let (after, verdict) =
        world.heard(&payment, &closing, Outcome::Done(page(SessionState::Complete, true)), 900);
    assert_eq!((after.status, verdict), (payment::Status::Captured, Verdict::Succeeded));
    assert_eq!(after.gateway_transaction_id.as_deref(), Some("pi_1"));
    // The money is on its way: no doubt, no end.
    let (after, verdict) =
        world.heard(&payment, &closing, Outcome::Done(page(SessionState::Complete, false)), 900);
    assert_eq!(after.status, payment::Status::Pending);
    assert!(matches!(verdict, Verdict::Retry { in_doubt: false, .. }));
    assert!(!after.pending_verification());
    // Another amount than ours is nobody's to interpret.
    let other = RemoteSession { amount: 15, ..page(SessionState::Complete, true) };
    let (after, verdict) = world.heard(&payment, &closing, Outcome::Done(other), 900);
    assert!(after.verification_failed());
    assert!(matches!(verdict, Verdict::Aborted { in_doubt: true, .. }));
}

/// The effect that waits for the end of a page.
fn closing_of(payment: &Payment) -> Effect {
    let operation = payment.operation.as_ref().unwrap();
    assert_eq!(operation.kind, OperationKind::Checkout);
    Effect {
        id: operation.effect,
        lane: crate::Lane::PAYMENTS,
        kind: payment::KIND.into(),
        key: None,
        digest: None,
        payload: "{}".into(),
        attempts: 0,
        in_doubt: false,
        fence: 1,
        has_row: true,
        created_at: NOW,
        run_at: NOW,
        traceparent: None,
    }
}

#[test]
fn silence_about_a_page_ends_with_a_person_and_never_with_a_guess() {
    let world = World::new(LatePayment::Refund);
    let (_, mut payment) = world.paying();
    let lost = || Outcome::Lost(crate::outcome::Reason::new("TIMEOUT", "no answer"));
    let mut effect = closing_of(&payment);
    let mut tries = 0;
    loop {
        let (after, verdict) = world.heard(&payment, &effect, lost(), 900 + tries);
        assert_eq!(after.status, payment::Status::Pending);
        payment = after;
        tries += 1;
        match verdict {
            Verdict::Retry { in_doubt: true, .. } => {
                effect.attempts += 1;
                effect.in_doubt = true;
            }
            Verdict::Aborted { in_doubt: true, .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(payment.verification_failed());
    let soon = world.payments.retry_backoff.len() as u64;
    assert_eq!(tries, soon + 1 + u64::from(world.payments.verify_max));
}

#[test]
fn a_lapsed_hold_gives_way_in_the_change_that_takes_its_slot() {
    let world = World::new(LatePayment::Refund);
    let first = world.held();
    let key = RequestKey { key: "k-2".into(), digest: "d".into() };
    let asked = Asked { id: Uuid::from_u128(9), key, traceparent: None };
    let decided = hold(first.request.clone(), asked, Some(&first), world.at(900));
    let rows: Vec<(Uuid, Status)> = decided
        .changes
        .writes()
        .iter()
        .filter_map(|write| match write {
            Write::ReservationUpdate(row) | Write::ReservationInsert(row) => {
                Some((row.id, row.status))
            }
            _ => None,
        })
        .collect();
    assert_eq!(rows, [(first.id, Status::Expired), (Uuid::from_u128(9), Status::Hold)]);
}
