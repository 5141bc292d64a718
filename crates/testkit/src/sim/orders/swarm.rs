//! What a run is like: every probability, limit and size, drawn from the seed.

use std::time::Duration;

use tashika_domain::LanePolicy;

use super::book::Book;
use super::dice::{Odds, Stream};
use super::invariants::Memory;
use super::mix::Fault;
use super::scene::Scenario;
use super::trouble::{Network, Process};
use super::world::World;
use super::{Planted, planted};

/// The first wait after a lost answer, in worlds whose broker takes no keys.
const KEYLESS_BACKOFF: Duration = Duration::from_secs(5);
/// How late after its caller has given up a request may still arrive at a broker without keys.
///
/// Below [`KEYLESS_BACKOFF`] by more than the small delays of a run: whoever asks after the backoff
/// learns the truth. If requests lingered for longer, no software could exclude a second execution.
const KEYLESS_LINGER_MS: u64 = 4400;
/// The same where repeats are recognised: late enough for everything to be over by then.
const KEYED_LINGER_MS: u64 = 300_000;

/// The nature of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub honours_keys: bool,
    /// How old the broker's answers about orders may be. `None` is a broker that knows itself.
    pub status_lag: Option<Duration>,
    pub network: Network,
    pub process: Process,
    pub clients: Clients,
    pub policy: LanePolicy,
    pub poll: Duration,
    pub capacity: usize,
}

/// What the clients are like.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub think_max_ms: u64,
    /// Nobody acts while so many wait for an answer: a stall stops the clients too.
    pub waiting_max: usize,
    /// A client that leaves before it has its answer.
    pub impatient: Odds,
    pub rate_per_min: u32,
    pub daily_quota: i64,
    /// A person looks at cases and dead letters, per step.
    pub person: Odds,
}

impl Scenario for Swarm {
    type World = World;
    type Book = Book;
    type Memory = Memory;

    fn draw(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "swarm");
        let honours_keys = dice.hit(Odds::percent(60));
        let lags = !honours_keys && dice.hit(Odds::percent(30));
        let lag = dice.millis(500, 60_000);
        let linger_ms = if honours_keys { KEYED_LINGER_MS } else { KEYLESS_LINGER_MS };
        let policy = policy(&mut dice, honours_keys);
        let lease_ms = u64::try_from(policy.lease.as_millis()).unwrap_or(u64::MAX);
        Self {
            honours_keys,
            status_lag: lags.then_some(lag),
            network: Network::draw(&mut dice, linger_ms),
            process: Process::draw(&mut dice, lease_ms),
            clients: Clients::draw(&mut dice),
            policy,
            poll: Duration::from_millis(*dice.pick(&[250, 500, 1000])),
            capacity: *dice.pick(&[0, 0, 1, 3]),
        }
    }

    fn without(&mut self, fault: Fault) {
        self.network.without(fault);
        self.process.without(fault);
        match fault {
            Fault::Lies => self.status_lag = None,
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

    fn book(planted: Option<Planted>) -> Book {
        Book::new(planted)
    }
}

fn policy(dice: &mut Stream, honours_keys: bool) -> LanePolicy {
    let backoff = match dice.below(3) {
        0 if honours_keys => vec![Duration::from_secs(1), Duration::from_secs(3)],
        0 => vec![KEYLESS_BACKOFF],
        _ => LanePolicy::default().backoff,
    };
    LanePolicy {
        concurrency: *dice.pick(&[1, 2, 4, 8]),
        batch: *dice.pick(&[1, 4, 32]),
        rate_per_sec: *dice.pick(&[None, None, Some(2.0)]),
        // Half of the shortest is still longer than an attempt with everything that may follow it:
        // asking and sending, and a request that lingers.
        lease: Duration::from_secs(*dice.pick(&[24, 60, 120])),
        max_attempts: u32::try_from(dice.between(2, 6)).unwrap_or(6),
        backoff,
        ..LanePolicy::default()
    }
}

impl Clients {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            think_max_ms: *dice.pick(&[50, 500, 3000]),
            waiting_max: *dice.pick(&[1, 4, 12]),
            impatient: dice.odds(Odds::percent(15)),
            rate_per_min: *dice.pick(&[0, 0, 120]),
            daily_quota: *dice.pick(&[0, 100_000]),
            person: dice.odds(Odds::percent(10)),
        }
    }
}
