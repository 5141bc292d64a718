//! What a run is like: every probability, limit and size, drawn from the seed.

use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::render::RenderRules;
use tashika_domain::reservation::{LatePayment, ReservationRules};

use super::Planted;
use super::book::Book;
use super::dice::{Odds, Stream};
use super::invariants::Memory;
use super::mix::Fault;
use super::payments::swarm as bank;
use super::scenery::Scenario;
use super::studio::{self, Works};
use super::trouble::Process;

/// The nature of one run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    /// The gateway, its network, and our own process.
    pub bank: bank::Swarm,
    pub rules: ReservationRules,
    pub clients: Clients,
    pub studio: Studio,
    pub timers: LanePolicy,
    pub renders: LanePolicy,
}

/// What the customers are like.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub think_max_ms: u64,
    pub waiting_max: usize,
    /// Leaves before the answer is here.
    pub impatient: Odds,
    /// How many want the same slot at the same moment, at most.
    pub rivals: u64,
    /// Days that are booked; each has few slots.
    pub days: u64,
    /// Goes back from the payment page.
    pub turns_back: Odds,
    /// Pays when the hold may be over.
    pub slow: Odds,
    /// Pays with a method whose money comes later.
    pub later: Odds,
    /// Its money never comes.
    pub never: Odds,
    /// Whether a person looks at something, per step.
    pub person: Odds,
}

/// What the studio is like.
#[derive(Clone, Debug)]
pub(crate) struct Studio {
    /// Recognises a repeated submission.
    pub knows_keys: bool,
    pub unreachable: Odds,
    pub refused: Odds,
    pub lost: Odds,
    pub reply_lost: Odds,
    pub fails: Odds,
    /// Takes much longer than it may.
    pub hangs: Odds,
    /// Forgets what it has taken.
    pub forgets: Odds,
    pub silent: Odds,
    pub twice: Odds,
    /// Tells that it has begun, too.
    pub announces: Odds,
    pub look_lost: Odds,
}

impl Scenario for Swarm {
    type World = Works;
    type Book = Book;
    type Memory = Memory;

    fn draw(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "reservations");
        let mut bank = bank::Swarm::draw(seed);
        // What a gateway that lies does to money is for the world of payments.
        bank.nature.liar = false;
        bank.network.linger_ms = 120_000;
        bank.epilogue = false;
        bank.offices.clear();
        bank.rules.verify_interval = Duration::from_secs(*dice.pick(&[5, 20]));
        // Where it is away for days, nobody is on a page any more.
        bank.process.downtime_max_ms = *dice.pick(&[500, 20_000, 120_000]);
        // A run is short, and everything that matters in it is a commit or a call.
        let often = |odds: Odds, times: u64| Odds::millionth(odds.in_million() * times);
        bank.process.crash_at_commit = often(bank.process.crash_at_commit, 4);
        bank.process.crash_in_call = often(bank.process.crash_in_call, 4);
        bank.process.stall = often(bank.process.stall, 4);
        let lease = bank.policy.lease;
        let rules = rules(&mut dice);
        Self {
            clients: Clients::draw(&mut dice),
            studio: Studio::draw(&mut dice),
            timers: LanePolicy { lease, ..LanePolicy::default() },
            renders: LanePolicy {
                lease,
                max_attempts: 3,
                backoff: [1, 5].map(Duration::from_secs).to_vec(),
                ..LanePolicy::default()
            },
            bank,
            rules,
        }
    }

    fn without(&mut self, fault: Fault) {
        self.bank.without(fault);
        let studio = &mut self.studio;
        let odds = match fault {
            Fault::Unreachable => &mut studio.unreachable,
            Fault::Refused => &mut studio.refused,
            Fault::RequestLost => &mut studio.lost,
            Fault::ReplyLost => &mut studio.reply_lost,
            Fault::ServerError => &mut studio.fails,
            Fault::Slow => &mut studio.hangs,
            Fault::Lies => &mut studio.forgets,
            Fault::Webhooks => {
                (studio.silent, studio.announces) = (Odds::NEVER, Odds::NEVER);
                &mut studio.twice
            }
            Fault::StatusLost => &mut studio.look_lost,
            Fault::Impatient => &mut self.clients.impatient,
            Fault::Person => &mut self.clients.person,
            _ => return,
        };
        *odds = Odds::NEVER;
    }

    fn process(&mut self) -> &mut Process {
        &mut self.bank.process
    }

    fn world(&self, seed: u64) -> Works {
        Works::new(seed, self.studio.clone(), &self.rules.render)
    }

    fn book(_: Option<Planted>) -> Book {
        Book::default()
    }

    fn arrange(&mut self, planted: Planted) {
        let clients = &mut self.clients;
        match planted {
            Planted::ClosesUnasked => {
                self.bank.post.never = Odds::percent(100);
                self.bank.reconcile = Duration::from_secs(1_000_000);
            }
            Planted::CompleteIsPaid => {
                clients.later = Odds::percent(60);
                clients.never = Odds::percent(60);
            }
            Planted::RefundsAgain => {
                self.bank.nature.caps_refunds = false;
                clients.slow = Odds::NEVER;
                clients.later = Odds::NEVER;
            }
            Planted::ConfirmsExpired => {
                clients.slow = Odds::percent(90);
                self.rules.late_payment = LatePayment::Refund;
            }
            Planted::RevivesRender => {
                // The first attempt takes too long, nobody helps, and then it is done.
                self.studio.hangs = Odds::percent(100);
                self.studio.fails = Odds::NEVER;
                self.studio.silent = Odds::NEVER;
                self.rules.render.attempts = 1;
                self.rules.render.give_up = Duration::from_secs(20);
                clients.person = Odds::NEVER;
            }
            _ => {}
        }
    }
}

fn rules(dice: &mut Stream) -> ReservationRules {
    let seconds = |dice: &mut Stream, from: &[u64]| Duration::from_secs(*dice.pick(from));
    ReservationRules {
        hold: seconds(dice, &[5, 15, 40]),
        slots_per_day: i64::try_from(dice.between(1, 4)).unwrap_or(1),
        late_payment: *dice.pick(&LatePayment::ALL),
        render: RenderRules {
            provider: studio::NAME.to_owned(),
            attempts: *dice.pick(&[1, 3, 3]),
            pause: seconds(dice, &[1, 5]),
            poll: seconds(dice, &[1, 3]),
            attempt_limit: seconds(dice, &[10, 30]),
            doubt: seconds(dice, &[5, 30]),
            give_up: seconds(dice, &[20, 120]),
            ..RenderRules::default()
        },
        ..ReservationRules::default()
    }
}

impl Clients {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            think_max_ms: *dice.pick(&[400, 1500]),
            waiting_max: *dice.pick(&[8, 24]),
            impatient: dice.odds(Odds::percent(15)),
            rivals: *dice.pick(&[2, 5]),
            days: dice.between(2, 9),
            turns_back: dice.odds(Odds::percent(20)),
            slow: dice.odds(Odds::percent(50)),
            later: dice.odds(Odds::percent(50)),
            never: dice.odds(Odds::percent(40)),
            person: dice.odds(Odds::percent(40)),
        }
    }
}

impl Studio {
    fn draw(dice: &mut Stream) -> Self {
        Self {
            knows_keys: dice.hit(Odds::percent(50)),
            unreachable: dice.odds(Odds::percent(15)),
            refused: dice.odds(Odds::percent(15)),
            lost: dice.odds(Odds::percent(15)),
            reply_lost: dice.odds(Odds::percent(20)),
            fails: dice.odds(Odds::percent(70)),
            hangs: dice.odds(Odds::percent(25)),
            forgets: dice.odds(Odds::percent(5)),
            silent: dice.odds(Odds::percent(60)),
            twice: dice.odds(Odds::percent(30)),
            announces: dice.odds(Odds::percent(50)),
            look_lost: dice.odds(Odds::percent(20)),
        }
    }
}
