//! Delivers messages to destinations that callers of the API name.
//!
//! Called by `engine`, once per attempt. Unlike [`http`](crate::http), whose URLs are the operator's,
//! this client is sent anywhere by anybody, so: every address passes the [`Guard`], redirects are
//! answers, no proxy is used, answers are cut at a limit, and the request target is what the caller
//! gave, byte for byte, which is why it is built on hyper and not on reqwest.
//!
//! One call is one request. A request moves to another connection when the one that was kept turned
//! out to be closed before the request was written, and gets no other second try (`pool`): a queue
//! would otherwise count an attempt for every connection that idled too long.
//! A request that may have been written ends as [`Known::NoAnswer`], whatever happened then.
//!
//! It does not sign, does not judge status codes, and does not limit how many requests are under way.

mod classify;
mod connect;
mod headers;
mod pool;
pub mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Uri;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tashika_domain::message::asked::{Headers, Method};
use tokio::time::{Instant, timeout_at};

use crate::guard::Guard;
use crate::http::{NoAnswer, NotSent};

use connect::Connector;
use pool::{Place, Pool};
use target::{BadUrl, Target};

pub use connect::{Resolve, SystemResolver};

/// How a courier behaves.
#[derive(Clone, Debug)]
pub struct CourierConfig {
    /// For the whole of a delivery, from name lookup to the last byte of the answer.
    pub max_timeout: Duration,
    /// For name lookup, TCP and TLS together.
    pub connect_timeout: Duration,
    /// What is read of an answer's body.
    pub max_response: usize,
    /// Connections that are kept for each host. One over the limit is closed after every request, so there should be as many as
    /// deliveries at the same moment.
    pub idle_per_host: usize,
    pub guard: Guard,
    /// Trust only these certificates (PEM) instead of the platform's.
    pub roots_pem: Option<Vec<u8>>,
}

/// Why there can be no courier.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    #[error("the root certificates cannot be used: {0}")]
    Roots(String),
    #[error("TLS cannot be set up (does the machine have root certificates installed?)")]
    Tls(#[source] rustls::Error),
}

/// What is delivered.
#[derive(Clone, Debug)]
pub struct Parcel<'a> {
    pub method: Method,
    pub url: &'a str,
    /// Forwarded for the caller.
    pub headers: &'a Headers,
    /// Tashika's own. They win over forwarded ones of the same name.
    pub own: &'a [(&'static str, &'a str)],
    pub body: Bytes,
    /// Can only shorten what is configured.
    pub timeout: Option<Duration>,
}

/// A delivery that is over.
#[derive(Debug)]
pub struct Delivered {
    pub known: Known,
    /// From the start of the call to the last thing heard.
    pub rtt: Duration,
}

/// What is known after a delivery. Texts name no secret that the URL may hold.
pub enum Known {
    /// The status is the receiver's, also where the body was cut.
    Answered { status: u16, headers: Headers, body: Bytes, truncated: bool },
    /// Nothing has left.
    NotSent(String),
    /// Nothing has left, because the guard refused the address.
    Blocked(String),
    /// It may have been received.
    NoAnswer(String),
}

impl fmt::Debug for Known {
    /// Says how long the body is, not what is in it: this may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, body, truncated, .. } => f
                .debug_struct("Answered")
                .field("status", status)
                .field("body_bytes", &body.len())
                .field("truncated", truncated)
                .finish_non_exhaustive(),
            Self::NotSent(why) => f.debug_tuple("NotSent").field(why).finish(),
            Self::Blocked(why) => f.debug_tuple("Blocked").field(why).finish(),
            Self::NoAnswer(why) => f.debug_tuple("NoAnswer").field(why).finish(),
        }
    }
}

/// Delivers: cheap to clone, connections are reused between deliveries and clones.
#[derive(Clone)]
pub struct Courier {
    pool: Pool,
    max_timeout: Duration,
    connect_timeout: Duration,
    max_response: usize,
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("max_timeout", &self.max_timeout).finish_non_exhaustive()
    }
}

impl Courier {
    pub fn new(config: CourierConfig) -> Result<Self, CourierError> {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// With another resolver than the machine's.
    pub fn with_resolver(
        config: CourierConfig,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, CourierError> {
        let tls = connect::tls(config.roots_pem.as_deref())?;
        let connector = Connector::new(config.guard, resolver, config.connect_timeout, tls);
        Ok(Self {
            pool: Pool::new(connector, config.idle_per_host),
            max_timeout: config.max_timeout,
            connect_timeout: config.connect_timeout,
            max_response: config.max_response,
        })
    }

    /// Makes one request, once, and says what is known afterwards.
    ///
    /// Dropping the future is like a timeout: the request may have left.
    pub async fn deliver(&self, parcel: Parcel<'_>) -> Delivered {
        let started = Instant::now();
        let limit = parcel.timeout.map_or(self.max_timeout, |given| given.min(self.max_timeout));
        let known = match request(parcel) {
            Ok((place, request)) => self.exchange(&place, request, limit, started + limit).await,
            Err(why) => Known::NotSent(why),
        };
        Delivered { known, rtt: started.elapsed() }
    }

    async fn exchange(
        &self,
        place: &Place,
        request: http::Request<Full<Bytes>>,
        limit: Duration,
        deadline: Instant,
    ) -> Known {
        let mut progress = Progress::default();
        match timeout_at(deadline, self.converse(place, request, &mut progress)).await {
            Ok(known) => known,
            Err(_) => match progress {
                Progress { status: Some(status), .. } => {
                    Known::NoAnswer(NoAnswer::BodyTimeout { status, after: limit }.to_string())
                }
                Progress { sent: true, .. } => {
                    Known::NoAnswer(NoAnswer::Timeout(limit).to_string())
                }
                Progress { sent: false, .. } => {
                    Known::NotSent(NotSent::ConnectTimeout(limit).to_string())
                }
            },
        }
    }

    async fn converse(
        &self,
        place: &Place,
        request: http::Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Known {
        let (mut line, response) = match self.pool.send(place, request, &mut progress.sent).await {
            Ok(answered) => answered,
            Err(broken) => return classify::failure(&broken, self.connect_timeout),
        };
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        progress.status = Some(status);
        match line.drive(self.read(body)).await {
            Ok((body, truncated)) => {
                if !truncated {
                    self.pool.keep(line).await;
                }
                let headers = headers::incoming(&head.headers);
                Known::Answered { status, headers, body, truncated }
            }
            Err(cause) => Known::NoAnswer(NoAnswer::BodyBroken { status, cause }.to_string()),
        }
    }

    /// Reads up to the limit. What is left unread takes its connection with it.
    async fn read(&self, mut body: Incoming) -> Result<(Bytes, bool), String> {
        let mut kept = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| classify::text(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            let room = self.max_response - kept.len();
            kept.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok((kept.freeze(), true));
            }
        }
        Ok((kept.freeze(), false))
    }
}

/// How far a delivery has come.
#[derive(Default)]
struct Progress {
    /// The request may have left.
    sent: bool,
    /// What was answered, once the head of the answer is there.
    status: Option<u16>,
}

fn request(parcel: Parcel<'_>) -> Result<(Place, http::Request<Full<Bytes>>), String> {
    let target = Target::parse(parcel.url).map_err(|error| error.to_string())?;
    let place = Place::of(&target.uri).ok_or_else(|| BadUrl::Host.to_string())?;
    let headers = headers::outgoing(&parcel, &target).map_err(|error| error.to_string())?;
    let mut request = http::Request::new(Full::new(parcel.body));
    *request.method_mut() = match parcel.method {
        Method::Get => http::Method::GET,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Patch => http::Method::PATCH,
        Method::Delete => http::Method::DELETE,
    };
    // The place is told by the connection and by `Host`.
    *request.uri_mut() = target.uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    *request.headers_mut() = headers;
    Ok((place, request))
}
