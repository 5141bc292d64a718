//! What cases about alerts stand on: a database, watchmen that look when they are told to, and causes that can
//! be made and taken away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metrics::Key;
use serde_json::json;
use tashika_domain::alert::notify::Channels;
use tashika_domain::alert::rules::{Counter, Measure, Rule, defaults};
use tashika_domain::alert::{Alert, AlertResolution, AlertState, NewAlert, Severity};
use tashika_domain::case::{CaseResolution, NewCase};
use tashika_domain::changes::Withdraw;
use tashika_domain::mail::pace::{Leave, Limits};
use tashika_domain::message::asked::Asked;
use tashika_domain::message::{Begin, Draft, Message, State, accept};
use tashika_domain::outcome::Reason;
use tashika_domain::payment::ask::{Origin, create};
use tashika_domain::payment::{
    At, CaptureMode, Doubt, Payment, PaymentRequest, PaymentRules, RequestKey,
};
use tashika_domain::race::NewRace;
use tashika_domain::{Changes, EffectId, Lane, NewEffect, Timestamp, Write};
use tashika_engine::{AlertSettings, Clock, Engine, Ids, Meter, Settings, Watchman};
use tashika_store::{AlertFilter, PermitWish, Store};
use tashika_testkit::database::TestDb;
use uuid::Uuid;

use crate::support::settings;

/// When everything begins here.
pub const START: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

pub fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

pub fn rule(name: &str) -> Rule {
    defaults().into_iter().find(|rule| rule.name == name).expect("a rule")
}

pub fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// One process that watches.
pub struct Tower {
    pub store: Store,
    pub meter: Arc<Meter>,
    pub watchman: Watchman,
}

pub fn alert_settings(webhook: Option<&str>) -> AlertSettings {
    AlertSettings {
        channels: Channels {
            webhook: webhook.map(ToOwned::to_owned),
            mail_to: Vec::new(),
            keep: Duration::from_secs(3600),
        },
        ..AlertSettings::default()
    }
}

impl Tower {
    pub async fn new(db: &TestDb) -> Self {
        Self::with(db.open().await, alert_settings(Some("chat")))
    }

    pub fn with(store: Store, alerts: AlertSettings) -> Self {
        let clock = Clock::simulated(START);
        let meter = Arc::new(Meter::default());
        let settings = Settings { alerts, mail_quota: 100, ..settings("host:1:a") };
        let engine = Engine::new(store.clone(), clock, Ids::random(clock), settings)
            .metered(Arc::clone(&meter));
        Self { store, meter, watchman: Watchman::new(Arc::new(engine)) }
    }

    pub async fn look(&self, now: Timestamp) {
        self.watchman.run_once(now).await.unwrap();
    }

    pub async fn alerts(&self, rule: &str) -> Vec<Alert> {
        let filter = AlertFilter { rule: Some(rule.into()), ..AlertFilter::default() };
        self.store.alerts(&filter, 100).await.unwrap()
    }

    pub async fn firing(&self, rule: &str) -> Option<Alert> {
        let alerts = self.alerts(rule).await.into_iter();
        let mut firing = alerts.filter(|alert| alert.state == AlertState::Firing);
        let first = firing.next();
        assert!(firing.next().is_none(), "{rule} fires twice");
        first
    }

    /// The notifications that were enqueued about a rule, oldest first, by state.
    pub async fn told(&self, rule: &str) -> Vec<String> {
        let filter = tashika_store::EffectFilter::default();
        let mut rows = self.store.effects(&filter, 10_000).await.unwrap();
        rows.retain(|row| row.kind == tashika_domain::alert::notify::KIND);
        rows.reverse();
        let mut told = Vec::new();
        for row in rows {
            let payload = self.store.payload(row.id).await.unwrap().unwrap();
            let payload: serde_json::Value = serde_json::from_str(&payload).unwrap();
            let said = &payload["body"]["metadata"]["event_payload"];
            if said["rule"] == rule {
                told.push(said["state"].as_str().unwrap().to_owned());
            }
        }
        told
    }

    pub async fn done(&self, writes: impl IntoIterator<Item = Write>) {
        let mut changes = Changes::new();
        writes.into_iter().for_each(|write| changes.push(write));
        self.store.commit(changes).await.unwrap();
    }

    pub fn count(&self, counter: Counter, times: u64) {
        let labels: Vec<(&'static str, &'static str)> = counter.label.into_iter().collect();
        let key = Key::from_parts(counter.metric, &labels[..]);
        self.meter.counter(&key).unwrap().fetch_add(times, Ordering::Relaxed);
    }

    pub fn record(&self, counter: Counter, value: f64, times: usize) {
        let labels: Vec<(&'static str, &'static str)> = counter.label.into_iter().collect();
        let key = Key::from_parts(counter.metric, &labels[..]);
        let histogram = self.meter.histogram(&key).unwrap();
        (0..times).for_each(|_| histogram.record(value));
    }

    async fn send_mails(&self, many: u64, now: Timestamp) {
        for number in 0..many {
            let wish = PermitWish {
                id: uuid(u128::from(number) + 1),
                worker: "host:1:a".to_owned(),
                now,
                limits: Limits { rate_per_sec: 1000.0, daily_quota: 100 },
                at_most: Duration::from_secs(1),
            };
            let answer = self.store.take_mail_permit(wish).await.unwrap();
            assert_eq!(answer.leave, Leave::Granted);
        }
    }

    /// Gives a rule its cause: exactly `many`, where it is counted.
    pub async fn heat(&self, rule: &Rule, many: u64, now: Timestamp) {
        match &rule.measure {
            Measure::PaymentsInDoubt => {
                self.done((0..many).map(|n| Write::PaymentInsert(Box::new(doubtful(n))))).await;
            }
            Measure::OpenCases(kind) => {
                let kind = kind.unwrap_or("payment_difference");
                self.done((0..many).map(|n| Write::OpenCase(case(kind, n, now)))).await;
            }
            Measure::DeadLetters => {
                self.done((0..many).map(|n| Write::MessageInsert(Box::new(letter(n, now))))).await;
            }
            Measure::OldestDeadLetter => {
                let died = now.minus(Duration::from_secs(many));
                self.done([Write::MessageInsert(Box::new(letter(0, died)))]).await;
            }
            Measure::OutboxPending => {
                self.done((0..many).map(|n| Write::Enqueue(waiting(n, now)))).await;
            }
            Measure::Races { scenario, resolution } => {
                self.done((0..many).map(|n| Write::Race(race(scenario, resolution, n, now)))).await;
            }
            Measure::MailQuotaUsed => self.send_mails(many, now).await,
            Measure::Increase(counter) => self.count(*counter, many),
            // Of a thousand.
            Measure::Share { part, whole } => {
                self.count(part[0], many);
                let counted =
                    if whole.iter().any(|c| c.metric == part[0].metric) { many } else { 0 };
                self.count(whole[0], 1000 - counted);
            }
            Measure::P95(counter) => {
                let value = f64::from(u32::try_from(many).unwrap());
                self.record(*counter, value, 100);
            }
            Measure::Reported => {
                let alert = NewAlert {
                    id: tashika_domain::ids::derived(now, &[rule.name.as_bytes()]),
                    rule: rule.name,
                    subject: "lane".into(),
                    severity: rule.severity,
                    message: rule.text.en,
                    labels: json!({"host": "smtp"}).to_string(),
                    now,
                };
                self.done([Write::FireAlert(alert)]).await;
            }
        }
    }

    /// Takes the cause away again. What lies in a window ends by itself.
    pub async fn cool(&self, rule: &Rule, many: u64, now: Timestamp) {
        match &rule.measure {
            Measure::PaymentsInDoubt => {
                let sure = |n| Payment { operation: None, version: 2, ..doubtful(n) };
                self.done((0..many).map(|n| Write::PaymentUpdate(Box::new(sure(n))))).await;
            }
            Measure::OpenCases(kind) => {
                let kind = kind.unwrap_or("payment_difference");
                let end = |n: u64| CaseResolution {
                    kind,
                    subject_id: n.to_string(),
                    action: "settled".into(),
                    note: String::new(),
                    now,
                };
                self.done((0..many).map(|n| Write::ResolveCase(end(n)))).await;
            }
            Measure::DeadLetters | Measure::OldestDeadLetter => {
                let buried = |n| Message { dlq_id: None, version: 2, ..letter(n, now) };
                let many = if rule.measure == Measure::DeadLetters { many } else { 1 };
                self.done((0..many).map(|n| Write::MessageUpdate(Box::new(buried(n))))).await;
            }
            Measure::OutboxPending => {
                let withdraw = |n| Withdraw { id: waiting(n, now).id, now, code: "GONE" };
                self.done((0..many).map(|n| Write::Withdraw(withdraw(n)))).await;
            }
            // They are forgotten when the window is over, wherever the database's clock stands.
            Measure::MailQuotaUsed => {
                let late = Clock::System.now().plus(Duration::from_secs(3 * 24 * 3600));
                self.store.prune_mail_quota(late).await.unwrap();
            }
            Measure::Reported => {
                let (rule, subject) = (rule.name, "lane".to_owned());
                self.done([Write::ResolveAlert(AlertResolution { rule, subject, now })]).await;
            }
            _ => {}
        }
    }
}

pub fn case(kind: &'static str, number: u64, now: Timestamp) -> NewCase {
    NewCase {
        id: tashika_domain::ids::derived(now, &[kind.as_bytes(), &number.to_be_bytes()]),
        kind,
        subject_type: "payment",
        subject_id: number.to_string(),
        summary: "nobody knows".into(),
        actions: vec!["settled"],
        details: json!({"paymentId": number.to_string(), "error": "X", "alert": "told"})
            .to_string(),
        now,
    }
}

fn doubtful(number: u64) -> Payment {
    let rules = PaymentRules::default();
    let request = PaymentRequest {
        booking_id: "b".into(),
        user_id: "u".into(),
        amount: 500,
        currency: "JPY".into(),
        payment_method: "tok".into(),
        customer: None,
        description: None,
        capture: CaptureMode::Manual,
    };
    let origin = Origin {
        id: uuid(u128::from(number) + 1),
        key: RequestKey { key: format!("k-{number}"), digest: "d".into() },
        gateway: "sandbox".into(),
        traceparent: None,
    };
    let mut payment =
        create(request, origin, At { now: START, rules: &rules, worker: None }).payment;
    if let Some(operation) = &mut payment.operation {
        operation.doubt = Some(Doubt {
            reason: Reason::new("TIMEOUT", "no answer"),
            sent_at: START,
            checks: 0,
            last_check_at: None,
            fenced: false,
            given_up: false,
        });
    }
    payment
}

fn letter(number: u64, now: Timestamp) -> Message {
    let draft = Draft {
        id: uuid(u128::from(number) + 1),
        asked: Asked { url: "https://a.example/".into(), ..Asked::default() }.into(),
        body: Arc::from(&b"x"[..]),
        not_before: None,
        dedup_key: None,
        holds: None,
        traceparent: None,
        now,
        expires_at: now,
        begin: Begin::Due,
    };
    Message {
        state: State::Failed,
        dlq_id: Some(format!("dlq-{number}")),
        ended_at: Some(now),
        ..accept(draft).0
    }
}

fn waiting(number: u64, now: Timestamp) -> NewEffect {
    NewEffect {
        id: EffectId(uuid(u128::from(number) + 1)),
        lane: Lane::ORDERS,
        kind: "nothing".into(),
        key: None,
        digest: None,
        payload: "{}".into(),
        run_at: now,
        created_at: now,
        expires_at: now,
        traceparent: None,
        held_by: None,
    }
}

fn race(scenario: &'static str, resolution: &'static str, number: u64, now: Timestamp) -> NewRace {
    NewRace {
        id: uuid(u128::from(number) + 1),
        scenario,
        subject_type: "reservation",
        subject_id: number.to_string(),
        resolution,
        details: "{}".into(),
        now,
    }
}

pub fn critical(alert: &Alert) -> bool {
    alert.severity == Severity::Critical
}
