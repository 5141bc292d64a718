//! Reservations and their videos over the wire: Stripe's gateway, Shotstack, and the sandbox's inbox.

use std::path::Path;

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::shotstack::{KEY, ShotstackServer, Submission};
use tempfile::TempDir;

use crate::reservations::{AMOUNT, body, held, hold, reservation, setup, tell, to, when};
use crate::support::payments::Gateway;
use crate::support::{Request, Server, Setup};

on_both!(
    a_callback_brings_the_video_and_it_is_kept,
    questions_bring_the_video_where_no_callback_comes,
    three_failures_are_a_case_and_a_person_helps,
    nobody_helps_and_the_customer_has_the_money_and_a_letter,
);

/// A gateway, a studio, and a folder for what comes out.
struct Rig {
    gateway: Gateway,
    shotstack: ShotstackServer,
    folder: TempDir,
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let template = r#"{"timeline": {"v": "{{videoId}}"}, "output": {"format": "mp4"}}"#;
        std::fs::write(folder.path().join("video.json"), template).unwrap();
        std::fs::create_dir(folder.path().join("videos")).unwrap();
        let shotstack = ShotstackServer::start().await;
        shotstack.serve_outputs();
        Self { gateway: Gateway::start().await, shotstack, folder }
    }

    fn setup(&self, db: &TestDb) -> Setup {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        setup(db, &self.gateway)
            .set("RENDER_PROVIDER", "shotstack")
            .set("RENDER_TEMPLATE_FILE", path("video.json"))
            .set("RENDER_OUTPUT_DIR", path("videos"))
            .set("RENDER_RETRY_SEC", 0)
            .set("RENDER_POLL_SEC", "0.05")
            .set("SHOTSTACK_API_KEY", KEY)
            .set("SHOTSTACK_API_BASE", self.shotstack.base_url())
            .set("TASHIKA_PUBLIC_URL", "https://tashika.example")
            .set("WEBHOOK_SOURCES", "shotstack")
    }

    /// A reservation that is paid and confirmed.
    async fn confirmed(&self, server: &Server, slot: i64) -> String {
        let id = held(&server.ask(hold(&format!("k-{slot}"), &body("u-1", slot))).await);
        let page = server.ask(to(&id, "checkout")).await.json();
        let session = page["sessionId"].as_str().unwrap();
        assert!(self.gateway.world.customer_pays(session));
        tell(server, &self.gateway, session).await;
        when(server, &id, |found| found["status"] == "confirmed").await;
        id
    }

    /// The submission with this number, from 1.
    async fn submission(&self, number: usize) -> Submission {
        until("a submission", async || self.shotstack.submissions().get(number - 1).cloned()).await
    }

    /// What the gateway has taken for a reservation and not given back.
    async fn charged(&self, server: &Server, id: &str) -> i64 {
        let found = reservation(server, id).await;
        self.gateway.world.charged(found["paymentId"].as_str().unwrap())
    }
}

async fn render(server: &Server, reservation: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/renders?reservationId={reservation}");
    until("a render", async || {
        let page = server.get(&path).await.json();
        let [one] = &page["items"].as_array().unwrap()[..] else { panic!("{page}") };
        // The list does not say what waits for a person.
        let id = one["id"].as_str().unwrap();
        Some(server.get(&format!("/renders/{id}")).await.json()).filter(&wanted)
    })
    .await
}

/// What Shotstack says about a submission, at the address that it was given.
fn callback(submission: &Submission, status: &str) -> Request {
    let address = submission.edit["callback"].as_str().unwrap();
    let path = address.strip_prefix("https://tashika.example").unwrap();
    let said = json!({"type": "edit", "action": "render", "id": submission.id, "owner": "us",
        "status": status, "url": "https://liar.example/x.mp4", "completed": "2030-01-01T00:00:00Z"});
    Request::json(path, &said)
}

async fn a_callback_brings_the_video_and_it_is_kept(db: TestDb) {
    let rig = Rig::new().await;
    // Nobody asks within this test: what is known was told.
    let server = rig.setup(&db).set("RENDER_POLL_SEC", 3600).start().await;
    let id = rig.confirmed(&server, 3).await;
    let submission = rig.submission(1).await;
    assert_eq!(submission.edit["timeline"]["v"], "7");
    let taken = render(&server, &id, |render| render["status"] == "processing").await;
    let number = taken["id"].as_str().unwrap();
    let expected = format!("https://tashika.example/webhooks/shotstack/renders/{number}/1");
    assert_eq!(submission.edit["callback"], json!(expected));

    rig.shotstack.render(&submission.id, "done");
    for _ in 0..3 {
        assert_eq!(server.ask(callback(&submission, "done")).await.status, 204);
    }
    let done = render(&server, &id, |render| render["outputPath"].is_string()).await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("done"), &json!(1)));
    let url = done["outputUrl"].as_str().unwrap();
    assert!(!url.contains("liar"), "what Shotstack says when it is asked: {url}");
    let copy = std::fs::read_to_string(Path::new(done["outputPath"].as_str().unwrap())).unwrap();
    assert!(copy.contains(&submission.id), "{copy}");
    assert_eq!(rig.shotstack.submissions().len(), 1);
    assert_eq!(reservation(&server, &id).await["status"], "confirmed");
    assert_eq!(rig.charged(&server, &id).await, AMOUNT);
    server.stop().await;
}

async fn questions_bring_the_video_where_no_callback_comes(db: TestDb) {
    let rig = Rig::new().await;
    let server = rig.setup(&db).start().await;
    let id = rig.confirmed(&server, 3).await;
    let submission = rig.submission(1).await;
    until("a question", async || rig.shotstack.asked().contains(&submission.id).then_some(()))
        .await;
    rig.shotstack.render(&submission.id, "done");
    let done = render(&server, &id, |render| render["outputPath"].is_string()).await;
    assert_eq!(done["status"], "done");
    server.stop().await;
}

/// Scenario 3, as long as somebody is there.
async fn three_failures_are_a_case_and_a_person_helps(db: TestDb) {
    let rig = Rig::new().await;
    let server = rig.setup(&db).start().await;
    rig.shotstack.begin_as("failed");
    let id = rig.confirmed(&server, 3).await;
    let waits = |render: &Value| render["status"] == "failed" && render["case"].is_object();
    let failed = render(&server, &id, waits).await;
    assert_eq!(failed["attempts"], 3);
    assert_eq!(rig.shotstack.submissions().len(), 3);
    let cases = server.open_cases().await;
    assert_eq!((cases.len(), &cases[0]["kind"]), (1, &json!("render_failed")), "{cases:?}");

    rig.shotstack.begin_as("done");
    let path = format!("/renders/{}", failed["id"].as_str().unwrap());
    let retried = server.ask(Request::new("POST", &format!("{path}/retry"))).await;
    assert_eq!(retried.status, 200, "{retried:?}");
    let done = render(&server, &id, |render| render["status"] == "done").await;
    assert_eq!((&done["attempts"], &done["case"]), (&json!(4), &Value::Null));
    let again = server.ask(Request::new("POST", &format!("{path}/retry"))).await;
    again.is_problem(409, "RENDER_NOT_FAILED");

    rig.shotstack.begin_as("failed");
    let other = rig.confirmed(&server, 4).await;
    let failed = render(&server, &other, waits).await;
    let path = format!("/renders/{}/resolve", failed["id"].as_str().unwrap());
    server.ask(Request::json(&path, &json!({}))).await.is_problem(422, "VALIDATION_ERROR");
    for _ in 0..2 {
        let resolved = server.ask(Request::json(&path, &json!({"note": "sent on a disk"}))).await;
        assert_eq!((resolved.status, &resolved.json()["status"]), (200, &json!("done")));
    }
    assert!(server.open_cases().await.is_empty());
    for id in [&id, &other] {
        assert_eq!(reservation(&server, id).await["status"], "confirmed");
        assert_eq!(rig.charged(&server, id).await, AMOUNT);
    }
    assert_eq!(server.get("/mail/inbox").await.json()["items"], json!([]));
    server.stop().await;
}

/// Scenario 3, and nobody is there.
async fn nobody_helps_and_the_customer_has_the_money_and_a_letter(db: TestDb) {
    let rig = Rig::new().await;
    let server = rig.setup(&db).set("RENDER_GIVE_UP_SEC", "0.3").start().await;
    rig.shotstack.begin_as("failed");
    let id = rig.confirmed(&server, 3).await;
    let over = when(&server, &id, |found| found["payment"]["refundedAmount"] == AMOUNT).await;
    assert_eq!(over["status"], "cancelled");
    assert_eq!(over["races"][0]["scenario"], "RENDER_FAILURE");
    assert_eq!(over["races"][0]["resolution"], "REFUNDED");
    assert_eq!(rig.charged(&server, &id).await, 0);
    let closed = render(&server, &id, |render| render["closed"] == "given_up").await;
    assert_eq!((&closed["status"], &closed["case"]), (&json!("failed"), &Value::Null));
    server.log.until("the refund", |e| e["event"] == "RENDER_FAILED_AUTO_REFUND").await;
    let letter = until("the letter", async || {
        server.get("/mail/inbox").await.json()["items"].get(0).cloned()
    })
    .await;
    assert_eq!(letter["to"], "u-1@example.com", "{letter}");
    assert!(letter.to_string().contains("1,500"), "{letter}");

    // The video comes after all: written down, and no more.
    let submission = rig.submission(3).await;
    rig.shotstack.render(&submission.id, "done");
    assert_eq!(server.ask(callback(&submission, "done")).await.status, 204);
    until("the late video in the audit", async || {
        let lines = server.get("/audit-logs?action=render.late").await.json();
        (!lines["items"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let still = render(&server, &id, |_| true).await;
    assert_eq!((&still["status"], &still["closed"]), (&json!("failed"), &json!("given_up")));
    assert_eq!(reservation(&server, &id).await["status"], "cancelled");
    let letters = server.get("/mail/inbox").await.json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 1, "one letter");
    let path = format!("/renders/{}/retry", still["id"].as_str().unwrap());
    server.ask(Request::new("POST", &path)).await.is_problem(409, "RENDER_NOT_FAILED");
    server.stop().await;
}
