//! What a gateway says, in Tashika's own words.
//!
//! The adapters of `providers::gateway` translate into these types, and the decisions about payments
//! look at nothing else: a gateway's vocabulary ends here.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::outcome::Reason;

/// Reason codes of gateways. What a caller sees as `reason` begins with one of them.
pub mod code {
    pub const CARD_DECLINED: &str = "CARD_DECLINED";
    pub const INSUFFICIENT_FUNDS: &str = "INSUFFICIENT_FUNDS";
    pub const EXPIRED_CARD: &str = "EXPIRED_CARD";
    /// Nothing reached the gateway, or it said that it did not act: limits, locks, no connection.
    pub const NETWORK_ERROR: &str = "NETWORK_ERROR";
    /// No answer in time.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// The gateway failed in a way that says nothing about the payment: 5xx, a broken reply.
    pub const UNKNOWN: &str = "UNKNOWN";
    /// The gateway refused the request as wrong: ours or our caller's mistake.
    pub const INVALID_REQUEST: &str = "INVALID_REQUEST";
    /// The gateway does not accept our credentials. Nothing was executed.
    pub const UNAUTHORIZED: &str = "GATEWAY_UNAUTHORIZED";
    /// The customer has to do something first (3-D Secure).
    pub const ACTION_REQUIRED: &str = "ACTION_REQUIRED";
    /// The authorization is gone: it expired or was cancelled at the gateway.
    pub const AUTHORIZATION_GONE: &str = "AUTHORIZATION_GONE";

    /// The customer's bank said no.
    #[must_use]
    pub fn is_decline(code: &str) -> bool {
        matches!(code, CARD_DECLINED | INSUFFICIENT_FUNDS | EXPIRED_CARD)
    }
}

/// Where a payment stands at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteState {
    /// The gateway has not authorized it and is not about to, as far as it has heard: it never saw
    /// it, or it was prepared and nobody has confirmed it. A request in flight may change that.
    NotFound,
    /// The gateway has it and has not finished with it.
    Pending,
    Authorized,
    Captured,
    /// Nothing can be authorized or captured any more: cancelled, expired, voided.
    Voided,
    Declined,
}

impl RemoteState {
    /// As it appears in failure reasons: `Gateway status: …`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::Pending => "PENDING",
            Self::Authorized => "AUTHORIZED",
            Self::Captured => "CAPTURED",
            Self::Voided => "VOIDED",
            Self::Declined => "DECLINED",
        }
    }
}

/// A payment as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    pub state: RemoteState,
    /// The gateway's own id of the payment.
    pub gateway_id: Option<String>,
    /// Minor units.
    pub captured: i64,
    /// Every refund it knows of. `None`: the reply did not list them.
    pub refunds: Option<Vec<RemoteRefund>>,
    /// Why it was declined.
    pub reason: Option<Reason>,
}

impl Remote {
    /// The gateway has never heard of it.
    #[must_use]
    pub const fn not_found() -> Self {
        Self {
            state: RemoteState::NotFound,
            gateway_id: None,
            captured: 0,
            refunds: None,
            reason: None,
        }
    }
}

/// A refund as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRefund {
    /// Our id of the refund, if it was made by us.
    pub refund_id: Option<Uuid>,
    pub gateway_id: String,
    pub amount: i64,
    pub state: RemoteRefundState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteRefundState {
    /// Accepted; the money is on its way.
    Pending,
    Succeeded,
    Failed,
}
