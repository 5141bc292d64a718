//! Events forwarded to HTTP workers: what arrives there, and what each of their answers means.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::json;
use tashika_domain::LanePolicy;
use tashika_domain::message::{Message, State};
use tashika_domain::webhook::Status;
use tashika_engine::Clock;
use tashika_providers::webhook::{Scheme, Source};
use tashika_store::MessageFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{policy, stop};
use crate::webhook_rig::{CUSTOMER, FORWARD_SECRET, Rig, TOLERANCE, send, told};

on_both!(
    a_worker_gets_the_bytes_as_they_came,
    a_worker_that_is_done_is_not_asked_again,
    a_worker_that_says_never_is_believed,
    a_worker_that_says_489_without_the_header_is_asked_again,
    a_worker_that_is_down_is_asked_again,
    a_worker_that_does_not_answer_is_asked_again,
    every_worker_gets_an_event_once_and_by_itself,
);

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Clone, Debug)]
pub struct Heard {
    headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }
}

/// A worker that answers what it is told to; the last answer repeats. An empty one is silence.
pub struct Worker {
    pub url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Worker {
    pub async fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?of=worker", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, answers, Arc::clone(&kept)));
            }
        });
        Self { url, heard }
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answers: &[&str],
    kept: Arc<Mutex<Vec<Heard>>>,
) -> Option<()> {
    loop {
        let mut bytes = Vec::new();
        let (end, headers, length) = loop {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&bytes[..end]).ok()?;
            let mut headers = HeaderMap::new();
            for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
                let name: HeaderName = name.parse().ok()?;
                headers.insert(name, HeaderValue::from_str(value).ok()?);
            }
            let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
            break (end + 4, headers, length);
        };
        while bytes.len() < end + length {
            stream.read_buf(&mut bytes).await.ok()?;
        }
        let answer = {
            let mut kept = kept.lock().unwrap();
            kept.push(Heard { headers, body: bytes[end..].to_vec() });
            answers[(kept.len() - 1).min(answers.len() - 1)]
        };
        if answer.is_empty() {
            // Until the other side gives up.
            while stream.read(&mut [0; 64]).await.ok()? > 0 {}
            return None;
        }
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// As the contract has it: three retries.
fn thrice() -> LanePolicy {
    LanePolicy { max_attempts: 4, ..policy() }
}

pub async fn delivery(rig: &Rig, event_id: &str, to: &str) -> Message {
    let filter = MessageFilter { urls: vec![format!("worker:{to}")], ..MessageFilter::default() };
    until("the end of the delivery", async || {
        let found = rig.store.messages(&filter, 100).await.unwrap();
        let about = |message: &Message| message.asked.headers["X-Event-Id"] == [event_id];
        found.into_iter().find(|message| about(message) && message.state.is_over())
    })
    .await
}

/// Sends one event through to one worker; returns how its delivery ended, and what the worker heard.
async fn forwarded(db: TestDb, answers: &'static [&'static str]) -> (Message, Vec<Heard>) {
    let worker = Worker::start(answers).await;
    let rig = Rig::new(db).await.forwarding("mailer", &["order.*"], &worker.url);
    let running = rig.engine(&thrice()).start();
    let accepted = rig.send(&told("evt_1", "order.shipped", 0)).await;
    rig.ended(&accepted, Status::Success).await;
    let row = delivery(&rig, "evt_1", "mailer").await;
    stop(running).await;
    let heard = worker.heard();
    for heard in &heard {
        assert_eq!(heard.header("x-event-id"), "evt_1");
        assert_eq!(heard.header("webhook-id"), "evt_1", "a repeat can be told by it");
        assert_eq!(heard.header("x-message-id"), row.id.to_string());
    }
    (row, heard)
}

async fn a_worker_gets_the_bytes_as_they_came(db: TestDb) {
    let worker = Worker::start(&["204 No Content"]).await;
    let rig = Rig::new(db).await.forwarding("mailer", &["order.*"], &worker.url);
    let running = rig.start();
    let body = "{ \"type\" : \"order.shipped\",\n\t\"id\":\"evt_1\", \"n\": 1.50e1, \"n\": 2, \
                \"text\": \"\\u78ba\\u304b 確か\\u0000\" }\r\n";
    let accepted = send(&rig.webhooks, body.as_bytes(), Some(TRACE)).await.unwrap();
    let event = rig.ended(&accepted, Status::Success).await;
    let row = delivery(&rig, "evt_1", "mailer").await;
    stop(running).await;

    assert_eq!(event.body, body.as_bytes());
    assert_eq!(row.state, State::Delivered);
    let heard = worker.heard();
    assert_eq!(heard.len(), 1);
    let heard = &heard[0];
    assert_eq!(heard.body, body.as_bytes());
    assert_eq!(heard.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(heard.header("x-event-id"), "evt_1");
    assert_eq!(heard.header("x-event-type"), "order.shipped");
    assert_eq!(heard.header("x-event-source"), "stripe");
    assert_eq!(heard.header("x-message-id"), row.id.to_string());
    assert_eq!(heard.header("traceparent")[3..35], TRACE[3..35], "one trace");
    assert!(heard.headers.get("stripe-signature").is_none(), "not ours to pass on");

    let scheme = Scheme::StandardWebhooks {
        secrets: vec![SecretString::from(FORWARD_SECRET)],
        tolerance: TOLERANCE,
    };
    let source = Source::new("tashika", scheme).unwrap();
    source.verify(&heard.headers, &heard.body, Clock::System.now()).unwrap();
}

async fn a_worker_that_is_done_is_not_asked_again(db: TestDb) {
    let (row, heard) = forwarded(db, &["204 No Content"]).await;
    assert_eq!((row.state, heard.len()), (State::Delivered, 1));
}

async fn a_worker_that_says_never_is_believed(db: TestDb) {
    let answers = &["489 Never\r\nUpstash-NonRetryable-Error: true"];
    let (row, heard) = forwarded(db, answers).await;
    assert_eq!((row.state, heard.len()), (State::Failed, 1));
}

async fn a_worker_that_says_489_without_the_header_is_asked_again(db: TestDb) {
    let (row, heard) = forwarded(db, &["489 Never"]).await;
    assert_eq!((row.state, heard.len()), (State::Failed, 4), "three retries");
}

async fn a_worker_that_is_down_is_asked_again(db: TestDb) {
    let (row, heard) = forwarded(db, &["500 Down", "204 No Content"]).await;
    assert_eq!((row.state, heard.len()), (State::Delivered, 2));
}

async fn a_worker_that_does_not_answer_is_asked_again(db: TestDb) {
    let (row, heard) = forwarded(db, &["", "204 No Content"]).await;
    assert_eq!((row.state, heard.len()), (State::Delivered, 2));
    assert_eq!(heard[0].body, heard[1].body);
}

async fn every_worker_gets_an_event_once_and_by_itself(db: TestDb) {
    let good = Worker::start(&["204 No Content"]).await;
    let bad = Worker::start(&["503 Down"]).await;
    let rig = Rig::new(db).await.forwarding("good", &[], &good.url);
    let rig = rig.forwarding("bad", &["invoice.*"], &bad.url);
    let running = rig.engine(&thrice()).start();
    // Nobody knows the customer: nothing is forwarded of an event that was not processed.
    let event = told("evt_1", "invoice.payment_succeeded", 0);
    let accepted = rig.send(&event).await;
    rig.ended(&accepted, Status::Failed).await;
    assert_eq!(good.heard().len() + bad.heard().len(), 0);
    let billing = rig.billing(CUSTOMER).await;
    rig.send(&event).await;
    rig.ended(&accepted, Status::Success).await;
    assert_eq!(delivery(&rig, "evt_1", "good").await.state, State::Delivered);
    assert_eq!(delivery(&rig, "evt_1", "bad").await.state, State::Failed);
    rig.send(&event).await;
    let other = rig.send(&json!({"id": "evt_2", "type": "order.shipped"})).await;
    rig.ended(&other, Status::Success).await;
    delivery(&rig, "evt_2", "good").await;
    stop(running).await;
    assert_eq!((good.heard().len(), bad.heard().len()), (2, 4));
    assert_eq!(rig.known(&billing).await.version, 2);
}
