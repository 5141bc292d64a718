//! Callbacks: messages that tell how another message fared.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::changes::Changes;
use crate::ids::derived;

use super::asked::{Asked, Callback, Method, Redact};
use super::conclude::Attempted;
use super::{Begin, Draft, Message, accept};

/// Tells of an attempt, if the message asks for that.
pub(super) fn after_attempt(message: &Message, attempt: &Attempted) -> Changes {
    match &message.asked.callback {
        Some(callback) => tell(message, callback, b"callback", &report(message, attempt), attempt),
        None => Changes::new(),
    }
}

/// Tells that a message was given up, if it asks for that.
pub(super) fn after_failure(message: &Message, dlq_id: &str, attempt: &Attempted) -> Changes {
    let Some(callback) = &message.asked.failure_callback else { return Changes::new() };
    let mut report = report(message, attempt);
    report["dlqId"] = json!(dlq_id);
    tell(message, callback, b"failure", &report, attempt)
}

fn tell(
    message: &Message,
    callback: &Callback,
    name: &[u8],
    report: &Value,
    attempt: &Attempted,
) -> Changes {
    let original = &message.asked;
    let mut headers = callback.headers.clone();
    headers.insert("Content-Type".into(), vec!["application/json".into()]);
    let asked = Asked {
        url: callback.url.clone(),
        method: callback.method.unwrap_or(Method::Post),
        headers,
        retries: callback.retries.unwrap_or(original.retries),
        retry_delay: callback.retry_delay.clone(),
        timeout: callback.timeout,
        caller_ip: original.caller_ip.clone(),
        labels: original.labels.clone(),
        // The report repeats the original, hidden parts included.
        redact: Redact { body: !original.redact.is_nothing(), ..original.redact.clone() },
        ..Asked::default()
    };
    let (_, changes) = accept(Draft {
        id: derived(attempt.now, &[name, attempt.id.as_bytes()]),
        asked: asked.into(),
        body: report.to_string().into_bytes().into(),
        not_before: None,
        dedup_key: None,
        // The next message of the queue waits for the callback as well.
        holds: message.slot.clone(),
        traceparent: message.traceparent.clone(),
        now: attempt.now,
        expires_at: attempt.expires_at,
        begin: Begin::Due,
    });
    changes
}

fn report(message: &Message, attempt: &Attempted) -> Value {
    let (asked, response) = (&message.asked, &attempt.response);
    let mut report = json!({
        "status": response.status,
        "header": response.headers,
        "body": BASE64_STANDARD.encode(&response.body),
        "retried": attempt.retried(),
        "maxRetries": asked.retries,
        "sourceMessageId": super::public_id(message.id),
        "url": asked.url,
        "method": asked.method,
        "sourceHeader": asked.headers,
        "sourceBody": BASE64_STANDARD.encode(&message.body),
        "notBefore": message.not_before.as_millis(),
        "createdAt": message.created_at.as_millis(),
    });
    let optional = [
        ("topicName", &asked.topic),
        ("endpointName", &asked.endpoint),
        ("queueName", &asked.queue),
        ("scheduleId", &asked.schedule),
        ("callerIP", &asked.caller_ip),
        ("error", &response.error),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            report[name] = json!(value);
        }
    }
    report
}
