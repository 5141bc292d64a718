//! A process of Tashika that delivers messages, and everybody who talks to it.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::message::{KIND, PARKED, State, schedule};
use tashika_domain::{Lane, LanePolicy, Status, Timestamp};
use tashika_engine::commands::message::{Messages, QueueRules};
use tashika_engine::{
    Carrier, Clock, Engine, Gates, Hand, Ids, KeyRing, MessageHandler, Recent, Running,
    ScheduleHandler, Traffic,
};
use tashika_providers::guard::Guard;
use tashika_store::{EffectFilter, MessageFilter, Store, StoreError};

use super::Scene;
use super::dice::Stream;
use super::fate::Fate;
use super::life::{Birth, Cast, End, Play};
use super::line::Line;
use super::stage::Stage;
use super::{clients, gates, person, planted};

/// More than all waits of a message, all turns in a queue, and a lease.
const QUIET_WITHIN: Duration = Duration::from_secs(2 * 3600);
/// Longer than any run.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// A restart costs about as much as a process that lives for so long with nothing to do.
const WORTH_WAITING: Duration = Duration::from_secs(15);
/// More than wait when a run comes to rest.
const WAITING_MAX: i64 = 10_000;
/// Messages that are looked at after a step, and after a recovery.
const CHECK_SOME: usize = 4;
const CHECK_MANY: usize = 200;

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    pub ids: Ids,
    pub messages: Arc<Messages>,
    /// The same as another node knows it, if there is one: for all but publishing. The order of
    /// messages that are given to different nodes is the order of their clocks, which here have
    /// milliseconds.
    pub elsewhere: Arc<Messages>,
}

/// What the parts of one node share.
struct Node {
    store: Store,
    messages: Arc<Messages>,
    gates: Arc<Gates>,
    recent: Arc<Recent>,
    hand: Arc<Hand>,
    traffic: Arc<Traffic>,
}

impl Play for Scene {
    type Cast = Arc<Process>;

    fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)> {
        let first = node(self, birth, 0)?;
        let nodes = vec![engine(self, birth, &first).start()];
        planted::interfere(self, birth, &first.store, 0);
        let Node { store, messages, .. } = first;
        let elsewhere = match self.process.nodes {
            1 => Arc::clone(&messages),
            // A connection of its own, with the troubles of the last node's.
            nodes => node(self, birth, nodes - 1)?.messages,
        };
        let process = Process {
            scene: Arc::clone(self),
            clock: birth.clock,
            fate: Arc::clone(&birth.fate),
            ids: birth.ids(Some(usize::MAX)),
            store,
            messages,
            elsewhere,
        };
        Ok((Arc::new(process), nodes))
    }

    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let node = node(self, birth, birth.fate.node)?;
        Ok(Some(engine(self, birth, &node).start()))
    }

    fn ended(&self, now: Timestamp) -> usize {
        self.world().process_ended(now);
        self.book().process_ended()
    }

    fn world(&self) -> String {
        let swarm = &self.swarm;
        format!(
            "{} nodes, {} at a time, leases of {} s, attempts of up to {} s",
            swarm.process.nodes,
            swarm.policy.concurrency,
            swarm.policy.lease.as_secs(),
            swarm.timeout.as_secs(),
        )
    }
}

fn node(scene: &Arc<Scene>, birth: &Birth<'_>, number: usize) -> anyhow::Result<Node> {
    let store = birth.open(number)?;
    let (gates, recent) = (Arc::<Gates>::default(), Arc::<Recent>::default());
    // Set, because new ones would come from the operating system's randomness.
    let keys = KeyRing::new(store.clone(), Some(("sig_current".into(), "sig_next".into())));
    let rules =
        QueueRules { dedup_window: scene.swarm.dedup_window, keep: KEEP, guard: Guard::off() };
    let ids = if number == 0 { birth.ids(None) } else { birth.ids(Some(number + 100)) };
    let messages = Messages::new(
        store.clone(),
        birth.clock,
        ids,
        Arc::clone(&gates),
        Arc::clone(&recent),
        Arc::new(keys),
        rules,
    );
    let hand = Arc::<Hand>::default();
    let traffic = Arc::new(Traffic::new(scene.swarm.destination_concurrency));
    let messages = messages.handing_to(Arc::clone(&hand)).minding(Arc::clone(&traffic));
    Ok(Node { store, messages: Arc::new(messages), gates, recent, hand, traffic })
}

/// The real engine of a node, speaking to the consumers of the world.
fn engine(scene: &Arc<Scene>, birth: &Birth<'_>, node: &Node) -> Engine {
    let (swarm, clock, number) = (&scene.swarm, birth.clock, birth.fate.node);
    let policy = birth.policy(&swarm.policy);
    let settings = birth.settings(number, swarm.poll, swarm.capacity);
    let (ids, store) = (birth.ids(Some(number)), node.store.clone());
    let line = Line {
        scene: Arc::clone(scene),
        fate: Arc::clone(&birth.fate),
        clock: birth.fate.clock(),
        store: store.clone(),
    };
    let courier: Arc<dyn Carrier> = planted::carrier(scene.planted, Arc::new(line));
    let handler = MessageHandler {
        store: store.clone(),
        ids: ids.clone(),
        workers: Arc::clone(&courier),
        courier,
        keys: Arc::clone(&node.messages.keys),
        traffic: Arc::clone(&node.traffic),
        gates: Arc::clone(&node.gates),
        recent: Arc::clone(&node.recent),
        keep: KEEP,
        reopen: swarm.reopen,
    };
    let timers = LanePolicy { lease: policy.lease, ..LanePolicy::default() };
    let engine = Engine::new(store, clock, ids, settings)
        .lane(Lane::DELIVERIES, policy)
        .lane(Lane::TIMERS, timers)
        .effect(schedule::KIND, ScheduleHandler(Arc::clone(&node.messages)))
        .gates(Arc::clone(&node.gates))
        .hand(Arc::clone(&node.hand));
    match scene.planted {
        Some(mistake) if planted::is_of_handler(mistake) => {
            engine.effect(KIND, planted::BadHandler { handler, mistake })
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
        let hot = self.scene.memory().hot(0, CHECK_MANY);
        self.check_these(&hot).await;
        while let Err(error) = gates::set_up(self).await {
            self.broken("answers as agreed", "", &error.to_string());
            if self.scene.log.is_violated() {
                return;
            }
            // The disk: whoever is told so asks again.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn think(&self, dice: &mut Stream) -> Duration {
        clients::think(dice, self.scene.swarm.clients.think_max_ms)
    }

    fn is_crowded(&self) -> bool {
        self.scene.book().waiting() >= self.scene.swarm.clients.waiting_max
    }

    fn step(&self, dice: &mut Stream) {
        self.try_again(dice);
        if dice.hit(self.scene.swarm.clients.person) {
            person::look(self, dice);
        }
        clients::act(self, dice);
    }

    async fn check(&self, step: u64) {
        let hot = self.scene.memory().hot(step, CHECK_SOME);
        self.check_these(&hot).await;
    }

    fn calm_down(&self) {
        self.scene.world().calm_down();
        let process = Self::clone(self);
        self.scene.book().act(true);
        tokio::spawn(async move {
            gates::end_schedules(&process).await;
            process.scene.book().act(false);
        });
    }

    fn tidy_up(&self, dice: &mut Stream) {
        self.try_again(dice);
    }

    async fn is_quiet(&self) -> bool {
        if let Err(error) = gates::open_all(self).await {
            self.broken("the store answers", "", &error.to_string());
        }
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
        if !self.scene.book().is_quiet() {
            return None;
        }
        let now = self.clock.now();
        let next = self.waiting().await.ok()??.into_iter().min()?;
        let wait = next.since(now);
        (wait > WORTH_WAITING).then_some(wait)
    }

    async fn restless(&self) -> String {
        let counts = self.store.message_counts().await;
        let effects = self.store.effect_counts().await;
        let waiting = MessageFilter {
            states: vec![State::Queued, State::Throttled, State::Ready],
            ..MessageFilter::default()
        };
        let first = self.store.messages(&waiting, 1).await;
        let clients = self.scene.book().outstanding();
        format!("clients: {clients}; {counts:?}; {effects:?}; {first:?}")
    }

    async fn rest(&self) -> End {
        self.check_all().await;
        End::Over
    }
}

impl Process {
    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        self.scene.broken(self.clock.now(), rule, key, detail);
    }

    fn try_again(self: &Arc<Self>, dice: &mut Stream) {
        loop {
            let todo = self.scene.book().take_todo();
            let Some(todo) = todo else { return };
            clients::try_again(self, dice, todo);
        }
    }

    /// When everything that waits is due. `None` if something is being worked on.
    async fn waiting(&self) -> Result<Option<Vec<Timestamp>>, StoreError> {
        let mut due = Vec::new();
        for status in [Status::Sending, Status::Pending, Status::Failed] {
            let filter = EffectFilter { status: Some(status), ..EffectFilter::default() };
            let found = self.store.effects(&filter, WAITING_MAX).await?;
            if status == Status::Sending && !found.is_empty() {
                return Ok(None);
            }
            due.extend(found.iter().map(|effect| effect.next_run_at).filter(|at| *at != PARKED));
        }
        let parked = MessageFilter {
            states: vec![State::Queued, State::Throttled],
            ..MessageFilter::default()
        };
        due.extend(self.store.messages(&parked, WAITING_MAX).await?.iter().map(|m| m.due_at));
        Ok(Some(due))
    }
}
