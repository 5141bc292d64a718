//! Telling event sinks what has happened. A repeat is harmless: it carries the event's own id.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::effect::PAYLOAD_UNREADABLE;
use tashika_domain::event::Event;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_providers::sink::{Delivery, Sink};

use crate::handler::{BoxFuture, Handler, Job, Tried};

/// Delivers events.
pub struct EventHandler {
    sinks: BTreeMap<String, Arc<Sink>>,
}

#[derive(Deserialize)]
struct Payload {
    sink: String,
    event: Event,
}

impl EventHandler {
    #[must_use]
    pub fn new(sinks: &[Arc<Sink>]) -> Self {
        let named = sinks.iter().map(|sink| (sink.name().to_owned(), Arc::clone(sink)));
        Self { sinks: named.collect() }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let Payload { sink, event } = match serde_json::from_str(&job.effect.payload) {
            Ok(payload) => payload,
            Err(problem) => return Tried::refused(PAYLOAD_UNREADABLE, problem.to_string()),
        };
        let Some(sink) = self.sinks.get(&sink) else {
            // Perhaps a process with a newer configuration knows it.
            let reason = Reason::new("SINK_UNKNOWN", format!("no sink {sink} is configured"));
            return Tried::new(Outcome::Busy { reason, retry_in: None });
        };
        let body = serde_json::to_string(&event).unwrap_or_default();
        let reply = sink
            .deliver(Delivery {
                id: &event.id.to_string(),
                body: body.as_bytes(),
                content_type: "application/json",
                headers: &[],
                now: job.now,
                traceparent: job.effect.traceparent.as_deref(),
            })
            .await;
        let outcome = reply.outcome.map(|()| Value::Null);
        Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..Tried::new(outcome) }
    }
}

impl Handler for EventHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }
}
