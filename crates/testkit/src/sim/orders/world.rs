//! The world: a broker and the network before it, with the true ledger of what was executed.
//!
//! It outlives the processes of a run. A request that has left is an event in its calendar and takes
//! place when its time has come, whether or not anybody still waits for the answer. Nobody sees the
//! world but through a request or a question, so the calendar is brought up to date when one comes.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::order::{Execution, Fill, OrderRequest, broker_code};
use tashika_domain::outcome::Reason;

use super::dice::Stream;
use super::log::{Log, Violation};
use super::plan::{Decision, Hearing, Plan, ReplyFate};
use super::swarm::Swarm;
use super::tally::Tally;

/// What the broker did about one client order id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub executions: Vec<Executed>,
    pub rejected: Option<(Timestamp, Reason)>,
    /// Requests taken and not finished, with the moment they were taken.
    working: BTreeMap<(u64, bool), Timestamp>,
    /// Requests and copies of them that are still in the network.
    travelling: u32,
    /// How often the broker denied an order that it had executed, or that was on its way.
    pub lies: u32,
    requests: u32,
    questions: u32,
    /// Requests whose caller is waiting.
    calling: u32,
}

impl Truth {
    /// Nothing more can happen to it unless it is sent again.
    pub fn is_quiet(&self) -> bool {
        self.working.is_empty() && self.travelling == 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Executed {
    pub execution: Execution,
    /// Digest of the request that was executed.
    pub digest: String,
    /// The network delivered a request once more, and this came of it.
    pub copy: bool,
}

/// What a broker says when it is asked.
pub(crate) enum Sight {
    Executed(Execution),
    Working,
    Rejected(Reason),
    NotFound,
}

/// What a broker answers to a request.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Executed(Execution),
    Working,
    Refused(Reason),
    TurnedAway(Option<Duration>),
}

/// A request that has left, and when its caller will stop listening.
pub(crate) struct Call {
    pub request: u64,
    pub listens_for: Duration,
    pub hearing: Hearing,
    pub reply: ReplyFate,
}

struct Request {
    id: String,
    digest: String,
    qty: f64,
    plan: Plan,
    /// Who waits for the answer, or did until `gone_at`.
    node: usize,
    is_waited_for: bool,
    gone_at: Timestamp,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { request: u64, copy: bool },
    Finishes { request: u64, copy: bool },
}

pub(crate) struct World {
    seed: u64,
    swarm: Swarm,
    calendar: BTreeMap<(Timestamp, u64), Event>,
    requests: BTreeMap<u64, Request>,
    truths: BTreeMap<String, Truth>,
    numbers: u64,
    calm: bool,
}

impl World {
    pub fn new(seed: u64, swarm: Swarm) -> Self {
        Self {
            seed,
            swarm,
            calendar: BTreeMap::new(),
            requests: BTreeMap::new(),
            truths: BTreeMap::new(),
            numbers: 0,
            calm: false,
        }
    }

    /// From now on nothing goes wrong any more. What is under way stays under way.
    pub fn calm_down(&mut self) {
        self.calm = true;
    }

    pub fn truth(&self, id: &str) -> Truth {
        self.truths.get(id).cloned().unwrap_or_default()
    }

    pub fn known_ids(&self) -> impl Iterator<Item = &String> {
        self.truths.iter().filter(|(_, truth)| !truth.executions.is_empty()).map(|(id, _)| id)
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn stream(&self, what: &str, id: &str, nth: u32) -> Stream {
        Stream::new(self.seed, &format!("{what}/{id}/{nth}"))
    }

    /// A request leaves for the broker.
    pub fn leave(
        &mut self,
        order: &OrderRequest,
        digest: String,
        node: usize,
        now: Timestamp,
        log: &Log,
    ) -> Call {
        self.flush(now, log);
        let id = order.idempotency_key.clone();
        let truth = self.truths.entry(id.clone()).or_default();
        truth.requests += 1;
        truth.calling += 1;
        let nth = truth.requests;
        if truth.calling > 1 {
            let detail = format!("request {nth} left while another one was waited for");
            log.violate(now, Violation { rule: ONE_AT_A_TIME, key: id.clone(), detail });
        }
        let mut latencies = self.stream("latency", &id, nth);
        let plan = if self.calm {
            Plan::smooth(&mut latencies)
        } else {
            Plan::draw(&mut self.stream("fault", &id, nth), &mut latencies, &self.swarm.network)
        };
        let (listens_for, hearing) = plan.heard();
        let request = self.number();
        log.count(Tally::RequestSent);
        log.note(now, &format!("node {node} sends {id}, request {nth}: {}", plan.story()));
        self.schedule(request, &id, &plan, now, log);
        let (gone_at, reply, qty) = (now.plus(listens_for), plan.reply, order.qty);
        let left =
            Request { id, digest, qty, plan, node, is_waited_for: true, gone_at, verdict: None };
        self.requests.insert(request, left);
        Call { request, listens_for, hearing, reply }
    }

    fn schedule(&mut self, request: u64, id: &str, plan: &Plan, now: Timestamp, log: &Log) {
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
            if let Some(truth) = self.truths.get_mut(id) {
                truth.travelling += 1;
            }
        }
    }

    /// The caller of a request stops listening; what the broker has answered by then.
    pub fn hear(&mut self, request: u64, now: Timestamp, log: &Log) -> Option<Verdict> {
        self.flush(now, log);
        let asked = self.requests.get_mut(&request)?;
        asked.is_waited_for = false;
        if let Some(truth) = self.truths.get_mut(&asked.id) {
            truth.calling = truth.calling.saturating_sub(1);
        }
        asked.verdict.clone()
    }

    /// A question about an order: how many there have been, for the dice.
    pub fn question(&mut self, id: &str) -> (Stream, Stream) {
        let truth = self.truths.entry(id.to_owned()).or_default();
        truth.questions += 1;
        let nth = truth.questions;
        (self.stream("status fault", id, nth), self.stream("status latency", id, nth))
    }

    /// What the broker says about an order now; it may look at an old copy of its books.
    pub fn look(&mut self, id: &str, now: Timestamp, log: &Log) -> Sight {
        self.flush(now, log);
        let lag = self.swarm.status_lag.filter(|_| !self.calm).unwrap_or_default();
        let books = now.minus(lag);
        let truth = self.truths.entry(id.to_owned()).or_default();
        let executed = truth.executions.iter().find(|done| done.at() <= books);
        if let Some(done) = executed {
            return Sight::Executed(done.execution.clone());
        }
        if truth.working.values().any(|since| *since <= books) {
            return Sight::Working;
        }
        if !truth.executions.is_empty() || !truth.is_quiet() {
            truth.lies += 1;
            log.count(Tally::StatusLied);
            if self.swarm.status_lag.is_none() {
                let detail = "an answer about a request that was still on its way".to_owned();
                log.violate(now, Violation { rule: TOO_EARLY, key: id.to_owned(), detail });
            }
        }
        match &truth.rejected {
            Some((at, reason)) if *at <= books => Sight::Rejected(reason.clone()),
            _ => Sight::NotFound,
        }
    }

    /// A node is gone: nobody waits for the answers to its requests, not even for one that was to come at this moment.
    pub fn node_ended(&mut self, node: usize, now: Timestamp) {
        for request in self.requests.values_mut().filter(|r| r.node == node && r.is_waited_for) {
            request.is_waited_for = false;
            request.gone_at = request.gone_at.min(now);
            if let Some(truth) = self.truths.get_mut(&request.id) {
                truth.calling = truth.calling.saturating_sub(1);
            }
        }
    }

    /// The process is gone: nobody waits for any answer.
    pub fn process_ended(&mut self, now: Timestamp) {
        for request in self.requests.values_mut() {
            request.is_waited_for = false;
            request.gone_at = request.gone_at.min(now);
        }
        for truth in self.truths.values_mut() {
            truth.calling = 0;
        }
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
                Event::Finishes { request, copy } => self.finish(request, copy, at, log),
            }
        }
    }

    fn arrive(&mut self, request: u64, copy: bool, at: Timestamp, log: &Log) {
        let Some(asked) = self.requests.get(&request) else { return };
        let (id, plan) = (asked.id.clone(), asked.plan.clone());
        let honours_keys = self.swarm.honours_keys;
        let truth = self.truths.entry(id.clone()).or_default();
        truth.travelling -= 1;
        if copy {
            log.count(Tally::Duplicated);
        }
        let known = if honours_keys { recognise(truth) } else { None };
        let verdict = if let Some(verdict) = known {
            log.count(Tally::RepeatRecognised);
            log.note(at, &format!("broker recognises a repeat of {id}"));
            verdict
        } else {
            let decision = plan.copy.filter(|_| copy).map_or(plan.decision, |(_, again)| again);
            self.decide(request, decision, copy, at, log)
        };
        if !copy && let Some(asked) = self.requests.get_mut(&request) {
            asked.verdict = Some(verdict);
        }
    }

    /// What the broker does with a request that it believes to be new.
    fn decide(
        &mut self,
        request: u64,
        decision: Decision,
        copy: bool,
        at: Timestamp,
        log: &Log,
    ) -> Verdict {
        let Some(asked) = self.requests.get(&request) else { return Verdict::TurnedAway(None) };
        let id = asked.id.clone();
        match decision {
            Decision::Execute => Verdict::Executed(self.execute(request, copy, at, log)),
            Decision::Work(span) => {
                log.count(Tally::Working);
                log.note(at, &format!("broker works on {id} for {} ms", span.as_millis()));
                let finished = (at.plus(span), self.number());
                self.calendar.insert(finished, Event::Finishes { request, copy });
                self.truths.entry(id).or_default().working.insert((request, copy), at);
                Verdict::Working
            }
            Decision::Refuse => {
                log.count(Tally::Refused);
                log.note(at, &format!("broker refuses {id}"));
                let reason =
                    Reason::new(broker_code::BAD_REQUEST, "against the rules of the market");
                self.truths.entry(id).or_default().rejected = Some((at, reason.clone()));
                Verdict::Refused(reason)
            }
            Decision::TurnAway(retry_in) => {
                log.count(Tally::Busy);
                log.note(at, &format!("broker turns {id} away"));
                Verdict::TurnedAway(retry_in)
            }
        }
    }

    fn finish(&mut self, request: u64, copy: bool, at: Timestamp, log: &Log) {
        self.execute(request, copy, at, log);
        if let Some(asked) = self.requests.get(&request)
            && let Some(truth) = self.truths.get_mut(&asked.id)
        {
            truth.working.remove(&(request, copy));
        }
    }

    fn execute(&mut self, request: u64, copy: bool, at: Timestamp, log: &Log) -> Execution {
        let number = self.number();
        let mut dice = Stream::new(self.seed, &format!("fill/{number}"));
        let Some(asked) = self.requests.get(&request) else { return empty(number) };
        let cents = u32::try_from(dice.between(5_000, 20_000)).unwrap_or(u32::MAX);
        let execution = Execution {
            order_ref: format!("x-{number:06}"),
            fills: vec![Fill { px: f64::from(cents) / 100.0, qty: asked.qty, ts: at }],
            cost: f64::from(cents % 100) / 100.0,
            warnings: Vec::new(),
        };
        let (id, digest) = (asked.id.clone(), asked.digest.clone());
        log.count(Tally::Executed);
        let late = at > asked.gone_at;
        if late {
            log.count(Tally::ExecutedLate);
        }
        let word = if late { "late " } else { "" };
        log.note(at, &format!("broker executes {id} {word}as {}", execution.order_ref));
        let done = Executed { execution: execution.clone(), digest, copy };
        self.truths.entry(id).or_default().executions.push(done);
        execution
    }
}

impl Executed {
    fn at(&self) -> Timestamp {
        self.execution.fills.first().map_or(Timestamp::from_micros(0), |fill| fill.ts)
    }
}

fn empty(number: u64) -> Execution {
    let order_ref = format!("x-{number:06}");
    Execution { order_ref, fills: Vec::new(), cost: 0.0, warnings: Vec::new() }
}

/// What a broker that honours keys answers to a key that it knows.
fn recognise(truth: &Truth) -> Option<Verdict> {
    if let Some(done) = truth.executions.first() {
        return Some(Verdict::Executed(done.execution.clone()));
    }
    if !truth.working.is_empty() {
        return Some(Verdict::Working);
    }
    truth.rejected.as_ref().map(|(_, reason)| Verdict::Refused(reason.clone()))
}

/// The rule that an order has at most one worker.
const ONE_AT_A_TIME: &str = "one request at a time";
/// The rule that nobody asks before the answer can be trusted.
const TOO_EARLY: &str = "asked too early";

#[cfg(test)]
mod tests {
    use tashika_domain::order::Side;

    use super::*;
    use crate::sim::scene::Scenario as _;
    use crate::sim::stage::EPOCH;

    #[test]
    fn nobody_waits_for_the_answers_of_a_node_that_is_gone() {
        let log = Log::new(EPOCH, false);
        let mut world = World::new(1, Swarm::draw(1));
        let order = OrderRequest {
            order_id: None,
            instrument: "7203.T".into(),
            side: Side::Buy,
            qty: 100.0,
            price: None,
            time_in_force: "DAY".into(),
            trace_id: None,
            requested_at: None,
            idempotency_key: "o-1".into(),
        };
        let call = world.leave(&order, "digest".into(), 2, EPOCH, &log);
        // At the very moment at which its answer would have come.
        let end = EPOCH.plus(call.listens_for);
        world.node_ended(2, end);
        world.leave(&order, "digest".into(), 1, end, &log);
        assert!(!log.is_violated());
        world.leave(&order, "digest".into(), 0, end, &log);
        assert!(log.is_violated(), "one of them is still waited for");
    }
}
