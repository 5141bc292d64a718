//! Daily reconciliation: the gateway's books and ours, compared both ways.
//!
//! An effect per window, which enqueues the next one when it ends. What the gateway knows better is
//! taken over by the same function as a webhook; whatever is left is a difference, and a case.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::audit::{Actor, NewAudit, line_id};
use tashika_domain::case::NewCase;
use tashika_domain::effect::{EffectId, NewEffect, PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::payment::remote::{Remote, RemoteState};
use tashika_domain::payment::{CASE_DIFFERENCE, KIND, Payment, Status};
use tashika_domain::{Changes, Lane, Timestamp, Write, ids};
use tashika_providers::gateway::Listed;
use tashika_store::{PaymentFilter, StoreError};
use uuid::Uuid;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::payment::Till;

/// The effect kind of reconciliation.
pub const RECONCILE_KIND: &str = "payment_reconciliation";
/// Payments per page.
const PAGE: i64 = 200;

/// One window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Window {
    /// The last whole interval before `now`.
    #[must_use]
    pub fn before(now: Timestamp, interval: Duration) -> Self {
        let length = i64::try_from(interval.as_micros()).unwrap_or(i64::MAX).max(1);
        let until = now.as_micros().div_euclid(length) * length;
        let (from, until) = (Timestamp::from_micros(until - length), Timestamp::from_micros(until));
        Self { from, until }
    }

    /// The window after this one. After a long pause it reaches up to now: nothing is left out.
    fn next(self, now: Timestamp, interval: Duration) -> Self {
        let until = self.until.plus(interval).max(Self::before(now, interval).until);
        Self { from: self.until, until }
    }

    /// The effect that looks at this window once it is over and the gateway has had time to list it.
    #[must_use]
    pub fn effect(self, now: Timestamp, keep: Duration) -> NewEffect {
        let interval = self.until.since(self.from);
        let settle = (interval / 8).min(Duration::from_secs(3600));
        let key = format!("{}", self.from);
        NewEffect {
            id: EffectId(ids::derived(now, &[RECONCILE_KIND.as_bytes(), key.as_bytes()])),
            lane: Lane::TIMERS,
            kind: RECONCILE_KIND.into(),
            key: Some(key),
            digest: None,
            payload: json!({"from": self.from, "until": self.until}).to_string(),
            run_at: self.until.plus(settle),
            created_at: now,
            expires_at: now.plus(keep),
            traceparent: None,
            held_by: None,
        }
    }

    fn parse(payload: &str) -> Option<Self> {
        let payload: Value = serde_json::from_str(payload).ok()?;
        let moment = |name: &str| payload.get(name)?.as_str()?.parse().ok();
        Some(Self { from: moment("from")?, until: moment("until")? })
    }
}

/// A difference that a person has to look at.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    subject: String,
    pub summary: String,
    ours: Option<String>,
    gateways: Option<String>,
}

/// Compares one window and arranges for the next.
pub struct ReconcileHandler {
    till: Arc<Till>,
    interval: Duration,
    keep: Duration,
}

/// Why a comparison could not be finished.
enum Interrupted {
    Gateway(Outcome<Value>),
    Store(StoreError),
}

impl From<StoreError> for Interrupted {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl ReconcileHandler {
    #[must_use]
    pub fn new(till: Arc<Till>, interval: Duration, keep: Duration) -> Self {
        Self { till, interval, keep }
    }

    async fn perform(&self, job: Job<'_>) -> Tried {
        let Some(window) = Window::parse(&job.effect.payload) else {
            return Tried::refused(PAYLOAD_UNREADABLE, "no window");
        };
        match self.compare(window).await {
            Ok(differences) => Tried::done(json!(differences)),
            Err(Interrupted::Gateway(outcome)) => Tried::new(outcome),
            Err(Interrupted::Store(error)) => {
                let reason = Reason::new("STORE_UNAVAILABLE", error.to_string());
                Tried::new(Outcome::Busy { reason, retry_in: None })
            }
        }
    }

    async fn compare(&self, window: Window) -> Result<Vec<Difference>, Interrupted> {
        let mut differences = Vec::new();
        let mut seen = BTreeSet::new();
        let mut after = None;
        loop {
            let gateway = &self.till.gateway;
            let reply = gateway.list(window.from, window.until, after.as_deref()).await;
            let page = match reply.outcome {
                Outcome::Done(page) => page,
                Outcome::Refused(reason) => {
                    return Err(Interrupted::Gateway(Outcome::Refused(reason)));
                }
                Outcome::Busy { reason, retry_in } => {
                    return Err(Interrupted::Gateway(Outcome::Busy { reason, retry_in }));
                }
                Outcome::Lost(reason) => return Err(Interrupted::Gateway(Outcome::Lost(reason))),
            };
            for listed in page.items {
                seen.extend(listed.payment_id);
                differences.extend(self.theirs(&listed).await?);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.ours(window, &seen, &mut differences).await?;
        Ok(differences)
    }

    /// A payment that the gateway lists.
    async fn theirs(&self, listed: &Listed) -> Result<Option<Difference>, Interrupted> {
        let known = match listed.payment_id {
            Some(id) => self.hear(id, &listed.remote).await?,
            None => None,
        };
        let moved = matches!(listed.remote.state, RemoteState::Authorized | RemoteState::Captured);
        match known {
            Some(payment) => Ok(difference(&payment, &listed.remote)),
            None if moved => Ok(Some(Difference {
                subject: listed.remote.gateway_id.clone().unwrap_or_default(),
                summary: format!(
                    "The gateway has a payment of {} {} that Tashika does not know.",
                    listed.amount, listed.currency
                ),
                ours: None,
                gateways: Some(listed.remote.state.as_str().to_owned()),
            })),
            None => Ok(None),
        }
    }

    /// Payments of ours that the gateway does not list: it is asked about each.
    async fn ours(
        &self,
        window: Window,
        seen: &BTreeSet<Uuid>,
        differences: &mut Vec<Difference>,
    ) -> Result<(), Interrupted> {
        let mut filter = PaymentFilter {
            created: Some((window.from, window.until)),
            ..PaymentFilter::default()
        };
        let gateway = self.till.gateway.name();
        loop {
            let store = &self.till.store;
            let page = store.payments(&filter, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            filter.before = Some(last.id);
            for payment in page {
                let moved = matches!(payment.status, Status::Authorized | Status::Captured);
                if !moved || payment.gateway != gateway || seen.contains(&payment.id) {
                    continue;
                }
                let remote = match self.till.look(&payment).await {
                    Outcome::Done(remote) => remote,
                    Outcome::Refused(_) => Remote::not_found(),
                    Outcome::Busy { reason, retry_in } => {
                        return Err(Interrupted::Gateway(Outcome::Busy { reason, retry_in }));
                    }
                    Outcome::Lost(reason) => {
                        return Err(Interrupted::Gateway(Outcome::Lost(reason)));
                    }
                };
                if let Some(payment) = self.hear(payment.id, &remote).await? {
                    differences.extend(difference(&payment, &remote));
                }
            }
        }
    }

    async fn hear(&self, id: Uuid, remote: &Remote) -> Result<Option<Payment>, Interrupted> {
        Ok(self.till.hear(id, remote, "reconciliation").await?)
    }
}

/// What still differs after the gateway's word has been taken over. What is under way will be asked
/// about anyway.
pub(crate) fn difference(payment: &Payment, remote: &Remote) -> Option<Difference> {
    if !payment.is_at_rest() {
        return None;
    }
    let refunded: Option<i64> = remote.refunds.as_ref().map(|refunds| {
        use tashika_domain::payment::remote::RemoteRefundState::Failed;
        refunds.iter().filter(|r| r.state != Failed).map(|r| r.amount).sum()
    });
    let same = match (payment.status, remote.state) {
        (Status::Authorized, RemoteState::Authorized)
        | (Status::Pending, _)
        | (
            Status::Failed,
            RemoteState::NotFound
            | RemoteState::Declined
            | RemoteState::Voided
            | RemoteState::Pending,
        ) => true,
        (Status::Captured | Status::Refunded, RemoteState::Captured) => {
            payment.captured_amount == remote.captured
                && refunded.is_none_or(|refunded| refunded == payment.refunded_amount)
        }
        (Status::Refunded, RemoteState::Voided) => payment.captured_amount == 0,
        // Taken late and given back: see the race. A list that has no refunds says nothing about that;
        // whoever heard of it has asked.
        (Status::Failed, RemoteState::Captured) => {
            refunded.is_none() || tashika_domain::payment::still_taken(remote) == 0
        }
        _ => false,
    };
    let told = |state: &str, captured: i64, refunded: Option<i64>| {
        format!("{state}, captured {captured}, refunded {}", refunded.unwrap_or(0))
    };
    (!same).then(|| Difference {
        subject: payment.id.to_string(),
        summary: format!(
            "Payment {} is {} here and {} at {}.",
            payment.id,
            payment.status.as_str(),
            remote.state.as_str(),
            payment.gateway
        ),
        ours: Some(told(
            payment.status.as_str(),
            payment.captured_amount,
            Some(payment.refunded_amount),
        )),
        gateways: Some(told(remote.state.as_str(), remote.captured, refunded)),
    })
}

impl Handler for ReconcileHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(async move {
            let mut changes = cases(ending);
            // Whatever became of this window: the next one comes.
            if !matches!(ending.verdict, Verdict::Retry { .. })
                && let Some(window) = Window::parse(&ending.effect.payload)
            {
                let next = window.next(ending.now, self.interval).effect(ending.now, self.keep);
                let key = next.key.as_deref().unwrap_or_default();
                // A process that started meanwhile has arranged for it.
                if self.till.store.effect_by_key(RECONCILE_KIND, key).await?.is_none() {
                    changes.push(Write::Enqueue(next));
                }
            }
            Ok(Settled::new(ending.verdict.clone(), changes))
        })
    }
}

fn cases(ending: &Ending<'_>) -> Changes {
    const ACTION: &str = "payment.difference_found";
    let differences: Vec<Difference> = ending
        .result()
        .and_then(|value| serde_json::from_value(value.clone()).ok())
        .unwrap_or_default();
    let mut changes = Changes::new();
    for difference in &differences {
        let id = ids::derived(ending.now, &[ending.id.as_bytes(), difference.subject.as_bytes()]);
        changes.push(Write::OpenCase(NewCase {
            id,
            kind: CASE_DIFFERENCE,
            subject_type: KIND,
            subject_id: difference.subject.clone(),
            summary: difference.summary.clone(),
            actions: vec!["settled"],
            details: json!(difference).to_string(),
            now: ending.now,
        }));
        changes.push(Write::Audit(Box::new(NewAudit {
            id: line_id(ending.now, &difference.subject, ACTION, 0),
            actor: Actor::SYSTEM,
            action: ACTION.to_owned(),
            target_type: KIND,
            target_id: difference.subject.clone(),
            office_id: None,
            details: json!({"case_id": id}).to_string(),
            now: ending.now,
        })));
    }
    changes
}
