//! A decision in the making: the payment as it will be, and everything that is written with it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    At, CASE_UNKNOWN, Doubt, EXPIRY_KIND, FAILURE_MAX, KIND, Operation, OperationKind, Payment,
    Refund, RefundStatus, RequestKey, Subject, status,
};
use crate::audit::{Actor, NewAudit};
use crate::case::{CaseResolution, NewCase};
use crate::changes::{Changes, PaymentLine, Write};
use crate::effect::{Effect, EffectId, NewEffect};
use crate::event::Event as Published;
use crate::ids::derived;
use crate::lane::Lane;
use crate::ledger::{LedgerKey, LedgerSettlement, LedgerStatus};
use crate::outcome::Reason;
use crate::time::Timestamp;

/// What a decision has come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The payment after it.
    pub payment: Payment,
    pub changes: Changes,
    /// What the worker named in [`At`] carries out next.
    pub next: Option<Effect>,
    /// How far the numbering of this change has come, for whoever goes on with it.
    pub(super) made: Made,
}

/// What a change has numbered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    count: u32,
    lines: u32,
    case_closed: bool,
}

pub(super) struct Draft<'a> {
    before: Option<&'a Payment>,
    pub payment: Payment,
    pub at: At<'a>,
    changes: Changes,
    next: Option<Effect>,
    /// With which words an open case is closed, if this change answers it.
    closing: (&'static str, String),
    /// Whose doing it is.
    pub actor: Actor,
    /// The webhook that led to it, for audit lines.
    pub cause: Option<Value>,
    /// Numbers what this change creates.
    made: Made,
}

impl<'a> Draft<'a> {
    /// Of a payment that does not exist yet.
    pub fn birth(payment: Payment, at: At<'a>) -> Self {
        Self {
            before: None,
            payment,
            at,
            changes: Changes::new(),
            next: None,
            closing: ("verified", "the outcome has become known".to_owned()),
            actor: Actor::SYSTEM,
            cause: None,
            made: Made::default(),
        }
    }

    pub fn of(before: &'a Payment, at: At<'a>) -> Self {
        let mut payment = before.clone();
        payment.version += 1;
        payment.updated_at = at.now;
        Self { before: Some(before), ..Self::birth(payment, at) }
    }

    /// Goes on with a decision that is not written yet: both are one change of the payment.
    pub fn resume(before: &'a Payment, decided: Decided, at: At<'a>) -> Self {
        let Decided { payment, changes, next, made } = decided;
        let mut draft = Self { before: Some(before), ..Self::birth(payment, at) };
        // The rows are written as they are in the end.
        let rows = |write: &Write| {
            matches!(
                write,
                Write::PaymentUpdate(_) | Write::RefundInsert(_) | Write::RefundUpdate(_)
            )
        };
        for write in changes.writes().iter().filter(|write| !rows(write)) {
            draft.changes.push(write.clone());
        }
        draft.next = next;
        draft.made = made;
        draft
    }

    pub fn finish(mut self) -> Decided {
        match self.before {
            None => self.changes.push(Write::PaymentInsert(Box::new(self.payment.clone()))),
            Some(before) => {
                self.changes.push(Write::PaymentUpdate(Box::new(self.payment.clone())));
                let answered = before.verification_failed() && !self.payment.verification_failed();
                if answered && !self.made.case_closed {
                    self.close_case();
                }
            }
        }
        let known = self.before.map_or(&[][..], |before| &before.refunds);
        for (index, refund) in self.payment.refunds.iter().enumerate() {
            match known.get(index) {
                None => self.changes.push(Write::RefundInsert(Box::new(refund.clone()))),
                Some(old) if old != refund => {
                    self.changes.push(Write::RefundUpdate(Box::new(refund.clone())));
                }
                Some(_) => {}
            }
        }
        let made = self.made;
        Decided { payment: self.payment, changes: self.changes, next: self.next, made }
    }

    pub fn push(&mut self, write: Write) {
        self.changes.push(write);
    }

    /// A new id for something that this change creates.
    pub fn id(&mut self, what: &str) -> uuid::Uuid {
        self.made.count += 1;
        let parts: [&[u8]; 4] = [
            self.payment.id.as_bytes(),
            &self.payment.version.to_be_bytes(),
            &self.made.count.to_be_bytes(),
            what.as_bytes(),
        ];
        derived(self.at.now, &parts)
    }

    /// A line of the timeline.
    pub fn line(&mut self, kind: &'static str, entry: &Value) {
        let number = self.made.lines;
        self.made.lines += 1;
        self.changes.push(Write::PaymentLine(PaymentLine {
            payment_id: self.payment.id,
            version: self.payment.version,
            number,
            at: self.at.now,
            kind,
            entry: entry.to_string(),
        }));
    }

    /// Takes a transition of the machine, writes it down and tells the world.
    pub fn step(&mut self, event: status::Event, details: &Value) -> Result<(), Reason> {
        let from = self.payment.status;
        let to = status::next(from, event)
            .map_err(|illegal| Reason::new("ILLEGAL_TRANSITION", illegal.to_string()))?;
        self.payment.status = to;
        let mut entry = json!({"from": from, "to": to, "event": format!("{event:?}")});
        merge(&mut entry, details);
        self.line("transition", &entry);
        let action = format!("payment.{}", event.done());
        self.audit(action, &entry);
        self.publish(event.published_as(), details);
        Ok(())
    }

    /// A line of the timeline about something that changes what is true, and so an audit line as well.
    pub fn record(&mut self, kind: &'static str, entry: &Value) {
        self.line(kind, entry);
        self.audit(format!("payment.{kind}"), entry);
    }

    /// An audit line about this payment.
    pub fn audit(&mut self, action: String, details: &Value) {
        let mut details = details.clone();
        if let Some(cause) = &self.cause {
            merge(&mut details, cause);
        }
        let line = NewAudit {
            id: self.id("audit"),
            actor: self.actor.clone(),
            action,
            target_type: KIND,
            target_id: self.payment.id.to_string(),
            office_id: None,
            details: details.to_string(),
            now: self.at.now,
        };
        self.push(Write::Audit(Box::new(line)));
    }

    /// An event for every sink.
    pub fn publish(&mut self, kind: &'static str, details: &Value) {
        if self.at.rules.sinks.is_empty() {
            return;
        }
        let id = self.id("event");
        let payment = &self.payment;
        let mut payload = json!({
            "paymentId": payment.id,
            "bookingId": payment.request.booking_id,
            "userId": payment.request.user_id,
            "status": payment.status,
            "amount": payment.request.amount,
            "currency": payment.request.currency,
            "capturedAmount": payment.captured_amount,
            "refundedAmount": payment.refunded_amount,
        });
        merge(&mut payload, details);
        let event = Published {
            id,
            kind: kind.into(),
            aggregate_id: payment.id.to_string(),
            occurred_at: self.at.now,
            payload,
        };
        for sink in &self.at.rules.sinks {
            let effect = EffectId(self.id("delivery"));
            let traceparent = self.payment.traceparent.clone();
            let expires_at = self.at.now.plus(self.at.rules.keep);
            self.changes.push(Write::Enqueue(event.delivery(
                effect,
                sink,
                expires_at,
                traceparent,
            )));
        }
    }

    /// Begins an operation: the row says that it is under way before anything leaves.
    pub fn begin(&mut self, kind: OperationKind, amount: i64, key: Option<RequestKey>) {
        self.begin_with(kind, amount, key, &json!({}));
    }

    /// The same, with more for whoever carries it out.
    pub fn begin_with(
        &mut self,
        kind: OperationKind,
        amount: i64,
        key: Option<RequestKey>,
        details: &Value,
    ) {
        let mut payload = json!({"operation": kind.as_str()});
        merge(&mut payload, details);
        let effect = self.enqueue(kind.as_str(), &payload);
        let asked_at = self.at.now;
        self.payment.operation =
            Some(Operation { kind, amount, effect, key, asked_at, doubt: None });
        self.payment.failure = None;
    }

    /// Reserves a refund and begins it.
    pub fn begin_refund(&mut self, amount: i64, reason: Option<String>, key: RequestKey) {
        let number = u32::try_from(self.payment.refunds.len()).unwrap_or(u32::MAX) + 1;
        let id = self.id("refund");
        let effect = self.enqueue("refund", &json!({"operation": "refund", "refundId": id}));
        let now = self.at.now;
        self.payment.refunds.push(Refund {
            id,
            payment_id: self.payment.id,
            number,
            amount,
            reason,
            status: RefundStatus::Pending,
            gateway_refund_id: None,
            failure: None,
            effect,
            key,
            doubt: None,
            created_at: now,
            updated_at: now,
        });
    }

    fn enqueue(&mut self, name: &str, details: &Value) -> EffectId {
        let now = self.at.now;
        self.enqueue_at(name, details, now, self.at.worker)
    }

    /// An effect of this payment that is due at a moment.
    pub fn enqueue_at(
        &mut self,
        name: &str,
        details: &Value,
        run_at: Timestamp,
        worker: Option<&str>,
    ) -> EffectId {
        let id = EffectId(self.id("effect"));
        let mut payload = json!({"paymentId": self.payment.id});
        merge(&mut payload, details);
        let effect = NewEffect {
            id,
            lane: Lane::PAYMENTS,
            kind: KIND.into(),
            key: Some(format!("{}:{name}:{}", self.payment.id, self.payment.version)),
            digest: None,
            payload: payload.to_string(),
            run_at,
            created_at: self.at.now,
            expires_at: self.at.now.plus(self.at.rules.keep),
            traceparent: self.payment.traceparent.clone(),
            held_by: worker.map(ToOwned::to_owned),
        };
        self.next = effect.in_hand();
        self.changes.push(Write::Enqueue(effect));
        id
    }

    /// The timer that releases the authorization if nobody captures it.
    pub fn start_expiry(&mut self) {
        let key = self.payment.id.to_string();
        self.expire_after(self.at.rules.authorization_lifetime, key);
    }

    /// The timer again, after what it had begun did not happen: an hour later, for the usual week.
    pub fn expire_again(&mut self) {
        let rules = self.at.rules;
        let wait = (rules.authorization_lifetime / (7 * 24)).max(rules.verify_interval);
        // The first timer's row has the plain key.
        let key = format!("{}:{}", self.payment.id, self.payment.version);
        self.expire_after(wait, key);
    }

    fn expire_after(&mut self, wait: Duration, key: String) {
        let now = self.at.now;
        let id = EffectId(self.id("expiry"));
        self.changes.push(Write::Enqueue(NewEffect {
            id,
            lane: Lane::TIMERS,
            kind: EXPIRY_KIND.into(),
            key: Some(key),
            digest: None,
            payload: json!({"paymentId": self.payment.id}).to_string(),
            run_at: now.plus(wait),
            created_at: now,
            expires_at: now.plus(self.at.rules.keep),
            traceparent: self.payment.traceparent.clone(),
            held_by: None,
        }));
    }

    /// The operation has ended; its caller's key is answered from now on.
    pub fn end_operation(&mut self, failure: Option<&Reason>) {
        let Some(operation) = self.payment.operation.take() else { return };
        let (scope, fine) = scope_of(operation.kind);
        if let Some(key) = operation.key {
            self.settle_ledger(scope, &key, fine, failure);
        }
        if let Some(reason) = failure {
            let message: String = reason.message.chars().take(FAILURE_MAX).collect();
            self.payment.failure = Some(Reason { code: reason.code.clone(), message });
            if matches!(operation.kind, OperationKind::Capture | OperationKind::Void) {
                self.payment.in_vain += 1;
            }
        }
    }

    pub fn settle_ledger(
        &mut self,
        scope: &'static str,
        key: &RequestKey,
        fine: u16,
        failure: Option<&Reason>,
    ) {
        let (status, http_status) = match failure {
            None => (LedgerStatus::Succeeded, fine),
            Some(reason) => (LedgerStatus::Failed, super::ask::http_status(&reason.code)),
        };
        let response = json!({"paymentId": self.payment.id}).to_string();
        self.changes.push(Write::LedgerSettle(LedgerSettlement {
            key: LedgerKey::new(scope, &key.key),
            request_digest: key.digest.clone(),
            status,
            http_status,
            result_digest: None,
            response,
            now: self.at.now,
            expires_at: self.at.now.plus(self.at.rules.remember),
        }));
    }

    pub fn doubt_mut(&mut self, subject: Subject) -> Option<&mut Option<Doubt>> {
        match subject {
            Subject::Operation(_) => self.payment.operation.as_mut().map(|o| &mut o.doubt),
            Subject::Refund(index) => self.payment.refunds.get_mut(index).map(|r| &mut r.doubt),
        }
    }

    /// Software has done what it can: a person decides, with the timeline before them.
    pub fn open_case(&mut self, subject: Subject, message: &'static str, error: &Reason) {
        let operation = name_of(subject);
        // The alert about all of them shows the newest one's.
        let details = json!({
            "paymentId": self.payment.id,
            "operation": operation,
            "error": format!("{}: {}", error.code, error.message),
            "alert": message,
        });
        self.record(
            "verification_failed",
            &json!({"operation": operation, "alert": message,
            "code": error.code, "message": error.message}),
        );
        let request = &self.payment.request;
        let summary = format!(
            "Nobody can say whether the {operation} of payment {} ({} {}) happened at {}.",
            self.payment.id, request.amount, request.currency, self.payment.gateway,
        );
        let case = NewCase {
            id: self.id("case"),
            kind: CASE_UNKNOWN,
            subject_type: KIND,
            subject_id: self.payment.id.to_string(),
            summary,
            actions: super::resolve::ACTIONS.to_vec(),
            details: details.to_string(),
            now: self.at.now,
        };
        self.push(Write::OpenCase(case));
    }

    /// A person's words, for the case that this change answers.
    pub fn closed_by(&mut self, action: &'static str, note: &str) {
        self.closing = (action, note.to_owned());
    }

    fn close_case(&mut self) {
        self.made.case_closed = true;
        let (action, note) = self.closing.clone();
        let (subject_id, now) = (self.payment.id.to_string(), self.at.now);
        self.changes.push(Write::ResolveCase(CaseResolution {
            kind: CASE_UNKNOWN,
            subject_id,
            action: action.into(),
            note,
            now,
        }));
    }
}

/// The ledger scope of an operation, and the HTTP status of its good end.
pub(super) const fn scope_of(kind: OperationKind) -> (&'static str, u16) {
    match kind {
        OperationKind::Authorize | OperationKind::Checkout => (super::SCOPE, 201),
        OperationKind::Capture => ("payment_capture", 200),
        OperationKind::Void | OperationKind::Undo => ("payment_void", 200),
    }
}

/// The ledger scope of refunds.
pub(super) const REFUND_SCOPE: &str = "payment_refund";

pub(super) const fn name_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Operation(kind) => kind.as_str(),
        Subject::Refund(_) => "refund",
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}
