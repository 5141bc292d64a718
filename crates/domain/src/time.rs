//! Points in time, as every row and every decision uses them.
//!
//! Microseconds since 1970 in UTC: the resolution both databases keep, so a value read back equals
//! the value written. Formatting happens only at the edges.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in UTC with microsecond resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// Time passed since `earlier`; zero when `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Whether this moment has come, for something that comes round at least once in `period`. A moment that is
    /// further away was set by a clock that has been put back since: waiting for it would be waiting for as long
    /// as the clock was put back.
    #[must_use]
    pub fn has_come(self, now: Self, period: Duration) -> bool {
        now >= self || self.since(now) > period
    }

    /// Whole days since 1970: the day a daily quota belongs to.
    #[must_use]
    pub const fn day(self) -> i64 {
        self.0.div_euclid(86_400_000_000)
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with six digits: `2026-11-15T09:30:00.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_reads_rfc_3339() {
        let at = Timestamp::from_micros(1_763_199_000_123_456);
        assert_eq!(at.to_string(), "2025-11-15T09:30:00.123456Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::from_micros(i64::MAX).plus(Duration::MAX).as_micros(), i64::MAX);
        let (early, late) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
        assert_eq!(late.since(early), Duration::from_micros(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn a_moment_that_a_clock_has_left_behind_has_come() {
        let (period, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let now = Timestamp::from_micros(10_000_000_000);
        let next = now.plus(period);
        assert!(!next.has_come(now, period), "not yet");
        assert!(next.has_come(next, period), "now");
        assert!(next.has_come(now.plus(hour), period), "long ago");
        assert!(next.has_come(now.minus(hour), period), "the clock was put back");
    }

    #[test]
    fn days_before_1970_count_downwards() {
        assert_eq!(Timestamp::from_micros(-1).day(), -1);
        assert_eq!(Timestamp::from_micros(86_400_000_000).day(), 1);
    }
}
