//! The HTTP broker: what it sends, and what it makes of every reply.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::json;
use tashika_domain::order::{Execution, OrderRequest};
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::broker::http::{HttpBroker, Profile};
use tashika_providers::broker::{Broker as _, Reply, SendOrder, Whereabouts};
use tashika_providers::http::ClientConfig;
use tashika_providers::signature::{self, Nonces, Signed};
use tokio::net::TcpListener;

use crate::server::{Act, Heard, Server, reply};

pub const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_123_456);
const SECRET: &str = "hunter2-hunter2";
const BODY: &str = r#"{"side":"BUY", "qty":0.3,"instrument":"USDJPY", "idempotency_key":"key/0001","tags":["か\u3099"]}"#;
const CANONICAL: &str =
    r#"{"idempotency_key":"key/0001","instrument":"USDJPY","qty":0.3,"side":"BUY","tags":["が"]}"#;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const REPORT: &str = r#"{"status":"executed","client_order_id":"key/0001","order_ref":"B-7","fills":[{"px":150.5,"qty":0.3,"ts":"2026-11-15T09:30:00Z"}],"cost":0.1}"#;

pub fn broker(base_url: String, takes_keys: bool) -> HttpBroker {
    let profile = Profile {
        name: "http".into(),
        base_url,
        key_id: "desk-1".into(),
        secret: SecretString::from(SECRET),
        takes_keys,
        client: ClientConfig::with_timeout(Duration::from_millis(400)),
    };
    HttpBroker::new(profile, Nonces::new([7; 8])).unwrap()
}

pub async fn send(broker: &HttpBroker) -> Reply<Execution> {
    let order = OrderRequest::from_stored(BODY).unwrap();
    let reply = broker
        .send(SendOrder { order: &order, body: BODY, now: NOW, traceparent: Some(TRACE) })
        .await;
    let shown = format!("{reply:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    reply
}

/// `Done`, or `Refused CODE`, `Busy CODE 7s`, `Lost CODE`.
fn told<T>(outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::Done(_) => "Done".into(),
        Outcome::Refused(reason) => format!("Refused {}", reason.code),
        Outcome::Busy { reason, retry_in: None } => format!("Busy {}", reason.code),
        Outcome::Busy { reason, retry_in: Some(wait) } => {
            format!("Busy {} {}s", reason.code, wait.as_secs())
        }
        Outcome::Lost(reason) => format!("Lost {}", reason.code),
    }
}

fn signature_holds(heard: &Heard, path: &str) -> bool {
    let timestamp = heard.header("x-broker-timestamp").unwrap();
    let signed = Signed {
        method: &heard.method,
        path,
        query: "",
        body: heard.body.as_bytes(),
        timestamp_ms: timestamp.parse().unwrap(),
        nonce: heard.header("x-broker-nonce").unwrap(),
    };
    let signature = heard.header("x-broker-signature").unwrap();
    signature::verify(&SecretString::from(SECRET), &signed, signature)
}

#[tokio::test]
async fn an_order_is_sent_signed_and_canonical() {
    let server = Server::playing([Act::Say(reply(201, "", REPORT))]).await;
    let broker = broker(server.url("/v1/"), true);
    let reply = send(&broker).await;
    let Outcome::Done(execution) = &reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!(execution.order_ref, "B-7");
    assert_eq!(reply.exchange.request, "POST /orders");
    assert_eq!(reply.exchange.reply, "201");
    assert_eq!(reply.exchange.reference.as_deref(), Some("B-7"));
    assert!(reply.exchange.sent);
    assert!(reply.rtt > Duration::ZERO);

    let heard = &server.heard()[0];
    assert_eq!((heard.method.as_str(), heard.target.as_str()), ("POST", "/v1/orders"));
    assert_eq!(heard.body, CANONICAL);
    for (name, value) in [
        ("idempotency-key", "key/0001"),
        ("x-client-order-id", "key/0001"),
        ("content-type", "application/json"),
        ("traceparent", TRACE),
        ("x-broker-key", "desk-1"),
        ("x-broker-timestamp", "1700000000123"),
        ("x-broker-nonce", "07070707070707070000000000000000"),
    ] {
        assert_eq!(heard.header(name), Some(value), "{name}");
    }
    assert!(signature_holds(heard, "/v1/orders"));
    assert!(!signature_holds(heard, "/orders"));
}

#[tokio::test]
async fn a_broker_without_keys_is_not_given_one() {
    let server = Server::playing([Act::Say(reply(200, "", REPORT))]).await;
    let broker = broker(server.url(""), false);
    assert!(!broker.takes_keys());
    assert_eq!(told(&send(&broker).await.outcome), "Done");
    let heard = &server.heard()[0];
    assert_eq!(heard.header("idempotency-key"), None);
    assert_eq!(heard.header("x-client-order-id"), Some("key/0001"));
}

#[tokio::test]
async fn every_reply_to_an_order_means_one_thing() {
    let rejected = r#"{"status":"rejected","code":"NO_MARGIN"}"#;
    let conflict = r#"{"code":"IDEMPOTENCY_CONFLICT"}"#;
    for (status, headers, body, expected) in [
        (200, "", REPORT, "Done"),
        (201, "", REPORT, "Done"),
        (202, "", r#"{"status":"working"}"#, "Lost BROKER_TIMEOUT"),
        (200, "", rejected, "Refused BROKER_REJECTED"),
        (200, "", "", "Lost BROKER_UNKNOWN"),
        (200, "", "<html>ok</html>", "Lost BROKER_UNKNOWN"),
        (200, "", r#"{"status":"not_found"}"#, "Lost BROKER_UNKNOWN"),
        (204, "", "", "Lost BROKER_UNKNOWN"),
        (302, "location: /\r\n", "", "Lost BROKER_UNKNOWN"),
        (400, "", "", "Refused BROKER_BAD_REQUEST"),
        (401, "", "", "Refused BROKER_UNAUTHORIZED"),
        (402, "", "", "Lost BROKER_UNKNOWN"),
        (403, "", "", "Refused BROKER_UNAUTHORIZED"),
        (404, "", "", "Refused BROKER_BAD_REQUEST"),
        (405, "", "", "Refused BROKER_BAD_REQUEST"),
        (408, "", "", "Lost BROKER_TIMEOUT"),
        (409, "", "", "Lost BROKER_UNKNOWN"),
        (409, "", r#"{"code":"DUPLICATE"}"#, "Lost BROKER_UNKNOWN"),
        (409, "", conflict, "Refused BROKER_BAD_REQUEST"),
        (413, "", "", "Refused BROKER_BAD_REQUEST"),
        (414, "", "", "Refused BROKER_BAD_REQUEST"),
        (415, "", "", "Refused BROKER_BAD_REQUEST"),
        (418, "", "", "Lost BROKER_UNKNOWN"),
        (422, "", "", "Refused BROKER_BAD_REQUEST"),
        (429, "", "", "Busy BROKER_RATE_LIMITED"),
        (429, "retry-after: 7\r\n", "", "Busy BROKER_RATE_LIMITED 7s"),
        (429, "retry-after: Tue, 14 Nov 2023 22:14:20 GMT\r\n", "", "Busy BROKER_RATE_LIMITED 59s"),
        (431, "", "", "Refused BROKER_BAD_REQUEST"),
        (500, "", "", "Lost BROKER_5XX"),
        (500, "retry-after: 7\r\n", "", "Lost BROKER_5XX"),
        (502, "", "", "Lost BROKER_5XX"),
        (503, "", "", "Lost BROKER_5XX"),
        (503, "retry-after: 7\r\n", "", "Busy BROKER_5XX 7s"),
        (503, "retry-after: soon\r\n", "", "Lost BROKER_5XX"),
        (504, "", "", "Lost BROKER_TIMEOUT"),
        (599, "", "", "Lost BROKER_5XX"),
        (999, "", "", "Lost BROKER_UNKNOWN"),
    ] {
        let server = Server::playing([Act::Say(reply(status, headers, body))]).await;
        let reply = send(&broker(server.url(""), true)).await;
        assert_eq!(told(&reply.outcome), expected, "{status} {headers}{body}");
        assert!(reply.exchange.sent);
        assert_eq!(reply.exchange.reply, status.to_string());
        assert_eq!(server.heard().len(), 1, "{status}: one send, one request");
    }
}

#[tokio::test]
async fn no_answer_is_lost_and_no_connection_is_busy() {
    for act in [
        Act::SayAndHold(vec![]),
        Act::SayAndClose(vec![]),
        Act::SayAndClose(b"HTTP/1.1 201 X\r\ncontent-length: 99\r\n\r\n{".to_vec()),
        Act::SayAndClose(b"who is there?\r\n\r\n".to_vec()),
    ] {
        let server = Server::playing([act]).await;
        let reply = send(&broker(server.url(""), true)).await;
        assert_eq!(told(&reply.outcome), "Lost BROKER_TIMEOUT");
        assert!(reply.exchange.sent);
    }
    let server = Server::playing([Act::SayAndHold(vec![])]).await;
    let reply = send(&broker(server.url(""), true)).await;
    assert_eq!(reply.exchange.reply, "no answer within 400 ms");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reply = send(&broker(url, true)).await;
    assert!(!reply.exchange.sent);
    assert_eq!(told(&reply.outcome), "Busy BROKER_DOWN");
    assert_eq!(reply.exchange.reply, "not sent: connection refused");
}

#[tokio::test]
async fn already_processed_with_its_execution_is_done() {
    let enclosed = format!(r#"{{"code":"BROKER_ALREADY_PROCESSED","execution":{REPORT}}}"#);
    let inline = REPORT.replacen('{', r#"{"reason":"ALREADY_PROCESSED","#, 1);
    for body in [enclosed, inline] {
        let server = Server::playing([Act::Say(reply(409, "", &body))]).await;
        let reply = send(&broker(server.url(""), true)).await;
        assert_eq!(told(&reply.outcome), "Done", "{body}");
        assert_eq!(reply.exchange.reply, "409, already processed");
        assert_eq!(reply.exchange.reference.as_deref(), Some("B-7"));
        assert_eq!(server.heard().len(), 1);
    }
}

#[tokio::test]
async fn already_processed_without_its_execution_is_asked_about() {
    for (status, body, expected) in [
        (200, REPORT, "Done"),
        (200, r#"{"status":"rejected"}"#, "Refused BROKER_REJECTED"),
        (200, r#"{"status":"working"}"#, "Lost BROKER_ALREADY_PROCESSED"),
        (200, "?", "Lost BROKER_ALREADY_PROCESSED"),
        (404, r#"{"code":"ORDER_NOT_FOUND"}"#, "Lost BROKER_ALREADY_PROCESSED"),
        (401, "", "Lost BROKER_ALREADY_PROCESSED"),
        (500, "", "Lost BROKER_ALREADY_PROCESSED"),
        (429, "", "Lost BROKER_ALREADY_PROCESSED"),
    ] {
        let conflict = reply(409, "", r#"{"code":"ALREADY_PROCESSED"}"#);
        let server = Server::playing([Act::Say(conflict), Act::Say(reply(status, "", body))]).await;
        let reply = send(&broker(server.url(""), true)).await;
        assert_eq!(told(&reply.outcome), expected, "{status} {body}");
        let asked = format!("409, already processed; asked: {status}");
        assert_eq!(reply.exchange.reply, asked);
        let methods: Vec<String> = server.heard().into_iter().map(|h| h.method).collect();
        assert_eq!(methods, ["POST", "GET"], "asked, not sent again");
    }
}

#[tokio::test]
async fn every_reply_to_a_question_means_one_thing() {
    let not_found = r#"{"code":"ORDER_NOT_FOUND","message":"no such order"}"#;
    for (status, headers, body, expected) in [
        (200, "", REPORT, "executed"),
        (200, "", r#"{"status":"working"}"#, "working"),
        (200, "", r#"{"status":"not_found"}"#, "not found"),
        (200, "", r#"{"status":"rejected","code":"X"}"#, "rejected"),
        (200, "", "?", "Lost BROKER_UNKNOWN"),
        (404, "", not_found, "not found"),
        (404, "", r#"{"status":"not_found"}"#, "not found"),
        // A router's, not the broker's.
        (404, "", "", "Lost BROKER_UNKNOWN"),
        (404, "", "<html>404 Not Found</html>", "Lost BROKER_UNKNOWN"),
        (404, "", r#"{"message":"no Route matched"}"#, "Lost BROKER_UNKNOWN"),
        // The question was refused, which says nothing about the order.
        (400, "", "", "Lost BROKER_BAD_REQUEST"),
        (401, "", "", "Lost BROKER_UNAUTHORIZED"),
        (409, "", r#"{"code":"IDEMPOTENCY_CONFLICT"}"#, "Lost BROKER_BAD_REQUEST"),
        (429, "retry-after: 3\r\n", "", "Busy BROKER_RATE_LIMITED 3s"),
        (500, "", "", "Lost BROKER_5XX"),
        (503, "retry-after: 3\r\n", "", "Busy BROKER_5XX 3s"),
        (504, "", "", "Lost BROKER_TIMEOUT"),
    ] {
        let server = Server::playing([Act::Say(reply(status, headers, body))]).await;
        let broker = broker(server.url("/v1"), false);
        let reply = broker.status("key/0001", NOW).await;
        let told = match &reply.outcome {
            Outcome::Done(Whereabouts::Executed(_)) => "executed".to_owned(),
            Outcome::Done(Whereabouts::Working) => "working".to_owned(),
            Outcome::Done(Whereabouts::NotFound) => "not found".to_owned(),
            Outcome::Done(Whereabouts::Rejected(_)) => "rejected".to_owned(),
            other => told(other),
        };
        assert_eq!(told, expected, "{status} {body}");
        assert_eq!(reply.exchange.request, "GET /orders/{client_order_id}");
        let heard = &server.heard()[0];
        assert_eq!(heard.target, "/v1/orders/key%2F0001");
        assert!(signature_holds(heard, "/v1/orders/key%2F0001"));
    }
}

#[tokio::test]
async fn every_reply_to_a_cancellation_means_one_thing() {
    for (status, body, expected) in [
        (200, "", "Done"),
        (204, "", "Done"),
        (404, "", "Refused BROKER_BAD_REQUEST"),
        (409, r#"{"code":"ALREADY_PROCESSED"}"#, "Refused BROKER_ALREADY_PROCESSED"),
        (409, "", "Lost BROKER_UNKNOWN"),
        (429, "", "Busy BROKER_RATE_LIMITED"),
        (500, "", "Lost BROKER_5XX"),
    ] {
        let server = Server::playing([Act::Say(reply(status, "", body))]).await;
        let reply = broker(server.url(""), true).cancel("key-0001", NOW).await;
        assert_eq!(told(&reply.outcome), expected, "{status} {body}");
        assert_eq!(server.heard()[0].method, "DELETE");
    }
}

#[tokio::test]
async fn a_heartbeat_is_a_signed_question() {
    let server =
        Server::playing([Act::Say(reply(200, "", "")), Act::Say(reply(500, "", ""))]).await;
    let broker = broker(server.url("/v1"), true);
    assert_eq!(told(&broker.heartbeat(NOW).await.outcome), "Done");
    assert_eq!(told(&broker.heartbeat(NOW).await.outcome), "Lost BROKER_5XX");
    let heard = server.heard();
    assert_eq!(heard[0].target, "/v1/health");
    assert!(heard.iter().all(|heard| signature_holds(heard, "/v1/health")));
    assert_ne!(heard[0].header("x-broker-nonce"), heard[1].header("x-broker-nonce"));
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_before_it_is_sent() {
    let server = Server::playing([]).await;
    let broker = broker(server.url(""), true);
    for (key, body) in [("line\nbreak", "{}"), ("鍵鍵鍵鍵鍵鍵鍵鍵", "{}"), ("key-0001", "{")]
    {
        let stored =
            json!({"instrument": "USDJPY", "side": "BUY", "qty": 1, "idempotency_key": "key-0001"});
        let order = OrderRequest::from_stored(&stored.to_string()).unwrap();
        let order = OrderRequest { idempotency_key: key.into(), ..order };
        let send = SendOrder { order: &order, body, now: NOW, traceparent: Some("bad\ntrace") };
        let reply = broker.send(send).await;
        assert_eq!(told(&reply.outcome), "Refused BROKER_BAD_REQUEST");
        assert!(!reply.exchange.sent);
    }
    let unheard = broker.status("line\nbreak", NOW).await;
    assert_eq!(unheard.outcome, Outcome::Done(Whereabouts::NotFound));
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn a_brokers_words_reach_the_operator_and_its_request_id_the_evidence() {
    let body = r#"{"code":"NO_MARGIN","message":"not enough margin"}"#;
    let headers = "x-request-id: req-77\r\n";
    let server = Server::playing([Act::Say(reply(422, headers, body))]).await;
    let reply = send(&broker(server.url(""), true)).await;
    let Outcome::Refused(reason) = reply.outcome else {
        panic!("{reply:?}");
    };
    assert_eq!(reason.message, "the broker answered 422: NO_MARGIN: not enough margin");
    assert_eq!(reply.exchange.reference.as_deref(), Some("req-77"));
}
