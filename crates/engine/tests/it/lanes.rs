//! Lanes: limits of their own, and shares where the process is the limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tashika_domain::{Lane, LanePolicy, Status};
use tashika_engine::{BoxFuture, Clock, Engine, Handler, Job, Settings, Tried};
use tashika_store::Store;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, soon};
use tashika_testkit::on_both;
use tokio::sync::watch;

use crate::support::{effect, engine, enqueue, policy, settings, stop, until_succeeded};

on_both!(
    a_lane_never_runs_more_than_its_concurrency,
    a_flooded_lane_does_not_starve_another,
    a_full_process_gives_turns_by_weight,
    a_process_never_runs_more_than_its_capacity,
    a_paced_lane_loses_nothing_and_does_not_hold_up_another,
    a_process_claims_only_from_its_own_lanes,
);

/// Performs effects at a gate and takes notes.
#[derive(Clone)]
struct Probe {
    gate: Gate,
    notes: Arc<Mutex<Notes>>,
    changes: Arc<watch::Sender<()>>,
}

#[derive(Default)]
struct Notes {
    started: Vec<Lane>,
    running: BTreeMap<Lane, usize>,
    most: BTreeMap<Lane, usize>,
    most_of_all: usize,
}

impl Probe {
    fn new() -> Self {
        let changes = Arc::new(watch::Sender::new(()));
        Self { gate: Gate::closed(), notes: Arc::default(), changes }
    }

    fn note<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        let result = note(&mut self.notes.lock().unwrap());
        self.changes.send_replace(());
        result
    }

    async fn until(&self, what: &str, enough: impl Fn(&Notes) -> bool) {
        let mut changes = self.changes.subscribe();
        let waiting = changes.wait_for(|()| enough(&self.notes.lock().unwrap()));
        soon(what, waiting).await.unwrap();
    }

    fn running(&self, lane: &Lane) -> usize {
        self.notes.lock().unwrap().running.get(lane).copied().unwrap_or(0)
    }
}

impl Handler for Probe {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        let lane = &job.effect.lane;
        Box::pin(async move {
            self.note(|notes| {
                notes.started.push(lane.clone());
                let running = notes.running.entry(lane.clone()).or_default();
                *running += 1;
                let most = notes.most.entry(lane.clone()).or_default();
                *most = (*most).max(*running);
                notes.most_of_all = notes.most_of_all.max(notes.running.values().sum());
            });
            self.gate.passed().await;
            self.note(|notes| *notes.running.entry(lane.clone()).or_default() -= 1);
            Tried::done(Value::Null)
        })
    }
}

async fn fill(store: &Store, lane: &Lane, count: usize) {
    enqueue(store, (0..count).map(|_| effect(lane, "probe", None, &json!({})))).await;
}

fn concurrency(concurrency: usize) -> LanePolicy {
    LanePolicy { concurrency, ..policy() }
}

fn with_capacity(store: &Store, capacity: usize) -> Engine {
    let settings = Settings { capacity, ..settings("host:1:a") };
    let clock = Clock::System;
    Engine::new(store.clone(), clock, tashika_engine::Ids::random(clock), settings)
}

async fn a_lane_never_runs_more_than_its_concurrency(db: TestDb) {
    let (store, probe) = (db.open().await, Probe::new());
    fill(&store, &Lane::ORDERS, 100).await;
    fill(&store, &Lane::MAIL, 10).await;
    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::ORDERS, concurrency(3))
        .lane(Lane::MAIL, concurrency(1))
        .effect("probe", probe.clone())
        .start();
    probe.until("full lanes", |notes| notes.running.values().sum::<usize>() == 4).await;
    probe.gate.open();

    until_succeeded(&store, &Lane::ORDERS, 100).await;
    until_succeeded(&store, &Lane::MAIL, 10).await;
    let most = probe.notes.lock().unwrap().most.clone();
    assert_eq!(most, BTreeMap::from([(Lane::ORDERS, 3), (Lane::MAIL, 1)]));
    stop(running).await;
}

async fn a_flooded_lane_does_not_starve_another(db: TestDb) {
    let (store, flood, mail) = (db.open().await, Probe::new(), Probe::new());
    mail.gate.open();
    fill(&store, &Lane::ORDERS, 1000).await;
    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::ORDERS, concurrency(4))
        .lane(Lane::MAIL, concurrency(4))
        .effect("probe", flood.clone())
        .effect("letter", mail)
        .start();
    flood.until("a full lane", |notes| notes.running.get(&Lane::ORDERS) == Some(&4)).await;

    enqueue(&store, [effect(&Lane::MAIL, "letter", None, &json!({}))]).await;

    until_succeeded(&store, &Lane::MAIL, 1).await;
    assert_eq!(flood.running(&Lane::ORDERS), 4, "the flooded lane is as busy as ever");
    let counts = store.effect_counts().await.unwrap();
    let done = counts.iter().find(|c| c.lane == Lane::ORDERS && c.status == Status::Succeeded);
    assert_eq!(done, None);
    flood.gate.open();
    stop(running).await;
}

async fn a_full_process_gives_turns_by_weight(db: TestDb) {
    let (store, probe) = (db.open().await, Probe::new());
    probe.gate.open();
    fill(&store, &Lane::ORDERS, 60).await;
    fill(&store, &Lane::MAIL, 20).await;
    let running = with_capacity(&store, 1)
        .lane(Lane::ORDERS, LanePolicy { weight: 3, ..policy() })
        .lane(Lane::MAIL, LanePolicy { weight: 1, ..policy() })
        .effect("probe", probe.clone())
        .start();

    until_succeeded(&store, &Lane::ORDERS, 60).await;
    until_succeeded(&store, &Lane::MAIL, 20).await;
    let started = probe.notes.lock().unwrap().started.clone();
    for turns in started.chunks(4) {
        let mail = turns.iter().filter(|lane| **lane == Lane::MAIL).count();
        assert_eq!(mail, 1, "one turn in four: {started:?}");
    }
    stop(running).await;
}

async fn a_process_never_runs_more_than_its_capacity(db: TestDb) {
    let (store, probe) = (db.open().await, Probe::new());
    for lane in [Lane::ORDERS, Lane::MAIL, Lane::TIMERS] {
        fill(&store, &lane, 20).await;
    }
    let mut engine = with_capacity(&store, 5).effect("probe", probe.clone());
    for lane in [Lane::ORDERS, Lane::MAIL, Lane::TIMERS] {
        engine = engine.lane(lane, concurrency(4));
    }
    let running = engine.start();
    probe.until("a full process", |notes| notes.running.values().sum::<usize>() == 5).await;
    probe.gate.open();

    for lane in [Lane::ORDERS, Lane::MAIL, Lane::TIMERS] {
        until_succeeded(&store, &lane, 20).await;
    }
    assert_eq!(probe.notes.lock().unwrap().most_of_all, 5);
    stop(running).await;
}

/// How fast is the business of `Pace` and its own tests; here only that pacing drops nothing.
async fn a_paced_lane_loses_nothing_and_does_not_hold_up_another(db: TestDb) {
    let (store, probe) = (db.open().await, Probe::new());
    probe.gate.open();
    fill(&store, &Lane::ORDERS, 20).await;
    fill(&store, &Lane::MAIL, 1).await;
    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::ORDERS, LanePolicy { rate_per_sec: Some(200.0), ..policy() })
        .lane(Lane::TIMERS, LanePolicy { rate_per_sec: Some(0.001), ..policy() })
        .lane(Lane::MAIL, policy())
        .effect("probe", probe.clone())
        .start();

    until_succeeded(&store, &Lane::ORDERS, 20).await;
    until_succeeded(&store, &Lane::MAIL, 1).await;
    // The second waits for a quarter of an hour, and nobody waits with it.
    fill(&store, &Lane::TIMERS, 2).await;
    until_succeeded(&store, &Lane::TIMERS, 1).await;
    fill(&store, &Lane::MAIL, 5).await;
    until_succeeded(&store, &Lane::MAIL, 6).await;
    let timers = |lane: &&Lane| **lane == Lane::TIMERS;
    assert_eq!(probe.notes.lock().unwrap().started.iter().filter(timers).count(), 1);
    stop(running).await;
}

async fn a_process_claims_only_from_its_own_lanes(db: TestDb) {
    let (store, probe) = (db.open().await, Probe::new());
    probe.gate.open();
    let theirs = Lane::parse("invoices").unwrap();
    fill(&store, &theirs, 1).await;
    fill(&store, &Lane::MAIL, 3).await;
    let engine = engine(&store, Clock::System, "host:1:a").lane(Lane::MAIL, policy());
    let running = engine.effect("probe", probe.clone()).start();

    until_succeeded(&store, &Lane::MAIL, 3).await;
    stop(running).await;
    assert!(!probe.notes.lock().unwrap().started.contains(&theirs));
    assert_eq!(store.waiting_count().await.unwrap(), 1);
}
