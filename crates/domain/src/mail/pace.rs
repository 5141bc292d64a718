//! How fast and how much may be sent, by all processes together.
//!
//! A send needs a *permit*. A permit is taken before the first byte and comes back a full second after
//! the attempt is over, so the moment at which the server counts the mail lies within the permit's
//! time, wherever between connecting and the last answer that is and however long it took. With `n`
//! permits no window of a second can ever see more than `n` mails: a rate that is handed out in slots
//! would not promise that, because of the jitter between the slot and the server.
//!
//! The quota is counted when the permit is taken, in buckets of a minute, and given back if it is
//! certain that nothing was sent. Whoever dies in between has used it.

use std::time::Duration;

use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

use super::control::Control;

/// A minute in microseconds.
const MINUTE: i64 = 60_000_000;
/// Minutes in the quota's window: a day, and one more, because the clock that counted a mail and the one
/// that would forget it may differ.
const WINDOW: i64 = 24 * 60 + 1;

/// What the operator allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// `MAIL_RATE_PER_SEC`.
    pub rate_per_sec: f64,
    /// `MAIL_DAILY_QUOTA`; 0 is none.
    pub daily_quota: i64,
}

impl Limits {
    /// Permits at the same moment.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "floored, and far below the limit")]
    pub fn permits(&self, slowed: bool) -> i64 {
        let whole = (self.rate_per_sec.floor() as i64).max(1);
        if slowed { (whole / 2).max(1) } else { whole }
    }

    /// How long a permit is kept after the attempt.
    #[must_use]
    pub fn rest(&self) -> Duration {
        if mutant::on(Mutant::PermitNotRested) {
            return Duration::ZERO;
        }
        let second = Duration::from_secs(1);
        if self.rate_per_sec >= 1.0 {
            return second;
        }
        Duration::try_from_secs_f64(1.0 / self.rate_per_sec).unwrap_or(second)
    }
}

/// The minute that a moment belongs to.
#[must_use]
pub const fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MINUTE)
}

/// The oldest minute that still counts.
#[must_use]
pub const fn first_counted(now: Timestamp) -> i64 {
    minute(now) - WINDOW
}

/// When a minute's mails count no more.
#[must_use]
pub const fn frees_at(oldest: i64) -> Timestamp {
    Timestamp::from_micros((oldest + WINDOW + 1) * MINUTE)
}

/// What was found, under the lock that all processes share.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub control: Control,
    /// Permits that are out.
    pub permits: i64,
    /// How long until the first of them comes back.
    pub first_back_in: Option<Duration>,
    /// Used of the quota.
    pub used: i64,
    /// The oldest minute in which some of it was used.
    pub oldest: Option<i64>,
}

/// Whether a mail may be sent now.
#[derive(Clone, Debug, PartialEq)]
pub enum Leave {
    Granted,
    /// Ask again after this.
    Wait(Duration),
    /// The lane is closed.
    Closed,
    /// The quota is used up, until then.
    UsedUp {
        until: Timestamp,
    },
}

/// At most so long between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// At least so long: several who wait for the same permit should not storm.
const ASK_LEAST: Duration = Duration::from_millis(2);

#[must_use]
pub fn decide(found: &Found, limits: &Limits, now: Timestamp) -> Leave {
    if !found.control.is_open(now) {
        return Leave::Closed;
    }
    if limits.daily_quota > 0 && found.used >= limits.daily_quota {
        let oldest = found.oldest.unwrap_or_else(|| minute(now));
        return Leave::UsedUp { until: frees_at(oldest) };
    }
    if found.permits >= limits.permits(found.control.is_slowed(now)) {
        let wait = found.first_back_in.unwrap_or(ASK_AGAIN);
        return Leave::Wait(wait.clamp(ASK_LEAST, ASK_AGAIN));
    }
    Leave::Granted
}

#[cfg(test)]
mod tests;
