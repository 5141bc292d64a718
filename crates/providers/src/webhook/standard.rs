//! Standard Webhooks 1.0: `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,<base64> …`,
//! HMAC-SHA256 over `id.timestamp.body`. Both directions: sinks sign with this.
//!
//! Svix, where the standard comes from, sends the same as `svix-*`. Signatures by public key (`v1a`)
//! are not known here and are passed over, as the standard wants it.

use std::time::Duration;

use base64::Engine as _;
use http::HeaderMap;
use secrecy::SecretString;
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, claimed, fresh, seconds, signed, told};
use super::key::{Keys, base64, sign, solid};
use super::payload::object;
use super::{Algorithm, Event, Provider, Refused, SourceError, TYPE_UNKNOWN};

pub(crate) const SECRET_PREFIX: &str = "whsec_";

/// The names of the three headers.
struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const WEBHOOK: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX: Names =
    Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

/// All three under one spelling. `verify` and `read` have to agree on it: an id is only worth
/// something if it is the one that was signed.
fn names(headers: &HeaderMap) -> &'static Names {
    if headers.contains_key(WEBHOOK.signature) { &WEBHOOK } else { &SVIX }
}

pub(super) struct Standard {
    keys: Keys,
    tolerance: Duration,
}

impl Standard {
    pub(super) fn new(secrets: &[SecretString], tolerance: Duration) -> Result<Self, SourceError> {
        let decode = |text: &str| match solid(text)? {
            SECRET_PREFIX => Err(SourceError::EmptySecret),
            text => key(text).ok_or(SourceError::NotWhsec),
        };
        Ok(Self { keys: Keys::new(Algorithm::Sha256, secrets, decode)?, tolerance })
    }
}

impl Provider for Standard {
    fn kind(&self) -> &'static str {
        "standard-webhooks"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused> {
        let names = names(headers);
        let signatures = signed(headers, names.signature)?;
        let id = signed(headers, names.id)?;
        let stamp = signed(headers, names.timestamp)?;
        let at = seconds(stamp).ok_or(Refused::signature(MALFORMED))?;
        let signatures = signatures.split(' ').filter_map(|part| part.strip_prefix("v1,"));
        let message = [id.as_bytes(), b".", stamp.as_bytes(), b".", body];
        self.keys.check(&message, signatures.filter_map(base64))?;
        fresh(at, now, self.tolerance)
    }

    fn claimed_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        claimed(headers, names(headers).id)
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let names = names(headers);
        let id = told(headers, names.id)?.map(str::to_owned);
        let attempted_at = told(headers, names.timestamp)?.and_then(seconds);
        let payload = object(body)?;
        // The header's time is that of the attempt: a late repeat would pass for a newer event.
        let at = payload.moment("timestamp").or(attempted_at);
        // The standard recommends a type; not everybody has one.
        let kind = payload.text("type").unwrap_or_else(|| TYPE_UNKNOWN.to_owned());
        payload.event(id, Some(kind), at)
    }
}

/// The bytes of a secret of Standard Webhooks: base64, after `whsec_` or without it, as in the
/// reference libraries. `None` if it is something else, or empty.
#[must_use]
pub fn key(secret: &str) -> Option<Vec<u8>> {
    let encoded = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    base64(encoded).filter(|key| !key.is_empty())
}

/// Like [`key`], but the prefix is required: without it, most passwords are base64 too.
pub(crate) fn prefixed_key(secret: &str) -> Option<Vec<u8>> {
    secret.starts_with(SECRET_PREFIX).then(|| key(secret)).flatten()
}

/// Whole seconds since 1970.
pub(crate) fn stamp(at: Timestamp) -> String {
    at.as_micros().div_euclid(1_000_000).to_string()
}

/// The value of `webhook-signature`.
pub(crate) fn signature(key: &[u8], id: &str, stamp: &str, body: &[u8]) -> String {
    let signature = sign(key, &[id.as_bytes(), b".", stamp.as_bytes(), b".", body]);
    format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(signature))
}

/// The headers that sign `body`, by name. `key` is the secret's bytes, decoded.
#[must_use]
pub fn standard_headers(
    key: &[u8],
    id: &str,
    body: &[u8],
    at: Timestamp,
) -> [(&'static str, String); 3] {
    let stamp = stamp(at);
    let signature = signature(key, id, &stamp, body);
    [(WEBHOOK.id, id.to_owned()), (WEBHOOK.timestamp, stamp), (WEBHOOK.signature, signature)]
}
