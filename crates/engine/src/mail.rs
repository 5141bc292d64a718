//! Sending mail.
//!
//! In this order: the mail as it is, its words, leave to send, a mark that is durable, the server, an
//! end that is durable. Whoever dies after the mark leaves a mail in doubt, and only that one. What an
//! attempt means is decided with the mail as it is when the attempt is over.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use serde_json::{Value, json};
use tashika_domain::effect::{Effect, PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::mail::attempt::{Begin, MailLease, begin};
use tashika_domain::mail::conclude::{
    Attempted, Came, Concluded, conclude, hold_up, is_of_the_lane,
};
use tashika_domain::mail::control::{self, LaneState, SLOWED_FOR};
use tashika_domain::mail::{Delivery, MailFault, MailResult, Status};
use tashika_domain::mask::masked_text;
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::outcome::{Exchange, Outcome, Reason};
use tashika_domain::{Changes, Timestamp};
use tashika_providers::mail::{Parcel, Posted};
use tashika_providers::templates::Rendered;
use tashika_store::{CommitError, StoreError};
use uuid::Uuid;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::mail_office::{Asked, Permit, PostOffice};
use crate::worker::millis;

/// Beyond the postman's own bound: only a postman that has lost its way gets this far.
const GRACE: Duration = Duration::from_secs(5);
/// How long a mail waits that could not even be read.
const STORE_AWAY: Duration = Duration::from_secs(1);

pub struct MailHandler(pub Arc<PostOffice>);

/// What an attempt brought, until it is concluded.
#[derive(Debug)]
enum Note {
    Result(MailResult),
    Cancelled,
    Over,
}

/// Which mail an effect is about.
fn delivery_of(effect: &Effect) -> Option<Uuid> {
    let payload: Value = serde_json::from_str(&effect.payload).ok()?;
    payload.get("delivery")?.as_str()?.parse().ok()
}

/// What a worker finds when it looks at its mail.
enum Ready {
    Go(Box<Delivery>, Changes),
    Not(Tried),
}

impl MailHandler {
    async fn perform(&self, job: Job<'_>) -> Tried {
        let Some(id) = delivery_of(job.effect) else {
            return Tried::refused(PAYLOAD_UNREADABLE, "the effect names no mail");
        };
        match self.try_perform(job, id).await {
            Ok(tried) => tried,
            Err(error) => {
                // Nothing was sent, so this is no attempt.
                tracing::warn!(%error, "a mail could not be read");
                Tried::later(job.now.plus(STORE_AWAY))
            }
        }
    }

    async fn try_perform(&self, job: Job<'_>, id: Uuid) -> Result<Tried, StoreError> {
        let office = &self.0;
        let delivery = match self.look(job, id).await? {
            Ready::Go(delivery, _) => delivery,
            Ready::Not(tried) => return Ok(tried),
        };
        let words =
            match office.templates.render(&delivery.template, delivery.locale, &delivery.data) {
                Ok(words) => words,
                Err(error) => return Ok(unwritten(error.to_string())),
            };
        let mut permit = match office.ask().await? {
            Asked::Go(permit) => permit,
            Asked::Later(at) => return Ok(Tried::later(at)),
        };
        let marked = match self.mark(job, id).await {
            Ok(Ready::Go(delivery, _)) => delivery,
            Ok(Ready::Not(tried)) => {
                office.end(permit, true).await;
                return Ok(tried);
            }
            Err(error) => {
                office.end(permit, true).await;
                return Err(error);
            }
        };
        // The mark may have waited for the database until others had the permit's place. If there is no
        // new one now, the mark stays behind: the mail will say that it may have been sent.
        while !office.covers(permit, GRACE) {
            office.end(permit, true).await;
            permit = match office.ask().await? {
                Asked::Go(permit) => permit,
                Asked::Later(at) => return Ok(Tried::later(at)),
            };
        }
        Ok(self.send(&marked, words, permit).await)
    }

    /// The mail as it is now, and what may be done with it.
    async fn look(&self, job: Job<'_>, id: Uuid) -> Result<Ready, StoreError> {
        let office = &self.0;
        let over = |note: Note| {
            Ready::Not(Tried { note: Some(Arc::new(note)), ..Tried::done(json!(null)) })
        };
        let Some(found) = office.store.mail_in_hand(id).await? else {
            return Ok(over(Note::Over));
        };
        let now = office.clock.now();
        let lease =
            MailLease { effect_id: job.effect.id.0, fence: job.effect.fence, held: found.held };
        Ok(match begin(&found.delivery, found.batch, lease, now) {
            Begin::Go { delivery, changes } => Ready::Go(delivery, changes),
            Begin::Over => over(Note::Over),
            Begin::Cancelled => over(Note::Cancelled),
            Begin::Elsewhere => Ready::Not(Tried::later(now.plus(office.rules.timeout))),
        })
    }

    /// Marks the mail as being sent. It may have been cancelled while we waited for leave.
    async fn mark(&self, job: Job<'_>, id: Uuid) -> Result<Ready, StoreError> {
        loop {
            let (delivery, changes) = match self.look(job, id).await? {
                Ready::Go(delivery, changes) => (delivery, changes),
                not @ Ready::Not(_) => return Ok(not),
            };
            if mutant::on(Mutant::MailNotMarked) {
                return Ok(Ready::Go(delivery, Changes::new()));
            }
            match self.0.store.commit(changes).await {
                Ok(()) => return Ok(Ready::Go(delivery, Changes::new())),
                Err(CommitError::Store(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    async fn send(&self, delivery: &Delivery, words: Rendered, permit: Permit) -> Tried {
        let office = &self.0;
        let parcel = Parcel {
            from: office.rules.from.clone(),
            to: delivery.to.clone(),
            message_id: message_id(delivery, office.rules.domain()),
            subject: words.subject,
            html: words.html,
            text: words.text,
            date: office.clock.now(),
        };
        let bound = office.rules.timeout + GRACE;
        let posted = match tokio::time::timeout(bound, office.postman.send(&parcel)).await {
            Ok(posted) => posted,
            Err(_) => no_answer(bound),
        };
        let unsent = matches!(&posted.result,
            MailResult::Refused { class, .. } if *class != MailFault::PossiblySent);
        office.end(permit, unsent).await;
        histogram!("mail_send_ms").record(millis(posted.rtt));
        tried(posted)
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let office = &self.0;
        let found = match delivery_of(ending.effect) {
            Some(id) => office.store.mail(id).await?,
            None => None,
        };
        let mine = found.filter(|delivery| delivery.effect_id == Some(ending.effect.id.0));
        let Some(delivery) = mine else {
            let verdict = match ending.outcome {
                // It names no mail, or one that has gone on without it.
                Outcome::Refused(_) => ending.verdict.clone(),
                _ => Verdict::Succeeded,
            };
            return Ok(Settled::new(verdict, Changes::new()));
        };
        let attempt = Attempted {
            came: came(ending),
            started_at: ending.started_at,
            now: ending.now,
            patience: &office.rules.patience,
        };
        let (concluded, lane) = match &attempt.came {
            Came::Result(MailResult::Refused { class, code, text }) if is_of_the_lane(*class) => {
                let (lane, again_at) = self.hold_lane(*class, text, ending).await?;
                (hold_up(&delivery, *class, *code, text, again_at, &attempt), lane)
            }
            _ => (conclude(&delivery, &attempt), Changes::new()),
        };
        let Concluded { verdict, mut changes, delivery: after } = concluded;
        changes.extend(lane);
        let mut settled = Settled::new(verdict, changes);
        let (office, came) = (Arc::clone(office), attempt.came.clone());
        settled.after = Some(Box::new(move || report(&office, &delivery, &after, &came)));
        Ok(settled)
    }

    /// What a failure of the lane does to the lane, and when the mail may come back.
    async fn hold_lane(
        &self,
        class: MailFault,
        text: &str,
        ending: &Ending<'_>,
    ) -> Result<(Changes, Timestamp), StoreError> {
        let (rules, now) = (&self.0.rules, ending.now);
        let control = self.0.store.mail_control().await?;
        // What was refused before somebody opened the lane says nothing about the time after.
        let old_news = control.is_open(now) && control.updated_at > ending.started_at;
        Ok(match class {
            MailFault::Throttled => {
                let wait = rules.patience.waits.first().copied().unwrap_or_default();
                // Of several who were refused in the same moment, one slows the lane down.
                let known = control.slow_until.is_some_and(|at| at > now.plus(SLOWED_FOR / 2));
                let changes =
                    if known { Changes::new() } else { control::slow(&control, text, now) };
                (changes, now.plus(wait))
            }
            MailFault::Quota => {
                let until = now.plus(rules.park);
                let changes = if control.is_open(now) && !old_news {
                    control::park(&control, until, text, now)
                } else {
                    Changes::new()
                };
                (changes, now.plus(rules.look_every))
            }
            _ => {
                let changes = if control.state == LaneState::Stopped || old_news {
                    Changes::new()
                } else {
                    control::stop(&control, now.plus(rules.probe_every), text, now)
                };
                (changes, now.plus(rules.look_every))
            }
        })
    }
}

/// The same in every attempt: whoever gets it twice can tell.
fn message_id(delivery: &Delivery, domain: &str) -> String {
    if mutant::on(Mutant::MessageIdPerAttempt) {
        return format!("{}.{}@{domain}", delivery.id, delivery.version);
    }
    delivery.message_id(domain)
}

fn came(ending: &Ending<'_>) -> Came {
    match ending.noted() {
        Some(Note::Result(result)) => Came::Result(result.clone()),
        Some(Note::Cancelled) => Came::Cancelled,
        Some(Note::Over) => Came::Over,
        None => {
            let why = ending.verdict.reason().map(|reason| reason.message.clone());
            Came::Lapsed { why: why.unwrap_or_default() }
        }
    }
}

/// A postman that did not keep its own bound: nobody knows how far it got.
fn no_answer(bound: Duration) -> Posted {
    let text = format!("no answer within {} ms", bound.as_millis());
    let result =
        MailResult::Refused { class: MailFault::PossiblySent, code: None, text: text.clone() };
    let exchange = Exchange { reply: text, sent: true, ..Exchange::default() };
    Posted { result, exchange, rtt: bound }
}

/// The mail has no words.
fn unwritten(text: String) -> Tried {
    let result = MailResult::Refused { class: MailFault::Template, code: None, text };
    tried(Posted { result, exchange: Exchange::default(), rtt: Duration::ZERO })
}

fn tried(posted: Posted) -> Tried {
    let outcome = match &posted.result {
        MailResult::Sent { response } => Outcome::Done(json!({"response": masked_text(response)})),
        MailResult::Refused { class, text, .. } => {
            let reason = Reason::new(class.as_str().to_ascii_uppercase(), masked_text(text));
            match class {
                MailFault::Recipient | MailFault::Template => Outcome::Refused(reason),
                MailFault::PossiblySent => Outcome::Lost(reason),
                MailFault::Retryable
                | MailFault::Throttled
                | MailFault::Quota
                | MailFault::Configuration => Outcome::Busy { reason, retry_in: None },
            }
        }
    };
    Tried {
        note: Some(Arc::new(Note::Result(posted.result))),
        exchange: Some(posted.exchange),
        rtt: posted.rtt,
        ..Tried::new(outcome)
    }
}

/// Logs and metrics, once everything is written. Addresses are masked.
fn report(office: &PostOffice, before: &Delivery, after: &Delivery, came: &Came) {
    let outcome = match came {
        Came::Result(MailResult::Sent { .. }) => "sent",
        Came::Result(MailResult::Refused { class, .. }) => class.as_str(),
        Came::Lapsed { .. } => "worker_lost",
        Came::Cancelled | Came::Over => return,
    };
    counter!("mail_attempts_total", "outcome" => outcome).increment(1);
    if let Came::Result(MailResult::Refused { class, .. }) = came
        && matches!(class, MailFault::Quota | MailFault::Configuration)
    {
        office.closed(office.clock.now().plus(office.rules.look_every));
    }
    let class = after.fault.as_ref().map_or("", |fault| fault.class.as_str());
    match after.status {
        Status::Sent => counter!("mail_sent_total").increment(1),
        Status::Failed => counter!("mail_failed_total", "class" => class.to_owned()).increment(1),
        Status::PossiblySent => counter!("mail_possibly_sent_total").increment(1),
        Status::Queued => counter!("mail_retried_total").increment(1),
        Status::Cancelled => {}
    }
    if after.possibly_duplicate && !before.possibly_duplicate {
        counter!("mail_possibly_duplicate_total").increment(1);
    }
    let to = masked_text(&after.to);
    let (mail, status) = (after.id, after.status.as_str());
    tracing::info!(%mail, to, outcome, status, attempts = after.attempts, "a mail was attempted");
}

impl Handler for MailHandler {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(self.perform(job))
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }

    fn adapter(&self) -> Option<&str> {
        Some(self.0.postman.name())
    }
}
