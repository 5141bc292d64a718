//! Everybody Tashika speaks to, each with a ledger of its own: broker, gateway, mail server, and a sink for messages
//! and events. They are not killed; what they say happened is what the books are compared with.

use std::collections::BTreeMap;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request as Heard;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use tashika_testkit::gateway::Mix;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::mail::Post;
use crate::support::payments::Gateway;
use crate::support::{Broker, Setup};

/// The longest that a worker's effects stay its own after it has stood still.
pub const LEASE_SEC: u64 = 3;
/// How long a slot is held for a customer of the load.
pub const HOLD_SEC: u64 = 4;
/// One message in so many fails at first, or for good.
const FAILS_ONCE: usize = 7;
const FAILS_FOR_GOOD: usize = 40;

pub struct Town {
    pub broker: Broker,
    pub gateway: Gateway,
    pub office: Post,
    pub sink: Sink,
}

impl Town {
    /// With a broker that recognises repeats: where a worker may wake up after its lease, no other can be kept from
    /// executing twice.
    pub async fn with_keys(seed: u64) -> Self {
        Self::open(Broker::with_keys().await, seed).await
    }

    /// With a broker to which a repeat is one more order.
    pub async fn without_keys(seed: u64) -> Self {
        Self::open(Broker::without_keys().await, seed).await
    }

    async fn open(broker: Broker, seed: u64) -> Self {
        let gateway = Gateway::start().await;
        gateway.world.mix(Mix::bad_day(seed));
        let office = Post::start(json!({})).await;
        Self { broker, gateway, office, sink: Sink::start().await }
    }

    /// The settings with which Tashika speaks to all of them, with waits that are short and leases that are not so
    /// short that a busy machine loses them.
    pub fn setup(&self, setup: Setup) -> Setup {
        self.office
            .setup(setup.broker(&self.broker).stripe(&self.gateway))
            .set("OUTBOX_LOCK_LEASE_SEC", LEASE_SEC)
            .set("OUTBOX_BACKOFF_SEC", "0.05")
            .set("OUTBOX_WEBHOOKS_BACKOFF_SEC", "0.05")
            .set("BROKER_TIMEOUT_MS", 1000)
            .set("PAYMENT_GATEWAY_TIMEOUT_MS", 1000)
            .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 40)
            .set("STRIPE_WEBHOOK_SECRET", "whsec_new")
            .set("CHECKOUT_SUCCESS_URL", "https://shop.example/paid")
            .set("CHECKOUT_CANCEL_URL", "https://shop.example/back")
            .set("RESERVATION_HOLD_SEC", HOLD_SEC)
            .set("RESERVATION_SLOTS_PER_DAY", 1000)
            .set("RENDER_POLL_SEC", "0.5")
            .set("MAIL_TIMEOUT_MS", 2000)
            .set("MAIL_DAILY_QUOTA", 0)
            .set("EVENT_SINK_URLS", format!("http://{}/events", self.sink.address))
            .set("AUDIT_SEAL_INTERVAL_SEC", "0.5")
            .set("TASHIKA_LOG", "warn,tashika_server=info")
    }

    /// The bad day is over, and what was still in the network has arrived.
    pub async fn calm(&self) {
        self.gateway.world.mix(None);
        self.gateway.world.until_nothing_is_late().await;
    }
}

/// Where messages and events go. A message's path is `/{publisher}/{number}`.
pub struct Sink {
    pub address: SocketAddr,
    pub heard: Arc<Records>,
    serving: JoinHandle<()>,
}

/// What the sink has heard.
#[derive(Default)]
pub struct Records {
    /// Paths of messages, with their place in the order in which they were first heard.
    pub first: Mutex<BTreeMap<String, usize>>,
    /// Ids of the messages that were answered with success, and how often.
    pub delivered: Mutex<BTreeMap<String, usize>>,
    /// Ids of events, and how often.
    pub events: Mutex<BTreeMap<String, usize>>,
    pub attempts: AtomicUsize,
}

impl Sink {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Records::default());
        let records = Arc::clone(&heard);
        let app = Router::new().fallback(move |request: Heard| ready(records.hear(&request)));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, heard, serving }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Records {
    fn hear(&self, request: &Heard) -> (StatusCode, HeaderMap) {
        let path = request.uri().path().to_owned();
        let mut headers = HeaderMap::new();
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        if path == "/events" {
            *self.events.lock().unwrap().entry(header("webhook-id")).or_default() += 1;
            return (StatusCode::OK, headers);
        }
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let number: usize = path.rsplit('/').next().unwrap().parse().unwrap();
        let is_new = {
            let mut first = self.first.lock().unwrap();
            let place = first.len();
            *first.entry(path).or_insert(place) == place
        };
        if number % FAILS_FOR_GOOD == FAILS_FOR_GOOD - 1 {
            headers.insert("upstash-nonretryable-error", HeaderValue::from_static("true"));
            return (StatusCode::from_u16(489).unwrap(), headers);
        }
        if is_new && number % FAILS_ONCE == FAILS_ONCE - 1 {
            return (StatusCode::SERVICE_UNAVAILABLE, headers);
        }
        *self.delivered.lock().unwrap().entry(header("upstash-message-id")).or_default() += 1;
        (StatusCode::OK, headers)
    }
}
