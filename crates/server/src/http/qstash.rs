//! `/v2`: the message queue, as callers of QStash know it.
//!
//! Requests and answers follow the hosted service to the letter, because its SDKs are the clients: what
//! is wrong is answered as `{"error": "…"}`, and lists and names are spelled as they are there. A
//! destination is the rest of the path as it was sent, so nothing here goes through a router that takes
//! paths apart: requests come in by a [`door`] of their own, and [`answer`] looks at the raw path and hands the request to
//! the file of its first word.

mod batch;
mod call;
mod description;
mod dlq;
pub(super) mod door;
mod events;
mod fault;
mod flow_control;
mod keys;
mod messages;
mod publish;
mod query;
mod queues;
mod schedules;
mod topics;
pub(crate) mod view;

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::{Value, json};
use tashika_engine::commands::message::Messages;

use call::Call;
pub(super) use description::{describe, of_queue};
use fault::Fault;

/// Where everything here is.
pub(super) const BASE: &str = "/v2/";

/// The first words of paths, each with what the log and the metrics call a path of it, alone and with more behind it.
macro_rules! words {
    ($($word:literal),+) => { [$(($word, concat!("/v2/", $word), concat!("/v2/", $word, "/{*rest}"))),+] };
}
const WORDS: [(&str, &str, &str); 13] = words![
    "publish",
    "enqueue",
    "batch",
    "messages",
    "dlq",
    "queues",
    "topics",
    "schedules",
    "events",
    "logs",
    "flowControl",
    "globalParallelism",
    "keys"
];

/// Products of the hosted service that are not a queue.
const ELSEWHERE: [&str; 8] =
    ["chat", "llm", "notify", "trigger", "v1", "wait", "waiters", "workflows"];

/// What the handlers need.
pub struct Face {
    pub messages: Arc<Messages>,
    /// Deliveries that one process makes at the same moment.
    pub parallelism: usize,
}

/// What the log and the metrics call a path: callers can invent as many as they like.
fn shape(path: &str) -> &'static str {
    let path = path.strip_prefix(BASE).unwrap_or_default();
    let (word, rest) = path.split_once('/').map_or((path, None), |(word, rest)| (word, Some(rest)));
    match (WORDS.iter().find(|(known, ..)| *known == word), rest) {
        (Some((_, alone, _)), None) => alone,
        (Some((_, _, with_more)), Some(rest)) if !rest.is_empty() => with_more,
        _ => "/v2/{*rest}",
    }
}

/// Does a path belong here? Its errors look different then.
pub(super) fn owns(path: &str) -> bool {
    path == "/v2" || path.starts_with(BASE)
}

async fn answer(face: &Face, request: Request) -> Response {
    let call = match Call::read(request).await {
        Ok(call) => call,
        Err(problem) => return problem.into_response(),
    };
    // The future of all handlers together is large; most of them are rare.
    Box::pin(dispatch(face, &call)).await.unwrap_or_else(Fault::into_response)
}

async fn dispatch(face: &Face, call: &Call) -> Result<Response, Fault> {
    let queue = &*face.messages;
    let path = call.path();
    let (word, rest) = match path.split_once('/') {
        Some((word, rest)) => (word, Some(rest)),
        None => (path, None),
    };
    match (word, rest) {
        ("publish", _) => publish::publish(queue, call, rest.unwrap_or_default()).await,
        ("enqueue", _) => publish::enqueue(queue, call, rest.unwrap_or_default()).await,
        ("batch", None) => batch::batch(queue, call).await,
        ("messages", _) => messages::answer(queue, call, rest).await,
        ("dlq", _) => dlq::answer(queue, call, rest).await,
        ("queues", _) => queues::answer(queue, call, rest).await,
        ("topics", _) => topics::answer(queue, call, rest).await,
        ("schedules", _) => schedules::answer(queue, call, rest).await,
        ("events", None) => events::list(queue, call, "events").await,
        ("logs", None) => events::list(queue, call, "logs").await,
        ("flowControl", _) => flow_control::answer(queue, call, rest).await,
        ("globalParallelism", None) => flow_control::all(face, call).await,
        ("keys", _) => keys::answer(queue, call, rest).await,
        (word, _) if ELSEWHERE.contains(&word) => Err(Fault::not_found(format!(
            "/v2/{word} belongs to another product than the message queue, and is not part of this server"
        ))),
        _ => Err(Fault::nowhere()),
    }
}

/// An answer that a caller reads.
#[expect(clippy::unnecessary_wraps, reason = "handlers end with it")]
fn ok(body: &Value) -> Result<Response, Fault> {
    Ok(Json(body).into_response())
}

#[expect(clippy::unnecessary_wraps, reason = "handlers end with it")]
fn with_status(status: StatusCode, body: &Value) -> Result<Response, Fault> {
    Ok((status, Json(body)).into_response())
}

/// An answer in which there is nothing to read. It is JSON all the same, for those who try.
fn done() -> Result<Response, Fault> {
    ok(&json!({}))
}

#[cfg(test)]
mod tests;
