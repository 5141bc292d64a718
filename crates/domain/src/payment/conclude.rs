//! What an attempt at the gateway, or a question to it, has brought.
//!
//! Called when a worker has an answer, when it has none, and when a worker has disappeared. All
//! three go through [`conclude`]: recovery is not another path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::draft::{Decided, Draft, REFUND_SCOPE, name_of};
use super::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use super::status::Event;
use super::{At, CaptureMode, Doubt, OperationKind, Payment, RefundStatus, Subject};
use crate::effect::{Effect, EffectId, Verdict};
use crate::outcome::{Exchange, Outcome, Reason};
use crate::time::Timestamp;

/// The alert when nobody answered often enough.
pub const OUT_OF_ATTEMPTS: &str = "Payment verification failed after max attempts";
/// The alert when asking again will not help.
pub const CANNOT_ASK: &str = "Non-retryable gateway error during verification";

/// What the gateway was told or asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The operation was sent.
    Sent,
    /// The gateway was asked about it.
    Asked,
    /// Whoever had it in hand is gone: nobody knows.
    Lapsed,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// There was nothing to do any more.
    Nothing,
    Payment(Remote),
    /// The gateway has never confirmed the payment, and cannot any more.
    FencedOff,
    Refund(RemoteRefund),
}

/// One attempt, over.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    pub via: Via,
    pub outcome: &'a Outcome<Finding>,
    pub exchange: Option<&'a Exchange>,
    /// The question that came before it, if there was one.
    pub checked: Option<&'a Exchange>,
    pub began_at: Timestamp,
}

/// What an attempt means for the payment and for its effect. `None`: the operation had ended
/// already, by a webhook or by a person.
#[must_use]
pub fn conclude(
    payment: &Payment,
    effect: &Effect,
    heard: &Heard<'_>,
    at: At<'_>,
) -> Option<(Decided, Verdict)> {
    let subject = payment.subject_of(effect.id)?;
    let mut draft = Draft::of(payment, at);
    record(&mut draft, subject, heard);
    fence_answered(&mut draft, subject, heard);
    let was_sent_now = heard.via != Via::Asked && payment.doubt_of(subject).is_none();
    let step = match heard.outcome {
        Outcome::Done(Finding::Nothing) => return None,
        Outcome::Done(Finding::Payment(remote)) => adopt(&mut draft, subject, remote),
        Outcome::Done(Finding::FencedOff) => {
            fail(&mut draft, &gateway_status(RemoteState::NotFound));
            Ok(())
        }
        Outcome::Done(Finding::Refund(refund)) => {
            end_refund(&mut draft, subject, refund);
            Ok(())
        }
        Outcome::Refused(reason) if heard.via == Via::Asked => {
            Err(Unclear::CannotAsk(reason.clone()))
        }
        Outcome::Refused(reason) => {
            refuse(&mut draft, subject, reason);
            Ok(())
        }
        Outcome::Busy { reason, retry_in } if was_sent_now => {
            let verdict = try_again(&mut draft, subject, effect, reason, *retry_in);
            return Some((draft.finish(), verdict));
        }
        Outcome::Busy { reason, retry_in } => Err(Unclear::Wait(reason.clone(), *retry_in)),
        Outcome::Lost(reason) => Err(Unclear::Wait(reason.clone(), None)),
    };
    let verdict = match step {
        Ok(()) => Verdict::Succeeded,
        Err(unclear) => stay_in_doubt(&mut draft, subject, unclear, heard),
    };
    Some((draft.finish(), verdict))
}

/// Why an operation has not ended.
pub(super) enum Unclear {
    /// Ask (again) later.
    Wait(Reason, Option<Duration>),
    /// Asking again will not help.
    CannotAsk(Reason),
}

pub(super) type Step = Result<(), Unclear>;

fn record(draft: &mut Draft<'_>, subject: Subject, heard: &Heard<'_>) {
    let (outcome, reason) = match heard.outcome {
        Outcome::Done(_) => ("done", None),
        Outcome::Refused(reason) => ("refused", Some(reason)),
        Outcome::Busy { reason, .. } => ("busy", Some(reason)),
        Outcome::Lost(reason) => ("lost", Some(reason)),
    };
    let found = match heard.outcome {
        Outcome::Done(Finding::Payment(remote)) => json!(remote.state.as_str()),
        Outcome::Done(Finding::FencedOff) => json!("NOT_FOUND, fenced off"),
        Outcome::Done(Finding::Refund(refund)) => json!(refund.state),
        _ => Value::Null,
    };
    let operation = name_of(subject);
    if let Some(Exchange { request, reply, reference, sent }) = heard.checked {
        draft.line(
            "check",
            &json!({"operation": operation, "startedAt": heard.began_at, "request": request,
                "reply": reply, "reference": reference, "sent": sent}),
        );
    }
    let kind = if heard.via == Via::Asked { "check" } else { "attempt" };
    let exchange = heard.exchange;
    draft.line(
        kind,
        &json!({
            "operation": operation,
            "via": heard.via,
            "startedAt": heard.began_at,
            "outcome": outcome,
            "found": found,
            "code": reason.map(|r| &r.code),
            "message": reason.map(|r| &r.message),
            "request": exchange.map(|e| &e.request),
            "reply": exchange.map(|e| &e.reply),
            "reference": exchange.and_then(|e| e.reference.as_ref()),
            "sent": exchange.map(|e| e.sent),
        }),
    );
}

/// A fence that was answered is not on its way any more: it is the second of two questions.
fn fence_answered(draft: &mut Draft<'_>, subject: Subject, heard: &Heard<'_>) {
    let answered = heard.via == Via::Asked
        && heard.checked.is_some()
        && matches!(heard.outcome, Outcome::Done(_));
    if answered && let Some(Some(doubt)) = draft.doubt_mut(subject) {
        doubt.fenced = false;
    }
}

fn gateway_status(state: RemoteState) -> Reason {
    let code = match state {
        RemoteState::Declined => code::CARD_DECLINED,
        _ => "NOT_CHARGED",
    };
    Reason::new(code, format!("Gateway status: {}", state.as_str()))
}

/// Takes over what the gateway says, if it ends what is under way.
pub(super) fn adopt(draft: &mut Draft<'_>, subject: Subject, remote: &Remote) -> Step {
    if let Some(id) = &remote.gateway_id {
        draft.payment.gateway_transaction_id.get_or_insert_with(|| id.clone());
    }
    let kind = match subject {
        Subject::Operation(kind) => kind,
        Subject::Refund(index) => return adopt_refund(draft, subject, index, remote),
    };
    match (kind, remote.state) {
        (OperationKind::Authorize, RemoteState::Authorized) => authorized(draft),
        (OperationKind::Authorize, RemoteState::Captured) => {
            authorized(draft)?;
            // The gateway took it by itself: what we would have asked for has happened.
            draft.payment.operation = None;
            captured(draft, remote.captured)
        }
        (OperationKind::Authorize, RemoteState::Declined) => {
            let reason = remote.reason.clone().map_or_else(
                || gateway_status(RemoteState::Declined),
                |reason| Reason::new(reason.code, "Gateway status: DECLINED"),
            );
            fail(draft, &reason);
            Ok(())
        }
        (OperationKind::Authorize, RemoteState::Voided) => {
            fail(draft, &gateway_status(RemoteState::Voided));
            Ok(())
        }
        (OperationKind::Capture | OperationKind::Void, RemoteState::Captured) => {
            captured(draft, remote.captured)
        }
        (OperationKind::Void, RemoteState::Voided) => voided(draft, None),
        (OperationKind::Capture, RemoteState::Voided) => {
            let gone = Reason::new(code::AUTHORIZATION_GONE, "the authorization is gone");
            voided(draft, Some(&gone))
        }
        (OperationKind::Undo, RemoteState::Captured) if still_taken(remote) > 0 => {
            Err(waiting(remote))
        }
        (
            OperationKind::Undo,
            RemoteState::Captured
            | RemoteState::Voided
            | RemoteState::NotFound
            | RemoteState::Declined,
        ) => {
            draft.end_operation(None);
            draft.line("compensated", &json!({"found": remote.state.as_str()}));
            Ok(())
        }
        (
            OperationKind::Capture | OperationKind::Void,
            RemoteState::NotFound | RemoteState::Declined,
        ) => {
            let text = format!("the gateway says {}", remote.state.as_str());
            Err(Unclear::CannotAsk(Reason::new(code::UNKNOWN, text)))
        }
        (_, RemoteState::Pending | RemoteState::Authorized | RemoteState::NotFound) => {
            Err(waiting(remote))
        }
    }
}

fn waiting(remote: &Remote) -> Unclear {
    let text = format!("Gateway status: {}", remote.state.as_str());
    let reason = remote.reason.clone().unwrap_or_else(|| Reason::new("PENDING", text));
    Unclear::Wait(reason, None)
}

/// What the gateway has captured and not given back.
#[must_use]
pub fn still_taken(remote: &Remote) -> i64 {
    let refunds = remote.refunds.iter().flatten();
    let alive = refunds.filter(|refund| refund.state != RemoteRefundState::Failed);
    remote.captured - alive.map(|refund| refund.amount).sum::<i64>()
}

fn adopt_refund(draft: &mut Draft<'_>, subject: Subject, index: usize, remote: &Remote) -> Step {
    let id = draft.payment.refunds[index].id;
    let mut refunds = remote.refunds.iter().flatten();
    match refunds.find(|refund| refund.refund_id == Some(id)) {
        Some(refund) => {
            end_refund(draft, subject, refund);
            Ok(())
        }
        None => {
            Err(Unclear::Wait(Reason::new("PENDING", "the gateway does not list the refund"), None))
        }
    }
}

fn illegal(reason: Reason) -> Unclear {
    Unclear::CannotAsk(reason)
}

pub(super) fn authorized(draft: &mut Draft<'_>) -> Step {
    let id = draft.payment.gateway_transaction_id.clone();
    draft.step(Event::Authorize, &json!({"gatewayTransactionId": id})).map_err(illegal)?;
    draft.end_operation(None);
    match draft.payment.request.capture {
        CaptureMode::Manual => draft.start_expiry(),
        CaptureMode::Automatic => {
            let amount = draft.payment.request.amount;
            draft.begin(OperationKind::Capture, amount, None);
        }
    }
    Ok(())
}

pub(super) fn captured(draft: &mut Draft<'_>, amount: i64) -> Step {
    let wanted = draft.payment.operation.as_ref().map(|operation| operation.kind);
    draft.payment.captured_amount = amount;
    draft.step(Event::Capture, &json!({"capturedAmount": amount})).map_err(illegal)?;
    let late = Reason::new("ALREADY_CAPTURED", "the gateway had captured the payment");
    draft.end_operation((wanted == Some(OperationKind::Void)).then_some(&late));
    Ok(())
}

pub(super) fn voided(draft: &mut Draft<'_>, failure: Option<&Reason>) -> Step {
    let reason = failure.map(|reason| &reason.code);
    draft.step(Event::Void, &json!({ "reason": reason })).map_err(illegal)?;
    draft.end_operation(failure);
    Ok(())
}

pub(super) fn fail(draft: &mut Draft<'_>, reason: &Reason) {
    let told = json!({"reason": reason.message, "code": reason.code});
    // Only an authorization fails, and a payment whose authorization is under way is pending.
    let failed = draft.step(Event::Fail, &told);
    debug_assert!(failed.is_ok(), "{failed:?}");
    draft.end_operation(Some(reason));
}

/// The gateway looked at it and said no.
fn refuse(draft: &mut Draft<'_>, subject: Subject, reason: &Reason) {
    match subject {
        Subject::Operation(OperationKind::Authorize) => {
            let text = format!("{}: {}", reason.code, reason.message);
            fail(draft, &Reason::new(&reason.code, text));
        }
        Subject::Operation(OperationKind::Undo) => {
            draft.open_case(subject, CANNOT_ASK, reason);
            give_up(draft, subject, reason);
        }
        Subject::Operation(_) => {
            let text = format!("{}: {}", reason.code, reason.message);
            draft.line("refused", &json!({"operation": name_of(subject), "code": reason.code}));
            let own = draft.payment.operation.as_ref().is_some_and(|o| o.key.is_none());
            if own && subject == Subject::Operation(OperationKind::Capture) {
                // The capture that follows an authorization by itself: until now it was the one to
                // end the authorization.
                draft.start_expiry();
            }
            draft.end_operation(Some(&Reason::new(&reason.code, text)));
        }
        Subject::Refund(index) => close_refund(draft, index, Err(reason)),
    }
}

pub(super) fn end_refund(draft: &mut Draft<'_>, subject: Subject, remote: &RemoteRefund) {
    let Subject::Refund(index) = subject else {
        // The refund that undoes a late execution.
        draft.end_operation(None);
        draft.line("compensated", &json!({"refunded": remote.amount}));
        return;
    };
    match remote.state {
        RemoteRefundState::Pending | RemoteRefundState::Succeeded => {
            close_refund(draft, index, Ok(remote.gateway_id.clone()));
        }
        RemoteRefundState::Failed => {
            let reason = Reason::new("REFUND_FAILED", "the gateway could not give the money back");
            close_refund(draft, index, Err(&reason));
        }
    }
}

/// Ends a refund: the reservation becomes a refund, or is released.
pub(super) fn close_refund(draft: &mut Draft<'_>, index: usize, end: Result<String, &Reason>) {
    let now = draft.at.now;
    let refund = &mut draft.payment.refunds[index];
    let (key, amount, id) = (refund.key.clone(), refund.amount, refund.id);
    refund.doubt = None;
    refund.updated_at = now;
    match end {
        Ok(gateway_id) => {
            refund.status = RefundStatus::Succeeded;
            refund.gateway_refund_id = Some(gateway_id);
            draft.payment.refunded_amount += amount;
            let total = draft.payment.refunded_amount;
            let rest = total >= draft.payment.captured_amount;
            let event = if rest { Event::RefundRest } else { Event::RefundPart };
            let told = json!({"refundId": id, "refundAmount": amount, "totalRefunded": total});
            // A refund exists only of what is captured, so the machine has the transition.
            if draft.step(event, &told).is_ok() {
                draft.settle_ledger(REFUND_SCOPE, &key, 200, None);
            }
        }
        Err(reason) => {
            refund.status = RefundStatus::Failed;
            refund.failure = Some(reason.clone());
            draft.line(
                "refused",
                &json!({"operation": "refund", "refundId": id,
                "code": reason.code, "message": reason.message}),
            );
            draft.settle_ledger(REFUND_SCOPE, &key, 200, Some(reason));
        }
    }
}

/// Not executed, for certain: the same request may go again, for a while.
fn try_again(
    draft: &mut Draft<'_>,
    subject: Subject,
    effect: &Effect,
    reason: &Reason,
    retry_in: Option<Duration>,
) -> Verdict {
    let failures = effect.attempts as usize;
    let Some(wait) = draft.at.rules.retry_backoff.get(failures).copied() else {
        refuse(draft, subject, reason);
        return Verdict::Succeeded;
    };
    let run_at = draft.at.now.plus(wait.max(retry_in.unwrap_or_default()));
    Verdict::Retry { run_at, reason: reason.clone(), in_doubt: false }
}

/// Nobody knows yet. Counts the question, and stops asking when it was asked often enough.
fn stay_in_doubt(
    draft: &mut Draft<'_>,
    subject: Subject,
    unclear: Unclear,
    heard: &Heard<'_>,
) -> Verdict {
    let (now, rules) = (draft.at.now, draft.at.rules);
    let Some(doubt) = draft.doubt_mut(subject) else { return Verdict::Succeeded };
    let (reason, wait, hopeless) = match unclear {
        Unclear::Wait(reason, wait) => (reason, wait, false),
        Unclear::CannotAsk(reason) => (reason, None, true),
    };
    let first = doubt.is_none();
    let doubt = doubt.get_or_insert_with(|| Doubt {
        reason: reason.clone(),
        sent_at: heard.began_at,
        checks: 0,
        last_check_at: None,
        fenced: false,
        given_up: false,
    });
    if !first {
        doubt.checks += 1;
        doubt.last_check_at = Some(now);
    }
    let known_before = doubt.given_up;
    if hopeless || doubt.checks >= rules.verify_max {
        doubt.given_up = true;
        if !known_before {
            let alert = if hopeless { CANNOT_ASK } else { OUT_OF_ATTEMPTS };
            draft.open_case(subject, alert, &reason);
        }
        return Verdict::Aborted { reason, in_doubt: true };
    }
    // A lapsed lease was a wait already.
    let pause =
        if first && heard.via == Via::Lapsed { Duration::ZERO } else { rules.verify_interval };
    let run_at = now.plus(pause.max(wait.unwrap_or_default()));
    Verdict::Retry { run_at, reason, in_doubt: true }
}

fn give_up(draft: &mut Draft<'_>, subject: Subject, reason: &Reason) {
    let now = draft.at.now;
    if let Some(doubt) = draft.doubt_mut(subject) {
        let doubt = doubt.get_or_insert_with(|| Doubt {
            reason: reason.clone(),
            sent_at: now,
            checks: 0,
            last_check_at: None,
            fenced: false,
            given_up: true,
        });
        doubt.given_up = true;
    }
}

/// Remembers the id under which the gateway knows the payment, before money can move.
#[must_use]
pub fn prepared(
    payment: &Payment,
    effect: EffectId,
    gateway_id: &str,
    exchange: &Exchange,
    at: At<'_>,
) -> Option<Decided> {
    payment.subject_of(effect)?;
    let mut draft = Draft::of(payment, at);
    draft.payment.gateway_transaction_id = Some(gateway_id.to_owned());
    let Exchange { request, reply, reference, sent } = exchange;
    draft.line(
        "prepared",
        &json!({"gatewayTransactionId": gateway_id, "request": request, "reply": reply,
            "reference": reference, "sent": sent}),
    );
    Some(draft.finish())
}

/// Remembers that an authorization is being fenced off, before the fence leaves: whoever asks next must
/// not rely on what the gateway shows until the fence has been answered. `None`: it has ended, or is
/// remembered already.
#[must_use]
pub fn fencing(payment: &Payment, at: At<'_>) -> Option<Decided> {
    let subject = Subject::Operation(OperationKind::Authorize);
    let (operation, known) = (payment.operation.as_ref()?, payment.is_fenced(subject));
    if operation.kind != OperationKind::Authorize || known {
        return None;
    }
    let (sent_at, mut draft) = (operation.asked_at, Draft::of(payment, at));
    let doubt = draft.doubt_mut(subject)?.get_or_insert_with(|| Doubt {
        reason: Reason::new(code::UNKNOWN, "it is not known whether it was sent"),
        sent_at,
        checks: 0,
        last_check_at: None,
        fenced: true,
        given_up: false,
    });
    doubt.fenced = true;
    draft.line("fencing", &json!({"operation": name_of(subject)}));
    Some(draft.finish())
}

/// A person asked the gateway in between. What ends the operation is taken over; anything else
/// counts for nothing, and the next question comes when it was due.
#[must_use]
pub fn asked_by_hand(
    payment: &Payment,
    subject: Subject,
    heard: &Heard<'_>,
    at: At<'_>,
) -> Decided {
    let mut draft = Draft::of(payment, at);
    record(&mut draft, subject, heard);
    fence_answered(&mut draft, subject, heard);
    let ended = match heard.outcome {
        Outcome::Done(Finding::Payment(remote)) => adopt(&mut draft, subject, remote).is_ok(),
        Outcome::Done(Finding::FencedOff) => {
            fail(&mut draft, &gateway_status(RemoteState::NotFound));
            true
        }
        _ => false,
    };
    if !ended && let Some(Some(doubt)) = draft.doubt_mut(subject) {
        doubt.last_check_at = Some(at.now);
    }
    draft.finish()
}
