//! What an attempt to deliver means for its message.
//!
//! Delivery is at least once: whatever was not answered is tried again, and consumers tell a repeat by
//! the message's id. An attempt whose worker disappeared is repeated without being counted, so that
//! crashes of ours do not use up a message's retries; only a message that takes its worker down again
//! and again is given up for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::effect::Verdict;
use crate::mutant::{self, Mutant};
use crate::outcome::Reason;
use crate::time::Timestamp;

use super::delay::{Expression, default_wait};
use super::{
    CANCELLED, Event, LastAttempt, LogLine, Logged, Message, PARKED, Response, State, callback,
};

/// Workers that may disappear over one message before it is given up.
pub const LAPSES_MAX: u32 = 25;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Came {
    Delivered,
    /// It may be tried again; the destination may have said when.
    Again {
        retry_in: Option<Duration>,
    },
    /// The destination wants it never again.
    Never,
    /// The worker is gone.
    Lapsed,
}

/// An attempt that is over.
#[derive(Clone, Debug)]
pub struct Attempted {
    pub came: Came,
    pub response: Response,
    /// Failures before this attempt, lapses among them.
    pub failures: u32,
    pub lapses: u32,
    /// Why it failed, for the effect's row.
    pub reason: Option<Reason>,
    /// The destination may have got it nevertheless.
    pub in_doubt: bool,
    pub started_at: Timestamp,
    pub now: Timestamp,
    /// Its place in the log; callbacks are named after it.
    pub id: Uuid,
    /// When effects may be pruned that are created now, once they are settled.
    pub expires_at: Timestamp,
    /// A failed message lets go of its key, so that it can be sent again.
    pub reopen: bool,
}

impl Attempted {
    /// Retries before this attempt, as the caller counts them: our own crashes are not among them.
    #[must_use]
    pub const fn retried(&self) -> u32 {
        self.failures.saturating_sub(self.lapses)
    }
}

/// What becomes of a message, and of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Concluded {
    pub verdict: Verdict,
    pub changes: Changes,
}

#[must_use]
pub fn conclude(message: &Message, attempt: &Attempted) -> Concluded {
    if mutant::on(Mutant::CancelOverwritten) && attempt.came == Came::Delivered {
        let after = Message { state: State::Delivered, ..message.after(Event::Deliver) };
        return ended(message, after, attempt);
    }
    if message.state != State::Ready {
        return beside(message, attempt);
    }
    match attempt.came {
        Came::Delivered => ended(message, message.ended(Event::Deliver, attempt.now), attempt),
        Came::Lapsed if attempt.lapses < LAPSES_MAX => again(message, attempt, attempt.now),
        Came::Lapsed | Came::Never => given_up(message, attempt),
        Came::Again { retry_in } => {
            let retried = attempt.retried();
            if retried >= message.asked.retries {
                return given_up(message, attempt);
            }
            let wait = retry_in.unwrap_or_else(|| wait(message, retried));
            again(message, attempt, attempt.now.plus(wait))
        }
    }
}

/// The wait before a retry; `retried` is 0 before the first one.
fn wait(message: &Message, retried: u32) -> Duration {
    let asked = message.asked.retry_delay.as_deref();
    match asked.and_then(|text| Expression::parse(text).ok()) {
        Some(expression) => expression.wait(retried),
        None => default_wait(retried + 1),
    }
}

/// The message went on while the attempt was under way. What came of the attempt is on record, and
/// changes nothing.
///
/// It was cancelled, as a rule. One that waits at a gate again was taken away from this worker, which
/// has lost its lease and writes nothing; its effect stays parked all the same.
fn beside(message: &Message, attempt: &Attempted) -> Concluded {
    let what = match attempt.came {
        Came::Delivered => Logged::Delivered,
        Came::Lapsed => Logged::Lapsed,
        Came::Again { .. } | Came::Never => Logged::Error,
    };
    let verdict = match attempt.came {
        _ if !message.state.is_over() => retry(attempt, PARKED),
        Came::Delivered => Verdict::Succeeded,
        _ => aborted(attempt, CANCELLED),
    };
    Concluded { verdict, changes: log(message, what, None, attempt) }
}

fn retry(attempt: &Attempted, run_at: Timestamp) -> Verdict {
    let reason = attempt.reason.clone().unwrap_or_else(|| Reason::new("FAILED", ""));
    Verdict::Retry { run_at, reason, in_doubt: attempt.in_doubt }
}

fn aborted(attempt: &Attempted, code: &str) -> Verdict {
    let reason = attempt.reason.clone().unwrap_or_else(|| Reason::new(code, ""));
    Verdict::Aborted { reason, in_doubt: attempt.in_doubt }
}

fn again(message: &Message, attempt: &Attempted, run_at: Timestamp) -> Concluded {
    let what = if attempt.came == Came::Lapsed { Logged::Lapsed } else { Logged::Error };
    let mut changes = log(message, what, Some(run_at), attempt);
    if what == Logged::Error {
        changes.extend(callback::after_attempt(message, attempt));
    }
    // A wait is not an attempt: meanwhile others of the same flow control may go.
    let (event, parked) = match message.asked.flow {
        Some(_) => (Event::Throttle, Some(PARKED)),
        None => (Event::Retry, None),
    };
    // Also where the state stays as it is: whoever cancelled the message during the attempt has
    // changed its version, and there must not be another attempt.
    let after = Message { due_at: run_at, ..message.after(event) };
    changes.push(Write::MessageUpdate(Box::new(after)));
    Concluded { verdict: retry(attempt, parked.unwrap_or(run_at)), changes }
}

fn given_up(message: &Message, attempt: &Attempted) -> Concluded {
    let mut after = message.ended(Event::GiveUp, attempt.now);
    after.dlq_id = Some(dlq_id(message.id, attempt.now));
    if attempt.reopen {
        after.dedup_key = None;
    }
    ended(message, after, attempt)
}

/// The name of a dead letter: the moment, and enough of the message's id to tell it from others.
fn dlq_id(id: Uuid, now: Timestamp) -> String {
    let (_, low) = id.as_u64_pair();
    format!("{}-{}", now.as_millis(), low & 0xffff_ffff_ffff)
}

/// The attempt was the last: the message itself tells of it.
fn ended(message: &Message, mut after: Message, attempt: &Attempted) -> Concluded {
    let &Attempted { id, started_at, .. } = attempt;
    after.last = Some(LastAttempt { id, started_at, retried: attempt.retried() });
    after.response = Some(attempt.response.clone());
    let mut changes = Changes::new();
    if !mutant::on(Mutant::CallbackForgotten) {
        changes.extend(callback::after_attempt(message, attempt));
    }
    if let Some(dlq_id) = &after.dlq_id {
        changes.extend(callback::after_failure(message, dlq_id, attempt));
    }
    let verdict = match after.state {
        State::Delivered => Verdict::Succeeded,
        _ => aborted(attempt, "FAILED"),
    };
    changes.push(Write::MessageUpdate(Box::new(after)));
    Concluded { verdict, changes }
}

fn log(
    message: &Message,
    what: Logged,
    next_at: Option<Timestamp>,
    attempt: &Attempted,
) -> Changes {
    Write::MessageLog(Box::new(LogLine {
        id: attempt.id,
        message_id: message.id,
        at: attempt.now,
        what,
        started_at: attempt.started_at,
        retried: attempt.retried(),
        next_at,
        response: Some(attempt.response.clone()),
    }))
    .into()
}

#[cfg(test)]
mod tests;
