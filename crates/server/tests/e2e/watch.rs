//! Watching and acting from the outside: a case with its evidence, a decision, alerts that people are told about.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Request, Server, Setup};

on_both!(
    a_case_is_looked_at_and_decided,
    alerts_are_acknowledged_and_silenced,
    a_notification_survives_a_kill,
);

const TOKEN: &str = "a-token-of-many-letters";

pub fn mute(gateway: &Gateway) {
    for operation in [Operation::Retrieve, Operation::List, Operation::Search, Operation::Refunds] {
        gateway.world.usually(operation, Fault::DropBefore);
    }
}

pub fn setup(db: &TestDb, gateway: &Gateway) -> Setup {
    Setup::of(db)
        .stripe(gateway)
        .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 1)
        .set("ALERT_INTERVAL_SEC", "0.3")
}

/// A payment that nobody can say anything about, and its case.
pub async fn stuck(server: &Server, gateway: &Gateway, key: &str) -> (String, Value) {
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    mute(gateway);
    let found = server.paid(key, &payment("pm_card_visa"), 202, "PENDING").await;
    server.payment_given_up(&id(&found)).await;
    let path = format!("/cases?subjectType=payment&subjectId={}", id(&found));
    let page = server.get(&path).await.json();
    (id(&found), page["items"][0].clone())
}

fn act(case: &Value, action: &str, body: &Value) -> Request {
    Request::json(&format!("/cases/{}/actions/{action}", case["id"].as_str().unwrap()), body)
}

async fn a_case_is_looked_at_and_decided(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).start().await;
    let (payment, case) = stuck(&server, &gateway, "watch-0001").await;
    let mut fields: Vec<&str> = case.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let mut expected =
        ["id", "kind", "status", "subjectType", "subjectId", "summary", "actions", "openedAt"];
    expected.sort_unstable();
    assert_eq!(fields, expected);

    let path = format!("/cases/{}", case["id"].as_str().unwrap());
    let found = server.get(&path).await.json();
    assert_eq!(found["actions"], json!(["charged", "not_charged", "refunded", "verify"]));
    for choice in found["choices"].as_array().unwrap() {
        for field in ["action", "label", "consequence", "confirm"] {
            assert!(choice[field].as_str().is_some_and(|text| !text.is_empty()), "{choice}");
        }
        assert!(choice["needsNote"].is_boolean(), "{choice}");
    }
    let times: Vec<&str> =
        found["timeline"].as_array().unwrap().iter().map(|l| l["at"].as_str().unwrap()).collect();
    assert!(times.len() > 3 && times.is_sorted(), "{found}");
    assert!(found["tried"]["asked"].as_u64() > Some(0), "{found}");
    let japanese = server.ask(Request::get(&path).header("accept-language", "ja")).await.json();
    assert_ne!(japanese["choices"][0]["label"], found["choices"][0]["label"]);

    let charged = json!({"note": "seen in the dashboard"});
    server.ask(act(&case, "charged", &json!({}))).await.is_problem(422, "VALIDATION_ERROR");
    let card = json!({"note": "4242 4242 4242 4242"});
    server.ask(act(&case, "charged", &card)).await.is_problem(422, "VALIDATION_ERROR");
    server.ask(act(&case, "requeue", &charged)).await.is_problem(409, "CASE_ACTION_NOT_ALLOWED");
    let first = server.ask(act(&case, "charged", &charged).header("x-user-id", "mika")).await;
    assert_eq!(first.status, 200, "{first:?}");
    let closed = first.json();
    assert_eq!(
        (&closed["status"], &closed["resolution"], &closed["resolvedBy"], &closed["note"]),
        (&json!("resolved"), &json!("charged"), &json!("mika"), &charged["note"])
    );
    let again = server.ask(act(&case, "charged", &charged).header("x-user-id", "mika")).await;
    assert_eq!((again.status, again.json()), (200, closed), "a repeat is answered as the first");
    let other = server.ask(act(&case, "refunded", &charged).header("x-user-id", "ken")).await;
    other.is_problem(409, "CASE_ALREADY_RESOLVED");
    assert_eq!(server.payment(&payment).await["status"], "AUTHORIZED");
    let after = server.get(&path).await.json();
    assert_eq!((&after["actions"], &after["choices"]), (&json!([]), &json!([])));
    let audit = server.get("/audit-logs?action=case.resolved").await.json();
    let line = &audit["items"][0];
    assert_eq!((&line["actorId"], &line["targetId"]), (&json!("mika"), &case["id"]));
    for missing in ["/cases/x", "/cases/00000000-0000-7000-8000-000000000000"] {
        server.get(missing).await.is_problem(404, "CASE_NOT_FOUND");
    }
    server.stop().await;
}

async fn alerts_are_acknowledged_and_silenced(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway).set("TASHIKA_API_TOKENS", TOKEN).start().await;
    let ask = async |request: Request| server.ask(request.token(TOKEN)).await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenClose]);
    mute(&gateway);
    let paid = ask(Request::pay("watch-0002", &payment("pm_card_visa"))).await;
    assert_eq!(paid.status, 202, "{paid:?}");
    let alert = until("a critical alert", async || {
        let page = ask(Request::get("/alerts?severity=critical&rule=manual_case")).await.json();
        page["items"].as_array().unwrap().first().cloned()
    })
    .await;
    for field in ["id", "rule", "severity", "state", "count", "firedAt", "resolvedAt", "labels"] {
        assert!(alert.get(field).is_some(), "{field}: {alert}");
    }
    assert_eq!((&alert["count"], &alert["labels"]["payment_unknown"]), (&json!(1), &json!("1")));
    let path = |verb: &str| format!("/alerts/{}/{verb}", alert["id"].as_str().unwrap());
    let seen = ask(Request::new("POST", &path("acknowledge")).header("x-user-id", "mika")).await;
    assert_eq!((seen.status, &seen.json()["acknowledgedBy"]), (200, &json!("mika")));
    let late = ask(Request::json(&path("acknowledge"), &json!({"note": "me too"}))).await;
    assert_eq!(late.json()["acknowledgedBy"], "mika");
    ask(Request::json(&path("silence"), &json!({"minutes": 5})))
        .await
        .is_problem(422, "VALIDATION_ERROR");
    let silence = json!({"minutes": 5, "reason": "known"});
    let silenced = ask(Request::json(&path("silence"), &silence)).await.json();
    assert!(silenced["silencedUntil"].is_string(), "{silenced}");
    let ended =
        ask(Request::json(&path("silence"), &json!({"minutes": 0, "reason": "over"}))).await;
    assert!(ended.json().get("silencedUntil").is_none(), "{ended:?}");
    let audit = ask(Request::get("/audit-logs?targetType=alert")).await.json();
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|l| l["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["alert.unsilenced", "alert.silenced", "alert.acknowledged"]);
    let rules = ask(Request::get("/alerts/rules")).await.json();
    let manual = rules["items"].as_array().unwrap().iter().find(|r| r["name"] == "manual_case");
    assert!(manual.is_some_and(|rule| rule["expression"] == "sum(max by (kind) (cases_open)) > 0"));
    ask(Request::new("POST", "/alerts/x/acknowledge")).await.is_problem(404, "ALERT_NOT_FOUND");
    server.ask(Request::get("/alerts")).await.is_problem(401, "UNAUTHORIZED");
    server.stop().await;
}

type Heard = Arc<Mutex<Vec<String>>>;

/// A chat that takes everything.
async fn chat(listener: TcpListener, heard: Heard) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let heard = Arc::clone(&heard);
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            while stream.read_buf(&mut bytes).await.unwrap_or(0) > 0 {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.parse::<usize>().ok())?
                });
                if length.is_some_and(|length| body.len() >= length) {
                    heard.lock().unwrap().push(text.clone());
                    let answer =
                        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    drop(stream.write_all(answer).await);
                    return;
                }
            }
        });
    }
}

/// The alert fires while nobody takes it, the process is killed, and the next one tells.
async fn a_notification_survives_a_kill(db: TestDb) {
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let setup = setup(&db, &gateway)
        .set("ALERT_WEBHOOK_URL", format!("http://{address}/chat"))
        .set("ALERT_WEBHOOK_SECRET", "whsec_dGFzaGlrYSBhbGVydHM=")
        .set("OUTBOX_EVENTS_BACKOFF_SEC", "0.2")
        .set("OUTBOX_EVENTS_MAX_ATTEMPTS", 1000)
        .set("OUTBOX_EVENTS_LOCK_LEASE_SEC", 2);
    let server = setup.start().await;
    stuck(&server, &gateway, "watch-0003").await;
    until("the alert", async || {
        let page = server.get("/alerts?rule=manual_case").await.json();
        page["items"].as_array().unwrap().first().map(drop)
    })
    .await;
    server.kill().await;

    let heard = Heard::default();
    let listener = TcpListener::bind(address).await.unwrap();
    let taking = tokio::spawn(chat(listener, Arc::clone(&heard)));
    let server = setup.start().await;
    let told = until("a notification", async || {
        let heard = heard.lock().unwrap();
        heard.iter().find(|text| text.contains("[CRITICAL] manual_case")).cloned()
    })
    .await;
    for header in ["webhook-id: ", "webhook-timestamp: ", "webhook-signature: v1,"] {
        assert!(told.to_ascii_lowercase().contains(header), "{told}");
    }
    server.stop().await;
    taking.abort();
}

#[tokio::test]
async fn every_route_is_described_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).start().await;
    let api = server.get("/openapi.json").await.json();
    for (method, path, statuses) in [
        ("get", "/cases/{id}", &[200, 404][..]),
        ("post", "/cases/{id}/actions/{action}", &[200, 400, 404, 409, 422]),
        ("get", "/alerts/rules", &[200]),
        ("get", "/alerts/{id}", &[200, 404]),
        ("post", "/alerts/{id}/acknowledge", &[200, 400, 404, 409, 422]),
        ("post", "/alerts/{id}/silence", &[200, 400, 404, 422]),
    ] {
        let operation = &api["paths"][path][method];
        for status in statuses {
            let described = operation["responses"][status.to_string()].is_object();
            assert!(described, "{method} {path}: {status}");
        }
    }
    server.stop().await;
}
