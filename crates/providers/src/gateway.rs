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
//! - `status`, `list` and `checkout` are reads. Their `Refused` means that the gateway will not tell, and that
//!   asking again will not help.
//! - Under one key the gateway acts once, for [`KEY_LIFETIME`]. Whoever calls does not use a key for
//!   longer than that.

mod checkout;
pub mod http;
pub mod sandbox;
pub mod stripe;
mod wire;

use std::future::Future;
use std::time::Duration;

use tashika_domain::payment::remote::{Remote, RemoteRefund, code};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use tracing::{Instrument as _, Span, field::Empty, info_span};
use uuid::Uuid;

pub use checkout::{CheckoutOrder, SessionRef};
pub use wire::AddressError;

use crate::reply::{BoxFuture, Reply};

/// Gateways remember keys for 24 h at least; an hour is left for clocks and queues.
pub const KEY_LIFETIME: Duration = Duration::from_secs(23 * 3600);

/// Counter of requests to gateways, by `gateway`, `operation` and `status`: ok, declined, refused,
/// busy, timeout, unknown.
pub const REQUESTS_TOTAL: &str = "payment_gateway_request_total";
/// Histogram of how long they took, by `gateway` and `operation`.
pub const DURATION_SECONDS: &str = "payment_gateway_duration_seconds";
/// Counter of requests that nobody answered in time. It has no labels, so that it is there, with 0,
/// before the first: an alert watches it. [`REQUESTS_TOTAL`] tells gateways and operations apart.
pub const TIMEOUTS_TOTAL: &str = "payment_gateway_timeout_total";

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
    /// Captures and voids that ended without having happened.
    pub in_vain: u32,
    pub now: Timestamp,
    /// W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
}

impl Charge<'_> {
    /// The key of an operation. One that did not happen is over with its key, because the gateway may
    /// have kept its failure or its amount under it: the next one is `…:capture:2`.
    fn key(&self, operation: &str) -> String {
        match self.in_vain {
            0 => format!("{}:{operation}", self.payment_id),
            times => format!("{}:{operation}:{}", self.payment_id, times + 1),
        }
    }
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
    /// stands then: `Voided` if it worked, `Authorized` or `Captured` if it came too late. A gateway
    /// whose fence is a cancellation releases an authorization that came before it: `Voided` too.
    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>>;

    /// The gateway's own list of payments made in `[from, until)`.
    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>>;

    /// Opens a page where a customer pays, and captures at once when they do. Its key is derived from
    /// the payment's id: an order whose answer is lost is sent again, and there is one session.
    fn open_checkout<'a>(&'a self, order: CheckoutOrder<'a>)
    -> BoxFuture<'a, Reply<RemoteSession>>;

    /// Asks where a session stands. A read.
    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>>;

    /// Closes a session, so that nobody can pay any more, and says where it stands then: `Expired` if
    /// it worked. A gateway that will not close it has probably been paid; it is asked, and what it
    /// says is the answer.
    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>>;
}

/// What is asked of a gateway: names the span and is a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Prepare,
    Authorize,
    Capture,
    Void,
    Refund,
    Status,
    Fence,
    List,
    OpenCheckout,
    Checkout,
    ExpireCheckout,
}

/// Spans have names that are known when the program is compiled, so each operation needs its own.
macro_rules! spans {
    ($operation:expr, $gateway:expr, $($variant:ident => $name:literal),+ $(,)?) => {
        match $operation {
            $(Operation::$variant => {
                info_span!($name, gateway = $gateway, rtt_ms = Empty, outcome = Empty)
            })+
        }
    };
}

impl Operation {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Authorize => "authorize",
            Self::Capture => "capture",
            Self::Void => "void",
            Self::Refund => "refund",
            Self::Status => "status",
            Self::Fence => "fence",
            Self::List => "list",
            Self::OpenCheckout => "open_checkout",
            Self::Checkout => "checkout",
            Self::ExpireCheckout => "expire_checkout",
        }
    }

    fn span(self, gateway: &str) -> Span {
        spans!(self, gateway,
            Prepare => "gateway.prepare",
            Authorize => "gateway.authorize",
            Capture => "gateway.capture",
            Void => "gateway.void",
            Refund => "gateway.refund",
            Status => "gateway.status",
            Fence => "gateway.fence",
            List => "gateway.list",
            OpenCheckout => "gateway.open_checkout",
            Checkout => "gateway.checkout",
            ExpireCheckout => "gateway.expire_checkout",
        )
    }
}

/// Runs an operation in its span and counts it: the one place where both happen.
///
/// The span is opened when the future is first polled, so it becomes a child of whatever the caller
/// is doing then. Every adapter goes through here, those of tests too. What was answered without
/// asking the gateway at all has a span and is not counted: it is no request.
pub async fn observed<T>(
    gateway: &str,
    operation: Operation,
    work: impl Future<Output = Reply<T>>,
) -> Reply<T> {
    let span = operation.span(gateway);
    let reply = work.instrument(span.clone()).await;
    let status = label(&reply.outcome);
    span.record("rtt_ms", u64::try_from(reply.rtt.as_millis()).unwrap_or(u64::MAX));
    span.record("outcome", status);
    if !reply.exchange.sent && !matches!(reply.outcome, Outcome::Busy { .. }) {
        return reply;
    }
    let gateway = gateway.to_owned();
    let operation = operation.as_str();
    metrics::counter!(
        REQUESTS_TOTAL,
        "gateway" => gateway.clone(), "operation" => operation, "status" => status
    )
    .increment(1);
    metrics::histogram!(
        DURATION_SECONDS,
        "gateway" => gateway, "operation" => operation
    )
    .record(reply.rtt);
    if status == TIMEOUT {
        metrics::counter!(TIMEOUTS_TOTAL).increment(1);
    }
    reply
}

const TIMEOUT: &str = "timeout";

/// The metric's word for an outcome.
fn label<T>(outcome: &Outcome<T>) -> &'static str {
    match outcome {
        Outcome::Done(_) => "ok",
        Outcome::Refused(reason) if code::is_decline(&reason.code) => "declined",
        Outcome::Refused(_) => "refused",
        Outcome::Busy { .. } => "busy",
        Outcome::Lost(reason) if reason.code == code::TIMEOUT => TIMEOUT,
        Outcome::Lost(_) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tashika_domain::outcome::Reason;

    #[test]
    fn every_outcome_has_its_label() {
        let reason = |code: &str| Reason::new(code, "");
        let busy = Outcome::Busy { reason: reason(code::TIMEOUT), retry_in: None };
        for (outcome, expected) in [
            (Outcome::Done(()), "ok"),
            (Outcome::Refused(reason(code::CARD_DECLINED)), "declined"),
            (Outcome::Refused(reason(code::INSUFFICIENT_FUNDS)), "declined"),
            (Outcome::Refused(reason(code::EXPIRED_CARD)), "declined"),
            (Outcome::Refused(reason(code::UNAUTHORIZED)), "refused"),
            (busy, "busy"),
            (Outcome::Lost(reason(code::TIMEOUT)), "timeout"),
            (Outcome::Lost(reason(code::UNKNOWN)), "unknown"),
        ] {
            assert_eq!(label(&outcome), expected, "{outcome:?}");
        }
    }
}
