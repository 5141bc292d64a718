//! Idempotency keys.

use std::time::Duration;

use super::{Fault, Operation, Scene, heard};
use crate::gate::Gate;

const CREATE: &str = "amount=5000&currency=jpy&metadata[payment_id]=p-1";
const PATH: &str = "payment_intents";

#[tokio::test]
async fn a_repeat_hears_the_first_answer_again() {
    let scene = Scene::new().await;
    let first = scene.post_with("k", PATH, CREATE).await;
    assert!(!first.has("Idempotent-Replayed"));
    let again = scene.post_with("k", PATH, CREATE).await;
    assert_eq!(again.body, first.body);
    assert!(again.has("Idempotent-Replayed: true"));
    assert!(again.has("Original-Request: req_0000000000000001"));
    assert!(again.has("Request-Id: req_0000000000000002"));
    assert_eq!(scene.world.intents_of("p-1").len(), 1);
}

#[tokio::test]
async fn other_parameters_or_another_endpoint_are_refused() {
    let scene = Scene::new().await;
    let first = scene.post_with("k", PATH, CREATE).await;
    let confirm = format!("payment_intents/{}/confirm", first.id());
    let other = format!("{CREATE}&description=other");
    for (path, body) in [(PATH, other.as_str()), (&confirm, "payment_method=pm_card_visa")] {
        let said = scene.post_with("k", path, body).await;
        assert_eq!(said.status, 400);
        assert_eq!(said.body["error"]["type"], "idempotency_error");
    }
    assert_eq!(scene.world.authorizations("p-1"), 0);
}

#[tokio::test]
async fn declines_and_breakdowns_are_remembered() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_chargeDeclined").await;
    let confirm = format!("payment_intents/{id}/confirm");
    assert_eq!(scene.post_with("k1", &confirm, "").await.status, 402);
    let again = scene.post_with("k1", &confirm, "").await;
    assert_eq!((again.status, again.has("Idempotent-Replayed")), (402, true));

    let id = scene.intent("p-2", "pm_card_visa").await;
    let confirm = format!("payment_intents/{id}/confirm");
    scene.world.script_for("p-2", Operation::Confirm, [Fault::fail_after()]);
    assert_eq!(scene.post_with("k2", &confirm, "").await.status, 500);
    let again = scene.post_with("k2", &confirm, "").await;
    assert_eq!((again.status, again.has("Idempotent-Replayed")), (500, true));
    assert_eq!(scene.world.authorizations("p-2"), 1, "it was done all the same");
    assert_eq!(scene.status(&id).await, "requires_capture");
}

#[tokio::test]
async fn what_was_not_executed_is_not_remembered() {
    let scene = Scene::new().await;
    let wrong = scene.post_with("k", PATH, "amount=none&currency=jpy").await;
    assert_eq!((wrong.status, wrong.code()), (400, "parameter_invalid_integer"));
    let locked = Fault::LockTimeout { status: 409, should_retry: None };
    let faults = [Fault::rate_limited(), locked, Fault::Unavailable];
    scene.world.script(Operation::Create, faults);
    for status in [429, 409, 503, 200] {
        let said = scene.post_with("k", PATH, CREATE).await;
        assert_eq!((said.status, said.has("Idempotent-Replayed")), (status, false));
    }
    assert_eq!(scene.world.intents_of("p-1").len(), 1);
}

#[tokio::test]
async fn a_key_is_in_use_until_its_first_request_is_over() {
    let scene = Scene::new().await;
    let gate = Gate::closed();
    scene.world.script(Operation::Create, [Fault::Slow(gate.clone())]);
    let first = scene.send("POST /v1/payment_intents", CREATE, Some("k")).await;
    scene.world.until_calls(Operation::Create, 1).await;
    let second = scene.post_with("k", PATH, CREATE).await;
    assert_eq!((second.status, second.code()), (409, "idempotency_key_in_use"));
    gate.open();
    let first = heard(first).await.unwrap();
    let third = scene.post_with("k", PATH, CREATE).await;
    assert_eq!((first.status, &third.body), (200, &first.body));
    assert_eq!(scene.world.intents_of("p-1").len(), 1);
}

#[tokio::test]
async fn a_key_is_forgotten_after_a_day() {
    let scene = Scene::new().await;
    let first = scene.post_with("k", PATH, CREATE).await;
    scene.world.advance(Duration::from_secs(24 * 3600 - 60));
    assert_eq!(scene.post_with("k", PATH, CREATE).await.id(), first.id());
    scene.world.advance(Duration::from_secs(60));
    assert_ne!(scene.post_with("k", PATH, CREATE).await.id(), first.id());
}

#[tokio::test]
async fn reading_needs_no_key_and_keeps_none() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_visa").await;
    let path = format!("GET /v1/payment_intents/{id}");
    let before = scene.ask(&path, "", Some("k")).await.unwrap();
    scene.post(&format!("payment_intents/{id}/cancel"), "").await;
    let after = scene.ask(&path, "", Some("k")).await.unwrap();
    assert_eq!(before.body["status"], "requires_confirmation");
    assert_eq!(after.body["status"], "canceled");
}
