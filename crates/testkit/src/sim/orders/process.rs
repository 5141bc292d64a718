//! A process of Tashika that takes orders, and everybody who talks to it.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::order::{KIND, OrderRules};
use tashika_domain::{Lane, Timestamp};
use tashika_engine::commands::Limits;
use tashika_engine::commands::order::Orders;
use tashika_engine::commands::outbox::Outbox;
use tashika_engine::{Clock, Engine, OrderHandler, Running};
use tashika_providers::broker::Broker;
use tashika_store::Store;

use super::Scene;
use super::dice::Stream;
use super::fate::Fate;
use super::life::{Birth, Cast, End, Play};
use super::line::Line;
use super::planted::NeverAsks;
use super::stage::Stage;
use super::{Planted, clients, person};

/// How long the ledger remembers: longer than any run.
const REMEMBER: Duration = Duration::from_secs(7 * 24 * 3600);
/// More than all backoffs of an effect, a lease and the longest work of the broker together.
const QUIET_WITHIN: Duration = Duration::from_secs(1800);
/// Everything is checked every so many steps, and a few orders in between.
const CHECK_EVERY: u64 = 25;
const CHECK_SOME: usize = 4;

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    pub orders: Orders,
    pub outbox: Outbox,
}

impl Play for Scene {
    type Cast = Arc<Process>;

    fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)> {
        let store = birth.open(0)?;
        let nodes = vec![engine(self, birth, store.clone()).start()];
        let rules = OrderRules {
            instruments: Some(["USDJPY", "EURUSD", "BTC-USD"].map(String::from).to_vec()),
            min_lot: 1.0,
            lot_step: 1.0,
        };
        let limits = &self.swarm.clients;
        let limits = Limits::new(f64::from(limits.rate_per_min), 10, limits.daily_quota);
        let (clock, ids) = (birth.clock, birth.ids(None));
        let process = Process {
            scene: Arc::clone(self),
            clock,
            fate: Arc::clone(&birth.fate),
            orders: Orders::new(store.clone(), clock, ids, rules, Arc::new(limits), REMEMBER),
            outbox: Outbox::new(store.clone(), clock),
            store,
        };
        Ok((Arc::new(process), nodes))
    }

    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let store = birth.open(birth.fate.node)?;
        Ok(Some(engine(self, birth, store).start()))
    }

    fn node_ended(&self, node: usize, now: Timestamp) {
        self.world().node_ended(node, now);
    }

    fn ended(&self, now: Timestamp) -> usize {
        self.world().process_ended(now);
        self.book().process_ended(now)
    }

    fn world(&self) -> String {
        let swarm = &self.swarm;
        let keys = if swarm.honours_keys { "honours keys" } else { "takes no keys" };
        let lag = swarm
            .status_lag
            .map_or(String::new(), |lag| format!(", its status lags by {} ms", lag.as_millis()));
        format!("{} nodes, the broker {keys}{lag}", swarm.process.nodes)
    }
}

/// The real engine of a node, speaking to the broker of the world.
fn engine(scene: &Arc<Scene>, birth: &Birth<'_>, store: Store) -> Engine {
    let (swarm, clock, node) = (&scene.swarm, birth.clock, birth.fate.node);
    let settings = birth.settings(node, swarm.poll, swarm.capacity);
    let fate = Arc::clone(&birth.fate);
    let line = Line { scene: Arc::clone(scene), clock: fate.clock(), fate };
    let broker: Arc<dyn Broker> = Planted::broker(scene.planted, Arc::new(line));
    let handler = OrderHandler::new(broker, REMEMBER);
    let engine = Engine::new(store, clock, birth.ids(Some(node)), settings)
        .lane(Lane::ORDERS, birth.policy(&swarm.policy));
    match scene.planted {
        Some(Planted::NeverAsks) => engine.effect(KIND, NeverAsks(handler)),
        _ => engine.effect(KIND, handler),
    }
}

impl Cast for Arc<Process> {
    fn stage(&self) -> &Stage {
        &self.scene
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    async fn recovered(&self) {
        self.check_all(false).await;
    }

    fn think(&self, dice: &mut Stream) -> Duration {
        clients::think(dice, self.scene.swarm.clients.think_max_ms)
    }

    fn is_crowded(&self) -> bool {
        self.scene.book().waiting() >= self.scene.swarm.clients.waiting_max
    }

    fn step(&self, dice: &mut Stream) {
        let todo = self.scene.book().take_todo(self.clock.now());
        if let Some(todo) = todo {
            clients::try_again(self, dice, &todo);
        }
        if dice.hit(self.scene.swarm.clients.person) {
            person::look(self, dice);
        }
        clients::act(self, dice);
    }

    async fn check(&self, step: u64) {
        if step.is_multiple_of(CHECK_EVERY) {
            self.check_all(false).await;
        } else {
            self.check_some(step).await;
        }
    }

    fn calm_down(&self) {
        self.scene.world().calm_down();
    }

    fn tidy_up(&self, dice: &mut Stream) {
        loop {
            let todo = self.scene.book().take_todo(self.clock.now());
            let Some(todo) = todo else { return };
            clients::try_again(self, dice, &todo);
        }
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

    fn quiet_within(&self) -> Duration {
        QUIET_WITHIN
    }

    async fn idle_for(&self) -> Option<Duration> {
        None
    }

    async fn restless(&self) -> String {
        self.check_all(true).await;
        format!("clients: {}", self.scene.book().outstanding())
    }

    async fn rest(&self) -> End {
        // Whatever still travels arrives.
        self.scene.world().flush(Timestamp::from_micros(i64::MAX), &self.scene.log);
        self.check_all(true).await;
        self.write_down().await;
        End::Over
    }
}

impl Process {
    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        self.scene.broken(self.clock.now(), rule, key, detail);
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
