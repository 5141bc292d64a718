//! Counts what stands around, for the gauges.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tashika_domain::alert::{AlertResolution, NewAlert, Severity};
use tashika_domain::payment::Status;
use tashika_domain::{Changes, Write};
use tashika_store::{CommitError, StoreError};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

const PERIOD: Duration = Duration::from_secs(10);
/// Counting a large table takes time: it may take this share of it.
const SHARE: u32 = 50;

/// A dead letter that nobody has looked at for so long.
const OLD_LETTER: Duration = Duration::from_secs(24 * 3600);

const LETTER_RULES: [(&str, Severity, &str); 2] = [
    ("queue_dead_letters", Severity::Warning, "messages could not be delivered and were given up"),
    (
        "queue_dead_letters_old",
        Severity::High,
        "a dead letter has been waiting for more than a day",
    ),
];

pub(crate) struct Watchman {
    engine: Arc<Engine>,
    /// Which of the rules about dead letters were found to hold at the last look.
    letters: Mutex<[bool; 2]>,
}

impl Watchman {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, letters: Mutex::default() }
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

    /// Dead letters wait for a person: one is worth an alert, one that waits for a day is worth more.
    #[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
    async fn watch_dead_letters(&self) -> Result<(), StoreError> {
        let now = self.engine.clock.now();
        let (count, oldest) = self.engine.store.dead_letters().await?;
        let age = oldest.map_or(Duration::ZERO, |at| now.since(at));
        gauge!("queue_dlq_count").set(count as f64);
        gauge!("queue_dlq_oldest_seconds").set(age.as_secs_f64());
        let found = [count > 0, age >= OLD_LETTER];
        let mut known = self.letters.lock().await;
        let mut changes = Changes::new();
        for ((rule, severity, message), (found, known)) in
            LETTER_RULES.into_iter().zip(found.into_iter().zip(known.iter()))
        {
            if found == *known {
                continue;
            }
            let subject = "messages".to_owned();
            changes.push(if found {
                let labels = serde_json::json!({"count": count.to_string()}).to_string();
                let id = self.engine.ids.uuid();
                Write::FireAlert(NewAlert { id, rule, subject, severity, message, labels, now })
            } else {
                Write::ResolveAlert(AlertResolution { rule, subject, now })
            });
        }
        match self.engine.store.commit(changes).await {
            Ok(()) => *known = found,
            Err(CommitError::Store(error)) => return Err(error),
            Err(_) => {}
        }
        Ok(())
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
        self.watch_dead_letters().await
    }
}
