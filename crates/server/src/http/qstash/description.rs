//! The queue in the API's description.
//!
//! Requests and answers follow QStash, whose SDKs are the clients; its own documentation says more about
//! each field. A path of OpenAPI has no slashes in its parameters, so a URL as a destination can be told
//! in words only: what is described here is the name of a group of URLs.

mod shapes;

use serde_json::{Value, json};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Paths};
use utoipa::openapi::{Info, OpenApi};

const ABOUT: &str = "Follows the QStash API: headers, objects and errors are those of the official \
                     `@upstash/qstash` and `qstash` clients.";

/// One operation.
struct Described {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    body: Option<&'static str>,
    /// Statuses that mean success, with the name of the answer's shape.
    answers: &'static [(u16, &'static str)],
    refusals: &'static [u16],
}

const fn op(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    answers: &'static [(u16, &'static str)],
    refusals: &'static [u16],
) -> Described {
    Described { method, path, summary, query: &[], body: None, answers, refusals }
}

impl Described {
    const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    const fn body(mut self, shape: &'static str) -> Self {
        self.body = Some(shape);
        self
    }
}

/// What messages can be chosen by.
const FILTER: [&str; 10] = [
    "url",
    "topicName",
    "queueName",
    "scheduleId",
    "label",
    "flowControlKey",
    "callerIp",
    "fromDate",
    "toDate",
    "order",
];
const OF_LETTERS: &[&str] =
    &["cursor", "count", "dlqIds", "messageId", "responseStatus", "host", "path", "*"];
const OF_EVENTS: &[&str] =
    &["place", "count", "state", "messageId", "messageIds", "host", "path", "*"];
const OF_MESSAGES: &[&str] = &["messageIds", "host", "path", "*"];

const DONE: &[(u16, &str)] = &[(200, "QueueDone")];
const WRONG: &[u16] = &[400];
const ABSENT: &[u16] = &[404];
const EITHER: &[u16] = &[400, 404];

/// Every operation.
const OPERATIONS: [Described; 45] = [
    op(
        "post",
        "/v2/publish/{destination}",
        "Publish a message to a URL or a group of URLs",
        &[(200, "QueueReceipts"), (202, "QueueReceipts")],
        EITHER,
    )
    .body("any"),
    op(
        "post",
        "/v2/enqueue/{queue}/{destination}",
        "Put a message into a queue",
        &[(200, "QueueReceipts"), (202, "QueueReceipts")],
        EITHER,
    )
    .body("any"),
    op(
        "post",
        "/v2/batch",
        "Publish several messages, all or none",
        &[(200, "QueueBatchReceipts")],
        WRONG,
    )
    .body("QueueBatch"),
    op("get", "/v2/messages/{messageId}", "Look a message up", &[(200, "QueueMessage")], ABSENT),
    op(
        "delete",
        "/v2/messages/{messageId}",
        "Cancel a message",
        &[(200, "QueueCancelled")],
        ABSENT,
    ),
    op(
        "delete",
        "/v2/messages",
        "Cancel messages by id, by filter, or all",
        &[(200, "QueueCancelled")],
        WRONG,
    )
    .query(OF_MESSAGES)
    .body("?QueueMessageIds"),
    op("get", "/v2/dlq", "List dead letters", &[(200, "QueueDeadLetters")], WRONG)
        .query(OF_LETTERS),
    op("delete", "/v2/dlq", "Remove dead letters", &[(200, "QueueDeleted")], WRONG)
        .query(OF_LETTERS)
        .body("?QueueDlqIds"),
    op("get", "/v2/dlq/{dlqId}", "Look a dead letter up", &[(200, "QueueDeadLetter")], ABSENT),
    op("delete", "/v2/dlq/{dlqId}", "Remove a dead letter", DONE, ABSENT),
    op("post", "/v2/dlq/retry", "Send dead letters again", &[(201, "QueueResent")], WRONG)
        .query(OF_LETTERS)
        .body("?QueueDlqIds"),
    op(
        "post",
        "/v2/dlq/retry/{dlqId}",
        "Send a dead letter again",
        &[(201, "QueueReceipt")],
        EITHER,
    ),
    op("get", "/v2/queues", "List queues", &[(200, "Queues")], &[]),
    op("post", "/v2/queues", "Make or change a queue", DONE, WRONG).body("QueueSettings"),
    op("get", "/v2/queues/{queue}", "Look a queue up", &[(200, "Queue")], ABSENT),
    op("delete", "/v2/queues/{queue}", "Remove a queue and cancel what waits in it", DONE, &[]),
    op("post", "/v2/queues/{queue}/pause", "Pause a queue", DONE, ABSENT),
    op("post", "/v2/queues/{queue}/resume", "Resume a queue", DONE, ABSENT),
    op("get", "/v2/topics", "List groups of URLs", &[(200, "QueueGroups")], &[]),
    op("get", "/v2/topics/{group}", "Look a group up", &[(200, "QueueGroup")], ABSENT),
    op("patch", "/v2/topics/{group}", "Set the headers of a group's messages", DONE, EITHER)
        .body("QueueGroupHeaders"),
    op("delete", "/v2/topics/{group}", "Remove a group", DONE, &[]),
    op("post", "/v2/topics/{group}/endpoints", "Add URLs to a group", DONE, WRONG)
        .body("QueueEndpoints"),
    op("delete", "/v2/topics/{group}/endpoints", "Remove URLs from a group", DONE, EITHER)
        .body("QueueEndpoints"),
    op("get", "/v2/schedules", "List schedules", &[(200, "QueueSchedules")], &[]),
    op(
        "post",
        "/v2/schedules/{schedule}",
        "Make or overwrite a schedule; the path has its destination",
        &[(200, "QueueScheduleId")],
        EITHER,
    )
    .query(&["cron"])
    .body("any"),
    op("get", "/v2/schedules/{schedule}", "Look a schedule up", &[(200, "QueueSchedule")], ABSENT),
    op("delete", "/v2/schedules/{schedule}", "Remove a schedule", DONE, ABSENT),
    op("patch", "/v2/schedules/{schedule}/pause", "Pause a schedule", DONE, &[404, 405]),
    op("post", "/v2/schedules/{schedule}/pause", "Pause a schedule", DONE, &[400, 404]),
    op("patch", "/v2/schedules/{schedule}/resume", "Resume a schedule", DONE, &[404, 405]),
    op("post", "/v2/schedules/{schedule}/resume", "Resume a schedule", DONE, &[400, 404]),
    op("get", "/v2/events", "List what happened to messages", &[(200, "QueueEvents")], WRONG)
        .query(OF_EVENTS),
    op("get", "/v2/logs", "The same, as `logs`", &[(200, "QueueLogs")], WRONG).query(OF_EVENTS),
    op("get", "/v2/flowControl", "List flow controls", &[(200, "QueueFlows")], WRONG)
        .query(&["search"]),
    op("get", "/v2/flowControl/{key}", "Look a flow control up", &[(200, "QueueFlow")], EITHER),
    op("post", "/v2/flowControl/{key}/pause", "Pause a flow control", DONE, EITHER),
    op("post", "/v2/flowControl/{key}/resume", "Resume a flow control", DONE, EITHER),
    op(
        "post",
        "/v2/flowControl/{key}/pin",
        "Pin limits, so that messages do not change them",
        DONE,
        EITHER,
    )
    .query(&["parallelism", "rate", "period"]),
    op("post", "/v2/flowControl/{key}/unpin", "Let messages change the limits again", DONE, EITHER)
        .query(&["parallelism?", "rate?"]),
    op("post", "/v2/flowControl/{key}/resetRate", "Begin a new period", DONE, EITHER),
    op("post", "/v2/flowControl/{key}/reset", "Begin a new period", DONE, EITHER),
    op(
        "get",
        "/v2/globalParallelism",
        "How many deliveries are under way",
        &[(200, "QueueParallelism")],
        &[],
    ),
    op("get", "/v2/keys", "The keys that deliveries are signed with", &[(200, "QueueKeys")], &[]),
    op(
        "post",
        "/v2/keys/rotate",
        "Replace the current key by the next one",
        &[(200, "QueueKeys")],
        &[412],
    ),
];

/// What the router and the first page need to know; [`describe`] says the rest.
pub(in crate::http) fn of_queue() -> OpenApi {
    let mut paths = Paths::new();
    for described in &OPERATIONS {
        let operation = OperationBuilder::new().tag("queue").summary(Some(described.summary));
        paths.add_path_operation(described.path, vec![method(described)], operation.build());
    }
    OpenApi::new(Info::new("", ""), paths)
}

fn method(described: &Described) -> HttpMethod {
    match described.method {
        "post" => HttpMethod::Post,
        "patch" => HttpMethod::Patch,
        "delete" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

/// Completes the queue's part of a document, where it is there.
pub(in crate::http) fn describe(document: &mut Value) {
    for described in &OPERATIONS {
        let place = document.pointer_mut("/paths").and_then(|paths| paths.get_mut(described.path));
        let place = place.and_then(|item| item.get_mut(described.method));
        let Some(found) = place.and_then(Value::as_object_mut) else { return };
        if let Value::Object(operation) = operation(described) {
            found.extend(operation);
        }
    }
    if let (Some(known), Value::Object(shapes)) =
        (document.pointer_mut("/components/schemas").and_then(Value::as_object_mut), shapes::all())
    {
        known.extend(shapes);
    }
}

fn operation(described: &Described) -> Value {
    let mut responses = json!({});
    for (status, shape) in described.answers {
        responses[status.to_string()] = answer("Done", shape);
    }
    for status in described.refusals {
        let why = match status {
            404 => "Not there",
            405 => "Nothing can have this name",
            412 => "The keys are set in the configuration",
            _ => "The request cannot be read",
        };
        responses[status.to_string()] = answer(why, "QueueError");
    }
    let in_path =
        described.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path.map(|name| shapes::path(name, described)).collect();
    for name in described.query {
        match *name {
            "*" => parameters.extend(FILTER.iter().map(|name| shapes::query(name))),
            // How schedules are told their times.
            "cron" => parameters.push(shapes::cron()),
            name => parameters.push(shapes::query(name)),
        }
    }
    let mut operation = json!({
        "tags": ["queue"],
        "summary": described.summary,
        "description": ABOUT,
        "parameters": parameters,
        "responses": responses,
    });
    match described.body {
        Some("any") => {
            operation["requestBody"] = json!({"content": {"application/json": {"schema": {}}}});
        }
        Some(shape) => {
            let name = shape.trim_start_matches('?');
            operation["requestBody"] = json!({
                "content": {"application/json": {"schema": reference(name)}},
                "required": name == shape,
            });
        }
        None => {}
    }
    operation
}

fn answer(why: &str, shape: &str) -> Value {
    json!({"description": why, "content": {"application/json": {"schema": reference(shape)}}})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
mod tests {
    use super::super::WORDS;
    use super::*;

    #[test]
    fn what_is_described_is_routed_and_the_other_way_round() {
        let word = |path: &str| path.split('/').nth(2).unwrap_or_default().to_owned();
        for described in &OPERATIONS {
            let word = word(described.path);
            assert!(WORDS.iter().any(|(known, ..)| *known == word), "{}", described.path);
        }
        for (routed, ..) in WORDS {
            assert!(OPERATIONS.iter().any(|one| word(one.path) == routed), "{routed}");
        }
    }

    #[test]
    fn every_shape_that_is_named_is_there() {
        let mut document = serde_json::to_value(of_queue()).unwrap();
        document["components"] = json!({"schemas": {}});
        describe(&mut document);
        let text = document.to_string();
        let named = text.split("#/components/schemas/").skip(1);
        for name in named.filter_map(|rest| rest.split('"').next()) {
            assert!(!document["components"]["schemas"][name].is_null(), "{name}");
        }
        for described in &OPERATIONS {
            let operation = &document["paths"][described.path][described.method];
            assert_eq!(operation["summary"], described.summary);
            assert!(
                operation["responses"]["200"].is_object()
                    || operation["responses"]["201"].is_object()
            );
        }
    }
}
