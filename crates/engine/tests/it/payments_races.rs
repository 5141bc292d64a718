//! What the gateway says by itself: early, late, twice, out of order, and after the end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState};
use tashika_domain::payment::resolve::Resolution;
use tashika_domain::payment::{CASE_DIFFERENCE, KIND, Payment, RefundStatus, Status};
use tashika_providers::gateway::Gateway as _;
use tashika_store::PaymentFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::payments_support::{AMOUNT, Shop, Town, VISA, asks, charge, forsake, rules};
use crate::support::KEY;

on_both!(
    the_message_that_comes_before_the_answer_wins,
    an_automatic_capture_follows_a_message,
    what_is_old_or_heard_before_changes_nothing,
    what_somebody_did_at_the_gateway_is_taken_over,
    a_success_after_a_failure_is_undone,
    an_undoing_survives_every_fault,
    an_undoing_survives_a_crash,
    an_undoing_that_cannot_be_done_becomes_a_case,
    an_old_message_does_not_end_an_undoing,
    an_old_message_does_not_begin_another_undoing,
    a_pending_refund_is_ended_by_a_message,
    a_refund_that_comes_back_becomes_a_case_once,
);

fn remote(payment: &Payment, state: RemoteState) -> Remote {
    let captured = if state == RemoteState::Captured { AMOUNT } else { 0 };
    let gateway_id = payment.gateway_transaction_id.clone();
    Remote { state, gateway_id, captured, refunds: None, reason: None }
}

async fn hear(shop: &Shop, payment: &Payment, remote: &Remote) -> Payment {
    shop.till.hear(payment.id, remote, "webhook").await.unwrap().unwrap()
}

/// The one payment there is.
async fn the_payment(shop: &Shop) -> Payment {
    shop.payments.list(&PaymentFilter::default(), 10).await.unwrap().pop().unwrap()
}

async fn the_message_that_comes_before_the_answer_wins(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    town.world.script(Operation::Confirm, [Fault::AnswerAfter(Duration::from_millis(150))]);
    let paying = tokio::spawn({
        let shop = Arc::clone(&shop);
        async move { shop.pay(KEY, VISA).await }
    });
    town.world.until_calls(Operation::Confirm, 1).await;
    let running = the_payment(&shop).await;
    let message = town.message(&running).await;
    let heard = hear(&shop, &running, &message).await;
    assert_eq!((heard.status, heard.is_at_rest()), (Status::Authorized, true));
    let answered = paying.await.unwrap();
    assert_eq!(answered, heard, "the answer came second and changed nothing");
    let again = shop.create(KEY, &crate::payments_support::request(VISA)).await.unwrap();
    assert_eq!((again.http_status, again.replayed), (200, true));

    // The same with an answer that never comes.
    let captured = shop.authorized("k-2").await;
    town.world.script(Operation::Capture, [Fault::ExecuteThenSilence]);
    let capturing = tokio::spawn({
        let shop = Arc::clone(&shop);
        async move { shop.capture(captured.id, "c", None).await.unwrap() }
    });
    town.world.until_calls(Operation::Capture, 1).await;
    let message = town.message(&captured).await;
    let heard = hear(&shop, &captured, &message).await;
    assert_eq!(heard.status, Status::Captured);
    let answered = capturing.await.unwrap();
    assert_eq!((answered.http_status, &answered.payment), (200, &heard));
    assert_eq!(shop.find(captured.id).await, heard);
    town.agrees(&shop, captured.id).await;
    Arc::into_inner(shop).unwrap().stop().await;
}

async fn an_automatic_capture_follows_a_message(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let mut body = crate::payments_support::request(VISA);
    body["capture"] = json!("automatic");
    let payment = shop.create(KEY, &body).await.unwrap().payment;
    let payment = shop.given_up(payment.id).await;
    hear(&shop, &payment, &remote(&payment, RemoteState::Authorized)).await;
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Captured);
    town.agrees(&shop, payment.id).await;
    shop.stop().await;
}

async fn what_is_old_or_heard_before_changes_nothing(db: TestDb) {
    use RemoteState::{Authorized, Captured, Declined, NotFound, Pending, Voided};
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let unchanged = async |payment: &Payment, states: &[RemoteState]| {
        for state in states {
            let before = shop.find(payment.id).await;
            let after = hear(&shop, payment, &remote(payment, *state)).await;
            assert_eq!(after, before, "{:?} after {:?}", state, before.status);
        }
    };
    let payment = shop.authorized("k-1").await;
    unchanged(&payment, &[NotFound, Pending, Authorized, Declined]).await;
    let payment = shop.captured("k-2").await;
    unchanged(&payment, &[NotFound, Pending, Authorized, Declined, Captured, Voided]).await;
    shop.refund(payment.id, "r", None).await.unwrap();
    unchanged(&payment, &[NotFound, Pending, Authorized, Declined, Captured, Voided]).await;
    let payment = shop.authorized("k-3").await;
    shop.void(payment.id, "v").await.unwrap();
    unchanged(&payment, &[NotFound, Pending, Authorized, Declined, Voided]).await;
    let payment = shop.pay("k-4", crate::payments_support::DECLINING).await;
    unchanged(&payment, &[NotFound, Pending, Declined, Voided]).await;

    // While it is in doubt, what says nothing new says nothing.
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    let shop = town.shop(asks(1));
    for operation in [Operation::Capture, Operation::Cancel] {
        let key = format!("{operation:?}");
        let payment = shop.authorized(&key).await;
        town.world.script(operation, [Fault::DropBefore]);
        match operation {
            Operation::Capture => shop.capture(payment.id, &key, None).await.unwrap(),
            _ => shop.void(payment.id, &key).await.unwrap(),
        };
        let before = shop.given_up(payment.id).await;
        for state in [NotFound, Pending, Authorized, Declined] {
            let after = hear(&shop, &payment, &remote(&payment, state)).await;
            assert_eq!(after, before, "{operation:?} {state:?}");
        }
    }
    let unknown = shop.till.hear(uuid::Uuid::nil(), &remote(&payment, Captured), "webhook").await;
    assert_eq!(unknown.unwrap(), None);
    shop.stop().await;
}

async fn what_somebody_did_at_the_gateway_is_taken_over(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let taken = shop.authorized("k-1").await;
    town.gateway().capture(charge(&taken), 40).await;
    let taken = hear(&shop, &taken, &town.message(&taken).await).await;
    assert_eq!((taken.status, taken.captured_amount), (Status::Captured, 40));
    let gone = shop.authorized("k-2").await;
    town.gateway().void(charge(&gone)).await;
    let gone = hear(&shop, &gone, &town.message(&gone).await).await;
    assert_eq!(gone.status, Status::Refunded);
    assert_eq!(gone.failure.map(|reason| reason.code).as_deref(), Some("AUTHORIZATION_GONE"));
    for id in [taken.id, gone.id] {
        town.agrees(&shop, id).await;
    }
    shop.stop().await;
}

/// A payment that failed because the gateway turned it away, and was executed in spite of that.
async fn executed_after_failure(town: &Town, shop: &Shop, key: &str, captured: bool) -> Payment {
    town.world.script(Operation::Confirm, vec![Fault::rate_limited(); 4]);
    let payment = shop.pay(key, VISA).await;
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Failed);
    let gateway = town.gateway();
    gateway.authorize(charge(&payment)).await;
    if captured {
        gateway.capture(charge(&payment), AMOUNT).await;
    }
    assert_eq!(town.world.authorizations(&payment.id.to_string()), 1);
    payment
}

/// The money is back, the payment is still failed for the same reason, and the race is on record.
async fn is_undone(town: &Town, shop: &Shop, failed: &Payment, resolution: &str) {
    let payment = shop.rest(failed.id).await;
    assert_eq!((payment.status, &payment.failure), (Status::Failed, &failed.failure));
    town.agrees(shop, failed.id).await;
    let races = shop.store.races_of(KIND, &failed.id.to_string()).await.unwrap();
    let races: Vec<_> =
        races.iter().map(|r| (r.scenario.as_str(), r.resolution.as_str())).collect();
    assert_eq!(races, [("LATE_EXECUTION", resolution)]);
    let told = shop.told(failed.id).await;
    assert!(told.contains(&"race".to_owned()) && told.contains(&"compensated".to_owned()));
    let view = shop.payments.find(failed.id, None).await.unwrap();
    assert_eq!((view.races.len(), view.case), (1, None));
}

async fn a_success_after_a_failure_is_undone(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    for (captured, resolution) in [(false, "VOIDED"), (true, "REFUNDED")] {
        let failed = executed_after_failure(&town, &shop, resolution, captured).await;
        hear(&shop, &failed, &town.message(&failed).await).await;
        is_undone(&town, &shop, &failed, resolution).await;
    }
    assert_eq!(town.world.violations(), []);
    shop.stop().await;
}

async fn an_undoing_survives_every_fault(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let faults = [
        Fault::DropBefore,
        Fault::ExecuteThenSilence,
        Fault::ExecuteThenClose,
        Fault::late(),
        Fault::fail_after(),
        Fault::rate_limited(),
        Fault::LockTimeout { status: 409, should_retry: None },
    ];
    for (captured, operation, resolution) in
        [(false, Operation::Cancel, "VOIDED"), (true, Operation::Refund, "REFUNDED")]
    {
        for fault in &faults {
            let key = format!("{operation:?} {fault:?}");
            let failed = executed_after_failure(&town, &shop, &key, captured).await;
            let message = town.message(&failed).await;
            town.world.script_for(&failed.id.to_string(), operation, [fault.clone()]);
            hear(&shop, &failed, &message).await;
            is_undone(&town, &shop, &failed, resolution).await;
        }
    }
    town.world.run_late();
    assert_eq!(town.world.violations(), []);
    shop.stop().await;
}

async fn an_undoing_survives_a_crash(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let mut failed = Vec::new();
    for (captured, resolution) in [(false, "VOIDED"), (true, "REFUNDED")] {
        failed.push((executed_after_failure(&town, &shop, resolution, captured).await, resolution));
    }
    let till = Arc::clone(&shop.till);
    shop.stop().await;
    // Heard by a process that has nobody to do anything about it, and taken by one that died with it.
    for (payment, _) in &failed {
        let message = town.message(payment).await;
        till.hear(payment.id, &message, "webhook").await.unwrap();
    }
    let claim = tashika_store::Claim {
        lane: &tashika_domain::Lane::PAYMENTS,
        worker: "host:9:dead",
        now: tashika_engine::Clock::System.now(),
        limit: 10,
    };
    assert_eq!(town.store.claim(claim).await.unwrap().len(), 2);
    forsake(&town.db).await;
    let shop = town.shop(rules());
    for (payment, resolution) in &failed {
        is_undone(&town, &shop, payment, resolution).await;
    }
    shop.stop().await;
}

async fn an_undoing_that_cannot_be_done_becomes_a_case(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(2));
    for resolution in [Resolution::Refunded, Resolution::Charged] {
        let key = format!("{resolution:?}");
        let failed = executed_after_failure(&town, &shop, &key, false).await;
        let message = town.message(&failed).await;
        town.world.usually(Operation::Cancel, Fault::DropBefore);
        hear(&shop, &failed, &message).await;
        let given_up = shop.given_up(failed.id).await;
        assert_eq!(given_up.status, Status::Failed);
        assert_eq!(shop.open_cases(failed.id).await.len(), 1);
        let ended = shop.payments.resolve(failed.id, resolution, "n", "w").await.unwrap();
        assert_eq!((ended.status, ended.is_at_rest()), (Status::Failed, true));
        assert_eq!(shop.open_cases(failed.id).await, []);
        town.world.usually(Operation::Cancel, Fault::Answer);
    }
    shop.stop().await;
}

/// The message about the intent's birth was delivered last of all.
async fn an_old_message_does_not_end_an_undoing(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let failed = executed_after_failure(&town, &shop, KEY, false).await;
    let message = town.message(&failed).await;
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    hear(&shop, &failed, &message).await;
    for state in [RemoteState::NotFound, RemoteState::Declined, RemoteState::Pending] {
        let after = hear(&shop, &failed, &remote(&failed, state)).await;
        assert!(after.operation.is_some(), "{state:?} ended it");
    }
    town.world.usually(Operation::Retrieve, Fault::Answer);
    is_undone(&town, &shop, &failed, "VOIDED").await;
    shop.stop().await;
}

async fn an_old_message_does_not_begin_another_undoing(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    for (captured, resolution) in [(false, "VOIDED"), (true, "REFUNDED")] {
        let failed = executed_after_failure(&town, &shop, resolution, captured).await;
        let message = town.message(&failed).await;
        hear(&shop, &failed, &message).await;
        is_undone(&town, &shop, &failed, resolution).await;
        let before = shop.find(failed.id).await;
        // As it was delivered, and without the refunds, as a webhook has it.
        for message in [message.clone(), Remote { refunds: None, ..message }] {
            assert_eq!(hear(&shop, &failed, &message).await, before);
        }
        is_undone(&town, &shop, &failed, resolution).await;
    }
    shop.stop().await;
}

fn refund_message(payment: &Payment, state: RemoteRefundState) -> Remote {
    let refunds = payment.refunds.iter().map(|refund| RemoteRefund {
        refund_id: Some(refund.id),
        gateway_id: "re_1".into(),
        amount: refund.amount,
        state,
    });
    let captured = remote(payment, RemoteState::Captured);
    Remote { refunds: Some(refunds.collect()), ..captured }
}

async fn a_pending_refund_is_ended_by_a_message(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    for (state, status, expected) in [
        (RemoteRefundState::Succeeded, RefundStatus::Succeeded, Status::Refunded),
        (RemoteRefundState::Pending, RefundStatus::Succeeded, Status::Refunded),
        (RemoteRefundState::Failed, RefundStatus::Failed, Status::Captured),
    ] {
        let key = format!("{state:?}");
        let id = shop.captured(&key).await.id;
        town.world.script(Operation::Refund, [Fault::DropBefore]);
        shop.refund(id, &key, None).await.unwrap();
        let payment = shop.given_up(id).await;
        let message = refund_message(&payment, state);
        let payment = hear(&shop, &payment, &message).await;
        assert_eq!((payment.refunds[0].status, payment.status), (status, expected));
        assert_eq!((payment.is_at_rest(), shop.open_cases(id).await.len()), (true, 0));
        assert_eq!(hear(&shop, &payment, &message).await, payment, "twice is once");
        let replay = shop.refund(id, &key, None).await.unwrap();
        assert!(replay.replayed);
    }
    shop.stop().await;
}

async fn a_refund_that_comes_back_becomes_a_case_once(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.captured(KEY).await.id;
    let payment = shop.refund(id, "r", Some(60)).await.unwrap().payment;
    let refund = payment.refunds[0].gateway_refund_id.clone().unwrap();
    town.world.settle_refund(&refund, false);
    let message = town.message(&payment).await;
    let first = hear(&shop, &payment, &message).await;
    let cases = shop.open_cases(id).await;
    let [case] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.kind, CASE_DIFFERENCE);
    assert!(case.summary.contains("60 EUR"), "{}", case.summary);
    assert_eq!(hear(&shop, &payment, &message).await, first, "twice is once");
    let bounced = shop.told(id).await.into_iter().filter(|kind| kind == "refund_bounced");
    assert_eq!(bounced.count(), 1);
    shop.stop().await;
}
