//! The consumers: what they did, truly, and what they said.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tashika_domain::Timestamp;
use uuid::Uuid;

use super::dice::Stream;
use super::swarm::Consumer;

/// A consumer with outages is away for one of three spans of this length.
const OUTAGE: Duration = Duration::from_secs(90);

/// What a consumer makes of one attempt, decided when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub takes: Duration,
    /// It does what it was asked to.
    pub processes: bool,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Fine,
    Error,
    /// With `Retry-After`, if so.
    Busy(Option<u64>),
    Never,
    Unreachable,
    Silence,
}

impl Plan {
    pub fn draw(dice: &mut Stream, consumer: &Consumer, timeout: Duration, now: Timestamp) -> Self {
        let away = consumer.outages
            && (now.as_micros().unsigned_abs() / 1_000_000 / OUTAGE.as_secs()).is_multiple_of(3);
        let (unreachable, slow) = (dice.hit(consumer.unreachable) || away, dice.hit(consumer.slow));
        let (lost, answer_lost) = (dice.hit(consumer.lost), dice.hit(consumer.answer_lost));
        let (before, after) = (dice.hit(consumer.error_before), dice.hit(consumer.error_after));
        let (busy, never) = (dice.hit(consumer.busy), dice.hit(consumer.never));
        let (lies, wait) = (dice.hit(consumer.lies), dice.below(20));
        let (prompt, dragging) = (dice.millis(1, 300), dice.millis(500, 45_000));
        let takes = if slow { dragging } else { prompt };
        let (processes, answer) = if unreachable {
            (false, Answer::Unreachable)
        } else if lost {
            (false, Answer::Silence)
        } else if answer_lost {
            (true, Answer::Silence)
        } else if before {
            (false, Answer::Error)
        } else if after {
            (true, Answer::Error)
        } else if busy {
            (false, Answer::Busy((wait > 4).then_some(wait)))
        } else if never {
            (false, Answer::Never)
        } else {
            (!lies, Answer::Fine)
        };
        if answer == Answer::Silence || (takes >= timeout && answer != Answer::Unreachable) {
            return Self { takes: timeout, processes, answer: Answer::Silence };
        }
        Self { takes: takes.min(timeout), processes, answer }
    }

    /// The fate of every attempt once the faults are switched off.
    pub fn smooth(dice: &mut Stream) -> Self {
        Self { takes: dice.millis(1, 300), processes: true, answer: Answer::Fine }
    }
}

/// What is true of one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// Attempts that have begun.
    pub attempts: u32,
    /// Answers that the engine has heard: 2xx, and 489.
    pub fine: u32,
    pub never: u32,
    /// How often a consumer did what it was asked to.
    pub processed: u32,
    /// When an attempt was last seen under way.
    pub last_seen: Option<Timestamp>,
}

/// An attempt under way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub id: Uuid,
    pub fence: i64,
    pub queue: Option<String>,
    pub flow: Option<String>,
}

pub(crate) struct World {
    seed: u64,
    truths: BTreeMap<Uuid, Truth>,
    flights: BTreeMap<u64, Flight>,
    numbers: u64,
    /// Whom a flow control has let through in a period: by its key and the period's beginning.
    let_through: BTreeMap<(String, i64), BTreeSet<(Uuid, Timestamp)>>,
    calm: bool,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            truths: BTreeMap::new(),
            flights: BTreeMap::new(),
            numbers: 0,
            let_through: BTreeMap::new(),
            calm: false,
        }
    }

    /// From now on nothing goes wrong any more. What is under way stays under way.
    pub fn calm_down(&mut self) {
        self.calm = true;
    }

    pub fn truth(&self, id: Uuid) -> Truth {
        self.truths.get(&id).cloned().unwrap_or_default()
    }

    pub fn known(&self) -> impl Iterator<Item = &Uuid> {
        self.truths.keys()
    }

    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    /// A flow control has let a message through at `at`; returns how many that makes in its period.
    pub fn pass(&mut self, key: &str, period: i64, id: Uuid, at: Timestamp) -> usize {
        let passed = self.let_through.entry((key.to_owned(), period)).or_default();
        passed.insert((id, at));
        passed.len()
    }

    /// An attempt leaves; returns its number and what will become of it.
    pub fn leave(
        &mut self,
        flight: Flight,
        consumer: &Consumer,
        timeout: Duration,
        now: Timestamp,
    ) -> (u64, Plan) {
        let id = flight.id;
        let truth = self.truths.entry(id).or_default();
        truth.attempts += 1;
        truth.last_seen = Some(now);
        let mut dice = Stream::new(self.seed, &format!("attempt/{id}/{}", truth.attempts));
        let plan = if self.calm {
            Plan::smooth(&mut dice)
        } else {
            Plan::draw(&mut dice, consumer, timeout, now)
        };
        // Whatever becomes of its sender: what has left arrives.
        truth.processed += u32::from(plan.processes);
        self.numbers += 1;
        self.flights.insert(self.numbers, flight);
        (self.numbers, plan)
    }

    /// The engine hears an answer, or that there is none.
    pub fn hear(&mut self, flight: u64, answer: Answer, now: Timestamp) {
        let Some(flight) = self.flights.remove(&flight) else { return };
        let truth = self.truths.entry(flight.id).or_default();
        truth.last_seen = Some(now);
        truth.fine += u32::from(answer == Answer::Fine);
        truth.never += u32::from(answer == Answer::Never);
    }

    /// The process is gone, and with it everybody who waited for an answer.
    pub fn process_ended(&mut self, now: Timestamp) {
        for flight in std::mem::take(&mut self.flights).into_values() {
            self.truths.entry(flight.id).or_default().last_seen = Some(now);
        }
    }
}
