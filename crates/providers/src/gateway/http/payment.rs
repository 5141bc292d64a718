//! Reading the JSON of the protocol.
//!
//! Strict where it matters: a payment counts only if it is ours and every amount in it makes sense. A
//! body that cannot be read is no body (`None`), never a failure. Unknown fields are ignored, unknown
//! statuses are not.

use serde::Deserialize;
use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use uuid::Uuid;

use super::super::{Listed, Page, wire};

/// Longest cursor that is kept between two pages.
const CURSOR_MAX: usize = 512;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payment {
    /// May be missing in the answer to a fence: the gateway has never seen the payment.
    id: Option<String>,
    reference: String,
    status: Status,
    amount: Option<i64>,
    currency: Option<String>,
    captured_amount: Option<i64>,
    refunds: Option<Vec<Refund>>,
    reason: Option<Trouble>,
    created_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    Authorized,
    Captured,
    Voided,
    Declined,
}

#[derive(Deserialize)]
struct Refund {
    id: String,
    /// Our id.
    #[serde(rename = "refundId")]
    ours: Option<String>,
    amount: i64,
    status: RefundStatus,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RefundStatus {
    Pending,
    Succeeded,
    Failed,
}

/// `{code, message}`: the body of an error, and the `reason` of a payment.
#[derive(Default, Deserialize)]
pub(super) struct Trouble {
    pub code: Option<String>,
    pub message: Option<String>,
}

#[derive(Deserialize)]
struct List {
    payments: Vec<Payment>,
    next: Option<String>,
}

/// Where the payment with this reference stands.
pub(super) fn remote(body: &[u8], reference: Uuid, secret: &str) -> Option<Remote> {
    let payment: Payment = serde_json::from_slice(body).ok()?;
    (payment.reference.parse() == Ok(reference)).then(|| translated(&payment, secret)).flatten()
}

fn translated(payment: &Payment, secret: &str) -> Option<Remote> {
    let state = match payment.status {
        Status::Pending => RemoteState::Pending,
        Status::Authorized => RemoteState::Authorized,
        Status::Captured => RemoteState::Captured,
        Status::Voided => RemoteState::Voided,
        Status::Declined => RemoteState::Declined,
    };
    let captured = match (payment.status, payment.captured_amount) {
        // Captured without saying how much is not said at all.
        (Status::Captured, amount) => amount?,
        (_, amount) => amount.unwrap_or(0),
    };
    let refunds = match &payment.refunds {
        Some(refunds) => Some(refunds.iter().map(refund).collect::<Option<Vec<_>>>()?),
        None => None,
    };
    let reason = match payment.status {
        Status::Declined => {
            Some(declined(payment.reason.as_ref().unwrap_or(&Trouble::default()), secret))
        }
        Status::Pending => payment.reason.as_ref().map(|why| {
            let words = wire::words(why.message.as_deref(), secret);
            let words = words.unwrap_or_else(|| "the customer has to do something first".into());
            Reason::new(code::ACTION_REQUIRED, words)
        }),
        _ => None,
    };
    let named = payment.id.as_deref().is_none_or(wire::is_id);
    let gateway_id = payment.id.clone();
    (named && captured >= 0).then_some(Remote { state, gateway_id, captured, refunds, reason })
}

fn refund(refund: &Refund) -> Option<RemoteRefund> {
    let state = match refund.status {
        RefundStatus::Pending => RemoteRefundState::Pending,
        RefundStatus::Succeeded => RemoteRefundState::Succeeded,
        RefundStatus::Failed => RemoteRefundState::Failed,
    };
    (wire::is_id(&refund.id) && refund.amount > 0).then(|| RemoteRefund {
        refund_id: refund.ours.as_deref().and_then(|id| id.parse().ok()),
        gateway_id: refund.id.clone(),
        amount: refund.amount,
        state,
    })
}

/// The refund with our id.
pub(super) fn made(body: &[u8], refund_id: Uuid) -> Option<RemoteRefund> {
    let made = refund(&serde_json::from_slice(body).ok()?)?;
    (made.refund_id == Some(refund_id)).then_some(made)
}

pub(super) fn page(body: &[u8], secret: &str) -> Option<Page> {
    let list: List = serde_json::from_slice(body).ok()?;
    let item = |payment: &Payment| {
        Some(Listed {
            payment_id: payment.reference.parse().ok(),
            remote: translated(payment, secret)?,
            amount: payment.amount?,
            currency: payment.currency.as_ref()?.to_ascii_uppercase(),
            created_at: payment.created_at?,
        })
    };
    let items = list.payments.iter().map(item).collect::<Option<Vec<_>>>()?;
    let next = list.next;
    let sensible = |cursor: &str| !cursor.is_empty() && cursor.len() <= CURSOR_MAX;
    next.as_deref().is_none_or(sensible).then_some(Page { items, next })
}

/// The body of an error; empty if it is not one.
pub(super) fn trouble(body: &[u8]) -> Trouble {
    serde_json::from_slice(body).unwrap_or_default()
}

/// Why the customer's bank said no. A code that we do not know is a plain decline.
pub(super) fn declined(why: &Trouble, secret: &str) -> Reason {
    let (code, otherwise) = match why.code.as_deref() {
        Some(code::INSUFFICIENT_FUNDS) => (code::INSUFFICIENT_FUNDS, "insufficient funds"),
        Some(code::EXPIRED_CARD) => (code::EXPIRED_CARD, "the card has expired"),
        _ => (code::CARD_DECLINED, "the card was declined"),
    };
    let words = wire::words(why.message.as_deref(), secret);
    Reason::new(code, words.unwrap_or_else(|| otherwise.to_owned()))
}
