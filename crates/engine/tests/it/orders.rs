//! Orders as callers ask for them: every answer of the contract that the engine gives.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::OrderRules;
use tashika_engine::commands::Limits;
use tashika_engine::commands::order::{OrderError, Orders, PlaceOrder, Placed};
use tashika_engine::{Clock, Ids};
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::support::{
    KEY, REMEMBER, Rig, all_rows, body, orders, patience, place, place_for, policy, stop, unlimited,
};

on_both!(
    the_first_request_is_accepted_and_a_repeat_is_replayed,
    another_body_under_the_same_key_is_a_conflict,
    a_key_is_required_and_must_be_the_same_twice,
    what_is_not_valid_is_not_stored,
    what_the_database_cannot_hold_is_not_valid,
    the_rate_is_limited_per_client_and_replays_are_not_counted,
    the_daily_quota_is_shared_by_processes_and_replays_are_not_counted,
    a_process_returns_what_it_did_not_spend,
    a_new_day_has_a_new_quota,
    a_losing_racer_is_not_counted,
    thirty_two_identical_requests_are_one_order,
    thirty_two_different_requests_under_one_key_are_one_order,
    a_trace_goes_with_the_order,
    an_unknown_order_is_not_found,
);

fn noon() -> Clock {
    // Far from midnight, so that a quota's day does not end in mid-test.
    Clock::simulated(Timestamp::from_micros(1_700_049_600_000_000))
}

async fn the_first_request_is_accepted_and_a_repeat_is_replayed(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let mut request = body(KEY);
    request["order_id"] = json!("o-1");
    request["trace_id"] = json!("t-1");
    let Placed::Accepted(ack) = place(&rig.orders, &request).await.unwrap() else {
        panic!("it was new");
    };
    assert_eq!((&ack["status"], &ack["order_id"]), (&json!("accepted"), &json!("o-1")));
    assert_eq!((&ack["idempotency_key"], &ack["trace_id"]), (&json!(KEY), &json!("t-1")));
    let entry = rig.entry(KEY).await;
    assert_eq!(entry.expires_at, entry.first_seen_at.plus(REMEMBER));

    // Other order of the fields, another trace: the same request.
    let again: Value = serde_json::from_str(&format!(
        r#"{{"trace_id": "t-2", "side": "BUY", "qty": 1, "order_id": "o-1",
             "instrument": "USDJPY", "idempotency_key": "{KEY}"}}"#
    ))
    .unwrap();
    let Placed::Replayed { http_status, body } = place(&rig.orders, &again).await.unwrap() else {
        panic!("it was a repeat");
    };
    assert_eq!(http_status, 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), ack);
    let seen = rig.entry(KEY).await;
    assert!(seen.last_seen_at > entry.last_seen_at);
    assert_eq!(seen.first_seen_at, entry.first_seen_at);

    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    let Placed::Replayed { http_status, body } = place(&rig.orders, &again).await.unwrap() else {
        panic!("it was a repeat");
    };
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((http_status, &told["status"]), (200, &json!("ok")));
    assert_eq!(told["trace_id"], json!("t-1"), "the answer is the first request's");
    assert_eq!((all_rows(&rig.store).await.len(), rig.broker.executed(KEY)), (1, 1));
    stop(running).await;
}

async fn another_body_under_the_same_key_is_a_conflict(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let mut other = body(KEY);
    other["qty"] = json!(2);
    let conflict = async || place(&rig.orders, &other).await.unwrap_err();
    assert!(matches!(conflict().await, OrderError::Conflict));
    let before = rig.entry(KEY).await;
    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    assert!(matches!(conflict().await, OrderError::Conflict), "also when it is settled");
    assert_eq!(rig.entry(KEY).await.request_digest, before.request_digest);
    assert_eq!(rig.broker.seen().sends(), 1);
    stop(running).await;
}

async fn a_key_is_required_and_must_be_the_same_twice(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let body = body(KEY);
    let ask = async |header_key, body| {
        let request = PlaceOrder { client: "client", header_key, body, traceparent: None };
        rig.orders.place(request).await.unwrap_err()
    };
    assert!(matches!(ask(None, &body).await, OrderError::KeyMissing));
    assert!(matches!(ask(Some("key-0002"), &body).await, OrderError::KeyMismatch));
    let mut keyless = body.clone();
    keyless.as_object_mut().unwrap().remove("idempotency_key");
    let OrderError::Invalid(violations) = ask(Some(KEY), &keyless).await else {
        panic!("the body needs its key as well");
    };
    assert_eq!(violations[0].field, "idempotency_key");
    assert!(all_rows(&rig.store).await.is_empty());
}

async fn what_is_not_valid_is_not_stored(db: TestDb) {
    let store = db.open().await;
    let rules =
        OrderRules { instruments: Some(vec!["USDJPY".into()]), min_lot: 0.5, lot_step: 0.5 };
    let clock = Clock::System;
    let orders =
        Orders::new(store.clone(), clock, Ids::random(clock), rules, unlimited(), REMEMBER);
    for (field, value) in [
        ("instrument", json!("EURJPY")),
        ("side", json!("HOLD")),
        ("qty", json!(0.25)),
        ("qty", json!(0.75)),
        ("price", json!(-1)),
        ("surprise", json!(true)),
    ] {
        let mut request = body(KEY);
        request[field] = value;
        match place(&orders, &request).await {
            Err(OrderError::Invalid(violations)) => assert_eq!(violations[0].field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(all_rows(&store).await.is_empty());
    assert_eq!(store.ledger_rows().await.unwrap(), 0);
}

/// PostgreSQL has no NUL in text and JSON. SQLite would take it; the contract is one.
async fn what_the_database_cannot_hold_is_not_valid(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    for (field, value) in [
        ("order_id", json!("a\u{0}b")),
        ("trace_id", json!("a\u{0}b")),
        ("tags", json!(["fine", "a\u{0}b"])),
    ] {
        let mut request = body(KEY);
        request[field] = value;
        match place(&rig.orders, &request).await {
            Err(OrderError::Invalid(violations)) => assert_eq!(violations[0].field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(all_rows(&rig.store).await.is_empty());
}

async fn the_rate_is_limited_per_client_and_replays_are_not_counted(db: TestDb) {
    let store = db.open().await;
    let orders = orders(&store, noon(), Arc::new(Limits::new(0.06, 3, 0)));
    for n in 0..3 {
        place_for(&orders, "one", &body(&format!("order-0{n}"))).await.unwrap();
        for _ in 0..5 {
            let again = place_for(&orders, "one", &body("order-00")).await.unwrap();
            assert!(matches!(again, Placed::Replayed { .. }));
        }
    }
    let refused = place_for(&orders, "one", &body("order-03")).await.unwrap_err();
    let OrderError::RateLimited(wait) = refused else { panic!("{refused}") };
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(1000), "{wait:?}");
    place_for(&orders, "one", &body("order-00")).await.unwrap();
    place_for(&orders, "two", &body("order-03")).await.unwrap();
    assert_eq!(all_rows(&store).await.len(), 4);
}

async fn the_daily_quota_is_shared_by_processes_and_replays_are_not_counted(db: TestDb) {
    let (store, clock) = (db.open().await, noon());
    let process = || orders(&store, clock, Arc::new(Limits::new(0.0, 1, 3)));
    let (one, two) = (process(), process());
    place_for(&one, "client", &body("order-00")).await.unwrap();
    place_for(&two, "client", &body("order-01")).await.unwrap();
    for orders in [&one, &two] {
        let again = place_for(orders, "client", &body("order-00")).await.unwrap();
        assert!(matches!(again, Placed::Replayed { .. }));
    }
    place_for(&one, "client", &body("order-02")).await.unwrap();
    for orders in [&one, &two] {
        let refused = place_for(orders, "client", &body("order-03")).await.unwrap_err();
        let OrderError::RateLimited(wait) = refused else { panic!("{refused}") };
        assert!(wait <= Duration::from_secs(12 * 3600), "until midnight: {wait:?}");
    }
    place_for(&two, "somebody else", &body("order-03")).await.unwrap();
    assert_eq!(all_rows(&store).await.len(), 4);
}

async fn a_process_returns_what_it_did_not_spend(db: TestDb) {
    let (store, clock) = (db.open().await, noon());
    // Reserved in portions of two.
    let limits = Arc::new(Limits::new(0.0, 1, 400));
    let orders = orders(&store, clock, Arc::clone(&limits));
    place_for(&orders, "client", &body("order-00")).await.unwrap();
    limits.close(&store).await.unwrap();
    let left = store.reserve_quota("client", clock.now().day(), 1000, 400).await.unwrap();
    assert_eq!(left, 399);
}

async fn a_new_day_has_a_new_quota(db: TestDb) {
    let store = db.open().await;
    let limits = Arc::new(Limits::new(0.0, 1, 1));
    let today = orders(&store, noon(), Arc::clone(&limits));
    let tomorrow = Clock::simulated(noon().now().plus(Duration::from_secs(24 * 3600)));
    let tomorrow = orders(&store, tomorrow, limits);
    place(&today, &body("order-00")).await.unwrap();
    place(&today, &body("order-01")).await.unwrap_err();
    place(&tomorrow, &body("order-01")).await.unwrap();
    place(&tomorrow, &body("order-02")).await.unwrap_err();
}

/// Callers who lose the race for a key are answered with the winner's order, at nobody's expense.
async fn a_losing_racer_is_not_counted(db: TestDb) {
    let store = db.open().await;
    let orders = Arc::new(orders(&store, noon(), Arc::new(Limits::new(0.6, 20, 20))));
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let orders = Arc::clone(&orders);
        callers.spawn(async move { place(&orders, &body(KEY)).await.unwrap() });
    }
    let placed = callers.join_all().await;
    assert_eq!(placed.iter().filter(|p| matches!(p, Placed::Accepted(_))).count(), 1);
    for n in 0..19 {
        place(&orders, &body(&format!("order-{n:02}"))).await.unwrap();
    }
    let refused = place(&orders, &body("order-99")).await.unwrap_err();
    assert!(matches!(refused, OrderError::RateLimited(_)), "{refused}");
}

async fn thirty_two_identical_requests_are_one_order(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let orders = Arc::new(orders(&rig.store, Clock::System, unlimited()));
    // Half of them come to another process.
    let other_store = rig.db.open().await;
    let others = Arc::new(crate::support::orders(&other_store, Clock::System, unlimited()));
    let running = rig.start(policy());
    let mut callers = JoinSet::new();
    for n in 0..32 {
        let orders = Arc::clone(if n % 2 == 0 { &orders } else { &others });
        callers.spawn(async move { place(&orders, &body(KEY)).await.unwrap() });
    }
    let placed = callers.join_all().await;
    assert_eq!(placed.iter().filter(|p| matches!(p, Placed::Accepted(_))).count(), 1);
    let replayed = |p: &&Placed| matches!(p, Placed::Replayed { http_status: 200, .. });
    assert_eq!(placed.iter().filter(replayed).count(), 31);

    rig.succeeded(KEY).await;
    assert_eq!(all_rows(&rig.store).await.len(), 1);
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (1, 1));
    stop(running).await;
}

async fn thirty_two_different_requests_under_one_key_are_one_order(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let orders = Arc::new(orders(&rig.store, Clock::System, unlimited()));
    let mut callers = JoinSet::new();
    for n in 1..=32 {
        let orders = Arc::clone(&orders);
        let mut request = body(KEY);
        request["qty"] = json!(n);
        callers.spawn(async move { (n, place(&orders, &request).await) });
    }
    let mut accepted = Vec::new();
    for (n, placed) in callers.join_all().await {
        match placed {
            Ok(Placed::Accepted(_)) => accepted.push(n),
            Err(OrderError::Conflict) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted.len(), 1);
    let row = &all_rows(&rig.store).await[0];
    let payload = rig.store.payload(row.id).await.unwrap().unwrap();
    let kept: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(kept["qty"], json!(accepted[0]));
}

async fn a_trace_goes_with_the_order(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let (body, trace) = (body(KEY), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let traceparent = Some(trace.to_owned());
    let request = PlaceOrder { client: "c", header_key: Some(KEY), body: &body, traceparent };
    rig.orders.place(request).await.unwrap();
    let claimed = crate::support::claim(&rig.store, "host:1:a", Clock::System.now()).await;
    assert_eq!(claimed[0].traceparent.as_deref(), Some(trace));
}

async fn an_unknown_order_is_not_found(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    assert_eq!(rig.orders.find(KEY).await.unwrap(), None);
    rig.broker.script([Act::busy()]);
    rig.place(KEY).await;
    assert_eq!(rig.find(KEY).await.status, LedgerStatus::Accepted);
    let running = rig.start(patience(1));
    rig.aborted(KEY).await;
    assert_eq!(rig.find(KEY).await.status, LedgerStatus::Failed);
    stop(running).await;
}
