//! Every answer of the contract.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::order::broker_code;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{Broker, KEY, Request, Setup, order, rows};

on_both!(
    a_key_is_accepted_once_and_replayed_before_and_after_its_end,
    the_same_request_in_other_words_is_a_replay,
    another_body_under_a_known_key_is_a_conflict,
    header_and_body_must_name_the_same_key,
    everything_that_is_wrong_is_named_at_once,
    keys_of_every_shape_are_found_again,
    thirty_two_identical_requests_are_one_order,
    thirty_two_identical_requests_to_two_processes_are_one_order,
    failures_are_replayed_with_their_status_and_body,
    results_keep_their_promises,
    an_expired_key_is_a_new_order,
);

async fn a_key_is_accepted_once_and_replayed_before_and_after_its_end(db: TestDb) {
    let setup = Setup::of(&db);
    let waiting = setup.clone().set("OUTBOX_ENABLED", false).start().await;
    let unknown = waiting.get("/do/order/key-0001").await;
    unknown.is_problem(404, "ORDER_NOT_FOUND");

    let first = waiting.place(&order(KEY)).await;
    assert_eq!((first.status, first.replayed()), (201, false));
    assert_eq!(first.header("content-type"), Some("application/json"));
    let ack = first.json();
    assert_eq!((&ack["status"], &ack["idempotency_key"]), (&json!("accepted"), &json!(KEY)));

    let again = waiting.place(&order(KEY)).await;
    assert_eq!((again.status, again.replayed()), (200, true));
    assert_eq!(again.json(), ack);
    assert_eq!(waiting.find(KEY).await, ack);
    waiting.stop().await;

    let working = setup.start().await;
    let result = working.executed(KEY).await;
    let settled = working.place(&order(KEY)).await;
    assert_eq!((settled.status, settled.replayed()), (200, true));
    assert_eq!(settled.json(), result);
    working.stop().await;

    let restarted = setup.start().await;
    let replay = restarted.place(&order(KEY)).await;
    assert_eq!((replay.status, replay.replayed(), replay.json()), (200, true, result));
    restarted.stop().await;
    let count = rows(&db.url(), "select count(*) from outbox").await;
    assert_eq!(count, [["1"]]);
}

async fn the_same_request_in_other_words_is_a_replay(db: TestDb) {
    let server = Setup::of(&db).start().await;
    server.accepted(&order(KEY)).await;
    let reordered = r#" { "price": 150.25, "idempotency_key": "key-0001",
        "side": "\u0042UY", "qty": 1000, "instrument": "USDJPY" } "#;
    let mut traced = order(KEY);
    traced["trace_id"] = json!("another-trace");
    for body in [reordered.to_owned(), traced.to_string()] {
        let answer = server.ask(Request::post(KEY, body)).await;
        assert_eq!((answer.status, answer.replayed()), (200, true), "{answer:?}");
    }
    let quoted = Request::post(format!("\"{KEY}\""), order(KEY).to_string());
    let answer = server.ask(quoted).await;
    assert_eq!((answer.status, answer.replayed()), (200, true), "{answer:?}");
    server.stop().await;
}

async fn another_body_under_a_known_key_is_a_conflict(db: TestDb) {
    let server = Setup::of(&db).start().await;
    server.accepted(&order(KEY)).await;
    let before = server.executed(KEY).await;
    for (field, value) in [
        ("qty", json!(2000)),
        ("side", json!("SELL")),
        ("price", Value::Null),
        ("order_id", json!("o-1")),
        ("tags", json!(["a"])),
    ] {
        let mut other = order(KEY);
        other[field] = value;
        server.place(&other).await.is_problem(409, "IDEMPOTENCY_CONFLICT");
    }
    assert_eq!(server.find(KEY).await, before, "the order is as it was");
    server.stop().await;
}

async fn header_and_body_must_name_the_same_key(db: TestDb) {
    let server = Setup::of(&db).start().await;
    let body = order(KEY).to_string();
    let other = server.ask(Request::post("key-0002", body.clone())).await;
    other.is_problem(422, "IDEMPOTENCY_MISMATCH");
    let none = server.ask(Request::post("", body.clone()).without("idempotency-key")).await;
    none.is_problem(400, "IDEMPOTENCY_KEY_MISSING");
    for empty in ["", "  ", "\"\""] {
        let answer = server.ask(Request::post(empty, body.clone())).await;
        answer.is_problem(400, "IDEMPOTENCY_KEY_MISSING");
    }
    let mut keyless = order(KEY);
    keyless.as_object_mut().unwrap().remove("idempotency_key");
    let answer = server.ask(Request::post(KEY, keyless.to_string())).await;
    answer.is_problem(422, "VALIDATION_ERROR");
    assert_eq!(answer.json()["errors"][0]["field"], "idempotency_key");
    server.stop().await;
    assert_eq!(rows(&db.url(), "select count(*) from idempo_ledger").await, [["0"]]);
}

async fn everything_that_is_wrong_is_named_at_once(db: TestDb) {
    let server = Setup::of(&db).set("ORDER_LOT_STEP", "0.5").start().await;
    let body = json!({
        "order_id": "", "instrument": "usdjpy", "side": "HOLD", "qty": 0.7, "price": -1,
        "time_in_force": "DAY", "tags": ["a", "b", "c", "d", "e", "f", "g", "h", "i"],
        "risk_constraints": {"max_dd": "much"}, "trace_id": "t".repeat(129),
        "requested_at": "yesterday", "idempotency_key": "short", "surprise": 1,
    });
    let answer = server.ask(Request::post("short", body.to_string())).await;
    answer.is_problem(422, "VALIDATION_ERROR");
    let document = answer.json();
    let errors = document["errors"].as_array().unwrap();
    for field in body.as_object().unwrap().keys() {
        let named = errors.iter().filter(|error| error["field"] == **field);
        assert_eq!(named.count(), 1, "{field}: {document}");
    }
    let unlisted = Request::post(KEY, order(KEY).to_string().replace("USDJPY", "GBPJPY"));
    let answer = server.ask(unlisted).await;
    answer.is_problem(422, "VALIDATION_ERROR");
    assert_eq!(answer.json()["errors"][0]["field"], "instrument");
    server.stop().await;
}

async fn keys_of_every_shape_are_found_again(db: TestDb) {
    let broker = Broker::without_keys().await;
    let server = Setup::of(&db).broker(&broker).start().await;
    let longest = "x".repeat(64);
    for (key, in_path) in [
        ("with/slash/and?query#mark", "with%2Fslash%2Fand%3Fquery%23mark"),
        ("percent%41 and space", "percent%2541%20and%20space"),
        ("..%2F..%2F..%2F", "..%252F..%252F..%252F"),
        ("quote\"back\\slash", "quote%22back%5Cslash"),
        (&longest, &longest),
    ] {
        // Executed and lost: the broker is asked about the order by its key.
        broker.scripted.script_for(key, [Act::ExecuteThenLose]);
        let ack = server.accepted(&order(key)).await;
        assert_eq!(ack["idempotency_key"], key);
        let result = server.executed(in_path).await;
        assert_eq!(result["idempotency_key"], key);
        assert_eq!(broker.scripted.executed(key), 1, "{key}");
        assert_eq!(broker.scripted.asked(key), 1, "{key}");
    }
    server.stop().await;
    assert!(broker.server.turned_away().is_empty());
}

async fn thirty_two_identical_requests_are_one_order(db: TestDb) {
    at_once(db, 1).await;
}

async fn thirty_two_identical_requests_to_two_processes_are_one_order(db: TestDb) {
    at_once(db, 2).await;
}

async fn at_once(db: TestDb, processes: usize) {
    let broker = Broker::without_keys().await;
    let setup = Setup::of(&db).broker(&broker);
    let mut servers = Vec::new();
    for _ in 0..processes {
        servers.push(setup.start().await);
    }
    let barrier = Arc::new(Barrier::new(32));
    let mut callers = JoinSet::new();
    for caller in 0..32 {
        let (address, barrier) = (servers[caller % processes].address, Arc::clone(&barrier));
        callers.spawn(async move {
            barrier.wait().await;
            Request::order(&order(KEY)).send(address).await.unwrap()
        });
    }
    let answers = callers.join_all().await;
    let first = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(first, 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        match answer.status {
            200 => assert!(answer.replayed(), "{answer:?}"),
            _ => answer.is_problem(409, "IDEMPOTENCY_IN_PROGRESS"),
        }
    }
    for server in servers {
        server.executed(KEY).await;
        server.stop().await;
    }
    assert_eq!(rows(&db.url(), "select count(*) from outbox").await, [["1"]]);
    assert_eq!((broker.scripted.sent(KEY), broker.scripted.executed(KEY)), (1, 1));
}

/// Each of the settled failures, told the same way however often it is asked for.
async fn failures_are_replayed_with_their_status_and_body(db: TestDb) {
    let broker = Broker::with_keys().await;
    let acts = [
        ("rejected-1", Act::refuse(broker_code::BAD_REQUEST), 400, "BROKER_REJECTED"),
        ("timeout-01", Act::LoseBefore, 504, "BROKER_TIMEOUT"),
        ("failing-01", Act::Fail { executed: false }, 503, "BROKER_DOWN"),
        ("too-busy-1", Act::busy(), 503, "BROKER_DOWN"),
        ("forbidden1", Act::refuse(broker_code::UNAUTHORIZED), 500, "INTERNAL_ERROR"),
    ];
    let setup = Setup::of(&db).broker(&broker).set("OUTBOX_ORDERS_MAX_ATTEMPTS", 2);
    let server = setup.start().await;
    for (key, act, ..) in &acts {
        broker.scripted.script_for(key, [act.clone(), act.clone()]);
        server.accepted(&order(key)).await;
    }
    let mut told = Vec::new();
    for (key, _, status, reason) in &acts {
        let result = server.settled(key).await;
        assert_eq!(result["status"], "error", "{result}");
        assert_eq!(result["reason_code"], *reason, "{result}");
        assert_eq!((&result["fills"], result["executed_qty"].as_f64()), (&json!([]), Some(0.0)));
        assert!(times(&result).0 <= times(&result).1, "{result}");
        for _ in 0..2 {
            let answer = server.place(&order(key)).await;
            assert_eq!((answer.status, answer.replayed()), (*status, true), "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let mut view = result.clone();
            view.as_object_mut().unwrap().remove("case");
            assert_eq!(answer.json(), view, "the stored result");
        }
        told.push(server.place(&order(key)).await.body);
        let sql = format!(
            "select status, http_status from idempo_ledger where idempotency_key = '{key}'"
        );
        assert_eq!(rows(&db.url(), &sql).await, [["failed".to_owned(), status.to_string()]]);
        assert_eq!(broker.scripted.executed(key), 0);
    }
    server.stop().await;

    let restarted = setup.start().await;
    for ((key, _, status, _), before) in acts.iter().zip(told) {
        let answer = restarted.place(&order(key)).await;
        assert_eq!((answer.status, answer.replayed(), answer.body), (*status, true, before));
    }
    restarted.stop().await;
}

fn times(result: &Value) -> (jiff::Timestamp, jiff::Timestamp) {
    let time = |field: &str| result[field].as_str().unwrap().parse().unwrap();
    (time("requested_at"), time("completed_at"))
}

/// Decimals as people add them up.
fn hundred_millionths(number: &Value) -> i128 {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{fraction:0<8}").parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn results_keep_their_promises(db: TestDb) {
    let server = Setup::of(&db).start().await;
    let bodies = [
        json!({"instrument": "USDJPY", "side": "BUY", "qty": 0.3}),
        json!({"instrument": "BTC-USD", "side": "SELL", "qty": 12.34, "price": 64_123.5}),
        json!({"instrument": "EURUSD", "side": "BUY", "qty": 1_000_000, "price": 1.0831,
               "time_in_force": "FOK", "order_id": "o-1", "trace_id": "t-1",
               "requested_at": "2099-12-31T23:59:59+09:00",
               "risk_constraints": {"max_dd": 1e300, "max_spread": 5e-324, "max_consecutive_loss": null}}),
        json!({"instrument": "ETH-USD", "side": "SELL", "qty": 0.01, "time_in_force": "GTC",
               "requested_at": "2020-01-01T00:00:00.123456Z", "tags": ["a", "確か"], "price": null}),
    ];
    for (n, mut body) in bodies.into_iter().enumerate() {
        let key = format!("promise-{n}");
        body["idempotency_key"] = json!(key);
        server.accepted(&body).await;
        let result = server.executed(&key).await;
        for field in ["instrument", "side"] {
            assert_eq!(result[field], body[field]);
        }
        for field in ["order_id", "trace_id"] {
            assert_eq!(result[field], body.get(field).cloned().unwrap_or_default());
        }
        assert_eq!(result["idempotency_key"], key);
        let fills = result["fills"].as_array().unwrap();
        assert!(!fills.is_empty(), "{result}");
        let sum: i128 = fills.iter().map(|fill| hundred_millionths(&fill["qty"])).sum();
        assert_eq!(hundred_millionths(&result["executed_qty"]), sum, "{result}");
        let (requested, completed) = times(&result);
        assert!(requested <= completed, "{result}");
        if let Some(asked) = body["requested_at"].as_str().filter(|asked| asked.starts_with("2020"))
        {
            assert_eq!(requested, asked.parse().unwrap());
        }
        assert!(result["avg_price"].as_f64().is_some_and(|price| price > 0.0), "{result}");
        assert!(result["cost"].as_f64().is_some_and(f64::is_finite), "{result}");
        assert_eq!(result["slippage"].is_number(), body["price"].is_number(), "{result}");
        assert_eq!(result["broker"]["name"], "paper");
        assert!(result["broker"]["order_ref"].is_string(), "{result}");
        for part in ["queue", "broker_rtt", "total"] {
            assert!(result["latency_ms"][part].is_u64(), "{result}");
        }
        assert!(result["reason_code"].is_null() && result["warnings"].is_array(), "{result}");
    }
    server.stop().await;
}

/// A key is remembered for `IDEMPO_TTL_HOURS` after its end, however long the effect is kept.
async fn an_expired_key_is_a_new_order(db: TestDb) {
    let broker = Broker::without_keys().await;
    let setup = Setup::of(&db).broker(&broker).set("IDEMPO_TTL_HOURS", 1.0 / 3600.0);
    let server = setup.set("OUTBOX_PRUNE_INTERVAL_SEC", "0.1").start().await;
    let mut other = order(KEY);
    other["qty"] = json!(7);
    for (n, body) in [order(KEY), order(KEY), other].iter().enumerate() {
        server.accepted(body).await;
        broker.scripted.until("the execution", |seen| seen.executions.len() == n + 1).await;
        until("the key to be forgotten", async || {
            let answer = server.get("/do/order/key-0001").await;
            (answer.status == 404).then_some(())
        })
        .await;
    }
    server.stop().await;
    assert_eq!(broker.scripted.sent(KEY), 3);
}

/// The broker executed it, the answer was lost, and the repeat was refused: "rejected" would invite
/// the caller to order once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executed_order_is_never_told_as_rejected_sqlite() {
    let db = TestDb::sqlite();
    let broker = Broker::with_keys().await;
    broker.scripted.script([Act::ExecuteThenLose, Act::refuse(broker_code::BAD_REQUEST)]);
    let server = Setup::of(&db).broker(&broker).start().await;
    server.accepted(&order(KEY)).await;
    let result = server.settled(KEY).await;
    assert_eq!(broker.scripted.executed(KEY), 1);
    assert!(result["case"].is_object(), "a person has to look: {result}");
    assert_eq!(result["reason_code"], "BROKER_TIMEOUT", "nobody knows: {result}");
    assert_eq!(server.place(&order(KEY)).await.status, 504);
    server.stop().await;
}
