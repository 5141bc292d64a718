//! What cases about messages stand on: a database, processes that publish and deliver, and a destination that hears.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State as Extract;
use axum::http::request::Parts;
use axum::response::Response;
use http::{HeaderMap, Method, Uri};
use tashika_domain::message::address::Destination;
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{self, LogLine, Logged, Message, State, schedule};
use tashika_domain::{EffectId, Lane, LanePolicy, Status};
use tashika_engine::commands::message::{
    Messages, Publish, Published, QueueError, QueueRules, Receipt,
};
use tashika_engine::{
    Clock, Engine, Gates, Hand, Ids, KeyRing, MessageHandler, Recent, Running, ScheduleHandler,
    Traffic,
};
use tashika_providers::courier::{Courier, CourierConfig};
use tashika_providers::guard::Guard;
use tashika_providers::workers::Workers;
use tashika_store::{MessageFilter, Order, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use uuid::Uuid;

use crate::support::{REMEMBER, engine, policy};

/// No case waits for it.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Deliveries that a node makes to one destination at the same moment.
const AT_A_PLACE: u32 = 64;
pub const WINDOW: Duration = Duration::from_secs(600);
pub const KEYS: (&str, &str) = ("sig_current", "sig_next");

/// A request, as the destination got it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }

    pub fn message(&self) -> Uuid {
        message::parse_id(self.header("upstash-message-id")).expect("a message's name")
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// What a destination says.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'static str,
    /// Not before this is open.
    pub behind: Option<Gate>,
}

pub fn says(status: u16) -> Answer {
    Answer { status, headers: Vec::new(), body: "", behind: None }
}

impl Answer {
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn behind(mut self, gate: &Gate) -> Self {
        self.behind = Some(gate.clone());
        self
    }
}

type Script = dyn Fn(&Heard, usize) -> Answer + Send + Sync;

/// A destination: an HTTP server that answers as it is told to, and remembers.
#[derive(Clone)]
pub struct Sink(Arc<Inner>);

struct Inner {
    base: String,
    script: Box<Script>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    heard: Vec<Heard>,
    /// By message id.
    repeats: BTreeMap<String, usize>,
    now: usize,
    most: usize,
}

impl Sink {
    /// Answers by the request, and how often this message came before.
    pub async fn start(script: impl Fn(&Heard, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let sink = Self(Arc::new(Inner { base, script: Box::new(script), seen: Mutex::default() }));
        let router = Router::new().fallback(hear).with_state(sink.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        sink
    }

    pub async fn fine() -> Self {
        Self::start(|_, _| says(200)).await
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0.base)
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.0.seen.lock().unwrap().heard.clone()
    }

    pub fn count(&self) -> usize {
        self.0.seen.lock().unwrap().heard.len()
    }

    /// The bodies, in the order in which they came.
    pub fn bodies(&self) -> Vec<String> {
        self.heard().iter().map(Heard::text).collect()
    }

    /// The most requests that were under way at one moment.
    pub fn most(&self) -> usize {
        self.0.seen.lock().unwrap().most
    }

    pub async fn until_heard(&self, count: usize) {
        until("requests", async || (self.count() >= count).then_some(())).await;
    }
}

async fn hear(Extract(sink): Extract<Sink>, parts: Parts, body: Bytes) -> Response {
    let heard =
        Heard { method: parts.method, uri: parts.uri, headers: parts.headers, body: body.to_vec() };
    let name = heard.headers.get("upstash-message-id").map(|id| id.to_str().unwrap().to_owned());
    let before = {
        let mut seen = sink.0.seen.lock().unwrap();
        seen.heard.push(heard.clone());
        seen.now += 1;
        seen.most = seen.most.max(seen.now);
        let repeats = seen.repeats.entry(name.unwrap_or_default()).or_default();
        *repeats += 1;
        *repeats - 1
    };
    // Counts the request as over also if the other side has gone away.
    let _over = Over(sink.clone());
    let answer = (sink.0.script)(&heard, before);
    if let Some(gate) = &answer.behind {
        gate.passed().await;
    }
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap()
}

struct Over(Sink);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.0.seen.lock().unwrap().now -= 1;
    }
}

/// One process: what it may do with the queue, and what its engine needs.
pub struct Node {
    pub store: Store,
    pub clock: Clock,
    pub messages: Arc<Messages>,
    pub guard: Guard,
    gates: Arc<Gates>,
    recent: Arc<Recent>,
    hand: Arc<Hand>,
    traffic: Arc<Traffic>,
    ids: Ids,
}

impl Node {
    pub async fn new(db: &TestDb) -> Self {
        Self::guarded(db, Clock::System, Guard::off()).await
    }

    /// A process whose clock is ahead of the others'.
    pub async fn ahead(db: &TestDb, span: Duration) -> Self {
        Self::guarded(db, crate::support::ahead(span), Guard::off()).await
    }

    /// A process that knows no more than where the database is.
    pub async fn at_url(url: &str) -> Self {
        let store = Store::open(url, 4).await.expect("the store opens");
        Self::over(store, Clock::System, Guard::off(), Guard::off(), AT_A_PLACE)
    }

    /// A process that makes so many deliveries to one destination at the same moment.
    pub async fn with_room(db: &TestDb, at_once: u32) -> Self {
        Self::over(db.open().await, Clock::System, Guard::off(), Guard::off(), at_once)
    }

    pub async fn guarded(db: &TestDb, clock: Clock, guard: Guard) -> Self {
        Self::over(db.open().await, clock, guard, Guard::off(), AT_A_PLACE)
    }

    /// A process that is asked at the door as well.
    pub async fn strict(db: &TestDb) -> Self {
        Self::over(db.open().await, Clock::System, Guard::default(), Guard::default(), AT_A_PLACE)
    }

    fn over(store: Store, clock: Clock, guard: Guard, door: Guard, at_once: u32) -> Self {
        let (gates, recent) = (Arc::<Gates>::default(), Arc::<Recent>::default());
        let ids = Ids::random(clock);
        let fixed = Some((KEYS.0.to_owned(), KEYS.1.to_owned()));
        let messages = Messages::new(
            store.clone(),
            clock,
            ids.clone(),
            Arc::clone(&gates),
            Arc::clone(&recent),
            Arc::new(KeyRing::new(store.clone(), fixed)),
            QueueRules { dedup_window: WINDOW, keep: REMEMBER, guard: door },
        );
        let hand = Arc::<Hand>::default();
        let traffic = Arc::new(Traffic::new(at_once));
        let messages = messages.handing_to(Arc::clone(&hand)).minding(Arc::clone(&traffic));
        let messages = Arc::new(messages);
        Self { store, clock, messages, guard, gates, recent, hand, traffic, ids }
    }

    pub fn fresh_id(&self) -> Uuid {
        self.ids.uuid()
    }

    pub fn engine(&self, worker: &str, policy: &LanePolicy) -> Engine {
        let courier = Courier::new(CourierConfig {
            max_timeout: TIMEOUT,
            connect_timeout: TIMEOUT,
            max_response: 64 * 1024,
            idle_per_host: 64,
            guard: self.guard.clone(),
            roots_pem: None,
        })
        .unwrap();
        let workers = Workers::new(vec![], None, TIMEOUT, courier.clone()).unwrap();
        let deliveries = MessageHandler {
            store: self.store.clone(),
            ids: self.ids.clone(),
            courier: Arc::new(courier),
            workers: Arc::new(workers),
            keys: Arc::clone(&self.messages.keys),
            traffic: Arc::clone(&self.traffic),
            gates: Arc::clone(&self.gates),
            recent: Arc::clone(&self.recent),
            keep: REMEMBER,
            reopen: true,
        };
        engine(&self.store, self.clock, worker)
            .lane(Lane::DELIVERIES, policy.clone())
            .lane(Lane::TIMERS, policy.clone())
            .effect(message::KIND, deliveries)
            .effect(schedule::KIND, ScheduleHandler(Arc::clone(&self.messages)))
            .gates(Arc::clone(&self.gates))
            .hand(Arc::clone(&self.hand))
    }

    pub fn start(&self) -> Running {
        self.engine("host:1:a", &busy()).start()
    }

    pub async fn try_publish(&self, publish: Publish) -> Result<Published, QueueError> {
        self.messages.publish(publish).await
    }

    /// Publishes to one URL.
    pub async fn publish(&self, url: &str, settings: &[(&str, &str)], body: &str) -> Uuid {
        let receipt = self.receipt(url, settings, body).await;
        assert!(!receipt.deduplicated, "{receipt:?}");
        receipt.id
    }

    pub async fn receipt(&self, url: &str, settings: &[(&str, &str)], body: &str) -> Receipt {
        match self.try_publish(publish(url, settings, body)).await.unwrap() {
            Published::One(receipt) => receipt,
            group @ Published::Group(_) => panic!("one message: {group:?}"),
        }
    }

    pub async fn message(&self, id: Uuid) -> Message {
        self.messages.message(id).await.unwrap()
    }

    /// Waits until a message has ended, and is `state`.
    pub async fn ended(&self, id: Uuid, state: State) -> Message {
        let message = until("the message's end", async || {
            Some(self.message(id).await).filter(|message| message.state.is_over())
        })
        .await;
        assert_eq!(message.state, state, "{:?}", message.response);
        message
    }

    /// Waits until every message has ended.
    pub async fn all_ended(&self) -> BTreeMap<&'static str, i64> {
        until("the end of all messages", async || {
            let counts = self.counts().await;
            let open = ["queued", "throttled", "ready"];
            (!open.iter().any(|state| counts.contains_key(state))).then_some(counts)
        })
        .await
    }

    pub async fn counts(&self) -> BTreeMap<&'static str, i64> {
        let counts = self.store.message_counts().await.unwrap();
        counts.into_iter().map(|count| (count.state.as_str(), count.count)).collect()
    }

    /// The log of a message, the oldest line first.
    pub async fn log(&self, id: Uuid) -> Vec<LogLine> {
        let filter = MessageFilter { ids: vec![id], ..MessageFilter::default() };
        let mut lines = self.store.message_log(&filter, 1000).await.unwrap();
        lines.sort_by_key(|line| (line.at, line.id));
        lines
    }

    pub async fn logged(&self, id: Uuid) -> Vec<Logged> {
        self.log(id).await.into_iter().map(|line| line.what).collect()
    }

    /// `None` if it has left no effect behind.
    pub async fn effect_status(&self, id: Uuid) -> Option<Status> {
        self.store.effect(EffectId(id)).await.unwrap().map(|effect| effect.status)
    }

    /// Whether nobody will do anything about its effect any more.
    pub async fn is_settled(&self, id: Uuid) -> bool {
        self.effect_status(id).await.is_none_or(Status::is_settled)
    }

    pub async fn all(&self) -> Vec<Message> {
        let filter = MessageFilter { order: Order::OldestFirst, ..MessageFilter::default() };
        self.store.messages(&filter, 100_000).await.unwrap()
    }

    /// Every message that is not over has an effect that will bring it further, and no other has.
    pub async fn assert_nothing_is_forgotten(&self) {
        for message in self.all().await {
            let id = message.id;
            // Somebody may be at work between the two looks; what is wrong stays wrong.
            until(&format!("the effect of message {id} to be as it is"), async || {
                let settled = self.is_settled(id).await;
                (self.message(id).await.state.is_over() == settled).then_some(())
            })
            .await;
        }
    }
}

/// Many at the same moment.
pub fn busy() -> LanePolicy {
    LanePolicy { concurrency: 64, batch: 64, ..policy() }
}

pub fn spec(settings: &[(&str, &str)]) -> Spec {
    Spec::read(settings.iter().copied()).unwrap()
}

pub fn publish(url: &str, settings: &[(&str, &str)], body: &str) -> Publish {
    Publish {
        destination: Destination::Url(url.to_owned()),
        spec: spec(settings),
        body: body.as_bytes().into(),
        queue: None,
        caller_ip: None,
        traceparent: None,
    }
}

/// Retries at once.
pub const AT_ONCE: (&str, &str) = ("Upstash-Retry-Delay", "1");

/// What callers may do with messages, for cases that are about something else.
pub fn messages(store: &Store) -> Arc<Messages> {
    Node::over(store.clone(), Clock::System, Guard::off(), Guard::off(), AT_A_PLACE).messages
}
