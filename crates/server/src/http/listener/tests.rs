//! Each way to hold a server's connections, against a real listener on a real socket.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

const HEAD: Duration = Duration::from_millis(250);
const IDLE: Duration = Duration::from_millis(700);
/// Nothing in these tests takes long; whatever does has failed.
const PATIENCE: Duration = Duration::from_secs(10);

fn limits() -> HttpConfig {
    HttpConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        body_limit: 65_536,
        header_timeout: HEAD,
        body_timeout: HEAD,
        request_timeout: PATIENCE,
        keep_alive: IDLE,
        max_connections: 100,
        max_headers: 64,
        max_header_bytes: 16_384,
    }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Ended>,
}

impl Server {
    async fn start(router: Router, limits: HttpConfig, drain: Duration) -> Self {
        let listener = TcpListener::bind(limits.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let token = stop.clone();
        let ended =
            tokio::spawn(async move { serve(listener, router, &limits, drain, token).await });
        Self { address, stop, ended }
    }

    async fn plain(limits: HttpConfig) -> Self {
        let router = Router::new().route("/", get(async || "hello"));
        Self::start(router, limits, PATIENCE).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

/// Everything until the other side closes, and how long that took.
async fn until_closed(stream: &mut TcpStream) -> (Vec<u8>, Duration) {
    let since = Instant::now();
    let mut bytes = Vec::new();
    // A reset is a close too.
    soon(stream.read_to_end(&mut bytes)).await.unwrap_or_default();
    (bytes, since.elapsed())
}

async fn sends(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    String::from_utf8(until_closed(&mut stream).await.0).unwrap()
}

/// Reads one answer with a `content-length` and leaves the connection open.
async fn one_answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return text;
            }
        }
        assert!(soon(stream.read_buf(&mut bytes)).await.unwrap() > 0, "{text}");
    }
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn connections_that_bring_no_request_are_closed() {
    let server = Server::plain(limits()).await;
    for beginning in
        [&b""[..], b"P", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ", b"PRI * HTTP/2.0\r\n"]
    {
        let mut stream = server.connect().await;
        stream.write_all(beginning).await.unwrap();
        let (bytes, took) = until_closed(&mut stream).await;
        assert!(took >= HEAD * 4 / 5, "{beginning:?} after {took:?}");
        assert!(!bytes.starts_with(b"HTTP/1.1 200"), "{beginning:?}");
    }
}

#[tokio::test]
async fn a_dripping_head_does_not_buy_time() {
    let server = Server::plain(limits()).await;
    let (mut read, mut write) = server.connect().await.into_split();
    let since = Instant::now();
    let drip = tokio::spawn(async move {
        let mut pace = tokio::time::interval(HEAD / 5);
        write.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
        while write.write_all(b"x").await.is_ok() {
            pace.tick().await;
        }
    });
    let mut bytes = Vec::new();
    soon(read.read_to_end(&mut bytes)).await.unwrap_or_default();
    assert!(since.elapsed() < HEAD * 8, "{:?}", since.elapsed());
    soon(drip).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_lives_as_long_as_its_keep_alive() {
    let server = Server::plain(limits()).await;
    let mut stream = server.connect().await;
    stream.write_all(GET).await.unwrap();
    assert!(one_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    let (bytes, took) = until_closed(&mut stream).await;
    assert!(bytes.is_empty());
    assert!(took > HEAD * 2, "not the header timeout: {took:?}");
}

#[tokio::test]
async fn a_later_head_must_come_in_time_too() {
    let slow = HttpConfig { keep_alive: PATIENCE * 10, ..limits() };
    let server = Server::plain(slow).await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream.write_all(GET).await.unwrap();
        assert!(one_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    }
    stream.write_all(b"GET / HT").await.unwrap();
    let (_, took) = until_closed(&mut stream).await;
    assert!(took >= HEAD * 4 / 5 && took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn heads_beyond_the_limits_are_answered_431() {
    let server = Server::plain(limits()).await;
    let long =
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "x".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x-many: x\r\n".repeat(80));
    for request in [long, many] {
        let answer = sends(server.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    let garbage = sends(server.address, b"\x16\x03\x01 not http at all\r\n\r\n").await;
    assert!(garbage.starts_with("HTTP/1.1 400"), "{garbage}");
}

/// Just enough HTTP/2 to see frames.
mod h2 {
    pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    /// HEADERS on stream 1, ends headers and stream: `GET /` for `localhost`, by static table and one
    /// literal.
    pub const GET: &[u8] = b"\0\0\x0e\x01\x05\0\0\0\x01\x82\x86\x84\x41\x09localhost";
    pub const HEADERS: u8 = 1;
    pub const PING: u8 = 6;

    /// The types of the frames in `bytes`.
    pub fn frames(mut bytes: &[u8]) -> Vec<u8> {
        let mut types = Vec::new();
        while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
            types.push(*kind);
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            bytes = rest.get(length..).unwrap_or_default();
        }
        types
    }
}

#[tokio::test]
async fn a_silent_http2_connection_is_pinged_and_closed() {
    let server = Server::plain(limits()).await;
    let mut stream = server.connect().await;
    stream.write_all(h2::PREFACE).await.unwrap();
    let (bytes, took) = until_closed(&mut stream).await;
    let frames = h2::frames(&bytes);
    assert!(frames.contains(&h2::PING), "{frames:?}");
    assert!(took >= HEAD * 4 / 5, "{took:?}");
}

#[tokio::test]
async fn http2_is_served_and_then_idles_like_http1() {
    // Pings unanswered would end the connection first.
    let calm = HttpConfig { header_timeout: IDLE * 3, ..limits() };
    let server = Server::plain(calm).await;
    let mut stream = server.connect().await;
    stream.write_all(&[h2::PREFACE, h2::GET].concat()).await.unwrap();
    let (bytes, took) = until_closed(&mut stream).await;
    let answered = h2::frames(&bytes).contains(&h2::HEADERS);
    assert!(answered, "{:?}", h2::frames(&bytes));
    assert!(took >= IDLE * 4 / 5, "{took:?}");
}

#[tokio::test]
async fn an_answer_nobody_reads_does_not_hold_its_connection() {
    let impatient = HttpConfig { request_timeout: HEAD, ..limits() };
    let (gone, mut went) = mpsc::channel::<()>(1);
    let router = Router::new().route(
        "/",
        get(async move |_: Request| {
            Body::new(Endless { block: Bytes::from(vec![b'x'; 1 << 20]), _gone: gone })
        }),
    );
    let server = Server::start(router, impatient, PATIENCE).await;
    let mut stream = server.connect().await;
    stream.write_all(GET).await.unwrap();
    server.stop.cancel();
    assert_eq!(soon(server.ended).await.unwrap().cut_off, 0);
    assert!(soon(went.recv()).await.is_none());
}

/// A body far longer than the kernel buffers.
struct Endless {
    block: Bytes,
    /// Dropped with the body.
    _gone: mpsc::Sender<()>,
}

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(self.block.clone()))))
    }
}

#[tokio::test]
async fn an_answer_is_not_lost_because_the_body_was_not_read() {
    let router = Router::new().route("/", post(async || (http::StatusCode::FORBIDDEN, "no")));
    let server = Server::start(router, limits(), PATIENCE).await;
    let head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n\r\n";
    let answer = sends(server.address, &[&head[..], &vec![b'x'; 2_000_000]].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.ends_with("no"), "{answer}");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_at_once() {
    let small = HttpConfig { max_connections: 1, keep_alive: PATIENCE, ..limits() };
    let server = Server::plain(small).await;
    let mut first = server.connect().await;
    first.write_all(GET).await.unwrap();
    one_answer(&mut first).await;
    let refused = sends(server.address, GET).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 1") && refused.contains("SERVER_BUSY"));
    drop(first);
    // The server learns of the close by itself; until then it refuses.
    let get = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    soon(async { while !sends(server.address, get).await.starts_with("HTTP/1.1 200") {} }).await;
}

/// A route that reports when it was entered and answers when it is told to.
fn held() -> (Router, mpsc::Receiver<oneshot::Sender<()>>) {
    let (entered, requests) = mpsc::channel(1);
    let router = Router::new().route(
        "/",
        get(async move |_: Request| {
            let (answer, wait) = oneshot::channel();
            entered.send(answer).await.unwrap();
            wait.await.unwrap_or_default();
            "at last"
        }),
    );
    (router, requests)
}

#[tokio::test]
async fn stopping_finishes_what_is_open_and_takes_nothing_new() {
    let (router, mut requests) = held();
    let calm = HttpConfig { keep_alive: PATIENCE * 10, ..limits() };
    let server = Server::start(router, calm, PATIENCE).await;
    let mut busy = server.connect().await;
    busy.write_all(GET).await.unwrap();
    let answer = soon(requests.recv()).await.unwrap();
    let mut silent = server.connect().await;
    server.stop.cancel();
    let (nothing, _) = until_closed(&mut silent).await;
    assert!(nothing.is_empty(), "a connection without a request is let go");
    assert!(TcpStream::connect(server.address).await.is_err());
    answer.send(()).unwrap();
    let (bytes, _) = until_closed(&mut busy).await;
    assert!(bytes.ends_with(b"at last"));
    assert_eq!(soon(server.ended).await.unwrap(), Ended { cut_off: 0 });
}

#[tokio::test]
async fn what_does_not_end_by_the_deadline_is_cut_off() {
    let (router, mut requests) = held();
    let server = Server::start(router, limits(), HEAD).await;
    let mut busy = server.connect().await;
    busy.write_all(GET).await.unwrap();
    let answer = soon(requests.recv()).await.unwrap();
    server.stop.cancel();
    assert_eq!(soon(server.ended).await.unwrap(), Ended { cut_off: 1 });
    assert!(answer.is_closed(), "the handler was dropped");
    assert!(until_closed(&mut busy).await.0.is_empty());
}
