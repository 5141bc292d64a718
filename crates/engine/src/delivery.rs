//! Forwarding webhooks to HTTP workers: the bytes as they came, with our own signature.
//!
//! A worker answers 2xx for done (204, by the contract), `489` with `Upstash-NonRetryable-Error: true`
//! for "never", and anything else for "again". It may get an event twice and tells by its id.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::effect::PAYLOAD_UNREADABLE;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_providers::sink::{Delivery, Sink};
use tashika_store::Store;
use uuid::Uuid;

use crate::handler::{BoxFuture, Handler, Job, Tried};

/// Delivers to workers by name.
pub struct DeliveryHandler {
    store: Store,
    workers: BTreeMap<String, Arc<Sink>>,
}

#[derive(Deserialize)]
struct Payload {
    event: Uuid,
    to: String,
}

impl DeliveryHandler {
    #[must_use]
    pub fn new(store: Store, workers: BTreeMap<String, Arc<Sink>>) -> Self {
        Self { store, workers }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let busy = |code: &str, text: String| {
            Tried::new(Outcome::Busy { reason: Reason::new(code, text), retry_in: None })
        };
        let Payload { event, to } = match serde_json::from_str(&job.effect.payload) {
            Ok(payload) => payload,
            Err(problem) => return Tried::refused(PAYLOAD_UNREADABLE, problem.to_string()),
        };
        let Some(worker) = self.workers.get(&to) else {
            // Perhaps a process with a newer configuration knows it.
            return busy("WORKER_UNKNOWN", format!("no worker {to} is configured"));
        };
        let event = match self.store.webhook_event(event).await {
            Ok(Some(event)) => event,
            Ok(None) => return Tried::refused("NO_EVENT", "the event is gone"),
            Err(error) => return busy("STORE_UNAVAILABLE", error.to_string()),
        };
        let message_id = job.effect.id.to_string();
        let headers = [
            ("x-event-id", event.event_id.as_str()),
            ("x-event-type", event.event_type.as_str()),
            ("x-event-source", event.source.as_str()),
            ("x-message-id", message_id.as_str()),
        ];
        let reply = worker
            .deliver(Delivery {
                id: &event.event_id,
                body: &event.body,
                content_type: event.content_type.as_deref().unwrap_or("application/json"),
                headers: &headers,
                now: job.now,
                traceparent: job.effect.traceparent.as_deref(),
            })
            .await;
        let outcome = reply.outcome.map(|()| Value::Null);
        Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..Tried::new(outcome) }
    }
}

impl Handler for DeliveryHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }
}
