//! Finds due effects and gives them to workers.
//!
//! One per process. It waits for a wake-up, a worker that has ended, or the poll, whichever comes
//! first: wake-ups are hints, the poll is the guarantee. Each lane has its own queue, concurrency and
//! pace; where the process's capacity is the limit, lanes take turns by weight, so that a flooded lane
//! delays another by no more than its share.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use tashika_domain::effect::Effect;
use tashika_domain::ledger::{self, Clearance};
use tashika_domain::{Lane, LanePolicy, Timestamp};
use tashika_store::{Claim, StoreError, Wakeups};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::{Engine, lease};
use crate::hand::{Born, Place};
use crate::pace::{Pace, Turns};
use crate::valve::Valve;
use crate::worker::{self, millis};

pub struct Dispatcher {
    engine: Arc<Engine>,
    wakeups: Arc<Wakeups>,
    lanes: BTreeMap<Lane, LaneState>,
    turns: Turns,
    running: usize,
    workers: TaskTracker,
    ended: (mpsc::UnboundedSender<Lane>, mpsc::UnboundedReceiver<Lane>),
    next_poll: Timestamp,
    /// Effects that were born in our hands.
    births: Option<mpsc::UnboundedReceiver<Born>>,
}

struct LaneState {
    policy: LanePolicy,
    pace: Option<Pace>,
    /// Ours, not started: claimed, and born in our hands.
    claimed: VecDeque<Waiting>,
    born: VecDeque<Waiting>,
    /// Who comes next, if there are both.
    born_next: bool,
    running: usize,
    /// Work may be waiting in the store.
    hungry: bool,
    valve: Option<Arc<Valve>>,
}

/// An effect that waits to be started.
struct Waiting {
    effect: Effect,
    /// What the ledger says about it, if it has been asked.
    clearance: Option<Clearance>,
    /// Where it was born, if nobody claimed it.
    place: Option<Place>,
}

impl LaneState {
    fn new(policy: LanePolicy, valve: Option<Arc<Valve>>) -> Self {
        let pace = policy.rate_per_sec.map(|rate| Pace::new(rate, 1));
        Self {
            policy,
            pace,
            claimed: VecDeque::new(),
            born: VecDeque::new(),
            born_next: false,
            running: 0,
            hungry: true,
            valve,
        }
    }

    fn is_closed(&self, now: Timestamp) -> bool {
        self.valve.as_ref().is_some_and(|valve| valve.is_closed(now))
    }

    /// How much to claim: a batch, when at most half of one is left.
    fn room(&self) -> usize {
        let (batch, left) = (self.policy.batch, self.claimed.len());
        if left > batch / 2 { 0 } else { batch - left }
    }

    fn wants_more(&self, now: Timestamp) -> bool {
        self.hungry && self.room() > 0 && !self.is_closed(now)
    }

    fn has_waiting(&self) -> bool {
        !self.claimed.is_empty() || !self.born.is_empty()
    }

    /// In turns: a claim may bring a thousand that only have to be put off again, and who comes now for another
    /// destination should not wait for all of them.
    fn pop(&mut self) -> Option<Waiting> {
        let born_next = self.born_next;
        self.born_next = !born_next;
        let (first, second) = if born_next {
            (&mut self.born, &mut self.claimed)
        } else {
            (&mut self.claimed, &mut self.born)
        };
        first.pop_front().or_else(|| second.pop_front())
    }
}

impl Dispatcher {
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        let lanes = engine.lanes.iter().map(|(lane, policy)| {
            let valve = engine.valves.get(lane).cloned();
            (lane.clone(), LaneState::new(policy.clone(), valve))
        });
        let births = engine.hand.as_ref().map(|hand| hand.open(&engine.settings.worker));
        Self {
            births,
            wakeups: engine.store.wakeups(),
            lanes: lanes.collect(),
            turns: Turns::default(),
            running: 0,
            workers: TaskTracker::new(),
            ended: mpsc::unbounded_channel(),
            next_poll: engine.clock.now(),
            engine,
        }
    }

    /// Works until it is told to stop; then gives back what was not started and waits for the rest.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.look_around();
            self.claim_all().await;
            let pause = self.start_ready();
            let now = self.engine.clock.now();
            if self.lanes.values().any(|lane| lane.wants_more(now)) {
                // More is waiting than one claim could take.
                tokio::task::yield_now().await;
                self.note_ended();
                continue;
            }
            let until = [Some(self.next_poll), self.wakeups.next_due()].into_iter().flatten().min();
            let idle = until.map_or(Duration::ZERO, |at| at.since(now));
            let wait = pause.map_or(idle, |pause| pause.min(idle));
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(lane) = self.ended.1.recv() => self.note_end(&lane),
                Some(born) = next_birth(self.births.as_mut()) => self.take_in(born),
                () = self.wakeups.wait() => {}
                () = self.engine.clock.sleep(wait) => {}
            }
            self.note_ended();
        }
        self.give_back().await;
        self.workers.close();
        self.workers.wait().await;
    }

    /// Which lanes may have work.
    fn look_around(&mut self) {
        while let Some(Ok(born)) = self.births.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
            self.take_in(born);
        }
        let now = self.engine.clock.now();
        let (due, poll) = (self.wakeups.take_due(now), self.engine.settings.poll);
        if due || self.next_poll.has_come(now, poll) {
            self.next_poll = now.plus(poll);
            self.lanes.values_mut().for_each(|lane| lane.hungry = true);
        }
        for lane in self.wakeups.take() {
            if let Some(state) = self.lanes.get_mut(&lane) {
                state.hungry = true;
            }
        }
    }

    /// An effect that was born in our hands waits for its turn like those that were claimed.
    fn take_in(&mut self, Born { effect, place }: Born) {
        let policy = self.engine.policy(&effect.lane);
        self.engine.held.add(std::slice::from_ref(&effect), effect.created_at, policy.lease);
        if let Some(state) = self.lanes.get_mut(&effect.lane) {
            let clearance = Some(Clearance::Send);
            state.born.push_back(Waiting { effect, clearance, place: Some(place) });
        }
    }

    async fn claim_all(&mut self) {
        let now = self.engine.clock.now();
        let wanting: Vec<Lane> = self
            .lanes
            .iter()
            .filter(|(_, state)| state.wants_more(now))
            .map(|(lane, _)| lane.clone())
            .collect();
        for lane in wanting {
            if let Err(error) = self.claim(&lane).await {
                tracing::warn!(%error, %lane, "effects could not be claimed; will try again");
                // The poll comes back to it.
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.hungry = false;
                }
            }
        }
    }

    async fn claim(&mut self, lane: &Lane) -> Result<(), StoreError> {
        let engine = Arc::clone(&self.engine);
        let Some(state) = self.lanes.get_mut(lane) else { return Ok(()) };
        let limit = state.room();
        let now = engine.clock.now();
        let worker = &engine.settings.worker;
        let effects = engine.store.claim(Claim { lane, worker, now, limit }).await?;
        let after = engine.clock.now();
        histogram!("outbox_latency_ms", "phase" => "claim").record(millis(after.since(now)));
        state.hungry = effects.len() >= limit;
        if effects.is_empty() {
            return Ok(());
        }
        engine.held.add(&effects, now, state.policy.lease);
        counter!("outbox_claimed_total").increment(effects.len() as u64);
        for effect in &effects {
            let age = after.since(effect.run_at);
            histogram!("outbox_age_seconds").record(age.as_secs_f64());
        }
        let clearances = clear(&engine, &effects).await;
        for (effect, clearance) in effects.into_iter().zip(clearances) {
            state.claimed.push_back(Waiting { effect, clearance, place: None });
        }
        Ok(())
    }

    /// Starts what may start; returns how long until a pace lets the next one go.
    fn start_ready(&mut self) -> Option<Duration> {
        let capacity = match self.engine.settings.capacity {
            0 => usize::MAX,
            capacity => capacity,
        };
        let now = self.engine.clock.now();
        let mut pause: Option<Duration> = None;
        let mut held_up: Vec<Lane> = Vec::new();
        while self.running < capacity {
            let ready = self
                .lanes
                .iter()
                .filter(|(lane, state)| {
                    state.has_waiting()
                        && state.running < state.policy.concurrency
                        && !held_up.contains(lane)
                        && !state.is_closed(now)
                })
                .map(|(lane, state)| (lane, state.policy.weight));
            let Some(lane) = self.turns.next(ready).cloned() else { break };
            let Some(state) = self.lanes.get_mut(&lane) else { break };
            if let Some(Err(wait)) = state.pace.as_mut().map(|pace| pace.take(now)) {
                pause = Some(pause.map_or(wait, |known| known.min(wait)));
                held_up.push(lane);
                continue;
            }
            if let Some(waiting) = state.pop() {
                state.running += 1;
                self.running += 1;
                self.start(lane, waiting);
            }
        }
        pause
    }

    fn start(&self, lane: Lane, Waiting { effect, clearance, place }: Waiting) {
        let (engine, ended) = (Arc::clone(&self.engine), self.ended.0.clone());
        self.workers.spawn(async move {
            worker::perform(engine, effect, clearance).await;
            drop(place);
            // The dispatcher may have stopped listening.
            drop(ended.send(lane));
        });
    }

    fn note_ended(&mut self) {
        while let Ok(lane) = self.ended.1.try_recv() {
            self.note_end(&lane);
        }
    }

    fn note_end(&mut self, lane: &Lane) {
        self.running -= 1;
        if let Some(state) = self.lanes.get_mut(lane) {
            state.running -= 1;
        }
    }

    /// What was claimed and not started goes back untouched.
    async fn give_back(&mut self) {
        if let Some(hand) = &self.engine.hand {
            hand.close();
        }
        while let Some(born) = next_birth(self.births.as_mut()).await {
            self.take_in(born);
        }
        let now = self.engine.clock.now();
        for state in self.lanes.values_mut() {
            for Waiting { effect, .. } in state.claimed.drain(..).chain(state.born.drain(..)) {
                let back = worker::given_back(&self.engine, &effect, now);
                if let Err(error) = self.engine.store.commit(back).await {
                    tracing::warn!(%error, outbox_id = %effect.id, "left to its lease");
                }
                self.engine.held.remove(lease(&effect));
            }
        }
    }
}

/// The next effect that is born in our hands; never, if that does not happen here.
async fn next_birth(births: Option<&mut mpsc::UnboundedReceiver<Born>>) -> Option<Born> {
    match births {
        Some(births) => births.recv().await,
        None => None,
    }
}

/// Asks the ledger about many effects at once. `None` where it could not be asked: the worker will.
async fn clear(engine: &Engine, effects: &[Effect]) -> Vec<Option<Clearance>> {
    let mut keys: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    // A handler that panics here does so again in the hands of its worker, where it is recorded.
    let digests: Vec<std::thread::Result<Option<String>>> = effects
        .iter()
        .map(|effect| {
            let handler = engine.handlers.get(&effect.kind);
            let digest = || handler.and_then(|handler| handler.request_digest(effect));
            let digest = catch_unwind(AssertUnwindSafe(digest));
            if let (Ok(Some(_)), Some(key)) = (&digest, &effect.key) {
                keys.entry(&effect.kind).or_default().push(key.clone());
            }
            digest
        })
        .collect();
    let mut entries = BTreeMap::new();
    for (kind, keys) in keys {
        match engine.store.ledger_entries(kind, keys).await {
            Ok(found) => entries.extend(found.into_iter().map(|e| (e.key.clone(), e))),
            Err(error) => {
                tracing::warn!(%error, "the ledger could not be asked");
                return effects.iter().map(|_| None).collect();
            }
        }
    }
    effects
        .iter()
        .zip(digests)
        .map(|(effect, digest)| {
            let (Some(digest), Some(key)) = (digest.ok()?, &effect.key) else {
                return Some(Clearance::Send);
            };
            let entry = entries.get(&ledger::LedgerKey::new(&effect.kind, key));
            Some(ledger::before_sending(entry, &digest))
        })
        .collect()
}
