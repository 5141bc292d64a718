//! One life of the process: from its start to its death, its stop, or the end of the run.
//!
//! Where other processes work on the same database (nodes that only send), each has its own connection,
//! its own clock and its own troubles, and may die alone and come back. When the first one dies, the
//! host dies with it, and all of them.
//!
//! A runtime of its own, with paused time that jumps to the next timer when everybody waits; the real
//! engine, the real commands, the real store on a real file. What is played is a [`Play`]: orders,
//! payments, or messages.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tashika_domain::{LanePolicy, Timestamp};
use tashika_engine::{Clock, Ids, Running, Settings};
use tashika_store::Store;

use super::dice::Stream;
use super::fate::{Door, Fate};
use super::stage::{Stage, lock};
use super::tally::Tally;

/// A stop waits for running attempts for so long.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// A node that died alone is back after at most so long: before or after its leases have run out.
const RAISED_WITHIN_MS: u64 = 60_000;

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process died: its files stay as they lie.
    Died,
    /// It was told to stop, and stopped.
    Stopped,
    /// The run is over.
    Over,
}

/// A kind of run: what outlives the processes, and how a process of it is put together.
pub(crate) trait Play {
    type Cast: Cast;

    fn stage(&self) -> &Arc<Stage>;

    /// Puts a process together, and starts its first node.
    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)>;

    /// Starts a node that only sends, at the beginning or after it died alone. `None` if the play
    /// starts all nodes itself; then they die together.
    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let _: &Birth<'_> = birth;
        Ok(None)
    }

    /// A node has died alone.
    fn node_ended(&self, node: usize, now: Timestamp) {
        let _: (usize, Timestamp) = (node, now);
    }

    /// A process has ended; returns how many answers nobody heard.
    fn ended(&self, now: Timestamp) -> usize;

    /// The kind of world it is, for people.
    fn world(&self) -> String;
}

/// Everybody who acts while a process lives.
pub(crate) trait Cast {
    fn stage(&self) -> &Stage;
    fn clock(&self) -> Clock;

    /// What was recovered must be what was there.
    fn recovered(&self) -> impl Future<Output = ()>;

    /// How long everybody thinks before the next step.
    fn think(&self, dice: &mut Stream) -> Duration;

    /// Whether so many wait for an answer that nobody acts.
    fn is_crowded(&self) -> bool;

    fn step(&self, dice: &mut Stream);

    fn check(&self, step: u64) -> impl Future<Output = ()>;

    /// The faults are over for the world, too.
    fn calm_down(&self);

    /// What is left to do once nothing goes wrong.
    fn tidy_up(&self, dice: &mut Stream);

    fn is_quiet(&self) -> impl Future<Output = bool>;

    /// When nothing goes wrong any more, everything must be settled within this time.
    fn quiet_within(&self) -> Duration;

    /// Nothing will happen for so long: time may pass without a process.
    fn idle_for(&self) -> impl Future<Output = Option<Duration>>;

    /// It is not: what is outstanding.
    fn restless(&self) -> impl Future<Output = String>;

    /// Everything is at rest and the nodes have stopped: is it right? `Stopped` if there is more to
    /// come.
    fn rest(&self) -> impl Future<Output = End>;
}

/// What a process is born with.
pub(crate) struct Birth<'a> {
    pub life: u32,
    /// As the node sees it.
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub stage: &'a Stage,
    file: &'a Path,
    /// How often the node was started in this life before.
    raised: u32,
}

impl Birth<'_> {
    /// The database, as a node reaches it.
    pub fn open(&self, node: usize) -> anyhow::Result<Store> {
        let own = node == self.fate.node;
        let fate = if own { Arc::clone(&self.fate) } else { self.fate.beside(node) };
        let door = Arc::new(Door(fate));
        Store::open_simulated(self.file, door).context("the database cannot be opened again")
    }

    /// Where the database lies.
    pub const fn file(&self) -> &Path {
        self.file
    }

    /// The settings of a node's engine.
    pub fn settings(&self, node: usize, poll: Duration, capacity: usize) -> Settings {
        let pid = if self.stage.process.same_name { 1 } else { self.life + self.raised * 1000 };
        Settings {
            worker: format!("sim{node}:{pid}"),
            poll,
            capacity,
            prune_every: Duration::from_secs(600),
            ..Settings::default()
        }
    }

    /// Ids for a node, or for those who ask (`None`).
    pub fn ids(&self, node: Option<usize>) -> Ids {
        let Self { life, raised, .. } = self;
        let again = if *raised == 0 { String::new() } else { format!("/{raised}") };
        let whose = node.map_or(format!("ids/{life}"), |node| format!("ids/{life}/{node}{again}"));
        Ids::seeded(self.clock, Stream::new(self.stage.seed, &whose).roll())
    }
}

impl<'a> Birth<'a> {
    /// What a node that only sends is born with.
    fn of_sender(&self, node: usize, raised: u32) -> Birth<'a> {
        let Birth { life, stage, file, .. } = *self;
        let mut dice = Stream::new(stage.seed, &format!("node/{life}/{node}/{raised}"));
        let (skew_ms, drift_ppm) = stage.process.clock(&mut dice);
        let (now, skew) = (self.clock.now(), Duration::from_millis(skew_ms.unsigned_abs()));
        let shows = if skew_ms < 0 { now.minus(skew) } else { now.plus(skew) };
        let clock = Clock::drifting(shows, drift_ppm);
        Birth { life, clock, fate: self.fate.of(node), stage, file, raised }
    }

    /// A lane's policy, as this process has it: the settings may change with each start.
    pub fn policy(&self, policy: &LanePolicy) -> LanePolicy {
        let Birth { life, stage, .. } = self;
        let mut dice = Stream::new(stage.seed, &format!("upgrade/{life}"));
        if *life == 1 || !dice.hit(stage.process.upgrade) {
            return policy.clone();
        }
        let (concurrency, batch) = (*dice.pick(&[1, 3, 12]), *dice.pick(&[1, 8, 64]));
        let lease = Duration::from_secs(*dice.pick(&[24, 45, 150]));
        LanePolicy { concurrency, batch, lease, ..policy.clone() }
    }
}

/// The nodes that run, by their number.
#[derive(Default)]
struct Nodes {
    running: Mutex<BTreeMap<usize, Running>>,
    closed: std::sync::atomic::AtomicBool,
}

impl Nodes {
    /// Stops every node; returns whether everything in hand ended in time.
    async fn stop(&self, deadline: Duration) -> bool {
        self.closed.store(true, std::sync::atomic::Ordering::Relaxed);
        let nodes = std::mem::take(&mut *lock(&self.running));
        let mut all = true;
        for node in nodes.into_values() {
            all &= node.stop(deadline).await;
        }
        all
    }

    fn is_closed(&self) -> bool {
        self.closed.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Starts the nodes that only send.
fn start_senders<P: Play>(play: &Arc<P>, birth: &Birth<'_>, nodes: &Nodes) -> anyhow::Result<()> {
    for node in 1..birth.stage.process.nodes {
        let Some(running) = play.sender(&birth.of_sender(node, 0))? else { return Ok(()) };
        lock(&nodes.running).insert(node, running);
        birth.fate.raises_nodes();
    }
    Ok(())
}

/// Raises nodes that died alone, a while after their death. Ends only if one cannot be started.
async fn raise<P: Play>(play: &Arc<P>, birth: &Birth<'_>, nodes: &Nodes) -> anyhow::Error {
    let Birth { life, stage, clock, .. } = *birth;
    let mut raised = 0;
    let mut waiting = FuturesUnordered::new();
    loop {
        let node = tokio::select! {
            biased;
            node = birth.fate.fallen() => {
                raised += 1;
                play.node_ended(node, clock.now());
                let dead = lock(&nodes.running).remove(&node);
                if let Some(dead) = dead {
                    // Nothing of it does anything any more; its agents need not even look.
                    dead.stop(Duration::ZERO).await;
                }
                let mut dice = Stream::new(stage.seed, &format!("raise/{life}/{raised}"));
                let wait = dice.millis(1, RAISED_WITHIN_MS);
                waiting.push(async move {
                    tokio::time::sleep(wait).await;
                    node
                });
                continue;
            }
            Some(node) = waiting.next() => node,
        };
        if nodes.is_closed() {
            continue;
        }
        match play.sender(&birth.of_sender(node, raised)) {
            Ok(Some(running)) => {
                stage.log.note(clock.now(), &format!("node {node} starts again"));
                lock(&nodes.running).insert(node, running);
            }
            Ok(None) => {}
            Err(error) => return error,
        }
    }
}

/// Lives one life on `file`. If it ends in death, the files are copied to `next` as they lie.
pub(crate) fn live<P: Play>(
    play: &Arc<P>,
    life: u32,
    file: &Path,
    next: &Path,
) -> anyhow::Result<End> {
    let stage = play.stage();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("no runtime for the simulated process")?;
    // The store is kept open until its files have been copied: closing it would tidy them up.
    let (end, now, cast) = runtime.block_on(async {
        let clock = Clock::simulated(stage.now());
        let fate = Fate::new(Arc::clone(stage), clock, life);
        let birth = Birth { life, clock, fate: Arc::clone(&fate), stage, file, raised: 0 };
        let (cast, started) = play.start(&birth)?;
        let nodes = Nodes::default();
        // A play that starts all nodes itself has them in order; the others begin with the first.
        lock(&nodes.running).extend(started.into_iter().enumerate());
        start_senders(play, &birth, &nodes)?;
        let count = lock(&nodes.running).len();
        stage.log.note(clock.now(), &format!("life {life} begins, with {count} nodes"));
        let end = tokio::select! {
            biased;
            () = fate.died() => End::Died,
            error = raise(play, &birth, &nodes) => return Err(error),
            end = run(&cast, &nodes, life) => end,
        };
        // Read here: outside of the runtime the clock shows real time.
        anyhow::Ok((end, clock.now(), cast))
    })?;
    if end == End::Died {
        copy_as_it_lies(file, next)?;
    }
    // Tasks, connections and whatever they held go with the runtime.
    drop((cast, runtime));
    let unheard = play.ended(now);
    stage.log.mark(now, &format!("{end:?}, {unheard} unheard"));
    let mut dice = Stream::new(stage.seed, &format!("downtime/{life}"));
    let downtime = dice.millis(1, stage.process.downtime_max_ms);
    let downtime = stage.take_pause().unwrap_or(downtime);
    stage.next_life(if end == End::Over { now } else { now.plus(downtime) });
    Ok(end)
}

/// The database and its log, without the shared memory: the log will be recovered from.
fn copy_as_it_lies(file: &Path, next: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-wal"] {
        let with_suffix = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            std::path::PathBuf::from(name)
        };
        let (from, to) = (with_suffix(file), with_suffix(next));
        if from.exists() {
            std::fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        }
    }
    Ok(())
}

async fn run(cast: &impl Cast, nodes: &Nodes, life: u32) -> End {
    let (stage, clock) = (cast.stage(), cast.clock());
    cast.recovered().await;
    while let Some(step) = stage.take_step() {
        if stage.log.is_violated() {
            return End::Over;
        }
        let mut dice = Stream::new(stage.seed, &format!("step/{step}"));
        tokio::time::sleep(cast.think(&mut dice)).await;
        while cast.is_crowded() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if stage.skips(step) {
            continue;
        }
        cast.step(&mut dice);
        cast.check(step).await;
        if dice.hit(stage.process.stop) && life < stage.process.lives_max {
            stage.log.count(Tally::GracefulStop);
            stage.log.note(clock.now(), &format!("life {life} is told to stop"));
            let all = nodes.stop(STOP_DEADLINE).await;
            stage.log.note(clock.now(), &format!("stopped, everything ended: {all}"));
            return End::Stopped;
        }
    }
    come_to_rest(cast, nodes).await
}

/// Faults off: everything must come to rest, and then be right.
async fn come_to_rest(cast: &impl Cast, nodes: &Nodes) -> End {
    let (stage, clock) = (cast.stage(), cast.clock());
    let since = stage.calm_down(clock.now());
    cast.calm_down();
    stage.log.note(clock.now(), "from here on nothing goes wrong");
    let mut dice = Stream::new(stage.seed, "calm");
    let deadline = since.plus(cast.quiet_within());
    loop {
        // First, because somebody may be about to begin something.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if cast.is_quiet().await || stage.log.is_violated() {
            break;
        }
        if clock.now() > deadline {
            let within = cast.quiet_within().as_secs();
            let detail = format!("not at rest after {within} s; {}", cast.restless().await);
            stage.broken(clock.now(), "every effect ends", "", &detail);
            break;
        }
        if let Some(span) = cast.idle_for().await {
            nodes.stop(STOP_DEADLINE).await;
            stage.pause_for(span);
            return End::Stopped;
        }
        cast.tidy_up(&mut dice);
    }
    if stage.log.is_violated() {
        return End::Over;
    }
    // A database that was out of reach before may be so for a while yet.
    if !nodes.stop(cast.quiet_within()).await {
        stage.broken(clock.now(), "every effect ends", "", "the engine does not stop");
    }
    // Whoever was about to leave may have begun something: the books are compared at any moment.
    if !cast.is_quiet().await {
        return End::Stopped;
    }
    cast.rest().await
}
