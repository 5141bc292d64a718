//! Wake-ups: hints that work may be waiting.
//!
//! The store marks a lane when it has committed effects that are due, or when PostgreSQL tells of
//! another process's; the dispatcher waits here. A wake-up may be missing or superfluous: the
//! dispatcher's poll is the guarantee.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use tashika_domain::effect::Verdict;
use tashika_domain::{Changes, Lane, Timestamp, Write};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Wakeups {
    state: Mutex<State>,
    notify: Notify,
    /// For the watchman: something was opened or closed that alerts are about.
    attention: Notify,
}

#[derive(Debug, Default)]
struct State {
    lanes: BTreeSet<Lane>,
    /// The earliest moment at which a known effect becomes due.
    next_due: Option<Timestamp>,
}

impl Wakeups {
    /// An effect in `lane` can be claimed now.
    pub fn mark(&self, lane: &Lane) {
        let fresh = {
            let mut state = self.lock();
            !state.lanes.contains(lane) && state.lanes.insert(lane.clone())
        };
        if fresh {
            self.notify.notify_one();
        }
    }

    /// An effect will be due at `at`.
    pub fn mark_due(&self, at: Timestamp) {
        let earlier = {
            let mut state = self.lock();
            let earlier = state.next_due.is_none_or(|known| at < known);
            if earlier {
                state.next_due = Some(at);
            }
            earlier
        };
        if earlier {
            self.notify.notify_one();
        }
    }

    /// Resolves when something was marked since the last call, at once if it already was.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Resolves when a case or an alert was opened or closed since the last call, at once if it already
    /// was.
    pub async fn attention(&self) {
        self.attention.notified().await;
    }

    /// Takes the marked lanes.
    pub fn take(&self) -> BTreeSet<Lane> {
        std::mem::take(&mut self.lock().lanes)
    }

    /// Whether an effect has become due by `now`; if so it is forgotten.
    pub fn take_due(&self, now: Timestamp) -> bool {
        let mut state = self.lock();
        let due = state.next_due.is_some_and(|at| at <= now);
        if due {
            state.next_due = None;
        }
        due
    }

    /// The earliest known moment at which an effect becomes due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.lock().next_due
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work that committed changes have left for somebody.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Lanes with effects that are due, and the earliest of each.
    pub due: BTreeMap<Lane, Timestamp>,
    /// The earliest effect that is due at another moment.
    pub later: Option<Timestamp>,
    /// Whether the watchman has something new to look at.
    pub attention: bool,
}

impl Work {
    pub fn of<'a>(committed: impl Iterator<Item = &'a Changes>) -> Self {
        let mut work = Self::default();
        for write in committed.flat_map(Changes::writes) {
            match write {
                // Already in somebody's hands.
                Write::Enqueue(effect) if effect.held_by.is_some() => {}
                Write::Enqueue(effect) if effect.run_at <= effect.created_at => {
                    work.now(&effect.lane, effect.run_at);
                }
                Write::Enqueue(effect) => work.at(effect.run_at),
                Write::Requeue(wish) => work.at(wish.now),
                Write::Release(release) => work.at(release.run_at),
                Write::Reschedule(wish) => work.now(&wish.lane, wish.run_at),
                Write::Settle(end) => {
                    if let Verdict::Retry { run_at, .. } = end.verdict {
                        work.at(run_at);
                    }
                }
                Write::OpenCase(_)
                | Write::CloseCase(_)
                | Write::ResolveCase(_)
                | Write::FireAlert(_)
                | Write::ResolveAlert(_) => work.attention = true,
                _ => {}
            }
        }
        work
    }

    fn now(&mut self, lane: &Lane, at: Timestamp) {
        match self.due.get_mut(lane) {
            Some(first) => *first = (*first).min(at),
            None => {
                self.due.insert(lane.clone(), at);
            }
        }
    }

    fn at(&mut self, at: Timestamp) {
        self.later = Some(self.later.map_or(at, |known| known.min(at)));
    }

    pub fn mark(&self, wakeups: &Wakeups) {
        self.due.keys().for_each(|lane| wakeups.mark(lane));
        if let Some(at) = self.later {
            wakeups.mark_due(at);
        }
        if self.attention {
            wakeups.attention.notify_one();
        }
    }
}
