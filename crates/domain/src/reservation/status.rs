//! The states of a reservation, and the whole machine.

use serde::Serialize;

/// Where a reservation stands. Spelled as the contract spells it, in the database and in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The slot is kept for a customer who has not paid yet.
    Hold,
    /// Paid: the slot is the customer's.
    Confirmed,
    /// Nobody paid in time. The slot is free.
    Expired,
    /// Given up by its owner, or because the service could not be given. The slot is free.
    Cancelled,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Hold, Self::Confirmed, Self::Expired, Self::Cancelled];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Confirmed => "confirmed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Nobody else can have the slot.
    #[must_use]
    pub const fn has_slot(self) -> bool {
        matches!(self, Self::Hold | Self::Confirmed)
    }
}

/// What can happen to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The timer of the hold has rung.
    Deadline,
    /// Its money has come.
    Paid,
    /// Its money has come, too late; policy lets it have a slot that nobody else has.
    Reclaimed,
    /// Its owner does not want it any more.
    Cancel,
    /// What was bought cannot be made.
    GiveUp,
}

impl Event {
    pub const ALL: [Self; 5] =
        [Self::Deadline, Self::Paid, Self::Reclaimed, Self::Cancel, Self::GiveUp];
}

/// What must be done together with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    Nothing,
    /// What was bought is made.
    Fulfil,
    /// The money goes back, and the customer is told.
    Refund,
    /// The page on which the customer could still pay is closed.
    Close,
}

/// The step has no place here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its owner comes too late.
    #[error("a reservation that is {} cannot be cancelled", .0.as_str())]
    TooLate(Status),
    /// Nobody decides this: money is reclaimed only for what has expired, and only what was confirmed
    /// has something to give up.
    #[error("a reservation that is {} knows no {:?}", .0.as_str(), .1)]
    Illegal(Status, Event),
}

/// The state machine, whole. `standing` is the status at this moment: a hold whose time is over is
/// expired here, whether or not anybody has written that down.
pub const fn next(standing: Status, event: Event) -> Result<(Status, Duty), Refused> {
    match (standing, event) {
        (Status::Hold, Event::Paid) | (Status::Expired, Event::Reclaimed) => {
            Ok((Status::Confirmed, Duty::Fulfil))
        }
        (Status::Hold, Event::Cancel) => Ok((Status::Cancelled, Duty::Close)),
        // Also money for something that its owner has given up, or that could not be made.
        (Status::Confirmed, Event::Cancel | Event::GiveUp) | (Status::Cancelled, Event::Paid) => {
            Ok((Status::Cancelled, Duty::Refund))
        }
        // The deadline holds.
        (Status::Expired, Event::Paid) => Ok((Status::Expired, Duty::Refund)),
        (Status::Expired, Event::Cancel) => Err(Refused::TooLate(Status::Expired)),
        // Said twice, or said of something that is over: nothing happens a second time. The timer of a
        // hold whose time is not over has come too early, and comes again.
        (Status::Confirmed, Event::Paid | Event::Deadline)
        | (Status::Hold | Status::Expired, Event::Deadline)
        | (Status::Cancelled, Event::Deadline | Event::Cancel | Event::GiveUp) => {
            Ok((standing, Duty::Nothing))
        }
        (Status::Hold | Status::Confirmed | Status::Cancelled, Event::Reclaimed)
        | (Status::Hold | Status::Expired, Event::GiveUp) => Err(Refused::Illegal(standing, event)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_those_of_the_document() {
        let mut lines = Vec::new();
        for (name, standing) in [
            ("hold", Status::Hold),
            ("hold past its time", Status::Expired),
            ("confirmed", Status::Confirmed),
            ("expired", Status::Expired),
            ("cancelled", Status::Cancelled),
        ] {
            for event in Event::ALL {
                let line = match next(standing, event) {
                    Ok((to, duty)) if to.as_str() != name || duty != Duty::Nothing => {
                        format!("{name} --{event:?}--> {} ({duty:?})", to.as_str())
                    }
                    Ok(_) | Err(Refused::Illegal(..)) => continue,
                    Err(Refused::TooLate(_)) => {
                        format!("{name} --{event:?}--> refused (CANNOT_CANCEL)")
                    }
                };
                lines.push(line);
            }
        }
        let document = include_str!("../../../../docs/states/reservation.md");
        let documented: Vec<&str> = document.lines().filter(|l| l.contains("-->")).collect();
        assert_eq!(lines, documented, "docs/states/reservation.md and the machine differ");
    }

    #[test]
    fn only_what_expired_is_reclaimed_and_nothing_unpaid_is_given_up() {
        for status in Status::ALL {
            let illegal = |event| next(status, event) == Err(Refused::Illegal(status, event));
            assert_eq!(illegal(Event::Reclaimed), status != Status::Expired, "{status:?}");
            let unpaid = matches!(status, Status::Hold | Status::Expired);
            assert_eq!(illegal(Event::GiveUp), unpaid, "{status:?}");
        }
    }

    #[test]
    fn a_slot_that_was_given_up_comes_back_only_by_reclaiming() {
        for event in Event::ALL.into_iter().filter(|event| *event != Event::Reclaimed) {
            for status in [Status::Expired, Status::Cancelled] {
                let after = next(status, event).map_or(status, |(to, _)| to);
                assert!(!after.has_slot(), "{status:?} {event:?}");
            }
        }
    }
}
