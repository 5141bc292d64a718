//! A payment that the customer makes on a page of the gateway.
//!
//! One operation from the order to the end: the page is opened, and from then on an effect waits for
//! the moment at which it must be closed. Whatever comes first ends the payment: the customer pays, the
//! gateway says that the page is gone, or the effect closes it. A page that will not be closed has
//! probably been paid: the gateway is asked, and its word counts.
//!
//! It guarantees that no page stays open without an effect that closes it, and that a page whose money
//! is on its way is waited for. It does not know what was bought: see [`crate::reservation`].

use serde_json::{Value, json};
use uuid::Uuid;

use super::adopt::{Step, Unclear, fail, illegal};
use super::ask::Origin;
use super::draft::{Decided, Draft};
use super::session::{RemoteSession, SessionState};
use super::status::Event;
use super::{At, OperationKind, Payment, PaymentRequest, RequestKey, Status};
use crate::outcome::Reason;
use crate::time::Timestamp;

/// Code of a payment whose page was closed before anybody paid.
pub const CHECKOUT_EXPIRED: &str = "CHECKOUT_EXPIRED";
/// Code of a payment whose page was not wanted any more before it could be opened.
pub const CHECKOUT_CLOSED: &str = "CHECKOUT_CLOSED";
/// What a payment has instead of a token: the customer chooses on the page.
pub const PAYMENT_METHOD: &str = "checkout";

/// The page of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    /// When we close it, whatever the gateway's own bounds are.
    pub closes_at: Timestamp,
    /// As the gateway knows it, once it has answered.
    pub session: Option<Session>,
}

/// An opened page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The gateway's id.
    pub id: String,
    /// Where the customer pays.
    pub url: Option<String>,
    /// When the gateway closes it by itself.
    pub expires_at: Timestamp,
}

/// What the gateway is told about a page. Kept with the effect: a repeat must be the same, word for word.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub reservation_id: Uuid,
    /// What the customer reads on the page.
    pub title: String,
    pub customer_email: Option<String>,
    pub locale: Option<String>,
    pub success_url: String,
    pub cancel_url: String,
    pub expires_at: Timestamp,
}

/// Accepts a payment whose page is to be opened: its row and the effect that opens it.
#[must_use]
pub fn create(request: PaymentRequest, origin: Origin, order: &Order, at: At<'_>) -> Decided {
    let payment = Payment {
        id: origin.id,
        version: 1,
        key: origin.key,
        gateway: origin.gateway,
        status: Status::Pending,
        captured_amount: 0,
        refunded_amount: 0,
        gateway_transaction_id: None,
        failure: None,
        operation: None,
        checkout: Some(Checkout { closes_at: order.expires_at, session: None }),
        in_vain: 0,
        refunds: Vec::new(),
        created_at: at.now,
        updated_at: at.now,
        traceparent: origin.traceparent,
        request,
    };
    let mut draft = Draft::birth(payment, at);
    let request = &draft.payment.request;
    let accepted = json!({"amount": request.amount, "currency": request.currency,
        "gateway": draft.payment.gateway, "checkout": true});
    let amount = request.amount;
    draft.line("accepted", &accepted);
    draft.audit("payment.created".to_owned(), &accepted);
    draft.publish("PaymentCreated", &json!({}));
    draft.begin_with(OperationKind::Checkout, amount, None, &json!({ "order": order }));
    draft.finish()
}

/// Takes over what the gateway says about the page.
pub(super) fn adopt(draft: &mut Draft<'_>, session: &RemoteSession) -> Step {
    let request = &draft.payment.request;
    if session.amount != request.amount || session.currency != request.currency {
        let text = format!("the page asks for {} {}", session.amount, session.currency);
        return Err(Unclear::CannotAsk(Reason::new("CHECKOUT_DIFFERS", text)));
    }
    if let Some(id) = &session.gateway_id {
        draft.payment.gateway_transaction_id.get_or_insert_with(|| id.clone());
    }
    let first = note(draft, session);
    match (session.state, session.paid) {
        (_, true) => paid(draft, session.amount),
        (SessionState::Expired, false) => {
            fail(draft, &Reason::new(CHECKOUT_EXPIRED, "nobody paid while the page was open"));
            Ok(())
        }
        (SessionState::Open | SessionState::Complete, false) if first => {
            watch(draft);
            Ok(())
        }
        (SessionState::Open, false) => {
            Err(Unclear::Wait(Reason::new("CHECKOUT_OPEN", "the page is still open"), None))
        }
        (SessionState::Complete, false) => Err(Unclear::Wait(
            Reason::new("AWAITING_PAYMENT", "the page is finished, the money has not come yet"),
            None,
        )),
    }
}

/// Notes the page; says whether it was new.
fn note(draft: &mut Draft<'_>, session: &RemoteSession) -> bool {
    let Some(page) = &mut draft.payment.checkout else { return false };
    if page.session.is_some() {
        return false;
    }
    page.session = Some(Session {
        id: session.id.clone(),
        url: session.url.clone(),
        expires_at: session.expires_at,
    });
    let entry = json!({"sessionId": session.id, "expiresAt": session.expires_at});
    draft.line("opened", &entry);
    true
}

/// From now on somebody waits for the moment at which the page must be closed.
fn watch(draft: &mut Draft<'_>) {
    let now = draft.at.now;
    let closes_at = draft.payment.checkout.as_ref().map_or(now, |page| page.closes_at);
    let effect = draft.enqueue_at("close", &operation(), closes_at.max(now), None);
    if let Some(operation) = &mut draft.payment.operation {
        operation.effect = effect;
        operation.doubt = None;
    }
}

fn operation() -> Value {
    json!({"operation": OperationKind::Checkout.as_str()})
}

/// The customer has paid.
pub(super) fn paid(draft: &mut Draft<'_>, amount: i64) -> Step {
    let id = draft.payment.gateway_transaction_id.clone();
    draft.step(Event::Authorize, &json!({"gatewayTransactionId": id})).map_err(illegal)?;
    draft.payment.captured_amount = amount;
    draft.step(Event::Capture, &json!({"capturedAmount": amount})).map_err(illegal)?;
    draft.end_operation(None);
    Ok(())
}

/// A payment that a larger decision goes on with: as it was read, and what has been decided about it
/// in the same change, if anything has.
#[derive(Clone, Debug)]
pub struct Going<'a> {
    pub before: &'a Payment,
    pub decided: Option<Decided>,
}

impl<'a> Going<'a> {
    #[must_use]
    pub const fn of(before: &'a Payment) -> Self {
        Self { before, decided: None }
    }

    /// The payment as it stands with what has been decided.
    #[must_use]
    pub fn payment(&self) -> &Payment {
        self.decided.as_ref().map_or(self.before, |decided| &decided.payment)
    }

    fn draft(self, at: At<'a>) -> Draft<'a> {
        match self.decided {
            None => Draft::of(self.before, at),
            Some(decided) => Draft::resume(self.before, decided, at),
        }
    }

    /// Gives back whatever is left of what was taken.
    #[must_use]
    pub fn refunded(self, reason: &str, at: At<'a>) -> Self {
        let left = self.payment().refundable();
        if self.payment().status != Status::Captured || left <= 0 {
            return self;
        }
        let before = self.before;
        let mut draft = self.draft(at);
        let key = format!("{}:{}", draft.payment.id, draft.payment.version);
        let asked = json!({"operation": "refund", "amount": left, "why": reason});
        draft.line("asked", &asked);
        draft.audit("payment.refund_asked".to_owned(), &asked);
        let key = RequestKey { key, digest: String::new() };
        draft.begin_refund(left, Some(REFUND_REASON.to_owned()), key);
        Self { before, decided: Some(draft.finish()) }
    }

    /// Closes the page now: nobody is to pay any more.
    #[must_use]
    pub fn closed(self, at: At<'a>) -> Self {
        let waits = self.payment().operation.as_ref();
        let waits = waits.is_some_and(|operation| operation.kind == OperationKind::Checkout);
        if !waits {
            return self;
        }
        let before = self.before;
        let mut draft = self.draft(at);
        let now = draft.at.now;
        let mut opened = false;
        if let Some(page) = &mut draft.payment.checkout {
            page.closes_at = page.closes_at.min(now);
            opened = page.session.is_some();
        }
        draft.line("closing", &json!({"closesAt": now}));
        // A page that is being opened right now is closed by whoever opens it.
        if opened {
            watch(&mut draft);
        }
        Self { before, decided: Some(draft.finish()) }
    }
}

/// What the gateway is told about every compensating refund.
pub const REFUND_REASON: &str = "requested_by_customer";
