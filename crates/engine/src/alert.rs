//! Telling people about alerts over HTTP: one effect per alert and state.
//!
//! A repeat is harmless: it carries the same `webhook-id`. Who takes it may therefore see one twice after a
//! lost answer, and none is left out.

use std::sync::Arc;

use serde_json::Value;
use tashika_domain::alert::notify::Notification;
use tashika_domain::effect::PAYLOAD_UNREADABLE;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_providers::sink::{Delivery, Sink};

use crate::handler::{BoxFuture, Handler, Job, Tried};

/// Delivers notifications.
pub struct AlertHandler {
    sink: Option<Arc<Sink>>,
}

impl AlertHandler {
    #[must_use]
    pub const fn new(sink: Option<Arc<Sink>>) -> Self {
        Self { sink }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let Notification { id, sink, body } = match serde_json::from_str(&job.effect.payload) {
            Ok(notification) => notification,
            Err(problem) => return Tried::refused(PAYLOAD_UNREADABLE, problem.to_string()),
        };
        let Some(known) = self.sink.as_ref().filter(|known| known.name() == sink) else {
            // Perhaps a process with a newer configuration knows it.
            let reason = Reason::new("SINK_UNKNOWN", format!("{sink} is not ALERT_WEBHOOK_URL"));
            return Tried::new(Outcome::Busy { reason, retry_in: None });
        };
        let reply = known
            .deliver(Delivery {
                id: &id.to_string(),
                body: body.to_string().as_bytes(),
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

impl Handler for AlertHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }
}
