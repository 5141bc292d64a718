//! Checkout sessions: bounds, customers, endings, and the money that they move.

use std::time::Duration;

use super::*;
use crate::gateway::intent::seconds;

const PAGE: &str = "mode=payment&line_items[0][quantity]=1&line_items[0][price_data][currency]=jpy\
     &line_items[0][price_data][unit_amount]=1200&line_items[0][price_data][product_data][name]=Slot\
     &success_url=https://shop.example/ok&metadata[payment_id]=p&payment_intent_data[metadata][payment_id]=p";

impl Scene {
    async fn page(&self) -> String {
        self.post("checkout/sessions", PAGE).await.id()
    }

    async fn look(&self, id: &str) -> (String, String) {
        let body = self.get(&format!("checkout/sessions/{id}")).await.body;
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (text("status"), text("payment_status"))
    }

    fn told(&self) -> Vec<String> {
        let events = self.world.events();
        let kinds = events.iter().map(|event| event["type"].as_str().unwrap().to_owned());
        kinds.filter(|kind| kind.starts_with("checkout.")).collect()
    }
}

fn is(state: (&str, &str)) -> (String, String) {
    (state.0.to_owned(), state.1.to_owned())
}

#[tokio::test]
async fn an_end_is_between_half_an_hour_and_a_day_away() {
    let scene = Scene::new().await;
    for (ahead, status) in [(60, 400), (1700, 400), (1810, 200), (86_000, 200), (86_500, 400)] {
        let at = seconds(scene.world.now()) + ahead;
        let said = scene.post("checkout/sessions", &format!("{PAGE}&expires_at={at}")).await;
        assert_eq!(said.status, status, "{ahead}: {:?}", said.body);
    }
    let said = scene.post("checkout/sessions", PAGE).await;
    let life = said.body["expires_at"].as_i64().unwrap() - said.body["created"].as_i64().unwrap();
    assert_eq!(life, 86_400);
}

#[tokio::test]
async fn a_customer_pays_once_and_a_paid_page_cannot_be_closed() {
    let scene = Scene::new().await;
    let id = scene.page().await;
    assert!(scene.world.customer_is_declined(&id));
    assert_eq!(scene.look(&id).await, is(("open", "unpaid")));
    assert!(scene.world.customer_pays(&id));
    assert!(!scene.world.customer_pays(&id), "the page is not open any more");
    assert_eq!(scene.look(&id).await, is(("complete", "paid")));
    let said = scene.post(&format!("checkout/sessions/{id}/expire"), "").await;
    assert_eq!((said.status, said.code()), (400, ""));
    assert_eq!(scene.told(), ["checkout.session.completed"]);
    assert_eq!((scene.world.captured("p"), scene.world.violations()), (1200, vec![]));
    let intents = scene.world.intents_of("p");
    assert_eq!(intents.len(), 1, "both cards were tried on one intent");
}

#[tokio::test]
async fn money_that_comes_later_comes_or_does_not() {
    let scene = Scene::new().await;
    for (came, status, event) in [
        (true, "paid", "checkout.session.async_payment_succeeded"),
        (false, "unpaid", "checkout.session.async_payment_failed"),
    ] {
        let id = scene.page().await;
        assert!(scene.world.customer_pays_later(&id));
        assert_eq!(scene.look(&id).await, is(("complete", "unpaid")));
        assert!(scene.world.money_comes(&id, came));
        assert!(!scene.world.money_comes(&id, came), "it is decided");
        assert_eq!(scene.look(&id).await, is(("complete", status)));
        assert_eq!(scene.told().last().map(String::as_str), Some(event));
    }
    assert_eq!(scene.world.captured("p"), 1200);
}

#[tokio::test]
async fn a_page_ends_by_hand_or_in_time_and_then_nobody_pays() {
    let scene = Scene::new().await;
    let (by_hand, in_time) = (scene.page().await, scene.page().await);
    let path = format!("checkout/sessions/{by_hand}/expire");
    assert_eq!(scene.post_with("k", &path, "").await.body["status"], "expired");
    assert!(scene.post_with("k", &path, "").await.has("Idempotent-Replayed: true"));
    assert_eq!(scene.post(&path, "").await.status, 400, "it is closed already");
    scene.world.advance(Duration::from_secs(86_400));
    assert_eq!(scene.look(&in_time).await, is(("expired", "unpaid")));
    for id in [&by_hand, &in_time] {
        assert!(!scene.world.customer_pays(id));
    }
    assert_eq!(scene.told(), ["checkout.session.expired"; 2]);
    assert_eq!(scene.world.ledger().movements(), []);
}

#[tokio::test]
async fn faults_happen_to_pages_as_to_payments() {
    let scene = Scene::new().await;
    scene.world.script(Operation::OpenCheckout, [Fault::DropBefore, Fault::ExecuteThenClose]);
    for sessions in [0, 1] {
        assert!(scene.ask("POST /v1/checkout/sessions", PAGE, Some("k")).await.is_none());
        assert_eq!(scene.world.sessions().len(), sessions);
    }
    let id = scene.post_with("k", "checkout/sessions", PAGE).await.id();
    assert_eq!(scene.world.sessions().len(), 1, "one key, one page");
    let path = format!("POST /v1/checkout/sessions/{id}/expire");
    scene.world.script_for("p", Operation::ExpireCheckout, [Fault::late()]);
    let closing = scene.send(&path, "", Some("x")).await;
    scene.world.until_calls(Operation::ExpireCheckout, 1).await;
    assert!(scene.world.customer_pays(&id), "the request to close it is still on its way");
    assert_eq!(scene.world.run_late()[0].status, 400);
    drop(closing);
    assert_eq!(scene.look(&id).await, is(("complete", "paid")));
}
