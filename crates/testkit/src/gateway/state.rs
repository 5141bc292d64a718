//! What happens to a call from its arrival to its answer: the fault, the key, the execution.

use std::collections::BTreeMap;
use std::time::Duration;

use super::books::{Books, Call, Moment};
use super::fault::{Arrives, Fault, Meanwhile, Operation, Script};
use super::keys::Keys;
use super::refusal::{Answer, Refusal};
use super::{Heard, Landed};
use crate::gate::Gate;

/// The longest key that the gateway takes.
const LONGEST_KEY: usize = 255;

#[derive(Default)]
pub(crate) struct State {
    /// By how much the world's clock is ahead of the real one.
    pub ahead: Duration,
    pub books: Books,
    pub keys: Keys,
    pub script: Script,
    pub heard: Vec<Heard>,
    pub counts: BTreeMap<Operation, usize>,
    /// Late calls that wait for the test, with their request ids.
    pub waiting: Vec<(Call, String)>,
    /// Late calls that arrive by themselves and have not yet.
    pub on_their_way: usize,
    pub landed: Vec<Landed>,
    /// Requests that the gateway has no endpoint for.
    pub strays: Vec<String>,
    requests: u64,
}

/// How far a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Whole,
    /// Breaks down before it has done anything.
    BreakBefore,
    /// Does everything, and breaks down before it can say so.
    BreakAfter,
}

/// What the client of a call gets to see.
pub(crate) enum Next {
    Say(Answer),
    SayAfter(Duration, Answer),
    /// The call has its key, and is to be executed when the gate opens.
    RunAt(Gate),
    /// No answer. `arrives` is when the call is executed, if it is by itself.
    Lost {
        client: Meanwhile,
        arrives: Option<Duration>,
    },
}

impl Next {
    const fn lost(client: Meanwhile) -> Self {
        Self::Lost { client, arrives: None }
    }
}

impl State {
    pub fn next_request(&mut self) -> String {
        self.requests += 1;
        format!("req_{:016}", self.requests)
    }

    pub fn receive(&mut self, call: &Call, moment: &Moment) -> Next {
        let operation = call.operation();
        let payment_id = self.books.payment_of(call);
        let count = self.counts.entry(operation).or_default();
        *count += 1;
        let fault = self.script.next(operation, *count, payment_id.as_deref());
        self.heard.push(Heard { operation, payment_id, key: call.key.clone() });
        let mut execute = |run| self.execute(call, moment, run);
        match fault {
            Fault::Answer => Next::Say(execute(Run::Whole)),
            Fault::DropBefore => Next::lost(Meanwhile::Close),
            Fault::ExecuteThenSilence => {
                execute(Run::Whole);
                Next::lost(Meanwhile::Silence)
            }
            Fault::ExecuteThenClose => {
                execute(Run::Whole);
                Next::lost(Meanwhile::Close)
            }
            Fault::Late { arrives: Arrives::After(delay), meanwhile } => {
                self.on_their_way += 1;
                Next::Lost { client: meanwhile, arrives: Some(delay) }
            }
            Fault::Late { arrives: Arrives::WhenTold, meanwhile } => {
                self.waiting.push((call.clone(), moment.request_id.clone()));
                Next::lost(meanwhile)
            }
            Fault::AnswerAfter(delay) => Next::SayAfter(delay, execute(Run::Whole)),
            Fault::Slow(gate) => match self.begin(call, moment) {
                Some(instead) => Next::Say(instead),
                None => Next::RunAt(gate),
            },
            Fault::Fail { executed, should_retry } => {
                let run = if executed { Run::BreakAfter } else { Run::BreakBefore };
                Next::Say(execute(run).should_retry(should_retry))
            }
            Fault::Unavailable => Next::Say(Refusal::unavailable().into()),
            Fault::RateLimited { retry_after, should_retry } => {
                let answer = Answer::from(Refusal::rate_limited());
                Next::Say(answer.retry_after(retry_after).should_retry(should_retry))
            }
            Fault::LockTimeout { status, should_retry } => {
                let answer = Answer::from(Refusal::lock_timeout(status));
                Next::Say(answer.should_retry(should_retry))
            }
        }
    }

    /// One call, from its key to its answer.
    pub fn execute(&mut self, call: &Call, moment: &Moment, run: Run) -> Answer {
        self.begin(call, moment).unwrap_or_else(|| self.finish(call, moment, run))
    }

    /// Takes the call's key. An answer means that the call must not be executed.
    fn begin(&mut self, call: &Call, moment: &Moment) -> Option<Answer> {
        let key = call.key.as_deref()?;
        if key.len() > LONGEST_KEY {
            return Some(Refusal::invalid("Idempotency keys have at most 255 characters.").into());
        }
        self.keys.begin(key, &call.fingerprint(), &moment.request_id, moment.now)
    }

    /// Executes a call that has its key.
    pub fn finish(&mut self, call: &Call, moment: &Moment, run: Run) -> Answer {
        let broken = || Answer::from(Refusal::broken());
        let answer = match run {
            Run::Whole => self.books.execute(call, moment),
            Run::BreakBefore => broken(),
            Run::BreakAfter => {
                self.books.execute(call, moment);
                broken()
            }
        };
        // An object that is not there has a code; an endpoint that is not there has none.
        if answer.status == 404 && answer.body["error"]["code"].is_null() {
            self.strays.push(format!("{} {}", call.method, call.path));
        }
        if let Some(key) = call.key.as_deref() {
            self.keys.finish(key, &answer);
        }
        answer
    }
}
