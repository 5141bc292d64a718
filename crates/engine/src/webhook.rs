//! Processing webhooks: what an event means is decided with rows as they are, and written together
//! with the event's own end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::billing::{self, Told};
use tashika_domain::effect::Verdict;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::payment::hear::{hear_event, hear_session};
use tashika_domain::payment::remote::{Remote, RemoteState};
use tashika_domain::payment::session::{RemoteSession, SessionState};
use tashika_domain::payment::{self, At, OperationKind, Payment};
use tashika_domain::webhook::{self, End, Route, Status, WebhookEvent};
use tashika_domain::{Changes, LanePolicy};
use tashika_store::{Store, StoreError};
use uuid::Uuid;

use crate::confirm::{Confirmed, Confirmers};
use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::payment::Till;
use crate::render::{Studio, report};

/// Where events of the sandbox gateway come from.
pub const SANDBOX: &str = "sandbox";

/// Processes events.
pub struct WebhookHandler {
    store: Store,
    till: Arc<Till>,
    routes: Vec<Route>,
    /// Whom to ask about events that nobody signed.
    confirmers: Confirmers,
    /// Who hears of renders.
    studio: Option<Arc<Studio>>,
    /// In whose hands an operation is born that an event leads to.
    worker: String,
    keep: Duration,
    /// How often a worker is asked again.
    retries: u32,
}

/// Who listens to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Billing,
    Payment(Uuid),
    Nobody,
}

fn listener(event: &WebhookEvent) -> Listener {
    // A name proves nothing: an event that nobody signed is not Stripe's, whatever its source is called.
    // The sandbox's events are our own, and mean that the sandbox is asked.
    if !matches!(event.source.as_str(), "stripe" | SANDBOX) || event.confirm_by.is_some() {
        return Listener::Nobody;
    }
    if billing::TYPES.contains(&event.event_type.as_str()) {
        return Listener::Billing;
    }
    // Whatever it says about a payment of ours: the gateway is asked where the payment stands now, so
    // an old message cannot undo anything.
    let said = event.said();
    let about = said.pointer("/data/object/metadata/payment_id").and_then(Value::as_str);
    match about.and_then(|id| id.parse().ok()) {
        Some(id) => Listener::Payment(id),
        None => Listener::Nobody,
    }
}

const CONTRADICTION: &str = "the event tells of money, and the gateway does not know the payment";

/// Whether the gateway denies what it has told of. A status may lag behind an event; believed, it
/// would let money stay that moved after the payment had failed, and nobody would ask again.
fn contradicts(event: &WebhookEvent, remote: &Remote) -> bool {
    let said = event.said();
    let status = said.pointer("/data/object/status").and_then(Value::as_str);
    let moved = matches!(status, Some("requires_capture" | "succeeded"));
    moved && remote.state == RemoteState::NotFound
}

/// The gateway has told of money that came over a page, and shows the page as if nobody had paid.
fn denies_payment(event: &WebhookEvent, session: &RemoteSession) -> bool {
    let said = event.said();
    let status = said.pointer("/data/object/payment_status").and_then(Value::as_str);
    status == Some("paid") && !session.paid && session.state != SessionState::Expired
}

/// The page that is to be asked about, if the payment is made on one and that is what its end depends
/// on: while the customer may still pay there, and after we have closed it without money.
fn page_of(payment: &Payment, event: &WebhookEvent) -> Option<String> {
    let page = payment.checkout.as_ref()?;
    let waits = payment.operation.as_ref().is_some_and(|o| o.kind == OperationKind::Checkout);
    let over = payment.status == payment::Status::Failed && payment.operation.is_none();
    if !waits && !over {
        return None;
    }
    let known = page.session.as_ref().map(|session| session.id.clone());
    // The event may be faster than the answer to our own request: then it tells the name.
    known.or_else(|| {
        let said = event.said();
        let object = said.pointer("/data/object")?;
        let session = object.get("object")?.as_str()? == "checkout.session";
        object.get("id")?.as_str().filter(|_| session).map(ToOwned::to_owned)
    })
}

impl WebhookHandler {
    #[must_use]
    pub fn new(till: Arc<Till>, routes: Vec<Route>, worker: &str, forwards: &LanePolicy) -> Self {
        Self {
            store: till.store.clone(),
            till,
            routes,
            confirmers: Confirmers::default(),
            studio: None,
            worker: worker.to_owned(),
            keep: forwards.keep,
            retries: forwards.max_attempts.saturating_sub(1),
        }
    }

    /// With somebody to ask about events that nobody signed. Without, such events fail.
    #[must_use]
    pub fn confirming(mut self, confirmers: Confirmers) -> Self {
        self.confirmers = confirmers;
        self
    }

    /// With somebody who hears of renders.
    #[must_use]
    pub fn rendering(mut self, studio: Arc<Studio>) -> Self {
        self.studio = Some(studio);
        self
    }

    /// The only thing that cannot wait for the decision is a question to somebody else.
    async fn perform(&self, job: Job<'_>) -> Tried {
        let busy = |reason| Tried::new(Outcome::Busy { reason, retry_in: None });
        let unavailable = |error: &StoreError| Reason::new("STORE_UNAVAILABLE", error.to_string());
        let event = match self.store.webhook_event(job.effect.id.0).await {
            Ok(Some(event)) => event,
            Ok(None) => return Tried::refused("NO_EVENT", "the event is gone"),
            Err(error) => return busy(unavailable(&error)),
        };
        if let Some(by) = &event.confirm_by {
            return self.confirmers.ask(by, &event, job.now).await;
        }
        let Listener::Payment(id) = listener(&event) else { return Tried::done(Value::Null) };
        let payment = match self.store.payment(id).await {
            Ok(Some(payment)) => payment,
            Ok(None) => return Tried::done(Value::Null),
            Err(error) => return busy(unavailable(&error)),
        };
        let asked = match page_of(&payment, &event) {
            Some(session_id) => self.ask_about_page(&payment, &event, &session_id).await,
            None => self.till.look(&payment).await.map(|remote| {
                let denied = contradicts(&event, &remote);
                (json!(remote), denied)
            }),
        };
        match asked {
            Outcome::Done((_, true)) => {
                busy(Reason::new("GATEWAY_CONTRADICTS_ITSELF", CONTRADICTION))
            }
            Outcome::Done((answer, false)) => Tried::done(answer),
            Outcome::Refused(reason) => Tried::new(Outcome::Refused(reason)),
            Outcome::Busy { reason, retry_in } => Tried::new(Outcome::Busy { reason, retry_in }),
            // A read that was lost leaves no doubt.
            Outcome::Lost(reason) => busy(reason),
        }
    }

    /// Where the page stands now, and whether that denies what the event tells.
    async fn ask_about_page(
        &self,
        payment: &Payment,
        event: &WebhookEvent,
        session_id: &str,
    ) -> Outcome<(Value, bool)> {
        let reply = self.till.look_at_page(payment, session_id).await;
        reply.outcome.map(|session| {
            let denied = denies_payment(event, &session);
            (json!({ "session": session }), denied)
        })
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(ending.verdict.clone(), Changes::new());
        let Some(mut event) = self.store.webhook_event(ending.effect.id.0).await? else {
            return Ok(over());
        };
        // A failed one is here because somebody has requeued its effect.
        if matches!(event.status, Status::Success | Status::Skipped) {
            return Ok(Settled::new(Verdict::Succeeded, Changes::new()));
        }
        match ending.verdict {
            Verdict::Retry { .. } => Ok(over()),
            Verdict::Aborted { reason, .. } => Ok(failed(&event, reason, ending)),
            Verdict::Succeeded => match take_over(&mut event, ending) {
                Some(settled) => Ok(settled),
                None => self.apply(&event, ending).await,
            },
        }
    }

    async fn apply(
        &self,
        event: &WebhookEvent,
        ending: &Ending<'_>,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::new(Verdict::Succeeded, Changes::new());
        let mut end = None;
        match listener(event) {
            Listener::Billing => {
                let said = event.said();
                let customer = billing::customer_of(&said).unwrap_or_default();
                let Some(known) = self.store.billing_of_customer(customer).await? else {
                    let text = format!("no billing is known for customer {customer:?}");
                    return Ok(failed(event, &Reason::new("UNKNOWN_CUSTOMER", text), ending));
                };
                let told = Told {
                    event_id: &event.event_id,
                    event_type: &event.event_type,
                    source: &event.source,
                    occurred_at: event.occurred_at.unwrap_or(event.created_at),
                    payload: &said,
                };
                match billing::apply(&known, &told, ending.now) {
                    Ok((_, changes)) => settled.changes.extend(changes),
                    Err(reason) => return Ok(failed(event, &reason, ending)),
                }
                let office_id = Some(known.office_id);
                end = Some(End::Success { billing_id: Some(known.id), office_id });
            }
            Listener::Payment(id) => {
                if let Some(payment) = self.store.payment(id).await?
                    && let Some(heard) = Answer::read(ending)
                {
                    let rules = &self.till.rules;
                    let at = At { now: ending.now, rules, worker: Some(&self.worker) };
                    let named = webhook::named(event);
                    let decided = match &heard {
                        Answer::Payment(remote) => hear_event(&payment, remote, &named, at),
                        Answer::Page(session) => hear_session(&payment, session, &named, at),
                    };
                    if let Some(decided) = decided {
                        settled.next = decided.next.clone();
                        let followed = self.till.follow(&payment, decided, ending.now).await?;
                        settled.changes.extend(followed.changes);
                        settled.after = Some(followed.after);
                    }
                    end = Some(End::Success { billing_id: None, office_id: None });
                }
            }
            Listener::Nobody => {}
        }
        if let Some(studio) = &self.studio
            && let Some(changes) = studio.hear(event, ending.now).await?
        {
            let heard = changes.clone();
            settled.changes.extend(changes);
            settled.after = Some(Box::new(move || report(&heard)));
            end.get_or_insert(End::Success { billing_id: None, office_id: None });
        }
        for route in self.routes.iter().filter(|r| r.matches(&event.source, &event.event_type)) {
            let key = webhook::forward_key(event, &route.to);
            // Processed before and opened again: that worker has it, or will have it.
            if self.store.message_of_key(&key).await?.is_none() {
                let expires_at = ending.now.plus(self.keep);
                let forward =
                    webhook::forward(event, &route.to, self.retries, ending.now, expires_at);
                settled.changes.extend(forward);
            }
            end.get_or_insert(End::Success { billing_id: None, office_id: None });
        }
        let end = end.unwrap_or_else(|| End::Skipped("nobody listens to this type".to_owned()));
        settled.changes.extend(webhook::end(event, &end, ending.now));
        Ok(settled)
    }
}

/// What the gateway was asked about, and what it said.
enum Answer {
    Payment(Remote),
    Page(RemoteSession),
}

impl Answer {
    fn read(ending: &Ending<'_>) -> Option<Self> {
        let result = ending.result()?;
        match result.get("session") {
            Some(session) => serde_json::from_value(session.clone()).ok().map(Self::Page),
            None => serde_json::from_value(result.clone()).ok().map(Self::Payment),
        }
    }
}

/// Takes over what was answered about an event that nobody signed. Whatever is returned is its end.
fn take_over(event: &mut WebhookEvent, ending: &Ending<'_>) -> Option<Settled> {
    event.confirm_by.as_ref()?;
    match Confirmed::from_result(ending.result()) {
        Some(Confirmed::Yes(answer)) => {
            event.confirmed = Some(answer);
            None
        }
        Some(Confirmed::PassOver(why)) => {
            let changes = webhook::end(event, &End::Skipped(why), ending.now);
            Some(Settled::new(Verdict::Succeeded, changes))
        }
        None => {
            let reason = Reason::new("NOT_CONFIRMED", "nobody was asked whether this is true");
            Some(failed(event, &reason, ending))
        }
    }
}

/// The event has failed, and with it the effect: a dead letter.
fn failed(event: &WebhookEvent, reason: &Reason, ending: &Ending<'_>) -> Settled {
    let text = format!("{}: {}", reason.code, reason.message);
    let changes = webhook::end(event, &End::Failed(text), ending.now);
    let verdict = Verdict::Aborted { reason: reason.clone(), in_doubt: false };
    let (event_id, error_type) = (event.event_id.clone(), reason.code.clone());
    let trusted = event.trusted();
    let participant = trusted.as_deref().and_then(webhook::participant_of);
    let participant_id = participant.map(ToOwned::to_owned);
    let mut settled = Settled::new(verdict, changes);
    settled.after = Some(Box::new(move || {
        tracing::error!(event_id, participant_id, error_type, "a webhook could not be processed");
    }));
    settled
}

impl Handler for WebhookHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }
}
