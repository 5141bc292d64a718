//! What callers see of the queue.
//!
//! What is empty is left out. What a caller asked to hide is hidden here, and only here: everything that
//! shows headers or a body of a message comes through this file.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use tashika_domain::Timestamp;
use tashika_domain::message::asked::{Asked, Callback, Flow, Headers};
use tashika_domain::message::gate::FlowControl;
use tashika_domain::message::group::Group;
use tashika_domain::message::schedule::Schedule;
use tashika_domain::message::{Message, Response, State, public_id, redact};
use tashika_engine::commands::queue::{FlowView, QueueView};
use uuid::Uuid;

type Object = Map<String, Value>;

/// Sets a field, unless there is nothing in it.
fn set(object: &mut Object, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object.insert(name.to_owned(), value.into());
    }
}

fn set_headers(object: &mut Object, name: &str, headers: &Headers) {
    if !headers.is_empty() {
        object.insert(name.to_owned(), json!(headers));
    }
}

/// Text under its name, other bytes as `…Base64`.
fn set_bytes(object: &mut Object, name: &str, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}Base64"), BASE64_STANDARD.encode(bytes).into()),
    };
}

fn set_body(object: &mut Object, body: &[u8], asked: &Asked) {
    match redact::body(body, &asked.redact) {
        Some(hidden) if !body.is_empty() => set(object, "body", Some(hidden)),
        _ => set_bytes(object, "body", body),
    }
}

/// Names of the fields that are spelled differently in messages and in their log.
struct Spelling {
    callback_header: &'static str,
    failure_callback_header: &'static str,
}

const OF_MESSAGES: Spelling = Spelling {
    callback_header: "callbackHeader",
    failure_callback_header: "failureCallbackHeader",
};

const OF_EVENTS: Spelling = Spelling {
    callback_header: "callbackHeaders",
    failure_callback_header: "failureCallbackHeaders",
};

/// What was asked for, without the body.
fn set_asked(object: &mut Object, asked: &Asked, spelling: &Spelling) {
    object.insert("method".into(), asked.method.as_str().into());
    set_headers(object, "header", &redact::headers(&asked.headers, &asked.redact));
    let callbacks = [
        ("callback", spelling.callback_header, &asked.callback),
        ("failureCallback", spelling.failure_callback_header, &asked.failure_callback),
    ];
    for (name, header, callback) in callbacks {
        let Some(Callback { url, headers, .. }) = callback else { continue };
        set(object, name, Some(url.as_str()));
        set_headers(object, header, &redact::headers(headers, &asked.redact));
    }
    set(object, "topicName", asked.topic.as_deref());
    set(object, "endpointName", asked.endpoint.as_deref());
    set(object, "queueName", asked.queue.as_deref());
    set(object, "scheduleId", asked.schedule.as_deref());
    set(object, "callerIP", asked.caller_ip.as_deref());
    set(object, "retryDelayExpression", asked.retry_delay.as_deref());
    set(object, "timeout", asked.timeout.map(|timeout| timeout.as_secs()));
    set(object, "label", asked.labels.first().map(String::as_str));
    if !asked.labels.is_empty() {
        object.insert("labels".into(), json!(asked.labels));
    }
    if let Some(Flow { key, parallelism, rate, period }) = &asked.flow {
        set(object, "flowControlKey", Some(key.as_str()));
        set(object, "parallelism", *parallelism);
        set(object, "rate", *rate);
        set(object, "period", Some(period.as_secs()));
    }
}

pub(super) fn message(message: &Message) -> Value {
    Value::Object(of_message(message))
}

fn of_message(message: &Message) -> Object {
    let mut object = Object::new();
    set(&mut object, "messageId", Some(public_id(message.id)));
    set(&mut object, "url", Some(message.asked.url.as_str()));
    set(&mut object, "maxRetries", Some(message.asked.retries));
    set(&mut object, "notBefore", Some(message.not_before.as_millis()));
    set(&mut object, "createdAt", Some(message.created_at.as_millis()));
    set_asked(&mut object, &message.asked, &OF_MESSAGES);
    set_body(&mut object, &message.body, &message.asked);
    object
}

pub(crate) fn dead_letter(letter: &Message) -> Value {
    let mut object = of_message(letter);
    set(&mut object, "dlqId", letter.dlq_id.as_deref());
    let response = letter.response.clone().unwrap_or_default();
    set(&mut object, "responseStatus", Some(response.status));
    set_headers(&mut object, "responseHeader", &response.headers);
    match (&response.error, response.body.is_empty()) {
        // There was no answer; this is what there was instead.
        (Some(error), true) => set(&mut object, "responseBody", Some(error.as_str())),
        _ => set_bytes(&mut object, "responseBody", &response.body),
    }
    Value::Object(object)
}

/// A moment in the life of a message.
pub(super) struct Event<'a> {
    pub message: &'a Message,
    pub state: &'static str,
    pub at: Timestamp,
    pub next_at: Option<Timestamp>,
    pub response: Option<&'a Response>,
}

pub(super) fn event(event: &Event<'_>) -> Value {
    let (message, asked) = (event.message, &event.message.asked);
    let mut object = Object::new();
    set(&mut object, "time", Some(event.at.as_millis()));
    set(&mut object, "state", Some(event.state));
    set(&mut object, "messageId", Some(public_id(message.id)));
    set(&mut object, "url", Some(asked.url.as_str()));
    set(&mut object, "maxRetries", Some(asked.retries));
    set(&mut object, "nextDeliveryTime", event.next_at.map(Timestamp::as_millis));
    set_asked(&mut object, asked, &OF_EVENTS);
    // One SDK reads this name, the documentation has the other.
    set(&mut object, "retryDelayExpr", asked.retry_delay.as_deref());
    if !message.body.is_empty() {
        let body = redact::body(&message.body, &asked.redact)
            .unwrap_or_else(|| BASE64_STANDARD.encode(&message.body));
        set(&mut object, "body", Some(body));
    }
    if let Some(response) = event.response {
        set(&mut object, "responseStatus", (response.status > 0).then_some(response.status));
        set_headers(&mut object, "responseHeader", &response.headers);
        set_headers(&mut object, "responseHeaders", &response.headers);
        let body = (!response.body.is_empty()).then(|| BASE64_STANDARD.encode(&response.body));
        set(&mut object, "responseBody", body);
        set(&mut object, "error", response.error.as_deref());
    }
    Value::Object(object)
}

pub(super) fn queue(view: &QueueView) -> Value {
    let queue = &view.queue;
    json!({
        "name": queue.name,
        "parallelism": queue.parallelism,
        "createdAt": queue.created_at.as_millis(),
        "updatedAt": queue.updated_at.as_millis(),
        "lag": view.lag,
        "paused": queue.paused,
    })
}

pub(super) fn group(group: &Group) -> Value {
    let mut shown = json!({
        "name": group.name,
        "createdAt": group.created_at.as_millis(),
        "updatedAt": group.updated_at.as_millis(),
        "endpoints": group.endpoints,
    });
    if !group.headers.is_empty() {
        shown["headers"] = json!(group.headers);
    }
    shown
}

pub(super) fn schedule(schedule: &Schedule, states: &[(Uuid, State)]) -> Value {
    let mut object = Object::new();
    set(&mut object, "scheduleId", Some(schedule.name.as_str()));
    set(&mut object, "destination", Some(schedule.destination.as_str()));
    set(&mut object, "cron", Some(schedule.cron.as_str()));
    set(&mut object, "createdAt", Some(schedule.created_at.as_millis()));
    set(&mut object, "retries", Some(schedule.asked.retries));
    set(&mut object, "isPaused", Some(schedule.paused));
    set(&mut object, "delay", schedule.delay.map(|delay| delay.as_secs()));
    set(&mut object, "lastScheduleTime", schedule.last_at.map(Timestamp::as_millis));
    set(&mut object, "nextScheduleTime", schedule.next_at.map(Timestamp::as_millis));
    set(&mut object, "error", schedule.error.as_deref());
    set_asked(&mut object, &schedule.asked, &OF_MESSAGES);
    set_body(&mut object, &schedule.body, &schedule.asked);
    if !states.is_empty() {
        let states = states.iter().map(|(id, state)| {
            let state = match state {
                State::Queued | State::Throttled | State::Ready => "IN_PROGRESS",
                State::Delivered => "SUCCESS",
                State::Failed | State::Cancelled => "FAIL",
            };
            (public_id(*id), Value::from(state))
        });
        set(&mut object, "lastScheduleStates", Some(states.collect::<Object>()));
    }
    Value::Object(object)
}

pub(super) fn flow(view: &FlowView) -> Value {
    let FlowControl { key, parallelism, rate, period, period_start, period_count, .. } =
        &view.control;
    let mut object = Object::new();
    set(&mut object, "flowControlKey", Some(key.as_str()));
    set(&mut object, "waitListSize", Some(view.waiting));
    set(&mut object, "parallelismMax", *parallelism);
    set(&mut object, "parallelismCount", Some(view.active));
    set(&mut object, "rateMax", *rate);
    set(&mut object, "rateCount", Some(*period_count));
    set(&mut object, "ratePeriod", Some(period.as_secs()));
    set(&mut object, "ratePeriodStart", Some(period_start.as_millis() / 1000));
    set(&mut object, "isPaused", Some(view.control.paused));
    set(&mut object, "isPinnedParallelism", Some(view.control.pinned_parallelism));
    set(&mut object, "isPinnedRate", Some(view.control.pinned_rate));
    Value::Object(object)
}
