//! The pulse of one process: what its workers did lately, in steps of a few seconds, for an hour.
//!
//! Workers note how attempts ended; the watchman closes a step with what waits at that moment. The
//! console draws it. It is kept in memory and per process on purpose: it is a picture, not a promise,
//! and whoever needs history or all processes together asks the metrics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::{Lane, Status, Timestamp};
use tashika_store::LaneCount;

/// How far back steps are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Steps that are kept at most, whatever the clock does.
const STEPS_MAX: usize = 720;

/// Upper bounds of the durations that are told apart, in milliseconds; one more holds the rest.
const BOUNDS: [f64; 15] = [
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0,
    30_000.0, 120_000.0,
];

/// What became of attempts in one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub succeeded: u64,
    /// Will be tried again.
    pub failed: u64,
    pub aborted: u64,
    durations: [u64; BOUNDS.len() + 1],
}

impl Tally {
    fn note(&mut self, status: Status, took: Duration) {
        match status {
            Status::Succeeded => self.succeeded += 1,
            Status::Aborted => self.aborted += 1,
            Status::Pending | Status::Sending | Status::Failed => self.failed += 1,
        }
        let millis = took.as_secs_f64() * 1000.0;
        let place = BOUNDS.iter().position(|bound| millis <= *bound).unwrap_or(BOUNDS.len());
        self.durations[place] += 1;
    }

    /// The duration, in milliseconds, that a share of the attempts stayed below: the upper bound of
    /// its class. `None` without attempts.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: u64 = self.durations.iter().sum();
        if all == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among attempts of some seconds"
        )]
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (place, count) in self.durations.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(BOUNDS.get(place).copied().unwrap_or(BOUNDS[BOUNDS.len() - 1]));
            }
        }
        None
    }
}

/// Some seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it ended.
    pub at: Timestamp,
    pub took: Duration,
    pub lanes: BTreeMap<Lane, Tally>,
    /// Due effects that waited at its end.
    pub waiting: Vec<LaneCount>,
}

#[derive(Debug, Default)]
pub struct Pulse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Lane, Tally>,
    /// When the open step began.
    since: Option<Timestamp>,
    steps: VecDeque<Step>,
    /// Attempts of this life.
    beats: u64,
}

impl Pulse {
    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers are valid at every step, so a panic elsewhere does not spoil them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt has ended.
    pub(crate) fn note(&self, lane: &Lane, status: Status, took: Duration) {
        let mut state = self.state();
        state.beats += 1;
        match state.open.get_mut(lane) {
            Some(tally) => tally.note(status, took),
            None => state.open.entry(lane.clone()).or_default().note(status, took),
        }
    }

    /// Closes the open step.
    pub(crate) fn close(&self, now: Timestamp, waiting: Vec<LaneCount>) {
        let mut state = self.state();
        let took = state.since.map_or(Duration::ZERO, |since| now.since(since));
        let lanes = std::mem::take(&mut state.open);
        state.since = Some(now);
        state.steps.push_back(Step { at: now, took, lanes, waiting });
        let horizon = now.minus(KEPT);
        while state.steps.len() > STEPS_MAX || state.steps.front().is_some_and(|s| s.at < horizon) {
            state.steps.pop_front();
        }
    }

    /// The steps of the last hour, oldest first.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.state().steps.iter().cloned().collect()
    }

    /// Attempts since the start: whoever sees it change knows that something has happened.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.state().beats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn steps_hold_what_happened_in_them_and_go_after_an_hour() {
        let pulse = Pulse::default();
        pulse.close(at(10), Vec::new());
        pulse.note(&Lane::ORDERS, Status::Succeeded, Duration::from_millis(3));
        pulse.note(&Lane::ORDERS, Status::Failed, Duration::from_millis(40));
        pulse.note(&Lane::PAYMENTS, Status::Aborted, Duration::from_secs(400));
        pulse.close(at(20), vec![LaneCount { lane: Lane::ORDERS, count: 7 }]);
        let steps = pulse.steps();
        assert_eq!(steps.len(), 2);
        let (orders, payments) = (&steps[1].lanes[&Lane::ORDERS], &steps[1].lanes[&Lane::PAYMENTS]);
        assert_eq!((orders.succeeded, orders.failed, orders.aborted), (1, 1, 0));
        assert_eq!((orders.quantile(0.5), orders.quantile(0.95)), (Some(5.0), Some(50.0)));
        assert_eq!((payments.aborted, payments.quantile(0.5)), (1, Some(120_000.0)));
        assert_eq!((steps[1].took, steps[1].waiting[0].count), (Duration::from_secs(10), 7));
        assert_eq!(pulse.beats(), 3);
        pulse.close(at(20 + 3600), Vec::new());
        assert_eq!(pulse.steps().len(), 2, "the first step is older than an hour");
        for n in 0..2000 {
            pulse.close(at(4000), vec![LaneCount { lane: Lane::ORDERS, count: n }]);
        }
        assert_eq!(pulse.steps().len(), STEPS_MAX);
    }

    #[test]
    fn without_attempts_there_is_no_duration() {
        assert_eq!(Tally::default().quantile(0.95), None);
    }
}
