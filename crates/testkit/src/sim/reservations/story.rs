//! Whether what is written down tells how everything got where it is: the audit of reservations and
//! renders, the letters, and the races.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::audit::Audit;
use tashika_domain::payment::Payment;
use tashika_domain::render::{self, Event as RenderEvent, Render, State};
use tashika_domain::reservation::status::{self, Event};
use tashika_domain::reservation::{self, Reservation, Status};
use tashika_domain::{EffectId, Lane, Timestamp};
use tashika_store::{AuditFilter, StoreError};
use uuid::Uuid;

use super::process::Process;
use super::tally::Tally;

/// More rows than any run has.
const ALL: i64 = 1_000_000;
const STORY: &str = "the whole story";
const TOLD: &str = "everybody is told";

/// Why money went back, as the timelines of payments say, with the letter and the race that go with it.
const CAUSES: [(&str, Option<&str>, &[&str], Tally); 3] = [
    (
        "paid after the hold's end",
        Some("reservation-expired-refunded"),
        &["EXPIRED_AFTER_PAYMENT", "SLOT_CONFLICT"],
        Tally::TookPaidWhenExpired,
    ),
    (
        "the render was given up",
        Some("render-failed-refunded"),
        &["RENDER_FAILURE"],
        Tally::TookGiveUp,
    ),
    ("paid after it had been cancelled", None, &["DUPLICATE_CANCEL"], Tally::TookPaidWhenCancelled),
];

/// The letters about each reservation, by template.
pub(crate) type Letters = BTreeMap<(Uuid, String), usize>;

impl Process {
    async fn audit_of(&self, kind: &str, id: Uuid) -> Result<Vec<Audit>, StoreError> {
        let filter = AuditFilter {
            target_type: Some(kind.to_owned()),
            target_id: Some(id.to_string()),
            ..AuditFilter::default()
        };
        let mut lines = self.store.audit_logs(&filter, ALL).await?;
        lines.sort_by_key(|line| line.created_at);
        Ok(lines)
    }

    /// The audit leads from the hold to where the reservation is. No status comes twice, so each is left
    /// by one line.
    pub async fn story_of(&self, reservation: &Reservation) -> Result<(), StoreError> {
        let id = reservation.id.to_string();
        let mut steps: BTreeMap<Status, (Event, Status)> = BTreeMap::new();
        for line in self.audit_of(reservation::KIND, reservation.id).await? {
            let details: Value = serde_json::from_str(&line.details).unwrap_or_default();
            let named = |name: &str| details[name].as_str().and_then(Status::parse);
            let Some((from, to)) = named("from").zip(named("to")) else { continue };
            let event = Event::ALL.into_iter().find(|e| details["event"] == format!("{e:?}"));
            let Some(event) = event else {
                self.broken(STORY, &id, &format!("{} has no event", line.details));
                continue;
            };
            if steps.insert(from, (event, to)).is_some() {
                self.broken(STORY, &id, &format!("it has left {} twice", from.as_str()));
            }
        }
        let mut at = Status::Hold;
        while let Some((event, to)) = steps.remove(&at) {
            // A hold past its time counts as expired.
            let legal = |standing| status::next(standing, event).is_ok_and(|(next, _)| next == to);
            let late = at == Status::Hold && legal(Status::Expired);
            if !legal(at) && !late {
                let detail = format!("{} --{event:?}--> {} is no step", at.as_str(), to.as_str());
                self.broken(STORY, &id, &detail);
            }
            self.count_step(at, event, to);
            at = to;
        }
        if at != reservation.status || !steps.is_empty() {
            let (told, is) = (at.as_str(), reservation.status.as_str());
            self.broken(STORY, &id, &format!("it is told to be {told}, it is {is}; {steps:?}"));
        }
        Ok(())
    }

    fn count_step(&self, from: Status, event: Event, to: Status) {
        let tally = match (from, event, to) {
            (_, Event::Reclaimed, _) => Tally::TookReclaimed,
            (_, Event::Paid, Status::Confirmed) => Tally::TookPaid,
            (_, Event::Deadline, _) => Tally::TookDeadline,
            (Status::Hold, Event::Cancel, _) => Tally::TookCancelOfHold,
            (_, Event::Cancel, _) => Tally::TookCancelOfConfirmed,
            // Counted with the money that went back.
            (_, Event::Paid | Event::GiveUp, _) => return,
        };
        self.scene.log.count(tally);
    }

    /// The audit of a render is a walk through its machine.
    pub async fn story_of_render(&self, render: &Render) -> Result<(), StoreError> {
        let id = render.id.to_string();
        let mut events = Vec::new();
        for line in self.audit_of(render::KIND, render.id).await? {
            if line.action == "render.late" {
                self.scene.log.count(Tally::RenderLate);
            }
            events.extend(event_of(&line.action).map(|event| (line.created_at, event)));
        }
        // Two nodes may be off in different directions.
        let apart = self.scene.process.clock_error() * 2;
        if !leads(State::Queued, &events, render.state(), apart) {
            let told: Vec<RenderEvent> = events.iter().map(|(_, (event, _))| *event).collect();
            let detail = format!("no way of its video to {:?}: {told:?}", render.state());
            self.broken(STORY, &id, &detail);
        }
        for (_, (_, tally)) in events {
            self.scene.log.count(tally);
        }
        Ok(())
    }

    /// One letter and one race for every compensation, and no letter about anything else.
    pub async fn everybody_is_told(
        &self,
        reservation: &Reservation,
        payments: &[&Payment],
        letters: &Letters,
    ) -> Result<(), StoreError> {
        let id = reservation.id;
        let mut causes: BTreeMap<String, usize> = BTreeMap::new();
        for payment in payments {
            for line in self.store.payment_timeline(payment.id).await? {
                let entry: Value = serde_json::from_str(&line.entry).unwrap_or_default();
                if line.kind == "asked"
                    && let Some(why) = entry["why"].as_str()
                {
                    *causes.entry(why.to_owned()).or_default() += 1;
                }
            }
        }
        let races = self.store.races_of(reservation::KIND, &id.to_string()).await?;
        for (why, template, scenarios, tally) in CAUSES {
            let times = causes.get(why).copied().unwrap_or(0);
            (0..times).for_each(|_| self.scene.log.count(tally));
            let written = races.iter().filter(|race| {
                race.resolution == "REFUNDED" && scenarios.contains(&race.scenario.as_str())
            });
            let written = written.count();
            // A second click is one as well.
            let clicked = usize::from(template.is_none());
            if written < times || written > times + clicked {
                let detail = format!("{why}: {times} times, {written} races");
                self.broken(TOLD, &id.to_string(), &detail);
            }
            if let Some(template) = template {
                let sent = letters.get(&(id, template.to_owned())).copied().unwrap_or(0);
                if sent != times {
                    let detail = format!("{why}: {times} times, {sent} letters");
                    self.broken(TOLD, &id.to_string(), &detail);
                }
            }
        }
        for race in &races {
            self.scene.log.count(match race.scenario.as_str() {
                "EXPIRED_AFTER_PAYMENT" => Tally::RaceExpired,
                "SLOT_CONFLICT" => Tally::RaceSlot,
                "RENDER_FAILURE" => Tally::RaceRender,
                _ => Tally::RaceCancel,
            });
        }
        Ok(())
    }

    /// The letters that were written, each with the effect that sends it.
    pub async fn letters(&self) -> Result<Letters, StoreError> {
        let mut letters = Letters::new();
        for mail in self.store.mails(&tashika_store::MailFilter::default(), ALL).await? {
            self.scene.log.count(Tally::Letter);
            self.scene.log.mark(self.clock.now(), &format!("{mail:?}"));
            let effect = match mail.effect_id {
                Some(id) => self.store.effect(EffectId(id)).await?,
                None => None,
            };
            let about = mail.data["reservationId"].as_str().and_then(|id| id.parse().ok());
            let Some(id) = about.filter(|_| effect.is_some_and(|row| row.lane == Lane::MAIL))
            else {
                self.broken(TOLD, &mail.id.to_string(), "nobody sends the letter");
                continue;
            };
            *letters.entry((id, mail.template)).or_default() += 1;
        }
        Ok(letters)
    }
}

/// What happened to a video, by the clocks of those who wrote it down.
type Happened = (Timestamp, (RenderEvent, Tally));

/// Whether the machine leads through all of this to a state. Of what happened at about the same moment
/// (`apart`), the order is what the machine allows.
fn leads(from: State, events: &[Happened], to: State, apart: Duration) -> bool {
    let Some((first, _)) = events.first() else { return from == to };
    let candidates = events.iter().take_while(|(at, _)| *at <= first.plus(apart)).enumerate();
    candidates.into_iter().any(|(index, (_, (event, _)))| {
        let mut rest = events.to_vec();
        rest.remove(index);
        render::next(from, *event).is_ok_and(|next| leads(next, &rest, to, apart))
    })
}

fn event_of(action: &str) -> Option<(RenderEvent, Tally)> {
    use RenderEvent as Event;
    Some(match action {
        "render.submitted" => (Event::Submit, Tally::RenderSubmitted),
        "render.unanswered" => (Event::Doubt, Tally::RenderDoubted),
        "render.done" => (Event::Finish, Tally::RenderFinished),
        "render.attempt_failed" => (Event::TryAgain, Tally::RenderTriedAgain),
        "render.failed" => (Event::Exhaust, Tally::RenderExhausted),
        "render.retried" => (Event::Retry, Tally::RenderRetried),
        "render.resolved" => (Event::Resolve, Tally::RenderResolved),
        "render.given_up" => (Event::GiveUp, Tally::RenderGivenUp),
        "render.cancelled" => (Event::Cancel, Tally::RenderCancelled),
        _ => return None,
    })
}
