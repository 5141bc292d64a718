//! Alerts, as operators act on them.

use tashika_domain::alert::{self, Alert, AlertRefusal};
use tashika_domain::{Changes, Timestamp};
use tashika_store::{CommitError, Store, StoreError};
use uuid::Uuid;

use crate::clock::Clock;

/// What operators may do with alerts.
pub struct Alerts {
    store: Store,
    clock: Clock,
}

/// Why an alert could not be acted on.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    #[error("no such alert")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] AlertRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Alerts {
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock }
    }

    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn find(&self, id: Uuid) -> Result<Alert, AlertError> {
        self.store.alert(id).await?.ok_or(AlertError::NotFound)
    }

    /// Somebody has seen it. A repeat changes nothing: the first one stays.
    pub async fn acknowledge(&self, id: Uuid, who: &str, note: &str) -> Result<Alert, AlertError> {
        self.change(id, |alert, now| Ok(alert::acknowledge(alert, who, note, now)?)).await
    }

    /// Nobody is told until then; a moment that is over ends the silence.
    pub async fn silence(
        &self,
        id: Uuid,
        until: Timestamp,
        who: &str,
        reason: &str,
    ) -> Result<Alert, AlertError> {
        self.change(id, |alert, now| Ok(alert::silence(alert, until, who, reason, now))).await
    }

    /// Reads, decides and writes until nobody comes in between.
    async fn change(
        &self,
        id: Uuid,
        decide: impl Fn(&Alert, Timestamp) -> Result<Option<Changes>, AlertError>,
    ) -> Result<Alert, AlertError> {
        loop {
            let alert = self.find(id).await?;
            let Some(changes) = decide(&alert, self.clock.now())? else { return Ok(alert) };
            match self.store.commit(changes).await {
                Ok(()) => return self.find(id).await,
                Err(CommitError::Store(error)) => return Err(error.into()),
                // The watchman has written it meanwhile.
                Err(_) => {}
            }
        }
    }
}
