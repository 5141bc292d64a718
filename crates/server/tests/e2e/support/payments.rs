//! Payments from the outside: a gateway that speaks Stripe's wire format, and the requests of a caller.

use serde_json::{Value, json};
use tashika_testkit::gate::until;
use tashika_testkit::gateway::World;
use tashika_testkit::gateway::server::GatewayServer;

use super::{Answer, Request, Server, Setup};

/// The secret under which Tashika speaks to the gateway; it must show up nowhere else.
pub const STRIPE_KEY: &str = "sk_test_planted_4711";

/// A gateway behind a socket: what goes wrong is in its script, what is true in its ledger.
pub struct Gateway {
    pub world: World,
    server: GatewayServer,
}

impl Gateway {
    pub async fn start() -> Self {
        let world = World::new();
        let server = GatewayServer::start(&world).await;
        Self { world, server }
    }
}

impl Setup {
    /// Pays through a gateway that speaks Stripe's wire format.
    pub fn stripe(self, gateway: &Gateway) -> Self {
        self.set("PAYMENT_GATEWAY", "stripe")
            .set("STRIPE_API_KEY", STRIPE_KEY)
            .set("STRIPE_API_BASE", gateway.server.base_url())
            .impatient()
    }

    /// Every wait is short, so that a story of fifty minutes takes a second.
    pub fn impatient(self) -> Self {
        self.set("PAYMENT_GATEWAY_TIMEOUT_MS", 300)
            .set("PAYMENT_VERIFY_INTERVAL_SEC", "0.1")
            .set("PAYMENT_RETRY_BACKOFF_SEC", "0.02,0.05,0.1")
            .set("OUTBOX_POLL_INTERVAL_SEC", "0.05")
    }
}

/// What a caller sends.
pub fn payment(method: &str) -> Value {
    json!({
        "bookingId": "b-1001", "userId": "u-1", "amount": 100, "currency": "EUR", "paymentMethod": method,
    })
}

impl Request {
    pub fn json(path: &str, body: &Value) -> Self {
        Self::new("POST", path).header("content-type", "application/json").body(body.to_string())
    }

    pub fn pay(key: impl AsRef<[u8]>, body: &Value) -> Self {
        Self::json("/payments", body).header("idempotency-key", key)
    }

    /// Captures, voids or refunds.
    pub fn act(id: &str, verb: &str, key: impl AsRef<[u8]>, body: &Value) -> Self {
        Self::json(&format!("/payments/{id}/{verb}"), body).header("idempotency-key", key)
    }
}

impl Answer {
    /// The payment that this answer is, told with this status and in this state.
    #[track_caller]
    pub fn payment(&self, http_status: u16, status: &str) -> Value {
        let payment = self.json();
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        assert_eq!(
            (self.status, payment["status"].as_str()),
            (http_status, Some(status)),
            "{self:?}"
        );
        payment
    }
}

impl Server {
    /// Pays, and must be told so.
    pub async fn paid(&self, key: &str, body: &Value, http_status: u16, status: &str) -> Value {
        self.ask(Request::pay(key, body)).await.payment(http_status, status)
    }

    pub async fn payment(&self, id: &str) -> Value {
        self.get(&format!("/payments/{id}")).await.json()
    }

    /// Waits until a payment is as wanted.
    pub async fn payment_when(
        &self,
        id: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&format!("{id}: {what}"), async || Some(self.payment(id).await).filter(&wanted)).await
    }

    /// Waits until nothing about a payment is under way.
    pub async fn payment_at_rest(&self, id: &str) -> Value {
        self.payment_when(id, "rest", |found| found.get("verificationRequired").is_none()).await
    }

    /// Waits until nobody but a person can go on with a payment.
    pub async fn payment_given_up(&self, id: &str) -> Value {
        self.payment_when(id, "a case", |found| found["verificationFailed"] == true).await
    }

    pub async fn act(&self, id: &str, verb: &str, key: &str, body: &Value) -> Answer {
        self.ask(Request::act(id, verb, key, body)).await
    }

    pub async fn timeline(&self, id: &str) -> Vec<Value> {
        let answer = self.get(&format!("/payments/{id}/timeline")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["items"].as_array().unwrap().clone()
    }

    pub async fn open_cases(&self) -> Vec<Value> {
        let answer = self.get("/cases?status=open&limit=500").await;
        answer.json()["items"].as_array().unwrap_or_else(|| panic!("{answer:?}")).clone()
    }
}

/// A payment's id.
pub fn id(payment: &Value) -> String {
    payment["id"].as_str().unwrap_or_else(|| panic!("{payment}")).to_owned()
}
