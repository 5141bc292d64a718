//! Payments that never guess.
//!
//! A [`Payment`] is read whole, with its refunds; a decision takes it and what has become known, and
//! returns [`Changes`](crate::Changes) that the store commits only if nobody else has moved the payment meanwhile
//! (`version`). The decisions:
//!
//! - [`ask`]: what callers want: a new payment, a capture, a void, a refund.
//! - [`checkout`]: a payment that the customer makes on a page of the gateway.
//! - [`conclude`]: what an attempt at the gateway, or a question to it, has brought.
//! - [`hear`]: what the gateway says without having been asked: webhooks, reconciliation.
//! - [`resolve`]: what a person has decided about a case.
//!
//! They guarantee: money is asked for once per operation and never again while it is in doubt; a
//! payment fails only when it is certain that it did not and will not happen; whatever nobody can
//! find out ends as a case. An authorization in doubt is never repeated, only asked about and fenced
//! off; a capture, void or refund in doubt may be repeated under its own key after the gateway has
//! said that it has not happened.

mod adopt;
pub mod ask;
pub mod checkout;
pub mod choices;
pub mod conclude;
mod draft;
pub mod hear;
pub mod remote;
pub mod request;
pub mod resolve;
pub mod session;
pub mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

use std::time::Duration;

use uuid::Uuid;

pub use adopt::still_taken;
pub use checkout::Checkout;
pub use draft::Decided;
pub use status::Status;

use crate::effect::EffectId;
use crate::mutant::{self, Mutant};
use crate::outcome::Reason;
use crate::time::Timestamp;

/// The effect kind of operations at the gateway, and the subject type of cases.
pub const KIND: &str = "payment";
/// The timer that releases an authorization nobody has captured.
pub const EXPIRY_KIND: &str = "payment_expiry";
/// The ledger scope of new payments.
pub const SCOPE: &str = "payment";
/// The case that is opened when nobody can say what became of an operation.
pub const CASE_UNKNOWN: &str = "payment_unknown";
/// The case that is opened when the gateway's books and ours differ.
pub const CASE_DIFFERENCE: &str = "payment_difference";
/// Longest failure reason of a payment, in characters.
pub const FAILURE_MAX: usize = 500;
/// The alert about a verification that has ended without an answer.
pub const ALERT_VERIFICATION: &str = "payment_verification_failed";

/// Whether the amount is taken at once or on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    Manual,
    Automatic,
}

impl CaptureMode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Automatic => "automatic",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Manual, Self::Automatic].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// What a caller asks to be paid. Valid by construction: see [`request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentRequest {
    pub booking_id: String,
    pub user_id: String,
    /// Minor units, more than zero.
    pub amount: i64,
    /// ISO 4217, upper case.
    pub currency: String,
    /// The gateway's token. Never a card number.
    pub payment_method: String,
    pub customer: Option<String>,
    pub description: Option<String>,
    pub capture: CaptureMode,
}

/// A payment, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Payment {
    pub id: Uuid,
    /// Grows with every change; a change expects the version that it has read.
    pub version: i64,
    pub request: PaymentRequest,
    pub key: RequestKey,
    /// Which gateway it went to.
    pub gateway: String,
    pub status: Status,
    pub captured_amount: i64,
    pub refunded_amount: i64,
    pub gateway_transaction_id: Option<String>,
    /// Why it failed, or why the last operation was refused.
    pub failure: Option<Reason>,
    /// What is under way at the gateway.
    pub operation: Option<Operation>,
    /// The page on which the customer pays, if this is such a payment.
    pub checkout: Option<Checkout>,
    /// Captures and voids that ended without having happened. The next one gets a key of its own at the
    /// gateway.
    pub in_vain: u32,
    pub refunds: Vec<Refund>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub traceparent: Option<String>,
}

/// The idempotency key of a request, and the digest of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    pub key: String,
    pub digest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    Authorize,
    Capture,
    Void,
    /// Gives back what was taken after the payment had been declared failed.
    Undo,
    /// The customer pays on a page of the gateway: it is opened, waited for and closed.
    Checkout,
}

impl OperationKind {
    pub const ALL: [Self; 5] =
        [Self::Authorize, Self::Capture, Self::Void, Self::Undo, Self::Checkout];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Capture => "capture",
            Self::Void => "void",
            Self::Undo => "undo",
            Self::Checkout => "checkout",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Something that was asked of the gateway and has not ended. At most one per payment; refunds are
/// rows of their own and may run side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub kind: OperationKind,
    pub amount: i64,
    /// The effect that carries it out.
    pub effect: EffectId,
    /// Who asked. `None`: Tashika itself.
    pub key: Option<RequestKey>,
    pub asked_at: Timestamp,
    pub doubt: Option<Doubt>,
}

/// An operation whose outcome is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubt {
    pub reason: Reason,
    /// When the request left, as far as it did.
    pub sent_at: Timestamp,
    /// How often the gateway was asked since.
    pub checks: u32,
    pub last_check_at: Option<Timestamp>,
    /// A fence may be on its way. Until it has been answered, an authorization that the gateway shows
    /// is not to be relied on: the fence may still release it.
    pub fenced: bool,
    /// Software has stopped asking: a person decides.
    pub given_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefundStatus {
    Pending,
    Succeeded,
    Failed,
}

impl RefundStatus {
    pub const ALL: [Self; 3] = [Self::Pending, Self::Succeeded, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// One refund. What is pending is reserved: it counts against what is left.
#[derive(Clone, Debug, PartialEq)]
pub struct Refund {
    pub id: Uuid,
    pub payment_id: Uuid,
    /// The first, second, … of its payment. The key at the gateway is made of it.
    pub number: u32,
    pub amount: i64,
    pub reason: Option<String>,
    pub status: RefundStatus,
    pub gateway_refund_id: Option<String>,
    pub failure: Option<Reason>,
    pub effect: EffectId,
    pub key: RequestKey,
    pub doubt: Option<Doubt>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What an effect of a payment is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Operation(OperationKind),
    /// By its place in `refunds`.
    Refund(usize),
}

impl Payment {
    /// What an effect is about, if that is still under way.
    #[must_use]
    pub fn subject_of(&self, effect: EffectId) -> Option<Subject> {
        if let Some(operation) = self.operation.as_ref().filter(|o| o.effect == effect) {
            return Some(Subject::Operation(operation.kind));
        }
        let pending = |r: &Refund| r.effect == effect && r.status == RefundStatus::Pending;
        self.refunds.iter().position(pending).map(Subject::Refund)
    }

    #[must_use]
    pub fn doubt_of(&self, subject: Subject) -> Option<&Doubt> {
        match subject {
            Subject::Operation(_) => self.operation.as_ref()?.doubt.as_ref(),
            Subject::Refund(index) => self.refunds.get(index)?.doubt.as_ref(),
        }
    }

    /// Whether a fence may be on its way.
    #[must_use]
    pub fn is_fenced(&self, subject: Subject) -> bool {
        self.doubt_of(subject).is_some_and(|doubt| doubt.fenced)
    }

    /// The doubts about everything under way, with what they are about.
    pub fn doubts(&self) -> impl Iterator<Item = (Subject, &Doubt)> {
        let operation = self
            .operation
            .iter()
            .filter_map(|o| Some((Subject::Operation(o.kind), o.doubt.as_ref()?)));
        let refunds = self
            .refunds
            .iter()
            .enumerate()
            .filter(|(_, r)| r.status == RefundStatus::Pending)
            .filter_map(|(index, r)| Some((Subject::Refund(index), r.doubt.as_ref()?)));
        operation.chain(refunds)
    }

    /// Something is not known, and the gateway is being asked.
    #[must_use]
    pub fn pending_verification(&self) -> bool {
        self.doubts().any(|(_, doubt)| !doubt.given_up)
    }

    /// Something is not known, and a person has to decide.
    #[must_use]
    pub fn verification_failed(&self) -> bool {
        self.doubts().any(|(_, doubt)| doubt.given_up)
    }

    /// Reserved by refunds that have not ended.
    #[must_use]
    pub fn refunding_amount(&self) -> i64 {
        let pending = self.refunds.iter().filter(|r| r.status == RefundStatus::Pending);
        pending.map(|r| r.amount).sum()
    }

    /// What can still be given back.
    #[must_use]
    pub fn refundable(&self) -> i64 {
        let reserved =
            if mutant::on(Mutant::RefundNotReserved) { 0 } else { self.refunding_amount() };
        self.captured_amount - self.refunded_amount - reserved
    }

    /// Nothing is under way.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.operation.is_none() && self.refunds.iter().all(|r| r.status != RefundStatus::Pending)
    }
}

/// The rules of payments, from configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentRules {
    /// Between two questions about an outcome (`PAYMENT_VERIFY_INTERVAL_SEC`).
    pub verify_interval: Duration,
    /// How often is asked before a person is (`PAYMENT_VERIFY_MAX_ATTEMPTS`).
    pub verify_max: u32,
    /// Waits before an operation that was not executed is tried again; one more failure ends it.
    pub retry_backoff: Vec<Duration>,
    /// When an authorization that nobody captured is released.
    pub authorization_lifetime: Duration,
    /// For how long a key is remembered once its request has ended.
    pub remember: Duration,
    /// For how long a settled effect is kept.
    pub keep: Duration,
    /// Where events go: one effect each.
    pub sinks: Vec<String>,
}

impl Default for PaymentRules {
    fn default() -> Self {
        Self {
            verify_interval: Duration::from_secs(300),
            verify_max: 10,
            retry_backoff: [1, 2, 5, 10, 30].map(Duration::from_secs).to_vec(),
            authorization_lifetime: Duration::from_secs(7 * 24 * 3600),
            remember: Duration::from_secs(24 * 3600),
            keep: Duration::from_secs(48 * 3600),
            sinks: Vec::new(),
        }
    }
}

/// Where and when a decision is taken.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub now: Timestamp,
    pub rules: &'a PaymentRules,
    /// Who carries out at once what the decision begins: the effect is born in its hands. `None`
    /// leaves it to whoever claims it.
    pub worker: Option<&'a str>,
}
