//! What a person has decided about a case.

use serde_json::json;

use super::adopt::{authorized, captured, close_refund, fail, keep_watch, voided};
use super::conclude::{Heard, record};
use super::draft::{Decided, Draft};
use super::remote::code;
use super::status::Event;
use super::{At, OperationKind, Payment, Subject};
use crate::audit::Actor;
use crate::outcome::{Outcome, Reason};

/// What a case of a payment offers.
pub const ACTIONS: [&str; 4] = ["charged", "not_charged", "refunded", "verify"];

/// What the person has found at the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The money was taken, or is still there: the operation that takes it happened, the one that
    /// gives it back did not.
    Charged,
    /// The money was not taken.
    NotCharged,
    /// It was taken or reserved, and has been given back.
    Refunded,
}

impl Resolution {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::NotCharged => "not_charged",
            Self::Refunded => "refunded",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Charged, Self::NotCharged, Self::Refunded];
        all.into_iter().find(|resolution| resolution.as_str() == text)
    }
}

/// The authorization that must not be executed any more before anybody may say that it was not.
#[must_use]
pub fn to_fence(payment: &Payment, resolution: Resolution) -> Option<Subject> {
    let authorize = Subject::Operation(OperationKind::Authorize);
    let given_up = |(subject, doubt): (Subject, &super::Doubt)| {
        (subject == authorize && doubt.given_up).then_some(subject)
    };
    (resolution == Resolution::NotCharged).then(|| payment.doubts().find_map(given_up)).flatten()
}

/// Why a decision cannot be taken over. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveRefusal {
    #[error("no case of this payment waits for a decision")]
    NoCase,
    #[error("this answer does not fit what is in doubt")]
    DoesNotFit,
}

/// What the gateway said when it was asked to make the person's word final.
#[derive(Clone, Copy, Debug)]
pub struct Fenced<'a> {
    pub subject: Subject,
    pub heard: &'a Heard<'a>,
}

/// Ends everything that software has given up on, as the person says.
pub fn resolve(
    payment: &Payment,
    resolution: Resolution,
    note: &str,
    who: &str,
    at: At<'_>,
) -> Result<Decided, ResolveRefusal> {
    resolve_fenced(payment, resolution, note, who, None, at)
}

/// The same, after the gateway was asked not to execute it any more.
pub fn resolve_fenced(
    payment: &Payment,
    resolution: Resolution,
    note: &str,
    who: &str,
    fenced: Option<Fenced<'_>>,
    at: At<'_>,
) -> Result<Decided, ResolveRefusal> {
    let given_up: Vec<Subject> =
        payment.doubts().filter(|(_, doubt)| doubt.given_up).map(|(subject, _)| subject).collect();
    if given_up.is_empty() {
        return Err(ResolveRefusal::NoCase);
    }
    let mut draft = Draft::of(payment, at);
    draft.actor = Actor::operator(who);
    let mut decision = json!({"decision": resolution.as_str(), "note": note});
    if let Some(Fenced { subject, heard }) = fenced {
        record(&mut draft, subject, heard);
        // If it could not be fenced, a late execution is still possible: it is noticed, and undone.
        decision["fenced"] = json!(matches!(heard.outcome, Outcome::Done(_)));
    }
    draft.audit("payment.resolved".to_owned(), &decision);
    draft.line("person", &json!({"decision": resolution.as_str(), "note": note, "who": who}));
    for subject in given_up {
        settle(&mut draft, subject, resolution)?;
    }
    draft.closed_by(resolution.as_str(), note);
    Ok(draft.finish())
}

fn settle(
    draft: &mut Draft<'_>,
    subject: Subject,
    resolution: Resolution,
) -> Result<(), ResolveRefusal> {
    let by_person = |code: &str| Reason::new(code, "decided by a person");
    let not_done = by_person("NOT_EXECUTED");
    match (subject, resolution) {
        (Subject::Operation(OperationKind::Authorize), Resolution::Charged) => {
            authorized(draft).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (Subject::Operation(OperationKind::Checkout), Resolution::Charged) => {
            let amount = draft.payment.request.amount;
            super::checkout::paid(draft, amount).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (
            Subject::Operation(OperationKind::Authorize | OperationKind::Checkout),
            Resolution::NotCharged,
        ) => {
            fail(draft, &by_person("NOT_CHARGED"));
        }
        (
            Subject::Operation(OperationKind::Authorize | OperationKind::Checkout),
            Resolution::Refunded,
        ) => {
            let reserved = draft.step(Event::Authorize, &json!({}));
            reserved.map_err(|_| ResolveRefusal::DoesNotFit)?;
            voided(draft, None).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (Subject::Operation(OperationKind::Capture), Resolution::Charged) => {
            let amount = draft.payment.operation.as_ref().map_or(0, |operation| operation.amount);
            captured(draft, amount).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (Subject::Operation(OperationKind::Capture), Resolution::NotCharged)
        | (Subject::Operation(OperationKind::Void | OperationKind::Undo), Resolution::Charged) => {
            keep_watch(draft);
            draft.end_operation(Some(&not_done));
        }
        (Subject::Operation(OperationKind::Capture), Resolution::Refunded) => {
            let gone = Reason::new(code::AUTHORIZATION_GONE, "decided by a person");
            voided(draft, Some(&gone)).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (
            Subject::Operation(OperationKind::Void),
            Resolution::NotCharged | Resolution::Refunded,
        ) => {
            voided(draft, None).map_err(|_| ResolveRefusal::DoesNotFit)?;
        }
        (
            Subject::Operation(OperationKind::Undo),
            Resolution::NotCharged | Resolution::Refunded,
        ) => {
            draft.end_operation(None);
        }
        (Subject::Refund(index), Resolution::Refunded) => {
            close_refund(draft, index, Ok("decided by a person".to_owned()));
        }
        (Subject::Refund(index), Resolution::Charged) => close_refund(draft, index, Err(&not_done)),
        (Subject::Refund(_), Resolution::NotCharged) => return Err(ResolveRefusal::DoesNotFit),
    }
    Ok(())
}
