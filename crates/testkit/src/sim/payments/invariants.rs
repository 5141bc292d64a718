//! What must be true of a run, judged in pure functions over what was read.
//!
//! | Rule | Says |
//! |---|---|
//! | nothing is lost | a payment that a client was told of exists, as it was asked for |
//! | nothing is invented | a key has one payment, and the gateway has none that we do not |
//! | at most once | at the gateway: one authorization, one capture, every refund once |
//! | refunds within captures | at the gateway, and in our tables with what is reserved |
//! | refunds add up | what is refunded is the sum of the refunds that succeeded |
//! | failure is true | a failed payment holds no money; see below |
//! | the truth in the end | at rest a payment is what the gateway says, or a person was told |
//! | doubt has an end | what is under way has an effect that is alive, or an open case |
//! | a case waits for its decision | an open case is about something that was given up |
//! | settled stays settled | statuses move along the machine, versions grow |
//! | an authorization is sent once | unless the one before is known to have done nothing |
//! | the same answer for ever | a key has one payment and one ending (see `book`) |
//! | the whole story | the timeline has every version and every transition |
//!
//! # Failure is true
//!
//! With a gateway that keeps its word a failed payment never holds money, at no moment. One that
//! lies (says that it has fenced, and executes nevertheless) makes that impossible; there the money
//! must have been given back when everything is at rest, or a case is open, or the message that told
//! of it is a dead letter.
//!
//! # The truth in the end
//!
//! An authorization may be released at the gateway without anybody telling us: by a fence of ours
//! that arrived late. That is found when it is captured or expires, so it is no violation while its
//! timer runs.
//!
//! A person is told by an open case, or by a dead letter: a webhook that was tried four times and could
//! not be processed, because each time the question to the gateway was lost.

use std::collections::{BTreeMap, BTreeSet};

use tashika_domain::Timestamp;
use tashika_domain::case::{Case, CaseStatus};
use tashika_domain::payment::{CASE_UNKNOWN, Payment, RefundStatus, Status, Subject};
use tashika_domain::webhook;
use tashika_store::EffectRow;
use uuid::Uuid;

use super::account::{Account, State};
use super::book::Entry;
use super::log::Violation;
use super::webhooks::Mail;

/// What was seen of the payments before.
#[derive(Default)]
pub(crate) struct Memory {
    seen: BTreeMap<Uuid, (i64, Status)>,
    /// Payments that have something under way, or were touched since they were looked at.
    hot: BTreeSet<Uuid>,
    epilogue: bool,
    replayed: bool,
    /// Webhooks, in which version and status.
    events: BTreeMap<Uuid, (i64, webhook::Status)>,
}

impl Memory {
    pub fn touch(&mut self, id: Uuid) {
        self.hot.insert(id);
    }

    /// Whether the run has come to rest before; it has now.
    pub fn told_again(&mut self) -> bool {
        std::mem::replace(&mut self.epilogue, true)
    }

    /// Whether the dead letters were processed again before; they are now.
    pub fn replayed(&mut self) -> bool {
        std::mem::replace(&mut self.replayed, true)
    }

    /// Remembers an event; returns how it was before.
    pub fn saw_event(
        &mut self,
        id: Uuid,
        now: (i64, webhook::Status),
    ) -> Option<(i64, webhook::Status)> {
        self.events.insert(id, now)
    }

    /// Some that are worth a look, others each time.
    pub fn hot(&self, turn: u64, most: usize) -> Vec<Uuid> {
        let len = self.hot.len().max(1);
        let skip = usize::try_from(turn).unwrap_or(0).wrapping_mul(most) % len;
        self.hot
            .iter()
            .chain(self.hot.iter())
            .skip(skip)
            .take(most.min(self.hot.len()))
            .copied()
            .collect()
    }
}

/// Everything that is known about one payment at one moment.
pub(crate) struct Evidence<'a> {
    pub id: Uuid,
    pub payment: Option<&'a Payment>,
    pub account: &'a Account,
    /// The key's entry in the book of the clients.
    pub entry: Option<&'a Entry>,
    /// The effects of everything under way.
    pub effects: &'a [EffectRow],
    pub cases: &'a [Case],
    /// The timer that ends the authorization runs.
    pub expires: bool,
    pub liar: bool,
    pub now: Timestamp,
    /// Nothing is under way any more: what became of the webhooks.
    pub mail: Option<&'a Mail>,
}

type Finding = Result<(), (&'static str, String)>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Finding {
    Err((rule, detail.into()))
}

impl Evidence<'_> {
    pub fn judge(&self, memory: &mut Memory) -> Vec<Violation> {
        let findings = match self.payment {
            None => {
                vec![broken("nothing is lost", "a client was told of it, and it is not there")]
            }
            Some(payment) => {
                let findings = vec![
                    self.one_payment_per_key(payment),
                    self.at_most_once(),
                    self.refunds_within_captures(payment),
                    refunds_add_up(payment),
                    self.failure_is_true(payment),
                    self.the_truth_in_the_end(payment),
                    self.doubt_has_an_end(payment),
                    self.cases_wait(payment),
                    settled_stays_settled(payment, memory),
                ];
                if payment.is_at_rest() {
                    memory.hot.remove(&self.id);
                } else {
                    memory.hot.insert(self.id);
                }
                findings
            }
        };
        let violation = |(rule, detail)| Violation { rule, key: self.id.to_string(), detail };
        findings.into_iter().filter_map(Result::err).map(violation).collect()
    }

    const fn at_rest(&self) -> bool {
        self.mail.is_some()
    }

    fn open(&self, kind: Option<&str>) -> bool {
        let of_kind = |case: &Case| kind.is_none_or(|kind| case.kind == kind);
        self.cases.iter().any(|case| case.status == CaseStatus::Open && of_kind(case))
    }

    /// What is not right waits for a person.
    fn somebody_knows(&self) -> bool {
        self.open(None) || self.mail.is_some_and(|mail| mail.dead.contains(&self.id))
    }

    fn one_payment_per_key(&self, payment: &Payment) -> Finding {
        // What is paid on a page was asked for by a reservation.
        if payment.checkout.is_some() {
            return Ok(());
        }
        let Some(entry) = self.entry else {
            return broken("nothing is invented", "nobody asked for it");
        };
        if let Some(told) = entry.payment.filter(|told| *told != self.id) {
            return broken("nothing is invented", format!("its key belongs to {told}"));
        }
        let asked = entry.taken.and_then(|taken| entry.requests.get(taken));
        match asked {
            Some(asked) if asked.body["amount"].as_i64() != Some(payment.request.amount) => {
                broken("nothing is lost", "another amount than was asked for")
            }
            None if self.at_rest() => broken("nothing is invented", "nobody was told of it"),
            _ => Ok(()),
        }
    }

    fn at_most_once(&self) -> Finding {
        const RULE: &str = "at most once";
        let Account { authorizations, captures, refunds, .. } = self.account;
        if *authorizations > 1 || captures.len() > 1 {
            let detail = format!("{authorizations} authorizations, {} captures", captures.len());
            return broken(RULE, detail);
        }
        let ids: BTreeSet<Uuid> = refunds.iter().map(|refund| refund.id).collect();
        if ids.len() < refunds.len() {
            return broken(RULE, "a refund was made twice");
        }
        Ok(())
    }

    fn refunds_within_captures(&self, payment: &Payment) -> Finding {
        const RULE: &str = "refunds within captures";
        let (captured, refunded) = (self.account.captured(), self.account.refunded(self.now));
        if refunded > captured {
            return broken(RULE, format!("the gateway gave back {refunded} of {captured}"));
        }
        if payment.refundable() < 0 {
            return broken(RULE, format!("{} are left", payment.refundable()));
        }
        Ok(())
    }

    fn failure_is_true(&self, payment: &Payment) -> Finding {
        let held = self.account.held(self.now);
        let excused = self.liar && (!self.at_rest() || self.somebody_knows());
        if payment.status == Status::Failed && held > 0 && !excused && !self.undone(payment) {
            return broken("failure is true", format!("the gateway holds {held}"));
        }
        Ok(())
    }

    /// The money is being given back.
    fn undone(&self, payment: &Payment) -> bool {
        self.liar && payment.operation.is_some()
    }

    fn the_truth_in_the_end(&self, payment: &Payment) -> Finding {
        if !self.at_rest() || self.somebody_knows() {
            return Ok(());
        }
        let account = self.account;
        let (captured, refunded) = (account.captured(), account.refunded(self.now));
        let same = match (payment.status, account.state) {
            (Status::Authorized, State::Authorized) | (Status::Refunded, State::Voided) => {
                payment.captured_amount == 0
            }
            (Status::Authorized, State::Voided) => self.expires,
            (Status::Captured | Status::Refunded, State::Captured) => {
                (payment.captured_amount, payment.refunded_amount) == (captured, refunded)
                    && (payment.status == Status::Refunded) == (captured == refunded)
            }
            // Whether it holds no money is another rule.
            (Status::Failed, _) => true,
            _ => false,
        };
        if same && payment.is_at_rest() {
            return Ok(());
        }
        let ours = (payment.status, payment.captured_amount, payment.refunded_amount);
        let theirs = (account.state, captured, refunded);
        broken(
            "the truth in the end",
            format!("here {ours:?}, there {theirs:?}, under way: {:?}", payment.operation),
        )
    }

    fn doubt_has_an_end(&self, payment: &Payment) -> Finding {
        const RULE: &str = "doubt has an end";
        let operation = payment
            .operation
            .iter()
            .map(|o| (Subject::Operation(o.kind), o.effect, o.doubt.as_ref()));
        let refunds = payment
            .refunds
            .iter()
            .enumerate()
            .filter(|(_, r)| r.status == RefundStatus::Pending)
            .map(|(index, r)| (Subject::Refund(index), r.effect, r.doubt.as_ref()));
        for (subject, effect, doubt) in operation.chain(refunds) {
            let alive = self.effects.iter().any(|row| row.id == effect && !row.status.is_settled());
            let given_up = doubt.is_some_and(|doubt| doubt.given_up);
            if given_up && !self.open(Some(CASE_UNKNOWN)) {
                return broken(RULE, format!("{subject:?} was given up, and nobody was asked"));
            }
            if !given_up && !alive {
                return broken(RULE, format!("nobody works on {subject:?}"));
            }
        }
        Ok(())
    }

    fn cases_wait(&self, payment: &Payment) -> Finding {
        if self.open(Some(CASE_UNKNOWN)) && !payment.verification_failed() {
            return broken("a case waits for its decision", "there is nothing to decide");
        }
        Ok(())
    }
}

fn refunds_add_up(payment: &Payment) -> Finding {
    let succeeded = payment.refunds.iter().filter(|r| r.status == RefundStatus::Succeeded);
    let sum: i64 = succeeded.map(|r| r.amount).sum();
    if sum != payment.refunded_amount {
        let refunded = payment.refunded_amount;
        return broken("refunds add up", format!("{refunded} refunded, by rows {sum}"));
    }
    Ok(())
}

fn settled_stays_settled(payment: &Payment, memory: &mut Memory) -> Finding {
    const RULE: &str = "settled stays settled";
    let now = (payment.version, payment.status);
    let Some((version, status)) = memory.seen.insert(payment.id, now) else { return Ok(()) };
    if payment.version < version {
        return broken(RULE, format!("version {version}, then {}", payment.version));
    }
    let moves = match (status, payment.status) {
        (was, is) if was == is => true,
        (Status::Pending, _)
        | (Status::Authorized, Status::Captured | Status::Refunded)
        | (Status::Captured, Status::Refunded) => true,
        _ => false,
    };
    if moves {
        return Ok(());
    }
    broken(RULE, format!("was {}, is {}", status.as_str(), payment.status.as_str()))
}
