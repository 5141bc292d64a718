//! Lanes: classes of effects with limits of their own.
//!
//! A lane decides how many of its effects run at once, how fast they start, how long a worker may
//! hold one without a sign of life, and what happens after a failure. The numbers come from
//! configuration (`OUTBOX_*`, `OUTBOX_<LANE>_*`); the rules about them are here.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A class of effects, by name. The name is stored with each row.
///
/// The constants are Tashika's own lanes. An application that embeds the engine may add lanes of its
/// own: a process claims only from lanes for which it has a handler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(Cow<'static, str>);

impl Lane {
    pub const ORDERS: Self = Self(Cow::Borrowed("orders"));
    pub const PAYMENTS: Self = Self(Cow::Borrowed("payments"));
    pub const WEBHOOKS: Self = Self(Cow::Borrowed("webhooks"));
    pub const DELIVERIES: Self = Self(Cow::Borrowed("deliveries"));
    pub const MAIL: Self = Self(Cow::Borrowed("mail"));
    pub const RENDERS: Self = Self(Cow::Borrowed("renders"));
    pub const TIMERS: Self = Self(Cow::Borrowed("timers"));
    pub const EVENTS: Self = Self(Cow::Borrowed("events"));

    /// Tashika's own lanes.
    pub const OWN: [Self; 8] = [
        Self::ORDERS,
        Self::PAYMENTS,
        Self::WEBHOOKS,
        Self::DELIVERIES,
        Self::MAIL,
        Self::RENDERS,
        Self::TIMERS,
        Self::EVENTS,
    ];

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a lane's name: 1 to 32 of `a-z`, `0-9` and `_`, starting with a letter.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(own) = Self::OWN.into_iter().find(|lane| lane.as_str() == name) {
            return Some(own);
        }
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let valid = (1..=32).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(letters);
        valid.then(|| Self(Cow::Owned(name.to_owned())))
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The limits of one lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LanePolicy {
    /// How many effects run at the same moment in one process (`OUTBOX_CONCURRENCY`).
    pub concurrency: usize,
    /// How many rows one claim may take (`OUTBOX_BATCH`).
    pub batch: usize,
    /// How many effects may start per second in one process; `None` is unlimited.
    pub rate_per_sec: Option<f64>,
    /// How long a claim holds without a heartbeat (`OUTBOX_LOCK_LEASE_SEC`).
    pub lease: Duration,
    /// Failures after which an effect is given up (`OUTBOX_MAX_ATTEMPTS`).
    pub max_attempts: u32,
    /// Waits after the first, second, … failure; the last one repeats (`OUTBOX_BACKOFF_SEC`).
    pub backoff: Vec<Duration>,
    /// Share of the process's capacity when several lanes have work waiting.
    pub weight: u32,
    /// How long a settled effect is kept before it may be pruned.
    pub keep: Duration,
}

impl Default for LanePolicy {
    fn default() -> Self {
        Self {
            concurrency: 4,
            batch: 32,
            rate_per_sec: None,
            lease: Duration::from_secs(120),
            max_attempts: 6,
            backoff: [5, 10, 20, 40, 80, 160].map(Duration::from_secs).to_vec(),
            weight: 1,
            keep: Duration::from_secs(48 * 3600),
        }
    }
}

impl LanePolicy {
    /// The wait after the `failures`-th failure (counted from 1).
    ///
    /// The other side's `Retry-After` may lengthen the wait but not shorten it: the table is what
    /// keeps a struggling service from being hammered.
    #[must_use]
    pub fn wait_after(&self, failures: u32, asked_for: Option<Duration>) -> Duration {
        let last = self.backoff.len().saturating_sub(1);
        let step = (failures.max(1) as usize - 1).min(last);
        let table = self.backoff.get(step).copied().unwrap_or_default();
        table.max(asked_for.unwrap_or_default())
    }

    /// Heartbeats come at half the lease, so that one may be late without losing the effect.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.lease / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_follows_the_table_and_repeats_its_last_step() {
        let policy = LanePolicy::default();
        let waits: Vec<u64> = (1..=8).map(|n| policy.wait_after(n, None).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 160, 160]);
    }

    #[test]
    fn retry_after_lengthens_but_never_shortens() {
        let policy = LanePolicy::default();
        let asked = |s| Some(Duration::from_secs(s));
        assert_eq!(policy.wait_after(1, asked(30)).as_secs(), 30);
        assert_eq!(policy.wait_after(3, asked(1)).as_secs(), 20);
    }

    #[test]
    fn an_empty_table_means_no_wait() {
        let policy = LanePolicy { backoff: vec![], ..LanePolicy::default() };
        assert_eq!(policy.wait_after(1, None), Duration::ZERO);
    }

    #[test]
    fn every_lane_reads_back_from_its_name() {
        for lane in Lane::OWN {
            assert_eq!(Lane::parse(lane.as_str()), Some(lane));
        }
        assert_eq!(Lane::parse("invoices_2").map(|l| l.to_string()).as_deref(), Some("invoices_2"));
        for bad in ["", "Orders", "9lives", "a b", "a-b", &"x".repeat(33)] {
            assert_eq!(Lane::parse(bad), None, "{bad:?}");
        }
    }
}
