//! How settings must fit together.
//!
//! Each rule is a row: the settings it is about, why it holds, and a check that says what is wrong.
//! Called by the loader once every single value is in order; also printed into the documentation.
//! A configuration that breaks a rule is refused at start-up, because what it would do at run time is
//! not what anybody meant.

use std::time::Duration;

use secrecy::ExposeSecret as _;
use tashika_domain::{Lane, LanePolicy};

use super::keys::lane_name;
use super::{Adapter, Config, GatewayKind, MailProvider, RenderProvider};

/// Shortest token that may guard an address others can reach: 16 characters of a random token are
/// far beyond guessing at the rate at which wrong ones are answered.
pub const MIN_TOKEN_LENGTH: usize = 16;

/// Between the gateway's timeout and the answer to the caller: writing down what is known.
pub const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// One rule.
pub struct Rule {
    pub keys: [&'static str; 2],
    pub why: &'static str,
    broken: fn(&Config) -> Option<String>,
}

pub const RULES: &[Rule] = &[
    Rule {
        keys: ["TASHIKA_LISTEN", "TASHIKA_API_TOKENS"],
        why: "an address that others can reach needs tokens",
        broken: open_to_everybody,
    },
    Rule {
        keys: ["TASHIKA_API_TOKENS", "TASHIKA_LISTEN"],
        why: "on an address that others can reach, a token needs at least 16 characters",
        broken: short_token,
    },
    Rule {
        keys: ["BROKER_ADAPTER", "BROKER_URL"],
        why: "the http adapter must know where the broker is",
        broken: no_broker_url,
    },
    Rule {
        keys: ["BROKER_KEY_ID", "BROKER_SECRET"],
        why: "a signature needs both the key and its name",
        broken: half_a_key,
    },
    Rule {
        keys: ["BROKER_TIMEOUT_MS", "OUTBOX_LOCK_LEASE_SEC"],
        why: "a worker must hear from the broker, or give up on it, while the order is still its own",
        broken: timeout_outlives_lease,
    },
    Rule {
        keys: ["IDEMPO_TTL_HOURS", "OUTBOX_BACKOFF_SEC"],
        why: "a key must be remembered for as long as its order may still be tried; forgotten earlier, a repeat would become a second order",
        broken: forgotten_while_trying,
    },
    Rule {
        keys: ["PAYMENT_GATEWAY", "STRIPE_API_KEY"],
        why: "Stripe must know who is asking",
        broken: no_stripe_key,
    },
    Rule {
        keys: ["PAYMENT_GATEWAY", "PAYMENT_HTTP_URL"],
        why: "the http adapter must know where the gateway is",
        broken: no_gateway_url,
    },
    Rule {
        keys: ["PAYMENT_GATEWAY", "PAYMENT_HTTP_TOKEN"],
        why: "a gateway must know who is asking",
        broken: no_gateway_token,
    },
    Rule {
        keys: ["MAIL_PROVIDER", "SMTP_URL"],
        why: "mail goes nowhere without a server",
        broken: no_mail_server,
    },
    Rule {
        keys: ["MAIL_PROVIDER", "MAIL_FROM"],
        why: "mail that leaves this server needs a sender",
        broken: no_sender,
    },
    Rule {
        keys: ["RENDER_PROVIDER", "RENDER_URL"],
        why: "the http adapter must know where the service is",
        broken: no_render_url,
    },
    Rule {
        keys: ["RENDER_PROVIDER", "SHOTSTACK_API_KEY"],
        why: "Shotstack must know who is asking",
        broken: no_shotstack_key,
    },
    Rule {
        keys: ["RENDER_PROVIDER", "RENDER_TEMPLATE_FILE"],
        why: "Shotstack must be told what to make",
        broken: no_template,
    },
    Rule {
        keys: ["RL_RATE_PER_MIN", "RL_BURST"],
        why: "with a rate, a burst of 0 would refuse every order",
        broken: no_burst,
    },
];

fn no_mail_server(config: &Config) -> Option<String> {
    let missing = matches!(config.mail.provider, MailProvider::Smtp { url: None, .. });
    missing.then(|| "MAIL_PROVIDER is smtp, but SMTP_URL is not set".to_owned())
}

fn no_sender(config: &Config) -> Option<String> {
    let leaves = !matches!(config.mail.provider, MailProvider::Sandbox);
    (leaves && config.mail.from.is_none())
        .then(|| "MAIL_PROVIDER is not sandbox, but MAIL_FROM is not set".to_owned())
}

/// Everything that does not fit together.
#[must_use]
pub fn contradictions(config: &Config) -> Vec<String> {
    let found = RULES.iter().filter_map(|rule| {
        let what = (rule.broken)(config)?;
        Some(format!("{what}: {}", rule.why))
    });
    found.collect()
}

/// What is allowed and probably not meant.
#[must_use]
pub fn doubts(config: &Config) -> Vec<String> {
    let mut doubts = Vec::new();
    if config.tokens.is_empty() {
        doubts.push(format!(
            "TASHIKA_API_TOKENS is not set: everybody who can reach {} may use the API",
            config.http.listen
        ));
    }
    let url = config.broker.url.as_ref();
    if config.broker.adapter == Adapter::Paper && url.is_some() {
        doubts.push(
            "BROKER_URL is set, but BROKER_ADAPTER is paper: no order will reach it".to_owned(),
        );
    }
    if config.broker.adapter == Adapter::Http && config.broker.secret.is_none() {
        doubts.push(
            "BROKER_ADAPTER is http, but BROKER_SECRET is not set: requests are signed with no key"
                .to_owned(),
        );
    }
    let plain = url.filter(|url| url.scheme() == "http" && !is_local(url));
    if config.broker.adapter == Adapter::Http && plain.is_some() {
        doubts.push("BROKER_URL is not https: orders travel readable for others".to_owned());
    }
    let (timeout, request) = (config.payments.timeout, config.http.request_timeout);
    if config.payments.gateway != GatewayKind::Sandbox && timeout + ANSWER_MARGIN >= request {
        doubts.push(format!(
            "PAYMENT_GATEWAY_TIMEOUT_MS is {} ms and TASHIKA_REQUEST_TIMEOUT_MS is {} ms: a caller is \
             told that a payment is under way before its outcome is known to be lost",
            timeout.as_millis(),
            request.as_millis(),
        ));
    }
    let renders = &config.renders;
    if renders.provider == RenderProvider::Shotstack && renders.callbacks.is_none() {
        doubts.push(
            "RENDER_PROVIDER is shotstack, but TASHIKA_PUBLIC_URL or a source of kind shotstack in \
             WEBHOOK_SOURCES is missing: there are no callbacks, and a submission whose answer is \
             lost is made again at once"
                .to_owned(),
        );
    }
    doubts.extend(super::doubts::more(config));
    doubts
}

pub(super) fn is_local(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn open_to_everybody(config: &Config) -> Option<String> {
    let listen = config.http.listen;
    (!listen.ip().is_loopback() && config.tokens.is_empty())
        .then(|| format!("TASHIKA_LISTEN is {listen} and TASHIKA_API_TOKENS is empty"))
}

fn short_token(config: &Config) -> Option<String> {
    let listen = config.http.listen;
    let short = config.tokens.iter().any(|token| token.expose_secret().len() < MIN_TOKEN_LENGTH);
    (short && !listen.ip().is_loopback())
        .then(|| format!("TASHIKA_API_TOKENS has a short token and TASHIKA_LISTEN is {listen}"))
}

fn no_broker_url(config: &Config) -> Option<String> {
    (config.broker.adapter == Adapter::Http && config.broker.url.is_none())
        .then(|| "BROKER_ADAPTER is http and BROKER_URL is empty".to_owned())
}

fn half_a_key(config: &Config) -> Option<String> {
    match (&config.broker.key_id, &config.broker.secret) {
        (Some(_), None) => Some("BROKER_KEY_ID is set and BROKER_SECRET is empty".to_owned()),
        (None, Some(_)) => Some("BROKER_SECRET is set and BROKER_KEY_ID is empty".to_owned()),
        _ => None,
    }
}

fn timeout_outlives_lease(config: &Config) -> Option<String> {
    let timeout = config.broker.timeout;
    let lease = config.lane(&Lane::ORDERS).lease;
    (timeout >= lease).then(|| {
        format!(
            "BROKER_TIMEOUT_MS is {} ms and {} is {} s",
            timeout.as_millis(),
            in_force(config, "LOCK_LEASE_SEC"),
            lease.as_secs_f64(),
        )
    })
}

fn forgotten_while_trying(config: &Config) -> Option<String> {
    let ttl = config.idempotency_ttl;
    let tried_for = longest_retries(config.lane(&Lane::ORDERS));
    (ttl < tried_for).then(|| {
        format!(
            "IDEMPO_TTL_HOURS is {} h and {} adds up to {} s",
            ttl.as_secs_f64() / 3600.0,
            in_force(config, "BACKOFF_SEC"),
            tried_for.as_secs_f64(),
        )
    })
}

/// All waits between the first and the last attempt.
fn longest_retries(policy: &LanePolicy) -> Duration {
    let waits = (1..policy.max_attempts).map(|failures| policy.wait_after(failures, None));
    waits.fold(Duration::ZERO, Duration::saturating_add)
}

fn no_stripe_key(config: &Config) -> Option<String> {
    let payments = &config.payments;
    (payments.gateway == GatewayKind::Stripe && payments.stripe_key.is_none())
        .then(|| "PAYMENT_GATEWAY is stripe and STRIPE_API_KEY is empty".to_owned())
}

fn no_gateway_url(config: &Config) -> Option<String> {
    let payments = &config.payments;
    (payments.gateway == GatewayKind::Http && payments.http_url.is_none())
        .then(|| "PAYMENT_GATEWAY is http and PAYMENT_HTTP_URL is empty".to_owned())
}

fn no_gateway_token(config: &Config) -> Option<String> {
    let payments = &config.payments;
    (payments.gateway == GatewayKind::Http && payments.http_token.is_none())
        .then(|| "PAYMENT_GATEWAY is http and PAYMENT_HTTP_TOKEN is empty".to_owned())
}

fn no_render_url(config: &Config) -> Option<String> {
    let renders = &config.renders;
    (renders.provider == RenderProvider::Http && renders.url.is_none())
        .then(|| "RENDER_PROVIDER is http and RENDER_URL is empty".to_owned())
}

fn no_shotstack_key(config: &Config) -> Option<String> {
    let shotstack = config.renders.provider == RenderProvider::Shotstack;
    (shotstack && config.webhooks.shotstack.is_none())
        .then(|| "RENDER_PROVIDER is shotstack and SHOTSTACK_API_KEY is empty".to_owned())
}

fn no_template(config: &Config) -> Option<String> {
    let renders = &config.renders;
    (renders.provider == RenderProvider::Shotstack && renders.template_file.is_none())
        .then(|| "RENDER_PROVIDER is shotstack and RENDER_TEMPLATE_FILE is empty".to_owned())
}

fn no_burst(config: &Config) -> Option<String> {
    let limits = &config.rate_limits;
    (limits.rate_per_min > 0.0 && limits.burst == 0)
        .then(|| format!("RL_RATE_PER_MIN is {} and RL_BURST is 0", limits.rate_per_min))
}

/// The name under which the orders lane's value was set, so that the message names what to change.
fn in_force(config: &Config, suffix: &str) -> String {
    let own = lane_name(&Lane::ORDERS, suffix);
    if config.settings.contains_key(&own) { own } else { format!("OUTBOX_{suffix}") }
}
