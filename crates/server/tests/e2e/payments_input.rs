//! What no payment should be made of: broken bodies, impossible amounts, strange keys, card numbers.
//!
//! Everything here is wrong in itself, so it is answered with a problem, and nothing is stored.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::payments::{id, payment};
use crate::support::{Request, Server, Setup, rows};

on_both!(
    a_wrong_payment_is_refused_and_its_key_stays_free,
    keys_are_required_and_checked,
    card_numbers_are_refused_and_kept_nowhere,
    wrong_operations_and_ids_are_refused,
);

const CARD: &str = "4242424242424242";

fn with(field: &str, value: Value) -> Value {
    let mut body = payment("ok");
    body[field] = value;
    body
}

async fn count(db: &TestDb) -> String {
    rows(&db.url(), "select count(*) from payments").await[0][0].clone()
}

async fn a_wrong_payment_is_refused_and_its_key_stays_free(db: TestDb) {
    let server = Setup::of(&db).impatient().start().await;
    let wrong = [
        ("amount", json!(0)),
        ("amount", json!(-100)),
        ("amount", json!(1.5)),
        ("amount", json!(1e300)),
        ("amount", json!(u64::MAX)),
        ("amount", json!(i64::MAX)),
        ("amount", json!("100")),
        ("amount", json!(null)),
        ("amount", json!([100])),
        ("amount", json!(true)),
        ("currency", json!("XXX")),
        ("currency", json!("EURO")),
        ("currency", json!("€")),
        ("currency", json!(978)),
        ("currency", json!("")),
        ("bookingId", json!("")),
        ("bookingId", json!("a\0b")),
        ("bookingId", json!("b".repeat(101))),
        ("bookingId", json!({"id": 1})),
        ("userId", json!(null)),
        ("userId", json!("u\0")),
        ("userId", json!("u".repeat(101))),
        ("paymentMethod", json!(7)),
        ("paymentMethod", json!("")),
        ("paymentMethod", json!("m".repeat(256))),
        ("customer", json!("")),
        ("customer", json!("\u{0}")),
        ("description", json!("確".repeat(201))),
        ("description", json!(["x"])),
        ("capture", json!("later")),
        ("capture", json!(true)),
    ];
    for (field, value) in wrong {
        let answer = server.ask(Request::pay("one-key-for-all", &with(field, value.clone()))).await;
        answer.is_problem(422, "VALIDATION_ERROR");
        let errors = answer.json()["errors"].clone();
        let fields: Vec<&str> =
            errors.as_array().unwrap().iter().filter_map(|e| e["field"].as_str()).collect();
        assert_eq!(fields, [field], "{value}: {answer:?}");
    }
    for field in ["bookingId", "userId", "amount", "currency", "paymentMethod"] {
        let mut body = payment("ok");
        body.as_object_mut().unwrap().remove(field);
        server
            .ask(Request::pay("one-key-for-all", &body))
            .await
            .is_problem(422, "VALIDATION_ERROR");
    }
    for body in [json!([]), json!("pay"), json!(5), json!(null), json!(true)] {
        server
            .ask(Request::pay("one-key-for-all", &body))
            .await
            .is_problem(422, "VALIDATION_ERROR");
    }
    let raw = |bytes: &[u8]| Request::pay("one-key-for-all", &json!({})).body(bytes);
    let huge = format!(r#"{{"amount":1{}}}"#, "0".repeat(400));
    let deep = "[".repeat(5000);
    let twice = r#"{"amount":1,"amount":2}"#;
    for bytes in [
        &b""[..],
        b"{",
        b"\xff\xfe",
        b"{}{}",
        b"\0",
        huge.as_bytes(),
        deep.as_bytes(),
        twice.as_bytes(),
    ] {
        server.ask(raw(bytes)).await.is_problem(400, "INVALID_JSON");
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"]
    {
        let form = raw(b"{}").without("content-type").header("content-type", kind);
        server.ask(form).await.is_problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    server.ask(raw(b"{}").without("content-type")).await.is_problem(415, "UNSUPPORTED_MEDIA_TYPE");
    let long = json!({"description": "x".repeat(2 << 20)});
    server.ask(Request::pay("one-key-for-all", &long)).await.is_problem(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(count(&db).await, "0");
    // The longest that fits, under the same key.
    let mut body = with("description", json!("確".repeat(200)));
    body["amount"] = json!(999_999_999_999_i64);
    body["currency"] = json!("jpy");
    let found = server.paid("one-key-for-all", &body, 201, "AUTHORIZED").await;
    assert_eq!(
        (&found["amount"], &found["currency"]),
        (&json!(999_999_999_999_i64), &json!("JPY"))
    );
    server.stop().await;
}

async fn keys_are_required_and_checked(db: TestDb) {
    let server = Setup::of(&db).impatient().start().await;
    let made = id(&server.paid("made-0001", &payment("ok"), 201, "AUTHORIZED").await);
    let paths = ["/payments".to_owned()].into_iter();
    let paths =
        paths.chain(["capture", "void", "refund"].map(|verb| format!("/payments/{made}/{verb}")));
    for path in paths {
        let bare = Request::json(&path, &payment("ok"));
        for missing in [
            bare.clone(),
            bare.clone().header("idempotency-key", ""),
            bare.clone().header("idempotency-key", r#""""#),
        ] {
            server.ask(missing).await.is_problem(400, "IDEMPOTENCY_KEY_MISSING");
        }
        let twice = bare
            .clone()
            .header("idempotency-key", "key-0001")
            .header("idempotency-key", "key-0001");
        server.ask(twice).await.is_problem(400, "IDEMPOTENCY_KEY_INVALID");
        let long = "k".repeat(256);
        for odd in [long.as_bytes(), "ключ".as_bytes(), b"a\tb", b"\xff\xfe"] {
            let odd = bare.clone().header("idempotency-key", odd);
            server.ask(odd).await.is_problem(400, "IDEMPOTENCY_KEY_INVALID");
        }
    }
    assert_eq!(count(&db).await, "1");
    // The same key means something else for a payment, a capture and a refund.
    server.act(&made, "capture", "made-0001", &json!({})).await.payment(200, "CAPTURED");
    server.act(&made, "refund", "made-0001", &json!({})).await.payment(200, "REFUNDED");
    // And for another payment it is another request's.
    let other = id(&server.paid("made-0002", &payment("ok"), 201, "AUTHORIZED").await);
    server
        .act(&other, "capture", "made-0001", &json!({}))
        .await
        .is_problem(409, "IDEMPOTENCY_CONFLICT");
    let longest = "k".repeat(255);
    server.paid(&longest, &payment("ok"), 201, "AUTHORIZED").await;
    server.stop().await;
}

async fn card_numbers_are_refused_and_kept_nowhere(db: TestDb) {
    let server = Setup::of(&db).impatient().set("TASHIKA_LOG", "trace").start().await;
    let made = id(&server.paid("made-0001", &payment("ok"), 201, "AUTHORIZED").await);
    for (field, value) in [
        ("paymentMethod", json!(CARD)),
        ("description", json!("4242 4242 4242 4242")),
        ("customer", json!("4242-4242-4242-4242")),
        ("bookingId", json!(CARD)),
        ("userId", json!(format!("u {CARD}"))),
        ("card", json!({"number": CARD, "cvc": "737"})),
        ("cardNumber", json!(CARD)),
        ("extra", json!({"nested": [{"pan": CARD}]})),
        ("amount", json!(4_242_424_242_424_242_i64)),
    ] {
        let answer = server.ask(Request::pay("card-0001", &with(field, value))).await;
        answer.is_problem(422, "VALIDATION_ERROR");
        assert!(!answer.body.contains("4242"), "repeated to the caller: {answer:?}");
    }
    for (verb, body) in [
        ("refund", json!({"amount": 1, "reason": format!("for {CARD}")})),
        ("capture", json!({"amount": 1, "note": CARD})),
        ("void", json!({"reason": CARD})),
    ] {
        let answer = server.act(&made, verb, "card-0002", &body).await;
        answer.is_problem(422, "VALIDATION_ERROR");
        assert!(!answer.body.contains("4242"), "{answer:?}");
    }
    // In a key it would be stored too.
    let answer = server.ask(Request::pay(CARD, &payment("ok"))).await;
    answer.is_problem(400, "IDEMPOTENCY_KEY_INVALID");
    server.get(&format!("/payments?bookingId={CARD}")).await;
    assert_eq!(count(&db).await, "1");
    let log = server.stop().await.text();
    for trace in [CARD, "4242 4242", "4242-4242", "737\""] {
        assert!(!log.contains(trace), "{trace} is in the log: {log}");
    }
    if let Some(file) = db.url().strip_prefix("sqlite:") {
        for file in [file.to_owned(), format!("{file}-wal")] {
            let bytes = std::fs::read(file).unwrap_or_default();
            let found = bytes.windows(CARD.len()).any(|window| window == CARD.as_bytes());
            assert!(!found, "a card number is in the file");
        }
    }
}

async fn wrong_operations_and_ids_are_refused(db: TestDb) {
    let server = Setup::of(&db).impatient().start().await;
    let made = id(&server.paid("made-0001", &payment("ok"), 201, "AUTHORIZED").await);
    let key = "wrong-0001";
    for amount in
        [json!(0), json!(-1), json!(0.5), json!("1"), json!(1e30), json!([]), json!(i64::MAX)]
    {
        for verb in ["capture", "refund"] {
            let body = json!({ "amount": amount });
            server.act(&made, verb, key, &body).await.is_problem(422, "VALIDATION_ERROR");
        }
    }
    server
        .act(&made, "refund", key, &json!({"reason": "r".repeat(501)}))
        .await
        .is_problem(422, "VALIDATION_ERROR");
    server
        .act(&made, "refund", key, &json!({"reason": "a\0b"}))
        .await
        .is_problem(422, "VALIDATION_ERROR");
    for verb in ["capture", "void", "refund"] {
        server.act(&made, verb, key, &json!([])).await.is_problem(422, "VALIDATION_ERROR");
        let broken = Request::act(&made, verb, key, &json!({})).body("{");
        server.ask(broken).await.is_problem(400, "INVALID_JSON");
        let form = Request::act(&made, verb, key, &json!({})).without("content-type");
        server
            .ask(form.header("content-type", "text/plain"))
            .await
            .is_problem(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let resolve = format!("/payments/{made}/resolve");
    for body in [
        json!({}),
        json!({"outcome": "charged"}),
        json!({"outcome": "maybe", "note": "x"}),
        json!({"outcome": "charged", "note": ""}),
        json!({"outcome": 1, "note": "x"}),
        json!({"outcome": "charged", "note": "n".repeat(501)}),
    ] {
        server.ask(Request::json(&resolve, &body)).await.is_problem(422, "VALIDATION_ERROR");
    }
    server
        .ask(Request::json(&resolve, &json!({"outcome": "charged", "note": "x"})))
        .await
        .is_problem(409, "NO_OPEN_CASE");
    unknown(&server).await;
    assert_eq!(server.payment(&made).await["status"], "AUTHORIZED");
    server.stop().await;
}

async fn unknown(server: &Server) {
    for id in ["00000000-0000-4000-8000-000000000000", "1", "x", "%00", "null", "..%2f..", "💶"] {
        let path = format!("/payments/{id}");
        server.get(&path).await.is_problem(404, "PAYMENT_NOT_FOUND");
        server.get(&format!("{path}/timeline")).await.is_problem(404, "PAYMENT_NOT_FOUND");
        for verb in ["capture", "void", "refund", "verify"] {
            server
                .act(id, verb, "unknown-0001", &json!({}))
                .await
                .is_problem(404, "PAYMENT_NOT_FOUND");
        }
        let decision = json!({"outcome": "charged", "note": "x"});
        server
            .ask(Request::json(&format!("{path}/resolve"), &decision))
            .await
            .is_problem(404, "PAYMENT_NOT_FOUND");
    }
    for (method, path) in [
        ("DELETE", "/payments"),
        ("PUT", "/payments/x"),
        ("GET", "/payments/x/capture"),
        ("POST", "/cases"),
        ("POST", "/alerts"),
    ] {
        server.ask(Request::new(method, path)).await.is_problem(405, "METHOD_NOT_ALLOWED");
    }
}
