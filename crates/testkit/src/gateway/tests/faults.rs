//! Each fault: what the client sees, and what happened.

use std::time::Duration;

use super::super::server::GatewayServer;
use super::super::{Arrives, Landed, Meanwhile, Mix};
use super::{Fault, Operation, Scene};

impl Scene {
    /// Confirms under a key, with one fault.
    async fn confirm(&self, id: &str, key: &str, fault: Fault) -> Option<super::Said> {
        self.world.script(Operation::Confirm, [fault]);
        self.ask(&format!("POST /v1/payment_intents/{id}/confirm"), "", Some(key)).await
    }
}

#[tokio::test]
async fn dropped_before_means_nothing_happened() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    assert!(scene.confirm(&id, "k", Fault::DropBefore).await.is_none());
    assert_eq!(scene.world.authorizations("p-1"), 0);
    assert_eq!(scene.confirm(&id, "k", Fault::Answer).await.unwrap().status, 200);
    assert_eq!(scene.world.authorizations("p-1"), 1);
    assert_eq!(scene.world.calls(Operation::Confirm), 2);
}

#[tokio::test]
async fn executed_then_closed_happened_and_is_found_under_its_key() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    assert!(scene.confirm(&id, "k", Fault::ExecuteThenClose).await.is_none());
    assert_eq!(scene.world.authorizations("p-1"), 1);
    let again = scene.confirm(&id, "k", Fault::Answer).await.unwrap();
    assert!(again.has("Idempotent-Replayed: true"));
    assert_eq!(again.body["status"], "requires_capture");
    assert_eq!(scene.world.authorizations("p-1"), 1);
}

#[tokio::test]
async fn executed_in_silence_happened_and_the_connection_stays() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    scene.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    let path = format!("POST /v1/payment_intents/{id}/confirm");
    let stream = scene.send(&path, "", Some("k")).await;
    scene.world.until("an authorization", |world| world.authorizations("p-1") == 1).await;
    let mut byte = [0];
    // Neither a reply nor an end: nothing can be read.
    let read = stream.try_read(&mut byte).map_err(|error| error.kind());
    assert_eq!(read, Err(std::io::ErrorKind::WouldBlock));
    drop(stream);
    assert_eq!(scene.status(&id).await, "requires_capture");
}

#[tokio::test]
async fn a_late_call_arrives_when_it_is_told_to() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    let late = Fault::Late { arrives: Arrives::WhenTold, meanwhile: Meanwhile::Close };
    assert!(scene.confirm(&id, "k", late).await.is_none());
    assert_eq!(scene.world.authorizations("p-1"), 0);
    assert_eq!(scene.status(&id).await, "requires_confirmation");
    let landed =
        Landed { operation: Operation::Confirm, payment_id: Some("p-1".into()), status: 200 };
    assert_eq!(scene.world.run_late(), [landed]);
    assert_eq!(scene.world.authorizations("p-1"), 1);
    assert_eq!(scene.world.run_late(), [], "only once");
}

#[tokio::test]
async fn a_cancelled_intent_refuses_a_late_confirmation() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    let late = Fault::Late { arrives: Arrives::WhenTold, meanwhile: Meanwhile::Close };
    scene.confirm(&id, "k", late).await;
    scene.post(&format!("payment_intents/{id}/cancel"), "").await;
    assert_eq!(scene.world.run_late()[0].status, 400);
    assert_eq!(scene.world.authorizations("p-1"), 0, "the fence held");
}

#[tokio::test]
async fn a_late_call_and_its_repeat_are_one() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    assert!(scene.confirm(&id, "k", Fault::late_by(Duration::from_millis(1))).await.is_none());
    assert_eq!(scene.confirm(&id, "k", Fault::Answer).await.unwrap().status, 200);
    scene.world.until_landed(1).await;
    assert_eq!(scene.world.landed()[0].status, 200, "one of them was a replay");
    assert_eq!(scene.world.authorizations("p-1"), 1);
}

#[tokio::test]
async fn a_late_refund_without_its_key_is_a_second_refund() {
    let scene = Scene::new().await;
    let id = scene.captured("p-1").await;
    scene.world.script(Operation::Refund, [Fault::late()]);
    let body = format!("payment_intent={id}&amount=2000");
    let silent = scene.send("POST /v1/refunds", &body, Some("k1")).await;
    scene.world.until_calls(Operation::Refund, 1).await;
    assert_eq!(scene.post_with("k2", "refunds", &body).await.status, 200);
    scene.world.run_late();
    drop(silent);
    assert_eq!(scene.world.refunded("p-1"), 4000, "what a new key for an old refund costs");
    assert_eq!(scene.world.refunds_of("p-1").len(), 2);
}

#[tokio::test]
async fn a_slow_answer_comes_after_the_deed() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    let slow = Fault::AnswerAfter(Duration::from_millis(20));
    assert_eq!(scene.confirm(&id, "k", slow).await.unwrap().status, 200);
    assert_eq!(scene.world.authorizations("p-1"), 1);
}

#[tokio::test]
async fn breakdowns_say_500_and_may_have_happened() {
    let scene = Scene::new().await;
    for (payment, fault, authorizations, hint) in [
        ("p-1", Fault::fail_before(), 0, None),
        ("p-2", Fault::fail_after(), 1, None),
        ("p-3", Fault::Fail { executed: true, should_retry: Some(false) }, 1, Some("false")),
        ("p-4", Fault::Fail { executed: false, should_retry: Some(true) }, 0, Some("true")),
    ] {
        let id = scene.intent(payment, "pm_card_visa").await;
        let said = scene.confirm(&id, payment, fault).await.unwrap();
        assert_eq!((said.status, &said.body["error"]["type"]), (500, &"api_error".into()));
        let hinted = hint.map(|hint| format!("Stripe-Should-Retry: {hint}"));
        assert_eq!(said.has("Stripe-Should-Retry"), hinted.is_some());
        assert!(hinted.is_none_or(|hinted| said.has(&hinted)));
        assert_eq!(scene.world.authorizations(payment), authorizations, "{payment}");
    }
}

#[tokio::test]
async fn turned_away_means_nothing_happened() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    let limited = Fault::RateLimited {
        retry_after: Some(Duration::from_millis(1500)),
        should_retry: Some(true),
    };
    let said = scene.confirm(&id, "k", limited).await.unwrap();
    assert_eq!((said.status, said.code()), (429, "rate_limit"));
    assert!(said.has("Retry-After: 2") && said.has("Stripe-Should-Retry: true"));
    for status in [429, 409] {
        let locked = Fault::LockTimeout { status, should_retry: None };
        let said = scene.confirm(&id, "k", locked).await.unwrap();
        assert_eq!((said.status, said.code()), (status, "lock_timeout"));
        assert!(!said.has("Stripe-Should-Retry"));
    }
    assert_eq!(scene.world.authorizations("p-1"), 0);
}

#[tokio::test]
async fn every_operation_can_be_scripted() {
    let scene = Scene::new().await;
    let id = scene.captured("p-1").await;
    for (operation, line) in [
        (Operation::Create, "POST /v1/payment_intents".to_owned()),
        (Operation::Confirm, format!("POST /v1/payment_intents/{id}/confirm")),
        (Operation::Capture, format!("POST /v1/payment_intents/{id}/capture")),
        (Operation::Cancel, format!("POST /v1/payment_intents/{id}/cancel")),
        (Operation::Refund, "POST /v1/refunds".to_owned()),
        (Operation::Retrieve, format!("GET /v1/payment_intents/{id}")),
        (Operation::List, "GET /v1/payment_intents?limit=1".to_owned()),
        (Operation::Search, "GET /v1/payment_intents/search?query=x".to_owned()),
        (Operation::Refunds, format!("GET /v1/refunds?payment_intent={id}")),
    ] {
        let nth = scene.world.calls(operation) + 1;
        scene.world.script_nth(operation, nth, Fault::Unavailable);
        let said = scene.ask(&line, "", None).await.unwrap();
        assert_eq!(said.status, 503, "{line}");
    }
}

#[tokio::test]
async fn a_bad_day_charges_nobody_twice_who_keeps_to_one_intent_and_one_key() {
    let scene = Scene::new().await;
    // Silence would have to be waited for; everything else of a bad day, and more often.
    let mix = Mix::seeded(7)
        .with(150, Fault::DropBefore)
        .with(150, Fault::ExecuteThenClose)
        .with(150, Fault::late_by(Duration::from_millis(1)))
        .with(100, Fault::rate_limited());
    scene.world.mix(mix.only([Operation::Confirm]));
    for number in 0..40 {
        let payment = format!("p-{number}");
        let id = scene.intent(&payment, "pm_card_visa").await;
        let line = format!("POST /v1/payment_intents/{id}/confirm");
        let mut said = None;
        for _ in 0..50 {
            said = scene.ask(&line, "", Some(&payment)).await.map(|said| said.status);
            // Lost and turned away: the same call again. Anything else is an answer.
            if !matches!(said, None | Some(429)) {
                break;
            }
        }
        assert_eq!(said, Some(200), "{payment}");
        assert_eq!(scene.world.authorizations(&payment), 1);
    }
    assert!(scene.world.calls(Operation::Confirm) > 60, "many were asked twice");
    assert_eq!(scene.world.violations(), []);
}

#[tokio::test]
async fn the_world_outlives_its_server() {
    let mut scene = Scene::new().await;
    let id = scene.authorized("p-1").await;
    scene.server = GatewayServer::start(&scene.world).await;
    assert_eq!(scene.status(&id).await, "requires_capture");
}
