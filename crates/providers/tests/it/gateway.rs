//! What the tests of the gateways share.

use std::time::Duration;

use tashika_domain::payment::remote::{Remote, RemoteRefundState};
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::gateway::{Charge, RefundOrder};
use tashika_providers::http::ClientConfig;
use tashika_providers::reply::Reply;
use uuid::{Uuid, uuid};

use crate::server::{Act, Heard, Server, reply};

pub const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_123_456);
pub const PAYMENT: Uuid = uuid!("0190a1b2-0000-7000-8000-000000000001");
pub const REFUND: Uuid = uuid!("0190a1b2-0000-7000-8000-0000000000f1");
pub const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub fn client() -> ClientConfig {
    ClientConfig::with_timeout(Duration::from_millis(400))
}

pub fn charge<'a>(gateway_id: Option<&'a str>, payment_method: &'a str) -> Charge<'a> {
    Charge {
        payment_id: PAYMENT,
        gateway_id,
        amount: 5000,
        currency: "EUR",
        payment_method,
        customer: None,
        description: None,
        in_vain: 0,
        now: NOW,
        traceparent: Some(TRACE),
    }
}

pub const fn refund_order(amount: i64) -> RefundOrder<'static> {
    RefundOrder { refund_id: REFUND, number: 1, amount, reason: None }
}

/// `Refused CODE`, `Busy CODE 7s`, `Lost CODE`; or what `done` says.
pub fn told<T>(outcome: &Outcome<T>, done: impl FnOnce(&T) -> String) -> String {
    match outcome {
        Outcome::Done(value) => done(value),
        Outcome::Refused(reason) => format!("Refused {}", reason.code),
        Outcome::Busy { reason, retry_in: None } => format!("Busy {}", reason.code),
        Outcome::Busy { reason, retry_in: Some(wait) } => {
            format!("Busy {} {}s", reason.code, wait.as_secs())
        }
        Outcome::Lost(reason) => format!("Lost {}", reason.code),
    }
}

/// `CAPTURED 3000`, with `1000:succeeded` for each refund, and the code of the reason.
pub fn state(remote: &Remote) -> String {
    let mut text = remote.state.as_str().to_owned();
    if remote.captured > 0 {
        text = format!("{text} {}", remote.captured);
    }
    for refund in remote.refunds.iter().flatten() {
        let state = match refund.state {
            RemoteRefundState::Pending => "pending",
            RemoteRefundState::Succeeded => "succeeded",
            RemoteRefundState::Failed => "failed",
        };
        text = format!("{text} {}:{state}", refund.amount);
    }
    match &remote.reason {
        Some(reason) => format!("{text} {}", reason.code),
        None => text,
    }
}

pub fn stands(reply: &Reply<Remote>) -> String {
    told(&reply.outcome, state)
}

/// Plays complete replies, one per request.
pub async fn answering<'a, B: AsRef<str> + ?Sized + 'a>(
    replies: impl IntoIterator<Item = (u16, &'a str, &'a B)>,
) -> Server {
    let act =
        |(status, headers, body): (u16, &str, &B)| Act::Say(reply(status, headers, body.as_ref()));
    Server::playing(replies.into_iter().map(act)).await
}

/// `METHOD target` of everything that arrived.
pub fn lines(server: &Server) -> Vec<String> {
    server.heard().iter().map(line).collect()
}

pub fn line(heard: &Heard) -> String {
    format!("{} {}", heard.method, heard.target)
}
