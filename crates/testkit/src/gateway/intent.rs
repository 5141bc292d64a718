//! A payment intent: what it is, and how it looks on the wire.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;

/// An authorization that nobody captures dies after seven days.
pub(crate) const AUTHORIZATION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    RequiresPaymentMethod,
    RequiresConfirmation,
    RequiresAction,
    Processing,
    RequiresCapture,
    Canceled,
    Succeeded,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequiresPaymentMethod => "requires_payment_method",
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresAction => "requires_action",
            Self::Processing => "processing",
            Self::RequiresCapture => "requires_capture",
            Self::Canceled => "canceled",
            Self::Succeeded => "succeeded",
        }
    }
}

/// The end of an intent that was not paid.
#[derive(Clone, Debug)]
pub(crate) struct Cancellation {
    pub at: Timestamp,
    pub reason: Option<String>,
}

/// The reason that the gateway gives when it cancels by itself.
pub(crate) const EXPIRED: &str = "automatic";

#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub id: String,
    pub created: Timestamp,
    pub amount: i64,
    pub currency: String,
    pub customer: Option<String>,
    pub description: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub capture_method: String,
    pub method: Option<String>,
    pub status: Status,
    pub received: i64,
    /// Less what came back.
    pub refunded: i64,
    /// The latest attempt to charge the card, also one that was declined.
    pub charge: Option<String>,
    pub authorized_at: Option<Timestamp>,
    pub last_error: Option<Value>,
    pub cancellation: Option<Cancellation>,
}

impl Intent {
    pub fn payment_id(&self) -> Option<&str> {
        self.metadata.get("payment_id").map(String::as_str)
    }

    pub fn is_manual(&self) -> bool {
        self.capture_method == "manual"
    }

    /// What can be captured now.
    pub fn capturable(&self) -> i64 {
        if self.status == Status::RequiresCapture { self.amount } else { 0 }
    }

    /// What can be given back now.
    pub const fn refundable(&self) -> i64 {
        self.received - self.refunded
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        let held_since = self.authorized_at.filter(|_| self.status == Status::RequiresCapture);
        held_since.is_some_and(|at| now.since(at) >= AUTHORIZATION_LIFETIME)
    }

    pub fn view(&self) -> Value {
        let next_action = (self.status == Status::RequiresAction)
            .then(|| json!({"type": "use_stripe_sdk", "use_stripe_sdk": {}}));
        let cancellation = self.cancellation.as_ref();
        json!({
            "id": self.id,
            "object": "payment_intent",
            "amount": self.amount,
            "amount_capturable": self.capturable(),
            "amount_received": self.received,
            "automatic_payment_methods": null,
            "canceled_at": cancellation.map(|canceled| seconds(canceled.at)),
            "cancellation_reason": cancellation.and_then(|canceled| canceled.reason.clone()),
            "capture_method": self.capture_method,
            "client_secret": format!("{}_secret_scripted", self.id),
            "confirmation_method": "automatic",
            "created": seconds(self.created),
            "currency": self.currency,
            "customer": self.customer,
            "description": self.description,
            "last_payment_error": self.last_error,
            "latest_charge": self.charge,
            "livemode": false,
            "metadata": self.metadata,
            "next_action": next_action,
            "payment_method": self.method,
            "payment_method_types": ["card"],
            "processing": null,
            "status": self.status.as_str(),
        })
    }

    /// The intent's latest charge, as an object of its own.
    pub fn charge_view(&self) -> Option<Value> {
        let id = self.charge.as_deref()?;
        let failed = self.last_error.is_some();
        let before = self.authorized_at.map(|at| seconds(at.plus(AUTHORIZATION_LIFETIME)));
        Some(json!({
            "id": id,
            "object": "charge",
            "amount": self.amount,
            "amount_captured": self.received,
            "amount_refunded": self.refunded,
            "captured": self.received > 0,
            "created": seconds(self.authorized_at.unwrap_or(self.created)),
            "currency": self.currency,
            "customer": self.customer,
            "livemode": false,
            "metadata": self.metadata,
            "paid": !failed,
            "payment_intent": self.id,
            "payment_method": self.method,
            "payment_method_details": {"type": "card", "card": {"capture_before": before}},
            "refunded": self.received > 0 && self.refundable() == 0,
            "status": if failed { "failed" } else { "succeeded" },
        }))
    }
}

/// Seconds since 1970, as the wire has them.
pub(crate) const fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}
