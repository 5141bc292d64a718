//! What a run is like: every probability, limit and size, drawn from the seed.

use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::message::Flow;

use super::book::Book;
use super::dice::{Odds, Stream};
use super::invariants::Memory;
use super::mix::Fault;
use super::scene::Scenario;
use super::trouble::Process;
use super::world::World;
use super::{Planted, planted};

/// Queues that let one message through at a time, and one that lets more through.
pub(crate) const LINES: [&str; 3] = ["line-0", "line-1", "line-2"];
/// The one that is deleted now and then.
pub(crate) const MORTAL: &str = LINES[2];
pub(crate) const WIDE: &str = "wide";
pub(crate) const WIDE_PARALLELISM: u32 = 3;
pub(crate) const GROUP: &str = "everybody";
/// Where callbacks go.
pub(crate) const CALLBACKS: &str = "https://callback.sim/told";

/// The nature of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub consumers: Vec<Consumer>,
    pub process: Process,
    pub clients: Clients,
    pub policy: LanePolicy,
    pub poll: Duration,
    pub capacity: usize,
    /// For one attempt.
    pub timeout: Duration,
    pub destination_concurrency: u32,
    pub dedup_window: Duration,
    /// A message that failed lets go of its key.
    pub reopen: bool,
    pub flows: Vec<Flow>,
}

/// Somebody who gets messages, and what may go wrong there.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub host: String,
    pub slow: Odds,
    pub unreachable: Odds,
    /// 500, before or after it has done what it was asked to.
    pub error_before: Odds,
    pub error_after: Odds,
    /// No answer in time; the request arrived, or did not.
    pub lost: Odds,
    pub answer_lost: Odds,
    /// 429, mostly with `Retry-After`.
    pub busy: Odds,
    /// 489: never again.
    pub never: Odds,
    /// 200, and nothing was done.
    pub lies: Odds,
    /// Is away for minutes at a time.
    pub outages: bool,
}

/// What the clients are like.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub think_max_ms: u64,
    /// Nobody acts while so many wait for an answer: a stall stops the clients too.
    pub waiting_max: usize,
    /// A client that leaves before it has its answer.
    pub impatient: Odds,
    /// The most messages in one go.
    pub burst: u64,
    /// A person looks at dead letters, per step.
    pub person: Odds,
    pub callback: Odds,
    pub schedules: bool,
}

impl Scenario for Swarm {
    type World = World;
    type Book = Book;
    type Memory = Memory;

    fn draw(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "messages");
        let policy = LanePolicy {
            concurrency: *dice.pick(&[2, 8, 32]),
            batch: *dice.pick(&[4, 32]),
            lease: Duration::from_secs(*dice.pick(&[24, 24, 60, 120])),
            ..LanePolicy::default()
        };
        let lease_ms = u64::try_from(policy.lease.as_millis()).unwrap_or(u64::MAX);
        let mut process = Process::draw(&mut dice, lease_ms);
        // Every commit is a point at which to die, and a message has many.
        process.crash_at_commit = Odds::millionth(process.crash_at_commit.in_million() / 8);
        process.crash_in_call = Odds::millionth(process.crash_in_call.in_million() / 8);
        process.stall = Odds::millionth(process.stall.in_million() / 4);
        let names = ["prompt", "slow", "flaky", "stern", "liar", "moody", "callback"];
        Self {
            consumers: names.iter().map(|name| Consumer::draw(&mut dice, name)).collect(),
            process,
            clients: Clients::draw(&mut dice),
            policy,
            poll: Duration::from_millis(*dice.pick(&[250, 1000, 3000])),
            capacity: *dice.pick(&[0, 0, 4]),
            // The longest outlives the shortest lease if nobody can renew it.
            timeout: Duration::from_secs(*dice.pick(&[3, 10, 40, 40])),
            destination_concurrency: *dice.pick(&[1, 4, 64]),
            dedup_window: Duration::from_secs(*dice.pick(&[10, 60, 600])),
            reopen: dice.hit(Odds::percent(75)),
            flows: flows(&mut dice),
        }
    }

    fn without(&mut self, fault: Fault) {
        self.process.without(fault);
        for consumer in &mut self.consumers {
            consumer.without(fault);
        }
        match fault {
            Fault::Impatient => self.clients.impatient = Odds::NEVER,
            Fault::Person => self.clients.person = Odds::NEVER,
            _ => {}
        }
    }

    fn arrange(&mut self, planted: Planted) {
        planted::arrange(self, planted);
    }

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn world(&self, seed: u64) -> World {
        World::new(seed)
    }

    fn book(_: Option<Planted>) -> Book {
        Book::default()
    }
}

impl Swarm {
    pub fn consumer(&self, host: &str) -> Option<&Consumer> {
        self.consumers.iter().find(|consumer| consumer.host == host)
    }
}

fn flows(dice: &mut Stream) -> Vec<Flow> {
    let mut number = |low: u64, high: u64| u32::try_from(dice.between(low, high)).unwrap_or(1);
    let flow = |key: &str, parallelism, rate, seconds: u32| Flow {
        key: key.to_owned(),
        parallelism,
        rate,
        period: Duration::from_secs(seconds.into()),
    };
    let (few, rate, both) = (number(1, 4), number(2, 8), (number(1, 3), number(2, 8)));
    vec![
        flow("few-at-once", Some(few), None, 1),
        flow("few-in-time", None, Some(rate), number(1, 3)),
        flow("few", Some(both.0), Some(both.1), number(1, 3)),
    ]
}

impl Consumer {
    fn draw(dice: &mut Stream, name: &str) -> Self {
        let flaky = matches!(name, "flaky" | "callback" | "moody");
        let often = |dice: &mut Stream, is: bool, percent: u64| {
            let odds = dice.odds(Odds::percent(percent));
            if is { odds } else { Odds::millionth(odds.in_million() / 8) }
        };
        Self {
            host: format!("{name}.sim"),
            slow: if name == "slow" { Odds::percent(60) } else { often(dice, false, 60) },
            unreachable: often(dice, flaky, 25),
            error_before: often(dice, flaky, 25),
            error_after: often(dice, flaky, 15),
            lost: often(dice, flaky, 15),
            answer_lost: often(dice, flaky, 20),
            busy: often(dice, flaky, 20),
            never: often(dice, name == "stern", 60),
            lies: if name == "liar" { Odds::percent(50) } else { Odds::NEVER },
            outages: name == "moody" && dice.hit(Odds::percent(50)),
        }
    }
}

impl Consumer {
    fn without(&mut self, fault: Fault) {
        let odds = match fault {
            Fault::Slow => &mut self.slow,
            Fault::Unreachable => &mut self.unreachable,
            Fault::RequestLost => &mut self.lost,
            Fault::ReplyLost => &mut self.answer_lost,
            Fault::Busy => &mut self.busy,
            Fault::Refused => &mut self.never,
            Fault::Lies => &mut self.lies,
            Fault::ServerError => {
                self.error_before = Odds::NEVER;
                &mut self.error_after
            }
            Fault::Outages => {
                self.outages = false;
                return;
            }
            _ => return,
        };
        *odds = Odds::NEVER;
    }
}

impl Clients {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            think_max_ms: *dice.pick(&[20, 100, 400]),
            waiting_max: *dice.pick(&[8, 24, 60]),
            impatient: dice.odds(Odds::percent(15)),
            burst: *dice.pick(&[4, 8, 16]),
            person: dice.odds(Odds::percent(20)),
            callback: dice.odds(Odds::percent(25)),
            schedules: dice.hit(Odds::percent(50)),
        }
    }
}
