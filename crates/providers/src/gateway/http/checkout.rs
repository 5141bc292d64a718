//! Checkout sessions over the protocol of `docs/gateway-protocol.md`.

use serde::{Deserialize, Serialize};
use tashika_domain::payment::session::{RemoteSession, SessionState};
use tashika_domain::{Outcome, Timestamp};
use uuid::Uuid;

use super::mapping::Meaning;
use super::{Ask, HttpGateway, payment};
use crate::gateway::wire::{self, lost};
use crate::gateway::{CheckoutOrder, SessionRef};
use crate::http::Answer;
use crate::reply::Reply;

const OPEN: &str = "POST /checkouts";
const LOOK: &str = "GET /checkouts/{id}";
const EXPIRE: &str = "POST /checkouts/{id}/expire";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewSession<'a> {
    reference: Uuid,
    reservation: Uuid,
    amount: i64,
    currency: &'a str,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_email: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locale: Option<&'a str>,
    success_url: &'a str,
    cancel_url: &'a str,
    expires_at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    id: String,
    reference: String,
    url: Option<String>,
    status: SessionState,
    paid: bool,
    payment_id: Option<String>,
    amount: i64,
    currency: String,
    expires_at: Timestamp,
}

/// The session of a payment; the one with this id, if one is given.
fn session(body: &[u8], id: Option<&str>, reference: Uuid) -> Option<RemoteSession> {
    let session: Session = serde_json::from_slice(body).ok()?;
    let named = id.is_none_or(|id| id == session.id) && wire::is_id(&session.id);
    let ours = session.reference.parse() == Ok(reference);
    let gateway_id = session.payment_id;
    let sound = gateway_id.as_deref().is_none_or(wire::is_id) && session.amount >= 0;
    // What is paid has a payment, and its page is not open any more.
    let coherent =
        !session.paid || (gateway_id.is_some() && session.status == SessionState::Complete);
    (named && ours && sound && coherent).then(|| RemoteSession {
        id: session.id,
        url: session.url,
        state: session.status,
        paid: session.paid,
        gateway_id,
        amount: session.amount,
        currency: session.currency.to_ascii_uppercase(),
        expires_at: session.expires_at,
    })
}

/// A success, or a conflict that tells the state.
fn told(answer: &Answer, id: Option<&str>, reference: Uuid) -> Option<Outcome<RemoteSession>> {
    match Meaning::of(answer.status) {
        Meaning::Accepted | Meaning::Conflict => {
            session(&answer.body, id, reference).map(Outcome::Done)
        }
        _ => None,
    }
}

impl HttpGateway {
    pub(super) async fn open_session(&self, order: CheckoutOrder<'_>) -> Reply<RemoteSession> {
        let reference = order.payment_id;
        let ask = Ask {
            traceparent: order.traceparent,
            key: Some(format!("{reference}:checkout")),
            method: ::http::Method::POST,
            ..Ask::get(OPEN, "/checkouts".to_owned(), order.now)
        }
        .json(&NewSession {
            reference,
            reservation: order.reservation_id,
            amount: order.amount,
            currency: order.currency,
            title: order.title,
            customer_email: order.customer_email,
            locale: order.locale,
            success_url: order.success_url,
            cancel_url: order.cancel_url,
            expires_at: order.expires_at,
        });
        self.ask(ask, |answer| told(answer, None, reference)).await
    }

    pub(super) async fn session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        let (id, reference) = (asked.session_id, asked.payment_id);
        if !wire::is_id(id) {
            return unwritable(LOOK);
        }
        let ask = Ask::get(LOOK, format!("/checkouts/{id}"), asked.now);
        self.ask(ask, |answer| match answer.status.as_u16() {
            // As with payments: some router's 404 must not be taken for the gateway's word.
            404 if payment::trouble(&answer.body).code.as_deref() != Some("CHECKOUT_NOT_FOUND") => {
                Some(lost("404, but not the gateway's CHECKOUT_NOT_FOUND".to_owned()))
            }
            200..=299 => told(answer, Some(id), reference),
            _ => None,
        })
        .await
    }

    pub(super) async fn expire_session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        let (id, reference) = (asked.session_id, asked.payment_id);
        if !wire::is_id(id) {
            return unwritable(EXPIRE);
        }
        let ask = Ask {
            traceparent: asked.traceparent,
            key: Some(format!("{reference}:expire")),
            method: ::http::Method::POST,
            body: "{}".to_owned(),
            ..Ask::get(EXPIRE, format!("/checkouts/{id}/expire"), asked.now)
        };
        self.ask(ask, |answer| told(answer, Some(id), reference)).await
    }
}

/// Nothing was sent, because the id cannot be written into a path.
fn unwritable<T>(request: &str) -> Reply<T> {
    use tashika_domain::outcome::Reason;
    use tashika_domain::payment::remote::code;
    let why = "the session's id cannot be written into a request";
    let mut reply = wire::unasked(why, Outcome::Refused(Reason::new(code::INVALID_REQUEST, why)));
    request.clone_into(&mut reply.exchange.request);
    reply
}
