//! Event sinks: whoever wants to be told what has happened.
//!
//! HTTP `POST` of the event as JSON, signed as Standard Webhooks has it: `webhook-id`,
//! `webhook-timestamp` and `webhook-signature: v1,<base64 of HMAC-SHA256 over "id.timestamp.body">`.
//! Any 2xx is taken as received. A repeat carries the same `webhook-id`, so that a receiver can tell.
//! `410 Gone`, or `489` with `Upstash-NonRetryable-Error: true`, ends the delivery; everything else may
//! be tried again.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tashika_domain::Outcome;
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::time::Timestamp;
use url::Url;

use crate::http::{Call, Client, ClientConfig, ClientError, Known, Request, retry_after};
use crate::reply::Reply;
use crate::webhook::standard;

/// A place that events go to.
#[derive(Debug)]
pub struct Sink {
    name: String,
    url: Url,
    secret: Option<Vec<u8>>,
    client: Client,
}

/// Why a sink cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("must be an http:// or https:// address")]
    Url,
    #[error("the secret must be `whsec_` and base64, as Standard Webhooks has it")]
    Secret,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// What is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub id: &'a str,
    pub body: &'a [u8],
    pub content_type: &'a str,
    /// More headers, in lower case.
    pub headers: &'a [(&'static str, &'a str)],
    pub now: Timestamp,
    pub traceparent: Option<&'a str>,
}

impl Sink {
    pub fn new(
        url: &str,
        secret: Option<&SecretString>,
        timeout: Duration,
    ) -> Result<Self, SinkError> {
        let url: Url = url.parse().map_err(|_| SinkError::Url)?;
        let host = url.host_str().ok_or(SinkError::Url)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(SinkError::Url);
        }
        // Short, stable, and without whatever secrets the address itself may hold.
        let digest = Sha256::digest(url.as_str().as_bytes());
        let name = format!("{host}-{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
        let secret = secret
            .map(|secret| standard::prefixed_key(secret.expose_secret()))
            .map(|key| key.ok_or(SinkError::Secret))
            .transpose()?;
        let client = Client::new(&ClientConfig::with_timeout(timeout))?;
        Ok(Self { name, url, secret, client })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Delivers once.
    pub async fn deliver(&self, delivery: Delivery<'_>) -> Reply<()> {
        let mut headers = HeaderMap::new();
        let stamp = standard::stamp(delivery.now);
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set(CONTENT_TYPE.as_str(), delivery.content_type);
        for (name, value) in delivery.headers {
            set(name, value);
        }
        set("webhook-id", delivery.id);
        set("webhook-timestamp", &stamp);
        if let Some(secret) = &self.secret {
            let signature = standard::signature(secret, delivery.id, &stamp, delivery.body);
            set("webhook-signature", &signature);
        }
        if let Some(parent) = delivery.traceparent {
            set("traceparent", parent);
        }
        let call = self
            .client
            .call(Request {
                method: Method::POST,
                url: self.url.clone(),
                headers,
                body: Bytes::copy_from_slice(delivery.body),
            })
            .await;
        self.reply(call, delivery.now)
    }

    fn reply(&self, call: Call, now: Timestamp) -> Reply<()> {
        let Call { known, rtt } = call;
        let again = |reason, retry_in| Outcome::Busy { reason, retry_in };
        let (outcome, reply, sent) = match known {
            Known::Answered(answer) => {
                let status = answer.status;
                let told = status.as_u16().to_string();
                let reason = Reason::new("SINK_REFUSED", format!("the sink answered {told}"));
                let never = answer.headers.get("upstash-nonretryable-error");
                let outcome = match status.as_u16() {
                    200..=299 => Outcome::Done(()),
                    410 => Outcome::Refused(reason),
                    489 if never.is_some_and(|value| value == "true") => Outcome::Refused(reason),
                    _ => again(reason, retry_after(&answer.headers, now)),
                };
                (outcome, told, true)
            }
            Known::NotSent(why) => {
                (again(Reason::new("SINK_DOWN", why.to_string()), None), why.to_string(), false)
            }
            Known::NoAnswer(why) => {
                let reason = Reason::new("SINK_TIMEOUT", why.to_string());
                (Outcome::Lost(reason), why.to_string(), true)
            }
        };
        let request = format!("POST {}", self.name);
        Reply { outcome, exchange: Exchange { request, reply, reference: None, sent }, rtt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_refused() {
        let second = Duration::from_secs(1);
        assert!(matches!(Sink::new("ftp://x/", None, second), Err(SinkError::Url)));
        assert!(matches!(Sink::new("not a url", None, second), Err(SinkError::Url)));
        for secret in ["hunter2", "whsec_", "whsec_%"] {
            let secret = SecretString::from(secret);
            let refused = Sink::new("https://example.com/", Some(&secret), second);
            assert!(matches!(refused, Err(SinkError::Secret)));
        }
    }

    #[test]
    fn names_hide_what_an_address_holds() {
        let sink = Sink::new("https://example.com/hook?key=s3cret", None, Duration::from_secs(1));
        let name = sink.expect("a valid address").name().to_owned();
        assert!(name.starts_with("example.com-") && !name.contains("s3cret"), "{name}");
    }
}
