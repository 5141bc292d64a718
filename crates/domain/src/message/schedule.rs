//! Schedules: messages that are sent again and again, at the times of a cron expression.
//!
//! The next firing is an effect of its own. It carries the version of the schedule that asked for it:
//! a schedule that was changed, paused or deleted meanwhile has another, and the effect does nothing.
//! A firing writes the messages, the schedule's next version and the next firing in one transaction,
//! so each tick fires once, whoever performs it and however often.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::effect::{EffectId, NewEffect};
use crate::ids::derived;
use crate::lane::Lane;
use crate::time::Timestamp;

use super::asked::Asked;
use super::cron::Cron;
use super::gate::CLOCKS_APART;

/// The effect kind of a firing.
pub const KIND: &str = "schedule";

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub id: Uuid,
    pub version: i64,
    /// Known by this name outside.
    pub name: String,
    pub cron: String,
    /// A URL, or the name of a group of URLs.
    pub destination: String,
    pub asked: Asked,
    pub body: Arc<[u8]>,
    /// Between a firing and its message's delivery.
    pub delay: Option<Duration>,
    pub paused: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_at: Option<Timestamp>,
    pub next_at: Option<Timestamp>,
    /// The messages of the last firing.
    pub last_messages: Vec<Uuid>,
    /// Why the last firing brought nothing.
    pub error: Option<String>,
    pub deleted_at: Option<Timestamp>,
}

/// The next firing after `now`: the schedule with its time, and the effect.
#[must_use]
pub fn armed(
    schedule: Schedule,
    now: Timestamp,
    expires_at: Timestamp,
) -> (Schedule, Option<NewEffect>) {
    let open = schedule.deleted_at.is_none() && !schedule.paused;
    // A process whose clock is ahead may have fired a tick that is still to come here: it does not come again.
    let last = schedule.last_at.filter(|last| *last < now.plus(CLOCKS_APART));
    let after = now.max(last.unwrap_or(now));
    let next = Cron::parse(&schedule.cron).ok().filter(|_| open).and_then(|c| c.next_after(after));
    let effect = next.map(|at| NewEffect {
        id: EffectId(derived(now, &[schedule.id.as_bytes(), &schedule.version.to_be_bytes()])),
        lane: Lane::TIMERS,
        kind: KIND.into(),
        key: Some(format!("{}:{}", schedule.id, schedule.version)),
        digest: None,
        payload: json!({"schedule": schedule.id, "version": schedule.version}).to_string(),
        run_at: at,
        created_at: now,
        expires_at,
        traceparent: None,
        held_by: None,
    });
    (Schedule { next_at: next, ..schedule }, effect)
}

/// The schedule as it goes on after a firing that led to `messages`, with its next firing.
///
/// Ticks that were missed are not made up for: the one that was due fires late, once.
#[must_use]
pub fn fired(
    schedule: &Schedule,
    messages: Result<Vec<Uuid>, String>,
    now: Timestamp,
    expires_at: Timestamp,
) -> Changes {
    let (last_messages, error) = match messages {
        Ok(ids) => (ids, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let after = Schedule {
        version: schedule.version + 1,
        last_at: Some(now),
        last_messages,
        error,
        ..schedule.clone()
    };
    let (after, effect) = armed(after, now, expires_at);
    let mut changes = Changes::from(Write::ScheduleUpdate(Box::new(after)));
    if let Some(effect) = effect {
        changes.push(Write::Enqueue(effect));
    }
    changes
}

#[cfg(test)]
mod tests;
