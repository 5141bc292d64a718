//! Signs of life: for the effects in hand, and for the process.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Renews leases at half their length, until the last effect in hand has ended.
pub(crate) struct Renewer {
    engine: Arc<Engine>,
}

impl Renewer {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub async fn run(self, drained: CancellationToken) {
        loop {
            let wait = match self.run_once().await {
                Ok(()) => self.engine.shortest_lease() / 2,
                Err(error) => {
                    tracing::warn!(%error, "no sign of life could be given");
                    self.engine.shortest_lease() / 8
                }
            };
            tokio::select! {
                biased;
                () = drained.cancelled() => break,
                () = self.engine.clock.sleep(wait) => {}
            }
        }
        if let Err(error) = self.engine.store.worker_gone(&self.engine.settings.worker).await {
            tracing::debug!(%error, "the worker's row stays until somebody finds it lapsed");
        }
    }

    async fn run_once(&self) -> Result<(), tashika_store::StoreError> {
        let Engine { store, clock, settings, held, .. } = &*self.engine;
        let now = clock.now();
        store.worker_alive(&settings.worker, now, self.engine.longest_lease()).await?;
        // The leases are as fresh as this moment, not as the one before the first write.
        let (leases, now) = (held.all(), clock.now());
        for lost in store.renew(leases.clone(), now).await? {
            // If it runs, its settlement will be refused; if it waits for its turn, it has had it.
            tracing::warn!(outbox_id = %lost.id, "a lease was lost");
            held.remove(lost);
        }
        held.renewed(&leases, now);
        Ok(())
    }
}
