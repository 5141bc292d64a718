//! What every kind of run has: a seed, a log, the time, and the troubles of a process. It outlives
//! the processes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::Timestamp;

use super::Options;
use super::coverage::Coverage;
use super::dice::Stream;
use super::log::{Log, Violation};
use super::trouble::{Process, is_of_the_disk};

/// A Monday at midnight; any moment would do.
pub(crate) const EPOCH: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

pub(crate) struct Stage {
    pub seed: u64,
    pub process: Process,
    pub log: Log,
    pub coverage: Mutex<Coverage>,
    skip: BTreeSet<u64>,
    calm: AtomicBool,
    calm_since: Mutex<Option<Timestamp>>,
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
    /// How long nobody will be there after this life, if that is not left to chance.
    pause: Option<Duration>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub fn new(options: &Options, process: Process) -> Self {
        let Options { seed, steps, verbose, .. } = *options;
        let progress = Progress {
            now: EPOCH,
            step: 0,
            steps,
            delays: Stream::new(seed, "line"),
            births: vec![EPOCH],
            pause: None,
        };
        Self {
            seed,
            process,
            log: Log::new(EPOCH, verbose),
            coverage: Mutex::default(),
            skip: options.mix.skip.clone(),
            calm: AtomicBool::new(false),
            calm_since: Mutex::new(None),
            progress: Mutex::new(progress),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// From now on nothing goes wrong any more; returns since when.
    pub fn calm_down(&self, now: Timestamp) -> Timestamp {
        self.calm.store(true, Ordering::Relaxed);
        *lock(&self.calm_since).get_or_insert(now)
    }

    /// Everything was at rest, and the run goes on after `span`.
    pub fn rest_for(&self, span: Duration) {
        *lock(&self.calm_since) = None;
        self.pause_for(span);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Reports a broken promise. A disk that fails has promised nothing.
    pub fn broken(&self, now: Timestamp, rule: &'static str, key: &str, detail: &str) {
        if is_of_the_disk(detail) {
            self.log.note(now, &format!("somebody is told {key}: {detail}"));
            return;
        }
        let violation = Violation { rule, key: key.to_owned(), detail: detail.to_owned() };
        self.log.violate(now, violation);
    }

    /// The moment at which the next life begins.
    pub fn now(&self) -> Timestamp {
        self.progress().now
    }

    /// A life is over; the next one begins at `now`.
    pub fn next_life(&self, now: Timestamp) {
        let mut progress = self.progress();
        progress.now = now;
        progress.births.push(now);
    }

    /// Nobody will be there for so long after this life.
    pub fn pause_for(&self, span: Duration) {
        self.progress().pause = Some(span);
    }

    pub fn take_pause(&self) -> Option<Duration> {
        self.progress().pause.take()
    }

    /// In which life a moment lies.
    pub fn life_at(&self, at: Timestamp) -> usize {
        self.progress().births.partition_point(|birth| *birth <= at)
    }

    /// The number of the next step, if there is one left.
    pub fn take_step(&self) -> Option<u64> {
        let mut progress = self.progress();
        if progress.step == progress.steps {
            return None;
        }
        progress.step += 1;
        Some(progress.step)
    }

    /// Whether nobody acts at a step.
    pub fn skips(&self, step: u64) -> bool {
        self.skip.contains(&step)
    }

    pub fn steps_taken(&self) -> u64 {
        self.progress().step
    }

    pub fn small_delay(&self) -> Duration {
        self.progress().delays.millis(0, 3)
    }
}
