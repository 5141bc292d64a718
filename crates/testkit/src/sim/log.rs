//! The trace of a run, its counters and its violations.
//!
//! The trace is the run: two runs with the same hash did the same. Lines are hashed as they come and
//! only the last ones are kept, so that a run may be long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tashika_domain::Timestamp;

use super::tally::Tally;

/// Lines kept for the story of a violation.
const KEPT: usize = 60;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise that was broken.
    pub rule: &'static str,
    /// The order it is about; empty if it is about the whole.
    pub key: String,
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, key, detail } = self;
        match key.as_str() {
            "" => write!(f, "{rule}: {detail}"),
            key => write!(f, "{rule} ({key}): {detail}"),
        }
    }
}

/// Where everybody writes down what happens. Only one thread ever does, so the locks never wait.
pub(crate) struct Log {
    inner: Mutex<Inner>,
}

struct Inner {
    epoch: Timestamp,
    hash: Sha256,
    lines: u64,
    last: VecDeque<String>,
    keep: usize,
    tallies: BTreeMap<Tally, u64>,
    violations: Vec<Violation>,
}

/// What is left of a log.
pub(crate) struct Closed {
    pub hash: String,
    pub lines: u64,
    pub last: Vec<String>,
    pub tallies: BTreeMap<Tally, u64>,
    pub violations: Vec<Violation>,
}

impl Log {
    /// `verbose` keeps every line.
    pub fn new(epoch: Timestamp, verbose: bool) -> Self {
        let inner = Inner {
            epoch,
            hash: Sha256::new(),
            lines: 0,
            last: VecDeque::new(),
            keep: if verbose { usize::MAX } else { KEPT },
            tallies: BTreeMap::new(),
            violations: Vec::new(),
        };
        Self { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for people.
    pub fn note(&self, at: Timestamp, text: &str) {
        let mut inner = self.lock();
        let since = at.since(inner.epoch);
        let line = format!("{} {text}", clock_face(since));
        inner.write(&line);
        if inner.last.len() >= inner.keep {
            inner.last.pop_front();
        }
        inner.last.push_back(line);
    }

    /// A line that belongs to the trace and would only be noise to people.
    pub fn mark(&self, at: Timestamp, text: &str) {
        let mut inner = self.lock();
        let line = format!("{} {text}", at.as_micros());
        inner.write(&line);
    }

    pub fn count(&self, what: Tally) {
        *self.lock().tallies.entry(what).or_default() += 1;
    }

    pub fn violate(&self, at: Timestamp, violation: Violation) {
        self.note(at, &format!("VIOLATION {violation}"));
        self.lock().violations.push(violation);
    }

    pub fn is_violated(&self) -> bool {
        !self.lock().violations.is_empty()
    }

    pub fn close(&self) -> Closed {
        let inner = self.lock();
        Closed {
            hash: hex(&inner.hash.clone().finalize()),
            lines: inner.lines,
            last: inner.last.iter().cloned().collect(),
            tallies: inner.tallies.clone(),
            violations: inner.violations.clone(),
        }
    }
}

impl Inner {
    fn write(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.lines += 1;
    }
}

/// Hours, minutes, seconds and milliseconds since the run began.
fn clock_face(since: Duration) -> String {
    let seconds = since.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", since.subsec_millis())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
