//! A process of Tashika that takes reservations, and everybody who talks to it.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::reservation::{HOLD_KIND, LatePayment};
use tashika_domain::{Lane, LanePolicy, Status, Timestamp, payment, render, webhook};
use tashika_engine::commands::render::Renders;
use tashika_engine::commands::reservation::Reservations;
use tashika_engine::{
    Clock, Engine, ExpiryHandler, GiveUpHandler, HoldHandler, PaymentHandler, RECONCILE_KIND,
    ReconcileHandler, RenderHandler, Running, Studio, Till, WebhookHandler,
};
use tashika_store::{EffectFilter, EffectRow, Store, StoreError};

use super::dice::{Odds, Stream};
use super::fate::Fate;
use super::life::{Birth, Cast, End, Play};
use super::payments::process::{Process as Bank, till};
use super::payments::{clients::think, person as cashier, postman};
use super::scene::Scene;
use super::stage::Stage;
use super::{clients, person, planted, studio};

/// More than the longest way of money, every attempt at a video, and a person's time.
const QUIET_WITHIN: Duration = Duration::from_secs(4 * 3600);
/// A restart costs about as much as a process that lives for so long with nothing to do.
const WORTH_WAITING: Duration = Duration::from_secs(15);
/// More effects than wait when a run comes to rest.
const WAITING_MAX: i64 = 10_000;
/// Reservations that are looked at after a step, and after a recovery.
const CHECK_SOME: usize = 4;
const CHECK_MANY: usize = 40;
/// Letters are another lane's affair.
const LANES: [Lane; 4] = [Lane::PAYMENTS, Lane::WEBHOOKS, Lane::TIMERS, Lane::RENDERS];

/// A process, as those who talk to it see it.
pub(crate) struct Process {
    pub scene: Arc<Scene>,
    pub clock: Clock,
    pub fate: Arc<Fate>,
    pub store: Store,
    /// Payments and webhooks.
    pub bank: Arc<Bank>,
    pub reservations: Reservations,
    pub renders: Renders,
}

impl Play for Scene {
    type Cast = Arc<Process>;

    fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    fn start(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<(Self::Cast, Vec<Running>)> {
        let store = birth.open(0)?;
        let till = till(&self.bank, birth, store.clone(), self.swarm.rules.clone());
        let studio = studio(self, birth, store.clone());
        let node = engine(self, birth, &till, &studio).start();
        let engine = Arc::clone(node.engine());
        let answer_within = self.swarm.bank.answer_within;
        let process = Process {
            scene: Arc::clone(self),
            clock: birth.clock,
            fate: Arc::clone(&birth.fate),
            reservations: Reservations::new(Arc::clone(&engine), Arc::clone(&till), answer_within),
            renders: Renders(studio),
            bank: Bank::of(&self.bank, birth, engine, till, store.clone())?,
            store,
        };
        Ok((Arc::new(process), vec![node]))
    }

    fn sender(self: &Arc<Self>, birth: &Birth<'_>) -> anyhow::Result<Option<Running>> {
        let store = birth.open(birth.fate.node)?;
        let till = till(&self.bank, birth, store.clone(), self.swarm.rules.clone());
        let studio = studio(self, birth, store);
        Ok(Some(engine(self, birth, &till, &studio).start()))
    }

    fn ended(&self, now: Timestamp) -> usize {
        self.works().process_ended();
        self.bank.ended(now) + self.book().process_ended()
    }

    fn world(&self) -> String {
        let rules = &self.swarm.rules;
        format!(
            "{} nodes, {} slots on {} days, held for {} s, late money {}, the studio {}",
            self.swarm.bank.process.nodes,
            rules.slots_per_day,
            self.swarm.clients.days,
            rules.hold.as_secs(),
            match rules.late_payment {
                LatePayment::Refund => "goes back",
                LatePayment::Reclaim => "may still buy",
            },
            if self.swarm.studio.knows_keys { "knows keys" } else { "knows no keys" },
        )
    }
}

fn studio(scene: &Arc<Scene>, birth: &Birth<'_>, store: Store) -> Arc<Studio> {
    let (scene, fate) = (Arc::clone(scene), Arc::clone(&birth.fate));
    let rules = scene.swarm.rules.render.clone();
    let clock = birth.clock;
    let renderer = Arc::new(studio::Line { scene, clock: fate.clock(), fate });
    Arc::new(Studio { store, clock, renderer, rules, callbacks: None, fetcher: None })
}

/// The real engine of a node, speaking to the gateway and the studio of the world.
fn engine(scene: &Arc<Scene>, birth: &Birth<'_>, till: &Arc<Till>, studio: &Arc<Studio>) -> Engine {
    let (swarm, bank, node) = (&scene.swarm, &scene.swarm.bank, birth.fate.node);
    let policy = birth.policy(&bank.policy);
    let settings = birth.settings(node, bank.poll, bank.capacity);
    let worker = settings.worker.clone();
    let ids = birth.ids(Some(node));
    let webhooks = WebhookHandler::new(Arc::clone(till), vec![], &worker, &LanePolicy::default());
    let books = ReconcileHandler::new(Arc::clone(till), bank.reconcile, bank.rules.keep);
    Engine::new(till.store.clone(), birth.clock, ids, settings)
        .lane(Lane::PAYMENTS, policy)
        .lane(Lane::TIMERS, swarm.timers.clone())
        .lane(Lane::WEBHOOKS, bank.webhooks.clone())
        .lane(Lane::RENDERS, swarm.renders.clone())
        .effect(payment::KIND, PaymentHandler::new(Arc::clone(till), &worker))
        .effect(payment::EXPIRY_KIND, ExpiryHandler::new(Arc::clone(till), &worker))
        .effect(RECONCILE_KIND, books)
        .effect(webhook::KIND, webhooks)
        .effect(HOLD_KIND, HoldHandler::new(Arc::clone(till)))
        .effect(render::GIVE_UP_KIND, GiveUpHandler::new(Arc::clone(till)))
        .effect(render::KIND, RenderHandler(Arc::clone(studio)))
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
            let hot = self.scene.memory().hot(0, CHECK_MANY);
            self.check_these(&hot).await;
        }
        self.bank.recovered().await;
    }

    fn think(&self, dice: &mut Stream) -> Duration {
        think(dice, self.scene.swarm.clients.think_max_ms)
    }

    fn is_crowded(&self) -> bool {
        self.scene.book().waiting() >= self.scene.swarm.clients.waiting_max
    }

    fn step(&self, dice: &mut Stream) {
        self.tidy_up(dice);
        if dice.hit(self.scene.swarm.clients.person) {
            if dice.hit(Odds::percent(30)) {
                cashier::look(&self.bank, dice);
            } else {
                person::look(self, dice);
            }
        }
        planted::interfere(self);
        clients::act(self, dice);
    }

    async fn check(&self, step: u64) {
        self.bank.check(step).await;
        self.check_slots().await;
        let hot = self.scene.memory().hot(step, CHECK_SOME);
        self.check_these(&hot).await;
    }

    fn calm_down(&self) {
        self.bank.calm_down();
        self.scene.works().calm_down();
    }

    fn tidy_up(&self, dice: &mut Stream) {
        postman::deliver(&self.bank);
        studio::deliver(self);
        loop {
            let todo = self.scene.book().take_todo();
            let Some((key, body)) = todo else { return };
            clients::try_again(self, dice, &key, body);
        }
    }

    async fn is_quiet(&self) -> bool {
        let silent = {
            let mut world = self.scene.bank.world();
            world.flush(self.clock.now(), &self.scene.log);
            world.is_quiet() && world.post.is_empty()
        };
        let customers = self.scene.book().is_quiet() && self.scene.bank.book().is_quiet();
        if !silent || !customers || !self.scene.works().is_quiet() {
            return false;
        }
        match self.waiting().await {
            Ok(waiting) => waiting.is_empty(),
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
        if !self.scene.book().is_quiet() || !self.scene.bank.book().is_quiet() {
            return None;
        }
        let mut next: Vec<Timestamp> = {
            let (world, works) = (self.scene.bank.world(), self.scene.works());
            if world.post.is_being_read() || works.is_being_read() {
                return None;
            }
            [world.next_event(), world.post.next(), works.next()].into_iter().flatten().collect()
        };
        let waiting = self.waiting().await.ok()?;
        if waiting.iter().any(|effect| effect.status == Status::Sending) {
            return None;
        }
        next.extend(waiting.iter().map(|effect| effect.next_run_at));
        let span = next.into_iter().min()?.since(self.clock.now());
        (span > WORTH_WAITING).then_some(span)
    }

    async fn restless(&self) -> String {
        let waiting = self.waiting().await;
        let customers = self.scene.book().outstanding();
        let (world, works) = (self.scene.bank.world(), self.scene.works());
        let (quiet, post) = (world.is_quiet(), world.post.is_empty());
        let studio = works.is_quiet();
        format!(
            "customers: {customers}; gateway quiet: {quiet}, no post: {post}, studio quiet: \
             {studio}; {waiting:?}"
        )
    }

    async fn rest(&self) -> End {
        self.check_all().await;
        End::Over
    }
}

impl Process {
    /// Effects that are not settled. The books are compared for ever, so that is not waited for.
    async fn waiting(&self) -> Result<Vec<EffectRow>, StoreError> {
        let mut waiting = Vec::new();
        for lane in LANES {
            for status in [Status::Sending, Status::Pending, Status::Failed] {
                let filter = EffectFilter {
                    lane: Some(lane.clone()),
                    status: Some(status),
                    ..EffectFilter::default()
                };
                waiting.extend(self.store.effects(&filter, WAITING_MAX).await?);
            }
        }
        waiting.retain(|effect| effect.kind != RECONCILE_KIND);
        Ok(waiting)
    }

    pub fn broken(&self, rule: &'static str, key: &str, detail: &str) {
        self.scene.broken(self.clock.now(), rule, key, detail);
    }
}
