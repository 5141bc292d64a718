//! From what is known after a call to what it means.
//!
//! [`Meaning::of`] is the table of status codes; [`placed`], [`located`] and [`withdrawn`] read the
//! bodies that say more than the code; [`judged`] puts the two together with the evidence. The
//! question that each row of the table answers is: can the order have been executed? Where the
//! answer is not a clear no, the row says `Lost`, and the order is asked about, or repeated under its
//! key.

use ::http::StatusCode;
use tashika_domain::order::{Execution, broker_code};
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp};

use super::{ALREADY_PROCESSED, Reply, Whereabouts, report};
use crate::http::{Answer, Call, Known, retry_after};

const REQUEST_ID: &str = "x-request-id";

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
fn outcome<T>(answer: &Answer, now: Timestamp) -> Outcome<T> {
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

/// What a reply to `send` means, where its body matters.
pub(super) fn placed(answer: &Answer, id: &str) -> Option<Outcome<Execution>> {
    if Meaning::of(answer.status) != Meaning::Accepted {
        return None;
    }
    let status = answer.status.as_u16();
    Some(match report::whereabouts(&answer.body, id) {
        Some(Whereabouts::Executed(execution)) => Outcome::Done(execution),
        Some(Whereabouts::Rejected(reason)) => Outcome::Refused(reason),
        Some(Whereabouts::Working) => Outcome::Lost(Reason::new(
            broker_code::TIMEOUT,
            format!("the broker answered {status}: it has the order and is not done with it"),
        )),
        // It said yes, so the order is probably executed; without a report nobody can say how.
        Some(Whereabouts::NotFound) | None => Outcome::Lost(Reason::new(
            broker_code::UNKNOWN,
            format!("the broker answered {status} without a readable report"),
        )),
    })
}

/// What a reply to `status` means, where its body matters.
pub(super) fn located(answer: &Answer, id: &str) -> Option<Outcome<Whereabouts>> {
    let status = answer.status.as_u16();
    match Meaning::of(answer.status) {
        Meaning::Accepted => Some(match report::whereabouts(&answer.body, id) {
            Some(whereabouts) => Outcome::Done(whereabouts),
            None => Outcome::Lost(Reason::new(
                broker_code::UNKNOWN,
                format!("the broker answered {status} without a readable report"),
            )),
        }),
        // "Not found" leads to sending again. A 404 of some router on the way must not do that, so
        // the broker has to say it in words.
        _ if status == 404 => Some(if report::is_not_found(&answer.body) {
            Outcome::Done(Whereabouts::NotFound)
        } else {
            Outcome::Lost(Reason::new(
                broker_code::UNKNOWN,
                "404, but not the broker's ORDER_NOT_FOUND: it may come from something in between",
            ))
        }),
        _ => None,
    }
}

/// What a reply to `cancel` means, where its body matters.
pub(super) fn withdrawn(answer: &Answer) -> Option<Outcome<()>> {
    match Meaning::of(answer.status) {
        Meaning::Accepted => Some(Outcome::Done(())),
        Meaning::Conflict if report::is_already_processed(&answer.body) => Some(Outcome::Refused(
            Reason::new(ALREADY_PROCESSED, "too late: the order is executed"),
        )),
        _ => None,
    }
}

/// From a call to a reply: `read` looks at answers first, the table decides about the rest.
pub(super) fn judged<T>(
    request: &str,
    call: &Call,
    now: Timestamp,
    read: impl FnOnce(&Answer) -> Option<Outcome<T>>,
) -> Reply<T> {
    let (outcome, said, reference) = match &call.known {
        Known::Answered(answer) => (
            read(answer).unwrap_or_else(|| outcome(answer, now)),
            answer.status.as_u16().to_string(),
            request_id(answer),
        ),
        Known::NotSent(why) => {
            let reason = Reason::new(broker_code::UNREACHABLE, why.to_string());
            let retry_in = None;
            (Outcome::Busy { reason, retry_in }, format!("not sent: {why}"), None)
        }
        Known::NoAnswer(why) => {
            let reason = Reason::new(broker_code::TIMEOUT, why.to_string());
            (Outcome::Lost(reason), why.to_string(), None)
        }
    };
    let exchange = Exchange {
        request: request.to_owned(),
        reply: said,
        reference,
        sent: !matches!(call.known, Known::NotSent(_)),
    };
    Reply { outcome, exchange, rtt: call.rtt }
}

/// The broker's name for the exchange, if it gave one that can be shown.
fn request_id(answer: &Answer) -> Option<String> {
    let id = answer.headers.get(REQUEST_ID)?.to_str().ok()?.trim();
    (!id.is_empty() && id.len() <= 128).then(|| id.to_owned())
}
