//! Orders, as callers ask for them.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use serde_json::Value;
use tashika_domain::audit::Actor;
use tashika_domain::case::{Case, CaseStatus, Decision};
use tashika_domain::changes::{LedgerTouch, Requeue};
use tashika_domain::ledger::{self, LedgerKey, LedgerSettlement, LedgerStatus, Recall};
use tashika_domain::order::{
    self, Acceptance, CASE_UNANSWERED, Circumstances, ExecResult, Execution, KIND, Latency,
    OrderRequest, OrderRules, Violation, request_digest,
};
use tashika_domain::{Changes, Status, Write};
use tashika_store::{CommitError, Store, StoreError};

use super::Limits;
use super::limits::Refusal;
use crate::clock::{Clock, Ids};
use crate::worker::millis;

/// What callers may do with orders.
pub struct Orders {
    store: Store,
    clock: Clock,
    ids: Ids,
    rules: OrderRules,
    limits: Arc<Limits>,
    remember: Duration,
}

/// A request to place an order.
#[derive(Clone, Debug)]
pub struct PlaceOrder<'a> {
    /// Whose limits apply.
    pub client: &'a str,
    /// The `Idempotency-Key` header.
    pub header_key: Option<&'a str>,
    pub body: &'a Value,
    pub traceparent: Option<String>,
}

/// What a caller is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Placed {
    /// The first time: the light acknowledgement.
    Accepted(Value),
    /// A repeat: what the ledger knows by now.
    Replayed { http_status: u16, body: String },
}

/// Why an order was not taken.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error("the Idempotency-Key header is required")]
    KeyMissing,
    #[error("the Idempotency-Key header and idempotency_key differ")]
    KeyMismatch,
    #[error("the order is not valid")]
    Invalid(Vec<Violation>),
    #[error("the key belongs to another order")]
    Conflict,
    #[error("an application has enqueued this order, and it has not ended yet")]
    InProgress,
    #[error("too many orders")]
    RateLimited(Duration),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a person has decided about an order nobody answered for.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It was executed, as the broker's records show.
    Executed(Execution),
    NotExecuted,
    /// It was not executed, and is to be sent again.
    Resend,
}

/// Why a decision could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("no order is known under this key")]
    Unknown,
    #[error("the order has no open case")]
    NoCase,
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An order as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderView {
    /// The acknowledgement while nothing else is known, then the `ExecResult`.
    pub body: String,
    pub status: LedgerStatus,
    /// What a person has to decide about it.
    pub case: Option<Case>,
}

impl Orders {
    #[must_use]
    pub fn new(
        store: Store,
        clock: Clock,
        ids: Ids,
        rules: OrderRules,
        limits: Arc<Limits>,
        remember: Duration,
    ) -> Self {
        Self { store, clock, ids, rules, limits, remember }
    }

    /// Takes an order, or says what became of it when it was taken before.
    pub async fn place(&self, request: PlaceOrder<'_>) -> Result<Placed, OrderError> {
        let started = self.clock.now();
        let placed = self.try_place(&request).await;
        let outcome = match &placed {
            Ok(Placed::Accepted(_)) => "accepted",
            Ok(Placed::Replayed { .. }) | Err(OrderError::InProgress) => return placed,
            Err(OrderError::Conflict) => {
                counter!("idempotency_conflicts_total").increment(1);
                "conflict"
            }
            Err(OrderError::RateLimited(_)) => "rate_limited",
            Err(OrderError::Store(_)) => "unavailable",
            Err(_) => "validation",
        };
        counter!("order_requests_total", "outcome" => outcome).increment(1);
        let took = self.clock.now().since(started);
        histogram!("do_order_latency_ms", "phase" => "accept").record(millis(took));
        placed
    }

    async fn try_place(&self, request: &PlaceOrder<'_>) -> Result<Placed, OrderError> {
        let order = self.check(request)?;
        let digest = request_digest(request.body);
        let key = LedgerKey::new(KIND, &order.idempotency_key);
        if let Some(answer) = self.recall(&key, &digest).await? {
            return Ok(answer);
        }
        let now = self.clock.now();
        let counted =
            self.limits.count(&self.store, request.client, now).await.map_err(|refusal| {
                match refusal {
                    Refusal::Wait(span) => OrderError::RateLimited(span),
                    Refusal::Store(error) => OrderError::Store(error),
                }
            })?;
        let acceptance = Acceptance {
            id: self.ids.effect(),
            now,
            expires_at: now.plus(self.remember),
            traceparent: request.traceparent.clone(),
        };
        let (changes, ack) = order::accept(&order, request.body, acceptance);
        match self.store.commit(changes).await {
            Ok(()) => Ok(Placed::Accepted(ack)),
            Err(error) => {
                self.limits.give_back(request.client, counted).await;
                match error {
                    // Somebody was faster with the same key: theirs is the order.
                    CommitError::Taken(_)
                    | CommitError::Stale(_)
                    | CommitError::Outdated { .. } => match self.recall(&key, &digest).await? {
                        Some(answer) => Ok(answer),
                        None => Err(self.unrecorded(&order.idempotency_key, &digest).await?),
                    },
                    CommitError::Store(error) => Err(error.into()),
                }
            }
        }
    }

    fn check(&self, request: &PlaceOrder<'_>) -> Result<OrderRequest, OrderError> {
        let started = self.clock.now();
        let header_key = request.header_key.ok_or(OrderError::KeyMissing)?;
        if let Some(Value::String(body_key)) = request.body.get("idempotency_key")
            && body_key != header_key
        {
            return Err(OrderError::KeyMismatch);
        }
        let order = OrderRequest::parse(request.body, &self.rules).map_err(OrderError::Invalid);
        let took = self.clock.now().since(started);
        histogram!("do_order_latency_ms", "phase" => "validation").record(millis(took));
        order
    }

    /// What the ledger has to say about a key; `None` if the order is new.
    async fn recall(&self, key: &LedgerKey, digest: &str) -> Result<Option<Placed>, OrderError> {
        let now = self.clock.now();
        let entry = self.store.ledger_entry(key).await?;
        match ledger::recall(entry.as_ref(), digest, now) {
            Recall::Fresh => Ok(None),
            Recall::Conflict => Err(OrderError::Conflict),
            Recall::Replay(entry) => {
                let touch = Write::LedgerSeen(LedgerTouch { key: key.clone(), now });
                if let Err(CommitError::Store(error)) =
                    self.store.commit(Changes::from(touch)).await
                {
                    return Err(error.into());
                }
                let (http_status, body) = order::standing(entry);
                Ok(Some(Placed::Replayed { http_status, body }))
            }
        }
    }

    /// Why a key is taken that the ledger does not know: an application enqueued an order under it,
    /// inside its own transaction.
    async fn unrecorded(&self, key: &str, digest: &str) -> Result<OrderError, StoreError> {
        let Some(effect) = self.store.effect_by_key(KIND, key).await? else {
            // Pruned meanwhile: a repeat will find the key free.
            return Ok(OrderError::InProgress);
        };
        let payload = self.store.payload(effect.id).await?;
        let body = payload.and_then(|payload| serde_json::from_str(&payload).ok());
        let same = body.is_some_and(|body: Value| request_digest(&body) == digest);
        Ok(if same { OrderError::InProgress } else { OrderError::Conflict })
    }

    /// An order as it stands; `None` if nobody has asked for it.
    pub async fn find(&self, key: &str) -> Result<Option<OrderView>, StoreError> {
        let ledger_key = LedgerKey::new(KIND, key);
        let mut entry = self.store.ledger_entry(&ledger_key).await?;
        let mut effect = None;
        if entry.is_none() {
            effect = self.store.effect_by_key(KIND, key).await?;
            // It may have been settled between the two looks.
            if effect.as_ref().is_some_and(|effect| effect.status.is_settled()) {
                entry = self.store.ledger_entry(&ledger_key).await?;
            }
        }
        let open = |cases: Vec<Case>| cases.into_iter().find(|c| c.status == CaseStatus::Open);
        match entry {
            Some(entry) if entry.is_expired(self.clock.now()) => Ok(None),
            Some(entry) => {
                let case = match entry.status {
                    LedgerStatus::Succeeded => None,
                    _ => open(self.store.cases_of(KIND, key).await?),
                };
                let (_, body) = order::standing(&entry);
                Ok(Some(OrderView { body, status: entry.status, case }))
            }
            // Enqueued by an application inside its own transaction: no entry until it is settled.
            None => {
                let Some(effect) = effect else { return Ok(None) };
                match effect.status {
                    // The ledger has forgotten it.
                    Status::Succeeded => return Ok(None),
                    // Given up before anybody could write an answer.
                    Status::Aborted if !effect.in_doubt => {
                        let code = effect.last_error_code.unwrap_or_default();
                        let body = order::unreadable(key, &code).to_string();
                        return Ok(Some(OrderView {
                            body,
                            status: LedgerStatus::Failed,
                            case: None,
                        }));
                    }
                    _ => {}
                }
                let body = serde_json::json!({
                    "status": "accepted",
                    "idempotency_key": key,
                    "accepted_at": effect.created_at,
                });
                let case = open(self.store.cases_of(KIND, key).await?);
                Ok(Some(OrderView { body: body.to_string(), status: LedgerStatus::Accepted, case }))
            }
        }
    }

    /// Takes over a person's decision about an order nobody answered for.
    pub async fn resolve(
        &self,
        key: &str,
        resolution: Resolution,
        note: &str,
    ) -> Result<(), ResolveError> {
        self.resolve_as(key, resolution, note, "outbox").await
    }

    /// The same, by somebody with a name.
    pub async fn resolve_as(
        &self,
        key: &str,
        resolution: Resolution,
        note: &str,
        who: &str,
    ) -> Result<(), ResolveError> {
        let effect = self.store.effect_by_key(KIND, key).await?.ok_or(ResolveError::Unknown)?;
        let cases = self.store.cases_of(KIND, key).await?;
        let is_open = |c: &Case| c.status == CaseStatus::Open && c.kind == CASE_UNANSWERED;
        let case = cases.into_iter().find(is_open).ok_or(ResolveError::NoCase)?;
        if effect.status != Status::Aborted {
            return Err(ResolveError::NoCase);
        }
        let payload = self.store.payload(effect.id).await?.ok_or(ResolveError::Unknown)?;
        let order = OrderRequest::from_stored(&payload).map_err(|_| ResolveError::Unknown)?;
        let now = self.clock.now();
        let at = Circumstances {
            broker: "decided by a person",
            accepted_at: effect.created_at,
            now,
            latency: Latency::default(),
        };
        let digest = match effect.digest {
            Some(digest) => digest,
            None => {
                serde_json::from_str(&payload).map(|body| request_digest(&body)).unwrap_or_default()
            }
        };
        let settled = |status, http_status, result: &ExecResult| {
            Write::LedgerSettle(LedgerSettlement {
                key: LedgerKey::new(KIND, key),
                request_digest: digest.clone(),
                status,
                http_status,
                response: serde_json::to_string(result).unwrap_or_default(),
                result_digest: Some(result.digest()),
                now,
                expires_at: now.plus(self.remember),
            })
        };
        let (action, mut changes) = match resolution {
            Resolution::Executed(execution) => {
                let result = ExecResult::ok(&order, &execution, &at);
                ("executed", Changes::from(settled(LedgerStatus::Succeeded, 200, &result)))
            }
            Resolution::NotExecuted => {
                let code = effect.last_error_code.as_deref().unwrap_or_default();
                let (public, http_status) = order::public_failure(code);
                let result = ExecResult::error(&order, Some(public), &at);
                ("not_executed", Changes::from(settled(LedgerStatus::Failed, http_status, &result)))
            }
            Resolution::Resend => {
                let touch = LedgerTouch { key: LedgerKey::new(KIND, key), now };
                let requeue = Requeue { id: effect.id, without_doubt: true, now };
                let changes = Changes::from(Write::LedgerReopen(touch));
                ("resend", changes.with(Write::Requeue(requeue)))
            }
        };
        let details = serde_json::json!({"decision": action, "note": note});
        let actor = Actor::operator(who);
        changes.push(order::audit_line(actor, "order.resolved", key.to_owned(), &details, now, 0));
        let (action, note, who) = (action.to_owned(), note.to_owned(), who.to_owned());
        changes.extend(Decision { action, note, who }.closing(&case, now));
        match self.store.commit(changes).await {
            // Somebody else has decided meanwhile.
            Err(CommitError::Outdated { table: "cases", .. }) => Err(ResolveError::NoCase),
            result => Ok(result?),
        }
    }
}
