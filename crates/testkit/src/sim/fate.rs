//! When a process dies, stalls, is refused by its disk, or lets another task go first.
//!
//! Stands at the store's gate and beside every call to the other side. A dead process does nothing more:
//! whatever comes here afterwards waits for ever, and goes with the runtime. Each node has a [`Fate`];
//! what they share is the host, with which all of them die.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tashika_domain::{Changes, Timestamp, Write};
use tashika_engine::Clock;
use tashika_store::{CommitError, Gate, Moment, Passing, StoreError, Written};
use tokio::sync::Notify;

use super::dice::{Odds, Stream};
use super::stage::{Stage, lock};
use super::tally::Tally;
use super::trouble::DISK;

/// The fate of one node.
pub(crate) struct Fate {
    pub node: usize,
    /// Only what runs by itself can die by itself, and be raised.
    runs: bool,
    host: Arc<Host>,
    dead: AtomicBool,
}

/// What the nodes of one life share.
struct Host {
    stage: Arc<Stage>,
    clock: Clock,
    life: u32,
    dead: AtomicBool,
    died: Notify,
    /// Nodes that died alone, and whether anybody raises them.
    fallen: Mutex<VecDeque<usize>>,
    fell: Notify,
    raises: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Decides the small delays that make every commit a point of interleaving.
    delays: Stream,
    faults: Stream,
    /// Decides about the disk: of its own, so that a run without it is otherwise the same.
    disk: Stream,
    /// The database answers a node not before this.
    stalled_until: [Timestamp; NODES],
}

/// Nodes that a run may have.
pub(crate) const NODES: usize = 4;

/// The way from one node to the database.
pub(crate) struct Door(pub Arc<Fate>);

impl Fate {
    /// The fate of the first node, and of the host.
    pub fn new(stage: Arc<Stage>, clock: Clock, life: u32) -> Arc<Self> {
        let state = State {
            delays: Stream::new(stage.seed, &format!("gate/{life}")),
            faults: Stream::new(stage.seed, &format!("crash/{life}")),
            disk: Stream::new(stage.seed, &format!("disk/{life}")),
            stalled_until: [clock.now(); NODES],
        };
        let host = Host {
            stage,
            clock,
            life,
            dead: AtomicBool::new(false),
            died: Notify::new(),
            fallen: Mutex::default(),
            fell: Notify::new(),
            raises: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        Arc::new(Self { node: 0, runs: true, host: Arc::new(host), dead: AtomicBool::new(false) })
    }

    /// The fate of another node on the same host, or of the same node after it was raised.
    pub fn of(&self, node: usize) -> Arc<Self> {
        self.sibling(node, true)
    }

    /// The fate of a connection with a node's troubles that is not the node's own: whoever asks through it would wait
    /// for ever if it died alone.
    pub fn beside(&self, node: usize) -> Arc<Self> {
        self.sibling(node, false)
    }

    fn sibling(&self, node: usize, runs: bool) -> Arc<Self> {
        let (host, dead) = (Arc::clone(&self.host), AtomicBool::new(false));
        Arc::new(Self { node: node % NODES, runs, host, dead })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.host.state)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) || self.host.dead.load(Ordering::Relaxed)
    }

    /// The true time: that of the host, and of the world.
    pub fn clock(&self) -> Clock {
        self.host.clock
    }

    /// Resolves when the host has died.
    pub async fn died(&self) {
        self.host.died.notified().await;
    }

    /// From now on nodes that died alone are raised.
    pub fn raises_nodes(&self) {
        self.host.raises.store(true, Ordering::Relaxed);
    }

    /// Resolves when a node has died alone; returns which.
    pub async fn fallen(&self) -> usize {
        loop {
            let next = lock(&self.host.fallen).pop_front();
            match next {
                Some(node) => return node,
                None => self.host.fell.notified().await,
            }
        }
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
        let odds = self.host.stage.process.crash_in_call;
        if self.draws(odds) {
            self.die(Tally::CrashInCall, during).await;
        }
    }

    fn draws(&self, odds: Odds) -> bool {
        // Drawn in any case, so that the end of the faults does not shift the stream.
        let hit = self.state().faults.hit(odds);
        hit && !self.host.stage.is_calm()
    }

    async fn die(&self, how: Tally, during: &str) {
        let Host { stage, clock, life, .. } = &*self.host;
        let alone = self.state().faults.hit(stage.process.dies_alone)
            && self.node > 0
            && self.runs
            && self.host.raises.load(Ordering::Relaxed);
        if !alone && *life >= stage.process.lives_max {
            return;
        }
        stage.log.count(how);
        if alone {
            stage.log.count(Tally::NodeDied);
            stage.log.note(clock.now(), &format!("node {} dies alone: {during}", self.node));
            self.dead.store(true, Ordering::Relaxed);
            lock(&self.host.fallen).push_back(self.node);
            self.host.fell.notify_one();
        } else {
            let text =
                format!("process dies, and all nodes with it: {during} (node {})", self.node);
            stage.log.note(clock.now(), &text);
            self.host.dead.store(true, Ordering::Relaxed);
            self.host.died.notify_one();
        }
        std::future::pending::<()>().await;
    }

    async fn pass_through(&self, moment: Moment) -> Result<(), StoreError> {
        self.alive().await;
        let delay = self.state().delays.millis(0, 3);
        tokio::time::sleep(delay).await;
        self.wait_for_database(moment).await;
        self.alive().await;
        let (stage, now) = (&self.host.stage, self.host.clock.now());
        stage.log.mark(now, &format!("{moment:?} {}", self.node));
        let process = &stage.process;
        let (odds, how, words) = match moment {
            Moment::BeforeCommit => {
                (process.crash_at_commit, Tally::CrashBeforeCommit, "before a commit")
            }
            Moment::AfterCommit => {
                (process.crash_at_commit, Tally::CrashAfterCommit, "after a commit")
            }
            Moment::BeforeUpkeep | Moment::AfterUpkeep => {
                (process.crash_at_upkeep, Tally::CrashAtUpkeep, "at a write of the machinery")
            }
        };
        if self.draws(odds) {
            self.die(how, words).await;
        }
        self.disk(moment)
    }

    /// What the disk makes of a write.
    fn disk(&self, moment: Moment) -> Result<(), StoreError> {
        let stage = &self.host.stage;
        let (full, unknown) = {
            let disk = &mut self.state().disk;
            (disk.hit(stage.process.disk_full), disk.hit(stage.process.write_unknown))
        };
        if stage.is_calm() || !(full || unknown) {
            return Ok(());
        }
        let before = matches!(moment, Moment::BeforeCommit | Moment::BeforeUpkeep);
        let (tally, written, words) = match (before, full) {
            (true, true) => (Tally::DiskFull, Written::No, "is full"),
            (true, false) => (Tally::WriteUnknownAndLost, Written::Unknown, "failed, nothing kept"),
            // What is kept cannot be refused any more.
            (false, _) if !unknown => return Ok(()),
            (false, _) => (Tally::WriteUnknownAndKept, Written::Unknown, "failed, all was kept"),
        };
        stage.log.count(tally);
        let text = format!("node {}: {DISK} {words}", self.node);
        stage.log.note(self.host.clock.now(), &text);
        Err(StoreError::Unavailable { detail: DISK.to_owned(), written })
    }

    /// While its way to the database stalls, everybody on a node waits; afterwards the order in
    /// which they go on is chance. Calls to others are not held up.
    async fn wait_for_database(&self, moment: Moment) {
        let (node, clock) = (self.node, self.host.clock);
        let stage = &self.host.stage;
        if moment == Moment::BeforeCommit && self.draws(stage.process.stall) {
            let span = {
                let faults = &mut self.state().faults;
                let (low, high) = *faults.pick(&stage.process.stalls);
                faults.millis(low, high)
            };
            let now = clock.now();
            stage.log.count(Tally::Stall);
            let text = format!("node {node} cannot reach its database for {} ms", span.as_millis());
            stage.log.note(now, &text);
            let until = &mut self.state().stalled_until[node];
            *until = (*until).max(now.plus(span));
        }
        loop {
            let wait = self.state().stalled_until[node].since(clock.now());
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

    /// A commit was made or refused.
    fn ended(&self, changes: &Changes, result: Result<(), &CommitError>) {
        let stage = &self.host.stage;
        match result {
            Ok(()) => lock(&stage.coverage).observe(changes),
            // A worker comes back from a stall and writes what it has done: somebody else has it.
            Err(CommitError::Stale(_)) if changes.writes().iter().any(is_own_settlement) => {
                stage.log.count(Tally::ZombieRefused);
            }
            Err(_) => {}
        }
    }
}

/// The end of an attempt, written by the one who made it.
fn is_own_settlement(write: &Write) -> bool {
    matches!(write, Write::Settle(settle) if settle.unheard_since.is_none())
}

impl Gate for Door {
    fn pass(&self, moment: Moment) -> Passing<'_> {
        Box::pin(self.0.pass_through(moment))
    }

    fn time(&self) -> Option<Timestamp> {
        Some(self.0.host.clock.now())
    }

    fn ended(&self, changes: &Changes, result: Result<(), &CommitError>) {
        self.0.ended(changes, result);
    }
}
