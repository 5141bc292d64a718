//! The world: a gateway and the network before it, with the true ledger of money.
//!
//! It outlives the processes of a run. A request that has left is an event in its calendar and takes
//! place when its time has come, whether or not anybody still waits for the answer. Nobody sees the
//! world but through a request or a question, so the calendar is brought up to date when one comes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::payment::remote::{Remote, RemoteState};
use tashika_providers::gateway::Listed;
use uuid::Uuid;

use super::account::{Account, Act, Said, State};
use super::dice::{Odds, Stream};
use super::log::{Log, Violation};
use super::office::Office;
use super::page::{self, Deed};
use super::plan::{Decision, Hearing, Plan, ReplyFate};
use super::post::{self, About, Post};
use super::swarm::Swarm;
use super::tally::Tally;

/// What a gateway makes of a request.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Said(Said),
    Working,
    /// 409: the same key is being worked on.
    InFlight,
    TurnedAway(Option<Duration>),
    /// 500, and nothing was done.
    Failed,
}

/// A request that has left, and when its caller will stop listening.
pub(crate) struct Call {
    pub request: u64,
    pub listens_for: Duration,
    pub hearing: Hearing,
    pub reply: ReplyFate,
}

struct Request {
    payment: Uuid,
    act: Act,
    plan: Plan,
    /// Its server error comes before anything was done.
    fails_before: bool,
    gone_at: Timestamp,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Arrives {
        request: u64,
        copy: bool,
    },
    Finishes {
        request: u64,
    },
    Bounces {
        payment: Uuid,
    },
    /// Somebody is on the page.
    Customer {
        payment: Uuid,
        deed: Deed,
    },
    MoneyComes {
        payment: Uuid,
        comes: bool,
    },
}

pub(crate) struct World {
    seed: u64,
    swarm: Swarm,
    calendar: BTreeMap<(Timestamp, u64), Event>,
    requests: BTreeMap<u64, Request>,
    pub(super) accounts: BTreeMap<Uuid, Account>,
    /// How many streams were drawn for a payment.
    draws: BTreeMap<Uuid, u32>,
    pub post: Post,
    /// Those who pay every month.
    pub offices: Vec<Office>,
    /// Payments to which something has happened after its caller had given up.
    happened: Vec<Uuid>,
    numbers: u64,
    calm: bool,
}

impl World {
    pub fn new(seed: u64, swarm: Swarm) -> Self {
        Self {
            offices: swarm.offices.clone(),
            seed,
            swarm,
            calendar: BTreeMap::new(),
            requests: BTreeMap::new(),
            accounts: BTreeMap::new(),
            draws: BTreeMap::new(),
            post: Post::default(),
            happened: Vec::new(),
            numbers: 0,
            calm: false,
        }
    }

    /// From now on nothing goes wrong any more. What is under way stays under way.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.post.calm = true;
    }

    pub fn account(&self, id: Uuid) -> Account {
        self.accounts.get(&id).cloned().unwrap_or_default()
    }

    pub fn known(&self) -> impl Iterator<Item = (&Uuid, &Account)> {
        self.accounts.iter()
    }

    /// Something has happened to a payment without our having asked for it.
    pub(super) fn happened(&mut self, payment: Uuid) {
        self.happened.push(payment);
    }

    /// Takes the payments to which something has happened late by `now`.
    pub fn take_happened(&mut self, now: Timestamp, log: &Log) -> Vec<Uuid> {
        self.flush(now, log);
        std::mem::take(&mut self.happened)
    }

    pub fn next_event(&self) -> Option<Timestamp> {
        self.calendar.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn is_quiet(&self) -> bool {
        self.calendar.is_empty()
    }

    pub(super) fn plan(&mut self, at: Timestamp, event: Event) {
        let number = self.number();
        self.calendar.insert((at, number), event);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A stream of its own for the next thing that happens to a payment.
    pub fn stream(&mut self, what: &str, id: Uuid) -> Stream {
        let nth = self.draws.entry(id).or_default();
        *nth += 1;
        Stream::new(self.seed, &format!("{what}/{id}/{nth}"))
    }

    /// A request leaves for the gateway.
    pub fn leave(&mut self, id: Uuid, amount: i64, act: Act, now: Timestamp, log: &Log) -> Call {
        self.flush(now, log);
        let mut faults = self.stream("fault", id);
        let mut latencies = self.stream("latency", id);
        let (calm, two_step) = (self.calm, self.swarm.nature.two_step);
        let plan = if calm {
            Plan::smooth(&mut latencies)
        } else {
            Plan::draw(&mut faults, &mut latencies, &self.swarm.network)
        };
        let fails_before = faults.hit(Odds::percent(50)) && plan.reply == ReplyFate::ServerError;
        let account = self.accounts.entry(id).or_default();
        account.amount = amount;
        if two_step {
            account.gateway_id.get_or_insert_with(|| format!("pi_{id}"));
        }
        if act == Act::Authorize {
            account.asked_to_authorize += 1;
            let (asked, undone) = (account.asked_to_authorize, account.known_undone);
            if asked > undone + 1 {
                let detail = format!("sent {asked} times, {undone} of them known to be undone");
                log.violate(now, Violation { rule: SENT_ONCE, key: id.to_string(), detail });
            }
        }
        let (listens_for, hearing) = plan.heard();
        let request = self.number();
        log.count(Tally::RequestSent);
        log.note(now, &format!("a node sends {} {id}: {}", act.key(), plan.story()));
        self.schedule(request, id, &plan, now, log);
        let (gone_at, reply) = (now.plus(listens_for), plan.reply);
        let left = Request { payment: id, act, plan, fails_before, gone_at, verdict: None };
        self.requests.insert(request, left);
        Call { request, listens_for, hearing, reply }
    }

    fn schedule(&mut self, request: u64, id: Uuid, plan: &Plan, now: Timestamp, log: &Log) {
        if plan.unreachable {
            log.count(Tally::Unreachable);
            return;
        }
        let first = plan.arrival.map(|after| (after, false));
        let copy = plan.copy.map(|(after, _)| (after, true));
        if first.is_none() {
            log.count(Tally::RequestLost);
        }
        for (after, copy) in [first, copy].into_iter().flatten() {
            let at = (now.plus(after), self.number());
            self.calendar.insert(at, Event::Arrives { request, copy });
            self.accounts.entry(id).or_default().travelling += 1;
        }
    }

    /// The caller of a request stops listening; what the gateway has answered by then.
    pub fn hear(&mut self, request: u64, now: Timestamp, log: &Log) -> Option<Verdict> {
        self.flush(now, log);
        self.requests.get(&request)?.verdict.clone()
    }

    /// The caller knows that its request to authorize did nothing.
    pub fn known_undone(&mut self, id: Uuid) {
        self.accounts.entry(id).or_default().known_undone += 1;
    }

    /// What the gateway says about a payment now.
    pub fn look(&mut self, id: Uuid, lie: bool, now: Timestamp, log: &Log) -> Remote {
        self.flush(now, log);
        let account = self.accounts.entry(id).or_default();
        if lie && self.swarm.nature.liar && account.state == State::Authorized {
            account.lied = true;
            log.count(Tally::StatusLied);
            return Remote::not_found();
        }
        let remote = account.remote(now);
        if remote.state == RemoteState::Pending {
            log.count(Tally::StatusSaysPending);
        }
        remote
    }

    /// The gateway's list of a window.
    pub fn list(
        &mut self,
        from: Timestamp,
        until: Timestamp,
        now: Timestamp,
        log: &Log,
    ) -> Vec<(Uuid, Listed)> {
        self.flush(now, log);
        let listed = |(id, account): (&Uuid, &Account)| {
            let created_at = account.created_at.filter(|at| *at >= from && *at < until)?;
            let remote = account.remote(now);
            let (payment_id, amount) = (Some(*id), account.amount);
            Some((*id, Listed { payment_id, remote, amount, currency: "JPY".into(), created_at }))
        };
        self.accounts.iter().filter_map(listed).collect()
    }

    /// A person gives the money back at the gateway itself.
    pub fn give_back(&mut self, id: Uuid, now: Timestamp, log: &Log) {
        self.flush(now, log);
        let nature = self.swarm.nature;
        let account = self.accounts.entry(id).or_default();
        match account.state {
            State::Authorized => {
                drop(account.apply(id, Act::Void { in_vain: 0 }, false, now, nature));
            }
            State::Captured => {
                let amount = account.held(now);
                let act = Act::Refund { id: Uuid::nil(), number: u32::MAX, amount };
                drop(account.apply(id, act, false, now, nature));
            }
            _ => {}
        }
    }

    /// The process is gone: nobody waits for any answer.
    pub fn process_ended(&mut self, now: Timestamp) {
        // What has been answered or given up before is of no more interest.
        let alive: BTreeSet<u64> = self.calendar.values().filter_map(Event::request).collect();
        self.requests.retain(|number, _| alive.contains(number));
        for request in self.requests.values_mut() {
            request.gone_at = request.gone_at.min(now);
        }
        self.post.process_ended();
    }

    /// Lets everything happen that is due.
    pub fn flush(&mut self, now: Timestamp, log: &Log) {
        while let Some(first) = self.calendar.first_entry() {
            let (at, _) = *first.key();
            if at > now {
                return;
            }
            match first.remove() {
                Event::Arrives { request, copy } => self.arrive(request, copy, at, log),
                Event::Finishes { request } => self.finish(request, at, log),
                Event::Bounces { payment } => {
                    log.count(Tally::RefundBounced);
                    let remote = self.account(payment).remote(at);
                    self.tell(payment, &remote, true, at);
                }
                Event::Customer { payment, deed } => self.goes_through(payment, deed, at, log),
                Event::MoneyComes { payment, comes } => self.money_comes(payment, comes, at, log),
            }
        }
    }

    fn arrive(&mut self, request: u64, copy: bool, at: Timestamp, log: &Log) {
        let Some(asked) = self.requests.get(&request) else { return };
        let (id, act, plan) = (asked.payment, asked.act, asked.plan.clone());
        let (fails_before, gone_at) = (asked.fails_before, asked.gone_at);
        let account = self.accounts.entry(id).or_default();
        account.travelling -= 1;
        if copy {
            log.count(Tally::Duplicated);
        }
        let turned_away = matches!(plan.decision, Decision::TurnAway(_));
        let decision = plan.copy.filter(|_| copy).map_or(plan.decision, |(_, again)| again);
        let verdict = if let Some(said) = account.recognise(&act.key(), at) {
            log.count(Tally::RepeatRecognised);
            Verdict::Said(said)
        } else if account.working.contains(&act.key()) {
            log.count(Tally::InFlight);
            Verdict::InFlight
        } else if turned_away && copy {
            // Whoever was turned away at the door is not let in by another.
            Verdict::TurnedAway(None)
        } else if fails_before && !copy {
            log.count(Tally::ServerErrorBeforeEffect);
            Verdict::Failed
        } else {
            self.decide(request, (id, act), decision, at, gone_at, log)
        };
        log.note(at, &format!("gateway, {} {id}: {}", act.key(), word(&verdict)));
        if !copy && let Some(asked) = self.requests.get_mut(&request) {
            asked.verdict = Some(verdict);
        }
    }

    fn decide(
        &mut self,
        request: u64,
        (id, act): (Uuid, Act),
        decision: Decision,
        at: Timestamp,
        gone_at: Timestamp,
        log: &Log,
    ) -> Verdict {
        match decision {
            Decision::TurnAway(retry_in) => {
                log.count(Tally::Busy);
                Verdict::TurnedAway(retry_in)
            }
            Decision::Work(span) if act != Act::Prepare && act != Act::Fence => {
                log.count(Tally::Working);
                let finished = (at.plus(span), self.number());
                self.calendar.insert(finished, Event::Finishes { request });
                self.accounts.entry(id).or_default().working.push(act.key());
                Verdict::Working
            }
            Decision::Refuse if !matches!(act, Act::Prepare | Act::Fence | Act::Close) => {
                log.count(Tally::Refused);
                Verdict::Said(self.execute(id, act, true, at, log))
            }
            _ => {
                if at > gone_at {
                    log.count(Tally::ExecutedLate);
                    self.happened.push(id);
                }
                Verdict::Said(self.execute(id, act, false, at, log))
            }
        }
    }

    fn finish(&mut self, request: u64, at: Timestamp, log: &Log) {
        let Some(asked) = self.requests.get(&request) else { return };
        let (id, act) = (asked.payment, asked.act);
        log.note(at, &format!("gateway finishes {} {id}", act.key()));
        let account = self.accounts.entry(id).or_default();
        account.working.retain(|key| *key != act.key());
        self.execute(id, act, false, at, log);
        self.happened.push(id);
    }

    fn execute(&mut self, id: Uuid, act: Act, refuse: bool, at: Timestamp, log: &Log) -> Said {
        let nature = self.swarm.nature;
        let account = self.accounts.entry(id).or_default();
        let picture = |account: &Account| (account.state, account.refunds.len());
        let before = picture(account);
        let closes = act == Act::Close && account.is_open(at);
        let said = account.apply(id, act, refuse, at, nature);
        let after = picture(account);
        if act == Act::Fence && account.lied && before == after {
            log.count(Tally::FenceLied);
            return said;
        }
        if closes {
            self.tell_of_page(id, at);
        }
        if before == after || after.0 == State::Prepared {
            return said;
        }
        log.count(Tally::Executed);
        let mut dice = self.stream("bounce", id);
        if after.1 > before.1 && dice.hit(self.swarm.post.bounces) && !self.calm {
            let fails_at = at.plus(dice.millis(1000, 600_000));
            self.accounts.entry(id).or_default().bounce(fails_at);
            let event = (fails_at, self.number());
            self.calendar.insert(event, Event::Bounces { payment: id });
        }
        let remote = self.account(id).remote(at);
        self.tell(id, &remote, false, at);
        said
    }

    /// The gateway tells by itself what has happened.
    fn tell(&mut self, id: Uuid, remote: &Remote, certain: bool, at: Timestamp) {
        self.write(id, post::told(id, remote), certain, at);
    }

    /// The same about a page.
    pub(super) fn tell_of_page(&mut self, id: Uuid, at: Timestamp) {
        if let Some(event) = page::told(id, &self.account(id), at) {
            self.write(id, event, false, at);
        }
    }

    fn write(&mut self, id: Uuid, event: (&'static str, Value), certain: bool, at: Timestamp) {
        let dice = self.stream("post", id);
        self.post.write((About::Payment(id), event), certain, at, dice, &self.swarm.post);
    }

    /// The gateway tells of what is not a payment, if it does not forget to.
    pub fn tell_of(
        &mut self,
        about: About,
        event: (&'static str, Value),
        at: Timestamp,
        dice: Stream,
    ) {
        self.post.write((about, event), false, at, dice, &self.swarm.post);
    }
}

impl Event {
    const fn request(&self) -> Option<u64> {
        match self {
            Self::Arrives { request, .. } | Self::Finishes { request } => Some(*request),
            Self::Bounces { .. } | Self::Customer { .. } | Self::MoneyComes { .. } => None,
        }
    }
}

/// The rule that an authorization is not sent again unless the one before is known to be undone.
const SENT_ONCE: &str = "an authorization is sent once";

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Said(Said::Payment(remote)) => remote.state.as_str().to_owned(),
        Verdict::Said(Said::Refused(reason)) => format!("refused {}", reason.code),
        Verdict::Said(Said::Opened(_)) => "opened".to_owned(),
        Verdict::Said(Said::Refund(refund)) => format!("refund {}", refund.amount),
        Verdict::Said(Said::Session(session)) => format!("page {}", session.state.as_str()),
        other => format!("{other:?}"),
    }
}
