//! Many callers at once, callers that hang up, processes that end: each payment goes on to its end.

use std::time::Duration;

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Answer, Request, Server, Setup, rows};

on_both!(
    sixty_four_requests_with_one_key_are_one_charge,
    two_refunds_at_once_give_back_no_more_than_was_taken,
    a_caller_that_hangs_up_has_paid_all_the_same,
    a_signal_in_mid_payment_loses_nothing,
    an_api_pays_and_a_worker_verifies,
    the_sandbox_remembers_over_a_restart,
    an_authorization_that_nobody_captures_is_released,
    a_success_after_the_failure_is_undone,
    an_expired_key_is_a_new_request,
);

/// Sends them all at once; the answers in any order.
async fn at_once(server: &Server, requests: Vec<Request>) -> Vec<Answer> {
    let mut asking = JoinSet::new();
    for request in requests {
        let address = server.address;
        asking.spawn(async move { request.send(address).await.unwrap() });
    }
    asking.join_all().await
}

async fn sixty_four_requests_with_one_key_are_one_charge(db: TestDb) {
    let gateway = Gateway::start().await;
    let server =
        Setup::of(&db).stripe(&gateway).set("PAYMENT_GATEWAY_TIMEOUT_MS", 5000).start().await;
    gateway.world.script(Operation::Confirm, [Fault::AnswerAfter(Duration::from_millis(300))]);
    let mut body = payment("pm_card_visa");
    body["capture"] = json!("automatic");
    let answers = at_once(&server, vec![Request::pay("storm-0001", &body); 64]).await;
    let made: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    let one = id(&made[0].payment(201, "CAPTURED"));
    for answer in &answers {
        match answer.status {
            201 => assert!(!answer.replayed()),
            200 => assert_eq!((id(&answer.json()), answer.replayed()), (one.clone(), true)),
            409 => {
                answer.is_problem(409, "IDEMPOTENCY_IN_PROGRESS");
                assert!(answer.retry_after() > 0);
            }
            _ => panic!("{answer:?}"),
        }
    }
    let again = server.ask(Request::pay("storm-0001", &body)).await;
    assert_eq!((id(&again.payment(200, "CAPTURED")), again.replayed()), (one.clone(), true));
    let world = &gateway.world;
    assert_eq!((world.authorizations(&one), world.charged(&one)), (1, 100));
    assert_eq!(world.ledger().movements().len(), 2, "authorized and captured, once");
    assert_eq!(rows(&db.url(), "select count(*) from payments").await, [["1"]]);
    // Captures are told apart from one another by nothing but their keys.
    let two = id(&server.paid("storm-0002", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    let storm = (0..16)
        .map(|n| Request::act(&two, "capture", format!("storm-capture-{}", n % 4), &json!({})));
    for answer in at_once(&server, storm.collect()).await {
        assert!([200, 202, 409].contains(&answer.status), "{answer:?}");
    }
    server.payment_at_rest(&two).await;
    assert_eq!((world.captured(&two), world.violations()), (100, vec![]));
    server.stop().await;
}

async fn two_refunds_at_once_give_back_no_more_than_was_taken(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = Setup::of(&db).stripe(&gateway).start().await;
    let mut body = payment("pm_card_visa");
    body["capture"] = json!("automatic");
    for round in 0..5 {
        let one = id(&server.paid(&format!("refunds-{round}"), &body, 201, "CAPTURED").await);
        let refund =
            |n| Request::act(&one, "refund", format!("refund-{round}-{n}"), &json!({"amount": 60}));
        let mut answers = at_once(&server, vec![refund(1), refund(2)]).await;
        answers.sort_by_key(|answer| answer.status);
        assert!([200, 202].contains(&answers[0].status), "{answers:?}");
        answers[1].is_problem(422, "AMOUNT_TOO_HIGH");
        let found = server.payment_at_rest(&one).await;
        assert_eq!((&found["refundedAmount"], gateway.world.refunded(&one)), (&json!(60), 60));
    }
    assert_eq!(gateway.world.violations(), []);
    server.stop().await;
}

async fn a_caller_that_hangs_up_has_paid_all_the_same(db: TestDb) {
    let (gateway, gate) = (Gateway::start().await, Gate::closed());
    gateway.world.script(Operation::Confirm, [Fault::Slow(gate.clone())]);
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_GATEWAY_TIMEOUT_MS", 20_000);
    let server = setup.start().await;
    let mut body = payment("pm_card_visa");
    body["capture"] = json!("automatic");
    let request = Request::pay("gone-0001", &body);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&request.head(server.address)).await.unwrap();
    stream.write_all(body.to_string().as_bytes()).await.unwrap();
    gateway.world.until_calls(Operation::Confirm, 1).await;
    drop(stream);
    // Whoever comes back meanwhile is told to wait.
    let early = server.ask(request.clone()).await;
    early.is_problem(409, "IDEMPOTENCY_IN_PROGRESS");
    gate.open();
    let found = until("the payment", async || {
        let answer = server.ask(request.clone()).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    let found = server.payment_at_rest(&id(&found)).await;
    assert_eq!(found["status"], "CAPTURED", "{found}");
    assert_eq!(
        (gateway.world.charged(&id(&found)), gateway.world.calls(Operation::Confirm)),
        (100, 1)
    );
    server.stop().await;
}

async fn a_signal_in_mid_payment_loses_nothing(db: TestDb) {
    let (gateway, gate) = (Gateway::start().await, Gate::closed());
    gateway.world.script(Operation::Confirm, [Fault::Slow(gate.clone())]);
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_GATEWAY_TIMEOUT_MS", 20_000);
    let server = setup.start().await;
    let (address, request) = (server.address, Request::pay("term-0001", &payment("pm_card_visa")));
    let asking = tokio::spawn(async move { request.send(address).await });
    gateway.world.until_calls(Operation::Confirm, 1).await;
    server.signal("TERM").await;
    until("new connections to be refused", async || TcpStream::connect(address).await.err()).await;
    gate.open();
    let answer = asking.await.unwrap().expect("an open request is answered");
    let one = id(&answer.payment(201, "AUTHORIZED"));
    let (code, log) = server.ended().await;
    assert_eq!(code, Some(0), "{}", log.text());

    // Cut off at the deadline instead: the next process asks, and finds it.
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    let short =
        setup.clone().set("TASHIKA_SHUTDOWN_SEC", "0.2").set("OUTBOX_PAYMENTS_LOCK_LEASE_SEC", 1);
    let server = short.start().await;
    let (address, request) = (server.address, Request::pay("term-0002", &payment("pm_card_visa")));
    let asking = tokio::spawn(async move { request.send(address).await });
    gateway.world.until_calls(Operation::Confirm, 2).await;
    let log = server.stop().await;
    assert!(log.text().contains("did not end in time"), "{}", log.text());
    assert!(asking.await.unwrap().is_err(), "nothing was said that is not known");
    let server = short.start().await;
    let found = until("the payment", async || {
        let answer = server.ask(Request::pay("term-0002", &payment("pm_card_visa"))).await;
        (answer.status == 200 && answer.json()["status"] == "AUTHORIZED").then(|| answer.json())
    })
    .await;
    assert_eq!(server.payment(&one).await["status"], "AUTHORIZED");
    assert_eq!((gateway.world.held(&one), gateway.world.held(&id(&found))), (100, 100));
    assert_eq!(gateway.world.violations(), []);
    server.stop().await;
}

async fn an_api_pays_and_a_worker_verifies(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway);
    let api = setup.clone().role("api").start().await;
    let fine = id(&api.paid("roles-0001", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    api.act(&fine, "capture", "roles-capture", &json!({})).await.payment(200, "CAPTURED");
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    let lost = id(&api.paid("roles-0002", &payment("pm_card_visa"), 202, "PENDING").await);
    assert_eq!(api.payment(&lost).await["verification"]["attempts"], 0, "nobody asks yet");
    let worker = setup.role("worker").start().await;
    worker
        .ask(Request::pay("roles-0003", &payment("pm_card_visa")))
        .await
        .is_problem(404, "NOT_FOUND");
    let found = api.payment_at_rest(&lost).await;
    assert_eq!(found["status"], "AUTHORIZED", "{found}");
    worker.stop().await;
    api.stop().await;
}

async fn the_sandbox_remembers_over_a_restart(db: TestDb) {
    let setup = Setup::of(&db).impatient();
    let server = setup.clone().set("PAYMENT_VERIFY_INTERVAL_SEC", 3600).start().await;
    let paid = id(&server.paid("sandbox-0001", &payment("ok"), 201, "AUTHORIZED").await);
    let silent =
        id(&server.paid("sandbox-0002", &payment("charged_but_silent"), 202, "PENDING").await);
    server
        .act(&paid, "capture", "sandbox-capture", &json!({"amount": 70}))
        .await
        .payment(200, "CAPTURED");
    server.kill().await;
    let server = setup.start().await;
    let refunded =
        server.act(&paid, "refund", "sandbox-refund", &json!({})).await.payment(200, "REFUNDED");
    assert_eq!(refunded["refundedAmount"], 70);
    let verify = Request::new("POST", &format!("/payments/{silent}/verify"));
    server.ask(verify).await.payment(200, "AUTHORIZED");
    server.stop().await;
}

async fn an_authorization_that_nobody_captures_is_released(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_AUTHORIZATION_LIFETIME_SEC", "0.5");
    let server = setup.start().await;
    let one = id(&server.paid("week-0001", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    let mut body = payment("pm_card_visa");
    body["capture"] = json!("automatic");
    let two = id(&server.paid("week-0002", &body, 201, "CAPTURED").await);
    let found =
        server.payment_when(&one, "the release", |found| found["status"] == "REFUNDED").await;
    assert_eq!((&found["capturedAmount"], gateway.world.held(&one)), (&json!(0), 0));
    assert_eq!(server.payment(&two).await["status"], "CAPTURED");
    server.stop().await;
}

/// The gateway executes what it was told to forget: the money goes back, and it is shown.
async fn a_success_after_the_failure_is_undone(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_VERIFY_MAX_ATTEMPTS", 1);
    let server = setup.clone().set("PAYMENT_RECONCILE_INTERVAL_SEC", 0).start().await;
    gateway.world.script(Operation::Confirm, [Fault::late()]);
    for operation in [Operation::Retrieve, Operation::List] {
        gateway.world.usually(operation, Fault::DropBefore);
    }
    let one = id(&server.paid("race-0001", &payment("pm_card_visa"), 202, "PENDING").await);
    server.payment_given_up(&one).await;
    let body = json!({"outcome": "not_charged", "note": "not in the list"});
    server
        .ask(Request::json(&format!("/payments/{one}/resolve"), &body))
        .await
        .payment(200, "FAILED");
    server.stop().await;
    // The person was wrong.
    gateway.world.run_late();
    assert_eq!(gateway.world.held(&one), 100);
    for operation in [Operation::Retrieve, Operation::List] {
        gateway.world.usually(operation, Fault::Answer);
    }
    // The payment is in the window that has just ended, or in the one that is about to.
    let server = setup.set("PAYMENT_RECONCILE_INTERVAL_SEC", 8).start().await;
    let found = server.payment_when(&one, "the race", |found| found["races"].is_array()).await;
    assert_eq!(found["races"][0]["scenario"], "LATE_EXECUTION", "{found}");
    let found = server.payment_at_rest(&one).await;
    assert_eq!((&found["status"], gateway.world.held(&one)), (&json!("FAILED"), 0));
    let kinds: Vec<Value> =
        server.timeline(&one).await.iter().map(|line| line["kind"].clone()).collect();
    assert!(kinds.contains(&json!("race")) && kinds.contains(&json!("compensated")), "{kinds:?}");
    server.stop().await;
}

async fn an_expired_key_is_a_new_request(db: TestDb) {
    // A third of a second, in hours.
    let server = Setup::of(&db).impatient().set("PAYMENT_IDEMPO_TTL_HOURS", "0.0001").start().await;
    let body = payment("ok");
    let one = id(&server.paid("short-0001", &body, 201, "AUTHORIZED").await);
    let silent = id(&server.paid("short-0002", &payment("requires_action"), 202, "PENDING").await);
    let two = until("the key to be free", async || {
        let answer = server.ask(Request::pay("short-0001", &body)).await;
        (answer.status == 201).then(|| id(&answer.json()))
    })
    .await;
    assert_ne!(one, two);
    // What has not ended is remembered for as long as it takes.
    let again = server.ask(Request::pay("short-0002", &payment("requires_action"))).await;
    assert_eq!((id(&again.payment(200, "PENDING")), again.replayed()), (silent, true));
    server.stop().await;
}
