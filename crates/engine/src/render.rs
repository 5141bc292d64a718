//! Making videos: submits, asks, and copies what came out.
//!
//! One effect at a time takes a render further. While the provider works the effect is put off, which
//! is no attempt and no failure; everything else is decided by `domain::render` with the render as it
//! is when the answer is here. An effect of an earlier step finds that and does nothing.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};
use tashika_domain::effect::{PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::render::conclude::{
    At, GONE, Learned, OVERDUE, RemoteState, UNANSWERED, conclude, copied, hear, not_copied,
};
use tashika_domain::render::{CopyPayload, Render, RenderRules, RenderStatus, State, StepPayload};
use tashika_domain::webhook::WebhookEvent;
use tashika_domain::{Changes, Timestamp, Write};
use tashika_providers::render::fetch::Fetcher;
use tashika_providers::render::{RenderJob, Renderer, Submitted, shotstack};
use tashika_store::{Store, StoreError};
use uuid::Uuid;

use crate::clock::Clock;
use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};

/// Before a step that could not be taken because the database was away.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What a callback's address says beside what its body says: which render, which attempt.
pub const REFERENCE: &str = "tashikaReference";

/// Everything that renders need.
pub struct Studio {
    pub store: Store,
    pub clock: Clock,
    pub renderer: Arc<dyn Renderer>,
    pub rules: RenderRules,
    /// Where providers call back: this, a render's id and the number of the attempt.
    pub callbacks: Option<String>,
    /// Copies outputs, if there is a place for copies.
    pub fetcher: Option<Fetcher>,
}

impl Studio {
    async fn submit(&self, render: &Render, now: Timestamp) -> Tried {
        let attempt = render.attempts;
        let callback = self.callbacks.as_ref();
        let callback = callback.map(|base| format!("{base}/{}/{attempt}", render.id));
        let job = RenderJob {
            render_id: render.id,
            attempt,
            reservation_id: render.reservation_id,
            video_id: render.video_id,
            callback: callback.as_deref(),
            asked_at: render.updated_at,
            now,
            traceparent: render.traceparent.as_deref(),
        };
        let reply = self.renderer.submit(job).await;
        let outcome = reply.outcome.map(|remote| json!(Learned::Remote(remote)));
        Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..Tried::new(outcome) }
    }

    async fn ask(&self, render: &Render, provider_id: &str, now: Timestamp) -> Tried {
        let (render_id, attempt) = (render.id, render.attempts);
        let reply = self.renderer.look(Submitted { render_id, attempt, provider_id, now }).await;
        let since = render.submitted_at.unwrap_or(render.updated_at);
        let overdue = now.since(since) >= self.rules.attempt_limit;
        let learned = match reply.outcome {
            Outcome::Done(Some(remote)) if remote.state != RemoteState::Working => {
                Learned::Remote(remote)
            }
            Outcome::Done(None) => {
                Learned::Failed(Reason::new(GONE, "the provider does not know the render any more"))
            }
            _ if overdue => {
                Learned::Failed(Reason::new(OVERDUE, "the provider has not finished in time"))
            }
            // Still at work; or nobody could say, and a question that was lost leaves no doubt.
            Outcome::Busy { retry_in: Some(wait), .. } => {
                return Tried::later(now.plus(wait.max(self.rules.poll)));
            }
            _ => return Tried::later(now.plus(self.rules.poll)),
        };
        let tried = Tried::done(json!(learned));
        Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..tried }
    }

    /// What a confirmed callback leads to; `None` if it is about no render of ours.
    pub(crate) async fn hear(
        &self,
        event: &WebhookEvent,
        now: Timestamp,
    ) -> Result<Option<Changes>, StoreError> {
        let name = self.renderer.name();
        if event.confirm_by.as_deref() != Some(name) {
            return Ok(None);
        }
        let remote = event.confirmed.as_ref().and_then(|answer| shotstack::remote(answer, now));
        let Some(remote) = remote else { return Ok(None) };
        let (mut found, mut attempt) =
            (self.store.render_of_provider(name, &remote.id).await?, None);
        if found.is_none() {
            // A submission that nobody answered, or an attempt that was taken for dead.
            let Some((id, number)) = reference(event) else { return Ok(None) };
            found = self.store.render(id).await?.filter(|render| render.provider == name);
            attempt = Some(number);
        }
        let Some(render) = found else { return Ok(None) };
        let at = At { now, rules: &self.rules, via: "callback" };
        Ok(Some(hear(&render, &remote, attempt, at)))
    }
}

/// The render and the attempt that a callback's own address names.
fn reference(event: &WebhookEvent) -> Option<(Uuid, u32)> {
    let said = event.said();
    let (id, attempt) = said.get(REFERENCE)?.as_str()?.split_once('/')?;
    Some((id.parse().ok()?, attempt.parse().ok()?))
}

/// Counts renders that have ended.
pub(crate) fn report(changes: &Changes) {
    for write in changes.writes() {
        if let Write::RenderUpdate(render) = write
            && matches!(render.status, RenderStatus::Done | RenderStatus::Failed)
            && render.output_path.is_none()
        {
            counter!("renders_total", "status" => render.status.as_str()).increment(1);
        }
    }
}

/// Takes renders further, step by step.
pub struct RenderHandler(pub Arc<Studio>);

impl RenderHandler {
    async fn perform(&self, job: Job<'_>) -> Tried {
        let Ok(payload) = serde_json::from_str::<StepPayload>(&job.effect.payload) else {
            return Tried::refused(PAYLOAD_UNREADABLE, "not a step of a render");
        };
        let render = match self.0.store.render(payload.render_id).await {
            Ok(Some(render)) if render.step == payload.step => render,
            Ok(_) => return Tried::done(Value::Null),
            Err(error) => {
                tracing::warn!(%error, "a render could not be read");
                return Tried::later(job.now.plus(READ_AGAIN));
            }
        };
        match (render.state(), &render.provider_id) {
            (State::Queued, _) => self.0.submit(&render, job.now).await,
            (State::Processing, Some(id)) => self.0.ask(&render, id, job.now).await,
            (State::Processing, None) => {
                let text = "submitted, not answered, and no callback has told of it";
                Tried::done(json!(Learned::Failed(Reason::new(UNANSWERED, text))))
            }
            (State::Done | State::Failed | State::Closed, _) => Tried::done(Value::Null),
        }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let studio = &self.0;
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Ok(payload) = serde_json::from_str::<StepPayload>(&ending.effect.payload) else {
            return Ok(Settled::new(ending.verdict.clone(), Changes::new()));
        };
        let render = studio.store.render(payload.render_id).await?;
        let Some(render) = render.filter(|render| render.step == payload.step) else {
            return Ok(over());
        };
        let submits = render.state() == State::Queued;
        let repeats = studio.renderer.knows_keys();
        let (learned, via) = match ending.outcome {
            Outcome::Done(Value::Null) => return Ok(over()),
            Outcome::Done(value) => match serde_json::from_value::<Learned>(value.clone()) {
                Ok(learned) => (learned, if submits { "submission" } else { "question" }),
                Err(error) => {
                    let reason = Reason::new("RENDER_UNREADABLE", error.to_string());
                    (Learned::Failed(reason), "submission")
                }
            },
            Outcome::Refused(reason) if submits => (Learned::Failed(reason.clone()), "submission"),
            Outcome::Lost(reason) if submits && !repeats => {
                (Learned::Unanswered(reason.clone()), "submission")
            }
            Outcome::Busy { reason, .. } | Outcome::Lost(reason) if submits => {
                match ending.verdict {
                    Verdict::Retry { .. } => {
                        return Ok(Settled::new(ending.verdict.clone(), Changes::new()));
                    }
                    _ => (Learned::Failed(reason.clone()), "submission"),
                }
            }
            // A question whose worker is gone is asked again.
            Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
                let verdict = Verdict::Retry {
                    run_at: ending.now.plus(studio.rules.poll),
                    reason: reason.clone(),
                    in_doubt: false,
                };
                return Ok(Settled::new(verdict, Changes::new()));
            }
        };
        let at = At { now: ending.now, rules: &studio.rules, via };
        let mut settled = Settled::new(Verdict::Succeeded, conclude(&render, &learned, at));
        let changes = settled.changes.clone();
        settled.after = Some(Box::new(move || report(&changes)));
        Ok(settled)
    }
}

impl Handler for RenderHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }

    fn adapter(&self) -> Option<&str> {
        Some(self.0.renderer.name())
    }
}

/// Copies outputs before their addresses die.
pub struct CopyHandler(pub Arc<Studio>);

impl CopyHandler {
    async fn perform(&self, job: Job<'_>) -> Tried {
        let Ok(payload) = serde_json::from_str::<CopyPayload>(&job.effect.payload) else {
            return Tried::refused(PAYLOAD_UNREADABLE, "not a copy of a render");
        };
        let render = match self.0.store.render(payload.render_id).await {
            Ok(Some(render)) => render,
            Ok(None) => return Tried::done(Value::Null),
            Err(error) => {
                tracing::warn!(%error, "a render could not be read");
                return Tried::later(job.now.plus(READ_AGAIN));
            }
        };
        let Some(fetcher) = &self.0.fetcher else {
            let text = "there is no folder for copies any more (RENDER_OUTPUT_DIR)";
            return Tried::refused("NO_OUTPUT_DIR", text);
        };
        let Some(url) = render.output_url.as_deref().filter(|_| render.output_path.is_none())
        else {
            return Tried::done(Value::Null);
        };
        let turn = format!("{}-{}", job.effect.id, job.effect.fence);
        let reply = fetcher.copy(render.id, url, &turn).await;
        let outcome = reply
            .outcome
            .map(|copied| json!({"path": copied.path.to_string_lossy(), "bytes": copied.bytes}));
        Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..Tried::new(outcome) }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let as_usual = || Settled::new(ending.verdict.clone(), Changes::new());
        let Ok(payload) = serde_json::from_str::<CopyPayload>(&ending.effect.payload) else {
            return Ok(as_usual());
        };
        let Some(render) = self.0.store.render(payload.render_id).await? else {
            return Ok(as_usual());
        };
        let changes = match (ending.outcome, ending.verdict) {
            (Outcome::Done(value), _) => match value.get("path").and_then(Value::as_str) {
                Some(path) => {
                    let bytes = value.get("bytes").and_then(Value::as_u64).unwrap_or_default();
                    copied(&render, path, bytes, ending.now)
                }
                None => Changes::new(),
            },
            (_, Verdict::Aborted { reason, .. }) => not_copied(&render, reason, ending.now),
            _ => Changes::new(),
        };
        Ok(Settled::new(ending.verdict.clone(), changes))
    }
}

impl Handler for CopyHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }
}
