//! What an attempt at the gateway, or a question to it, has brought.
//!
//! Called when a worker has an answer, when it has none, and when a worker has disappeared. All
//! three go through [`conclude`]: recovery is not another path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use super::adopt::CANNOT_ASK;
use super::adopt::{Unclear, adopt, end_refund, fail, gateway_status, refuse};
use super::draft::{Decided, Draft, name_of};
use super::remote::{Remote, RemoteRefund, RemoteState, code};
use super::session::RemoteSession;
use super::{At, Doubt, OperationKind, Payment, Subject, checkout};
use crate::effect::{Effect, EffectId, Verdict};
use crate::mutant::{self, Mutant};
use crate::outcome::{Exchange, Outcome, Reason};
use crate::time::Timestamp;

/// The alert when nobody answered often enough.
pub const OUT_OF_ATTEMPTS: &str = "Payment verification failed after max attempts";

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
    /// Where the page stands on which the customer pays.
    Session(RemoteSession),
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
    if subject == Subject::Operation(OperationKind::Checkout) {
        let verdict = conclude_checkout(&mut draft, effect, heard)?;
        return Some((draft.finish(), verdict));
    }
    record(&mut draft, subject, heard);
    fence_answered(&mut draft, subject, heard);
    let in_doubt = effect.in_doubt || payment.doubt_of(subject).is_some();
    let was_sent_now = heard.via != Via::Asked && !in_doubt;
    let step = match heard.outcome {
        // No page belongs to these operations.
        Outcome::Done(Finding::Nothing | Finding::Session(_)) => return None,
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
        Outcome::Lost(reason) if mutant::on(Mutant::LostIsDeclined) => {
            refuse(&mut draft, subject, reason);
            Ok(())
        }
        Outcome::Lost(reason) => Err(Unclear::Wait(reason.clone(), None)),
    };
    let verdict = match step {
        Ok(()) => Verdict::Succeeded,
        Err(unclear) => stay_in_doubt(&mut draft, subject, unclear, heard),
    };
    Some((draft.finish(), verdict))
}

/// The same for a page on which the customer pays. Opening it is repeated under its own key, closing
/// it and asking about it are safe by nature: what was lost is tried again soon, as a customer waits.
///
/// A page that could not be opened, as far as anybody knows, is given up after that, and not left to a
/// person: nobody was told where it is, so nobody can pay there, and the gateway closes it by itself. (A
/// gateway that has answered 500 under a key says so for ever.) Its customer may ask for another one.
fn conclude_checkout(draft: &mut Draft<'_>, effect: &Effect, heard: &Heard<'_>) -> Option<Verdict> {
    let subject = Subject::Operation(OperationKind::Checkout);
    record(draft, subject, heard);
    let known = draft.payment.checkout.as_ref().is_some_and(|page| page.session.is_some());
    let in_doubt = effect.in_doubt || draft.payment.doubt_of(subject).is_some();
    let soon = draft.at.rules.retry_backoff.get(effect.attempts as usize).copied();
    let step = match heard.outcome {
        Outcome::Done(Finding::Nothing | Finding::FencedOff | Finding::Refund(_)) => return None,
        Outcome::Done(Finding::Session(session)) => match checkout::adopt(draft, session) {
            Ok(()) => Ok(()),
            // The page is finished and the money is on its way: that is no doubt, only a wait.
            Err(Unclear::Wait(reason, _)) => {
                let run_at = draft.at.now.plus(draft.at.rules.verify_interval);
                if let Some(doubt) = draft.doubt_mut(subject) {
                    *doubt = None;
                }
                return Some(Verdict::Retry { run_at, reason, in_doubt: false });
            }
            Err(unclear) => Err(unclear),
        },
        Outcome::Done(Finding::Payment(remote)) => adopt(draft, subject, remote),
        Outcome::Refused(reason) if known || heard.via == Via::Asked => {
            Err(Unclear::CannotAsk(reason.clone()))
        }
        Outcome::Refused(reason) => {
            refuse(draft, subject, reason);
            Ok(())
        }
        Outcome::Busy { reason, retry_in } => match soon {
            Some(wait) => {
                let run_at = draft.at.now.plus(wait.max(retry_in.unwrap_or_default()));
                return Some(Verdict::Retry { run_at, reason: reason.clone(), in_doubt });
            }
            None if known => Err(Unclear::Wait(reason.clone(), *retry_in)),
            None => {
                refuse(draft, subject, reason);
                Ok(())
            }
        },
        Outcome::Lost(reason) => match soon {
            Some(wait) => {
                let run_at = draft.at.now.plus(wait);
                return Some(Verdict::Retry { run_at, reason: reason.clone(), in_doubt: true });
            }
            None if known => Err(Unclear::Wait(reason.clone(), None)),
            None => {
                refuse(draft, subject, reason);
                Ok(())
            }
        },
    };
    Some(match step {
        Ok(()) => Verdict::Succeeded,
        Err(unclear) => stay_in_doubt(draft, subject, unclear, heard),
    })
}

pub(super) fn record(draft: &mut Draft<'_>, subject: Subject, heard: &Heard<'_>) {
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
        Outcome::Done(Finding::Session(session)) => {
            json!({"session": session.id, "state": session.state, "paid": session.paid})
        }
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
        Outcome::Done(Finding::Session(session)) => checkout::adopt(&mut draft, session).is_ok(),
        _ => false,
    };
    if !ended && let Some(Some(doubt)) = draft.doubt_mut(subject) {
        doubt.last_check_at = Some(at.now);
    }
    draft.finish()
}
