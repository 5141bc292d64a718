//! Shoppers: authorize, capture, void, refund; some click twice, some cards are declined.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::Scene;
use crate::run::demo::chance::{Chance, pass};

/// Between two looks at a payment whose outcome is not known.
const LOOK_EVERY: Duration = Duration::from_millis(1000);
/// How long a shopper waits for an outcome before they go home.
const PATIENCE: u32 = 30;

/// What a shop sells, in yen.
const PRICES: [u64; 6] = [980, 1500, 2400, 3800, 5200, 12_000];

pub(super) async fn shop(scene: Scene, shopper: u64, mut chance: Chance) {
    let mut under_way = JoinSet::new();
    let mut number = 0_u64;
    while pass(chance.millis(600, 2200), &scene.over).await {
        number += 1;
        let (scene, chance) = (scene.clone(), chance.branch());
        under_way.spawn(buy(scene, format!("shop-{shopper}-{number}"), chance));
        while under_way.try_join_next().is_some() {}
    }
    // A purchase that has begun goes on to its next stop.
    while under_way.join_next().await.is_some() {}
}

async fn buy(scene: Scene, name: String, mut chance: Chance) {
    let card = match chance.between(1, 100) {
        1..=7 => "pm_card_visa_chargeDeclined",
        8..=10 => "pm_card_visa_chargeDeclinedInsufficientFunds",
        _ => "pm_card_visa",
    };
    let amount = PRICES[usize::try_from(chance.between(0, 5)).unwrap_or(0)];
    let key = format!("{}-{name}", scene.name);
    let body = json!({
        "bookingId": format!("b-{name}"), "userId": format!("u-{}", chance.between(1, 40)),
        "amount": amount, "currency": "JPY", "paymentMethod": card,
    });
    let twice = chance.in_hundred(15);
    let Some(answer) = scene.click("/payments", &key, &body, twice).await else { return };
    let Some(payment) = answer.text("id") else { return };
    let hush = chance.in_hundred(8) || scene.world.nobody_is_hushed();
    if answer.status == 202 && hush {
        scene.world.hush(&payment);
    }
    if !is_authorized(&scene, &payment).await || !pass(chance.millis(500, 4000), &scene.over).await
    {
        return;
    }
    let act = |verb: &'static str| (format!("/payments/{payment}/{verb}"), format!("{key}-{verb}"));
    match chance.between(1, 100) {
        1..=20 => {}
        21..=35 => {
            let (path, key) = act("void");
            scene.click(&path, &key, &json!({}), chance.in_hundred(20)).await;
        }
        _ => {
            let (path, key) = act("capture");
            scene.click(&path, &key, &json!({}), chance.in_hundred(20)).await;
            if chance.in_hundred(40) && pass(chance.millis(1000, 5000), &scene.over).await {
                let (path, key) = act("refund");
                let part = if chance.in_hundred(40) { amount / 2 } else { amount };
                let twice = chance.in_hundred(20);
                scene.click(&path, &key, &json!({"amount": part}), twice).await;
            }
        }
    }
}

/// Waits for the outcome, if it is not known yet.
async fn is_authorized(scene: &Scene, payment: &str) -> bool {
    for _ in 0..PATIENCE {
        let Some(found) = scene.caller.get(&format!("/payments/{payment}")).await else {
            return false;
        };
        match found.body["status"].as_str() {
            Some("AUTHORIZED") => return true,
            Some("PENDING") => {}
            _ => return false,
        }
        if !pass(LOOK_EVERY, &scene.over).await {
            return false;
        }
    }
    false
}
