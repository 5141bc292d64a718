//! What every case about reservations stands on: a database, a gateway that speaks Stripe, and processes
//! that take reservations, each with a clock of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::payment::{self, EXPIRY_KIND, Payment, PaymentRules};
use tashika_domain::render::GIVE_UP_KIND;
use tashika_domain::reservation::{HOLD_KIND, KIND, Reservation, ReservationRules, Status};
use tashika_domain::webhook::KIND as WEBHOOK_KIND;
use tashika_domain::{Lane, LanePolicy};
use tashika_engine::commands::reservation::{
    Caller, CheckedOut, Held, ReservationError, ReservationView, Reservations,
};
use tashika_engine::commands::webhook::Webhooks;
use tashika_engine::{
    Clock, Engine, ExpiryHandler, GiveUpHandler, HoldHandler, PaymentHandler, Running, Till,
    WebhookHandler,
};
use tashika_providers::gateway::Gateway;
use tashika_store::{EffectFilter, EffectRow, MailFilter, RaceRow, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{PATIENCE, until};
use tashika_testkit::gateway::World;
use tashika_testkit::gateway::server::GatewayServer;
use uuid::Uuid;

use crate::payments_support::{rules as payment_rules, stripe};
use crate::support::{engine, policy, stop};
use crate::webhook_rig;

pub const AMOUNT: i64 = 1500;
pub const DAY: &str = "2099-12-24";
/// The hold's length in all cases.
pub const HOLD: Duration = Duration::from_secs(900);

pub fn rules() -> ReservationRules {
    ReservationRules {
        success_url: "https://shop.example/paid".into(),
        cancel_url: "https://shop.example/back".into(),
        ..ReservationRules::default()
    }
}

pub fn body(user: &str, slot: i64) -> Value {
    json!({"videoId": 7, "projectionDate": DAY, "slotNumber": slot, "userId": user,
        "userEmail": format!("{user}@example.com"), "locale": "en", "amount": AMOUNT,
        "currency": "JPY"})
}

pub fn caller(key: &str) -> Caller<'_> {
    Caller { key: Some(key), user: None, traceparent: None }
}

pub const fn nobody() -> Caller<'static> {
    Caller { key: None, user: None, traceparent: None }
}

fn lanes_policy() -> LanePolicy {
    LanePolicy { concurrency: 64, batch: 64, ..policy() }
}

/// A database and a gateway.
pub struct Hall {
    pub db: TestDb,
    pub store: Store,
    pub world: World,
    pub webhooks: Webhooks,
    pub rules: ReservationRules,
    pub payments: PaymentRules,
    server: GatewayServer,
}

impl Hall {
    pub async fn new(db: TestDb) -> Self {
        let world = World::new();
        let server = GatewayServer::start(&world).await;
        let store = db.open().await;
        let webhooks = webhook_rig::webhooks(&store, Clock::System);
        let (rules, payments) = (rules(), payment_rules());
        Self { db, store, world, webhooks, rules, payments, server }
    }

    pub fn till(&self, clock: Clock) -> Arc<Till> {
        let gateway: Arc<dyn Gateway> = Arc::new(stripe(self.server.base_url()));
        Arc::new(Till {
            store: self.store.clone(),
            clock,
            gateway,
            rules: self.payments.clone(),
            reservations: self.rules.clone(),
        })
    }

    /// A process whose clock is ahead by so much, which works on these lanes.
    pub fn process(&self, ahead: Duration, lanes: &[Lane]) -> Process {
        let clock = Clock::simulated(Clock::System.now().plus(ahead));
        let till = self.till(clock);
        let worker = format!("host:{}:{}", ahead.as_secs(), lanes.len());
        let mut made = equip(engine(&self.store, clock, &worker), &till, &worker);
        for lane in lanes {
            made = made.lane(lane.clone(), lanes_policy());
        }
        // Without lanes it performs what its callers begin, and nothing else.
        let running = if lanes.is_empty() {
            made.lane(Lane::PAYMENTS, lanes_policy()).without_claims().start()
        } else {
            made.start()
        };
        let reservations =
            Reservations::new(Arc::clone(running.engine()), Arc::clone(&till), PATIENCE);
        Process { running, reservations: Arc::new(reservations) }
    }

    /// A process that takes requests and does nothing by itself.
    pub fn desk(&self) -> Process {
        self.process(Duration::ZERO, &[])
    }

    /// A process that does everything, so much later.
    pub fn workers(&self, ahead: Duration) -> Process {
        self.process(ahead, &[Lane::PAYMENTS, Lane::TIMERS, Lane::WEBHOOKS])
    }

    /// Lets everything come to its end, two hours later.
    pub async fn settle(&self) {
        self.settle_after(Duration::from_secs(2 * 3600)).await;
    }

    /// Lets everything come to its end that is due so much later.
    pub async fn settle_after(&self, ahead: Duration) {
        let workers = self.workers(ahead);
        self.at_rest(ahead).await;
        workers.stop().await;
    }

    /// The same, for everything but the timers.
    pub async fn settle_without_timers(&self) {
        let lanes = [Lane::PAYMENTS, Lane::WEBHOOKS];
        let workers = self.process(Duration::from_secs(2 * 3600), &lanes);
        for lane in &lanes {
            self.until_settled(lane).await;
        }
        workers.stop().await;
    }

    /// Waits until nothing is left to do by then; letters and videos are others' affair.
    pub async fn at_rest(&self, ahead: Duration) {
        until("rest", async || {
            // What is tried again in a moment is not at rest.
            let then = Clock::System.now().plus(ahead).plus(Duration::from_secs(5));
            let all = self.effects().await;
            let over = |row: &EffectRow| {
                let others = row.lane == Lane::MAIL || row.lane == Lane::RENDERS;
                others || row.status.is_settled() || row.next_run_at > then
            };
            all.iter().all(over).then_some(())
        })
        .await;
    }

    /// Waits until nothing is left to do on a lane.
    pub async fn until_settled(&self, lane: &Lane) {
        until("the end of a lane", async || {
            let all = self.effects().await;
            all.iter().all(|row| row.lane != *lane || row.status.is_settled()).then_some(())
        })
        .await;
    }

    pub async fn effects(&self) -> Vec<EffectRow> {
        self.store.effects(&EffectFilter::default(), 100_000).await.unwrap()
    }

    /// The templates of the letters that were written about a reservation.
    pub async fn letters(&self, id: Uuid) -> Vec<String> {
        let mut templates = Vec::new();
        for mail in self.store.mails(&MailFilter::default(), 1000).await.unwrap() {
            // The key names the reservation and the template.
            let key = mail.key.unwrap_or_default();
            templates.extend(key.strip_prefix(&format!("{id}:")).map(ToOwned::to_owned));
        }
        templates
    }

    pub async fn reservation(&self, id: Uuid) -> Reservation {
        self.store.reservation(id).await.unwrap().expect("the reservation is kept")
    }

    pub async fn payment_of(&self, id: Uuid) -> Payment {
        let payment = self.reservation(id).await.payment_id.expect("it was checked out");
        self.store.payment(payment).await.unwrap().expect("the payment is kept")
    }

    pub async fn races(&self, id: Uuid) -> Vec<RaceRow> {
        self.store.races_of(KIND, &id.to_string()).await.unwrap()
    }

    pub async fn scenarios(&self, id: Uuid) -> Vec<(String, String)> {
        let races = self.races(id).await;
        races.into_iter().map(|race| (race.scenario, race.resolution)).collect()
    }

    /// Sends what the gateway tells, so many times each; only events of these kinds.
    pub async fn deliver(&self, kinds: &[&str], copies: usize) {
        for event in self.world.events() {
            let kind = event["type"].as_str().unwrap_or_default();
            if kinds.contains(&kind) {
                for _ in 0..copies {
                    webhook_rig::send(&self.webhooks, event.to_string().as_bytes(), None)
                        .await
                        .unwrap();
                }
            }
        }
    }

    /// The customer is on the page and pays.
    pub async fn customer_pays(&self, id: Uuid) {
        let session = session_of(&self.payment_of(id).await);
        assert!(self.world.customer_pays(&session), "the page is open");
    }

    /// Whoever has paid has the slot or the money back, once; nobody has both; the gateway agrees.
    pub async fn fair(&self, id: Uuid) -> Status {
        let reservation = self.reservation(id).await;
        let Some(payment) = reservation.payment_id else { return reservation.status };
        let payment = self.store.payment(payment).await.unwrap().unwrap();
        let ledger = self.world.ledger();
        let total = ledger.total(&payment.id.to_string());
        let told = format!("{reservation:?}\n{payment:?}\n{total:?}");
        assert!(self.world.violations().is_empty(), "{:?}", self.world.violations());
        assert_eq!(
            (total.captured, total.refunded),
            (payment.captured_amount, payment.refunded_amount),
            "{told}"
        );
        if reservation.status == Status::Confirmed {
            assert_eq!(total.charged(), AMOUNT, "{told}");
            assert!(payment.refunds.is_empty(), "{told}");
        } else {
            assert_eq!(total.charged(), 0, "{told}");
            assert!(payment.refunds.len() <= 1, "{told}");
        }
        reservation.status
    }
}

/// Everything that reservations need of an engine.
pub fn equip(engine: Engine, till: &Arc<Till>, worker: &str) -> Engine {
    engine
        .effect(payment::KIND, PaymentHandler::new(Arc::clone(till), worker))
        .effect(EXPIRY_KIND, ExpiryHandler::new(Arc::clone(till), worker))
        .effect(HOLD_KIND, HoldHandler::new(Arc::clone(till)))
        .effect(GIVE_UP_KIND, GiveUpHandler::new(Arc::clone(till)))
        .effect(
            WEBHOOK_KIND,
            WebhookHandler::new(Arc::clone(till), Vec::new(), worker, &lanes_policy()),
        )
}

pub fn session_of(payment: &Payment) -> String {
    let page = payment.checkout.as_ref().expect("it is paid on a page");
    page.session.as_ref().expect("the page is open").id.clone()
}

/// One process.
pub struct Process {
    pub running: Running,
    pub reservations: Arc<Reservations>,
}

impl Process {
    pub async fn hold(&self, key: &str, body: &Value) -> Result<Held, ReservationError> {
        self.reservations.hold(caller(key), body).await
    }

    pub async fn held(&self, user: &str, slot: i64) -> Reservation {
        let held = self.hold(&format!("key-{user}-{slot}"), &body(user, slot)).await.unwrap();
        assert!(!held.replayed);
        held.reservation
    }

    pub async fn check_out(&self, id: Uuid) -> Payment {
        match self.reservations.check_out(id, nobody()).await.unwrap() {
            CheckedOut::Open(payment) => payment,
            CheckedOut::Opening(payment) => panic!("not open yet: {payment:?}"),
        }
    }

    /// A reservation whose customer is on the payment page.
    pub async fn paying(&self, user: &str, slot: i64) -> Reservation {
        let held = self.held(user, slot).await;
        self.check_out(held.id).await;
        held
    }

    pub async fn cancel(&self, id: Uuid) -> Result<ReservationView, ReservationError> {
        self.reservations.cancel(id, nobody()).await
    }

    pub async fn stop(self) {
        stop(self.running).await;
    }
}
