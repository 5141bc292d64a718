//! Reservations: a slot is held, paid for, and given; and what becomes of the money when these three
//! happen in an order nobody wanted.
//!
//! A [`Reservation`] is read whole, with the payment that belongs to it. Everything that can happen to
//! it, whoever tells of it (the timer of its hold, a webhook, an answer of the gateway, its owner, the
//! render that was given up), goes through one function, [`status::next`], and becomes one change of
//! both: [`decide`]. It expects the versions that were read, so whoever comes second decides again with
//! what the first one has written.
//!
//! They guarantee: a slot has at most one owner; a customer who has paid has the slot, or gets the money
//! back, once; nobody gets money back for a slot that they keep; the customer is told. The hold's end is
//! compared with `now` in the decision itself: a hold whose time is over has expired, also while nobody
//! has written that down yet.

pub mod choices;
pub mod compensate;
pub mod decide;
pub mod priority;
pub mod request;
pub mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use uuid::Uuid;

pub use status::Status;

use crate::mail::Locale;
use crate::mutant::{self, Mutant};
use crate::payment::RequestKey;
use crate::render::RenderRules;
use crate::time::Timestamp;

/// The subject type of races, cases and audit lines.
pub const KIND: &str = "reservation";
/// The timer at the end of a hold.
pub const HOLD_KIND: &str = "hold_expiry";
/// The case that is opened when money that must go back could not be given back.
pub const CASE_REFUND: &str = "reservation_refund_failed";

/// What a customer asks for. Valid by construction: see [`request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRequest {
    pub video_id: i64,
    /// `YYYY-MM-DD`.
    pub projection_date: String,
    /// From 1.
    pub slot_number: i64,
    pub user_id: String,
    pub user_email: String,
    pub locale: Locale,
    /// Minor units, more than zero.
    pub amount: i64,
    /// ISO 4217, upper case.
    pub currency: String,
}

/// A reservation, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    pub id: Uuid,
    /// Grows with every change; a change expects the version that it has read.
    pub version: i64,
    pub request: ReservationRequest,
    pub key: RequestKey,
    pub status: Status,
    pub hold_expires_at: Timestamp,
    /// The payment of the last checkout.
    pub payment_id: Option<Uuid>,
    pub confirmed_at: Option<Timestamp>,
    pub expired_at: Option<Timestamp>,
    pub cancelled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub traceparent: Option<String>,
}

impl Reservation {
    /// Where it stands at a moment: a hold whose time is over has expired, whoever has noticed.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Status {
        match self.status {
            Status::Hold if mutant::on(Mutant::DeadlineIgnored) => Status::Hold,
            Status::Hold if now >= self.hold_expires_at => Status::Expired,
            status => status,
        }
    }
}

/// What happens to money that comes after the hold's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePayment {
    /// The deadline holds: it is given back.
    Refund,
    /// The slot is given after all, if nobody else has it.
    Reclaim,
}

impl LatePayment {
    pub const ALL: [Self; 2] = [Self::Refund, Self::Reclaim];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refund => "refund",
            Self::Reclaim => "reclaim",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }
}

/// The rules of reservations, from configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRules {
    /// How long a slot is held (`RESERVATION_HOLD_SEC`).
    pub hold: Duration,
    /// How many slots a day has (`RESERVATION_SLOTS_PER_DAY`).
    pub slots_per_day: i64,
    /// What happens to late money (`RESERVATION_LATE_PAYMENT`).
    pub late_payment: LatePayment,
    /// How what was bought is made (`RENDER_…`).
    pub render: RenderRules,
    /// Where the gateway sends a customer who has paid (`CHECKOUT_SUCCESS_URL`).
    pub success_url: String,
    /// Where it sends one who turned back (`CHECKOUT_CANCEL_URL`).
    pub cancel_url: String,
}

impl Default for ReservationRules {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(900),
            slots_per_day: 20,
            late_payment: LatePayment::Refund,
            render: RenderRules::default(),
            success_url: "http://localhost:8080/".into(),
            cancel_url: "http://localhost:8080/".into(),
        }
    }
}
