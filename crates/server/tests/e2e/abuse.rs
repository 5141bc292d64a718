//! Clients that mean harm, against the real process. Nothing here depends on the database.
//!
//! After each attack the server must serve others as before; what it refuses it refuses once, and it
//! never does something that nobody asked for.

use std::net::SocketAddr;

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{soon, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::support::{KEY, Request, Server, Setup, order, rows};

const TOKEN: &str = "the-token-of-this-test";
pub const MEBIBYTE: u64 = 1 << 20;

impl Server {
    /// How many connections it serves at this moment, as its metrics have it.
    async fn connections(&self) -> u64 {
        let metrics = self.get("/metrics").await.body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("http_connections "));
        line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    /// Waits until nobody is connected but whoever asks.
    pub async fn is_left_alone(&self) {
        until("everybody else to be gone", async || (self.connections().await == 1).then_some(()))
            .await;
    }

    /// The most memory that it has ever had, in bytes.
    pub fn memory_peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub async fn is_healthy(&self) {
        assert_eq!(self.get("/healthz").await.status, 200);
        assert_eq!(self.get("/readyz").await.status, 200);
    }
}

/// Everything that comes back until the server hangs up. A reset is an end, too.
async fn heard(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while let Ok(1..) = soon("an answer or the end", stream.read_buf(&mut bytes)).await {}
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn says(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may hang up before it has heard everything.
    stream.write_all(bytes).await.unwrap_or_default();
    heard(&mut stream).await
}

fn impatient(db: &TestDb) -> Setup {
    Setup::of(db)
        .set("TASHIKA_HEADER_TIMEOUT_MS", 300)
        .set("TASHIKA_BODY_TIMEOUT_MS", 300)
        .set("TASHIKA_REQUEST_TIMEOUT_MS", 2000)
        .set("TASHIKA_KEEP_ALIVE_SEC", "0.3")
}

/// Sends a byte of something endless again and again, until the server has had enough.
async fn drips(address: SocketAddr, beginning: &str) -> String {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    write.write_all(beginning.as_bytes()).await.unwrap();
    let dripping = tokio::spawn(async move {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(40));
        loop {
            pace.tick().await;
            if write.write_all(b"x").await.is_err() {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    while let Ok(1..) = soon("the end of patience", read.read_buf(&mut bytes)).await {}
    dripping.abort();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_hold_nothing_sqlite() {
    let db = TestDb::sqlite();
    let server = impatient(&db).start().await;
    let address = server.address;
    let mut slow = JoinSet::new();
    for n in 0..120 {
        slow.spawn(async move {
            match n % 4 {
                0 => {
                    let answer = drips(address, "GET /healthz HTTP/1.1\r\nx-slow: ").await;
                    assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
                }
                1 => {
                    let answer = drips(address, "").await;
                    assert!(!answer.contains("HTTP/1.1 2"), "not even a method: {answer}");
                }
                2 => {
                    let head = "POST /do/order HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
                                application/json\r\ncontent-length: 100000\r\n\r\n{";
                    let answer = drips(address, head).await;
                    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
                    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
                }
                // Half open: says nothing at all, and does not hang up.
                _ => {
                    let mut silent = TcpStream::connect(address).await.unwrap();
                    assert_eq!(heard(&mut silent).await, "");
                }
            }
        });
    }
    server.is_healthy().await;
    while let Some(ended) = slow.join_next().await {
        ended.unwrap();
    }
    server.is_left_alone().await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}

/// Asks for the same page again and again and reads nothing, until the server hangs up.
async fn never_reads(address: SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(&request).await.is_ok() {} };
    soon("the server to hang up", asking).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_let_go_sqlite() {
    let server = impatient(&TestDb::sqlite()).start().await;
    let before = server.memory_peak();
    let mut deaf = JoinSet::new();
    for _ in 0..30 {
        deaf.spawn(never_reads(server.address));
    }
    server.is_healthy().await;
    while let Some(ended) = deaf.join_next().await {
        ended.unwrap();
    }
    server.is_left_alone().await;
    let grown = server.memory_peak().saturating_sub(before);
    assert!(grown < 128 * MEBIBYTE, "{} MiB for thirty who do not read", grown / MEBIBYTE);
    server.stop().await;
}

/// A request after another one on the same connection. If both are answered, somebody in front of us
/// may have taken the second for a part of the first.
const SMUGGLED: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-smuggled: 1\r\n\r\n";

/// Requests whose end two readers may see in different places.
fn ambiguous() -> Vec<(&'static str, String)> {
    let post = |headers: &str, body: &str| {
        format!(
            "POST /do/order HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             {headers}\r\n\r\n{body}"
        )
    };
    let chunked = |body: &str| post("transfer-encoding: chunked", body);
    let tail = SMUGGLED.len();
    vec![
        ("two lengths", post("content-length: 0\r\ncontent-length: 5", SMUGGLED)),
        ("a list of lengths", post("content-length: 0, 5", SMUGGLED)),
        ("a signed length", post(&format!("content-length: +{tail}"), SMUGGLED)),
        ("a negative length", post("content-length: -1", SMUGGLED)),
        ("a hexadecimal length", post("content-length: 0x10", SMUGGLED)),
        ("a length without end", post("content-length: 99999999999999999999999999", SMUGGLED)),
        (
            "a length and chunks",
            post(
                &format!("content-length: {}\r\ntransfer-encoding: chunked", tail + 5),
                "0\r\n\r\n",
            ) + SMUGGLED,
        ),
        (
            "chunks and a length",
            post(
                &format!("transfer-encoding: chunked\r\ncontent-length: {}", tail + 5),
                "0\r\n\r\n",
            ) + SMUGGLED,
        ),
        ("an unknown coding", post("transfer-encoding: xchunked", "0\r\n\r\n") + SMUGGLED),
        ("chunked not last", post("transfer-encoding: chunked, identity", "0\r\n\r\n") + SMUGGLED),
        ("a blank before the colon", post("transfer-encoding : chunked", "0\r\n\r\n") + SMUGGLED),
        ("a folded header", post("transfer-encoding:\r\n chunked", "0\r\n\r\n") + SMUGGLED),
        ("a folded other header", post("x-a: b\r\n c: d\r\ncontent-length: 0", SMUGGLED)),
        ("a control character", post("transfer-encoding: \u{b}chunked", "0\r\n\r\n") + SMUGGLED),
        ("a size that is no number", chunked("zz\r\n\r\n0\r\n\r\n") + SMUGGLED),
        ("a negative size", chunked("-1\r\n\r\n0\r\n\r\n") + SMUGGLED),
        ("a size with a prefix", chunked("0x0\r\n\r\n") + SMUGGLED),
        ("a size beyond every number", chunked("fffffffffffffffff\r\nx") + SMUGGLED),
        ("a chunk longer than it says", chunked("1\r\nabc\r\n0\r\n\r\n") + SMUGGLED),
        ("a bare line feed behind a size", chunked("0;\n\r\n") + SMUGGLED),
        (
            "chunks in HTTP/1.0",
            format!(
                "POST /do/order HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
                 0\r\n\r\n{SMUGGLED}"
            ),
        ),
        (
            "two hosts",
            format!(
                "GET /nowhere HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n{SMUGGLED}"
            ),
        ),
        ("no host", format!("GET /nowhere HTTP/1.1\r\nx-a: b\r\n\r\n{SMUGGLED}")),
        ("another version", format!("GET /nowhere HTTP/1.2\r\nhost: localhost\r\n\r\n{SMUGGLED}")),
        (
            "NUL in the target",
            format!("GET /no\0where HTTP/1.1\r\nhost: localhost\r\n\r\n{SMUGGLED}"),
        ),
        (
            "a blank in the target",
            format!("GET /no where HTTP/1.1\r\nhost: localhost\r\n\r\n{SMUGGLED}"),
        ),
    ]
}

#[tokio::test]
async fn ambiguous_requests_are_refused_with_everything_behind_them_sqlite() {
    let db = TestDb::sqlite();
    // Whoever is not refused is let go soon: then it is known what was answered.
    let server = Setup::of(&db).set("TASHIKA_KEEP_ALIVE_SEC", "0.5").start().await;
    let mut wrong = Vec::new();
    for (what, request) in ambiguous() {
        let answer = says(server.address, request.as_bytes()).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        let answers = answer.matches("HTTP/1.1 ").count() + answer.matches("HTTP/1.0 ").count();
        // Refused, or closed without a word; never a second answer.
        let refused = matches!(status, "" | "400" | "411" | "501" | "505");
        if !refused || answers > 1 {
            wrong.push(format!("{what}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
    // A well-behaved client may send one request after the other.
    let answer = says(server.address, SMUGGLED.repeat(3).as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 3, "{answer}");
    for table in ["idempo_ledger", "outbox"] {
        assert_eq!(rows(&db.url(), &format!("select count(*) from {table}")).await, [["0"]]);
    }
    server.is_healthy().await;
    server.stop().await;
}

#[tokio::test]
async fn no_way_around_the_token_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).set("TASHIKA_API_TOKENS", TOKEN).start().await;
    let allowed = server.ask(Request::get("/metrics").token(TOKEN)).await;
    assert!(allowed.body.contains("http_connections"), "{allowed:?}");
    let authority = server.address.to_string();
    for target in [
        "/metrics",
        "/metrics/",
        "//metrics",
        "/./metrics",
        "/%2e/metrics",
        "/%6detrics",
        "/METRICS",
        "/metrics;x=1",
        "/metrics%00",
        "/metrics%20",
        "/metrics?x=1",
        "/metrics#x",
        "/healthz/../metrics",
        "/healthz/%2e%2e/metrics",
        "/healthz/..%2fmetrics",
        "/healthz/..;/metrics",
        "/healthz//../metrics",
        "/console/../metrics",
        "/console/%2e%2e/metrics",
        "/console/..%5cmetrics",
        "/console/../../../../../../etc/passwd",
        "/console/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/console/..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/console/%252e%252e/%252e%252e/etc/passwd",
        "/console//etc/passwd",
        "/console/\\..\\..\\etc\\passwd",
        "/sandbox/../metrics",
        "/webhooks/../metrics",
        "/v2/../metrics",
        "/docs/../metrics",
        "http://evil.example/metrics",
        "http://localhost/metrics",
        "https://localhost/metrics",
        "file:///etc/passwd",
        "*",
        "metrics",
        "",
        &authority,
        "/\u{ff0e}\u{ff0e}/metrics",
        "/do/order/%2e%2e%2f%2e%2e%2fmetrics",
        "/do/order/..",
    ] {
        for method in ["GET", "POST", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PROPFIND"] {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n"
            );
            let answer = says(server.address, request.as_bytes()).await;
            let status: u16 = answer.split(' ').nth(1).unwrap_or("0").parse().unwrap();
            // Every page of the console is the same one, which knows nothing.
            let shell = status == 200 && answer.contains("text/html");
            let refused = matches!(status, 0 | 400..=499);
            assert!(
                refused || shell && target.contains("/console/"),
                "{method} {target}: {answer}"
            );
            for secret in ["http_requests_total", "root:", "x-smuggled"] {
                assert!(!answer.contains(secret), "{method} {target}: {answer}");
            }
        }
    }
    let raw = b"GET /do/order/\xff\xfe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = says(server.address, raw).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    server.is_healthy().await;
    server.stop().await;
}

/// Asks from another address of this machine.
async fn from(address: [u8; 4], request: &Request, server: SocketAddr) -> (u16, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut stream = socket.connect(server).await.unwrap();
    stream.write_all(&request.head(server)).await.unwrap();
    let answer = heard(&mut stream).await;
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn guessing_tokens_takes_for_ever_and_disturbs_nobody_else_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).set("TASHIKA_API_TOKENS", TOKEN).start().await;
    let (guesser, other) = ([127, 0, 0, 66], [127, 0, 0, 67]);
    let mut refused = 0;
    for n in 0..100 {
        let guess = Request::get("/outbox").token(&format!("guess-number-{n}"));
        let (status, answer) = from(guesser, &guess, server.address).await;
        match status {
            401 => {}
            429 => {
                refused += 1;
                let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
                assert!(wait.is_some_and(|wait| wait.parse::<u64>().unwrap() >= 1), "{answer}");
            }
            _ => panic!("{answer}"),
        }
        assert!(!answer.contains("guess-number"), "{answer}");
    }
    assert!(refused >= 80, "only {refused} of 100 guesses had to wait");
    let right = Request::get("/outbox").token(TOKEN);
    assert_eq!(from(guesser, &right, server.address).await.0, 429, "it might be a guess");
    assert_eq!(from(other, &right, server.address).await.0, 200);
    assert_eq!(server.ask(right).await.status, 200);

    // The console's door has the same lock.
    let mut waits = 0;
    for n in 0..20 {
        let body = json!({"token": format!("guess-number-{n}")});
        let answer = server.ask(Request::json("/console/api/login", &body)).await;
        waits += usize::from(answer.status == 429 && answer.retry_after() >= 1);
        assert!(matches!(answer.status, 401 | 429), "{answer:?}");
    }
    assert!(waits >= 5, "{waits} of 20");
    server.stop().await;
}
