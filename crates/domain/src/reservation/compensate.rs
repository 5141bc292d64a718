//! Undoing: the money goes back, the customer is told, and it is written down that it happened.

use serde_json::json;

use super::decide::{At, Draft};
use super::status::Event;
use super::{CASE_REFUND, KIND, Reservation, Status};
use crate::case::NewCase;
use crate::changes::{Changes, Write};
use crate::ids::derived;
use crate::mail::{self, Letter};
use crate::payment::checkout::Going;
use crate::payment::{self, Payment, Refund, RefundStatus};
use crate::race::NewRace;

/// Scenarios of races, as the log and the table name them.
pub const EXPIRED_AFTER_PAYMENT: &str = "EXPIRED_AFTER_PAYMENT";
pub const SLOT_CONFLICT: &str = "SLOT_CONFLICT";
pub const RENDER_FAILURE: &str = "RENDER_FAILURE";
pub const DUPLICATE_CANCEL: &str = "DUPLICATE_CANCEL";

/// How a race was resolved.
pub const REFUNDED: &str = "REFUNDED";
pub const RETRY: &str = "RETRY";
pub const MANUAL_REQUIRED: &str = "MANUAL_REQUIRED";

pub(super) struct Back<'a> {
    pub going: Option<Going<'a>>,
    pub race: Option<NewRace>,
    pub told: Option<&'static str>,
}

/// Why the money goes back.
struct Cause {
    scenario: Option<&'static str>,
    /// For the payment's timeline.
    why: &'static str,
    template: Option<&'static str>,
    told: Option<&'static str>,
}

fn cause(standing: Status, event: Event, slot_taken: bool) -> Cause {
    match (standing, event) {
        (Status::Expired, _) => Cause {
            scenario: Some(if slot_taken { SLOT_CONFLICT } else { EXPIRED_AFTER_PAYMENT }),
            why: "paid after the hold's end",
            template: Some("reservation-expired-refunded"),
            told: Some("EXPIRED_RESERVATION_REFUNDED"),
        },
        (_, Event::GiveUp) => Cause {
            scenario: Some(RENDER_FAILURE),
            why: "the render was given up",
            template: Some("render-failed-refunded"),
            told: Some("RENDER_FAILED_AUTO_REFUND"),
        },
        // Cancelled while the customer was paying.
        (Status::Cancelled, _) => Cause {
            scenario: Some(DUPLICATE_CANCEL),
            why: "paid after it had been cancelled",
            template: None,
            told: Some("CANCELLED_RESERVATION_REFUNDED"),
        },
        _ => Cause { scenario: None, why: "cancelled", template: None, told: None },
    }
}

/// Gives back what is left of the payment, in the same change.
pub(super) fn give_back<'a>(
    draft: &mut Draft<'a>,
    standing: Status,
    event: Event,
    going: Option<Going<'a>>,
) -> Back<'a> {
    let Some(before) = going else { return Back { going: None, race: None, told: None } };
    let at = draft.at;
    let cause = cause(standing, event, at.slot_taken);
    let (left, payment_id) = (before.payment().refundable(), before.payment().id);
    if left <= 0 {
        // It is on its way back, or somebody has given it back by hand.
        return Back { going: Some(before), race: None, told: None };
    }
    let moment = payment::At { now: at.now, rules: at.payments, worker: None };
    let going = before.refunded(cause.why, moment);
    let details = json!({"reservationId": draft.reservation.id,
        "videoId": draft.reservation.request.video_id, "paymentId": payment_id,
        "refundAmount": left, "currency": draft.reservation.request.currency});
    if let Some(told) = cause.told {
        draft.audit(&format!("reservation.{}", told.to_ascii_lowercase()), &details);
    }
    if let Some(template) = cause.template {
        letter(draft, template, left);
    }
    let race = cause.scenario.map(|scenario| NewRace {
        id: draft.id("race"),
        scenario,
        subject_type: KIND,
        subject_id: draft.reservation.id.to_string(),
        resolution: REFUNDED,
        details: details.to_string(),
        now: at.now,
    });
    if let Some(race) = &race {
        draft.changes.push(Write::Race(race.clone()));
    }
    Back { going: Some(going), race, told: cause.told }
}

fn letter(draft: &mut Draft<'_>, template: &str, amount: i64) {
    let id = draft.id("letter");
    let reservation = &draft.reservation;
    let request = &reservation.request;
    let mut data = json!({"reservationId": reservation.id, "refundAmount": amount,
        "currency": request.currency});
    if template == "render-failed-refunded" {
        data["videoId"] = json!(request.video_id);
    }
    let letter = Letter {
        id,
        to: request.user_email.clone(),
        template: template.to_owned(),
        locale: request.locale,
        data,
        batch_id: None,
        // One of a kind per reservation, whoever decides how often.
        key: Some(format!("{}:{template}", reservation.id)),
    };
    draft.changes.extend(mail::enqueue(letter, draft.at.now));
}

/// A refund that the gateway has refused, of a reservation that its owner does not have: the money is
/// still with us, and only a person can give it back.
#[must_use]
pub fn refund_failed(
    reservation: &Reservation,
    before: &Payment,
    after: &Payment,
    at: At<'_>,
) -> Option<(Changes, NewRace)> {
    let failed = |refund: &Refund| {
        let pending = |old: &Refund| old.id == refund.id && old.status == RefundStatus::Pending;
        refund.status == RefundStatus::Failed && before.refunds.iter().any(pending)
    };
    let refund = after.refunds.iter().find(|refund| failed(refund))?;
    if reservation.standing(at.now).has_slot() || after.refundable() <= 0 {
        return None;
    }
    let (now, subject_id) = (at.now, reservation.id.to_string());
    let id = |what: &str| derived(now, &[refund.id.as_bytes(), what.as_bytes()]);
    let reason = refund.failure.as_ref().map(|failure| failure.code.clone());
    let details = json!({"reservationId": reservation.id, "paymentId": after.id,
        "refundId": refund.id, "amount": refund.amount, "reason": reason});
    let summary = format!(
        "The refund of {} {} for reservation {} was refused: the money must go back by hand.",
        refund.amount, after.request.currency, reservation.id
    );
    let race = NewRace {
        id: id("race"),
        scenario: match reservation.status {
            Status::Cancelled => DUPLICATE_CANCEL,
            _ => EXPIRED_AFTER_PAYMENT,
        },
        subject_type: KIND,
        subject_id: subject_id.clone(),
        resolution: MANUAL_REQUIRED,
        details: details.to_string(),
        now,
    };
    let changes = Changes::new()
        .with(Write::OpenCase(NewCase {
            id: id("case"),
            kind: CASE_REFUND,
            subject_type: KIND,
            subject_id,
            summary,
            actions: vec!["settled"],
            details: details.to_string(),
            now,
        }))
        .with(Write::Race(race.clone()));
    Some((changes, race))
}

/// Two customers wanted one slot at the same moment: the second is told to choose again.
#[must_use]
pub fn slot_lost(winner: &Reservation, id: uuid::Uuid, now: crate::time::Timestamp) -> NewRace {
    let request = &winner.request;
    let details = json!({"reservationId": winner.id, "projectionDate": request.projection_date,
        "slotNumber": request.slot_number});
    NewRace {
        id,
        scenario: SLOT_CONFLICT,
        subject_type: KIND,
        subject_id: winner.id.to_string(),
        resolution: RETRY,
        details: details.to_string(),
        now,
    }
}

/// A cancellation that was asked for again: the first one has done everything. The race is written with
/// the reservation's next version, so that of many clicks at the same moment one writes it.
#[must_use]
pub fn cancelled_twice(
    reservation: &Reservation,
    id: uuid::Uuid,
    now: crate::time::Timestamp,
) -> (Changes, NewRace) {
    let details = json!({"reservationId": reservation.id,
        "videoId": reservation.request.video_id, "cancelledAt": reservation.cancelled_at});
    let race = NewRace {
        id,
        scenario: DUPLICATE_CANCEL,
        subject_type: KIND,
        subject_id: reservation.id.to_string(),
        resolution: REFUNDED,
        details: details.to_string(),
        now,
    };
    let noted = Reservation { version: reservation.version + 1, ..reservation.clone() };
    let changes =
        Changes::from(Write::ReservationUpdate(Box::new(noted))).with(Write::Race(race.clone()));
    (changes, race)
}
