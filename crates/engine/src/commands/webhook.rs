//! Webhooks, as senders deliver them and operators look at them.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::Value;
use tashika_domain::audit::Actor;
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::webhook::{self, Payload, Status, WebhookEvent};
use tashika_domain::{EffectId, Status as EffectStatus, Timestamp};
use tashika_providers::webhook::{Event, Refused, RefusedKind, Source};
use tashika_store::{CommitError, Key, Store, StoreError, WebhookCount, WebhookFilter};
use uuid::Uuid;

use crate::clock::{Clock, Ids};
use crate::render::REFERENCE;

/// What may be done with webhooks.
pub struct Webhooks {
    store: Store,
    clock: Clock,
    ids: Ids,
    sources: Vec<Source>,
    keep: Duration,
}

/// A request of a sender, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub source: &'a str,
    pub headers: &'a http::HeaderMap,
    pub body: &'a [u8],
    pub traceparent: Option<&'a str>,
}

/// What a sender is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    Accepted(Accepted),
    /// A sender that wants to see a text of its own before it sends events.
    Challenged(String),
}

/// An event that is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub event_id: String,
    /// Our id of it, and of the effect that processes it.
    pub message_id: Uuid,
    pub duplicate: bool,
}

/// An event of Tashika's own sandbox: nobody sends it, so nobody signs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Announced {
    pub source: &'static str,
    /// The same for the same event, however often it is announced.
    pub event_id: String,
    pub kind: String,
    pub payload: Value,
    /// When it is to be processed; now, if that is over.
    pub not_before: Timestamp,
}

/// A request that was not taken, with what may be logged about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub refused: Refused,
    /// From the headers, unproven; from the body only where the body was proven to be the sender's.
    pub event_id: Option<String>,
    /// Only where the body was proven to be the sender's.
    pub participant_id: Option<String>,
}

/// Why a webhook was not taken.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("no such source")]
    UnknownSource,
    #[error("the webhook was refused: {}", .0.refused.reason)]
    Refused(Rejected),
    #[error("no such event")]
    NotFound,
    #[error("only events that failed can be processed again")]
    NotFailed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Webhooks {
    #[must_use]
    pub fn new(store: Store, clock: Clock, ids: Ids, sources: Vec<Source>, keep: Duration) -> Self {
        Self { store, clock, ids, sources, keep }
    }

    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Verifies, reads, and writes down. What it returns is on disk.
    pub async fn receive(&self, received: Received<'_>) -> Result<Taken, WebhookError> {
        self.receive_about(received, None).await
    }

    /// The same, where the address that the sender was given says what the event is about. It is
    /// written down beside what the sender says, and nobody vouches for it.
    pub async fn receive_about(
        &self,
        received: Received<'_>,
        reference: Option<&str>,
    ) -> Result<Taken, WebhookError> {
        let source = self.sources.iter().find(|source| source.name() == received.source);
        let source = source.ok_or(WebhookError::UnknownSource)?;
        let now = self.clock.now();
        let mut event = source
            .verify(received.headers, received.body, now)
            .and_then(|()| source.read(received.headers, received.body))
            .map_err(|refused| {
                count(source.name(), "refused");
                WebhookError::Refused(rejected(source, received, refused))
            })?;
        if let Some(challenge) = challenge(source, &event, received.body) {
            return Ok(Taken::Challenged(challenge));
        }
        if let Some(reference) = reference {
            let mut said = event.payload.value(received.body).into_owned();
            if let Some(fields) = said.as_object_mut() {
                fields.insert(REFERENCE.to_owned(), Value::from(reference));
                event.payload = Payload::Apart(webhook::keepable(said));
            }
        }
        let accepted = self.accept(source, event, received).await;
        count(
            source.name(),
            match &accepted {
                Ok(Accepted { duplicate: false, .. }) => "accepted",
                Ok(Accepted { duplicate: true, .. }) => "duplicate",
                Err(_) => "unavailable",
            },
        );
        accepted.map(Taken::Accepted)
    }

    async fn accept(
        &self,
        source: &Source,
        event: Event,
        received: Received<'_>,
    ) -> Result<Accepted, WebhookError> {
        let now = self.clock.now();
        let content_type = received.headers.get(http::header::CONTENT_TYPE);
        let id = self.ids.uuid();
        let row = WebhookEvent {
            id,
            version: 1,
            source: source.name().to_owned(),
            event_id: event.id.clone(),
            event_type: event.kind,
            billing_id: None,
            office_id: None,
            payload: event.payload,
            confirm_by: (!source.is_signed() && !mutant::on(Mutant::UnsignedBelieved))
                .then(|| source.kind().to_owned()),
            confirmed: None,
            body: received.body.to_vec(),
            content_type: content_type.and_then(|v| v.to_str().ok()).map(ToOwned::to_owned),
            occurred_at: event.occurred_at,
            status: Status::Pending,
            error_message: None,
            processed_at: None,
            created_at: now,
            traceparent: received.traceparent.map(ToOwned::to_owned),
        };
        let changes = Arc::new(webhook::accept(row, now.plus(self.keep)));
        loop {
            match self.store.commit(Arc::clone(&changes)).await {
                Ok(()) => {
                    return Ok(Accepted { event_id: event.id, message_id: id, duplicate: false });
                }
                Err(CommitError::Taken(Key::Event)) => {
                    if let Some(known) = self.again(source.name(), &event.id).await? {
                        return Ok(known);
                    }
                    // Pruned in this very moment, long after it was processed: it counts as new.
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(other) => return Err(StoreError::Rejected(other.to_string()).into()),
            }
        }
    }

    /// Takes an event that arose in this process, as if its source had delivered it.
    pub async fn announce(&self, event: Announced) -> Result<Accepted, WebhookError> {
        let (now, id) = (self.clock.now(), self.ids.uuid());
        let row = WebhookEvent {
            id,
            version: 1,
            source: event.source.to_owned(),
            event_id: event.event_id.clone(),
            event_type: event.kind,
            billing_id: None,
            office_id: None,
            body: event.payload.to_string().into_bytes(),
            payload: Payload::Body,
            confirm_by: None,
            confirmed: None,
            content_type: Some("application/json".to_owned()),
            occurred_at: Some(now),
            status: Status::Pending,
            error_message: None,
            processed_at: None,
            created_at: now,
            traceparent: None,
        };
        let run_at = event.not_before.max(now);
        let changes = webhook::accept_at(row, run_at, run_at.plus(self.keep));
        match self.store.commit(changes).await {
            Ok(()) => Ok(Accepted { event_id: event.event_id, message_id: id, duplicate: false }),
            Err(CommitError::Taken(Key::Event)) => {
                let known = self.again(event.source, &event.event_id).await?;
                // Pruned in this very moment, long after it was processed.
                known.ok_or(WebhookError::NotFound)
            }
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(other) => Err(StoreError::Rejected(other.to_string()).into()),
        }
    }

    /// The event is known: nothing changes, unless it had failed. `None`: it is not known any more.
    async fn again(&self, source: &str, event_id: &str) -> Result<Option<Accepted>, WebhookError> {
        let known = self.store.webhook_event_of(source, event_id).await?;
        let Some(known) = known else { return Ok(None) };
        if self.is_over(&known).await? {
            self.reopen(&known, Actor::SYSTEM).await?;
        }
        let event_id = event_id.to_owned();
        Ok(Some(Accepted { event_id, message_id: known.id, duplicate: true }))
    }

    /// Whether the event was given up: it failed, or not even its failure could be written.
    async fn is_over(&self, event: &WebhookEvent) -> Result<bool, StoreError> {
        Ok(match event.status {
            Status::Failed => true,
            Status::Pending => {
                let effect = self.store.effect(EffectId(event.id)).await?;
                effect.is_none_or(|effect| effect.status == EffectStatus::Aborted)
            }
            Status::Success | Status::Skipped => false,
        })
    }

    /// False if somebody else was faster.
    async fn reopen(&self, event: &WebhookEvent, actor: Actor) -> Result<bool, WebhookError> {
        // Its effect may be pruned between a look and the commit, but only once.
        for _ in 0..2 {
            let now = self.clock.now();
            let known = self.store.effect(EffectId(event.id)).await?.is_some();
            let changes = webhook::reopen(event, known, actor.clone(), now, now.plus(self.keep));
            match self.store.commit(changes).await {
                Ok(()) => return Ok(true),
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(CommitError::Outdated { .. }) => return Ok(false),
                Err(CommitError::Stale(_) | CommitError::Taken(_)) => {}
            }
        }
        Ok(false)
    }

    /// Processes an event again that failed.
    pub async fn replay(&self, id: Uuid, who: &str) -> Result<WebhookEvent, WebhookError> {
        let event = self.store.webhook_event(id).await?.ok_or(WebhookError::NotFound)?;
        if !self.is_over(&event).await? {
            return Err(WebhookError::NotFailed);
        }
        self.reopen(&event, Actor::operator(who)).await?;
        self.store.webhook_event(id).await?.ok_or(WebhookError::NotFound)
    }

    /// Processes failed events again, as many as the filter names; returns how many.
    pub async fn replay_all(&self, filter: &WebhookFilter, who: &str) -> Result<u64, WebhookError> {
        self.replay_all_telling(filter, who, |_| {}).await
    }

    /// The same, and tells how many there are after each.
    pub async fn replay_all_telling(
        &self,
        filter: &WebhookFilter,
        who: &str,
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<u64, WebhookError> {
        let mut reopened = 0;
        for status in [Status::Failed, Status::Pending] {
            let given_up = status == Status::Pending;
            let mut page = WebhookFilter { status: Some(status), given_up, ..filter.clone() };
            loop {
                let events = self.store.webhook_events(&page, 200).await?;
                let Some(last) = events.last() else { break };
                page.before = Some(last.id);
                for event in events {
                    reopened += u64::from(self.reopen(&event, Actor::operator(who)).await?);
                    tell(reopened);
                }
            }
        }
        Ok(reopened)
    }

    pub async fn find(&self, id: Uuid) -> Result<WebhookEvent, WebhookError> {
        self.store.webhook_event(id).await?.ok_or(WebhookError::NotFound)
    }

    pub async fn list(
        &self,
        filter: &WebhookFilter,
        limit: i64,
    ) -> Result<Vec<WebhookEvent>, WebhookError> {
        Ok(self.store.webhook_events(filter, limit).await?)
    }

    pub async fn stats(&self) -> Result<Vec<WebhookCount>, WebhookError> {
        Ok(self.store.webhook_counts().await?)
    }
}

/// A body that was not proven to be the sender's is not even parsed.
fn rejected(source: &Source, received: Received<'_>, refused: Refused) -> Rejected {
    let proven = source.is_signed() && refused.what == RefusedKind::Payload;
    let body = proven.then(|| serde_json::from_slice::<Value>(received.body).ok()).flatten();
    let said = body.as_ref().and_then(|body| body.get("id")?.as_str());
    let event_id = source.claimed_id(received.headers).or(said);
    Rejected {
        refused,
        event_id: event_id.filter(|id| webhook::is_plain_id(id)).map(ToOwned::to_owned),
        participant_id: body.as_ref().and_then(webhook::participant_of).map(ToOwned::to_owned),
    }
}

/// Slack asks once, when the address is entered.
fn challenge(source: &Source, event: &Event, body: &[u8]) -> Option<String> {
    if source.kind() != "slack" || event.kind != "url_verification" {
        return None;
    }
    let payload = event.payload.value(body);
    payload.get("challenge").and_then(serde_json::Value::as_str).map(ToOwned::to_owned)
}

fn count(source: &str, outcome: &'static str) {
    counter!("webhook_requests_total", "source" => source.to_owned(), "outcome" => outcome)
        .increment(1);
}
