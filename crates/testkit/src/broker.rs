//! A broker that does what a script says, and keeps the true ledger of what it executed.
//!
//! Tests put it behind the engine, in the process ([`ScriptedBroker`] is a [`Broker`]) or behind a real socket
//! ([`server::BrokerServer`] speaks the wire protocol and takes its orders from the same script). What it *says* is the script's
//! affair; what it *did* is in its ledger, and that is what tests compare with what Tashika believes.
//!
//! Guarantees: every send takes exactly one act from the script, the ledger has one line per execution, and a broker that
//! takes keys executes at most once per key. Without a script it executes and says so.

pub mod server;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tashika_domain::order::{Execution, Fill, OrderRequest, broker_code};
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::broker::{
    ALREADY_PROCESSED, BoxFuture, Broker, Operation, Reply, SendOrder, Whereabouts, observed,
};
use tokio::sync::watch;

use crate::gate::{Gate, soon};

/// What the broker does with an order.
#[derive(Clone, Debug)]
pub enum Act {
    Execute,
    /// Executes, and the answer is lost.
    ExecuteThenLose,
    /// The order never arrives, and so there is no answer.
    LoseBefore,
    /// There is no answer, and the order is executed when the gate opens, however long that takes.
    Late(Gate),
    /// Says no.
    Refuse(Reason),
    /// Turns the order away at the door.
    Busy {
        retry_after: Option<Duration>,
    },
    /// Breaks down, before or after executing: a 500.
    Fail {
        executed: bool,
    },
    /// The adapter itself is broken.
    Panic(&'static str),
    /// Waits at the gate, then does the rest.
    Hang(Gate, Box<Act>),
    /// Blocks the caller's thread at the gate, then does the rest: the caller's whole process is suspended.
    Freeze(Gate, Box<Act>),
}

impl Act {
    /// Says no, for a reason that a broker has.
    #[must_use]
    pub fn refuse(code: &str) -> Self {
        Self::Refuse(Reason::new(code, "the broker does not like it"))
    }

    #[must_use]
    pub fn busy() -> Self {
        Self::Busy { retry_after: None }
    }

    /// Does this once the gate is open.
    #[must_use]
    pub fn behind(self, gate: &Gate) -> Self {
        Self::Hang(gate.clone(), Box::new(self))
    }
}

/// What the broker says when it is asked about an order.
#[derive(Clone, Debug)]
pub enum Account {
    /// What the ledger says.
    Truth,
    /// "I have it and am not done", whatever the ledger says.
    Working,
    /// "I looked at it and will not execute it".
    Rejected(Reason),
    /// Nothing.
    Lose,
    /// "Ask later".
    Busy,
}

/// What the broker was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Send(String),
    Status(String),
    Cancel(String),
}

/// Everything the broker has seen and done.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order in which it arrived; a send is here from the moment it begins.
    pub heard: Vec<Heard>,
    /// The true ledger: client order id and execution, in the order in which they happened.
    pub executions: Vec<(String, Execution)>,
    /// Sends that are under way now.
    pub in_flight: usize,
    /// The most sends that were ever under way at once.
    pub most_in_flight: usize,
}

impl Seen {
    #[must_use]
    pub fn sends(&self) -> usize {
        self.heard.iter().filter(|heard| matches!(heard, Heard::Send(_))).count()
    }
}

#[derive(Default)]
struct State {
    script: VecDeque<Act>,
    scripts: BTreeMap<String, VecDeque<Act>>,
    /// What happens when the script is over.
    usually: Option<Act>,
    accounts: VecDeque<Account>,
    usual_account: Option<Account>,
    seen: Seen,
}

/// The broker. Clones are the same broker.
#[derive(Clone)]
pub struct ScriptedBroker {
    takes_keys: bool,
    state: Arc<Mutex<State>>,
    /// Counts changes, so that somebody can wait for one.
    changes: Arc<watch::Sender<u64>>,
}

impl ScriptedBroker {
    /// A broker that recognises a repeat under the same key.
    #[must_use]
    pub fn with_keys() -> Self {
        Self { takes_keys: true, state: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }

    /// A broker to which a repeat is one more order.
    #[must_use]
    pub fn without_keys() -> Self {
        Self { takes_keys: false, ..Self::with_keys() }
    }

    /// Adds to the script of sends.
    pub fn script(&self, acts: impl IntoIterator<Item = Act>) {
        self.lock().script.extend(acts);
    }

    /// Adds to the script of one order; it goes before the common script.
    pub fn script_for(&self, id: &str, acts: impl IntoIterator<Item = Act>) {
        self.lock().scripts.entry(id.to_owned()).or_default().extend(acts);
    }

    /// What happens when the script is over, from now on.
    pub fn usually(&self, act: Act) {
        self.lock().usually = Some(act);
    }

    /// Adds to the script of accounts.
    pub fn account(&self, accounts: impl IntoIterator<Item = Account>) {
        self.lock().accounts.extend(accounts);
    }

    /// What it says when it is asked, from now on.
    pub fn usual_account(&self, account: Account) {
        self.lock().usual_account = Some(account);
    }

    #[must_use]
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// How often an order was really executed.
    #[must_use]
    pub fn executed(&self, id: &str) -> usize {
        self.lock().seen.executions.iter().filter(|(executed, _)| executed == id).count()
    }

    /// How often an order was sent.
    #[must_use]
    pub fn sent(&self, id: &str) -> usize {
        let sent = Heard::Send(id.to_owned());
        self.lock().seen.heard.iter().filter(|heard| **heard == sent).count()
    }

    /// How often an order was asked about.
    #[must_use]
    pub fn asked(&self, id: &str) -> usize {
        let asked = Heard::Status(id.to_owned());
        self.lock().seen.heard.iter().filter(|heard| **heard == asked).count()
    }

    /// Waits until the broker has seen something.
    pub async fn until(&self, what: &str, enough: impl Fn(&Seen) -> bool) {
        let mut changes = self.changes.subscribe();
        soon(what, changes.wait_for(|_| enough(&self.lock().seen)))
            .await
            .expect("the broker outlives whoever waits for it");
    }

    /// Waits until so many sends have begun.
    pub async fn until_sends(&self, count: usize) {
        self.until("a send", |seen| seen.sends() >= count).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Executes, or finds that it has: `key` is what the order is recognised by.
    fn execute(&self, order: &OrderRequest, key: Option<&str>, now: Timestamp) -> Execution {
        self.change(|state| {
            let executions = &mut state.seen.executions;
            let before = key.and_then(|key| executions.iter().find(|(id, _)| id == key));
            if let Some((_, execution)) = before {
                return execution.clone();
            }
            let execution = Execution {
                order_ref: format!("B-{}", executions.len() + 1),
                fills: vec![Fill { px: order.price.unwrap_or(100.0), qty: order.qty, ts: now }],
                cost: 0.5,
                warnings: Vec::new(),
            };
            executions.push((order.idempotency_key.clone(), execution.clone()));
            execution
        })
    }

    /// One send, from its arrival to what is said about it.
    async fn perform(&self, order: &OrderRequest, key: Option<&str>, now: Timestamp) -> Said {
        let id = &order.idempotency_key;
        let mut act = self.change(|state| {
            state.seen.heard.push(Heard::Send(id.clone()));
            state.seen.in_flight += 1;
            state.seen.most_in_flight = state.seen.most_in_flight.max(state.seen.in_flight);
            let own = state.scripts.get_mut(id).and_then(VecDeque::pop_front);
            let next = own.or_else(|| state.script.pop_front());
            next.or_else(|| state.usually.clone()).unwrap_or(Act::Execute)
        });
        let _under_way = UnderWay(self);
        loop {
            act = match act {
                Act::Hang(gate, then) => {
                    gate.passed().await;
                    *then
                }
                Act::Freeze(gate, then) => {
                    gate.block();
                    *then
                }
                Act::Execute => return Said::Executed(self.execute(order, key, now)),
                Act::ExecuteThenLose => {
                    self.execute(order, key, now);
                    return Said::Nothing;
                }
                Act::LoseBefore => return Said::Nothing,
                Act::Late(gate) => {
                    let (broker, order) = (self.clone(), order.clone());
                    let key = key.map(ToOwned::to_owned);
                    tokio::spawn(async move {
                        gate.passed().await;
                        broker.execute(&order, key.as_deref(), now);
                    });
                    return Said::Nothing;
                }
                Act::Refuse(reason) => return Said::Refused(reason),
                Act::Busy { retry_after } => return Said::Busy(retry_after),
                Act::Fail { executed } => {
                    if executed {
                        self.execute(order, key, now);
                    }
                    return Said::Failed;
                }
                Act::Panic(message) => panic!("{message}"),
            };
        }
    }

    fn answer(&self, id: &str) -> Answer {
        self.change(|state| {
            state.seen.heard.push(Heard::Status(id.to_owned()));
            let next = state.accounts.pop_front().or_else(|| state.usual_account.clone());
            match next.unwrap_or(Account::Truth) {
                Account::Truth => {
                    let found = state.seen.executions.iter().find(|(known, _)| known == id);
                    Answer::Told(found.map_or(Whereabouts::NotFound, |(_, execution)| {
                        Whereabouts::Executed(execution.clone())
                    }))
                }
                Account::Working => Answer::Told(Whereabouts::Working),
                Account::Rejected(reason) => Answer::Told(Whereabouts::Rejected(reason)),
                Account::Lose => Answer::Nothing,
                Account::Busy => Answer::Busy,
            }
        })
    }

    /// Whether an order could still be withdrawn: nothing here waits, so only if it was not executed.
    fn withdraw(&self, id: &str) -> bool {
        self.change(|state| state.seen.heard.push(Heard::Cancel(id.to_owned())));
        self.executed(id) == 0
    }
}

/// What the broker says about an order that was sent.
enum Said {
    Executed(Execution),
    Nothing,
    Refused(Reason),
    Busy(Option<Duration>),
    Failed,
}

/// What the broker says about an order that was asked about.
enum Answer {
    Told(Whereabouts),
    Nothing,
    Busy,
}

/// Ends with the send, also with one that is dropped half-way.
struct UnderWay<'a>(&'a ScriptedBroker);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.seen.in_flight -= 1);
    }
}

const NAME: &str = "scripted";

fn reply<T>(request: &str, outcome: Outcome<T>) -> Reply<T> {
    let said = match &outcome {
        Outcome::Done(_) => "done",
        Outcome::Refused(_) => "refused",
        Outcome::Busy { .. } => "busy",
        Outcome::Lost(_) => "no answer",
    };
    let exchange =
        Exchange { request: request.into(), reply: said.into(), reference: None, sent: true };
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

fn no_answer<T>() -> Outcome<T> {
    Outcome::Lost(Reason::new(broker_code::TIMEOUT, "no answer within 0 ms"))
}

fn turned_away<T>(retry_in: Option<Duration>) -> Outcome<T> {
    Outcome::Busy { reason: Reason::new(broker_code::RATE_LIMITED, "not now"), retry_in }
}

impl Broker for ScriptedBroker {
    fn name(&self) -> &str {
        NAME
    }

    fn takes_keys(&self) -> bool {
        self.takes_keys
    }

    fn send<'a>(&'a self, send: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>> {
        let key = self.takes_keys.then_some(send.order.idempotency_key.as_str());
        let work = async move {
            let said = self.perform(send.order, key, send.now).await;
            let outcome = match said {
                Said::Executed(execution) => Outcome::Done(execution),
                Said::Nothing => no_answer(),
                Said::Refused(reason) => Outcome::Refused(reason),
                Said::Busy(retry_after) => turned_away(retry_after),
                Said::Failed => Outcome::Lost(Reason::new(broker_code::SERVER_ERROR, "500")),
            };
            reply("send", outcome)
        };
        Box::pin(observed(NAME, Operation::Send, work))
    }

    fn status<'a>(&'a self, id: &'a str, _now: Timestamp) -> BoxFuture<'a, Reply<Whereabouts>> {
        let work = async move {
            let outcome = match self.answer(id) {
                Answer::Told(whereabouts) => Outcome::Done(whereabouts),
                Answer::Nothing => no_answer(),
                Answer::Busy => turned_away(None),
            };
            reply("status", outcome)
        };
        Box::pin(observed(NAME, Operation::Status, work))
    }

    fn cancel<'a>(&'a self, id: &'a str, _now: Timestamp) -> BoxFuture<'a, Reply<()>> {
        let work = async move {
            let outcome = if self.withdraw(id) {
                Outcome::Done(())
            } else {
                Outcome::Refused(Reason::new(ALREADY_PROCESSED, "too late"))
            };
            reply("cancel", outcome)
        };
        Box::pin(observed(NAME, Operation::Cancel, work))
    }

    fn heartbeat(&self, _now: Timestamp) -> BoxFuture<'_, Reply<()>> {
        let work = async { reply("heartbeat", Outcome::Done(())) };
        Box::pin(observed(NAME, Operation::Heartbeat, work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const KEY: &str = "key-0001";
    const BODY: &str =
        r#"{"instrument":"USDJPY","side":"BUY","qty":1,"idempotency_key":"key-0001"}"#;

    async fn send(broker: &ScriptedBroker) -> Outcome<Execution> {
        let order = OrderRequest::from_stored(BODY).unwrap();
        let send = SendOrder { order: &order, body: BODY, now: NOW, traceparent: None };
        broker.send(send).await.outcome
    }

    #[tokio::test]
    async fn the_ledger_tells_the_truth_whatever_was_said() {
        let broker = ScriptedBroker::without_keys();
        broker.script([
            Act::LoseBefore,
            Act::ExecuteThenLose,
            Act::Fail { executed: false },
            Act::Fail { executed: true },
            Act::refuse(broker_code::BAD_REQUEST),
            Act::busy(),
        ]);
        for executed in [0, 1, 1, 2, 2, 2, 3] {
            drop(send(&broker).await);
            assert_eq!(broker.executed(KEY), executed);
        }
        assert_eq!(broker.sent(KEY), 7);
    }

    #[tokio::test]
    async fn a_key_is_executed_once_by_a_broker_that_takes_keys() {
        let broker = ScriptedBroker::with_keys();
        broker.script([Act::ExecuteThenLose]);
        assert_eq!(send(&broker).await, no_answer());
        let (one, two) = (send(&broker).await, send(&broker).await);
        assert!(matches!(&one, Outcome::Done(execution) if execution.order_ref == "B-1"));
        assert_eq!(one, two);
        assert_eq!(broker.executed(KEY), 1);
    }

    #[tokio::test]
    async fn a_late_order_is_executed_after_the_answer_was_lost() {
        let (broker, gate) = (ScriptedBroker::without_keys(), Gate::closed());
        broker.script([Act::Late(gate.clone())]);
        assert_eq!(send(&broker).await, no_answer());
        let whereabouts = broker.status(KEY, NOW).await.outcome;
        assert_eq!(whereabouts, Outcome::Done(Whereabouts::NotFound));

        gate.open();

        broker.until("the execution", |seen| seen.executions.len() == 1).await;
    }

    #[tokio::test]
    async fn a_hanging_send_is_seen_and_counted_until_it_ends_or_is_dropped() {
        let (broker, gate) = (ScriptedBroker::with_keys(), Gate::closed());
        broker.script([Act::Execute.behind(&gate), Act::Execute.behind(&gate)]);
        let (one, two) = (broker.clone(), broker.clone());
        let finishing = tokio::spawn(async move { send(&one).await });
        let dropped = tokio::spawn(async move { send(&two).await });
        broker.until_sends(2).await;
        dropped.abort();
        broker.until("one less", |seen| seen.in_flight == 1).await;

        gate.open();

        assert!(matches!(finishing.await.unwrap(), Outcome::Done(_)));
        let seen = broker.seen();
        assert_eq!((seen.in_flight, seen.most_in_flight, seen.executions.len()), (0, 2, 1));
    }
}
