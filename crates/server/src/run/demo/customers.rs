//! Customers: whoever pays, trades, reserves, sends jobs and writes letters, each at their own pace.

mod letters;
mod shoppers;
mod traders;
mod visitors;

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::{Answer, Caller};
use super::chance::Chance;
use super::world::World;

/// What a customer has at hand.
#[derive(Clone)]
pub(super) struct Scene {
    pub world: Arc<World>,
    pub caller: Caller,
    pub over: CancellationToken,
    /// In front of every key: two demonstrations with one database would be two.
    pub name: String,
}

/// Sends everybody in.
pub(super) fn start(scene: &Scene, seed: u64) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for shopper in 0..2 {
        let chance = Chance::of(seed, 10 + shopper);
        all.spawn(shoppers::shop(scene.clone(), shopper, chance));
    }
    all.spawn(traders::trade(scene.clone(), Chance::of(seed, 20)));
    all.spawn(visitors::visit(scene.clone(), Chance::of(seed, 30)));
    all.spawn(letters::send_jobs(scene.clone(), Chance::of(seed, 40)));
    all.spawn(letters::write(scene.clone(), Chance::of(seed, 50)));
    all
}

impl Scene {
    /// Posts; an impatient customer clicks twice, and both clicks mean one thing.
    async fn click(
        &self,
        path: &str,
        key: &str,
        body: &serde_json::Value,
        twice: bool,
    ) -> Option<Answer> {
        if !twice {
            return self.caller.post(path, key, body).await;
        }
        let (first, second) =
            tokio::join!(self.caller.post(path, key, body), self.caller.post(path, key, body));
        // One of the two may be told that the other is under way.
        first.filter(|answer| answer.status != 409).or(second)
    }
}
