//! Slack: `X-Slack-Signature: v0=<hex>`, HMAC-SHA256 over `v0:<X-Slack-Request-Timestamp>:<body>`.
//!
//! The Events API. Interactions and slash commands are forms, not JSON, and are refused as such.

use std::time::Duration;

use http::HeaderMap;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, fresh, seconds, signed};
use super::key::Keys;
use super::payload::object;
use super::{Event, Provider, Refused, SourceError};
use crate::signature::{hex, unhex};

pub(super) struct Slack {
    keys: Keys,
    tolerance: Duration,
}

impl Slack {
    pub(super) fn new(secrets: &[SecretString], tolerance: Duration) -> Result<Self, SourceError> {
        Ok(Self { keys: Keys::issued(secrets)?, tolerance })
    }
}

impl Provider for Slack {
    fn kind(&self) -> &'static str {
        "slack"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused> {
        let signature = signed(headers, "x-slack-signature")?;
        let stamp = signed(headers, "x-slack-request-timestamp")?;
        let malformed = Refused::signature(MALFORMED);
        let at = seconds(stamp).ok_or(malformed)?;
        let signature = signature.strip_prefix("v0=").and_then(unhex).ok_or(malformed)?;
        let message = [b"v0:", stamp.as_bytes(), b":", body];
        self.keys.check(&message, std::iter::once(signature))?;
        fresh(at, now, self.tolerance)
    }

    /// `event_callback` is an envelope: the event in it has the type, the envelope the id. What comes
    /// without an envelope (`url_verification`, `app_rate_limited`) has no id; its bytes stand for it.
    fn read(&self, _: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        let outer = payload.text("type");
        let (id, kind) = if outer.as_deref() == Some("event_callback") {
            (payload.text("event_id"), payload.text("event.type"))
        } else {
            (Some(format!("sha256:{}", hex(&Sha256::digest(body)))), outer)
        };
        payload.event(id, kind, payload.moment("event_time"))
    }
}
