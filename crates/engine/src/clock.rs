//! The clock and the dice: the only places where time and chance enter.
//!
//! Production reads the system's; a simulation counts from a chosen moment on the runtime's paused
//! time and draws from a seed, so that a run can be repeated to the byte.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::effect::EffectId;
use uuid::Uuid;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    System,
    /// Simulated: so much time has passed since `start` as the runtime believes, give or take the
    /// drift in parts per million.
    Simulated {
        epoch: Timestamp,
        start: tokio::time::Instant,
        drift_ppm: i32,
    },
}

impl Clock {
    /// A clock that shows `epoch` now, and goes with the runtime's time.
    #[must_use]
    pub fn simulated(epoch: Timestamp) -> Self {
        Self::drifting(epoch, 0)
    }

    /// A clock that shows `epoch` now, and goes faster or slower than the runtime's time.
    #[must_use]
    pub fn drifting(epoch: Timestamp, drift_ppm: i32) -> Self {
        Self::Simulated { epoch, start: tokio::time::Instant::now(), drift_ppm }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this is the clock")]
            Self::System => {
                let passed = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::from_micros(0).plus(passed)
            }
            Self::Simulated { epoch, start, drift_ppm } => {
                let elapsed = start.elapsed();
                let drift = elapsed * drift_ppm.unsigned_abs() / 1_000_000;
                let passed =
                    if *drift_ppm < 0 { elapsed.saturating_sub(drift) } else { elapsed + drift };
                epoch.plus(passed)
            }
        }
    }

    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Makes ids.
#[derive(Clone, Debug)]
pub struct Ids {
    clock: Clock,
    dice: Arc<Mutex<Dice>>,
}

impl Ids {
    /// Ids that nobody else makes.
    #[must_use]
    pub fn random(clock: Clock) -> Self {
        // The hasher's keys come from the operating system.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self::seeded(clock, seed)
    }

    #[must_use]
    pub fn seeded(clock: Clock, seed: u64) -> Self {
        Self { clock, dice: Arc::new(Mutex::new(Dice::new(seed))) }
    }

    /// A `UUIDv7`: sorts by the time it was made.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let (high, low) = {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            (dice.roll(), dice.roll())
        };
        let mut random = [0; 10];
        random[..2].copy_from_slice(&high.to_be_bytes()[..2]);
        random[2..].copy_from_slice(&low.to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    #[must_use]
    pub fn effect(&self) -> EffectId {
        EffectId(self.uuid())
    }

    /// A number that nobody can foresee without the seed.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).roll()
    }
}

/// `SplitMix64`: small, and good enough to tell ids apart. Not for secrets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.roll() % bound }
    }

    /// True in `percent` of a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_carry_their_version() {
        let early = Ids::seeded(Clock::System, 7).uuid();
        assert_eq!(early.get_version_num(), 7);
        let ids = Ids::random(Clock::System);
        let mut made: Vec<Uuid> = (0..1000).map(|_| ids.uuid()).collect();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), 1000, "no two are the same");
    }

    #[test]
    fn the_same_seed_rolls_the_same() {
        let roll = |seed| {
            let mut dice = Dice::new(seed);
            [dice.roll(), dice.roll(), dice.below(10)]
        };
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
    }
}
