//! Chance, drawn from the seed.
//!
//! Every consumer has a stream of its own, named by what it decides about. A change in the workload
//! therefore does not shift the faults of the world, and a request meets the same fate in two runs
//! that differ in something else.

use std::time::Duration;

use tashika_domain::digest;
use tashika_engine::Dice;

/// How likely something is, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Odds(u64);

impl Odds {
    pub const NEVER: Self = Self(0);

    pub const fn percent(percent: u64) -> Self {
        Self(percent * 10_000)
    }

    /// So many in a million.
    pub const fn millionth(parts: u64) -> Self {
        Self(parts)
    }

    pub const fn in_million(self) -> u64 {
        self.0
    }
}

/// A sequence of chance decisions of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Dice);

impl Stream {
    /// The stream of `seed` that decides `what`.
    pub fn new(seed: u64, what: &str) -> Self {
        let hash = digest::sha256(format!("{seed}/{what}").as_bytes());
        // Sixteen of its hexadecimal digits, after "sha256:".
        Self(Dice::new(u64::from_str_radix(&hash[7..23], 16).unwrap_or(seed)))
    }

    pub const fn roll(&mut self) -> u64 {
        self.0.roll()
    }

    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    pub const fn hit(&mut self, odds: Odds) -> bool {
        self.0.below(1_000_000) < odds.0
    }

    /// A span in whole milliseconds, the resolution of simulated timers.
    pub const fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Swarm testing: a fault that is absent in a quarter of the runs, and otherwise as likely as
    /// `most` at most. Runs in which everything happens at once hide what single faults do.
    pub const fn odds(&mut self, most: Odds) -> Odds {
        let (absent, parts) = (self.below(4) == 0, self.between(1, most.0));
        if absent { Odds::NEVER } else { Odds(parts) }
    }
}
