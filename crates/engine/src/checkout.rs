//! Pages of the gateway on which customers pay: opened, asked about and closed here.
//!
//! All three are safe to repeat: opening under the payment's own key, asking by nature, closing because a
//! page that is closed stays closed, and one that is paid says so.

use serde_json::Value;
use tashika_domain::effect::{Effect, PAYLOAD_UNREADABLE};
use tashika_domain::outcome::Outcome;
use tashika_domain::payment::checkout::{CHECKOUT_CLOSED, Order};
use tashika_domain::payment::conclude::{Finding, Via};
use tashika_domain::payment::remote::RemoteState;
use tashika_domain::payment::session::{RemoteSession, SessionState};
use tashika_domain::payment::{OperationKind, Payment, Subject};
use tashika_providers::gateway::{CheckoutOrder, SessionRef};
use tashika_providers::reply::Reply;

use crate::payment::{KEY_TOO_OLD, Talk, Till, charge, refused};

const SUBJECT: Subject = Subject::Operation(OperationKind::Checkout);

/// What is ordered, as it was written down with the effect.
fn order(effect: &Effect) -> Option<Order> {
    let mut payload: Value = serde_json::from_str(&effect.payload).ok()?;
    serde_json::from_value(payload.get_mut("order")?.take()).ok()
}

impl Till {
    /// Opens the page of a payment, or closes it: whatever its effect is for.
    pub(crate) async fn attempt_checkout(&self, payment: &Payment, effect: &Effect) -> Talk {
        let Some(page) = &payment.checkout else {
            return Talk::without(refused(PAYLOAD_UNREADABLE, "the payment has no page"));
        };
        match &page.session {
            Some(session) => self.close(payment, &session.id).await,
            None => self.open(payment, effect).await,
        }
    }

    async fn open(&self, payment: &Payment, effect: &Effect) -> Talk {
        let now = self.clock.now();
        let in_doubt = effect.in_doubt || payment.doubt_of(SUBJECT).is_some();
        let closed = payment.checkout.as_ref().is_some_and(|page| now >= page.closes_at);
        if closed && !in_doubt {
            return Talk::without(refused(CHECKOUT_CLOSED, "not wanted any more"));
        }
        if self.is_too_old(payment, SUBJECT) {
            return Talk::without(refused(KEY_TOO_OLD, "its key may be forgotten"));
        }
        let Some(order) = order(effect) else {
            return Talk::without(refused(PAYLOAD_UNREADABLE, "the order cannot be read"));
        };
        let request = &payment.request;
        let order = CheckoutOrder {
            payment_id: payment.id,
            reservation_id: order.reservation_id,
            amount: request.amount,
            currency: &request.currency,
            title: &order.title,
            customer_email: order.customer_email.as_deref(),
            locale: order.locale.as_deref(),
            success_url: &order.success_url,
            cancel_url: &order.cancel_url,
            expires_at: order.expires_at,
            now,
            traceparent: payment.traceparent.as_deref(),
        };
        // A page that somebody has opened before may have been paid since.
        let reply = self.gateway.open_checkout(order).await;
        let reply = self.with_its_intent(payment, reply).await;
        Talk::new(Via::Sent, reply, Finding::Session)
    }

    async fn close(&self, payment: &Payment, session_id: &str) -> Talk {
        let reply = self.gateway.expire_checkout(self.session_ref(payment, session_id)).await;
        let reply = self.with_its_intent(payment, reply).await;
        Talk::new(Via::Sent, reply, Finding::Session)
    }

    /// Asks where the page stands, and no more.
    pub(crate) async fn ask_checkout(&self, payment: &Payment) -> Talk {
        let session = payment.checkout.as_ref().and_then(|page| page.session.as_ref());
        let Some(session) = session else {
            // Nobody knows its name: whoever opens it will.
            let unknown = Outcome::Busy {
                reason: tashika_domain::outcome::Reason::new("CHECKOUT_UNKNOWN", "not opened yet"),
                retry_in: None,
            };
            return Talk { via: Via::Asked, ..Talk::without(unknown) };
        };
        Talk::new(Via::Asked, self.look_at_page(payment, &session.id).await, Finding::Session)
    }

    /// A page as the gateway sees it now.
    pub(crate) async fn look_at_page(
        &self,
        payment: &Payment,
        session_id: &str,
    ) -> Reply<RemoteSession> {
        let reply = self.gateway.checkout(self.session_ref(payment, session_id)).await;
        self.with_its_intent(payment, reply).await
    }

    fn session_ref<'a>(&self, payment: &'a Payment, session_id: &'a str) -> SessionRef<'a> {
        SessionRef {
            session_id,
            payment_id: payment.id,
            now: self.clock.now(),
            traceparent: payment.traceparent.as_deref(),
        }
    }

    /// A page that is finished and not paid says nothing about money that is on its way: the payment
    /// behind it does. If that has failed, nobody can pay on this page any more, and nobody has.
    async fn with_its_intent(
        &self,
        payment: &Payment,
        reply: Reply<RemoteSession>,
    ) -> Reply<RemoteSession> {
        let Outcome::Done(session) = &reply.outcome else { return reply };
        let unpaid = session.state == SessionState::Complete && !session.paid;
        let Some(intent) = session.gateway_id.as_deref().filter(|_| unpaid) else { return reply };
        let mut asked = charge(payment, self.clock.now());
        asked.gateway_id = Some(intent);
        let Outcome::Done(remote) = self.gateway.status(asked).await.outcome else { return reply };
        let mut session = session.clone();
        match remote.state {
            RemoteState::Captured => session.paid = true,
            RemoteState::Declined | RemoteState::Voided => session.state = SessionState::Expired,
            RemoteState::NotFound | RemoteState::Pending | RemoteState::Authorized => return reply,
        }
        Reply { outcome: Outcome::Done(session), ..reply }
    }
}
