//! How much a client may ask for: a rate with bursts, and a daily quota.
//!
//! The rate is kept in memory, per process. The quota is kept in the store, in portions: a process
//! reserves a portion and spends it, so that counting does not cost a write per request. What a
//! process had reserved and not spent when it died counts as spent.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::pace::Pace;

#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// `RL_RATE_PER_MIN`; 0 is no limit.
    pub rate_per_min: f64,
    /// `RL_BURST`.
    pub burst: u32,
    /// `DAILY_QUOTA`; 0 is no limit.
    pub daily_quota: i64,
}

/// The limits of all clients.
pub struct Limits {
    settings: LimitSettings,
    clients: Mutex<BTreeMap<String, Client>>,
}

struct Client {
    pace: Pace,
    day: i64,
    /// Reserved in the store and not spent.
    portion: i64,
}

/// A request that has been counted.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counted;

/// Not now.
#[derive(Debug)]
pub(crate) enum Refusal {
    Wait(Duration),
    Store(StoreError),
}

impl Limits {
    #[must_use]
    pub fn new(rate_per_min: f64, burst: u32, daily_quota: i64) -> Self {
        let settings = LimitSettings { rate_per_min, burst, daily_quota };
        Self { settings, clients: Mutex::default() }
    }

    /// Counts one request of a client.
    pub(crate) async fn count(
        &self,
        store: &Store,
        client: &str,
        now: Timestamp,
    ) -> Result<Counted, Refusal> {
        let LimitSettings { rate_per_min, burst, daily_quota } = self.settings;
        let mut clients = self.clients.lock().await;
        let state = clients.entry(client.to_owned()).or_insert_with(|| Client {
            pace: Pace::new(rate_per_min / 60.0, burst),
            day: now.day(),
            portion: 0,
        });
        if rate_per_min > 0.0 {
            state.pace.take(now).map_err(Refusal::Wait)?;
        }
        if daily_quota == 0 {
            return Ok(Counted);
        }
        if state.day != now.day() {
            (state.day, state.portion) = (now.day(), 0);
        }
        if state.portion == 0 {
            // Small quotas are counted one by one, and so exactly.
            let want = (daily_quota / 200).clamp(1, 100);
            let granted = store.reserve_quota(client, state.day, want, daily_quota).await;
            match granted {
                Ok(granted) => state.portion = granted,
                Err(error) => {
                    state.pace.give_back();
                    return Err(Refusal::Store(error));
                }
            }
        }
        if state.portion == 0 {
            state.pace.give_back();
            return Err(Refusal::Wait(until_midnight(now)));
        }
        state.portion -= 1;
        Ok(Counted)
    }

    /// The request turned out to be a repeat, or was not accepted: it does not count.
    pub(crate) async fn give_back(&self, client: &str, _counted: Counted) {
        if let Some(state) = self.clients.lock().await.get_mut(client) {
            state.pace.give_back();
            state.portion += i64::from(self.settings.daily_quota > 0);
        }
    }

    /// Returns what was reserved and not spent, at shutdown.
    pub async fn close(&self, store: &Store) -> Result<(), StoreError> {
        for (client, state) in &mut *self.clients.lock().await {
            if state.portion > 0 {
                store.return_quota(client, state.day, state.portion).await?;
                state.portion = 0;
            }
        }
        Ok(())
    }
}

fn until_midnight(now: Timestamp) -> Duration {
    Timestamp::from_micros((now.day() + 1) * 86_400_000_000).since(now)
}
