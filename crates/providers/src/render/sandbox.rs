//! The default: makes no videos, and shows every way that a render can go.
//!
//! It remembers nothing: what has become of a render follows from its id, which holds everything that
//! was asked, and from the time. The video's number chooses what happens:
//!
//! | Video | What happens |
//! |---|---|
//! | 9001 | every attempt fails |
//! | 9002 | the first two attempts fail, the third goes well |
//! | 9003 | refused when it is submitted |
//! | 9004 | taken, and no answer; found when it is submitted again |
//! | 9005 | not taken, and no answer |
//! | 9006 | no connection |
//! | 9007 | never finishes |
//! | 9008 | taken, and forgotten |
//! | any other | done after [`TAKES`] |

use std::time::Duration;

use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::render::conclude::{RemoteRender, RemoteState};
use tashika_domain::{Outcome, Timestamp};
use uuid::Uuid;

use super::{RenderJob, Renderer, Submitted, counted};
use crate::reply::{BoxFuture, Reply};

/// How long a video takes.
pub const TAKES: Duration = Duration::from_secs(2);

pub struct SandboxRenderer {
    timeout: Duration,
    takes: Duration,
}

impl SandboxRenderer {
    pub const NAME: &'static str = "sandbox";

    /// `timeout` is how long a caller waits for an answer that does not come.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, takes: TAKES }
    }

    /// How long a video takes, instead of [`TAKES`].
    #[must_use]
    pub const fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    async fn send(&self, job: RenderJob<'_>) -> Reply<RemoteRender> {
        let outcome = match job.video_id {
            9003 => Outcome::Refused(Reason::new("SANDBOX_REFUSED", "the sandbox was told to")),
            9006 => Outcome::Busy {
                reason: Reason::new("SANDBOX_DOWN", "connection refused"),
                retry_in: None,
            },
            // Asked again, it is found under its key.
            9004 if job.now.since(job.asked_at) >= self.timeout => taken(&job),
            9004 | 9005 => {
                tokio::time::sleep(self.timeout).await;
                Outcome::Lost(Reason::new("TIMEOUT", "no answer in time"))
            }
            _ => taken(&job),
        };
        replied("sandbox submit", outcome)
    }

    fn told(&self, provider_id: &str, now: Timestamp) -> Option<RemoteRender> {
        let (video, attempt, asked_at, render) = parts(provider_id)?;
        let over = now.since(asked_at) >= self.takes;
        let failed = || RemoteState::Failed(Reason::new("SANDBOX_FAILED", "it was told to fail"));
        let state = match (video, attempt) {
            (9008, _) => return None,
            (9007, _) => RemoteState::Working,
            _ if !over => RemoteState::Working,
            (9001, _) | (9002, 1 | 2) => failed(),
            _ => {
                let url = format!("sandbox://renders/{}.mp4", render.simple());
                RemoteState::Done { url, expires_at: None }
            }
        };
        Some(RemoteRender { id: provider_id.to_owned(), state })
    }
}

fn taken(job: &RenderJob<'_>) -> Outcome<RemoteRender> {
    Outcome::Done(RemoteRender { id: id(job), state: RemoteState::Working })
}

/// The sandbox's id: everything that it needs to know.
fn id(job: &RenderJob<'_>) -> String {
    let asked_at = job.asked_at.as_micros();
    format!("sandbox-{}-{}-{asked_at}-{}", job.video_id, job.attempt, job.render_id.simple())
}

fn parts(id: &str) -> Option<(i64, u32, Timestamp, Uuid)> {
    let rest = id.strip_prefix("sandbox-")?;
    // From the right, because a video's number may have a sign.
    let mut parts = rest.rsplitn(4, '-');
    let render = Uuid::try_parse(parts.next()?).ok()?;
    let asked_at = Timestamp::from_micros(parts.next()?.parse().ok()?);
    let attempt = parts.next()?.parse().ok()?;
    Some((parts.next()?.parse().ok()?, attempt, asked_at, render))
}

fn replied<T>(request: &str, outcome: Outcome<T>) -> Reply<T> {
    let reply = match &outcome {
        Outcome::Done(_) => "ok".to_owned(),
        Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
            reason.message.clone()
        }
    };
    let sent = !matches!(outcome, Outcome::Busy { .. });
    let exchange = Exchange { request: request.to_owned(), reply, reference: None, sent };
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

impl Renderer for SandboxRenderer {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn knows_keys(&self) -> bool {
        true
    }

    fn submit<'a>(&'a self, job: RenderJob<'a>) -> BoxFuture<'a, Reply<RemoteRender>> {
        Box::pin(counted(Self::NAME, "submit", self.send(job)))
    }

    fn look<'a>(&'a self, submitted: Submitted<'a>) -> BoxFuture<'a, Reply<Option<RemoteRender>>> {
        let told = self.told(submitted.provider_id, submitted.now);
        let work = async move { replied("sandbox look", Outcome::Done(told)) };
        Box::pin(counted(Self::NAME, "look", work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn job(video_id: i64, attempt: u32) -> RenderJob<'static> {
        RenderJob {
            render_id: Uuid::from_u128(7),
            attempt,
            reservation_id: Uuid::from_u128(8),
            video_id,
            callback: None,
            asked_at: NOW,
            now: NOW,
            traceparent: None,
        }
    }

    async fn way(video_id: i64, attempt: u32) -> String {
        let sandbox = SandboxRenderer::new(Duration::from_millis(1));
        let reply = sandbox.submit(job(video_id, attempt)).await;
        let taken = match reply.outcome {
            Outcome::Done(remote) => remote,
            Outcome::Refused(_) => return "refused".into(),
            Outcome::Busy { .. } => return "busy".into(),
            Outcome::Lost(_) => return "lost".into(),
        };
        let look = async |now| {
            let render_id = Uuid::from_u128(7);
            let submitted = Submitted { render_id, attempt, provider_id: &taken.id, now };
            match sandbox.look(submitted).await.outcome {
                Outcome::Done(Some(remote)) => match remote.state {
                    RemoteState::Working => "working",
                    RemoteState::Done { .. } => "done",
                    RemoteState::Failed(_) => "failed",
                },
                _ => "unknown",
            }
        };
        format!("{} {}", look(NOW).await, look(NOW.plus(TAKES)).await)
    }

    #[tokio::test]
    async fn every_video_goes_its_way() {
        for (video, attempt, expected) in [
            (42, 1, "working done"),
            (-1, 1, "working done"),
            (9001, 3, "working failed"),
            (9002, 2, "working failed"),
            (9002, 3, "working done"),
            (9003, 1, "refused"),
            (9004, 1, "lost"),
            (9005, 1, "lost"),
            (9006, 1, "busy"),
            (9007, 1, "working working"),
            (9008, 1, "unknown unknown"),
        ] {
            assert_eq!(way(video, attempt).await, expected, "{video}");
        }
    }
}
