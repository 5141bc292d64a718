//! What customers decide, drawn from the seed: each has dice of their own.

use std::time::Duration;

use tashika_engine::Dice;
use tokio_util::sync::CancellationToken;

pub(super) struct Chance(Dice);

impl Chance {
    /// The dice of one customer.
    pub const fn of(seed: u64, customer: u64) -> Self {
        let mut dice = Dice::new(seed ^ customer.wrapping_mul(0xa076_1d64_78bd_642f));
        Self(Dice::new(dice.roll()))
    }

    /// For somebody who branches off.
    pub const fn branch(&mut self) -> Self {
        Self(Dice::new(self.0.roll()))
    }

    pub const fn in_hundred(&mut self, percent: u64) -> bool {
        self.0.chance(percent)
    }

    /// Both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    pub const fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}

/// Lets time pass. False: the demonstration is over.
pub(super) async fn pass(time: Duration, over: &CancellationToken) -> bool {
    tokio::select! {
        () = over.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
