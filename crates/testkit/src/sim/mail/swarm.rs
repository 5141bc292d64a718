//! What a run is like: every probability, limit and size, drawn from the seed.

use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::mail::conclude::Patience;
use tashika_domain::mail::pace::Limits;
use tashika_engine::MailRules;

use super::book::Book;
use super::dice::{Odds, Stream};
use super::mix::Fault;
use super::scene::Scenario;
use super::server::Server;
use super::trouble::Process;
use super::{Planted, planted};

/// Longer than any run.
const KEEP: Duration = Duration::from_secs(90 * 24 * 3600);

/// The nature of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub server: Nature,
    pub process: Process,
    pub clients: Clients,
    pub rules: MailRules,
    pub policy: LanePolicy,
    pub poll: Duration,
    pub capacity: usize,
}

/// What goes wrong at the server, and on the way to it.
#[derive(Clone, Debug)]
pub(crate) struct Nature {
    pub unreachable: Odds,
    /// 4yz: not now.
    pub greylists: Odds,
    /// 550: nobody of this name.
    pub refuses: Odds,
    /// No answer after the final dot; it arrived, or did not.
    pub reply_lost: Odds,
    /// No answer, and it did not arrive.
    pub request_lost: Odds,
    /// The answer takes longer than anybody waits.
    pub reply_late: Odds,
    pub slow: Odds,
    /// 454: too fast; and enough for today.
    pub throttles: Odds,
    pub quota: Odds,
    /// The login is refused, for minutes.
    pub outages: bool,
}

/// What the clients are like.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub think_max_ms: u64,
    pub waiting_max: usize,
    /// A client that leaves before it has its answer.
    pub impatient: Odds,
    /// The most recipients of one batch.
    pub batch_max: u64,
    /// Cancels a batch as soon as the first of its mails is on its way.
    pub regrets: Odds,
    /// Somebody opens the lane, or has dead letters tried again, per step.
    pub person: Odds,
}

impl Scenario for Swarm {
    type World = Server;
    type Book = Book;
    type Memory = ();

    fn draw(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "mail");
        let policy = LanePolicy {
            concurrency: *dice.pick(&[1, 3, 8]),
            batch: *dice.pick(&[1, 4, 32]),
            lease: Duration::from_secs(*dice.pick(&[24, 60, 120])),
            // Attempts are the mail's own affair.
            max_attempts: u32::MAX,
            ..LanePolicy::default()
        };
        let lease_ms = u64::try_from(policy.lease.as_millis()).unwrap_or(u64::MAX);
        let mut process = Process::draw(&mut dice, lease_ms);
        process.crash_at_commit = Odds::millionth(process.crash_at_commit.in_million() / 4);
        process.crash_in_call = Odds::millionth(process.crash_in_call.in_million() / 2);
        process.stall = Odds::millionth(process.stall.in_million() / 4);
        Self {
            server: Nature::draw(&mut dice),
            process,
            clients: Clients::draw(&mut dice),
            rules: rules(&mut dice),
            policy,
            poll: Duration::from_millis(*dice.pick(&[250, 1000])),
            capacity: *dice.pick(&[0, 0, 2]),
        }
    }

    fn without(&mut self, fault: Fault) {
        self.process.without(fault);
        let odds = match fault {
            Fault::Unreachable => &mut self.server.unreachable,
            Fault::Busy => &mut self.server.greylists,
            Fault::Refused => &mut self.server.refuses,
            Fault::ReplyLost => &mut self.server.reply_lost,
            Fault::RequestLost => &mut self.server.request_lost,
            Fault::ReplyLate => &mut self.server.reply_late,
            Fault::Slow => &mut self.server.slow,
            Fault::Throttled => &mut self.server.throttles,
            Fault::Quota => &mut self.server.quota,
            Fault::Impatient => &mut self.clients.impatient,
            Fault::Person => &mut self.clients.person,
            Fault::Misconfigured => {
                self.server.outages = false;
                return;
            }
            _ => return,
        };
        *odds = Odds::NEVER;
    }

    fn arrange(&mut self, planted: Planted) {
        planted::arrange(self, planted);
    }

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn world(&self, seed: u64) -> Server {
        Server::new(seed)
    }

    fn book(_: Option<Planted>) -> Book {
        Book::default()
    }
}

fn rules(dice: &mut Stream) -> MailRules {
    MailRules {
        from: "no-reply@mail.example.com".into(),
        timeout: Duration::from_secs(*dice.pick(&[3, 10, 30])),
        patience: Patience {
            max_attempts: u32::try_from(dice.between(1, 4)).unwrap_or(3),
            waits: [2, 4].map(Duration::from_secs).to_vec(),
        },
        limits: Limits {
            rate_per_sec: *dice.pick(&[0.5, 1.0, 3.0, 12.0]),
            daily_quota: *dice.pick(&[0, 0, 60, 200]),
        },
        park: Duration::from_secs(*dice.pick(&[60, 3600])),
        probe_every: Duration::from_secs(*dice.pick(&[10, 60])),
        look_every: Duration::from_secs(1),
        keep: KEEP,
        sandbox: false,
    }
}

impl Nature {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            unreachable: dice.odds(Odds::percent(10)),
            greylists: dice.odds(Odds::percent(20)),
            refuses: dice.odds(Odds::percent(12)),
            reply_lost: dice.odds(Odds::percent(20)),
            request_lost: dice.odds(Odds::percent(10)),
            reply_late: dice.odds(Odds::percent(10)),
            slow: dice.odds(Odds::percent(20)),
            throttles: dice.odds(Odds::percent(6)),
            quota: dice.odds(Odds::percent(2)),
            outages: dice.hit(Odds::percent(40)),
        }
    }
}

impl Clients {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            think_max_ms: *dice.pick(&[100, 1000, 4000]),
            waiting_max: *dice.pick(&[4, 16]),
            impatient: dice.odds(Odds::percent(15)),
            batch_max: *dice.pick(&[3, 8, 20]),
            person: dice.odds(Odds::percent(15)),
            regrets: dice.odds(Odds::percent(40)),
        }
    }
}
