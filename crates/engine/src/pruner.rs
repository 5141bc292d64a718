//! Forgets what is settled and over: ledger entries, effects, webhooks, quotas of past days.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Rows per statement: short transactions, so that nobody waits for the cleaning.
const BATCH: i64 = 1000;
/// The longest period of a flow control: until it is over, what was let through is counted.
const PERIOD_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

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
    pub flow_controls: u64,
    pub mails: u64,
    pub renders: u64,
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
        let (store, settings) = (&self.engine.store, &self.engine.settings);
        let now = self.engine.clock.now();
        let ago = |keep| now.minus(keep);
        let ledger = all(|| store.prune_ledger(now, BATCH)).await?;
        let effects = self.effects(now).await?;
        let before = ago(settings.keep_webhooks);
        let webhooks = all(|| store.prune_webhook_events(before, BATCH)).await?;
        let before = ago(settings.keep_messages);
        let messages = all(|| store.prune_messages(before, BATCH)).await?;
        all(|| store.prune_message_log(before, BATCH)).await?;
        let before = ago(settings.keep_messages.max(PERIOD_MAX));
        let flow_controls = all(|| store.prune_flow_controls(before, BATCH)).await?;
        let before = ago(settings.alerts.keep);
        let alerts = all(|| store.prune_alerts(before, BATCH)).await?;
        let before = ago(settings.keep_mails);
        let mails = all(|| store.prune_mails(before, BATCH)).await?;
        all(|| store.prune_mail_batches(before, BATCH)).await?;
        store.prune_mail_quota(now).await?;
        let before = ago(settings.keep_renders);
        let renders = all(|| store.prune_renders(before, BATCH)).await?;
        let audit = match settings.keep_audit {
            Some(keep) => all(|| store.prune_audit(ago(keep), BATCH)).await?,
            None => 0,
        };
        // Yesterday's quota may still be asked for by a process whose clock is behind.
        let quotas = store.prune_quotas(now.day() - 1).await?;
        Ok(Pruned {
            ledger,
            effects,
            quotas,
            webhooks,
            messages,
            flow_controls,
            mails,
            renders,
            audit,
            alerts,
        })
    }

    /// Effects are looked at in the order of their ids, also those that have to stay.
    async fn effects(&self, now: Timestamp) -> Result<u64, StoreError> {
        let (mut pruned, mut after) = (0, None);
        loop {
            let (removed, last) = self.engine.store.prune_effects(now, after, BATCH).await?;
            pruned += removed;
            if last.is_none() {
                return Ok(pruned);
            }
            after = last;
        }
    }
}

/// Batch after batch, until nothing is left to remove. Returns how many went.
async fn all<F>(batch: impl Fn() -> F) -> Result<u64, StoreError>
where
    F: Future<Output = Result<u64, StoreError>>,
{
    let mut pruned = 0;
    loop {
        match batch().await? {
            0 => return Ok(pruned),
            removed => pruned += removed,
        }
    }
}
