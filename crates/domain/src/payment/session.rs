//! A checkout session as the gateway sees it: a page where a customer pays.
//!
//! The adapters of `providers::gateway` translate into these types. A session is not a payment: it
//! becomes one when the customer has paid, and what counts then is `paid`, never `Complete` alone.
//! A customer may finish the page with a method whose money comes days later, or never.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Where a session stands at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The customer can still pay.
    Open,
    /// The customer has gone through the page. Whether money came is another question.
    Complete,
    /// Nobody can pay here any more, and nobody has.
    Expired,
}

impl SessionState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Expired => "expired",
        }
    }
}

/// A session in Tashika's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSession {
    /// The gateway's id of the session.
    pub id: String,
    /// Where the customer pays. Gateways give it only while the session is open.
    pub url: Option<String>,
    pub state: SessionState,
    /// The money is ours.
    pub paid: bool,
    /// The gateway's id of the payment, what refunds and questions are about. Many gateways make it
    /// only when the customer pays.
    pub gateway_id: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, upper case.
    pub currency: String,
    /// When the gateway closes the session by itself.
    pub expires_at: Timestamp,
}
