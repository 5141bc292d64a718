//! What the client claims to know, against what servers really did.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tashika_providers::http::{Call, Client, ClientConfig, Known, NoAnswer, NotSent, Request};
use tokio::net::TcpListener;

use crate::server::{Act, Server, reply};

const TIMEOUT: Duration = Duration::from_millis(400);

fn client() -> Client {
    Client::new(&ClientConfig::with_timeout(TIMEOUT)).unwrap()
}

pub fn post(url: &str) -> Request {
    Request {
        method: Method::POST,
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
    }
}

/// Calls a server that plays these acts, and checks that it heard of one request at most.
async fn call(acts: impl IntoIterator<Item = Act>) -> Call {
    let server = Server::playing(acts).await;
    let call = client().call(post(&server.url("/"))).await;
    let heard = server.heard().len();
    match call.known {
        Known::Answered(_) => assert_eq!(heard, 1),
        Known::NotSent(_) => assert_eq!(heard, 0),
        Known::NoAnswer(_) => assert!(heard <= 1),
    }
    call
}

fn no_answer(call: Call) -> NoAnswer {
    match call.known {
        Known::NoAnswer(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_is_read_whole() {
    let call = call([Act::Say(reply(201, "x-a: b\r\n", "body"))]).await;
    let Known::Answered(answer) = &call.known else {
        panic!("{call:?}");
    };
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["x-a"], "b");
    assert_eq!(answer.body, "body");
    assert!(call.rtt > Duration::ZERO && call.rtt < TIMEOUT);
    assert!(!format!("{call:?}").contains("body\""), "{call:?}");
}

#[tokio::test]
async fn a_refused_port_was_not_sent_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let call = client().call(post(&format!("http://{addr}/"))).await;
    assert!(matches!(call.known, Known::NotSent(NotSent::Refused)), "{call:?}");
}

#[tokio::test]
async fn a_name_that_does_not_exist_was_not_sent_to() {
    let call = client().call(post("http://no-such-host.invalid/")).await;
    // A resolver that is itself unreachable takes longer than the connect timeout; both are before
    // the first byte.
    assert!(
        matches!(call.known, Known::NotSent(NotSent::Dns(_) | NotSent::ConnectTimeout(_))),
        "{call:?}"
    );
}

#[tokio::test]
async fn a_scheme_that_is_not_http_was_not_sent() {
    let call = client().call(post("ftp://127.0.0.1/")).await;
    assert!(matches!(call.known, Known::NotSent(NotSent::Unsendable(_))), "{call:?}");
}

#[tokio::test]
async fn a_door_slammed_before_reading_leaves_doubt() {
    // Whether the request was written before the close was seen is a race; neither side of it may
    // be called "not sent", because the kernel had accepted the connection.
    for _ in 0..20 {
        let why = no_answer(call([Act::Slam, Act::Slam, Act::Slam]).await);
        assert!(matches!(why, NoAnswer::Broken(_)), "{why:?}");
    }
}

#[tokio::test]
async fn a_request_that_was_read_and_not_answered_is_in_doubt() {
    let why = no_answer(call([Act::SayAndClose(vec![])]).await);
    assert!(matches!(why, NoAnswer::Broken(_)), "{why:?}");
}

#[tokio::test]
async fn silence_ends_at_the_timeout() {
    let call = call([Act::SayAndHold(vec![])]).await;
    assert!(call.rtt >= TIMEOUT);
    let why = no_answer(call);
    assert_eq!(why, NoAnswer::Timeout(TIMEOUT));
    assert_eq!(why.to_string(), "no answer within 400 ms");
}

#[tokio::test]
async fn a_head_without_its_body_is_no_answer() {
    let head = b"HTTP/1.1 201 X\r\ncontent-length: 10\r\n\r\nhalf".to_vec();
    let stalled = no_answer(call([Act::SayAndHold(head.clone())]).await);
    let after = TIMEOUT;
    assert_eq!(stalled, NoAnswer::BodyTimeout { status: 201, after });
    let truncated = no_answer(call([Act::SayAndClose(head)]).await);
    assert!(matches!(truncated, NoAnswer::BodyBroken { status: 201, .. }), "{truncated:?}");
}

#[tokio::test]
async fn a_body_may_have_64_kib_and_not_a_byte_more() {
    let fits = call([Act::Say(reply(200, "", &"x".repeat(65_536)))]).await;
    assert!(matches!(fits.known, Known::Answered(_)), "{fits:?}");
    let announced = no_answer(call([Act::Say(reply(200, "", &"x".repeat(65_537)))]).await);
    let limit = 65_536;
    assert_eq!(announced, NoAnswer::BodyTooLarge { status: 200, limit });
    // Without an announced length, and without an end.
    let mut endless = b"HTTP/1.1 200 X\r\n\r\n".to_vec();
    endless.extend(vec![b'x'; 200_000]);
    let endless = no_answer(call([Act::SayAndHold(endless)]).await);
    assert_eq!(endless, NoAnswer::BodyTooLarge { status: 200, limit });
}

#[tokio::test]
async fn what_is_not_http_is_no_answer() {
    for garbage in
        [&b"220 mail.example ESMTP\r\n"[..], b"\x00\x01\x02\x03\r\n\r\n", b"HTTP/1.1 9\r\n\r\n"]
    {
        let why = no_answer(call([Act::SayAndClose(garbage.to_vec())]).await);
        assert!(matches!(why, NoAnswer::Broken(_)), "{why:?}");
    }
}

#[tokio::test]
async fn redirects_are_answers() {
    let elsewhere = Server::playing([Act::Say(reply(200, "", ""))]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("location: {}\r\n", elsewhere.url("/"));
        let call = call([Act::Say(reply(status, &location, ""))]).await;
        let Known::Answered(answer) = call.known else {
            panic!("{call:?}");
        };
        assert_eq!(answer.status, status);
    }
    assert!(elsewhere.heard().is_empty());
}

#[tokio::test]
async fn only_a_configured_proxy_is_used() {
    let proxy = Server::playing([Act::Say(reply(200, "", "from the proxy"))]).await;
    let mut config = ClientConfig::with_timeout(TIMEOUT);
    config.proxy = Some(proxy.url("").into());
    let call = Client::new(&config).unwrap().call(post("http://broker.invalid/orders")).await;
    assert!(matches!(call.known, Known::Answered(_)), "{call:?}");
    assert_eq!(proxy.heard()[0].target, "http://broker.invalid/orders");
}
