//! The accept loop: every connection, within its limits.
//!
//! `axum::serve` waits for ever for slow or silent clients, so connections are accepted here and
//! handed to hyper one by one. Called once by `tashika serve`, and by tests. What it guarantees:
//!
//! - A connection that does not deliver a complete request head within the header timeout is closed,
//!   whether it is silent, slow or speaks HTTP/2; an idle one is closed after the keep-alive time; one
//!   that does not read its answer is closed after the request timeout (`stream`).
//! - Heads that are too long or have too many lines are answered 431.
//! - At most `max_connections` are served; one more is answered 503 at once. Answering beats waiting
//!   in the backlog: a load balancer learns that it should go elsewhere, and a health check does not
//!   hang.
//! - After `stop`: no new connections, idle ones are closed, requests in progress may end until the
//!   deadline, then the rest is cut off.
//!
//! It does not know about paths or tokens, and it speaks plain HTTP/1.1 and HTTP/2 with prior
//! knowledge: TLS is the business of the proxy in front.

mod stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use self::stream::{Activity, RequestBody, ResponseBody, Timed, Timeouts};
use super::auth::Peer;
use super::language::Language;
use super::problem::{Code, Problem};
use super::router::Front;
use crate::config::HttpConfig;

/// Streams that one HTTP/2 connection may have open; more wait on the client's side.
const MAX_STREAMS: u32 = 200;
/// Connections that are being told "busy" at the same time; beyond it they are just closed.
const MAX_REFUSALS: usize = 256;
/// How long a refused client may take to hear it.
const REFUSAL_DEADLINE: Duration = Duration::from_millis(500);
/// After the system ran out of something (file descriptors, memory), before accepting again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections the shutdown had to cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub cut_off: usize,
}

/// A request whose head somebody in front of us may have read differently; a request extension. It is
/// refused, together with whatever follows on its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ambiguous;

/// Whose request it is (several hosts, or none, where RFC 9112 wants one), or where its body ends (a
/// length beside chunks).
fn is_ambiguous(version: Version, headers: &HeaderMap) -> bool {
    if version != Version::HTTP_11 {
        return false;
    }
    let two_ends = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
    two_ends || headers.get_all(HOST).iter().count() != 1
}

/// Everything the connections share.
struct Shared {
    http: auto::Builder<TokioExecutor>,
    server: Front,
    timeouts: Timeouts,
    /// No new requests.
    stop: CancellationToken,
    /// No more patience.
    abort: CancellationToken,
}

/// Has `server` answer on `listener` until `stop`, then drains for at most `drain`.
pub async fn serve(
    listener: TcpListener,
    server: impl Into<Front>,
    limits: &HttpConfig,
    drain: Duration,
    stop: CancellationToken,
) -> Ended {
    let shared = Arc::new(Shared {
        http: http_builder(limits),
        server: server.into(),
        timeouts: Timeouts {
            head: limits.header_timeout,
            idle: limits.keep_alive,
            write: limits.request_timeout,
        },
        stop,
        abort: CancellationToken::new(),
    });
    let connections = TaskTracker::new();
    accept_all(&listener, limits.max_connections, &shared, &connections).await;
    drop(listener);
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_ok() {
        return Ended { cut_off: 0 };
    }
    let cut_off = connections.len();
    tracing::warn!(cut_off, "connections were cut off at the shutdown deadline");
    shared.abort.cancel();
    connections.wait().await;
    Ended { cut_off }
}

fn http_builder(limits: &HttpConfig) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // hyper's own header timeout would also end idle connections early: `stream` tells them apart.
    builder
        .http1()
        .header_read_timeout(None)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.max_header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        // A peer that vanished without a word is noticed even while one of its requests is open.
        .keep_alive_interval(limits.header_timeout / 2)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

async fn accept_all(
    listener: &TcpListener,
    max_connections: usize,
    shared: &Arc<Shared>,
    connections: &TaskTracker,
) {
    let slots = Arc::new(Semaphore::new(max_connections));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    while let Some(accepted) = shared.stop.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The client changed its mind before we looked.
            Err(error) if is_about_one_connection(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                let pause = tokio::time::sleep(ACCEPT_PAUSE);
                if shared.stop.run_until_cancelled(pause).await.is_none() {
                    return;
                }
                continue;
            }
        };
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            let shared = Arc::clone(shared);
            connections.spawn(connection(stream, peer, slot, shared));
        } else {
            metrics::counter!("http_connections_refused_total").increment(1);
            if let Ok(slot) = Arc::clone(&refusals).try_acquire_owned() {
                connections.spawn(refuse(stream, slot));
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    _slot: OwnedSemaphorePermit,
    shared: Arc<Shared>,
) {
    let _open = OpenConnection::count();
    // Answers are small: waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off Nagle's algorithm");
    }
    let activity = Activity::new(shared.timeouts);
    let io = TokioIo::new(Timed::new(stream, Arc::clone(&activity)));
    let service = hyper::service::service_fn(|request: http::Request<Incoming>| {
        let busy = Activity::begin(&activity, request.version());
        let mut request = request.map(|body| Body::new(RequestBody::new(body, &activity)));
        request.extensions_mut().insert(Peer(peer));
        if is_ambiguous(request.version(), request.headers()) {
            request.extensions_mut().insert(Ambiguous);
        }
        // It is always ready.
        let answer = shared.server.clone().call(request);
        async move {
            let response = answer.await?;
            Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, busy)))
        }
    });
    let mut connection = pin!(shared.http.serve_connection(io, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shared.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = shared.abort.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        // Clients break connections all the time; it is news only to who looks for it.
        tracing::debug!(error, "connection ended early");
    }
}

/// Counts a connection for as long as it lives.
struct OpenConnection;

impl OpenConnection {
    fn count() -> Self {
        metrics::gauge!("http_connections").increment(1.0);
        Self
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        metrics::gauge!("http_connections").decrement(1.0);
    }
}

/// Tells a client that there is no room, without reading what it wants.
async fn refuse(mut stream: TcpStream, _slot: OwnedSemaphorePermit) {
    let document = Problem::new(Code::ServerBusy).document(Language::English, None);
    let body = serde_json::to_string(&document).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len(),
    );
    let tell = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with bytes unread would reset the connection, and the answer would be lost.
        let mut ignored = [0; 1024];
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Whatever goes wrong, the connection ends here.
    if let Ok(Err(error)) = tokio::time::timeout(REFUSAL_DEADLINE, tell).await {
        tracing::debug!(%error, "a refused client went away");
    }
}

#[cfg(test)]
mod tests;
