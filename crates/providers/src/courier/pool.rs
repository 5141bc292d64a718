//! Connections to destinations, kept for the next delivery.
//!
//! A connection has no task of its own: the delivery that uses it also moves its bytes. A pool whose
//! connections live by themselves would wake two more tasks for every delivery. Nobody looks at an idle
//! connection until it is taken or its time is over, so one that its server has closed is noticed when
//! it is taken, which is before anything is written to it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service as _;

use crate::http::IDLE_TIMEOUT;

use super::connect::{BoxError, Connector};

/// How often connections are looked for whose time is over.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

type Body = Full<Bytes>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Where a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(Scheme, Authority);

impl Place {
    /// A destination always has both.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        Some(Self(uri.scheme()?.clone(), uri.authority()?.clone()))
    }
}

/// Why there is no answer.
pub(super) enum Broken {
    NotConnected(NoConnection),
    /// The connection ended before anything of the request was written.
    NotWritten(hyper::Error),
    /// It may have been received.
    Lost(hyper::Error),
}

/// There was no connection, for the reasons below.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
pub(super) struct NoConnection(#[source] BoxError);

impl From<BoxError> for Broken {
    fn from(error: BoxError) -> Self {
        Self::NotConnected(NoConnection(error))
    }
}

/// A connection, in use.
pub(super) struct Line {
    place: Place,
    sender: SendRequest<Body>,
    /// `None` when it has ended. What still waited for it has learnt that then.
    connection: Option<Pin<Box<Connection<Stream, Body>>>>,
}

impl Line {
    fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            self.connection = None;
        }
    }

    /// Looks after the connection once. Whether it can take a request.
    async fn is_ready(&mut self) -> bool {
        poll_fn(|cx| {
            self.advance(cx);
            Poll::Ready(self.connection.is_some() && self.sender.is_ready())
        })
        .await
    }

    /// Waits for something that the connection brings.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.advance(cx);
            work.as_mut().poll(cx)
        })
        .await
    }
}

#[derive(Default)]
struct Idle(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    /// Of each place the one that was used last is last.
    lines: HashMap<Place, Vec<(Line, Instant)>>,
    swept: bool,
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections, and the way to new ones.
#[derive(Clone)]
pub(super) struct Pool {
    connector: Connector,
    idle_per_host: usize,
    idle: Arc<Idle>,
}

impl Pool {
    pub(super) fn new(connector: Connector, idle_per_host: usize) -> Self {
        Self { connector, idle_per_host, idle: Arc::default() }
    }

    /// Sends a request over a connection that is there, or else over a new one. `sent` is true from
    /// the moment on at which it may have left.
    ///
    /// A connection that turns out to be closed before the request was written is replaced by another.
    pub(super) async fn send(
        &self,
        place: &Place,
        mut request: Request<Body>,
        sent: &mut bool,
    ) -> Result<(Line, Response<Incoming>), Broken> {
        loop {
            let (mut line, is_new) = match self.kept(place).await {
                Some(line) => (line, false),
                None => (self.connect(place).await?, true),
            };
            *sent = true;
            let answer = line.sender.try_send_request(request);
            let mut failed = match line.drive(answer).await {
                Ok(response) => return Ok((line, response)),
                Err(failed) => failed,
            };
            match failed.take_message() {
                None => return Err(Broken::Lost(failed.into_error())),
                Some(_) if is_new => return Err(Broken::NotWritten(failed.into_error())),
                Some(back) => {
                    *sent = false;
                    request = back;
                }
            }
        }
    }

    /// Keeps a connection whose answer was read to its end, if it can be used again.
    pub(super) async fn keep(&self, mut line: Line) {
        // Without this look it would not learn that its server wants it closed.
        line.is_ready().await;
        if line.connection.is_none() {
            return;
        }
        let mut shelf = self.idle.lock();
        let lines = shelf.lines.entry(line.place.clone()).or_default();
        if lines.len() < self.idle_per_host {
            lines.push((line, Instant::now()));
        }
        if !shelf.swept {
            shelf.swept = true;
            tokio::spawn(sweep(Arc::downgrade(&self.idle)));
        }
    }

    /// A connection to this place that can take a request.
    async fn kept(&self, place: &Place) -> Option<Line> {
        loop {
            let (mut line, since) = self.idle.lock().lines.get_mut(place)?.pop()?;
            if since.elapsed() < IDLE_TIMEOUT && line.is_ready().await {
                return Some(line);
            }
        }
    }

    async fn connect(&self, place: &Place) -> Result<Line, Broken> {
        let Place(scheme, authority) = place.clone();
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = Some(authority);
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let uri = Uri::from_parts(parts).map_err(BoxError::from)?;
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await?;
        let stream = connector.call(uri).await?;
        let mut http = Builder::new();
        // As QStash writes them; receivers that compare letter by letter exist.
        http.title_case_headers(true);
        let (sender, connection) = http.handshake(stream).await.map_err(Broken::NotWritten)?;
        Ok(Line { place: place.clone(), sender, connection: Some(Box::pin(connection)) })
    }
}

/// Closes connections whose time is over, for as long as there are any.
async fn sweep(idle: Weak<Idle>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut shelf = idle.lock();
        shelf.lines.retain(|_, lines| {
            lines.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
            !lines.is_empty()
        });
        if shelf.lines.is_empty() {
            shelf.swept = false;
            return;
        }
    }
}
