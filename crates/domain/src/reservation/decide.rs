//! What becomes of a reservation, as one change of it and of its payment.

use serde_json::{Value, json};
use uuid::Uuid;

use super::status::{self, Duty, Event, Refused};
use super::{
    HOLD_KIND, KIND, LatePayment, Reservation, ReservationRequest, ReservationRules, Status,
    compensate,
};
use crate::audit::{Actor, NewAudit};
use crate::changes::{Changes, Write};
use crate::effect::{EffectId, NewEffect};
use crate::event::Event as Published;
use crate::ids::derived;
use crate::lane::Lane;
use crate::mutant::{self, Mutant};
use crate::payment::ask::Origin;
use crate::payment::checkout::{self, Going, Order, PAYMENT_METHOD};
use crate::payment::{self, CaptureMode, PaymentRequest, PaymentRules, RequestKey};
use crate::race::NewRace;
use crate::render::{self, Render, RenderOrder};
use crate::time::Timestamp;

/// Where and when a decision is taken.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub now: Timestamp,
    pub rules: &'a ReservationRules,
    pub payments: &'a PaymentRules,
    /// Somebody else has the slot.
    pub slot_taken: bool,
}

impl<'a> At<'a> {
    /// The same moment for the payment. What follows from a reservation is left to whoever claims it.
    const fn payment(self) -> payment::At<'a> {
        payment::At { now: self.now, rules: self.payments, worker: None }
    }
}

/// What a decision has come to.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The reservation after it.
    pub reservation: Reservation,
    /// The payment after it, if it is another than before.
    pub payment: Option<payment::Payment>,
    /// Of both; empty if there is nothing to do.
    pub changes: Changes,
    /// The races that were noticed, for the log.
    pub races: Vec<NewRace>,
    /// What operators read in the log, e.g. `EXPIRED_RESERVATION_REFUNDED`.
    pub told: Option<&'static str>,
}

/// Who asks for a reservation, and how it is traced.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: Uuid,
    pub key: RequestKey,
    pub traceparent: Option<String>,
}

/// Holds a slot: the row and the timer at the end of the hold. `lapsed` is a hold whose time is over and
/// whose timer has not come yet; it gives way in the same change.
#[must_use]
pub fn hold(
    request: ReservationRequest,
    asked: Asked,
    lapsed: Option<&Reservation>,
    at: At<'_>,
) -> Decided {
    let hold_expires_at = at.now.plus(at.rules.hold);
    let reservation = Reservation {
        id: asked.id,
        version: 1,
        request,
        key: asked.key,
        status: Status::Hold,
        hold_expires_at,
        payment_id: None,
        confirmed_at: None,
        expired_at: None,
        cancelled_at: None,
        created_at: at.now,
        updated_at: at.now,
        traceparent: asked.traceparent,
    };
    let mut draft = Draft { reservation, at, changes: Changes::new(), count: 0 };
    if let Some(lapsed) = lapsed {
        draft.changes.extend(expired(lapsed, at).changes);
    }
    draft.changes.push(Write::ReservationInsert(Box::new(draft.reservation.clone())));
    draft.timer();
    draft.audit("reservation.held", &json!({"expiresAt": hold_expires_at}));
    draft.publish("ReservationHeld", &json!({"expiresAt": hold_expires_at}));
    draft.finish()
}

/// The end of a hold whose time is over.
#[must_use]
pub fn expired(reservation: &Reservation, at: At<'_>) -> Decided {
    match happen(reservation, Event::Deadline, None, at) {
        Ok(decided) => decided,
        // A timer may come at any time.
        Err(_) => Draft::of(reservation, at).finish(),
    }
}

/// Begins a checkout: a payment whose page is to be opened, in the hands of `worker`.
#[must_use]
pub fn check_out(
    reservation: &Reservation,
    payment_id: Uuid,
    gateway: &str,
    worker: Option<&str>,
    at: At<'_>,
) -> (Decided, payment::Decided) {
    let request = &reservation.request;
    let order = Order {
        reservation_id: reservation.id,
        title: title(request),
        customer_email: Some(request.user_email.clone()),
        locale: Some(request.locale.as_str().to_owned()),
        success_url: at.rules.success_url.clone(),
        cancel_url: at.rules.cancel_url.clone(),
        expires_at: reservation.hold_expires_at,
    };
    let wanted = PaymentRequest {
        booking_id: reservation.id.to_string(),
        user_id: request.user_id.clone(),
        amount: request.amount,
        currency: request.currency.clone(),
        payment_method: PAYMENT_METHOD.into(),
        customer: None,
        description: Some(order.title.clone()),
        capture: CaptureMode::Automatic,
    };
    let origin = Origin {
        id: payment_id,
        key: RequestKey { key: format!("checkout:{payment_id}"), digest: String::new() },
        gateway: gateway.to_owned(),
        traceparent: reservation.traceparent.clone(),
    };
    let paying = checkout::create(wanted, origin, &order, payment::At { worker, ..at.payment() });
    let mut draft = Draft::of(reservation, at);
    draft.reservation.payment_id = Some(payment_id);
    draft.save();
    draft.audit("reservation.checkout_opened", &json!({"paymentId": payment_id}));
    draft.changes.extend(paying.changes.clone());
    let mut decided = draft.finish();
    decided.payment = Some(paying.payment.clone());
    (decided, paying)
}

fn title(request: &ReservationRequest) -> String {
    let (date, slot) = (&request.projection_date, request.slot_number);
    match request.locale {
        crate::mail::Locale::Ja => format!("上映予約 {date} スロット{slot}"),
        crate::mail::Locale::En => format!("Screening on {date}, slot {slot}"),
    }
}

/// What happens to a reservation, and to its payment with it.
pub fn happen(
    reservation: &Reservation,
    event: Event,
    going: Option<Going<'_>>,
    at: At<'_>,
) -> Result<Decided, Refused> {
    let standing = reservation.standing(at.now);
    let may_reclaim = at.rules.late_payment == LatePayment::Reclaim && !at.slot_taken;
    let event = match (standing, event) {
        (Status::Expired, Event::Paid) if may_reclaim => Event::Reclaimed,
        (_, event) => event,
    };
    let (to, duty) = status::next(standing, event)?;
    let mut draft = Draft::of(reservation, at);
    let mut paying = going;
    let (mut races, mut told) = (Vec::new(), None);
    if to != reservation.status || duty != Duty::Nothing {
        draft.reservation.status = to;
        let moved = to != reservation.status;
        if moved {
            draft.moved(reservation.status, event);
        }
        match duty {
            Duty::Nothing => {}
            Duty::Fulfil => draft.fulfil(),
            Duty::Close => paying = paying.map(|going| going.closed(at.payment())),
            Duty::Refund if mutant::on(Mutant::LateMoneyKept) => {}
            Duty::Refund => {
                let back = compensate::give_back(&mut draft, standing, event, paying);
                (paying, told) = (back.going, back.told);
                races.extend(back.race);
            }
        }
        draft.save();
    }
    let mut decided = draft.finish();
    if let Some(payment) = paying.and_then(|going| going.decided) {
        decided.changes.extend(payment.changes);
        decided.payment = Some(payment.payment);
    }
    Ok(Decided { races, told, ..decided })
}

/// A reservation that was cancelled needs no video: whatever is being made of it is over. Goes into the
/// same commit.
#[must_use]
pub fn stop_renders(renders: &[Render], now: Timestamp) -> Changes {
    let mut changes = Changes::new();
    for render in renders {
        changes.extend(render::person::cancelled(render, now));
    }
    changes
}

/// A reservation in the making, and everything that is written with it.
pub(super) struct Draft<'a> {
    pub reservation: Reservation,
    pub at: At<'a>,
    pub changes: Changes,
    count: u32,
}

impl<'a> Draft<'a> {
    fn of(before: &Reservation, at: At<'a>) -> Self {
        let mut reservation = before.clone();
        reservation.version += 1;
        reservation.updated_at = at.now;
        Self { reservation, at, changes: Changes::new(), count: 0 }
    }

    fn finish(self) -> Decided {
        Decided {
            reservation: self.reservation,
            payment: None,
            changes: self.changes,
            races: Vec::new(),
            told: None,
        }
    }

    fn save(&mut self) {
        self.changes.push(Write::ReservationUpdate(Box::new(self.reservation.clone())));
    }

    /// A new id for something that this change creates.
    pub fn id(&mut self, what: &str) -> Uuid {
        self.count += 1;
        let parts: [&[u8]; 4] = [
            self.reservation.id.as_bytes(),
            &self.reservation.version.to_be_bytes(),
            &self.count.to_be_bytes(),
            what.as_bytes(),
        ];
        derived(self.at.now, &parts)
    }

    /// The status has changed: when, who is told, and by what.
    fn moved(&mut self, from: Status, event: Event) {
        let (now, to) = (self.at.now, self.reservation.status);
        let (action, published) = match to {
            Status::Hold => return,
            Status::Confirmed => {
                self.reservation.confirmed_at = Some(now);
                // A slot that was reclaimed is not given up any more.
                self.reservation.expired_at = None;
                ("reservation.confirmed", "ReservationConfirmed")
            }
            Status::Expired => {
                self.reservation.expired_at = Some(now);
                ("reservation.expired", "ReservationExpired")
            }
            Status::Cancelled => {
                self.reservation.cancelled_at = Some(now);
                ("reservation.cancelled", "ReservationCancelled")
            }
        };
        let details = json!({"from": from, "to": to, "event": format!("{event:?}")});
        self.audit(action, &details);
        self.publish(published, &details);
    }

    /// What was bought is made.
    fn fulfil(&mut self) {
        let id = self.id("render");
        let reservation = &self.reservation;
        let order = RenderOrder {
            id,
            reservation_id: reservation.id,
            video_id: reservation.request.video_id,
            traceparent: reservation.traceparent.as_deref(),
            rules: &self.at.rules.render,
        };
        let started = render::start(order, self.at.now);
        self.changes.extend(started);
    }

    /// The timer at the end of the hold.
    fn timer(&mut self) {
        let id = EffectId(self.id("timer"));
        let (now, reservation) = (self.at.now, &self.reservation);
        let timer = NewEffect {
            id,
            lane: Lane::TIMERS,
            kind: HOLD_KIND.into(),
            key: Some(reservation.id.to_string()),
            digest: None,
            payload: json!({"reservationId": reservation.id}).to_string(),
            run_at: reservation.hold_expires_at,
            created_at: now,
            expires_at: now.plus(self.at.payments.keep),
            traceparent: reservation.traceparent.clone(),
            held_by: None,
        };
        self.changes.push(Write::Enqueue(timer));
    }

    pub fn audit(&mut self, action: &str, details: &Value) {
        let request = &self.reservation.request;
        let mut all = json!({"projectionDate": request.projection_date,
            "slotNumber": request.slot_number, "videoId": request.video_id});
        merge(&mut all, details);
        let line = NewAudit {
            id: self.id("audit"),
            actor: Actor::SYSTEM,
            action: action.to_owned(),
            target_type: KIND,
            target_id: self.reservation.id.to_string(),
            office_id: None,
            details: all.to_string(),
            now: self.at.now,
        };
        self.changes.push(Write::Audit(Box::new(line)));
    }

    /// An event for every sink.
    fn publish(&mut self, kind: &'static str, details: &Value) {
        let rules = self.at.payments;
        if rules.sinks.is_empty() {
            return;
        }
        let id = self.id("event");
        let reservation = &self.reservation;
        let request = &reservation.request;
        let mut payload = json!({
            "reservationId": reservation.id,
            "status": reservation.status,
            "userId": request.user_id,
            "videoId": request.video_id,
            "projectionDate": request.projection_date,
            "slotNumber": request.slot_number,
            "paymentId": reservation.payment_id,
        });
        merge(&mut payload, details);
        let event = Published {
            id,
            kind: kind.into(),
            aggregate_id: reservation.id.to_string(),
            occurred_at: self.at.now,
            payload,
        };
        for sink in &rules.sinks {
            let effect = EffectId(self.id("delivery"));
            let traceparent = self.reservation.traceparent.clone();
            let expires_at = self.at.now.plus(rules.keep);
            let delivery = event.delivery(effect, sink, expires_at, traceparent);
            self.changes.push(Write::Enqueue(delivery));
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}
