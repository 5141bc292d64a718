//! The client of the hosted queue against a stand-in.

use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use tashika_domain::message::asked::Headers;
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::http::ClientConfig;
use tashika_providers::qstash::QstashClient;
use tashika_providers::reply::Reply;

use crate::server::{Act, Server, reply};

async fn publish(server: &Server, destination: &str) -> Reply<String> {
    let config = ClientConfig::with_timeout(Duration::from_millis(400));
    let token = SecretString::from("t0ken");
    let client = QstashClient::new(&server.url("/"), &token, &config).unwrap();
    let headers = Headers::from([
        ("Upstash-Deduplication-Id".to_owned(), vec!["d1".to_owned()]),
        ("Content-Type".to_owned(), vec!["application/json".to_owned()]),
    ]);
    let now = Timestamp::from_micros(0);
    client.publish(destination, Bytes::from_static(b"{}"), &headers, now).await
}

#[tokio::test]
async fn a_message_is_published_with_its_destination_in_the_path() {
    for code in [200, 201, 202] {
        let said = reply(code, "", r#"{"messageId":"msg_1"}"#);
        let server = Server::playing([Act::Say(said)]).await;
        let reply = publish(&server, "https://example.com//a%20b?x=1&y=https://z").await;
        assert_eq!(reply.outcome, Outcome::Done("msg_1".to_owned()));
        assert_eq!(reply.exchange.reference.as_deref(), Some("msg_1"));
        let heard = server.heard();
        assert_eq!(heard[0].method, "POST");
        assert_eq!(heard[0].target, "/v2/publish/https://example.com//a%20b?x=1&y=https://z");
        assert_eq!(heard[0].header("authorization"), Some("Bearer t0ken"));
        assert_eq!(heard[0].header("upstash-deduplication-id"), Some("d1"));
        assert_eq!(heard[0].header("content-type"), Some("application/json"));
        assert_eq!(heard[0].body, "{}");
    }
}

#[tokio::test]
async fn refusals_are_final_and_say_why() {
    for (code, reason) in [
        (400, "QSTASH_REFUSED"),
        (401, "QSTASH_UNAUTHORIZED"),
        (403, "QSTASH_UNAUTHORIZED"),
        (404, "QSTASH_REFUSED"),
        (302, "QSTASH_REFUSED"),
    ] {
        let server = Server::playing([Act::Say(reply(code, "", r#"{"error":"no"}"#))]).await;
        let reply = publish(&server, "https://example.com").await;
        let Outcome::Refused(why) = reply.outcome else {
            panic!("{reply:?}");
        };
        assert_eq!(why.code, reason);
        assert_eq!(why.message, format!("QStash answered {code}: no"));
    }
}

#[tokio::test]
async fn overload_is_busy_for_as_long_as_it_says() {
    for code in [429, 500, 503] {
        let server = Server::playing([Act::Say(reply(code, "retry-after: 7\r\n", "x"))]).await;
        let reply = publish(&server, "https://example.com").await;
        let Outcome::Busy { reason, retry_in } = reply.outcome else {
            panic!("{reply:?}");
        };
        assert_eq!(retry_in, Some(Duration::from_secs(7)));
        assert_eq!(reason.message, format!("QStash answered {code}"));
    }
}

#[tokio::test]
async fn silence_and_riddles_are_lost_and_closed_doors_are_busy() {
    for act in [Act::SayAndHold(vec![]), Act::SayAndClose(vec![]), Act::Say(reply(200, "", "ok"))] {
        let server = Server::playing([act]).await;
        let reply = publish(&server, "https://example.com").await;
        assert!(matches!(reply.outcome, Outcome::Lost(_)), "{reply:?}");
        assert!(reply.exchange.sent);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let config = ClientConfig::with_timeout(Duration::from_secs(1));
    let client = QstashClient::new(&url, &SecretString::from("t"), &config).unwrap();
    let now = Timestamp::from_micros(0);
    let reply = client.publish("https://example.com", Bytes::new(), &Headers::new(), now).await;
    assert!(matches!(reply.outcome, Outcome::Busy { .. }), "{reply:?}");
    assert!(!reply.exchange.sent);
}

#[tokio::test]
async fn what_would_arrive_elsewhere_is_not_sent() {
    let server = Server::playing([]).await;
    let reply = publish(&server, "https://example.com/a/../b").await;
    assert!(matches!(reply.outcome, Outcome::Refused(_)), "{reply:?}");
    assert!(!reply.exchange.sent && server.heard().is_empty());
}
