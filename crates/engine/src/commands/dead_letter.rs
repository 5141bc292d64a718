//! Dead letters: looked at, sent again, or buried.

use metrics::counter;
use tashika_domain::message::asked::Asked;
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{self, Begin, Draft, Logged, Message, accept};
use tashika_domain::{Changes, Timestamp};
use tashika_store::{CommitError, Listed, MessageFilter, Order};
use uuid::Uuid;

use super::DECISIONS;
use super::message::{Messages, QueueError};

/// How many rows one page looks through for a filter that no index serves. What is further back is on
/// the next page.
const LOOK: i64 = 20_000;

/// Nothing is asked for but a place in the list. Whoever reads from the oldest on looks through all of it.
fn is_plain(filter: &MessageFilter) -> bool {
    let place =
        MessageFilter { after: filter.after, order: filter.order, ..MessageFilter::default() };
    filter.order == Order::OldestFirst || *filter == place
}

impl Messages {
    /// How far back one page of dead letters looks, where their order alone does not find them. `None`:
    /// to the end.
    pub async fn letters_back(&self, filter: &MessageFilter) -> Result<Option<Uuid>, QueueError> {
        if is_plain(filter) || !filter.dlq_ids.is_empty() {
            return Ok(None);
        }
        Ok(self.store.row_before(Listed::DeadLetters, filter.after, LOOK).await?)
    }

    /// The same for what happened to messages: lines of the log, last attempts and messages are looked
    /// through together, as far back as the shortest look goes.
    pub async fn events_back(&self, filter: &MessageFilter) -> Result<Option<Uuid>, QueueError> {
        let every = filter.logged.len() == Logged::ALL.len();
        let unlogged = MessageFilter { logged: Vec::new(), ..filter.clone() };
        if (every && is_plain(&unlogged)) || !filter.ids.is_empty() {
            return Ok(None);
        }
        let mut back = None;
        for list in [Listed::MessageLog, Listed::LastAttempts, Listed::Messages] {
            back = back.max(self.store.row_before(list, filter.after, LOOK).await?);
        }
        Ok(back)
    }

    /// A page of dead letters.
    pub async fn dead_letters(
        &self,
        filter: &MessageFilter,
        limit: i64,
    ) -> Result<Vec<Message>, QueueError> {
        let dead = MessageFilter { dead: true, ..filter.clone() };
        Ok(self.store.messages(&dead, limit).await?)
    }

    pub async fn dead_letter(&self, dlq_id: &str) -> Result<Message, QueueError> {
        let filter = MessageFilter { dlq_ids: vec![dlq_id.to_owned()], ..MessageFilter::default() };
        let found = self.dead_letters(&filter, 1).await?.pop();
        found.ok_or_else(|| QueueError::NotFound(format!("dlq message {dlq_id} not found")))
    }

    /// Removes a dead letter. False if it is not one any more.
    pub async fn bury(&self, letter: &Message) -> Result<bool, QueueError> {
        self.bury_with(letter, &Changes::new()).await
    }

    /// The same, in one commit with something else.
    pub(crate) async fn bury_with(
        &self,
        letter: &Message,
        more: &Changes,
    ) -> Result<bool, QueueError> {
        let bury = |letter: &Message, _| {
            let mut changes = message::bury(letter);
            changes.extend(more.clone());
            (changes, None)
        };
        Ok(self.settle_letter(letter, bury).await?.is_some())
    }

    /// Sends a dead letter again, as a new message. `None` if it is not a dead letter any more.
    pub async fn resend(
        &self,
        letter: &Message,
        overrides: &Spec,
    ) -> Result<Option<Uuid>, QueueError> {
        self.resend_with(letter, overrides, &Changes::new()).await
    }

    /// The same, in one commit with something else.
    pub(crate) async fn resend_with(
        &self,
        letter: &Message,
        overrides: &Spec,
        more: &Changes,
    ) -> Result<Option<Uuid>, QueueError> {
        let id = self.next_id();
        let resent = self
            .settle_letter(letter, |letter, now| {
                let (again, changes) = accept(Draft {
                    id,
                    asked: overridden(&letter.asked, overrides).into(),
                    body: std::sync::Arc::clone(&letter.body),
                    not_before: overrides
                        .not_before
                        .or_else(|| overrides.delay.map(|delay| now.plus(delay))),
                    dedup_key: None,
                    holds: None,
                    traceparent: letter.traceparent.clone(),
                    now,
                    expires_at: now.plus(self.rules.keep),
                    begin: Begin::Due,
                });
                let mut all = message::bury(letter);
                all.extend(changes);
                all.extend(more.clone());
                (all, Some(again))
            })
            .await?;
        if let Some(again) = resent.as_ref().and_then(Option::as_ref) {
            counter!("queue_resent_total").increment(1);
            self.gates.stir_for(again);
        }
        Ok(resent.map(|_| id))
    }

    /// Decides about a dead letter, and again if somebody else has changed it meanwhile. `None` if it
    /// is none any more; else the message that was made of it, if one was.
    async fn settle_letter(
        &self,
        letter: &Message,
        decide: impl Fn(&Message, Timestamp) -> (Changes, Option<Message>),
    ) -> Result<Option<Option<Message>>, QueueError> {
        let mut letter = letter.clone();
        for _ in 0..DECISIONS {
            if letter.dlq_id.is_none() {
                return Ok(None);
            }
            let now = self.clock.now();
            let (mut changes, made) = decide(&letter, now);
            // It may bring its flow control back with it, or other limits for it.
            self.prepare_gates(made.as_slice(), &mut changes, now).await?;
            match self.store.commit(changes).await {
                Ok(()) => return Ok(Some(made)),
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => letter = self.message(letter.id).await?,
            }
        }
        Ok(None)
    }
}

/// What was asked before, with what is asked for now in its place.
fn overridden(before: &Asked, spec: &Spec) -> Asked {
    let mut after = before.clone();
    after.headers.extend(spec.headers.clone());
    if let Some(method) = spec.method {
        after.method = method;
    }
    if let Some(retries) = spec.retries {
        after.retries = retries;
    }
    if spec.retry_delay.is_some() {
        after.retry_delay.clone_from(&spec.retry_delay);
    }
    if spec.timeout.is_some() {
        after.timeout = spec.timeout;
    }
    if spec.callback.is_some() {
        after.callback.clone_from(&spec.callback);
    }
    if spec.failure_callback.is_some() {
        after.failure_callback.clone_from(&spec.failure_callback);
    }
    if spec.flow.is_some() {
        after.flow.clone_from(&spec.flow);
    }
    if !spec.labels.is_empty() {
        after.labels.clone_from(&spec.labels);
    }
    if !spec.redact.is_nothing() {
        after.redact = spec.redact.clone();
    }
    after
}
