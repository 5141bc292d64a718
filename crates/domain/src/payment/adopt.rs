//! What the gateway's word does to a payment.
//!
//! Used wherever it becomes known: after an attempt, from a message, by a person. Each function takes
//! one step of the machine or says why it cannot.

use std::time::Duration;

use serde_json::json;

use super::draft::{Draft, REFUND_SCOPE, name_of};
use super::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use super::status::Event;
use super::{CaptureMode, Doubt, OperationKind, RefundStatus, Subject};
use crate::outcome::Reason;

/// The alert when asking again will not help.
pub const CANNOT_ASK: &str = "Non-retryable gateway error during verification";

/// Why an operation has not ended.
pub(super) enum Unclear {
    /// Ask (again) later.
    Wait(Reason, Option<Duration>),
    /// Asking again will not help.
    CannotAsk(Reason),
}

pub(super) type Step = Result<(), Unclear>;

pub(super) fn gateway_status(state: RemoteState) -> Reason {
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
        // The intent behind a page says that the money is there.
        (OperationKind::Checkout, RemoteState::Captured) => {
            super::checkout::paid(draft, remote.captured)
        }
        // Anything else the session says better.
        (OperationKind::Checkout, _) => Err(waiting(remote)),
        (OperationKind::Void, RemoteState::Voided) => voided(draft, None),
        (OperationKind::Capture, RemoteState::Voided) => {
            let gone = Reason::new(code::AUTHORIZATION_GONE, "the authorization is gone");
            voided(draft, Some(&gone))
        }
        (OperationKind::Undo, RemoteState::Captured) if still_taken(remote) > 0 => {
            Err(waiting(remote))
        }
        // Not found is no answer here: the gateway has shown the money before.
        (
            OperationKind::Undo,
            RemoteState::Captured | RemoteState::Voided | RemoteState::Declined,
        ) => {
            draft.end_operation(None);
            draft.record("compensated", &json!({"found": remote.state.as_str()}));
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
    // Their numbers, not ours: a sum beyond every amount must not become a small one.
    let given_back = alive.map(|refund| refund.amount).fold(0, i64::saturating_add);
    remote.captured.saturating_sub(given_back)
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

pub(super) fn illegal(reason: Reason) -> Unclear {
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
    // Only an authorization or a checkout fails, and until then the payment is pending.
    let failed = draft.step(Event::Fail, &told);
    debug_assert!(failed.is_ok(), "{failed:?}");
    draft.end_operation(Some(reason));
}

/// The gateway looked at it and said no.
pub(super) fn refuse(draft: &mut Draft<'_>, subject: Subject, reason: &Reason) {
    match subject {
        Subject::Operation(OperationKind::Authorize | OperationKind::Checkout) => {
            let text = format!("{}: {}", reason.code, reason.message);
            fail(draft, &Reason::new(&reason.code, text));
        }
        Subject::Operation(OperationKind::Undo) => {
            draft.open_case(subject, CANNOT_ASK, reason);
            give_up(draft, subject, reason);
        }
        Subject::Operation(_) => {
            let text = format!("{}: {}", reason.code, reason.message);
            draft.record("refused", &json!({"operation": name_of(subject), "code": reason.code}));
            keep_watch(draft);
            draft.end_operation(Some(&Reason::new(&reason.code, text)));
        }
        Subject::Refund(index) => close_refund(draft, index, Err(reason)),
    }
}

/// What Tashika itself had begun has not happened: until now it was the one to end the authorization,
/// and without it nobody would.
pub(super) fn keep_watch(draft: &mut Draft<'_>) {
    let own = draft.payment.operation.as_ref().filter(|operation| operation.key.is_none());
    match own.map(|operation| operation.kind) {
        Some(OperationKind::Capture) => draft.start_expiry(),
        Some(OperationKind::Void) => draft.expire_again(),
        _ => {}
    }
}

pub(super) fn end_refund(draft: &mut Draft<'_>, subject: Subject, remote: &RemoteRefund) {
    let failed = || Reason::new("REFUND_FAILED", "the gateway could not give the money back");
    let Subject::Refund(index) = subject else {
        // The refund that undoes a late execution.
        if remote.state == RemoteRefundState::Failed {
            return refuse(draft, subject, &failed());
        }
        draft.end_operation(None);
        draft.record("compensated", &json!({"refunded": remote.amount}));
        return;
    };
    match remote.state {
        RemoteRefundState::Pending | RemoteRefundState::Succeeded => {
            close_refund(draft, index, Ok(remote.gateway_id.clone()));
        }
        RemoteRefundState::Failed => close_refund(draft, index, Err(&failed())),
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
            draft.record(
                "refused",
                &json!({"operation": "refund", "refundId": id,
                "code": reason.code, "message": reason.message}),
            );
            draft.settle_ledger(REFUND_SCOPE, &key, 200, Some(reason));
        }
    }
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
