//! What each of Stripe's errors says about the money.
//!
//! [`ROWS`] is the table; the first row that fits decides. The question that each row answers is: can
//! *this* request have moved money? Where the answer is not a clear no, the row says `Lost` and the
//! payment is asked about.
//!
//! # `Stripe-Should-Retry`
//!
//! The header tells Stripe's own libraries whether repeating under the same key makes sense. It is
//! obeyed where the table has no better knowledge:
//!
//! - `true` on a 4xx that no row names is `Busy`: a request that Stripe wants repeated was not refused
//!   for good, and a 4xx was not executed.
//! - `true` on a named error changes nothing. Stripe's libraries repeat a 409 because the key protects
//!   them; for us `idempotency_key_in_use` still means that an earlier request is under way.
//! - `true` on a 5xx changes nothing: worth repeating is not the same as not executed.
//! - `false` changes nothing. It says that repeating at once is pointless, not that something was
//!   executed: a 429 was turned away at the door whatever its header says, and whoever calls waits
//!   before it repeats.

use std::ops::RangeInclusive;

use ::http::HeaderMap;
use serde::Deserialize;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::code;
use tashika_domain::{Outcome, Timestamp};

use super::super::wire;
use crate::http::{Answer, retry_after};

const SHOULD_RETRY: &str = "stripe-should-retry";

/// Stripe's error object: `{"error": {…}}`, and `last_payment_error` of an intent.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ErrorObject {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub code: Option<String>,
    pub decline_code: Option<String>,
    pub message: Option<String>,
}

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The payment is in another state than we thought; Stripe is asked for it.
    Ask,
    /// The customer's bank said no.
    Declined,
    /// No, and a repeat will not change that.
    Refused(&'static str),
    /// Not executed; may be repeated.
    Busy,
    /// Nobody knows.
    Lost(&'static str),
}

/// What a row looks at besides the status.
#[derive(Clone, Copy, Debug)]
enum Named {
    Anything,
    /// There is no error object: somebody between Stripe and us may have said it.
    Nothing,
    Type(&'static str),
    Code(&'static str),
}

#[derive(Debug)]
struct Row {
    status: RangeInclusive<u16>,
    named: Named,
    meaning: Meaning,
    /// Whether `Stripe-Should-Retry: true` makes it `Busy`.
    heeds_retry: bool,
}

const fn row(status: RangeInclusive<u16>, named: Named, meaning: Meaning) -> Row {
    Row { status, named, meaning, heeds_retry: false }
}

const fn unless_retry(status: RangeInclusive<u16>, named: Named, meaning: Meaning) -> Row {
    Row { status, named, meaning, heeds_retry: true }
}

const ROWS: &[Row] = &[
    // Configuration: refused before anything else is looked at.
    row(401..=401, Named::Anything, Meaning::Refused(code::UNAUTHORIZED)),
    row(403..=403, Named::Anything, Meaning::Refused(code::UNAUTHORIZED)),
    // It failed, but not necessarily before executing; a stored 500 comes back under the same key.
    row(500..=599, Named::Anything, Meaning::Lost(code::UNKNOWN)),
    row(408..=408, Named::Anything, Meaning::Lost(code::TIMEOUT)),
    // Our mistake: the same key with other parameters. The first request may have acted.
    row(400..=499, Named::Type("idempotency_error"), Meaning::Lost(code::UNKNOWN)),
    // The first request under this key is still running.
    row(400..=499, Named::Code("idempotency_key_in_use"), Meaning::Lost(code::UNKNOWN)),
    // Turned away at the door.
    row(429..=429, Named::Anything, Meaning::Busy),
    row(400..=499, Named::Code("lock_timeout"), Meaning::Busy),
    row(400..=499, Named::Code("rate_limit"), Meaning::Busy),
    // Stripe knows the payment in another state than we do.
    row(400..=499, Named::Code("payment_intent_unexpected_state"), Meaning::Ask),
    row(400..=499, Named::Code("charge_already_captured"), Meaning::Ask),
    row(400..=499, Named::Code("charge_already_refunded"), Meaning::Ask),
    row(400..=499, Named::Code("charge_expired_for_capture"), Meaning::Ask),
    row(400..=499, Named::Code("capture_charge_authorization_expired"), Meaning::Ask),
    // Soft declines and missing authentication: the intent says what came of it.
    row(400..=499, Named::Code("processing_error"), Meaning::Ask),
    row(400..=499, Named::Code("payment_method_provider_timeout"), Meaning::Ask),
    row(400..=499, Named::Code("authentication_required"), Meaning::Ask),
    // A refusal counts only in Stripe's own words.
    row(400..=499, Named::Nothing, Meaning::Lost(code::UNKNOWN)),
    row(402..=402, Named::Anything, Meaning::Declined),
    unless_retry(409..=409, Named::Anything, Meaning::Lost(code::UNKNOWN)),
    unless_retry(400..=499, Named::Anything, Meaning::Refused(code::INVALID_REQUEST)),
    // Redirects and whatever has no number of HTTP's.
    row(0..=u16::MAX, Named::Anything, Meaning::Lost(code::UNKNOWN)),
];

impl Row {
    fn fits(&self, status: u16, error: Option<&ErrorObject>) -> bool {
        self.status.contains(&status)
            && match self.named {
                Named::Anything => true,
                Named::Nothing => error.is_none(),
                Named::Type(kind) => error.is_some_and(|e| e.kind.as_deref() == Some(kind)),
                Named::Code(code) => error.is_some_and(|e| e.code.as_deref() == Some(code)),
            }
    }
}

fn position(status: u16, error: Option<&ErrorObject>) -> usize {
    // The last row fits everything.
    ROWS.iter().position(|row| row.fits(status, error)).unwrap_or(ROWS.len() - 1)
}

/// An error reply, understood.
pub(super) struct Failure {
    pub meaning: Meaning,
    pub error: ErrorObject,
    status: u16,
}

impl Failure {
    pub(super) fn of(answer: &Answer) -> Self {
        #[derive(Deserialize)]
        struct Body {
            error: ErrorObject,
        }
        let error = serde_json::from_slice(&answer.body).ok().map(|body: Body| body.error);
        let status = answer.status.as_u16();
        let row = &ROWS[position(status, error.as_ref())];
        let retry = row.heeds_retry && should_retry(&answer.headers);
        let meaning = if retry { Meaning::Busy } else { row.meaning };
        Self { meaning, error: error.unwrap_or_default(), status }
    }

    /// For the evidence: `402 card_declined/insufficient_funds`.
    pub(super) fn told(&self) -> String {
        let mut told = self.status.to_string();
        for (sign, word) in [(' ', &self.error.code), ('/', &self.error.decline_code)] {
            if let Some(word) = word.as_deref().filter(|word| wire::is_id(word)) {
                told.push(sign);
                told.push_str(word);
            }
        }
        told
    }

    pub(super) fn reason(&self, code: &str, secret: &str) -> Reason {
        let status = self.status;
        // Whatever is wrong with our credentials, its description is about our credentials.
        let said = self.error.message.as_deref().filter(|_| code != code::UNAUTHORIZED);
        let message = match (self.error.code.as_deref(), wire::words(said, secret)) {
            (Some(name), Some(words)) if wire::is_id(name) => {
                format!("Stripe answered {status}: {name}: {words}")
            }
            (_, Some(words)) => format!("Stripe answered {status}: {words}"),
            (_, None) => format!("Stripe answered {}", self.told()),
        };
        Reason::new(code, message)
    }

    /// The outcome, where the table alone decides. `None`: Stripe has to be asked.
    pub(super) fn outcome<T>(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
        secret: &str,
    ) -> Option<Outcome<T>> {
        Some(match self.meaning {
            Meaning::Ask => return None,
            Meaning::Declined => Outcome::Refused(declined(&self.error, secret)),
            Meaning::Refused(code) => Outcome::Refused(self.reason(code, secret)),
            Meaning::Busy => Outcome::Busy {
                reason: self.reason(code::NETWORK_ERROR, secret),
                retry_in: retry_after(headers, now),
            },
            Meaning::Lost(code) => Outcome::Lost(self.reason(code, secret)),
        })
    }
}

fn should_retry(headers: &HeaderMap) -> bool {
    headers.get(SHOULD_RETRY).is_some_and(|value| value == "true")
}

/// Why the customer's bank said no.
///
/// Stripe's message is made for customers; its `decline_code` is not (it may say "stolen"), and is
/// left to the evidence.
pub(super) fn declined(error: &ErrorObject, secret: &str) -> Reason {
    let says = |word: &str| {
        [&error.code, &error.decline_code].iter().any(|said| said.as_deref() == Some(word))
    };
    let (code, otherwise) = if says("insufficient_funds") {
        (code::INSUFFICIENT_FUNDS, "the card has insufficient funds")
    } else if says("expired_card") {
        (code::EXPIRED_CARD, "the card has expired")
    } else if says("authentication_required") {
        (code::ACTION_REQUIRED, "the customer has to authenticate the payment")
    } else {
        (code::CARD_DECLINED, "the card was declined")
    };
    let words = wire::words(error.message.as_deref(), secret);
    Reason::new(code, words.unwrap_or_else(|| otherwise.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that is made for a row, so that only a row above it could take it away.
    fn example(row: &Row) -> (u16, Option<ErrorObject>) {
        let error = match row.named {
            Named::Nothing => None,
            Named::Anything => Some(ErrorObject::default()),
            Named::Type(kind) => {
                Some(ErrorObject { kind: Some(kind.into()), ..ErrorObject::default() })
            }
            Named::Code(code) => {
                Some(ErrorObject { code: Some(code.into()), ..ErrorObject::default() })
            }
        };
        (*row.status.start(), error)
    }

    #[test]
    fn every_row_is_reached_and_says_what_it_says() {
        for (number, row) in ROWS.iter().enumerate() {
            let (status, error) = example(row);
            assert_eq!(position(status, error.as_ref()), number, "{row:?} is hidden");
        }
    }

    #[test]
    fn nothing_but_the_clear_cases_is_told_as_not_executed() {
        for status in (100..=399).chain(500..=999) {
            let row = &ROWS[position(status, None)];
            assert!(matches!(row.meaning, Meaning::Lost(_)), "{status}");
            assert!(!row.heeds_retry, "{status}");
        }
    }

    #[test]
    fn declines_have_our_codes_and_stripes_words() {
        let error = |code: &str, decline_code: Option<&str>, message: Option<&str>| ErrorObject {
            kind: Some("card_error".into()),
            code: Some(code.into()),
            decline_code: decline_code.map(Into::into),
            message: message.map(Into::into),
        };
        for (error, code, message) in [
            (
                error("card_declined", Some("insufficient_funds"), Some("Too little.")),
                code::INSUFFICIENT_FUNDS,
                "Too little.",
            ),
            (error("expired_card", None, None), code::EXPIRED_CARD, "the card has expired"),
            (
                error("card_declined", Some("stolen_card"), None),
                code::CARD_DECLINED,
                "the card was declined",
            ),
            (
                error("authentication_required", None, None),
                code::ACTION_REQUIRED,
                "the customer has to authenticate the payment",
            ),
            (error("incorrect_cvc", None, Some("Wrong.")), code::CARD_DECLINED, "Wrong."),
        ] {
            assert_eq!(declined(&error, "key"), Reason::new(code, message));
        }
    }
}
