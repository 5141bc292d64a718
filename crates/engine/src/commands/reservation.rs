//! Reservations, as callers ask for them.
//!
//! Every command reads, decides and writes until nobody has come in between. Who has a slot is decided
//! by the database's index when the row is written, never by a look before that.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::Value;
use tashika_domain::check::Violation;
use tashika_domain::payment::checkout::Going;
use tashika_domain::payment::{self, Payment, RequestKey};
use tashika_domain::race::NewRace;
use tashika_domain::reservation::compensate::{DUPLICATE_CANCEL, cancelled_twice, slot_lost};
use tashika_domain::reservation::decide::{self, Asked, check_out, happen, stop_renders};
use tashika_domain::reservation::request::{self, KEY_MAX};
use tashika_domain::reservation::status::Event;
use tashika_domain::reservation::{KIND, Reservation, ReservationRequest, Status};
use tashika_domain::{Changes, Lane, Timestamp, Write};
use tashika_store::{CommitError, RaceRow, ReservationFilter, StoreError};
use uuid::Uuid;

use crate::engine::Engine;
use crate::payment::Till;
use crate::reservation::{log_race, report};

/// How often a slot is tried for while others let go of it.
const TRIES_MAX: u32 = 16;

/// What callers may do with reservations.
pub struct Reservations {
    engine: Arc<Engine>,
    till: Arc<Till>,
    /// How long an answer about a page may take. Then the caller is told to ask again.
    answer_within: Duration,
}

pub use super::Caller;

/// A reservation, and whether it was there before.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub reservation: Reservation,
    pub replayed: bool,
}

/// A reservation with everything that is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationView {
    pub reservation: Reservation,
    pub payment: Option<Payment>,
    pub races: Vec<RaceRow>,
    /// When it was looked at: a hold may be over before anybody has written that down.
    pub now: Timestamp,
}

/// One slot of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub number: i64,
    /// `None`: free.
    pub status: Option<Status>,
}

/// What came of a checkout.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckedOut {
    /// The page is open: the payment's session says where.
    Open(Payment),
    /// The gateway has not answered yet.
    Opening(Payment),
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReservationError {
    #[error("an idempotency key is required")]
    KeyMissing,
    #[error("the idempotency key cannot be used")]
    KeyInvalid,
    #[error("the header and the body name different keys")]
    KeysDiffer,
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error("the key belongs to another request")]
    Conflict,
    #[error("somebody else has the slot")]
    SlotTaken,
    #[error("no such reservation")]
    NotFound,
    #[error("the reservation belongs to another user")]
    Forbidden,
    #[error("it is too late to cancel")]
    CannotCancel,
    #[error("a reservation that is {} cannot be paid", .0.as_str())]
    CannotCheckOut(Status),
    #[error("the gateway would not open a page ({0})")]
    CheckoutRefused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Result<T> = std::result::Result<T, ReservationError>;

impl Reservations {
    #[must_use]
    pub fn new(engine: Arc<Engine>, till: Arc<Till>, answer_within: Duration) -> Self {
        Self { engine, till, answer_within }
    }

    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// Holds a slot.
    pub async fn hold(&self, caller: Caller<'_>, body: &Value) -> Result<Held> {
        let held = self.try_hold(&caller, body).await;
        let outcome = match &held {
            Ok(Held { replayed: false, .. }) => "held",
            Ok(_) => "replayed",
            Err(ReservationError::SlotTaken) => "taken",
            Err(_) => "refused",
        };
        counter!("reservation_hold_total", "outcome" => outcome).increment(1);
        held
    }

    async fn try_hold(&self, caller: &Caller<'_>, body: &Value) -> Result<Held> {
        let key = checked_key(caller.key, body)?;
        let began_at = self.now();
        let slots = self.till.reservations.slots_per_day;
        let wanted = request::parse(body, slots, began_at).map_err(ReservationError::Invalid)?;
        if caller.user.is_some_and(|user| user != wanted.user_id) {
            return Err(ReservationError::Forbidden);
        }
        let key = RequestKey { key: key.to_owned(), digest: request::request_digest(body) };
        let asked =
            Asked { id: self.engine.ids.uuid(), key, traceparent: caller.traceparent.clone() };
        if let Some(held) = self.recall(&asked.key).await? {
            return Ok(held);
        }
        let mut lapsed: Option<Reservation> = None;
        for _ in 0..TRIES_MAX {
            let at = self.till.at(self.now());
            let decided = decide::hold(wanted.clone(), asked.clone(), lapsed.as_ref(), at);
            match self.engine.store.commit(decided.changes).await {
                Ok(()) => {
                    let reservation = decided.reservation;
                    tracing::info!(reservation_id = %reservation.id, "a slot is held");
                    return Ok(Held { reservation, replayed: false });
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => {}
            }
            // The key, or the slot, was somebody else's: theirs is the answer.
            if let Some(held) = self.recall(&asked.key).await? {
                return Ok(held);
            }
            lapsed = self.holder(&wanted, began_at).await?;
        }
        Err(ReservationError::SlotTaken)
    }

    /// Whoever has the slot and must give way, because that one's time is over. `None`: it is free by now.
    async fn holder(
        &self,
        wanted: &ReservationRequest,
        began_at: Timestamp,
    ) -> Result<Option<Reservation>> {
        let (date, slot) = (&wanted.projection_date, wanted.slot_number);
        let Some(holder) = self.engine.store.reservation_of_slot(date, slot).await? else {
            return Ok(None);
        };
        if holder.standing(self.now()) == Status::Expired {
            return Ok(Some(holder));
        }
        // Both were on their way at the same moment: a race, and not only a slot that is taken.
        if holder.created_at >= began_at {
            let race = slot_lost(&holder, self.engine.ids.uuid(), self.now());
            let changes = Changes::from(Write::Race(race.clone()));
            self.write_down(changes, &race, &holder).await?;
        }
        Err(ReservationError::SlotTaken)
    }

    /// Writes a race down; whoever comes second writes nothing.
    async fn write_down(
        &self,
        changes: Changes,
        race: &NewRace,
        reservation: &Reservation,
    ) -> Result<()> {
        match self.engine.store.commit(changes).await {
            Ok(()) => log_race(race, reservation.id, reservation.request.video_id),
            Err(CommitError::Store(error)) => return Err(error.into()),
            Err(_) => {}
        }
        Ok(())
    }

    /// What is known under a key; `None` if the request is new.
    async fn recall(&self, key: &RequestKey) -> Result<Option<Held>> {
        match self.engine.store.reservation_of_key(&key.key).await? {
            None => Ok(None),
            Some(known) if known.key.digest != key.digest => Err(ReservationError::Conflict),
            Some(reservation) => Ok(Some(Held { reservation, replayed: true })),
        }
    }

    /// A reservation that the user may see.
    async fn owned(&self, id: Uuid, user: Option<&str>) -> Result<Reservation> {
        let found = self.engine.store.reservation(id).await?;
        let reservation = found.ok_or(ReservationError::NotFound)?;
        match user {
            Some(user) if user != reservation.request.user_id => Err(ReservationError::Forbidden),
            _ => Ok(reservation),
        }
    }

    async fn payment_of(&self, reservation: &Reservation) -> Result<Option<Payment>> {
        match reservation.payment_id {
            None => Ok(None),
            Some(id) => Ok(self.engine.store.payment(id).await?),
        }
    }

    /// A reservation as it stands.
    pub async fn find(&self, id: Uuid, user: Option<&str>) -> Result<ReservationView> {
        let reservation = self.owned(id, user).await?;
        self.view(reservation).await
    }

    async fn view(&self, reservation: Reservation) -> Result<ReservationView> {
        let payment = self.payment_of(&reservation).await?;
        let races = self.engine.store.races_of(KIND, &reservation.id.to_string()).await?;
        Ok(ReservationView { reservation, payment, races, now: self.now() })
    }

    /// A page of reservations, newest first, and the moment they were looked at.
    pub async fn list(
        &self,
        filter: &ReservationFilter,
        limit: i64,
    ) -> Result<(Vec<Reservation>, Timestamp)> {
        let found = self.engine.store.reservations(filter, limit).await?;
        Ok((found, self.now()))
    }

    /// The slots of a day. A hold whose time is over does not keep anybody away.
    pub async fn slots(&self, date: &str) -> Result<Vec<Slot>> {
        let taken = self.engine.store.reservations_of_day(date).await?;
        let now = self.now();
        let status = |number: i64| {
            let holder = taken.iter().find(|holder| holder.request.slot_number == number)?;
            Some(holder.standing(now)).filter(|status| status.has_slot())
        };
        let all = 1..=self.till.reservations.slots_per_day;
        Ok(all.map(|number| Slot { number, status: status(number) }).collect())
    }

    /// Gives a reservation up: what was paid goes back.
    pub async fn cancel(&self, id: Uuid, caller: Caller<'_>) -> Result<ReservationView> {
        optional_key(caller.key)?;
        loop {
            let reservation = self.owned(id, caller.user).await?;
            if reservation.status == Status::Cancelled {
                return self.cancelled_before(reservation).await;
            }
            let payment = self.payment_of(&reservation).await?;
            let at = self.till.at(self.now());
            let going = payment.as_ref().map(Going::of);
            let Ok(decided) = happen(&reservation, Event::Cancel, going, at) else {
                self.expire(&reservation).await?;
                return Err(ReservationError::CannotCancel);
            };
            let after = report(&reservation, &decided);
            let renders = self.engine.store.renders_of(id).await?;
            let mut changes = decided.changes;
            changes.extend(stop_renders(&renders, at.now));
            match self.engine.store.commit(changes).await {
                Ok(()) => {
                    after();
                    return self.view(decided.reservation).await;
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                // Somebody was faster: with what they have written, it may look different.
                Err(_) => {}
            }
        }
    }

    /// Clicked twice: the second click finds everything done.
    async fn cancelled_before(&self, reservation: Reservation) -> Result<ReservationView> {
        let view = self.view(reservation).await?;
        let known = view.races.iter().any(|race| race.scenario == DUPLICATE_CANCEL);
        if !known {
            let (changes, race) =
                cancelled_twice(&view.reservation, self.engine.ids.uuid(), self.now());
            self.write_down(changes, &race, &view.reservation).await?;
        }
        Ok(view)
    }

    /// Writes down that a hold is over, if nobody has.
    async fn expire(&self, reservation: &Reservation) -> Result<()> {
        if reservation.status != Status::Hold {
            return Ok(());
        }
        let decided = decide::expired(reservation, self.till.at(self.now()));
        let after = report(reservation, &decided);
        match self.engine.store.commit(decided.changes).await {
            Ok(()) => after(),
            Err(CommitError::Store(error)) => return Err(error.into()),
            // The timer, or another customer.
            Err(_) => {}
        }
        Ok(())
    }

    /// Opens the page on which the customer pays, once: whoever asks again gets the same one.
    pub async fn check_out(&self, id: Uuid, caller: Caller<'_>) -> Result<CheckedOut> {
        optional_key(caller.key)?;
        loop {
            let reservation = self.owned(id, caller.user).await?;
            let now = self.now();
            let standing = reservation.standing(now);
            if standing != Status::Hold {
                self.expire(&reservation).await?;
                return Err(ReservationError::CannotCheckOut(standing));
            }
            if let Some(payment) = self.payment_of(&reservation).await?
                && payment.status != payment::Status::Failed
            {
                return self.opened(payment).await;
            }
            // A lane that is switched off sends nothing: what is asked for waits until it is on again.
            let sends = self.engine.lanes.contains_key(&Lane::PAYMENTS);
            let (decided, paying) = check_out(
                &reservation,
                self.engine.ids.uuid(),
                self.till.gateway.name(),
                sends.then(|| self.engine.worker()),
                self.till.at(now),
            );
            match self.engine.store.commit(decided.changes).await {
                Ok(()) => {}
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => continue,
            }
            if let Some(effect) = paying.next {
                let work = self.engine.perform(effect);
                // What takes longer goes on without us.
                drop(tokio::time::timeout(self.answer_within, work).await);
            }
            let payment = self.engine.store.payment(paying.payment.id).await?;
            return self.opened(payment.unwrap_or(paying.payment)).await;
        }
    }

    /// What a caller is told about a page.
    async fn opened(&self, payment: Payment) -> Result<CheckedOut> {
        let open = payment.checkout.as_ref().is_some_and(|page| page.session.is_some());
        match payment.status {
            payment::Status::Pending if open => Ok(CheckedOut::Open(payment)),
            payment::Status::Pending => Ok(CheckedOut::Opening(payment)),
            // Paid, and the reservation follows: it is confirmed, or expired. Or it was over before the
            // page was open.
            status => {
                let id = payment.request.booking_id.parse().unwrap_or_default();
                let standing = self.owned(id, None).await?.standing(self.now());
                let code = payment.failure.map_or_else(String::new, |reason| reason.code);
                Err(match (status, standing) {
                    (payment::Status::Failed, Status::Hold) => {
                        ReservationError::CheckoutRefused(code)
                    }
                    _ => ReservationError::CannotCheckOut(standing),
                })
            }
        }
    }
}

/// The key of a new reservation: in the header, in the body, or the same in both.
fn checked_key<'a>(header: Option<&'a str>, body: &'a Value) -> Result<&'a str> {
    let named = match body.get("idempotencyKey") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.as_str()),
        Some(_) => return Err(ReservationError::KeyInvalid),
    };
    let key = match (header, named) {
        (Some(header), Some(named)) if header != named => {
            return Err(ReservationError::KeysDiffer);
        }
        (Some(key), _) | (None, Some(key)) => key,
        (None, None) => return Err(ReservationError::KeyMissing),
    };
    if is_key(key) { Ok(key) } else { Err(ReservationError::KeyInvalid) }
}

/// Where repeats are harmless anyway, a key is only looked at.
fn optional_key(key: Option<&str>) -> Result<()> {
    match key {
        Some(key) if !is_key(key) => Err(ReservationError::KeyInvalid),
        _ => Ok(()),
    }
}

fn is_key(key: &str) -> bool {
    let printable = key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (1..=KEY_MAX).contains(&key.len()) && printable && !payment::request::holds_card_number(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_may_stand_in_the_header_or_in_the_body() {
        let body = json!({"idempotencyKey": "k-1"});
        assert_eq!(checked_key(None, &body).unwrap(), "k-1");
        assert_eq!(checked_key(Some("k-1"), &body).unwrap(), "k-1");
        assert_eq!(checked_key(Some("k-2"), &json!({})).unwrap(), "k-2");
        let refused = checked_key(Some("k-2"), &body).unwrap_err();
        assert!(matches!(refused, ReservationError::KeysDiffer));
        assert!(matches!(checked_key(None, &json!({})), Err(ReservationError::KeyMissing)));
        for bad in ["", "ä", "x\ny", "4242424242424242", &"x".repeat(65)] {
            let body = json!({});
            let refused = checked_key(Some(bad), &body);
            assert!(matches!(refused, Err(ReservationError::KeyInvalid)), "{bad:?}");
        }
        let number = json!({"idempotencyKey": 7});
        assert!(matches!(checked_key(None, &number), Err(ReservationError::KeyInvalid)));
    }
}
