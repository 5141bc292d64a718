//! Performing what payments need: the gateway is spoken to here, and nowhere else.
//!
//! An operation that nobody is in doubt about is sent. One in doubt is asked about first: an
//! authorization that the gateway has not seen is fenced off and never sent again; a capture, void or
//! refund that has not happened is sent again under its own key, while the gateway knows the key.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::{Value, json};
use tashika_domain::effect::{Effect, EffectId, PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::outcome::{Exchange, Outcome, Reason};
use tashika_domain::payment::conclude::{self, Finding, Heard, Via};
use tashika_domain::payment::hear::hear;
use tashika_domain::payment::remote::{Remote, RemoteState, code};
use tashika_domain::payment::still_taken;
use tashika_domain::payment::{
    At, KIND, OperationKind, Payment, PaymentRules, Refund, Status, Subject,
};
use tashika_domain::reservation::ReservationRules;
use tashika_domain::{Changes, Timestamp, Write, ids};
use tashika_providers::gateway::{Charge, Gateway, KEY_LIFETIME, RefundOrder};
use tashika_providers::reply::Reply;
use tashika_store::{CommitError, Store, StoreError};
use uuid::Uuid;

use crate::clock::Clock;
use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::reconcile::Window;

/// Between two tries to read a payment while the database is away.
const READ_RETRY: Duration = Duration::from_millis(250);
/// How often is tried. Longer than this, and the lease may be gone.
const READS_MAX: u32 = 20;

/// Code of an operation whose key the gateway may have forgotten.
pub(crate) const KEY_TOO_OLD: &str = "KEY_TOO_OLD";

/// What speaking to a gateway needs. Shared by the handler and by the commands.
pub struct Till {
    pub store: Store,
    pub clock: Clock,
    pub gateway: Arc<dyn Gateway>,
    pub rules: PaymentRules,
    /// Of what is paid for on a page of the gateway.
    pub reservations: ReservationRules,
}

/// What the gateway has said about an operation.
pub(crate) struct Talk {
    pub via: Via,
    pub outcome: Outcome<Finding>,
    pub exchange: Option<Exchange>,
    /// The question that came before.
    pub checked: Option<Exchange>,
    pub rtt: Duration,
}

impl Talk {
    pub(crate) fn new<T>(via: Via, reply: Reply<T>, finding: impl FnOnce(T) -> Finding) -> Self {
        let Reply { outcome, exchange, rtt } = reply.map(finding);
        Self { via, outcome, exchange: Some(exchange), checked: None, rtt }
    }

    fn nothing() -> Self {
        Self::without(Outcome::Done(Finding::Nothing))
    }

    /// Without a word to the gateway.
    pub(crate) fn without(outcome: Outcome<Finding>) -> Self {
        Self { via: Via::Sent, outcome, exchange: None, checked: None, rtt: Duration::ZERO }
    }

    fn after(self, checked: Exchange) -> Self {
        Self { checked: Some(checked), ..self }
    }
}

pub(crate) fn charge(payment: &Payment, now: Timestamp) -> Charge<'_> {
    let request = &payment.request;
    Charge {
        payment_id: payment.id,
        gateway_id: payment.gateway_transaction_id.as_deref(),
        amount: request.amount,
        currency: &request.currency,
        payment_method: &request.payment_method,
        customer: request.customer.as_deref(),
        description: request.description.as_deref(),
        in_vain: payment.in_vain,
        now,
        traceparent: payment.traceparent.as_deref(),
    }
}

impl Till {
    /// Reads a payment, patiently: nothing may be sent without knowing where it stands.
    async fn read(&self, id: Uuid) -> Result<Option<Payment>, StoreError> {
        let mut reads = 0;
        loop {
            match self.store.payment(id).await {
                Err(error) if reads < READS_MAX => {
                    reads += 1;
                    tracing::warn!(%error, payment_id = %id, "a payment could not be read yet");
                    self.clock.sleep(READ_RETRY).await;
                }
                result => return result,
            }
        }
    }

    /// Carries an operation out, or asks about it.
    async fn attempt(&self, effect: &Effect) -> Talk {
        let Some(id) = payment_id(effect) else {
            return Talk::without(refused(PAYLOAD_UNREADABLE, "paymentId is missing"));
        };
        let payment = match self.read(id).await {
            Ok(Some(payment)) => payment,
            Ok(None) => return Talk::without(refused(PAYLOAD_UNREADABLE, "no such payment")),
            Err(error) => {
                let reason = Reason::new(code::NETWORK_ERROR, error.to_string());
                return Talk::without(Outcome::Busy { reason, retry_in: None });
            }
        };
        let Some(subject) = payment.subject_of(effect.id) else { return Talk::nothing() };
        if subject == Subject::Operation(OperationKind::Checkout) {
            return self.attempt_checkout(&payment, effect).await;
        }
        // What undoes something looks first, always: it acts on what it finds.
        let undo = subject == Subject::Operation(OperationKind::Undo);
        let in_doubt = effect.in_doubt || payment.doubt_of(subject).is_some();
        let in_doubt = in_doubt && !mutant::on(Mutant::ReplayedInsteadOfAsked);
        if undo || in_doubt {
            self.ask_and_act(&payment, subject).await
        } else if self.is_too_old(&payment, subject) {
            // Nothing of it was ever executed, and now nothing may be.
            Talk::without(refused(KEY_TOO_OLD, "could not be sent while its key was good"))
        } else {
            self.send(&payment, subject, effect.id).await
        }
    }

    async fn send(&self, payment: &Payment, subject: Subject, effect: EffectId) -> Talk {
        match subject {
            Subject::Operation(OperationKind::Authorize) => self.authorize(payment, effect).await,
            _ => self.act(payment, subject).await,
        }
    }

    /// Opens the payment at the gateway, writes its id down, and only then lets money move.
    async fn authorize(&self, payment: &Payment, effect: EffectId) -> Talk {
        let now = self.clock.now();
        let prepared = self.gateway.prepare(charge(payment, now)).await;
        let id = match &prepared.outcome {
            Outcome::Done(id) => id.clone(),
            _ => return Talk::new(Via::Sent, prepared, |_| Finding::Nothing),
        };
        let mut payment = payment.clone();
        if let Some(id) = id.filter(|id| payment.gateway_transaction_id.as_ref() != Some(id)) {
            let at = At { now: self.clock.now(), rules: &self.rules, worker: None };
            let exchange = &prepared.exchange;
            let Some(decided) = conclude::prepared(&payment, effect, &id, exchange, at) else {
                return Talk::nothing();
            };
            let written = if mutant::on(Mutant::MoneyBeforeId) {
                Ok(())
            } else {
                self.store.commit(decided.changes).await
            };
            if let Err(error) = written {
                return Talk::without(not_written(&error));
            }
            payment = decided.payment;
        }
        let reply = self.gateway.authorize(charge(&payment, now)).await;
        Talk::new(Via::Sent, reply, Finding::Payment)
    }

    /// Sends an operation that the gateway recognises when it is repeated.
    async fn act(&self, payment: &Payment, subject: Subject) -> Talk {
        let charge = charge(payment, self.clock.now());
        match subject {
            Subject::Operation(OperationKind::Capture) => {
                let amount = payment.operation.as_ref().map_or(0, |operation| operation.amount);
                let reply = self.gateway.capture(charge, amount).await;
                Talk::new(Via::Sent, reply, Finding::Payment)
            }
            Subject::Operation(_) => {
                Talk::new(Via::Sent, self.gateway.void(charge).await, Finding::Payment)
            }
            Subject::Refund(index) => {
                let mut order = refund_order(&payment.refunds[index]);
                if mutant::on(Mutant::RefundKeyPerAttempt) {
                    order.refund_id = ids::derived(charge.now, &[order.refund_id.as_bytes()]);
                }
                Talk::new(Via::Sent, self.gateway.refund(charge, order).await, Finding::Refund)
            }
        }
    }

    /// Arranges for the comparison with the gateway's books, if nobody has.
    pub async fn schedule_reconciliation(&self, interval: Duration) -> Result<(), StoreError> {
        let now = self.clock.now();
        let effect = Window::before(now, interval).effect(now, self.rules.keep);
        match self.store.commit(Changes::from(Write::Enqueue(effect))).await {
            Err(CommitError::Store(error)) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Takes over what the gateway says by itself, and leaves what follows to the workers.
    pub async fn hear(
        &self,
        id: Uuid,
        remote: &Remote,
        source: &str,
    ) -> Result<Option<Payment>, StoreError> {
        loop {
            let Some(payment) = self.store.payment(id).await? else { return Ok(None) };
            let now_is = self.confirmed(&payment, remote).await?;
            let remote = now_is.as_ref().unwrap_or(remote);
            let at = At { now: self.clock.now(), rules: &self.rules, worker: None };
            let Some(decided) = hear(&payment, remote, source, at) else {
                return Ok(Some(payment));
            };
            let followed = self.follow(&payment, decided, at.now).await?;
            match self.store.commit(followed.changes).await {
                Ok(()) => {
                    report(&payment, &followed.payment, &Verdict::Succeeded)();
                    (followed.after)();
                    return Ok(Some(followed.payment));
                }
                Err(CommitError::Store(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// A message that money has moved although the payment has failed counts: what undoes something
    /// looks before it acts. Only if it was undone once, the message may be an old one, and the gateway
    /// is asked first.
    async fn confirmed(
        &self,
        payment: &Payment,
        remote: &Remote,
    ) -> Result<Option<Remote>, StoreError> {
        let moved = matches!(remote.state, RemoteState::Authorized | RemoteState::Captured);
        if payment.status != Status::Failed || payment.operation.is_some() || !moved {
            return Ok(None);
        }
        if self.store.races_of(KIND, &payment.id.to_string()).await?.is_empty() {
            return Ok(None);
        }
        let id = payment.gateway_transaction_id.clone().or_else(|| remote.gateway_id.clone());
        let known = Payment { gateway_transaction_id: id, ..payment.clone() };
        match self.look(&known).await {
            Outcome::Done(remote) => Ok(Some(remote)),
            _ => Ok(None),
        }
    }

    /// Asks where the payment stands, and no more.
    pub(crate) async fn look(&self, payment: &Payment) -> Outcome<Remote> {
        self.gateway.status(charge(payment, self.clock.now())).await.outcome
    }

    /// Asks where the payment stands, and fences off an authorization that has not happened.
    pub(crate) async fn ask(&self, payment: &Payment, subject: Subject) -> Talk {
        self.ask_and_fence(payment, subject, false).await
    }

    /// The same, and fences off what the gateway has begun and not ended, too: a person says that it has
    /// not happened, and then it must not happen later.
    pub(crate) async fn fence_off(&self, payment: &Payment, subject: Subject) -> Talk {
        self.ask_and_fence(payment, subject, true).await
    }

    async fn ask_and_fence(&self, payment: &Payment, subject: Subject, begun: bool) -> Talk {
        if subject == Subject::Operation(OperationKind::Checkout) {
            return self.ask_checkout(payment).await;
        }
        let now = self.clock.now();
        let status = self.gateway.status(charge(payment, now)).await;
        let Outcome::Done(remote) = &status.outcome else {
            return Talk::new(Via::Asked, status, Finding::Payment);
        };
        let must_fence = match remote.state {
            RemoteState::NotFound => true,
            RemoteState::Pending if begun => true,
            // An earlier fence may still arrive and release what is shown here: it is sent again under
            // its own key, and its answer decides.
            RemoteState::Authorized | RemoteState::Pending => payment.is_fenced(subject),
            _ => false,
        };
        if !must_fence || subject != Subject::Operation(OperationKind::Authorize) {
            return Talk::new(Via::Asked, status, Finding::Payment);
        }
        let checked = status.exchange;
        let at = At { now: self.clock.now(), rules: &self.rules, worker: None };
        if let Some(decided) = conclude::fencing(payment, at)
            && let Err(error) = self.store.commit(decided.changes).await
        {
            return Talk { via: Via::Asked, ..Talk::without(not_written(&error)).after(checked) };
        }
        if mutant::on(Mutant::FenceSkipped) {
            let failed = Talk::without(Outcome::Done(Finding::FencedOff));
            return Talk { via: Via::Asked, ..failed.after(checked) };
        }
        let fenced = self.gateway.fence(charge(payment, now)).await;
        Talk::new(Via::Asked, fenced, |remote| match remote.state {
            RemoteState::Voided => Finding::FencedOff,
            _ => Finding::Payment(remote),
        })
        .after(checked)
    }

    async fn ask_and_act(&self, payment: &Payment, subject: Subject) -> Talk {
        let asked = self.ask(payment, subject).await;
        let Outcome::Done(Finding::Payment(remote)) = &asked.outcome else { return asked };
        if !is_undone(payment, subject, remote) {
            return asked;
        }
        if self.is_too_old(payment, subject) {
            let text = "not done yet, and too old to be sent again";
            return Talk { outcome: refused(KEY_TOO_OLD, text), ..asked };
        }
        let checked = asked.exchange.unwrap_or_default();
        match (subject, remote.state) {
            (Subject::Operation(OperationKind::Undo), RemoteState::Captured) => {
                self.give_back(payment, remote).await.after(checked)
            }
            _ => self.act(payment, subject).await.after(checked),
        }
    }

    /// Whether the gateway may have forgotten the key of an operation: a repeat could be a second one.
    pub(crate) fn is_too_old(&self, payment: &Payment, subject: Subject) -> bool {
        let began_at = match subject {
            Subject::Operation(_) => payment.operation.as_ref().map(|o| o.asked_at),
            Subject::Refund(index) => Some(payment.refunds[index].created_at),
        };
        began_at.is_some_and(|at| self.clock.now().since(at) > KEY_LIFETIME)
    }

    /// Refunds what was captured after the payment had been declared failed.
    async fn give_back(&self, payment: &Payment, remote: &Remote) -> Talk {
        let effect = payment.operation.as_ref().map(|o| o.effect.0).unwrap_or_default();
        let order = RefundOrder {
            refund_id: ids::derived(payment.created_at, &[effect.as_bytes(), b"undo"]),
            // Refunds that callers ask for count from one.
            number: 0,
            amount: still_taken(remote),
            reason: None,
        };
        let reply = self.gateway.refund(charge(payment, self.clock.now()), order).await;
        Talk::new(Via::Sent, reply, Finding::Refund)
    }
}

fn refund_order(refund: &Refund) -> RefundOrder<'_> {
    RefundOrder {
        refund_id: refund.id,
        number: refund.number,
        amount: refund.amount,
        reason: refund.reason.as_deref(),
    }
}

/// Whether the gateway has said that an operation in doubt has not happened.
fn is_undone(payment: &Payment, subject: Subject, remote: &Remote) -> bool {
    match subject {
        Subject::Operation(OperationKind::Authorize | OperationKind::Checkout) => false,
        Subject::Operation(OperationKind::Capture | OperationKind::Void) => {
            remote.state == RemoteState::Authorized
        }
        Subject::Operation(OperationKind::Undo) => match remote.state {
            RemoteState::Authorized => true,
            RemoteState::Captured => still_taken(remote) > 0,
            _ => false,
        },
        Subject::Refund(index) => remote.refunds.as_ref().is_some_and(|listed| {
            let id = Some(payment.refunds[index].id);
            listed.iter().all(|refund| refund.refund_id != id)
        }),
    }
}

pub(crate) fn refused(code: &str, text: &str) -> Outcome<Finding> {
    Outcome::Refused(Reason::new(code, text))
}

/// What must be known before could not be written down: nothing was sent.
fn not_written(error: &CommitError) -> Outcome<Finding> {
    let reason = Reason::new(code::NETWORK_ERROR, error.to_string());
    Outcome::Busy { reason, retry_in: None }
}

/// The payment that an effect is about.
pub(crate) fn payment_id(effect: &Effect) -> Option<Uuid> {
    let payload: Value = serde_json::from_str(&effect.payload).ok()?;
    payload.get("paymentId")?.as_str()?.parse().ok()
}

/// Performs the operations of payments.
pub struct PaymentHandler {
    till: Arc<Till>,
    /// In whose hands the next operation is born, where one leads to another.
    worker: String,
}

/// How the gateway was spoken to, until the attempt is concluded.
struct Said {
    via: Via,
    checked: Option<Exchange>,
}

impl PaymentHandler {
    #[must_use]
    pub fn new(till: Arc<Till>, worker: &str) -> Self {
        Self { till, worker: worker.to_owned() }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Some(id) = payment_id(ending.effect) else {
            return Ok(Settled::new(ending.verdict.clone(), Changes::new()));
        };
        let Some(payment) = self.till.store.payment(id).await? else { return Ok(over()) };
        let outcome = typed(ending.outcome);
        let said = ending.noted::<Said>();
        let heard = Heard {
            via: if ending.lapsed { Via::Lapsed } else { said.map_or(Via::Sent, |said| said.via) },
            outcome: &outcome,
            exchange: ending.exchange,
            checked: said.and_then(|said| said.checked.as_ref()),
            began_at: ending.started_at,
        };
        // Whoever takes an effect back goes on to the next one: what follows is claimed by somebody.
        let worker = (!ending.lapsed).then_some(self.worker.as_str());
        let at = At { now: ending.now, rules: &self.till.rules, worker };
        let Some((decided, verdict)) = conclude::conclude(&payment, ending.effect, &heard, at)
        else {
            return Ok(over());
        };
        let next = decided.next.clone();
        let followed = self.till.follow(&payment, decided, ending.now).await?;
        let moved = report(&payment, &followed.payment, &verdict);
        let after: Box<dyn FnOnce() + Send> = Box::new(move || {
            moved();
            (followed.after)();
        });
        let settled = Settled::new(verdict, followed.changes);
        Ok(Settled { next, after: Some(after), ..settled })
    }
}

impl Handler for PaymentHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async move {
            let talk = self.till.attempt(job.effect).await;
            Tried {
                exchange: talk.exchange,
                rtt: talk.rtt,
                note: Some(Arc::new(Said { via: talk.via, checked: talk.checked })),
                ..Tried::new(talk.outcome.map(|finding| json!(finding)))
            }
        })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }

    fn adapter(&self) -> Option<&str> {
        Some(self.till.gateway.name())
    }
}

fn typed(outcome: &Outcome<Value>) -> Outcome<Finding> {
    match outcome.clone() {
        Outcome::Done(value) => match serde_json::from_value(value) {
            Ok(finding) => Outcome::Done(finding),
            Err(error) => Outcome::Lost(Reason::new(code::UNKNOWN, error.to_string())),
        },
        Outcome::Refused(reason) => Outcome::Refused(reason),
        Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
        Outcome::Lost(reason) => Outcome::Lost(reason),
    }
}

/// What logs and metrics are told once a change is written.
pub(crate) fn report(
    before: &Payment,
    after: &Payment,
    verdict: &Verdict,
) -> Box<dyn FnOnce() + Send> {
    let gave_up = after.verification_failed() && !before.verification_failed();
    let doubt_began = after.pending_verification() && !before.pending_verification();
    let moved = (before.status != after.status).then_some((before.status, after.status));
    let (id, currency) = (after.id, after.request.currency.clone());
    let amount = u64::try_from(after.request.amount).unwrap_or(0);
    let reason = verdict.reason().map(|reason| reason.code.clone());
    Box::new(move || {
        if gave_up {
            counter!("payment_verification_failed_total").increment(1);
            tracing::error!(payment_id = %id, reason_code = reason, "a payment's outcome could not be found out: a person has to decide");
        } else if doubt_began {
            tracing::warn!(payment_id = %id, reason_code = reason, "a payment's outcome is not known: the gateway will be asked");
        }
        if let Some((from, to)) = moved {
            counter!("payment_amount_total", "currency" => currency, "status" => to.as_str())
                .increment(amount);
            tracing::info!(payment_id = %id, from = from.as_str(), to = to.as_str(), "a payment has moved");
        }
    })
}
