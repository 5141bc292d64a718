//! Forgets what is settled and over: ledger entries, effects, webhooks, quotas of past days.

use std::sync::Arc;

use tashika_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Rows per statement: short transactions, so that nobody waits for the cleaning.
const BATCH: i64 = 1000;

pub struct Pruner {
    engine: Arc<Engine>,
}

/// What one pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub ledger: u64,
    pub effects: u64,
    pub quotas: u64,
    pub webhooks: u64,
    pub messages: u64,
    pub mails: u64,
    pub audit: u64,
    pub alerts: u64,
}

impl Pruner {
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.clock.sleep(self.engine.settings.prune_every) => {}
            }
            match self.run_once().await {
                Ok(pruned) => tracing::info!(
                    ledger = pruned.ledger,
                    effects = pruned.effects,
                    "what is over was pruned"
                ),
                Err(error) => tracing::warn!(%error, "pruning stopped early"),
            }
        }
    }

    pub async fn run_once(&self) -> Result<Pruned, StoreError> {
        let (store, now) = (&self.engine.store, self.engine.clock.now());
        let mut pruned = Pruned::default();
        loop {
            let removed = store.prune_ledger(now, BATCH).await?;
            pruned.ledger += removed;
            if removed == 0 {
                break;
            }
        }
        let mut after = None;
        loop {
            let (removed, last) = store.prune_effects(now, after, BATCH).await?;
            pruned.effects += removed;
            if last.is_none() {
                break;
            }
            after = last;
        }
        let before = now.minus(self.engine.settings.keep_webhooks);
        loop {
            let removed = store.prune_webhook_events(before, BATCH).await?;
            pruned.webhooks += removed;
            if removed == 0 {
                break;
            }
        }
        let before = now.minus(self.engine.settings.keep_messages);
        loop {
            let removed = store.prune_messages(before, BATCH).await?;
            pruned.messages += removed;
            if removed == 0 {
                break;
            }
        }
        while store.prune_message_log(before, BATCH).await? > 0 {}
        let before = now.minus(self.engine.settings.alerts.keep);
        loop {
            let removed = store.prune_alerts(before, BATCH).await?;
            pruned.alerts += removed;
            if removed == 0 {
                break;
            }
        }
        let before = now.minus(self.engine.settings.keep_mails);
        loop {
            let removed = store.prune_mails(before, BATCH).await?;
            pruned.mails += removed;
            if removed == 0 {
                break;
            }
        }
        while store.prune_mail_batches(before, BATCH).await? > 0 {}
        store.prune_mail_quota(now).await?;
        if let Some(keep) = self.engine.settings.keep_audit {
            loop {
                let removed = store.prune_audit(now.minus(keep), BATCH).await?;
                pruned.audit += removed;
                if removed == 0 {
                    break;
                }
            }
        }
        // Yesterday's quota may still be asked for by a process whose clock is behind.
        pruned.quotas = store.prune_quotas(now.day() - 1).await?;
        Ok(pruned)
    }
}
