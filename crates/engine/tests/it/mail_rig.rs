//! What cases about mail stand on: a server that does what a script says and remembers, and processes that send.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::alert::AlertState;
use tashika_domain::mail::conclude::Patience;
use tashika_domain::mail::control::Control;
use tashika_domain::mail::pace::Limits;
use tashika_domain::mail::{self, Delivery, MailFault, MailResult, batch, deadline};
use tashika_domain::outcome::Exchange;
use tashika_domain::{Lane, LanePolicy};
use tashika_engine::commands::mail::{BatchView, MailError, Mails, SendMail, Taken};
use tashika_engine::{
    Clock, DeadlineHandler, Engine, Ids, MailBatchHandler, MailHandler, MailRules, PostOffice,
    Running,
};
use tashika_providers::mail::{Parcel, Posted, Postman};
use tashika_providers::reply::BoxFuture;
use tashika_providers::templates::Templates;
use tashika_store::{AlertFilter, AuditFilter, Store};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::{REMEMBER, engine, policy};

pub const TEMPLATE: &str = "reservation-expired-refunded";

pub fn data() -> Value {
    json!({"reservationId": "r-1", "refundAmount": 3000, "currency": "JPY"})
}

pub fn body(to: &str) -> Value {
    json!({"to": to, "template": TEMPLATE, "locale": "en", "data": data()})
}

/// What the server does with a mail.
#[derive(Clone)]
pub struct Answer {
    pub result: MailResult,
    /// Whether the mail is in somebody's mailbox after that.
    pub arrives: bool,
    /// Not before this is open.
    pub behind: Option<Gate>,
}

pub fn takes() -> Answer {
    let result = MailResult::Sent { response: "Ok 0100".into() };
    Answer { result, arrives: true, behind: None }
}

pub fn refuses(class: MailFault) -> Answer {
    let text = "as the script says".to_owned();
    let result = MailResult::Refused { class, code: Some(451), text };
    Answer { result, arrives: false, behind: None }
}

impl Answer {
    pub fn arriving(mut self) -> Self {
        self.arrives = true;
        self
    }

    pub fn behind(mut self, gate: &Gate) -> Self {
        self.behind = Some(gate.clone());
        self
    }
}

/// One attempt, as the server saw it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub to: String,
    pub message_id: String,
    pub subject: String,
    pub at: Instant,
}

type Script = dyn Fn(&Parcel, usize) -> Answer + Send + Sync;

/// A mail server. Clones are the same server.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    script: Box<Script>,
    seen: Mutex<Seen>,
    probe: Mutex<Result<(), String>>,
}

#[derive(Default)]
struct Seen {
    heard: Vec<Heard>,
    arrived: BTreeMap<String, usize>,
    probes: usize,
    now: usize,
    most: usize,
}

impl World {
    /// Answers by the mail, and how often this one came before.
    pub fn new(script: impl Fn(&Parcel, usize) -> Answer + Send + Sync + 'static) -> Self {
        let probe = Mutex::new(Ok(()));
        Self(Arc::new(Inner { script: Box::new(script), seen: Mutex::default(), probe }))
    }

    pub fn fine() -> Self {
        Self::new(|_, _| takes())
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.0.seen.lock().unwrap().heard.clone()
    }

    pub fn count(&self) -> usize {
        self.0.seen.lock().unwrap().heard.len()
    }

    /// How often each address got its mail.
    pub fn arrived(&self) -> BTreeMap<String, usize> {
        self.0.seen.lock().unwrap().arrived.clone()
    }

    pub fn most(&self) -> usize {
        self.0.seen.lock().unwrap().most
    }

    pub fn probes(&self) -> usize {
        self.0.seen.lock().unwrap().probes
    }

    pub fn answer_probes(&self, answer: Result<(), String>) {
        *self.0.probe.lock().unwrap() = answer;
    }

    pub async fn until_heard(&self, count: usize) {
        until("mails at the server", async || (self.count() >= count).then_some(())).await;
    }

    async fn hear(&self, parcel: &Parcel) -> Posted {
        let before = {
            let mut seen = self.0.seen.lock().unwrap();
            let before = seen.heard.iter().filter(|h| h.message_id == parcel.message_id).count();
            seen.heard.push(Heard {
                to: parcel.to.clone(),
                message_id: parcel.message_id.clone(),
                subject: parcel.subject.clone(),
                at: Instant::now(),
            });
            seen.now += 1;
            seen.most = seen.most.max(seen.now);
            before
        };
        let answer = (self.0.script)(parcel, before);
        if let Some(gate) = &answer.behind {
            gate.passed().await;
        }
        let mut seen = self.0.seen.lock().unwrap();
        seen.now -= 1;
        if answer.arrives {
            *seen.arrived.entry(parcel.to.clone()).or_default() += 1;
        }
        let exchange = Exchange {
            request: "SMTP".into(),
            reply: "script".into(),
            reference: None,
            sent: true,
        };
        Posted { result: answer.result, exchange, rtt: Duration::from_millis(1) }
    }
}

impl Postman for World {
    fn name(&self) -> &'static str {
        "world"
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(self.hear(parcel))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.0.seen.lock().unwrap().probes += 1;
        let answer = self.0.probe.lock().unwrap().clone();
        Box::pin(async move { answer })
    }
}

/// Quick, and without limits that a case does not ask for.
pub fn rules() -> MailRules {
    MailRules {
        from: "no-reply@mail.example.com".into(),
        timeout: Duration::from_secs(60),
        patience: Patience { max_attempts: 3, waits: vec![Duration::from_millis(1)] },
        limits: Limits { rate_per_sec: 10_000.0, daily_quota: 0 },
        park: Duration::from_secs(600),
        probe_every: Duration::from_secs(3600),
        look_every: Duration::from_millis(20),
        keep: REMEMBER,
        sandbox: true,
    }
}

/// One process.
pub struct Node {
    pub store: Store,
    pub clock: Clock,
    pub mails: Arc<Mails>,
    pub office: Arc<PostOffice>,
    worker: String,
}

impl Node {
    pub async fn new(db: &TestDb, world: &World) -> Self {
        Self::with(db, world, Clock::System, rules(), "host:1:a").await
    }

    pub async fn with(
        db: &TestDb,
        world: &World,
        clock: Clock,
        rules: MailRules,
        worker: &str,
    ) -> Self {
        let store = db.open().await;
        let templates = Arc::new(Templates::load(None).unwrap());
        let (ids, postman) = (Ids::random(clock), Arc::new(world.clone()));
        let office = PostOffice::new(
            store.clone(),
            clock,
            ids,
            postman,
            templates,
            rules,
            worker.to_owned(),
        );
        let office = Arc::new(office);
        let mails = Arc::new(Mails::new(Arc::clone(&office)));
        Self { store, clock, mails, office, worker: worker.to_owned() }
    }

    pub fn engine(&self, concurrency: usize) -> Engine {
        let lane = LanePolicy { concurrency, batch: concurrency, ..policy() };
        let lane = LanePolicy { max_attempts: u32::MAX, ..lane };
        engine(&self.store, self.clock, &self.worker)
            .lane(Lane::MAIL, lane)
            .lane(Lane::TIMERS, policy())
            .valve(Lane::MAIL, Arc::clone(&self.office.valve))
            .effect(mail::KIND, MailHandler(Arc::clone(&self.office)))
            .effect(batch::KIND, MailBatchHandler(Arc::clone(&self.office)))
            .effect(deadline::KIND, DeadlineHandler(Arc::clone(&self.office)))
    }

    pub fn start(&self) -> Running {
        self.engine(5).start()
    }

    pub async fn send(&self, to: &str) -> Uuid {
        self.try_send(None, &body(to)).await.unwrap().row.id
    }

    pub async fn try_send(
        &self,
        header_key: Option<&str>,
        body: &Value,
    ) -> Result<Taken<Delivery>, MailError> {
        self.mails.send(SendMail { header_key, body, traceparent: None }).await
    }

    pub async fn mail(&self, id: Uuid) -> Delivery {
        self.store.mail(id).await.unwrap().expect("the mail is known")
    }

    /// Waits until a mail has ended.
    pub async fn ended(&self, id: Uuid) -> Delivery {
        until("the end of a mail", async || {
            Some(self.mail(id).await).filter(|mail| mail.status.is_over())
        })
        .await
    }

    pub async fn until_mail(
        &self,
        id: Uuid,
        what: &str,
        enough: impl Fn(&Delivery) -> bool,
    ) -> Delivery {
        until(what, async || Some(self.mail(id).await).filter(&enough)).await
    }

    pub async fn control(&self) -> Control {
        self.store.mail_control().await.unwrap()
    }

    /// The rules of the alerts that are firing.
    pub async fn firing(&self) -> Vec<String> {
        let firing = AlertFilter { state: Some(AlertState::Firing), ..AlertFilter::default() };
        let alerts = self.store.alerts(&firing, 100).await.unwrap();
        alerts.into_iter().map(|alert| alert.rule).collect()
    }

    /// Takes a whole batch.
    pub async fn batch(
        &self,
        to: &[String],
        key: Option<&str>,
    ) -> Result<Taken<batch::Batch>, MailError> {
        let head = json!({"template": TEMPLATE, "locale": "en"});
        let mut receiving = self.mails.receive(&head, key, "client").await?;
        for to in to {
            if let Err(error) = receiving.add(&json!({"to": to, "data": data()})).await {
                receiving.abort().await;
                return Err(error);
            }
        }
        receiving.finish().await
    }

    pub async fn view(&self, id: Uuid) -> BatchView {
        self.mails.batch(id).await.unwrap()
    }

    /// Waits until a batch is as it should be, for as long as anything moves.
    pub async fn until_batch(
        &self,
        id: Uuid,
        what: &str,
        so: impl Fn(&BatchView) -> bool,
    ) -> BatchView {
        let mut last = self.view(id).await;
        while !so(&last) {
            last = until(what, async || {
                let now = self.view(id).await;
                (so(&now) || now.counts != last.counts).then_some(now)
            })
            .await;
        }
        last
    }

    /// Waits until nothing of a batch is queued.
    pub async fn finished(&self, id: Uuid) -> BatchView {
        let is_over =
            |view: &BatchView| view.counts.queued == 0 && view.batch.work == batch::Work::Nothing;
        self.until_batch(id, "the end of a batch", is_over).await
    }

    /// The actions of audit lines about a target, oldest first.
    pub async fn audited(&self, target_id: &str) -> Vec<String> {
        let filter =
            AuditFilter { target_id: Some(target_id.to_owned()), ..AuditFilter::default() };
        let mut lines = self.store.audit_logs(&filter, 100).await.unwrap();
        lines.sort_by_key(|line| line.created_at);
        lines.into_iter().map(|line| line.action).collect()
    }
}

pub fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("r{n}@example.com")).collect()
}
