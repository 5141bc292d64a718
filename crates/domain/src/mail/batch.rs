//! Many mails at once.
//!
//! A batch is received in portions, each durable, and nothing of it is sent before all of it is there:
//! a stream that breaks off sends nothing. After that its *driver*, an effect on the lane `timers`,
//! feeds its deliveries to the mail lane a little ahead of what can be sent, so that a single mail does
//! not wait behind a hundred thousand. The same driver carries out what people ask for later: to
//! cancel the rest, or to try again what failed. Each wish begins a new run; a driver of an older run
//! finds that out and ends.

mod drive;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::effect::{EffectId, NewEffect};
use crate::lane::Lane;
use crate::time::Timestamp;

pub use drive::{Ahead, Look, PAGE, drive, look};

use super::{Delivery, Letter, Locale, Status};

/// The effect kind of a driver, and the subject type of audit lines.
pub const KIND: &str = "mail.batch";

/// So many recipients a batch may have.
pub const RECIPIENTS_MAX: usize = 100_000;

/// A batch of which nothing more has come for so long will not be completed.
pub const RECEIVE_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchStatus {
    /// Its recipients will be known at a later moment.
    Scheduled,
    /// Its recipients are coming in.
    Receiving,
    /// All of it is there, and is sent.
    Accepted,
    /// Somebody has cancelled the rest of it.
    Cancelled,
    /// It was never received to the end: nothing of it was sent.
    Aborted,
}

impl BatchStatus {
    pub const ALL: [Self; 5] =
        [Self::Scheduled, Self::Receiving, Self::Accepted, Self::Cancelled, Self::Aborted];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Receiving => "receiving",
            Self::Accepted => "accepted",
            Self::Cancelled => "cancelled",
            Self::Aborted => "aborted",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// What can happen to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEvent {
    /// One more portion of recipients.
    Take,
    /// All recipients are there.
    Complete,
    /// The recipients stopped coming.
    Abort,
    Cancel,
    /// What did not end well is to be tried again.
    Retry,
}

impl BatchEvent {
    pub const ALL: [Self; 5] = [Self::Take, Self::Complete, Self::Abort, Self::Cancel, Self::Retry];
}

/// A transition that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch that is {} cannot {event:?}", .state.as_str())]
pub struct IllegalBatchTransition {
    pub state: BatchStatus,
    pub event: BatchEvent,
}

/// The state machine, whole.
pub const fn next(
    state: BatchStatus,
    event: BatchEvent,
) -> Result<BatchStatus, IllegalBatchTransition> {
    match (state, event) {
        (BatchStatus::Receiving, BatchEvent::Take) => Ok(BatchStatus::Receiving),
        (BatchStatus::Scheduled | BatchStatus::Receiving, BatchEvent::Complete)
        | (BatchStatus::Accepted | BatchStatus::Cancelled, BatchEvent::Retry) => {
            Ok(BatchStatus::Accepted)
        }
        (BatchStatus::Receiving, BatchEvent::Abort) => Ok(BatchStatus::Aborted),
        (BatchStatus::Scheduled | BatchStatus::Accepted, BatchEvent::Cancel) => {
            Ok(BatchStatus::Cancelled)
        }
        (state, event) => Err(IllegalBatchTransition { state, event }),
    }
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Work {
    Nothing,
    /// Give effects to deliveries that have none, after this one.
    Feed {
        after: Option<Uuid>,
    },
    /// Cancel whatever is queued.
    Cancel,
    /// Open what has one of these statuses again, after this one; then feed.
    Reopen {
        statuses: Vec<String>,
        after: Option<Uuid>,
    },
}

/// A batch as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub id: Uuid,
    pub version: i64,
    pub template: String,
    pub created_at: Timestamp,
    pub status: BatchStatus,
    /// At most one batch per key; one that was aborted lets go of it.
    pub key: Option<String>,
    /// Of everything that was asked, once it is complete.
    pub digest: Option<String>,
    /// Recipients so far.
    pub total: i64,
    pub work: Work,
    /// Grows with every wish: the driver's own must be this one.
    pub run: i64,
    pub updated_at: Timestamp,
}

/// What a batch's recipients are told apart by.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipient {
    pub to: String,
    pub locale: Locale,
    pub data: Value,
}

/// The id of a batch's nth delivery. Ids sort as their recipients came.
#[must_use]
pub fn delivery_id(batch: &Batch, nth: usize) -> Uuid {
    let mut random = [0; 10];
    // 18 bits of number where the order is decided: 12 before the variant's bits and 6 after them.
    let number = nth as u64 & 0x3_ffff;
    random[..2].copy_from_slice(&((number >> 6) as u16).to_be_bytes());
    random[2] = (number & 63) as u8;
    let digest = Sha256::digest(batch.id.as_bytes());
    random[3..].copy_from_slice(&digest[..7]);
    let millis = u64::try_from(batch.created_at.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// What was asked, as one digest, made while it comes in.
#[derive(Clone)]
pub struct RunningDigest(Sha256);

impl RunningDigest {
    #[must_use]
    pub fn new(template: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(crate::digest::canonical(&json!(template)).as_bytes());
        Self(hash)
    }

    pub fn add(&mut self, recipient: &Recipient) {
        let asked = json!({"to": recipient.to, "locale": recipient.locale, "data": recipient.data});
        self.0.update(b"\n");
        self.0.update(crate::digest::canonical(&asked).as_bytes());
    }

    #[must_use]
    pub fn finish(self) -> String {
        let mut text = "sha256:".to_owned();
        for byte in self.0.finalize() {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        text
    }
}

/// A batch of which nothing is there yet.
#[must_use]
pub fn draft(id: Uuid, template: &str, key: Option<String>, now: Timestamp) -> Batch {
    Batch {
        id,
        version: 1,
        template: template.to_owned(),
        created_at: now,
        status: BatchStatus::Receiving,
        key,
        digest: None,
        total: 0,
        work: Work::Nothing,
        run: 1,
        updated_at: now,
    }
}

/// Begins to receive: the row, and a driver that notices if nothing more comes.
#[must_use]
pub fn open(batch: &Batch, expires_at: Timestamp) -> Changes {
    let now = batch.created_at;
    Changes::from(Write::MailBatchInsert(Box::new(batch.clone()))).with(driver(
        batch,
        now.plus(RECEIVE_PATIENCE),
        now,
        expires_at,
    ))
}

/// Begins a batch whose recipients are written down now and told at `run_at`.
#[must_use]
pub fn schedule(batch: &Batch) -> Write {
    let scheduled = Batch { status: BatchStatus::Scheduled, ..batch.clone() };
    Write::MailBatchInsert(Box::new(scheduled))
}

impl Batch {
    fn after(&self, event: BatchEvent, now: Timestamp) -> Result<Self, IllegalBatchTransition> {
        let status = next(self.status, event)?;
        Ok(Self { status, version: self.version + 1, updated_at: now, ..self.clone() })
    }

    /// A new wish: the driver of the one before has nothing to do any more.
    fn wishing(self, work: Work) -> Self {
        Self { work, run: self.run + 1, ..self }
    }
}

/// The deliveries of a batch's next recipients.
pub fn deliveries<'a>(
    batch: &'a Batch,
    recipients: impl IntoIterator<Item = Recipient> + 'a,
) -> impl Iterator<Item = Delivery> + 'a {
    let first = usize::try_from(batch.total).unwrap_or(0);
    recipients.into_iter().zip(first..).map(|(recipient, nth)| {
        let letter = Letter {
            id: delivery_id(batch, nth),
            to: recipient.to,
            template: batch.template.clone(),
            locale: recipient.locale,
            data: recipient.data,
            batch_id: Some(batch.id),
            key: None,
        };
        letter.delivery(batch.created_at)
    })
}

/// Takes the next recipients.
pub fn take(
    batch: &Batch,
    recipients: Vec<Recipient>,
    now: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let count = i64::try_from(recipients.len()).unwrap_or(0);
    let after = batch.after(BatchEvent::Take, now)?;
    let after = Batch { total: batch.total + count, ..after };
    let mut changes = Changes::from(Write::MailBatchUpdate(Box::new(after.clone())));
    for delivery in deliveries(batch, recipients) {
        changes.push(Write::MailInsert(Box::new(delivery)));
    }
    Ok((after, changes))
}

/// All recipients are there: the driver begins to feed them.
pub fn complete(
    batch: &Batch,
    digest: String,
    actor: Actor,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let after = batch.after(BatchEvent::Complete, now)?;
    let after = Batch { digest: Some(digest), ..after }.wishing(Work::Feed { after: None });
    let changes = Changes::from(Write::MailBatchUpdate(Box::new(after.clone())))
        .with(driver(&after, now, now, expires_at))
        .with(audit(&after, "mail.batch_accepted", actor, now));
    Ok((after, changes))
}

/// What has come of it is cancelled, and its key is free again.
pub fn abort(
    batch: &Batch,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let after = batch.after(BatchEvent::Abort, now)?;
    let after = Batch { key: None, ..after }.wishing(Work::Cancel);
    let changes = Changes::from(Write::MailBatchUpdate(Box::new(after.clone())))
        .with(driver(&after, now, now, expires_at))
        .with(audit(&after, "mail.batch_aborted", Actor::SYSTEM, now));
    Ok((after, changes))
}

/// Cancels what has not been sent.
pub fn cancel_rest(
    batch: &Batch,
    actor: Actor,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let after = batch.after(BatchEvent::Cancel, now)?.wishing(Work::Cancel);
    let changes = Changes::from(Write::MailBatchUpdate(Box::new(after.clone())))
        .with(driver(&after, now, now, expires_at))
        .with(audit(&after, "mail.batch_cancelled", actor, now));
    Ok((after, changes))
}

/// Tries again what ended in one of these statuses.
pub fn retry_rest(
    batch: &Batch,
    statuses: &[Status],
    actor: Actor,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let statuses = statuses.iter().map(|status| status.as_str().to_owned()).collect();
    let after = batch.after(BatchEvent::Retry, now)?;
    let after = after.wishing(Work::Reopen { statuses, after: None });
    let changes = Changes::from(Write::MailBatchUpdate(Box::new(after.clone())))
        .with(driver(&after, now, now, expires_at))
        .with(audit(&after, "mail.batch_retried", actor, now));
    Ok((after, changes))
}

/// The effect that drives a batch. Named after the version, so that each step has its own.
fn driver(batch: &Batch, at: Timestamp, now: Timestamp, expires_at: Timestamp) -> Write {
    let parts: [&[u8]; 4] = [
        b"mail.batch",
        batch.id.as_bytes(),
        &batch.version.to_be_bytes(),
        &at.as_micros().to_be_bytes(),
    ];
    Write::Enqueue(NewEffect {
        id: EffectId(crate::ids::derived(now, &parts)),
        lane: Lane::TIMERS,
        kind: KIND.into(),
        key: None,
        digest: None,
        payload: json!({"batch": batch.id, "run": batch.run}).to_string(),
        run_at: at,
        created_at: now,
        expires_at,
        traceparent: None,
        held_by: None,
    })
}

fn audit(batch: &Batch, action: &'static str, actor: Actor, now: Timestamp) -> Write {
    let target_id = batch.id.to_string();
    let nth = u64::try_from(batch.version).unwrap_or(0);
    let details =
        json!({"template": batch.template, "total": batch.total, "status": batch.status.as_str()});
    Write::Audit(Box::new(NewAudit {
        id: line_id(now, &target_id, action, nth),
        actor,
        action: action.to_owned(),
        target_type: "mail_batch",
        target_id,
        office_id: None,
        details: details.to_string(),
        now,
    }))
}

#[cfg(test)]
mod tests;
