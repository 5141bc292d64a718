//! Workers: destinations that the operator has named, for messages of Tashika's own.
//!
//! A message to one has the URL `worker:NAME`. The address behind the name may hold secrets, and may
//! change while the message waits; so it is looked up when the message is delivered, and shown nowhere.
//! The bytes go out as they are, signed as Standard Webhooks has it under the message's `Webhook-Id`.
//! Where a relay is set (the real QStash), it gets the message first, and delivers it; if it does not
//! take it, the worker is called from here.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderValue;
use metrics::counter;
use secrecy::{ExposeSecret as _, SecretString};
use tashika_domain::Timestamp;
use tashika_domain::message::asked::{Headers, WORKER};
use tashika_domain::outcome::Outcome;

use crate::courier::target::{BadUrl, Target};
use crate::courier::{Courier, Delivered, Known, Parcel};
use crate::qstash::QstashClient;
use crate::webhook::standard;

/// A worker as it is configured.
#[derive(Clone, Debug)]
pub struct Worker {
    pub name: String,
    pub url: SecretString,
}

/// Calls workers.
pub struct Workers {
    urls: BTreeMap<String, SecretString>,
    secret: Option<Vec<u8>>,
    timeout: Duration,
    courier: Courier,
    relay: Option<QstashClient>,
}

/// Why a worker cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the address of {0}: {1}")]
    Url(String, BadUrl),
    #[error("the secret must be `whsec_` and base64, as Standard Webhooks has it")]
    Secret,
}

impl Workers {
    /// `courier` should have no guard: who is configured may be anywhere.
    pub fn new(
        workers: Vec<Worker>,
        secret: Option<&SecretString>,
        timeout: Duration,
        courier: Courier,
    ) -> Result<Self, WorkerError> {
        let mut urls = BTreeMap::new();
        for Worker { name, url } in workers {
            Target::parse(url.expose_secret())
                .map_err(|problem| WorkerError::Url(name.clone(), problem))?;
            urls.insert(name, url);
        }
        let secret = secret
            .map(|secret| standard::prefixed_key(secret.expose_secret()))
            .map(|key| key.ok_or(WorkerError::Secret))
            .transpose()?;
        Ok(Self { urls, secret, timeout, courier, relay: None })
    }

    /// Gives messages to QStash first.
    #[must_use]
    pub fn relayed(mut self, relay: QstashClient) -> Self {
        self.relay = Some(relay);
        self
    }

    pub async fn deliver(&self, parcel: Parcel<'_>, now: Timestamp) -> Delivered {
        let name = parcel.url.strip_prefix(WORKER).unwrap_or_default();
        let Some(url) = self.urls.get(name) else {
            // Perhaps a process with a newer configuration knows it.
            let why = format!("no worker {name} is configured");
            return Delivered { known: Known::NotSent(why), rtt: Duration::ZERO };
        };
        let signed = self.signed(&parcel, now);
        let own = parcel.own.iter().copied();
        let signature = signed.iter().map(|(name, value)| (*name, value.as_str()));
        let own: Vec<(&'static str, &str)> = own.chain(signature).collect();
        let parcel =
            Parcel { url: url.expose_secret(), own: &own, timeout: Some(self.timeout), ..parcel };
        if let Some(relay) = &self.relay
            && let Some(taken) = relayed(relay, &parcel, now).await
        {
            return taken;
        }
        self.courier.deliver(parcel).await
    }

    fn signed(&self, parcel: &Parcel<'_>, now: Timestamp) -> Vec<(&'static str, String)> {
        let stamp = standard::stamp(now);
        let id = parcel.headers.get("Webhook-Id").and_then(|values| values.first());
        let mut headers = Vec::new();
        if let (Some(secret), Some(id)) = (&self.secret, id) {
            let signature = standard::signature(secret, id, &stamp, &parcel.body);
            headers.push(("webhook-signature", signature));
        }
        headers.push(("webhook-timestamp", stamp));
        headers
    }
}

/// Hands a message over. `None`: QStash has not taken it, as far as we know.
async fn relayed(relay: &QstashClient, parcel: &Parcel<'_>, now: Timestamp) -> Option<Delivered> {
    let mut headers = Headers::new();
    for (name, values) in parcel.headers {
        let forwarded = match name.as_str() {
            "Content-Type" => name.clone(),
            _ => format!("Upstash-Forward-{name}"),
        };
        headers.insert(forwarded, values.clone());
    }
    for (name, value) in parcel.own {
        // A repeat after a lost answer is recognised by the message's id.
        let name = match *name {
            "upstash-message-id" => "Upstash-Deduplication-Id".to_owned(),
            upstash if upstash.starts_with("upstash-") => continue,
            other => format!("Upstash-Forward-{other}"),
        };
        if HeaderValue::from_str(value).is_ok() {
            headers.insert(name, vec![(*value).to_owned()]);
        }
    }
    headers.insert("Upstash-Method".into(), vec![parcel.method.as_str().to_owned()]);
    let reply = relay.publish(parcel.url, parcel.body.clone(), &headers, now).await;
    let reason = match reply.outcome {
        Outcome::Done(id) => {
            counter!("queue_relayed_total", "outcome" => "taken").increment(1);
            let headers = Headers::from([("Upstash-Message-Id".to_owned(), vec![id])]);
            let body = bytes::Bytes::new();
            let known = Known::Answered { status: 200, headers, body, truncated: false };
            return Some(Delivered { known, rtt: reply.rtt });
        }
        Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => reason,
    };
    counter!("queue_relayed_total", "outcome" => "failed").increment(1);
    tracing::warn!(
        reason_code = reason.code,
        reason = reason.message,
        "QStash has not taken a message; it is delivered from here"
    );
    None
}
