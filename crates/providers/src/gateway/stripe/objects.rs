//! Reading Stripe's objects.
//!
//! Strict where it matters: an object counts only if it is about our payment and every amount in it
//! makes sense. An object that cannot be read is no object (`None`), never a failure. Unknown fields
//! are ignored, unknown statuses are not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use uuid::Uuid;

use super::super::{Listed, Page, wire};
use super::errors::{ErrorObject, declined};

/// Where our id of a payment is kept at Stripe.
pub(super) const PAYMENT_ID: &str = "payment_id";
/// Where our id of a refund is kept at Stripe.
pub(super) const REFUND_ID: &str = "refund_id";

pub(super) type Metadata = BTreeMap<String, Value>;

#[derive(Deserialize)]
pub(super) struct Intent {
    object: String,
    pub id: String,
    status: String,
    amount: i64,
    currency: String,
    created: i64,
    amount_received: Option<i64>,
    last_payment_error: Option<ErrorObject>,
    latest_charge: Option<Value>,
    metadata: Option<Metadata>,
}

/// A charge inside an intent, where the reply has it in full.
#[derive(Deserialize)]
struct Charge {
    amount: i64,
    amount_captured: Option<i64>,
    refunds: Option<List<Refund>>,
}

#[derive(Deserialize)]
pub(super) struct Refund {
    object: String,
    pub id: String,
    amount: i64,
    status: Option<String>,
    payment_intent: Option<String>,
    metadata: Option<Metadata>,
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub data: Vec<T>,
    #[serde(default)]
    pub has_more: bool,
}

/// An intent; of the payment with this id, if one is given.
pub(super) fn intent(body: &[u8], id: Option<&str>) -> Option<Intent> {
    let intent: Intent = serde_json::from_slice(body).ok()?;
    let ours = id.is_none_or(|id| id == intent.id);
    (ours && intent.object == "payment_intent" && wire::is_id(&intent.id)).then_some(intent)
}

/// The payment that an intent is.
pub(super) fn remote(intent: &Intent, secret: &str) -> Option<Remote> {
    let failed = intent.last_payment_error.as_ref();
    let mut reason = None;
    let state = match (intent.status.as_str(), failed) {
        ("requires_payment_method", Some(error)) => {
            reason = Some(declined(error, secret));
            RemoteState::Declined
        }
        ("requires_payment_method" | "requires_confirmation", _) => RemoteState::NotFound,
        ("requires_action", _) => {
            let words = "the customer has to authenticate the payment";
            reason = Some(Reason::new(code::ACTION_REQUIRED, words));
            RemoteState::Pending
        }
        ("processing", _) => RemoteState::Pending,
        ("requires_capture", _) => RemoteState::Authorized,
        ("succeeded", _) => RemoteState::Captured,
        ("canceled", _) => RemoteState::Voided,
        _ => return None,
    };
    let captured = match state {
        RemoteState::Captured => captured(intent)?,
        _ => intent.amount_received.unwrap_or(0),
    };
    let gateway_id = Some(intent.id.clone());
    (captured >= 0).then_some(Remote { state, gateway_id, captured, refunds: None, reason })
}

/// How much of a succeeded intent was taken.
///
/// Stripe says it in `amount_received`. Stand-ins leave it out (localstripe) and show what a partial
/// capture released as a refund of the charge, as Stripe itself did in its early versions: such a
/// refund belongs to no intent.
fn captured(intent: &Intent) -> Option<i64> {
    if intent.amount_received.is_some() {
        return intent.amount_received;
    }
    let charge: Charge = serde_json::from_value(intent.latest_charge.clone()?).ok()?;
    let released = charge.refunds.as_ref().map_or(0, |refunds| {
        let released = refunds.data.iter().filter(|refund| refund.payment_intent.is_none());
        released.map(|refund| refund.amount).fold(0, i64::saturating_add)
    });
    Some(charge.amount_captured.unwrap_or(charge.amount.saturating_sub(released)))
}

/// A refund of the payment with this id.
pub(super) fn refund(body: &[u8], intent: &str) -> Option<RemoteRefund> {
    remote_refund(&serde_json::from_slice(body).ok()?, intent)
}

pub(super) fn remote_refund(refund: &Refund, intent: &str) -> Option<RemoteRefund> {
    let state = match refund.status.as_deref() {
        Some("pending" | "requires_action") => RemoteRefundState::Pending,
        Some("succeeded") => RemoteRefundState::Succeeded,
        Some("failed" | "canceled") => RemoteRefundState::Failed,
        _ => return None,
    };
    let ours = refund.payment_intent.as_deref() == Some(intent);
    let whole = refund.object == "refund" && wire::is_id(&refund.id) && refund.amount > 0;
    (ours && whole).then(|| RemoteRefund {
        refund_id: our_id(refund.metadata.as_ref(), REFUND_ID),
        gateway_id: refund.id.clone(),
        amount: refund.amount,
        state,
    })
}

/// One page of the refunds of an intent.
pub(super) struct Refunds {
    pub items: Vec<RemoteRefund>,
    /// Where the next page begins. `None` at the end.
    pub next: Option<String>,
}

pub(super) fn refunds(body: &[u8], intent: &str) -> Option<Refunds> {
    let list: List<Refund> = serde_json::from_slice(body).ok()?;
    // A refund that belongs to no intent is what a partial capture released, see `captured`.
    let ours = list.data.iter().filter(|refund| refund.payment_intent.is_some());
    let items = ours.map(|refund| remote_refund(refund, intent)).collect::<Option<Vec<_>>>()?;
    let next = next(list.has_more, list.data.last().map(|refund| refund.id.as_str()))?;
    Some(Refunds { items, next })
}

/// One page of the list of intents.
pub(super) fn listed(body: &[u8], secret: &str) -> Option<Page> {
    let list: List<Intent> = serde_json::from_slice(body).ok()?;
    let item = |intent: &Intent| {
        Some(Listed {
            payment_id: our_id(intent.metadata.as_ref(), PAYMENT_ID),
            remote: remote(intent, secret)?,
            amount: intent.amount,
            currency: intent.currency.to_ascii_uppercase(),
            created_at: Timestamp::from_micros(intent.created.checked_mul(1_000_000)?),
        })
    };
    let items = list.data.iter().map(item).collect::<Option<Vec<_>>>()?;
    let next = next(list.has_more, list.data.last().map(|intent| intent.id.as_str()))?;
    Some(Page { items, next })
}

/// Where the next page begins; outer `None` if there should be one and nothing says where.
#[expect(clippy::option_option, reason = "unreadable, the end, or a place")]
fn next(has_more: bool, last: Option<&str>) -> Option<Option<String>> {
    match (has_more, last) {
        (false, _) => Some(None),
        (true, Some(last)) if wire::is_id(last) => Some(Some(last.to_owned())),
        (true, _) => None,
    }
}

pub(super) fn our_id(metadata: Option<&Metadata>, name: &str) -> Option<Uuid> {
    metadata?.get(name)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(change: Value) -> Option<(RemoteState, i64, Option<String>)> {
        let mut body = json!({
            "object": "payment_intent", "id": "pi_1", "status": "succeeded", "amount": 5000,
            "currency": "usd", "created": 1, "amount_received": 3000,
        });
        let Value::Object(change) = change else { panic!("{change}") };
        body.as_object_mut().unwrap().extend(change);
        let intent = intent(body.to_string().as_bytes(), Some("pi_1"))?;
        let remote = remote(&intent, "key")?;
        Some((remote.state, remote.captured, remote.reason.map(|reason| reason.code)))
    }

    #[test]
    fn every_status_is_one_state_and_unknown_ones_are_none() {
        let error = json!({"code": "card_declined"});
        for (change, expected) in [
            (json!({}), Some((RemoteState::Captured, 3000, None))),
            (
                json!({"status": "requires_capture", "amount_received": 0}),
                Some((RemoteState::Authorized, 0, None)),
            ),
            (
                json!({"status": "requires_confirmation", "amount_received": null}),
                Some((RemoteState::NotFound, 0, None)),
            ),
            (
                json!({"status": "requires_payment_method", "amount_received": 0}),
                Some((RemoteState::NotFound, 0, None)),
            ),
            (
                json!({
                    "status": "requires_payment_method", "amount_received": 0,
                    "last_payment_error": error,
                }),
                Some((RemoteState::Declined, 0, Some("CARD_DECLINED".into()))),
            ),
            (
                json!({"status": "requires_action", "amount_received": 0}),
                Some((RemoteState::Pending, 0, Some("ACTION_REQUIRED".into()))),
            ),
            (
                json!({"status": "processing", "amount_received": 0}),
                Some((RemoteState::Pending, 0, None)),
            ),
            (
                json!({"status": "canceled", "amount_received": 0}),
                Some((RemoteState::Voided, 0, None)),
            ),
            (json!({"status": "requires_prayer"}), None),
            (json!({"id": "pi_2"}), None),
            (json!({"object": "charge"}), None),
            (json!({"amount_received": -1}), None),
            (json!({"amount_received": null}), None),
            (json!({"amount_received": null, "latest_charge": "ch_1"}), None),
            (
                json!({
                    "amount_received": null,
                    "latest_charge": {"amount": 5000, "amount_captured": 7},
                }),
                Some((RemoteState::Captured, 7, None)),
            ),
        ] {
            assert_eq!(read(change.clone()), expected, "{change}");
        }
    }

    #[test]
    fn what_a_partial_capture_released_is_no_refund() {
        let refund = |id: &str, amount: i64, intent: Option<&str>| {
            json!({
                "object": "refund", "id": id, "amount": amount, "status": "succeeded",
                "payment_intent": intent,
            })
        };
        let released = refund("re_0", 2000, None);
        let given_back = refund("re_1", 500, Some("pi_1"));
        let list = json!({"data": [released, given_back], "has_more": false});
        let charge = json!({"amount": 5000, "refunds": list});
        assert_eq!(
            read(json!({"amount_received": null, "latest_charge": charge})),
            Some((RemoteState::Captured, 3000, None))
        );
        let refunds = refunds(list.to_string().as_bytes(), "pi_1").unwrap();
        assert_eq!(refunds.items.len(), 1);
        assert_eq!(refunds.items[0].gateway_id, "re_1");
        assert_eq!(refunds.next, None);
    }
}
