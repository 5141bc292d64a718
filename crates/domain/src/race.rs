//! Races: two things that happened in an order nobody wanted, and what was done about it.

use uuid::Uuid;

use crate::time::Timestamp;

/// A race that was noticed.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRace {
    pub id: Uuid,
    /// E.g. `LATE_EXECUTION`, `EXPIRED_AFTER_PAYMENT`.
    pub scenario: &'static str,
    pub subject_type: &'static str,
    pub subject_id: String,
    /// `REFUNDED`, `VOIDED`, `RETRY` or `MANUAL_REQUIRED`.
    pub resolution: &'static str,
    /// JSON text.
    pub details: String,
    pub now: Timestamp,
}
