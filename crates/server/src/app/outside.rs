//! Whoever is spoken to, as the configuration says: gateways, brokers, destinations, mail servers, renders.

use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tashika_domain::Lane;
use tashika_engine::commands::message::QueueRules;
use tashika_engine::{Confirmers, Ids, KeyRing, StoredBook};
use tashika_providers::broker::Broker;
use tashika_providers::broker::http::{HttpBroker, Profile, ProfileError};
use tashika_providers::broker::paper::PaperBroker;
use tashika_providers::courier::{Courier, CourierConfig, CourierError};
use tashika_providers::gateway::Gateway;
use tashika_providers::gateway::http::{HttpGateway, HttpGatewayConfig};
use tashika_providers::gateway::sandbox::SandboxGateway;
use tashika_providers::gateway::stripe::{self, StripeConfig, StripeGateway};
use tashika_providers::guard::Guard;
use tashika_providers::http::{ClientConfig, Vetting};
use tashika_providers::mail::{FilePostman, Postman, SandboxPostman, SmtpPostman};
use tashika_providers::qstash::QstashClient;
use tashika_providers::render::Renderer;
use tashika_providers::render::fetch::Fetcher;
use tashika_providers::render::http::HttpRenderer;
use tashika_providers::render::sandbox::SandboxRenderer;
use tashika_providers::render::shotstack::ShotstackRenderer;
use tashika_providers::render::template::Template;
use tashika_providers::shotstack::{Shotstack, ShotstackError};
use tashika_providers::signature::Nonces;
use tashika_providers::sink::{Sink, SinkError};
use tashika_providers::workers::{Worker, Workers};
use tashika_store::Store;

use super::AppError;
use crate::config::{
    Adapter, AlertConfig, BrokerConfig, Config, EventConfig, GatewayKind, MailConfig, MailProvider,
    PaymentConfig, QueueConfig, RenderConfig, RenderProvider, WebhookConfig,
};

/// How long a destination may take to be connected to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the copy of an output may take as a whole; its lease is renewed meanwhile.
const COPY_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long QStash may take to take a message.
const RELAY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn key_ring(config: &QueueConfig, store: &Store) -> KeyRing {
    let text = |key: &secrecy::SecretString| key.expose_secret().to_owned();
    let fixed = config.keys.as_ref().map(|(current, next)| (text(current), text(next)));
    KeyRing::new(store.clone(), fixed)
}

pub(super) fn queue_rules(config: &Config) -> QueueRules {
    QueueRules {
        dedup_window: config.queue.dedup_window,
        keep: config.lane(&Lane::DELIVERIES).keep,
        guard: config.queue.guard.clone(),
    }
}

pub(super) fn courier(
    config: &QueueConfig,
    guard: Guard,
    idle_per_host: usize,
) -> Result<Courier, CourierError> {
    Courier::new(CourierConfig {
        max_timeout: config.max_timeout,
        connect_timeout: CONNECT_TIMEOUT,
        max_response: config.max_response,
        idle_per_host,
        guard,
        roots_pem: None,
    })
}

pub(super) type Opened = (Arc<dyn Gateway>, Option<Arc<SandboxGateway>>);

pub(super) fn gateway(config: &PaymentConfig, store: &Store) -> Result<Opened, AppError> {
    let client = ClientConfig::with_timeout(config.timeout);
    let gateway: Arc<dyn Gateway> = match (config.gateway, &config.stripe_key, &config.http_url) {
        (GatewayKind::Stripe, Some(key), _) => {
            let api_base = match &config.stripe_base {
                Some(base) => base.to_string(),
                None => stripe::API_BASE.to_owned(),
            };
            Arc::new(StripeGateway::new(StripeConfig { api_key: key.clone(), api_base, client })?)
        }
        (GatewayKind::Http, _, Some(url)) => {
            let token = config.http_token.clone().unwrap_or_default();
            let base_url = url.to_string();
            Arc::new(HttpGateway::new(HttpGatewayConfig { base_url, token, client })?)
        }
        _ => {
            let book = Arc::new(StoredBook(store.clone()));
            let sandbox = Arc::new(SandboxGateway::new(book, config.timeout));
            return Ok((Arc::clone(&sandbox) as Arc<dyn Gateway>, Some(sandbox)));
        }
    };
    Ok((gateway, None))
}

pub(super) fn renderer(
    config: &RenderConfig,
    known: &Confirmers,
) -> Result<Arc<dyn Renderer>, AppError> {
    Ok(match (config.provider, &known.shotstack, &config.url) {
        (RenderProvider::Shotstack, Some(shotstack), _) => {
            let path = config.template_file.clone().unwrap_or_default();
            let text = std::fs::read_to_string(path).map_err(AppError::TemplateFile)?;
            Arc::new(ShotstackRenderer::new(Arc::clone(shotstack), Template::parse(&text)?))
        }
        (RenderProvider::Http, _, Some(url)) => {
            let client = ClientConfig::with_timeout(config.timeout);
            Arc::new(HttpRenderer::new(url.as_str(), config.token.as_ref(), &client)?)
        }
        _ => Arc::new(SandboxRenderer::new(config.timeout)),
    })
}

pub(super) fn postman(config: &MailConfig) -> Result<Arc<dyn Postman>, String> {
    Ok(match &config.provider {
        MailProvider::Sandbox => Arc::new(SandboxPostman::new(config.timeout)),
        MailProvider::File(folder) => {
            let opened = FilePostman::new(folder);
            Arc::new(opened.map_err(|error| format!("MAIL_FILE_DIR: {error}"))?)
        }
        MailProvider::Smtp { url, roots } => {
            let url = url.clone().ok_or("SMTP_URL is not set")?;
            let roots = roots.as_ref().map(std::fs::read).transpose();
            let roots = roots.map_err(|error| format!("SMTP_CA_FILE: {error}"))?;
            let opened = SmtpPostman::new(url, roots.as_deref(), config.timeout);
            Arc::new(opened.map_err(|error| error.to_string())?)
        }
    })
}

pub(super) fn fetcher(config: &RenderConfig, guard: &Guard) -> Result<Option<Fetcher>, AppError> {
    let Some(folder) = &config.output_dir else { return Ok(None) };
    // A service of the operator's own may keep its outputs where it is itself.
    let own = config.url.as_ref().and_then(|url| url.host_str()).map(ToOwned::to_owned);
    let client = ClientConfig {
        connect_timeout: CONNECT_TIMEOUT,
        guard: Some(Vetting::new(guard.clone(), own)),
        ..ClientConfig::with_timeout(Duration::from_secs(30))
    };
    Ok(Some(Fetcher::new(folder, config.output_max, COPY_TIMEOUT, &client)?))
}

/// Who is configured may be anywhere: the guard is for destinations that callers choose.
pub(super) fn workers(config: &Config) -> Result<Workers, AppError> {
    let webhooks = &config.webhooks;
    let named = webhooks.workers.iter();
    let named = named.map(|worker| Worker { name: worker.name.clone(), url: worker.url.clone() });
    let (secret, timeout) = (webhooks.forward_secret.as_ref(), webhooks.forward_timeout);
    // Several of them may be behind one host, each with deliveries of its own.
    let at_once = config.lane(&Lane::DELIVERIES).concurrency;
    let courier = courier(&config.queue, Guard::off(), at_once)?;
    let workers = Workers::new(named.collect(), secret, timeout, courier)?;
    let Some(qstash) = &config.queue.qstash else { return Ok(workers) };
    let url = qstash.url.as_ref().map_or("", |url| url.as_str());
    let client = ClientConfig::with_timeout(RELAY_TIMEOUT);
    Ok(workers.relayed(QstashClient::new(url, &qstash.token, &client)?))
}

pub(super) fn sinks(config: &EventConfig) -> Result<Vec<Arc<Sink>>, SinkError> {
    let secret = config.sink_secret.as_ref();
    let open = |url: &secrecy::SecretString| {
        Sink::new(url.expose_secret(), secret, config.sink_timeout).map(Arc::new)
    };
    config.sink_urls.iter().map(open).collect()
}

pub(super) fn alert_sink(config: &AlertConfig) -> Result<Option<Arc<Sink>>, SinkError> {
    let Some(url) = &config.webhook_url else { return Ok(None) };
    let sink =
        Sink::new(url.expose_secret(), config.webhook_secret.as_ref(), config.webhook_timeout)?;
    Ok(Some(Arc::new(sink)))
}

pub(super) fn confirmers(config: &WebhookConfig) -> Result<Confirmers, ShotstackError> {
    let shotstack = config.shotstack.as_ref().map(Shotstack::new).transpose()?;
    Ok(Confirmers { shotstack: shotstack.map(Arc::new) })
}

pub(super) fn broker(config: &BrokerConfig, ids: &Ids) -> Result<Arc<dyn Broker>, ProfileError> {
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
