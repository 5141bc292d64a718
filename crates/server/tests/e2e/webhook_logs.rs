//! What the log tells about webhooks that went wrong: enough to find them, and nothing about people. And callbacks
//! that nobody signs, through the whole server.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tashika_testkit::shotstack::{KEY, ShotstackServer};

use crate::support::Setup;
use crate::webhooks::{PAID, ended, event, refused, setup, stripe, taken, to};

on_both!(
    the_log_names_what_was_refused_and_what_failed,
    a_callback_without_a_signature_is_confirmed_first,
);

async fn the_log_names_what_was_refused_and_what_failed(db: TestDb) {
    let setup = setup(&db)
        .set("WEBHOOK_SOURCES", "github")
        .set("WEBHOOK_SECRETS", "github=another")
        .set("TASHIKA_LOG", "trace");
    let server = setup.start().await;
    let about = |id: &str, participant: &str| {
        let mut told: Value = serde_json::from_str(&event(id, PAID, "cus_0")).unwrap();
        told["data"]["object"]["metadata"] = json!({"participant_id": participant});
        told.to_string()
    };
    // Nothing of the body is looked at before the signature holds, and of the headers only what looks like an id.
    let forged = to("/webhooks/github", &about("evt_1", "forged-1"));
    for delivery in ["72d3162e-cc78", "somebody@example.com", "a sentence of theirs"] {
        let forged = forged.clone().header("x-github-delivery", delivery);
        refused(&server.ask(forged).await, "INVALID_SIGNATURE", "Invalid signature");
    }
    let unreadable = r#"{"id": "evt_2", "participant_id": "p-2"}"#;
    refused(&server.ask(stripe(unreadable)).await, "INVALID_PAYLOAD", "Invalid payload");
    for (id, participant) in [("evt_3", "p-3"), ("evt_4", "p4@example.com")] {
        let answer = server.ask(stripe(&about(id, participant))).await;
        ended(&server, &taken(&answer, id), "failed").await;
    }
    let log = server.stop().await;
    let told = |message: &str| -> Vec<Value> {
        let lines = log.events().into_iter().filter(|line| line["message"] == message);
        let fields = ["event_id", "participant_id", "error_type"];
        lines.map(|line| json!(fields.map(|field| line[field].clone()))).collect()
    };
    assert_eq!(
        told("a webhook was refused"),
        [
            json!(["72d3162e-cc78", null, "invalid_signature"]),
            json!([null, null, "invalid_signature"]),
            json!([null, null, "invalid_signature"]),
            json!(["evt_2", "p-2", "invalid_payload"]),
        ]
    );
    let failed = told("a webhook could not be processed");
    assert_eq!(failed.len(), 2);
    assert!(failed.contains(&json!(["evt_3", "p-3", "UNKNOWN_CUSTOMER"])), "{failed:?}");
    assert!(failed.contains(&json!(["evt_4", null, "UNKNOWN_CUSTOMER"])), "{failed:?}");
    for private in ["forged-1", "somebody@", "a sentence", "p4@"] {
        assert!(!log.text().contains(private), "the log has {private}");
    }
}

async fn a_callback_without_a_signature_is_confirmed_first(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render("r-1", "done");
    shotstack.render("r-2", "failed");
    let server = Setup::of(&db)
        .set("WEBHOOK_SOURCES", "shotstack")
        .set("SHOTSTACK_API_BASE", shotstack.base_url())
        .set("SHOTSTACK_API_KEY", KEY)
        .set("OUTBOX_WEBHOOKS_BACKOFF_SEC", "0.01")
        .start()
        .await;
    let callback = |id: &str| {
        let told = json!({"type": "edit", "action": "render", "id": id, "status": "done",
            "url": "https://evil.example/x.mp4"});
        to("/webhooks/shotstack", &told.to_string())
    };
    let answer = server.ask(callback("r-1")).await;
    let event = ended(&server, &taken(&answer, "r-1:edit:done"), "skipped").await;
    assert_eq!(
        (&event["confirmBy"], &event["confirmed"]["id"]),
        (&json!("shotstack"), &json!("r-1"))
    );
    assert_eq!(event["confirmed"]["url"], "https://cdn.shotstack.example/r-1.mp4");
    let answer = server.ask(callback("r-2")).await;
    let event = ended(&server, &taken(&answer, "r-2:edit:done"), "failed").await;
    let expected = "NOT_CONFIRMED: the callback says done, Shotstack failed";
    assert_eq!((&event["errorMessage"], &event["confirmed"]), (&json!(expected), &Value::Null));
    assert_eq!((shotstack.asked(), shotstack.strangers()), (vec!["r-1".into(), "r-2".into()], 0));
    let log = server.stop().await;
    assert!(!log.text().contains(KEY) && !log.text().contains("evil.example"));
}
