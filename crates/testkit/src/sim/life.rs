//! One life of the process: from its start to its death, its stop, or the end of the run.
//!
//! Where a second process works on the same database (a node that only sends), the two live and die
//! together, but each has its own connection, and its own troubles with it.
//!
//! A runtime of its own, with paused time that jumps to the next timer when everybody waits; the real
//! engine, the real commands, the real store on a real file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tashika_domain::Lane;
use tashika_domain::order::{KIND, OrderRules};
use tashika_engine::commands::Limits;
use tashika_engine::commands::order::Orders;
use tashika_engine::commands::outbox::Outbox;
use tashika_engine::{Clock, Engine, Ids, OrderHandler, Running, Settings};
use tashika_providers::broker::Broker;
use tashika_store::Store;

use super::book::Todo;
use super::dice::Stream;
use super::fate::{Door, Fate};
use super::line::Line;
use super::log::Violation;
use super::planted::{NeverAsks, Planted};
use super::scene::Scene;
use super::{clients, person};

/// How long the ledger remembers: longer than any run.
const REMEMBER: Duration = Duration::from_secs(7 * 24 * 3600);
/// A stop waits for running attempts for so long.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// When nothing goes wrong any more, everything must be settled within this time: more than all
/// backoffs of an effect, a lease and the longest work of the broker together.
const QUIET_WITHIN: Duration = Duration::from_secs(1800);
/// Everything is checked every so many steps, and a few orders in between.
const CHECK_EVERY: u64 = 25;
const CHECK_SOME: usize = 4;

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

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    pub orders: Orders,
    pub outbox: Outbox,
}

/// Lives one life on `file`. If it ends in death, the files are copied to `next` as they lie.
pub(crate) fn live(scene: &Arc<Scene>, life: u32, file: &Path, next: &Path) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("no runtime for the simulated process")?;
    // The store is kept open until its files have been copied: closing it would tidy them up.
    let (end, now, process) = runtime.block_on(async {
        let clock = Clock::simulated(scene.now());
        let fate = Fate::new(Arc::clone(scene), clock, life);
        let (process, nodes) = start(scene, clock, &fate, file, life)?;
        scene.log.note(clock.now(), &format!("life {life} begins"));
        let end = tokio::select! {
            biased;
            () = fate.died() => End::Died,
            end = process.run(nodes, life) => end,
        };
        // Read here: outside of the runtime the clock shows real time.
        anyhow::Ok((end, clock.now(), process))
    })?;
    if end == End::Died {
        copy_as_it_lies(file, next)?;
    }
    // Tasks, connections and whatever they held go with the runtime.
    drop((process, runtime));
    scene.world().process_ended(now);
    let unheard = scene.book().process_ended(now);
    scene.log.mark(now, &format!("{end:?}, {unheard} unheard"));
    let mut dice = Stream::new(scene.seed, &format!("downtime/{life}"));
    let downtime = dice.millis(1, scene.swarm.process.downtime_max_ms);
    scene.next_life(if end == End::Over { now } else { now.plus(downtime) });
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

fn start(
    scene: &Arc<Scene>,
    clock: Clock,
    fate: &Arc<Fate>,
    file: &Path,
    life: u32,
) -> anyhow::Result<(Arc<Process>, Vec<Running>)> {
    let open = |node| {
        let door = Arc::new(Door { fate: Arc::clone(fate), node });
        Store::open_simulated(file, door).context("the database cannot be opened again")
    };
    let store = open(0)?;
    let mut nodes = vec![engine(scene, clock, fate, store.clone(), (life, 0)).start()];
    for node in 1..scene.swarm.process.nodes {
        nodes.push(engine(scene, clock, fate, open(node)?, (life, node)).start());
    }
    let rules = OrderRules {
        instruments: Some(["USDJPY", "EURUSD", "BTC-USD"].map(String::from).to_vec()),
        min_lot: 1.0,
        lot_step: 1.0,
    };
    let limits = &scene.swarm.clients;
    let limits = Limits::new(f64::from(limits.rate_per_min), 10, limits.daily_quota);
    let ids = Ids::seeded(clock, Stream::new(scene.seed, &format!("ids/{life}")).roll());
    let process = Process {
        scene: Arc::clone(scene),
        clock,
        fate: Arc::clone(fate),
        orders: Orders::new(store.clone(), clock, ids, rules, Arc::new(limits), REMEMBER),
        outbox: Outbox::new(store.clone(), clock),
        store,
    };
    Ok((Arc::new(process), nodes))
}

/// The real engine of a node, speaking to the broker of the world.
fn engine(
    scene: &Arc<Scene>,
    clock: Clock,
    fate: &Arc<Fate>,
    store: Store,
    (life, node): (u32, usize),
) -> Engine {
    let swarm = &scene.swarm;
    let pid = if swarm.process.same_name { 1 } else { life };
    let settings = Settings {
        worker: format!("sim{node}:{pid}"),
        poll: swarm.poll,
        capacity: swarm.capacity,
        prune_every: Duration::from_secs(600),
        ..Settings::default()
    };
    let ids = Stream::new(scene.seed, &format!("ids/{life}/{node}")).roll();
    let line = Line { scene: Arc::clone(scene), fate: Arc::clone(fate), clock };
    let broker: Arc<dyn Broker> = Planted::broker(scene.planted, Arc::new(line));
    let handler = OrderHandler::new(broker, REMEMBER);
    let engine = Engine::new(store, clock, Ids::seeded(clock, ids), settings)
        .lane(Lane::ORDERS, swarm.policy.clone());
    match scene.planted {
        Some(Planted::NeverAsks) => engine.effect(KIND, NeverAsks(handler)),
        _ => engine.effect(KIND, handler),
    }
}

/// Stops every node; returns whether everything in hand ended in time.
async fn stop(nodes: Vec<Running>, deadline: Duration) -> bool {
    let mut all = true;
    for node in nodes {
        all &= node.stop(deadline).await;
    }
    all
}

impl Process {
    /// Reports a broken promise.
    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        let violation = Violation { rule, key: key.to_owned(), detail: detail.to_owned() };
        self.scene.log.violate(self.clock.now(), violation);
    }

    async fn run(self: &Arc<Self>, nodes: Vec<Running>, life: u32) -> End {
        let scene = &self.scene;
        // What was recovered must be what was there.
        self.check_all(false).await;
        while let Some(step) = scene.take_step() {
            if scene.log.is_violated() {
                return End::Over;
            }
            let mut dice = Stream::new(scene.seed, &format!("step/{step}"));
            tokio::time::sleep(clients::think(&mut dice, scene.swarm.clients.think_max_ms)).await;
            while scene.book().waiting() >= scene.swarm.clients.waiting_max {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.step(&mut dice);
            if step % CHECK_EVERY == 0 {
                self.check_all(false).await;
            } else {
                self.check_some(step).await;
            }
            if dice.hit(scene.swarm.process.stop) {
                scene.log.count(super::Tally::GracefulStop);
                scene.log.note(self.clock.now(), &format!("life {life} is told to stop"));
                let all = stop(nodes, STOP_DEADLINE).await;
                scene.log.note(self.clock.now(), &format!("stopped, everything ended: {all}"));
                return End::Stopped;
            }
        }
        self.calm_down(nodes).await;
        End::Over
    }

    fn step(self: &Arc<Self>, dice: &mut Stream) {
        if let Some(todo) = self.todo() {
            clients::try_again(self, dice, &todo);
        }
        if dice.hit(self.scene.swarm.clients.person) {
            person::look(self, dice);
        }
        clients::act(self, dice);
    }

    fn todo(&self) -> Option<Todo> {
        self.scene.book().take_todo(self.clock.now())
    }

    /// Faults off: everything must come to rest, and then be right.
    async fn calm_down(self: &Arc<Self>, nodes: Vec<Running>) {
        let scene = &self.scene;
        scene.world().calm_down();
        scene.log.note(self.clock.now(), "from here on nothing goes wrong");
        let mut dice = Stream::new(scene.seed, "calm");
        let deadline = self.clock.now().plus(QUIET_WITHIN);
        loop {
            // First, because somebody may be about to begin something.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.is_quiet().await || scene.log.is_violated() {
                break;
            }
            if self.clock.now() > deadline {
                let within = QUIET_WITHIN.as_secs();
                let outstanding = scene.book().outstanding();
                let detail = format!("not at rest after {within} s; clients: {outstanding}");
                self.broken("every effect ends", "", &detail);
                self.check_all(true).await;
                break;
            }
            while let Some(todo) = self.todo() {
                clients::try_again(self, &mut dice, &todo);
            }
        }
        if scene.log.is_violated() {
            return;
        }
        // A database that was out of reach before may be so for a while yet.
        if !stop(nodes, QUIET_WITHIN).await {
            self.broken("every effect ends", "", "the engine does not stop");
        }
        // Whatever still travels arrives.
        scene.world().flush(tashika_domain::Timestamp::from_micros(i64::MAX), &scene.log);
        self.check_all(true).await;
        self.write_down().await;
    }

    async fn is_quiet(&self) -> bool {
        if !self.scene.book().is_quiet() {
            return false;
        }
        match self.store.effect_counts().await {
            Ok(counts) => counts.iter().all(|count| count.status.is_settled()),
            Err(error) => {
                self.broken("the store answers", "", &error.to_string());
                true
            }
        }
    }

    /// A few of the orders that are not settled, others at every step.
    async fn check_some(&self, step: u64) {
        let keys: Vec<String> = {
            let memory = self.scene.memory();
            let keys = self.scene.book().keys();
            keys.into_iter().filter(|key| !memory.is_settled(key)).collect()
        };
        let start = usize::try_from(step).unwrap_or(0) * CHECK_SOME;
        let chosen =
            (0..CHECK_SOME.min(keys.len())).map(|n| keys[(start + n) % keys.len()].clone());
        self.check(chosen.collect(), false).await;
    }
}
