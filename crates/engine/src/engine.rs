//! The engine: what is shared by the agents, and their start and stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::alert::notify::Channels;
use tashika_domain::alert::rules::{Rule, defaults};
use tashika_domain::changes::Lease;
use tashika_domain::effect::{Effect, EffectId};
use tashika_domain::ledger::Clearance;
use tashika_domain::{Lane, LanePolicy, Timestamp};
use tashika_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::clock::{Clock, Ids};
use crate::dispatcher::Dispatcher;
use crate::gatekeeper::{Gatekeeper, Gates};
use crate::hand::Hand;
use crate::handler::Handler;
use crate::meter::Meter;
use crate::pruner::Pruner;
use crate::pulse::Pulse;
use crate::renewer::Renewer;
use crate::rescuer::Rescuer;
use crate::sealer::Sealer;
use crate::valve::Valve;
use crate::watchman::Watchman;
use crate::worker;

/// Intervals and limits of the engine itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names this process in `locked_by`: `hostname:pid:…`.
    pub worker: String,
    /// How long an idle dispatcher waits before it looks by itself (`OUTBOX_POLL_INTERVAL_SEC`).
    pub poll: Duration,
    /// Effects of all lanes together that may run at once; 0 is no limit beyond the lanes' own.
    pub capacity: usize,
    /// Between two prunings.
    pub prune_every: Duration,
    /// Between two sealings of audit lines.
    pub seal_every: Duration,
    /// How long audit lines are kept; `None` is for ever.
    pub keep_audit: Option<Duration>,
    /// How long webhooks are kept that ended well.
    pub keep_webhooks: Duration,
    /// How long messages and their log are kept, once they have ended.
    pub keep_messages: Duration,
    pub alerts: AlertSettings,
    /// How long mails are kept, once they have ended.
    pub keep_mails: Duration,
    /// How long renders are kept, once they have ended.
    pub keep_renders: Duration,
    /// What may be sent in 24 hours, for the gauge; 0 is no limit.
    pub mail_quota: i64,
    /// Joins a span to the trace that an effect came from.
    pub join_trace: fn(&tracing::Span, &str),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            worker: "localhost:0".into(),
            poll: Duration::from_millis(500),
            capacity: 0,
            prune_every: Duration::from_secs(3600),
            seal_every: Duration::from_secs(5),
            keep_audit: None,
            keep_webhooks: Duration::from_secs(90 * 24 * 3600),
            keep_messages: Duration::from_secs(7 * 24 * 3600),
            alerts: AlertSettings::default(),
            keep_mails: Duration::from_secs(90 * 24 * 3600),
            keep_renders: Duration::from_secs(365 * 24 * 3600),
            mail_quota: 0,
            join_trace: |_, _| {},
        }
    }
}

/// What is watched, how often, and who is told.
#[derive(Clone, Debug)]
pub struct AlertSettings {
    pub rules: Vec<Rule>,
    pub channels: Channels,
    /// Between two looks.
    pub every: Duration,
    /// How long alerts are kept that are over.
    pub keep: Duration,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            rules: defaults(),
            channels: Channels::default(),
            every: Duration::from_secs(10),
            keep: Duration::from_secs(90 * 24 * 3600),
        }
    }
}

/// The engine of one process.
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) settings: Settings,
    pub(crate) lanes: BTreeMap<Lane, LanePolicy>,
    /// For effects of a lane that this process does not work on.
    fallback: LanePolicy,
    pub(crate) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(crate) held: Held,
    /// What the workers of this process did lately.
    pub(crate) pulse: Pulse,
    /// Where messages wait, if this process has anything to do with messages.
    gates: Option<Arc<Gates>>,
    /// Where effects are born in our hands, to be started by the dispatcher.
    pub(crate) hand: Option<Arc<Hand>>,
    /// What this process has counted.
    pub(crate) meter: Arc<Meter>,
    /// Lanes that may be closed for a while.
    pub(crate) valves: BTreeMap<Lane, Arc<Valve>>,
    /// Effects that were born in the hands of this process and are performed for a caller.
    callers: TaskTracker,
    claims: bool,
}

impl Engine {
    #[must_use]
    pub fn new(store: Store, clock: Clock, ids: Ids, settings: Settings) -> Self {
        Self {
            store,
            clock,
            ids,
            settings,
            lanes: BTreeMap::new(),
            fallback: LanePolicy::default(),
            handlers: BTreeMap::new(),
            held: Held::default(),
            pulse: Pulse::default(),
            gates: None,
            hand: None,
            meter: Arc::default(),
            valves: BTreeMap::new(),
            callers: TaskTracker::new(),
            claims: true,
        }
    }

    /// Performs only what its own callers begin, and leaves everything else to other processes.
    #[must_use]
    pub fn without_claims(mut self) -> Self {
        self.claims = false;
        self
    }

    /// Names this process where it holds effects.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.settings.worker
    }

    /// What the workers of this process did lately.
    #[must_use]
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Performs an effect that was committed in our hands. Goes on if the caller goes away: what has
    /// begun must be written down.
    pub fn perform(self: &Arc<Self>, effect: Effect) -> tokio::task::JoinHandle<()> {
        let length = self.policy(&effect.lane).lease;
        self.held.add(std::slice::from_ref(&effect), effect.created_at, length);
        let work = worker::perform(Arc::clone(self), effect, Some(Clearance::Send));
        self.callers.spawn(work.in_current_span())
    }

    /// Works on a lane, under a policy. A process claims only from lanes named here.
    #[must_use]
    pub fn lane(mut self, lane: Lane, policy: LanePolicy) -> Self {
        self.lanes.insert(lane, policy);
        self
    }

    /// Performs effects of a kind.
    #[must_use]
    pub fn effect(mut self, kind: &str, handler: impl Handler + 'static) -> Self {
        self.handlers.insert(kind.to_owned(), Arc::new(handler));
        self
    }

    /// Lets messages through queues and flow controls.
    #[must_use]
    pub fn gates(mut self, gates: Arc<Gates>) -> Self {
        self.gates = Some(gates);
        self
    }

    /// Takes effects from whoever writes them, without a claim.
    #[must_use]
    pub fn hand(mut self, hand: Arc<Hand>) -> Self {
        self.hand = Some(hand);
        self
    }

    /// Watches what this process counts.
    #[must_use]
    pub fn metered(mut self, meter: Arc<Meter>) -> Self {
        self.meter = meter;
        self
    }

    /// Claims nothing from a lane while its valve is closed.
    #[must_use]
    pub fn valve(mut self, lane: Lane, valve: Arc<Valve>) -> Self {
        self.valves.insert(lane, valve);
        self
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn policy(&self, lane: &Lane) -> &LanePolicy {
        self.lanes.get(lane).unwrap_or(&self.fallback)
    }

    /// The shortest lease of all lanes: what the agents' rhythm follows.
    pub(crate) fn shortest_lease(&self) -> Duration {
        let leases = self.lanes.values().map(|policy| policy.lease);
        leases.min().unwrap_or_else(|| LanePolicy::default().lease)
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        let leases = self.lanes.values().map(|policy| policy.lease);
        leases.max().unwrap_or_else(|| LanePolicy::default().lease)
    }

    /// Starts what one command at a terminal needs: the leases of what it begins are renewed until it
    /// has ended. Nothing is claimed, and nothing is watched: the configuration of whoever types a
    /// command need not be that of the server, and alerts are the server's.
    #[must_use]
    pub fn attend(self) -> Running {
        let engine = Arc::new(self.without_claims());
        let (stop, agents) = (CancellationToken::new(), TaskTracker::new());
        let drained = CancellationToken::new();
        agents.spawn(Renewer::new(Arc::clone(&engine)).run(drained.clone()));
        agents.spawn(drain(Arc::clone(&engine), stop.clone(), drained));
        agents.close();
        Running { engine, stop, agents }
    }

    /// Starts the agents.
    #[must_use]
    pub fn start(self) -> Running {
        let engine = Arc::new(self);
        let stop = CancellationToken::new();
        let agents = TaskTracker::new();
        let drained = CancellationToken::new();
        agents.spawn(Renewer::new(Arc::clone(&engine)).run(drained.clone()));
        agents.spawn(drain(Arc::clone(&engine), stop.clone(), drained));
        if let Some(gates) = &engine.gates {
            let (store, ids) = (engine.store.clone(), engine.ids.clone());
            let look_every = engine.settings.poll;
            let keeper = Gatekeeper::new(store, engine.clock, ids, Arc::clone(gates), look_every);
            agents.spawn(keeper.run(stop.clone()));
        }
        // Every process watches: what it counts, nobody else can see.
        agents.spawn(Watchman::new(Arc::clone(&engine)).run(stop.clone()));
        if !engine.claims {
            agents.close();
            return Running { engine, stop, agents };
        }
        agents.spawn(Rescuer::new(Arc::clone(&engine)).run(stop.clone()));
        agents.spawn(Pruner::new(Arc::clone(&engine)).run(stop.clone()));
        agents.spawn(Sealer::new(Arc::clone(&engine)).run(stop.clone()));
        agents.close();
        Running { engine, stop, agents }
    }
}

/// Works until it is told to stop; leases are renewed until the last effect in hand has ended.
async fn drain(engine: Arc<Engine>, stop: CancellationToken, drained: CancellationToken) {
    if engine.claims {
        Dispatcher::new(Arc::clone(&engine)).run(stop).await;
    } else {
        stop.cancelled().await;
    }
    engine.callers.close();
    engine.callers.wait().await;
    drained.cancel();
}

/// An engine at work.
pub struct Running {
    engine: Arc<Engine>,
    stop: CancellationToken,
    agents: TaskTracker,
}

impl Running {
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Stops claiming, gives back what was not started, and waits for what was.
    ///
    /// Returns whether everything ended in time. What did not is taken over by another process when
    /// its lease has run out.
    pub async fn stop(self, deadline: Duration) -> bool {
        self.stop.cancel();
        tokio::time::timeout(deadline, self.agents.wait()).await.is_ok()
    }
}

/// The leases this process holds.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<BTreeMap<EffectId, Holding>>);

#[derive(Debug)]
struct Holding {
    fence: i64,
    /// When the store last heard of it.
    since: Timestamp,
    length: Duration,
}

impl Held {
    /// Claimed at `since`, for `length`.
    pub fn add(&self, effects: &[Effect], since: Timestamp, length: Duration) {
        let holding = |effect: &Effect| Holding { fence: effect.fence, since, length };
        self.lock().extend(effects.iter().map(|effect| (effect.id, holding(effect))));
    }

    /// The store has heard of these.
    pub fn renewed(&self, leases: &[Lease], now: Timestamp) {
        let mut held = self.lock();
        for lease in leases {
            if let Some(holding) = held.get_mut(&lease.id).filter(|h| h.fence == lease.fence) {
                holding.since = now;
            }
        }
    }

    /// Lets go of a lease, and of none that was taken after it.
    pub fn remove(&self, lease: Lease) {
        let mut held = self.lock();
        if held.get(&lease.id).is_some_and(|holding| holding.fence == lease.fence) {
            held.remove(&lease.id);
        }
    }

    pub fn contains(&self, lease: Lease) -> bool {
        self.lock().get(&lease.id).is_some_and(|holding| holding.fence == lease.fence)
    }

    /// Whether nobody else can get the effect while it is attempted: half of its lease is left.
    /// With a heartbeat at half of the lease that is the rule, and the exception is renewed first.
    pub fn is_certain(&self, lease: Lease, now: Timestamp) -> bool {
        self.lock().get(&lease.id).is_some_and(|holding| {
            holding.fence == lease.fence && now < holding.since.plus(holding.length / 2)
        })
    }

    pub fn all(&self) -> Vec<Lease> {
        self.lock().iter().map(|(id, holding)| Lease { id: *id, fence: holding.fence }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EffectId, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn lease(effect: &Effect) -> Lease {
    Lease { id: effect.id, fence: effect.fence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(fence: i64) -> Effect {
        let at = Timestamp::from_micros(0);
        Effect {
            id: EffectId(uuid::Uuid::nil()),
            lane: Lane::ORDERS,
            kind: "order".into(),
            key: None,
            digest: None,
            payload: "{}".into(),
            attempts: 0,
            in_doubt: false,
            fence,
            has_row: true,
            created_at: at,
            run_at: at,
            traceparent: None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_late_worker_does_not_let_go_of_its_successors_lease() {
        let (held, second) = (Held::default(), Duration::from_secs(1));
        let (lost, taken) = (effect(1), effect(2));
        held.add(std::slice::from_ref(&lost), at(0), second);
        held.add(std::slice::from_ref(&taken), at(1), second);
        held.remove(lease(&lost));
        assert!(!held.contains(lease(&lost)));
        assert_eq!(held.all(), [lease(&taken)]);
        held.remove(lease(&taken));
        assert_eq!(held.all(), []);
    }

    #[test]
    fn a_lease_is_certain_while_half_of_it_is_left() {
        let (held, effect) = (Held::default(), effect(1));
        held.add(std::slice::from_ref(&effect), at(0), Duration::from_secs(10));
        assert!(held.is_certain(lease(&effect), at(4)));
        assert!(!held.is_certain(lease(&effect), at(5)));
        held.renewed(&[lease(&effect)], at(5));
        assert!(held.is_certain(lease(&effect), at(9)));
        held.remove(lease(&effect));
        assert!(!held.is_certain(lease(&effect), at(9)));
    }
}
