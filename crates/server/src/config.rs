//! Configuration: one typed value, made of documented defaults, a file and the environment.
//!
//! Loaded once by every command, then passed down by reference; nothing else reads the environment.
//! It guarantees that every value is in its range, that no two settings contradict each other
//! (`rules`), and that secrets are shown nowhere. It does not watch for changes: a new configuration
//! takes a restart.

mod alert;
mod console;
pub mod documentation;
mod doubts;
pub mod keys;
mod mail;
mod payments;
mod queue;
mod render;
mod reservation;
mod rules;
mod source;
mod value;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::order::OrderRules;
use tashika_domain::reservation::ReservationRules;
use tashika_domain::{Lane, LanePolicy};
use url::Url;

pub use alert::AlertConfig;
pub use console::{ConsoleConfig, Role, User};
pub use mail::{MailConfig, MailProvider};
pub use payments::{EventConfig, GatewayKind, PaymentConfig};
pub use queue::{QstashConfig, QueueConfig};
pub use render::{RenderConfig, RenderProvider};
pub use rules::ANSWER_MARGIN;
pub use source::{DEFAULTS, Origin, Setting, Sources};
use value::Value;
pub use webhooks::{SourceConfig, WebhookConfig, WorkerConfig};

/// Everything that was decided outside the program.
#[derive(Clone, Debug)]
pub struct Config {
    pub http: HttpConfig,
    /// Where others reach this server. `None`: where it listens.
    pub public_url: Option<Url>,
    /// `sqlite:PATH` or `postgres://…`; may hold a password.
    pub database_url: SecretString,
    pub postgres_connections: usize,
    /// Empty: everybody is `anonymous`.
    pub tokens: Vec<SecretString>,
    /// How long open work may take to end after the first signal.
    pub shutdown: Duration,
    pub logs: LogConfig,
    /// `None`: traces are off.
    pub traces: Option<TraceConfig>,
    pub poll_interval: Duration,
    pub prune_interval: Duration,
    /// Effects of all lanes together that may run at once; 0 is no limit beyond the lanes' own.
    pub capacity: usize,
    /// The limits of each of Tashika's own lanes.
    pub lanes: BTreeMap<Lane, LanePolicy>,
    /// Lanes from which effects are sent; the others accept and wait.
    pub enabled_lanes: BTreeSet<Lane>,
    pub idempotency_ttl: Duration,
    pub rate_limits: RateLimits,
    pub orders: OrderRules,
    pub broker: BrokerConfig,
    pub payments: PaymentConfig,
    pub reservations: ReservationRules,
    pub events: EventConfig,
    pub webhooks: WebhookConfig,
    pub queue: QueueConfig,
    pub alerts: AlertConfig,
    pub console: ConsoleConfig,
    pub mail: MailConfig,
    pub renders: RenderConfig,
    pub seal_interval: Duration,
    /// `None`: for ever.
    pub keep_audit: Option<Duration>,
    /// Things that are allowed and probably not meant; log them once.
    pub warnings: Vec<String>,
    settings: BTreeMap<String, Setting>,
    fallback: LanePolicy,
}

/// Where and within which limits HTTP is served.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    pub listen: SocketAddr,
    pub body_limit: usize,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub request_timeout: Duration,
    pub keep_alive: Duration,
    pub max_connections: usize,
    pub max_headers: usize,
    pub max_header_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// Base address of the collector, without `/v1/traces`.
    pub endpoint: Url,
    pub service_name: String,
}

/// Limits per client; 0 is unlimited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimits {
    pub rate_per_min: f64,
    pub burst: u32,
    pub daily_quota: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    Paper,
    Http,
}

#[derive(Clone, Debug)]
pub struct BrokerConfig {
    pub adapter: Adapter,
    pub url: Option<Url>,
    pub key_id: Option<String>,
    pub secret: Option<SecretString>,
    pub timeout: Duration,
    /// The broker recognises a repeated idempotency key.
    pub idempotency_keys: bool,
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used:")?;
        for problem in &self.problems {
            write!(f, "\n  - {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// One line of what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    pub name: String,
    /// Secrets are hidden.
    pub value: String,
    pub origin: String,
}

impl Config {
    /// Reads the file (if one is named) and the process's environment.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let sources =
            Sources::of_process(file).map_err(|problem| ConfigError { problems: vec![problem] })?;
        Self::from_sources(&sources)
    }

    pub fn from_sources(sources: &Sources) -> Result<Self, ConfigError> {
        let resolved = source::resolve(sources);
        if !resolved.problems.is_empty() {
            return Err(ConfigError { problems: resolved.problems });
        }
        let mut reader = Reader { settings: resolved.settings, problems: Vec::new() };
        let mut config = build(&mut reader);
        let mut problems = reader.problems;
        config.settings = reader.settings;
        problems.extend(rules::contradictions(&config));
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        config.warnings = resolved.warnings;
        config.warnings.extend(rules::doubts(&config));
        Ok(config)
    }

    /// The limits of a lane; one that is not Tashika's own has those of `OUTBOX_*`.
    #[must_use]
    pub fn lane(&self, lane: &Lane) -> &LanePolicy {
        self.lanes.get(lane).unwrap_or(&self.fallback)
    }

    /// What is in force and where it came from, secrets hidden. Lanes appear where they override.
    #[must_use]
    pub fn effective(&self) -> Vec<Effective> {
        keys::all_names()
            .into_iter()
            .filter_map(|known| {
                let setting = self.settings.get(&known.name)?;
                Some(Effective {
                    name: known.name,
                    value: setting.shown.clone(),
                    origin: setting.origin.to_string(),
                })
            })
            .collect()
    }
}

fn build(read: &mut Reader) -> Config {
    let lanes = Lane::OWN.map(|lane| {
        let policy = read.lane_policy(Some(&lane));
        (lane, policy)
    });
    let webhooks = webhooks::webhooks(read);
    let public_url = read.url("TASHIKA_PUBLIC_URL");
    let keep = read.lane_policy(Some(&Lane::RENDERS)).keep;
    let renders = render::renders(read, &webhooks.sources, public_url.as_ref(), keep);
    let enabled = Lane::OWN.into_iter().filter(|lane| read.lane_bool(lane, "ENABLED"));
    Config {
        http: HttpConfig {
            listen: read.address("TASHIKA_LISTEN"),
            body_limit: read.size("TASHIKA_BODY_LIMIT_BYTES"),
            header_timeout: read.span("TASHIKA_HEADER_TIMEOUT_MS"),
            body_timeout: read.span("TASHIKA_BODY_TIMEOUT_MS"),
            request_timeout: read.span("TASHIKA_REQUEST_TIMEOUT_MS"),
            keep_alive: read.span("TASHIKA_KEEP_ALIVE_SEC"),
            max_connections: read.size("TASHIKA_MAX_CONNECTIONS"),
            max_headers: read.size("TASHIKA_MAX_HEADERS"),
            max_header_bytes: read.size("TASHIKA_MAX_HEADER_BYTES"),
        },
        public_url,
        database_url: read.text("TASHIKA_DATABASE_URL").into(),
        postgres_connections: read.size("TASHIKA_POSTGRES_CONNECTIONS"),
        enabled_lanes: enabled.collect(),
        lanes: lanes.into(),
        tokens: read.tokens(),
        shutdown: read.span("TASHIKA_SHUTDOWN_SEC"),
        logs: LogConfig {
            filter: read.text("TASHIKA_LOG"),
            format: match read.text("TASHIKA_LOG_FORMAT").as_str() {
                "text" => LogFormat::Text,
                _ => LogFormat::Json,
            },
        },
        traces: read
            .url("OTEL_EXPORTER_OTLP_ENDPOINT")
            .map(|endpoint| TraceConfig { endpoint, service_name: read.text("OTEL_SERVICE_NAME") }),
        poll_interval: read.span("OUTBOX_POLL_INTERVAL_SEC"),
        prune_interval: read.span("OUTBOX_PRUNE_INTERVAL_SEC"),
        capacity: read.size("OUTBOX_CAPACITY"),
        idempotency_ttl: read.span("IDEMPO_TTL_HOURS"),
        rate_limits: RateLimits {
            rate_per_min: read.float("RL_RATE_PER_MIN"),
            burst: u32::try_from(read.int("RL_BURST")).unwrap_or(u32::MAX),
            daily_quota: i64::try_from(read.int("DAILY_QUOTA")).unwrap_or(i64::MAX),
        },
        orders: OrderRules {
            instruments: read.instruments(),
            min_lot: read.float("ORDER_MIN_LOT"),
            lot_step: read.float("ORDER_LOT_STEP"),
        },
        broker: BrokerConfig {
            adapter: match read.text("BROKER_ADAPTER").as_str() {
                "http" => Adapter::Http,
                _ => Adapter::Paper,
            },
            url: read.url("BROKER_URL"),
            key_id: some(read.text("BROKER_KEY_ID")),
            secret: some(read.text("BROKER_SECRET")).map(SecretString::from),
            timeout: read.span("BROKER_TIMEOUT_MS"),
            idempotency_keys: read.bool("BROKER_IDEMPOTENCY_KEYS"),
        },
        payments: payments::payments(read, read.lane_policy(Some(&Lane::PAYMENTS)).keep),
        reservations: reservation::reservations(read),
        events: payments::events(read),
        webhooks,
        queue: queue::queue(read),
        alerts: alert::alerts(read),
        console: console::console(read),
        mail: mail::mail(read, &read.lane_policy(Some(&Lane::MAIL))),
        renders,
        seal_interval: read.span("AUDIT_SEAL_INTERVAL_SEC"),
        keep_audit: match read.float("AUDIT_KEEP_DAYS") {
            0.0 => None,
            days => Some(Duration::from_secs_f64(days * 86_400.0)),
        },
        warnings: Vec::new(),
        settings: BTreeMap::new(),
        fallback: read.lane_policy(None),
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Typed access to what was resolved.
///
/// The kinds were checked against the table when the values were read, so asking for the wrong one is
/// a mistake in this file; loading the defaults, which every test here does, would show it.
struct Reader {
    settings: BTreeMap<String, Setting>,
    problems: Vec<String>,
}

impl Reader {
    fn get(&self, name: &str) -> &Value {
        match self.settings.get(name) {
            Some(setting) => &setting.value,
            None => unreachable!("{name} has no default"),
        }
    }

    fn int(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Int(number) => *number,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn size(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).unwrap_or(usize::MAX)
    }

    fn float(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Float(number) => *number,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn bool(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Bool(truth) => *truth,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn span(&self, name: &str) -> Duration {
        match self.get(name) {
            Value::Span(span) => *span,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn text(&self, name: &str) -> String {
        match self.get(name) {
            Value::Text(text) => text.clone(),
            _ => unreachable!("{name} is not a text"),
        }
    }

    fn address(&self, name: &str) -> SocketAddr {
        match self.get(name) {
            Value::Address(address) => *address,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn url(&self, name: &str) -> Option<Url> {
        match self.get(name) {
            Value::Url(url) => url.clone(),
            _ => unreachable!("{name} is not an address"),
        }
    }

    fn tokens(&mut self) -> Vec<SecretString> {
        let text = self.text("TASHIKA_API_TOKENS");
        let tokens: Vec<&str> = text.split(',').map(str::trim).collect();
        let tokens: Vec<&str> = tokens.into_iter().filter(|t| !t.is_empty()).collect();
        if tokens.iter().any(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            // A header cannot carry anything else, so such a token could never be presented.
            self.problems.push(
                "TASHIKA_API_TOKENS: expected tokens of visible ASCII characters, separated by commas"
                    .to_owned(),
            );
        }
        tokens.into_iter().map(SecretString::from).collect()
    }

    fn instruments(&mut self) -> Option<Vec<String>> {
        let Value::Words(words) = self.get("ORDER_INSTRUMENTS") else {
            unreachable!("ORDER_INSTRUMENTS is a list of words");
        };
        let words = words.clone();
        for word in &words {
            let letter =
                |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "._-".contains(c);
            if !(3..=20).contains(&word.len()) || !word.chars().all(letter) {
                self.problems.push(format!(
                    "ORDER_INSTRUMENTS: {word:?} can be no instrument; expected 3 to 20 of A-Z, 0-9, '.', '_' and '-'"
                ));
            }
        }
        (!words.is_empty()).then_some(words)
    }

    /// The name in force for a lane: its own where it is set, else the one for all lanes.
    fn name_for(&self, lane: Option<&Lane>, suffix: &str) -> String {
        lane.map(|lane| keys::lane_name(lane, suffix))
            .filter(|name| self.settings.contains_key(name))
            .unwrap_or_else(|| format!("OUTBOX_{suffix}"))
    }

    fn lane_bool(&self, lane: &Lane, suffix: &str) -> bool {
        self.bool(&self.name_for(Some(lane), suffix))
    }

    /// A lane's setting; its own default gives way to anything that somebody has set.
    fn lane_value(&self, lane: Option<&Lane>, suffix: &str) -> Value {
        let name = self.name_for(lane, suffix);
        let unset = self.settings.get(&name).is_some_and(|s| s.origin == Origin::Default);
        let own = lane.and_then(|lane| keys::lane_default(lane, suffix)).filter(|_| unset);
        match own.map(|(key, text)| value::read(key.kind, text)) {
            Some(Ok(own)) => own,
            _ => self.get(&name).clone(),
        }
    }

    fn lane_policy(&self, lane: Option<&Lane>) -> LanePolicy {
        let int = |suffix| match self.lane_value(lane, suffix) {
            Value::Int(number) => number,
            other => unreachable!("OUTBOX_{suffix} is {other:?}"),
        };
        let small = |suffix| u32::try_from(int(suffix)).unwrap_or(u32::MAX);
        let name = |suffix| self.name_for(lane, suffix);
        let rate = self.float(&name("RATE_PER_SEC"));
        LanePolicy {
            concurrency: usize::try_from(int("CONCURRENCY")).unwrap_or(usize::MAX),
            batch: usize::try_from(int("BATCH")).unwrap_or(usize::MAX),
            rate_per_sec: (rate > 0.0).then_some(rate),
            lease: self.span(&name("LOCK_LEASE_SEC")),
            max_attempts: small("MAX_ATTEMPTS"),
            backoff: match self.lane_value(lane, "BACKOFF_SEC") {
                Value::Spans(spans) => spans,
                other => unreachable!("OUTBOX_BACKOFF_SEC is {other:?}"),
            },
            weight: small("WEIGHT"),
            keep: self.span(&name("KEEP_HOURS")),
        }
    }
}

#[cfg(test)]
mod tests;
