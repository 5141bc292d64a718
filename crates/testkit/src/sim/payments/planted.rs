//! Deliberate mistakes with payments, made outside of the product.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tashika_domain::Timestamp;
use tashika_domain::effect::EffectId;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::payment::conclude::{Finding, Heard, Via, conclude};
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteState, code};
use tashika_domain::payment::session::{RemoteSession, SessionState};
use tashika_domain::payment::{At, Payment};
use tashika_engine::{Ending, Handler, Job, PaymentHandler, Settled, Till, Tried};
use tashika_providers::gateway::{Charge, CheckoutOrder, Gateway, Page, RefundOrder, SessionRef};
use tashika_providers::reply::{BoxFuture, Reply};
use tashika_store::StoreError;
use uuid::Uuid;

use super::Planted;
use super::book;
use super::dice::Odds;
use super::process::Process;
use super::stage::lock;
use super::swarm::Swarm;

/// Makes a mistake possible: one in a world in which it cannot show proves nothing.
pub(crate) fn arrange(swarm: &mut Swarm, planted: Planted) {
    let at_least = |odds: Odds, percent: u64| {
        Odds::millionth(odds.in_million().max(Odds::percent(percent).in_million()))
    };
    swarm.nature.liar = planted == Planted::KeepsLateMoney;
    swarm.network.reply_lost = at_least(swarm.network.reply_lost, 10);
    swarm.network.arrives_late = at_least(swarm.network.arrives_late, 8);
    if planted == Planted::FreshRefundKey {
        swarm.network.arrives_late = Odds::percent(40);
        swarm.rules.verify_interval = std::time::Duration::from_secs(10);
    }
    if matches!(planted, Planted::NoReservation | Planted::FreshRefundKey) {
        swarm.nature.caps_refunds = false;
    }
    if planted == Planted::KeepsLateMoney {
        swarm.post.never = Odds::percent(100);
    }
}

/// Puts a mistake between the engine and the gateway, if that is where it belongs.
pub(crate) fn gateway(planted: Option<Planted>, gateway: Arc<dyn Gateway>) -> Arc<dyn Gateway> {
    match planted {
        Some(
            mistake @ (Planted::LostIsDeclined
            | Planted::ReplayInsteadOfAsk
            | Planted::NoFence
            | Planted::FreshRefundKey
            | Planted::KeepsLateMoney
            | Planted::ClosesUnasked
            | Planted::CompleteIsPaid),
        ) => Arc::new(BadAdapter { gateway, mistake, sent: AtomicU32::new(0) }),
        _ => gateway,
    }
}

struct BadAdapter {
    gateway: Arc<dyn Gateway>,
    mistake: Planted,
    sent: AtomicU32,
}

impl BadAdapter {
    async fn authorize(&self, charge: Charge<'_>) -> Reply<Remote> {
        let mut reply = self.gateway.authorize(charge).await;
        if self.mistake == Planted::LostIsDeclined && matches!(reply.outcome, Outcome::Lost(_)) {
            let reason = Reason::new(code::CARD_DECLINED, "surely not executed");
            reply.outcome = Outcome::Refused(reason);
        }
        reply
    }

    async fn status(&self, charge: Charge<'_>) -> Reply<Remote> {
        let reply = self.gateway.status(charge).await;
        let unseen = matches!(&reply.outcome,
            Outcome::Done(remote) if remote.state == RemoteState::NotFound);
        if self.mistake == Planted::ReplayInsteadOfAsk && unseen {
            return self.gateway.authorize(charge).await;
        }
        reply
    }

    async fn fence(&self, charge: Charge<'_>) -> Reply<Remote> {
        if self.mistake != Planted::NoFence {
            return self.gateway.fence(charge).await;
        }
        let voided = |remote| Remote { state: RemoteState::Voided, ..remote };
        self.gateway.status(charge).await.map(voided)
    }
}

impl BadAdapter {
    /// A page, seen by somebody who does not look closely.
    fn misread(&self, page: RemoteSession, closes: bool) -> RemoteSession {
        let finished = page.state == SessionState::Complete;
        match self.mistake {
            Planted::CompleteIsPaid => RemoteSession { paid: page.paid || finished, ..page },
            // A page that will not be closed is taken for one that nobody has paid.
            Planted::ClosesUnasked if closes => {
                RemoteSession { state: SessionState::Expired, paid: false, ..page }
            }
            _ => page,
        }
    }
}

impl Gateway for BadAdapter {
    fn name(&self) -> &str {
        self.gateway.name()
    }

    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        self.gateway.prepare(charge)
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.authorize(charge))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        self.gateway.capture(charge, amount)
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        self.gateway.void(charge)
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        mut refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        if self.mistake == Planted::FreshRefundKey {
            refund.number += 1000 * (1 + self.sent.fetch_add(1, Ordering::Relaxed));
        }
        self.gateway.refund(charge, refund)
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.status(charge))
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.fence(charge))
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        if self.mistake == Planted::KeepsLateMoney {
            return self.gateway.list(from, from, after);
        }
        self.gateway.list(from, until, after)
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.gateway.open_checkout(order)
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        let page = self.gateway.checkout(session);
        Box::pin(async move { page.await.map(|page| self.misread(page, false)) })
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        let page = self.gateway.expire_checkout(session);
        Box::pin(async move { page.await.map(|page| self.misread(page, true)) })
    }
}

/// A refund as somebody in a hurry writes it: looks what is left, and gives it back.
pub(crate) async fn refund_without_reservation(
    process: &Process,
    id: Uuid,
    key: &str,
    amount: Option<i64>,
) -> book::Heard {
    let Ok(Some(payment)) = process.store.payment(id).await else { return book::Heard::Refused };
    let left = payment.captured_amount - payment.refunded_amount;
    let amount = amount.unwrap_or(left).min(left);
    if amount == 0 {
        return book::Heard::Refused;
    }
    let request = &payment.request;
    let charge = Charge {
        payment_id: id,
        gateway_id: payment.gateway_transaction_id.as_deref(),
        amount: request.amount,
        currency: &request.currency,
        payment_method: &request.payment_method,
        customer: None,
        description: None,
        in_vain: payment.in_vain,
        now: process.clock.now(),
        traceparent: None,
    };
    let number = key.bytes().fold(0, |n: u32, b| n.wrapping_mul(31).wrapping_add(b.into()));
    let refund_id = Uuid::from_u128(number.into());
    let order = RefundOrder { refund_id, number, amount, reason: None };
    drop(process.till.gateway.refund(charge, order).await);
    book::Heard::Refused
}

/// A handler that decides by what it read before the attempt, and writes it over what is there now.
pub(crate) struct IgnoresVersion {
    handler: PaymentHandler,
    till: Arc<Till>,
    read: Mutex<BTreeMap<EffectId, Payment>>,
}

impl IgnoresVersion {
    pub fn new(handler: PaymentHandler, till: Arc<Till>) -> Self {
        Self { handler, till, read: Mutex::default() }
    }

    async fn overwrite(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let read = lock(&self.read).get(&ending.effect.id).cloned();
        let finding = match ending.outcome {
            Outcome::Done(found) => serde_json::from_value::<Finding>(found.clone()).ok(),
            _ => None,
        };
        let (Some(mut payment), Some(finding)) = (read, finding) else {
            return self.handler.conclude(ending).await;
        };
        if let Some(now) = self.till.store.payment(payment.id).await? {
            payment.version = now.version;
        }
        let outcome = Outcome::Done(finding);
        let began_at = ending.started_at;
        let heard =
            Heard { via: Via::Sent, outcome: &outcome, exchange: None, checked: None, began_at };
        let at = At { now: ending.now, rules: &self.till.rules, worker: None };
        match conclude(&payment, ending.effect, &heard, at) {
            Some((decided, verdict)) => Ok(Settled::new(verdict, decided.changes)),
            None => self.handler.conclude(ending).await,
        }
    }
}

impl Handler for IgnoresVersion {
    fn attempt<'a>(&'a self, job: Job<'a>) -> tashika_engine::BoxFuture<'a, Tried> {
        Box::pin(async move {
            let payload: serde_json::Value =
                serde_json::from_str(&job.effect.payload).unwrap_or_default();
            let id = payload["paymentId"].as_str().and_then(|id| id.parse().ok());
            if let Some(id) = id
                && let Ok(Some(payment)) = self.till.store.payment(id).await
            {
                lock(&self.read).insert(job.effect.id, payment);
            }
            self.handler.attempt(job).await
        })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> tashika_engine::BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.overwrite(ending))
    }
}
