//! The log: JSON lines with the fields that operators look for, and nothing that is nobody's business.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tashika_domain::order::broker_code;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{Broker, Request, Setup, order, rows};

on_both!(every_attempt_is_logged_with_its_fields_and_no_secret_is);

const TOKEN: &str = "planted-api-token-4711";
const TAG: &str = "planted-tag-4711";
const ORDER_ID: &str = "planted-order-4711";
const KEYS: [&str; 3] =
    ["planted-key-4711-ok", "planted-key-4711-retry", "planted-key-4711-refused"];

async fn every_attempt_is_logged_with_its_fields_and_no_secret_is(db: TestDb) {
    let broker = Broker::with_keys().await;
    broker.scripted.script_for(KEYS[1], [Act::busy(), Act::Fail { executed: false }]);
    broker.scripted.script_for(KEYS[2], [Act::refuse(broker_code::BAD_REQUEST)]);
    let setup = Setup::of(&db)
        .broker(&broker)
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("TASHIKA_LOG", "trace,tokio_postgres=trace");
    let server = setup.start().await;
    for key in KEYS {
        let mut body = order(key);
        body["tags"] = json!([TAG]);
        body["order_id"] = json!(ORDER_ID);
        let place = Request::order(&body)
            .token(TOKEN)
            .header("x-request-id", format!("id-of-{}", &key[17..]));
        assert_eq!(server.ask(place.clone()).await.status, 201);
        let status =
            if key == KEYS[2] { "an effect was given up" } else { "an effect was performed" };
        let hash = hashed(key);
        server
            .log
            .until("the end", |event| {
                event["idempotency_key"] == *hash && event["message"] == status
            })
            .await;
        server.ask(place).await;
        let mut other = body.clone();
        other["qty"] = json!(7);
        server
            .ask(Request::order(&other).token(TOKEN))
            .await
            .is_problem(409, "IDEMPOTENCY_CONFLICT");
        other["side"] = json!("HOLD");
        server.ask(Request::order(&other).token(TOKEN)).await.is_problem(422, "VALIDATION_ERROR");
        server.ask(Request::get(&format!("/do/order/{key}")).token(TOKEN)).await;
        server
            .ask(Request::order(&body).token("wrong-token-4711"))
            .await
            .is_problem(401, "UNAUTHORIZED");
        let unread = body.to_string().replace('}', "");
        server.ask(Request::post(key, unread).token(TOKEN)).await.is_problem(400, "INVALID_JSON");
    }
    let log = server.stop().await;

    let events = log.events();
    for event in &events {
        for field in ["timestamp", "level", "target"] {
            assert!(event[field].is_string(), "{event}");
        }
    }
    attempts(&db, &events, KEYS[0], &[("succeeded", 0, None)]).await;
    let retried = [
        ("failed", 1, Some("BROKER_RATE_LIMITED")),
        ("failed", 2, Some("BROKER_5XX")),
        ("succeeded", 2, None),
    ];
    attempts(&db, &events, KEYS[1], &retried).await;
    attempts(&db, &events, KEYS[2], &[("aborted", 1, Some("BROKER_BAD_REQUEST"))]).await;
    let requests: Vec<&Value> =
        events.iter().filter(|event| event["message"] == "request").collect();
    assert!(
        requests.iter().any(|event| event["request_id"] == "id-of-ok" && event["status"] == 201)
    );
    for event in requests {
        assert!(event["latency_ms"].is_number() && event["request_id"].is_string(), "{event}");
    }

    let text = log.text();
    let secret = Broker::secret();
    for planted in
        [TOKEN, TAG, ORDER_ID, "planted", "wrong-token", &secret, "the broker's", "postgres://"]
    {
        assert!(!text.contains(planted), "the log has {planted}: {text}");
    }
}

/// The first 16 digits of the key's SHA-256.
fn hashed(key: &str) -> String {
    let eight = Sha256::digest(key)[..8].try_into().unwrap();
    format!("{:016x}", u64::from_be_bytes(eight))
}

/// Compares the lines about one order's attempts with what must stand there.
async fn attempts(
    db: &TestDb,
    events: &[Value],
    key: &str,
    expected: &[(&str, u64, Option<&str>)],
) {
    let lines: Vec<&Value> =
        events.iter().filter(|event| event["idempotency_key"] == *hashed(key)).collect();
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    let known = rows(&db.url(), "select count(*) from outbox").await;
    assert_eq!(known, [["3"]]);
    for (line, (status, attempts, reason)) in lines.iter().zip(expected) {
        assert_eq!(line["status"], *status, "{line}");
        assert_eq!(line["attempts"], *attempts, "{line}");
        assert_eq!(line.get("reason_code").and_then(Value::as_str), *reason, "{line}");
        assert_eq!(line["adapter"], "http", "{line}");
        assert_eq!(line["outbox_id"], lines[0]["outbox_id"], "{line}");
        assert!(line["outbox_id"].is_string() && line["latency_ms"].is_number(), "{line}");
    }
}
