//! Gates: queues and flow controls, and whom they let through.
//!
//! A gate's row is the lock: whoever lets messages through writes its next version in the same
//! changes, so two processes cannot let through more than the limits allow. How many are through and
//! not yet done is counted, not kept: there is nothing to correct after a crash.

use std::time::Duration;

use uuid::Uuid;

use crate::changes::{Changes, Reschedule, Write};
use crate::effect::EffectId;
use crate::lane::Lane;
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

use super::asked::Flow;
use super::{Event, Message, State};

/// A queue: messages in order, a few at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub id: Uuid,
    pub version: i64,
    pub name: String,
    pub parallelism: u32,
    pub paused: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Its name is free again.
    pub deleted_at: Option<Timestamp>,
}

impl Queue {
    #[must_use]
    pub fn new(id: Uuid, name: &str, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            name: name.to_owned(),
            parallelism: 1,
            paused: false,
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    /// How many more may be let through beside `active` others.
    #[must_use]
    pub fn room(&self, active: u32) -> u32 {
        if mutant::on(Mutant::QueueGateOpen) {
            return u32::MAX;
        }
        if self.paused { 0 } else { self.parallelism.saturating_sub(active) }
    }
}

/// Clocks of processes are not further apart than this. A period that begins later was begun by a clock that has been put back since.
pub(super) const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Limits on messages that share a key.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowControl {
    pub id: Uuid,
    pub version: i64,
    pub key: String,
    pub parallelism: Option<u32>,
    pub rate: Option<u32>,
    pub period: Duration,
    /// When the current period began, and how many were let through in it.
    pub period_start: Timestamp,
    pub period_count: u32,
    pub paused: bool,
    /// Pinned limits do not follow the messages.
    pub pinned_parallelism: bool,
    pub pinned_rate: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

impl FlowControl {
    #[must_use]
    pub fn new(id: Uuid, flow: &Flow, now: Timestamp) -> Self {
        Self {
            id,
            version: 1,
            key: flow.key.clone(),
            parallelism: flow.parallelism,
            rate: flow.rate,
            period: flow.period,
            period_start: now,
            period_count: 0,
            paused: false,
            pinned_parallelism: false,
            pinned_rate: false,
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    /// The newest message's limits replace those before it, except for what is pinned. `None` if
    /// nothing changes.
    #[must_use]
    pub fn configured(&self, flow: &Flow, now: Timestamp) -> Option<Self> {
        let mut after = self.clone();
        if !self.pinned_parallelism {
            after.parallelism = flow.parallelism;
        }
        if !self.pinned_rate {
            after.rate = flow.rate;
            after.period = flow.period;
        }
        (after != *self).then(|| Self { version: self.version + 1, updated_at: now, ..after })
    }

    /// The control as it is at a moment: a new period begins when the old one is over.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        let mut at = self.clone();
        let period = self.period.max(Duration::from_millis(1));
        if now >= self.period_start.plus(period) {
            let passed = now.since(self.period_start).as_micros() / period.as_micros().max(1);
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            at.period_start = self.period_start.plus(period.saturating_mul(passed));
            at.period_count = 0;
        } else if self.period_start.since(now) > CLOCKS_APART {
            at.period_start = now;
            at.period_count = 0;
        }
        at
    }

    /// How many more may be let through now, beside `active` others.
    #[must_use]
    pub fn room(&self, active: u32) -> u32 {
        if self.paused {
            return 0;
        }
        let by_parallelism = self.parallelism.map_or(u32::MAX, |max| max.saturating_sub(active));
        let by_rate = self.rate.map_or(u32::MAX, |max| max.saturating_sub(self.period_count));
        by_parallelism.min(by_rate)
    }

    /// When the rate allows more again, if it is the rate that holds everybody back.
    #[must_use]
    pub fn opens_at(&self) -> Option<Timestamp> {
        let spent = !self.paused && self.rate.is_some_and(|max| self.period_count >= max);
        spent.then(|| self.period_start.plus(self.period))
    }
}

/// Lets the first of the waiting messages through a queue. `None` if there is no room.
#[must_use]
pub fn admit_from_queue(
    queue: &Queue,
    active: u32,
    waiting: &[Message],
    now: Timestamp,
) -> Option<Changes> {
    let room = queue.room(active) as usize;
    let mut changes = admit(waiting.iter().take(room), now)?;
    let after = Queue { version: queue.version + 1, ..queue.clone() };
    changes.push(Write::QueueUpdate(Box::new(after)));
    Some(changes)
}

/// Lets the first of the waiting messages through a flow control. `None` if there is no room.
#[must_use]
pub fn admit_from_flow(
    control: &FlowControl,
    active: u32,
    waiting: &[Message],
    now: Timestamp,
) -> Option<Changes> {
    let control = control.at(now);
    // The period may have been begun by a process whose clock is ahead: who is counted in it does not pass before it.
    let now = now.max(control.period_start);
    let room = control.room(active) as usize;
    let count = waiting.len().min(room);
    let mut changes = admit(waiting.iter().take(room), now)?;
    let count = if mutant::on(Mutant::FlowNotCounted) { 0 } else { count };
    let let_through = u32::try_from(count).unwrap_or(u32::MAX);
    let after = FlowControl {
        version: control.version + 1,
        period_count: control.period_count.saturating_add(let_through),
        ..control
    };
    changes.push(Write::FlowUpdate(Box::new(after)));
    Some(changes)
}

fn admit<'a>(chosen: impl Iterator<Item = &'a Message>, now: Timestamp) -> Option<Changes> {
    let mut changes = Changes::new();
    for message in chosen {
        let event = match (message.state, &message.asked.flow) {
            (State::Queued, Some(_)) => Event::Throttle,
            _ => Event::Admit,
        };
        let after = Message { due_at: now, ..message.after(event) };
        if after.state == State::Ready {
            changes.push(Write::Reschedule(Reschedule {
                id: EffectId(message.id),
                lane: Lane::DELIVERIES,
                run_at: now,
            }));
        }
        changes.push(Write::MessageUpdate(Box::new(after)));
    }
    (!changes.is_empty()).then_some(changes)
}

#[cfg(test)]
mod tests;
