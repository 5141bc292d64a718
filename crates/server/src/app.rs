//! A process of Tashika, put together from its configuration.
//!
//! Used by every command that needs the store: `serve` starts what is here, the operator commands
//! ask it.

mod outside;

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tashika_domain::alert::notify::Channels;
use tashika_domain::{
    Lane, alert, case, event, mail, message, order, payment, render, reservation, webhook,
};
use tashika_engine::commands::alert::Alerts;
use tashika_engine::commands::billing::Billings;
use tashika_engine::commands::case::{
    DeadLetterCases, Desk, DifferenceCases, OrderCases, PaymentCases, RefundCases, RenderCases,
};
use tashika_engine::commands::mail::Mails;
use tashika_engine::commands::message::Messages;
use tashika_engine::commands::order::Orders;
use tashika_engine::commands::payment::Payments;
use tashika_engine::commands::render::Renders;
use tashika_engine::commands::reservation::Reservations;
use tashika_engine::commands::webhook::Webhooks;
use tashika_engine::commands::{Limits, outbox::Outbox};
use tashika_engine::{
    AlertHandler, AlertSettings, Carrier, Clock, Confirmers, CopyHandler, DeadlineHandler, Engine,
    EventHandler, ExpiryHandler, Gates, GiveUpHandler, Hand, HoldHandler, Ids, MailBatchHandler,
    MailHandler, MessageHandler, OrderHandler, PaymentHandler, PostOffice, RECONCILE_KIND, Recent,
    ReconcileHandler, RenderHandler, ScheduleHandler, Settings, Studio, Till, Traffic,
    WebhookHandler,
};
use tashika_providers::broker::Broker;
use tashika_providers::broker::http::ProfileError;
use tashika_providers::courier::{Courier, CourierError};
use tashika_providers::gateway::http::HttpGatewayConfigError;
use tashika_providers::gateway::sandbox::SandboxGateway;
use tashika_providers::gateway::stripe::StripeConfigError;
use tashika_providers::http::ClientError;
use tashika_providers::qstash::QstashError;
use tashika_providers::render::http::HttpRendererError;
use tashika_providers::render::template::TemplateError;
use tashika_providers::shotstack::ShotstackError;
use tashika_providers::sink::{Sink, SinkError};
use tashika_providers::templates::{self, Templates};
use tashika_providers::webhook::SourceError;
use tashika_providers::workers::{WorkerError, Workers};
use tashika_store::{Store, StoreError};

use self::outside::{
    alert_sink, broker, confirmers, courier, fetcher, gateway, key_ring, postman, queue_rules,
    renderer, sinks, workers,
};
use crate::config::{ANSWER_MARGIN, Config, RateLimits, SourceConfig};
use crate::http::alerts;
use crate::telemetry::span_parent;

pub struct App {
    pub store: Store,
    pub clock: Clock,
    pub ids: Ids,
    pub limits: Arc<Limits>,
    pub broker: Arc<dyn Broker>,
    pub till: Arc<Till>,
    /// The gateway, if it is the sandbox: somebody has to show its pages.
    pub sandbox: Option<Arc<SandboxGateway>>,
    sinks: Vec<Arc<Sink>>,
    /// Where alerts are posted to.
    alert_sink: Option<Arc<Sink>>,
    /// Whom webhooks are forwarded to.
    workers: Arc<Workers>,
    confirmers: Confirmers,
    /// Everything that renders need.
    pub studio: Arc<Studio>,
    /// The message queue.
    pub messages: Arc<Messages>,
    gates: Arc<Gates>,
    recent: Arc<Recent>,
    hand: Arc<Hand>,
    traffic: Arc<Traffic>,
    courier: Courier,
    /// What everybody who has to do with mail shares.
    pub office: Arc<PostOffice>,
    worker: String,
}

/// Why a process could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("BROKER_URL: {0}")]
    Broker(#[from] ProfileError),
    #[error("STRIPE_API_KEY, STRIPE_API_BASE: {0}")]
    Stripe(#[from] StripeConfigError),
    #[error("PAYMENT_HTTP_URL, PAYMENT_HTTP_TOKEN: {0}")]
    Gateway(#[from] HttpGatewayConfigError),
    #[error("EVENT_SINK_URLS, EVENT_SINK_SECRET: {0}")]
    Sink(#[from] SinkError),
    #[error("ALERT_WEBHOOK_URL, ALERT_WEBHOOK_SECRET: {0}")]
    AlertSink(#[source] SinkError),
    #[error("WEBHOOK_FORWARD, WEBHOOK_FORWARD_SECRET: {0}")]
    Worker(#[from] WorkerError),
    #[error("QSTASH_URL, QSTASH_TOKEN: {0}")]
    Qstash(#[from] QstashError),
    #[error("the client for deliveries: {0}")]
    Courier(#[from] CourierError),
    #[error("SHOTSTACK_API_KEY, SHOTSTACK_API_BASE: {0}")]
    Shotstack(#[from] ShotstackError),
    #[error("RENDER_URL, RENDER_TOKEN: {0}")]
    Renderer(#[from] HttpRendererError),
    #[error("RENDER_TEMPLATE_FILE: {0}")]
    TemplateFile(std::io::Error),
    #[error("RENDER_TEMPLATE_FILE: the template {0}")]
    Template(#[from] TemplateError),
    #[error("the client for outputs: {0}")]
    Outputs(#[from] ClientError),
    #[error("WEBHOOK_SOURCES, WEBHOOK_SECRETS: {0}")]
    Source(#[from] SourceError),
    #[error("MAIL_TEMPLATES_DIR: {0}")]
    Templates(#[from] templates::TemplateError),
    #[error("MAIL_PROVIDER: {0}")]
    Mail(String),
    #[error("TASHIKA_DATABASE_URL: there is no database at {0} yet; `tashika serve` makes one")]
    NoDatabase(String),
}

impl App {
    pub async fn open(config: &Config) -> Result<Self, AppError> {
        let clock = Clock::System;
        let ids = Ids::random(clock);
        let broker = broker(&config.broker, &ids)?;
        let sinks = sinks(&config.events)?;
        let alert_sink = alert_sink(&config.alerts).map_err(AppError::AlertSink)?;
        let workers = Arc::new(workers(config)?);
        let confirmers = confirmers(&config.webhooks)?;
        let templates = Arc::new(Templates::load(config.mail.templates.as_deref())?);
        let postman = postman(&config.mail).map_err(AppError::Mail)?;
        let renderer = renderer(&config.renders, &confirmers)?;
        let fetcher = fetcher(&config.renders, &config.queue.guard)?;
        let url = config.database_url.expose_secret();
        let store = Store::open(url, config.postgres_connections).await?;
        let studio = Arc::new(Studio {
            store: store.clone(),
            clock,
            renderer,
            rules: config.renders.rules.clone(),
            callbacks: config.renders.callbacks.clone(),
            fetcher,
        });
        let RateLimits { rate_per_min, burst, daily_quota } = config.rate_limits;
        let limits = Arc::new(Limits::new(rate_per_min, burst, daily_quota));
        let mut rules = config.payments.rules.clone();
        rules.sinks = sinks.iter().map(|sink| sink.name().to_owned()).collect();
        let (gateway, sandbox) = gateway(&config.payments, &store)?;
        let mut reservations = config.reservations.clone();
        reservations.render = config.renders.rules.clone();
        let till = Arc::new(Till { store: store.clone(), clock, gateway, rules, reservations });
        let (gates, recent) = (Arc::new(Gates::default()), Arc::new(Recent::default()));
        let hand = Arc::<Hand>::default();
        let messages = Messages::new(
            store.clone(),
            clock,
            ids.clone(),
            Arc::clone(&gates),
            Arc::clone(&recent),
            Arc::new(key_ring(&config.queue, &store)),
            queue_rules(config),
        );
        let at_once = config.queue.destination_concurrency;
        let traffic = Arc::new(Traffic::new(at_once));
        let messages = messages.handing_to(Arc::clone(&hand)).minding(Arc::clone(&traffic));
        let messages = Arc::new(messages);
        let courier = courier(&config.queue, config.queue.guard.clone(), at_once as usize)?;
        let worker = worker_name(&ids);
        let office = Arc::new(PostOffice::new(
            store.clone(),
            clock,
            ids.clone(),
            postman,
            templates,
            config.mail.rules(),
            worker.clone(),
        ));
        Ok(Self {
            store,
            clock,
            ids,
            limits,
            broker,
            till,
            sandbox,
            sinks,
            alert_sink,
            workers,
            confirmers,
            studio,
            messages,
            gates,
            recent,
            hand,
            traffic,
            courier,
            office,
            worker,
        })
    }

    /// For commands that look: a typing error in a path must not make a new, empty database.
    pub async fn open_existing(config: &Config) -> Result<Self, AppError> {
        let url = config.database_url.expose_secret();
        match url.strip_prefix("sqlite:") {
            Some(path) if !std::path::Path::new(path.trim_start_matches("//")).exists() => {
                Err(AppError::NoDatabase(path.to_owned()))
            }
            _ => Self::open(config).await,
        }
    }

    #[must_use]
    pub fn orders(&self, config: &Config) -> Orders {
        Orders::new(
            self.store.clone(),
            self.clock,
            self.ids.clone(),
            config.orders.clone(),
            Arc::clone(&self.limits),
            config.idempotency_ttl,
        )
    }

    /// Where cases are decided: each kind is one line.
    #[must_use]
    pub fn desk(&self, config: &Config, orders: &Arc<Orders>, payments: &Arc<Payments>) -> Desk {
        let (store, clock) = (self.store.clone(), self.clock);
        let (orders, payments) = (Arc::clone(orders), Arc::clone(payments));
        let unknown = PaymentCases { store: store.clone(), payments: Arc::clone(&payments) };
        let difference = DifferenceCases { store: store.clone(), clock, payments };
        let letters = DeadLetterCases {
            store: store.clone(),
            clock,
            messages: Arc::clone(&self.messages),
            keep: config.lane(&Lane::WEBHOOKS).keep,
        };
        Desk::new(store.clone(), clock)
            .with(payment::CASE_UNKNOWN, unknown)
            .with(payment::CASE_DIFFERENCE, difference)
            .with(render::CASE_FAILED, RenderCases(Arc::clone(&self.studio)))
            .with(reservation::CASE_REFUND, RefundCases { store: store.clone(), clock })
            .with(order::CASE_UNANSWERED, OrderCases { store, orders })
            .with(case::DEAD_LETTER, letters)
    }

    #[must_use]
    pub fn alerts(&self, config: &Config) -> alerts::Face {
        let alerts = Alerts::new(self.store.clone(), self.clock);
        alerts::Face { alerts, rules: config.alerts.rules.clone() }
    }

    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.store.clone(), self.clock)
    }

    /// An engine for the lanes that have something to do here. Without workers it performs only what
    /// its own callers begin.
    #[must_use]
    pub fn engine(&self, config: &Config, works: bool) -> Engine {
        let settings = Settings {
            worker: self.worker.clone(),
            poll: config.poll_interval,
            capacity: config.capacity,
            prune_every: config.prune_interval,
            keep_webhooks: config.webhooks.keep,
            keep_messages: config.queue.keep,
            keep_mails: config.mail.keep,
            keep_renders: config.renders.keep,
            mail_quota: config.mail.limits.daily_quota,
            seal_every: config.seal_interval,
            keep_audit: config.keep_audit,
            alerts: self.watched(config),
            join_trace: span_parent,
        };
        let worker = settings.worker.clone();
        let orders = OrderHandler::new(Arc::clone(&self.broker), config.idempotency_ttl);
        let mut engine = Engine::new(self.store.clone(), self.clock, self.ids.clone(), settings)
            .effect(order::KIND, orders)
            .effect(payment::KIND, PaymentHandler::new(Arc::clone(&self.till), &worker))
            .effect(payment::EXPIRY_KIND, ExpiryHandler::new(Arc::clone(&self.till), &worker))
            .effect(reservation::HOLD_KIND, HoldHandler::new(Arc::clone(&self.till)))
            .effect(render::GIVE_UP_KIND, GiveUpHandler::new(Arc::clone(&self.till)))
            .effect(event::KIND, EventHandler::new(&self.sinks))
            .effect(alert::notify::KIND, AlertHandler::new(self.alert_sink.clone()))
            .effect(webhook::KIND, self.webhook_handler(config, &worker))
            .effect(render::KIND, RenderHandler(Arc::clone(&self.studio)))
            .effect(render::COPY_KIND, CopyHandler(Arc::clone(&self.studio)))
            .effect(message::KIND, self.message_handler(config))
            .effect(message::schedule::KIND, ScheduleHandler(Arc::clone(&self.messages)))
            .effect(mail::KIND, MailHandler(Arc::clone(&self.office)))
            .effect(mail::batch::KIND, MailBatchHandler(Arc::clone(&self.office)))
            .effect(mail::deadline::KIND, DeadlineHandler(Arc::clone(&self.office)))
            .valve(Lane::MAIL, Arc::clone(&self.office.valve))
            .gates(Arc::clone(&self.gates))
            .hand(Arc::clone(&self.hand));
        if let Some(interval) = config.payments.reconcile_interval {
            let handler =
                ReconcileHandler::new(Arc::clone(&self.till), interval, config.payments.rules.keep);
            engine = engine.effect(RECONCILE_KIND, handler);
        }
        for lane in [
            Lane::ORDERS,
            Lane::PAYMENTS,
            Lane::TIMERS,
            Lane::EVENTS,
            Lane::WEBHOOKS,
            Lane::DELIVERIES,
            Lane::RENDERS,
        ] {
            if config.enabled_lanes.contains(&lane) {
                let policy = config.lane(&lane).clone();
                engine = engine.lane(lane, policy);
            }
        }
        if config.enabled_lanes.contains(&Lane::MAIL) {
            engine = engine.lane(Lane::MAIL, config.mail.lane.clone());
        }
        if works { engine } else { engine.without_claims() }
    }

    fn watched(&self, config: &Config) -> AlertSettings {
        let config_of = &config.alerts;
        AlertSettings {
            rules: config_of.rules.clone(),
            channels: Channels {
                webhook: self.alert_sink.as_ref().map(|sink| sink.name().to_owned()),
                mail_to: config_of.mail_to.clone(),
                keep: config.lane(&Lane::EVENTS).keep,
            },
            every: config_of.every,
            keep: config_of.keep,
        }
    }

    #[must_use]
    pub fn mails(&self) -> Mails {
        Mails::new(Arc::clone(&self.office))
    }

    fn message_handler(&self, config: &Config) -> MessageHandler {
        MessageHandler {
            store: self.store.clone(),
            ids: self.ids.clone(),
            courier: Arc::new(self.courier.clone()),
            workers: Arc::clone(&self.workers) as Arc<dyn Carrier>,
            keys: Arc::clone(&self.messages.keys),
            traffic: Arc::clone(&self.traffic),
            gates: Arc::clone(&self.gates),
            recent: Arc::clone(&self.recent),
            keep: config.lane(&Lane::DELIVERIES).keep,
            reopen: config.queue.dedup_reopen,
        }
    }

    fn webhook_handler(&self, config: &Config, worker: &str) -> WebhookHandler {
        let routes = config.webhooks.workers.iter().map(|worker| worker.route.clone());
        let forwards = config.lane(&Lane::DELIVERIES);
        WebhookHandler::new(Arc::clone(&self.till), routes.collect(), worker, forwards)
            .confirming(self.confirmers.clone())
            .rendering(Arc::clone(&self.studio))
    }

    pub fn webhooks(&self, config: &Config) -> Result<Webhooks, AppError> {
        let sources: Result<Vec<_>, _> =
            config.webhooks.sources.iter().map(SourceConfig::open).collect();
        let keep = config.lane(&Lane::WEBHOOKS).keep;
        Ok(Webhooks::new(self.store.clone(), self.clock, self.ids.clone(), sources?, keep))
    }

    #[must_use]
    pub fn renders(&self) -> Renders {
        Renders(Arc::clone(&self.studio))
    }

    #[must_use]
    pub fn billings(&self) -> Billings {
        Billings::new(self.store.clone(), self.clock, self.ids.clone())
    }

    /// What callers may do with payments, in the hands of a running engine.
    #[must_use]
    pub fn payments(&self, config: &Config, engine: &Arc<Engine>) -> Payments {
        Payments::new(Arc::clone(engine), Arc::clone(&self.till), answer_within(config))
    }

    /// What callers may do with reservations, in the hands of a running engine.
    #[must_use]
    pub fn reservations(&self, config: &Config, engine: &Arc<Engine>) -> Reservations {
        Reservations::new(Arc::clone(engine), Arc::clone(&self.till), answer_within(config))
    }
}

/// How long a caller waits for a gateway at most: told what is known then, and not cut off.
fn answer_within(config: &Config) -> Duration {
    (config.payments.timeout + ANSWER_MARGIN).min(config.http.request_timeout * 9 / 10)
}

/// `hostname:pid:…`, the last part new with every start: process ids come back.
fn worker_name(ids: &Ids) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "localhost",
        name => name,
    };
    format!("{host}:{}:{:08x}", std::process::id(), ids.number() & 0xffff_ffff)
}
