//! GitHub: `X-Hub-Signature-256: sha256=<hex>`, HMAC-SHA256 over the body.
//!
//! There is no time in it, so nothing is ever too old; redeliveries keep their id.

use http::HeaderMap;
use secrecy::SecretString;
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, claimed, signed, told};
use super::key::Keys;
use super::payload::object;
use super::{Event, Provider, Refused, SourceError};
use crate::signature::unhex;

pub(super) struct Github {
    keys: Keys,
}

impl Github {
    pub(super) fn new(secrets: &[SecretString]) -> Result<Self, SourceError> {
        Ok(Self { keys: Keys::chosen(secrets)? })
    }
}

impl Provider for Github {
    fn kind(&self) -> &'static str {
        "github"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], _: Timestamp) -> Result<(), Refused> {
        let header = signed(headers, "x-hub-signature-256")?;
        let signature = header.strip_prefix("sha256=").and_then(unhex);
        let signature = signature.ok_or(Refused::signature(MALFORMED))?;
        self.keys.check(&[body], std::iter::once(signature))
    }

    fn claimed_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        claimed(headers, "x-github-delivery")
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        let id = told(headers, "x-github-delivery")?.map(str::to_owned);
        let kind = told(headers, "x-github-event")?.map(|kind| {
            payload
                .word("action")
                .map_or_else(|| kind.to_owned(), |action| format!("{kind}.{action}"))
        });
        payload.event(id, kind, None)
    }
}
