//! What can be read: lists, the search, events; and what is turned away at the door.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Operation, Scene, heard};

#[tokio::test]
async fn lists_are_newest_first_and_continue_after_an_id() {
    let scene = Scene::new().await;
    scene.world.add_customer("cus_1");
    let mut ids = Vec::new();
    for number in 0..5 {
        let customer = if number % 2 == 0 { "&customer=cus_1" } else { "" };
        let body = format!("amount=100&currency=jpy{customer}");
        ids.push(scene.post("payment_intents", &body).await.id());
        scene.world.advance(Duration::from_secs(10));
    }
    let listed = |said: &super::Said| -> Vec<String> {
        let data = said.body["data"].as_array().unwrap();
        data.iter().map(|intent| intent["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = scene.get("payment_intents?limit=2").await;
    assert_eq!(listed(&first), [&*ids[4], &*ids[3]]);
    assert_eq!(first.body["has_more"], true);
    let path = format!("payment_intents?limit=3&starting_after={}", ids[3]);
    let rest = scene.get(&path).await;
    assert_eq!(listed(&rest), [&*ids[2], &*ids[1], &*ids[0]]);
    assert_eq!(rest.body["has_more"], false);
    let of_customer = scene.get("payment_intents?customer=cus_1").await;
    assert_eq!(listed(&of_customer), [&*ids[4], &*ids[2], &*ids[0]]);

    let at = |id: &str| scene.world.intent(id).unwrap()["created"].as_i64().unwrap();
    let (from, until) = (at(&ids[1]), at(&ids[3]));
    let path = format!("payment_intents?created[gte]={from}&created%5Blt%5D={until}");
    assert_eq!(listed(&scene.get(&path).await), [&*ids[2], &*ids[1]]);
    assert_eq!(scene.get("payment_intents?limit=101").await.status, 400);
    assert_eq!(scene.get("payment_intents?colour=red").await.code(), "parameter_unknown");
    assert_eq!(
        scene.post("payment_intents", "amount=1&currency=jpy&customer=cus_2").await.status,
        400
    );
}

#[tokio::test]
async fn the_search_may_be_behind() {
    let scene = Scene::new().await;
    scene.world.search_lags(Duration::from_secs(60));
    let id = scene.intent("p-1", "pm_card_visa").await;
    let path = "payment_intents/search?query=metadata%5B%27payment_id%27%5D%3A%27p-1%27";
    assert_eq!(scene.get(path).await.body["data"].as_array().unwrap().len(), 0);
    scene.world.advance(Duration::from_secs(60));
    assert_eq!(scene.get(path).await.body["data"][0]["id"], id.as_str());
}

#[tokio::test]
async fn changes_are_told_as_events() {
    let scene = Scene::new().await;
    let id = scene.captured("p-1").await;
    scene.post("refunds", &format!("payment_intent={id}")).await;
    let declined = scene.intent("p-2", "pm_card_chargeDeclined").await;
    scene.post(&format!("payment_intents/{declined}/confirm"), "").await;
    scene.post(&format!("payment_intents/{declined}/cancel"), "").await;
    let events = scene.world.events();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "payment_intent.created",
            "payment_intent.amount_capturable_updated",
            "charge.captured",
            "payment_intent.succeeded",
            "refund.created",
            "charge.refunded",
            "payment_intent.created",
            "payment_intent.payment_failed",
            "payment_intent.canceled",
        ]
    );
    assert_eq!(events[1]["data"]["object"]["amount_capturable"], 5000, "as it was then");
    let listed = scene.get("events?limit=100").await;
    assert_eq!(listed.body["data"].as_array().unwrap().len(), events.len());
    let one = scene.get(&format!("events/{}", events[0]["id"].as_str().unwrap())).await;
    assert_eq!(one.body, events[0]);
}

#[tokio::test]
async fn charges_can_be_read_by_themselves_or_inside_their_intent() {
    let scene = Scene::new().await;
    let id = scene.captured("p-1").await;
    let path = format!("payment_intents/{id}?expand%5B0%5D=latest_charge");
    let charge = &scene.get(&path).await.body["latest_charge"];
    assert_eq!(charge["amount_captured"], 5000);
    let alone = scene.get(&format!("charges/{}", charge["id"].as_str().unwrap())).await;
    assert_eq!(&alone.body, charge);
}

#[tokio::test]
async fn whoever_has_no_secret_is_not_looked_at() {
    let scene = Scene::new().await;
    for secret in ["", "Authorization: Bearer pk_test\r\n", "Authorization: Basic c2tfOg==\r\n"] {
        let mut stream = TcpStream::connect(scene.server.address()).await.unwrap();
        let request =
            format!("POST /v1/payment_intents HTTP/1.1\r\nConnection: close\r\n{secret}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let said = heard(stream).await.unwrap();
        assert_eq!(said.status, 401);
        assert!(said.has("Request-Id: req_"));
    }
    assert_eq!(scene.world.heard(), []);
}

#[tokio::test]
async fn what_is_not_there_is_404() {
    let scene = Scene::new().await;
    for path in ["payment_intents/pi_x", "refunds/re_x", "customers/cus_x"] {
        let said = scene.get(path).await;
        assert_eq!((said.status, said.code()), (404, "resource_missing"), "{path}");
    }
    assert_eq!(scene.post("refunds", "payment_intent=pi_x").await.code(), "resource_missing");
    assert_eq!(scene.get("balance").await.status, 404);
    assert_eq!(scene.world.strays(), ["GET /v1/balance"]);
    assert_eq!(scene.world.calls(Operation::Retrieve), 1);
}
