//! Receiving a batch of mails, a portion at a time.
//!
//! Recipients are checked as they come and written in portions, so that memory does not depend on how
//! many there are. Nothing is sent before [`Receiving::finish`]. Whoever drops a half-received batch
//! leaves it to its driver, which cancels it when nothing more has come for a minute.

use std::sync::Arc;

use metrics::counter;
use serde_json::Value;
use tashika_domain::audit::Actor;
use tashika_domain::check::Violation;
use tashika_domain::mail::batch::{
    self, Batch, BatchStatus, RECIPIENTS_MAX, Recipient, RunningDigest,
};
use tashika_domain::mail::request::{BatchHead, read_recipient};
use tashika_store::{CommitError, Key, StoreError};

use super::mail::{MailError, Mails, Taken, one_key};

/// Recipients that are written at once.
const PORTION: usize = 1000;

/// A batch that is coming in.
pub struct Receiving {
    mails: Arc<Mails>,
    head: BatchHead,
    who: String,
    stage: Stage,
    digest: RunningDigest,
    portion: Vec<Recipient>,
    count: usize,
}

enum Stage {
    /// Nothing is written yet.
    New,
    /// Durable so far.
    Open(Batch),
    /// A batch of the same key is known: all that is left to find out is whether it is the same.
    Known(Batch),
}

impl Mails {
    /// Begins to receive a batch. A batch of the same key that is complete is compared with what comes.
    pub async fn receive(
        self: &Arc<Self>,
        head: &Value,
        header_key: Option<&str>,
        who: &str,
    ) -> Result<Receiving, MailError> {
        let mut head = BatchHead::parse(head).map_err(MailError::Invalid)?;
        head.key = one_key(header_key, head.key.as_deref())?;
        let stage = match &head.key {
            None => Stage::New,
            Some(key) => match self.office.store.mail_batch_of_key(key).await? {
                None => Stage::New,
                Some(known) => known_batch(known)?,
            },
        };
        let digest = RunningDigest::new(&head.template);
        Ok(Receiving {
            mails: Arc::clone(self),
            head,
            who: who.to_owned(),
            stage,
            digest,
            portion: Vec::new(),
            count: 0,
        })
    }
}

fn known_batch(known: Batch) -> Result<Stage, MailError> {
    match known.status {
        BatchStatus::Receiving => Err(MailError::InProgress),
        _ => Ok(Stage::Known(known)),
    }
}

impl Receiving {
    /// Takes one more recipient.
    pub async fn add(&mut self, body: &Value) -> Result<(), MailError> {
        if self.count >= RECIPIENTS_MAX {
            return Err(MailError::TooMany);
        }
        let nth = self.count;
        let recipient = read_recipient(body, self.head.locale).map_err(|wrong| {
            let placed = wrong.into_iter().map(|violation| Violation {
                field: place(nth, &violation.field),
                problem: violation.problem,
            });
            MailError::Invalid(placed.collect())
        })?;
        if let Err(error) = self.mails.check(&self.head.template, recipient.locale, &recipient.data)
        {
            return Err(match error {
                // With the place: one of a hundred thousand.
                MailError::Template(error) if nth > 0 => MailError::Invalid(vec![Violation {
                    field: place(nth, "data"),
                    problem: error.to_string(),
                }]),
                other => other,
            });
        }
        self.digest.add(&recipient);
        self.count += 1;
        if matches!(self.stage, Stage::Known(_)) {
            return Ok(());
        }
        self.portion.push(recipient);
        if self.portion.len() >= PORTION { self.write().await } else { Ok(()) }
    }

    /// Writes what has come.
    async fn write(&mut self) -> Result<(), MailError> {
        let office = Arc::clone(&self.mails.office);
        self.open().await?;
        let Stage::Open(batch) = &self.stage else { return Ok(()) };
        let portion = std::mem::take(&mut self.portion);
        let (after, changes) = batch::take(batch, portion, office.clock.now())?;
        match office.store.commit(changes).await {
            Ok(()) => {
                self.stage = Stage::Open(after);
                Ok(())
            }
            Err(CommitError::Store(error)) => Err(error.into()),
            // Given up behind our back: we were too slow.
            Err(_) => Err(MailError::InProgress),
        }
    }

    /// Makes the batch known, if it is not yet.
    async fn open(&mut self) -> Result<(), MailError> {
        if !matches!(self.stage, Stage::New) {
            return Ok(());
        }
        let office = &self.mails.office;
        let now = office.clock.now();
        let (template, key) = (&self.head.template, self.head.key.clone());
        let draft = batch::draft(office.ids.uuid(), template, key, now);
        match office.store.commit(batch::open(&draft, now.plus(office.rules.keep))).await {
            Ok(()) => self.stage = Stage::Open(draft),
            // Somebody was faster with the same key: it can only be under way.
            Err(CommitError::Taken(Key::Mail)) => return Err(MailError::InProgress),
            Err(CommitError::Store(error)) => return Err(error.into()),
            Err(other) => return Err(StoreError::Rejected(other.to_string()).into()),
        }
        Ok(())
    }

    /// All recipients are there. What it returns is on disk, and will be sent.
    pub async fn finish(mut self) -> Result<Taken<Batch>, MailError> {
        if self.count == 0 {
            let problem = "at least one recipient is required".to_owned();
            return Err(MailError::Invalid(vec![Violation {
                field: "recipients".to_owned(),
                problem,
            }]));
        }
        let digest = self.digest.clone().finish();
        if let Stage::Known(known) = &self.stage {
            if known.digest.as_deref() != Some(digest.as_str()) {
                counter!("idempotency_conflicts_total").increment(1);
                return Err(MailError::Conflict);
            }
            return Ok(Taken { row: known.clone(), replayed: true });
        }
        if !self.portion.is_empty() {
            self.write().await?;
        }
        let Stage::Open(batch) = &self.stage else { return Err(MailError::InProgress) };
        let office = &self.mails.office;
        let now = office.clock.now();
        let actor = Actor::caller(self.who.as_str());
        let expires_at = now.plus(office.rules.keep);
        let (after, changes) = batch::complete(batch, digest, actor, now, expires_at)?;
        match office.store.commit(changes).await {
            Ok(()) => {
                counter!("mail_batches_total").increment(1);
                Ok(Taken { row: after, replayed: false })
            }
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(_) => Err(MailError::InProgress),
        }
    }

    /// Something is wrong with it: what has come is cancelled, and the key is free again.
    pub async fn abort(self) {
        let Stage::Open(batch) = &self.stage else { return };
        let office = &self.mails.office;
        let now = office.clock.now();
        let Ok((_, changes)) = batch::abort(batch, now, now.plus(office.rules.keep)) else {
            return;
        };
        if let Err(error) = office.store.commit(changes).await {
            // Its driver will notice.
            tracing::warn!(%error, batch = %batch.id, "a batch could not be aborted yet");
        }
    }
}

fn place(nth: usize, field: &str) -> String {
    match field {
        "" => format!("recipients[{nth}]"),
        field => format!("recipients[{nth}].{field}"),
    }
}
