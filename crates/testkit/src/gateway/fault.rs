//! What goes wrong, and with which call.
//!
//! A fault is chosen when a call arrives: for the nth call of its kind, then from the script of its payment, then from the
//! script of its operation, then what is usual for the operation, then from the mix. Nothing chosen means an honest answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tashika_engine::Dice;

use crate::gate::Gate;

/// What the gateway can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Create,
    Confirm,
    Capture,
    Cancel,
    Refund,
    /// One payment intent, by its id.
    Retrieve,
    /// Payment intents, as a list.
    List,
    Search,
    /// Reading refunds: one, or those of an intent.
    Refunds,
    OpenCheckout,
    /// One checkout session, by its id.
    Checkout,
    ExpireCheckout,
    /// Everything else: customers, payment methods, charges, events.
    Other,
}

/// What the gateway does with one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// None.
    Answer,
    /// Hangs up, and executes nothing.
    DropBefore,
    /// Executes, and holds the connection without a word until the client gives up.
    ExecuteThenSilence,
    /// Executes, and hangs up.
    ExecuteThenClose,
    /// The call is still somewhere in the network. It arrives later, and is then executed like any other: its key counts and
    /// the state of things decides. Until then the gateway does not know it, not even its key.
    Late { arrives: Arrives, meanwhile: Meanwhile },
    /// Executes now, and answers so much later.
    AnswerAfter(Duration),
    /// The call has arrived and takes its time: its key is in use until the gate opens, then it is executed and answered.
    Slow(Gate),
    /// 500. A key remembers it, so a repeat hears it again.
    Fail { executed: bool, should_retry: Option<bool> },
    /// 503 from something in front of the gateway. Nothing is executed and nothing is remembered.
    Unavailable,
    /// 429.
    RateLimited { retry_after: Option<Duration>, should_retry: Option<bool> },
    /// `lock_timeout`: somebody else is at the object, and nothing was executed. Stripe says it with 429; 409 is for clients
    /// that should understand both.
    LockTimeout { status: u16, should_retry: Option<bool> },
}

/// When a late call arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrives {
    /// When the test calls `World::run_late`.
    WhenTold,
    /// After so much real time.
    After(Duration),
}

/// What the client of a late call sees meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing, for as long as it listens.
    Silence,
    /// The connection is closed.
    Close,
}

impl Fault {
    /// Arrives when the test says so; the client hears nothing.
    #[must_use]
    pub const fn late() -> Self {
        Self::Late { arrives: Arrives::WhenTold, meanwhile: Meanwhile::Silence }
    }

    /// Arrives after so much real time; the client sees the connection close.
    #[must_use]
    pub const fn late_by(delay: Duration) -> Self {
        Self::Late { arrives: Arrives::After(delay), meanwhile: Meanwhile::Close }
    }

    #[must_use]
    pub const fn fail_before() -> Self {
        Self::Fail { executed: false, should_retry: None }
    }

    #[must_use]
    pub const fn fail_after() -> Self {
        Self::Fail { executed: true, should_retry: None }
    }

    #[must_use]
    pub const fn rate_limited() -> Self {
        Self::RateLimited { retry_after: None, should_retry: None }
    }

    #[must_use]
    pub const fn lock_timeout() -> Self {
        Self::LockTimeout { status: 429, should_retry: None }
    }
}

/// Faults by chance, for load: each call draws one, or none.
#[derive(Clone, Debug)]
pub struct Mix {
    dice: Dice,
    parts: Vec<(u64, Fault)>,
    /// `None`: every operation.
    only: Option<Vec<Operation>>,
}

impl Mix {
    /// Nothing goes wrong yet. The same seed draws the same faults, call by call.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { dice: Dice::new(seed), parts: Vec::new(), only: None }
    }

    /// So many calls of a thousand meet this fault.
    #[must_use]
    pub fn with(mut self, per_mille: u64, fault: Fault) -> Self {
        self.parts.push((per_mille, fault));
        let total: u64 = self.parts.iter().map(|(share, _)| share).sum();
        assert!(total <= 1000, "the shares of a mix add up to {total} of 1000");
        self
    }

    /// Only calls of these operations draw.
    #[must_use]
    pub fn only(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.only = Some(operations.into_iter().collect());
        self
    }

    /// A bad day: one call in five meets a fault, and every kind of fault occurs.
    #[must_use]
    pub fn bad_day(seed: u64) -> Self {
        let soon = Duration::from_millis(200);
        Self::seeded(seed)
            .with(30, Fault::DropBefore)
            .with(30, Fault::ExecuteThenClose)
            .with(10, Fault::ExecuteThenSilence)
            .with(30, Fault::late_by(soon))
            .with(20, Fault::AnswerAfter(soon))
            .with(20, Fault::fail_before())
            .with(20, Fault::fail_after())
            .with(10, Fault::Unavailable)
            .with(20, Fault::rate_limited())
            .with(10, Fault::lock_timeout())
    }

    fn draw(&mut self, operation: Operation) -> Option<Fault> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&operation)) {
            return None;
        }
        let mut rolled = self.dice.below(1000);
        for (share, fault) in &self.parts {
            if rolled < *share {
                return Some(fault.clone());
            }
            rolled -= share;
        }
        None
    }
}

/// The faults that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub nth: BTreeMap<(Operation, usize), Fault>,
    pub of_payment: BTreeMap<(Operation, String), VecDeque<Fault>>,
    pub of_operation: BTreeMap<Operation, VecDeque<Fault>>,
    pub usual: BTreeMap<Operation, Fault>,
    pub mix: Option<Mix>,
}

impl Script {
    /// The fault of the `nth` call (the first is 1) of an operation.
    pub fn next(&mut self, operation: Operation, nth: usize, payment: Option<&str>) -> Fault {
        let scripted = self.nth.remove(&(operation, nth));
        let own = || {
            let key = (operation, payment?.to_owned());
            self.of_payment.get_mut(&key)?.pop_front()
        };
        let scripted = scripted.or_else(own);
        let scripted = scripted.or_else(|| self.of_operation.get_mut(&operation)?.pop_front());
        let scripted = scripted.or_else(|| self.usual.get(&operation).cloned());
        let drawn = scripted.or_else(|| self.mix.as_mut()?.draw(operation));
        drawn.unwrap_or(Fault::Answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_rule_wins() {
        let mut script = Script::default();
        script.nth.insert((Operation::Confirm, 2), Fault::DropBefore);
        script.usual.insert(Operation::Confirm, Fault::Unavailable);
        let own = (Operation::Confirm, "p-1".to_owned());
        script.of_payment.insert(own, [Fault::ExecuteThenClose].into());
        let mut next = |nth, payment| script.next(Operation::Confirm, nth, payment);
        assert!(matches!(next(1, None), Fault::Unavailable));
        assert!(matches!(next(2, Some("p-1")), Fault::DropBefore));
        assert!(matches!(next(3, Some("p-1")), Fault::ExecuteThenClose));
        assert!(matches!(next(4, Some("p-1")), Fault::Unavailable));
        assert!(matches!(script.next(Operation::Capture, 1, Some("p-1")), Fault::Answer));
    }

    #[test]
    fn a_mix_keeps_its_shares_and_repeats_itself() {
        let faults = |seed| -> String {
            let mut mix = Mix::bad_day(seed).only([Operation::Confirm]);
            assert!((0..100).all(|_| mix.draw(Operation::List).is_none()), "not asked to");
            (0..2000)
                .map(|_| if mix.draw(Operation::Confirm).is_some() { 'x' } else { '.' })
                .collect()
        };
        let first = faults(1);
        assert_eq!(first, faults(1));
        assert_ne!(first, faults(2));
        let met = first.chars().filter(|drawn| *drawn == 'x').count();
        assert!((300..500).contains(&met), "one in five of 2000 would be 400, and it was {met}");
    }
}
