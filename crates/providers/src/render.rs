//! Whoever makes videos.
//!
//! The port ([`Renderer`]) that the engine renders through, and its adapters: [`sandbox`], the
//! default; [`shotstack`]; and [`http`], a small documented protocol (`docs/renders.md`).
//!
//! Guarantees that all adapters keep: a submission makes at most one request; `Refused` and `Busy`
//! are said only when this request submitted nothing, and whatever leaves room for doubt is `Lost`;
//! `look` is a read.

pub mod fetch;
pub mod http;
pub mod sandbox;
pub mod shotstack;
pub mod template;

use std::future::Future;

use tashika_domain::render::conclude::RemoteRender;
use tashika_domain::{Outcome, Timestamp};
use uuid::Uuid;

use crate::reply::{BoxFuture, Reply};

/// Counter of requests to providers of renders, by `provider`, `operation` (submit, look) and
/// `status`: ok, refused, busy, unknown.
pub const REQUESTS_TOTAL: &str = "render_requests_total";
/// Histogram of how long they took, by `provider` and `operation`.
pub const DURATION_SECONDS: &str = "render_request_duration_seconds";

/// A video to make.
#[derive(Clone, Copy, Debug)]
pub struct RenderJob<'a> {
    /// Our id of the render.
    pub render_id: Uuid,
    /// The first, second, … submission of it. Both together are the key.
    pub attempt: u32,
    pub reservation_id: Uuid,
    pub video_id: i64,
    /// Where the provider may tell us of the end.
    pub callback: Option<&'a str>,
    /// When the attempt was decided: the same for every repeat of it.
    pub asked_at: Timestamp,
    pub now: Timestamp,
    /// W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
}

impl RenderJob<'_> {
    /// Under this key a provider that knows keys renders once.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.render_id, self.attempt)
    }
}

/// A submission that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Submitted<'a> {
    pub render_id: Uuid,
    pub attempt: u32,
    /// The provider's id.
    pub provider_id: &'a str,
    pub now: Timestamp,
}

/// The port. A trait because tests put a world of their own behind it.
pub trait Renderer: Send + Sync {
    fn name(&self) -> &str;

    /// Whether a submission may be repeated under its key without making a second video. Where not,
    /// one that nobody answered is waited for.
    fn knows_keys(&self) -> bool;

    fn submit<'a>(&'a self, job: RenderJob<'a>) -> BoxFuture<'a, Reply<RemoteRender>>;

    /// What has become of it; `None` if the provider does not know it.
    fn look<'a>(&'a self, submitted: Submitted<'a>) -> BoxFuture<'a, Reply<Option<RemoteRender>>>;
}

/// Runs a request and counts it. What was answered without asking anybody is not counted.
pub(crate) async fn counted<T>(
    provider: &'static str,
    operation: &'static str,
    work: impl Future<Output = Reply<T>>,
) -> Reply<T> {
    let reply = work.await;
    let status = match &reply.outcome {
        Outcome::Done(_) => "ok",
        Outcome::Refused(_) => "refused",
        Outcome::Busy { .. } => "busy",
        Outcome::Lost(_) => "unknown",
    };
    metrics::counter!(
        REQUESTS_TOTAL,
        "provider" => provider, "operation" => operation, "status" => status
    )
    .increment(1);
    metrics::histogram!(DURATION_SECONDS, "provider" => provider, "operation" => operation)
        .record(reply.rtt);
    reply
}
