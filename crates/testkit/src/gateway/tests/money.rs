//! The state machine of intents and refunds, and what the ledger says about it.

use std::time::Duration;

use super::super::{MovementKind, Totals, Violation};
use super::Scene;

#[tokio::test]
async fn a_payment_is_authorized_captured_in_part_and_given_back() {
    let scene = Scene::new().await;
    let id = scene.authorized("p-1").await;
    assert_eq!(scene.world.held("p-1"), 5000);
    let capture = format!("payment_intents/{id}/capture");

    let too_much = scene.post(&capture, "amount_to_capture=5001").await;
    assert_eq!((too_much.status, too_much.code()), (400, "amount_too_large"));
    let said = scene.post(&capture, "amount_to_capture=3000").await;
    assert_eq!(said.body["amount_received"], 3000);
    assert_eq!(said.body["amount_capturable"], 0);
    let again = scene.post(&capture, "").await;
    assert_eq!((again.status, again.code()), (400, "payment_intent_unexpected_state"));
    assert_eq!(again.body["error"]["payment_intent"]["status"], "succeeded");

    let refund = |amount: i64| format!("payment_intent={id}&amount={amount}");
    assert_eq!(scene.post("refunds", &refund(1000)).await.body["status"], "succeeded");
    let too_much = scene.post("refunds", &refund(2001)).await;
    assert_eq!((too_much.status, &too_much.body["error"]["param"]), (400, &"amount".into()));
    assert_eq!(scene.post("refunds", &format!("payment_intent={id}")).await.body["amount"], 2000);
    assert_eq!(scene.post("refunds", &refund(1)).await.code(), "charge_already_refunded");

    let total = Totals {
        authorized_by: vec![id],
        authorized: 5000,
        captured: 3000,
        voided: 2000,
        refunded: 3000,
    };
    assert_eq!(scene.world.ledger().total("p-1"), total);
    assert_eq!(scene.world.violations(), []);
}

#[tokio::test]
async fn a_cancelled_intent_holds_nothing_and_refuses_everything() {
    let scene = Scene::new().await;
    let id = scene.authorized("p-1").await;
    let cancel = format!("payment_intents/{id}/cancel");
    assert_eq!(scene.post(&cancel, "cancellation_reason=whim").await.status, 400);
    let said = scene.post(&cancel, "cancellation_reason=requested_by_customer").await;
    assert_eq!(said.body["status"], "canceled");
    assert_eq!(said.body["cancellation_reason"], "requested_by_customer");
    assert_eq!(scene.world.held("p-1"), 0);
    for verb in ["cancel", "confirm", "capture"] {
        let said = scene.post(&format!("payment_intents/{id}/{verb}"), "").await;
        assert_eq!((said.status, said.code()), (400, "payment_intent_unexpected_state"), "{verb}");
    }
    let said = scene.post("refunds", &format!("payment_intent={id}")).await;
    assert_eq!(said.status, 400, "there is nothing to give back");
    assert_eq!(scene.world.refunded("p-1"), 0);
}

#[tokio::test]
async fn a_captured_intent_cannot_be_cancelled() {
    let scene = Scene::new().await;
    let id = scene.captured("p-1").await;
    let said = scene.post(&format!("payment_intents/{id}/cancel"), "").await;
    assert_eq!((said.status, said.code()), (400, "payment_intent_unexpected_state"));
    assert_eq!(scene.world.captured("p-1"), 5000);
}

#[tokio::test]
async fn a_declined_card_may_be_replaced_by_another() {
    let scene = Scene::new().await;
    for (method, code, decline_code) in [
        ("pm_card_chargeDeclined", "card_declined", Some("generic_decline")),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", Some("insufficient_funds")),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
    ] {
        let id = scene.intent(method, method).await;
        let confirm = format!("payment_intents/{id}/confirm");
        let said = scene.post(&confirm, "").await;
        assert_eq!((said.status, said.code()), (402, code));
        let error = &said.body["error"];
        assert_eq!(error["type"], "card_error");
        assert_eq!(error["decline_code"].as_str(), decline_code);
        assert_eq!(error["payment_intent"]["status"], "requires_payment_method");
        assert_eq!(error["payment_intent"]["last_payment_error"]["code"], code);
        assert_eq!(scene.world.authorizations(method), 0);

        let said = scene.post(&confirm, "").await;
        assert_eq!(said.code(), "payment_intent_unexpected_state", "the card is gone");
        let said = scene.post(&confirm, "payment_method=pm_card_visa").await;
        assert_eq!(said.body["status"], "requires_capture");
        assert!(said.body["last_payment_error"].is_null());
    }
}

#[tokio::test]
async fn a_customer_who_must_be_asked_may_say_yes_or_no() {
    let scene = Scene::new().await;
    for (payment, method, status) in [
        ("p-1", "pm_card_authenticationRequired", "requires_action"),
        ("p-2", "pm_scripted_processing", "processing"),
    ] {
        let id = scene.intent(payment, method).await;
        let said = scene.post(&format!("payment_intents/{id}/confirm"), "").await;
        assert_eq!(said.body["status"], status);
        assert_eq!(scene.world.authorizations(payment), 0);
        scene.world.conclude(&id, true);
        assert_eq!(scene.status(&id).await, "requires_capture");
        assert_eq!(scene.world.authorizations(payment), 1);
    }
    let id = scene.intent("p-3", "pm_card_authenticationRequired").await;
    let confirm = format!("payment_intents/{id}/confirm");
    assert!(scene.post(&confirm, "").await.body["next_action"].is_object());
    scene.world.conclude(&id, false);
    assert_eq!(scene.status(&id).await, "requires_payment_method");
    assert_eq!(scene.world.authorizations("p-3"), 0);

    let absent = "payment_method=pm_card_authenticationRequired&off_session=true";
    let said = scene.post(&confirm, absent).await;
    assert_eq!((said.status, said.code()), (402, "authentication_required"));
}

#[tokio::test]
async fn an_authorization_expires_after_seven_days() {
    let scene = Scene::new().await;
    let id = scene.authorized("p-1").await;
    scene.world.advance(Duration::from_secs(7 * 24 * 3600 - 60));
    assert_eq!(scene.status(&id).await, "requires_capture");
    scene.world.advance(Duration::from_secs(60));
    assert_eq!(scene.status(&id).await, "canceled");
    let said = scene.post(&format!("payment_intents/{id}/capture"), "").await;
    assert_eq!((said.status, said.code()), (400, "charge_expired_for_capture"));
    assert_eq!(scene.world.held("p-1"), 0);
    assert_eq!(scene.world.captured("p-1"), 0);
}

#[tokio::test]
async fn without_manual_capture_confirming_takes_the_money() {
    let scene = Scene::new().await;
    let body =
        "amount=700&currency=usd&confirm=true&payment_method=pm_card_visa&metadata[payment_id]=p-1";
    let said = scene.post("payment_intents", body).await;
    assert_eq!(
        (&said.body["status"], &said.body["currency"]),
        (&"succeeded".into(), &"usd".into())
    );
    assert_eq!(scene.world.charged("p-1"), 700);
}

#[tokio::test]
async fn a_refund_that_comes_back_can_be_made_again() {
    let scene = Scene::new().await;
    let id = scene.intent("p-1", "pm_card_pendingRefund").await;
    scene.post(&format!("payment_intents/{id}/confirm"), "").await;
    scene.post(&format!("payment_intents/{id}/capture"), "").await;
    let body = format!("payment_intent={id}&reason=duplicate&metadata[refund_id]=r-1");
    let refund = scene.post("refunds", &body).await;
    assert_eq!(refund.body["status"], "pending");
    assert_eq!(scene.post("refunds", &body).await.code(), "charge_already_refunded");

    scene.world.settle_refund(&refund.id(), false);
    assert_eq!(scene.world.refunded("p-1"), 0);
    let said = scene.get(&format!("refunds/{}", refund.id())).await;
    assert_eq!(said.body["status"], "failed");

    let second = scene.post("refunds", &body).await;
    scene.world.settle_refund(&second.id(), true);
    assert_eq!(scene.world.refunded("p-1"), 5000);
    let listed = scene.get(&format!("refunds?payment_intent={id}")).await;
    assert_eq!(listed.body["data"][0]["status"], "succeeded", "the newest comes first");
    assert_eq!(listed.body["data"][1]["status"], "failed");
    assert_eq!(listed.body["data"][1]["metadata"]["refund_id"], "r-1");
    let failures = scene.get("events?type=refund.failed").await;
    assert_eq!(failures.body["data"][0]["data"]["object"]["id"], refund.body["id"]);
    assert_eq!(scene.world.violations(), []);
}

#[tokio::test]
async fn the_ledger_notices_a_payment_that_was_authorized_twice() {
    let scene = Scene::new().await;
    // What a client does that opens a new intent instead of asking what became of the first.
    let first = scene.authorized("p-1").await;
    let second = scene.authorized("p-1").await;
    scene.authorized("p-2").await;
    let intents = vec![first, second];
    let twice = Violation::AuthorizedTwice { payment: "p-1".into(), intents };
    assert_eq!(scene.world.violations(), [twice]);
    assert_eq!(scene.world.authorizations("p-1"), 2);
    let kinds: Vec<_> =
        scene.world.ledger().of_payment("p-1").iter().map(|moved| moved.kind).collect();
    assert_eq!(kinds, [MovementKind::Authorized, MovementKind::Authorized]);
}
