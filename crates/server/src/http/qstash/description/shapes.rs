//! The shapes of what the queue takes and answers.

use serde_json::{Value, json};

/// Letters, digits, `-`, `_` and `.`; a path resolves `.` and `..`.
const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,255}$";
/// Names separated by commas, none of them empty.
const NAMES: &str =
    "^[^\\u0000,]*[^\\u0000,\\s][^\\u0000,]*(,[^\\u0000,]*[^\\u0000,\\s][^\\u0000,]*)*$";
/// The end of the year 9999, in milliseconds.
const LAST_MILLIS: i64 = 253_402_300_799_999;

/// A parameter of a path.
pub(super) fn path(name: &str, described: &super::Described) -> Value {
    let method = described.method;
    let schema = match name {
        // Whoever removes wants it gone: under a name that nothing can have, it is.
        "queue" | "group" if method == "delete" && !described.path.ends_with("/endpoints") => {
            json!({"type": "string"})
        }
        "queue" | "group" | "destination" | "schedule" => {
            json!({"type": "string", "pattern": NAME})
        }
        "key" => json!({"type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"}),
        _ => json!({"type": "string"}),
    };
    let mut parameter = json!({"name": name, "in": "path", "required": true, "schema": schema});
    if name == "destination" || (name == "schedule" && method == "post") {
        parameter["description"] =
            json!("A URL, unescaped and with its query, or the name of a group of URLs");
    }
    parameter
}

/// A parameter of a query. A name with `?` is a switch.
pub(super) fn query(name: &str) -> Value {
    let (shown, schema) = match name {
        "count" => ("count", json!({"type": "integer", "minimum": 1, "maximum": u64::MAX})),
        "cursor" => ("cursor", json!({"type": "string", "pattern": "^([0-9a-f]{32})?$"})),
        "place" => (
            "cursor",
            json!({"type": "string", "pattern": "^([0-9a-f]{32}-[0-9]{1,9}|[0-9]{1,13})?$"}),
        ),
        "order" => (
            "order",
            json!({"type": "string", "enum": ["earliestFirst", "latestFirst", "asc", "desc"]}),
        ),
        "fromDate" | "toDate" => {
            (name, json!({"type": "integer", "minimum": 0, "maximum": LAST_MILLIS}))
        }
        "responseStatus" => (name, json!({"type": "integer", "minimum": 0, "maximum": 65_535})),
        "state" => (name, json!({"type": "string", "enum": EVENT_STATES})),
        "url" | "path" | "flowControlKey" => {
            (name, json!({"type": "string", "pattern": "^[^\\u0000]+$"}))
        }
        "parallelism" | "rate" => {
            (name, json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}))
        }
        "period" => (name, json!({"type": "integer", "minimum": 1, "maximum": 604_800})),
        "parallelism?" => ("parallelism", json!({"type": "boolean"})),
        "rate?" => ("rate", json!({"type": "boolean"})),
        "search" => (name, json!({"type": "string"})),
        _ => (name, json!({"type": "string", "pattern": NAMES})),
    };
    let mut parameter = json!({"name": shown, "in": "query", "required": false, "schema": schema});
    if matches!(name, "count" | "cursor" | "place") {
        parameter["allowEmptyValue"] = json!(true);
    }
    parameter
}

/// When a schedule fires.
pub(super) fn cron() -> Value {
    json!({
        "name": "Upstash-Cron", "in": "header", "required": true,
        "description": "Five fields, or `@every`; `CRON_TZ=` before them names a time zone",
        "schema": {"type": "string", "format": "cron"}, "example": "*/5 * * * *",
    })
}

const EVENT_STATES: [&str; 10] = [
    "CREATED",
    "ACTIVE",
    "RETRY",
    "ERROR",
    "DELIVERED",
    "FAILED",
    "CANCEL_REQUESTED",
    "CANCELED",
    "CANCELLED",
    "IN_PROGRESS",
];

fn object(fields: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": fields, "required": required})
}

fn list(shape: &str) -> Value {
    json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{shape}")}})
}

/// A list under a name, with a cursor while there is more.
fn page(name: &str, shape: &str) -> Value {
    object(&json!({name: list(shape), "cursor": {"type": "string"}}), &[name])
}

/// What was asked for, in messages, letters, schedules and events.
fn asked() -> Value {
    let headers = json!({"type": "object", "additionalProperties":
        {"type": "array", "items": {"type": "string"}}});
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    json!({
        "messageId": text, "url": text, "method": text, "header": headers, "body": text,
        "bodyBase64": text, "maxRetries": number, "notBefore": number, "createdAt": number,
        "topicName": text, "endpointName": text, "queueName": text, "scheduleId": text,
        "callerIP": text, "callback": text, "failureCallback": text, "label": text,
        "labels": {"type": "array", "items": text}, "timeout": number,
        "flowControlKey": text, "parallelism": number, "rate": number, "period": number,
        "retryDelayExpression": text,
    })
}

fn extended(more: &Value, required: &[&str]) -> Value {
    let mut fields = asked();
    for (name, shape) in more.as_object().into_iter().flatten() {
        fields[name] = shape.clone();
    }
    object(&fields, required)
}

/// Every shape, by its name.
pub(super) fn all() -> Value {
    let mut all = json!({});
    for part in [messages(), letters(), queues(), groups(), schedules(), flows()] {
        for (name, shape) in part.as_object().into_iter().flatten() {
            all[name] = shape.clone();
        }
    }
    all
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "integer"})
}

fn truth() -> Value {
    json!({"type": "boolean"})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A URL or the name of a group.
const DESTINATION: &str = "^(https?://([A-Za-z0-9-]+\\.)+[A-Za-z]{2,}(/[A-Za-z0-9._~/-]*)?|[A-Za-z0-9_-][A-Za-z0-9_.-]{0,255})$";

fn messages() -> Value {
    let receipt = json!({"messageId": text(), "url": text(), "deduplicated": truth()});
    let item = json!({
        "destination": {"type": "string", "pattern": DESTINATION},
        "queue": {"type": ["string", "null"], "pattern": "^([A-Za-z0-9_-][A-Za-z0-9_.-]{0,255})?$"},
        "headers": {"type": ["object", "null"]},
        "body": {"type": ["string", "null"]},
    });
    let moments = json!({
        "time": number(), "state": text(), "nextDeliveryTime": number(),
        "responseStatus": number(), "responseBody": text(), "error": text(),
    });
    json!({
        "QueueError": object(&json!({"error": text()}), &["error"]),
        "QueueDone": {"type": "object"},
        "QueueReceipt": object(&receipt, &["messageId"]),
        "QueueReceipts": {"oneOf": [reference("QueueReceipt"), list("QueueReceipt")]},
        "QueueBatchReceipts": list("QueueReceipts"),
        "QueueBatchItem": object(&item, &["destination"]),
        "QueueBatch": {"oneOf": [list("QueueBatchItem"), reference("QueueBatchItem")]},
        "QueueMessage": extended(&json!({}), &["messageId", "url", "method", "createdAt"]),
        "QueueCancelled": object(&json!({"cancelled": number()}), &["cancelled"]),
        "QueueMessageIds": ids("messageIds"),
        "QueueEvent": extended(&moments, &["time", "state", "messageId", "url"]),
        "QueueEvents": page("events", "QueueEvent"),
        "QueueLogs": page("logs", "QueueEvent"),
    })
}

/// `{"NAME": ["…"]}` and nothing else.
fn ids(name: &str) -> Value {
    let id = json!({"type": "string", "pattern": "^[^\\u0000]+$"});
    let list = json!({"type": "array", "items": id, "minItems": 1, "maxItems": 10_000});
    let mut shape = object(&json!({name: list}), &[name]);
    shape["additionalProperties"] = json!(false);
    shape
}

fn letters() -> Value {
    let end = json!({"dlqId": text(), "responseStatus": number(), "responseBody": text()});
    let letter = extended(&end, &["messageId", "dlqId", "url", "responseStatus"]);
    let deleted = json!({"deleted": number(), "cursor": text()});
    json!({
        "QueueDeadLetter": letter,
        "QueueDeadLetters": page("messages", "QueueDeadLetter"),
        "QueueDlqIds": ids("dlqIds"),
        "QueueDeleted": object(&deleted, &["deleted"]),
        "QueueResent": page("responses", "QueueReceipt"),
    })
}

fn queues() -> Value {
    let queue = json!({
        "name": text(), "parallelism": number(), "createdAt": number(), "updatedAt": number(),
        "lag": number(), "paused": truth(),
    });
    let settings = json!({
        "queueName": {"type": "string", "pattern": NAME},
        "parallelism": {"type": ["integer", "null"], "minimum": 1, "maximum": u32::MAX},
        "paused": {"type": ["boolean", "null"]},
    });
    json!({
        "Queue": object(&queue, &["name", "parallelism", "createdAt", "updatedAt", "lag", "paused"]),
        "Queues": list("Queue"),
        "QueueSettings": object(&settings, &["queueName"]),
        "QueueParallelism": object(
            &json!({"parallelismMax": number(), "parallelismCount": number()}),
            &["parallelismMax", "parallelismCount"],
        ),
        "QueueKeys": object(&json!({"current": text(), "next": text()}), &["current", "next"]),
    })
}

fn groups() -> Value {
    let endpoint = json!({
        "url": {"type": "string", "pattern": "^https?://([A-Za-z0-9-]+\\.)+[A-Za-z]{2,}(/[A-Za-z0-9._~/-]*)?$"},
        "name": {"type": ["string", "null"], "pattern": "^[^\\u0000]*$"},
    });
    let endpoints = |shape: &str| {
        let mut all = list(shape);
        all["minItems"] = json!(1);
        object(&json!({"endpoints": all}), &["endpoints"])
    };
    let group = json!({
        "name": text(), "createdAt": number(), "updatedAt": number(),
        "endpoints": {"type": "array", "items": {"type": "object"}}, "headers": {"type": "object"},
    });
    let headers = json!({"headers": {"type": "object"}});
    json!({
        "QueueGroup": object(&group, &["name", "createdAt", "updatedAt", "endpoints"]),
        "QueueGroups": list("QueueGroup"),
        "QueueGroupHeaders": object(&headers, &["headers"]),
        "QueueEndpoint": object(&endpoint, &["url"]),
        "QueueEndpoints": endpoints("QueueEndpoint"),
    })
}

fn schedules() -> Value {
    let more = json!({
        "destination": text(), "cron": text(), "retries": number(), "isPaused": truth(),
        "delay": number(), "lastScheduleTime": number(), "nextScheduleTime": number(),
        "error": text(), "lastScheduleStates": {"type": "object"},
    });
    let required = ["scheduleId", "destination", "cron", "createdAt", "isPaused"];
    json!({
        "QueueSchedule": extended(&more, &required),
        "QueueSchedules": list("QueueSchedule"),
        "QueueScheduleId": object(&json!({"scheduleId": text()}), &["scheduleId"]),
    })
}

fn flows() -> Value {
    let mut flow = json!({"flowControlKey": text()});
    for name in [
        "waitListSize",
        "parallelismMax",
        "parallelismCount",
        "rateMax",
        "rateCount",
        "ratePeriod",
        "ratePeriodStart",
    ] {
        flow[name] = number();
    }
    for name in ["isPaused", "isPinnedParallelism", "isPinnedRate"] {
        flow[name] = truth();
    }
    json!({
        "QueueFlow": object(&flow, &["flowControlKey", "waitListSize", "isPaused"]),
        "QueueFlows": list("QueueFlow"),
    })
}
