//! What the courier claims to know, against what servers really did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tashika_domain::message::asked::{Headers, Method};
use tashika_providers::courier::{Courier, CourierConfig, CourierError, Delivered, Known, Parcel};
use tashika_providers::guard::Guard;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::server::{Act, Server, read_request, reply};
use crate::tls::{CERTIFICATE, ROOT, after_client_hello, tls_server};

const TIMEOUT: Duration = Duration::from_millis(400);

pub fn config() -> CourierConfig {
    CourierConfig {
        max_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(2),
        max_response: 1_000,
        idle_per_host: 8,
        guard: Guard { allow_loopback: true, ..Guard::default() },
        roots_pem: Some(ROOT.to_vec()),
    }
}

pub fn courier() -> Courier {
    Courier::new(config()).unwrap()
}

/// A `POST` of `{}` without headers.
pub async fn post(courier: &Courier, url: &str) -> Delivered {
    post_within(courier, url, None).await
}

async fn post_within(courier: &Courier, url: &str, timeout: Option<Duration>) -> Delivered {
    let (headers, body) = (Headers::new(), Bytes::from_static(b"{}"));
    courier
        .deliver(Parcel { method: Method::Post, url, headers: &headers, own: &[], body, timeout })
        .await
}

fn not_sent(delivered: Delivered) -> String {
    match delivered.known {
        Known::NotSent(why) => why,
        other => panic!("{other:?}"),
    }
}

fn no_answer(delivered: Delivered) -> String {
    match delivered.known {
        Known::NoAnswer(why) => why,
        other => panic!("{other:?}"),
    }
}

fn status(delivered: &Delivered) -> u16 {
    match delivered.known {
        Known::Answered { status, .. } => status,
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_is_read_whole() {
    let extra = "x-ratelimit-reset: 5\r\nset-cookie: a\r\nset-cookie: b\r\n";
    let server = Server::playing([Act::Say(reply(503, extra, "busy"))]).await;
    let delivered = post(&courier(), &server.url("/")).await;
    assert!(!format!("{delivered:?}").contains("busy\""), "{delivered:?}");
    assert!(delivered.rtt > Duration::ZERO);
    let Known::Answered { status, headers, body, truncated } = delivered.known else {
        panic!("{delivered:?}");
    };
    assert_eq!((status, &body[..], truncated), (503, &b"busy"[..], false));
    let expected = [
        ("Content-Length", vec!["4"]),
        ("Set-Cookie", vec!["a", "b"]),
        ("X-Ratelimit-Reset", vec!["5"]),
    ];
    let found: Vec<(&str, Vec<&str>)> = headers
        .iter()
        .map(|(name, values)| (name.as_str(), values.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_long_answer_is_cut_and_still_counts() {
    let fits = Server::playing([Act::Say(reply(200, "", &"x".repeat(1_000)))]).await;
    let delivered = post(&courier(), &fits.url("/")).await;
    assert!(matches!(delivered.known, Known::Answered { truncated: false, .. }), "{delivered:?}");
    // Announced; without announcement; without an end.
    let mut endless = b"HTTP/1.1 201 X\r\n\r\n".to_vec();
    endless.extend(vec![b'x'; 200_000]);
    for act in [
        Act::Say(reply(201, "", &"x".repeat(1_001))),
        Act::SayAndClose(endless.clone()),
        Act::SayAndHold(endless),
    ] {
        let server = Server::playing([act]).await;
        let delivered = post(&courier(), &server.url("/")).await;
        let Known::Answered { status, body, truncated, .. } = delivered.known else {
            panic!("{delivered:?}");
        };
        assert_eq!((status, body.len(), truncated), (201, 1_000, true));
    }
}

#[tokio::test]
async fn what_was_cut_off_does_not_turn_up_in_the_next_answer() {
    let long = reply(200, "", &"HTTP/1.1 500 X\r\n\r\n".repeat(10_000));
    let server = Server::playing([Act::Say(long), Act::Say(reply(204, "", ""))]).await;
    let courier = courier();
    assert_eq!(status(&post(&courier, &server.url("/1")).await), 200);
    assert_eq!(status(&post(&courier, &server.url("/2")).await), 204);
}

#[tokio::test]
async fn silence_leaves_doubt_and_the_shorter_timeout_counts() {
    let server = Server::playing([]).await;
    let delivered = post_within(&courier(), &server.url("/?key=s3cret"), Some(TIMEOUT)).await;
    assert!(delivered.rtt >= TIMEOUT);
    assert_eq!(no_answer(delivered), "no answer within 400 ms");
    let impatient = Courier::new(CourierConfig { max_timeout: TIMEOUT, ..config() }).unwrap();
    let long = Some(Duration::from_secs(60));
    let delivered = post_within(&impatient, &server.url("/"), long).await;
    assert_eq!(no_answer(delivered), "no answer within 400 ms");
}

#[tokio::test]
async fn a_head_without_its_body_is_no_answer() {
    let head = b"HTTP/1.1 201 X\r\ncontent-length: 10\r\n\r\nhalf".to_vec();
    let server = Server::playing([Act::SayAndHold(head.clone()), Act::SayAndClose(head)]).await;
    let held = post_within(&courier(), &server.url("/"), Some(TIMEOUT)).await;
    assert_eq!(no_answer(held), "201, but no complete body within 400 ms");
    let broken = no_answer(post(&courier(), &server.url("/")).await);
    assert!(broken.starts_with("201, but the body broke off: "), "{broken}");
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://u:hunter2@{addr}/?key=hunter2");
    assert_eq!(not_sent(post(&courier(), &url).await), "connection refused");
    // A resolver that is itself unreachable takes longer than the connect timeout.
    let why = not_sent(post(&courier(), "http://no-such-host.invalid/?key=hunter2").await);
    assert!(
        why.starts_with("the name could not be resolved: ") || why.starts_with("no connection"),
        "{why}"
    );
    assert!(!why.contains("hunter2"), "{why}");
}

#[tokio::test]
async fn what_cannot_be_written_was_not_sent() {
    for url in ["ftp://x/?hunter2", "hunter2", "http://hunter2@[/", "http://x/hunter2 "] {
        let why = not_sent(post(&courier(), url).await);
        assert!(why.starts_with("invalid destination url: ") && !why.contains("hunter2"), "{why}");
    }
    let headers = Headers::from([("X-A".to_owned(), vec!["hunter2\r\nHost: x".to_owned()])]);
    let parcel = Parcel {
        method: Method::Get,
        url: "http://127.0.0.1/",
        headers: &headers,
        own: &[],
        body: Bytes::new(),
        timeout: None,
    };
    let why = not_sent(courier().deliver(parcel).await);
    assert_eq!(why, "the request cannot be written as HTTP: header \"X-A\"");
}

#[tokio::test]
async fn redirects_are_answers() {
    let elsewhere = Server::playing([Act::Say(reply(200, "", ""))]).await;
    for code in [301, 302, 303, 307, 308] {
        let location = format!("location: {}\r\n", elsewhere.url("/"));
        let server = Server::playing([Act::Say(reply(code, &location, ""))]).await;
        assert_eq!(status(&post(&courier(), &server.url("/")).await), code);
    }
    assert!(elsewhere.heard().is_empty());
}

#[tokio::test]
async fn tls_works_with_a_trusted_certificate_only() {
    let (url, server) = tls_server();
    assert_eq!(status(&post(&courier(), &url).await), 200);
    assert!(server.join().unwrap().starts_with(b"POST / HTTP/1.1"));

    let (url, server) = tls_server();
    let roots_pem = Some(CERTIFICATE.to_vec());
    let distrustful = Courier::new(CourierConfig { roots_pem, ..config() }).unwrap();
    let why = not_sent(post(&distrustful, &url).await);
    assert!(why.starts_with("no TLS connection: "), "{why}");
    assert!(server.join().unwrap().is_empty());

    let url = after_client_hello(Some(b"\x15\x03\x03\x00\x02\x02\x28")).await;
    let why = not_sent(post(&courier(), &url).await);
    assert!(why.starts_with("no TLS connection: "), "{why}");
}

#[tokio::test]
async fn a_handshake_that_never_ends_was_not_sent() {
    let connect_timeout = Duration::from_millis(300);
    let hasty = Courier::new(CourierConfig { connect_timeout, ..config() }).unwrap();
    let url = after_client_hello(None).await;
    assert_eq!(not_sent(post(&hasty, &url).await), "no connection within 300 ms");
    // Also if the delivery's own time is over first.
    let url = after_client_hello(None).await;
    let delivered = post_within(&courier(), &url, Some(TIMEOUT)).await;
    assert_eq!(not_sent(delivered), "no connection within 400 ms");
}

#[test]
fn unreadable_roots_are_refused() {
    for pem in [&b""[..], b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"] {
        let roots_pem = Some(pem.to_vec());
        let refused = Courier::new(CourierConfig { roots_pem, ..config() });
        assert!(matches!(refused, Err(CourierError::Roots(_))));
    }
    // And the machine's own can be used.
    Courier::new(CourierConfig { roots_pem: None, ..config() }).unwrap();
}

#[tokio::test]
async fn connections_are_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        // Accepts once: a second connection would get no answer.
        let (mut stream, _) = listener.accept().await.unwrap();
        while read_request(&mut stream).await.is_some() {
            stream.write_all(&reply(200, "", "body")).await.unwrap();
        }
    });
    let courier = courier();
    for number in 0..3 {
        let url = format!("{url}{number}");
        assert_eq!(status(&post(&courier.clone(), &url).await), 200);
    }
    server.abort();
}

/// How many connections two rounds of deliveries need, all of a round under way at the same moment.
async fn connections_for_two_rounds(deliveries: usize, idle_per_host: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let (count, all_there) = (Arc::clone(&accepted), Arc::new(Barrier::new(deliveries)));
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let all_there = Arc::clone(&all_there);
            tokio::spawn(async move {
                while read_request(&mut stream).await.is_some() {
                    all_there.wait().await;
                    stream.write_all(&reply(200, "", "")).await.unwrap();
                }
            });
        }
    });
    let courier = Courier::new(CourierConfig { idle_per_host, ..config() }).unwrap();
    for _ in 0..2 {
        let mut round = JoinSet::new();
        for _ in 0..deliveries {
            let (courier, url) = (courier.clone(), url.clone());
            round.spawn(async move { status(&post(&courier, &url).await) });
        }
        assert!(round.join_all().await.into_iter().all(|status| status == 200));
    }
    server.abort();
    accepted.load(Ordering::Relaxed)
}

#[tokio::test]
async fn as_many_connections_are_kept_as_are_wanted() {
    assert_eq!(connections_for_two_rounds(200, 200).await, 200);
    assert_eq!(connections_for_two_rounds(10, 4).await, 16);
}

#[tokio::test]
async fn a_reused_connection_that_dies_with_a_request_leaves_doubt_and_no_repeat() {
    let server = Server::playing([
        Act::Say(reply(200, "", "")),
        Act::SayAndClose(vec![]),
        Act::Say(reply(200, "", "")),
    ])
    .await;
    let courier = courier();
    assert_eq!(status(&post(&courier, &server.url("/1")).await), 200);
    let why = no_answer(post(&courier, &server.url("/2")).await);
    assert!(why.starts_with("no answer: "), "{why}");
    let targets: Vec<String> = server.heard().into_iter().map(|h| h.target).collect();
    assert_eq!(targets, ["/1", "/2"]);
}

/// How often each request arrived, by its target.
type Arrivals = Arc<Mutex<BTreeMap<String, u32>>>;

/// A server that closes each connection right after its answer, without announcing it: the next
/// request races with the close.
async fn impatient() -> (String, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let arrivals = Arrivals::default();
    let log = Arc::clone(&arrivals);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let Some(request) = read_request(&mut stream).await else {
                    return;
                };
                *log.lock().unwrap().entry(request.target).or_insert(0) += 1;
                stream.write_all(&reply(200, "", "")).await.unwrap();
            });
        }
    });
    (url, arrivals)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_races_with_a_request_never_sends_it_twice() {
    let (url, arrivals) = impatient().await;
    let courier = courier();
    let mut answered = 0;
    for number in 0..500 {
        let delivered = post(&courier, &format!("{url}{number}")).await;
        let arrived = arrivals.lock().unwrap().get(&format!("/{number}")).copied();
        match delivered.known {
            Known::Answered { .. } => {
                answered += 1;
                assert_eq!(arrived, Some(1), "{number}");
            }
            Known::NoAnswer(_) => assert!(arrived.is_none_or(|times| times == 1), "{number}"),
            Known::NotSent(_) => assert_eq!(arrived, None, "{number}"),
            Known::Blocked(why) => panic!("{why}"),
        }
    }
    // Not vacuous: most deliveries find a living connection or make one.
    assert!(answered > 250, "{answered}");
}
