//! One trace per payment, logs without anybody's data, and an API description that covers it all.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::payments::{Gateway, STRIPE_KEY, id, payment};
use crate::support::{Request, Setup};

on_both!(logs_tell_what_happened_and_nothing_about_anybody);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A gateway of one's own that only ever fails, and keeps what it was sent.
async fn listener() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let text = head(&mut stream).await;
                kept.lock().unwrap().push(text);
                // A failure that says nothing; the client goes on to ask.
                stream
                    .write_all(
                        b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    )
                    .await
                    .ok();
            });
        }
    });
    (format!("http://{address}"), heard)
}

async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A gateway of one's own is; Stripe is not part of anybody's traces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_is_told_the_trace_of_the_request_sqlite() {
    let (db, (base, heard)) = (TestDb::sqlite(), listener().await);
    let server = Setup::of(&db)
        .impatient()
        .set("PAYMENT_GATEWAY", "http")
        .set("PAYMENT_HTTP_URL", base)
        .set("PAYMENT_HTTP_TOKEN", "a-token-of-many-letters")
        .start()
        .await;
    let traced = Request::pay("trace-0001", &payment("pm_card_visa"))
        .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"));
    let answer = server.ask(traced).await;
    answer.payment(202, "PENDING");
    let told = answer.header("traceparent").unwrap_or_default();
    assert!(told.starts_with(&format!("00-{TRACE}-")), "{answer:?}");
    let heard = heard.lock().unwrap().clone();
    let trace = format!("traceparent: 00-{TRACE}-");
    assert!(heard[0].to_ascii_lowercase().contains(&trace), "{heard:?}");
    server.stop().await;
}

async fn logs_tell_what_happened_and_nothing_about_anybody(db: TestDb) {
    let gateway = Gateway::start().await;
    let token = "planted-api-token-4711";
    let setup = Setup::of(&db)
        .stripe(&gateway)
        .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 2)
        .set("TASHIKA_API_TOKENS", token)
        .set("TASHIKA_LOG", "trace");
    let server = setup.start().await;
    gateway.world.add_customer("cus_planted");
    let mut body = payment("pm_card_visa");
    for (field, value) in [
        ("bookingId", "planted-booking"),
        ("userId", "planted-user"),
        ("customer", "cus_planted"),
        ("description", "planted-description"),
    ] {
        body[field] = json!(value);
    }
    let ask = async |request: Request| server.ask(request.token(token)).await;
    let pay = |key: &str| {
        Request::pay(key, &body).header("x-user-id", "planted-user").header("x-request-id", "pay-1")
    };
    let one = id(&ask(pay("planted-key-1")).await.payment(201, "AUTHORIZED"));
    ask(Request::act(&one, "capture", "planted-key-2", &json!({}))).await.payment(200, "CAPTURED");
    let refund = json!({"amount": 10, "reason": "planted-reason"});
    ask(Request::act(&one, "refund", "planted-key-3", &refund)).await.payment(200, "CAPTURED");
    ask(Request::get("/payments?bookingId=planted-booking")).await;
    ask(Request::get(&format!("/payments/{one}")).header("x-user-id", "planted-stranger")).await;
    // Refused, in doubt, given up, decided.
    ask(Request::pay("planted-key-4", &json!({"userId": 7, "description": "planted"}))).await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    gateway.world.usually(Operation::Retrieve, Fault::fail_before());
    let lost = id(&ask(pay("planted-key-5")).await.payment(202, "PENDING"));
    let gave_up = |event: &Value| event["payment_id"] == *lost && event["level"] == "ERROR";
    server.log.until("the end of asking", gave_up).await;
    let decision = json!({"outcome": "charged", "note": "planted-note"});
    ask(Request::json(&format!("/payments/{lost}/resolve"), &decision))
        .await
        .payment(200, "AUTHORIZED");
    let log = server.stop().await;

    let events = log.events();
    for event in &events {
        for field in ["timestamp", "level", "target"] {
            assert!(event[field].is_string(), "{event}");
        }
    }
    let moved = |from: &str, to: &str| {
        events.iter().any(|e| e["payment_id"] == *one && e["from"] == from && e["to"] == to)
    };
    assert!(moved("PENDING", "AUTHORIZED") && moved("AUTHORIZED", "CAPTURED"), "{}", log.text());
    let text = log.text();
    for planted in ["planted", STRIPE_KEY, "postgres://"] {
        let line = text.lines().find(|line| line.contains(planted));
        assert!(line.is_none(), "the log has {planted}: {line:?}");
    }
}

#[tokio::test]
async fn the_description_and_the_errors_cover_every_route_of_payments_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).start().await;
    let api = server.get("/openapi.json").await.json();
    for (method, path, statuses) in [
        ("post", "/payments", &[200, 201, 202, 400, 402, 403, 409, 422, 503][..]),
        ("get", "/payments", &[200, 400, 403]),
        ("get", "/payments/{id}", &[200, 403, 404]),
        ("get", "/payments/{id}/timeline", &[200, 403, 404]),
        ("post", "/payments/{id}/capture", &[200, 202, 400, 402, 403, 404, 409, 422]),
        ("post", "/payments/{id}/void", &[200, 202, 400, 402, 403, 404, 409, 422]),
        ("post", "/payments/{id}/refund", &[200, 202, 400, 402, 403, 404, 409, 422]),
        ("post", "/payments/{id}/verify", &[200, 202, 403, 404]),
        ("post", "/payments/{id}/resolve", &[200, 400, 404, 409, 422]),
        ("get", "/cases", &[200, 400]),
        ("get", "/alerts", &[200, 400]),
    ] {
        let operation = &api["paths"][path][method];
        assert!(operation["operationId"].is_string(), "{method} {path} is not described");
        for status in statuses {
            assert!(
                operation["responses"][status.to_string()].is_object(),
                "{method} {path}: {status}"
            );
        }
    }
    let schemas = &api["components"]["schemas"];
    for (schema, fields) in [
        (
            "Payment",
            &[
                "id",
                "status",
                "reason",
                "amount",
                "currency",
                "capturedAmount",
                "refundedAmount",
                "pendingVerification",
                "verificationRequired",
                "gatewayTransactionId",
                "createdAt",
                "updatedAt",
            ][..],
        ),
        (
            "PaymentRequest",
            &[
                "bookingId",
                "userId",
                "amount",
                "currency",
                "paymentMethod",
                "customer",
                "description",
                "capture",
            ],
        ),
        (
            "Case",
            &["id", "kind", "status", "subjectType", "subjectId", "summary", "actions", "openedAt"],
        ),
        ("Alert", &["id", "rule", "severity", "state", "count", "firedAt", "resolvedAt", "labels"]),
    ] {
        for field in fields {
            assert!(
                schemas[schema]["properties"][field].is_object(),
                "{schema}.{field}: {}",
                schemas[schema]
            );
        }
    }
    let errors = server.get("/docs/errors").await;
    assert_eq!(errors.status, 200, "{errors:?}");
    for code in [
        "IDEMPOTENCY_KEY_MISSING",
        "IDEMPOTENCY_KEY_INVALID",
        "IDEMPOTENCY_CONFLICT",
        "IDEMPOTENCY_IN_PROGRESS",
        "PAYMENT_NOT_FOUND",
        "PAYMENT_BUSY",
        "PAYMENT_STATE_CONFLICT",
        "AMOUNT_TOO_HIGH",
        "NO_OPEN_CASE",
        "RESOLUTION_DOES_NOT_FIT",
        "VALIDATION_ERROR",
        "INVALID_JSON",
        "UNSUPPORTED_MEDIA_TYPE",
        "FORBIDDEN",
        "STORE_UNAVAILABLE",
        "BAD_REQUEST",
        "UNAUTHORIZED",
        "PAYLOAD_TOO_LARGE",
    ] {
        assert!(errors.body.contains(code), "{code} is not explained");
    }
    server.stop().await;
}
