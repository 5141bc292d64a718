//! What must be true of a run, judged in pure functions over what was read.
//!
//! | Rule | Says |
//! |---|---|
//! | nothing is lost | a reservation that a customer was told of exists, as it was asked for |
//! | nothing is invented | a reservation has a key under which somebody asked for it |
//! | one owner per slot | of the holds and confirmed reservations of a slot there is one (see `check`) |
//! | paid for what is kept | who is confirmed has paid, whole, at the gateway |
//! | no money back for what is kept | of what a confirmed customer has paid, nothing has gone back |
//! | the slot or the money | at rest whoever has not the slot has the money, or a person knows |
//! | over stays over | statuses move along the machine; only reclaiming revives, and only what has expired |
//! | cancelled is cancelled | of which a customer was told that it is cancelled, that is so for ever |
//! | every hold ends | at rest nobody holds |
//! | what was bought is made | at rest a confirmed reservation has one video that is done |
//! | nothing is made in vain | at rest the video of a cancelled reservation is done, or over |
//! | everybody is told | one letter, and one race, for every compensation (see `story`) |
//! | the whole story | the audit has every transition (see `story`) |
//! | the books balance | at rest our payments and the gateway's accounts are the same to the yen (see `check`) |
//!
//! What must be true of each payment and each webhook is said in `payments`, and holds here as well.

use std::collections::{BTreeMap, BTreeSet};

use tashika_domain::Timestamp;
use tashika_domain::render::{Render, State};
use tashika_domain::reservation::{LatePayment, Reservation, Status};
use uuid::Uuid;

use super::book::Entry;
use super::log::Violation;
use super::payments::account::Account;

/// What was seen of the reservations and renders before.
#[derive(Default)]
pub(crate) struct Memory {
    seen: BTreeMap<Uuid, (i64, Status)>,
    renders: BTreeMap<Uuid, (i64, State)>,
    /// Reservations that are not over.
    hot: BTreeSet<Uuid>,
}

impl Memory {
    pub fn touch(&mut self, id: Uuid) {
        self.hot.insert(id);
    }

    /// Some that are worth a look, others each time.
    pub fn hot(&self, turn: u64, most: usize) -> Vec<Uuid> {
        let len = self.hot.len().max(1);
        let skip = usize::try_from(turn).unwrap_or(0).wrapping_mul(most) % len;
        let twice = self.hot.iter().chain(self.hot.iter());
        twice.skip(skip).take(most.min(self.hot.len())).copied().collect()
    }
}

/// Everything that is known about one reservation at one moment.
pub(crate) struct Evidence<'a> {
    pub reservation: &'a Reservation,
    pub renders: &'a [Render],
    /// What was paid for it, at the gateway.
    pub accounts: &'a [Account],
    /// The key's entry in the book of the customers.
    pub entry: Option<&'a Entry>,
    pub told_cancelled: bool,
    pub policy: LatePayment,
    /// An open case, or a dead letter, is about its money.
    pub somebody_knows: bool,
    pub now: Timestamp,
    /// Nothing is under way any more.
    pub at_rest: bool,
}

type Finding = Result<(), (&'static str, String)>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Finding {
    Err((rule, detail.into()))
}

impl Evidence<'_> {
    pub fn judge(&self, memory: &mut Memory) -> Vec<Violation> {
        let mut findings = vec![
            self.as_it_was_asked_for(),
            self.paid_for_what_is_kept(),
            self.no_money_back_for_what_is_kept(),
            self.over_stays_over(memory),
            self.renders_stay_over(memory),
        ];
        if self.at_rest {
            findings.push(self.the_slot_or_the_money());
            findings.push(self.what_was_bought_is_made());
        }
        let id = self.reservation.id;
        // What is over may still hear of money.
        if self.reservation.status.has_slot() || self.held() > 0 {
            memory.hot.insert(id);
        } else {
            memory.hot.remove(&id);
        }
        let violation = |(rule, detail)| Violation { rule, key: id.to_string(), detail };
        findings.into_iter().filter_map(Result::err).map(violation).collect()
    }

    fn held(&self) -> i64 {
        self.accounts.iter().map(|account| account.held(self.now)).sum()
    }

    fn as_it_was_asked_for(&self) -> Finding {
        let Some(entry) = self.entry else {
            return broken("nothing is invented", "nobody asked for it");
        };
        let Some((taken, id)) = entry.taken else {
            return if self.at_rest {
                broken("nothing is invented", "nobody was told of it")
            } else {
                Ok(())
            };
        };
        let (asked, request) = (&entry.bodies[taken], &self.reservation.request);
        let same = asked["amount"] == request.amount
            && asked["slotNumber"] == request.slot_number
            && asked["projectionDate"] == *request.projection_date
            && asked["userId"] == *request.user_id;
        if id != self.reservation.id || !same {
            return broken("nothing is lost", "it is not what was asked for");
        }
        Ok(())
    }

    fn paid_for_what_is_kept(&self) -> Finding {
        if self.reservation.status != Status::Confirmed {
            return Ok(());
        }
        let (paid, price) = (
            self.accounts.iter().map(Account::captured).sum::<i64>(),
            self.reservation.request.amount,
        );
        if paid != price {
            return broken("paid for what is kept", format!("{paid} of {price} were paid"));
        }
        Ok(())
    }

    fn no_money_back_for_what_is_kept(&self) -> Finding {
        let back: i64 = self.accounts.iter().map(|account| account.refunded(self.now)).sum();
        if self.reservation.status == Status::Confirmed && back > 0 {
            return broken("no money back for what is kept", format!("{back} went back"));
        }
        Ok(())
    }

    fn over_stays_over(&self, memory: &mut Memory) -> Finding {
        const RULE: &str = "over stays over";
        let reservation = self.reservation;
        if self.told_cancelled && reservation.status != Status::Cancelled {
            let is = reservation.status.as_str();
            return broken("cancelled is cancelled", format!("its owner was told so, it is {is}"));
        }
        let now = (reservation.version, reservation.status);
        let Some((version, status)) = memory.seen.insert(reservation.id, now) else {
            return Ok(());
        };
        if now.0 < version {
            return broken(RULE, format!("version {version}, then {}", now.0));
        }
        let moves = match (status, now.1) {
            (was, is) if was == is => true,
            (Status::Hold, _) | (Status::Confirmed, Status::Cancelled) => true,
            // And from there it may have been cancelled.
            (Status::Expired, Status::Confirmed | Status::Cancelled) => {
                self.policy == LatePayment::Reclaim
            }
            _ => false,
        };
        if moves { Ok(()) } else { broken(RULE, format!("was {status:?}, is {:?}", now.1)) }
    }

    fn renders_stay_over(&self, memory: &mut Memory) -> Finding {
        for render in self.renders {
            let now = (render.version, render.state());
            let Some((version, state)) = memory.renders.insert(render.id, now) else { continue };
            let over = matches!(state, State::Done | State::Closed);
            if now.0 < version || (over && now.1 != state) {
                let detail = format!("its video was {state:?}, is {:?}", now.1);
                return broken("over stays over", detail);
            }
        }
        Ok(())
    }

    fn the_slot_or_the_money(&self) -> Finding {
        let (held, status) = (self.held(), self.reservation.status);
        match status {
            Status::Hold => broken("every hold ends", "somebody still holds"),
            Status::Expired | Status::Cancelled if held > 0 && !self.somebody_knows => {
                let detail = format!("{}, and the gateway holds {held}", status.as_str());
                broken("the slot or the money", detail)
            }
            // Whether what is kept was paid for is another rule.
            Status::Confirmed | Status::Expired | Status::Cancelled => Ok(()),
        }
    }

    fn what_was_bought_is_made(&self) -> Finding {
        let states: Vec<State> = self.renders.iter().map(Render::state).collect();
        match (self.reservation.status, states.as_slice()) {
            (Status::Confirmed, [State::Done])
            | (Status::Cancelled, [] | [State::Done | State::Closed])
            | (Status::Expired | Status::Hold, []) => Ok(()),
            (Status::Confirmed, states) => {
                broken("what was bought is made", format!("its videos: {states:?}"))
            }
            (status, states) => {
                let detail = format!("{}, its videos: {states:?}", status.as_str());
                broken("nothing is made in vain", detail)
            }
        }
    }
}
