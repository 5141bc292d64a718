//! Checkout sessions of the sandbox: what is kept of one, and what a customer may do on its page.
//!
//! A session lives in the record of its payment. Opening and closing go wrong on request: the part of
//! the customer's address before the `@` names the fault, with `checkout_` or `expire_` in front
//! (`checkout_charged_but_silent@…`, `expire_unreachable@…`). The customer pays with a payment method
//! of the sandbox; see [`MEANS`]. As at Stripe a page lives for half an hour at least, so somebody
//! can pay late: closing it in time is the caller's affair.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{RemoteState, code};
use tashika_domain::payment::session::{RemoteSession, SessionState};
use uuid::Uuid;

use super::super::CheckoutOrder;
use super::methods::{Fault, Step, fault, way};
use super::rules::{Account, Say};

/// How a customer may pay on the page, for whoever has tried something else.
pub const MEANS: &str = "ok, declined, insufficient_funds, expired_card; delayed_ok and \
     delayed_declined for money that comes later, or does not; and refund_ with a fault behind it";

/// A page lives for so long at least, whatever was asked for.
const SHORTEST: Duration = Duration::from_secs(30 * 60);

/// Before a means of payment whose money comes later.
const DELAYED: &str = "delayed_";

/// What is remembered of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkout {
    reservation_id: Uuid,
    title: String,
    success_url: String,
    cancel_url: String,
    expires_at: Timestamp,
    /// The fault that was asked for, if one was; the rest of the address is not kept.
    fault: Option<String>,
    closed: bool,
    /// What the customer has paid with. The page is complete then.
    method: Option<String>,
    /// When money that comes later is there, and whether it is.
    arrives: Option<(Timestamp, bool)>,
}

/// A page, for whoever shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxPage {
    pub payment_id: Uuid,
    pub reservation_id: Uuid,
    pub title: String,
    pub success_url: String,
    pub cancel_url: String,
    pub session: RemoteSession,
    /// When money that comes later will be there, or not.
    pub arrives_at: Option<Timestamp>,
}

/// Why a customer could not pay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayRefusal {
    /// There is no such page.
    Unknown,
    /// The page is closed.
    Closed,
    /// The sandbox knows no such means.
    Means,
    /// The customer's bank said no. The page is still open.
    Declined(Reason),
    /// The book could not be read or written; the customer may try again.
    Book(String),
}

/// The sandbox's id for the session of a payment, and back.
pub(super) fn session_id(payment_id: Uuid) -> String {
    format!("sandbox_cs_{}", payment_id.simple())
}

pub(super) fn payment_of(session_id: &str) -> Option<Uuid> {
    Uuid::try_parse(session_id.strip_prefix("sandbox_cs_")?).ok()
}

impl Checkout {
    fn new(order: &CheckoutOrder<'_>) -> Self {
        let local = order.customer_email.and_then(|address| address.split('@').next());
        let named = |step: &str| local.is_some_and(|name| named_fault(name, step).is_some());
        let fault = local.filter(|_| named("checkout") || named("expire")).map(ToOwned::to_owned);
        Self {
            reservation_id: order.reservation_id,
            title: order.title.to_owned(),
            success_url: order.success_url.to_owned(),
            cancel_url: order.cancel_url.to_owned(),
            expires_at: order.expires_at.max(order.now.plus(SHORTEST)),
            fault,
            closed: false,
            method: None,
            arrives: None,
        }
    }

    /// What was paid with, for the faults of later steps.
    pub(super) fn method(&self) -> Option<&str> {
        self.method.as_deref().map(|method| method.strip_prefix(DELAYED).unwrap_or(method))
    }

    /// Money that has come, or has not, by now.
    pub(super) fn arrived(&self, now: Timestamp) -> Option<bool> {
        self.arrives.filter(|(at, _)| *at <= now).map(|(_, came)| came)
    }

    fn fault_at(&self, step: &str) -> Fault {
        let named = self.fault.as_deref().and_then(|name| named_fault(name, step));
        named.unwrap_or(Fault::None)
    }
}

/// The fault that a name asks for at a step; only those that make sense for a page.
fn named_fault(name: &str, step: &str) -> Option<Fault> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let found = fault(name.strip_prefix(step)?.strip_prefix('_')?)?;
    let fits = matches!(
        found,
        Fault::ChargedButSilent
            | Fault::LostBeforeCharge
            | Fault::FailureAfterEffect
            | Fault::Unreachable
    );
    fits.then_some(found)
}

impl Account {
    /// Opens the session, or tells of the one that is there.
    pub(super) fn open_checkout(&mut self, order: &CheckoutOrder<'_>) -> Say {
        if self.checkout.is_some() {
            return Say::Done;
        }
        if self.state != RemoteState::NotFound {
            let why = "the payment has been made another way";
            return Say::Refused(Reason::new(code::INVALID_REQUEST, why));
        }
        let checkout = Checkout::new(order);
        let fault = checkout.fault_at("checkout");
        if !matches!(fault, Fault::LostBeforeCharge | Fault::Unreachable) {
            self.checkout = Some(checkout);
        }
        said(fault)
    }

    /// Closes the session, if it is open.
    pub(super) fn expire_checkout(&mut self, now: Timestamp) -> Say {
        let state = self.checkout_state(now);
        let Some(checkout) = &mut self.checkout else {
            return Say::Refused(Reason::new(code::INVALID_REQUEST, "there is no such session"));
        };
        if state != Some(SessionState::Open) {
            return Say::Done;
        }
        let fault = checkout.fault_at("expire");
        if !matches!(fault, Fault::LostBeforeCharge | Fault::Unreachable) {
            checkout.closed = true;
        }
        said(fault)
    }

    /// The customer presses the button. Pressing it again changes nothing.
    pub(super) fn pay(
        &mut self,
        method: &str,
        now: Timestamp,
        late_after: Duration,
    ) -> Result<(), PayRefusal> {
        let state = self.checkout_state(now);
        let Some(checkout) = &mut self.checkout else { return Err(PayRefusal::Unknown) };
        match state {
            Some(SessionState::Complete) => return Ok(()),
            Some(SessionState::Open) => {}
            _ => return Err(PayRefusal::Closed),
        }
        let method = method.trim().to_ascii_lowercase().replace('-', "_");
        let (delayed, plain) = match method.strip_prefix(DELAYED) {
            Some(rest) => (true, rest),
            None => (false, method.as_str()),
        };
        let way = way(plain).ok_or(PayRefusal::Means)?;
        let declined = match way.fault_at(Step::Authorize) {
            Fault::None => None,
            Fault::Declined(code) => Some(code),
            _ => return Err(PayRefusal::Means),
        };
        match (delayed, declined) {
            (false, Some(code)) => {
                return Err(PayRefusal::Declined(Reason::new(code, "the card was declined")));
            }
            (false, None) => {
                self.state = RemoteState::Captured;
                self.captured = self.amount;
            }
            (true, _) => {
                self.state = RemoteState::Pending;
                checkout.arrives = Some((now.plus(late_after), declined.is_none()));
            }
        }
        checkout.method = Some(method);
        Ok(())
    }

    fn checkout_state(&self, now: Timestamp) -> Option<SessionState> {
        let checkout = self.checkout.as_ref()?;
        let over = checkout.closed || checkout.expires_at <= now;
        Some(match (checkout.method.is_some(), self.state) {
            (true, _) => SessionState::Complete,
            (false, RemoteState::NotFound) if !over => SessionState::Open,
            (false, _) => SessionState::Expired,
        })
    }

    /// The session as the caller sees it. `pages` is where pages are shown.
    pub(super) fn session(&self, now: Timestamp, pages: Option<&str>) -> Option<RemoteSession> {
        let (checkout, state) = (self.checkout.as_ref()?, self.checkout_state(now)?);
        let id = session_id(self.payment_id);
        let open = pages.filter(|_| state == SessionState::Open);
        Some(RemoteSession {
            url: open.map(|pages| format!("{pages}/sandbox/checkout/{id}")),
            id,
            state,
            paid: self.state == RemoteState::Captured && state == SessionState::Complete,
            gateway_id: self.remote().gateway_id.filter(|_| state == SessionState::Complete),
            amount: self.amount,
            currency: self.currency.clone(),
            expires_at: checkout.expires_at,
        })
    }

    /// The page as the customer sees it.
    pub(super) fn page(&self, now: Timestamp, pages: Option<&str>) -> Option<SandboxPage> {
        let checkout = self.checkout.as_ref()?;
        Some(SandboxPage {
            payment_id: self.payment_id,
            reservation_id: checkout.reservation_id,
            title: checkout.title.clone(),
            success_url: checkout.success_url.clone(),
            cancel_url: checkout.cancel_url.clone(),
            session: self.session(now, pages)?,
            arrives_at: checkout.arrives.map(|(at, _)| at),
        })
    }
}

/// What is said after a step that met this fault.
fn said(fault: Fault) -> Say {
    match fault {
        Fault::ChargedButSilent | Fault::LostBeforeCharge => Say::Nothing,
        Fault::FailureAfterEffect => Say::Failure,
        Fault::Unreachable => Say::Unreachable,
        _ => Say::Done,
    }
}
