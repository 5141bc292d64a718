//! `kill -9`, again and again, while messages are published, directly and to queues.
//!
//! Every message that was acknowledged is delivered or is a dead letter in the end, and a queue's
//! messages are first delivered in the order in which they were taken. The oracle is the destination,
//! which is not killed. Where two processes share a database, one is killed and the other goes on.
//! `TASHIKA_CRASH_MESSAGES` sets how many messages each publisher sends.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request as Heard;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::{Request, Server, Setup};

on_both!(killed_again_and_again_while_messages_are_published);

const KILLS: usize = 6;
/// Each has a queue of its own and sends one message after the other, so their order is known.
const QUEUES: usize = 4;
/// Each sends to the destination, past all queues.
const DIRECT: usize = 4;
const MESSAGES: usize = 150;
/// One in so many fails at first, or for good.
const FAILS_ONCE: usize = 7;
const FAILS_FOR_GOOD: usize = 40;

/// The destination. A request's path is `/{publisher}/{number}`.
#[derive(Default)]
struct Destination {
    /// Paths, with their place in the order in which they were first heard.
    first: Mutex<BTreeMap<String, usize>>,
    /// Ids of the messages that were answered with success, and how often.
    delivered: Mutex<BTreeMap<String, usize>>,
    attempts: AtomicUsize,
}

impl Destination {
    async fn start(self: &Arc<Self>, serving: &mut JoinSet<()>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = Arc::clone(self);
        let app = Router::new().fallback(move |request: Heard| ready(this.hear(&request)));
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        address
    }

    fn hear(&self, request: &Heard) -> (StatusCode, HeaderMap) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path().to_owned();
        let number: usize = path.rsplit('/').next().unwrap().parse().unwrap();
        let is_new = {
            let mut first = self.first.lock().unwrap();
            let place = first.len();
            *first.entry(path).or_insert(place) == place
        };
        let mut headers = HeaderMap::new();
        if number % FAILS_FOR_GOOD == FAILS_FOR_GOOD - 1 {
            headers.insert("upstash-nonretryable-error", HeaderValue::from_static("true"));
            return (StatusCode::from_u16(489).unwrap(), headers);
        }
        if is_new && number % FAILS_ONCE == FAILS_ONCE - 1 {
            return (StatusCode::SERVICE_UNAVAILABLE, headers);
        }
        let id = request.headers()["upstash-message-id"].to_str().unwrap().to_owned();
        *self.delivered.lock().unwrap().entry(id).or_default() += 1;
        (StatusCode::OK, headers)
    }
}

/// Somebody who publishes message after message, and one that was not acknowledged again.
struct Publisher {
    name: String,
    /// In front of the destination's URL.
    path: String,
    destination: SocketAddr,
    next: AtomicUsize,
    /// Ids that were answered, by number.
    acknowledged: Mutex<BTreeMap<usize, String>>,
    requests: AtomicUsize,
}

impl Publisher {
    fn new(name: String, path: String, destination: SocketAddr) -> Arc<Self> {
        let (next, requests) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { name, path, destination, next, acknowledged: Mutex::default(), requests })
    }

    /// Until there are no more, or the server is gone.
    async fn publish(self: Arc<Self>, server: SocketAddr, messages: usize) {
        loop {
            let number = self.next.load(Ordering::Relaxed);
            if number == messages {
                return;
            }
            let url = format!("http://{}/{}/{number}", self.destination, self.name);
            // Sent again after a crash, it must not be taken twice: that would be another order.
            let request = Request::new("POST", &format!("{}/{url}", self.path))
                .header("upstash-deduplication-id", format!("{}-{number}", self.name))
                .header("upstash-retries", "5")
                .header("upstash-retry-delay", "50")
                .body(number.to_string());
            self.requests.fetch_add(1, Ordering::Relaxed);
            let Ok(answer) = request.send(server).await else { return };
            assert!([200, 202].contains(&answer.status), "{answer:?}");
            let id = answer.json()["messageId"].as_str().unwrap().to_owned();
            self.acknowledged.lock().unwrap().insert(number, id);
            self.next.store(number + 1, Ordering::Relaxed);
        }
    }
}

fn acknowledged(publishers: &[Arc<Publisher>]) -> usize {
    publishers.iter().map(|publisher| publisher.acknowledged.lock().unwrap().len()).sum()
}

/// Message ids of all dead letters.
async fn dead(server: &Server) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut query = String::new();
    loop {
        let answer = server.get(&format!("/v2/dlq?count=100{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        let ids = page["messages"].as_array().unwrap().iter().map(|letter| &letter["messageId"]);
        found.extend(ids.filter_map(Value::as_str).map(ToOwned::to_owned));
        match page["cursor"].as_str() {
            Some(cursor) if !cursor.is_empty() => query = format!("&cursor={cursor}"),
            _ => return found,
        }
    }
}

async fn killed_again_and_again_while_messages_are_published(db: TestDb) {
    survives(&db, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_is_killed_again_and_again_postgres() {
    let db = TestDb::postgres();
    let other = setup(&db).start().await;
    Box::pin(survives(&db, Some(other))).await;
}

fn setup(db: &TestDb) -> Setup {
    let log = "warn,tashika_server=info";
    Setup::of(db).set("TASHIKA_LOG", log).set("OUTBOX_LOCK_LEASE_SEC", 3)
}

/// The story. `other` is a process that is not killed.
async fn survives(db: &TestDb, other: Option<Server>) {
    let wanted = std::env::var("TASHIKA_CRASH_MESSAGES").ok();
    let messages: usize = wanted.map_or(MESSAGES, |text| text.parse().unwrap());
    let setup = setup(db);
    let destination = Arc::new(Destination::default());
    let mut serving = JoinSet::new();
    let address = destination.start(&mut serving).await;
    let queues = (0..QUEUES).map(|n| (format!("queue-{n}"), format!("/v2/enqueue/queue-{n}")));
    let direct = (0..DIRECT).map(|n| (format!("direct-{n}"), "/v2/publish".to_owned()));
    let publishers: Vec<_> =
        queues.chain(direct).map(|(name, path)| Publisher::new(name, path, address)).collect();
    let total = publishers.len() * messages;
    let began = tokio::time::Instant::now();

    for round in 1..=KILLS {
        let server = setup.start().await;
        let mut publishing = publish(&publishers, &server, messages);
        let enough = total * round / (KILLS + 1);
        while acknowledged(&publishers) < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let failed = publishing.try_join_next().is_some_and(|ended| ended.is_err());
            assert!(!failed, "a publisher was refused");
        }
        server.kill().await;
        publishing.join_all().await;
    }
    let server = setup.start().await;
    publish(&publishers, &server, messages).join_all().await;
    assert_eq!(acknowledged(&publishers), total);

    let ids: BTreeSet<String> = publishers
        .iter()
        .flat_map(|one| one.acknowledged.lock().unwrap().values().cloned().collect::<Vec<_>>())
        .collect();
    assert_eq!(ids.len(), total, "each has an id of its own");
    // Beside them there may be letters of messages whose acknowledgement was lost: given up, they have let
    // go of their deduplication id before it was sent again.
    let letters = until("everything to be over", async || {
        let open: Vec<_> = {
            let delivered = destination.delivered.lock().unwrap();
            ids.iter().filter(|id| !delivered.contains_key(*id)).cloned().collect()
        };
        // All that fail for good must be there; looking for them costs more than counting.
        if open.len() > total / FAILS_FOR_GOOD + publishers.len() {
            return None;
        }
        let letters = dead(&server).await;
        open.iter().all(|id| letters.contains(id)).then_some(letters)
    })
    .await;
    let took = began.elapsed();
    for n in 0..QUEUES {
        let queue = until("an empty queue", async || {
            let queue = server.get(&format!("/v2/queues/queue-{n}")).await.json();
            (queue["lag"] == 0).then_some(queue)
        });
        queue.await;
    }
    server.stop().await;
    if let Some(other) = other {
        other.stop().await;
    }

    let delivered = destination.delivered.lock().unwrap().clone();
    let repeated = delivered.values().filter(|times| **times > 1).count();
    let attempts = destination.attempts.load(Ordering::Relaxed);
    let requests: usize = publishers.iter().map(|one| one.requests.load(Ordering::Relaxed)).sum();
    println!(
        "{KILLS} kills, {requests} requests, {total} acknowledged: {} delivered ({repeated} more than \
         once), {} dead letters, {attempts} attempts; all over after {took:.0?}",
        delivered.len(),
        letters.len(),
    );
    let letters: BTreeSet<_> = letters.intersection(&ids).collect();
    let strangers: Vec<_> = delivered.keys().filter(|id| !ids.contains(*id)).collect();
    assert!(strangers.is_empty(), "delivered, but acknowledged under another id: {strangers:?}");
    let both: Vec<_> = letters.iter().filter(|id| delivered.contains_key(**id)).collect();
    assert!(both.is_empty(), "delivered and dead: {both:?}");
    assert_eq!(delivered.len() + letters.len(), total);

    let first = destination.first.lock().unwrap().clone();
    for publisher in &publishers[..QUEUES] {
        let prefix = format!("/{}/", publisher.name);
        let places = (0..messages).map(|number| first[&format!("{prefix}{number}")]);
        assert!(places.is_sorted(), "{}", publisher.name);
    }
}

fn publish(publishers: &[Arc<Publisher>], server: &Server, messages: usize) -> JoinSet<()> {
    let to = server.address;
    publishers.iter().map(|publisher| Arc::clone(publisher).publish(to, messages)).collect()
}
