//! What every case stands on: a database, a broker, and engines with short intervals.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::case::{Case, CaseStatus};
use tashika_domain::ledger::{LedgerEntry, LedgerKey};
use tashika_domain::order::{KIND, OrderRules};
use tashika_domain::{
    Changes, Effect, EffectId, Lane, LanePolicy, NewEffect, Status, Timestamp, Write,
};
use tashika_engine::commands::Limits;
use tashika_engine::commands::order::{OrderError, OrderView, Orders, PlaceOrder, Placed};
use tashika_engine::commands::outbox::Outbox;
use tashika_engine::{Clock, Engine, Ids, OrderHandler, Running, Settings};
use tashika_providers::broker::Broker;
use tashika_store::{AttemptRecord, Claim, EffectFilter, EffectRow, Store};
use tashika_testkit::broker::ScriptedBroker;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{PATIENCE, until};

pub const HOUR: Duration = Duration::from_secs(3600);
/// How long answers and settled effects are kept here.
pub const REMEMBER: Duration = Duration::from_secs(48 * 3600);
/// The key of the order in cases that have only one.
pub const KEY: &str = "key-0001";

/// Short waits, and a lease that does not run out by accident on a busy machine.
pub fn policy() -> LanePolicy {
    LanePolicy {
        backoff: vec![Duration::from_millis(1)],
        lease: Duration::from_secs(60),
        keep: REMEMBER,
        ..LanePolicy::default()
    }
}

/// Given up after so many failures.
pub fn patience(max_attempts: u32) -> LanePolicy {
    LanePolicy { max_attempts, ..policy() }
}

pub fn settings(worker: &str) -> Settings {
    Settings { worker: worker.into(), poll: Duration::from_millis(20), ..Settings::default() }
}

/// An engine without lanes and handlers.
pub fn engine(store: &Store, clock: Clock, worker: &str) -> Engine {
    Engine::new(store.clone(), clock, Ids::random(clock), settings(worker))
}

/// A clock that is ahead of the others. A broker's backoff, a lease, 48 hours: over at once.
pub fn ahead(span: Duration) -> Clock {
    Clock::simulated(Clock::System.now().plus(span))
}

/// Stops an engine, whatever it is doing.
pub async fn stop(running: Running) {
    assert!(running.stop(PATIENCE).await, "the engine did not come to an end");
}

pub fn body(key: &str) -> Value {
    json!({"instrument": "USDJPY", "side": "BUY", "qty": 1, "idempotency_key": key})
}

pub fn rules() -> OrderRules {
    OrderRules { instruments: None, min_lot: 0.0, lot_step: 0.0 }
}

pub fn unlimited() -> Arc<Limits> {
    Arc::new(Limits::new(0.0, 1, 0))
}

pub fn orders(store: &Store, clock: Clock, limits: Arc<Limits>) -> Orders {
    Orders::new(store.clone(), clock, Ids::random(clock), rules(), limits, REMEMBER)
}

pub async fn place(orders: &Orders, body: &Value) -> Result<Placed, OrderError> {
    place_for(orders, "client", body).await
}

pub async fn place_for(orders: &Orders, client: &str, body: &Value) -> Result<Placed, OrderError> {
    let header_key = body["idempotency_key"].as_str();
    orders.place(PlaceOrder { client, header_key, body, traceparent: None }).await
}

/// One database, one broker, and what callers and operators may do.
pub struct Rig {
    pub db: TestDb,
    pub store: Store,
    pub broker: ScriptedBroker,
    pub orders: Orders,
    pub outbox: Outbox,
}

impl Rig {
    pub async fn with_keys(db: TestDb) -> Self {
        Self::new(db, ScriptedBroker::with_keys()).await
    }

    pub async fn without_keys(db: TestDb) -> Self {
        Self::new(db, ScriptedBroker::without_keys()).await
    }

    async fn new(db: TestDb, broker: ScriptedBroker) -> Self {
        let store = db.open().await;
        let orders = orders(&store, Clock::System, unlimited());
        let outbox = Outbox::new(store.clone(), Clock::System);
        Self { db, store, broker, orders, outbox }
    }

    pub fn handler(&self) -> OrderHandler {
        OrderHandler::new(Arc::new(self.broker.clone()), REMEMBER)
    }

    /// An engine that performs orders.
    pub fn engine(&self, worker: &str, policy: LanePolicy) -> Engine {
        self.engine_at(Clock::System, worker, policy)
    }

    pub fn engine_at(&self, clock: Clock, worker: &str, policy: LanePolicy) -> Engine {
        engine(&self.store, clock, worker).lane(Lane::ORDERS, policy).effect(KIND, self.handler())
    }

    /// An engine that performs orders through another broker.
    pub fn engine_with(&self, broker: impl Broker + 'static, policy: LanePolicy) -> Engine {
        engine(&self.store, Clock::System, "host:1:a")
            .lane(Lane::ORDERS, policy)
            .effect(KIND, OrderHandler::new(Arc::new(broker), REMEMBER))
    }

    /// Starts an engine that performs orders.
    pub fn start(&self, policy: LanePolicy) -> Running {
        self.engine("host:1:a", policy).start()
    }

    pub async fn place(&self, key: &str) {
        let placed = place(&self.orders, &body(key)).await.unwrap();
        assert!(matches!(placed, Placed::Accepted(_)), "{placed:?}");
    }

    /// Asks for an order again, as a caller who does not know what became of it.
    pub async fn replay(&self, key: &str) -> (u16, Value) {
        match place(&self.orders, &body(key)).await.unwrap() {
            Placed::Replayed { http_status, body } => {
                (http_status, serde_json::from_str(&body).unwrap())
            }
            Placed::Accepted(ack) => panic!("taken for a new order: {ack}"),
        }
    }

    pub async fn find(&self, key: &str) -> OrderView {
        self.orders.find(key).await.unwrap().expect("the order is known")
    }

    pub async fn row(&self, key: &str) -> EffectRow {
        self.store.effect_by_key(KIND, key).await.unwrap().expect("the effect exists")
    }

    pub async fn entry(&self, key: &str) -> LedgerEntry {
        let key = LedgerKey::new(KIND, key);
        self.store.ledger_entry(&key).await.unwrap().expect("the entry exists")
    }

    pub async fn attempts(&self, key: &str) -> Vec<AttemptRecord> {
        self.store.attempts(self.row(key).await.id).await.unwrap()
    }

    /// The outcomes of the attempts, in order.
    pub async fn outcomes(&self, key: &str) -> Vec<String> {
        self.attempts(key).await.into_iter().map(|attempt| attempt.outcome).collect()
    }

    pub async fn open_cases(&self, key: &str) -> Vec<Case> {
        let cases = self.store.cases_of(KIND, key).await.unwrap();
        cases.into_iter().filter(|case| case.status == CaseStatus::Open).collect()
    }

    /// Waits until an order's row is as it should be.
    pub async fn until_row(
        &self,
        key: &str,
        what: &str,
        enough: impl Fn(&EffectRow) -> bool,
    ) -> EffectRow {
        until(what, async || Some(self.row(key).await).filter(&enough)).await
    }

    pub async fn until_status(&self, key: &str, status: Status) -> EffectRow {
        let what = format!("{key} {}", status.as_str());
        self.until_row(key, &what, |row| row.status == status).await
    }

    /// Waits until an order has ended well.
    pub async fn succeeded(&self, key: &str) -> EffectRow {
        self.settled(key, Status::Succeeded).await
    }

    /// Waits until an order was given up.
    pub async fn aborted(&self, key: &str) -> EffectRow {
        self.settled(key, Status::Aborted).await
    }

    async fn settled(&self, key: &str, status: Status) -> EffectRow {
        let row = self.until_row(key, "an end", |row| row.status.is_settled()).await;
        assert_eq!(row.status, status, "{row:?}");
        row
    }
}

/// An effect that is due now.
pub fn effect(lane: &Lane, kind: &str, key: Option<&str>, payload: &Value) -> NewEffect {
    let now = Clock::System.now();
    NewEffect {
        id: Ids::random(Clock::System).effect(),
        lane: lane.clone(),
        kind: kind.into(),
        key: key.map(Into::into),
        digest: None,
        payload: payload.to_string(),
        run_at: now,
        created_at: now,
        expires_at: now.plus(REMEMBER),
        traceparent: None,
        held_by: None,
    }
}

pub async fn enqueue(store: &Store, effects: impl IntoIterator<Item = NewEffect>) {
    let mut changes = Changes::new();
    for effect in effects {
        changes.push(Write::Enqueue(effect));
    }
    store.commit(changes).await.unwrap();
}

/// Claims as a worker that is no engine: it gives no signs of life.
pub async fn claim(store: &Store, worker: &str, now: Timestamp) -> Vec<Effect> {
    store.claim(Claim { lane: &Lane::ORDERS, worker, now, limit: 32 }).await.unwrap()
}

pub async fn effect_row(store: &Store, id: EffectId) -> EffectRow {
    store.effect(id).await.unwrap().expect("the effect exists")
}

/// Waits until an effect is settled.
pub async fn until_settled(store: &Store, id: EffectId) -> EffectRow {
    until("an end", async || {
        Some(effect_row(store, id).await).filter(|row| row.status.is_settled())
    })
    .await
}

pub async fn all_rows(store: &Store) -> Vec<EffectRow> {
    store.effects(&EffectFilter::default(), 1_000_000).await.unwrap()
}

/// Waits until so many effects of a lane have ended well.
pub async fn until_succeeded(store: &Store, lane: &Lane, count: usize) {
    until("successes", async || {
        let counts = store.effect_counts().await.unwrap();
        let done = counts.iter().find(|c| c.lane == *lane && c.status == Status::Succeeded);
        done.filter(|found| usize::try_from(found.count).unwrap() >= count).map(drop)
    })
    .await;
}
