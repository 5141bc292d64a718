//! What a run is like: every probability, limit and size, drawn from the seed.

use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::payment::PaymentRules;

use super::account::Nature;
use super::book::Book;
use super::dice::{Odds, Stream};
use super::invariants::Memory;
use super::mix::Fault;
use super::office::{self, Office};
use super::scene::Scenario;
use super::trouble::{Network, Process};
use super::world::World;
use super::{Planted, planted};

/// How late after its caller has given up a request may still arrive.
const LINGER_MS: u64 = 3_600_000;
/// Longer than any run: what happens when keys are used again after they were forgotten is known.
pub(crate) const REMEMBER: Duration = Duration::from_secs(90 * 24 * 3600);
const DAY_MS: u64 = 24 * 3_600_000;

/// The nature of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub nature: Nature,
    pub network: Network,
    pub process: Process,
    pub clients: Clients,
    pub post: Post,
    /// Those who pay every month.
    pub offices: Vec<Office>,
    pub rules: PaymentRules,
    pub policy: LanePolicy,
    /// The lane of webhooks, as the server has it by default.
    pub webhooks: LanePolicy,
    pub poll: Duration,
    pub capacity: usize,
    /// How long a caller waits before it is told what is known.
    pub answer_within: Duration,
    pub reconcile: Duration,
    /// After everything is at rest nobody is there for more than a week, and then the run goes on.
    pub epilogue: bool,
}

/// What the clients are like.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub think_max_ms: u64,
    pub waiting_max: usize,
    /// A client that leaves before it has its answer.
    pub impatient: Odds,
    /// New payments that come at once, at most.
    pub burst: u64,
    /// A person looks at cases, per step.
    pub person: Odds,
}

/// What becomes of the gateway's webhooks.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub never: Odds,
    pub late: Odds,
    pub twice: Odds,
    /// An answer that the gateway does not hear.
    pub unheard: Odds,
    /// A delivery that takes longer than its signature holds.
    pub slow: Odds,
    /// An event beside the others: forged, about somebody else, or about nothing.
    pub odd: Odds,
    /// In the end somebody has all dead letters processed again.
    pub operator: bool,
    /// The customer's bank sends a refund back.
    pub bounces: Odds,
    /// Whether a status is answered with a lie, in worlds that lie.
    pub lies: Odds,
}

impl Scenario for Swarm {
    type World = World;
    type Book = Book;
    type Memory = Memory;

    fn draw(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "payments");
        let nature = Nature {
            two_step: dice.hit(Odds::percent(50)),
            fence_cancels: dice.hit(Odds::percent(50)),
            caps_refunds: dice.hit(Odds::percent(70)),
            liar: dice.hit(Odds::percent(20)),
        };
        let policy = policy(&mut dice);
        let webhooks = webhooks(policy.lease);
        let lease_ms = u64::try_from(policy.lease.as_millis()).unwrap_or(u64::MAX);
        let mut process = Process::draw(&mut dice, lease_ms);
        // A process that is away costs nothing: keys are forgotten and authorizations expire then.
        process.downtime_max_ms =
            *dice.pick(&[500, 20_000, lease_ms * 2, 3_600_000, DAY_MS * 3 / 2]);
        // Every commit is a point at which to die, and a payment has many.
        process.crash_at_commit = Odds::millionth(process.crash_at_commit.in_million() / 8);
        process.crash_in_call = Odds::millionth(process.crash_in_call.in_million() / 8);
        process.stall = Odds::millionth(process.stall.in_million() / 8);
        let mut network = Network::draw(&mut dice, LINGER_MS);
        let mut rules = rules(&mut dice);
        if nature.liar {
            // A lie shows when what was denied happens nevertheless.
            network.arrives_late = Odds::percent(20);
            rules.verify_interval = Duration::from_secs(10);
        }
        Self {
            nature,
            network,
            process,
            clients: Clients::draw(&mut dice),
            post: Post::draw(&mut dice, &mut Stream::new(seed, "webhooks"), nature.liar),
            offices: office::draw(seed),
            rules,
            policy,
            webhooks,
            poll: Duration::from_millis(*dice.pick(&[1000, 5000])),
            capacity: *dice.pick(&[0, 0, 2, 4]),
            answer_within: dice.millis(500, 6000),
            reconcile: Duration::from_secs(*dice.pick(&[300, 1200, 3600])),
            epilogue: dice.hit(Odds::percent(50)),
        }
    }

    fn without(&mut self, fault: Fault) {
        self.network.without(fault);
        self.process.without(fault);
        match fault {
            Fault::Lies => self.nature.liar = false,
            Fault::Bounces => self.post.bounces = Odds::NEVER,
            Fault::Webhooks => {
                let post = &mut self.post;
                for odds in [
                    &mut post.late,
                    &mut post.twice,
                    &mut post.unheard,
                    &mut post.slow,
                    &mut post.odd,
                ] {
                    *odds = Odds::NEVER;
                }
            }
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
        World::new(seed, self.clone())
    }

    fn book(_: Option<Planted>) -> Book {
        Book::default()
    }
}

fn policy(dice: &mut Stream) -> LanePolicy {
    LanePolicy {
        concurrency: *dice.pick(&[2, 4, 16]),
        batch: *dice.pick(&[4, 32]),
        // Half of the shortest is longer than an attempt: asking and sending.
        lease: Duration::from_secs(*dice.pick(&[24, 60, 120])),
        ..LanePolicy::default()
    }
}

fn webhooks(lease: Duration) -> LanePolicy {
    LanePolicy {
        concurrency: 32,
        lease,
        max_attempts: 4,
        backoff: [1, 2, 4].map(Duration::from_secs).to_vec(),
        ..LanePolicy::default()
    }
}

fn rules(dice: &mut Stream) -> PaymentRules {
    PaymentRules {
        verify_interval: Duration::from_secs(*dice.pick(&[10, 60, 300])),
        verify_max: u32::try_from(dice.between(2, 10)).unwrap_or(10),
        retry_backoff: match dice.below(3) {
            0 => vec![Duration::from_secs(1)],
            1 => [1, 2, 5].map(Duration::from_secs).to_vec(),
            _ => PaymentRules::default().retry_backoff,
        },
        authorization_lifetime: Duration::from_secs(*dice.pick(&[120, 1200, 7 * 24 * 3600])),
        remember: REMEMBER,
        ..PaymentRules::default()
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
        }
    }
}

impl Post {
    fn draw(dice: &mut Stream, deliveries: &mut Stream, liar: bool) -> Self {
        let never = dice.odds(Odds::percent(60));
        Self {
            // What a gateway lies about is found out only if it tells the truth later.
            never: if liar { Odds::NEVER } else { never },
            late: dice.odds(Odds::percent(40)),
            twice: dice.odds(Odds::percent(30)),
            unheard: deliveries.odds(Odds::percent(15)),
            slow: deliveries.odds(Odds::percent(4)),
            odd: deliveries.odds(Odds::percent(4)),
            operator: deliveries.hit(Odds::percent(50)),
            bounces: dice.odds(Odds::percent(3)),
            lies: Odds::percent(50),
        }
    }
}
