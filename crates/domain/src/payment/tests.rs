//! The decisions, one by one, to the letter. What they add up to is walked through in `walk`.

use serde_json::Value;

use super::ask::{self, Asked, Origin, Refusal, Wish};
use super::conclude::{Finding, Heard, Via, conclude};
use super::hear::hear;
use super::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use super::*;
use crate::changes::Write;
use crate::effect::{Effect, Verdict};
use crate::ledger::LedgerStatus;
use crate::outcome::Outcome;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(rules: &PaymentRules) -> At<'_> {
    At { now: NOW, rules, worker: Some("host:1") }
}

fn request() -> PaymentRequest {
    PaymentRequest {
        booking_id: "b".into(),
        user_id: "u".into(),
        amount: 100,
        currency: "EUR".into(),
        payment_method: "pm".into(),
        customer: None,
        description: None,
        capture: CaptureMode::Manual,
    }
}

fn key(key: &str) -> RequestKey {
    RequestKey { key: key.into(), digest: "d".into() }
}

fn created(rules: &PaymentRules) -> Decided {
    let origin = Origin {
        id: uuid::Uuid::from_u128(1),
        key: key("k"),
        gateway: "g".into(),
        traceparent: None,
    };
    ask::create(request(), origin, at(rules))
}

/// A payment of this status with nothing under way.
fn resting(status: Status) -> Payment {
    let payment = created(&PaymentRules::default()).payment;
    let captured_amount = match status {
        Status::Captured | Status::Refunded => 100,
        _ => 0,
    };
    let refunded_amount = if status == Status::Refunded { 100 } else { 0 };
    Payment { status, captured_amount, refunded_amount, operation: None, ..payment }
}

fn begun(payment: &Payment, wish: Wish) -> (Payment, Effect) {
    let rules = PaymentRules::default();
    match ask::ask(payment, wish, Some(key("w")), at(&rules)) {
        Ok(Asked::Begun(decided)) => (decided.payment, decided.next.expect("it is in hand")),
        other => panic!("{other:?}"),
    }
}

/// A failed payment that turned out to have been executed.
fn undoing() -> (Payment, Effect) {
    let rules = PaymentRules::default();
    let failure = Some(Reason::new("NETWORK_ERROR", "why it failed"));
    let failed = Payment { failure, ..resting(Status::Failed) };
    let heard = hear(&failed, &remote(RemoteState::Captured), "webhook", at(&rules));
    let decided = heard.expect("it is late");
    (decided.payment, decided.next.expect("it is in hand"))
}

fn remote(state: RemoteState) -> Remote {
    let captured = if state == RemoteState::Captured { 100 } else { 0 };
    Remote { state, gateway_id: Some("pi".into()), captured, refunds: None, reason: None }
}

fn concluded(
    (payment, effect): (&Payment, &Effect),
    via: Via,
    outcome: &Outcome<Finding>,
) -> (Decided, Verdict) {
    let rules = PaymentRules::default();
    let heard = Heard { via, outcome, exchange: None, checked: None, began_at: NOW };
    conclude(payment, effect, &heard, at(&rules)).expect("it is under way")
}

fn busy(retry_in: Option<Duration>) -> Outcome<Finding> {
    Outcome::Busy { reason: Reason::new(code::NETWORK_ERROR, "429"), retry_in }
}

fn lost() -> Outcome<Finding> {
    Outcome::Lost(Reason::new(code::TIMEOUT, "no answer"))
}

/// The kinds of the writes, by name.
fn names(decided: &Decided) -> Vec<String> {
    let name = |write: &Write| {
        let text = format!("{write:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    };
    decided.changes.writes().iter().map(name).collect()
}

/// The actions of the audit lines.
fn audited(decided: &Decided) -> Vec<&str> {
    let lines = decided.changes.writes().iter().filter_map(|write| match write {
        Write::Audit(line) => Some(line.action.as_str()),
        _ => None,
    });
    lines.collect()
}

fn settlements(decided: &Decided) -> Vec<(&str, LedgerStatus, u16)> {
    let settled = decided.changes.writes().iter().filter_map(|write| match write {
        Write::LedgerSettle(end) => Some((end.key.scope.as_str(), end.status, end.http_status)),
        _ => None,
    });
    settled.collect()
}

#[test]
fn a_payment_is_accepted_with_its_key_and_its_effect_at_once() {
    let rules = PaymentRules { sinks: vec!["s".into()], ..PaymentRules::default() };
    let decided = created(&rules);
    let expected = ["LedgerAccept", "PaymentLine", "Audit", "Enqueue", "Enqueue", "PaymentInsert"];
    assert_eq!(names(&decided), expected);
    let next = decided.next.expect("it is in hand");
    let operation = decided.payment.operation.expect("it is under way");
    assert_eq!((operation.kind, operation.effect), (OperationKind::Authorize, next.id));
    let held = decided.changes.writes().iter().find_map(|write| match write {
        Write::Enqueue(effect) if effect.kind == KIND => effect.held_by.clone(),
        _ => None,
    });
    assert_eq!(held.as_deref(), Some("host:1"));
    let nobody = At { worker: None, ..at(&rules) };
    let origin = Origin {
        id: uuid::Uuid::from_u128(1),
        key: key("k"),
        gateway: "g".into(),
        traceparent: None,
    };
    assert_eq!(ask::create(request(), origin, nobody).next, None);
}

#[test]
fn every_wish_in_every_status() {
    use Status::{Authorized, Captured, Failed, Pending, Refunded};
    let capture = |amount| Wish::Capture { amount };
    let refund = |amount| Wish::Refund { amount, reason: None };
    let (begins, already) = (Ok(true), Ok(false));
    let wrong = |status| Err(Refusal::WrongState(status));
    for (status, wish, expected) in [
        (Pending, capture(None), wrong(Pending)),
        (Pending, Wish::Void, wrong(Pending)),
        (Pending, refund(None), wrong(Pending)),
        (Authorized, capture(None), begins),
        (Authorized, capture(Some(100)), begins),
        (Authorized, capture(Some(101)), Err(Refusal::TooMuch(100))),
        (Authorized, Wish::Void, begins),
        (Authorized, refund(None), wrong(Authorized)),
        (Captured, capture(None), already),
        (Captured, capture(Some(50)), already),
        (Captured, capture(Some(101)), Err(Refusal::TooMuch(100))),
        (Captured, Wish::Void, wrong(Captured)),
        (Captured, refund(None), begins),
        (Captured, refund(Some(100)), begins),
        (Captured, refund(Some(101)), Err(Refusal::TooMuch(100))),
        (Refunded, capture(None), wrong(Refunded)),
        (Refunded, Wish::Void, wrong(Refunded)),
        (Refunded, refund(None), already),
        (Refunded, refund(Some(5)), already),
        (Failed, capture(None), wrong(Failed)),
        (Failed, Wish::Void, wrong(Failed)),
        (Failed, refund(None), wrong(Failed)),
    ] {
        let rules = PaymentRules::default();
        let asked = ask::ask(&resting(status), wish.clone(), Some(key("w")), at(&rules));
        let is = asked.map(|asked| matches!(asked, Asked::Begun(_)));
        assert_eq!(is, expected, "{status:?} {wish:?}");
    }
    let voided = Payment { captured_amount: 0, refunded_amount: 0, ..resting(Refunded) };
    let rules = PaymentRules::default();
    let again = ask::ask(&voided, Wish::Void, Some(key("w")), at(&rules));
    assert!(matches!(again, Ok(Asked::Already(_))), "{again:?}");
}

#[test]
fn what_is_under_way_is_in_the_way_and_what_is_reserved_is_not_left() {
    let rules = PaymentRules::default();
    let (capturing, _) = begun(&resting(Status::Authorized), Wish::Capture { amount: None });
    for wish in [Wish::Void, Wish::Capture { amount: None }] {
        let asked = ask::ask(&capturing, wish, Some(key("w")), at(&rules));
        assert_eq!(asked, Err(Refusal::UnderWay));
    }
    let sixty = || Wish::Refund { amount: Some(60), reason: None };
    let (refunding, _) = begun(&resting(Status::Captured), sixty());
    assert_eq!((refunding.refunding_amount(), refunding.refundable()), (60, 40));
    let asked = ask::ask(&refunding, sixty(), Some(key("w")), at(&rules));
    assert_eq!(asked, Err(Refusal::TooMuch(40)));
    let all = Wish::Refund { amount: None, reason: None };
    let (both, _) = begun(&refunding, all);
    let amounts: Vec<_> =
        both.refunds.iter().map(|refund| (refund.number, refund.amount)).collect();
    assert_eq!(amounts, [(1, 60), (2, 40)]);
}

#[test]
fn a_key_is_settled_once_and_with_the_status_that_was_told() {
    let rules = PaymentRules::default();
    let Decided { payment, next, .. } = created(&rules);
    let effect = next.expect("it is in hand");
    let about = (&payment, &effect);
    for (outcome, expected) in [
        (
            Outcome::Done(Finding::Payment(remote(RemoteState::Authorized))),
            vec![("payment", LedgerStatus::Succeeded, 201)],
        ),
        (
            Outcome::Refused(Reason::new(code::CARD_DECLINED, "no")),
            vec![("payment", LedgerStatus::Failed, 402)],
        ),
        (
            Outcome::Refused(Reason::new(code::INVALID_REQUEST, "no")),
            vec![("payment", LedgerStatus::Failed, 400)],
        ),
        (Outcome::Done(Finding::FencedOff), vec![("payment", LedgerStatus::Failed, 402)]),
        (busy(None), vec![]),
        (lost(), vec![]),
    ] {
        let (decided, _) = concluded(about, Via::Sent, &outcome);
        assert_eq!(settlements(&decided), expected, "{outcome:?}");
    }
}

#[test]
fn a_failure_says_why() {
    let rules = PaymentRules::default();
    let Decided { payment, next, .. } = created(&rules);
    let effect = next.expect("it is in hand");
    let why = |via, outcome: &Outcome<Finding>| {
        let (decided, verdict) = concluded((&payment, &effect), via, outcome);
        assert_eq!((decided.payment.status, verdict), (Status::Failed, Verdict::Succeeded));
        decided.payment.failure.expect("there is a reason").message
    };
    let found = |state| Outcome::Done(Finding::Payment(remote(state)));
    assert_eq!(why(Via::Asked, &found(RemoteState::Declined)), "Gateway status: DECLINED");
    assert_eq!(why(Via::Asked, &found(RemoteState::Voided)), "Gateway status: VOIDED");
    let fenced = Outcome::Done(Finding::FencedOff);
    assert_eq!(why(Via::Asked, &fenced), "Gateway status: NOT_FOUND");
    let refused = |text: &str| Outcome::Refused(Reason::new(code::EXPIRED_CARD, text));
    assert_eq!(why(Via::Sent, &refused("in 2020")), "EXPIRED_CARD: in 2020");
    let long = why(Via::Sent, &refused(&"確".repeat(512)));
    assert_eq!(long.chars().count(), FAILURE_MAX);
}

#[test]
fn what_was_turned_away_waits_its_turn_and_is_not_in_doubt() {
    let rules = PaymentRules::default();
    let Decided { payment, next, .. } = created(&rules);
    let effect = next.expect("it is in hand");
    let wait = |attempts: u32, retry_in: Option<Duration>| {
        let effect = Effect { attempts, ..effect.clone() };
        let (decided, verdict) = concluded((&payment, &effect), Via::Sent, &busy(retry_in));
        match verdict {
            Verdict::Retry { run_at, in_doubt: false, .. } => {
                assert!(decided.payment.doubts().next().is_none());
                Some(run_at.since(NOW))
            }
            Verdict::Succeeded => {
                assert_eq!(decided.payment.status, Status::Failed);
                None
            }
            other => panic!("{other:?}"),
        }
    };
    let waits: Vec<_> = (0..6).map(|attempts| wait(attempts, None)).collect();
    let expected = [1, 2, 5, 10, 30].map(|s| Some(seconds(s)));
    assert_eq!(waits[..5], expected);
    assert_eq!(waits[5], None);
    assert_eq!(wait(0, Some(seconds(60))), Some(seconds(60)), "as the gateway asks");
    assert_eq!(wait(4, Some(seconds(1))), Some(seconds(30)), "but not sooner");
}

#[test]
fn doubt_is_asked_about_in_turn_and_given_up_in_the_end() {
    let rules = PaymentRules::default();
    let Decided { payment, next, .. } = created(&rules);
    let mut effect = next.expect("it is in hand");
    let (decided, verdict) = concluded((&payment, &effect), Via::Sent, &lost());
    let Verdict::Retry { run_at, in_doubt: true, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(run_at, NOW.plus(rules.verify_interval));
    let (_, lapsed) = concluded((&payment, &effect), Via::Lapsed, &lost());
    assert!(matches!(lapsed, Verdict::Retry { run_at, in_doubt: true, .. } if run_at == NOW));

    effect.in_doubt = true;
    let mut payment = decided.payment;
    for check in 1..=rules.verify_max {
        assert!(payment.pending_verification() && !payment.verification_failed());
        let pending = Outcome::Done(Finding::Payment(remote(RemoteState::Pending)));
        let outcome = if check % 2 == 0 { lost() } else { pending };
        let (decided, verdict) = concluded((&payment, &effect), Via::Asked, &outcome);
        payment = decided.payment.clone();
        let doubt = payment.operation.as_ref().and_then(|o| o.doubt.clone()).expect("a doubt");
        assert_eq!((doubt.checks, doubt.last_check_at), (check, Some(NOW)));
        let last = check == rules.verify_max;
        assert_eq!(matches!(verdict, Verdict::Aborted { in_doubt: true, .. }), last);
        assert_eq!(names(&decided).contains(&"OpenCase".to_owned()), last);
    }
    assert!(!payment.pending_verification() && payment.verification_failed());
    assert_eq!(payment.status, Status::Pending);
}

/// The effect remembers a doubt that the payment does not, when a settlement could not be written whole.
#[test]
fn a_busy_moment_does_not_clear_a_doubt() {
    let rules = PaymentRules::default();
    let Decided { payment, next, .. } = created(&rules);
    let effect = Effect { in_doubt: true, ..next.expect("it is in hand") };
    let (_, verdict) = concluded((&payment, &effect), Via::Sent, &busy(None));
    assert!(matches!(verdict, Verdict::Retry { in_doubt: true, .. }), "{verdict:?}");
}

#[test]
fn a_late_execution_is_undone_and_the_payment_stays_failed() {
    let (payment, effect) = undoing();
    let operation = payment.operation.as_ref().expect("it is under way");
    assert_eq!((operation.kind, operation.effect), (OperationKind::Undo, effect.id));
    assert_eq!(payment.failure.as_ref().map(|r| r.message.as_str()), Some("why it failed"));
    let refund = |state| {
        let gateway_id = "re".to_owned();
        let refund = RemoteRefund { refund_id: None, gateway_id, amount: 100, state };
        Outcome::Done(Finding::Refund(refund))
    };
    for state in [RemoteRefundState::Succeeded, RemoteRefundState::Pending] {
        let (decided, _) = concluded((&payment, &effect), Via::Sent, &refund(state));
        assert!(decided.payment.is_at_rest());
        assert_eq!(decided.payment.status, Status::Failed);
        assert_eq!(audited(&decided), ["payment.compensated"]);
    }
    // Money that could not be given back is still with us: a person must know.
    let (decided, _) =
        concluded((&payment, &effect), Via::Sent, &refund(RemoteRefundState::Failed));
    assert!(decided.payment.verification_failed());
    assert!(names(&decided).contains(&"OpenCase".to_owned()));
    assert_eq!(audited(&decided), ["payment.verification_failed"]);
}

#[test]
fn only_the_end_of_the_money_ends_an_undoing() {
    let rules = PaymentRules::default();
    let (payment, _) = undoing();
    for state in [RemoteState::NotFound, RemoteState::Declined, RemoteState::Pending] {
        assert_eq!(hear(&payment, &remote(state), "webhook", at(&rules)), None, "{state:?}");
    }
    let ended = hear(&payment, &remote(RemoteState::Voided), "webhook", at(&rules));
    assert!(ended.expect("news").payment.is_at_rest());
}

#[test]
fn a_refund_that_comes_back_is_news_once() {
    let rules = PaymentRules::default();
    let all = Wish::Refund { amount: None, reason: None };
    let (payment, _) = begun(&resting(Status::Captured), all);
    let refund_id = Some(payment.refunds[0].id);
    let told = |state| {
        let refund = RemoteRefund { refund_id, gateway_id: "re".into(), amount: 100, state };
        Remote { refunds: Some(vec![refund]), ..remote(RemoteState::Captured) }
    };
    let refunded = hear(&payment, &told(RemoteRefundState::Succeeded), "webhook", at(&rules));
    let refunded = refunded.expect("news");
    assert_eq!(settlements(&refunded), [("payment_refund", LedgerStatus::Succeeded, 200)]);
    let payment = refunded.payment;
    assert_eq!((payment.status, payment.refunded_amount), (Status::Refunded, 100));
    assert_eq!(hear(&payment, &told(RemoteRefundState::Succeeded), "webhook", at(&rules)), None);
    let bounced = hear(&payment, &told(RemoteRefundState::Failed), "webhook", at(&rules));
    let bounced = bounced.expect("news");
    assert!(names(&bounced).contains(&"OpenCase".to_owned()));
    assert_eq!(audited(&bounced), ["payment.refund_bounced"]);
    let again = hear(&bounced.payment, &told(RemoteRefundState::Failed), "webhook", at(&rules));
    assert_eq!(again, None);
}

#[test]
fn an_operation_of_our_own_that_fails_leaves_the_timer_behind() {
    let rules = PaymentRules::default();
    let authorized = resting(Status::Authorized);
    let Ok(Asked::Begun(voiding)) = ask::ask(&authorized, Wish::Void, None, at(&rules)) else {
        panic!("it begins");
    };
    let effect = voiding.next.expect("it is in hand");
    let refused = Outcome::Refused(Reason::new(code::UNAUTHORIZED, "no"));
    let (decided, _) = concluded((&voiding.payment, &effect), Via::Sent, &refused);
    assert_eq!(decided.payment.status, Status::Authorized);
    assert_eq!(audited(&decided), ["payment.refused"]);
    let timer = decided.changes.writes().iter().find_map(|write| match write {
        Write::Enqueue(effect) if effect.kind == EXPIRY_KIND => Some(effect.clone()),
        _ => None,
    });
    let timer = timer.expect("a timer");
    assert_eq!(timer.run_at, NOW.plus(seconds(3600)));
    assert_ne!(timer.key, Some(authorized.id.to_string()), "the first timer's row may be there");
    let payload: Value = serde_json::from_str(&timer.payload).expect("JSON");
    assert_eq!(payload["paymentId"], authorized.id.to_string());
}

#[test]
fn failures_are_told_as_declines_or_as_mistakes() {
    for (code, status) in [
        (code::CARD_DECLINED, 402),
        (code::INSUFFICIENT_FUNDS, 402),
        (code::EXPIRED_CARD, 402),
        (code::INVALID_REQUEST, 400),
        (code::UNAUTHORIZED, 400),
    ] {
        assert_eq!(ask::http_status(code), status, "{code}");
    }
}
