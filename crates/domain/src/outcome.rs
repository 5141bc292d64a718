//! How an attempt ended, as a value.
//!
//! Every conversation with the outside world is mapped to one of four outcomes by `providers`; the
//! decisions in this crate look only at them. "No answer" is an outcome like the others, not an
//! error: it has rules of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It happened, and this is what came back.
    Done(T),
    /// It did not happen and will not: the other side looked at it and said no.
    Refused(Reason),
    /// It did not happen, but may later: overload, refusal to connect, a limit.
    Busy { reason: Reason, retry_in: Option<Duration> },
    /// Nobody knows whether it happened: the request may have left, no answer came back.
    Lost(Reason),
}

impl<T> Outcome<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::Refused(reason) => Outcome::Refused(reason),
            Self::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
            Self::Lost(reason) => Outcome::Lost(reason),
        }
    }
}

/// Why an attempt did not end in `Done`: a stable code for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

/// Longest `last_error_msg` a row keeps, in characters.
pub const ERROR_MESSAGE_MAX: usize = 512;

impl Reason {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        // PostgreSQL's text has no NUL, and a reason that cannot be written down helps nobody.
        let message: String = message.into().replace('\0', "");
        let message = match message.char_indices().nth(ERROR_MESSAGE_MAX) {
            Some((end, _)) => message[..end].to_owned(),
            None => message,
        };
        Self { code: code.into(), message }
    }
}

/// What was said and heard during an attempt: the evidence a person sees in a case.
///
/// Holds no secrets and no payload, only what identifies the exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// What was asked, e.g. `POST /orders`.
    pub request: String,
    /// What came back, e.g. `201` or `no answer within 2500 ms`.
    pub reply: String,
    /// The other side's reference, where it gave one.
    pub reference: Option<String>,
    /// Whether any byte of the request can have reached the other side.
    pub sent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lose_what_no_database_keeps() {
        assert_eq!(Reason::new("X", "a\0b").message, "ab");
    }

    #[test]
    fn messages_are_cut_at_512_characters_not_bytes() {
        let reason = Reason::new("X", "確".repeat(600));
        assert_eq!(reason.message.chars().count(), ERROR_MESSAGE_MAX);
    }
}
