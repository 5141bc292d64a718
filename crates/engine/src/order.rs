//! Performing orders: the broker is spoken to here, and nowhere else.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use serde_json::Value;
use tashika_domain::effect::{Effect, PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::order::{
    self, Circumstances, Execution, Latency, OrderRequest, Step, broker_code, request_digest,
};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Changes, Timestamp};
use tashika_providers::broker::{Broker, Reply, SendOrder, Whereabouts};

use crate::handler::{BoxFuture, Ending, Handler, Job, Tried};
use crate::worker::millis;

/// Sends orders through a broker.
pub struct OrderHandler {
    broker: Arc<dyn Broker>,
    /// How long the ledger remembers an answer.
    remember: Duration,
}

impl OrderHandler {
    #[must_use]
    pub fn new(broker: Arc<dyn Broker>, remember: Duration) -> Self {
        Self { broker, remember }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let order = match OrderRequest::from_stored(&job.effect.payload) {
            Ok(order) => order,
            Err(problem) => return Tried::refused(PAYLOAD_UNREADABLE, problem),
        };
        // The broker knows it by the one key, callers and the ledger by the other.
        if job.effect.key.as_ref().is_some_and(|key| *key != order.idempotency_key) {
            return Tried::refused(PAYLOAD_UNREADABLE, "idempotency_key is not the effect's key");
        }
        match order::next_step(job.effect.in_doubt, self.broker.takes_keys()) {
            Step::Send => self.send(job, &order).await,
            Step::AskFirst => self.ask_first(job, &order).await,
        }
    }

    async fn send(&self, job: Job<'_>, order: &OrderRequest) -> Tried {
        let reply = self
            .broker
            .send(SendOrder {
                order,
                body: &job.effect.payload,
                now: job.now,
                traceparent: job.effect.traceparent.as_deref(),
            })
            .await;
        histogram!("do_order_latency_ms", "phase" => "broker_rtt").record(millis(reply.rtt));
        tried(reply)
    }

    /// The order may have been executed, and the broker would not recognise a repeat.
    async fn ask_first(&self, job: Job<'_>, order: &OrderRequest) -> Tried {
        let Reply { outcome, exchange, rtt } =
            self.broker.status(&order.idempotency_key, job.now).await;
        let outcome = match outcome {
            Outcome::Done(Whereabouts::Executed(execution)) => Outcome::Done(execution),
            Outcome::Done(Whereabouts::NotFound) => {
                let sent = self.send(job, order).await;
                return Tried { doubt_cleared: true, ..sent };
            }
            Outcome::Done(Whereabouts::Rejected(reason)) => {
                let refused = Outcome::Refused(reason);
                return Tried {
                    doubt_cleared: true,
                    ..tried(Reply { outcome: refused, exchange, rtt })
                };
            }
            Outcome::Done(Whereabouts::Working) => Outcome::Lost(Reason::new(
                broker_code::TIMEOUT,
                "the broker is still working on the order",
            )),
            Outcome::Refused(reason) | Outcome::Lost(reason) => Outcome::Lost(reason),
            Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
        };
        tried(Reply { outcome, exchange, rtt })
    }
}

fn tried(reply: Reply<Execution>) -> Tried {
    let outcome = reply.outcome.map(|execution| serde_json::json!(execution));
    Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..Tried::new(outcome) }
}

impl Handler for OrderHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn settle(&self, ending: &Ending<'_>) -> Changes {
        count(ending);
        let mut changes = self.answer(ending);
        if let Some(line) = order::audit(ending.effect, ending.verdict, ending.now) {
            changes.push(line);
        }
        changes
    }

    fn adapter(&self) -> Option<&str> {
        Some(self.broker.name())
    }

    /// Orders that an application enqueued by itself have no digest yet; theirs is made here.
    fn request_digest(&self, effect: &Effect) -> Option<String> {
        effect.digest.clone().or_else(|| {
            let body: Value = serde_json::from_str(&effect.payload).ok()?;
            effect.key.is_some().then(|| request_digest(&body))
        })
    }
}

impl OrderHandler {
    /// What the ledger learns, and the case if nobody can say what happened.
    fn answer(&self, ending: &Ending<'_>) -> Changes {
        let effect = ending.effect;
        let recorded = effect.digest.is_some();
        let digest = self.request_digest(effect);
        let effect = &Effect { digest, ..effect.clone() };
        let Ok(order) = OrderRequest::from_stored(&effect.payload) else {
            let expires_at = ending.now.plus(self.remember);
            return order::settle_unreadable(effect, ending.verdict, ending.now, expires_at);
        };
        let execution: Option<Execution> =
            ending.result().and_then(|value| serde_json::from_value(value.clone()).ok());
        order::settle(&order::Ending {
            effect,
            order: &order,
            verdict: ending.verdict,
            execution: execution.as_ref(),
            broker_takes_keys: self.broker.takes_keys(),
            recorded,
            at: Circumstances {
                broker: self.broker.name(),
                accepted_at: effect.created_at,
                now: ending.now,
                latency: latency(effect.created_at, ending),
            },
            expires_at: ending.now.plus(self.remember),
            case_id: ending.id,
        })
    }
}

fn latency(accepted_at: Timestamp, ending: &Ending<'_>) -> Latency {
    let whole = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Latency {
        queue: whole(ending.started_at.since(accepted_at)),
        broker_rtt: whole(ending.rtt),
        total: whole(ending.now.since(accepted_at)),
    }
}

fn count(ending: &Ending<'_>) {
    let outcome = match ending.verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Aborted { .. } => "failed",
        Verdict::Retry { .. } => return,
    };
    counter!("order_requests_total", "outcome" => outcome).increment(1);
    let total = ending.now.since(ending.effect.created_at);
    histogram!("do_order_latency_ms", "phase" => "total").record(millis(total));
}
