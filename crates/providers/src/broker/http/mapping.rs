//! What a broker's status code means, as a table.
//!
//! The question that each row answers is: can the order have been executed? Where the answer is not
//! a clear no, the row says `Lost`, and the order is asked about or repeated under its key.

use ::http::StatusCode;
use tashika_domain::order::broker_code;
use tashika_domain::outcome::Reason;
use tashika_domain::{Outcome, Timestamp};

use super::report;
use crate::http::{Answer, retry_after};

/// What a status code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Yes; the body has the rest.
    Accepted,
    /// There is something under this id already; the body says what.
    Conflict,
    /// No, and a repeat will not change that.
    Refused(&'static str),
    /// Not now.
    Busy(&'static str),
    /// Not now, if it says when; otherwise nobody knows.
    BusyIfToldWhen(&'static str),
    /// Nobody knows.
    Lost(&'static str),
}

impl Meaning {
    pub(super) const fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Accepted,
            409 => Self::Conflict,
            // The broker looked at it and said no: malformed, no such endpoint or method, too
            // large, not its media type, against its rules.
            400 | 404 | 405 | 413 | 414 | 415 | 422 | 431 => {
                Self::Refused(broker_code::BAD_REQUEST)
            }
            401 | 403 => Self::Refused(broker_code::UNAUTHORIZED),
            429 => Self::Busy(broker_code::RATE_LIMITED),
            // Somebody on the way lost patience; the broker may have executed meanwhile.
            408 | 504 => Self::Lost(broker_code::TIMEOUT),
            // A server that says when to come back turned the request away at the door. A bare 503
            // may as well come from a proxy whose backend died in the middle.
            503 => Self::BusyIfToldWhen(broker_code::SERVER_ERROR),
            // It failed, but not necessarily before executing.
            500..=599 => Self::Lost(broker_code::SERVER_ERROR),
            _ => Self::Lost(broker_code::UNKNOWN),
        }
    }
}

/// The outcome of an answer whose body changes nothing, or has nothing more to say.
pub(super) fn outcome<T>(answer: &Answer, now: Timestamp) -> Outcome<T> {
    let retry_in = retry_after(&answer.headers, now);
    let reason = |code: &str| Reason::new(code, report::sentence(answer));
    match Meaning::of(answer.status) {
        Meaning::Refused(code) => Outcome::Refused(reason(code)),
        // Our key, another content: this order was not executed and will not be.
        Meaning::Conflict if report::is_key_conflict(&answer.body) => {
            Outcome::Refused(reason(broker_code::BAD_REQUEST))
        }
        // Any other conflict may be the broker's way to say that it has the order, so it is no "no".
        Meaning::Conflict | Meaning::Accepted => Outcome::Lost(reason(broker_code::UNKNOWN)),
        Meaning::Busy(code) => Outcome::Busy { reason: reason(code), retry_in },
        Meaning::BusyIfToldWhen(code) if retry_in.is_some() => {
            Outcome::Busy { reason: reason(code), retry_in }
        }
        Meaning::BusyIfToldWhen(code) | Meaning::Lost(code) => Outcome::Lost(reason(code)),
    }
}
