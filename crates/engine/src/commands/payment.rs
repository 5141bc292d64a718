//! Payments, as callers ask for them.
//!
//! A command writes down what is wanted, with the effect that does it in the hands of this process;
//! performs the effect at once; and answers with the payment as it stands then. If the caller or the
//! process goes away in between, the effect goes on or lapses: nothing depends on the answer.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use serde_json::Value;
use tashika_domain::Changes;
use tashika_domain::case::{Case, CaseStatus, Choice, Decision};
use tashika_domain::changes::LedgerTouch;
use tashika_domain::check::Violation;
use tashika_domain::effect::{Effect, Verdict};
use tashika_domain::ledger::{self, LedgerKey, LedgerStatus, Recall};
use tashika_domain::payment::ask::{self, Asked, Origin, Refusal, Wish};
use tashika_domain::payment::conclude::{Finding, Heard, asked_by_hand};
use tashika_domain::payment::remote::RemoteState;
use tashika_domain::payment::resolve::{
    Fenced, Resolution, ResolveRefusal, resolve, resolve_fenced, to_fence,
};
use tashika_domain::payment::{
    At, CASE_UNKNOWN, Decided, KIND, Payment, RefundStatus, RequestKey, SCOPE, Status, Subject,
    choices, request,
};
use tashika_domain::{Lane, Outcome, Timestamp, Write};
use tashika_store::{CommitError, PaymentFilter, RaceRow, Store, StoreError, TimelineLine};
use uuid::Uuid;

use crate::engine::Engine;
use crate::payment::{Talk, Till, report};
use crate::reconcile::difference;

/// What callers may do with payments.
pub struct Payments {
    engine: Arc<Engine>,
    till: Arc<Till>,
    /// How long an answer may take. Then the caller is told what is known.
    answer_within: Duration,
}

pub use super::Caller;

/// What a caller is answered: the payment, and how that is told over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub payment: Payment,
    pub http_status: u16,
    pub replayed: bool,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PaymentError {
    #[error("the Idempotency-Key header is required")]
    KeyMissing,
    #[error("the Idempotency-Key header cannot be used")]
    KeyInvalid,
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error("the key belongs to another request")]
    Conflict,
    #[error("a request with this key is being processed")]
    InProgress,
    #[error("no such payment")]
    NotFound,
    #[error("the payment belongs to another user")]
    Forbidden,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Unresolvable(#[from] ResolveRefusal),
    #[error("the gateway says that money has moved: its answer was taken over")]
    Contradicted,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A payment with everything that is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentView {
    pub payment: Payment,
    pub case: Option<Case>,
    pub races: Vec<RaceRow>,
}

impl Payments {
    #[must_use]
    pub fn new(engine: Arc<Engine>, till: Arc<Till>, answer_within: Duration) -> Self {
        Self { engine, till, answer_within }
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.till.store
    }

    fn at(&self) -> At<'_> {
        // A lane that is switched off sends nothing: what is asked for waits until it is on again.
        let sends = self.engine.lanes.contains_key(&Lane::PAYMENTS);
        At {
            now: self.engine.clock.now(),
            rules: &self.till.rules,
            worker: sends.then(|| self.engine.worker()),
        }
    }

    /// Takes a payment, tries to authorize it, and says how far it got.
    pub async fn create(&self, caller: Caller<'_>, body: &Value) -> Result<Answer, PaymentError> {
        let started = self.engine.clock.now();
        let answer = self.try_create(&caller, body).await;
        if let Ok(Answer { payment, replayed: false, .. }) = &answer {
            let status = payment.status.as_str();
            let currency = payment.request.currency.clone();
            counter!("payment_create_total", "status" => status, "currency" => currency)
                .increment(1);
            let took = self.engine.clock.now().since(started);
            histogram!("payment_create_duration_seconds", "status" => status)
                .record(took.as_secs_f64());
        }
        answer
    }

    async fn try_create(&self, caller: &Caller<'_>, body: &Value) -> Result<Answer, PaymentError> {
        let key = checked_key(caller.key)?;
        let request = request::parse(body).map_err(PaymentError::Invalid)?;
        if caller.user.is_some_and(|user| user != request.user_id) {
            return Err(PaymentError::Forbidden);
        }
        let digest = request::request_digest("", body);
        let ledger_key = LedgerKey::new(SCOPE, key);
        if let Some(answer) = self.recall(&ledger_key, &digest).await? {
            return Ok(answer);
        }
        let origin = Origin {
            id: self.engine.ids.uuid(),
            key: RequestKey { key: key.to_owned(), digest: digest.clone() },
            gateway: self.till.gateway.name().to_owned(),
            traceparent: caller.traceparent.clone(),
        };
        let decided = ask::create(request, origin, self.at());
        match self.engine.store.commit(decided.changes).await {
            Ok(()) => {}
            // Somebody was faster with the same key: theirs is the payment.
            Err(CommitError::Store(error)) => return Err(error.into()),
            Err(_) => {
                let known = self.recall(&ledger_key, &digest).await?;
                return known.ok_or(PaymentError::InProgress);
            }
        }
        let payment = self.perform(decided.next, decided.payment).await?;
        let http_status = match (payment.status, &payment.operation) {
            (Status::Failed, _) => ask::http_status(failure_code(&payment)),
            (_, Some(_)) => 202,
            (_, None) => 201,
        };
        Ok(Answer { payment, http_status, replayed: false })
    }

    /// Captures, voids or refunds.
    pub async fn ask(
        &self,
        caller: Caller<'_>,
        id: Uuid,
        wish: Wish,
        body: &Value,
    ) -> Result<Answer, PaymentError> {
        let key = checked_key(caller.key)?;
        let digest = request::request_digest(&id.to_string(), body);
        let ledger_key = LedgerKey::new(wish.scope(), key);
        self.owned(id, caller.user).await?;
        if let Some(answer) = self.recall(&ledger_key, &digest).await? {
            return Ok(answer);
        }
        loop {
            let payment = self.owned(id, caller.user).await?;
            let request_key = RequestKey { key: key.to_owned(), digest: digest.clone() };
            let (changes, begun) =
                match ask::ask(&payment, wish.clone(), Some(request_key), self.at()) {
                    Ok(Asked::Already(changes)) => (changes, None),
                    Ok(Asked::Begun(decided)) => {
                        let Decided { payment, changes, next, .. } = *decided;
                        (changes, Some((payment, next)))
                    }
                    // What is in the way may be the first request under this very key.
                    Err(refusal) => {
                        let known = self.recall(&ledger_key, &digest).await?;
                        return known.ok_or(PaymentError::Refused(refusal));
                    }
                };
            match self.engine.store.commit(changes).await {
                Ok(()) => {}
                Err(CommitError::Outdated { .. }) => continue,
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => {
                    let known = self.recall(&ledger_key, &digest).await?;
                    return known.ok_or(PaymentError::InProgress);
                }
            }
            let Some((asked, next)) = begun else {
                return Ok(Answer { payment, http_status: 200, replayed: false });
            };
            let effect = next.as_ref().map(|effect| effect.id);
            let refund = asked.refunds.iter().position(|r| Some(r.effect) == effect);
            let payment = self.perform(next, asked).await?;
            let under_way = effect.is_some_and(|effect| payment.subject_of(effect).is_some());
            let failure = match refund.and_then(|index| payment.refunds.get(index)) {
                Some(refund) if refund.status == RefundStatus::Failed => refund.failure.as_ref(),
                Some(_) => None,
                None => payment.failure.as_ref(),
            };
            let http_status = match (under_way, failure) {
                (true, _) => 202,
                (false, Some(reason)) => ask::http_status(&reason.code),
                (false, None) => 200,
            };
            return Ok(Answer { payment, http_status, replayed: false });
        }
    }

    /// Performs what was begun, and returns the payment as it is when that has ended or when the
    /// caller has waited long enough.
    async fn perform(
        &self,
        effect: Option<Effect>,
        begun: Payment,
    ) -> Result<Payment, PaymentError> {
        if let Some(effect) = effect {
            let work = self.engine.perform(effect);
            // What takes longer goes on without us.
            drop(tokio::time::timeout(self.answer_within, work).await);
        }
        // It is written down by now: a database that is away must not make it look undone.
        Ok(self.engine.store.payment(begun.id).await.ok().flatten().unwrap_or(begun))
    }

    /// What the ledger has to say about a key; `None` if the request is new.
    async fn recall(&self, key: &LedgerKey, digest: &str) -> Result<Option<Answer>, PaymentError> {
        let now = self.engine.clock.now();
        let entry = self.engine.store.ledger_entry(key).await?;
        let entry = match ledger::recall(entry.as_ref(), digest, now) {
            Recall::Fresh => return Ok(None),
            Recall::Conflict => return Err(PaymentError::Conflict),
            Recall::Replay(entry) => entry,
        };
        let stored: Value = serde_json::from_str(&entry.response).unwrap_or_default();
        let id = stored["paymentId"].as_str().and_then(|id| id.parse().ok());
        let payment = match id {
            Some(id) => self.engine.store.payment(id).await?.ok_or(PaymentError::NotFound)?,
            None => return Err(PaymentError::NotFound),
        };
        if entry.status == LedgerStatus::Accepted && is_running(&payment, &key.key) {
            return Err(PaymentError::InProgress);
        }
        counter!("payment_idempotency_hit_total").increment(1);
        let touch = Write::LedgerSeen(LedgerTouch { key: key.clone(), now });
        if let Err(CommitError::Store(error)) = self.engine.store.commit(Changes::from(touch)).await
        {
            return Err(error.into());
        }
        let http_status = match entry.status {
            LedgerStatus::Failed => entry.http_status,
            _ => 200,
        };
        Ok(Some(Answer { payment, http_status, replayed: true }))
    }

    /// A payment that the user may see.
    async fn owned(&self, id: Uuid, user: Option<&str>) -> Result<Payment, PaymentError> {
        let payment = self.engine.store.payment(id).await?.ok_or(PaymentError::NotFound)?;
        match user {
            Some(user) if user != payment.request.user_id => Err(PaymentError::Forbidden),
            _ => Ok(payment),
        }
    }

    /// A payment as it stands.
    pub async fn find(&self, id: Uuid, user: Option<&str>) -> Result<PaymentView, PaymentError> {
        let payment = self.owned(id, user).await?;
        let subject = id.to_string();
        let cases = self.engine.store.cases_of(KIND, &subject).await?;
        let case = cases.into_iter().find(|case| case.status == CaseStatus::Open);
        let races = match payment.status {
            Status::Failed => self.engine.store.races_of(KIND, &subject).await?,
            _ => Vec::new(),
        };
        Ok(PaymentView { payment, case, races })
    }

    /// A page of payments, newest first.
    pub async fn list(
        &self,
        filter: &PaymentFilter,
        limit: i64,
    ) -> Result<Vec<Payment>, PaymentError> {
        Ok(self.engine.store.payments(filter, limit).await?)
    }

    /// Everything that happened to a payment, in order.
    pub async fn timeline(
        &self,
        id: Uuid,
        user: Option<&str>,
    ) -> Result<Vec<TimelineLine>, PaymentError> {
        self.owned(id, user).await?;
        Ok(self.engine.store.payment_timeline(id).await?)
    }

    /// Asks the gateway now about everything that is in doubt.
    pub async fn verify(&self, id: Uuid, user: Option<&str>) -> Result<Payment, PaymentError> {
        let mut payment = self.owned(id, user).await?;
        let subjects: Vec<Subject> = payment.doubts().map(|(subject, _)| subject).collect();
        for subject in subjects {
            let began_at = self.engine.clock.now();
            let talk = self.till.ask(&payment, subject).await;
            let heard = heard(&talk, began_at);
            payment = self
                .change(id, |payment| {
                    // It may have ended while the gateway was asked.
                    let in_doubt = payment.doubts().any(|(known, _)| known == subject);
                    in_doubt.then(|| asked_by_hand(payment, subject, &heard, self.at()))
                })
                .await?;
        }
        Ok(payment)
    }

    /// Takes over a person's decision about a case.
    pub async fn resolve(
        &self,
        id: Uuid,
        resolution: Resolution,
        note: &str,
        who: &str,
    ) -> Result<Payment, PaymentError> {
        let payment = self.owned(id, None).await?;
        // Whether it fits is known before anybody is asked.
        resolve(&payment, resolution, note, who, self.at())?;
        let fenced = self.fence(&payment, resolution).await?;
        let decision = Decision {
            action: resolution.as_str().to_owned(),
            note: note.to_owned(),
            who: who.to_owned(),
        };
        loop {
            let payment = self.owned(id, None).await?;
            let talk = fenced.as_ref().map(|(subject, talk, at)| (*subject, heard(talk, *at)));
            let fenced = talk.as_ref().map(|(subject, heard)| Fenced { subject: *subject, heard });
            let mut decided = resolve_fenced(&payment, resolution, note, who, fenced, self.at())?;
            let cases = self.engine.store.cases_of(KIND, &id.to_string()).await?;
            let is_open = |c: &Case| c.status == CaseStatus::Open && c.kind == CASE_UNKNOWN;
            if let Some(case) = cases.iter().find(|case| is_open(case)) {
                decided.changes.extend(decision.closing(case, self.engine.clock.now()));
            }
            if let Some(payment) = self.write(&payment, decided).await? {
                return Ok(payment);
            }
        }
    }

    /// Before anybody may say that nothing was charged, the gateway is told not to charge any more. If it
    /// does not answer, the person's word stands: what happens later is noticed, and undone.
    async fn fence(
        &self,
        payment: &Payment,
        resolution: Resolution,
    ) -> Result<Option<(Subject, Talk, Timestamp)>, PaymentError> {
        let Some(subject) = to_fence(payment, resolution) else { return Ok(None) };
        let began_at = self.engine.clock.now();
        let talk = self.till.fence_off(payment, subject).await;
        let moved = match &talk.outcome {
            Outcome::Done(Finding::Payment(remote)) => {
                matches!(remote.state, RemoteState::Authorized | RemoteState::Captured)
            }
            _ => false,
        };
        if !moved {
            return Ok(Some((subject, talk, began_at)));
        }
        // The gateway knows better, and its answer is what everybody waited for.
        let heard = heard(&talk, began_at);
        self.change(payment.id, |payment| {
            let in_doubt = payment.doubts().any(|(known, _)| known == subject);
            in_doubt.then(|| asked_by_hand(payment, subject, &heard, self.at()))
        })
        .await?;
        Err(PaymentError::Contradicted)
    }

    /// Asks the gateway where a payment stands, takes over what can be taken over, and says what still
    /// differs.
    pub(crate) async fn compare(&self, id: Uuid) -> Result<Option<String>, PaymentError> {
        let payment = self.owned(id, None).await?;
        let remote = match self.till.look(&payment).await {
            Outcome::Done(remote) => remote,
            Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
                return Ok(Some(format!("The gateway does not say: {}.", reason.message)));
            }
        };
        let payment = self.till.hear(id, &remote, "case").await?.ok_or(PaymentError::NotFound)?;
        if !payment.is_at_rest() {
            return Ok(Some("Something else about this payment is under way.".to_owned()));
        }
        Ok(difference(&payment, &remote).map(|difference| difference.summary))
    }

    /// What a person may decide about a payment now.
    pub(crate) fn choices(&self, payment: &Payment) -> Vec<Choice> {
        choices::of_unknown(payment, self.at())
    }

    /// Reads, decides and writes until nobody comes in between.
    async fn change(
        &self,
        id: Uuid,
        decide: impl Fn(&Payment) -> Option<Decided>,
    ) -> Result<Payment, PaymentError> {
        loop {
            let payment = self.owned(id, None).await?;
            let Some(decided) = decide(&payment) else { return Ok(payment) };
            if let Some(payment) = self.write(&payment, decided).await? {
                return Ok(payment);
            }
        }
    }

    /// `None`: somebody else has changed the payment since it was read.
    async fn write(
        &self,
        before: &Payment,
        decided: Decided,
    ) -> Result<Option<Payment>, PaymentError> {
        let next = decided.next.clone();
        let followed = self.till.follow(before, decided, self.engine.clock.now()).await?;
        match self.engine.store.commit(followed.changes).await {
            Ok(()) => {}
            Err(CommitError::Store(error)) => return Err(error.into()),
            Err(_) => return Ok(None),
        }
        report(before, &followed.payment, &Verdict::Succeeded)();
        (followed.after)();
        Ok(Some(self.perform(next, followed.payment).await?))
    }
}

fn heard(talk: &Talk, began_at: Timestamp) -> Heard<'_> {
    Heard {
        via: talk.via,
        outcome: &talk.outcome,
        exchange: talk.exchange.as_ref(),
        checked: talk.checked.as_ref(),
        began_at,
    }
}

/// Keys travel in headers: printable ASCII. They are stored, so they must not be card numbers.
fn checked_key(key: Option<&str>) -> Result<&str, PaymentError> {
    let key = key.ok_or(PaymentError::KeyMissing)?;
    let fits = (1..=255).contains(&key.len()) && key.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits && !request::holds_card_number(key) { Ok(key) } else { Err(PaymentError::KeyInvalid) }
}

/// Whether what was asked for under the key is being done right now, and nobody is in doubt about it.
fn is_running(payment: &Payment, key: &str) -> bool {
    let operation = payment
        .operation
        .iter()
        .any(|o| o.doubt.is_none() && o.key.as_ref().is_some_and(|known| known.key == key));
    let refund = payment
        .refunds
        .iter()
        .any(|r| r.status == RefundStatus::Pending && r.doubt.is_none() && r.key.key == key);
    operation || refund
}

fn failure_code(payment: &Payment) -> &str {
    payment.failure.as_ref().map_or("", |reason| reason.code.as_str())
}
