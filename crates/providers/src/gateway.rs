//! Payment gateways: whoever moves money.
//!
//! The port ([`Gateway`]) that the engine pays through, and its adapters: [`sandbox`], the default,
//! inside the process; [`stripe`]; and [`http`], a small documented protocol for gateways of one's
//! own. An anti-corruption layer: what a gateway calls things ends in its adapter.
//!
//! Every operation ends in a [`Reply`], never in an error. Guarantees that all adapters keep:
//!
//! - One operation makes at most one request that can move money.
//! - `Refused` and `Busy` are said only when this request moved none; whatever leaves room for
//!   doubt is `Lost`.
//! - `Done` carries what the gateway says about the payment after the operation. It need not be what
//!   was asked for: a capture may find the authorization expired. A gateway that refuses because the
//!   payment is in another state is asked for that state, and that is the answer.
//! - `status` and `list` are reads. Their `Refused` means that the gateway will not tell, and that
//!   asking again will not help.
//! - Under one key the gateway acts once, for [`KEY_LIFETIME`]. Whoever calls does not use a key for
//!   longer than that.

use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::payment::remote::{Remote, RemoteRefund};
use uuid::Uuid;

use crate::reply::{BoxFuture, Reply};

/// Gateways remember keys for 24 h at least; an hour is left for clocks and queues.
pub const KEY_LIFETIME: Duration = Duration::from_secs(23 * 3600);

/// The payment that an operation is about.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Our id. Goes to the gateway as its reference, and is what keys are derived from.
    pub payment_id: Uuid,
    /// The gateway's id, once it has given one.
    pub gateway_id: Option<&'a str>,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, upper case.
    pub currency: &'a str,
    /// The gateway's token for how the customer pays.
    pub payment_method: &'a str,
    pub customer: Option<&'a str>,
    pub description: Option<&'a str>,
    pub now: Timestamp,
    /// W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
}

/// A refund on its way out.
#[derive(Clone, Copy, Debug)]
pub struct RefundOrder<'a> {
    /// Our id of the refund.
    pub refund_id: Uuid,
    /// The first, second, … refund of its payment: its key is derived from it.
    pub number: u32,
    pub amount: i64,
    pub reason: Option<&'a str>,
}

/// A page of the gateway's own list of payments.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub items: Vec<Listed>,
    /// Where the next page begins. `None` at the end.
    pub next: Option<String>,
}

/// A payment in the gateway's list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Our id, if the gateway has it.
    pub payment_id: Option<Uuid>,
    pub remote: Remote,
    /// Minor units, as authorized.
    pub amount: i64,
    pub currency: String,
    pub created_at: Timestamp,
}

/// The port. A trait because tests and the simulator put a world of their own behind it.
pub trait Gateway: Send + Sync {
    fn name(&self) -> &str;

    /// Opens the payment at the gateway without moving money, and returns the gateway's id for it.
    /// The caller writes the id down before it goes on, so that every later doubt is a lookup by id.
    /// `None`: the gateway can be asked by our id and needs no preparation.
    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>>;

    /// Reserves the amount. Never captures.
    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>>;

    /// Takes `amount` of what is authorized; the rest is released.
    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>>;

    /// Releases what is authorized.
    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>>;

    /// Gives back part of what was captured.
    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>>;

    /// Asks what became of the payment, with its refunds. Changes nothing at the gateway.
    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>>;

    /// Makes sure that an authorization in flight cannot happen any more, and says where the payment
    /// stands then: `Voided` if it worked, `Authorized` or `Captured` if it came too late.
    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>>;

    /// The gateway's own list of payments made in `[from, until)`.
    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>>;
}
