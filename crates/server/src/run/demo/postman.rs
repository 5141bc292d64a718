//! The gateway's webhooks: they come late, and some come twice or not at all, as they do in earnest.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tashika_engine::Clock;
use tashika_testkit::gateway::sign;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::chance::{Chance, pass};
use super::settings::WEBHOOK_SECRET;
use super::world::World;

/// Between two looks at what the gateway has to tell.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// Delivers until it is over.
pub(super) async fn deliver(
    world: Arc<World>,
    caller: Caller,
    mut chance: Chance,
    over: CancellationToken,
) {
    let mut seen = 0;
    let mut under_way = JoinSet::new();
    while pass(LOOK_EVERY, &over).await {
        while under_way.try_join_next().is_some() {}
        for event in world.gateway.events_from(seen) {
            seen += 1;
            let of_page = event["type"].as_str().is_some_and(|kind| kind.starts_with("checkout"));
            // Whoever has paid on a page waits for it; the rest is asked about first, as a rule.
            let delay = if of_page { chance.millis(300, 2500) } else { chance.millis(3000, 8000) };
            let copies = match chance.between(1, 100) {
                1..=8 => 0,
                9..=25 => 2,
                _ => 1,
            };
            let (world, caller, over) = (Arc::clone(&world), caller.clone(), over.clone());
            under_way.spawn(async move {
                if !pass(delay, &over).await || concerns_hushed(&world, &event) {
                    return;
                }
                for _ in 0..copies {
                    send(&caller, &event).await;
                }
            });
        }
    }
    // What has begun is finished.
    while under_way.join_next().await.is_some() {}
}

fn concerns_hushed(world: &World, event: &Value) -> bool {
    let payment = event["data"]["object"]["metadata"]["payment_id"].as_str();
    payment.is_some_and(|payment| world.is_hushed(payment))
}

async fn send(caller: &Caller, event: &Value) {
    let payload = event.to_string();
    let signature = sign(&payload, WEBHOOK_SECRET, Clock::System.now());
    let headers = [("stripe-signature", signature.as_str())];
    caller.call(Method::POST, "/webhooks/stripe", &headers, payload).await;
}
