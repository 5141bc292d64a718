//! Totals with the time at which they were read, as far back as a window reaches.

use std::collections::VecDeque;
use std::time::Duration;

use tashika_domain::Timestamp;

/// Between two totals that are kept: an hour of them is small, whoever wakes the watchman.
const APART: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct History {
    /// Oldest first; never empty. An empty list of totals stands for zeros.
    kept: VecDeque<(Timestamp, Vec<u64>)>,
}

impl History {
    /// Of counters that were zero then.
    pub fn since(start: Timestamp) -> Self {
        Self { kept: VecDeque::from([(start, Vec::new())]) }
    }

    /// Takes totals, and returns how much they grew within the window.
    pub fn grown(&mut self, totals: Vec<u64>, window: Duration, now: Timestamp) -> Vec<u64> {
        let floor = now.minus(window);
        // The last totals from before the window stay: growth is counted from them.
        while self.kept.get(1).is_some_and(|(at, _)| *at <= floor) {
            self.kept.pop_front();
        }
        let before = self.kept.front().map_or(&[][..], |(_, totals)| totals);
        let was = |place: usize| before.get(place).copied().unwrap_or(0);
        let grown = totals.iter().enumerate();
        let grown = grown.map(|(place, total)| total.saturating_sub(was(place))).collect();
        // The newest are always kept; between two looks in one moment, the later one.
        let places = self.kept.len();
        if places > 1 && self.kept[places - 1].0.since(self.kept[places - 2].0) < APART {
            self.kept.pop_back();
        }
        self.kept.push_back((now, totals));
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn growth_is_counted_from_the_edge_of_the_window() {
        let mut history = History::since(at(0));
        let mut grown =
            |total, now| history.grown(vec![total], Duration::from_secs(60), at(now))[0];
        assert_eq!(grown(5, 1), 5, "what was counted before the first look counts");
        assert_eq!(grown(7, 30), 7);
        assert_eq!(grown(7, 60), 7);
        assert_eq!(grown(7, 61), 2, "the first five are over");
        assert_eq!(grown(7, 90), 0);
        assert_eq!(grown(9, 91), 2);
        assert_eq!(grown(9, 1000), 0, "after a long pause the last total is the edge");
    }

    #[test]
    fn many_looks_do_not_fill_the_memory() {
        let mut history = History::since(at(0));
        for step in 0..10_000 {
            let now = Timestamp::from_micros(step * 100_000);
            history.grown(vec![step.unsigned_abs()], Duration::from_secs(60), now);
        }
        assert!(history.kept.len() <= 64, "{}", history.kept.len());
    }
}
