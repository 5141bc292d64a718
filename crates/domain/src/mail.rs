//! Mail: one delivery for each recipient, known to the end.
//!
//! A [`Delivery`] is a row in `mail_deliveries` and, when its time has come, an effect on the lane
//! `mail`. [`begin`](attempt::begin) marks it before anything is sent, so that after a crash exactly
//! those that were under way are in doubt; [`conclude`] decides what an attempt means; [`batch`] is
//! many of them at once; [`pace`] and [`control`] say when the lane may send at all. A mail that may
//! have arrived is never called failed, and one that was refused because of our pace, our quota or
//! our settings loses none of its attempts.

pub mod address;
pub mod attempt;
pub mod batch;
pub mod conclude;
pub mod control;
pub mod deadline;
pub mod locale;
pub mod pace;
pub mod request;
pub mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::digest::digest;
use crate::effect::{EffectId, NewEffect};
use crate::lane::Lane;
use crate::time::Timestamp;

pub use address::Address;
pub use locale::Locale;
pub use verdict::{MailFault, MailResult, Stage, classify};

/// The effect kind of a delivery, and the subject type of audit lines.
pub const KIND: &str = "mail";

/// How long a settled effect is kept where nobody says otherwise.
const KEEP: Duration = Duration::from_secs(48 * 3600);

/// So many attempts are remembered with a delivery; the oldest go first.
pub const HISTORY_MAX: usize = 20;

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// To be sent, being sent, or to be tried again.
    Queued,
    /// The server has said that it took it.
    Sent,
    /// It was not sent and will not be.
    Failed,
    /// It was given up without an answer: it may have arrived.
    PossiblySent,
    Cancelled,
}

impl Status {
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Sent, Self::Failed, Self::PossiblySent, Self::Cancelled];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::PossiblySent => "possibly_sent",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// As the API spells it.
    #[must_use]
    pub const fn public(self) -> &'static str {
        match self {
            Self::PossiblySent => "possiblySent",
            other => other.as_str(),
        }
    }

    /// Reads either spelling.
    #[must_use]
    pub fn parse_public(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.public() == text).or_else(|| Self::parse(text))
    }

    #[must_use]
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Queued)
    }
}

/// What can happen to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An attempt brought nothing, and there will be another.
    Retry,
    /// The server took it.
    Send,
    /// It was given up, and no attempt can have arrived.
    Refuse,
    /// It was given up, or let go, after an attempt that may have arrived.
    Doubt,
    Cancel,
    /// Somebody wants it tried again.
    Reopen,
}

impl Event {
    pub const ALL: [Self; 6] =
        [Self::Retry, Self::Send, Self::Refuse, Self::Doubt, Self::Cancel, Self::Reopen];
}

/// A transition that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mail that is {} cannot {event:?}", .state.as_str())]
pub struct IllegalTransition {
    pub state: Status,
    pub event: Event,
}

/// The state machine, whole.
pub const fn next(state: Status, event: Event) -> Result<Status, IllegalTransition> {
    match (state, event) {
        (Status::Queued, Event::Retry)
        | (Status::Failed | Status::PossiblySent | Status::Cancelled, Event::Reopen) => {
            Ok(Status::Queued)
        }
        // An attempt that was under way when the mail was cancelled is not called back, and what it
        // brought is what the caller is told.
        (Status::Queued | Status::Cancelled, Event::Send) => Ok(Status::Sent),
        (Status::Queued | Status::Cancelled, Event::Doubt) => Ok(Status::PossiblySent),
        (Status::Queued, Event::Refuse) => Ok(Status::Failed),
        (Status::Queued, Event::Cancel) => Ok(Status::Cancelled),
        (state, event) => Err(IllegalTransition { state, event }),
    }
}

/// A mail to one recipient, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub id: Uuid,
    pub version: i64,
    pub batch_id: Option<Uuid>,
    pub to: String,
    pub template: String,
    pub locale: Locale,
    pub data: Value,
    /// Keeps a second mail of the same request out.
    pub key: Option<String>,
    /// Of the request, where there is a key.
    pub digest: Option<String>,
    /// What the audit is told when it is sent, beside the fact itself.
    pub on_sent: Option<OnSent>,
    pub created_at: Timestamp,
    pub traceparent: Option<String>,
    pub status: Status,
    /// The effect that sends it; `None` while its turn has not come.
    pub effect_id: Option<Uuid>,
    /// Attempts that count, in this life.
    pub attempts: u32,
    /// An earlier attempt may have arrived: whoever gets it twice has the same Message-ID twice.
    pub possibly_duplicate: bool,
    /// It is being sent now.
    pub sending: Option<Sending>,
    pub sent_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Why the last attempt failed: a class, and a sentence.
    pub fault: Option<Fault>,
    pub history: Vec<Try>,
}

/// Marks an attempt that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    pub since: Timestamp,
    /// Of the worker's lease: an older one belongs to an attempt that is over.
    pub fence: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A class of [`MailFault`], or `worker_lost`.
    pub class: String,
    pub text: String,
}

/// One attempt, as a delivery remembers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Try {
    pub at: Timestamp,
    /// `sent`, a class of [`MailFault`], or `worker_lost`.
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    pub text: String,
}

/// An audit line that is due when a mail is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnSent {
    pub action: String,
    pub target_id: String,
    pub office_id: Option<String>,
    pub details: Value,
}

impl Delivery {
    /// Where it stands after something has happened to it. Without the transition, as it was.
    fn after(&self, event: Event, now: Timestamp) -> Self {
        let status = next(self.status, event).unwrap_or(self.status);
        let ended_at = match (status.is_over(), self.status == status) {
            (false, _) => None,
            (true, true) => self.ended_at,
            (true, false) => Some(now),
        };
        let sent_at = if status == Status::Sent { self.sent_at.or(Some(now)) } else { None };
        Self { version: self.version + 1, status, ended_at, sent_at, ..self.clone() }
    }

    /// Its `Message-ID`, without the brackets: the same at every attempt.
    #[must_use]
    pub fn message_id(&self, domain: &str) -> String {
        format!("{}@{domain}", self.id.simple())
    }
}

/// A mail that somebody wants sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Names the delivery, and its first effect.
    pub id: Uuid,
    pub to: String,
    pub template: String,
    pub locale: Locale,
    pub data: Value,
    pub batch_id: Option<Uuid>,
    /// At most one mail per key, whoever asks how often.
    pub key: Option<String>,
}

impl Letter {
    /// What makes two requests under one key the same.
    #[must_use]
    pub fn digest(&self) -> String {
        let asked = serde_json::json!({
            "to": self.to, "template": self.template, "locale": self.locale, "data": self.data,
        });
        digest(&asked, &[])
    }

    /// The delivery, not yet in anybody's hands.
    #[must_use]
    pub fn delivery(self, now: Timestamp) -> Delivery {
        let digest = self.key.as_ref().map(|_| self.digest());
        Delivery {
            id: self.id,
            version: 1,
            batch_id: self.batch_id,
            to: self.to,
            template: self.template,
            locale: self.locale,
            data: self.data,
            key: self.key,
            digest,
            on_sent: None,
            created_at: now,
            traceparent: None,
            status: Status::Queued,
            effect_id: None,
            attempts: 0,
            possibly_duplicate: false,
            sending: None,
            sent_at: None,
            ended_at: None,
            fault: None,
            history: Vec::new(),
        }
    }
}

/// Takes a mail: its row, and the effect that sends it.
///
/// For whoever owes somebody a mail with something else that happens: the changes go with theirs.
#[must_use]
pub fn enqueue(letter: Letter, now: Timestamp) -> Changes {
    accept(letter.delivery(now), now, now.plus(KEEP)).1
}

/// Takes a delivery, with the effect that sends it.
#[must_use]
pub fn accept(delivery: Delivery, now: Timestamp, expires_at: Timestamp) -> (Delivery, Changes) {
    let delivery = Delivery { effect_id: Some(delivery.id), ..delivery };
    let effect = effect(&delivery, EffectId(delivery.id), now, expires_at);
    let changes =
        Changes::from(Write::MailInsert(Box::new(delivery.clone()))).with(Write::Enqueue(effect));
    (delivery, changes)
}

/// The effect that sends a delivery.
fn effect(delivery: &Delivery, id: EffectId, now: Timestamp, expires_at: Timestamp) -> NewEffect {
    NewEffect {
        id,
        lane: Lane::MAIL,
        kind: KIND.into(),
        key: None,
        digest: None,
        payload: serde_json::json!({"delivery": delivery.id}).to_string(),
        run_at: now,
        created_at: now,
        expires_at,
        traceparent: delivery.traceparent.clone(),
        held_by: None,
    }
}

/// Gives a delivery whose turn has come the effect that sends it. Each life has an effect of its own.
#[must_use]
pub fn feed(delivery: &Delivery, now: Timestamp, expires_at: Timestamp) -> (Delivery, Changes) {
    let id = match delivery.version {
        1 => delivery.id,
        version => {
            crate::ids::derived(now, &[b"mail", delivery.id.as_bytes(), &version.to_be_bytes()])
        }
    };
    let fed = Delivery { effect_id: Some(id), version: delivery.version + 1, ..delivery.clone() };
    let effect = effect(&fed, EffectId(id), now, expires_at);
    let changes =
        Changes::from(Write::MailUpdate(Box::new(fed.clone()))).with(Write::Enqueue(effect));
    (fed, changes)
}

/// Cancels a delivery that has not ended. An attempt under way is not called back, and one that may
/// have arrived is not taken back by cancelling.
#[must_use]
pub fn cancel(delivery: &Delivery, now: Timestamp) -> Option<Delivery> {
    next(delivery.status, Event::Cancel).ok()?;
    let event = if delivery.possibly_duplicate { Event::Doubt } else { Event::Cancel };
    let after = delivery.after(event, now);
    // What waits to be tried again lets go of its effect, which would take it for one that a person has
    // requeued. One that is under way needs it to tell how it ended.
    let effect_id = after.effect_id.filter(|_| after.sending.is_some());
    Some(Delivery { effect_id, ..after })
}

/// A delivery that ended otherwise than well begins again: its attempts, not its history. If it was cancelled while it was
/// being sent, that attempt belongs to the life before: how it ends will not be heard, so it may have arrived.
#[must_use]
pub fn reopen(delivery: &Delivery, now: Timestamp) -> Option<Delivery> {
    next(delivery.status, Event::Reopen).ok()?;
    let doubt = delivery.status == Status::PossiblySent || delivery.sending.is_some();
    Some(Delivery {
        attempts: 0,
        effect_id: None,
        sending: None,
        fault: None,
        possibly_duplicate: delivery.possibly_duplicate || doubt,
        ..delivery.after(Event::Reopen, now)
    })
}

#[cfg(test)]
mod tests;
