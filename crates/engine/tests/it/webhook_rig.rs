//! What cases about webhooks stand on: a database, a sender that signs like Stripe, and an engine that processes.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use secrecy::SecretString;
use serde_json::{Value, json};
use tashika_domain::audit::Audit;
use tashika_domain::billing::Billing;
use tashika_domain::message;
use tashika_domain::payment::{self, PaymentRules};
use tashika_domain::webhook::{KIND, Route, Status, WebhookEvent};
use tashika_domain::{EffectId, Lane, LanePolicy, Timestamp};
use tashika_engine::commands::billing::Billings;
use tashika_engine::commands::webhook::{Accepted, Received, Taken, WebhookError, Webhooks};
use tashika_engine::{
    Clock, Confirmers, Engine, Gates, Ids, KeyRing, MessageHandler, PaymentHandler, Recent,
    Running, StoredBook, Till, Traffic, WebhookHandler,
};
use tashika_providers::courier::{Courier, CourierConfig};
use tashika_providers::gateway::sandbox::SandboxGateway;
use tashika_providers::guard::Guard;
use tashika_providers::webhook::{Scheme, Source, stripe_header};
use tashika_providers::workers::{Worker, Workers};
use tashika_store::{AuditFilter, EffectRow, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;

use crate::support::{REMEMBER, engine, policy};

pub const TOLERANCE: Duration = Duration::from_secs(300);
pub const CUSTOMER: &str = "cus_1";
/// Short for a worker, long for a loopback connection.
pub const FORWARD_TIMEOUT: Duration = Duration::from_secs(1);
pub const FORWARD_SECRET: &str = "whsec_dGFzaGlrYSBmb3J3YXJkcw==";

pub fn secret() -> SecretString {
    SecretString::from("whsec_test")
}

pub struct Rig {
    pub db: TestDb,
    pub store: Store,
    pub webhooks: Arc<Webhooks>,
    pub billings: Billings,
    pub till: Arc<Till>,
    pub confirmers: Confirmers,
    routes: Vec<Route>,
    workers: Vec<Worker>,
}

impl Rig {
    pub async fn new(db: TestDb) -> Self {
        let store = db.open().await;
        let clock = Clock::System;
        let book = Arc::new(StoredBook(store.clone()));
        let gateway = Arc::new(SandboxGateway::new(book, Duration::from_secs(5)));
        let rules = PaymentRules::default();
        let till = Arc::new(Till {
            store: store.clone(),
            clock,
            gateway,
            rules,
            reservations: tashika_domain::reservation::ReservationRules::default(),
        });
        Self {
            webhooks: Arc::new(webhooks(&store, clock)),
            billings: Billings::new(store.clone(), clock, Ids::random(clock)),
            db,
            store,
            till,
            confirmers: Confirmers::default(),
            routes: Vec::new(),
            workers: Vec::new(),
        }
    }

    /// With a worker that gets whatever its patterns match.
    pub fn forwarding(self, to: &str, types: &[&str], url: &str) -> Self {
        self.forwarding_from("stripe", to, types, url)
    }

    pub fn forwarding_from(mut self, source: &str, to: &str, types: &[&str], url: &str) -> Self {
        let types = types.iter().map(|text| (*text).to_owned()).collect();
        self.routes.push(Route { source: Some(source.into()), types, to: to.into() });
        self.workers.push(Worker { name: to.into(), url: SecretString::from(url) });
        self
    }

    fn deliveries(&self) -> MessageHandler {
        let config = CourierConfig {
            max_timeout: FORWARD_TIMEOUT,
            connect_timeout: FORWARD_TIMEOUT,
            max_response: 1024,
            idle_per_host: 8,
            guard: Guard::off(),
            roots_pem: None,
        };
        let courier = Courier::new(config).unwrap();
        let secret = SecretString::from(FORWARD_SECRET);
        let workers =
            Workers::new(self.workers.clone(), Some(&secret), FORWARD_TIMEOUT, courier.clone());
        MessageHandler {
            store: self.store.clone(),
            ids: Ids::random(Clock::System),
            courier: Arc::new(courier),
            workers: Arc::new(workers.unwrap()),
            keys: Arc::new(KeyRing::new(self.store.clone(), None)),
            traffic: Arc::new(Traffic::new(64)),
            gates: Arc::new(Gates::default()),
            recent: Arc::new(Recent::default()),
            keep: REMEMBER,
            reopen: true,
        }
    }

    pub fn engine(&self, policy: &LanePolicy) -> Engine {
        let worker = "host:1:a";
        let till = || Arc::clone(&self.till);
        let webhooks = WebhookHandler::new(till(), self.routes.clone(), worker, policy)
            .confirming(self.confirmers.clone());
        engine(&self.store, Clock::System, worker)
            .lane(Lane::WEBHOOKS, policy.clone())
            .lane(Lane::DELIVERIES, policy.clone())
            .lane(Lane::PAYMENTS, policy.clone())
            .effect(KIND, webhooks)
            .effect(message::KIND, self.deliveries())
            .effect(payment::KIND, PaymentHandler::new(till(), worker))
    }

    pub fn start(&self) -> Running {
        self.engine(&policy()).start()
    }

    pub async fn billing(&self, customer: &str) -> Billing {
        let body =
            json!({"officeId": format!("office of {customer}"), "stripeCustomerId": customer});
        self.billings.create("somebody", &body).await.unwrap()
    }

    pub async fn send(&self, event: &Value) -> Accepted {
        self.send_bytes(event.to_string().as_bytes()).await.unwrap()
    }

    pub async fn send_bytes(&self, body: &[u8]) -> Result<Accepted, WebhookError> {
        send(&self.webhooks, body, None).await
    }

    pub async fn event(&self, accepted: &Accepted) -> WebhookEvent {
        self.store.webhook_event(accepted.message_id).await.unwrap().expect("the event is kept")
    }

    /// Waits until the event has ended.
    pub async fn ended(&self, accepted: &Accepted, status: Status) -> WebhookEvent {
        let event = until("the event's end", async || {
            Some(self.event(accepted).await).filter(|event| event.status != Status::Pending)
        })
        .await;
        assert_eq!(event.status, status, "{:?}", event.error_message);
        event
    }

    pub async fn effect(&self, accepted: &Accepted) -> EffectRow {
        let id = EffectId(accepted.message_id);
        self.store.effect(id).await.unwrap().expect("the effect is kept")
    }

    pub async fn known(&self, billing: &Billing) -> Billing {
        self.store.billing(billing.id).await.unwrap().expect("the billing is kept")
    }

    /// The lines of an action, newest first.
    pub async fn audit(&self, action: &str) -> Vec<Audit> {
        let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
        self.store.audit_logs(&filter, 1000).await.unwrap()
    }

    pub async fn audit_count(&self) -> usize {
        self.store.audit_logs(&AuditFilter::default(), 100_000).await.unwrap().len()
    }

    /// Every audit line is refused from now on.
    pub async fn break_audit(&self) {
        self.db
            .sql(match self.db.dialect() {
                tashika_store::Dialect::Sqlite => {
                    "create trigger broken before insert on audit_logs begin
                         select raise(abort, 'the audit log is broken'); end"
                }
                tashika_store::Dialect::Postgres => {
                    "create function broken() returns trigger language plpgsql as $$
                         begin raise exception 'the audit log is broken'; end $$;
                     create trigger broken before insert on audit_logs
                         for each row execute function broken()"
                }
            })
            .await;
    }

    pub async fn mend_audit(&self) {
        self.db
            .sql(match self.db.dialect() {
                tashika_store::Dialect::Sqlite => "drop trigger broken",
                tashika_store::Dialect::Postgres => "drop trigger broken on audit_logs",
            })
            .await;
    }
}

pub fn webhooks(store: &Store, clock: Clock) -> Webhooks {
    let scheme = Scheme::Stripe { secrets: vec![secret()], tolerance: TOLERANCE };
    let source = Source::new("stripe", scheme).unwrap();
    Webhooks::new(store.clone(), clock, Ids::random(clock), vec![source], REMEMBER)
}

pub async fn send(
    webhooks: &Webhooks,
    body: &[u8],
    traceparent: Option<&str>,
) -> Result<Accepted, WebhookError> {
    let mut headers = HeaderMap::new();
    let signature = stripe_header(&secret(), body, Clock::System.now());
    headers.insert("stripe-signature", HeaderValue::from_str(&signature).unwrap());
    headers.insert("content-type", HeaderValue::from_static("application/json; charset=utf-8"));
    let received = Received { source: "stripe", headers: &headers, body, traceparent };
    match webhooks.receive(received).await? {
        Taken::Accepted(accepted) => Ok(accepted),
        Taken::Challenged(text) => panic!("a challenge: {text}"),
    }
}

/// An event of a customer's billing that happened at a second.
pub fn told(id: &str, kind: &str, second: i64) -> Value {
    told_about(id, kind, second, &json!({"id": "sub_1", "customer": CUSTOMER}))
}

pub fn told_about(id: &str, kind: &str, second: i64, object: &Value) -> Value {
    json!({"id": id, "object": "event", "type": kind, "created": 1_700_000_000 + second,
        "data": {"object": object}})
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_micros((1_700_000_000 + second) * 1_000_000)
}
