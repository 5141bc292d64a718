//! Reservations at work: the timer of a hold, and what a reservation does when its payment moves.

use std::sync::Arc;

use metrics::counter;
use serde_json::Value;
use tashika_domain::effect::{Effect, Verdict};
use tashika_domain::outcome::Reason;
use tashika_domain::payment::checkout::Going;
use tashika_domain::payment::{self, Payment};
use tashika_domain::race::NewRace;
use tashika_domain::reservation::compensate::refund_failed;
use tashika_domain::reservation::decide::{self, At, Decided, happen};
use tashika_domain::reservation::status::Event;
use tashika_domain::reservation::{Reservation, Status};
use tashika_domain::{Changes, Timestamp};
use tashika_store::StoreError;
use uuid::Uuid;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::payment::Till;

/// A change of a payment, with what its reservation makes of it.
pub(crate) struct Followed {
    pub payment: Payment,
    pub changes: Changes,
    /// For logs and metrics, once everything is written.
    pub after: Box<dyn FnOnce() + Send>,
}

impl Till {
    /// Where a decision about reservations is taken.
    pub(crate) const fn at(&self, now: Timestamp) -> At<'_> {
        At { now, rules: &self.reservations, payments: &self.rules, slot_taken: false }
    }

    /// Lets a reservation follow its payment: both change together, or neither.
    pub(crate) async fn follow(
        &self,
        before: &Payment,
        decided: payment::Decided,
        now: Timestamp,
    ) -> Result<Followed, StoreError> {
        let alone = |decided: payment::Decided| Followed {
            payment: decided.payment,
            changes: decided.changes,
            after: Box::new(|| {}),
        };
        if before.checkout.is_none() {
            return Ok(alone(decided));
        }
        let id: Option<Uuid> = before.request.booking_id.parse().ok();
        let reservation = match id {
            Some(id) => self.store.reservation(id).await?,
            None => None,
        };
        let Some(reservation) = reservation else { return Ok(alone(decided)) };
        let captured = payment::Status::Captured;
        let paid = before.status != captured && decided.payment.status == captured;
        if !paid {
            return Ok(self.watch_refund(&reservation, before, decided, now));
        }
        let at = self.circumstances(&reservation, now).await?;
        let going = Going { before, decided: Some(decided.clone()) };
        let Ok(followed) = happen(&reservation, Event::Paid, Some(going), at) else {
            // Money never comes too late to be decided about.
            return Ok(alone(decided));
        };
        let after = report(&reservation, &followed);
        let payment = followed.payment.unwrap_or(decided.payment);
        Ok(Followed { payment, changes: followed.changes, after })
    }

    /// What a decision about late money must know besides the reservation.
    async fn circumstances(
        &self,
        reservation: &Reservation,
        now: Timestamp,
    ) -> Result<At<'_>, StoreError> {
        let at = self.at(now);
        if reservation.standing(now) != Status::Expired {
            return Ok(at);
        }
        let request = &reservation.request;
        let holder =
            self.store.reservation_of_slot(&request.projection_date, request.slot_number).await?;
        Ok(At { slot_taken: holder.is_some_and(|holder| holder.id != reservation.id), ..at })
    }

    /// A refund that was refused is a person's affair, if its owner does not have the slot.
    fn watch_refund(
        &self,
        reservation: &Reservation,
        before: &Payment,
        decided: payment::Decided,
        now: Timestamp,
    ) -> Followed {
        let payment::Decided { payment, mut changes, .. } = decided;
        let failed = refund_failed(reservation, before, &payment, self.at(now));
        let race = failed.map(|(more, race)| {
            changes.extend(more);
            race
        });
        let (id, video) = (reservation.id, reservation.request.video_id);
        let after = Box::new(move || {
            if let Some(race) = race {
                log_race(&race, id, video);
            }
        });
        Followed { payment, changes, after }
    }
}

/// The log line of a race, in the words of the protocol.
pub(crate) fn log_race(race: &NewRace, reservation_id: Uuid, video_id: i64) {
    let (scenario, resolution) = (race.scenario, race.resolution);
    counter!("race_conditions_total", "scenario" => scenario, "resolution" => resolution)
        .increment(1);
    tracing::warn!(
        event = "RACE_CONDITION_DETECTED",
        scenario,
        reservation_id = %reservation_id,
        video_id,
        resolution,
        timestamp = %race.now,
        "a race was noticed and resolved"
    );
}

/// What logs and metrics are told once a change of a reservation is written.
pub(crate) fn report(before: &Reservation, decided: &Decided) -> Box<dyn FnOnce() + Send> {
    let (id, video) = (before.id, before.request.video_id);
    let (from, to) = (before.status, decided.reservation.status);
    let (races, told) = (decided.races.clone(), decided.told);
    Box::new(move || {
        if from != to {
            counter!("reservations_total", "status" => to.as_str()).increment(1);
            tracing::info!(reservation_id = %id, from = from.as_str(), to = to.as_str(), "a reservation has moved");
        }
        for race in &races {
            log_race(race, id, video);
        }
        if let Some(event) = told {
            tracing::info!(event, reservation_id = %id, video_id = video, "money goes back");
        }
    })
}

/// Ends a hold whose time is over.
pub struct HoldHandler {
    till: Arc<Till>,
}

impl HoldHandler {
    #[must_use]
    pub const fn new(till: Arc<Till>) -> Self {
        Self { till }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Some(id) = reservation_id(ending.effect) else { return Ok(over()) };
        let Some(reservation) = self.till.store.reservation(id).await? else { return Ok(over()) };
        if reservation.status == Status::Hold && ending.now < reservation.hold_expires_at {
            // Another process's clock is ahead of ours.
            let reason = Reason::new("NOT_YET", "the hold's time is not over");
            let run_at = reservation.hold_expires_at;
            let verdict = Verdict::Retry { run_at, reason, in_doubt: false };
            return Ok(Settled::new(verdict, Changes::new()));
        }
        let decided = decide::expired(&reservation, self.till.at(ending.now));
        let after = report(&reservation, &decided);
        let settled = Settled::new(Verdict::Succeeded, decided.changes);
        // The timer says nothing that the reservation does not say.
        Ok(Settled { after: Some(after), recorded: true, ..settled })
    }
}

fn reservation_id(effect: &Effect) -> Option<Uuid> {
    let payload: Value = serde_json::from_str(&effect.payload).ok()?;
    payload.get("reservationId")?.as_str()?.parse().ok()
}

impl Handler for HoldHandler {
    /// A timer: there is nothing to attempt, only to decide. The page on which the customer could pay is
    /// closed by an effect of its own, which is due at the same moment.
    fn attempt<'a>(&'a self, _job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async { Tried::done(Value::Null) })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }
}
