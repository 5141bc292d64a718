//! Webhooks that came in: written down before they are answered, processed once in effect.
//!
//! An event is known by its source and the sender's own id for it. [`accept`] takes it with the
//! effect that processes it; a duplicate changes nothing, except that one of an event that failed
//! opens it again ([`reopen`]). How processing ends is [`end`].

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Requeue, Write};
use crate::effect::{EffectId, NewEffect};
use crate::lane::Lane;
use crate::message::asked::{Asked, WORKER};
use crate::message::{self, Begin, Draft};
use crate::time::Timestamp;

/// The effect kind of processing, and the subject type of audit lines.
pub const KIND: &str = "webhook";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Pending,
    Success,
    Failed,
    /// Nobody listens to it, or it came too late to matter.
    Skipped,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Success, Self::Failed, Self::Skipped];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// An event as it is kept. Its id is also the id of the effect that processes it.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookEvent {
    pub id: Uuid,
    pub version: i64,
    pub source: String,
    /// The sender's id of it.
    pub event_id: String,
    pub event_type: String,
    pub billing_id: Option<Uuid>,
    pub office_id: Option<String>,
    pub payload: Payload,
    /// Who must be asked before the event may be acted on, because nobody signed it: a kind of sender.
    pub confirm_by: Option<String>,
    /// What that one answered. Where there is `confirm_by`, this counts and the payload does not.
    pub confirmed: Option<Value>,
    /// Exactly as it came.
    pub body: Vec<u8>,
    pub content_type: Option<String>,
    /// When it happened, as the sender says.
    pub occurred_at: Option<Timestamp>,
    pub status: Status,
    pub error_message: Option<String>,
    pub processed_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub traceparent: Option<String>,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// The body itself: JSON that both databases keep as it is.
    Body,
    /// Beside the body: as a database has it, or without what a database cannot keep.
    Apart(Value),
}

impl Payload {
    /// The payload of an event with this body.
    #[must_use]
    pub fn value(&self, body: &[u8]) -> Cow<'_, Value> {
        match self {
            Self::Body => Cow::Owned(serde_json::from_slice(body).unwrap_or_default()),
            Self::Apart(value) => Cow::Borrowed(value),
        }
    }
}

impl WebhookEvent {
    /// What it says.
    #[must_use]
    pub fn said(&self) -> Cow<'_, Value> {
        self.payload.value(&self.body)
    }

    /// What it says, as far as it may be believed; `None` if nobody has vouched for it yet.
    #[must_use]
    pub fn trusted(&self) -> Option<Cow<'_, Value>> {
        match self.confirm_by {
            Some(_) => self.confirmed.as_ref().map(Cow::Borrowed),
            None => Some(self.said()),
        }
    }
}

/// A payload as both databases can keep it: PostgreSQL's JSON has no NUL. The body has the bytes as
/// they came.
#[must_use]
pub fn keepable(payload: Value) -> Value {
    if has_nul(&payload) { without_nul(payload) } else { payload }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(map) => map.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

fn without_nul(payload: Value) -> Value {
    match payload {
        Value::String(text) if text.contains('\0') => Value::String(text.replace('\0', "")),
        Value::Array(items) => items.into_iter().map(without_nul).collect(),
        Value::Object(map) => {
            let clean =
                |(name, value): (String, Value)| (name.replace('\0', ""), without_nul(value));
            Value::Object(map.into_iter().map(clean).collect())
        }
        other => other,
    }
}

/// Longest id that is written into a log.
const LOGGED_ID_MAX: usize = 128;

/// Whether a text is an id and cannot be anything about a person: no address, no name with a space.
#[must_use]
pub fn is_plain_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=LOGGED_ID_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// Whom an event is about, for logs: the `participant_id` that the application put into the metadata
/// of what it paid or sent. For payloads that somebody has vouched for.
#[must_use]
pub fn participant_of(payload: &Value) -> Option<&str> {
    const PLACES: [&str; 4] = [
        "/data/object/metadata/participant_id",
        "/metadata/participant_id",
        "/data/participant_id",
        "/participant_id",
    ];
    let found = PLACES.iter().find_map(|place| payload.pointer(place)?.as_str());
    found.filter(|id| is_plain_id(id))
}

/// Takes an event: its row and the effect that processes it.
#[must_use]
pub fn accept(event: WebhookEvent, expires_at: Timestamp) -> Changes {
    let run_at = event.created_at;
    accept_at(event, run_at, expires_at)
}

/// Takes an event that is not to be processed before `run_at`.
#[must_use]
pub fn accept_at(event: WebhookEvent, run_at: Timestamp, expires_at: Timestamp) -> Changes {
    let effect = NewEffect { run_at, ..effect(&event, event.created_at, expires_at) };
    Changes::from(Write::WebhookInsert(Box::new(event))).with(Write::Enqueue(effect))
}

fn effect(event: &WebhookEvent, now: Timestamp, expires_at: Timestamp) -> NewEffect {
    NewEffect {
        id: EffectId(event.id),
        lane: Lane::WEBHOOKS,
        kind: KIND.into(),
        key: None,
        digest: None,
        payload: "{}".into(),
        run_at: now,
        created_at: now,
        expires_at,
        traceparent: event.traceparent.clone(),
        held_by: None,
    }
}

/// Opens an event again that failed: because it was sent again, or because somebody wants it.
///
/// `known` says whether its effect is still there; it is kept for a shorter time than the event.
#[must_use]
pub fn reopen(
    event: &WebhookEvent,
    known: bool,
    actor: Actor,
    now: Timestamp,
    expires_at: Timestamp,
) -> Changes {
    let again = WebhookEvent {
        version: event.version + 1,
        status: Status::Pending,
        error_message: None,
        processed_at: None,
        ..event.clone()
    };
    let effect = if known {
        Write::Requeue(Requeue { id: EffectId(event.id), without_doubt: false, now })
    } else {
        Write::Enqueue(effect(event, now, expires_at))
    };
    Changes::from(Write::WebhookUpdate(Box::new(again))).with(effect).with(audit(
        event,
        "webhook.replayed",
        actor,
        &json!({}),
        now,
    ))
}

/// How the processing of an event ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Success {
        billing_id: Option<Uuid>,
        office_id: Option<String>,
    },
    /// Nothing was done, and nothing will be.
    Skipped(String),
    Failed(String),
}

/// The end of an event's processing. What it led to goes into the same changes.
#[must_use]
pub fn end(event: &WebhookEvent, end: &End, now: Timestamp) -> Changes {
    let mut after =
        WebhookEvent { version: event.version + 1, processed_at: Some(now), ..event.clone() };
    match end {
        End::Success { billing_id, office_id } => {
            after.status = Status::Success;
            after.billing_id = *billing_id;
            after.office_id.clone_from(office_id);
        }
        End::Skipped(why) => {
            after.status = Status::Skipped;
            after.error_message = Some(why.clone());
        }
        End::Failed(why) => {
            after.status = Status::Failed;
            after.error_message = Some(why.clone());
        }
    }
    let mut changes = Changes::new();
    if let End::Failed(why) = end {
        let details = json!({"error": why});
        changes.push(audit(event, "webhook.failed", Actor::SYSTEM, &details, now));
    }
    changes.push(Write::WebhookUpdate(Box::new(after)));
    changes
}

/// An event as audit lines name it, about whatever it led to.
#[must_use]
pub fn named(event: &WebhookEvent) -> Value {
    json!({"event_id": event.event_id, "event_type": event.event_type,
        "source": format!("{}_webhook", event.source)})
}

fn audit(
    event: &WebhookEvent,
    action: &'static str,
    actor: Actor,
    details: &Value,
    now: Timestamp,
) -> Write {
    let mut all = named(event);
    if let (Some(all), Some(details)) = (all.as_object_mut(), details.as_object()) {
        all.extend(details.clone());
    }
    let target = event.id.to_string();
    let nth = u64::try_from(event.version).unwrap_or(0);
    Write::Audit(Box::new(NewAudit {
        id: line_id(now, &target, action, nth),
        actor,
        action: action.to_owned(),
        target_type: KIND,
        target_id: target,
        office_id: event.office_id.clone(),
        details: all.to_string(),
        now,
    }))
}

/// Where events of some kinds are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `None` is every source.
    pub source: Option<String>,
    /// `invoice.*`, `*`; empty is every type.
    pub types: Vec<String>,
    /// Names the worker; never shown with its address.
    pub to: String,
}

impl Route {
    #[must_use]
    pub fn matches(&self, source: &str, event_type: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => event_type.starts_with(beginning),
            None => event_type == pattern,
        };
        self.source.as_ref().is_none_or(|known| known == source)
            && (self.types.is_empty() || self.types.iter().any(fits))
    }
}

/// The bytes as they came; of an event that nobody signed, what was answered instead: our signature
/// must not vouch for what a stranger wrote.
fn content(event: &WebhookEvent) -> (Arc<[u8]>, &str) {
    const JSON: &str = "application/json";
    match (&event.confirm_by, &event.confirmed) {
        (Some(_), confirmed) => {
            let answer = confirmed.as_ref().map(Value::to_string).unwrap_or_default();
            (answer.into_bytes().into(), JSON)
        }
        (None, _) => (event.body.as_slice().into(), event.content_type.as_deref().unwrap_or(JSON)),
    }
}

/// The key of the message that forwards an event to one worker: one, however often the event is
/// processed.
#[must_use]
pub fn forward_key(event: &WebhookEvent, to: &str) -> String {
    format!("forward:{}:{}:{to}", event.source, event.event_id)
}

/// The message that forwards an event to one worker: the bytes as they came.
#[must_use]
pub fn forward(
    event: &WebhookEvent,
    to: &str,
    retries: u32,
    now: Timestamp,
    expires_at: Timestamp,
) -> Changes {
    let parts: [&[u8]; 3] = [event.id.as_bytes(), to.as_bytes(), &event.version.to_be_bytes()];
    let id = crate::ids::derived(now, &parts);
    let (body, content_type) = content(event);
    let headers = [
        ("Content-Type", content_type),
        ("Webhook-Id", &event.event_id),
        ("X-Event-Id", &event.event_id),
        ("X-Event-Type", &event.event_type),
        ("X-Event-Source", &event.source),
        ("X-Message-Id", &id.to_string()),
    ];
    // What a header cannot carry, the body still says.
    let headers = headers.into_iter().filter(|(_, value)| !value.chars().any(char::is_control));
    let headers = headers.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
    let (_, changes) = message::accept(Draft {
        id,
        asked: Arc::new(Asked {
            url: format!("{WORKER}{to}"),
            headers: headers.collect(),
            retries,
            labels: vec!["webhook".to_owned()],
            ..Asked::default()
        }),
        body,
        not_before: None,
        dedup_key: Some(forward_key(event, to)),
        holds: None,
        traceparent: event.traceparent.clone(),
        now,
        expires_at,
        begin: Begin::Due,
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_database_keeps_is_left_out() {
        let payload = json!({"a\0b": ["x\0", {"c": "\0"}], "n": 1});
        assert_eq!(keepable(payload), json!({"ab": ["x", {"c": ""}], "n": 1}));
    }

    #[test]
    fn routes_match_by_source_and_pattern() {
        let route = |source: Option<&str>, types: &[&str]| Route {
            source: source.map(Into::into),
            types: types.iter().map(|text| (*text).to_owned()).collect(),
            to: "worker".into(),
        };
        assert!(route(None, &[]).matches("stripe", "invoice.paid"));
        assert!(route(Some("stripe"), &["invoice.*"]).matches("stripe", "invoice.paid"));
        assert!(!route(Some("github"), &["invoice.*"]).matches("stripe", "invoice.paid"));
        assert!(!route(None, &["invoice.paid"]).matches("stripe", "invoice.paid.late"));
        assert!(route(None, &["a", "*"]).matches("stripe", "anything"));
    }
}
