//! The true ledger: every movement of money that the gateway made, in the order in which it made them.
//!
//! It is written where the money moves and nowhere else, so it does not depend on what was answered. A payment is what carries
//! one `payment_id` in its metadata, however many intents that took: two authorizations for one payment are a customer who
//! sees the amount twice, even if each intent by itself is in order.

use std::collections::{BTreeMap, HashSet};

use tashika_domain::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MovementKind {
    /// The amount is held on the customer's card.
    Authorized,
    /// The customer has paid.
    Captured,
    /// What was held is free again: a cancellation, an expiry, the rest of a partial capture.
    Voided,
    /// Given back, or on its way back.
    Refunded,
    /// A refund that came back to us.
    RefundFailed,
}

/// One movement of money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    pub at: Timestamp,
    pub kind: MovementKind,
    pub intent: String,
    /// From the intent's metadata.
    pub payment_id: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// The idempotency key of the request that caused it.
    pub key: Option<String>,
}

impl Movement {
    /// Whose money: the payment's, or the intent's if it belongs to no payment.
    fn subject(&self) -> &str {
        self.payment_id.as_deref().unwrap_or(&self.intent)
    }
}

/// What happened to one payment, over all its intents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The intents that were authorized, once for each time.
    pub authorized_by: Vec<String>,
    pub authorized: i64,
    pub captured: i64,
    pub voided: i64,
    /// Less what came back.
    pub refunded: i64,
}

impl Totals {
    /// What is still held on the card.
    #[must_use]
    pub const fn held(&self) -> i64 {
        self.authorized - self.captured - self.voided
    }

    /// What the customer has paid in the end.
    #[must_use]
    pub const fn charged(&self) -> i64 {
        self.captured - self.refunded
    }

    fn add(&mut self, movement: &Movement) {
        let amount = movement.amount;
        match movement.kind {
            MovementKind::Authorized => {
                self.authorized_by.push(movement.intent.clone());
                self.authorized += amount;
            }
            MovementKind::Captured => self.captured += amount,
            MovementKind::Voided => self.voided += amount,
            MovementKind::Refunded => self.refunded += amount,
            MovementKind::RefundFailed => self.refunded -= amount,
        }
    }
}

/// Something that must never happen to a customer's money. `payment` is the payment's id, or the intent's if it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    AuthorizedTwice { payment: String, intents: Vec<String> },
    CapturedTooMuch { payment: String, authorized: i64, captured: i64 },
    RefundedTooMuch { payment: String, captured: i64, refunded: i64 },
}

/// The ledger. Nothing is ever taken out of it.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Vec<Movement>);

impl Ledger {
    /// A ledger of movements that somebody made up: to see that violations are noticed.
    #[must_use]
    pub const fn of(movements: Vec<Movement>) -> Self {
        Self(movements)
    }

    pub(crate) fn record(&mut self, movement: Movement) {
        self.0.push(movement);
    }

    #[must_use]
    pub fn movements(&self) -> &[Movement] {
        &self.0
    }

    /// The movements of one payment.
    #[must_use]
    pub fn of_payment(&self, payment: &str) -> Vec<Movement> {
        self.0.iter().filter(|movement| movement.subject() == payment).cloned().collect()
    }

    /// By payment id, or by intent where there is no payment.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<String, Totals> {
        let mut totals = BTreeMap::<String, Totals>::new();
        for movement in &self.0 {
            totals.entry(movement.subject().to_owned()).or_default().add(movement);
        }
        totals
    }

    #[must_use]
    pub fn total(&self, payment: &str) -> Totals {
        self.totals().remove(payment).unwrap_or_default()
    }

    /// Everything that must never happen and did. Looks at every moment, not only at the end: a refund that was too much for
    /// an hour was too much.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let mut totals = BTreeMap::<&str, Totals>::new();
        let mut reported = HashSet::new();
        let mut violations = Vec::new();
        for movement in &self.0 {
            let payment = movement.subject();
            let total = totals.entry(payment).or_default();
            total.add(movement);
            for violation in broken(payment, total) {
                // Once for each payment and kind; the first one names the moment.
                if reported.insert((payment, std::mem::discriminant(&violation))) {
                    violations.push(violation);
                }
            }
        }
        violations
    }
}

fn broken(payment: &str, total: &Totals) -> Vec<Violation> {
    let payment = payment.to_owned();
    let mut found = Vec::new();
    if total.authorized_by.len() > 1 {
        let intents = total.authorized_by.clone();
        found.push(Violation::AuthorizedTwice { payment: payment.clone(), intents });
    }
    // What was released cannot be captured either.
    if total.held() < 0 {
        let (authorized, captured) = (total.authorized - total.voided, total.captured);
        found.push(Violation::CapturedTooMuch { payment: payment.clone(), authorized, captured });
    }
    if total.charged() < 0 {
        let (captured, refunded) = (total.captured, total.refunded);
        found.push(Violation::RefundedTooMuch { payment, captured, refunded });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn movement(kind: MovementKind, intent: &str, amount: i64) -> Movement {
        let at = Timestamp::from_micros(0);
        let payment_id = Some("p-1".into());
        Movement { at, kind, intent: intent.into(), payment_id, amount, key: None }
    }

    #[test]
    fn two_authorizations_of_one_payment_are_noticed_across_intents() {
        let ledger = Ledger::of(vec![
            movement(MovementKind::Authorized, "pi_1", 500),
            movement(MovementKind::Voided, "pi_1", 500),
            movement(MovementKind::Authorized, "pi_2", 500),
            movement(MovementKind::Captured, "pi_2", 500),
        ]);
        let intents = vec!["pi_1".to_owned(), "pi_2".to_owned()];
        let expected = Violation::AuthorizedTwice { payment: "p-1".into(), intents };
        assert_eq!(ledger.violations(), [expected]);
        assert_eq!(ledger.total("p-1").held(), 0);
        assert_eq!(ledger.total("p-1").charged(), 500);
    }

    #[test]
    fn too_much_is_noticed_even_if_it_is_put_right_later() {
        let ledger = Ledger::of(vec![
            movement(MovementKind::Authorized, "pi_1", 500),
            movement(MovementKind::Captured, "pi_1", 600),
            movement(MovementKind::Refunded, "pi_1", 700),
            movement(MovementKind::RefundFailed, "pi_1", 700),
        ]);
        let payment = || "p-1".to_owned();
        let expected = [
            Violation::CapturedTooMuch { payment: payment(), authorized: 500, captured: 600 },
            Violation::RefundedTooMuch { payment: payment(), captured: 600, refunded: 700 },
        ];
        assert_eq!(ledger.violations(), expected);
    }

    #[test]
    fn a_payment_that_goes_well_violates_nothing() {
        let ledger = Ledger::of(vec![
            movement(MovementKind::Authorized, "pi_1", 500),
            movement(MovementKind::Captured, "pi_1", 300),
            movement(MovementKind::Voided, "pi_1", 200),
            movement(MovementKind::Refunded, "pi_1", 300),
        ]);
        assert_eq!(ledger.violations(), []);
        assert_eq!(ledger.total("p-1").charged(), 0);
    }
}
