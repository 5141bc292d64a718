//! A lock around a slot, for programs that do more than one thing under it.
//!
//! Reservations themselves need none: an index decides who has a slot. PostgreSQL lends its advisory
//! locks, on a connection of the lock's own, so that every process that uses the database takes turns;
//! the lock goes with the connection, also when its holder panics or is dropped. A SQLite database has
//! one process that writes: there the lock is in the memory of this store and of its clones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::digest;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::error::StoreError;
use crate::{Backend, Store};

/// How long a caller waits for its turn.
pub const SLOT_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The lock could not be had. The work was not begun.
#[derive(Debug, thiserror::Error)]
pub enum SlotLockError {
    #[error("somebody else has had the slot's lock for longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The locks of a SQLite store.
#[derive(Default)]
pub(crate) struct Slots(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Slots {
    fn lock_of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks that nobody has or waits for are made anew when somebody wants them.
        slots.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(slots.entry(name.to_owned()).or_default())
    }
}

/// `slot:2026-12-24:3`, as a number that fits an advisory lock.
fn number_of(name: &str) -> i64 {
    let digest = digest::sha256(name.as_bytes());
    let hex = digest.rsplit(':').next().unwrap_or_default();
    let first = hex.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok());
    first.unwrap_or_default().cast_signed()
}

impl Store {
    /// Does something while nobody else has the lock of this slot.
    pub async fn with_slot_lock<T>(
        &self,
        date: &str,
        slot: i64,
        work: impl AsyncFnOnce() -> T,
    ) -> Result<T, SlotLockError> {
        self.with_slot_lock_within(date, slot, SLOT_LOCK_TIMEOUT, work).await
    }

    /// The same, with another time limit for the wait.
    pub async fn with_slot_lock_within<T>(
        &self,
        date: &str,
        slot: i64,
        timeout: Duration,
        work: impl AsyncFnOnce() -> T,
    ) -> Result<T, SlotLockError> {
        let name = format!("slot:{date}:{slot}");
        match &self.backend {
            Backend::Sqlite(_) => {
                let lock = self.slots.lock_of(&name);
                let held = tokio::time::timeout(timeout, lock.lock()).await;
                let held = held.map_err(|_| SlotLockError::Timeout(timeout))?;
                let result = work().await;
                drop(held);
                Ok(result)
            }
            Backend::Postgres(postgres) => {
                let number = number_of(&name);
                let client = postgres.connect_alone().await?;
                take(&client, number, timeout).await?;
                let result = work().await;
                // Dropping the connection lets go of the lock as well; this is only sooner.
                if let Err(error) =
                    client.execute("select pg_advisory_unlock($1)", &[&number]).await
                {
                    tracing::warn!(%error, "a slot's lock goes with its connection");
                }
                Ok(result)
            }
        }
    }
}

async fn take(client: &Client, number: i64, timeout: Duration) -> Result<(), SlotLockError> {
    let limit = format!("{}ms", timeout.as_millis().max(1));
    let limited = client.execute("select set_config('lock_timeout', $1, false)", &[&limit]).await;
    limited.map_err(StoreError::from)?;
    match client.execute("select pg_advisory_lock($1)", &[&number]).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(SlotLockError::Timeout(timeout))
        }
        Err(error) => Err(StoreError::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_number_of_its_own() {
        let one = number_of("slot:2026-12-24:1");
        assert_eq!(one, number_of("slot:2026-12-24:1"));
        assert_ne!(one, number_of("slot:2026-12-24:11"));
        assert_ne!(one, number_of("slot:2026-12-25:1"));
        assert_ne!(one, 0);
    }

    #[test]
    fn locks_that_nobody_wants_are_forgotten() {
        let slots = Slots::default();
        let first = slots.lock_of("a");
        assert!(Arc::ptr_eq(&first, &slots.lock_of("a")));
        drop(first);
        drop(slots.lock_of("b"));
        assert_eq!(slots.0.lock().unwrap().len(), 1);
    }
}
