//! `/payments`, answer by answer: statuses, headers, and the fields of the contract with their types.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Answer, Request, Server, Setup, rows};

on_both!(
    every_answer_to_a_new_payment_is_the_payment,
    a_replay_shows_the_payment_as_it_is_now,
    operations_repeat_and_refuse_as_the_contract_says,
    an_operation_in_doubt_is_told_as_202,
    lists_are_filtered_and_paged,
    another_users_payment_is_nobodys_business,
);

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.ends_with('Z') && text.contains('T'))
}

/// The fields that every payment has.
#[track_caller]
fn is_whole(found: &Value) {
    for field in ["id", "status", "bookingId", "userId", "currency", "capture", "gateway"] {
        assert!(found[field].is_string(), "{field}: {found}");
    }
    for field in ["amount", "capturedAmount", "refundedAmount"] {
        assert!(found[field].is_i64(), "{field}: {found}");
    }
    for field in ["pendingVerification", "verificationFailed"] {
        assert!(found[field].is_boolean(), "{field}: {found}");
    }
    assert!(is_time(&found["createdAt"]) && is_time(&found["updatedAt"]), "{found}");
    assert!(found["refunds"].is_array(), "{found}");
    assert!(found.as_object().unwrap().values().all(|value| !value.is_null()), "{found}");
}

/// Where a payment is found, as the answer about it says.
#[track_caller]
fn is_placed(answer: &Answer) {
    let place = format!("/payments/{}", id(&answer.json()));
    assert_eq!(answer.header("location"), Some(place.as_str()), "{answer:?}");
}

async fn every_answer_to_a_new_payment_is_the_payment(db: TestDb) {
    let server = Setup::of(&db).impatient().set("PAYMENT_VERIFY_INTERVAL_SEC", 3600).start().await;

    let answer = server.ask(Request::pay("key-ok", &payment("ok"))).await;
    let found = answer.payment(201, "AUTHORIZED");
    is_whole(&found);
    is_placed(&answer);
    assert_eq!((answer.header("retry-after"), answer.replayed()), (None, false), "{answer:?}");
    assert!(found["gatewayTransactionId"].is_string(), "{found}");
    assert_eq!((&found["amount"], &found["capturedAmount"]), (&json!(100), &json!(0)));
    assert!(
        found.get("reason").is_none() && found.get("verificationRequired").is_none(),
        "{found}"
    );

    let mut automatic = payment("ok");
    automatic["capture"] = json!("automatic");
    automatic["customer"] = json!("cus_1");
    automatic["description"] = json!("旅館 2 泊");
    let found = server.paid("key-automatic", &automatic, 201, "CAPTURED").await;
    assert_eq!(
        (&found["capturedAmount"], &found["description"]),
        (&json!(100), &json!("旅館 2 泊"))
    );

    let answer = server.ask(Request::pay("key-silent", &payment("charged_but_silent"))).await;
    let found = answer.payment(202, "PENDING");
    is_whole(&found);
    is_placed(&answer);
    assert!(answer.retry_after() > 0);
    assert_eq!(found["verificationRequired"], true);
    assert_eq!(
        (&found["pendingVerification"], &found["verificationFailed"]),
        (&json!(true), &json!(false))
    );
    let doubt = &found["verification"];
    assert!(doubt["reason"].is_string() && is_time(&doubt["sentAt"]), "{found}");
    assert_eq!(doubt["attempts"], 0, "{found}");

    for (method, status, code) in [
        ("declined", 402, "CARD_DECLINED"),
        ("insufficient_funds", 402, "INSUFFICIENT_FUNDS"),
        ("expired", 402, "EXPIRED_CARD"),
        ("no_such_method", 400, "INVALID_REQUEST"),
    ] {
        let answer = server.ask(Request::pay(format!("key-{method}"), &payment(method))).await;
        let found = answer.payment(status, "FAILED");
        is_whole(&found);
        assert!(found["reason"].as_str().is_some_and(|reason| reason.contains(code)), "{found}");
        assert_eq!(found["reasonCode"], code);
        assert!(found.get("verificationRequired").is_none(), "{found}");
        assert_eq!((answer.header("location"), answer.header("retry-after")), (None, None));
        let again = server.ask(Request::pay(format!("key-{method}"), &payment(method))).await;
        assert_eq!(
            (again.payment(status, "FAILED"), again.replayed()),
            (found, true),
            "its first answer"
        );
    }
    server.stop().await;
}

async fn a_replay_shows_the_payment_as_it_is_now(db: TestDb) {
    let server = Setup::of(&db).impatient().start().await;
    let body = payment("ok");
    let found = server.paid("0b8e1e0a-6c1c-4c0e-9a54-1d8c5f0a7a11", &body, 201, "AUTHORIZED").await;
    server.act(&id(&found), "capture", "capture-1", &json!({})).await.payment(200, "CAPTURED");
    // Quoted is the same key; the order of the fields and white space are no difference.
    let shuffled = r#" {"paymentMethod":"ok", "userId":"u-1","amount":100,"currency":"EUR","bookingId":"b-1001"}"#;
    let again = Request::new("POST", "/payments")
        .header("content-type", "application/json; charset=utf-8")
        .header("idempotency-key", r#""0b8e1e0a-6c1c-4c0e-9a54-1d8c5f0a7a11""#)
        .body(shuffled);
    let again = server.ask(again).await;
    let now = again.payment(200, "CAPTURED");
    assert_eq!((again.replayed(), &now["id"]), (true, &found["id"]));

    let mut other = body.clone();
    other["amount"] = json!(101);
    let refused = server.ask(Request::pay("0b8e1e0a-6c1c-4c0e-9a54-1d8c5f0a7a11", &other)).await;
    refused.is_problem(409, "IDEMPOTENCY_CONFLICT");

    let path = format!("/payments/{}", id(&found));
    let seen = server.get(&path).await;
    assert_eq!((seen.payment(200, "CAPTURED"), seen.replayed()), (now, false));
    server
        .get("/payments/0b8e1e0a-6c1c-4c0e-9a54-1d8c5f0a7a11")
        .await
        .is_problem(404, "PAYMENT_NOT_FOUND");
    assert_eq!(rows(&db.url(), "select count(*) from payments").await, [["1"]]);
    server.stop().await;
}

async fn operations_repeat_and_refuse_as_the_contract_says(db: TestDb) {
    let server = Setup::of(&db).impatient().set("PAYMENT_VERIFY_INTERVAL_SEC", 3600).start().await;
    let one = id(&server.paid("pay-1", &payment("ok"), 201, "AUTHORIZED").await);
    let act =
        async |id: &str, verb: &str, key: &str, body: Value| server.act(id, verb, key, &body).await;

    act(&one, "capture", "c-1", json!({"amount": 101})).await.is_problem(422, "AMOUNT_TOO_HIGH");
    act(&one, "refund", "r-0", json!({})).await.is_problem(422, "PAYMENT_STATE_CONFLICT");
    let first = act(&one, "capture", "c-1", json!({"amount": 90})).await;
    assert_eq!(
        first.payment(200, "CAPTURED")["capturedAmount"],
        90,
        "a refused request leaves its key free"
    );
    assert!(!first.replayed());
    let again = act(&one, "capture", "c-1", json!({"amount": 90})).await;
    assert_eq!(
        (again.payment(200, "CAPTURED")["capturedAmount"].as_i64(), again.replayed()),
        (Some(90), true)
    );
    act(&one, "capture", "c-1", json!({"amount": 80}))
        .await
        .is_problem(409, "IDEMPOTENCY_CONFLICT");
    // Captured already: no second capture, whatever the key.
    assert_eq!(
        act(&one, "capture", "c-2", json!({})).await.payment(200, "CAPTURED")["capturedAmount"],
        90
    );
    act(&one, "void", "v-1", json!({})).await.is_problem(422, "PAYMENT_STATE_CONFLICT");

    act(&one, "refund", "r-1", json!({"amount": 91})).await.is_problem(422, "AMOUNT_TOO_HIGH");
    let part = act(&one, "refund", "r-1", json!({"amount": 60, "reason": "一泊短縮"})).await;
    let part = part.payment(200, "CAPTURED");
    assert_eq!(
        (&part["refundedAmount"], part["refunds"].as_array().map(Vec::len)),
        (&json!(60), Some(1))
    );
    assert_eq!(part["refunds"][0]["reason"], "一泊短縮");
    act(&one, "refund", "r-2", json!({"amount": 31})).await.is_problem(422, "AMOUNT_TOO_HIGH");
    let rest = act(&one, "refund", "r-2", json!({})).await.payment(200, "REFUNDED");
    assert_eq!(
        (&rest["refundedAmount"], rest["refunds"].as_array().map(Vec::len)),
        (&json!(90), Some(2))
    );
    let more = act(&one, "refund", "r-3", json!({})).await.payment(200, "REFUNDED");
    assert_eq!(more["refunds"].as_array().map(Vec::len), Some(2), "no second refund");
    let same = act(&one, "refund", "r-1", json!({"amount": 60, "reason": "一泊短縮"})).await;
    assert!(same.replayed());
    same.payment(200, "REFUNDED");

    let two = id(&server.paid("pay-2", &payment("ok"), 201, "AUTHORIZED").await);
    let voided = act(&two, "void", "v-1", json!({})).await.payment(200, "REFUNDED");
    assert_eq!((&voided["capturedAmount"], &voided["refundedAmount"]), (&json!(0), &json!(0)));
    act(&two, "void", "v-2", json!({})).await.payment(200, "REFUNDED");
    act(&two, "capture", "c-3", json!({})).await.is_problem(422, "PAYMENT_STATE_CONFLICT");

    let failed =
        server.ask(Request::pay("pay-3", &payment("declined"))).await.payment(402, "FAILED");
    let pending = server.paid("pay-4", &payment("lost_before_charge"), 202, "PENDING").await;
    for (payment, verb) in [
        (&failed, "capture"),
        (&failed, "void"),
        (&failed, "refund"),
        (&pending, "capture"),
        (&pending, "refund"),
    ] {
        let key = format!("{verb}-{}", payment["status"]);
        act(&id(payment), verb, &key, json!({})).await.is_problem(422, "PAYMENT_STATE_CONFLICT");
    }
    // Without a body everything is meant; without a key nothing is done.
    let five = id(&server.paid("pay-5", &payment("ok"), 201, "AUTHORIZED").await);
    let bare = Request::new("POST", &format!("/payments/{five}/capture"));
    server.ask(bare.clone()).await.is_problem(400, "IDEMPOTENCY_KEY_MISSING");
    let bare = server.ask(bare.header("idempotency-key", "c-5")).await;
    assert_eq!(bare.payment(200, "CAPTURED")["capturedAmount"], 100);
    server.stop().await;
}

async fn an_operation_in_doubt_is_told_as_202(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = Setup::of(&db).stripe(&gateway).set("PAYMENT_VERIFY_INTERVAL_SEC", 3600);
    let server = setup.start().await;
    let told = async |id: &str, verb: &str, body: Value| {
        let answer = server.act(id, verb, &format!("{verb}-{id}"), &body).await;
        let status = answer.json()["status"].as_str().unwrap_or_default().to_owned();
        let found = answer.payment(202, &status);
        is_placed(&answer);
        assert!(answer.retry_after() > 0 && found["verificationRequired"] == true, "{answer:?}");
        assert_eq!(found["verification"]["operation"], verb, "{found}");
        assert_eq!(found["pendingVerification"], true, "{found}");
        found
    };
    let one = id(&server.paid("pay-0001", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    let two = id(&server.paid("pay-0002", &payment("pm_card_visa"), 201, "AUTHORIZED").await);
    gateway.world.script(Operation::Capture, [Fault::ExecuteThenClose]);
    assert_eq!(told(&one, "capture", json!({})).await["status"], "AUTHORIZED");
    // While the capture is in doubt nothing else may begin, and a replay tells how it stands.
    server.act(&one, "void", "void-0001", &json!({})).await.is_problem(409, "PAYMENT_BUSY");
    let again = server.act(&one, "capture", &format!("capture-{one}"), &json!({})).await;
    assert_eq!(
        (again.payment(200, "AUTHORIZED")["pendingVerification"].as_bool(), again.replayed()),
        (Some(true), true)
    );
    verified(&server, &one, "CAPTURED").await;
    gateway.world.script(Operation::Cancel, [Fault::ExecuteThenSilence]);
    told(&two, "void", json!({})).await;
    verified(&server, &two, "REFUNDED").await;
    gateway.world.script(Operation::Refund, [Fault::fail_after()]);
    let refunding = told(&one, "refund", json!({"amount": 30})).await;
    assert_eq!(
        (&refunding["refundedAmount"], &refunding["refunds"][0]["status"]),
        (&json!(0), &json!("pending"))
    );
    verified(&server, &one, "CAPTURED").await;
    assert_eq!(gateway.world.violations(), []);
    assert_eq!((gateway.world.charged(&one), gateway.world.held(&two)), (70, 0));
    server.stop().await;
}

/// Asks the gateway now: what it says is taken over at once.
async fn verified(server: &Server, id: &str, status: &str) {
    let answer = server.ask(Request::new("POST", &format!("/payments/{id}/verify"))).await;
    let found = answer.payment(200, status);
    assert_eq!(found["pendingVerification"], false, "{found}");
    assert!(found.get("verificationRequired").is_none(), "{found}");
}

async fn lists_are_filtered_and_paged(db: TestDb) {
    let setup = Setup::of(&db).impatient().set("PAYMENT_VERIFY_INTERVAL_SEC", 3600);
    let server = setup.start().await;
    let mut made = Vec::new();
    for n in 0..7 {
        let mut body = payment(["ok", "declined", "charged_but_silent"][n % 3]);
        body["bookingId"] = json!(format!("b-{}", n / 4));
        body["userId"] = json!(format!("u-{}", n % 2));
        made.push(server.ask(Request::pay(format!("list-{n}"), &body)).await.json());
    }
    let ids = async |query: &str| -> Vec<usize> {
        let page = server.get(&format!("/payments?{query}")).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("application/json")),
            "{page:?}"
        );
        let page = page.json();
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{query}: {page}")).clone();
        items
            .iter()
            .map(|item| made.iter().position(|made| made["id"] == item["id"]).unwrap())
            .collect()
    };
    assert_eq!(ids("").await, [6, 5, 4, 3, 2, 1, 0], "newest first");
    assert_eq!(ids("status=AUTHORIZED").await, [6, 3, 0]);
    assert_eq!(ids("status=FAILED&bookingId=b-1").await, [4]);
    assert_eq!(ids("pendingVerification=true").await, [5, 2]);
    assert_eq!(ids("pendingVerification=false&status=PENDING").await, [] as [usize; 0]);
    assert_eq!(ids("bookingId=b-1").await, [6, 5, 4]);
    assert_eq!(ids("bookingId=b-2").await, [] as [usize; 0]);
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/payments?limit=3&cursor={cursor}")).await.json();
        pages.push(page["items"].as_array().unwrap().len());
        match page.get("nextCursor") {
            Some(next) => next.as_str().unwrap().clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(pages, [3, 3, 1]);
    for wrong in [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=x",
        "cursor=x",
        "status=paid",
        "status=authorized",
        "pendingVerification=yes",
        "colour=red",
        "limit=1&limit=2",
        "bookingId=%00",
    ] {
        server.get(&format!("/payments?{wrong}")).await.is_problem(400, "BAD_REQUEST");
    }
    server.stop().await;
}

async fn another_users_payment_is_nobodys_business(db: TestDb) {
    let server = Setup::of(&db).impatient().start().await;
    let pay = Request::pay("users-1", &payment("ok"));
    server.ask(pay.clone().header("x-user-id", "u-2")).await.is_problem(403, "FORBIDDEN");
    let found = server.ask(pay.clone().header("x-user-id", "u-1")).await.payment(201, "AUTHORIZED");
    server.ask(pay.header("x-user-id", "u-2")).await.is_problem(403, "FORBIDDEN");
    let id = id(&found);
    for path in [format!("/payments/{id}"), format!("/payments/{id}/timeline")] {
        server
            .ask(Request::get(&path).header("x-user-id", "u-2"))
            .await
            .is_problem(403, "FORBIDDEN");
        server
            .ask(Request::get(&path).header("x-user-id", b"\xff"))
            .await
            .is_problem(403, "FORBIDDEN");
        assert_eq!(server.ask(Request::get(&path).header("x-user-id", "u-1")).await.status, 200);
    }
    for verb in ["capture", "void", "refund", "verify"] {
        let act =
            Request::act(&id, verb, format!("{verb}-users"), &json!({})).header("x-user-id", "u-2");
        server.ask(act).await.is_problem(403, "FORBIDDEN");
    }
    // Two names are none.
    let both = Request::get(&format!("/payments/{id}"))
        .header("x-user-id", "u-1")
        .header("x-user-id", "u-2");
    server.ask(both).await.is_problem(403, "FORBIDDEN");
    let listed = async |user: &str| {
        let list = Request::get("/payments").header("x-user-id", user);
        server.ask(list).await.json()["items"].as_array().unwrap().len()
    };
    assert_eq!((listed("u-1").await, listed("u-2").await), (1, 0));
    let act = Request::act(&id, "capture", "capture-users", &json!({})).header("x-user-id", "u-1");
    server.ask(act).await.payment(200, "CAPTURED");
    server.stop().await;
}
