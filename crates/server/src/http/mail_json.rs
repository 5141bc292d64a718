//! What is shown of mails, and how errors about them are answered.

use serde_json::{Value, json};
use tashika_domain::mail::batch::BatchStatus;
use tashika_domain::mail::{Delivery, Try};
use tashika_engine::commands::mail::{BatchView, LaneView, MailError};
use tashika_providers::templates::{Rendered, TemplateError};

use super::problem::{Code, Problem};
use super::unavailable;

/// A mail as an authorised reader sees it: with the whole address.
pub fn mail(mail: &Delivery) -> Value {
    let tried = |tried: &Try| json!({"at": tried.at, "outcome": tried.outcome, "code": tried.code, "text": tried.text});
    let mut shown = json!({
        "id": mail.id,
        "to": mail.to,
        "status": mail.status.public(),
        "template": mail.template,
        "locale": mail.locale,
        "batchId": mail.batch_id,
        "attempts": mail.attempts,
        "possiblyDuplicate": mail.possibly_duplicate,
        "createdAt": mail.created_at,
        "sentAt": mail.sent_at,
        "endedAt": mail.ended_at,
        "history": mail.history.iter().map(tried).collect::<Vec<_>>(),
    });
    if let Some(fault) = &mail.fault {
        shown["failure"] = json!({"class": fault.class, "text": fault.text});
    }
    shown
}

/// A mail in the sandbox's inbox, with its words.
pub fn letter(mail: &Delivery, words: Option<&Rendered>) -> Value {
    json!({
        "id": mail.id,
        "to": mail.to,
        "locale": mail.locale,
        "subject": words.map(|words| words.subject.as_str()),
        "html": words.map(|words| words.html.as_str()),
        "text": words.map(|words| words.text.as_str()),
        "sentAt": mail.sent_at,
    })
}

/// A mail among the failures of its batch: what is needed to do something about it.
fn failure(mail: &Delivery) -> Value {
    let fault = mail.fault.as_ref();
    json!({
        "id": mail.id,
        "to": mail.to,
        "status": mail.status.public(),
        "attempts": mail.attempts,
        "class": fault.map(|fault| fault.class.as_str()),
        "text": fault.map(|fault| fault.text.as_str()),
        "endedAt": mail.ended_at,
    })
}

pub fn failures(mails: &[Delivery]) -> Vec<Value> {
    mails.iter().map(failure).collect()
}

pub fn batch(view: &BatchView) -> Value {
    let BatchView { batch, counts, .. } = view;
    let status = match batch.status {
        BatchStatus::Accepted if counts.queued > 0 => "running",
        BatchStatus::Accepted => "finished",
        other => other.as_str(),
    };
    json!({
        "id": batch.id,
        "status": status,
        "template": batch.template,
        "total": batch.total,
        "queued": counts.queued,
        "sent": counts.sent,
        "failed": counts.failed,
        "possiblySent": counts.possibly_sent,
        "cancelled": counts.cancelled,
        "createdAt": batch.created_at,
        "updatedAt": batch.updated_at,
    })
}

pub fn lane(view: &LaneView) -> Value {
    let control = &view.control;
    let open = control.is_open(view.now);
    let left = (view.quota > 0).then(|| (view.quota - view.used).max(0));
    json!({
        "state": if open { "open" } else { control.state.as_str() },
        "until": control.until.filter(|_| !open),
        "reason": control.reason.as_deref().filter(|_| !open),
        "slowedUntil": control.slow_until.filter(|_| control.is_slowed(view.now)),
        "queued": view.queued,
        "oldestQueuedAt": view.oldest,
        "sentOrCounted24h": view.used,
        "quotaLeft": left,
    })
}

pub fn refusal(error: MailError) -> Problem {
    match error {
        MailError::KeyMismatch => Problem::new(Code::IdempotencyMismatch),
        MailError::KeyInvalid => Problem::new(Code::IdempotencyKeyInvalid),
        MailError::Invalid(violations) => Problem::violations(violations),
        MailError::Template(error) => template(&error),
        MailError::Conflict => Problem::new(Code::IdempotencyConflict),
        MailError::InProgress => Problem::new(Code::IdempotencyInProgress),
        MailError::BatchNotFound | MailError::NotFound => Problem::new(Code::MailNotFound),
        MailError::TooMany => Problem::new(Code::PayloadTooLarge).detail(
            "A batch has at most 100000 recipients.",
            "一括送信の宛先は 100000 件までです。",
        ),
        MailError::WrongState(_) => Problem::new(Code::MailBatchState),
        MailError::NoInbox => Problem::new(Code::MailNoInbox),
        MailError::Store(error) => unavailable(&error),
    }
}

/// Names what is missing: names of variables are the template's, not the caller's.
fn template(error: &TemplateError) -> Problem {
    match error {
        TemplateError::UnknownTemplate { .. } | TemplateError::UnknownLocale { .. } => {
            Problem::new(Code::MailTemplateUnknown)
        }
        TemplateError::MissingVariable { name, .. } => Problem::new(Code::MailTemplateData).detail(
            format!("The template needs the variable {name}."),
            format!("テンプレートには変数 {name} が必要です。"),
        ),
        _ => Problem::new(Code::MailTemplateData),
    }
}
