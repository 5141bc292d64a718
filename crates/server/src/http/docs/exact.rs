//! `/openapi.json` as it is answered: the generated description, and what is the same everywhere.
//!
//! Said here once instead of at every handler: the statuses that any request may end with, that a
//! parameter is left out and never `null`, that no text holds NUL, what a header may be, and what only
//! the configuration knows. Every status that can come is listed, so there is no `default`: a status
//! that is not listed is a mistake, and a test looks for it with requests of every kind.

use serde_json::{Value, json};
use tashika_domain::order::OrderRules;
use utoipa::openapi::OpenApi;

use super::super::problem::CONTENT_TYPE_PROBLEM;
use super::super::problem::codes::Code;
use super::super::qstash;
use crate::config::Config;

/// What the description says about this server, beside what the program knows.
pub(in crate::http) struct Facts {
    needs_token: bool,
    orders: OrderRules,
    slots_per_day: i64,
    sources: Vec<String>,
}

impl Facts {
    pub fn of(config: &Config) -> Self {
        Self {
            needs_token: !config.tokens.is_empty(),
            orders: config.orders.clone(),
            slots_per_day: config.reservations.slots_per_day,
            sources: config.webhooks.sources.iter().map(|source| source.name.clone()).collect(),
        }
    }
}

/// The document.
pub(in crate::http) fn document(api: &OpenApi, facts: &Facts) -> Value {
    // A description made of maps and strings always serialises.
    let mut document = serde_json::to_value(api).unwrap_or_default();
    qstash::describe(&mut document);
    let bodies = reached_by_requests(&document);
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        for (name, schema) in schemas.iter_mut().filter(|(name, _)| bodies.contains(name)) {
            // A message's body is bytes, whatever is in it.
            if !name.starts_with("Queue") {
                without_nul(schema);
            }
            settle(name, schema, facts);
        }
    }
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            let Some(operations) = item.as_object_mut() else { continue };
            for (method, operation) in operations {
                complete(path, method, operation, facts);
            }
        }
    }
    document
}

fn complete(path: &str, method: &str, operation: &mut Value, facts: &Facts) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let place = parameter["in"].clone();
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        let is_required = parameter["required"] == true;
        let schema = &mut parameter["schema"];
        without_null(schema);
        match (place.as_str(), name.as_str()) {
            (Some("path"), "source") => schema["enum"] = json!(facts.sources),
            (Some("header"), name) => of_header(name, is_required, schema),
            (Some("query"), "cursor") if schema["format"] == "uuid" => {
                *schema = json!({"anyOf": [schema.clone(), {"type": "string", "enum": [""]}]});
            }
            (Some("query"), _) => without_nul(schema),
            _ => {}
        }
    }
    if let Some(body) = operation.get_mut("requestBody") {
        optional_body(body);
    }
    let guarded = facts.needs_token && operation.get("security").is_some();
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for code in possible(path, method, guarded, facts) {
        let entry = code.entry();
        let status = entry.status.as_u16().to_string();
        responses.entry(status).or_insert_with(|| refusal(path, entry.detail.en));
    }
}

/// How any request to an operation may end, whatever its handler does.
fn possible(path: &str, method: &str, guarded: bool, facts: &Facts) -> Vec<Code> {
    let mut codes =
        vec![Code::BadRequest, Code::HeadersTooLarge, Code::InternalError, Code::StoreUnavailable];
    if guarded {
        codes.extend([Code::Unauthorized, Code::RateLimited]);
    } else if !facts.needs_token {
        codes.push(Code::MisdirectedRequest);
    }
    if method != "get" {
        codes.extend([Code::CrossSiteRequest, Code::RequestTimeout, Code::PayloadTooLarge]);
        let as_it_comes = qstash::owns(path) || path.contains("webhook");
        if !as_it_comes {
            codes.push(Code::UnsupportedMediaType);
        }
    }
    codes
}

fn refusal(path: &str, why: &str) -> Value {
    let (kind, schema) = if qstash::owns(path) {
        ("application/json", "#/components/schemas/QueueError")
    } else {
        (CONTENT_TYPE_PROBLEM, "#/components/schemas/Problem")
    };
    json!({"description": why, "content": {kind: {"schema": {"$ref": schema}}}})
}

/// What is not given is left out: a query and a header know no `null`.
fn without_null(schema: &mut Value) {
    if let Some(kinds) = schema.get("type").and_then(Value::as_array) {
        let kept: Vec<Value> = kinds.iter().filter(|kind| **kind != "null").cloned().collect();
        schema["type"] = match kept.as_slice() {
            [one] => one.clone(),
            _ => json!(kept),
        };
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let kept: Vec<Value> =
            choices.iter().filter(|one| one["type"] != "null").cloned().collect();
        if let [one] = kept.as_slice() {
            *schema = one.clone();
        }
    }
}

/// A body that may be left out is left out; `null` is a body, and not one of these.
fn optional_body(body: &mut Value) {
    let mut may_be_left_out = false;
    let contents = body.get_mut("content").and_then(Value::as_object_mut);
    for schema in contents.into_iter().flatten().filter_map(|(_, one)| one.get_mut("schema")) {
        let before = schema.clone();
        without_null(schema);
        may_be_left_out |= *schema != before;
    }
    if may_be_left_out {
        body["required"] = json!(false);
    }
}

/// PostgreSQL has no NUL in texts: no text of a request may hold one.
fn without_nul(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_text = match fields.get("type") {
                Some(Value::String(kind)) => kind == "string",
                Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
                _ => false,
            };
            let is_narrow = ["pattern", "format", "enum", "const"]
                .iter()
                .any(|name| fields.contains_key(*name));
            if is_text && !is_narrow {
                fields.insert("pattern".to_owned(), json!("^[^\\u0000]*$"));
            }
            for (name, value) in fields.iter_mut() {
                if !["example", "examples", "enum", "default"].contains(&name.as_str()) {
                    without_nul(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_nul),
        _ => {}
    }
}

/// Headers that mean the same everywhere.
fn of_header(name: &str, is_required: bool, schema: &mut Value) {
    let (pattern, longest) = match name {
        // Visible characters; blanks only between them, because those around a value get lost.
        "X-User-Id" => ("^[!-~]([ -~]*[!-~])?$", 100),
        // Quotes around a key are not part of it, and one that is nothing else is none.
        "Idempotency-Key" if is_required => ("^[!#-~]([ -~]*[!#-~])?$", 255),
        "Idempotency-Key" => ("^([!#-~]([ -~]*[!#-~])?)?$", 255),
        _ => return,
    };
    if schema.get("maxLength").is_none() {
        schema["maxLength"] = json!(longest);
    }
    schema["pattern"] = json!(pattern);
}

/// Bodies in which a field that nobody knows is refused.
const CLOSED: [&str; 8] = [
    "OrderRequest",
    "RiskConstraints",
    "MailRequest",
    "MailBatchRequest",
    "MailRecipient",
    "MailBatchRetry",
    "RequeueRequest",
    "RenderResolution",
];

/// What the generator cannot say about a body, and what the configuration knows about it.
fn settle(name: &str, schema: &mut Value, facts: &Facts) {
    if CLOSED.contains(&name) {
        schema["additionalProperties"] = json!(false);
    }
    match name {
        "OrderRequest" => {
            let fields = &mut schema["properties"];
            if let Some(names) = &facts.orders.instruments {
                fields["instrument"]["enum"] = json!(names);
            }
            if facts.orders.min_lot > 0.0 {
                fields["qty"]["minimum"] = json!(facts.orders.min_lot);
            }
            if facts.orders.lot_step > 0.0 {
                fields["qty"]["multipleOf"] = json!(facts.orders.lot_step);
            }
        }
        "ReservationRequest" => {
            schema["properties"]["slotNumber"]["maximum"] = json!(facts.slots_per_day);
        }
        "Silence" => {
            schema["oneOf"] = json!([{"required": ["minutes"]}, {"required": ["until"]}]);
        }
        _ => {}
    }
}

/// The names of all schemas that a request's body is made of.
fn reached_by_requests(document: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let items = document["paths"].as_object().into_iter().flatten();
    for (_, item) in items {
        for (_, operation) in item.as_object().into_iter().flatten() {
            collect(&operation["requestBody"], &document["components"]["schemas"], &mut names);
        }
    }
    names
}

fn collect(value: &Value, schemas: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let reference = value.as_str().filter(|_| name == "$ref");
                let known = reference.and_then(|text| text.rsplit('/').next());
                match known {
                    Some(known) if !names.iter().any(|name| name == known) => {
                        names.push(known.to_owned());
                        collect(&schemas[known], schemas, names);
                    }
                    _ => collect(value, schemas, names),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, schemas, names)),
        _ => {}
    }
}

/// The paths of a router that the description does not name.
///
/// A router does not tell its routes; what it shows of itself for debugging does. The console's own
/// endpoints are no part of the API, the pages for people neither; `qstash` compares its own.
#[cfg(debug_assertions)]
pub(in crate::http) fn undocumented(router: &axum::Router, document: &Value) -> Vec<String> {
    const NO_API: [&str; 4] = ["/console", "/docs", "/openapi.json", "/v2"];
    let empty = serde_json::Map::new();
    let known = document["paths"].as_object().unwrap_or(&empty);
    let shown = format!("{router:?}");
    let quoted = shown.split('"').skip(1).step_by(2);
    let paths =
        quoted.filter(|text| text.len() > 1 && text.starts_with('/') && !text.contains('*'));
    let of_api = paths.filter(|path| !NO_API.iter().any(|start| path.starts_with(start)));
    let mut missing: Vec<String> =
        of_api.filter(|path| !known.contains_key(*path)).map(str::to_owned).collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}
