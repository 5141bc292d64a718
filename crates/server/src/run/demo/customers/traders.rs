//! A trader: orders to a broker whose answers get lost, and who takes every order for a new one.

use serde_json::json;

use super::Scene;
use crate::run::demo::chance::{Chance, pass};

const INSTRUMENTS: [(&str, f64); 3] = [("USDJPY", 150.25), ("EURJPY", 163.1), ("EURUSD", 1.085)];

pub(super) async fn trade(scene: Scene, mut chance: Chance) {
    let mut number = 0_u64;
    while pass(chance.millis(1200, 3200), &scene.over).await {
        number += 1;
        let key = format!("{}-order-{number:04}", scene.name);
        let (instrument, price) =
            INSTRUMENTS[usize::try_from(chance.between(0, 2)).unwrap_or_default()];
        let body = json!({
            "instrument": instrument, "price": price,
            "side": if chance.in_hundred(50) { "BUY" } else { "SELL" },
            "qty": chance.between(1, 20) * 100, "idempotency_key": key,
        });
        scene.world.order(&key, &mut chance);
        scene.click("/do/order", &key, &body, chance.in_hundred(20)).await;
    }
}
