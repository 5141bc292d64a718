//! Messages: what callers give the queue to deliver over HTTP.
//!
//! A message is an effect like any other; beside its row in the outbox it has one of its own that says
//! what was asked ([`Asked`]) and where it stands ([`State`]). A message that has to wait for its turn
//! in a queue or for its flow control is parked: its effect has no time until [`gate`] gives it one.
//! One that goes straight into the hands of a worker carries the lease itself ([`Held`]), and has a row
//! in the outbox only if its first attempt does not end it.
//! What an attempt means is decided in [`conclude`]. Every accepted message is delivered, dead-lettered,
//! cancelled or still to come, and [`State`] says which.

pub mod address;
pub mod asked;
pub mod callback;
pub mod conclude;
pub mod cron;
pub mod dedup;
pub mod delay;
pub mod flow;
pub mod gate;
pub mod group;
pub mod keys;
pub mod names;
pub mod redact;
pub mod schedule;
pub mod span;
pub mod spec;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::changes::{Changes, Withdraw, Write};
use crate::effect::{Effect, EffectId, FIRST_FENCE, NewEffect};
use crate::lane::Lane;
use crate::mutant::{self, Mutant};
use crate::time::Timestamp;

pub use asked::{Asked, Callback, Flow, Headers, Method, Redact};

/// The effect kind of a delivery.
pub const KIND: &str = "message";

/// What an effect is told: its message says the rest.
const PAYLOAD: &str = "{}";

/// When a parked effect is due: in the last hour of the year 9999, until somebody gives it a time.
pub const PARKED: Timestamp = Timestamp::from_micros(253_402_297_200_000_000);

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Waits for its turn in its queue.
    Queued,
    /// Waits for its flow control to let it pass.
    Throttled,
    /// To be attempted when its time has come, or being attempted.
    Ready,
    Delivered,
    /// Given up: a dead letter.
    Failed,
    Cancelled,
}

impl State {
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Throttled,
        Self::Ready,
        Self::Delivered,
        Self::Failed,
        Self::Cancelled,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Throttled => "throttled",
            Self::Ready => "ready",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Delivered | Self::Failed | Self::Cancelled)
    }
}

/// What can happen to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing holds it back any more.
    Admit,
    /// Its flow control decides when it goes on: after its turn in a queue, or before a retry.
    Throttle,
    /// An attempt failed or lapsed, and the next one has its time.
    Retry,
    Deliver,
    GiveUp,
    Cancel,
}

impl Event {
    pub const ALL: [Self; 6] =
        [Self::Admit, Self::Throttle, Self::Retry, Self::Deliver, Self::GiveUp, Self::Cancel];
}

/// A transition that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message that is {} cannot {event:?}", .state.as_str())]
pub struct IllegalTransition {
    pub state: State,
    pub event: Event,
}

/// The state machine, whole.
pub const fn next(state: State, event: Event) -> Result<State, IllegalTransition> {
    match (state, event) {
        (State::Queued | State::Throttled, Event::Admit) | (State::Ready, Event::Retry) => {
            Ok(State::Ready)
        }
        (State::Queued | State::Ready, Event::Throttle) => Ok(State::Throttled),
        (State::Ready, Event::Deliver) => Ok(State::Delivered),
        (State::Ready, Event::GiveUp) => Ok(State::Failed),
        (State::Queued | State::Throttled | State::Ready, Event::Cancel) => Ok(State::Cancelled),
        (state, event) => Err(IllegalTransition { state, event }),
    }
}

/// A message as it is kept. Its id is also the id of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: Uuid,
    pub version: i64,
    pub asked: Arc<Asked>,
    pub body: Arc<[u8]>,
    /// The queue in which it occupies a place: its own, or for a callback that of its original.
    pub slot: Option<String>,
    pub not_before: Timestamp,
    pub created_at: Timestamp,
    pub traceparent: Option<String>,
    pub state: State,
    /// While it waits for its turn or for a retry: not before. Else: when it last was let through.
    pub due_at: Timestamp,
    /// Keeps other messages of the same key out.
    pub dedup_key: Option<String>,
    /// Its name among the dead letters, while it is one.
    pub dlq_id: Option<String>,
    pub ended_at: Option<Timestamp>,
    /// The attempt that ended it. It has no line of its own in the log.
    pub last: Option<LastAttempt>,
    /// What came of that attempt: the answer, or what there was instead of one.
    pub response: Option<Response>,
    /// In whose hands it is, while its effect has no row.
    pub held: Option<Held>,
}

/// The lease of a message whose effect has no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub by: String,
    /// When the holder was last heard of.
    pub at: Timestamp,
}

/// The attempt that ended a message, beside what the message itself says of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// Its place among the lines of the log.
    pub id: Uuid,
    pub started_at: Timestamp,
    /// Attempts before it.
    pub retried: u32,
}

/// What came back from a destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// 0 if there was no answer.
    pub status: u16,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    #[serde(default, with = "base64_text", skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<u8>,
    /// What went wrong, if it was not the answer itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Bytes in JSON.
mod base64_text {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(bytes, &BASE64_STANDARD))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

/// A message's name outside.
#[must_use]
pub fn public_id(id: Uuid) -> String {
    format!("msg_{}", id.simple())
}

/// Reads a message's name. `None`: no message has such a name.
#[must_use]
pub fn parse_id(name: &str) -> Option<Uuid> {
    let hex = name.strip_prefix("msg_").filter(|hex| hex.len() == 32)?;
    Uuid::try_parse(hex).ok()
}

/// A line of a message's log: one attempt, or another thing that happened to it. The attempt that ends a message is
/// written with the message ([`LastAttempt`]), all others have rows of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub id: Uuid,
    pub message_id: Uuid,
    pub at: Timestamp,
    pub what: Logged,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// Attempts before this one.
    pub retried: u32,
    /// When the next attempt is due, if there is one.
    pub next_at: Option<Timestamp>,
    pub response: Option<Response>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    Delivered,
    /// The attempt failed; there will be another.
    Error,
    /// The attempt failed, and it was the last.
    Failed,
    /// The worker disappeared during the attempt. It does not count as one.
    Lapsed,
    Cancelled,
}

impl Logged {
    pub const ALL: [Self; 5] =
        [Self::Delivered, Self::Error, Self::Failed, Self::Lapsed, Self::Cancelled];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Error => "error",
            Self::Failed => "failed",
            Self::Lapsed => "lapsed",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.as_str() == text)
    }
}

/// A message that is about to be accepted.
#[derive(Clone, Debug)]
pub struct Draft {
    pub id: Uuid,
    pub asked: Arc<Asked>,
    pub body: Arc<[u8]>,
    pub not_before: Option<Timestamp>,
    pub dedup_key: Option<String>,
    /// Goes with its original's place in a queue instead of waiting for one.
    pub holds: Option<String>,
    pub traceparent: Option<String>,
    pub now: Timestamp,
    /// When its effect may be pruned, once it is settled.
    pub expires_at: Timestamp,
    /// What comes first, if nothing makes it wait.
    pub begin: Begin,
}

/// How a message begins that is due at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With whoever claims it.
    Due,
    /// In the hands of this worker.
    InHand(String),
    /// Behind others who wait for its destination: there is no room for it before then.
    InLine(Timestamp),
}

/// Takes a message: its row, and its effect, which has no time yet if the message must wait, and no row
/// yet if somebody has it in hand.
#[must_use]
pub fn accept(draft: Draft) -> (Message, Changes) {
    let Draft { id, asked, body, not_before, dedup_key, holds, traceparent, .. } = draft;
    let (now, expires_at) = (draft.now, draft.expires_at);
    let not_before = not_before.unwrap_or(now).max(now);
    let state = match (&holds, &asked.queue, &asked.flow) {
        (None, Some(_), _) => State::Queued,
        (_, _, Some(_)) => State::Throttled,
        _ => State::Ready,
    };
    let slot = holds.or_else(|| asked.queue.clone());
    let (holder, first_at) = match draft.begin {
        Begin::InHand(by) if state == State::Ready && not_before <= now => (Some(by), not_before),
        Begin::InLine(at) => (None, not_before.max(at)),
        Begin::InHand(_) | Begin::Due => (None, not_before),
    };
    let message = Message {
        id,
        version: 1,
        asked,
        body,
        slot,
        not_before,
        created_at: now,
        traceparent,
        state,
        due_at: not_before,
        dedup_key: dedup_key.filter(|_| !mutant::on(Mutant::DedupKeyNotStored)),
        dlq_id: None,
        ended_at: None,
        last: None,
        response: None,
        held: holder.map(|by| Held { by, at: now }),
    };
    let mut changes = Changes::from(Write::MessageInsert(Box::new(message.clone())));
    if message.held.is_none() {
        let run_at = if state == State::Ready { first_at } else { PARKED };
        changes.push(Write::Enqueue(message.effect(run_at, expires_at)));
    }
    (message, changes)
}

/// The effect of a message that carries its lease itself, as its holder has it.
#[must_use]
pub fn effect_in_hand(
    id: Uuid,
    created_at: Timestamp,
    due_at: Timestamp,
    traceparent: Option<String>,
) -> Effect {
    Effect {
        id: EffectId(id),
        lane: Lane::DELIVERIES,
        kind: KIND.into(),
        key: None,
        digest: None,
        payload: PAYLOAD.into(),
        attempts: 0,
        in_doubt: false,
        fence: FIRST_FENCE,
        has_row: false,
        created_at,
        run_at: due_at,
        traceparent,
    }
}

impl Message {
    /// Its effect, for whoever claims it.
    fn effect(&self, run_at: Timestamp, expires_at: Timestamp) -> NewEffect {
        NewEffect {
            id: EffectId(self.id),
            lane: Lane::DELIVERIES,
            kind: KIND.into(),
            key: None,
            digest: None,
            payload: PAYLOAD.into(),
            run_at,
            created_at: self.created_at,
            expires_at,
            traceparent: self.traceparent.clone(),
            held_by: None,
        }
    }

    /// Its effect as the holder has it, if it carries the lease itself.
    #[must_use]
    pub fn in_hand(&self) -> Option<Effect> {
        self.held.as_ref()?;
        let traceparent = self.traceparent.clone();
        Some(effect_in_hand(self.id, self.created_at, self.due_at, traceparent))
    }

    /// The message after something has happened to it. Without the transition, as it was.
    ///
    /// Whatever happens to it is the end of a lease that it carries.
    #[must_use]
    pub fn after(&self, event: Event) -> Self {
        let state = next(self.state, event).unwrap_or(self.state);
        Self { state, version: self.version + 1, held: None, ..self.clone() }
    }

    fn ended(&self, event: Event, now: Timestamp) -> Self {
        Self { ended_at: Some(now), ..self.after(event) }
    }
}

/// Cancels a message that has not ended. An attempt under way is not called back.
#[must_use]
pub fn cancel(message: &Message, now: Timestamp) -> Option<Changes> {
    if message.state.is_over() {
        return None;
    }
    let after = Message {
        // Whoever cancels a message may want to send it again.
        dedup_key: None,
        // Whoever has it in hand lets go of it when its attempt is over.
        held: message.held.clone(),
        ..message.ended(Event::Cancel, now)
    };
    let line = LogLine {
        id: crate::ids::derived(now, &[b"cancel", message.id.as_bytes()]),
        message_id: message.id,
        at: now,
        what: Logged::Cancelled,
        started_at: now,
        retried: 0,
        next_at: None,
        response: None,
    };
    let withdraw = Withdraw { id: EffectId(message.id), now, code: CANCELLED };
    Some(
        Changes::from(Write::MessageUpdate(Box::new(after)))
            .with(Write::Withdraw(withdraw))
            .with(Write::MessageLog(Box::new(line))),
    )
}

/// Code of an effect whose message was cancelled.
pub const CANCELLED: &str = "CANCELLED";

/// A dead letter that nobody wants any more, or that was sent again.
#[must_use]
pub fn bury(message: &Message) -> Changes {
    let after = Message { dlq_id: None, version: message.version + 1, ..message.clone() };
    Write::MessageUpdate(Box::new(after)).into()
}

/// Lets go of a key that has done its time, so that the next message may have it.
#[must_use]
pub fn release_key(message: &Message) -> Write {
    let after = Message { dedup_key: None, version: message.version + 1, ..message.clone() };
    Write::MessageUpdate(Box::new(after))
}

#[cfg(test)]
mod tests;
