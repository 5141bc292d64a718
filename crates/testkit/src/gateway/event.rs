//! Events: what the gateway would tell a webhook.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tashika_domain::Timestamp;

use super::intent::seconds;
use super::lists::Item;

/// The version that the official packages of today ask for.
const API_VERSION: &str = "2026-10-28.endive";

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub id: String,
    pub created: Timestamp,
    pub kind: String,
    pub request_id: String,
    pub key: Option<String>,
    /// As it was then.
    pub object: Value,
}

impl Event {
    pub fn view(&self) -> Value {
        json!({
            "id": self.id,
            "object": "event",
            "api_version": API_VERSION,
            "created": seconds(self.created),
            "data": {"object": self.object},
            "livemode": false,
            "pending_webhooks": 1,
            "request": {"id": self.request_id, "idempotency_key": self.key},
            "type": self.kind,
        })
    }

    pub fn item(&self) -> Item<'_> {
        Item { id: &self.id, created: self.created, view: Box::new(|| self.view()) }
    }
}

/// The value of the header `Stripe-Signature` for a delivery of `payload` at `at`.
///
/// # Panics
///
/// Never: HMAC takes keys of every length.
#[must_use]
pub fn sign(payload: &str, secret: &str, at: Timestamp) -> String {
    let at = seconds(at);
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(format!("{at}.{payload}").as_bytes());
    let mut header = format!("t={at},v1=");
    for byte in mac.finalize().into_bytes() {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
        header.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_time_and_payload() {
        // python3 -c 'import hmac; print(hmac.new(b"whsec_x", b"1700000000.{}", "sha256").hexdigest())'
        let signed = sign("{}", "whsec_x", Timestamp::from_micros(1_700_000_000_000_000));
        assert_eq!(
            signed,
            concat!(
                "t=1700000000,v1=",
                "be8cb8325f2202445260a855532f967e30ad2a9394ce28da66ee02880ddcb661"
            )
        );
    }
}
