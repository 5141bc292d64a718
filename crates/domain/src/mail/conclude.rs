//! What an attempt to send means for its mail.
//!
//! An attempt that was not answered after the mail had gone out leaves doubt: it is repeated under the
//! same Message-ID, the delivery says so, and when it is given up it is `possibly_sent`, not `failed`.
//! Whatever the lane as a whole is to blame for (pace, quota, settings) is not an attempt: see
//! [`hold_up`].

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::effect::Verdict;
use crate::mask::masked_text;
use crate::mutant::{self, Mutant};
use crate::outcome::Reason;
use crate::time::Timestamp;

use super::{Delivery, Event, Fault, HISTORY_MAX, KIND, MailFault, MailResult, Status, Try, next};

/// Workers that may be lost over one mail before it is given up.
pub const LAPSES_MAX: usize = 5;

/// The outcome of an attempt whose worker is gone.
pub const WORKER_LOST: &str = "worker_lost";

/// How often, and how far apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Patience {
    /// `MAIL_MAX_ATTEMPTS`.
    pub max_attempts: u32,
    /// `MAIL_BACKOFF_SEC`: after the first, second, … attempt; the last one repeats.
    pub waits: Vec<Duration>,
}

impl Patience {
    fn wait_after(&self, attempts: u32) -> Duration {
        let last = self.waits.len().saturating_sub(1);
        let step = (attempts.max(1) as usize - 1).min(last);
        self.waits.get(step).copied().unwrap_or_default()
    }
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Came {
    Result(MailResult),
    /// The worker is gone, or has lost its mind.
    Lapsed {
        why: String,
    },
    /// The batch was cancelled before the attempt began.
    Cancelled,
    /// There was nothing to send.
    Over,
}

/// An attempt that is over.
#[derive(Clone, Debug)]
pub struct Attempted<'a> {
    pub came: Came,
    pub started_at: Timestamp,
    pub now: Timestamp,
    pub patience: &'a Patience,
}

/// What becomes of a mail, and of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Concluded {
    pub verdict: Verdict,
    pub changes: Changes,
    /// The delivery as it is now.
    pub delivery: Delivery,
}

#[must_use]
pub fn conclude(delivery: &Delivery, attempt: &Attempted<'_>) -> Concluded {
    match &attempt.came {
        Came::Over => unchanged(delivery),
        Came::Cancelled => {
            // A mark that is still there is that of a worker who was lost without a trace.
            let lost = delivery.sending.is_some();
            let known = Delivery {
                sending: None,
                possibly_duplicate: delivery.possibly_duplicate || lost,
                ..delivery.clone()
            };
            match super::cancel(&known, attempt.now) {
                Some(after) => ended(after, Verdict::Succeeded, None, attempt),
                None if lost && known.status == Status::Cancelled => let_go(&known, attempt),
                // It had ended before; only the mark goes.
                None if lost => {
                    let after = Delivery { version: known.version + 1, ..known };
                    ended(after, Verdict::Succeeded, None, attempt)
                }
                None => unchanged(delivery),
            }
        }
        Came::Result(MailResult::Sent { response }) => {
            let tried = Try {
                at: attempt.started_at,
                outcome: "sent".to_owned(),
                code: Some(250),
                text: masked_text(response),
            };
            let after = Delivery {
                attempts: delivery.attempts + 1,
                sending: None,
                fault: None,
                ..delivery.after(Event::Send, attempt.now)
            };
            ended(remembering(after, tried), Verdict::Succeeded, Some("mail.sent"), attempt)
        }
        Came::Result(MailResult::Refused { class, code, text }) => {
            refused(delivery, *class, *code, text, attempt)
        }
        Came::Lapsed { why } => lapsed(delivery, why, attempt),
    }
}

fn unchanged(delivery: &Delivery) -> Concluded {
    let delivery = delivery.clone();
    Concluded { verdict: Verdict::Succeeded, changes: Changes::new(), delivery }
}

fn refused(
    delivery: &Delivery,
    class: MailFault,
    code: Option<u16>,
    text: &str,
    attempt: &Attempted<'_>,
) -> Concluded {
    let text = masked_text(text);
    let doubt = delivery.possibly_duplicate || class == MailFault::PossiblySent;
    let doubt = doubt && !mutant::on(Mutant::MailDoubtForgotten);
    let counted = Delivery {
        attempts: delivery.attempts + 1,
        possibly_duplicate: doubt,
        sending: None,
        fault: Some(Fault { class: class.as_str().to_owned(), text: text.clone() }),
        ..delivery.clone()
    };
    let outcome = class.as_str().to_owned();
    let tried = Try { at: attempt.started_at, outcome, code, text: text.clone() };
    let counted = remembering(counted, tried);
    let reason = Reason::new(class.as_str().to_ascii_uppercase(), text);
    let final_class = matches!(class, MailFault::Recipient | MailFault::Template);
    if final_class || counted.attempts >= attempt.patience.max_attempts {
        return given_up(&counted, reason, attempt);
    }
    let wait = attempt.patience.wait_after(counted.attempts);
    again(&counted, reason, attempt.now.plus(wait), attempt)
}

fn lapsed(delivery: &Delivery, why: &str, attempt: &Attempted<'_>) -> Concluded {
    let reason = Reason::new(crate::effect::LEASE_EXPIRED, why);
    let Some(sending) = delivery.sending else {
        // Claimed, and its turn had not come: nothing was sent, so there is nothing to tell.
        let verdict = Verdict::Retry { run_at: attempt.now, reason, in_doubt: false };
        let delivery = delivery.clone();
        return Concluded { verdict, changes: Changes::new(), delivery };
    };
    let text = "the process that was sending it is gone; it may have arrived".to_owned();
    let lapses = delivery.history.iter().filter(|tried| tried.outcome == WORKER_LOST).count();
    let doubtful = Delivery {
        possibly_duplicate: true,
        sending: None,
        fault: Some(Fault { class: WORKER_LOST.to_owned(), text: text.clone() }),
        ..delivery.clone()
    };
    let tried = Try { at: sending.since, outcome: WORKER_LOST.to_owned(), code: None, text };
    let doubtful = remembering(doubtful, tried);
    if lapses >= LAPSES_MAX {
        return given_up(&doubtful, reason, attempt);
    }
    again(&doubtful, reason, attempt.now, attempt)
}

/// There will be another attempt, unless the mail was cancelled meanwhile.
fn again(
    counted: &Delivery,
    reason: Reason,
    run_at: Timestamp,
    attempt: &Attempted<'_>,
) -> Concluded {
    if next(counted.status, Event::Retry).is_err() {
        return let_go(counted, attempt);
    }
    let after = counted.after(Event::Retry, attempt.now);
    let verdict = Verdict::Retry { run_at, reason, in_doubt: after.possibly_duplicate };
    ended(after, verdict, Some("mail.attempt_failed"), attempt)
}

fn given_up(counted: &Delivery, reason: Reason, attempt: &Attempted<'_>) -> Concluded {
    if counted.status == Status::Cancelled {
        return let_go(counted, attempt);
    }
    let in_doubt = counted.possibly_duplicate;
    let (event, action) = if in_doubt {
        (Event::Doubt, "mail.possibly_sent")
    } else {
        (Event::Refuse, "mail.failed")
    };
    let after = counted.after(event, attempt.now);
    ended(after, Verdict::Aborted { reason, in_doubt }, Some(action), attempt)
}

/// Cancelled while the attempt was under way: nothing is owed any more, but what may have arrived
/// is said to have.
fn let_go(counted: &Delivery, attempt: &Attempted<'_>) -> Concluded {
    if counted.possibly_duplicate {
        let after = counted.after(Event::Doubt, attempt.now);
        return ended(after, Verdict::Succeeded, Some("mail.possibly_sent"), attempt);
    }
    let after = Delivery { version: counted.version + 1, ..counted.clone() };
    ended(after, Verdict::Succeeded, Some("mail.attempt_failed"), attempt)
}

fn ended(
    delivery: Delivery,
    verdict: Verdict,
    action: Option<&'static str>,
    attempt: &Attempted<'_>,
) -> Concluded {
    let mut changes = Changes::from(Write::MailUpdate(Box::new(delivery.clone())));
    if let Some(action) = action {
        changes.push(audit(&delivery, action, attempt.now));
    }
    if delivery.status == Status::Sent
        && let Some(line) = &delivery.on_sent
    {
        changes.push(Write::Audit(Box::new(NewAudit {
            id: line_id(attempt.now, &delivery.id.to_string(), &line.action, 0),
            actor: Actor::SYSTEM,
            action: line.action.clone(),
            target_type: "email_notification",
            target_id: line.target_id.clone(),
            office_id: line.office_id.clone(),
            details: line.details.to_string(),
            now: attempt.now,
        })));
    }
    Concluded { verdict, changes, delivery }
}

/// The delivery with one more attempt in its history.
fn remembering(mut delivery: Delivery, tried: Try) -> Delivery {
    if delivery.history.len() >= HISTORY_MAX {
        delivery.history.remove(0);
    }
    delivery.history.push(tried);
    delivery
}

/// Whether the lane is to blame for a failure, and not the mail.
#[must_use]
pub const fn is_of_the_lane(class: MailFault) -> bool {
    matches!(class, MailFault::Throttled | MailFault::Quota | MailFault::Configuration)
}

/// An attempt that the lane is to blame for: it is remembered and does not count.
#[must_use]
pub fn hold_up(
    delivery: &Delivery,
    class: MailFault,
    code: Option<u16>,
    text: &str,
    again_at: Timestamp,
    attempt: &Attempted<'_>,
) -> Concluded {
    let text = masked_text(text);
    let held = Delivery {
        version: delivery.version + 1,
        sending: None,
        fault: Some(Fault { class: class.as_str().to_owned(), text: text.clone() }),
        ..delivery.clone()
    };
    let outcome = class.as_str().to_owned();
    let tried = Try { at: attempt.started_at, outcome, code, text: text.clone() };
    let held = remembering(held, tried);
    let verdict = if held.status.is_over() {
        // Cancelled meanwhile: nothing is owed any more.
        Verdict::Succeeded
    } else {
        let reason = Reason::new(class.as_str().to_ascii_uppercase(), text);
        Verdict::Retry { run_at: again_at, reason, in_doubt: held.possibly_duplicate }
    };
    ended(held, verdict, Some("mail.held_up"), attempt)
}

fn audit(delivery: &Delivery, action: &'static str, now: Timestamp) -> Write {
    let last = delivery.history.last();
    let details = json!({
        "recipient_email": delivery.to,
        "template": delivery.template,
        "batch_id": delivery.batch_id,
        "status": delivery.status.as_str(),
        "attempts": delivery.attempts,
        "possibly_duplicate": delivery.possibly_duplicate,
        "outcome": last.map(|tried| tried.outcome.as_str()),
        "code": last.and_then(|tried| tried.code),
    });
    line(delivery, action, &details, Actor::SYSTEM, now)
}

fn line(
    delivery: &Delivery,
    action: &'static str,
    details: &Value,
    actor: Actor,
    now: Timestamp,
) -> Write {
    let target_id = delivery.id.to_string();
    let nth = u64::try_from(delivery.version).unwrap_or(0);
    Write::Audit(Box::new(NewAudit {
        id: line_id(now, &target_id, action, nth),
        actor,
        action: action.to_owned(),
        target_type: KIND,
        target_id,
        office_id: delivery.on_sent.as_ref().and_then(|line| line.office_id.clone()),
        details: details.to_string(),
        now,
    }))
}

#[cfg(test)]
mod tests;
