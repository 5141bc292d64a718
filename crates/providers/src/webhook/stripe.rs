//! Stripe: `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…]`, HMAC-SHA256 over `t.body`.
//!
//! As in Stripe's own libraries: the key is the whole secret, `whsec_` included; any `v1` that
//! matches will do, and `v0` is a decoy of test mode; too old is refused, the future is not. Unlike
//! them, a header with two different times is refused: the libraries disagree about which counts.

use std::time::Duration;

use http::HeaderMap;
use secrecy::{ExposeSecret as _, SecretString};
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, not_too_old, seconds, signed};
use super::key::{Keys, sign};
use super::payload::object;
use super::{Event, Provider, Refused, SourceError, standard};
use crate::signature::{hex, unhex};

const SIGNATURE: &str = "stripe-signature";

pub(super) struct Stripe {
    keys: Keys,
    tolerance: Duration,
}

impl Stripe {
    pub(super) fn new(secrets: &[SecretString], tolerance: Duration) -> Result<Self, SourceError> {
        Ok(Self { keys: Keys::issued(secrets)?, tolerance })
    }
}

impl Provider for Stripe {
    fn kind(&self) -> &'static str {
        "stripe"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused> {
        let header = signed(headers, SIGNATURE)?;
        let values = |wanted: &'static str| {
            let parts = header.split(',').filter_map(|part| part.split_once('='));
            parts.filter_map(move |(name, value)| (name == wanted).then_some(value))
        };
        let mut times = values("t");
        let (Some(stamp), None) = (times.next(), times.next()) else {
            return Err(Refused::signature(MALFORMED));
        };
        let at = seconds(stamp).ok_or(Refused::signature(MALFORMED))?;
        self.keys.check(&[stamp.as_bytes(), b".", body], values("v1").filter_map(unhex))?;
        not_too_old(at, now, self.tolerance)
    }

    fn read(&self, _: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        payload.event(payload.text("id"), payload.text("type"), payload.moment("created"))
    }
}

/// The `Stripe-Signature` that Stripe would send with `body`.
#[must_use]
pub fn stripe_header(secret: &SecretString, body: &[u8], at: Timestamp) -> String {
    let stamp = standard::stamp(at);
    let signature = sign(secret.expose_secret().as_bytes(), &[stamp.as_bytes(), b".", body]);
    format!("t={stamp},v1={}", hex(&signature))
}
