//! Mail, as callers ask for it and people look at it.

use std::sync::Arc;

use metrics::counter;
use serde_json::Value;
use tashika_domain::audit::Actor;
use tashika_domain::check::Violation;
use tashika_domain::mail::batch::{self, Batch, IllegalBatchTransition};
use tashika_domain::mail::control::Control;
use tashika_domain::mail::deadline::{Deadlines, fill, timer};
use tashika_domain::mail::request::{KEY_MAX, MailRequest};
use tashika_domain::mail::{Delivery, Locale, Status, accept};
use tashika_domain::{Changes, Timestamp, digest};
use tashika_providers::templates::{Rendered, TemplateError};
use tashika_store::{CommitError, Key, MailFilter, StoreError};
use uuid::Uuid;

use crate::mail_office::PostOffice;

/// How many failures are shown with a batch.
const FAILURES_SHOWN: i64 = 50;

/// What may be done with mail.
pub struct Mails {
    pub(super) office: Arc<PostOffice>,
}

/// A request for a mail.
#[derive(Clone, Debug)]
pub struct SendMail<'a> {
    /// The `Idempotency-Key` header.
    pub header_key: Option<&'a str>,
    pub body: &'a Value,
    pub traceparent: Option<String>,
}

/// A mail, or a batch, that is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken<T> {
    pub row: T,
    /// It was asked for before, under the same key.
    pub replayed: bool,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error("the key of the header and the key of the body differ")]
    KeyMismatch,
    #[error("the Idempotency-Key header cannot be used")]
    KeyInvalid,
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error(transparent)]
    Template(TemplateError),
    #[error("the key belongs to another request")]
    Conflict,
    #[error("a batch with this key is being received")]
    InProgress,
    #[error("no such batch")]
    BatchNotFound,
    #[error("no such mail")]
    NotFound,
    #[error("a batch has at most {} recipients", batch::RECIPIENTS_MAX)]
    TooMany,
    #[error(transparent)]
    WrongState(#[from] IllegalBatchTransition),
    #[error("mails leave this server: there is no inbox")]
    NoInbox,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A batch, with how far it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchView {
    pub batch: Batch,
    pub counts: Counts,
    /// The newest of those that failed or are in doubt, if they were asked for.
    pub failures: Vec<Delivery>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub queued: i64,
    pub sent: i64,
    pub failed: i64,
    pub possibly_sent: i64,
    pub cancelled: i64,
}

/// The lane, with what is left of its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneView {
    pub control: Control,
    pub now: Timestamp,
    pub quota: i64,
    pub used: i64,
    pub queued: i64,
    pub oldest: Option<Timestamp>,
}

/// What came of a request for notifications.
#[derive(Clone, Debug, PartialEq)]
pub struct Notified {
    pub batch: Batch,
    /// `None`: it is known only at its moment.
    pub skipped: Option<usize>,
    pub run_at: Option<Timestamp>,
    pub replayed: bool,
}

/// The key that a request is known by: of the header, of the body, or of both if they agree.
pub(super) fn one_key(
    header: Option<&str>,
    body: Option<&str>,
) -> Result<Option<String>, MailError> {
    // What stands in a header is printable, as everywhere.
    let printable = |key: &str| key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if header.is_some_and(|key| key.len() > KEY_MAX || !printable(key)) {
        return Err(MailError::KeyInvalid);
    }
    match (header, body) {
        (Some(header), Some(body)) if header != body => Err(MailError::KeyMismatch),
        (header, body) => Ok(header.or(body).map(ToOwned::to_owned)),
    }
}

impl Mails {
    #[must_use]
    pub fn new(office: Arc<PostOffice>) -> Self {
        Self { office }
    }

    /// Takes a mail. What it returns is on disk.
    pub async fn send(&self, request: SendMail<'_>) -> Result<Taken<Delivery>, MailError> {
        let mut asked = MailRequest::parse(request.body).map_err(MailError::Invalid)?;
        asked.key = one_key(request.header_key, asked.key.as_deref())?;
        self.check(&asked.template, asked.recipient.locale, &asked.recipient.data)?;
        let office = &self.office;
        let now = office.clock.now();
        let draft = asked.letter(office.ids.uuid()).delivery(now);
        let draft = Delivery { traceparent: request.traceparent, ..draft };
        let (key, digest) = (draft.key.clone(), draft.digest.clone());
        let (delivery, changes) = accept(draft, now, now.plus(office.rules.keep));
        let changes = Arc::new(changes);
        loop {
            match office.store.commit(Arc::clone(&changes)).await {
                Ok(()) => {
                    counter!("mail_requests_total", "outcome" => "accepted").increment(1);
                    return Ok(Taken { row: delivery, replayed: false });
                }
                Err(CommitError::Taken(Key::Mail)) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(other) => return Err(StoreError::Rejected(other.to_string()).into()),
            }
            let known = office.store.mail_of_key(key.as_deref().unwrap_or_default()).await?;
            // Pruned in this very moment: it counts as new.
            let Some(known) = known else { continue };
            if known.digest != digest {
                counter!("idempotency_conflicts_total").increment(1);
                return Err(MailError::Conflict);
            }
            counter!("mail_requests_total", "outcome" => "replayed").increment(1);
            return Ok(Taken { row: known, replayed: true });
        }
    }

    pub(super) fn check(
        &self,
        template: &str,
        locale: Locale,
        data: &Value,
    ) -> Result<(), MailError> {
        self.office.templates.check(template, locale, data).map_err(MailError::Template)
    }

    pub async fn find(&self, id: Uuid) -> Result<Delivery, MailError> {
        self.office.store.mail(id).await?.ok_or(MailError::NotFound)
    }

    pub async fn list(&self, filter: &MailFilter, limit: i64) -> Result<Vec<Delivery>, MailError> {
        Ok(self.office.store.mails(filter, limit).await?)
    }

    /// A batch, how far it has come, and what has gone wrong in it.
    pub async fn batch(&self, id: Uuid) -> Result<BatchView, MailError> {
        let store = &self.office.store;
        let batch = store.mail_batch(id).await?.ok_or(MailError::BatchNotFound)?;
        let mut view = self.view(batch).await?;
        for status in [Status::Failed, Status::PossiblySent] {
            let filter =
                MailFilter { batch: Some(id), status: Some(status), ..MailFilter::default() };
            view.failures.extend(store.mails(&filter, FAILURES_SHOWN).await?);
        }
        Ok(view)
    }

    async fn view(&self, batch: Batch) -> Result<BatchView, MailError> {
        let mut counts = Counts::default();
        for found in self.office.store.mail_counts(batch.id).await? {
            *match found.status {
                Status::Queued => &mut counts.queued,
                Status::Sent => &mut counts.sent,
                Status::Failed => &mut counts.failed,
                Status::PossiblySent => &mut counts.possibly_sent,
                Status::Cancelled => &mut counts.cancelled,
            } = found.count;
        }
        Ok(BatchView { batch, counts, failures: Vec::new() })
    }

    /// A page of batches, newest first.
    pub async fn batches(
        &self,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<BatchView>, MailError> {
        let mut views = Vec::new();
        for batch in self.office.store.mail_batches(before, limit).await? {
            views.push(self.view(batch).await?);
        }
        Ok(views)
    }

    /// Cancels what a batch has not sent yet. The rest of the work is its driver's.
    pub async fn cancel(&self, id: Uuid, who: &str) -> Result<BatchView, MailError> {
        let wish = |batch: &Batch, now, expires_at| {
            batch::cancel_rest(batch, Actor::caller(who), now, expires_at)
        };
        self.wish(id, wish).await
    }

    /// Tries again what ended in one of these statuses.
    pub async fn retry(
        &self,
        id: Uuid,
        statuses: &[Status],
        who: &str,
    ) -> Result<BatchView, MailError> {
        let wish = |batch: &Batch, now, expires_at| {
            batch::retry_rest(batch, statuses, Actor::caller(who), now, expires_at)
        };
        self.wish(id, wish).await
    }

    async fn wish(
        &self,
        id: Uuid,
        wish: impl Fn(&Batch, Timestamp, Timestamp) -> Result<(Batch, Changes), IllegalBatchTransition>,
    ) -> Result<BatchView, MailError> {
        let office = &self.office;
        loop {
            let found = office.store.mail_batch(id).await?;
            let batch = found.ok_or(MailError::BatchNotFound)?;
            let now = office.clock.now();
            let (after, changes) = wish(&batch, now, now.plus(office.rules.keep))?;
            match office.store.commit(changes).await {
                Ok(()) => return self.view(after).await,
                Err(CommitError::Store(error)) => return Err(error.into()),
                // Its driver was faster, or somebody else.
                Err(_) => {}
            }
        }
    }

    /// Opens the lane again that was parked or stopped. False if it was open.
    pub async fn resume(&self, who: &str) -> Result<bool, MailError> {
        Ok(self.office.resume(Actor::operator(who)).await?)
    }

    pub async fn lane(&self) -> Result<LaneView, MailError> {
        let (store, now) = (&self.office.store, self.office.clock.now());
        let (used, _) = store.mail_usage(now).await?;
        let (queued, oldest) = store.mail_queue().await?;
        let quota = self.office.rules.limits.daily_quota;
        Ok(LaneView { control: store.mail_control().await?, now, quota, used, queued, oldest })
    }

    /// What the sandbox has taken, with its words.
    pub async fn inbox(
        &self,
        to: Option<&str>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<(Delivery, Option<Rendered>)>, MailError> {
        if !self.office.rules.sandbox {
            return Err(MailError::NoInbox);
        }
        let filter = MailFilter {
            to: to.map(ToOwned::to_owned),
            batch: None,
            status: Some(Status::Sent),
            before,
        };
        let found = self.office.store.mails(&filter, limit).await?;
        let words = |mail: &Delivery| {
            self.office.templates.render(&mail.template, mail.locale, &mail.data).ok()
        };
        Ok(found.into_iter().map(|mail| (words(&mail), mail)).map(|(w, m)| (m, w)).collect())
    }

    /// Takes a request for notifications: now, or at its moment.
    pub async fn notify(
        &self,
        header_key: Option<&str>,
        body: &Value,
        who: &str,
    ) -> Result<Notified, MailError> {
        let asked = Deadlines::parse(body).map_err(MailError::Invalid)?;
        let key = one_key(header_key, asked.key.as_deref())?;
        let office = &self.office;
        let now = office.clock.now();
        let digest = digest::digest(body, &["idempotencyKey"]);
        let expires_at = now.plus(office.rules.keep);
        let template = tashika_domain::mail::deadline::TEMPLATE;
        let draft = batch::draft(office.ids.uuid(), template, key.clone(), now);
        let draft = Batch { digest: Some(digest.clone()), ..draft };
        let found = asked.notifications(asked.run_at.unwrap_or(now));
        for due in &found.due {
            self.check(template, due.recipient.locale, &due.recipient.data)?;
        }
        let skipped = asked.run_at.is_none().then_some(found.skipped);
        let changes = if let Some(run_at) = asked.run_at {
            let due = timer(&draft, body, run_at, expires_at);
            Changes::from(batch::schedule(&draft)).with(due)
        } else {
            let actor = Actor::caller(who);
            in_one(fill(&draft, digest.clone(), found, actor, now, expires_at)?)
        };
        match office.store.commit(changes).await {
            Ok(()) => {
                let batch = office.store.mail_batch(draft.id).await?.unwrap_or(draft);
                Ok(Notified { batch, skipped, run_at: asked.run_at, replayed: false })
            }
            Err(CommitError::Taken(Key::Mail)) => {
                let known = office.store.mail_batch_of_key(key.as_deref().unwrap_or_default());
                let known = known.await?.ok_or(MailError::InProgress)?;
                if known.digest.as_deref() != Some(digest.as_str()) {
                    counter!("idempotency_conflicts_total").increment(1);
                    return Err(MailError::Conflict);
                }
                Ok(Notified { batch: known, skipped: None, run_at: asked.run_at, replayed: true })
            }
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(other) => Err(StoreError::Rejected(other.to_string()).into()),
        }
    }
}

/// A batch that is complete when it is first written: inserted as it is, not updated.
fn in_one((batch, changes): (Batch, Changes)) -> Changes {
    use tashika_domain::Write;
    let mut all = Changes::new();
    for write in changes.writes() {
        all.push(match write {
            Write::MailBatchUpdate(_) => Write::MailBatchInsert(Box::new(batch.clone())),
            other => other.clone(),
        });
    }
    all
}
