//! Billing: what an office pays for, as the gateway's events tell it.
//!
//! [`apply`] turns one event into the billing row as it will be and its audit line. Events arrive
//! late, twice and out of order: an older one adds what it knows (a payment, a subscription id), but
//! never undoes the status that a newer one has set.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::check::{Check, Violation};
use crate::outcome::Reason;
use crate::time::Timestamp;

/// The subject type of audit lines.
pub const KIND: &str = "billing";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// On trial, nothing paid.
    Free,
    /// Subscribed while the trial still runs.
    EarlyPayment,
    Active,
    PastDue,
    /// Subscribed until the end of the period, and no longer.
    Canceling,
    Canceled,
}

impl Status {
    pub const ALL: [Self; 6] = [
        Self::Free,
        Self::EarlyPayment,
        Self::Active,
        Self::PastDue,
        Self::Canceling,
        Self::Canceled,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::EarlyPayment => "early_payment",
            Self::Active => "active",
            Self::PastDue => "past_due",
            Self::Canceling => "canceling",
            Self::Canceled => "canceled",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// What can happen to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    PaymentSucceeded,
    PaymentFailed,
    /// A subscription was taken out while the trial runs.
    SubscribedOnTrial,
    Subscribed,
    /// It will end with the period.
    CancelAtPeriodEnd,
    /// It will not end with the period (any more).
    Continue,
    SubscriptionDeleted,
}

impl Event {
    pub const ALL: [Self; 7] = [
        Self::PaymentSucceeded,
        Self::PaymentFailed,
        Self::SubscribedOnTrial,
        Self::Subscribed,
        Self::CancelAtPeriodEnd,
        Self::Continue,
        Self::SubscriptionDeleted,
    ];

    const fn is_about_payment(self) -> bool {
        matches!(self, Self::PaymentSucceeded | Self::PaymentFailed)
    }

    /// What its audit line says.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::PaymentSucceeded => "billing.payment_succeeded",
            Self::PaymentFailed => "billing.payment_failed",
            Self::SubscribedOnTrial | Self::Subscribed => "billing.subscription_created",
            Self::CancelAtPeriodEnd | Self::Continue => "billing.subscription_updated",
            Self::SubscriptionDeleted => "billing.subscription_canceled",
        }
    }
}

/// The state machine, whole. Every event is possible in every state: the gateway's word counts.
#[must_use]
pub const fn next(state: Status, event: Event) -> Status {
    match (state, event) {
        (Status::PastDue, Event::PaymentSucceeded)
        | (_, Event::Subscribed)
        | (Status::Canceling, Event::Continue) => Status::Active,
        (_, Event::PaymentFailed) => Status::PastDue,
        (_, Event::SubscribedOnTrial) => Status::EarlyPayment,
        (_, Event::CancelAtPeriodEnd) => Status::Canceling,
        (_, Event::SubscriptionDeleted) => Status::Canceled,
        (state, Event::PaymentSucceeded | Event::Continue) => state,
    }
}

/// One row per office.
#[derive(Clone, Debug, PartialEq)]
pub struct Billing {
    pub id: Uuid,
    pub version: i64,
    pub office_id: String,
    pub stripe_customer_id: String,
    pub stripe_subscription_id: Option<String>,
    pub status: Status,
    pub trial_end_date: Option<Timestamp>,
    pub last_payment_at: Option<Timestamp>,
    /// When the newest event about payments happened, and the newest about the subscription.
    pub payment_as_of: Option<Timestamp>,
    pub subscription_as_of: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBilling {
    pub office_id: String,
    pub stripe_customer_id: String,
    pub trial_end_date: Option<Timestamp>,
}

/// Checks a new billing, and says everything that is wrong with it.
pub fn parse(body: &Value) -> Result<NewBilling, Vec<Violation>> {
    let mut check = Check::of(body)?;
    let wish = NewBilling {
        office_id: check.text("officeId", 1..=100, true).unwrap_or_default(),
        stripe_customer_id: check.text("stripeCustomerId", 1..=255, true).unwrap_or_default(),
        trial_end_date: check.text("trialEndDate", 1..=64, false).and_then(|text| {
            // A bare day ends when it begins, in UTC.
            let moment = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
            if moment.is_err() {
                check.wrong("trialEndDate", "must be a day or a moment, as RFC 3339 has them");
            }
            moment.ok()
        }),
    };
    check.finish(wish)
}

/// A gateway's event about a customer's subscription.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub event_id: &'a str,
    pub event_type: &'a str,
    pub source: &'a str,
    /// When it happened, as the gateway says.
    pub occurred_at: Timestamp,
    pub payload: &'a Value,
}

/// The types of events that billing listens to.
pub const TYPES: [&str; 5] = [
    "invoice.payment_succeeded",
    "invoice.payment_failed",
    "customer.subscription.created",
    "customer.subscription.updated",
    "customer.subscription.deleted",
];

/// Whose subscription an event is about.
#[must_use]
pub fn customer_of(payload: &Value) -> Option<&str> {
    let customer = payload.pointer("/data/object/customer")?;
    customer.as_str().or_else(|| customer.get("id")?.as_str())
}

fn event_of(billing: &Billing, told: &Told<'_>) -> Option<Event> {
    let object = told.payload.pointer("/data/object");
    Some(match told.event_type {
        "invoice.payment_succeeded" => Event::PaymentSucceeded,
        "invoice.payment_failed" => Event::PaymentFailed,
        "customer.subscription.created" => match billing.trial_end_date {
            Some(end) if told.occurred_at < end => Event::SubscribedOnTrial,
            _ => Event::Subscribed,
        },
        "customer.subscription.updated" => {
            let ends = object.and_then(|object| object.get("cancel_at_period_end"));
            match ends.and_then(Value::as_bool) {
                Some(true) => Event::CancelAtPeriodEnd,
                _ => Event::Continue,
            }
        }
        "customer.subscription.deleted" => Event::SubscriptionDeleted,
        _ => return None,
    })
}

/// Whether an event may still change the status: the result is the same as if all had come in order.
///
/// Payments and the subscription are told about side by side, so an event is old only compared with
/// its own kind; and where the status is the other kind's word, compared with that. The gateway's clock
/// has seconds, and one change tells several events: the same moment is news.
fn is_news(billing: &Billing, event: Event, occurred_at: Timestamp) -> bool {
    let before = |known: Option<Timestamp>| known.is_some_and(|known| occurred_at < known);
    let (own, other) = if event.is_about_payment() {
        (billing.payment_as_of, billing.subscription_as_of)
    } else {
        (billing.subscription_as_of, billing.payment_as_of)
    };
    let others_word = match billing.status {
        Status::PastDue => !event.is_about_payment(),
        Status::Active | Status::EarlyPayment | Status::Canceling | Status::Canceled => {
            event == Event::PaymentFailed
        }
        Status::Free => false,
    };
    let overruled = others_word && before(other);
    !before(own) && !overruled
}

/// Takes an event over: the billing as it will be, with its audit line.
pub fn apply(
    billing: &Billing,
    told: &Told<'_>,
    now: Timestamp,
) -> Result<(Billing, Changes), Reason> {
    let event = event_of(billing, told)
        .ok_or_else(|| Reason::new("NOT_BILLING", "billing does not listen to this type"))?;
    let mut after = Billing { version: billing.version + 1, updated_at: now, ..billing.clone() };
    if event == Event::PaymentSucceeded {
        after.last_payment_at = after.last_payment_at.max(Some(told.occurred_at));
    }
    let is_news = is_news(billing, event, told.occurred_at);
    if is_news {
        after.status = next(billing.status, event);
    }
    let as_of = if event.is_about_payment() {
        &mut after.payment_as_of
    } else {
        &mut after.subscription_as_of
    };
    *as_of = (*as_of).max(Some(told.occurred_at));
    let subscription = told.payload.pointer("/data/object/id").and_then(Value::as_str);
    if matches!(event, Event::Subscribed | Event::SubscribedOnTrial)
        && (is_news || after.stripe_subscription_id.is_none())
    {
        after.stripe_subscription_id = subscription.map(ToOwned::to_owned);
    }
    let details = json!({
        "event_id": told.event_id,
        "event_type": told.event_type,
        "source": format!("{}_webhook", told.source),
        "from": billing.status.as_str(),
        "to": after.status.as_str(),
        "out_of_order": !is_news,
    });
    let target = billing.id.to_string();
    let changes = Changes::from(Write::BillingUpdate(Box::new(after.clone()))).with(Write::Audit(
        Box::new(NewAudit {
            id: line_id(now, &target, told.event_id, 0),
            actor: Actor::SYSTEM,
            action: event.action().to_owned(),
            target_type: KIND,
            target_id: target,
            office_id: Some(billing.office_id.clone()),
            details: details.to_string(),
            now,
        }),
    ));
    Ok((after, changes))
}

/// A new billing, with its audit line.
#[must_use]
pub fn create(billing: &Billing, actor: Actor) -> Changes {
    let target = billing.id.to_string();
    Changes::from(Write::BillingInsert(Box::new(billing.clone()))).with(Write::Audit(Box::new(
        NewAudit {
            id: line_id(billing.created_at, &target, "created", 0),
            actor,
            action: "billing.created".to_owned(),
            target_type: KIND,
            target_id: target,
            office_id: Some(billing.office_id.clone()),
            details: json!({"status": billing.status.as_str()}).to_string(),
            now: billing.created_at,
        },
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(NOW.as_micros() + seconds * 1_000_000)
    }

    fn billing(status: Status) -> Billing {
        Billing {
            id: Uuid::nil(),
            version: 1,
            office_id: "o-1".into(),
            stripe_customer_id: "cus_1".into(),
            stripe_subscription_id: None,
            status,
            trial_end_date: None,
            last_payment_at: None,
            payment_as_of: None,
            subscription_as_of: None,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    fn told<'a>(event_type: &'a str, payload: &'a Value, occurred_at: Timestamp) -> Told<'a> {
        Told { event_id: "evt_1", event_type, source: "stripe", occurred_at, payload }
    }

    #[test]
    fn transitions_are_those_of_the_document() {
        let mut lines = Vec::new();
        for state in Status::ALL {
            for event in Event::ALL {
                let to = next(state, event);
                if to != state {
                    lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
                }
            }
        }
        let document = include_str!("../../../docs/states/billing.md");
        let documented: Vec<&str> = document.lines().filter(|l| l.contains("-->")).collect();
        assert_eq!(lines, documented, "docs/states/billing.md and the machine differ");
    }

    #[test]
    fn each_type_has_its_effect() {
        let none = json!({"data": {"object": {"id": "sub_1"}}});
        let ending = json!({"data": {"object": {"id": "sub_1", "cancel_at_period_end": true}}});
        let going_on = json!({"data": {"object": {"cancel_at_period_end": false}}});
        for (from, event_type, payload, to) in [
            (Status::PastDue, TYPES[0], &none, Status::Active),
            (Status::Free, TYPES[0], &none, Status::Free),
            (Status::Active, TYPES[1], &none, Status::PastDue),
            (Status::Free, TYPES[2], &none, Status::Active),
            (Status::Active, TYPES[3], &ending, Status::Canceling),
            (Status::Canceling, TYPES[3], &going_on, Status::Active),
            (Status::Active, TYPES[3], &going_on, Status::Active),
            (Status::Canceling, TYPES[4], &none, Status::Canceled),
        ] {
            let (after, changes) =
                apply(&billing(from), &told(event_type, payload, at(1)), at(2)).unwrap();
            assert_eq!(after.status, to, "{from:?} {event_type}");
            assert_eq!(after.version, 2);
            assert_eq!(changes.writes().len(), 2, "the row and its audit line");
        }
    }

    #[test]
    fn a_subscription_during_the_trial_is_early() {
        let on_trial = Billing { trial_end_date: Some(at(100)), ..billing(Status::Free) };
        let payload = json!({"data": {"object": {"id": "sub_1"}}});
        let (after, _) = apply(&on_trial, &told(TYPES[2], &payload, at(1)), at(2)).unwrap();
        assert_eq!(after.status, Status::EarlyPayment);
        assert_eq!(after.stripe_subscription_id.as_deref(), Some("sub_1"));
        let (after, _) = apply(&on_trial, &told(TYPES[2], &payload, at(100)), at(101)).unwrap();
        assert_eq!(after.status, Status::Active);
    }

    #[test]
    fn an_older_event_does_not_undo_a_newer_one() {
        let payload = json!({"data": {"object": {}}});
        let known = billing(Status::Active);
        let (canceled, _) = apply(&known, &told(TYPES[4], &payload, at(50)), at(60)).unwrap();
        let (after, _) = apply(&canceled, &told(TYPES[1], &payload, at(40)), at(61)).unwrap();
        assert_eq!(after.status, Status::Canceled);
        let (paid, _) = apply(&canceled, &told(TYPES[0], &payload, at(40)), at(61)).unwrap();
        assert_eq!(paid.last_payment_at, Some(at(40)), "the payment is remembered all the same");
        let (older, _) = apply(&paid, &told(TYPES[0], &payload, at(30)), at(62)).unwrap();
        assert_eq!(older.last_payment_at, Some(at(40)));
    }

    /// What arrives late leads to where it would have led in time, or is ignored.
    #[test]
    fn what_arrives_late_undoes_nothing() {
        let ending = json!({"data": {"object": {"cancel_at_period_end": true}}});
        let plain = json!({"data": {"object": {"cancel_at_period_end": false}}});
        let kinds = [
            (TYPES[0], &plain),
            (TYPES[1], &plain),
            (TYPES[2], &plain),
            (TYPES[3], &ending),
            (TYPES[3], &plain),
            (TYPES[4], &plain),
        ];
        let run = |from: Status, steps: &[(usize, i64)]| {
            steps.iter().fold(billing(from), |known, (kind, moment)| {
                let (event_type, payload) = kinds[*kind];
                apply(&known, &told(event_type, payload, at(*moment)), at(99)).unwrap().0
            })
        };
        for from in Status::ALL {
            for (first, second) in (0..36).map(|pair| (pair / 6, pair % 6)) {
                let in_time = run(from, &[(first, 1), (second, 2)]).status;
                let ignored = run(from, &[(second, 2)]).status;
                let late = run(from, &[(second, 2), (first, 1)]).status;
                let told = (kinds[second].0, kinds[first].0);
                assert!(late == in_time || late == ignored, "{from:?} {told:?}: {late:?}");
            }
        }
    }

    #[test]
    fn customers_are_found_as_text_or_object() {
        assert_eq!(customer_of(&json!({"data": {"object": {"customer": "cus_1"}}})), Some("cus_1"));
        let whole = json!({"data": {"object": {"customer": {"id": "cus_2"}}}});
        assert_eq!(customer_of(&whole), Some("cus_2"));
        assert_eq!(customer_of(&json!({})), None);
    }
}
