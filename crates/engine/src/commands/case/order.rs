//! Cases about orders that nobody answered for.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::Status;
use tashika_domain::case::{Case, Decision};
use tashika_domain::ledger::LedgerKey;
use tashika_domain::order::{Execution, KIND, choices};
use tashika_store::{CommitError, Store, StoreError};

use super::{CaseError, CaseKind, Dossier, Entry, attempt, audit, violation};
use crate::commands::order::{Orders, Resolution, ResolveError};
use crate::handler::BoxFuture;

pub struct OrderCases {
    pub store: Store,
    pub orders: Arc<Orders>,
}

impl OrderCases {
    async fn evidence(&self, case: &Case) -> Result<Dossier, StoreError> {
        let key = case.subject_id.as_str();
        let Some(effect) = self.store.effect_by_key(KIND, key).await? else {
            return Ok(Dossier::default());
        };
        let mut timeline = vec![Entry {
            at: effect.created_at,
            kind: "accepted".to_owned(),
            body: json!({"outboxId": effect.id, "idempotencyKey": key}),
        }];
        timeline.extend(self.store.attempts(effect.id).await?.iter().map(attempt));
        if let Some(entry) = self.store.ledger_entry(&LedgerKey::new(KIND, key)).await? {
            timeline.push(Entry {
                at: entry.last_seen_at,
                kind: "ledger".to_owned(),
                body: json!({"status": entry.status.as_str(), "httpStatus": entry.http_status}),
            });
        }
        timeline.extend(audit(&self.store, KIND, key).await?);
        let open = effect.status == Status::Aborted;
        let choices = if open { choices::of_unanswered() } else { Vec::new() };
        Ok(Dossier { choices, timeline, ..Dossier::default() })
    }

    async fn decide(
        &self,
        case: &Case,
        decision: &Decision,
        body: &Value,
    ) -> Result<(), CaseError> {
        let resolution = match decision.action.as_str() {
            "executed" => Resolution::Executed(execution(body)?),
            "not_executed" => Resolution::NotExecuted,
            _ => Resolution::Resend,
        };
        let (key, note, who) = (&case.subject_id, &decision.note, &decision.who);
        match self.orders.resolve_as(key, resolution, note, who).await {
            Ok(()) => Ok(()),
            Err(ResolveError::Commit(CommitError::Store(error)) | ResolveError::Store(error)) => {
                Err(error.into())
            }
            Err(ResolveError::NoCase | ResolveError::Unknown | ResolveError::Commit(_)) => {
                Err(CaseError::Lost)
            }
        }
    }
}

/// What the person has read at the broker.
fn execution(body: &Value) -> Result<Execution, CaseError> {
    let invalid = |text: String| CaseError::Invalid(vec![violation("execution", text)]);
    let given = body.get("execution").ok_or_else(|| invalid("is required".to_owned()))?;
    serde_json::from_value(given.clone()).map_err(|error| invalid(error.to_string()))
}

impl CaseKind for OrderCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(self.evidence(case))
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(self.decide(case, decision, body))
    }
}
