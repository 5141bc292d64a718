//! Audit lines: who did what to what, written in the same transaction as the change itself.

use uuid::Uuid;

use crate::ids::derived;
use crate::time::Timestamp;

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// A name of a caller or of an operator; `None` is Tashika itself, also where a webhook made it act:
    /// which one is in the details.
    pub id: Option<String>,
    pub role: &'static str,
}

impl Actor {
    /// No person asked: a timer, a worker, an answer, a webhook.
    pub const SYSTEM: Self = Self { id: None, role: "system" };

    /// Somebody with an API token.
    #[must_use]
    pub fn caller(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), role: "caller" }
    }

    /// Somebody who decides what software could not.
    #[must_use]
    pub fn operator(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), role: "operator" }
    }
}

/// One line. Lines are never changed; retention removes them when their time is over.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    pub id: Uuid,
    pub actor: Actor,
    /// E.g. `billing.payment_succeeded`.
    pub action: String,
    pub target_type: &'static str,
    pub target_id: String,
    pub office_id: Option<String>,
    /// JSON text.
    pub details: String,
    pub now: Timestamp,
}

/// An id that follows from what a line says about what.
#[must_use]
pub fn line_id(now: Timestamp, target_id: &str, action: &str, nth: u64) -> Uuid {
    derived(now, &[b"audit", target_id.as_bytes(), action.as_bytes(), &nth.to_be_bytes()])
}

/// A line as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    pub id: Uuid,
    pub actor_id: Option<String>,
    pub actor_role: String,
    pub action: String,
    pub target_type: String,
    pub target_id: String,
    pub office_id: Option<String>,
    /// JSON text.
    pub details: String,
    pub created_at: Timestamp,
}
