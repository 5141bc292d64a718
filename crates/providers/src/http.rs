//! The one place that makes HTTP clients for the operator's URLs (those of callers are the
//! [courier](crate::courier)'s), and that says what is *known* after a call.
//!
//! Used by every adapter of this crate. After [`Client::call`] exactly one of three things is true,
//! and [`Known`] says which:
//!
//! - `Answered`: a complete reply arrived.
//! - `NotSent`: no byte of the request can have reached the server; repeating is harmless.
//! - `NoAnswer`: the request may have left. The server may have acted on it, may be acting on it,
//!   or may yet do so.
//!
//! `NotSent` is claimed only for failures of name lookup, TCP connect, proxy tunnel and TLS
//! handshake, all of which precede the first byte of the request. Everything else that is not a
//! complete reply is `NoAnswer`, also where an expert could argue otherwise.
//!
//! # One call is one request
//!
//! HTTP stacks repeat requests by themselves. What was found in reqwest 0.13 and hyper-util 0.1, and
//! what is done about it:
//!
//! - reqwest repeats a request up to twice after an HTTP/2 `GOAWAY(NO_ERROR)` or `REFUSED_STREAM`.
//!   Switched off (`retry::never`), and HTTP/2 with it: HTTP/1.1 carries one request at a time per
//!   connection, so a failing connection leaves one request in doubt instead of all its streams.
//! - hyper-util moves a request to a new connection when the pooled one that it was queued on
//!   turned out to be dead. reqwest has no switch for this. It is safe: hyper hands the request back
//!   only from the queue in front of the connection, before its head is encoded; once it is taken
//!   from the queue, an error carries no request to repeat. A request that was written on a stale
//!   connection therefore ends as `NoAnswer`. `tests/it/reuse.rs` holds this against servers that
//!   close at the worst moments and counts what arrived.
//! - redirects are not followed: a redirected request would be a second one.
//!
//! TLS early data, which could carry a request inside a handshake, is not enabled.
//!
//! It does not sign and does not interpret status codes. It protects against internal addresses only
//! where it is given a [`Vetting`]: as a rule its URLs come from the operator's configuration.

pub(crate) mod classify;
mod retry_after;
mod stream;
mod vetting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode};
use bytes::{Bytes, BytesMut};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, timeout_at};
use url::Url;

pub(crate) use retry_after::http_date;
pub use retry_after::{RETRY_AFTER_MAX, retry_after};
pub use stream::StreamError;
pub use vetting::Vetting;

/// Largest reply that is read. A report of an execution has a few hundred bytes; whatever is larger
/// than this is not one.
pub const BODY_MAX: usize = 64 * 1024;

/// Idle connections are dropped after this long: well below the 60 s after which common load
/// balancers drop theirs without telling, so that few requests meet a dead connection.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_CONNECTIONS_PER_HOST: usize = 16;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// For the whole call, from name lookup to the last byte of the body.
    pub timeout: Duration,
    /// For name lookup, TCP and TLS together. Cut to half of `timeout`: if connecting could use up
    /// the whole time, a timeout would no longer tell "not sent" from "no answer".
    pub connect_timeout: Duration,
    /// Largest reply that is read.
    pub max_body: usize,
    /// The only proxy that is used; the environment's proxy variables are ignored. Secret, because
    /// the URL may hold a password.
    pub proxy: Option<SecretString>,
    /// Trust only these certificates (PEM) instead of the platform's.
    pub roots_pem: Option<Vec<u8>>,
    /// Connect only to addresses that it lets pass. Where the address is somebody else's word.
    pub guard: Option<Vetting>,
}

impl ClientConfig {
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Self {
        Self {
            timeout,
            connect_timeout: Duration::from_secs(1),
            max_body: BODY_MAX,
            proxy: None,
            roots_pem: None,
            guard: None,
        }
    }
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the proxy URL cannot be used")]
    Proxy(#[source] reqwest::Error),
    #[error("the root certificates cannot be read as PEM")]
    Roots(#[source] reqwest::Error),
    #[error("the HTTP client cannot be built (does the machine have root certificates installed?)")]
    Build(#[source] reqwest::Error),
}

/// One request.
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A call that is over.
#[derive(Debug)]
pub struct Call {
    pub known: Known,
    /// From the start of the call to the last thing heard.
    pub rtt: Duration,
}

/// What is known after a call.
#[derive(Debug)]
pub enum Known {
    Answered(Answer),
    NotSent(NotSent),
    NoAnswer(NoAnswer),
}

/// A complete reply.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    /// Says how long the body is, not what is in it: replies hold payloads, and this may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why no byte of the request can have reached the server.
///
/// Causes are the texts of the innermost errors: they name no URL and no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("connection refused")]
    Refused,
    #[error("the name could not be resolved: {0}")]
    Dns(String),
    #[error("no TLS connection: {0}")]
    Tls(String),
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    #[error("no connection: {0}")]
    Unreachable(String),
    #[error("the request cannot be written as HTTP: {0}")]
    Unsendable(String),
}

/// Why there is no complete reply to a request that may have left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("no answer: {0}")]
    Broken(String),
    #[error("{status}, but no complete body within {} ms", .after.as_millis())]
    BodyTimeout { status: u16, after: Duration },
    #[error("{status}, but the body broke off: {cause}")]
    BodyBroken { status: u16, cause: String },
    #[error("{status}, but the body is larger than {limit} bytes")]
    BodyTooLarge { status: u16, limit: usize },
}

/// A client: cheap to clone, connections are reused between calls and clones.
#[derive(Clone, Debug)]
pub struct Client {
    inner: reqwest::Client,
    timeout: Duration,
    connect_timeout: Duration,
    max_body: usize,
}

impl Client {
    pub fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let connect_timeout = config.connect_timeout.min(config.timeout / 2);
        Ok(Self {
            inner: build(config, connect_timeout)?,
            timeout: config.timeout,
            connect_timeout,
            max_body: config.max_body,
        })
    }

    /// Makes one request, once, and says what is known afterwards.
    ///
    /// Dropping the future is like a timeout: the request may have left.
    pub async fn call(&self, request: Request) -> Call {
        let started = Instant::now();
        let known = self.exchange(request, started + self.timeout).await;
        Call { known, rtt: started.elapsed() }
    }

    async fn exchange(&self, request: Request, deadline: Instant) -> Known {
        let sending = self
            .inner
            .request(request.method, request.url)
            .headers(request.headers)
            .body(request.body)
            .send();
        let mut response = match timeout_at(deadline, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return classify::failure(&error, self.connect_timeout),
            Err(_) => return Known::NoAnswer(NoAnswer::Timeout(self.timeout)),
        };
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        match self.body(response, deadline).await {
            Ok(body) => Known::Answered(Answer { status, headers, body }),
            Err(why) => Known::NoAnswer(why),
        }
    }

    /// Reads the body piece by piece, so that a server cannot make us hold more than the limit.
    async fn body(
        &self,
        mut response: reqwest::Response,
        deadline: Instant,
    ) -> Result<Bytes, NoAnswer> {
        let status = response.status().as_u16();
        let mut body = BytesMut::new();
        loop {
            let chunk = match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok(body.freeze()),
                Ok(Err(error)) => {
                    let cause = classify::innermost(&error);
                    return Err(NoAnswer::BodyBroken { status, cause });
                }
                Err(_) => {
                    let after = self.timeout;
                    return Err(NoAnswer::BodyTimeout { status, after });
                }
            };
            if body.len() + chunk.len() > self.max_body {
                let limit = self.max_body;
                return Err(NoAnswer::BodyTooLarge { status, limit });
            }
            body.extend_from_slice(&chunk);
        }
    }
}

fn build(config: &ClientConfig, connect_timeout: Duration) -> Result<reqwest::Client, ClientError> {
    #[expect(clippy::disallowed_methods, reason = "this is the place that the ban points to")]
    let mut builder = reqwest::Client::builder();
    builder = builder
        .no_proxy()
        .http1_only()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(connect_timeout)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_PER_HOST)
        .tcp_nodelay(true)
        .user_agent(concat!("tashika/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = &config.proxy {
        let proxy = reqwest::Proxy::all(proxy.expose_secret())
            .map_err(|error| ClientError::Proxy(error.without_url()))?;
        builder = builder.proxy(proxy);
    }
    if let Some(pem) = &config.roots_pem {
        let roots = reqwest::Certificate::from_pem_bundle(pem).map_err(ClientError::Roots)?;
        builder = builder.tls_certs_only(roots);
    }
    if let Some(guard) = &config.guard {
        builder = builder.dns_resolver(Arc::new(guard.clone()));
    }
    builder.build().map_err(ClientError::Build)
}
