//! What the sandbox does: a pure function of the record, the request and the time.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use uuid::Uuid;

use super::super::{Charge, CheckoutOrder, Listed};
use super::checkout::Checkout;
use super::methods::{Fault, Step, known, way};

/// What is remembered of a payment, as JSON in the book.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Account {
    pub payment_id: Uuid,
    pub amount: i64,
    pub currency: String,
    pub created_at: Timestamp,
    pub state: RemoteState,
    pub captured: i64,
    reason: Option<Reason>,
    refunds: Vec<Kept>,
    /// Requests that are still on their way.
    late: Vec<Late>,
    /// The page where the customer pays, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout: Option<Checkout>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    number: u32,
    refund_id: Uuid,
    amount: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Late {
    at: Timestamp,
    act: Act,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    Authorize,
    Capture { amount: i64 },
    Void,
    Refund { number: u32, refund_id: Uuid, amount: i64 },
    Fence,
}

impl Act {
    fn step(&self) -> Option<Step> {
        match self {
            Self::Authorize => Some(Step::Authorize),
            Self::Capture { .. } => Some(Step::Capture),
            Self::Void => Some(Step::Void),
            Self::Refund { .. } => Some(Step::Refund),
            // A fence is what one trusts in; it does not fail on request.
            Self::Fence => None,
        }
    }
}

/// What the caller hears.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Say {
    Done,
    Refused(Reason),
    /// Nothing, until it has waited for as long as it waits.
    Nothing,
    /// A 500.
    Failure,
    Unreachable,
}

/// What is done, and what is said about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub account: Account,
    /// Whether the account has to be written before anything is said.
    pub changed: bool,
    pub say: Say,
}

/// Decides about one request.
pub(super) fn decide(
    before: Option<Account>,
    charge: &Charge<'_>,
    act: &Act,
    late_after: Duration,
) -> Decision {
    let known_before = before.clone();
    let mut account = before.unwrap_or_else(|| Account::new(charge));
    account.settle(charge.now);
    let say = account.take(charge, act, late_after);
    // A payment that nothing has happened to needs no record.
    let changed = known_before.as_ref() != Some(&account)
        && (known_before.is_some() || account != Account::new(charge));
    Decision { account, changed, say }
}

impl Account {
    fn new(charge: &Charge<'_>) -> Self {
        Self::unpaid(charge.payment_id, charge.amount, charge.currency, charge.now)
    }

    /// One that a page will be opened for.
    pub(super) fn ordered(order: &CheckoutOrder<'_>) -> Self {
        Self::unpaid(order.payment_id, order.amount, order.currency, order.now)
    }

    fn unpaid(payment_id: Uuid, amount: i64, currency: &str, now: Timestamp) -> Self {
        Self {
            payment_id,
            amount,
            currency: currency.to_owned(),
            created_at: now,
            state: RemoteState::NotFound,
            captured: 0,
            reason: None,
            refunds: Vec::new(),
            late: Vec::new(),
            checkout: None,
        }
    }

    /// What was on its way has arrived, if it is time.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let (arrived, late): (Vec<Late>, Vec<Late>) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at <= now);
        self.late = late;
        for late in arrived {
            // Whether it is still possible is decided when it arrives. Nobody hears of a refusal.
            self.apply(&late.act).unwrap_or(());
        }
        let arrived = self.checkout.as_ref().and_then(|checkout| checkout.arrived(now));
        match arrived.filter(|_| self.state == RemoteState::Pending) {
            Some(true) => {
                self.state = RemoteState::Captured;
                self.captured = self.amount;
            }
            Some(false) => {
                self.state = RemoteState::Declined;
                let words = "the money did not come";
                self.reason = Some(Reason::new(code::CARD_DECLINED, words));
            }
            None => {}
        }
    }

    fn take(&mut self, charge: &Charge<'_>, act: &Act, late_after: Duration) -> Say {
        if self.has_done(act) {
            return match &self.reason {
                Some(reason) if self.state == RemoteState::Declined => Say::Refused(reason.clone()),
                _ => Say::Done,
            };
        }
        if self.late.iter().any(|late| late.act == *act) {
            // Under the same key, and the first one is still on its way.
            return Say::Nothing;
        }
        // What was paid on a page was paid with what the customer chose there.
        let chosen = self.checkout.as_ref().and_then(Checkout::method);
        let Some(way) = way(chosen.unwrap_or(charge.payment_method)) else {
            return match act {
                // A stranger's method cannot have authorized anything, but it can be fenced.
                Act::Fence => self.answer(act),
                _ => invalid(format!("unknown payment method; {}", known())),
            };
        };
        match act.step().map_or(Fault::None, |step| way.fault_at(step)) {
            Fault::None => self.answer(act),
            Fault::Declined(code) => self.decline(act, code),
            Fault::LostBeforeCharge => Say::Nothing,
            Fault::Unreachable => Say::Unreachable,
            Fault::LateExecution => {
                let at = charge.now.plus(late_after);
                self.late.push(Late { at, act: act.clone() });
                Say::Nothing
            }
            Fault::RequiresAction => {
                self.state = RemoteState::Pending;
                let words = "the customer has to authenticate the payment";
                self.reason = Some(Reason::new(code::ACTION_REQUIRED, words));
                Say::Done
            }
            Fault::ChargedButSilent => match self.answer(act) {
                Say::Done => Say::Nothing,
                other => other,
            },
            Fault::FailureAfterEffect => match self.answer(act) {
                Say::Done => Say::Failure,
                other => other,
            },
        }
    }

    /// Whether a request under this key has been executed: then its result is told again.
    fn has_done(&self, act: &Act) -> bool {
        match act {
            Act::Authorize => self.state != RemoteState::NotFound,
            Act::Capture { .. } => self.state == RemoteState::Captured,
            Act::Void => self.state == RemoteState::Voided,
            Act::Refund { number, .. } => self.refunds.iter().any(|kept| kept.number == *number),
            Act::Fence => false,
        }
    }

    fn decline(&mut self, act: &Act, code: &'static str) -> Say {
        let words = match code {
            code::INSUFFICIENT_FUNDS => "the card has insufficient funds",
            code::EXPIRED_CARD => "the card has expired",
            _ => "the card was declined",
        };
        let reason = Reason::new(code, words);
        if *act == Act::Authorize {
            self.state = RemoteState::Declined;
            self.reason = Some(reason.clone());
        }
        Say::Refused(reason)
    }

    fn answer(&mut self, act: &Act) -> Say {
        match self.apply(act) {
            Ok(()) => Say::Done,
            Err(why) => invalid(why.to_owned()),
        }
    }

    /// Changes the account. A state that does not allow it is left as it is, and is the answer; what
    /// could not be allowed in any state is an error.
    fn apply(&mut self, act: &Act) -> Result<(), &'static str> {
        match (act, self.state) {
            (Act::Authorize, RemoteState::NotFound) => self.state = RemoteState::Authorized,
            (Act::Fence, RemoteState::NotFound | RemoteState::Pending) => {
                // An authorization that is on its way will find this, and change nothing.
                self.state = RemoteState::Voided;
                self.reason = None;
            }
            (Act::Authorize | Act::Fence, _) => {}
            (_, RemoteState::NotFound) => return Err("there is no such payment"),
            (Act::Capture { amount }, RemoteState::Authorized) => {
                if !(1..=self.amount).contains(amount) {
                    return Err("the amount is not between 1 and what is authorized");
                }
                self.state = RemoteState::Captured;
                self.captured = *amount;
            }
            (Act::Void, RemoteState::Authorized | RemoteState::Pending) => {
                self.state = RemoteState::Voided;
                self.reason = None;
            }
            (Act::Capture { .. } | Act::Void, _) => {}
            (Act::Refund { number, refund_id, amount }, _) => {
                let refunded: i64 = self.refunds.iter().map(|kept| kept.amount).sum();
                if !(1..=self.captured - refunded).contains(amount) {
                    return Err("the amount is not between 1 and what is left of the capture");
                }
                let kept = Kept { number: *number, refund_id: *refund_id, amount: *amount };
                self.refunds.push(kept);
            }
        }
        Ok(())
    }

    pub(super) fn remote(&self) -> Remote {
        if self.state == RemoteState::NotFound {
            return Remote::not_found();
        }
        Remote {
            state: self.state,
            gateway_id: Some(format!("sandbox_{}", self.payment_id.simple())),
            captured: self.captured,
            refunds: Some(self.refunds.iter().map(told).collect()),
            reason: self.reason.clone(),
        }
    }

    pub(super) fn refund(&self, number: u32) -> Option<RemoteRefund> {
        self.refunds.iter().find(|kept| kept.number == number).map(told)
    }

    /// As it stands in the list; `None` if nothing has arrived.
    pub(super) fn listed(&self) -> Option<Listed> {
        (self.state != RemoteState::NotFound).then(|| Listed {
            payment_id: Some(self.payment_id),
            remote: self.remote(),
            amount: self.amount,
            currency: self.currency.clone(),
            created_at: self.created_at,
        })
    }
}

fn told(kept: &Kept) -> RemoteRefund {
    RemoteRefund {
        refund_id: Some(kept.refund_id),
        gateway_id: format!("sandbox_re_{}", kept.refund_id.simple()),
        amount: kept.amount,
        state: RemoteRefundState::Succeeded,
    }
}

fn invalid(why: String) -> Say {
    Say::Refused(Reason::new(code::INVALID_REQUEST, why))
}
