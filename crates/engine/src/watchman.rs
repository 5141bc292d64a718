//! Counts what stands around, for the gauges.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tashika_domain::payment::Status;
use tashika_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

const PERIOD: Duration = Duration::from_secs(10);
/// Counting a large table takes time: it may take this share of it.
const SHARE: u32 = 50;

pub(crate) struct Watchman {
    engine: Arc<Engine>,
}

impl Watchman {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    pub async fn run(self, stop: CancellationToken) {
        loop {
            let began = self.engine.clock.now();
            if let Err(error) = self.run_once().await {
                tracing::debug!(%error, "the gauges could not be read");
            }
            let took = self.engine.clock.now().since(began);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.clock.sleep(PERIOD.max(took * SHARE)) => {}
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
    async fn run_once(&self) -> Result<(), StoreError> {
        gauge!("outbox_pending_count").set(self.engine.store.waiting_count().await? as f64);
        gauge!("idempo_ledger_rows").set(self.engine.store.ledger_rows().await? as f64);
        let in_doubt = self.engine.store.payments_in_doubt().await?;
        gauge!("payment_pending_verification_count").set(in_doubt as f64);
        // What still waits for something to happen to it; the other statuses only ever grow.
        for status in [Status::Pending, Status::Authorized] {
            let count = self.engine.store.payment_count(status).await?;
            gauge!("payment_active_count", "status" => status.as_str()).set(count as f64);
        }
        Ok(())
    }
}
