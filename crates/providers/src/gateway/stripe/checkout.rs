//! Checkout sessions at Stripe.
//!
//! A session is opened with its price inline, so that nothing has to be set up in Stripe's catalogue.
//! Our ids are in the metadata of the session and of the intent that it will make, and the
//! reservation is its `client_reference_id`: whatever of these Stripe tells us about, we know what it
//! is about.
//!
//! # When Stripe closes a session
//!
//! Stripe takes 30 minutes to 24 hours, counted from its own now, and compares a repeat under the
//! same key with the first request, parameter by parameter. A time that depends on *our* now would
//! turn every repeat into an `idempotency_error`. So what is sent depends on the order's `expires_at`
//! alone: [`MARGIN`] after it, which is within the bounds while the order has not expired. An order
//! that is to live for more than [`LONGEST`] is sent without, and Stripe takes its 24 hours. Closing
//! in time is the caller's affair ([`Gateway::expire_checkout`](super::super::Gateway::expire_checkout));
//! Stripe's own time is what ends a session if nobody does.

use std::time::Duration;

use ::http::Method;
use serde::Deserialize;
use tashika_domain::payment::remote::code;
use tashika_domain::payment::session::{RemoteSession, SessionState};
use tashika_domain::{Outcome, Timestamp};
use uuid::Uuid;

use super::ask::Ask;
use super::objects::{Metadata, PAYMENT_ID, our_id};
use super::{StripeGateway, adopted, unprepared};
use crate::gateway::{CheckoutOrder, SessionRef, wire};
use crate::reply::Reply;

/// Between our end of a session and Stripe's: Stripe's shortest life, and a minute for clocks.
const MARGIN: Duration = Duration::from_secs(31 * 60);

/// Stripe's longest life, less the margin and an hour for repeats.
const LONGEST: Duration = Duration::from_secs(22 * 3600 + 29 * 60);

const OPEN: &str = "POST /v1/checkout/sessions";
const LOOK: &str = "GET /v1/checkout/sessions/{id}";
const EXPIRE: &str = "POST /v1/checkout/sessions/{id}/expire";

#[derive(Deserialize)]
struct Session {
    object: String,
    id: String,
    url: Option<String>,
    status: String,
    payment_status: String,
    payment_intent: Option<String>,
    amount_total: i64,
    currency: String,
    expires_at: i64,
    metadata: Option<Metadata>,
}

/// The session of a payment; the one with this id, if one is given.
fn session(body: &[u8], id: Option<&str>, payment_id: Uuid) -> Option<RemoteSession> {
    let session: Session = serde_json::from_slice(body).ok()?;
    let named = id.is_none_or(|id| id == session.id) && wire::is_id(&session.id);
    let ours = our_id(session.metadata.as_ref(), PAYMENT_ID) == Some(payment_id);
    if !named || !ours || session.object != "checkout.session" || session.amount_total < 0 {
        return None;
    }
    let state = match session.status.as_str() {
        "open" => SessionState::Open,
        "complete" => SessionState::Complete,
        "expired" => SessionState::Expired,
        _ => return None,
    };
    let paid = match session.payment_status.as_str() {
        "paid" => true,
        "unpaid" => false,
        // We sell nothing for nothing: what needed no payment is not what we asked for.
        _ => return None,
    };
    let gateway_id = session.payment_intent;
    let sound = gateway_id.as_deref().is_none_or(wire::is_id);
    // Paid without saying by which payment cannot be refunded, so it is not an answer to build on.
    (sound && (!paid || gateway_id.is_some())).then(|| RemoteSession {
        id: session.id,
        url: session.url,
        state,
        paid,
        gateway_id,
        amount: session.amount_total,
        currency: session.currency.to_ascii_uppercase(),
        expires_at: Timestamp::from_micros(session.expires_at.saturating_mul(1_000_000)),
    })
}

/// When Stripe is to close the session, in its whole seconds; see the head of this file.
fn closes_at(order: &CheckoutOrder<'_>) -> Option<String> {
    let lives = order.expires_at.since(order.now);
    let at = order.expires_at.plus(MARGIN).as_micros().div_euclid(1_000_000);
    (lives <= LONGEST).then(|| at.to_string())
}

impl StripeGateway {
    pub(super) async fn open_session(&self, order: CheckoutOrder<'_>) -> Reply<RemoteSession> {
        let id = order.payment_id;
        let (payment, reservation) = (id.to_string(), order.reservation_id.to_string());
        let key = format!("{id}:checkout");
        let ask = Ask::post(OPEN, "/v1/checkout/sessions".to_owned(), key, order.now)
            .with("mode", "payment")
            .with("line_items[0][quantity]", "1")
            .with("line_items[0][price_data][currency]", order.currency.to_ascii_lowercase())
            .with("line_items[0][price_data][unit_amount]", order.amount.to_string())
            .with("line_items[0][price_data][product_data][name]", order.title)
            .with("client_reference_id", &*reservation)
            .with("metadata[payment_id]", &*payment)
            .with("metadata[reservation_id]", &*reservation)
            .with("payment_intent_data[metadata][payment_id]", &*payment)
            .with("payment_intent_data[metadata][reservation_id]", &*reservation)
            .with_some("customer_email", order.customer_email)
            .with_some("locale", order.locale)
            .with("success_url", order.success_url)
            .with("cancel_url", order.cancel_url)
            .with_some("expires_at", closes_at(&order).as_deref());
        self.ask(ask, |body| session(body, None, id)).await.reply
    }

    pub(super) async fn session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        let id = asked.session_id;
        if !wire::is_id(id) {
            return unprepared(LOOK);
        }
        let ask = Ask::get(LOOK, format!("/v1/checkout/sessions/{id}"), asked.now);
        self.ask(ask, |body| session(body, Some(id), asked.payment_id)).await.reply
    }

    pub(super) async fn expire_session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        let (id, payment_id) = (asked.session_id, asked.payment_id);
        if !wire::is_id(id) {
            return unprepared(EXPIRE);
        }
        let path = format!("/v1/checkout/sessions/{id}/expire");
        // Without a key, which would remember an error of Stripe's for a day: closing twice is closing once.
        let ask = Ask { method: Method::POST, ..Ask::get(EXPIRE, path, asked.now) };
        let heard = self.ask(ask, |body| session(body, Some(id), payment_id)).await;
        // Stripe gives this refusal no code of its own: whatever it finds wrong with the request, the
        // session says where it stands.
        let unwilling = matches!(
            &heard.reply.outcome,
            Outcome::Refused(reason) if reason.code == code::INVALID_REQUEST
        );
        if !unwilling {
            return heard.reply;
        }
        let read = self.session(asked).await;
        adopted(heard.reply, read, |session, _| Outcome::Done(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PAYMENT: Uuid = Uuid::from_u128(7);

    fn read(change: Value) -> Option<(SessionState, bool, Option<String>)> {
        let mut body = json!({
            "object": "checkout.session", "id": "cs_1", "url": null, "status": "complete",
            "payment_status": "paid", "payment_intent": "pi_1", "amount_total": 1200,
            "currency": "jpy", "expires_at": 1_700_001_800, "metadata": {"payment_id": PAYMENT},
        });
        let Value::Object(change) = change else { panic!("{change}") };
        body.as_object_mut().unwrap().extend(change);
        let read = session(body.to_string().as_bytes(), Some("cs_1"), PAYMENT)?;
        assert_eq!((read.amount, read.currency.as_str()), (1200, "JPY"));
        Some((read.state, read.paid, read.gateway_id))
    }

    #[test]
    fn a_session_counts_only_if_it_is_ours_and_says_whether_it_is_paid() {
        let intent = || Some("pi_1".to_owned());
        for (change, expected) in [
            (json!({}), Some((SessionState::Complete, true, intent()))),
            (json!({"payment_status": "unpaid"}), Some((SessionState::Complete, false, intent()))),
            (
                json!({"status": "open", "payment_status": "unpaid", "payment_intent": null}),
                Some((SessionState::Open, false, None)),
            ),
            (
                json!({"status": "expired", "payment_status": "unpaid", "payment_intent": null}),
                Some((SessionState::Expired, false, None)),
            ),
            (json!({"payment_intent": null}), None),
            (json!({"payment_status": "no_payment_required"}), None),
            (json!({"status": "asleep"}), None),
            (json!({"id": "cs_2"}), None),
            (json!({"object": "payment_intent"}), None),
            (json!({"metadata": {}}), None),
            (json!({"metadata": {"payment_id": Uuid::from_u128(8)}}), None),
        ] {
            assert_eq!(read(change.clone()), expected, "{change}");
        }
    }

    #[test]
    fn stripes_end_is_within_its_bounds_and_the_same_for_every_repeat() {
        let opened = Timestamp::from_micros(1_700_000_000_000_000);
        let order = |hold: u64, later: u64| CheckoutOrder {
            payment_id: PAYMENT,
            reservation_id: PAYMENT,
            amount: 1,
            currency: "JPY",
            title: "",
            customer_email: None,
            locale: None,
            success_url: "",
            cancel_url: "",
            expires_at: opened.plus(Duration::from_secs(hold)),
            now: opened.plus(Duration::from_secs(later)),
            traceparent: None,
        };
        for (hold, later) in [(900, 0), (900, 899), (1, 0), (80_000, 0), (80_000, 79_999)] {
            let order = order(hold, later);
            let at: i64 = closes_at(&order).unwrap().parse().unwrap();
            let life = at - order.now.as_micros().div_euclid(1_000_000);
            assert!((1800..=86_400).contains(&life), "{hold} {later}: {life}");
        }
        assert_eq!(closes_at(&order(900, 0)), closes_at(&order(900, 899)));
        assert_eq!(closes_at(&order(86_000, 0)), None);
    }
}
