//! From a status code to what it means: the table of `docs/gateway-protocol.md`.
//!
//! The question that each row answers is: can this request have moved money? Where the answer is not a
//! clear no, the row says `Lost`, and the payment is asked about.

use ::http::StatusCode;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::code;
use tashika_domain::{Outcome, Timestamp};

use super::super::wire;
use super::payment;
use crate::http::{Answer, retry_after};

/// What a status code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Yes; the body has the rest.
    Accepted,
    /// The payment is in another state; the body says in which.
    Conflict,
    /// The customer's bank said no.
    Declined,
    /// No, and a repeat will not change that.
    Refused(&'static str),
    /// Not executed; may be repeated.
    Busy,
    /// Not executed, if it says when to come back; otherwise nobody knows.
    BusyIfToldWhen,
    /// Nobody knows.
    Lost(&'static str),
}

impl Meaning {
    pub(super) const fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Accepted,
            402 => Self::Declined,
            409 => Self::Conflict,
            400 | 404 | 405 | 413 | 414 | 415 | 422 | 431 => Self::Refused(code::INVALID_REQUEST),
            401 | 403 => Self::Refused(code::UNAUTHORIZED),
            429 => Self::Busy,
            // A server that says when to come back turned the request away at the door. A bare 503
            // may as well come from a proxy whose backend died in the middle.
            503 => Self::BusyIfToldWhen,
            408 | 504 => Self::Lost(code::TIMEOUT),
            _ => Self::Lost(code::UNKNOWN),
        }
    }
}

/// The outcome of an answer whose body changes nothing, or has nothing more to say.
pub(super) fn outcome<T>(answer: &Answer, now: Timestamp, secret: &str) -> Outcome<T> {
    let retry_in = retry_after(&answer.headers, now);
    let reason = |code: &str| Reason::new(code, sentence(answer, secret));
    match Meaning::of(answer.status) {
        Meaning::Declined => {
            Outcome::Refused(payment::declined(&payment::trouble(&answer.body), secret))
        }
        Meaning::Refused(code) => Outcome::Refused(reason(code)),
        Meaning::Busy => Outcome::Busy { reason: reason(code::NETWORK_ERROR), retry_in },
        Meaning::BusyIfToldWhen if retry_in.is_some() => {
            Outcome::Busy { reason: reason(code::NETWORK_ERROR), retry_in }
        }
        // A yes without a body that says to what; a conflict that does not say with what: the key in
        // use, or used for something else. An earlier request may have acted.
        Meaning::Accepted | Meaning::Conflict | Meaning::BusyIfToldWhen => {
            Outcome::Lost(reason(code::UNKNOWN))
        }
        Meaning::Lost(code) => Outcome::Lost(reason(code)),
    }
}

/// An answer in a sentence: `the gateway answered 422: CURRENCY: only EUR and USD`.
fn sentence(answer: &Answer, secret: &str) -> String {
    let status = answer.status.as_u16();
    let trouble = payment::trouble(&answer.body);
    let code = trouble.code.filter(|code| wire::is_id(code));
    let words =
        [wire::words(code.as_deref(), secret), wire::words(trouble.message.as_deref(), secret)];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() {
        return match Meaning::of(answer.status) {
            Meaning::Accepted => format!("the gateway answered {status} without a readable body"),
            _ => format!("the gateway answered {status}"),
        };
    }
    format!("the gateway answered {status}: {}", words.join(": "))
}
