//! Outcomes that are not known: how they are found out, and what happens when they cannot be.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tashika_domain::alert::{AlertState, Severity};
use tashika_domain::case::CaseStatus;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund};
use tashika_domain::payment::resolve::{Resolution, ResolveRefusal};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::payment::{CASE_UNKNOWN, Payment, PaymentRules, Status};
use tashika_domain::{Outcome, Timestamp};
use tashika_engine::commands::payment::PaymentError;
use tashika_providers::gateway::stripe::StripeGateway;
use tashika_providers::gateway::{Charge, CheckoutOrder, Gateway, Page, RefundOrder, SessionRef};
use tashika_providers::reply::{BoxFuture, Reply};
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::payments_support::{
    AMOUNT, DECLINING, Shop, Town, VISA, asks, request, rules, shop_with,
};
use crate::support::KEY;

on_both!(
    an_authorization_that_nobody_heard_of_is_found,
    a_decline_that_nobody_heard_of_is_found,
    what_never_arrived_is_fenced_off_for_good,
    questions_are_counted_and_then_a_person_is_asked,
    a_bank_that_thinks_for_ever_becomes_a_case,
    an_error_that_asking_again_will_not_mend_becomes_a_case_at_once,
    one_payments_trouble_does_not_delay_the_others,
    the_gateway_is_asked_by_hand,
    an_answer_by_hand_closes_the_case,
    a_person_settles_every_doubt,
    a_person_is_heard_only_about_a_case,
    an_answer_after_giving_up_closes_the_case,
    a_failure_that_the_key_remembers_makes_a_case_of_refunds_only,
);

/// The gateway does not say where payments stand, from now on.
fn mute(town: &Town) {
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
}

fn speak(town: &Town) {
    town.world.usually(Operation::Retrieve, Fault::Answer);
}

async fn an_authorization_that_nobody_heard_of_is_found(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    for fault in [Fault::ExecuteThenSilence, Fault::ExecuteThenClose, Fault::fail_after()] {
        town.world.script(Operation::Confirm, [fault.clone()]);
        mute(&town);
        let key = format!("{fault:?}");
        let answer = shop.create(&key, &request(VISA)).await.unwrap();
        assert_eq!((answer.http_status, answer.payment.status), (202, Status::Pending));
        assert!(answer.payment.pending_verification() && !answer.payment.verification_failed());
        let again = shop.create(&key, &request(VISA)).await.unwrap();
        assert!(again.replayed && again.payment.id == answer.payment.id);
        speak(&town);
        let payment = shop.rest(answer.payment.id).await;
        assert_eq!(payment.status, Status::Authorized);
        assert!(!payment.pending_verification());
        assert_eq!(town.world.calls_for(&payment.id.to_string(), Operation::Confirm), 1);
        let checks = shop.lines(payment.id, "check").await;
        assert!(checks.iter().any(|line| line["found"] == json!("AUTHORIZED")), "{checks:?}");
        town.agrees(&shop, payment.id).await;
    }
    shop.stop().await;
}

async fn a_decline_that_nobody_heard_of_is_found(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let payment = shop.pay(KEY, DECLINING).await;
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Failed);
    let failure = payment.failure.unwrap();
    assert_eq!(failure.message, "Gateway status: DECLINED");
    assert_eq!(failure.code, "CARD_DECLINED");
    let replay = shop.create(KEY, &request(DECLINING)).await.unwrap();
    assert_eq!((replay.http_status, replay.replayed), (402, true));
    shop.stop().await;
}

async fn what_never_arrived_is_fenced_off_for_good(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    town.world.script(Operation::Confirm, [Fault::late()]);
    let payment = shop.pay(KEY, VISA).await;
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Failed);
    assert_eq!(payment.failure.unwrap().message, "Gateway status: NOT_FOUND");
    let landed = town.world.run_late();
    assert_eq!(landed.len(), 1);
    assert!(landed[0].status >= 400, "{landed:?}");
    assert_eq!(town.world.authorizations(&payment.id.to_string()), 0);
    assert_eq!(town.world.calls(Operation::Confirm), 1, "never sent again");

    // Not even the preparation came back: there is nothing to ask about, and nothing to be confirmed.
    for fault in [Fault::ExecuteThenClose, Fault::DropBefore, Fault::late()] {
        town.world.script(Operation::Create, [fault.clone()]);
        let payment = shop.pay(&format!("{fault:?}"), VISA).await;
        let payment = shop.rest(payment.id).await;
        assert_eq!(payment.failure.unwrap().message, "Gateway status: NOT_FOUND");
    }
    town.world.run_late();
    assert_eq!(town.world.ledger().movements(), []);
    shop.stop().await;
}

/// What a payment is like when software has given up.
pub async fn is_with_a_person(shop: &Shop, payment: &Payment, alert_text: &str) {
    assert!(payment.verification_failed() && !payment.pending_verification(), "{payment:?}");
    let id = payment.id;
    let alert = shop.alerted(id).await;
    assert_eq!((alert.severity, alert.state), (Severity::High, AlertState::Firing));
    assert_eq!(alert.message, alert_text);
    assert!(alert.count > 1 || alert.labels["paymentId"] == json!(id), "{alert:?}");
    assert!(alert.labels["error"].as_str().is_some_and(|text| !text.is_empty()), "{alert:?}");
    let cases = shop.open_cases(id).await;
    let [case] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.kind, CASE_UNKNOWN);
    assert_eq!(case.actions, ["charged", "not_charged", "refunded", "verify"]);
    let view = shop.payments.find(id, None).await.unwrap();
    assert_eq!(view.case.as_ref(), Some(case));
    assert!(shop.told(id).await.contains(&"verification_failed".to_owned()));
}

const OUT_OF_ATTEMPTS: &str = "Payment verification failed after max attempts";
pub const CANNOT_ASK: &str = "Non-retryable gateway error during verification";

async fn questions_are_counted_and_then_a_person_is_asked(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(3));
    // No answer, an error and a limit all count.
    let faults = [Fault::ExecuteThenSilence, Fault::Unavailable, Fault::rate_limited()];
    town.world.script(Operation::Retrieve, faults);
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let payment = shop.pay(KEY, VISA).await;
    let payment = shop.given_up(payment.id).await;
    assert_eq!(payment.status, Status::Pending);
    is_with_a_person(&shop, &payment, OUT_OF_ATTEMPTS).await;
    let doubt = payment.operation.as_ref().unwrap().doubt.as_ref().unwrap();
    assert_eq!((doubt.checks, doubt.last_check_at.is_some()), (3, true));
    assert_eq!(town.world.calls(Operation::Retrieve), 3, "and not once more");
    assert_eq!(shop.lines(payment.id, "check").await.len(), 3);
    shop.stop().await;
}

async fn a_bank_that_thinks_for_ever_becomes_a_case(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(2));
    let answer = shop.create(KEY, &request("pm_scripted_processing")).await.unwrap();
    assert_eq!(answer.http_status, 202);
    let payment = shop.given_up(answer.payment.id).await;
    assert_eq!(payment.status, Status::Pending);
    is_with_a_person(&shop, &payment, OUT_OF_ATTEMPTS).await;
    shop.stop().await;
}

/// Refuses to say where payments stand.
struct Secretive(StripeGateway);

impl Gateway for Secretive {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        self.0.prepare(charge)
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        self.0.authorize(charge)
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        self.0.capture(charge, amount)
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        self.0.void(charge)
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        self.0.refund(charge, refund)
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(async move {
            let reply = self.0.status(charge).await;
            let reason = Reason::new("GATEWAY_UNAUTHORIZED", "not yours");
            Reply { outcome: Outcome::Refused(reason), ..reply }
        })
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        self.0.fence(charge)
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        self.0.list(from, until, after)
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.0.open_checkout(order)
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.0.checkout(session)
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.0.expire_checkout(session)
    }
}

async fn an_error_that_asking_again_will_not_mend_becomes_a_case_at_once(db: TestDb) {
    let town = Town::new(db).await;
    let gateway = Arc::new(Secretive(town.gateway()));
    let shop = shop_with(&town.store, "host:1:a", gateway, rules(), |engine, _| engine);
    let authorized = shop.authorized("k-1").await.id;
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    town.world.script(Operation::Capture, [Fault::DropBefore]);
    let payment = shop.pay(KEY, VISA).await;
    let payment = shop.given_up(payment.id).await;
    assert_eq!(payment.status, Status::Pending);
    is_with_a_person(&shop, &payment, CANNOT_ASK).await;
    assert_eq!(town.world.calls_for(&payment.id.to_string(), Operation::Retrieve), 1);

    shop.capture(authorized, "c", None).await.unwrap();
    let payment = shop.given_up(authorized).await;
    assert_eq!(payment.status, Status::Authorized);
    is_with_a_person(&shop, &payment, CANNOT_ASK).await;
    shop.stop().await;
}

async fn one_payments_trouble_does_not_delay_the_others(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    town.world.script(Operation::Confirm, vec![Fault::ExecuteThenClose; 21]);
    mute(&town);
    let mut ids = Vec::new();
    for number in 0..21 {
        ids.push(shop.pay(&format!("k-{number}"), VISA).await.id);
    }
    // Each question about the first takes as long as a question can.
    let silent = vec![Fault::ExecuteThenSilence; 1000];
    town.world.script_for(&ids[0].to_string(), Operation::Retrieve, silent);
    speak(&town);
    for id in &ids[1..] {
        assert_eq!(shop.rest(*id).await.status, Status::Authorized);
    }
    assert!(shop.find(ids[0]).await.pending_verification());
    shop.stop().await;
}

/// Nobody asks by himself for an hour.
fn patient(verify_max: u32) -> PaymentRules {
    PaymentRules { verify_interval: Duration::from_secs(3600), ..asks(verify_max) }
}

async fn the_gateway_is_asked_by_hand(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(patient(10));
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose, Fault::late()]);
    let found = shop.pay(KEY, VISA).await;
    mute(&town);
    let still = shop.payments.verify(found.id, None).await.unwrap();
    assert!(still.pending_verification());
    let doubt = still.operation.unwrap().doubt.unwrap();
    assert_eq!(doubt.checks, 0, "a person's question does not count");
    speak(&town);
    let found = shop.payments.verify(found.id, None).await.unwrap();
    assert_eq!((found.status, found.is_at_rest()), (Status::Authorized, true));
    let fenced = shop.pay("k-2", VISA).await;
    let fenced = shop.payments.verify(fenced.id, None).await.unwrap();
    assert_eq!(fenced.failure.unwrap().message, "Gateway status: NOT_FOUND");
    town.world.run_late();
    town.agrees(&shop, found.id).await;
    town.agrees(&shop, fenced.id).await;
    let again = shop.payments.verify(found.id, None).await.unwrap();
    assert_eq!(again.version, found.version, "nothing to ask about");
    shop.stop().await;
}

async fn case_is_closed(shop: &Shop, payment: &Payment, action: &str, note: &str) {
    assert!(!payment.verification_failed());
    let cases = shop.cases(payment.id).await;
    let [case] = &cases[..] else { panic!("{cases:?}") };
    assert_eq!(case.status, CaseStatus::Resolved);
    let end = case.resolution.as_ref().unwrap();
    assert_eq!((end.action.as_str(), end.note.as_str()), (action, note));
    if shop.store.open_case_counts().await.unwrap().is_empty() {
        shop.unalerted().await;
    }
}

const KNOWN: &str = "the outcome has become known";

async fn an_answer_by_hand_closes_the_case(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    mute(&town);
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let payment = shop.pay(KEY, VISA).await;
    shop.given_up(payment.id).await;
    speak(&town);
    let payment = shop.payments.verify(payment.id, None).await.unwrap();
    assert_eq!(payment.status, Status::Authorized);
    case_is_closed(&shop, &payment, "verified", KNOWN).await;
    shop.stop().await;
}

/// A payment whose operation nobody knows the end of, given up.
async fn unknown(town: &Town, shop: &Shop, operation: Operation, key: &str) -> Payment {
    let prepared = match operation {
        Operation::Confirm => None,
        Operation::Refund => Some(shop.captured(key).await.id),
        _ => Some(shop.authorized(key).await.id),
    };
    town.world.script(operation, [Fault::DropBefore]);
    let asked = format!("{key}-x");
    let id = match (operation, prepared) {
        (Operation::Capture, Some(id)) => shop.capture(id, &asked, None).await.unwrap().payment.id,
        (Operation::Cancel, Some(id)) => shop.void(id, &asked).await.unwrap().payment.id,
        (Operation::Refund, Some(id)) => shop.refund(id, &asked, None).await.unwrap().payment.id,
        _ => shop.pay(key, VISA).await.id,
    };
    shop.given_up(id).await
}

async fn a_person_settles_every_doubt(db: TestDb) {
    use Operation::{Cancel, Capture, Confirm, Refund};
    use Resolution::{Charged, NotCharged, Refunded};
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    mute(&town);
    for (operation, resolution, expected) in [
        (Confirm, Charged, Some((Status::Authorized, 0, 0))),
        (Confirm, NotCharged, Some((Status::Failed, 0, 0))),
        (Confirm, Refunded, Some((Status::Refunded, 0, 0))),
        (Capture, Charged, Some((Status::Captured, AMOUNT, 0))),
        (Capture, NotCharged, Some((Status::Authorized, 0, 0))),
        (Capture, Refunded, Some((Status::Refunded, 0, 0))),
        (Cancel, Charged, Some((Status::Authorized, 0, 0))),
        (Cancel, NotCharged, Some((Status::Refunded, 0, 0))),
        (Cancel, Refunded, Some((Status::Refunded, 0, 0))),
        (Refund, Charged, Some((Status::Captured, AMOUNT, 0))),
        (Refund, NotCharged, None),
        (Refund, Refunded, Some((Status::Refunded, AMOUNT, AMOUNT))),
    ] {
        let what = format!("{operation:?} {resolution:?}");
        let id = unknown(&town, &shop, operation, &what).await.id;
        let decided = shop.payments.resolve(id, resolution, "asked the bank", "ayumi").await;
        let Some(expected) = expected else {
            let refusal = decided.unwrap_err();
            let fits = PaymentError::Unresolvable(ResolveRefusal::DoesNotFit);
            assert_eq!(refusal.to_string(), fits.to_string(), "{what}");
            assert_eq!(shop.open_cases(id).await.len(), 1, "{what}");
            continue;
        };
        let payment = decided.unwrap();
        let is = (payment.status, payment.captured_amount, payment.refunded_amount);
        assert_eq!((is, payment.is_at_rest()), (expected, true), "{what}");
        case_is_closed(&shop, &payment, resolution.as_str(), "asked the bank").await;
        let lines = shop.lines(id, "person").await;
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&line["who"], &line["note"]), (&json!("ayumi"), &json!("asked the bank")));
        assert_eq!(line["decision"], json!(resolution.as_str()));
        let twice = shop.payments.resolve(id, resolution, "again", "ayumi").await;
        let none = PaymentError::Unresolvable(ResolveRefusal::NoCase).to_string();
        assert_eq!(twice.unwrap_err().to_string(), none, "{what}");
    }
    shop.stop().await;
}

async fn a_person_is_heard_only_about_a_case(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(patient(10));
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let doubted = shop.pay(KEY, VISA).await;
    let refused = shop.payments.resolve(doubted.id, Resolution::NotCharged, "n", "w").await;
    assert!(matches!(refused, Err(PaymentError::Unresolvable(ResolveRefusal::NoCase))));
    assert_eq!(shop.find(doubted.id).await, doubted);
    shop.stop().await;
}

async fn an_answer_after_giving_up_closes_the_case(db: TestDb) {
    use Operation::{Cancel, Capture, Confirm, Refund};
    let town = Town::new(db).await;
    let shop = town.shop(asks(1));
    mute(&town);
    for operation in [Confirm, Capture, Cancel, Refund] {
        let payment = unknown(&town, &shop, operation, &format!("{operation:?}")).await;
        // It had been on its way all the time.
        let charge = crate::payments_support::charge(&payment);
        let gateway = town.gateway();
        match operation {
            Confirm => drop(gateway.authorize(charge).await),
            Capture => drop(gateway.capture(charge, AMOUNT).await),
            Cancel => drop(gateway.void(charge).await),
            _ => {
                let refund = &payment.refunds[0];
                let (refund_id, number) = (refund.id, refund.number);
                let order = RefundOrder { refund_id, number, amount: AMOUNT, reason: None };
                drop(gateway.refund(charge, order).await);
            }
        }
        speak(&town);
        let remote = town.message(&payment).await;
        mute(&town);
        let payment = shop.till.hear(payment.id, &remote, "webhook").await.unwrap().unwrap();
        assert!(payment.is_at_rest(), "{operation:?}");
        case_is_closed(&shop, &payment, "verified", KNOWN).await;
        town.agrees(&shop, payment.id).await;
    }
    shop.stop().await;
}

/// The gateway repeats its 500 for as long as it knows the key. What happens once, whatever the key, goes without it
/// then. A refund could become two: nobody guesses, and nobody takes another key.
async fn a_failure_that_the_key_remembers_makes_a_case_of_refunds_only(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(asks(3));
    let refunded = shop.captured("k-1").await.id;
    let captured = shop.authorized(KEY).await.id;
    let voided = shop.authorized("k-2").await.id;
    for operation in [Operation::Capture, Operation::Cancel, Operation::Refund] {
        town.world.script(operation, [Fault::fail_before()]);
    }
    shop.capture(captured, "c", None).await.unwrap();
    shop.void(voided, "v").await.unwrap();
    shop.refund(refunded, "r", None).await.unwrap();
    for (id, status) in [(captured, Status::Captured), (voided, Status::Refunded)] {
        assert_eq!(shop.rest(id).await.status, status);
        town.agrees(&shop, id).await;
    }
    let payment = shop.given_up(refunded).await;
    is_with_a_person(&shop, &payment, OUT_OF_ATTEMPTS).await;
    assert_eq!(town.world.violations(), []);
    shop.stop().await;
}
