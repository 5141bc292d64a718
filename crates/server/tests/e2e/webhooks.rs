//! Webhooks from the outside: what senders are answered, and what operators see.

use rusqlite::Connection;
use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tashika_providers::webhook::stripe_header;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::postgres::Cluster;
use tokio::task::block_in_place;

use crate::support::{Answer, Request, Server, Setup, rows};

on_both!(
    senders_are_answered_as_the_contract_says,
    operators_see_what_became_of_events,
    nothing_private_is_shown_or_logged,
    billings_and_audit_lines_are_shown,
    audit_verify_tells_by_its_exit_status,
);

const SECRET: &str = "whsec_new";
const OLD_SECRET: &str = "whsec_old";
pub const PAID: &str = "invoice.payment_succeeded";

pub fn setup(db: &TestDb) -> Setup {
    Setup::of(db)
        .set("STRIPE_WEBHOOK_SECRET", format!("{SECRET},{OLD_SECRET}"))
        .set("OUTBOX_WEBHOOKS_BACKOFF_SEC", "0.01")
}

pub fn event(id: &str, kind: &str, customer: &str) -> String {
    json!({"id": id, "object": "event", "type": kind, "created": 1_700_000_000,
        "data": {"object": {"id": "sub_1", "customer": customer, "client_secret": "s3cr3t",
            "customer_email": "planted@example.com", "amount": 3000}}})
    .to_string()
}

pub fn now() -> Timestamp {
    Clock::System.now()
}

fn header(secret: &str, body: &str) -> String {
    stripe_header(&SecretString::from(secret), body.as_bytes(), now())
}

pub fn to(path: &str, body: &str) -> Request {
    Request::new("POST", path).header("content-type", "application/json").body(body)
}

pub fn stripe(body: &str) -> Request {
    to("/webhooks/stripe", body).header("stripe-signature", header(SECRET, body))
}

#[track_caller]
pub fn taken(answer: &Answer, event_id: &str) -> String {
    assert_eq!((answer.status, answer.body.as_str()), (204, ""), "{answer:?}");
    assert_eq!(answer.header("x-event-id"), Some(event_id), "{answer:?}");
    assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()), "{answer:?}");
    answer.header("x-message-id").expect("our id").to_owned()
}

#[track_caller]
pub fn refused(answer: &Answer, code: &str, detail: &str) {
    answer.is_problem(400, code);
    assert_eq!(answer.json()["detail"], detail);
}

async fn count(db: &TestDb, table: &str) -> String {
    rows(&db.url(), &format!("select count(*) from {table}")).await[0][0].clone()
}

pub async fn ended(server: &Server, id: &str, status: &str) -> Value {
    let path = format!("/webhook-events/{id}");
    let found = until("the event's end", async || {
        Some(server.get(&path).await.json()).filter(|event| event["status"] != "pending")
    })
    .await;
    assert_eq!(found["status"], status, "{found}");
    found
}

pub async fn items(server: &Server, path: &str) -> Vec<Value> {
    let answer = server.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()["items"].as_array().unwrap().clone()
}

async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let request = Request::new("POST", path).header("content-type", "application/json");
    server.ask(request.body(body.to_string())).await
}

async fn senders_are_answered_as_the_contract_says(db: TestDb) {
    let setup = setup(&db).set("TASHIKA_BODY_LIMIT_BYTES", 4096).set("TASHIKA_API_TOKENS", "tok");
    let server = setup.start().await;
    let body = event("evt_1", "nobody.listens", "cus_1");
    let first = taken(&server.ask(stripe(&body)).await, "evt_1");
    // Again, under its other name, with the secret that is on its way out, as Stripe writes it.
    let signed = header(OLD_SECRET, &body);
    let (stamp, signature) = signed.split_once(",v1=").unwrap();
    let wrong = "0".repeat(64);
    for shape in [
        format!(
            "{stamp},v1={signature},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
        ),
        format!("{stamp},v1={wrong},v1={signature}"),
        signed.clone(),
    ] {
        let request = to("/api/v1/billing/webhook", &body).header("stripe-signature", &shape);
        let traced = request.header("x-request-id", "req-4711");
        let answer = server.ask(traced).await;
        assert_eq!(taken(&answer, "evt_1"), first, "a duplicate");
        assert_eq!(answer.header("x-request-id"), Some("req-4711"));
    }

    let old = now().minus(std::time::Duration::from_secs(301));
    let old = stripe_header(&SecretString::from(SECRET), body.as_bytes(), old);
    let elsewhere = header(SECRET, &event("evt_2", "a", "b"));
    let bad = [
        old,
        elsewhere,
        header("whsec_other", &body),
        header("", &body),
        signature.to_owned(),
        format!("{stamp},v0={signature}"),
        format!("{stamp},v1={}", &signature[1..]),
        format!("v1={signature}"),
        format!("t=,v1={signature}"),
        String::new(),
    ];
    for path in ["/webhooks/stripe", "/api/v1/billing/webhook"] {
        for header in &bad {
            let answer = server.ask(to(path, &body).header("stripe-signature", header)).await;
            refused(&answer, "INVALID_SIGNATURE", "Invalid signature");
        }
        refused(&server.ask(to(path, &body)).await, "INVALID_SIGNATURE", "Invalid signature");
    }
    // The signature comes first: nobody learns anything about a body that is not the sender's.
    refused(
        &server.ask(to("/webhooks/stripe", "{")).await,
        "INVALID_SIGNATURE",
        "Invalid signature",
    );
    for body in
        ["{", "[]", "{}", r#"{"id": "evt_9"}"#, r#"{"type": "a"}"#, r#"{"id": 1.5, "type": "a"}"#]
    {
        refused(&server.ask(stripe(body)).await, "INVALID_PAYLOAD", "Invalid payload");
    }
    server.ask(to("/webhooks/github", &body)).await.is_problem(404, "SOURCE_NOT_FOUND");
    let long = event("evt_3", &"x".repeat(5000), "c");
    server.ask(stripe(&long)).await.is_problem(413, "PAYLOAD_TOO_LARGE");
    server.get("/webhook-events").await.is_problem(401, "UNAUTHORIZED");
    server.get("/audit-logs").await.is_problem(401, "UNAUTHORIZED");
    server.get("/billings").await.is_problem(401, "UNAUTHORIZED");
    assert_eq!(count(&db, "webhook_events").await, "1");

    let metrics = server.ask(Request::get("/metrics").token("tok")).await.body;
    for (outcome, expected) in [("accepted", 1), ("duplicate", 3), ("refused", 29)] {
        let line = metrics.lines().find(|line| {
            line.starts_with("webhook_requests_total{")
                && line.contains("source=\"stripe\"")
                && line.contains(&format!("outcome=\"{outcome}\""))
        });
        let line = line.unwrap_or_else(|| panic!("{outcome}: {metrics}"));
        assert!(line.ends_with(&format!("}} {expected}")), "{line}");
    }
    let log = server.stop().await;
    let refusals: Vec<Value> = log
        .events()
        .into_iter()
        .filter(|event| event["message"] == "a webhook was refused")
        .collect();
    assert_eq!(refusals.len(), 29);
    assert!(refusals.iter().all(|event| event["error_type"].is_string()));
}

async fn operators_see_what_became_of_events(db: TestDb) {
    let server = setup(&db).start().await;
    let mut ids = Vec::new();
    for n in 1..=3 {
        let body = event(&format!("evt_{n}"), PAID, "cus_1");
        ids.push(taken(&server.ask(stripe(&body)).await, &format!("evt_{n}")));
    }
    let body = event("evt_4", "nobody.listens", "cus_1");
    ids.push(taken(&server.ask(stripe(&body)).await, "evt_4"));
    let failed = ended(&server, &ids[0], "failed").await;
    assert_eq!(failed["id"], *ids[0]);
    assert_eq!((&failed["eventId"], &failed["eventType"]), (&json!("evt_1"), &json!(PAID)));
    assert_eq!((&failed["source"], &failed["billingId"]), (&json!("stripe"), &Value::Null));
    assert!(failed["errorMessage"].as_str().unwrap().contains("UNKNOWN_CUSTOMER"), "{failed}");
    assert!(failed["processedAt"].is_string() && failed["createdAt"].is_string(), "{failed}");
    assert_eq!(failed["occurredAt"], "2023-11-14T22:13:20.000000Z");
    ended(&server, &ids[1], "failed").await;
    ended(&server, &ids[2], "failed").await;
    ended(&server, &ids[3], "skipped").await;
    let view = rows(&db.url(), "select event_id, error from failed_webhook_events").await;
    assert_eq!(view.len(), 3);

    let listed = async |query: &str| {
        let found = items(&server, &format!("/webhook-events?{query}")).await;
        found.iter().map(|event| event["eventId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("status=failed").await, ["evt_3", "evt_2", "evt_1"]);
    assert_eq!(listed("type=nobody.listens&source=stripe").await, ["evt_4"]);
    assert_eq!(listed("source=github").await, [""; 0]);
    assert_eq!(listed("from=2020-01-01T00:00:00Z&limit=1").await, ["evt_4"]);
    assert_eq!(listed("to=2020-01-01T00:00:00Z").await, [""; 0]);
    let page = server.get("/webhook-events?limit=3").await.json();
    let cursor = page["nextCursor"].as_str().unwrap();
    assert_eq!(listed(&format!("limit=3&cursor={cursor}")).await, ["evt_1"]);
    for bad in ["status=lost", "from=yesterday", "nonsense=1", "limit=0"] {
        let answer = server.get(&format!("/webhook-events?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
    let stats = items(&server, "/webhook-events/stats").await;
    let expected = [
        json!({"eventType": PAID, "status": "failed", "count": 3}),
        json!({"eventType": "nobody.listens", "status": "skipped", "count": 1}),
    ];
    assert_eq!(stats, expected);

    let billing = json!({"officeId": "o-1", "stripeCustomerId": "cus_1"});
    let billing = post(&server, "/billings", &billing).await.json();
    let answer =
        server.ask(Request::new("POST", &format!("/webhook-events/{}/replay", ids[0]))).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let replayed = ended(&server, &ids[0], "success").await;
    assert_eq!((&replayed["billingId"], &replayed["officeId"]), (&billing["id"], &json!("o-1")));
    assert_eq!(replayed["errorMessage"], Value::Null);
    assert_eq!(listed("officeId=o-1").await, ["evt_1"]);
    for id in [&ids[0], &ids[3]] {
        let again = server.ask(Request::new("POST", &format!("/webhook-events/{id}/replay"))).await;
        again.is_problem(409, "WEBHOOK_EVENT_NOT_FAILED");
    }
    for id in ["nonsense", "00000000-0000-0000-0000-000000000000"] {
        let path = format!("/webhook-events/{id}");
        server.get(&path).await.is_problem(404, "WEBHOOK_EVENT_NOT_FOUND");
        let replay = Request::new("POST", &format!("{path}/replay"));
        server.ask(replay).await.is_problem(404, "WEBHOOK_EVENT_NOT_FOUND");
    }
    let none = server.ask(Request::new("POST", "/webhook-events/replay?type=other")).await;
    assert_eq!((none.status, none.json()), (202, json!({"replayed": 0})));
    let all = server.ask(Request::new("POST", "/webhook-events/replay?source=stripe")).await;
    assert_eq!((all.status, all.json()), (202, json!({"replayed": 2})));
    ended(&server, &ids[1], "success").await;
    ended(&server, &ids[2], "success").await;
    server.stop().await;
}

async fn nothing_private_is_shown_or_logged(db: TestDb) {
    let server = setup(&db).set("TASHIKA_LOG", "trace,tokio_postgres=trace").start().await;
    let stranger = "stranger@example.com";
    let answer = server.ask(stripe(&event("evt_1", PAID, stranger))).await;
    let failed = ended(&server, &taken(&answer, "evt_1"), "failed").await;
    let object = &failed["payload"]["data"]["object"];
    assert_eq!(object["customer_email"], "p***@example.com");
    assert_eq!(object["client_secret"], "***");
    assert_eq!(object["amount"], 3000);
    assert!(!failed["errorMessage"].as_str().unwrap().contains(stranger), "{failed}");
    let forged = to("/webhooks/stripe", &event("evt_2", PAID, stranger));
    server.ask(forged.header("stripe-signature", "t=1,v1=planted")).await;
    server.ask(stripe(r#"{"planted": true}"#)).await;
    let listed = server.get("/webhook-events").await.body + &server.get("/audit-logs").await.body;
    assert!(!listed.contains("stranger@") && !listed.contains("s3cr3t"), "{listed}");
    let log = server.stop().await;
    let text = log.text();
    for private in ["planted", "stranger@", "s3cr3t", SECRET, OLD_SECRET, "client_secret"] {
        assert!(!text.contains(private), "the log has {private}: {text}");
    }
    let told =
        log.events().into_iter().find(|e| e["message"] == "a webhook could not be processed");
    let told = told.expect("a line about it");
    assert_eq!(
        (&told["event_id"], &told["error_type"]),
        (&json!("evt_1"), &json!("UNKNOWN_CUSTOMER"))
    );
}

async fn billings_and_audit_lines_are_shown(db: TestDb) {
    let server = setup(&db).start().await;
    let wish =
        json!({"officeId": "o-1", "stripeCustomerId": "cus_1", "trialEndDate": "2030-01-01"});
    let answer = post(&server, "/billings", &wish).await;
    let billing = answer.json();
    assert_eq!((answer.status, &billing["status"]), (201, &json!("free")), "{answer:?}");
    assert_eq!(billing["trialEndDate"], "2030-01-01T00:00:00.000000Z");
    for field in ["stripeSubscriptionId", "lastPaymentAt"] {
        assert_eq!(billing[field], Value::Null);
    }
    post(&server, "/billings", &wish).await.is_problem(409, "BILLING_EXISTS");
    post(&server, "/billings", &json!({"officeId": ""})).await.is_problem(422, "VALIDATION_ERROR");
    server.get("/billings/nonsense").await.is_problem(404, "BILLING_NOT_FOUND");
    let id = billing["id"].as_str().unwrap();
    let answer = server.ask(stripe(&event("evt_1", PAID, "cus_1"))).await;
    ended(&server, &taken(&answer, "evt_1"), "success").await;
    let found = server.get(&format!("/billings/{id}")).await.json();
    assert_eq!(found["lastPaymentAt"], "2023-11-14T22:13:20.000000Z");
    assert_eq!(items(&server, "/billings?officeId=o-1").await, [found]);
    assert_eq!(items(&server, "/billings?officeId=o-2").await, [Value::Null; 0]);

    let audit = async |query: String| items(&server, &format!("/audit-logs?{query}")).await;
    let lines = audit(format!("targetType=billing&targetId={id}")).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    let line = &lines[0];
    assert_eq!(line["action"], "billing.payment_succeeded");
    assert_eq!((&line["targetType"], &line["targetId"]), (&json!("billing"), &billing["id"]));
    assert_eq!(line["officeId"], "o-1");
    let details = &line["details"];
    assert_eq!((&details["event_id"], &details["event_type"]), (&json!("evt_1"), &json!(PAID)));
    assert_eq!(details["source"], "stripe_webhook");
    assert!(line["createdAt"].is_string(), "{line}");
    assert_eq!((&line["actorId"], &line["actorRole"]), (&Value::Null, &json!("system")));
    assert_eq!(audit("action=billing.created".into()).await, lines[1..]);
    assert_eq!(audit("officeId=o-1&from=2020-01-01T00:00:00Z".into()).await, lines);
    assert_eq!(audit("to=2020-01-01T00:00:00Z".into()).await, [Value::Null; 0]);
    let page = server.get("/audit-logs?officeId=o-1&limit=1").await.json();
    let cursor = page["nextCursor"].as_str().unwrap();
    assert_eq!(audit(format!("officeId=o-1&limit=1&cursor={cursor}")).await, lines[1..]);
    assert_eq!(server.get("/audit-logs?nonsense=1").await.status, 400);
    server.stop().await;
}

async fn audit_verify_tells_by_its_exit_status(db: TestDb) {
    let setup = setup(&db).set("AUDIT_SEAL_INTERVAL_SEC", "0.05");
    let server = setup.start().await;
    for n in 0..3 {
        let wish = json!({"officeId": format!("o-{n}"), "stripeCustomerId": format!("cus_{n}")});
        assert_eq!(post(&server, "/billings", &wish).await.status, 201);
    }
    until("a seal", async || (count(&db, "audit_sealed").await == "3").then_some(())).await;
    let line = items(&server, "/audit-logs").await[1]["id"].as_str().unwrap().to_owned();
    server.stop().await;
    let verify = ["audit", "verify"];
    let printed = setup.print(&verify).await;
    assert!(printed.starts_with("intact: 3 sealed lines"), "{printed}");

    let sqlite = db.url().starts_with("sqlite:");
    db.sql(if sqlite {
        "drop trigger audit_logs_never_changed; drop trigger audit_logs_never_removed"
    } else {
        "drop trigger audit_logs_append_only on audit_logs"
    })
    .await;
    let id = if sqlite { format!("x'{}'", line.replace('-', "")) } else { format!("'{line}'") };
    for (tamper, verdict) in [
        (format!("update audit_logs set actor_id = 'x' where id = {id}"), "was changed"),
        (format!("delete from audit_logs where id = {id}"), "was removed"),
    ] {
        db.sql(&tamper).await;
        let output = setup.run(&verify).await;
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(&format!("line {line} {verdict}")), "{printed}");
        assert!(printed.contains("NOT INTACT"), "{printed}");
    }
}

/// What could not be made durable is answered 503, and is taken when it comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_database_is_answered_503_sqlite() {
    let db = TestDb::sqlite();
    let server = setup(&db).set("TASHIKA_REQUEST_TIMEOUT_MS", 1000).start().await;
    let body = event("evt_1", "nobody.listens", "cus_1");
    let other = Connection::open(db.url().strip_prefix("sqlite:").unwrap()).unwrap();
    other.busy_timeout(tashika_testkit::gate::PATIENCE).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let answer = server.ask(stripe(&body)).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    other.execute_batch("rollback").unwrap();
    taken(&server.ask(stripe(&body)).await, "evt_1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_is_answered_503_postgres() {
    let mut cluster = block_in_place(Cluster::start);
    let setup = Setup::on(cluster.url()).set("STRIPE_WEBHOOK_SECRET", SECRET);
    let server = setup.start().await;
    let body = event("evt_1", "nobody.listens", "cus_1");
    block_in_place(|| cluster.stop_immediately());
    let answer = server.ask(stripe(&body)).await;
    answer.is_problem(503, "STORE_UNAVAILABLE");
    assert!(answer.retry_after() >= 1);
    block_in_place(|| cluster.restart());
    until("the event to be taken", async || {
        let answer = server.ask(stripe(&body)).await;
        (answer.status == 204).then(|| taken(&answer, "evt_1"))
    })
    .await;
    let kept = rows(cluster.url(), "select event_id from webhook_events").await;
    assert_eq!(kept, [["evt_1"]]);
    server.stop().await;
}
