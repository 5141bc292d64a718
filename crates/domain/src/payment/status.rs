//! The states of a payment, and the whole machine.

use serde::Serialize;

/// Where a payment stands. Spelled as the contract spells it, in the database and in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Not known to be authorized, not known to have failed.
    Pending,
    /// The amount is reserved.
    Authorized,
    /// Money has moved; part of it may have been given back.
    Captured,
    /// Everything was given back, or released before it was taken.
    Refunded,
    /// It is certain that no money will move.
    Failed,
}

impl Status {
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Authorized, Self::Captured, Self::Refunded, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Authorized => "AUTHORIZED",
            Self::Captured => "CAPTURED",
            Self::Refunded => "REFUNDED",
            Self::Failed => "FAILED",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Refunded | Self::Failed)
    }
}

/// What can become known about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Authorize,
    Fail,
    Capture,
    /// Released before anything was captured.
    Void,
    /// Something was given back, something is left.
    RefundPart,
    /// The last of what was captured was given back.
    RefundRest,
}

impl Event {
    pub const ALL: [Self; 6] = [
        Self::Authorize,
        Self::Fail,
        Self::Capture,
        Self::Void,
        Self::RefundPart,
        Self::RefundRest,
    ];

    /// As audit lines name it: `payment.…`.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Authorize => "authorized",
            Self::Fail => "failed",
            Self::Capture => "captured",
            Self::Void => "voided",
            Self::RefundPart | Self::RefundRest => "refunded",
        }
    }

    /// The name under which the world hears of it.
    #[must_use]
    pub const fn published_as(self) -> &'static str {
        match self {
            Self::Authorize => "PaymentAuthorized",
            Self::Fail => "PaymentFailed",
            Self::Capture => "PaymentCaptured",
            Self::Void => "PaymentVoided",
            Self::RefundPart | Self::RefundRest => "PaymentRefunded",
        }
    }
}

/// A transition that the machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a payment that is {} cannot {event:?}", .state.as_str())]
pub struct IllegalTransition {
    pub state: Status,
    pub event: Event,
}

/// The state machine, whole.
pub const fn next(state: Status, event: Event) -> Result<Status, IllegalTransition> {
    match (state, event) {
        (Status::Pending, Event::Authorize) => Ok(Status::Authorized),
        (Status::Pending, Event::Fail) => Ok(Status::Failed),
        (Status::Authorized, Event::Capture) | (Status::Captured, Event::RefundPart) => {
            Ok(Status::Captured)
        }
        (Status::Authorized, Event::Void) | (Status::Captured, Event::RefundRest) => {
            Ok(Status::Refunded)
        }
        (state, event) => Err(IllegalTransition { state, event }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_those_of_the_document() {
        let mut lines = Vec::new();
        for state in Status::ALL {
            for event in Event::ALL {
                if let Ok(to) = next(state, event) {
                    lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
                }
            }
        }
        let document = include_str!("../../../../docs/states/payment.md");
        let documented: Vec<&str> = document.lines().filter(|l| l.contains("-->")).collect();
        assert_eq!(lines, documented, "docs/states/payment.md and the machine differ");
    }

    #[test]
    fn nothing_leaves_a_final_state() {
        for state in Status::ALL.into_iter().filter(|state| state.is_final()) {
            for event in Event::ALL {
                assert!(next(state, event).is_err(), "{state:?} {event:?}");
            }
        }
    }
}
