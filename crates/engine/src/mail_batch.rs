//! Driving batches of mails, and making notifications whose moment has come.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::audit::Actor;
use tashika_domain::effect::Verdict;
use tashika_domain::mail::batch::{BatchStatus, Look, drive, look};
use tashika_domain::mail::deadline::{Deadlines, fill};
use tashika_domain::{Changes, Lane};
use tashika_store::StoreError;
use uuid::Uuid;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::mail_office::PostOffice;

/// Feeds, cancels and reopens the deliveries of batches, a page at a time.
pub struct MailBatchHandler(pub Arc<PostOffice>);

#[derive(Deserialize)]
struct Driver {
    batch: Uuid,
    run: i64,
}

impl MailBatchHandler {
    async fn step(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Ok(driver) = serde_json::from_str::<Driver>(&ending.effect.payload) else {
            return Ok(over());
        };
        let (store, rules) = (&self.0.store, &self.0.rules);
        let Some(batch) = store.mail_batch(driver.batch).await? else { return Ok(over()) };
        let ahead = rules.ahead(store.waiting_in_lane(&Lane::MAIL).await?);
        let page = match look(&batch, ahead) {
            Look::Page { status, after, limit } => {
                store.mails_of_batch(batch.id, status, after, limit).await?
            }
            Look::Nothing => Vec::new(),
        };
        let expires_at = ending.now.plus(rules.keep);
        let changes = drive(&batch, driver.run, &page, ahead, ending.now, expires_at);
        // A worker that was lost before it wrote has done nothing, so its step is taken here.
        Ok(Settled::new(Verdict::Succeeded, changes))
    }
}

impl Handler for MailBatchHandler {
    /// A timer: there is nothing to attempt, only to decide.
    fn attempt<'a>(&'a self, _job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async { Tried::done(Value::Null) })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.step(ending))
    }
}

/// Makes the mails of notifications that were asked for at a later moment.
pub struct DeadlineHandler(pub Arc<PostOffice>);

#[derive(Deserialize)]
struct Scheduled {
    batch: Uuid,
    body: Value,
}

impl DeadlineHandler {
    async fn ring(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Ok(scheduled) = serde_json::from_str::<Scheduled>(&ending.effect.payload) else {
            return Ok(over());
        };
        let found = self.0.store.mail_batch(scheduled.batch).await?;
        // Cancelled meanwhile.
        let Some(batch) = found.filter(|batch| batch.status == BatchStatus::Scheduled) else {
            return Ok(over());
        };
        // It was read once already, when it was asked for.
        let Ok(asked) = Deadlines::parse(&scheduled.body) else { return Ok(over()) };
        let now = ending.now;
        let digest = batch.digest.clone().unwrap_or_default();
        let expires_at = now.plus(self.0.rules.keep);
        let found = asked.notifications(now);
        let filled = fill(&batch, digest, found, Actor::SYSTEM, now, expires_at);
        Ok(Settled::new(Verdict::Succeeded, filled.map_or_else(|_| Changes::new(), |(_, all)| all)))
    }
}

impl Handler for DeadlineHandler {
    /// A timer: there is nothing to attempt, only to decide.
    fn attempt<'a>(&'a self, _job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async { Tried::done(Value::Null) })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.ring(ending))
    }
}
