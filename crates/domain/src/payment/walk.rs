//! Every state that a payment can get into, reached by trying everything that can happen in every state.
//!
//! The memory of the walk is what a store would hold: the payment, the effects that are alive, the ledger, the case. After
//! each step it is looked at as a whole: nothing is under way without somebody to go on with it, no key is settled
//! twice, nothing is given up without a person to ask, and no amount is out of bounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use uuid::Uuid;

use super::ask::{self, Asked, Origin, Refusal, Wish};
use super::conclude::{Finding, Heard, Via, asked_by_hand, conclude, prepared};
use super::hear::hear;
use super::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState};
use super::resolve::{Resolution, resolve};
use super::*;
use crate::changes::{Changes, Write};
use crate::effect::{Effect, Verdict};
use crate::ledger::{LedgerKey, LedgerStatus};
use crate::outcome::{Exchange, Outcome};

const STATES: [RemoteState; 6] = [
    RemoteState::NotFound,
    RemoteState::Pending,
    RemoteState::Authorized,
    RemoteState::Captured,
    RemoteState::Voided,
    RemoteState::Declined,
];

fn rules() -> PaymentRules {
    let (verify_max, second) = (1, Duration::from_secs(1));
    PaymentRules { verify_max, retry_backoff: vec![second], ..PaymentRules::default() }
}

/// What a store would hold.
#[derive(Clone, Debug)]
struct Memory {
    payment: Payment,
    /// Of the gateway's lane: failures so far, and doubt.
    effects: BTreeMap<EffectId, Effect>,
    timers: BTreeSet<String>,
    ledger: BTreeMap<LedgerKey, LedgerStatus>,
    case: bool,
    keys: u32,
    now: Timestamp,
    path: Vec<String>,
}

impl Memory {
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\nafter {:#?}\n{:#?}", self.path, self)
    }

    fn insist(&self, holds: bool, otherwise: &str) {
        if !holds {
            self.fail(otherwise);
        }
    }

    fn write(&mut self, changes: &Changes, decided: Option<&Payment>) {
        let mut refunds = self.payment.refunds.clone();
        for write in changes.writes() {
            match write {
                Write::LedgerAccept(entry) => {
                    let before = self.ledger.insert(entry.key.clone(), LedgerStatus::Accepted);
                    self.insist(before.is_none(), "a key is accepted twice");
                }
                Write::LedgerSettle(end) => {
                    let before = self.ledger.insert(end.key.clone(), end.status);
                    if before != Some(LedgerStatus::Accepted) {
                        self.fail("a key is settled that is not open");
                    }
                }
                Write::PaymentUpdate(next) => {
                    if next.version != self.payment.version + 1 {
                        self.fail("a version is left out");
                    }
                    self.payment = (**next).clone();
                }
                Write::RefundInsert(refund) => refunds.push((**refund).clone()),
                Write::RefundUpdate(refund) => {
                    let known = refunds.iter_mut().find(|known| known.id == refund.id);
                    *known.expect("a refund that exists") = (**refund).clone();
                }
                Write::Enqueue(effect) if effect.kind == KIND => {
                    let mut hand = effect.clone();
                    hand.held_by = Some(String::new());
                    self.effects.insert(effect.id, hand.in_hand().expect("it is in hand"));
                }
                Write::Enqueue(effect) => {
                    let free = self.timers.insert(effect.key.clone().expect("a timer has a key"));
                    self.insist(free, "a timer's key is taken");
                }
                Write::OpenCase(case) => self.case |= case.kind == CASE_UNKNOWN,
                Write::ResolveCase(_) => self.case = false,
                _ => {}
            }
        }
        self.payment.refunds = refunds;
        if decided.is_some_and(|decided| *decided != self.payment) {
            self.fail("what is written is not what was decided");
        }
    }

    fn check(&self) {
        let payment = &self.payment;
        let mut subjects = Vec::new();
        if let Some(operation) = &payment.operation {
            let given_up = operation.doubt.as_ref().is_some_and(|doubt| doubt.given_up);
            subjects.push((operation.effect, given_up));
            let fits = match operation.kind {
                OperationKind::Authorize | OperationKind::Checkout => {
                    payment.status == Status::Pending
                }
                OperationKind::Capture | OperationKind::Void => {
                    payment.status == Status::Authorized
                }
                OperationKind::Undo => payment.status == Status::Failed,
            };
            if !fits {
                self.fail("an operation that does not fit its payment");
            }
        } else if payment.status == Status::Pending {
            self.fail("pending, and nobody does anything about it");
        } else if payment.status == Status::Authorized && self.timers.is_empty() {
            self.fail("authorized, and nobody will release it");
        }
        for refund in payment.refunds.iter().filter(|r| r.status == RefundStatus::Pending) {
            let given_up = refund.doubt.as_ref().is_some_and(|doubt| doubt.given_up);
            subjects.push((refund.effect, given_up));
        }
        for (effect, given_up) in subjects {
            if !given_up && !self.effects.contains_key(&effect) {
                self.fail("under way, and nobody goes on with it");
            }
        }
        if payment.verification_failed() != self.case {
            self.fail("given up without a case, or a case about nothing");
        }
        let amounts = payment.captured_amount <= payment.request.amount
            && payment.refunded_amount + payment.refunding_amount() <= payment.captured_amount;
        if !amounts {
            self.fail("amounts");
        }
        if payment.is_at_rest() && self.ledger.values().any(|s| *s == LedgerStatus::Accepted) {
            self.fail("everything has ended, and a key was not told");
        }
    }

    /// What tells this state from others, without ids, times and what is over.
    fn signature(&self) -> String {
        let payment = &self.payment;
        let doubt = |doubt: &Option<Doubt>| doubt.as_ref().map(|d| (d.checks, d.given_up));
        let operation = payment.operation.as_ref();
        let operation = operation.map(|o| (o.kind, o.amount, o.key.is_some(), doubt(&o.doubt)));
        let refunds: Vec<_> =
            payment.refunds.iter().map(|r| (r.amount, r.status, doubt(&r.doubt))).collect();
        let effects: Vec<_> = self
            .effects
            .values()
            .map(|e| (payment.subject_of(e.id), e.attempts.min(1), e.in_doubt))
            .collect();
        format!(
            "{:?} {} {} {operation:?} {refunds:?} {effects:?} {} {}",
            payment.status,
            payment.captured_amount,
            payment.gateway_transaction_id.is_some(),
            self.timers.len().min(2),
            self.case,
        )
    }

    fn then(&self, what: String, step: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        next.path.push(what);
        next.now = next.now.plus(Duration::from_secs(1));
        step(&mut next);
        next.check();
        // What has ended by other means ends without a word when its turn comes.
        let payment = &next.payment;
        next.effects.retain(|id, _| payment.subject_of(*id).is_some());
        next
    }
}

fn remotes(payment: &Payment) -> Vec<Remote> {
    let refund = |refund: &Refund, state| RemoteRefund {
        refund_id: Some(refund.id),
        gateway_id: "re_1".into(),
        amount: refund.amount,
        state,
    };
    let mut all = Vec::new();
    for state in STATES {
        let captured = if state == RemoteState::Captured { 60 } else { 0 };
        let gateway_id = Some("pi_1".to_owned());
        let plain = Remote { state, gateway_id, captured, refunds: None, reason: None };
        if state == RemoteState::Captured {
            for state in [RemoteRefundState::Succeeded, RemoteRefundState::Failed] {
                let listed = payment.refunds.iter().map(|r| refund(r, state)).collect();
                all.push(Remote { refunds: Some(listed), ..plain.clone() });
            }
            all.push(Remote { refunds: Some(Vec::new()), ..plain.clone() });
        }
        all.push(plain);
    }
    all
}

fn outcomes(payment: &Payment, subject: Subject, via: Via) -> Vec<Outcome<Finding>> {
    let reason = Reason::new("X", "x");
    let mut all = vec![Outcome::Lost(reason.clone())];
    if via == Via::Lapsed {
        return all;
    }
    all.push(Outcome::Refused(reason.clone()));
    all.push(Outcome::Busy { reason, retry_in: None });
    let refunding = match subject {
        Subject::Refund(index) => Some(Some(payment.refunds[index].id)),
        Subject::Operation(OperationKind::Undo) => Some(None),
        Subject::Operation(_) => None,
    };
    if via == Via::Asked || !matches!(subject, Subject::Refund(_)) {
        all.extend(remotes(payment).into_iter().map(|r| Outcome::Done(Finding::Payment(r))));
    }
    if via == Via::Asked && subject == Subject::Operation(OperationKind::Authorize) {
        all.push(Outcome::Done(Finding::FencedOff));
    }
    if let Some(refund_id) = refunding.filter(|_| via == Via::Sent) {
        use RemoteRefundState::{Failed, Pending, Succeeded};
        for state in [Pending, Succeeded, Failed] {
            let gateway_id = "re_1".to_owned();
            let refund = RemoteRefund { refund_id, gateway_id, amount: 60, state };
            all.push(Outcome::Done(Finding::Refund(refund)));
        }
    }
    all
}

/// Everything that can happen next.
fn steps(memory: &Memory, rules: &PaymentRules) -> Vec<Memory> {
    let mut all = Vec::new();
    attempts(memory, rules, &mut all);
    messages(memory, rules, &mut all);
    wishes(memory, rules, &mut all);
    all
}

fn attempts(memory: &Memory, rules: &PaymentRules, all: &mut Vec<Memory>) {
    let exchange = Exchange::default();
    for effect in memory.effects.values() {
        let at = |now| At { now, rules, worker: None };
        let subject = memory.payment.subject_of(effect.id).expect("it is alive");
        let authorizing = subject == Subject::Operation(OperationKind::Authorize);
        let in_doubt = effect.in_doubt || memory.payment.doubt_of(subject).is_some();
        if authorizing && !in_doubt {
            all.push(memory.then("prepared".to_owned(), |next| {
                let decided = prepared(&memory.payment, effect.id, "pi_1", &exchange, at(next.now));
                let decided = decided.expect("it is under way");
                next.write(&decided.changes, Some(&decided.payment));
            }));
        }
        for via in [Via::Sent, Via::Asked, Via::Lapsed] {
            // An authorization in doubt is not sent; what is certain is not asked about.
            if (via == Via::Sent && authorizing && in_doubt) || (via == Via::Asked && !in_doubt) {
                continue;
            }
            for outcome in outcomes(&memory.payment, subject, via) {
                all.push(memory.then(format!("{subject:?} {via:?} {outcome:?}"), |next| {
                    let began_at = next.now;
                    let heard =
                        Heard { via, outcome: &outcome, exchange: None, checked: None, began_at };
                    let (decided, verdict) =
                        conclude(&memory.payment, effect, &heard, at(next.now)).expect("a subject");
                    next.write(&decided.changes, Some(&decided.payment));
                    match verdict {
                        Verdict::Retry { in_doubt, .. } => {
                            let known = next.effects.get_mut(&effect.id).expect("it is alive");
                            known.attempts += 1;
                            if known.in_doubt && !in_doubt {
                                memory.fail("a doubt is forgotten");
                            }
                            known.in_doubt = in_doubt;
                        }
                        Verdict::Succeeded | Verdict::Aborted { .. } => {
                            next.effects.remove(&effect.id);
                        }
                    }
                }));
            }
        }
    }
}

fn messages(memory: &Memory, rules: &PaymentRules, all: &mut Vec<Memory>) {
    let payment = &memory.payment;
    for remote in remotes(payment) {
        let now = memory.now.plus(Duration::from_secs(1));
        let at = At { now, rules, worker: None };
        let Some(decided) = hear(payment, &remote, "webhook", at) else { continue };
        let next = memory.then(format!("heard {remote:?}"), |next| {
            next.write(&decided.changes, Some(&decided.payment));
        });
        if let Some(again) = hear(&next.payment, &remote, "webhook", at)
            && next.payment.operation.is_none()
            && again.payment.operation.is_none()
        {
            next.fail("the same message changes something again");
        }
        all.push(next);
    }
    for (subject, _) in payment.doubts() {
        for outcome in outcomes(payment, subject, Via::Asked) {
            all.push(memory.then(format!("by hand {subject:?} {outcome:?}"), |next| {
                let (via, began_at) = (Via::Asked, next.now);
                let at = At { now: next.now, rules, worker: None };
                let outcome = &outcome;
                let heard = Heard { via, outcome, exchange: None, checked: None, began_at };
                let decided = asked_by_hand(payment, subject, &heard, at);
                next.write(&decided.changes, Some(&decided.payment));
            }));
        }
    }
    for resolution in [Resolution::Charged, Resolution::NotCharged, Resolution::Refunded] {
        let now = memory.now.plus(Duration::from_secs(1));
        let at = At { now, rules, worker: None };
        if let Ok(decided) = resolve(payment, resolution, "n", "w", at) {
            all.push(memory.then(format!("a person: {resolution:?}"), |next| {
                next.write(&decided.changes, Some(&decided.payment));
            }));
        }
    }
}

fn wishes(memory: &Memory, rules: &PaymentRules, all: &mut Vec<Memory>) {
    let payment = &memory.payment;
    let reason = None;
    let mut wishes =
        vec![Wish::Capture { amount: None }, Wish::Capture { amount: Some(60) }, Wish::Void];
    // Two refunds show whatever more of them would.
    if payment.refunds.len() < 2 {
        wishes.push(Wish::Refund { amount: None, reason: reason.clone() });
        wishes.push(Wish::Refund { amount: Some(30), reason });
    }
    for wish in wishes {
        let mut next = memory.clone();
        next.keys += 1;
        let key = RequestKey { key: format!("w-{}", next.keys), digest: "d".into() };
        let now = memory.now.plus(Duration::from_secs(1));
        let at = At { now, rules, worker: None };
        match ask::ask(payment, wish.clone(), Some(key), at) {
            Ok(Asked::Begun(decided)) => all.push(next.then(format!("{wish:?}"), |next| {
                next.write(&decided.changes, Some(&decided.payment));
            })),
            Ok(Asked::Already(changes)) => {
                next.then(format!("{wish:?} already"), |next| next.write(&changes, None));
            }
            Err(_) => {}
        }
    }
    if let Some(timer) = memory.timers.first() {
        let now = memory.now.plus(Duration::from_secs(1));
        let rang = ask::ask(payment, Wish::Void, None, At { now, rules, worker: None });
        if !matches!(rang, Err(Refusal::UnderWay)) {
            all.push(memory.then("the timer".to_owned(), |next| {
                next.timers.remove(timer);
                if let Ok(Asked::Begun(decided)) = rang {
                    next.write(&decided.changes, Some(&decided.payment));
                }
            }));
        }
    }
}

fn birth(capture: CaptureMode, rules: &PaymentRules) -> Memory {
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let request = PaymentRequest {
        booking_id: "b".into(),
        user_id: "u".into(),
        amount: 100,
        currency: "EUR".into(),
        payment_method: "pm".into(),
        customer: None,
        description: None,
        capture,
    };
    let origin = Origin {
        id: Uuid::from_u128(1),
        key: RequestKey { key: "k".into(), digest: "d".into() },
        gateway: "g".into(),
        traceparent: None,
    };
    let decided = ask::create(request, origin, At { now, rules, worker: None });
    let mut memory = Memory {
        payment: decided.payment.clone(),
        effects: BTreeMap::new(),
        timers: BTreeSet::new(),
        ledger: BTreeMap::new(),
        case: false,
        keys: 0,
        now,
        path: Vec::new(),
    };
    memory.write(&decided.changes, Some(&decided.payment));
    memory.check();
    memory
}

#[test]
fn whatever_happens_somebody_goes_on_with_it() {
    let rules = rules();
    for capture in [CaptureMode::Manual, CaptureMode::Automatic] {
        let mut seen = BTreeSet::new();
        let mut waiting = VecDeque::from([birth(capture, &rules)]);
        while let Some(memory) = waiting.pop_front() {
            for next in steps(&memory, &rules) {
                if seen.insert(next.signature()) {
                    waiting.push_back(next);
                }
            }
        }
        println!("{capture:?}: {} states", seen.len());
        assert!(seen.len() > 300, "the walk is shorter than the machine: {}", seen.len());
    }
}
