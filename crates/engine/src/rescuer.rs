//! Finds effects whose worker is gone, and effects that hide from the claim.
//!
//! A worker that dies leaves its effects `sending`. Its row in `workers` lapses, and that is the
//! reason to look for them: the search reads the whole table. It is also made from time to time
//! without a reason, for rows that were left behind in ways nobody foresaw, but never so often that
//! it takes more than a small part of the time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use metrics::counter;
use tashika_domain::changes::{Attempt, Settle};
use tashika_domain::effect::{self, Verdict};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Lane, LanePolicy, Timestamp, Write};
use tashika_store::{CommitError, Lapsed, StoreError};
use tokio_util::sync::CancellationToken;

use crate::case;
use crate::engine::{Engine, lease};
use crate::handler::{Ending, Settled, Standing};
use crate::worker;

/// Effects looked for in one go.
const BATCH: i64 = 500;
/// Effects taken back side by side. One whose row is locked by a process that stands still keeps only itself waiting.
const ABREAST: usize = 100;
/// A search without a reason may take this share of the time.
const SHARE: u32 = 50;
/// But it is made at least once in so many leases. A search that had to wait for the database says
/// nothing about how long the next one will take.
const LEASES: u32 = 4;

pub struct Rescuer {
    engine: Arc<Engine>,
    next_sweep: Timestamp,
    next_look_back: Timestamp,
}

/// What became of lapsed effects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub rescued: u64,
    /// Could not be taken back this time: the database did not let us.
    pub stuck: u64,
}

impl Rescuer {
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        // At start-up: whatever an earlier life of this process left behind.
        let now = engine.clock.now();
        Self { engine, next_sweep: now, next_look_back: now }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let lease = self.engine.shortest_lease();
        let period = (lease / 8).clamp(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "lapsed effects could not be looked for");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.clock.sleep(period) => {}
            }
        }
    }

    /// Looks once; returns how many effects were taken back.
    pub async fn run_once(&mut self) -> Result<u64, StoreError> {
        let now = self.engine.clock.now();
        if self.next_look_back.has_come(now, self.longest_pause()) {
            for lane in self.engine.lanes.keys() {
                self.engine.store.look_back(lane).await?;
            }
            self.next_look_back = now.plus(self.pause(now, Duration::from_secs(1)));
        }
        let dead = self.lapsed_workers(now).await?;
        if dead.is_empty() && !self.next_sweep.has_come(now, self.longest_pause()) {
            return Ok(0);
        }
        let Swept { rescued, stuck } = self.sweep(now).await?;
        let soon = self.engine.shortest_lease() / 2;
        // What is stuck made the search long, and is still to be taken back.
        let pause = if stuck > 0 { soon } else { self.pause(now, soon) };
        self.next_sweep = now.plus(pause);
        for worker in dead {
            // What it claimed after its last sign of life lapses later, within a lease from now.
            self.next_sweep = self.next_sweep.min(now.plus(self.engine.longest_lease()));
            self.engine.store.worker_gone(&worker).await?;
        }
        Ok(rescued)
    }

    /// How long to wait after a search that began at `began`, at least `least`.
    fn pause(&self, began: Timestamp, least: Duration) -> Duration {
        let took = self.engine.clock.now().since(began);
        (took * SHARE).min(self.engine.shortest_lease() * LEASES).max(least)
    }

    /// Longer than any of its pauses.
    fn longest_pause(&self) -> Duration {
        (self.engine.longest_lease() * LEASES).max(Duration::from_secs(1))
    }

    async fn lapsed_workers(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        let workers = self.engine.store.workers().await?;
        let lapsed = workers.into_iter().filter(|worker| {
            let lease = Duration::from_millis(u64::try_from(worker.lease_ms).unwrap_or(0));
            worker.heartbeat_at.plus(lease) <= now
        });
        Ok(lapsed.map(|worker| worker.id).collect())
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        let mut all = Swept::default();
        // Mostly there is nothing, and each look at a lane reads everything that waits in any.
        let newest = now.minus(self.engine.shortest_lease());
        let lapsed = self.engine.store.lanes_lapsed(newest).await?;
        for (lane, policy) in self.engine.lanes.iter().filter(|(lane, _)| lapsed.contains(lane)) {
            let Swept { rescued, stuck } = self.sweep_lane(lane, policy, now).await?;
            all.rescued += rescued;
            all.stuck += stuck;
        }
        Ok(all)
    }

    /// Takes back the effects of a lane whose lease has run out by `now`.
    pub async fn sweep_lane(
        &self,
        lane: &Lane,
        policy: &LanePolicy,
        now: Timestamp,
    ) -> Result<Swept, StoreError> {
        let cutoff = now.minus(policy.lease);
        let mut rescued = 0;
        loop {
            let mut found = self.engine.store.lapsed(lane, cutoff, BATCH).await?;
            // Our own worker has it and knows what became of it; after an outage it is about to say so.
            found.retain(|lapsed| !self.engine.held.contains(lease(&lapsed.effect)));
            let (mut taken_back, mut stuck) = (0, 0);
            for some in found.chunks(ABREAST) {
                let taking = some.iter().map(|lapsed| self.take_back(lapsed, policy, now));
                for result in join_all(taking).await {
                    match result {
                        Ok(taken) => taken_back += u64::from(taken),
                        Err(error) => {
                            tracing::warn!(%error, "a lapsed effect could not be taken back");
                            stuck += 1;
                        }
                    }
                }
            }
            rescued += taken_back;
            if taken_back == 0 {
                return Ok(Swept { rescued, stuck });
            }
        }
    }

    /// Ends the lease of a lapsed effect. False if its worker or somebody else was faster.
    async fn take_back(
        &self,
        lapsed: &Lapsed,
        policy: &LanePolicy,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let effect = &lapsed.effect;
        let verdict = effect::lapse(effect.attempts, policy, now);
        let result = match self.end_lease(lapsed, &verdict, now).await {
            // The ledger was settled before the worker died: the next one to claim the effect will
            // see that and settle the row by it.
            Err(CommitError::Taken(_)) => {
                let patient = LanePolicy { max_attempts: u32::MAX, ..policy.clone() };
                let again = effect::lapse(effect.attempts, &patient, now);
                self.end_lease(lapsed, &again, now).await
            }
            result => result,
        };
        match result {
            Ok(()) => {
                counter!("outbox_lock_lease_expired_total").increment(1);
                tracing::warn!(
                    outbox_id = %effect.id,
                    locked_by = %lapsed.worker,
                    attempts = effect.attempts + 1,
                    "a lease ran out; the effect was taken back"
                );
                self.engine.store.wakeups().mark(&effect.lane);
                Ok(true)
            }
            // Found again at the next look, if it is still there.
            Err(CommitError::Stale(_) | CommitError::Taken(_) | CommitError::Outdated { .. }) => {
                Ok(false)
            }
            Err(CommitError::Store(error)) => Err(error),
        }
    }

    async fn end_lease(
        &self,
        lapsed: &Lapsed,
        verdict: &Verdict,
        now: Timestamp,
    ) -> Result<(), CommitError> {
        let effect = &lapsed.effect;
        let lapsed_reason = verdict.reason().cloned().unwrap_or_else(|| Reason::new("", ""));
        let ending = Ending {
            effect,
            verdict,
            outcome: &Outcome::Lost(lapsed_reason),
            exchange: None,
            note: None,
            lapsed: true,
            started_at: lapsed.locked_at,
            rtt: Duration::ZERO,
            now,
            id: self.engine.ids.uuid(),
        };
        let plain = || Settled::plain(effect, verdict.clone(), Some(lapsed.locked_at));
        let settled = match self.engine.handlers.get(&effect.kind) {
            None => plain(),
            Some(handler) => {
                let concluding = AssertUnwindSafe(async { handler.conclude(&ending).await });
                match concluding.catch_unwind().await {
                    Ok(settled) => settled?,
                    // A handler that panics must not take the rescue of all others with it.
                    Err(_) => plain(),
                }
            }
        };
        let Settled { verdict, mut changes, after, recorded, standing, .. } = settled;
        if standing == Standing::Taken {
            return Err(CommitError::Stale(effect.id));
        }
        let reason = verdict.reason();
        let record = Attempt {
            lease: lease(effect),
            worker: lapsed.worker.clone(),
            started_at: lapsed.locked_at,
            finished_at: now,
            outcome: "lapsed",
            code: reason.map(|reason| reason.code.clone()),
            message: reason.map(|reason| reason.message.clone()),
            exchange: None,
        };
        if !recorded {
            changes.push(Write::Attempt(record));
        }
        changes.extend(case::given_up(effect, &verdict, now));
        if standing == Standing::Ours {
            let settlement = worker::settlement(&self.engine, effect, verdict, now);
            // Its worker may have come back meanwhile, and be at work.
            let unheard_since = Some(lapsed.locked_at);
            let settlement = Settle { unheard_since, ..settlement };
            changes.extend(effect::end(effect, &lapsed.worker, settlement));
        }
        self.engine.store.commit(changes).await?;
        if let Some(after) = after {
            after();
        }
        Ok(())
    }
}
