//! Brokers: whoever executes orders.
//!
//! The port ([`Broker`]) that the engine sends orders through, and its two adapters: [`paper`], the
//! default, which executes inside the process, and [`http`], which speaks the wire protocol that
//! is written down there.
//!
//! Every operation ends in a [`Reply`], never in an error. Guarantees that all adapters keep:
//!
//! - One `send` makes at most one request that can place an order.
//! - `Refused` and `Busy` are said of a `send` only when the order was not executed by it; whatever
//!   leaves room for doubt is `Lost`.
//! - `status` is a read. It never says `Refused`: a broker that will not tell us where an order is
//!   has said nothing about the order.
//!
//! Not promised: that an order which was `Lost` and is now `NotFound` stays so. A request may linger
//! in the network after its caller has given up; whoever wants to send again waits for longer than
//! the timeout before asking.

pub mod http;
pub mod paper;

use std::future::Future;

use tashika_domain::order::{self, Execution, OrderRequest};
use tashika_domain::outcome::Reason;
use tashika_domain::{Outcome, Timestamp};
use tracing::{Instrument as _, Span, field::Empty, info_span};

pub use crate::reply::{BoxFuture, Reply};

/// Reason code of an order that the broker has already executed: of a repeat whose execution could
/// not be fetched, and of a cancellation that came too late.
pub const ALREADY_PROCESSED: &str = "BROKER_ALREADY_PROCESSED";

/// Counter of requests to brokers, by `adapter` and `outcome`: ok, timeout, down, rejected, internal.
///
/// Heartbeats are not counted: they come by the clock and would hide how the orders fare.
pub const REQUESTS_TOTAL: &str = "broker_requests_total";

/// What a broker says about an order when it is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Whereabouts {
    Executed(Execution),
    /// The broker has it and has not finished with it.
    Working,
    /// The broker has never seen it.
    NotFound,
    /// The broker looked at it and will not execute it.
    Rejected(Reason),
}

/// An order on its way out.
#[derive(Clone, Copy, Debug)]
pub struct SendOrder<'a> {
    pub order: &'a OrderRequest,
    /// The request as it was accepted, JSON.
    pub body: &'a str,
    pub now: Timestamp,
    /// W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
}

/// The port. A trait because tests and the simulator put a world of their own behind it.
pub trait Broker: Send + Sync {
    fn name(&self) -> &str;

    /// Whether a repeat under the same `Idempotency-Key` is recognised.
    fn takes_keys(&self) -> bool;

    /// Places the order, under its idempotency key as client order id.
    fn send<'a>(&'a self, order: SendOrder<'a>) -> BoxFuture<'a, Reply<Execution>>;

    /// Asks what became of an order. Changes nothing at the broker.
    fn status<'a>(
        &'a self,
        client_order_id: &'a str,
        now: Timestamp,
    ) -> BoxFuture<'a, Reply<Whereabouts>>;

    /// Withdraws an order that is not executed yet. `Done` means that it will not be executed any more.
    fn cancel<'a>(&'a self, client_order_id: &'a str, now: Timestamp) -> BoxFuture<'a, Reply<()>>;

    /// Asks whether the broker is there.
    fn heartbeat(&self, now: Timestamp) -> BoxFuture<'_, Reply<()>>;
}

/// What is asked of a broker: names the span and decides what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Send,
    Status,
    Cancel,
    Heartbeat,
}

impl Operation {
    fn span(self, adapter: &str) -> Span {
        match self {
            Self::Send => info_span!("broker.send", adapter, rtt_ms = Empty, outcome = Empty),
            Self::Status => info_span!("broker.status", adapter, rtt_ms = Empty, outcome = Empty),
            Self::Cancel => info_span!("broker.cancel", adapter, rtt_ms = Empty, outcome = Empty),
            Self::Heartbeat => {
                info_span!("broker.heartbeat", adapter, rtt_ms = Empty, outcome = Empty)
            }
        }
    }
}

/// Runs an operation in its span and counts it: the one place where both happen.
///
/// The span is opened when the future is first polled, so it becomes a child of whatever the caller
/// is doing then. Every adapter goes through here, those of tests too.
pub async fn observed<T>(
    adapter: &str,
    operation: Operation,
    work: impl Future<Output = Reply<T>>,
) -> Reply<T> {
    let span = operation.span(adapter);
    let reply = work.instrument(span.clone()).await;
    let outcome = label(&reply.outcome);
    span.record("rtt_ms", u64::try_from(reply.rtt.as_millis()).unwrap_or(u64::MAX));
    span.record("outcome", outcome);
    if operation != Operation::Heartbeat {
        let adapter = adapter.to_owned();
        metrics::counter!(REQUESTS_TOTAL, "adapter" => adapter, "outcome" => outcome).increment(1);
    }
    reply
}

/// The metric's word for an outcome: the one that the caller of `/do/order` would be told.
fn label<T>(outcome: &Outcome<T>) -> &'static str {
    let reason = match outcome {
        Outcome::Done(_) => return "ok",
        Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => reason,
    };
    match order::public_failure(&reason.code).0 {
        order::code::REJECTED => "rejected",
        order::code::TIMEOUT => "timeout",
        order::code::DOWN => "down",
        _ => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tashika_domain::order::broker_code;

    #[test]
    fn every_reason_code_has_its_label() {
        for (code, expected) in [
            (broker_code::BAD_REQUEST, "rejected"),
            (order::code::REJECTED, "rejected"),
            (broker_code::TIMEOUT, "timeout"),
            (broker_code::UNREACHABLE, "down"),
            (broker_code::SERVER_ERROR, "down"),
            (broker_code::RATE_LIMITED, "down"),
            (broker_code::UNAUTHORIZED, "internal"),
            (broker_code::UNKNOWN, "internal"),
            (ALREADY_PROCESSED, "internal"),
        ] {
            let lost: Outcome<()> = Outcome::Lost(Reason::new(code, ""));
            assert_eq!(label(&lost), expected, "{code}");
        }
        assert_eq!(label(&Outcome::Done(())), "ok");
    }
}
