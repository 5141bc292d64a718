//! What every case about payments stands on: a database, a gateway that speaks Stripe, and shops, each of
//! which is one process that takes payments.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::alert::{Alert, AlertState};
use tashika_domain::case::{Case, CaseStatus};
use tashika_domain::payment::ask::Wish;
use tashika_domain::payment::remote::Remote;
use tashika_domain::payment::{
    ALERT_VERIFICATION, EXPIRY_KIND, KIND, Payment, PaymentRules, Status,
};
use tashika_domain::{Lane, LanePolicy, Outcome};
use tashika_engine::commands::payment::{Answer, Caller, PaymentError, Payments};
use tashika_engine::{Clock, Engine, ExpiryHandler, PaymentHandler, Running, Till};
use tashika_providers::gateway::stripe::{StripeConfig, StripeGateway};
use tashika_providers::gateway::{Charge, Gateway};
use tashika_providers::http::ClientConfig;
use tashika_store::{AlertFilter, Dialect, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{PATIENCE, until};
use tashika_testkit::gateway::World;
use tashika_testkit::gateway::server::GatewayServer;
use uuid::Uuid;

use crate::support::{engine, policy};

/// How long the gateway may take here: short for whoever waits for silence, long for a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(1);
pub const AMOUNT: i64 = 100;
pub const VISA: &str = "pm_card_visa";
pub const DECLINING: &str = "pm_card_chargeDeclined";

/// Short intervals; asks for as long as it takes.
pub fn rules() -> PaymentRules {
    PaymentRules {
        verify_interval: Duration::from_millis(20),
        verify_max: 100_000,
        retry_backoff: vec![Duration::from_millis(1); 3],
        ..PaymentRules::default()
    }
}

/// Gives up after so many questions.
pub fn asks(verify_max: u32) -> PaymentRules {
    PaymentRules { verify_max, ..rules() }
}

pub fn payments_policy() -> LanePolicy {
    LanePolicy { concurrency: 1024, batch: 64, ..policy() }
}

pub fn request(method: &str) -> Value {
    json!({"bookingId": "b-1", "userId": "u-1", "amount": AMOUNT, "currency": "EUR",
        "paymentMethod": method})
}

pub fn caller(key: &str) -> Caller<'_> {
    Caller { key: Some(key), user: None, traceparent: None }
}

pub fn stripe(api_base: String) -> StripeGateway {
    let client = ClientConfig::with_timeout(TIMEOUT);
    StripeGateway::new(StripeConfig { api_key: SecretString::from("sk_test_1"), api_base, client })
        .unwrap()
}

/// Whatever was in somebody's hands was last heard of long ago.
pub async fn forsake(db: &TestDb) {
    db.sql(match db.dialect() {
        Dialect::Sqlite => {
            "update outbox set locked_at = locked_at - 3600000000 where status = 'sending'"
        }
        Dialect::Postgres => {
            "update outbox set locked_at = locked_at - interval '1 hour' where status = 'sending'"
        }
    })
    .await;
}

/// One process that takes payments.
pub struct Shop {
    pub store: Store,
    pub running: Running,
    pub till: Arc<Till>,
    pub payments: Arc<Payments>,
}

pub fn shop_with(
    store: &Store,
    worker: &str,
    gateway: Arc<dyn Gateway>,
    rules: PaymentRules,
    more: impl FnOnce(Engine, &Arc<Till>) -> Engine,
) -> Shop {
    let clock = Clock::System;
    let till = Arc::new(Till {
        store: store.clone(),
        clock,
        gateway,
        rules,
        reservations: tashika_domain::reservation::ReservationRules::default(),
    });
    let made = engine(store, clock, worker)
        .lane(Lane::PAYMENTS, payments_policy())
        .lane(Lane::TIMERS, payments_policy())
        .effect(KIND, PaymentHandler::new(Arc::clone(&till), worker))
        .effect(EXPIRY_KIND, ExpiryHandler::new(Arc::clone(&till), worker));
    let running = more(made, &till).start();
    let payments = Payments::new(Arc::clone(running.engine()), Arc::clone(&till), PATIENCE);
    Shop { store: store.clone(), running, till, payments: Arc::new(payments) }
}

impl Shop {
    pub async fn create(&self, key: &str, body: &Value) -> Result<Answer, PaymentError> {
        self.payments.create(caller(key), body).await
    }

    /// A payment that is taken, whatever becomes of it.
    pub async fn pay(&self, key: &str, method: &str) -> Payment {
        self.create(key, &request(method)).await.unwrap().payment
    }

    pub async fn authorized(&self, key: &str) -> Payment {
        let payment = self.pay(key, VISA).await;
        assert_eq!((payment.status, payment.is_at_rest()), (Status::Authorized, true));
        payment
    }

    pub async fn captured(&self, key: &str) -> Payment {
        let payment = self.authorized(key).await;
        let answer = self.capture(payment.id, &format!("{key}-c"), None).await.unwrap();
        assert_eq!((answer.http_status, answer.payment.status), (200, Status::Captured));
        answer.payment
    }

    pub async fn capture(
        &self,
        id: Uuid,
        key: &str,
        amount: Option<i64>,
    ) -> Result<Answer, PaymentError> {
        self.payments
            .ask(caller(key), id, Wish::Capture { amount }, &json!({ "amount": amount }))
            .await
    }

    pub async fn void(&self, id: Uuid, key: &str) -> Result<Answer, PaymentError> {
        self.payments.ask(caller(key), id, Wish::Void, &json!({})).await
    }

    pub async fn refund(
        &self,
        id: Uuid,
        key: &str,
        amount: Option<i64>,
    ) -> Result<Answer, PaymentError> {
        let wish = Wish::Refund { amount, reason: None };
        self.payments.ask(caller(key), id, wish, &json!({ "amount": amount })).await
    }

    pub async fn find(&self, id: Uuid) -> Payment {
        self.store.payment(id).await.unwrap().expect("the payment exists")
    }

    pub async fn until(&self, id: Uuid, what: &str, enough: impl Fn(&Payment) -> bool) -> Payment {
        until(what, async || Some(self.find(id).await).filter(&enough)).await
    }

    /// Waits until nothing is under way any more.
    pub async fn rest(&self, id: Uuid) -> Payment {
        self.until(id, "rest", Payment::is_at_rest).await
    }

    /// Waits until software has stopped asking.
    pub async fn given_up(&self, id: Uuid) -> Payment {
        self.until(id, "a case", Payment::verification_failed).await
    }

    pub async fn cases(&self, id: Uuid) -> Vec<Case> {
        self.store.cases_of(KIND, &id.to_string()).await.unwrap()
    }

    pub async fn open_cases(&self, id: Uuid) -> Vec<Case> {
        let cases = self.cases(id).await;
        cases.into_iter().filter(|case| case.status == CaseStatus::Open).collect()
    }

    /// The alert about payments that nobody could find out about, once it is about this one. It names the newest.
    pub async fn alerted(&self, id: Uuid) -> Alert {
        let filter = AlertFilter {
            state: Some(AlertState::Firing),
            rule: Some(ALERT_VERIFICATION.to_owned()),
            ..AlertFilter::default()
        };
        until("the alert", async || {
            let mut firing = self.store.alerts(&filter, 10).await.unwrap();
            assert!(firing.len() <= 1, "{firing:?}");
            firing.pop().filter(|a| a.count > 1 || a.labels["paymentId"] == json!(id))
        })
        .await
    }

    /// Nobody is alerted about any payment any more.
    pub async fn unalerted(&self) {
        let filter = AlertFilter {
            state: Some(AlertState::Firing),
            rule: Some(ALERT_VERIFICATION.to_owned()),
            ..AlertFilter::default()
        };
        until("the end of the alert", async || {
            self.store.alerts(&filter, 10).await.unwrap().is_empty().then_some(())
        })
        .await;
    }

    /// The kinds of the lines of a timeline.
    pub async fn told(&self, id: Uuid) -> Vec<String> {
        let lines = self.store.payment_timeline(id).await.unwrap();
        lines.into_iter().map(|line| line.kind).collect()
    }

    pub async fn lines(&self, id: Uuid, kind: &str) -> Vec<Value> {
        let lines = self.store.payment_timeline(id).await.unwrap();
        let lines = lines.into_iter().filter(|line| line.kind == kind);
        lines.map(|line| serde_json::from_str(&line.entry).unwrap()).collect()
    }

    pub async fn stop(self) {
        crate::support::stop(self.running).await;
    }
}

/// A database and a gateway.
pub struct Town {
    pub db: TestDb,
    pub store: Store,
    pub world: World,
    pub server: GatewayServer,
}

impl Town {
    pub async fn new(db: TestDb) -> Self {
        let world = World::new();
        let server = GatewayServer::start(&world).await;
        Self { store: db.open().await, db, world, server }
    }

    pub fn gateway(&self) -> StripeGateway {
        stripe(self.server.base_url())
    }

    pub fn shop(&self, rules: PaymentRules) -> Shop {
        shop_with(&self.store, "host:1:a", Arc::new(self.gateway()), rules, |engine, _| engine)
    }

    /// What the gateway says about a payment, as a webhook would.
    pub async fn message(&self, payment: &Payment) -> Remote {
        let Outcome::Done(remote) = self.gateway().status(charge(payment)).await.outcome else {
            panic!("the gateway does not say");
        };
        remote
    }

    /// The gateway has done nothing that must never happen, and what we believe is true.
    pub async fn agrees(&self, shop: &Shop, id: Uuid) {
        let payment = shop.find(id).await;
        assert_eq!(differs(&self.world, &payment, 0), None);
    }
}

/// A payment as its gateway is asked about it.
pub fn charge(payment: &Payment) -> Charge<'_> {
    let request = &payment.request;
    Charge {
        payment_id: payment.id,
        in_vain: payment.in_vain,
        gateway_id: payment.gateway_transaction_id.as_deref(),
        amount: request.amount,
        currency: &request.currency,
        payment_method: &request.payment_method,
        customer: None,
        description: None,
        now: Clock::System.now(),
        traceparent: None,
    }
}

/// What is wrong with our belief about a payment, given the gateway's true ledger. `foreign` was given back
/// by somebody else than us.
pub fn differs(world: &World, payment: &Payment, foreign: i64) -> Option<String> {
    use tashika_testkit::gateway::MovementKind;
    let ledger = world.ledger();
    let id = payment.id.to_string();
    let total = ledger.total(&id);
    let captures = ledger.of_payment(&id);
    let captures = captures.iter().filter(|m| m.kind == MovementKind::Captured).count();
    let told = format!("{payment:?} and {total:?}");
    if total.authorized_by.len() > 1 || captures > 1 {
        return Some(format!("done twice: {told}"));
    }
    if total.refunded > total.captured {
        return Some(format!("too much given back: {told}"));
    }
    let same = match payment.status {
        Status::Pending => false,
        Status::Failed => total.held() == 0 && total.charged() == 0,
        Status::Authorized => total.held() == payment.request.amount && total.captured == 0,
        Status::Captured | Status::Refunded => {
            total.held() == 0
                && total.captured == payment.captured_amount
                && total.refunded == payment.refunded_amount + foreign
        }
    };
    (!same).then(|| format!("not the truth: {told}"))
}
