//! Everything that outlives a process: the world, what clients remember, the log, the time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::Timestamp;

use super::book::Book;
use super::dice::Stream;
use super::invariants::Memory;
use super::log::Log;
use super::planted::Planted;
use super::swarm::Swarm;
use super::world::World;

/// A Monday at midnight; any moment would do.
pub(crate) const EPOCH: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

pub(crate) struct Scene {
    pub seed: u64,
    pub swarm: Swarm,
    pub planted: Option<Planted>,
    pub log: Log,
    world: Mutex<World>,
    book: Mutex<Book>,
    memory: Mutex<Memory>,
    progress: Mutex<Progress>,
}

struct Progress {
    now: Timestamp,
    step: u64,
    steps: u64,
    /// For the small delays of calls.
    delays: Stream,
    /// When the lives so far began.
    births: Vec<Timestamp>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scene {
    pub fn new(seed: u64, steps: u64, planted: Option<Planted>, verbose: bool) -> Self {
        let mut swarm = Swarm::draw(seed);
        if let Some(planted) = planted {
            planted.arrange(&mut swarm);
        }
        let delays = Stream::new(seed, "line");
        Self {
            seed,
            planted,
            log: Log::new(EPOCH, verbose),
            world: Mutex::new(World::new(seed, swarm.clone())),
            book: Mutex::new(Book::new(planted)),
            memory: Mutex::default(),
            progress: Mutex::new(Progress {
                now: EPOCH,
                step: 0,
                steps,
                delays,
                births: vec![EPOCH],
            }),
            swarm,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    pub fn is_calm(&self) -> bool {
        self.world().is_calm()
    }

    /// The moment at which the next life begins.
    pub fn now(&self) -> Timestamp {
        lock(&self.progress).now
    }

    /// A life is over; the next one begins at `now`.
    pub fn next_life(&self, now: Timestamp) {
        let mut progress = lock(&self.progress);
        progress.now = now;
        progress.births.push(now);
    }

    /// In which life a moment lies.
    pub fn life_at(&self, at: Timestamp) -> usize {
        lock(&self.progress).births.partition_point(|birth| *birth <= at)
    }

    /// The number of the next step, if there is one left.
    pub fn take_step(&self) -> Option<u64> {
        let mut progress = lock(&self.progress);
        if progress.step == progress.steps {
            return None;
        }
        progress.step += 1;
        Some(progress.step)
    }

    pub fn steps_taken(&self) -> u64 {
        lock(&self.progress).step
    }

    pub fn small_delay(&self) -> Duration {
        lock(&self.progress).delays.millis(0, 3)
    }
}
