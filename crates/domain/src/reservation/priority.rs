//! Who prevails when two things are true of one reservation at the same moment.
//!
//! The table of the protocol, as one function. [`super::status::next`] is built on it; a test holds the
//! two against each other.

/// One of two contradicting claims about a reservation or its render.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    Hold,
    Expired,
    Confirmed,
    Cancelled,
    /// A render is being made.
    Processing,
    /// A render has failed; `retryable` while attempts are left.
    Failed {
        retryable: bool,
    },
}

/// Which claim prevails, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prevails {
    pub claim: Claim,
    /// Money that came for the other claim goes back.
    pub refund: bool,
}

/// The table. `None`: the two do not contradict each other.
#[must_use]
pub const fn prevails(one: Claim, other: Claim) -> Option<Prevails> {
    let (claim, refund) = match (one, other) {
        // A time that is over is a fact.
        (Claim::Hold, Claim::Expired) | (Claim::Expired, Claim::Hold) => (Claim::Expired, false),
        // The deadline holds.
        (Claim::Expired, Claim::Confirmed) | (Claim::Confirmed, Claim::Expired) => {
            (Claim::Expired, true)
        }
        // The owner's wish counts.
        (Claim::Confirmed, Claim::Cancelled) | (Claim::Cancelled, Claim::Confirmed) => {
            (Claim::Cancelled, true)
        }
        // Giving the service comes first, while it can be given.
        (Claim::Processing, Claim::Failed { retryable: true })
        | (Claim::Failed { retryable: true }, Claim::Processing) => (Claim::Processing, false),
        (Claim::Processing, failed @ Claim::Failed { retryable: false })
        | (failed @ Claim::Failed { retryable: false }, Claim::Processing) => (failed, true),
        _ => return None,
    };
    Some(Prevails { claim, refund })
}

#[cfg(test)]
mod tests {
    use super::super::status::{Duty, Event, Status, next};
    use super::*;

    fn both_ways(one: Claim, other: Claim) -> Option<Prevails> {
        let found = prevails(one, other);
        assert_eq!(found, prevails(other, one), "the order of the claims does not matter");
        found
    }

    #[test]
    fn hold_against_expired_is_expired() {
        let found = both_ways(Claim::Hold, Claim::Expired).unwrap();
        assert_eq!(found, Prevails { claim: Claim::Expired, refund: false });
    }

    #[test]
    fn expired_against_confirmed_is_expired_and_the_money_goes_back() {
        let found = both_ways(Claim::Expired, Claim::Confirmed).unwrap();
        assert_eq!(found, Prevails { claim: Claim::Expired, refund: true });
        assert_eq!(next(Status::Expired, Event::Paid), Ok((Status::Expired, Duty::Refund)));
    }

    #[test]
    fn confirmed_against_cancelled_is_cancelled_and_the_money_goes_back() {
        let found = both_ways(Claim::Confirmed, Claim::Cancelled).unwrap();
        assert_eq!(found, Prevails { claim: Claim::Cancelled, refund: true });
        assert_eq!(next(Status::Confirmed, Event::Cancel), Ok((Status::Cancelled, Duty::Refund)));
        assert_eq!(next(Status::Cancelled, Event::Paid), Ok((Status::Cancelled, Duty::Refund)));
    }

    #[test]
    fn processing_against_failed_is_processing_while_it_can_be_retried() {
        let again = both_ways(Claim::Processing, Claim::Failed { retryable: true }).unwrap();
        assert_eq!(again, Prevails { claim: Claim::Processing, refund: false });
        let over = both_ways(Claim::Processing, Claim::Failed { retryable: false }).unwrap();
        assert_eq!(over, Prevails { claim: Claim::Failed { retryable: false }, refund: true });
    }

    #[test]
    fn other_pairs_do_not_contradict_each_other() {
        for claim in [Claim::Hold, Claim::Expired, Claim::Confirmed, Claim::Cancelled] {
            assert_eq!(both_ways(claim, claim), None);
            assert_eq!(both_ways(claim, Claim::Processing), None);
        }
        assert_eq!(both_ways(Claim::Hold, Claim::Confirmed), None);
    }
}
