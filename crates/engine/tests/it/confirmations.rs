//! Events that nobody signed: Shotstack is asked before anything is done about one, and its word counts.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};
use tashika_domain::Status as EffectStatus;
use tashika_domain::message::State;
use tashika_domain::webhook::Status;
use tashika_engine::commands::webhook::{Accepted, Received, Taken, Webhooks};
use tashika_engine::{Clock, Confirmers, Ids};
use tashika_providers::shotstack::{Shotstack, ShotstackConfig};
use tashika_providers::webhook::{Scheme, Source};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::shotstack::{ShotstackServer, Trouble};

use crate::forwarding::{Worker, delivery};
use crate::support::{REMEMBER, patience, stop};
use crate::webhook_rig::{CUSTOMER, Rig, told};

on_both!(
    a_callback_counts_once_shotstack_says_the_same,
    a_forged_callback_about_no_render_is_passed_over,
    a_callback_that_shotstack_denies_fails_and_the_true_one_opens_it_again,
    a_callback_that_comes_too_early_is_asked_about_again,
    trouble_at_shotstack_is_waited_out,
    without_anybody_to_ask_nothing_is_believed,
    a_forger_cannot_pass_for_stripe,
);

const ID: &str = "d2b46ed6-998a-4d6b-9d91-b8cf0193a655";

fn callback(id: &str, status: &str) -> Value {
    json!({"type": "edit", "action": "render", "id": id, "owner": "us", "status": status,
        "url": "https://evil.example/forged.mp4", "error": null, "participant_id": "p-1",
        "completed": "2026-01-28T12:34:56.083Z"})
}

/// A source called `name` that signs nothing, and somebody to ask about it.
async fn rig(db: TestDb, name: &str, config: Option<&ShotstackConfig>) -> Rig {
    let mut rig = Rig::new(db).await;
    let source = Source::new(name, Scheme::Shotstack).unwrap();
    let clock = Clock::System;
    let ids = Ids::random(clock);
    let webhooks = Webhooks::new(rig.store.clone(), clock, ids, vec![source], REMEMBER);
    rig.webhooks = Arc::new(webhooks);
    let shotstack = config.map(|config| Arc::new(Shotstack::new(config).unwrap()));
    rig.confirmers = Confirmers { shotstack };
    rig
}

async fn send(rig: &Rig, source: &str, body: &Value) -> Accepted {
    let body = body.to_string();
    let headers = HeaderMap::new();
    let received = Received { source, headers: &headers, body: body.as_bytes(), traceparent: None };
    match rig.webhooks.receive(received).await.unwrap() {
        Taken::Accepted(accepted) => accepted,
        Taken::Challenged(text) => panic!("a challenge: {text}"),
    }
}

async fn a_callback_counts_once_shotstack_says_the_same(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "done");
    let worker = Worker::start(&["204 No Content"]).await;
    let rig = rig(db, "renders", Some(&shotstack.config())).await;
    let rig = rig.forwarding_from("renders", "cutter", &["render.*"], &worker.url);
    let running = rig.start();
    let accepted = send(&rig, "renders", &callback(ID, "done")).await;
    let event = rig.ended(&accepted, Status::Success).await;
    let delivered = delivery(&rig, &format!("{ID}:edit:done"), "cutter").await;
    assert_eq!(delivered.state, State::Delivered);
    stop(running).await;
    assert_eq!(shotstack.asked(), [ID]);
    assert_eq!(event.confirm_by.as_deref(), Some("shotstack"));
    let confirmed = event.confirmed.clone().expect("the answer is kept");
    assert_eq!(confirmed["url"], format!("https://cdn.shotstack.example/{ID}.mp4"));
    assert_eq!(event.trusted().as_deref(), Some(&confirmed));
    // The worker gets what Shotstack says, not what the callback said.
    let heard = worker.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!(serde_json::from_slice::<Value>(&heard[0].body).unwrap(), confirmed);
    assert!(!String::from_utf8_lossy(&heard[0].body).contains("evil"));
    let attempts = rig.store.attempts(rig.effect(&accepted).await.id).await.unwrap();
    assert_eq!(attempts.len(), 1, "the question is on record");
}

async fn a_forged_callback_about_no_render_is_passed_over(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    let worker = Worker::start(&["204 No Content"]).await;
    let rig = rig(db, "renders", Some(&shotstack.config())).await;
    let rig = rig.forwarding_from("renders", "cutter", &[], &worker.url);
    let running = rig.start();
    let copied = json!({"type": "serve", "action": "copy", "id": ID, "status": "ready"});
    for (body, why) in [
        (callback(ID, "done"), "knows no render of this id"),
        (callback("../../secrets", "done"), "knows no render of this id"),
        (copied, "only callbacks of type edit"),
    ] {
        let accepted = send(&rig, "renders", &body).await;
        let event = rig.ended(&accepted, Status::Skipped).await;
        let message = event.error_message.unwrap();
        assert!(message.contains("not confirmed") && message.contains(why), "{message}");
        assert_eq!(event.confirmed, None);
        assert_eq!(rig.effect(&accepted).await.status, EffectStatus::Succeeded);
    }
    stop(running).await;
    assert_eq!(shotstack.asked(), [ID], "nothing else can be a render's id");
    assert_eq!(worker.heard().len(), 0);
    assert_eq!(rig.audit_count().await, 0, "a stranger does not fill the audit log");
}

async fn a_callback_that_shotstack_denies_fails_and_the_true_one_opens_it_again(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "failed");
    let worker = Worker::start(&["204 No Content"]).await;
    let rig = rig(db, "renders", Some(&shotstack.config())).await;
    let rig = rig.forwarding_from("renders", "cutter", &[], &worker.url);
    let running = rig.start();
    let accepted = send(&rig, "renders", &callback(ID, "done")).await;
    let event = rig.ended(&accepted, Status::Failed).await;
    let message = event.error_message.unwrap();
    assert_eq!(message, "NOT_CONFIRMED: the callback says done, Shotstack failed");
    assert_eq!((event.confirmed, shotstack.asked().len()), (None, 1), "no is an answer");
    assert_eq!(rig.effect(&accepted).await.status, EffectStatus::Aborted);
    let line = &rig.audit("webhook.failed").await[0];
    assert_eq!((line.actor_id.as_deref(), line.actor_role.as_str()), (None, "system"));
    let details: Value = serde_json::from_str(&line.details).unwrap();
    assert_eq!(details["source"], "renders_webhook");
    assert_eq!(worker.heard().len(), 0);

    // Rendered once more, and this time it is true.
    shotstack.render(ID, "done");
    let again = send(&rig, "renders", &callback(ID, "done")).await;
    assert!(again.duplicate);
    let event = rig.ended(&again, Status::Success).await;
    stop(running).await;
    assert_eq!(event.confirmed.unwrap()["status"], "done");
}

async fn a_callback_that_comes_too_early_is_asked_about_again(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "saving");
    let rig = rig(db, "renders", Some(&shotstack.config())).await;
    let running = rig.engine(&patience(1000)).start();
    let accepted = send(&rig, "renders", &callback(ID, "done")).await;
    until("two questions", async || (shotstack.asked().len() >= 2).then_some(())).await;
    assert_eq!(rig.event(&accepted).await.status, Status::Pending);
    shotstack.render(ID, "done");
    let event = rig.ended(&accepted, Status::Skipped).await;
    stop(running).await;
    // Nobody listens to renders here; but it is known to be true.
    assert_eq!(event.confirmed.unwrap()["status"], "done");
}

async fn trouble_at_shotstack_is_waited_out(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "failed");
    let troubles = [Trouble::Status(503), Trouble::HangUp, Trouble::Status(429)];
    shotstack.trouble(troubles);
    let rig = rig(db, "renders", Some(&shotstack.config())).await;
    let running = rig.engine(&patience(4)).start();
    let accepted = send(&rig, "renders", &callback(ID, "failed")).await;
    let event = rig.ended(&accepted, Status::Skipped).await;
    assert_eq!(event.confirmed.unwrap()["status"], "failed");
    assert_eq!(shotstack.asked().len(), 4);
    // And not for ever.
    shotstack.trouble([Trouble::Status(500); 4]);
    let accepted = send(&rig, "renders", &callback(ID, "done")).await;
    let event = rig.ended(&accepted, Status::Failed).await;
    stop(running).await;
    assert_eq!(event.error_message.unwrap(), "SHOTSTACK_BUSY: Shotstack answered 500");
    assert_eq!(shotstack.asked().len(), 8);
}

async fn without_anybody_to_ask_nothing_is_believed(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "done");
    let rig = rig(db, "renders", None).await;
    let running = rig.engine(&patience(2)).start();
    let accepted = send(&rig, "renders", &callback(ID, "done")).await;
    let event = rig.ended(&accepted, Status::Failed).await;
    stop(running).await;
    assert!(event.error_message.unwrap().starts_with("CANNOT_CONFIRM"));

    let wrong = ShotstackConfig { api_key: "another".into(), ..shotstack.config() };
    let shotstack_client = Arc::new(Shotstack::new(&wrong).unwrap());
    let mut rig = rig;
    rig.confirmers = Confirmers { shotstack: Some(shotstack_client) };
    let running = rig.engine(&patience(2)).start();
    let again = send(&rig, "renders", &callback(ID, "done")).await;
    let event = rig.ended(&again, Status::Failed).await;
    stop(running).await;
    assert!(event.error_message.unwrap().starts_with("SHOTSTACK_UNAUTHORIZED"));
    assert_eq!((shotstack.asked().len(), shotstack.strangers()), (0, 2));
}

/// A source is known by its name, and a careless name must not turn strangers into Stripe.
async fn a_forger_cannot_pass_for_stripe(db: TestDb) {
    let shotstack = ShotstackServer::start().await;
    shotstack.render(ID, "done");
    let rig = rig(db, "stripe", Some(&shotstack.config())).await;
    let billing = rig.billing(CUSTOMER).await;
    let running = rig.start();
    let mut forged = told("evt_1", "x", 0);
    for (name, value) in callback(ID, "done").as_object().unwrap() {
        forged[name] = value.clone();
    }
    let accepted = send(&rig, "stripe", &forged).await;
    rig.ended(&accepted, Status::Skipped).await;
    stop(running).await;
    assert_eq!(rig.known(&billing).await, billing);
}
