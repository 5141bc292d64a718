//! Cases about what Tashika itself has given up: webhooks, events, notifications, and messages to workers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::audit::Actor;
use tashika_domain::case::{Case, Choice, Decision, dead_letter_choices};
use tashika_domain::message::spec::Spec;
use tashika_domain::{Changes, EffectId, Status, message, webhook};
use tashika_store::{MessageFilter, Store, StoreError};
use uuid::Uuid;

use super::{CaseError, CaseKind, Dossier, Entry, attempt, audit, close};
use crate::clock::Clock;
use crate::commands::message::{Messages, QueueError};
use crate::commands::outbox::Outbox;
use crate::handler::BoxFuture;

/// Attempts of a message that are shown.
const LOG_LINES: i64 = 200;

pub struct DeadLetterCases {
    pub store: Store,
    pub clock: Clock,
    pub messages: Arc<Messages>,
    /// How long an effect that was made again is kept.
    pub keep: Duration,
}

fn id_of(case: &Case) -> Uuid {
    case.subject_id.parse().unwrap_or_default()
}

/// Only what is still there can be tried again.
fn choices(can_requeue: bool) -> Vec<Choice> {
    let all = dead_letter_choices().into_iter();
    all.filter(|choice| can_requeue || choice.action == "drop").collect()
}

impl DeadLetterCases {
    async fn evidence(&self, case: &Case) -> Result<Dossier, StoreError> {
        let id = id_of(case);
        let mut timeline = Vec::new();
        let can_requeue = if case.subject_type == message::KIND {
            let letter = self.store.message(id).await?;
            if let Some(letter) = &letter {
                timeline.push(Entry {
                    at: letter.created_at,
                    kind: "accepted".to_owned(),
                    body: json!({"destination": letter.asked.url}),
                });
            }
            timeline.extend(self.log(id).await?);
            letter.is_some_and(|letter| letter.dlq_id.is_some())
        } else {
            let effect = self.store.effect(EffectId(id)).await?;
            if let Some(effect) = &effect {
                timeline.push(Entry {
                    at: effect.created_at,
                    kind: "accepted".to_owned(),
                    body: json!({"outboxId": effect.id, "kind": effect.kind}),
                });
                timeline.extend(self.store.attempts(effect.id).await?.iter().map(attempt));
            }
            match case.subject_type.as_str() {
                webhook::KIND => self.store.webhook_event(id).await?.is_some(),
                _ => effect.is_some_and(|effect| effect.status == Status::Aborted),
            }
        };
        timeline.extend(audit(&self.store, &case.subject_type, &case.subject_id).await?);
        Ok(Dossier { choices: choices(can_requeue), timeline, ..Dossier::default() })
    }

    async fn log(&self, id: Uuid) -> Result<Vec<Entry>, StoreError> {
        let filter = MessageFilter { ids: vec![id], ..MessageFilter::default() };
        let lines = self.store.message_log(&filter, LOG_LINES).await?;
        let entry = |line: message::LogLine| {
            let response = line.response.as_ref();
            let body = json!({
                "outcome": line.what.as_str(),
                "code": response.map(|_| "DELIVERY_FAILED"),
                "message": response.map(|r| {
                    r.error.clone().unwrap_or_else(|| format!("answered {}", r.status))
                }),
                "finishedAt": line.at,
            });
            Entry { at: line.started_at, kind: "attempt".to_owned(), body }
        };
        Ok(lines.into_iter().map(entry).collect())
    }

    async fn requeue(&self, case: &Case, decision: &Decision) -> Result<(), CaseError> {
        let (id, now) = (id_of(case), self.clock.now());
        let closing = decision.closing(case, now);
        let mut changes = match case.subject_type.as_str() {
            message::KIND => return self.resend(id, &closing).await,
            webhook::KIND => {
                let event = self.store.webhook_event(id).await?.ok_or(CaseError::Lost)?;
                let known = self.store.effect(EffectId(id)).await?.is_some();
                let actor = Actor::operator(decision.who.as_str());
                webhook::reopen(&event, known, actor, now, now.plus(self.keep))
            }
            _ => {
                let effect = self.store.effect(EffectId(id)).await?.ok_or(CaseError::Lost)?;
                Outbox::requeued(&effect, &decision.who, now)
            }
        };
        changes.extend(closing);
        Ok(self.store.commit(changes).await?)
    }

    async fn resend(&self, id: Uuid, closing: &Changes) -> Result<(), CaseError> {
        let letter = self.store.message(id).await?.ok_or(CaseError::Lost)?;
        let sent = self.messages.resend_with(&letter, &Spec::default(), closing).await;
        sent.map_err(refusal)?.map(drop).ok_or(CaseError::Lost)
    }

    async fn give_up(&self, case: &Case, decision: &Decision) -> Result<(), CaseError> {
        let now = self.clock.now();
        if case.subject_type == message::KIND
            && let Some(letter) = self.store.message(id_of(case)).await?
            && letter.dlq_id.is_some()
        {
            let buried = self.messages.bury_with(&letter, &decision.closing(case, now)).await;
            return if buried.map_err(refusal)? { Ok(()) } else { Err(CaseError::Lost) };
        }
        close(&self.store, case, decision, now).await
    }
}

fn refusal(error: QueueError) -> CaseError {
    match error {
        QueueError::Store(error) => CaseError::Store(error),
        _ => CaseError::Lost,
    }
}

impl CaseKind for DeadLetterCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(self.evidence(case))
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(async move {
            match decision.action.as_str() {
                "requeue" => self.requeue(case, decision).await,
                _ => self.give_up(case, decision).await,
            }
        })
    }
}
