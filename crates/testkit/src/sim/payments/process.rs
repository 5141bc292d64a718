//! A process of Tashika that takes payments, and everybody who talks to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tashika_domain::payment::{EXPIRY_KIND, KIND};
use tashika_domain::reservation::ReservationRules;
use tashika_domain::{Lane, LanePolicy, Status, Timestamp, webhook};
use tashika_engine::commands::billing::Billings;
use tashika_engine::commands::payment::Payments;
use tashika_engine::commands::webhook::Webhooks;
use tashika_engine::{
    Clock, Engine, ExpiryHandler, PaymentHandler, RECONCILE_KIND, ReconcileHandler, Running, Till,
    WebhookHandler,
};
use tashika_providers::gateway::Gateway;
use tashika_store::{EffectFilter, Store};

use super::Scene;
use super::dice::Stream;
use super::fate::Fate;
use super::life::{Birth, Cast, End, Play};
use super::line::Line;
use super::planted;
use super::stage::Stage;
use super::swarm;
use super::{Planted, clients, office, person, postman};

/// More than an hour in the network, all questions of a doubt, and a lease.
const QUIET_WITHIN: Duration = Duration::from_secs(4 * 3600);
/// After this every authorization has expired.
const A_LONG_WHILE: Duration = Duration::from_secs(8 * 24 * 3600);
/// A restart costs about as much as a process that lives for so long with nothing to do.
const WORTH_WAITING: Duration = Duration::from_secs(15);
/// More effects than wait when a run comes to rest.
const WAITING_MAX: i64 = 10_000;
/// Payments that are looked at after a step, and after a recovery.
const CHECK_SOME: usize = 4;
const CHECK_MANY: usize = 40;

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    pub till: Arc<Till>,
    pub payments: Payments,
    pub webhooks: Webhooks,
    pub billings: Billings,
    /// Where the database lies.
    pub file: PathBuf,
}

impl Play for Scene {
    type Cast = Arc<Process>;

    fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)> {
        let store = birth.open(0)?;
        let till = till(self, birth, store.clone(), ReservationRules::default());
        let node = engine(self, birth, &till).start();
        let engine = Arc::clone(node.engine());
        Ok((Process::of(self, birth, engine, till, store)?, vec![node]))
    }

    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let store = birth.open(birth.fate.node)?;
        let till = till(self, birth, store, ReservationRules::default());
        Ok(Some(engine(self, birth, &till).start()))
    }

    fn ended(&self, now: Timestamp) -> usize {
        self.world().process_ended(now);
        self.book().process_ended(now)
    }

    fn world(&self) -> String {
        let nature = self.swarm.nature;
        let word = |is: bool, word: &'static str| if is { word } else { "" };
        format!(
            "{} nodes, the gateway {}{}{}{}",
            self.swarm.process.nodes,
            if nature.two_step { "gives ids" } else { "is asked by ours" },
            word(nature.fence_cancels, ", its fence cancels"),
            word(!nature.caps_refunds, ", it counts no refunds"),
            word(nature.liar, ", it lies"),
        )
    }
}

/// What payments need, speaking to the gateway of the world.
pub(crate) fn till(
    scene: &Arc<Scene>,
    birth: &Birth<'_>,
    store: Store,
    reservations: ReservationRules,
) -> Arc<Till> {
    let clock = birth.clock;
    let fate = Arc::clone(&birth.fate);
    let line = Line { scene: Arc::clone(scene), clock: fate.clock(), fate };
    let gateway: Arc<dyn Gateway> = planted::gateway(scene.planted, Arc::new(line));
    Arc::new(Till { store, clock, gateway, rules: scene.swarm.rules.clone(), reservations })
}

/// The real engine of a node, speaking to the gateway of the world.
fn engine(scene: &Arc<Scene>, birth: &Birth<'_>, till: &Arc<Till>) -> Engine {
    let (swarm, node) = (&scene.swarm, birth.fate.node);
    let policy = birth.policy(&swarm.policy);
    let settings = birth.settings(node, swarm.poll, swarm.capacity);
    let worker = settings.worker.clone();
    let timers = LanePolicy { lease: policy.lease, ..LanePolicy::default() };
    let ids = birth.ids(Some(node));
    let engine = Engine::new(till.store.clone(), birth.clock, ids, settings)
        .lane(Lane::PAYMENTS, policy)
        .lane(Lane::TIMERS, timers)
        .lane(Lane::WEBHOOKS, swarm.webhooks.clone())
        .effect(EXPIRY_KIND, ExpiryHandler::new(Arc::clone(till), &worker))
        .effect(
            RECONCILE_KIND,
            ReconcileHandler::new(Arc::clone(till), swarm.reconcile, swarm.rules.keep),
        );
    let webhooks = WebhookHandler::new(Arc::clone(till), vec![], &worker, &LanePolicy::default());
    let engine = engine.effect(webhook::KIND, webhooks);
    let handler = PaymentHandler::new(Arc::clone(till), &worker);
    match scene.planted {
        Some(Planted::IgnoresVersion) => {
            engine.effect(KIND, planted::IgnoresVersion::new(handler, Arc::clone(till)))
        }
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
        // Where nothing went wrong, nothing was recovered.
        if !self.scene.is_calm() {
            let hot = self.scene.memory().hot(0, CHECK_MANY);
            self.check_these(&hot).await;
            if let Err(error) = self.check_last_webhooks().await {
                self.broken("the store answers", "", &error.to_string());
            }
        }
        if let Err(error) = self.till.schedule_reconciliation(self.scene.swarm.reconcile).await {
            self.broken("the store answers", "", &error.to_string());
        }
        office::settle_in(self).await;
    }

    fn think(&self, dice: &mut Stream) -> Duration {
        clients::think(dice, self.scene.swarm.clients.think_max_ms)
    }

    fn is_crowded(&self) -> bool {
        self.scene.book().waiting() >= self.scene.swarm.clients.waiting_max
    }

    fn step(&self, dice: &mut Stream) {
        postman::deliver(self);
        self.tidy_up(dice);
        if dice.hit(self.scene.swarm.clients.person) {
            person::look(self, dice);
        }
        clients::act(self, dice);
        office::act(self);
    }

    async fn check(&self, step: u64) {
        let hot = self.scene.memory().hot(step, CHECK_SOME);
        self.check_these(&hot).await;
        self.check_happened().await;
    }

    fn calm_down(&self) {
        self.scene.world().calm_down();
    }

    fn tidy_up(&self, dice: &mut Stream) {
        postman::deliver(self);
        loop {
            let todo = self.scene.book().take_todo(self.clock.now());
            let Some(todo) = todo else { return };
            clients::try_again(self, dice, &todo);
        }
    }

    async fn is_quiet(&self) -> bool {
        self.check_happened().await;
        let silent = {
            let mut world = self.scene.world();
            world.flush(self.clock.now(), &self.scene.log);
            world.is_quiet() && world.post.is_empty()
        };
        if !silent || !self.scene.book().is_quiet() {
            return false;
        }
        let settled = match self.store.effect_counts().await {
            // Timers run for days, and the books are compared for ever.
            Ok(counts) => {
                counts.iter().all(|count| count.status.is_settled() || count.lane == Lane::TIMERS)
            }
            Err(error) => {
                self.broken("the store answers", "", &error.to_string());
                true
            }
        };
        settled && !self.replays_dead_letters().await
    }

    fn quiet_within(&self) -> Duration {
        QUIET_WITHIN
    }

    async fn idle_for(&self) -> Option<Duration> {
        if !self.scene.book().is_quiet() {
            return None;
        }
        let world = {
            let world = self.scene.world();
            if world.post.is_being_read() {
                return None;
            }
            world.next_event().into_iter().chain(world.post.next()).min()
        };
        let worth = |at: &Timestamp| at.since(self.clock.now()) > WORTH_WAITING;
        if !world.iter().all(worth) {
            return None;
        }
        let next = self.waiting_effects().await?.into_iter().chain(world).min()?;
        worth(&next).then(|| next.since(self.clock.now()))
    }

    async fn restless(&self) -> String {
        let counts = self.store.effect_counts().await;
        let clients = self.scene.book().outstanding();
        let world = self.scene.world();
        let (quiet, post) = (world.is_quiet(), world.post.is_empty());
        format!("clients: {clients}; gateway quiet: {quiet}, no post: {post}; {counts:?}")
    }

    async fn rest(&self) -> End {
        if self.scene.swarm.epilogue && !self.scene.memory().told_again() {
            self.scene.rest_for(A_LONG_WHILE);
            return End::Stopped;
        }
        self.check_all().await;
        End::Over
    }
}

impl Process {
    /// Those who take payments and webhooks in a process.
    pub fn of(
        scene: &Arc<Scene>,
        birth: &Birth<'_>,
        engine: Arc<Engine>,
        till: Arc<Till>,
        store: Store,
    ) -> anyhow::Result<Arc<Self>> {
        let (clock, ids) = (birth.clock, birth.ids(None));
        let sources = vec![postman::source()?];
        Ok(Arc::new(Self {
            scene: Arc::clone(scene),
            clock,
            fate: Arc::clone(&birth.fate),
            payments: Payments::new(engine, Arc::clone(&till), scene.swarm.answer_within),
            billings: Billings::new(store.clone(), clock, ids.clone()),
            webhooks: Webhooks::new(store.clone(), clock, ids, sources, swarm::REMEMBER),
            till,
            store,
            file: birth.file().to_owned(),
        }))
    }

    /// When waiting effects of payments and webhooks are due. `None` if one is being worked on.
    async fn waiting_effects(&self) -> Option<Vec<Timestamp>> {
        let mut due = Vec::new();
        for lane in [Lane::PAYMENTS, Lane::WEBHOOKS] {
            for status in [Status::Sending, Status::Pending, Status::Failed] {
                let (lane, wanted) = (Some(lane.clone()), Some(status));
                let filter = EffectFilter { lane, status: wanted, ..EffectFilter::default() };
                let found = self.store.effects(&filter, WAITING_MAX).await.ok()?;
                if status == Status::Sending && !found.is_empty() {
                    return None;
                }
                due.extend(found.iter().map(|effect| effect.next_run_at));
            }
        }
        Some(due)
    }

    /// In some worlds somebody looks after what failed; returns whether there was something.
    async fn replays_dead_letters(&self) -> bool {
        if !self.scene.swarm.post.operator || self.scene.memory().replayed() {
            return false;
        }
        match postman::replay(self).await {
            Ok(replayed) => replayed > 0,
            Err(error) => {
                self.broken("the store answers", "", &error.to_string());
                false
            }
        }
    }

    /// Checks the payments to which something has happened late, before anybody tells us.
    async fn check_happened(&self) {
        let happened = self.scene.world().take_happened(self.clock.now(), &self.scene.log);
        self.check_these(&happened).await;
    }

    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        self.scene.broken(self.clock.now(), rule, key, detail);
    }
}
