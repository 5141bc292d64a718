//! A process of Tashika that sends mails, and everybody who talks to it.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::mail::{self, batch, deadline};
use tashika_domain::{Lane, LanePolicy, Status, Timestamp};
use tashika_engine::commands::mail::Mails;
use tashika_engine::commands::outbox::Outbox;
use tashika_engine::{
    Clock, DeadlineHandler, Engine, MailBatchHandler, MailHandler, PostOffice, Running,
};
use tashika_providers::mail::Postman;
use tashika_providers::templates::Templates;
use tashika_store::{EffectFilter, EffectRow, Store};

use super::Scene;
use super::dice::Stream;
use super::fate::Fate;
use super::life::{Birth, Cast, End, Play};
use super::line::Line;
use super::stage::Stage;
use super::{clients, planted};

/// More than some days of a quota that is used up.
const QUIET_WITHIN: Duration = Duration::from_secs(20 * 24 * 3600);
/// A restart costs about as much as a process that lives for so long with nothing to do.
const WORTH_WAITING: Duration = Duration::from_secs(15);
/// More effects than wait when a run comes to rest.
const WAITING_MAX: i64 = 10_000;
/// Everything is checked every so many steps.
const CHECK_EVERY: u64 = 15;

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    pub mails: Arc<Mails>,
    pub outbox: Outbox,
}

impl Play for Scene {
    type Cast = Arc<Process>;

    fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)> {
        let office = office(self, birth)?;
        let node = engine(self, birth, &office).start();
        let store = office.store.clone();
        let process = Process {
            scene: Arc::clone(self),
            clock: birth.clock,
            fate: Arc::clone(&birth.fate),
            mails: Arc::new(Mails::new(office)),
            outbox: Outbox::new(store.clone(), birth.clock),
            store,
        };
        Ok((Arc::new(process), vec![node]))
    }

    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let office = office(self, birth)?;
        Ok(Some(engine(self, birth, &office).start()))
    }

    fn ended(&self, _: Timestamp) -> usize {
        self.book().process_ended()
    }

    fn world(&self) -> String {
        let swarm = &self.swarm;
        let limits = swarm.rules.limits;
        format!(
            "{} nodes, {} mails a second, a quota of {}, answers within {} s",
            swarm.process.nodes,
            limits.rate_per_sec,
            limits.daily_quota,
            swarm.rules.timeout.as_secs(),
        )
    }
}

fn office(scene: &Arc<Scene>, birth: &Birth<'_>) -> anyhow::Result<Arc<PostOffice>> {
    let (node, fate) = (birth.fate.node, Arc::clone(&birth.fate));
    let store = birth.open(node)?;
    let line = Line { scene: Arc::clone(scene), clock: fate.clock(), fate, store: store.clone() };
    let postman: Arc<dyn Postman> = planted::postman(scene.planted, Arc::new(line));
    let ids = if node == 0 { birth.ids(None) } else { birth.ids(Some(node + 100)) };
    let worker = birth.settings(node, scene.swarm.poll, 0).worker;
    let templates = Arc::new(Templates::load(None)?);
    let rules = scene.swarm.told(scene.planted);
    Ok(Arc::new(PostOffice::new(store, birth.clock, ids, postman, templates, rules, worker)))
}

/// The real engine of a node, speaking to the server of the world.
fn engine(scene: &Arc<Scene>, birth: &Birth<'_>, office: &Arc<PostOffice>) -> Engine {
    let (swarm, node) = (&scene.swarm, birth.fate.node);
    let settings = birth.settings(node, swarm.poll, swarm.capacity);
    let policy = birth.policy(&swarm.policy);
    let timers = LanePolicy { lease: policy.lease, ..LanePolicy::default() };
    Engine::new(office.store.clone(), birth.clock, birth.ids(Some(node)), settings)
        .lane(Lane::MAIL, policy)
        .lane(Lane::TIMERS, timers)
        .valve(Lane::MAIL, Arc::clone(&office.valve))
        .effect(mail::KIND, MailHandler(Arc::clone(office)))
        .effect(batch::KIND, MailBatchHandler(Arc::clone(office)))
        .effect(deadline::KIND, DeadlineHandler(Arc::clone(office)))
}

impl Cast for Arc<Process> {
    fn stage(&self) -> &Stage {
        &self.scene
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    async fn recovered(&self) {
        if !self.scene.is_calm() {
            self.check_all(false).await;
        }
    }

    fn think(&self, dice: &mut Stream) -> Duration {
        clients::think(dice, self.scene.swarm.clients.think_max_ms)
    }

    fn is_crowded(&self) -> bool {
        self.scene.book().waiting() >= self.scene.swarm.clients.waiting_max
    }

    fn step(&self, dice: &mut Stream) {
        self.tidy_up(dice);
        if dice.hit(self.scene.swarm.clients.person) {
            clients::look(self, dice);
        }
        clients::act(self, dice);
    }

    async fn check(&self, step: u64) {
        if step.is_multiple_of(CHECK_EVERY) {
            self.check_all(false).await;
        }
    }

    fn calm_down(&self) {
        self.scene.world().calm_down();
    }

    fn tidy_up(&self, dice: &mut Stream) {
        // Those who were told that somebody else is at it would ask for ever in one moment.
        let todo = self.scene.book().take_todo();
        if let Some(wish) = todo {
            clients::try_again(self, dice, &wish);
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
        if !self.scene.book().is_quiet() {
            return None;
        }
        let now = self.clock.now();
        let control = self.store.mail_control().await.ok()?;
        let closed_until = control.until.filter(|_| !control.is_open(now));
        let mut next: Option<Timestamp> = None;
        for status in [Status::Sending, Status::Pending, Status::Failed] {
            let filter = EffectFilter { status: Some(status), ..EffectFilter::default() };
            let found = self.store.effects(&filter, WAITING_MAX).await.ok()?;
            // While the lane is closed, mails in hand only wait for it to open.
            let waits = |effect: &EffectRow| effect.lane == Lane::MAIL && closed_until.is_some();
            if status == Status::Sending && !found.iter().all(waits) {
                return None;
            }
            for effect in found {
                let mut due = effect.next_run_at;
                // The driver of a batch only looks again and again whether the lane has room.
                let looks = effect.kind == batch::KIND && due > now;
                if effect.lane == Lane::MAIL || looks {
                    due = due.max(closed_until.unwrap_or(due));
                }
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        let wait = next?.since(now);
        (wait > WORTH_WAITING).then_some(wait)
    }

    async fn restless(&self) -> String {
        let effects = self.store.effect_counts().await;
        let control = self.store.mail_control().await;
        let clients = self.scene.book().outstanding();
        format!("clients: {clients}; {effects:?}; {control:?}")
    }

    async fn rest(&self) -> End {
        self.check_all(true).await;
        End::Over
    }
}

impl Process {
    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        self.scene.broken(self.clock.now(), rule, key, detail);
    }
}
