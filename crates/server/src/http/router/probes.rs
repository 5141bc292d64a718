//! Bodies and origins that are not what they should be, through the whole server on a real socket.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use utoipa_axum::routes;

use super::*;
use crate::config::Sources;
use crate::http::{JsonBody, listener};

/// Takes a document.
#[utoipa::path(post, path = "/documents", responses((status = 200, description = "taken")))]
async fn take(JsonBody(_body): JsonBody) -> &'static str {
    "taken"
}

async fn start() -> SocketAddr {
    let pairs = [
        ("TASHIKA_LISTEN", "127.0.0.1:0"),
        ("TASHIKA_BODY_LIMIT_BYTES", "65536"),
        ("TASHIKA_BODY_TIMEOUT_MS", "200"),
    ];
    let environment = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let sources = Sources { file: None, environment: environment.into() };
    let config = Config::from_sources(&sources).unwrap();
    let documents = OpenApiRouter::new().routes(routes!(take));
    let (router, _) = Shell::new(&config, RequestIds::from_seed(1)).protected(documents).build();
    let socket = TcpListener::bind(config.http.listen).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let stop = CancellationToken::new();
        listener::serve(socket, router, &config.http, Duration::ZERO, stop).await
    });
    address
}

/// Sends a POST with more header lines and a body; returns the status line and the code.
async fn post(address: SocketAddr, headers: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /documents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(10), read).await.unwrap().unwrap();
    let status = answer.get(9..12).unwrap_or_default();
    let code = answer.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
    format!("{status} {}", code.unwrap_or("-"))
}

fn sized(body: &[u8]) -> String {
    format!("content-length: {}\r\n", body.len())
}

#[tokio::test]
async fn a_document_is_taken_plain_chunked_and_compressed() {
    let address = start().await;
    assert_eq!(post(address, &sized(b"{}"), b"{}").await, "200 -");
    let chunked = post(address, "transfer-encoding: chunked\r\n", b"2\r\n{}\r\n0\r\n\r\n");
    assert_eq!(chunked.await, "200 -");
    let packed = gzip(b"{\"a\": 1}");
    let headers = format!("content-encoding: gzip\r\n{}", sized(&packed));
    assert_eq!(post(address, &headers, &packed).await, "200 -");
}

#[tokio::test]
async fn a_body_that_is_announced_and_never_sent_is_answered_408() {
    let address = start().await;
    assert_eq!(post(address, "content-length: 100\r\n", b"{").await, "408 REQUEST_TIMEOUT");
    let chunked = post(address, "transfer-encoding: chunked\r\n", b"64\r\n{");
    assert_eq!(chunked.await, "408 REQUEST_TIMEOUT");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_answered_413_however_it_comes() {
    let address = start().await;
    let long = vec![b' '; 100_000];
    assert_eq!(post(address, &sized(&long), &long).await, "413 PAYLOAD_TOO_LARGE");
    let mut chunks = b"186a0\r\n".to_vec();
    chunks.extend_from_slice(&long);
    chunks.extend_from_slice(b"\r\n0\r\n\r\n");
    let chunked = post(address, "transfer-encoding: chunked\r\n", &chunks);
    assert_eq!(chunked.await, "413 PAYLOAD_TOO_LARGE");
    // 50 MB of spaces in some 50 kB, below the limit as it travels.
    let bomb = gzip(&vec![b' '; 50_000_000]);
    assert!(bomb.len() < 65_536, "{}", bomb.len());
    let headers = format!("content-encoding: gzip\r\n{}", sized(&bomb));
    assert_eq!(post(address, &headers, &bomb).await, "413 PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn a_request_that_a_browser_makes_for_another_site_is_answered_403() {
    let address = start().await;
    for origin in ["sec-fetch-site: cross-site\r\n", "origin: https://evil.example\r\n"] {
        let headers = format!("{origin}{}", sized(b"{}"));
        assert_eq!(post(address, &headers, b"{}").await, "403 CROSS_SITE_REQUEST", "{origin}");
    }
    let own = format!("sec-fetch-site: same-origin\r\n{}", sized(b"{}"));
    assert_eq!(post(address, &own, b"{}").await, "200 -");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
