//! A payment gateway that does what a script says, and keeps the true ledger of the money it moved.
//!
//! It stands in for Stripe: [`server::GatewayServer`] speaks the wire format of Stripe's first API on a loopback port, well
//! enough for the official packages, and takes its orders from a [`World`]. What it *answers* is the script's affair: it loses
//! answers, breaks down, executes minutes later. What it *did* is in its [`Ledger`], and that is what proves that nobody is
//! charged twice.
//!
//! Guarantees: one request is executed at a time and entirely; a key is executed once within 24 h of the world's clock; a late
//! request goes through the same code as a live one; the ledger has a line for every movement of money, and nothing else
//! writes into it. Deliveries of webhooks are not made here: [`World::events`] has what would be delivered.

mod books;
mod checkout;
mod event;
mod fault;
mod form;
mod intent;
mod keys;
mod ledger;
mod lists;
pub mod localstripe;
mod methods;
mod payments;
mod refunds;
mod refusal;
pub mod server;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tokio::sync::watch;

use self::books::{Call, Moment};
use self::form::Form;
use self::intent::Status;
use self::methods::Bank;
use self::refusal::Answer;
use self::state::{Next, Run, State};
use crate::gate::soon;

pub use self::event::sign;
pub use self::fault::{Arrives, Fault, Meanwhile, Mix, Operation};
pub use self::ledger::{Ledger, Movement, MovementKind, Totals, Violation};

/// A call that was heard, whatever became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub operation: Operation,
    pub payment_id: Option<String>,
    pub key: Option<String>,
}

/// A late call that has been executed in the end, and what its client would have been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    pub operation: Operation,
    pub payment_id: Option<String>,
    pub status: u16,
}

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// Counts changes, so that somebody can wait for one.
    changes: watch::Sender<u64>,
}

/// The gateway. Clones are the same gateway.
#[derive(Clone)]
pub struct World(Arc<Inner>);

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// The script: what goes wrong.
impl World {
    /// An honest gateway, on real time.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::System)
    }

    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, state: Mutex::default(), changes: watch::Sender::new(0) }))
    }

    /// Adds to the script of an operation: each call takes one fault.
    pub fn script(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        self.lock().script.of_operation.entry(operation).or_default().extend(faults);
    }

    /// Adds to the script of an operation on one payment; it goes before the common script.
    pub fn script_for(
        &self,
        payment_id: &str,
        operation: Operation,
        faults: impl IntoIterator<Item = Fault>,
    ) {
        let key = (operation, payment_id.to_owned());
        self.lock().script.of_payment.entry(key).or_default().extend(faults);
    }

    /// The fault of the nth call of an operation; the first is 1. It goes before every script.
    pub fn script_nth(&self, operation: Operation, nth: usize, fault: Fault) {
        self.lock().script.nth.insert((operation, nth), fault);
    }

    /// What happens when the scripts are over, from now on.
    pub fn usually(&self, operation: Operation, fault: Fault) {
        self.lock().script.usual.insert(operation, fault);
    }

    /// Faults by chance, for calls that no script is about. `None` ends it.
    pub fn mix(&self, mix: impl Into<Option<Mix>>) {
        self.lock().script.mix = mix.into();
    }

    /// Forgets every script: from now on each call is answered, and honestly.
    pub fn behave(&self) {
        self.lock().script = fault::Script::default();
    }

    /// Lets every late call arrive that waits for it, in the order in which they were sent.
    #[expect(clippy::must_use_candidate, reason = "what became of them is often of no interest")]
    pub fn run_late(&self) -> Vec<Landed> {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.iter().map(|(call, request_id)| self.land(call, request_id)).collect()
    }
}

/// What the test does in the place of customers, banks and time.
impl World {
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ahead = self.lock().ahead;
        self.0.clock.now().plus(ahead)
    }

    /// Moves the world's clock forward.
    pub fn advance(&self, by: Duration) {
        self.change(|state| state.ahead += by);
        let now = self.now();
        self.change(|state| {
            state.books.expire(now);
            state.books.expire_sessions(now);
        });
    }

    /// How far the search is behind, from now on.
    pub fn search_lags(&self, by: Duration) {
        self.lock().books.search_lag = by;
    }

    /// A customer with an id of the test's choice; the gateway knows no others than these and those it was asked to make.
    pub fn add_customer(&self, id: &str) {
        let now = self.now();
        self.change(|state| state.books.add_customer(id.to_owned(), &Form::default(), now));
    }

    /// The bank makes up its mind about an intent that waits for the customer (`requires_action`) or for the bank
    /// (`processing`).
    ///
    /// # Panics
    ///
    /// When the intent waits for neither.
    pub fn conclude(&self, intent: &str, approved: bool) {
        let moment = self.own_moment();
        let bank = if approved { Bank::Approves } else { methods::DECLINED };
        self.change(|state| {
            let status = state.books.intents.get(intent).map(|intent| intent.status);
            let waits = matches!(status, Some(Status::RequiresAction | Status::Processing));
            assert!(waits, "{intent} does not wait for anybody: {status:?}");
            // A decline is a refusal to whoever asked, and nobody did.
            state.books.answered(intent, bank, &moment).ok();
        });
    }

    /// The bank takes a pending refund, or sends back one that is pending or had succeeded.
    ///
    /// # Panics
    ///
    /// When there is no such refund, or it has failed already.
    pub fn settle_refund(&self, refund: &str, taken: bool) {
        let moment = self.own_moment();
        let settled = self.change(|state| state.books.settle_refund(refund, taken, &moment));
        assert!(settled.is_ok(), "{refund} cannot be settled: {settled:?}");
    }
}

/// What is true.
impl World {
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.lock().books.ledger.clone()
    }

    /// How often the payment was authorized, over all its intents.
    #[must_use]
    pub fn authorizations(&self, payment_id: &str) -> usize {
        self.ledger().total(payment_id).authorized_by.len()
    }

    #[must_use]
    pub fn captured(&self, payment_id: &str) -> i64 {
        self.ledger().total(payment_id).captured
    }

    #[must_use]
    pub fn refunded(&self, payment_id: &str) -> i64 {
        self.ledger().total(payment_id).refunded
    }

    #[must_use]
    pub fn held(&self, payment_id: &str) -> i64 {
        self.ledger().total(payment_id).held()
    }

    /// What the customer has paid in the end.
    #[must_use]
    pub fn charged(&self, payment_id: &str) -> i64 {
        self.ledger().total(payment_id).charged()
    }

    /// Everything that must never happen and did.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.ledger().violations()
    }

    /// An intent as the gateway would show it.
    #[must_use]
    pub fn intent(&self, id: &str) -> Option<Value> {
        self.lock().books.intents.get(id).map(intent::Intent::view)
    }

    /// The intents of a payment, oldest first.
    #[must_use]
    pub fn intents_of(&self, payment_id: &str) -> Vec<Value> {
        let state = self.lock();
        let intents = state.books.intents.values();
        intents
            .filter(|intent| intent.payment_id() == Some(payment_id))
            .map(intent::Intent::view)
            .collect()
    }

    /// The refunds of a payment, oldest first.
    #[must_use]
    pub fn refunds_of(&self, payment_id: &str) -> Vec<Value> {
        let books = &self.lock().books;
        let of_payment = |refund: &&refunds::Refund| {
            let intent = books.intents.get(&refund.intent);
            intent.and_then(intent::Intent::payment_id) == Some(payment_id)
        };
        books.refunds.values().filter(of_payment).map(refunds::Refund::view).collect()
    }

    /// Every event, oldest first, as it would be delivered. [`sign`] makes the signature.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.lock().books.events.iter().map(event::Event::view).collect()
    }

    /// The events after the first `seen`, for whoever delivers them as they come.
    #[must_use]
    pub fn events_from(&self, seen: usize) -> Vec<Value> {
        self.lock().books.events.iter().skip(seen).map(event::Event::view).collect()
    }

    /// Every call that carried a valid secret, in the order in which they arrived.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        self.lock().heard.clone()
    }

    /// How many calls of an operation were heard.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> usize {
        self.lock().counts.get(&operation).copied().unwrap_or_default()
    }

    /// How many calls of an operation on one payment were heard.
    #[must_use]
    pub fn calls_for(&self, payment_id: &str, operation: Operation) -> usize {
        let fits = |heard: &&Heard| {
            heard.operation == operation && heard.payment_id.as_deref() == Some(payment_id)
        };
        self.lock().heard.iter().filter(fits).count()
    }

    /// Requests that the gateway has no endpoint for: the client's mistakes, or ours.
    #[must_use]
    pub fn strays(&self) -> Vec<String> {
        self.lock().strays.clone()
    }

    /// Late calls that have been executed, by [`World::run_late`] or by themselves.
    #[must_use]
    pub fn landed(&self) -> Vec<Landed> {
        self.lock().landed.clone()
    }

    /// Waits until something is true of the gateway.
    pub async fn until(&self, what: &str, enough: impl Fn(&Self) -> bool) {
        let mut changes = self.0.changes.subscribe();
        soon(what, changes.wait_for(|_| enough(self)))
            .await
            .expect("the gateway outlives whoever waits for it");
    }

    /// Waits until so many calls of an operation have been heard.
    pub async fn until_calls(&self, operation: Operation, count: usize) {
        let what = format!("{count} × {operation:?}");
        self.until(&what, |world| world.calls(operation) >= count).await;
    }

    /// Waits until so many late calls have been executed.
    pub async fn until_landed(&self, count: usize) {
        self.until("a late call", |world| world.landed().len() >= count).await;
    }

    /// How many calls are still somewhere in the network, on their way here.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.lock().on_their_way
    }

    /// Lets every late call arrive, and waits for those that come by themselves.
    pub async fn until_nothing_is_late(&self) {
        self.run_late();
        self.until("the last late call", |world| world.lock().on_their_way == 0).await;
    }
}

/// What the server does to the world.
impl World {
    /// A call is here. Whatever happens to it at once has happened when this returns, so whoever has waited for the call can
    /// look at the ledger.
    pub(crate) fn receive(&self, call: &Call) -> (Next, String) {
        let request_id = self.next_request();
        let moment = self.moment(call, &request_id);
        let fault = self.change(|state| state.receive(call, &moment));
        if let Next::Lost { arrives: Some(delay), .. } = &fault {
            let (world, call, request_id) = (self.clone(), call.clone(), request_id.clone());
            let delay = *delay;
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                world.land(&call, &request_id);
                world.change(|state| state.on_their_way -= 1);
            });
        }
        (fault, request_id)
    }

    /// The id of a reply to a request that nobody looked at.
    pub(crate) fn next_request(&self) -> String {
        self.lock().next_request()
    }

    /// Executes a call that has its key and took its time.
    pub(crate) fn finish(&self, call: &Call, request_id: &str) -> Answer {
        let moment = self.moment(call, request_id);
        self.change(|state| state.finish(call, &moment, Run::Whole))
    }

    /// A late call arrives.
    fn land(&self, call: &Call, request_id: &str) -> Landed {
        let moment = self.moment(call, request_id);
        self.change(|state| {
            let status = state.execute(call, &moment, Run::Whole).status;
            let (operation, payment_id) = (call.operation(), state.books.payment_of(call));
            let landed = Landed { operation, payment_id, status };
            state.landed.push(landed.clone());
            landed
        })
    }

    fn moment(&self, call: &Call, request_id: &str) -> Moment {
        Moment { now: self.now(), key: call.key.clone(), request_id: request_id.to_owned() }
    }

    /// A moment of the test's making.
    fn own_moment(&self) -> Moment {
        Moment { now: self.now(), key: None, request_id: self.next_request() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.0.changes.send_modify(|count| *count += 1);
        result
    }
}
