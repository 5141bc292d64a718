//! Shotstack: callbacks without a signature.
//!
//! Everything is let in, so nothing that it says may be believed: it is a hint to ask Shotstack with
//! our own key ([`crate::shotstack`]; the engine does, before it acts). A render calls back once per state, hence the state in the id.

use http::HeaderMap;
use tashika_domain::time::Timestamp;

use super::payload::{NO_ID, NO_TYPE, object};
use super::{Event, Provider, Refused};

pub(super) struct Shotstack;

impl Provider for Shotstack {
    fn kind(&self) -> &'static str {
        "shotstack"
    }

    fn is_signed(&self) -> bool {
        false
    }

    fn verify(&self, _: &HeaderMap, _: &[u8], _: Timestamp) -> Result<(), Refused> {
        Ok(())
    }

    /// `edit` and `render` of `done` make `<id>:edit:done`, a `render.done`.
    fn read(&self, _: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        let field = |name, missing| {
            let told = payload.text(name).filter(|text| !text.is_empty());
            told.ok_or(Refused::payload(missing))
        };
        let id = field("id", NO_ID)?;
        let kind = field("type", NO_TYPE)?;
        let status = field("status", NO_TYPE)?;
        let action = field("action", NO_TYPE)?;
        payload.event(
            Some(format!("{id}:{kind}:{status}")),
            Some(format!("{action}.{status}")),
            payload.moment("completed"),
        )
    }
}
