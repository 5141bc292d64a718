//! Pace: how often something may happen (GCRA), and whose turn it is (smooth weighted round robin).
//!
//! Pure: `now` is an argument. Used for the rate of lanes, the rate of API clients and the shares of
//! lanes in a process.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::{Lane, Timestamp};

/// A steady rate that tolerates bursts.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Between two events at the steady rate.
    interval: Duration,
    /// How far ahead of the steady rate a burst may run.
    tolerance: Duration,
    /// When the next event would come at the steady rate.
    next: Timestamp,
}

/// Of two who ask at the same moment, the one whose moment is older may come second; that is no clock that was put
/// back.
const PUT_BACK: Duration = Duration::from_secs(10);

impl Pace {
    /// `rate` events per second, up to `burst` at once.
    #[must_use]
    pub fn new(rate_per_sec: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / rate_per_sec).unwrap_or(Duration::MAX);
        let tolerance = interval.saturating_mul(burst.max(1) - 1);
        Self { interval, tolerance, next: Timestamp::from_micros(i64::MIN) }
    }

    /// Lets one event happen, or says how long to wait for it.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        // It never runs further ahead than this: the clock was put back.
        if self.next > now.plus(self.tolerance).plus(self.interval).plus(PUT_BACK) {
            self.next = now;
        }
        let earliest = self.next.minus(self.tolerance);
        if now < earliest {
            return Err(earliest.since(now));
        }
        self.next = self.next.max(now).plus(self.interval);
        Ok(())
    }

    /// The event did not happen after all.
    pub fn give_back(&mut self) {
        self.next = self.next.minus(self.interval);
    }
}

/// Gives turns to lanes in proportion to their weights, without letting any wait for long.
#[derive(Debug, Default)]
pub struct Turns {
    credit: BTreeMap<Lane, i64>,
}

impl Turns {
    /// Whose turn it is among `candidates`.
    pub fn next<'a>(
        &mut self,
        candidates: impl Iterator<Item = (&'a Lane, u32)>,
    ) -> Option<&'a Lane> {
        let mut total = 0;
        let mut best: Option<(&Lane, i64)> = None;
        for (lane, weight) in candidates {
            let weight = i64::from(weight.max(1));
            total += weight;
            let credit = self.credit.entry(lane.clone()).or_insert(0);
            *credit += weight;
            if best.is_none_or(|(_, most)| *credit > most) {
                best = Some((lane, *credit));
            }
        }
        let (lane, _) = best?;
        if let Some(credit) = self.credit.get_mut(lane) {
            *credit -= total;
        }
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn a_clock_that_is_put_back_does_not_stop_it() {
        let mut pace = Pace::new(10.0, 3);
        let now = Timestamp::from_micros(10_000_000_000);
        for _ in 0..3 {
            assert_eq!(pace.take(now), Ok(()));
        }
        assert!(pace.take(now).is_err(), "the burst is over");
        let earlier = now.minus(Duration::from_secs(3600));
        for _ in 0..3 {
            assert_eq!(pace.take(earlier), Ok(()));
        }
        assert!(pace.take(earlier).is_err_and(|wait| wait <= Duration::from_millis(100)));
    }

    #[test]
    fn a_burst_then_the_steady_rate() {
        // The contract's 60 per minute with bursts of 30.
        let mut pace = Pace::new(1.0, 30);
        for n in 0..30 {
            assert_eq!(pace.take(at(0)), Ok(()), "{n}");
        }
        assert_eq!(pace.take(at(0)), Err(Duration::from_secs(1)));
        assert_eq!(pace.take(at(999)), Err(Duration::from_millis(1)));
        assert_eq!(pace.take(at(1000)), Ok(()));
        assert!(pace.take(at(1000)).is_err());
        pace.give_back();
        assert_eq!(pace.take(at(1000)), Ok(()));
    }

    #[test]
    fn turns_follow_the_weights_and_starve_nobody() {
        let lanes = [(Lane::ORDERS, 3), (Lane::MAIL, 1)];
        let mut turns = Turns::default();
        let order: Vec<String> = (0..8)
            .filter_map(|_| turns.next(lanes.iter().map(|(l, w)| (l, *w))).map(Lane::to_string))
            .collect();
        assert_eq!(order.iter().filter(|lane| *lane == "orders").count(), 6);
        assert!(order[..4].contains(&"mail".to_owned()), "{order:?}");
        assert_eq!(turns.next(std::iter::empty()), None);
    }
}
