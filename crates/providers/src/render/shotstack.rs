//! Rendering at Shotstack.
//!
//! `POST {base}/render` with a description made from a [`Template`], `GET {base}/render/{id}`. There
//! is no idempotency key and no list: a submission that nobody answered cannot be found again, except
//! by its callback, whose address has our own id in it. So a lost submission is waited for and then
//! made again; a second video costs credits, not the customer's money.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::outcome::Reason;
use tashika_domain::render::conclude::{RemoteRender, RemoteState};
use tashika_domain::{Outcome, Timestamp};

use super::template::Template;
use super::{RenderJob, Renderer, Submitted, counted};
use crate::reply::{BoxFuture, Reply};
use crate::shotstack::{Render, Shotstack};

/// Shotstack deletes outputs a day after they were made.
pub const OUTPUT_LIFE: Duration = Duration::from_secs(24 * 3600);

/// What a provider says about a failure, at most.
const ERROR_MAX: usize = 300;

pub struct ShotstackRenderer {
    shotstack: Arc<Shotstack>,
    template: Template,
}

impl ShotstackRenderer {
    pub const NAME: &'static str = "shotstack";

    #[must_use]
    pub const fn new(shotstack: Arc<Shotstack>, template: Template) -> Self {
        Self { shotstack, template }
    }

    async fn send(&self, job: RenderJob<'_>) -> Reply<RemoteRender> {
        let edit =
            self.template.fill(job.video_id, job.reservation_id, job.render_id, job.callback);
        let reply = self.shotstack.submit(&edit, job.now).await;
        reply.map(|id| RemoteRender { id, state: RemoteState::Working })
    }

    async fn ask(&self, submitted: Submitted<'_>) -> Reply<Option<RemoteRender>> {
        let reply = self.shotstack.render(submitted.provider_id, submitted.now).await;
        reply.map(|render| match render {
            Render::Known { answer, .. } => remote(&answer, submitted.now),
            Render::Unknown => None,
        })
    }
}

/// A render in Shotstack's own words: an answer to a question, or what a callback was confirmed with.
/// `None` if it is not one, or if it says done without saying where.
#[must_use]
pub fn remote(answer: &Value, now: Timestamp) -> Option<RemoteRender> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    let id = text("id").filter(|id| !id.is_empty())?.to_owned();
    let state = match text("status")? {
        "queued" | "fetching" | "rendering" | "saving" => RemoteState::Working,
        "done" => RemoteState::Done {
            url: text("url").filter(|url| !url.is_empty())?.to_owned(),
            expires_at: Some(now.plus(OUTPUT_LIFE)),
        },
        "failed" => {
            let said = text("error").map(str::trim).filter(|said| !said.is_empty());
            let said: String = said.unwrap_or("no reason given").chars().take(ERROR_MAX).collect();
            RemoteState::Failed(Reason::new("SHOTSTACK_FAILED", said))
        }
        _ => return None,
    };
    Some(RemoteRender { id, state })
}

impl Renderer for ShotstackRenderer {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn knows_keys(&self) -> bool {
        false
    }

    fn submit<'a>(&'a self, job: RenderJob<'a>) -> BoxFuture<'a, Reply<RemoteRender>> {
        Box::pin(counted(Self::NAME, "submit", self.send(job)))
    }

    fn look<'a>(&'a self, submitted: Submitted<'a>) -> BoxFuture<'a, Reply<Option<RemoteRender>>> {
        let work = async move {
            let reply = self.ask(submitted).await;
            match reply.outcome {
                // It knows the render and says nothing that can be used: that is not "unknown".
                Outcome::Done(None) if reply.exchange.reply == "200" => {
                    let reason = Reason::new("SHOTSTACK_UNREADABLE", "a status we do not know");
                    Reply { outcome: Outcome::Busy { reason, retry_in: None }, ..reply }
                }
                _ => reply,
            }
        };
        Box::pin(counted(Self::NAME, "look", work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_status_means_one_thing() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let said = |answer: Value| remote(&answer, now).map(|remote| remote.state);
        for status in ["queued", "fetching", "rendering", "saving"] {
            assert_eq!(said(json!({"id": "r", "status": status})), Some(RemoteState::Working));
        }
        let done = json!({"id": "r", "status": "done", "url": "https://a/b.mp4"});
        let expires_at = Some(now.plus(OUTPUT_LIFE));
        let expected = RemoteState::Done { url: "https://a/b.mp4".into(), expires_at };
        assert_eq!(said(done), Some(expected));
        let failed = said(json!({"id": "r", "status": "failed", "error": " no font "}));
        assert_eq!(failed, Some(RemoteState::Failed(Reason::new("SHOTSTACK_FAILED", "no font"))));
        for nothing in [
            json!({"id": "r", "status": "done"}),
            json!({"id": "r", "status": "asleep"}),
            json!({"id": "", "status": "queued"}),
            json!({"status": "queued"}),
            json!(null),
        ] {
            assert_eq!(said(nothing.clone()), None, "{nothing}");
        }
    }
}
