//! A provider of one's own, behind HTTP: the small protocol that `docs/renders.md` describes.
//!
//! | Operation | Request | Idempotency key |
//! |---|---|---|
//! | submit | `POST {base}/renders` | `{renderId}:{attempt}` |
//! | look | `GET {base}/renders/{renderId}/{attempt}` | |
//!
//! It is asked by our own id, and a submission under a known key makes no second video, so one that
//! nobody answered is simply made again.

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::render::conclude::{RemoteRender, RemoteState};
use tashika_domain::{Outcome, Timestamp};
use url::Url;

use super::{RenderJob, Renderer, Submitted, counted};
use crate::http::{Answer, Client, ClientConfig, ClientError, Known, Request, retry_after};
use crate::reply::{BoxFuture, Reply};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A stranger's id or reason, at most.
const ID_MAX: usize = 255;
const ERROR_MAX: usize = 300;

/// Why a configuration cannot be used. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum HttpRendererError {
    #[error("the base must be an http:// or https:// address without a query")]
    Base,
    #[error("the token cannot be sent as a header")]
    Token,
    #[error(transparent)]
    Client(#[from] ClientError),
}

pub struct HttpRenderer {
    /// Without a slash at the end.
    base: String,
    authorization: Option<HeaderValue>,
    client: Client,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    id: String,
    status: Status,
    url: Option<String>,
    error: Option<String>,
    expires_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Queued,
    Processing,
    Done,
    Failed,
}

#[derive(Default, Deserialize)]
struct Trouble {
    code: Option<String>,
}

impl HttpRenderer {
    pub const NAME: &'static str = "http";

    pub fn new(
        base: &str,
        token: Option<&SecretString>,
        client: &ClientConfig,
    ) -> Result<Self, HttpRendererError> {
        let url = Url::parse(base).map_err(|_| HttpRendererError::Base)?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
            return Err(HttpRendererError::Base);
        }
        let authorization = match token {
            None => None,
            Some(token) => {
                let text = format!("Bearer {}", token.expose_secret());
                let value = HeaderValue::from_str(&text);
                let mut value = value.map_err(|_| HttpRendererError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, authorization, client: Client::new(client)? })
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers
    }

    async fn call<T>(
        &self,
        request: &str,
        path: &str,
        call: impl FnOnce(Url) -> Request,
        read: impl FnOnce(&Answer) -> Outcome<T>,
    ) -> Reply<T> {
        // The base was read before, and the path is made of ids and numbers.
        let url = match Url::parse(&format!("{}{path}", self.base)) {
            Ok(url) => url,
            Err(error) => return unsent(request, &error.to_string()),
        };
        let called = self.client.call(call(url)).await;
        let (outcome, reply, sent) = match &called.known {
            Known::Answered(answer) => (read(answer), answer.status.as_u16().to_string(), true),
            Known::NotSent(why) => (busy(why.to_string()), why.to_string(), false),
            Known::NoAnswer(why) => {
                let reason = Reason::new("RENDERER_TIMEOUT", why.to_string());
                (Outcome::Lost(reason), why.to_string(), true)
            }
        };
        let exchange = Exchange { request: request.to_owned(), reply, reference: None, sent };
        Reply { outcome, exchange, rtt: called.rtt }
    }

    async fn send(&self, job: RenderJob<'_>) -> Reply<RemoteRender> {
        let body = json!({
            "renderId": job.render_id,
            "attempt": job.attempt,
            "reservationId": job.reservation_id,
            "videoId": job.video_id,
        });
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, JSON);
        if let Ok(key) = HeaderValue::from_str(&job.key()) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        if let Some(Ok(trace)) = job.traceparent.map(HeaderValue::from_str) {
            headers.insert(TRACEPARENT, trace);
        }
        let body = Bytes::from(body.to_string());
        let request = |url| Request { method: Method::POST, url, headers, body };
        self.call("POST /renders", "/renders", request, |answer| match answer.status.as_u16() {
            200..=299 => remote(&answer.body)
                .map_or_else(|| lost("answered without a readable render"), Outcome::Done),
            status => failure(answer, status, job.now),
        })
        .await
    }

    async fn ask(&self, submitted: Submitted<'_>) -> Reply<Option<RemoteRender>> {
        let path = format!("/renders/{}/{}", submitted.render_id, submitted.attempt);
        let headers = self.headers();
        let request = |url| Request { method: Method::GET, url, headers, body: Bytes::new() };
        let name = "GET /renders/{renderId}/{attempt}";
        self.call(name, &path, request, |answer| match answer.status.as_u16() {
            200..=299 => remote(&answer.body).map_or_else(
                || lost("answered without a readable render"),
                |r| Outcome::Done(Some(r)),
            ),
            // Some router's 404 must not be taken for the provider's word.
            404 => match serde_json::from_slice::<Trouble>(&answer.body).unwrap_or_default().code {
                Some(code) if code == "RENDER_NOT_FOUND" => Outcome::Done(None),
                _ => busy("404, but not the provider's RENDER_NOT_FOUND".to_owned()),
            },
            status => failure(answer, status, submitted.now),
        })
        .await
    }
}

fn unsent<T>(request: &str, why: &str) -> Reply<T> {
    let exchange = Exchange {
        request: request.to_owned(),
        reply: why.to_owned(),
        reference: None,
        sent: false,
    };
    Reply { outcome: busy(why.to_owned()), exchange, rtt: std::time::Duration::ZERO }
}

fn busy<T>(why: String) -> Outcome<T> {
    Outcome::Busy { reason: Reason::new("RENDERER_DOWN", why), retry_in: None }
}

fn lost<T>(why: &str) -> Outcome<T> {
    Outcome::Lost(Reason::new("RENDERER_UNREADABLE", why))
}

/// What a status says that is not a yes.
fn failure<T>(answer: &Answer, status: u16, now: Timestamp) -> Outcome<T> {
    let reason = |code: &str| Reason::new(code, format!("the provider answered {status}"));
    let retry_in = retry_after(&answer.headers, now);
    match status {
        429 => Outcome::Busy { reason: reason("RENDERER_BUSY"), retry_in },
        503 if retry_in.is_some() => Outcome::Busy { reason: reason("RENDERER_BUSY"), retry_in },
        // Somebody will set the right token.
        401 | 403 => Outcome::Busy { reason: reason("RENDERER_UNAUTHORIZED"), retry_in: None },
        400 | 404 | 405 | 409 | 413 | 415 | 422 => Outcome::Refused(reason("RENDERER_REFUSED")),
        _ => Outcome::Lost(reason("RENDERER_UNKNOWN")),
    }
}

/// Reads an answer, for the fuzzer.
#[cfg(fuzzing)]
#[must_use]
pub fn read_all(body: &[u8]) -> Option<RemoteRender> {
    remote(body)
}

fn remote(body: &[u8]) -> Option<RemoteRender> {
    let said: Said = serde_json::from_slice(body).ok()?;
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    if said.id.is_empty() || said.id.len() > ID_MAX || !said.id.chars().all(plain) {
        return None;
    }
    let state = match said.status {
        Status::Queued | Status::Processing => RemoteState::Working,
        Status::Done => RemoteState::Done {
            url: said.url.filter(|url| !url.is_empty())?,
            expires_at: said.expires_at,
        },
        Status::Failed => {
            let text = said.error.unwrap_or_else(|| "no reason given".to_owned());
            let text: String = text.chars().take(ERROR_MAX).collect();
            RemoteState::Failed(Reason::new("RENDERER_FAILED", text))
        }
    };
    Some(RemoteRender { id: said.id, state })
}

impl Renderer for HttpRenderer {
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
        Box::pin(counted(Self::NAME, "look", self.ask(submitted)))
    }
}
