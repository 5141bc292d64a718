//! A process of Tashika, put together from its configuration.
//!
//! Used by every command that needs the store: `serve` starts what is here, the operator commands
//! ask it.

use std::sync::Arc;

use secrecy::ExposeSecret as _;
use tashika_domain::{Lane, order};
use tashika_engine::commands::order::Orders;
use tashika_engine::commands::{Limits, outbox::Outbox};
use tashika_engine::{Clock, Engine, Ids, OrderHandler, Settings};
use tashika_providers::broker::Broker;
use tashika_providers::broker::http::{HttpBroker, Profile, ProfileError};
use tashika_providers::broker::paper::PaperBroker;
use tashika_providers::http::ClientConfig;
use tashika_providers::signature::Nonces;
use tashika_store::{Store, StoreError};

use crate::config::{Adapter, BrokerConfig, Config, RateLimits};
use crate::telemetry::span_parent;

pub struct App {
    pub store: Store,
    pub clock: Clock,
    pub ids: Ids,
    pub limits: Arc<Limits>,
    pub broker: Arc<dyn Broker>,
}

/// Why a process could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("BROKER_URL: {0}")]
    Broker(#[from] ProfileError),
    #[error("TASHIKA_DATABASE_URL: there is no database at {0} yet; `tashika serve` makes one")]
    NoDatabase(String),
}

impl App {
    pub async fn open(config: &Config) -> Result<Self, AppError> {
        let clock = Clock::System;
        let ids = Ids::random(clock);
        let broker = broker(&config.broker, &ids)?;
        let url = config.database_url.expose_secret();
        let store = Store::open(url, config.postgres_connections).await?;
        let RateLimits { rate_per_min, burst, daily_quota } = config.rate_limits;
        let limits = Arc::new(Limits::new(rate_per_min, burst, daily_quota));
        Ok(Self { store, clock, ids, limits, broker })
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

    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.store.clone(), self.clock)
    }

    /// An engine for the lanes that have something to do here.
    #[must_use]
    pub fn engine(&self, config: &Config) -> Engine {
        let settings = Settings {
            worker: worker_name(&self.ids),
            poll: config.poll_interval,
            capacity: config.capacity,
            prune_every: config.prune_interval,
            join_trace: span_parent,
        };
        let handler = OrderHandler::new(Arc::clone(&self.broker), config.idempotency_ttl);
        let engine = Engine::new(self.store.clone(), self.clock, self.ids.clone(), settings)
            .effect(order::KIND, handler);
        if config.enabled_lanes.contains(&Lane::ORDERS) {
            engine.lane(Lane::ORDERS, config.lane(&Lane::ORDERS).clone())
        } else {
            engine
        }
    }
}

fn broker(config: &BrokerConfig, ids: &Ids) -> Result<Arc<dyn Broker>, ProfileError> {
    match (config.adapter, &config.url) {
        (Adapter::Http, Some(url)) => {
            let profile = Profile {
                name: "http".into(),
                base_url: url.to_string(),
                key_id: config.key_id.clone().unwrap_or_default(),
                secret: config.secret.clone().unwrap_or_default(),
                takes_keys: config.idempotency_keys,
                client: ClientConfig::with_timeout(config.timeout),
            };
            let nonces = Nonces::new(ids.number().to_be_bytes());
            Ok(Arc::new(HttpBroker::new(profile, nonces)?))
        }
        _ => Ok(Arc::new(PaperBroker::new())),
    }
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
