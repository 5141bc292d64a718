//! Payments and what is written with them: every column comes back, and what must not be cannot be written.

use futures_util::future::join_all;
use serde_json::json;
use tashika_domain::changes::{Lease, PaymentLine};
use tashika_domain::effect::FIRST_FENCE;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::checkout::Session;
use tashika_domain::payment::{
    CaptureMode, Checkout, Doubt, Operation, OperationKind, Payment, PaymentRequest, Refund,
    RefundStatus, RequestKey, Status,
};
use tashika_domain::{Lane, NewEffect, Write};
use tashika_store::{PaymentFilter, Store};
use uuid::Uuid;

use crate::support::*;

on_both!(
    every_column_of_a_payment_comes_back,
    every_status_and_operation_is_a_word_of_the_schema,
    every_column_of_a_refund_comes_back,
    a_change_expects_the_version_before_it,
    who_is_outdated_in_a_group_fails_alone,
    never_more_back_than_was_taken_whatever_the_code_believes,
    what_makes_no_sense_is_refused,
    payments_are_listed_with_their_refunds,
    a_timeline_is_read_in_the_order_of_its_versions,
    an_effect_that_was_born_in_somebodys_hands_is_not_claimed,
    a_held_effect_whose_worker_is_gone_is_taken_back,
);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn doubt(given_up: bool) -> Doubt {
    Doubt {
        reason: Reason::new("TIMEOUT", "no answer within 30 s"),
        sent_at: at(3),
        checks: 7,
        last_check_at: Some(at(4)),
        given_up,
        fenced: false,
    }
}

/// With nothing in it that can be left out.
fn bare(number: u64) -> Payment {
    Payment {
        id: uuid(number),
        version: 1,
        request: PaymentRequest {
            booking_id: "b-1".into(),
            user_id: "u-1".into(),
            amount: 100,
            currency: "EUR".into(),
            payment_method: "pm_1".into(),
            customer: None,
            description: None,
            capture: CaptureMode::Manual,
        },
        key: RequestKey { key: format!("k-{number}"), digest: "sha256:a".into() },
        gateway: "stripe".into(),
        status: Status::Pending,
        captured_amount: 0,
        refunded_amount: 0,
        gateway_transaction_id: None,
        failure: None,
        operation: None,
        checkout: None,
        in_vain: 0,
        refunds: Vec::new(),
        created_at: at(1),
        updated_at: at(1),
        traceparent: None,
    }
}

/// With everything in it.
fn full(number: u64) -> Payment {
    let bare = bare(number);
    Payment {
        request: PaymentRequest {
            customer: Some("cus_1".into()),
            description: Some("確".repeat(200)),
            capture: CaptureMode::Automatic,
            ..bare.request
        },
        status: Status::Authorized,
        gateway_transaction_id: Some("pi_1".into()),
        failure: Some(Reason::new("CARD_DECLINED", "no")),
        operation: Some(Operation {
            kind: OperationKind::Capture,
            amount: 60,
            effect: id(900 + number),
            key: Some(RequestKey { key: "c".into(), digest: "sha256:c".into() }),
            asked_at: at(2),
            doubt: Some(doubt(false)),
        }),
        checkout: Some(Checkout {
            closes_at: at(900),
            session: Some(Session {
                id: "cs_1".into(),
                url: Some("https://pay.example/cs_1".into()),
                expires_at: at(1800),
            }),
        }),
        updated_at: at(5),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        ..bare
    }
}

fn captured(number: u64) -> Payment {
    Payment { status: Status::Captured, captured_amount: 100, ..bare(number) }
}

fn refund(payment: u64, number: u32, amount: i64) -> Refund {
    Refund {
        id: uuid(payment * 100 + u64::from(number)),
        payment_id: uuid(payment),
        number,
        amount,
        reason: None,
        status: RefundStatus::Pending,
        gateway_refund_id: None,
        failure: None,
        effect: id(payment * 100 + 50 + u64::from(number)),
        key: RequestKey { key: format!("r-{number}"), digest: "sha256:r".into() },
        doubt: None,
        created_at: at(2),
        updated_at: at(2),
    }
}

fn insert(payment: &Payment) -> Write {
    Write::PaymentInsert(Box::new(payment.clone()))
}

fn update(payment: &Payment) -> Write {
    Write::PaymentUpdate(Box::new(payment.clone()))
}

async fn read(store: &Store, number: u64) -> Payment {
    store.payment(uuid(number)).await.unwrap().expect("the payment exists")
}

fn after(payment: &Payment) -> Payment {
    Payment { version: payment.version + 1, ..payment.clone() }
}

async fn every_column_of_a_payment_comes_back(db: Db) {
    let store = db.open().await;
    assert_eq!(store.payment(uuid(1)).await.unwrap(), None);
    for (number, payment) in [(1, bare(1)), (2, full(2))] {
        done(&store, [insert(&payment)]).await;
        assert_eq!(read(&store, number).await, payment);
    }
    // Everything that can change does, in both directions.
    let mut fuller = Payment { request: bare(1).request, ..full(1) };
    fuller = Payment { version: 2, key: bare(1).key, traceparent: None, ..fuller };
    done(&store, [update(&fuller)]).await;
    assert_eq!(read(&store, 1).await, fuller);
    let barer = Payment {
        version: 3,
        status: Status::Failed,
        gateway_transaction_id: None,
        failure: None,
        operation: None,
        ..fuller
    };
    done(&store, [update(&barer)]).await;
    assert_eq!(read(&store, 1).await, barer);
}

async fn every_status_and_operation_is_a_word_of_the_schema(db: Db) {
    let store = db.open().await;
    let mut number = 0;
    for status in Status::ALL {
        for kind in OperationKind::ALL {
            number += 1;
            let full = full(number);
            let operation = full.operation.clone().map(|o| Operation {
                kind,
                key: None,
                doubt: (number % 2 == 0).then(|| doubt(true)),
                ..o
            });
            let payment = Payment { status, operation, ..full };
            done(&store, [insert(&payment)]).await;
            assert_eq!(read(&store, number).await, payment);
        }
    }
}

async fn every_column_of_a_refund_comes_back(db: Db) {
    let store = db.open().await;
    let bare = refund(1, 1, 10);
    let full = Refund {
        reason: Some("確".repeat(500)),
        status: RefundStatus::Failed,
        gateway_refund_id: Some("re_1".into()),
        failure: Some(Reason::new("REFUND_FAILED", "no")),
        doubt: Some(doubt(true)),
        updated_at: at(9),
        ..refund(1, 2, 20)
    };
    let payment = Payment { refunds: vec![bare, full], ..captured(1) };
    let inserts = payment.refunds.iter().map(|r| Write::RefundInsert(Box::new(r.clone())));
    done(&store, inserts.chain([insert(&payment)])).await;
    assert_eq!(read(&store, 1).await, payment);

    let mut next = after(&payment);
    next.refunds[0].status = RefundStatus::Succeeded;
    next.refunds[0].gateway_refund_id = Some("re_0".into());
    next.refunds[0].doubt = Some(doubt(false));
    next.refunds[1].doubt = None;
    next.refunds[1].failure = None;
    let updates = next.refunds.iter().map(|r| Write::RefundUpdate(Box::new(r.clone())));
    done(&store, updates.chain([update(&next)])).await;
    assert_eq!(read(&store, 1).await, next);
}

async fn a_change_expects_the_version_before_it(db: Db) {
    let store = db.open().await;
    let first = bare(1);
    done(&store, [insert(&first)]).await;
    let outdated = Said::Outdated("payments");
    for version in [1, 3, 9] {
        let wrong = Payment { version, status: Status::Failed, ..first.clone() };
        let enqueued = Write::Enqueue(effect(5));
        assert_eq!(commit(&store, [enqueued, update(&wrong)]).await, outdated, "{version}");
    }
    assert_eq!(commit(&store, [update(&after(&bare(2)))]).await, outdated, "there is none");
    assert_eq!((read(&store, 1).await, all(&store).await.len()), (first.clone(), 0));
    done(&store, [update(&after(&first))]).await;
    assert_eq!(commit(&store, [update(&after(&first))]).await, outdated, "a second time");
    let twice = [update(&after(&after(&first))), update(&after(&after(&first)))];
    assert_eq!(commit(&store, twice).await, outdated, "both at once");
    let unknown = Write::RefundUpdate(Box::new(refund(1, 1, 5)));
    assert_eq!(commit(&store, [unknown]).await, Said::Outdated("refunds"));
    assert_eq!(commit(&store, [insert(&first)]).await, Said::Rejected, "its id is not new");
}

async fn who_is_outdated_in_a_group_fails_alone(db: Db) {
    let store = db.open().await;
    let payments: Vec<Payment> = (1..=40).map(bare).collect();
    done(&store, payments.iter().map(insert)).await;
    let told = payments.iter().zip(0_u64..).map(|(payment, n)| {
        let (store, next) = (store.clone(), after(payment));
        let key = format!("k-{n}");
        tokio::spawn(async move {
            let accepted = Write::LedgerAccept(accept(&key));
            let writes = match n % 4 {
                0 => vec![accepted, update(&next)],
                1 => vec![accepted, update(&after(&next))],
                2 => vec![accepted, update(&Payment { captured_amount: 101, ..next })],
                _ => vec![Write::Enqueue(effect(1000 + n))],
            };
            commit(&store, writes).await
        })
    });
    let told: Vec<Said> = join_all(told).await.into_iter().map(Result::unwrap).collect();
    for (said, n) in told.iter().zip(0_u64..) {
        let expected = match n % 4 {
            1 => Said::Outdated("payments"),
            2 => Said::Rejected,
            _ => Said::Done,
        };
        assert_eq!(*said, expected, "{n}");
        let version = read(&store, n + 1).await.version;
        assert_eq!(version, if n % 4 == 0 { 2 } else { 1 }, "{n}");
        let known = store.ledger_entry(&ledger_key(&format!("k-{n}"))).await.unwrap();
        assert_eq!(known.is_some(), n % 4 == 0, "all or nothing: {n}");
    }

    // One payment, many at once: one of them wins.
    let next = after(&payments[3]);
    let racing = (0..20).map(|_| {
        let (store, next) = (store.clone(), next.clone());
        tokio::spawn(async move { commit(&store, [update(&next)]).await })
    });
    let told: Vec<Said> = join_all(racing).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(told.iter().filter(|said| **said == Said::Done).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|said| **said == Said::Outdated("payments")).count(), 19);
}

async fn never_more_back_than_was_taken_whatever_the_code_believes(db: Db) {
    let store = db.open().await;
    let first = captured(1);
    done(&store, [insert(&first)]).await;
    let before = read(&store, 1).await;
    let with = |refunded_amount: i64, amounts: &[i64]| {
        let numbers = amounts.iter().zip(1..);
        let refunds: Vec<Refund> = numbers.map(|(amount, n)| refund(1, n, *amount)).collect();
        let payment = Payment { refunded_amount, refunds, ..after(&first) };
        let inserts = payment.refunds.iter().map(|r| Write::RefundInsert(Box::new(r.clone())));
        inserts.chain([update(&payment)]).collect::<Vec<_>>()
    };
    for (refunded, pending) in
        [(101, &[][..]), (0, &[101][..]), (60, &[41][..]), (0, &[60, 60][..]), (-1, &[][..])]
    {
        let said = commit(&store, with(refunded, pending)).await;
        assert_eq!(said, Said::Rejected, "{refunded} {pending:?}");
        assert_eq!(read(&store, 1).await, before);
    }
    assert_eq!(commit(&store, with(40, &[30, 30])).await, Said::Done);
    // Past the store as well.
    let more = db.sql("update payments set refunded_amount = 101").await;
    assert!(more.is_err(), "{more:?}");
}

async fn what_makes_no_sense_is_refused(db: Db) {
    let store = db.open().await;
    let amount = |amount: i64| {
        let bare = bare(1);
        Payment { request: PaymentRequest { amount, ..bare.request.clone() }, ..bare }
    };
    let text = "x".repeat(201);
    let described = PaymentRequest { description: Some(text), ..bare(1).request };
    for (what, payment) in [
        ("nothing", amount(0)),
        ("less than nothing", amount(-1)),
        ("more than authorized", Payment { captured_amount: 101, ..captured(1) }),
        ("too many words", Payment { request: described, ..bare(1) }),
        (
            "a currency",
            Payment {
                request: PaymentRequest { currency: "EURO".into(), ..bare(1).request },
                ..bare(1)
            },
        ),
    ] {
        assert_eq!(commit(&store, [insert(&payment)]).await, Said::Rejected, "{what}");
    }
    done(&store, [insert(&captured(1))]).await;
    let insert = |refund: Refund| Write::RefundInsert(Box::new(refund));
    done(&store, [insert(refund(1, 1, 5))]).await;
    let same_number = Refund { id: uuid(999), ..refund(1, 1, 5) };
    assert_eq!(commit(&store, [insert(same_number)]).await, Said::Rejected);
    assert_eq!(commit(&store, [insert(refund(1, 2, 0))]).await, Said::Rejected);
}

async fn payments_are_listed_with_their_refunds(db: Db) {
    let store = db.open().await;
    let mut payments = vec![bare(1), full(2), captured(3), captured(4)];
    payments[0].request.booking_id = "b-2".into();
    payments[3].request.user_id = "u-2".into();
    payments[3].created_at = at(100);
    payments[2].refunds = vec![refund(3, 1, 5), refund(3, 2, 6)];
    payments[3].refunds = vec![refund(4, 1, 7)];
    for payment in &payments {
        let inserts = payment.refunds.iter().map(|r| Write::RefundInsert(Box::new(r.clone())));
        done(&store, inserts.chain([insert(payment)])).await;
    }
    let list = async |filter: PaymentFilter, limit| -> Vec<Uuid> {
        let found = store.payments(&filter, limit).await.unwrap();
        found.into_iter().map(|payment| payment.id).collect()
    };
    let everything = store.payments(&PaymentFilter::default(), 10).await.unwrap();
    assert_eq!(everything, payments.iter().rev().cloned().collect::<Vec<_>>());
    let none = PaymentFilter::default;
    let status = PaymentFilter { status: Some(Status::Captured), ..none() };
    assert_eq!(list(status, 10).await, [uuid(4), uuid(3)]);
    let doubted = PaymentFilter { pending_verification: Some(true), ..none() };
    assert_eq!(list(doubted, 10).await, [uuid(2)]);
    let certain = PaymentFilter { pending_verification: Some(false), ..none() };
    assert_eq!(list(certain, 10).await, [uuid(4), uuid(3), uuid(1)]);
    let booking = PaymentFilter { booking_id: Some("b-2".into()), ..none() };
    assert_eq!(list(booking, 10).await, [uuid(1)]);
    let user = PaymentFilter { user_id: Some("u-2".into()), ..none() };
    assert_eq!(list(user, 10).await, [uuid(4)]);
    let early = PaymentFilter { created: Some((at(1), at(100))), ..none() };
    assert_eq!(list(early, 10).await, [uuid(3), uuid(2), uuid(1)]);
    let page = PaymentFilter { before: Some(uuid(4)), ..none() };
    assert_eq!(list(page, 2).await, [uuid(3), uuid(2)]);
    assert_eq!(store.payments_in_doubt().await.unwrap(), 1);
    assert_eq!(store.payment_count(Status::Captured).await.unwrap(), 2);
}

async fn a_timeline_is_read_in_the_order_of_its_versions(db: Db) {
    let store = db.open().await;
    let line = |version: i64, number: u32, kind: &'static str| {
        Write::PaymentLine(PaymentLine {
            payment_id: uuid(1),
            version,
            number,
            at: at(version),
            kind,
            entry: json!({"n": number, "text": "確"}).to_string(),
        })
    };
    done(&store, [line(2, 0, "c"), line(10, 0, "e")]).await;
    done(&store, [line(1, 1, "b"), line(1, 0, "a"), line(2, 1, "d")]).await;
    let lines = store.payment_timeline(uuid(1)).await.unwrap();
    let told: Vec<_> = lines.iter().map(|l| (l.kind.as_str(), l.at)).collect();
    let expected = [("a", at(1)), ("b", at(1)), ("c", at(2)), ("d", at(2)), ("e", at(10))];
    assert_eq!(told, expected);
    let entry: serde_json::Value = serde_json::from_str(&lines[1].entry).unwrap();
    assert_eq!(entry, json!({"n": 1, "text": "確"}));
    assert_eq!(commit(&store, [line(1, 0, "a")]).await, Said::Rejected, "nothing is written over");
    assert_eq!(store.payment_timeline(uuid(2)).await.unwrap(), []);
}

fn in_hand(number: u64, worker: &str) -> NewEffect {
    NewEffect { lane: Lane::PAYMENTS, held_by: Some(worker.into()), ..effect(number) }
}

async fn an_effect_that_was_born_in_somebodys_hands_is_not_claimed(db: Db) {
    let store = db.open().await;
    enqueue(&store, [in_hand(1, "host:1:a"), NewEffect { held_by: None, ..in_hand(2, "") }]).await;
    let claimed = claim_as(&store, &Lane::PAYMENTS, "host:2:b", at(9), 10).await;
    assert_eq!(ids(&claimed), [id(2)]);
    let lease = Lease { id: id(1), fence: FIRST_FENCE };
    assert_eq!(store.renew(vec![lease], at(20)).await.unwrap(), []);
    let wrong = Lease { fence: FIRST_FENCE + 1, ..lease };
    assert_eq!(commit(&store, [succeed(wrong, at(21))]).await, Said::Stale(id(1)));
    done(&store, [Write::Attempt(attempt(lease)), succeed(lease, at(21))]).await;
    assert_eq!(commit(&store, [succeed(lease, at(22))]).await, Said::Stale(id(1)));
}

async fn a_held_effect_whose_worker_is_gone_is_taken_back(db: Db) {
    let store = db.open().await;
    enqueue(&store, [in_hand(1, "host:1:a")]).await;
    let none = store.lapsed(&Lane::PAYMENTS, at(-1), 10).await.unwrap();
    assert!(none.is_empty(), "it has just been born");
    let lapsed = store.lapsed(&Lane::PAYMENTS, at(60), 10).await.unwrap();
    let [found] = &lapsed[..] else { panic!("{lapsed:?}") };
    assert_eq!((found.effect.id, found.worker.as_str()), (id(1), "host:1:a"));
    assert_eq!((found.effect.fence, found.locked_at), (FIRST_FENCE, at(0)));
    let old = lease(&found.effect);
    done(&store, [retry(old, at(61), at(61))]).await;
    assert_eq!(commit(&store, [succeed(old, at(62))]).await, Said::Stale(id(1)), "too late");
    let again = claim_as(&store, &Lane::PAYMENTS, "host:2:b", at(70), 10).await;
    assert_eq!((ids(&again), again[0].fence, again[0].attempts), (vec![id(1)], 2, 1));
    let lost = store.renew(vec![old], at(71)).await.unwrap();
    assert_eq!(lost.len(), 1, "it is somebody else's");
}
