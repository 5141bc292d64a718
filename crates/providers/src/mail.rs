//! Handing a mail to somebody who carries it further.
//!
//! [`Postman`] is the port: `smtp` speaks to a mail server, `sandbox` only pretends, `file` writes
//! into a folder. Called by the handler of mail in `engine`, once per attempt. One call is one
//! attempt: nothing in here sends a mail twice. It says what is known when it is over, in the classes
//! of [`domain::mail::verdict`](tashika_domain::mail::verdict), and when it was last known: a mail
//! whose final dot went out without an answer is *possibly sent* and nothing else.
//!
//! The limits (rate, quota, how many at once) are not kept here: they hold for all processes together,
//! so the engine keeps them in the database.

mod file;
pub mod mime;
mod sandbox;
pub mod smtp;

use std::future::Future;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::mail::{MailFault, MailResult};
use tashika_domain::outcome::{ERROR_MESSAGE_MAX, Exchange};
use tracing::field::Empty;
use tracing::{Instrument as _, info_span};

pub use file::FilePostman;
pub use sandbox::SandboxPostman;
pub use smtp::{SmtpPostman, SmtpUrl};

use crate::reply::BoxFuture;

/// A mail, ready to go.
#[derive(Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The sender's address, without a name.
    pub from: String,
    /// The recipient's address, without a name.
    pub to: String,
    /// Ours and the same in every attempt, without angle brackets: a repeat can be recognised by it.
    pub message_id: String,
    pub subject: String,
    pub html: String,
    pub text: String,
    pub date: Timestamp,
}

impl std::fmt::Debug for Parcel {
    /// Which mail, not whose and not what is in it: debug output ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}

/// How an attempt ended, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub result: MailResult,
    /// What was said, addresses masked, no credentials. `sent` is whether any of the mail itself, its
    /// first line after `DATA`, can have left.
    pub exchange: Exchange,
    /// How long it took, zero where nothing left the process.
    pub rtt: Duration,
}

/// Somebody who takes mail.
///
/// A trait because tests and the simulator put a world of their own behind it. A call that is
/// cancelled in the middle harms no later one.
pub trait Postman: Send + Sync {
    /// For metrics and the evidence.
    fn name(&self) -> &str;

    /// Tries once.
    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted>;

    /// Whether a mail could be sent now, short of sending one: connection, TLS, login. The error is a
    /// sentence for a person.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// Runs an attempt in its span. Every postman goes through here, those of tests too.
pub async fn observed(postman: &str, work: impl Future<Output = Posted>) -> Posted {
    let span = info_span!("mail.send", postman, rtt_ms = Empty, outcome = Empty);
    let posted = work.instrument(span.clone()).await;
    span.record("rtt_ms", u64::try_from(posted.rtt.as_millis()).unwrap_or(u64::MAX));
    span.record("outcome", label(&posted.result));
    posted
}

/// The word for a result in spans and metrics.
#[must_use]
pub const fn label(result: &MailResult) -> &'static str {
    match result {
        MailResult::Sent { .. } => "sent",
        MailResult::Refused { class, .. } => class.as_str(),
    }
}

/// An attempt that ended before anything left: the mail cannot be sent by anybody.
fn unsent(request: String, class: MailFault, text: String) -> Posted {
    let exchange =
        Exchange { request, reply: format!("not sent: {text}"), reference: None, sent: false };
    let result = MailResult::Refused { class, code: None, text };
    Posted { result, exchange, rtt: Duration::ZERO }
}

/// What is kept of what others say: no control characters, no addresses, not too much.
fn told(text: &str) -> String {
    let text = tashika_domain::mask::masked_text(text);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(ERROR_MESSAGE_MAX).collect()
}
