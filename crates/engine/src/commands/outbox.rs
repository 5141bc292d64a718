//! The outbox, as operators ask about it.

use tashika_domain::audit::{Actor, NewAudit, line_id};
use tashika_domain::case::CaseResolution;
use tashika_domain::changes::{LedgerTouch, Requeue};
use tashika_domain::effect::{Event, IllegalTransition, next};
use tashika_domain::ledger::LedgerKey;
use tashika_domain::order;
use tashika_domain::{Changes, EffectId, Status, Timestamp, Write};
use tashika_store::{CommitError, EffectFilter, EffectRow, Store, StoreError};

use crate::clock::Clock;

/// Effects handled in one go.
const PAGE: i64 = 500;

/// What operators may do with the outbox.
pub struct Outbox {
    store: Store,
    clock: Clock,
    /// Who asks, for the audit log.
    who: String,
}

/// Why an effect could not be requeued.
#[derive(Debug, thiserror::Error)]
pub enum RequeueError {
    #[error("no such effect")]
    Unknown,
    #[error(transparent)]
    NotAborted(#[from] IllegalTransition),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Outbox {
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock, who: "outbox".to_owned() }
    }

    /// The same in the name of somebody.
    #[must_use]
    pub fn by(self, who: impl Into<String>) -> Self {
        Self { who: who.into(), ..self }
    }

    /// Gives an aborted effect another life, with all its attempts.
    ///
    /// What was in doubt stays in doubt: the handler will ask before it repeats.
    pub async fn requeue(&self, id: EffectId) -> Result<(), RequeueError> {
        let effect = self.store.effect(id).await?.ok_or(RequeueError::Unknown)?;
        next(effect.status, Event::Requeue)?;
        Ok(self.store.commit(self.requeue_changes(&effect)).await?)
    }

    fn requeue_changes(&self, effect: &EffectRow) -> Changes {
        Self::requeued(effect, &self.who, self.clock.now())
    }

    /// What gives an aborted effect another life, as somebody wishes.
    pub(crate) fn requeued(effect: &EffectRow, who: &str, now: Timestamp) -> Changes {
        let requeue = Requeue { id: effect.id, without_doubt: false, now };
        let mut changes = Changes::from(Write::Requeue(requeue));
        let target = effect.key.clone().unwrap_or_else(|| effect.id.to_string());
        changes.push(Write::Audit(Box::new(NewAudit {
            id: line_id(now, &target, "requeued", effect.fence.unsigned_abs()),
            actor: Actor::operator(who),
            action: "outbox.requeued".to_owned(),
            target_type: "outbox",
            target_id: effect.id.to_string(),
            office_id: None,
            details: serde_json::json!({"kind": effect.kind, "key": target}).to_string(),
            now,
        })));
        if let Some(key) = &effect.key {
            if effect.kind == order::KIND {
                // The question of an open case is asked again; unanswered, it opens a new one.
                changes.push(Write::ResolveCase(CaseResolution {
                    kind: order::CASE_UNANSWERED,
                    subject_id: key.clone(),
                    action: "requeued".to_owned(),
                    note: String::new(),
                    now,
                }));
            }
            let key = LedgerKey::new(&effect.kind, key);
            changes.push(Write::LedgerReopen(LedgerTouch { key, now }));
        }
        changes
    }

    /// Requeues every aborted effect that a filter names; returns how many.
    pub async fn requeue_all(&self, filter: EffectFilter) -> Result<u64, RequeueError> {
        self.requeue_all_telling(filter, |_| {}).await
    }

    /// The same, and tells how many there are after each.
    pub async fn requeue_all_telling(
        &self,
        filter: EffectFilter,
        mut tell: impl FnMut(u64) + Send,
    ) -> Result<u64, RequeueError> {
        let mut filter = EffectFilter { status: Some(Status::Aborted), before: None, ..filter };
        let mut requeued = 0;
        loop {
            let page = self.store.effects(&filter, PAGE).await?;
            let Some(last) = page.last() else { return Ok(requeued) };
            filter.before = Some(last.id);
            for effect in &page {
                match self.store.commit(self.requeue_changes(effect)).await {
                    Ok(()) => {
                        requeued += 1;
                        tell(requeued);
                    }
                    // Somebody else requeued it.
                    Err(CommitError::Stale(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}
