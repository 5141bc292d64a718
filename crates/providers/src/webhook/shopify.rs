//! Shopify: `X-Shopify-Hmac-Sha256: <base64>`, HMAC-SHA256 over the body.
//!
//! There is no signed time in it, so nothing is ever too old; a repeat keeps its id.

use http::HeaderMap;
use secrecy::SecretString;
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, claimed, signed, told};
use super::key::{Keys, base64};
use super::payload::object;
use super::{Event, Provider, Refused, SourceError};

pub(super) struct Shopify {
    keys: Keys,
}

impl Shopify {
    pub(super) fn new(secrets: &[SecretString]) -> Result<Self, SourceError> {
        Ok(Self { keys: Keys::issued(secrets)? })
    }
}

impl Provider for Shopify {
    fn kind(&self) -> &'static str {
        "shopify"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], _: Timestamp) -> Result<(), Refused> {
        let signature = base64(signed(headers, "x-shopify-hmac-sha256")?);
        let signature = signature.ok_or(Refused::signature(MALFORMED))?;
        self.keys.check(&[body], std::iter::once(signature))
    }

    fn claimed_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        claimed(headers, "x-shopify-webhook-id")
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        let id = match told(headers, "x-shopify-webhook-id")? {
            Some(id) => Some(id),
            None => told(headers, "x-shopify-event-id")?,
        };
        let kind = told(headers, "x-shopify-topic")?;
        let at = told(headers, "x-shopify-triggered-at")?.and_then(|at| at.parse().ok());
        payload.event(id.map(str::to_owned), kind.map(str::to_owned), at)
    }
}
