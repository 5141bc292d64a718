//! The five scenarios of reservations, and what lies beside them.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tashika_domain::case::CaseStatus;
use tashika_domain::reservation::{CASE_REFUND, LatePayment, Status};
use tashika_domain::{Lane, payment};
use tashika_engine::commands::reservation::{Caller, CheckedOut, ReservationError};
use tashika_store::ReservationFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::reservations_support::{AMOUNT, DAY, HOLD, Hall, body, caller, nobody, session_of};

on_both!(
    a_slot_is_held_paid_and_confirmed,
    the_same_key_is_the_same_reservation,
    what_is_wrong_is_refused_and_nothing_is_stored,
    another_users_reservation_is_nobodys_business,
    paid_after_the_end_is_given_back_once,
    paid_after_the_end_may_reclaim_a_free_slot,
    paid_after_somebody_else_has_the_slot_is_given_back,
    two_customers_want_one_slot,
    a_hold_whose_timer_has_not_come_keeps_nobody_away,
    a_hundred_copies_of_a_webhook_have_one_effect,
    a_cancellation_that_is_clicked_often_gives_back_once,
    it_is_too_late_to_cancel_what_has_expired,
    a_checkout_is_the_same_page_however_often_it_is_asked_for,
    a_page_whose_answer_is_lost_is_opened_once,
    a_page_that_cannot_be_opened_leaves_the_hold,
    a_page_that_is_answered_with_an_error_for_ever_leaves_room_for_another,
    the_end_of_the_hold_closes_the_page,
    a_page_that_is_cancelled_while_it_is_opened_is_closed,
    a_customer_who_paid_unheard_gets_the_money_back_when_the_page_is_closed,
    money_that_comes_days_later_is_waited_for,
    money_that_never_comes_leaves_room_for_another_try,
    a_refund_that_is_refused_becomes_a_case,
    slots_show_who_has_what,
);

const PAID: [&str; 2] = ["checkout.session.completed", "payment_intent.succeeded"];
/// After the end of the hold.
const LATE: Duration = Duration::from_secs(901);

async fn until_status(hall: &Hall, id: Uuid, status: Status) {
    until(status.as_str(), async || (hall.reservation(id).await.status == status).then_some(()))
        .await;
}

async fn a_slot_is_held_paid_and_confirmed(db: TestDb) {
    let hall = Hall::new(db).await;
    let workers = hall.workers(Duration::ZERO);
    let held = workers.held("u-1", 3).await;
    assert_eq!(held.status, Status::Hold);
    assert_eq!(held.hold_expires_at, held.created_at.plus(HOLD));
    let page = workers.check_out(held.id).await;
    let session = hall.world.session(&session_of(&page)).unwrap();
    assert_eq!(session["client_reference_id"], json!(held.id));
    assert_eq!(session["metadata"]["reservation_id"], json!(held.id));
    assert_eq!((&session["amount_total"], &session["currency"]), (&json!(AMOUNT), &json!("jpy")));
    assert_eq!(page.request.booking_id, held.id.to_string());
    // A page that nobody has paid on says nothing.
    hall.deliver(&["checkout.session.completed"], 1).await;
    assert_eq!(hall.reservation(held.id).await.status, Status::Hold);
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    until_status(&hall, held.id, Status::Confirmed).await;
    let paid = hall.payment_of(held.id).await;
    assert_eq!((paid.status, paid.captured_amount), (payment::Status::Captured, AMOUNT));
    assert!(paid.gateway_transaction_id.is_some());
    workers.stop().await;
    // The timers that are left find nothing to do.
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    assert!(hall.letters(held.id).await.is_empty() && hall.races(held.id).await.is_empty());
    let late = hall.desk();
    let refused = late.reservations.check_out(held.id, nobody()).await.unwrap_err();
    assert!(matches!(refused, ReservationError::CannotCheckOut(Status::Confirmed)), "{refused:?}");
    late.stop().await;
}

async fn the_same_key_is_the_same_reservation(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let asked = body("u-1", 3);
    let all = join_all((0..20).map(|_| desk.hold("k-1", &asked))).await;
    let ids: Vec<Uuid> = all.iter().map(|held| held.as_ref().unwrap().reservation.id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(all.iter().filter(|held| !held.as_ref().unwrap().replayed).count(), 1);
    // The key in the body is the same key, and no part of the request.
    let mut named = asked.clone();
    named["idempotencyKey"] = json!("k-1");
    let held = desk.reservations.hold(nobody(), &named).await.unwrap();
    assert!(held.replayed && held.reservation.id == ids[0]);
    let differs = desk.hold("k-2", &named).await.unwrap_err();
    assert!(matches!(differs, ReservationError::KeysDiffer), "{differs:?}");
    let conflict = desk.hold("k-1", &body("u-1", 4)).await.unwrap_err();
    assert!(matches!(conflict, ReservationError::Conflict), "{conflict:?}");
    // Also when it is over.
    desk.cancel(ids[0]).await.unwrap();
    let held = desk.hold("k-1", &asked).await.unwrap();
    assert!(held.replayed && held.reservation.status == Status::Cancelled);
    let all = hall.store.reservations(&ReservationFilter::default(), 10).await.unwrap();
    assert_eq!(all.len(), 1);
    desk.stop().await;
}

async fn what_is_wrong_is_refused_and_nothing_is_stored(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    for (field, value) in [
        ("projectionDate", json!("2026-02-30")),
        ("projectionDate", json!("2001-01-01")),
        ("slotNumber", json!(21)),
        ("slotNumber", json!(0)),
        ("userEmail", json!("nobody")),
        ("amount", json!(-1)),
        ("videoId", json!("seven")),
    ] {
        let mut bad = body("u-1", 3);
        bad[field] = value.clone();
        let refused = desk.hold("k-1", &bad).await.unwrap_err();
        let ReservationError::Invalid(violations) = &refused else { panic!("{refused:?}") };
        assert_eq!(violations[0].field, field, "{value}");
    }
    let missing = desk.reservations.hold(nobody(), &body("u-1", 3)).await.unwrap_err();
    assert!(matches!(missing, ReservationError::KeyMissing), "{missing:?}");
    let long = "k".repeat(65);
    let invalid = desk.hold(&long, &body("u-1", 3)).await.unwrap_err();
    assert!(matches!(invalid, ReservationError::KeyInvalid), "{invalid:?}");
    let all = hall.store.reservations(&ReservationFilter::default(), 10).await.unwrap();
    assert!(all.is_empty() && hall.effects().await.is_empty());
    desk.stop().await;
}

async fn another_users_reservation_is_nobodys_business(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.held("u-1", 3).await;
    let stranger = || Caller { user: Some("u-2"), ..nobody() };
    let reservations = &desk.reservations;
    let refused = [
        reservations.find(held.id, Some("u-2")).await.map(drop),
        reservations.cancel(held.id, stranger()).await.map(drop),
        reservations.check_out(held.id, stranger()).await.map(drop),
        reservations.hold(Caller { key: Some("k"), ..stranger() }, &body("u-1", 4)).await.map(drop),
    ];
    for result in refused {
        assert!(matches!(result, Err(ReservationError::Forbidden)), "{result:?}");
    }
    assert_eq!(hall.reservation(held.id).await, held, "nothing has happened");
    let nowhere = reservations.find(Uuid::from_u128(1), None).await.unwrap_err();
    assert!(matches!(nowhere, ReservationError::NotFound), "{nowhere:?}");
    assert!(reservations.find(held.id, Some("u-1")).await.is_ok());
    desk.stop().await;
}

/// Scenario 1.
async fn paid_after_the_end_is_given_back_once(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    hall.customer_pays(held.id).await;
    // The timer comes first, then the message; each in a process of its own.
    let timers = hall.process(LATE, &[Lane::TIMERS]);
    until_status(&hall, held.id, Status::Expired).await;
    timers.stop().await;
    hall.deliver(&PAID, 3).await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Expired);
    assert_eq!(hall.world.refunds_of(&hall.payment_of(held.id).await.id.to_string()).len(), 1);
    let refund = &hall.world.refunds_of(&hall.payment_of(held.id).await.id.to_string())[0];
    assert_eq!(refund["reason"], json!("requested_by_customer"));
    assert_eq!(hall.letters(held.id).await, ["reservation-expired-refunded"]);
    let races = hall.scenarios(held.id).await;
    assert_eq!(races, [("EXPIRED_AFTER_PAYMENT".to_owned(), "REFUNDED".to_owned())]);
    let filter = tashika_store::AuditFilter {
        action: Some("reservation.expired_reservation_refunded".into()),
        ..tashika_store::AuditFilter::default()
    };
    assert_eq!(hall.store.audit_logs(&filter, 10).await.unwrap().len(), 1);
    desk.stop().await;
}

async fn paid_after_the_end_may_reclaim_a_free_slot(db: TestDb) {
    let mut hall = Hall::new(db).await;
    hall.rules.late_payment = LatePayment::Reclaim;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    hall.customer_pays(held.id).await;
    let timers = hall.process(LATE, &[Lane::TIMERS]);
    until_status(&hall, held.id, Status::Expired).await;
    timers.stop().await;
    hall.deliver(&PAID, 2).await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    assert!(hall.letters(held.id).await.is_empty());
    desk.stop().await;
}

/// Scenario 2, as far as the payment page.
async fn paid_after_somebody_else_has_the_slot_is_given_back(db: TestDb) {
    let mut hall = Hall::new(db).await;
    for (slot, policy) in (3..).zip(LatePayment::ALL) {
        hall.rules.late_payment = policy;
        let desk = hall.desk();
        let first = desk.paying("u-1", slot).await;
        hall.customer_pays(first.id).await;
        let timers = hall.process(LATE, &[Lane::TIMERS]);
        until_status(&hall, first.id, Status::Expired).await;
        timers.stop().await;
        let later = hall.process(LATE, &[]);
        let second = later.paying("u-2", slot).await;
        hall.customer_pays(second.id).await;
        hall.deliver(&PAID, 1).await;
        let webhooks = hall.process(LATE, &[Lane::WEBHOOKS]);
        until_status(&hall, second.id, Status::Confirmed).await;
        webhooks.stop().await;
        hall.settle().await;
        assert_eq!(hall.fair(first.id).await, Status::Expired, "{policy:?}");
        assert_eq!(hall.fair(second.id).await, Status::Confirmed, "{policy:?}");
        let races = hall.scenarios(first.id).await;
        assert_eq!(races, [("SLOT_CONFLICT".to_owned(), "REFUNDED".to_owned())], "{policy:?}");
        later.stop().await;
        desk.stop().await;
    }
}

async fn two_customers_want_one_slot(db: TestDb) {
    let hall = Hall::new(db).await;
    let (one, other) = (hall.desk(), hall.desk());
    let wishes = (0..40).map(|n| {
        let desk = if n % 2 == 0 { &one } else { &other };
        async move { desk.hold(&format!("k-{n}"), &body(&format!("u-{n}"), 3)).await }
    });
    let results = join_all(wishes).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for result in results.into_iter().filter_map(Result::err) {
        assert!(matches!(result, ReservationError::SlotTaken), "{result:?}");
    }
    let owners = hall.store.reservations_of_day(DAY).await.unwrap();
    assert_eq!(owners.len(), 1);
    // Those who were on their way at the same moment are races; whoever comes later is not.
    let before = hall.races(owners[0].id).await.len();
    let late = one.hold("k-late", &body("u-late", 3)).await.unwrap_err();
    assert!(matches!(late, ReservationError::SlotTaken));
    let races = hall.scenarios(owners[0].id).await;
    assert_eq!(races.len(), before);
    let retry = ("SLOT_CONFLICT".to_owned(), "RETRY".to_owned());
    assert!(races.iter().all(|race| *race == retry), "{races:?}");
    one.stop().await;
    other.stop().await;
}

async fn a_hold_whose_timer_has_not_come_keeps_nobody_away(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let first = desk.held("u-1", 3).await;
    let later = hall.process(LATE, &[]);
    let wishes = (0..10).map(|n| {
        let later = &later;
        async move { later.hold(&format!("k-{n}"), &body(&format!("v-{n}"), 3)).await }
    });
    let results = join_all(wishes).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert_eq!(hall.reservation(first.id).await.status, Status::Expired);
    assert_eq!(hall.store.reservations_of_day(DAY).await.unwrap().len(), 1);
    hall.settle().await;
    later.stop().await;
    desk.stop().await;
}

/// Scenario 4.
async fn a_hundred_copies_of_a_webhook_have_one_effect(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let (kept, lost) = (desk.paying("u-1", 3).await, desk.paying("u-2", 4).await);
    hall.customer_pays(kept.id).await;
    hall.customer_pays(lost.id).await;
    desk.cancel(lost.id).await.unwrap();
    let workers = hall.workers(Duration::ZERO);
    hall.deliver(&PAID, 50).await;
    hall.deliver(&PAID, 50).await;
    until_status(&hall, kept.id, Status::Confirmed).await;
    workers.stop().await;
    hall.settle().await;
    assert_eq!(hall.fair(kept.id).await, Status::Confirmed);
    assert_eq!(hall.fair(lost.id).await, Status::Cancelled);
    assert_eq!(hall.payment_of(lost.id).await.refunds.len(), 1);
    let races = hall.scenarios(lost.id).await;
    assert_eq!(races, [("DUPLICATE_CANCEL".to_owned(), "REFUNDED".to_owned())]);
    desk.stop().await;
}

/// Scenario 5.
async fn a_cancellation_that_is_clicked_often_gives_back_once(db: TestDb) {
    let hall = Hall::new(db).await;
    let (one, other) = (hall.desk(), hall.desk());
    let held = one.paying("u-1", 3).await;
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    let webhooks = hall.process(Duration::ZERO, &[Lane::WEBHOOKS]);
    until_status(&hall, held.id, Status::Confirmed).await;
    webhooks.stop().await;
    let clicks = (0..10).map(|n| if n % 2 == 0 { &one } else { &other });
    let results = join_all(clicks.map(|desk| desk.cancel(held.id))).await;
    for result in results {
        assert_eq!(result.unwrap().reservation.status, Status::Cancelled);
    }
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Cancelled);
    let payment = hall.payment_of(held.id).await;
    assert_eq!((payment.status, payment.refunds.len()), (payment::Status::Refunded, 1));
    // The slot is free again.
    one.held("u-2", 3).await;
    let races = hall.scenarios(held.id).await;
    // Nine of ten were clicked in vain, and that is one race, however many came at the same moment.
    assert_eq!(races, [("DUPLICATE_CANCEL".to_owned(), "REFUNDED".to_owned())]);
    one.stop().await;
    other.stop().await;
}

async fn it_is_too_late_to_cancel_what_has_expired(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    let late = hall.process(LATE, &[]);
    for _ in 0..2 {
        let refused = late.cancel(held.id).await.unwrap_err();
        assert!(matches!(refused, ReservationError::CannotCancel), "{refused:?}");
    }
    assert_eq!(hall.reservation(held.id).await.status, Status::Expired);
    let refused = late.reservations.check_out(held.id, nobody()).await.unwrap_err();
    assert!(matches!(refused, ReservationError::CannotCheckOut(Status::Expired)), "{refused:?}");
    hall.settle().await;
    assert_eq!(hall.payment_of(held.id).await.status, payment::Status::Failed);
    late.stop().await;
    desk.stop().await;
}

async fn a_checkout_is_the_same_page_however_often_it_is_asked_for(db: TestDb) {
    let hall = Hall::new(db).await;
    let (one, other) = (hall.desk(), hall.desk());
    let held = one.held("u-1", 3).await;
    let clicks = (0..10).map(|n| if n % 2 == 0 { &one } else { &other });
    let results = join_all(clicks.map(|desk| desk.reservations.check_out(held.id, nobody()))).await;
    for result in results {
        result.unwrap();
    }
    let page = until("the page", async || {
        match one.reservations.check_out(held.id, nobody()).await.unwrap() {
            CheckedOut::Open(payment) => Some(payment),
            CheckedOut::Opening(_) => None,
        }
    })
    .await;
    assert_eq!(hall.world.sessions().len(), 1);
    assert_eq!(page.checkout.as_ref().unwrap().closes_at, held.hold_expires_at);
    one.stop().await;
    other.stop().await;
}

async fn a_page_whose_answer_is_lost_is_opened_once(db: TestDb) {
    let hall = Hall::new(db).await;
    let workers = hall.workers(Duration::ZERO);
    let held = workers.held("u-1", 3).await;
    hall.world.script(
        Operation::OpenCheckout,
        [Fault::DropBefore, Fault::ExecuteThenClose, Fault::Unavailable],
    );
    let page = until("the page", async || {
        match workers.reservations.check_out(held.id, nobody()).await.unwrap() {
            CheckedOut::Open(payment) => Some(payment),
            CheckedOut::Opening(_) => None,
        }
    })
    .await;
    assert_eq!(hall.world.sessions().len(), 1);
    assert!(!page.pending_verification());
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    until_status(&hall, held.id, Status::Confirmed).await;
    workers.stop().await;
    hall.fair(held.id).await;
}

/// Found by killing the server: under its key the gateway repeats its 500, and a person was asked to say
/// what nobody can have done.
async fn a_page_that_is_answered_with_an_error_for_ever_leaves_room_for_another(db: TestDb) {
    let hall = Hall::new(db).await;
    hall.world.script(Operation::OpenCheckout, [Fault::fail_after()]);
    let desk = hall.desk();
    let held = desk.held("u-1", 3).await;
    // The answer may say that it is being opened, or that it could not be.
    drop(desk.reservations.check_out(held.id, nobody()).await);
    let first = hall.payment_of(held.id).await.id;
    let workers = hall.process(Duration::from_secs(300), &[Lane::PAYMENTS]);
    until("the end of it", async || {
        (hall.payment_of(held.id).await.status == payment::Status::Failed).then_some(())
    })
    .await;
    workers.stop().await;
    let cases = hall.store.cases_of(payment::KIND, &first.to_string()).await.unwrap();
    assert!(cases.is_empty(), "nobody can have paid: {cases:?}");
    let again = desk.check_out(held.id).await;
    assert_ne!(again.id, first);
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    let webhooks = hall.process(Duration::ZERO, &[Lane::WEBHOOKS]);
    until_status(&hall, held.id, Status::Confirmed).await;
    webhooks.stop().await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    desk.stop().await;
}

async fn a_page_that_cannot_be_opened_leaves_the_hold(db: TestDb) {
    let hall = Hall::new(db).await;
    let workers = hall.workers(Duration::ZERO);
    let held = workers.held("u-1", 3).await;
    // As often as is tried: certainly not executed, and in the end given up.
    let busy = Fault::RateLimited { retry_after: None, should_retry: None };
    hall.world.script(Operation::OpenCheckout, vec![busy; hall.payments.retry_backoff.len() + 1]);
    let opening = workers.reservations.check_out(held.id, nobody()).await.unwrap();
    assert!(matches!(opening, CheckedOut::Opening(_)), "{opening:?}");
    let failed = until("the failure", async || {
        let payment = hall.payment_of(held.id).await;
        (payment.status == payment::Status::Failed).then_some(payment)
    })
    .await;
    assert_eq!(hall.reservation(held.id).await.status, Status::Hold);
    // When the cause is gone, another payment is made.
    let page = workers.check_out(held.id).await;
    assert_ne!(page.id, failed.id);
    assert_eq!(hall.world.sessions().len(), 1);
    workers.stop().await;
}

async fn the_end_of_the_hold_closes_the_page(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    let session = session_of(&hall.payment_of(held.id).await);
    let workers = hall.workers(LATE);
    until_status(&hall, held.id, Status::Expired).await;
    hall.at_rest(LATE).await;
    workers.stop().await;
    assert_eq!(hall.world.session(&session).unwrap()["status"], json!("expired"));
    assert!(!hall.world.customer_pays(&session), "nobody can pay any more");
    let payment = hall.payment_of(held.id).await;
    assert_eq!(payment.status, payment::Status::Failed);
    assert_eq!(payment.failure.unwrap().code, "CHECKOUT_EXPIRED");
    hall.deliver(&["checkout.session.expired"], 2).await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Expired);
    assert!(hall.letters(held.id).await.is_empty(), "nothing was paid, nothing is told");
    desk.stop().await;
}

async fn a_page_that_is_cancelled_while_it_is_opened_is_closed(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.held("u-1", 3).await;
    let gate = tashika_testkit::gate::Gate::closed();
    hall.world.script(Operation::OpenCheckout, [Fault::Slow(gate.clone())]);
    let (opened, ()) = tokio::join!(desk.reservations.check_out(held.id, nobody()), async {
        hall.world.until_calls(Operation::OpenCheckout, 1).await;
        desk.cancel(held.id).await.unwrap();
        gate.open();
    });
    opened.unwrap();
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Cancelled);
    assert!(hall.world.sessions().iter().all(|session| session["status"] == "expired"));
    assert_eq!(hall.payment_of(held.id).await.status, payment::Status::Failed);
    desk.stop().await;
}

/// No webhook ever comes: the gateway refuses to close the page, is asked, and says that it was paid.
async fn a_customer_who_paid_unheard_gets_the_money_back_when_the_page_is_closed(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    hall.customer_pays(held.id).await;
    hall.world.script(
        Operation::ExpireCheckout,
        [Fault::DropBefore, Fault::ExecuteThenClose, Fault::Unavailable],
    );
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Expired);
    assert_eq!(hall.payment_of(held.id).await.status, payment::Status::Refunded);
    assert_eq!(hall.letters(held.id).await, ["reservation-expired-refunded"]);
    desk.stop().await;
}

async fn money_that_comes_days_later_is_waited_for(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    let session = session_of(&hall.payment_of(held.id).await);
    assert!(hall.world.customer_pays_later(&session));
    hall.deliver(&["checkout.session.completed"], 1).await;
    let workers = hall.workers(LATE);
    until_status(&hall, held.id, Status::Expired).await;
    // Closing is refused, the money is on its way: asked again and again, and nobody is bothered.
    hall.world.until_calls(Operation::ExpireCheckout, 3).await;
    let payment = hall.payment_of(held.id).await;
    assert_eq!(payment.status, payment::Status::Pending);
    assert!(!payment.verification_failed());
    assert!(hall.world.money_comes(&session, true));
    hall.deliver(&["checkout.session.async_payment_succeeded"], 2).await;
    hall.at_rest(LATE).await;
    workers.stop().await;
    assert_eq!(hall.fair(held.id).await, Status::Expired);
    assert_eq!(hall.payment_of(held.id).await.status, payment::Status::Refunded);
    desk.stop().await;
}

async fn money_that_never_comes_leaves_room_for_another_try(db: TestDb) {
    let hall = Hall::new(db).await;
    let workers = hall.workers(Duration::ZERO);
    let held = workers.paying("u-1", 3).await;
    let first = hall.payment_of(held.id).await;
    let session = session_of(&first);
    assert!(hall.world.customer_pays_later(&session));
    assert!(hall.world.money_comes(&session, false));
    hall.deliver(&["checkout.session.completed", "checkout.session.async_payment_failed"], 1).await;
    until("the failure", async || {
        (hall.payment_of(held.id).await.status == payment::Status::Failed).then_some(())
    })
    .await;
    assert_eq!(hall.reservation(held.id).await.status, Status::Hold);
    let second = workers.check_out(held.id).await;
    assert_ne!(second.id, first.id);
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    until_status(&hall, held.id, Status::Confirmed).await;
    workers.stop().await;
    hall.settle().await;
    assert_eq!(hall.fair(held.id).await, Status::Confirmed);
    assert_eq!(hall.world.charged(&first.id.to_string()), 0);
}

async fn a_refund_that_is_refused_becomes_a_case(db: TestDb) {
    let hall = Hall::new(db).await;
    let desk = hall.desk();
    let held = desk.paying("u-1", 3).await;
    hall.customer_pays(held.id).await;
    // Somebody has given the money back at the gateway's own desk: ours is refused.
    hall.world
        .usually(Operation::Refund, Fault::RateLimited { retry_after: None, should_retry: None });
    hall.settle().await;
    let payment = hall.payment_of(held.id).await;
    assert_eq!(payment.refunds[0].status, payment::RefundStatus::Failed);
    let cases = hall.store.cases_of("reservation", &held.id.to_string()).await.unwrap();
    assert_eq!(cases.len(), 1);
    assert_eq!((cases[0].kind.as_str(), cases[0].status), (CASE_REFUND, CaseStatus::Open));
    let manual = ("EXPIRED_AFTER_PAYMENT".to_owned(), "MANUAL_REQUIRED".to_owned());
    assert!(hall.scenarios(held.id).await.contains(&manual));
    desk.stop().await;
}

async fn slots_show_who_has_what(db: TestDb) {
    let mut hall = Hall::new(db).await;
    hall.rules.slots_per_day = 4;
    let desk = hall.desk();
    let held = desk.paying("u-1", 2).await;
    desk.held("u-2", 3).await;
    hall.customer_pays(held.id).await;
    hall.deliver(&PAID, 1).await;
    let webhooks = hall.process(Duration::ZERO, &[Lane::WEBHOOKS]);
    until_status(&hall, held.id, Status::Confirmed).await;
    webhooks.stop().await;
    let shown = async |ahead: Duration| {
        let process = hall.process(ahead, &[]);
        let slots = process.reservations.slots(DAY).await.unwrap();
        process.stop().await;
        slots.into_iter().map(|slot| slot.status).collect::<Vec<_>>()
    };
    let confirmed = Some(Status::Confirmed);
    assert_eq!(shown(Duration::ZERO).await, [None, confirmed, Some(Status::Hold), None]);
    assert_eq!(shown(LATE).await, [None, confirmed, None, None]);
    let again = desk.reservations.hold(caller("k"), &body("u-3", 4)).await.unwrap();
    assert!(!again.replayed);
    desk.stop().await;
}
