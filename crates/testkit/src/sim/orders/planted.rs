//! Deliberate mistakes, to see that the checker can fail.
//!
//! Each is made outside of the product: a broker or a handler that misbehaves, or a promise that is
//! given too early. A checker that lets them pass proves nothing about the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tashika_domain::effect::Effect;
use tashika_domain::order::{Execution, broker_code};
use tashika_domain::outcome::Reason;
use tashika_domain::{Changes, Outcome, Timestamp};
use tashika_engine::{Ending, Handler, Job, OrderHandler, Tried};
use tashika_providers::broker::{BoxFuture, Broker, Reply, SendOrder, Whereabouts};

use super::Planted;
use super::dice::Odds;
use super::swarm::Swarm;

/// Makes a mistake possible: one in a world in which it cannot show proves nothing.
pub(crate) fn arrange(swarm: &mut Swarm, planted: Planted) {
    match planted {
        Planted::NeverAsks => {
            swarm.honours_keys = false;
            swarm.status_lag = None;
            swarm.network.duplicated = Odds::NEVER;
            swarm.network.linger_ms = swarm.network.linger_ms.min(1000);
        }
        Planted::AckBeforeCommit => {
            swarm.process.crash_at_commit =
                Odds::millionth(swarm.process.crash_at_commit.in_million().max(10_000));
        }
        _ => {}
    }
}

/// Puts a mistake into a run.
impl Planted {
    /// Puts the mistake between the engine and the broker, if that is where it belongs.
    pub(crate) fn broker(planted: Option<Self>, broker: Arc<dyn Broker>) -> Arc<dyn Broker> {
        match planted {
            Some(mistake @ (Self::LostIsRefused | Self::FreshKeyPerAttempt)) => {
                Arc::new(BadAdapter { broker, mistake, sent: AtomicU64::new(0) })
            }
            _ => broker,
        }
    }
}

struct BadAdapter {
    broker: Arc<dyn Broker>,
    mistake: Planted,
    sent: AtomicU64,
}

impl BadAdapter {
    async fn mistaken(&self, sent: SendOrder<'_>) -> Reply<Execution> {
        if self.mistake == Planted::LostIsRefused {
            let mut reply = self.broker.send(sent).await;
            if let Outcome::Lost(_) = reply.outcome {
                reply.outcome =
                    Outcome::Refused(Reason::new(broker_code::BAD_REQUEST, "surely not executed"));
            }
            return reply;
        }
        let mut order = sent.order.clone();
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        order.idempotency_key = format!("{}-{number}", order.idempotency_key);
        self.broker.send(SendOrder { order: &order, ..sent }).await
    }
}

impl Broker for BadAdapter {
    fn name(&self) -> &str {
        self.broker.name()
    }

    fn takes_keys(&self) -> bool {
        self.broker.takes_keys()
    }

    fn send<'a>(&'a self, order: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>> {
        Box::pin(self.mistaken(order))
    }

    fn status<'a>(
        &'a self,
        client_order_id: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Reply<Whereabouts>> {
        self.broker.status(client_order_id, now)
    }

    fn cancel<'a>(&'a self, id: &'a str, now: Timestamp) -> BoxFuture<'a, Reply<()>> {
        self.broker.cancel(id, now)
    }

    fn heartbeat(&self, now: Timestamp) -> BoxFuture<'_, Reply<()>> {
        self.broker.heartbeat(now)
    }
}

/// A handler that closes its eyes to doubt.
pub(crate) struct NeverAsks(pub OrderHandler);

impl Handler for NeverAsks {
    fn attempt<'a>(&'a self, job: Job<'a>) -> tashika_engine::BoxFuture<'a, Tried> {
        Box::pin(async move {
            let effect = Effect { in_doubt: false, ..job.effect.clone() };
            self.0.attempt(Job { effect: &effect, now: job.now }).await
        })
    }

    fn settle(&self, ending: &Ending<'_>) -> Changes {
        self.0.settle(ending)
    }

    fn adapter(&self) -> Option<&str> {
        self.0.adapter()
    }

    fn request_digest(&self, effect: &Effect) -> Option<String> {
        self.0.request_digest(effect)
    }
}
