//! Settings of webhooks, typed.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tashika_domain::webhook::Route;
use tashika_providers::http::ClientConfig;
use tashika_providers::shotstack::{API_BASE, ShotstackConfig};
use tashika_providers::webhook::{
    Algorithm, Encoding, GenericHmac, Scheme, SecretEncoding, Source, SourceError,
};

use super::{Reader, Value, some};

#[derive(Clone, Debug)]
pub struct WebhookConfig {
    pub sources: Vec<SourceConfig>,
    pub keep: Duration,
    pub workers: Vec<WorkerConfig>,
    pub forward_secret: Option<SecretString>,
    pub forward_timeout: Duration,
    /// How Shotstack is asked whether its callbacks are true.
    pub shotstack: Option<ShotstackConfig>,
}

/// A sender, checked when it is opened.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: String,
    pub scheme: Scheme,
}

impl SourceConfig {
    pub fn open(&self) -> Result<Source, SourceError> {
        Source::new(self.name.clone(), self.scheme.clone())
    }
}

/// A worker that events are forwarded to.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    pub name: String,
    pub url: SecretString,
    pub route: Route,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Generic {
    header: String,
    #[serde(default)]
    algorithm: Algorithm,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    secret_encoding: SecretEncoding,
    #[serde(default)]
    prefix: String,
    timestamp_header: Option<String>,
    template: Option<String>,
    id_header: Option<String>,
    id_field: Option<String>,
    type_field: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Forward {
    name: String,
    source: Option<String>,
    #[serde(default)]
    types: Vec<String>,
    url: String,
}

pub(super) fn webhooks(read: &mut Reader) -> WebhookConfig {
    let tolerance = read.span("WEBHOOK_TOLERANCE_SEC");
    let mut sources = Vec::new();
    let stripe = secrets(&read.text("STRIPE_WEBHOOK_SECRET"));
    if !stripe.is_empty() {
        let scheme = Scheme::Stripe { secrets: stripe, tolerance };
        sources.push(SourceConfig { name: "stripe".to_owned(), scheme });
    }
    let known = named_secrets(read);
    let generic = generic(read);
    let Value::Words(words) = read.get("WEBHOOK_SOURCES").clone() else {
        unreachable!("WEBHOOK_SOURCES is a list of words");
    };
    for word in words {
        let (name, kind) = word.split_once(':').unwrap_or((&word, &word));
        let secrets = known.get(name).cloned().unwrap_or_default();
        match scheme(name, kind, secrets, tolerance, &generic) {
            Ok(_) if sources.iter().any(|source| source.name == name) => {
                read.problems.push(format!("WEBHOOK_SOURCES: {name:?} stands twice"));
            }
            Ok(scheme) => sources.push(SourceConfig { name: name.to_owned(), scheme }),
            Err(problem) => read.problems.push(problem),
        }
    }
    for source in &sources {
        if let Err(problem) = source.open() {
            let name = &source.name;
            read.problems.push(format!("WEBHOOK_SOURCES, WEBHOOK_SECRETS: {name:?}: {problem}"));
        }
    }
    let shotstack = shotstack(read, &sources);
    let days = read.float("WEBHOOK_KEEP_DAYS");
    WebhookConfig {
        sources,
        keep: Duration::from_secs_f64(days * 86_400.0),
        workers: workers(read),
        forward_secret: some(read.text("WEBHOOK_FORWARD_SECRET")).map(SecretString::from),
        forward_timeout: read.span("WEBHOOK_FORWARD_TIMEOUT_MS"),
        shotstack,
    }
}

fn shotstack(read: &mut Reader, sources: &[SourceConfig]) -> Option<ShotstackConfig> {
    let api_base = read.url("SHOTSTACK_API_BASE").map_or(API_BASE.to_owned(), Into::into);
    let client = ClientConfig::with_timeout(read.span("SHOTSTACK_TIMEOUT_MS"));
    if let Some(key) = some(read.text("SHOTSTACK_API_KEY")) {
        return Some(ShotstackConfig { api_base, api_key: SecretString::from(key), client });
    }
    if let Some(source) = sources.iter().find(|s| matches!(s.scheme, Scheme::Shotstack)) {
        let name = &source.name;
        read.problems.push(format!(
            "SHOTSTACK_API_KEY: {name:?} in WEBHOOK_SOURCES signs nothing, and without this key nothing it says can be confirmed"
        ));
    }
    None
}

fn secrets(list: &str) -> Vec<SecretString> {
    list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(SecretString::from).collect()
}

fn named_secrets(read: &mut Reader) -> BTreeMap<String, Vec<SecretString>> {
    let mut known: BTreeMap<String, Vec<SecretString>> = BTreeMap::new();
    for pair in secrets(&read.text("WEBHOOK_SECRETS")) {
        match pair.expose_secret().split_once('=') {
            Some((name, secret)) => {
                known.entry(name.to_owned()).or_default().push(SecretString::from(secret));
            }
            None => read
                .problems
                .push("WEBHOOK_SECRETS: expected name=secret, separated by commas".to_owned()),
        }
    }
    known
}

fn generic(read: &mut Reader) -> BTreeMap<String, Generic> {
    let text = read.text("WEBHOOK_GENERIC");
    if text.is_empty() {
        return BTreeMap::new();
    }
    serde_json::from_str(&text).unwrap_or_else(|error| {
        read.problems.push(format!("WEBHOOK_GENERIC: {error}"));
        BTreeMap::new()
    })
}

fn scheme(
    name: &str,
    kind: &str,
    secrets: Vec<SecretString>,
    tolerance: Duration,
    generic: &BTreeMap<String, Generic>,
) -> Result<Scheme, String> {
    Ok(match kind {
        "stripe" => Scheme::Stripe { secrets, tolerance },
        "standard-webhooks" => Scheme::StandardWebhooks { secrets, tolerance },
        "github" => Scheme::Github { secrets },
        "shopify" => Scheme::Shopify { secrets },
        "slack" => Scheme::Slack { secrets, tolerance },
        "shotstack" => Scheme::Shotstack,
        "generic-hmac" => {
            let Some(how) = generic.get(name) else {
                return Err(format!("WEBHOOK_GENERIC: nothing is said about {name:?}"));
            };
            let plain = GenericHmac::new(how.header.clone(), secrets);
            Scheme::GenericHmac(GenericHmac {
                algorithm: how.algorithm,
                encoding: how.encoding,
                secret_encoding: how.secret_encoding,
                prefix: how.prefix.clone(),
                timestamp_header: how.timestamp_header.clone(),
                tolerance,
                template: how.template.clone().unwrap_or(plain.template),
                id_header: how.id_header.clone(),
                id_field: how.id_field.clone().unwrap_or(plain.id_field),
                type_field: how.type_field.clone().unwrap_or(plain.type_field),
                header: plain.header,
                secrets: plain.secrets,
            })
        }
        other => return Err(format!("WEBHOOK_SOURCES: {other:?} is no kind of sender")),
    })
}

fn workers(read: &mut Reader) -> Vec<WorkerConfig> {
    let text = read.text("WEBHOOK_FORWARD");
    if text.is_empty() {
        return Vec::new();
    }
    let listed: Vec<Forward> = serde_json::from_str(&text).unwrap_or_else(|error| {
        read.problems.push(format!("WEBHOOK_FORWARD: {error}"));
        Vec::new()
    });
    let worker = |forward: Forward| WorkerConfig {
        route: Route { source: forward.source, types: forward.types, to: forward.name.clone() },
        name: forward.name,
        url: SecretString::from(forward.url),
    };
    listed.into_iter().map(worker).collect()
}
