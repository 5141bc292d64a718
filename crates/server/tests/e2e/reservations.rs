//! Reservations from the outside: what callers are answered, word for word.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::payments::Gateway;
use crate::support::{Answer, Request, Server, Setup, rows};
use crate::webhooks::stripe;

on_both!(
    a_reservation_goes_through_its_life,
    callers_are_told_what_is_wrong,
    a_slot_and_a_cancellation_that_come_too_late,
    lists_and_slots_are_shown,
    races_are_logged_shown_and_counted,
);

pub const DAY: &str = "2099-12-24";
pub const AMOUNT: i64 = 1500;

pub fn setup(db: &TestDb, gateway: &Gateway) -> Setup {
    Setup::of(db)
        .stripe(gateway)
        .set("PAYMENT_GATEWAY_TIMEOUT_MS", 5000)
        .set("STRIPE_WEBHOOK_SECRET", "whsec_new")
        .set("OUTBOX_WEBHOOKS_BACKOFF_SEC", "0.01")
        .set("CHECKOUT_SUCCESS_URL", "https://shop.example/paid")
        .set("CHECKOUT_CANCEL_URL", "https://shop.example/back")
}

pub fn body(user: &str, slot: i64) -> Value {
    json!({"videoId": 7, "projectionDate": DAY, "slotNumber": slot, "userId": user,
        "userEmail": format!("{user}@example.com"), "amount": AMOUNT, "currency": "JPY"})
}

pub fn hold(key: &str, body: &Value) -> Request {
    Request::json("/reservations", body).header("idempotency-key", key)
}

pub fn to(id: &str, verb: &str) -> Request {
    Request::new("POST", &format!("/reservations/{id}/{verb}"))
}

#[track_caller]
pub fn held(answer: &Answer) -> String {
    let body = answer.json();
    assert_eq!((answer.status, body["status"].as_str()), (201, Some("hold")), "{answer:?}");
    let id = body["reservationId"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), Some(format!("/reservations/{id}").as_str()));
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["expiresAt", "reservationId", "status"]);
    id
}

pub async fn reservation(server: &Server, id: &str) -> Value {
    let answer = server.get(&format!("/reservations/{id}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

pub async fn when(server: &Server, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(id, async || Some(reservation(server, id).await).filter(&wanted)).await
}

/// Tells the server what the gateway has to say about a session.
pub async fn tell(server: &Server, gateway: &Gateway, session: &str) {
    for event in gateway.world.events() {
        let about = event["data"]["object"]["id"] == session;
        if about && event["type"] == "checkout.session.completed" {
            let answer = server.ask(stripe(&event.to_string())).await;
            assert_eq!(answer.status, 204, "{answer:?}");
        }
    }
}

async fn a_reservation_goes_through_its_life(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).start().await;
    let id = held(&server.ask(hold("life-1", &body("u-1", 3))).await);
    let again = server.ask(hold("life-1", &body("u-1", 3))).await;
    assert_eq!((again.status, again.replayed()), (200, true), "{again:?}");
    assert_eq!(again.json()["reservationId"], json!(id));

    let opened = server.ask(to(&id, "checkout")).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    let page = opened.json();
    assert!(page["url"].as_str().unwrap().starts_with("https://"), "{page}");
    let shown = reservation(&server, &id).await;
    assert_eq!(page["expiresAt"], shown["expiresAt"], "closed when the hold is over");
    assert_eq!(server.ask(to(&id, "checkout")).await.json(), page, "the same page");

    let session = page["sessionId"].as_str().unwrap();
    assert!(gateway.world.customer_pays(session));
    tell(&server, &gateway, session).await;
    let confirmed = when(&server, &id, |found| found["status"] == "confirmed").await;
    assert_eq!(confirmed["payment"]["status"], "CAPTURED");
    assert!(confirmed["confirmedAt"].is_string());
    let payment = server.payment(confirmed["paymentId"].as_str().unwrap()).await;
    assert_eq!(payment["bookingId"], json!(id));
    server.ask(to(&id, "checkout")).await.is_problem(409, "CANNOT_CHECK_OUT");

    let cancelled = server.ask(to(&id, "cancel")).await;
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (200, &json!("cancelled")));
    let twice = server.ask(to(&id, "cancel").header("idempotency-key", "c-1")).await;
    assert_eq!((twice.status, &twice.json()["status"]), (200, &json!("cancelled")));
    let refunded = |found: &Value| found["payment"]["refundedAmount"] == AMOUNT;
    let over = when(&server, &id, refunded).await;
    assert!(over["cancelledAt"].is_string());
    let paid_by = confirmed["paymentId"].as_str().unwrap();
    let world = &gateway.world;
    assert_eq!((world.captured(paid_by), world.charged(paid_by)), (AMOUNT, 0));
    held(&server.ask(hold("life-2", &body("u-2", 3))).await);
    server.stop().await;
}

async fn callers_are_told_what_is_wrong(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).start().await;
    let none = server.ask(Request::json("/reservations", &body("u-1", 3))).await;
    none.is_problem(400, "IDEMPOTENCY_KEY_MISSING");
    let mut named = body("u-1", 3);
    named["idempotencyKey"] = json!("in-the-body");
    server.ask(hold("in-the-header", &named)).await.is_problem(422, "IDEMPOTENCY_MISMATCH");
    let long = "k".repeat(65);
    server.ask(hold(&long, &body("u-1", 3))).await.is_problem(400, "IDEMPOTENCY_KEY_INVALID");
    for (field, value) in [
        ("projectionDate", json!("2026-02-30")),
        ("projectionDate", json!("tomorrow")),
        ("projectionDate", json!("1999-12-31")),
        ("slotNumber", json!(0)),
        ("slotNumber", json!(21)),
        ("slotNumber", json!("3")),
        ("videoId", json!(1.5)),
        ("userEmail", json!("x")),
        ("amount", json!(0)),
        ("currency", json!("YEN!")),
    ] {
        let mut bad = body("u-1", 3);
        bad[field] = value;
        let answer = server.ask(hold("bad", &bad)).await;
        answer.is_problem(422, "VALIDATION_ERROR");
        assert!(answer.body.contains(field), "{answer:?}");
    }
    assert_eq!(rows(&db.url(), "select count(*) from reservations").await, [["0"]]);
    let timers = "select count(*) from outbox where kind = 'hold_expiry'";
    assert_eq!(rows(&db.url(), timers).await, [["0"]]);

    let id = held(&server.ask(hold("k-1", &body("u-1", 3))).await);
    server.ask(hold("k-1", &body("u-1", 4))).await.is_problem(409, "IDEMPOTENCY_CONFLICT");
    let taken = server.ask(hold("k-2", &body("u-2", 3))).await;
    taken.is_problem(409, "SLOT_ALREADY_TAKEN");
    let japanese = hold("k-2", &body("u-2", 3)).header("accept-language", "ja");
    let told = server.ask(japanese).await.json();
    assert_eq!(told["detail"], "このスロットは既に予約されています");
    let mine = |request: Request| request.header("x-user-id", "u-1");
    let theirs = |request: Request| request.header("x-user-id", "u-2");
    let path = format!("/reservations/{id}");
    assert_eq!(server.ask(mine(Request::get(&path))).await.status, 200);
    for request in [
        Request::get(&path),
        to(&id, "cancel"),
        to(&id, "checkout"),
        hold("k-3", &body("u-1", 5)),
        Request::get("/reservations?userId=u-1"),
    ] {
        server.ask(theirs(request)).await.is_problem(403, "FORBIDDEN");
    }
    let unknown = "00000000-0000-7000-8000-000000000000";
    for id in [unknown, "7"] {
        server.get(&format!("/reservations/{id}")).await.is_problem(404, "RESERVATION_NOT_FOUND");
        for verb in ["cancel", "checkout"] {
            server.ask(to(id, verb)).await.is_problem(404, "RESERVATION_NOT_FOUND");
        }
    }
    for query in ["/slots", "/slots?date=2026-02-30", "/slots?day=x", "/reservations?status=x"] {
        server.get(query).await.is_problem(400, "BAD_REQUEST");
    }
    assert_eq!(rows(&db.url(), "select count(*) from reservations").await, [["1"]]);
    assert_eq!(rows(&db.url(), timers).await, [["1"]]);
    assert_eq!(rows(&db.url(), "select count(*) from payments").await, [["0"]]);
    server.stop().await;
}

async fn a_slot_and_a_cancellation_that_come_too_late(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).set("RESERVATION_HOLD_SEC", "0.2").start().await;
    let id = held(&server.ask(hold("k-1", &body("u-1", 3))).await);
    when(&server, &id, |found| found["status"] == "expired").await;
    let refused = server.ask(to(&id, "cancel").header("accept-language", "ja")).await;
    refused.is_problem(409, "CANNOT_CANCEL");
    assert_eq!(refused.json()["detail"], "予約をキャンセルできません");
    server.ask(to(&id, "checkout")).await.is_problem(409, "CANNOT_CHECK_OUT");
    held(&server.ask(hold("k-2", &body("u-2", 3))).await);
    server.stop().await;
}

async fn lists_and_slots_are_shown(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).set("RESERVATION_SLOTS_PER_DAY", 4).start().await;
    let mut ids = Vec::new();
    for slot in 1..=3 {
        let user = if slot == 3 { "u-2" } else { "u-1" };
        ids.push(held(&server.ask(hold(&format!("k-{slot}"), &body(user, slot))).await));
    }
    server.ask(to(&ids[1], "cancel")).await;
    let list = async |query: &str| -> Vec<Value> {
        let page = server.get(&format!("/reservations?{query}")).await.json();
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["reservationId"].clone()).collect()
    };
    assert_eq!(list("").await, [json!(ids[2]), json!(ids[1]), json!(ids[0])]);
    assert_eq!(list("status=cancelled").await, [json!(ids[1])]);
    assert_eq!(list("userId=u-2").await, [json!(ids[2])]);
    assert_eq!(list("date=2099-12-25").await, [] as [Value; 0]);
    let page = server.get("/reservations?limit=2").await.json();
    let next = page["nextCursor"].as_str().unwrap();
    assert_eq!(list(&format!("limit=2&cursor={next}")).await, [json!(ids[0])]);
    let slots = server.get(&format!("/slots?date={DAY}")).await.json();
    let statuses: Vec<&str> =
        slots["items"].as_array().unwrap().iter().map(|s| s["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["hold", "free", "hold", "free"]);
    assert_eq!(slots["date"], DAY);
    server.stop().await;
}

async fn races_are_logged_shown_and_counted(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).set("RESERVATION_HOLD_SEC", "1").start().await;
    let id = held(&server.ask(hold("k-1", &body("u-1", 3))).await);
    let page = server.ask(to(&id, "checkout")).await.json();
    // The message is lost: the server finds out when it closes the page.
    assert!(gateway.world.customer_pays(page["sessionId"].as_str().unwrap()));
    let over = when(&server, &id, |found| found["payment"]["refundedAmount"] == AMOUNT).await;
    assert_eq!(over["status"], "expired");
    assert_eq!(over["races"][0]["scenario"], "EXPIRED_AFTER_PAYMENT");
    let line =
        server.log.until("the race", |event| event["event"] == "RACE_CONDITION_DETECTED").await;
    assert_eq!(line["scenario"], "EXPIRED_AFTER_PAYMENT");
    assert_eq!(line["resolution"], "REFUNDED");
    assert_eq!(line["reservation_id"], json!(id));
    server.log.until("the refund", |e| e["event"] == "EXPIRED_RESERVATION_REFUNDED").await;
    assert!(!server.log.text().contains("u-1@example.com"), "addresses are nobody's business");
    let races = server.get("/races?scenario=EXPIRED_AFTER_PAYMENT").await.json();
    assert_eq!(races["items"][0]["subjectId"], json!(id));
    assert_eq!(server.get("/races?resolution=RETRY").await.json()["items"], json!([]));
    let metrics = server.get("/metrics").await.body;
    let counted =
        "race_conditions_total{scenario=\"EXPIRED_AFTER_PAYMENT\",resolution=\"REFUNDED\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    server.stop().await;
}
