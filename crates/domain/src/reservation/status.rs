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

/// The step has no place any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reservation that is {} cannot be cancelled", .0.as_str())]
pub struct TooLate(pub Status);

/// The state machine, whole. `standing` is the status at this moment: a hold whose time is over is
/// expired here, whether or not anybody has written that down.
pub const fn next(standing: Status, event: Event) -> Result<(Status, Duty), TooLate> {
    match (standing, event) {
        (Status::Hold, Event::Paid | Event::Reclaimed) | (Status::Expired, Event::Reclaimed) => {
            Ok((Status::Confirmed, Duty::Fulfil))
        }
        (Status::Hold, Event::Cancel) => Ok((Status::Cancelled, Duty::Close)),
        (Status::Confirmed, Event::Cancel | Event::GiveUp) => Ok((Status::Cancelled, Duty::Refund)),
        // The deadline holds.
        (Status::Expired, Event::Paid) => Ok((Status::Expired, Duty::Refund)),
        (Status::Expired, Event::Cancel) => Err(TooLate(Status::Expired)),
        // Money for something that its owner has given up, or that could not be made.
        (Status::Cancelled, Event::Paid | Event::Reclaimed) => {
            Ok((Status::Cancelled, Duty::Refund))
        }
        // Said twice, or said of something that is over: nothing happens a second time. The timer of a
        // hold whose time is not over has come too early, and comes again.
        (Status::Confirmed, Event::Paid | Event::Reclaimed | Event::Deadline)
        | (Status::Hold | Status::Expired | Status::Cancelled, Event::Deadline | Event::GiveUp)
        | (Status::Cancelled, Event::Cancel) => Ok((standing, Duty::Nothing)),
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
                    Ok(_) => continue,
                    Err(_) => format!("{name} --{event:?}--> refused (CANNOT_CANCEL)"),
                };
                lines.push(line);
            }
        }
        let document = include_str!("../../../../docs/states/reservation.md");
        let documented: Vec<&str> = document.lines().filter(|l| l.contains("-->")).collect();
        assert_eq!(lines, documented, "docs/states/reservation.md and the machine differ");
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
