//! When a process dies, stalls, or lets another task go first.
//!
//! Stands at the store's gate and beside every call to the other side. A dead process does nothing more:
//! whatever comes here afterwards waits for ever, and goes with the runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tashika_store::{Gate, Moment};
use tokio::sync::Notify;

use super::dice::{Odds, Stream};
use super::stage::Stage;
use super::tally::Tally;

pub(crate) struct Fate {
    stage: Arc<Stage>,
    clock: Clock,
    dead: AtomicBool,
    died: Notify,
    state: Mutex<State>,
}

struct State {
    /// Decides the small delays that make every commit a point of interleaving.
    delays: Stream,
    faults: Stream,
    /// The database answers a node not before this.
    stalled_until: [Timestamp; NODES],
}

/// Nodes that a run may have.
pub(crate) const NODES: usize = 2;

/// The way from one node to the database.
pub(crate) struct Door {
    pub fate: Arc<Fate>,
    pub node: usize,
}

impl Fate {
    pub fn new(stage: Arc<Stage>, clock: Clock, life: u32) -> Arc<Self> {
        let state = State {
            delays: Stream::new(stage.seed, &format!("gate/{life}")),
            faults: Stream::new(stage.seed, &format!("crash/{life}")),
            stalled_until: [clock.now(); NODES],
        };
        Arc::new(Self {
            stage,
            clock,
            dead: AtomicBool::new(false),
            died: Notify::new(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Resolves when the process has died.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    /// Goes on only if the process is alive.
    pub async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// A moment at which the process may die in conversation with the other side.
    pub async fn in_call(&self, during: &str) {
        self.alive().await;
        let odds = self.stage.process.crash_in_call;
        if self.draws(odds) {
            self.die(Tally::CrashInCall, during).await;
        }
    }

    fn draws(&self, odds: Odds) -> bool {
        // Drawn in any case, so that the end of the faults does not shift the stream.
        let hit = self.state().faults.hit(odds);
        hit && !self.stage.is_calm()
    }

    async fn die(&self, how: Tally, during: &str) {
        self.stage.log.count(how);
        self.stage.log.note(self.clock.now(), &format!("process dies: {during}"));
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_one();
        std::future::pending::<()>().await;
    }

    async fn pass_through(&self, node: usize, moment: Moment) {
        self.alive().await;
        let delay = self.state().delays.millis(0, 3);
        tokio::time::sleep(delay).await;
        self.wait_for_database(node, moment).await;
        self.alive().await;
        let now = self.clock.now();
        self.stage.log.mark(now, &format!("{moment:?} {node}"));
        let process = &self.stage.process;
        let (odds, how) = match moment {
            Moment::BeforeCommit => (process.crash_at_commit, Tally::CrashBeforeCommit),
            Moment::AfterCommit => (process.crash_at_commit, Tally::CrashAfterCommit),
            Moment::BeforeUpkeep | Moment::AfterUpkeep => {
                (process.crash_at_upkeep, Tally::CrashAtUpkeep)
            }
        };
        if self.draws(odds) {
            self.die(how, &format!("{moment:?}")).await;
        }
    }

    /// While its way to the database stalls, everybody on a node waits; afterwards the order in
    /// which they go on is chance. Calls to others are not held up.
    async fn wait_for_database(&self, node: usize, moment: Moment) {
        let process = &self.stage.process;
        if moment == Moment::BeforeCommit && self.draws(process.stall) {
            let span = {
                let faults = &mut self.state().faults;
                let (low, high) = *faults.pick(&process.stalls);
                faults.millis(low, high)
            };
            let now = self.clock.now();
            self.stage.log.count(Tally::Stall);
            let text = format!("node {node} cannot reach its database for {} ms", span.as_millis());
            self.stage.log.note(now, &text);
            let until = &mut self.state().stalled_until[node];
            *until = (*until).max(now.plus(span));
        }
        loop {
            let wait = self.state().stalled_until[node].since(self.clock.now());
            if wait.is_zero() {
                return;
            }
            let shuffle = self.state().delays.millis(0, 20);
            tokio::time::sleep(wait + shuffle).await;
        }
    }

    /// A small delay before a call leaves.
    pub async fn linger(&self, span: Duration) {
        tokio::time::sleep(span).await;
        self.alive().await;
    }
}

impl Gate for Door {
    fn pass(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.fate.pass_through(self.node, moment))
    }
}
