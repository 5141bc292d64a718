//! Payments as callers ask for them: keys, repeats, limits and every answer of the contract.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::payment::ask::{Refusal, Wish};
use tashika_domain::payment::{PaymentRules, RefundStatus, Status};
use tashika_engine::commands::payment::{Answer, Caller, PaymentError};
use tashika_store::PaymentFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::payments_support::{AMOUNT, DECLINING, Town, VISA, caller, request, rules, shop_with};
use crate::support::KEY;

on_both!(
    a_payment_goes_all_the_way,
    sixty_four_requests_under_one_key_are_one_charge,
    another_body_under_the_same_key_is_a_conflict,
    a_key_that_has_expired_counts_as_new,
    an_expired_key_may_ask_for_what_is_so_already,
    a_decline_and_an_invalid_request_are_replayed_as_they_were_told,
    a_key_is_required,
    two_refunds_of_60_on_100_are_one_refund,
    many_refunds_at_once_never_exceed_what_was_taken,
    sixty_four_captures_under_one_key_are_one_capture,
    sixty_four_refunds_under_one_key_are_one_refund,
    repeats_and_limits_are_those_of_the_contract,
    a_part_is_captured_and_given_back_in_parts,
    an_automatic_capture_follows_by_itself,
    another_users_payment_is_forbidden,
    a_busy_gateway_is_tried_again_and_then_the_payment_fails,
    a_gateway_that_cannot_be_reached_is_tried_again,
    the_gateways_id_is_stored_before_money_can_move,
);

async fn a_payment_goes_all_the_way(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let created = shop.create(KEY, &request(VISA)).await.unwrap();
    assert_eq!((created.http_status, created.replayed), (201, false));
    let id = created.payment.id;
    assert_eq!(created.payment.status, Status::Authorized);
    assert_eq!(town.world.held(&id.to_string()), AMOUNT);
    let captured = shop.capture(id, "c", None).await.unwrap();
    assert_eq!((captured.http_status, captured.payment.captured_amount), (200, AMOUNT));
    let refunded = shop.refund(id, "r", None).await.unwrap();
    assert_eq!((refunded.http_status, refunded.payment.status), (200, Status::Refunded));
    town.agrees(&shop, id).await;

    let replayed = shop.create(KEY, &request(VISA)).await.unwrap();
    assert_eq!((replayed.http_status, replayed.replayed), (200, true));
    assert_eq!(replayed.payment.id, id);
    assert_eq!(town.world.calls(Operation::Create), 1);
    let told = shop.told(id).await;
    let transitions = told.iter().filter(|kind| *kind == "transition").count();
    assert_eq!(transitions, 3, "{told:?}");
    shop.stop().await;
}

/// Everybody at once; returns how each was answered.
async fn at_once<F>(count: usize, ask: impl Fn(usize) -> F) -> Vec<Result<Answer, PaymentError>>
where
    F: Future<Output = Result<Answer, PaymentError>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for number in 0..count {
        asking.spawn(ask(number));
    }
    asking.join_all().await
}

async fn sixty_four_requests_under_one_key_are_one_charge(db: TestDb) {
    let town = Town::new(db).await;
    let shops = [Arc::new(town.shop(rules())), {
        let gateway = Arc::new(town.gateway());
        let store = town.db.open().await;
        Arc::new(shop_with(&store, "host:2:b", gateway, rules(), |engine, _| engine))
    }];
    let answers = at_once(64, |number| {
        let shop = Arc::clone(&shops[number % 2]);
        async move { shop.create(KEY, &request(VISA)).await }
    })
    .await;
    let mut first = Vec::new();
    for answer in answers {
        match answer {
            Ok(answer) if answer.replayed => assert_eq!(answer.http_status, 200),
            Ok(answer) => first.push((answer.http_status, answer.payment.id)),
            Err(PaymentError::InProgress) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    let [(201, id)] = first[..] else { panic!("{first:?}") };
    assert_eq!(town.world.authorizations(&id.to_string()), 1);
    assert_eq!(town.world.ledger().movements().len(), 1);
    assert_eq!(shops[0].payments.list(&PaymentFilter::default(), 100).await.unwrap().len(), 1);
    for shop in shops {
        Arc::into_inner(shop).unwrap().stop().await;
    }
}

async fn another_body_under_the_same_key_is_a_conflict(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.authorized(KEY).await.id;
    let mut other = request(VISA);
    other["amount"] = json!(AMOUNT + 1);
    let conflict = shop.create(KEY, &other).await;
    assert!(matches!(conflict, Err(PaymentError::Conflict)), "{conflict:?}");
    shop.capture(id, "c", Some(10)).await.unwrap();
    let conflict = shop.capture(id, "c", Some(11)).await;
    assert!(matches!(conflict, Err(PaymentError::Conflict)), "{conflict:?}");
    let second = shop.authorized("k-2").await.id;
    let conflict = shop.capture(second, "c", Some(10)).await;
    assert!(matches!(conflict, Err(PaymentError::Conflict)), "another payment's: {conflict:?}");
    assert_eq!(town.world.authorizations(&id.to_string()), 1);
    shop.stop().await;
}

async fn a_key_that_has_expired_counts_as_new(db: TestDb) {
    let town = Town::new(db).await;
    let rules = PaymentRules { remember: Duration::ZERO, ..rules() };
    let shop = town.shop(rules);
    let first = shop.create(KEY, &request(VISA)).await.unwrap();
    let mut other = request(VISA);
    other["amount"] = json!(7);
    let second = shop.create(KEY, &other).await.unwrap();
    assert_eq!((second.http_status, second.replayed), (201, false));
    assert_ne!(first.payment.id, second.payment.id);
    assert_eq!(town.world.calls(Operation::Confirm), 2);
    shop.stop().await;
}

/// A key whose time is over is new also for a request that finds nothing left to do.
async fn an_expired_key_may_ask_for_what_is_so_already(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(PaymentRules { remember: Duration::ZERO, ..rules() });
    let id = shop.captured(KEY).await.id;
    for (key, amount) in [("again", None), ("again", Some(5)), ("again", Some(5))] {
        let answer = shop.capture(id, key, amount).await;
        assert!(matches!(&answer, Ok(a) if a.http_status == 200), "{answer:?}");
    }
    assert_eq!(town.world.calls(Operation::Capture), 1);
    shop.stop().await;
}

async fn a_decline_and_an_invalid_request_are_replayed_as_they_were_told(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    for (key, method, status, reason) in [
        ("declined", DECLINING, 402, "CARD_DECLINED: "),
        ("funds", "pm_card_chargeDeclinedInsufficientFunds", 402, "INSUFFICIENT_FUNDS: "),
        ("expired", "pm_card_chargeDeclinedExpiredCard", 402, "EXPIRED_CARD: "),
        ("invalid", "pm_nonsense", 400, "INVALID_REQUEST: "),
    ] {
        let first = shop.create(key, &request(method)).await.unwrap();
        assert_eq!((first.http_status, first.replayed), (status, false), "{method}");
        assert_eq!(first.payment.status, Status::Failed);
        let told = first.payment.failure.clone().unwrap().message;
        assert!(told.starts_with(reason), "{told}");
        let again = shop.create(key, &request(method)).await.unwrap();
        assert_eq!((again.http_status, again.replayed), (status, true), "{method}");
        assert_eq!(again.payment.failure, first.payment.failure);
        town.agrees(&shop, first.payment.id).await;
    }
    assert_eq!(town.world.ledger().movements(), []);
    shop.stop().await;
}

async fn a_key_is_required(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let ask = async |key| {
        let caller = Caller { key, user: None, traceparent: None };
        shop.payments.create(caller, &request(VISA)).await.unwrap_err()
    };
    assert!(matches!(ask(None).await, PaymentError::KeyMissing));
    for bad in ["", "naïve", "a\nb"] {
        assert!(matches!(ask(Some(bad)).await, PaymentError::KeyInvalid), "{bad:?}");
    }
    let error = shop.create(KEY, &json!({})).await.unwrap_err();
    assert!(matches!(error, PaymentError::Invalid(_)));
    assert_eq!(town.world.heard(), []);
    shop.stop().await;
}

async fn two_refunds_of_60_on_100_are_one_refund(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    let id = shop.captured(KEY).await.id;
    let answers = at_once(2, |number| {
        let shop = Arc::clone(&shop);
        async move { shop.refund(id, &format!("r-{number}"), Some(60)).await }
    })
    .await;
    let done = answers.iter().filter(|a| matches!(a, Ok(a) if a.http_status == 200)).count();
    let refused = answers
        .iter()
        .filter(|a| matches!(a, Err(PaymentError::Refused(Refusal::TooMuch(40)))))
        .count();
    assert_eq!((done, refused), (1, 1), "{answers:?}");
    assert_eq!(town.world.refunded(&id.to_string()), 60);
    town.agrees(&shop, id).await;
    Arc::into_inner(shop).unwrap().stop().await;
}

async fn many_refunds_at_once_never_exceed_what_was_taken(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    let id = shop.captured(KEY).await.id;
    let answers = at_once(24, |number| {
        let shop = Arc::clone(&shop);
        async move { shop.refund(id, &format!("r-{number}"), Some(9)).await }
    })
    .await;
    let done = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(done, 11, "{answers:?}");
    for answer in answers {
        match answer {
            Ok(answer) => assert_eq!(answer.http_status, 200),
            Err(error) => assert!(matches!(error, PaymentError::Refused(Refusal::TooMuch(1)))),
        }
    }
    assert_eq!(shop.find(id).await.refunded_amount, 99);
    assert_eq!(town.world.violations(), []);
    town.agrees(&shop, id).await;
    Arc::into_inner(shop).unwrap().stop().await;
}

/// Whoever comes second with a key is told of the first, never that something is in the way.
fn one_of_many(answers: Vec<Result<Answer, PaymentError>>) {
    let mut first = 0;
    for answer in answers {
        match answer {
            Ok(answer) if answer.replayed => assert_eq!(answer.http_status, 200),
            Ok(answer) => {
                assert_eq!(answer.http_status, 200);
                first += 1;
            }
            Err(PaymentError::InProgress) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(first, 1);
}

async fn sixty_four_captures_under_one_key_are_one_capture(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    for round in 0..4 {
        let id = shop.authorized(&format!("k-{round}")).await.id;
        one_of_many(
            at_once(64, |_| {
                let shop = Arc::clone(&shop);
                async move { shop.capture(id, &format!("c-{round}"), None).await }
            })
            .await,
        );
        town.agrees(&shop, id).await;
    }
    Arc::into_inner(shop).unwrap().stop().await;
}

async fn sixty_four_refunds_under_one_key_are_one_refund(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    for round in 0..4 {
        let id = shop.captured(&format!("k-{round}")).await.id;
        one_of_many(
            at_once(64, |_| {
                let shop = Arc::clone(&shop);
                async move { shop.refund(id, &format!("r-{round}"), Some(60)).await }
            })
            .await,
        );
        assert_eq!(town.world.refunded(&id.to_string()), 60);
    }
    Arc::into_inner(shop).unwrap().stop().await;
}

async fn repeats_and_limits_are_those_of_the_contract(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.authorized(KEY).await.id;
    let refused = |answer: Result<Answer, PaymentError>| match answer {
        Err(PaymentError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let above = refused(shop.capture(id, "c-0", Some(AMOUNT + 1)).await);
    assert_eq!(above, Refusal::TooMuch(AMOUNT));
    let early = refused(shop.refund(id, "r-0", None).await);
    assert_eq!(early, Refusal::WrongState(Status::Authorized));
    shop.capture(id, "c-1", None).await.unwrap();
    let again = shop.capture(id, "c-2", None).await.unwrap();
    assert_eq!((again.http_status, again.payment.captured_amount), (200, AMOUNT));
    assert_eq!(town.world.calls(Operation::Capture), 1);
    let late = refused(shop.void(id, "v-0").await);
    assert_eq!(late, Refusal::WrongState(Status::Captured));
    let above = refused(shop.refund(id, "r-1", Some(AMOUNT + 1)).await);
    assert_eq!(above, Refusal::TooMuch(AMOUNT));
    shop.refund(id, "r-2", None).await.unwrap();
    let again = shop.refund(id, "r-3", None).await.unwrap();
    assert_eq!((again.http_status, again.payment.status), (200, Status::Refunded));
    assert_eq!(town.world.calls(Operation::Refund), 1);
    let over = refused(shop.capture(id, "c-3", None).await);
    assert_eq!(over, Refusal::WrongState(Status::Refunded));

    let voided = shop.authorized("k-2").await.id;
    let answer = shop.void(voided, "v-1").await.unwrap();
    assert_eq!((answer.http_status, answer.payment.status), (200, Status::Refunded));
    assert_eq!(shop.void(voided, "v-2").await.unwrap().http_status, 200);
    assert_eq!(town.world.calls(Operation::Cancel), 1);

    let failed = shop.pay("k-3", DECLINING).await.id;
    for answer in [shop.capture(failed, "c-4", None).await, shop.void(failed, "v-3").await] {
        assert_eq!(refused(answer), Refusal::WrongState(Status::Failed));
    }
    // What is not known to be authorized cannot be captured.
    town.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    town.world.usually(Operation::Retrieve, Fault::Unavailable);
    let pending = shop.pay("k-4", VISA).await;
    assert_eq!((pending.status, pending.pending_verification()), (Status::Pending, true));
    let early = refused(shop.capture(pending.id, "c-5", None).await);
    assert_eq!(early, Refusal::WrongState(Status::Pending));
    shop.stop().await;
}

async fn a_part_is_captured_and_given_back_in_parts(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.authorized(KEY).await.id;
    let taken = shop.capture(id, "c", Some(70)).await.unwrap().payment;
    assert_eq!((taken.status, taken.captured_amount), (Status::Captured, 70));
    let part = shop.refund(id, "r-1", Some(30)).await.unwrap().payment;
    assert_eq!((part.status, part.refunded_amount), (Status::Captured, 30));
    let rest = shop.refund(id, "r-2", None).await.unwrap().payment;
    assert_eq!((rest.status, rest.refunded_amount), (Status::Refunded, 70));
    let numbers: Vec<_> = rest.refunds.iter().map(|r| (r.number, r.amount, r.status)).collect();
    assert_eq!(numbers, [(1, 30, RefundStatus::Succeeded), (2, 40, RefundStatus::Succeeded)]);
    town.agrees(&shop, id).await;
    shop.stop().await;
}

async fn an_automatic_capture_follows_by_itself(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let mut body = request(VISA);
    body["capture"] = json!("automatic");
    let answer = shop.create(KEY, &body).await.unwrap();
    assert_eq!((answer.http_status, answer.payment.status), (201, Status::Captured));
    town.agrees(&shop, answer.payment.id).await;

    town.world.script(Operation::Capture, [Fault::ExecuteThenClose]);
    let unknown = shop.create("k-2", &body).await.unwrap();
    assert_eq!(unknown.http_status, 202, "{:?}", unknown.payment);
    let payment = shop.rest(unknown.payment.id).await;
    assert_eq!(payment.status, Status::Captured);
    town.agrees(&shop, payment.id).await;
    shop.stop().await;
}

async fn another_users_payment_is_forbidden(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.captured(KEY).await.id;
    let stranger = |key| Caller { key: Some(key), user: Some("u-2"), traceparent: None };
    let payments = &shop.payments;
    let forbidden = |error: PaymentError| assert!(matches!(error, PaymentError::Forbidden));
    let wish = Wish::Refund { amount: None, reason: None };
    forbidden(payments.ask(stranger("r"), id, wish.clone(), &json!({})).await.unwrap_err());
    forbidden(payments.find(id, Some("u-2")).await.unwrap_err());
    forbidden(payments.timeline(id, Some("u-2")).await.unwrap_err());
    forbidden(payments.verify(id, Some("u-2")).await.unwrap_err());
    forbidden(payments.create(stranger("k"), &request(VISA)).await.unwrap_err());
    let own = Caller { user: Some("u-1"), ..caller("r") };
    let answer = payments.ask(own, id, wish, &json!({})).await.unwrap();
    assert_eq!(answer.http_status, 200);
    let unknown = payments.find(uuid::Uuid::from_u128(1), None).await.unwrap_err();
    assert!(matches!(unknown, PaymentError::NotFound));
    shop.stop().await;
}

async fn a_busy_gateway_is_tried_again_and_then_the_payment_fails(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    town.world.script(Operation::Confirm, [Fault::rate_limited(), Fault::lock_timeout()]);
    let payment = shop.pay(KEY, VISA).await;
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Authorized, "{:?}", payment.failure);
    assert_eq!(town.world.calls(Operation::Confirm), 3);

    // Three waits, so four tries.
    town.world.usually(Operation::Confirm, Fault::rate_limited());
    let failed = shop.pay("k-2", VISA).await;
    let failed = shop.rest(failed.id).await;
    assert_eq!(failed.status, Status::Failed);
    let reason = failed.failure.clone().unwrap();
    assert!(reason.message.starts_with("NETWORK_ERROR: "), "{reason:?}");
    assert_eq!(town.world.calls_for(&failed.id.to_string(), Operation::Confirm), 4);
    let scope = tashika_domain::ledger::LedgerKey::new("payment", "k-2");
    let entry = shop.store.ledger_entry(&scope).await.unwrap().unwrap();
    assert_eq!(entry.status, LedgerStatus::Failed);
    town.agrees(&shop, failed.id).await;

    // A capture that was turned away leaves the authorization as it was.
    town.world.usually(Operation::Capture, Fault::rate_limited());
    shop.capture(payment.id, "c", None).await.unwrap();
    let turned_away = shop.rest(payment.id).await;
    assert_eq!(turned_away.status, Status::Authorized);
    assert_eq!(turned_away.failure.map(|r| r.code).as_deref(), Some("NETWORK_ERROR"));
    town.world.usually(Operation::Capture, Fault::Answer);
    assert_eq!(shop.capture(payment.id, "c-2", None).await.unwrap().http_status, 200);
    town.agrees(&shop, payment.id).await;
    shop.stop().await;
}

async fn a_gateway_that_cannot_be_reached_is_tried_again(db: TestDb) {
    let town = Town::new(db).await;
    // A port that nobody listens on: no byte was sent, so nothing is in doubt.
    let nobody = crate::payments_support::stripe("http://127.0.0.1:1".to_owned());
    let shop = shop_with(&town.store, "host:1:a", Arc::new(nobody), rules(), |engine, _| engine);
    let payment = shop.pay(KEY, VISA).await;
    assert!(!payment.pending_verification());
    let payment = shop.rest(payment.id).await;
    assert_eq!(payment.status, Status::Failed);
    let attempts = shop.lines(payment.id, "attempt").await;
    assert_eq!(attempts.len(), 4);
    assert!(attempts.iter().all(|line| line["sent"] == json!(false)), "{attempts:?}");
    assert_eq!(shop.cases(payment.id).await, []);
    shop.stop().await;
}

async fn the_gateways_id_is_stored_before_money_can_move(db: TestDb) {
    let town = Town::new(db).await;
    let shop = Arc::new(town.shop(rules()));
    let gate = tashika_testkit::gate::Gate::closed();
    town.world.script(Operation::Confirm, [Fault::Slow(gate.clone())]);
    let paying = tokio::spawn({
        let shop = Arc::clone(&shop);
        async move { shop.pay(KEY, VISA).await }
    });
    town.world.until_calls(Operation::Confirm, 1).await;
    let payments = shop.payments.list(&PaymentFilter::default(), 10).await.unwrap();
    let [payment] = &payments[..] else { panic!("{payments:?}") };
    let known = payment.gateway_transaction_id.clone().expect("stored before it is confirmed");
    assert_eq!(town.world.intents_of(&payment.id.to_string())[0]["id"], json!(known));
    gate.open();
    let payment = shop.rest(paying.await.unwrap().id).await;
    town.agrees(&shop, payment.id).await;
    Arc::into_inner(shop).unwrap().stop().await;
}
