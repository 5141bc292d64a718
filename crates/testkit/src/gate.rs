//! Waiting for events: gates that a test opens, and conditions that it waits for.
//!
//! Tests wait for what happens, never for time. Where the thing waited for tells of itself (a send that has started), it is
//! waited for; where nothing tells (a row that somebody else writes), [`until`] looks again and again. Either way a test that
//! waits in vain fails with a sentence instead of hanging.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Far longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that does not tell of itself.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Closed until it is opened, and open for good after that. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: Mutex<bool>,
    opened: Condvar,
    told: watch::Sender<bool>,
}

impl Gate {
    #[must_use]
    pub fn closed() -> Self {
        let told = watch::Sender::new(false);
        Self(Arc::new(Inner { open: Mutex::new(false), opened: Condvar::new(), told }))
    }

    pub fn open(&self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
        self.0.told.send_replace(true);
    }

    /// Resolves when the gate is open.
    pub async fn passed(&self) {
        let mut told = self.0.told.subscribe();
        told.wait_for(|open| *open).await.expect("the gate outlives whoever waits at it");
    }

    /// Blocks the thread until the gate is open. A runtime that has no other thread stands still meanwhile, heartbeats
    /// included, like a process that is suspended.
    pub fn block(&self) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*open {
            open = self.0.opened.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Looks until there is something to see, and returns it.
///
/// # Panics
///
/// When there is nothing for far too long; `what` is what was missing.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    soon(what, looking).await
}

/// Waits for something that tells of itself.
///
/// # Panics
///
/// When it does not happen for far too long; `what` is what was missing.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, event).await;
    waited.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_at_a_gate_goes_on_when_it_opens() {
        let gate = Gate::closed();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.passed().await }
        });
        let blocked = std::thread::spawn({
            let gate = gate.clone();
            move || gate.block()
        });

        gate.open();

        soon("the task", waiting).await.unwrap();
        tokio::task::spawn_blocking(|| blocked.join()).await.unwrap().unwrap();
        gate.passed().await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited in vain: a miracle")]
    async fn waiting_in_vain_is_a_failure() {
        until("a miracle", async || None::<()>).await;
    }
}
