//! Schedules fire.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::Changes;
use tashika_domain::effect::{PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::message::schedule;
use tashika_domain::mutant::{self, Mutant};
use tashika_store::StoreError;
use uuid::Uuid;

use crate::commands::message::{Messages, QueueError};
use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};

/// Publishes what schedules ask for.
pub struct ScheduleHandler(pub Arc<Messages>);

#[derive(Deserialize)]
struct Payload {
    schedule: Uuid,
    version: i64,
}

impl ScheduleHandler {
    async fn fire(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(ending.verdict.clone(), Changes::new());
        if matches!(ending.verdict, Verdict::Retry { .. }) {
            return Ok(over());
        }
        let Ok(payload) = serde_json::from_str::<Payload>(&ending.effect.payload) else {
            return Ok(over());
        };
        let messages = &self.0;
        let found = messages.store.schedule_by_id(payload.schedule).await?;
        // Changed, paused or deleted meanwhile: another firing, or none, has taken this one's place.
        let Some(schedule) = found
            .filter(|found| found.version == payload.version || mutant::on(Mutant::TickFiresAgain))
        else {
            return Ok(over());
        };
        let now = ending.now;
        let expires_at = now.plus(messages.rules.keep);
        if let Some(reason) = ending.verdict.reason() {
            // This firing was given up, after workers disappeared over it; the schedule goes on.
            let changes = schedule::fired(&schedule, Err(reason.message.clone()), now, expires_at);
            return Ok(Settled::new(ending.verdict.clone(), changes));
        }
        let (mut changes, made, result) = match messages.firing(&schedule, now).await {
            Ok((changes, made)) => {
                let ids = made.iter().map(|message| message.id).collect();
                (changes, made, Ok(ids))
            }
            Err(QueueError::Store(error)) => return Err(error),
            Err(error) => (Changes::new(), Vec::new(), Err(error.to_string())),
        };
        changes.extend(schedule::fired(&schedule, result, now, expires_at));
        let mut settled = Settled::new(Verdict::Succeeded, changes);
        let messages = Arc::clone(messages);
        settled.after = Some(Box::new(move || messages.taken(made, now)));
        Ok(settled)
    }
}

impl Handler for ScheduleHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async move {
            match serde_json::from_str::<Payload>(&job.effect.payload) {
                Ok(_) => Tried::done(Value::Null),
                Err(problem) => Tried::refused(PAYLOAD_UNREADABLE, problem.to_string()),
            }
        })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.fire(ending))
    }
}
