//! Telling people about an alert.
//!
//! One effect per state and channel, in the commit that marks the state as told: it survives whatever
//! happens to the process, is tried again, and is there once however many processes watch.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Alert, AlertState, Severity};
use crate::changes::{Changes, Write};
use crate::effect::{EffectId, NewEffect};
use crate::ids::derived;
use crate::lane::Lane;
use crate::mail::{self, Letter, Locale};
use crate::time::Timestamp;

/// The effect kind of a notification over HTTP.
pub const KIND: &str = "alert";

/// The mail template, with the variables of [`variables`].
pub const TEMPLATE: &str = "alert";

/// Who is told, besides the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// The name of the HTTP address, as its sink has it.
    pub webhook: Option<String>,
    /// Addresses of people.
    pub mail_to: Vec<String>,
    /// How long a notification that was delivered is remembered.
    pub keep: std::time::Duration,
}

/// What is delivered over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    /// The same for every repeat, so that a receiver can tell.
    pub id: Uuid,
    pub sink: String,
    /// What a chat shows, and what a program reads.
    pub body: Value,
}

/// Everything that tells people about an alert as it is now.
#[must_use]
pub fn tell(alert: &Alert, channels: &Channels, now: Timestamp) -> Changes {
    let mut changes = Changes::new();
    if let Some(sink) = &channels.webhook {
        changes.push(Write::Enqueue(posted(alert, sink, channels, now)));
    }
    for to in &channels.mail_to {
        changes.extend(mailed(alert, to, now));
    }
    changes
}

fn posted(alert: &Alert, sink: &str, channels: &Channels, now: Timestamp) -> NewEffect {
    let key = format!("{}:{}:{sink}", alert.id, alert.state.as_str());
    let id = derived(now, &[KIND.as_bytes(), key.as_bytes()]);
    let notification = Notification { id, sink: sink.to_owned(), body: body(alert) };
    NewEffect {
        id: EffectId(id),
        lane: Lane::EVENTS,
        kind: KIND.into(),
        key: Some(key),
        digest: None,
        payload: json!(notification).to_string(),
        run_at: now,
        created_at: now,
        expires_at: now.plus(channels.keep),
        traceparent: None,
        held_by: None,
    }
}

fn mailed(alert: &Alert, to: &str, now: Timestamp) -> Changes {
    let key = format!("{}:{}:{to}", alert.id, alert.state.as_str());
    let letter = Letter {
        id: derived(now, &[b"alert mail", key.as_bytes()]),
        to: to.to_owned(),
        template: TEMPLATE.to_owned(),
        // As the rules and their labels are.
        locale: Locale::En,
        data: variables(alert),
        batch_id: None,
        key: Some(key),
    };
    mail::enqueue(letter, now)
}

/// What the mail template may use.
#[must_use]
pub fn variables(alert: &Alert) -> Value {
    json!({
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "count": alert.count,
        "message": alert.message,
        "firedAt": alert.fired_at,
        "labels": alert.labels,
    })
}

/// The body of a notification: what Slack and everything compatible shows, and under `metadata` the same for
/// programs.
#[must_use]
pub fn body(alert: &Alert) -> Value {
    let (word, color) = match (alert.state, alert.severity) {
        (AlertState::Resolved, _) => ("RESOLVED", "good"),
        (AlertState::Firing, Severity::Warning) => ("WARNING", "warning"),
        (AlertState::Firing, Severity::High) => ("HIGH", "danger"),
        (AlertState::Firing, Severity::Critical) => ("CRITICAL", "danger"),
    };
    let text = format!("[{word}] {}: {} ({})", alert.rule, alert.message, alert.count);
    let field = |title: &str, value: String| json!({"title": title, "value": escaped(&value), "short": true});
    let mut fields = vec![
        field("rule", alert.rule.clone()),
        field("severity", alert.severity.as_str().to_owned()),
        field("state", alert.state.as_str().to_owned()),
        field("count", alert.count.to_string()),
        field("firedAt", alert.fired_at.to_string()),
    ];
    for (name, value) in alert.labels.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        fields.push(field(name, value));
    }
    let mut told = variables(alert);
    told["id"] = json!(alert.id);
    told["resolvedAt"] = json!(alert.resolved_at);
    let at = alert.resolved_at.unwrap_or(alert.fired_at).as_millis() / 1000;
    json!({
        "text": escaped(&text),
        "attachments": [{
            "color": color,
            "fallback": escaped(&text),
            "title": alert.rule,
            "text": escaped(&alert.message),
            "fields": fields,
            "ts": at,
        }],
        "metadata": {"event_type": "tashika_alert", "event_payload": told},
    })
}

/// A label may hold what a stranger has said: it must not become a link or a call to everybody.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::Announced;
    use super::*;

    fn alert(state: AlertState) -> Alert {
        let at = Timestamp::from_micros(1_767_571_200_000_000);
        Alert {
            id: Uuid::nil(),
            version: 1,
            rule: "manual_case".into(),
            subject: "manual_case".into(),
            severity: Severity::Critical,
            state,
            message: "cases wait <!channel>".into(),
            count: 3,
            fired_at: at,
            seen_at: at,
            resolved_at: (state == AlertState::Resolved).then_some(at),
            labels: json!({"value": "3"}),
            announced: Announced::Nothing,
            acknowledged: None,
            silenced: None,
        }
    }

    #[test]
    fn a_chat_shows_it_and_nothing_in_it_calls_anybody() {
        let body = body(&alert(AlertState::Firing));
        assert_eq!(body["text"], "[CRITICAL] manual_case: cases wait &lt;!channel&gt; (3)");
        assert_eq!(body["attachments"][0]["color"], "danger");
        assert_eq!(body["metadata"]["event_payload"]["labels"]["value"], "3");
        let over = super::body(&alert(AlertState::Resolved));
        assert_eq!(over["attachments"][0]["color"], "good");
        assert!(over["text"].as_str().is_some_and(|text| text.starts_with("[RESOLVED]")));
    }

    #[test]
    fn each_state_has_an_effect_of_its_own() {
        let channels = Channels { webhook: Some("chat".into()), ..Channels::default() };
        let now = Timestamp::from_micros(7);
        let key = |state| {
            let changes = tell(&alert(state), &channels, now);
            match changes.writes() {
                [Write::Enqueue(effect)] => effect.key.clone().expect("a key"),
                other => panic!("{other:?}"),
            }
        };
        assert_ne!(key(AlertState::Firing), key(AlertState::Resolved));
        assert!(tell(&alert(AlertState::Firing), &Channels::default(), now).is_empty());
    }
}
