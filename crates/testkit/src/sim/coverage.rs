//! Which transitions of which state machines a run has taken.
//!
//! What is legal comes from the domain's own functions, state by state and event by event, in the words
//! of `docs/states/*.md`. What was taken is read off the committed changes: a row that was in one state
//! and is in another has taken the event between them. Where two events lead the same way, the change
//! itself tells which it was. A claim is not a change of this kind: an effect that is settled has been
//! claimed, and one that had failed has waited before.

use std::collections::BTreeMap;

use serde_json::Value;
use tashika_domain::billing::Billing;
use tashika_domain::changes::{PaymentLine, Settle};
use tashika_domain::effect::{self, EffectId, Verdict};
use tashika_domain::mail::batch::{self, Batch, BatchEvent, BatchStatus, Work};
use tashika_domain::mail::conclude::is_of_the_lane;
use tashika_domain::mail::{self, Delivery, MailFault};
use tashika_domain::message::{self, Message};
use tashika_domain::payment::{self, Payment};
use tashika_domain::render::{self, Render};
use tashika_domain::reservation::Reservation;
use tashika_domain::reservation::status as booking;
use tashika_domain::{Changes, Status, Write, billing};
use uuid::Uuid;

/// The machines of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    Effect,
    Payment,
    Message,
    Mail,
    MailBatch,
    Reservation,
    Render,
    Billing,
}

impl Machine {
    pub const ALL: [Self; 8] = [
        Self::Effect,
        Self::Payment,
        Self::Message,
        Self::Mail,
        Self::MailBatch,
        Self::Reservation,
        Self::Render,
        Self::Billing,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Payment => "payment",
            Self::Message => "message",
            Self::Mail => "mail",
            Self::MailBatch => "mail batch",
            Self::Reservation => "reservation",
            Self::Render => "render",
            Self::Billing => "billing",
        }
    }

    /// Every legal transition, as the domain has it.
    #[must_use]
    pub fn legal(self) -> Vec<String> {
        /// Every state with every event, where that leads somewhere.
        macro_rules! table {
            ($states:expr, $events:expr, $next:expr) => {{
                let mut lines = Vec::new();
                for state in $states {
                    for event in $events {
                        if let Ok(to) = $next(state, event) {
                            lines.push(line(state.as_str(), event, to.as_str()));
                        }
                    }
                }
                lines
            }};
        }
        match self {
            Self::Effect => table!(Status::ALL, effect::Event::ALL, effect::next),
            Self::Payment => {
                table!(payment::Status::ALL, payment::status::Event::ALL, payment::status::next)
            }
            Self::Message => table!(message::State::ALL, message::Event::ALL, message::next),
            Self::Mail => table!(mail::Status::ALL, mail::Event::ALL, mail::next),
            Self::MailBatch => table!(BatchStatus::ALL, BatchEvent::ALL, batch::next),
            Self::Render => table!(render::State::ALL, render::Event::ALL, render::next),
            Self::Reservation => reservations(),
            Self::Billing => billings(),
        }
    }
}

fn line(from: &str, event: impl std::fmt::Debug, to: &str) -> String {
    format!("{from} --{event:?}--> {to}")
}

/// A hold whose time is over stands as expired, whether or not anybody has written that down.
const OVERDUE: &str = "hold past its time";

/// What is refused is no transition, and what changes nothing and asks for nothing is none either.
fn reservations() -> Vec<String> {
    let mut lines = Vec::new();
    for (name, standing) in [
        ("hold", booking::Status::Hold),
        (OVERDUE, booking::Status::Expired),
        ("confirmed", booking::Status::Confirmed),
        ("expired", booking::Status::Expired),
        ("cancelled", booking::Status::Cancelled),
    ] {
        for event in booking::Event::ALL {
            if let Ok((to, duty)) = booking::next(standing, event)
                && (to.as_str() != name || duty != booking::Duty::Nothing)
            {
                lines.push(line(name, event, to.as_str()));
            }
        }
    }
    lines
}

fn billings() -> Vec<String> {
    let mut lines = Vec::new();
    for state in billing::Status::ALL {
        for event in billing::Event::ALL {
            let to = billing::next(state, event);
            if to != state {
                lines.push(line(state.as_str(), event, to.as_str()));
            }
        }
    }
    lines
}

/// What was taken, and how often.
pub type Taken = BTreeMap<(Machine, String), u64>;

/// Follows the rows of a run through their states.
#[derive(Default)]
pub(crate) struct Coverage {
    pub taken: Taken,
    effects: BTreeMap<EffectId, Status>,
    payments: BTreeMap<Uuid, payment::Status>,
    messages: BTreeMap<Uuid, message::State>,
    mails: BTreeMap<Uuid, Box<Delivery>>,
    batches: BTreeMap<Uuid, Box<Batch>>,
    renders: BTreeMap<Uuid, Box<Render>>,
    reservations: BTreeMap<Uuid, Box<Reservation>>,
    billings: BTreeMap<Uuid, billing::Status>,
}

impl Coverage {
    fn take(&mut self, machine: Machine, from: &str, event: impl std::fmt::Debug, to: &str) {
        *self.taken.entry((machine, line(from, event, to))).or_default() += 1;
    }

    /// Changes were committed.
    pub fn observe(&mut self, changes: &Changes) {
        for write in changes.writes() {
            match write {
                Write::Enqueue(new) => {
                    let born =
                        if new.held_by.is_some() { Status::Sending } else { Status::Pending };
                    self.effects.insert(new.id, born);
                }
                Write::Settle(settle) => self.settled(settle),
                Write::Release(release) => {
                    self.claimed(release.lease.id);
                    self.effect(release.lease.id, effect::Event::Release);
                }
                Write::Requeue(wish) => self.effect(wish.id, effect::Event::Requeue),
                Write::Withdraw(end) => self.effect(end.id, effect::Event::GiveUp),
                Write::PaymentInsert(new) => self.payment_is(new),
                Write::PaymentUpdate(after) => {
                    self.payment_lines(after, changes);
                    self.payment_is(after);
                }
                Write::MessageInsert(new) => {
                    self.messages.insert(new.id, new.state);
                }
                Write::MessageUpdate(after) => self.message(after),
                Write::MailInsert(new) => {
                    self.mails.insert(new.id, new.clone());
                }
                Write::MailUpdate(after) => self.mail(after),
                Write::MailBatchInsert(new) => {
                    self.batches.insert(new.id, new.clone());
                }
                Write::MailBatchUpdate(after) => self.batch(after),
                Write::RenderInsert(new) => {
                    self.renders.insert(new.id, new.clone());
                }
                Write::RenderUpdate(after) => self.render(after),
                Write::ReservationInsert(new) => {
                    self.reservations.insert(new.id, new.clone());
                }
                Write::ReservationUpdate(after) => self.reservation(after, changes),
                Write::BillingInsert(new) => {
                    self.billings.insert(new.id, new.status);
                }
                Write::BillingUpdate(after) => self.billing(after, changes),
                _ => {}
            }
        }
    }

    /// What happens to an effect, if the machine has it; a withdrawal may find it elsewhere.
    fn effect(&mut self, id: EffectId, event: effect::Event) {
        let Some(from) = self.effects.get(&id).copied() else { return };
        if let Ok(to) = effect::next(from, event) {
            self.take(Machine::Effect, from.as_str(), event, to.as_str());
            self.effects.insert(id, to);
        }
    }

    /// Whoever writes about an effect under a lease has claimed it, when its backoff had passed.
    fn claimed(&mut self, id: EffectId) {
        self.effect(id, effect::Event::BackoffElapsed);
        self.effect(id, effect::Event::Claim);
    }

    fn settled(&mut self, settle: &Settle) {
        let (id, lapsed) = (settle.lease.id, settle.unheard_since.is_some());
        self.claimed(id);
        match settle.verdict {
            Verdict::Succeeded => self.effect(id, effect::Event::Succeed),
            Verdict::Retry { .. } if lapsed => self.effect(id, effect::Event::Lapse),
            Verdict::Retry { .. } => self.effect(id, effect::Event::Fail),
            Verdict::Aborted { .. } => {
                if lapsed {
                    self.effect(id, effect::Event::Lapse);
                }
                self.effect(id, effect::Event::GiveUp);
            }
        }
    }

    fn payment_is(&mut self, payment: &Payment) {
        self.payments.insert(payment.id, payment.status);
    }

    /// The timeline of a payment names the events.
    fn payment_lines(&mut self, payment: &Payment, changes: &Changes) {
        let Some(mut state) = self.payments.get(&payment.id).copied() else { return };
        for write in changes.writes() {
            let Write::PaymentLine(PaymentLine { payment_id, kind: "transition", entry, .. }) =
                write
            else {
                continue;
            };
            let entry: Value = serde_json::from_str(entry).unwrap_or_default();
            let named = |event: &payment::status::Event| entry["event"] == format!("{event:?}");
            let event = payment::status::Event::ALL.into_iter().find(named);
            let next = event.and_then(|event| payment::status::next(state, event).ok());
            if let Some((event, to)) = event.zip(next).filter(|_| *payment_id == payment.id) {
                self.take(Machine::Payment, state.as_str(), event, to.as_str());
                state = to;
            }
        }
    }

    fn message(&mut self, after: &Message) {
        let Some(from) = self.messages.insert(after.id, after.state) else { return };
        let to = after.state;
        // Each way has one event.
        let by = |event: &message::Event| message::next(from, *event).is_ok_and(|s| s == to);
        if let Some(event) = message::Event::ALL.into_iter().find(by) {
            self.take(Machine::Message, from.as_str(), event, to.as_str());
        }
    }

    fn mail(&mut self, after: &Delivery) {
        let Some(before) = self.mails.insert(after.id, Box::new(after.clone())) else { return };
        let (from, to) = (before.status, after.status);
        if from == to && !is_retry(&before, after) {
            return;
        }
        // Each way has one event.
        let by = |event: &mail::Event| mail::next(from, *event).is_ok_and(|status| status == to);
        if let Some(event) = mail::Event::ALL.into_iter().find(by) {
            self.take(Machine::Mail, from.as_str(), event, to.as_str());
        }
    }

    fn batch(&mut self, after: &Batch) {
        let Some(before) = self.batches.insert(after.id, Box::new(after.clone())) else { return };
        let (from, to) = (before.status, after.status);
        // The driver writes about its own progress, too.
        let new_wish = after.run > before.run && matches!(after.work, Work::Reopen { .. });
        if from == to && from == BatchStatus::Accepted && !new_wish {
            return;
        }
        let by = |event: &BatchEvent| batch::next(from, *event).is_ok_and(|status| status == to);
        if let Some(event) = BatchEvent::ALL.into_iter().find(by) {
            self.take(Machine::MailBatch, from.as_str(), event, to.as_str());
        }
    }

    fn render(&mut self, after: &Render) {
        use render::{Event, State, Why};
        let Some(before) = self.renders.insert(after.id, Box::new(after.clone())) else { return };
        let (from, to) = (before.state(), after.state());
        let event = match (from, to) {
            (State::Queued, State::Processing) if after.is_in_doubt() => Event::Doubt,
            (State::Queued, State::Processing) => Event::Submit,
            (State::Processing, State::Processing)
                if before.is_in_doubt() && !after.is_in_doubt() =>
            {
                Event::Submit
            }
            // A person says so without the provider's word: there is no address, or it is the person's.
            (State::Failed, State::Done) if before.provider_id == after.provider_id => {
                if after.error.is_some() { Event::Resolve } else { Event::Finish }
            }
            (_, State::Done) if from != State::Done => Event::Finish,
            (State::Failed, State::Queued) => Event::Retry,
            (State::Queued | State::Processing, State::Queued) if after.step > before.step => {
                Event::TryAgain
            }
            (State::Queued | State::Processing, State::Failed) => Event::Exhaust,
            (_, State::Closed) if from != State::Closed => match after.closed {
                Some((_, Why::GivenUp)) => Event::GiveUp,
                _ => Event::Cancel,
            },
            _ => return,
        };
        self.take(Machine::Render, from.as_str(), event, to.as_str());
    }

    /// The audit line of a change names the event; money that comes too late changes no status, and has
    /// a line of its own.
    fn reservation(&mut self, after: &Reservation, changes: &Changes) {
        let before = self.reservations.insert(after.id, Box::new(after.clone()));
        let Some(before) = before else { return };
        let id = after.id.to_string();
        for write in changes.writes() {
            let Write::Audit(audit) = write else { continue };
            if audit.target_id != id {
                continue;
            }
            let details: Value = serde_json::from_str(&audit.details).unwrap_or_default();
            let named = |event: &booking::Event| details["event"] == format!("{event:?}");
            let late = audit.action.ends_with("_reservation_refunded");
            let event = match booking::Event::ALL.into_iter().find(named) {
                None if late && before.status == after.status => booking::Event::Paid,
                None => continue,
                Some(event) => event,
            };
            let overdue = before.status == booking::Status::Hold
                && before.standing(after.updated_at) == booking::Status::Expired;
            let from = if overdue { OVERDUE } else { before.status.as_str() };
            self.take(Machine::Reservation, from, event, after.status.as_str());
        }
    }

    /// Two events may lead the same way; the action of the audit line tells which it was.
    fn billing(&mut self, after: &Billing, changes: &Changes) {
        let Some(from) = self.billings.insert(after.id, after.status) else { return };
        let to = after.status;
        let is_line = |action: &str| {
            changes
                .writes()
                .iter()
                .any(|w| matches!(w, Write::Audit(line) if line.action == action))
        };
        let by =
            |event: &billing::Event| billing::next(from, *event) == to && is_line(event.action());
        if let Some(event) = billing::Event::ALL.into_iter().find(by).filter(|_| from != to) {
            self.take(Machine::Billing, from.as_str(), event, to.as_str());
        }
    }
}

/// An attempt failed, its process is gone: there will be another. What the lane is to blame for is no
/// attempt, and neither is the mark of one that begins.
fn is_retry(before: &Delivery, after: &Delivery) -> bool {
    let class = after.fault.as_ref().map(|fault| fault.class.as_str());
    let of_the_lane = [MailFault::Throttled, MailFault::Quota, MailFault::Configuration]
        .into_iter()
        .any(|fault| is_of_the_lane(fault) && class == Some(fault.as_str()));
    let (was, is) = (before.status, after.status);
    was == mail::Status::Queued
        && was == is
        && after.sending.is_none()
        && after.history.len() + after.attempts as usize
            > before.history.len() + before.attempts as usize
        && !of_the_lane
}

/// Adds up what several runs have taken.
pub(crate) fn add(total: &mut Taken, taken: &Taken) {
    for (line, count) in taken {
        *total.entry(line.clone()).or_default() += count;
    }
}

/// What was taken of a machine and what was not, for people.
pub(crate) fn print(taken: &Taken, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    for machine in Machine::ALL {
        let legal = machine.legal();
        let count = |line: &String| taken.get(&(machine, line.clone())).copied().unwrap_or(0);
        let covered = legal.iter().filter(|line| count(line) > 0).count();
        writeln!(out, "{}: {covered} of {} transitions taken", machine.as_str(), legal.len())?;
        for line in &legal {
            match count(line) {
                0 => writeln!(out, "      never  {line}")?,
                times => writeln!(out, "  {times:>9}  {line}")?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_are_those_of_the_documents() {
        let documents = [
            (Machine::Effect, include_str!("../../../../docs/states/effect.md")),
            (Machine::Payment, include_str!("../../../../docs/states/payment.md")),
            (Machine::Message, include_str!("../../../../docs/states/message.md")),
            (Machine::Mail, include_str!("../../../../docs/states/mail.md")),
            (Machine::MailBatch, include_str!("../../../../docs/states/mail.md")),
            (Machine::Reservation, include_str!("../../../../docs/states/reservation.md")),
            (Machine::Render, include_str!("../../../../docs/states/render.md")),
            (Machine::Billing, include_str!("../../../../docs/states/billing.md")),
        ];
        for (machine, document) in documents {
            let documented: Vec<&str> = document
                .lines()
                .filter(|line| line.contains("-->"))
                .map(|line| line.split(" (").next().unwrap_or(line))
                .collect();
            for line in machine.legal() {
                assert!(documented.contains(&line.as_str()), "{machine:?}: {line}");
            }
        }
    }
}
