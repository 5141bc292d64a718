//! Settings of payments and events, typed.

use std::time::Duration;

use secrecy::SecretString;
use tashika_domain::payment::PaymentRules;
use url::Url;

use super::{Reader, Value, some};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayKind {
    Sandbox,
    Stripe,
    Http,
}

#[derive(Clone, Debug)]
pub struct PaymentConfig {
    pub gateway: GatewayKind,
    pub timeout: Duration,
    /// `sinks` are filled in by whoever opens them.
    pub rules: PaymentRules,
    /// `None`: never.
    pub reconcile_interval: Option<Duration>,
    pub stripe_key: Option<SecretString>,
    pub stripe_base: Option<Url>,
    pub http_url: Option<Url>,
    pub http_token: Option<SecretString>,
}

#[derive(Clone, Debug)]
pub struct EventConfig {
    pub sink_urls: Vec<SecretString>,
    pub sink_secret: Option<SecretString>,
    pub sink_timeout: Duration,
}

pub(super) fn payments(read: &Reader, keep: Duration) -> PaymentConfig {
    let interval = read.span("PAYMENT_RECONCILE_INTERVAL_SEC");
    PaymentConfig {
        gateway: match read.text("PAYMENT_GATEWAY").as_str() {
            "stripe" => GatewayKind::Stripe,
            "http" => GatewayKind::Http,
            _ => GatewayKind::Sandbox,
        },
        timeout: read.span("PAYMENT_GATEWAY_TIMEOUT_MS"),
        rules: PaymentRules {
            verify_interval: read.span("PAYMENT_VERIFY_INTERVAL_SEC"),
            verify_max: u32::try_from(read.int("PAYMENT_VERIFY_MAX_ATTEMPTS")).unwrap_or(u32::MAX),
            retry_backoff: match read.get("PAYMENT_RETRY_BACKOFF_SEC") {
                Value::Spans(spans) => spans.clone(),
                other => unreachable!("PAYMENT_RETRY_BACKOFF_SEC is {other:?}"),
            },
            authorization_lifetime: read.span("PAYMENT_AUTHORIZATION_LIFETIME_SEC"),
            remember: read.span("PAYMENT_IDEMPO_TTL_HOURS"),
            keep,
            sinks: Vec::new(),
        },
        reconcile_interval: (!interval.is_zero()).then_some(interval),
        stripe_key: some(read.text("STRIPE_API_KEY")).map(SecretString::from),
        stripe_base: read.url("STRIPE_API_BASE"),
        http_url: read.url("PAYMENT_HTTP_URL"),
        http_token: some(read.text("PAYMENT_HTTP_TOKEN")).map(SecretString::from),
    }
}

pub(super) fn events(read: &Reader) -> EventConfig {
    let urls = read.text("EVENT_SINK_URLS");
    let urls = urls.split(',').map(str::trim).filter(|url| !url.is_empty());
    EventConfig {
        sink_urls: urls.map(SecretString::from).collect(),
        sink_secret: some(read.text("EVENT_SINK_SECRET")).map(SecretString::from),
        sink_timeout: read.span("EVENT_SINK_TIMEOUT_MS"),
    }
}
