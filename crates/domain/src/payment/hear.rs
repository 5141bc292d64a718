//! What the gateway says without an attempt: webhooks, a question asked by hand, reconciliation.
//!
//! A message may be late, doubled or out of order. Only what ends something that is under way, or
//! shows that money moved after a payment was declared failed, changes anything.

use serde_json::{Value, json};

use super::adopt::{Unclear, adopt, captured, end_refund, still_taken, voided};
use super::draft::{Decided, Draft};
use super::remote::{Remote, RemoteRefundState, RemoteState, code};
use super::session::{RemoteSession, SessionState};
use super::{
    At, CASE_DIFFERENCE, KIND, OperationKind, Payment, RefundStatus, Status, Subject, checkout,
};
use crate::case::NewCase;
use crate::changes::Write;
use crate::mutant::{self, Mutant};
use crate::outcome::Reason;
use crate::race::NewRace;

/// Takes over what can be taken over. `None`: nothing new.
#[must_use]
pub fn hear(payment: &Payment, remote: &Remote, source: &str, at: At<'_>) -> Option<Decided> {
    listen(Draft::of(payment, at), remote, source)
}

/// The same, for a webhook: `event` names it in the audit lines.
#[must_use]
pub fn hear_event(
    payment: &Payment,
    remote: &Remote,
    event: &Value,
    at: At<'_>,
) -> Option<Decided> {
    let mut draft = Draft::of(payment, at);
    draft.cause = Some(event.clone());
    listen(draft, remote, "webhook")
}

/// What the gateway says about the page on which the customer pays. `event` names the webhook that made
/// us ask.
#[must_use]
pub fn hear_session(
    payment: &Payment,
    session: &RemoteSession,
    event: &Value,
    at: At<'_>,
) -> Option<Decided> {
    let waits = payment.operation.as_ref().is_some_and(|o| o.kind == OperationKind::Checkout);
    if !waits {
        // The page is closed for us. Money that came over it nevertheless is given back.
        let captured = if session.paid { session.amount } else { 0 };
        let state = if session.paid { RemoteState::Captured } else { RemoteState::NotFound };
        let gateway_id = session.gateway_id.clone();
        let remote = Remote { state, gateway_id, captured, refunds: None, reason: None };
        return hear_event(payment, &remote, event, at);
    }
    let mut draft = Draft::of(payment, at);
    draft.cause = Some(event.clone());
    let found = format!("session {}", session.state.as_str());
    draft.line("heard", &json!({"source": "webhook", "found": found, "paid": session.paid}));
    // A page that is open says nothing that was not known, once it has been noted.
    let noted = payment.checkout.as_ref().is_some_and(|page| page.session.is_some());
    if noted && session.state == SessionState::Open {
        return None;
    }
    checkout::adopt(&mut draft, session).is_ok().then(|| draft.finish())
}

fn listen(mut draft: Draft<'_>, remote: &Remote, source: &str) -> Option<Decided> {
    draft.line("heard", &json!({"source": source, "found": remote.state.as_str()}));
    let mut news = operation(&mut draft, remote);
    news |= refunds(&mut draft, remote);
    news.then(|| draft.finish())
}

fn operation(draft: &mut Draft<'_>, remote: &Remote) -> bool {
    if let Some(operation) = &draft.payment.operation {
        let kind = operation.kind;
        // An authorization that has not been seen yet may be on its way.
        if kind == OperationKind::Authorize && remote.state == RemoteState::Voided {
            let known = draft.payment.gateway_transaction_id.is_some();
            return known && adopt(draft, Subject::Operation(kind), remote).is_ok();
        }
        // Our own fence may release it in the next moment: its answer decides.
        if remote.state == RemoteState::Authorized
            && draft.payment.is_fenced(Subject::Operation(kind))
        {
            return false;
        }
        // Money has moved, or there would be nothing to undo: what denies it is older.
        let denies = matches!(remote.state, RemoteState::NotFound | RemoteState::Declined);
        if kind == OperationKind::Undo && denies {
            return false;
        }
        let before = draft.payment.clone();
        return match adopt(draft, Subject::Operation(kind), remote) {
            Ok(()) => true,
            Err(Unclear::Wait(..) | Unclear::CannotAsk(_)) => {
                draft.payment = before;
                false
            }
        };
    }
    match (draft.payment.status, remote.state) {
        (Status::Failed, _) if mutant::on(Mutant::LateSuccessKept) => false,
        (Status::Failed, RemoteState::Authorized) => late(draft, remote, "VOIDED"),
        (Status::Failed, RemoteState::Captured) if still_taken(remote) > 0 => {
            late(draft, remote, "REFUNDED")
        }
        (Status::Authorized, RemoteState::Captured) => captured(draft, remote.captured).is_ok(),
        (Status::Authorized, RemoteState::Voided) => {
            let gone = Reason::new(code::AUTHORIZATION_GONE, "the authorization is gone");
            let done = voided(draft, Some(&gone)).is_ok();
            draft.payment.failure = Some(gone);
            done
        }
        _ => false,
    }
}

/// Money moved after the payment had been declared failed: it is given back.
fn late(draft: &mut Draft<'_>, remote: &Remote, resolution: &'static str) -> bool {
    if let Some(id) = &remote.gateway_id {
        draft.payment.gateway_transaction_id.get_or_insert_with(|| id.clone());
    }
    let details = json!({"paymentId": draft.payment.id, "found": remote.state.as_str(),
        "amount": draft.payment.request.amount, "currency": draft.payment.request.currency});
    let race = NewRace {
        id: draft.id("race"),
        scenario: "LATE_EXECUTION",
        subject_type: KIND,
        subject_id: draft.payment.id.to_string(),
        resolution,
        details: details.to_string(),
        now: draft.at.now,
    };
    draft.record("race", &json!({"scenario": race.scenario, "resolution": resolution}));
    draft.push(Write::Race(race));
    let failure = draft.payment.failure.clone();
    let amount = draft.payment.request.amount;
    draft.begin(OperationKind::Undo, amount, None);
    draft.payment.failure = failure;
    true
}

fn refunds(draft: &mut Draft<'_>, remote: &Remote) -> bool {
    let mut news = false;
    for heard in remote.refunds.iter().flatten() {
        let Some(index) =
            draft.payment.refunds.iter().position(|ours| heard.refund_id == Some(ours.id))
        else {
            continue;
        };
        let ours = &draft.payment.refunds[index];
        match (ours.status, heard.state) {
            (RefundStatus::Pending, _) => {
                end_refund(draft, Subject::Refund(index), heard);
                news = true;
            }
            // Days later the bank sent it back: the money is with us again.
            (RefundStatus::Succeeded, RemoteRefundState::Failed) if ours.failure.is_none() => {
                bounced(draft, index);
                news = true;
            }
            _ => {}
        }
    }
    news
}

fn bounced(draft: &mut Draft<'_>, index: usize) {
    let refund = &draft.payment.refunds[index];
    let summary = format!(
        "The gateway could not deliver refund {} of {} {} for payment {}: the money is back with us.",
        refund.number, refund.amount, draft.payment.request.currency, draft.payment.id,
    );
    let details = json!({"paymentId": draft.payment.id, "refundId": refund.id});
    draft.record("refund_bounced", &details);
    let refund = &mut draft.payment.refunds[index];
    refund.failure = Some(Reason::new("REFUND_BOUNCED", "the money is back with us"));
    refund.updated_at = draft.at.now;
    let case = NewCase {
        id: draft.id("case"),
        kind: CASE_DIFFERENCE,
        subject_type: KIND,
        subject_id: draft.payment.id.to_string(),
        summary,
        actions: vec!["settled"],
        details: details.to_string(),
        now: draft.at.now,
    };
    draft.push(Write::OpenCase(case));
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Origin, create};
    use super::super::conclude::{Finding, Heard, Via, conclude};
    use super::super::{CaptureMode, PaymentRequest, PaymentRules, RequestKey};
    use super::*;
    use crate::effect::{Effect, Verdict};
    use crate::outcome::Outcome;
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

    fn pending(at: At<'_>) -> Decided {
        let request = PaymentRequest {
            booking_id: "b".into(),
            user_id: "u".into(),
            amount: 500,
            currency: "JPY".into(),
            payment_method: "tok".into(),
            customer: None,
            description: None,
            capture: CaptureMode::Manual,
        };
        let key = RequestKey { key: "k".into(), digest: "d".into() };
        let id = uuid::Uuid::from_u128(1);
        create(request, Origin { id, key, gateway: "g".into(), traceparent: None }, at)
    }

    fn asked(
        payment: &Payment,
        effect: &Effect,
        finding: Finding,
        at: At<'_>,
    ) -> (Payment, Verdict) {
        let outcome = Outcome::Done(finding);
        let heard = Heard {
            via: Via::Asked,
            outcome: &outcome,
            exchange: None,
            checked: None,
            began_at: NOW,
        };
        let (decided, verdict) = conclude(payment, effect, &heard, at).unwrap();
        (decided.payment, verdict)
    }

    /// Found by the simulator: a status that lags let the money stay where it was.
    #[test]
    fn money_that_was_seen_is_not_given_back_by_being_out_of_sight() {
        let rules = PaymentRules::default();
        let at = At { now: NOW, rules: &rules, worker: Some("w") };
        let Decided { payment, next, .. } = pending(at);
        let (failed, _) = asked(&payment, &next.unwrap(), Finding::FencedOff, at);
        assert_eq!(failed.status, Status::Failed);

        let seen = Remote { state: RemoteState::Authorized, ..Remote::not_found() };
        let Decided { payment, next, .. } = hear(&failed, &seen, "webhook", at).unwrap();
        let undo = next.unwrap();
        assert_eq!(payment.operation.as_ref().unwrap().kind, OperationKind::Undo);

        let unseen = Finding::Payment(Remote::not_found());
        let (payment, verdict) = asked(&payment, &undo, unseen, at);
        assert!(matches!(verdict, Verdict::Retry { in_doubt: true, .. }), "{verdict:?}");
        assert!(payment.pending_verification());

        let voided = Remote { state: RemoteState::Voided, ..Remote::not_found() };
        let (payment, verdict) = asked(&payment, &undo, Finding::Payment(voided), at);
        assert_eq!(verdict, Verdict::Succeeded);
        assert!(payment.is_at_rest() && payment.status == Status::Failed);
    }
}
