//! Deliberate mistakes with messages, made outside of the product.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tashika_domain::message::gate::{FlowControl, admit_from_flow, admit_from_queue};
use tashika_domain::message::{KIND, Message, State};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_engine::{BoxFuture, Carrier, Ending, Handler, Job, MessageHandler, Settled, Tried};
use tashika_providers::courier::{Delivered, Known, Parcel};
use tashika_store::{Store, StoreError};

use super::Planted;
use super::Scene;
use super::dice::Odds;
use super::life::Birth;
use super::swarm::{LINES, Swarm};

/// How often somebody interferes at a gate.
const OFTEN: Duration = Duration::from_millis(300);

/// Makes a mistake possible: one in a world in which it cannot show proves nothing.
pub(crate) fn arrange(swarm: &mut Swarm, planted: Planted) {
    for consumer in &mut swarm.consumers {
        match planted {
            Planted::SilenceIsFine => consumer.lost = Odds::percent(20),
            Planted::OverwritesCancel => consumer.slow = Odds::percent(50),
            _ => {}
        }
    }
    if planted == Planted::SkipsCallbacks {
        swarm.clients.callback = Odds::percent(40);
    }
    if planted == Planted::DropsKeys {
        swarm.dedup_window = Duration::from_secs(600);
    }
}

/// Puts a mistake between the engine and the consumers, if that is where it belongs.
pub(crate) fn carrier(planted: Option<Planted>, carrier: Arc<dyn Carrier>) -> Arc<dyn Carrier> {
    match planted {
        Some(Planted::SilenceIsFine) => Arc::new(SilenceIsFine(carrier)),
        _ => carrier,
    }
}

struct SilenceIsFine(Arc<dyn Carrier>);

impl Carrier for SilenceIsFine {
    fn deliver<'a>(&'a self, parcel: Parcel<'a>, now: Timestamp) -> BoxFuture<'a, Delivered> {
        Box::pin(async move {
            let mut delivered = self.0.deliver(parcel, now).await;
            if matches!(delivered.known, Known::NoAnswer(_)) {
                let (headers, body) = (tashika_domain::message::Headers::new(), Bytes::new());
                delivered.known = Known::Answered { status: 200, headers, body, truncated: false };
            }
            delivered
        })
    }
}

pub(crate) const fn is_of_handler(mistake: Planted) -> bool {
    matches!(mistake, Planted::OverwritesCancel | Planted::SkipsCallbacks)
}

/// A handler that draws the wrong conclusions.
pub(crate) struct BadHandler {
    pub handler: MessageHandler,
    pub mistake: Planted,
}

impl BadHandler {
    async fn conclude_badly(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let mut settled = self.handler.conclude(ending).await?;
        if self.mistake == Planted::SkipsCallbacks {
            let tells = |write: &Write| match write {
                Write::MessageInsert(_) => true,
                Write::Enqueue(effect) => effect.kind == KIND,
                _ => false,
            };
            settled.changes = without(&settled.changes, tells);
            return Ok(settled);
        }
        let found = self.handler.store.message(ending.effect.id.0).await?;
        if let Some(message) = found.filter(|message| message.state == State::Cancelled) {
            let version = message.version + 1;
            let after = Message { state: State::Delivered, version, held: None, ..message };
            settled.changes = without(&settled.changes, |write| matches!(write, Write::LetGo(_)));
            settled.changes.push(Write::MessageUpdate(Box::new(after)));
        }
        Ok(settled)
    }
}

impl Handler for BadHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        self.handler.attempt(job)
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.conclude_badly(ending))
    }
}

fn without(changes: &Changes, which: impl Fn(&Write) -> bool) -> Changes {
    let mut kept = Changes::new();
    for write in changes.writes().iter().filter(|write| !which(write)) {
        kept.push(write.clone());
    }
    kept
}

/// Somebody who lets messages through as he likes, beside the gatekeeper.
pub(crate) fn interfere(scene: &Arc<Scene>, birth: &Birth<'_>, store: &Store, node: usize) {
    let mistake = match scene.planted {
        Some(mistake @ (Planted::JumpsTheQueue | Planted::IgnoresFlow)) if node == 0 => mistake,
        _ => return,
    };
    let (scene, fate) = (Arc::clone(scene), Arc::clone(&birth.fate));
    let (store, clock) = (store.clone(), birth.clock);
    tokio::spawn(async move {
        while !scene.is_calm() {
            tokio::time::sleep(OFTEN).await;
            fate.alive().await;
            let now = clock.now();
            let done = if mistake == Planted::JumpsTheQueue {
                jump(&store, now).await
            } else {
                rush(&scene, &store, now).await
            };
            if let Err(error) = done {
                scene.broken(now, "the store answers", "", &error.to_string());
            }
        }
    });
}

/// Lets the last of a queue through, whoever has a place in it.
async fn jump(store: &Store, now: tashika_domain::Timestamp) -> Result<(), StoreError> {
    for name in LINES {
        let Some(queue) = store.queue(name).await? else { continue };
        let waiting = store.queued(name, now, 100).await?;
        let last = waiting.last().map_or(&[][..], std::slice::from_ref);
        if let Some(changes) = admit_from_queue(&queue, 0, last, now) {
            // Somebody may have been faster.
            store.commit(changes).await.ok();
        }
    }
    Ok(())
}

/// Lets everybody through a flow control, and does not count them.
async fn rush(
    scene: &Scene,
    store: &Store,
    now: tashika_domain::Timestamp,
) -> Result<(), StoreError> {
    for flow in &scene.swarm.flows {
        let Some(control) = store.flow_control(&flow.key).await? else { continue };
        let free = FlowControl { parallelism: None, rate: None, ..control };
        let waiting = store.throttled(&flow.key, now, 100).await?;
        if let Some(changes) = admit_from_flow(&free, 0, &waiting, now) {
            let changes = without(&changes, |write| matches!(write, Write::FlowUpdate(_)));
            store.commit(changes).await.ok();
        }
    }
    Ok(())
}
