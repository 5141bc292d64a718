//! Connection reuse must never turn one call into two requests.
//!
//! HTTP clients repeat a request by themselves when a pooled connection turns out to be dead. Here
//! servers close at the worst moments, and every request that arrives is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use tashika_providers::http::{Client, ClientConfig, Known, NoAnswer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::client::post;
use crate::server::{Act, Server, read_request, reply};

fn client() -> Client {
    Client::new(&ClientConfig::with_timeout(Duration::from_secs(5))).unwrap()
}

#[tokio::test]
async fn connections_are_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        // Accepts once: a second connection would get no answer.
        let (mut stream, _) = listener.accept().await.unwrap();
        while read_request(&mut stream).await.is_some() {
            stream.write_all(&reply(200, "", "")).await.unwrap();
        }
    });
    let client = client();
    for _ in 0..3 {
        let call = client.call(post(&url)).await;
        assert!(matches!(call.known, Known::Answered(_)), "{call:?}");
    }
    server.abort();
}

#[tokio::test]
async fn a_reused_connection_that_dies_with_a_request_leaves_doubt_and_no_repeat() {
    // Keep-alive first, so that the second request goes out on a pooled connection: exactly the
    // case in which HTTP stacks like to try again. A repeat would be answered with 200.
    let server = Server::playing([
        Act::Say(reply(200, "", "")),
        Act::SayAndClose(vec![]),
        Act::Say(reply(200, "", "")),
    ])
    .await;
    let client = client();
    let first = client.call(post(&server.url("/1"))).await;
    assert!(matches!(first.known, Known::Answered(_)), "{first:?}");
    let second = client.call(post(&server.url("/2"))).await;
    assert!(matches!(second.known, Known::NoAnswer(NoAnswer::Broken(_))), "{second:?}");
    let targets: Vec<String> = server.heard().into_iter().map(|h| h.target).collect();
    assert_eq!(targets, ["/1", "/2"]);
}

/// How often each request arrived, by its number.
type Arrivals = Arc<Mutex<BTreeMap<String, u32>>>;

/// A server that closes each connection right after its `patience`-th answer, without announcing
/// it: the client's next request races with the close.
async fn impatient(patience: u32) -> (String, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let arrivals = Arrivals::default();
    let log = Arc::clone(&arrivals);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                for _ in 0..patience {
                    let Some(request) = read_request(&mut stream).await else {
                        return;
                    };
                    let number = request.header("x-number").unwrap().to_owned();
                    *log.lock().unwrap().entry(number).or_insert(0) += 1;
                    stream.write_all(&reply(200, "", "")).await.unwrap();
                }
            });
        }
    });
    (url, arrivals)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_races_with_a_request_never_sends_it_twice() {
    for patience in [1, 2] {
        let (url, arrivals) = impatient(patience).await;
        let client = client();
        let mut answered = 0;
        for number in 0..500 {
            let mut request = post(&url);
            request.headers.insert("x-number", HeaderValue::from(number));
            let call = client.call(request).await;
            let number = number.to_string();
            let arrived = arrivals.lock().unwrap().get(&number).copied();
            match call.known {
                Known::Answered(_) => {
                    answered += 1;
                    assert_eq!(arrived, Some(1), "{number}");
                }
                Known::NotSent(_) => assert_eq!(arrived, None, "{number}"),
                Known::NoAnswer(_) => assert!(arrived.is_none_or(|times| times == 1), "{number}"),
            }
        }
        // Not vacuous: most calls find a living connection or make one.
        assert!(answered > 250, "{answered}");
    }
}
