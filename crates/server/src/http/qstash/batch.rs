//! `/v2/batch`: several messages at once, all or none.

use axum::response::Response;
use http::Method;
use serde_json::{Map, Value};
use tashika_domain::message::address;
use tashika_domain::message::names;
use tashika_domain::message::spec::Spec;
use tashika_engine::commands::message::{Messages, Publish, in_batch};

use super::call::Call;
use super::fault::Fault;
use super::{ok, publish};

pub(super) async fn batch(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    call.only(&Method::POST, "POST")?;
    let items = match call.json()? {
        Value::Array(items) => items,
        one @ Value::Object(_) => vec![one],
        _ => return Err(Fault::bad("a batch is an array of messages")),
    };
    // Every item is read before the first is written.
    let mut batch = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let read = read(item, call).map_err(|why| Fault::bad(in_batch(place, &why)))?;
        batch.push(read);
    }
    let published = queue.publish_all(batch).await?;
    ok(&published.iter().map(publish::shown).collect())
}

/// One SDK leaves out what is not given, the other sends `null`.
fn read(item: &Value, call: &Call) -> Result<Publish, String> {
    let item = item.as_object().ok_or("it is not an object")?;
    let destination = text(item, "destination")?.unwrap_or_default();
    let queue = text(item, "queue")?.filter(|name| !name.is_empty());
    if let Some(name) = queue {
        names::check(name).map_err(|why| format!("invalid queue name: {why}"))?;
    }
    let headers = headers(item.get("headers"))?;
    let pairs = headers.iter().map(|(name, value)| (*name, value.as_str()));
    Ok(Publish {
        destination: address::destination(destination)?,
        spec: Spec::read(pairs)?,
        body: text(item, "body")?.unwrap_or_default().as_bytes().into(),
        queue: queue.map(str::to_owned),
        caller_ip: call.caller_ip.clone(),
        traceparent: call.traceparent.clone(),
    })
}

fn text<'a>(item: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match item.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is not a string")),
    }
}

/// Names and values of a JSON object of headers.
pub(super) fn headers(given: Option<&Value>) -> Result<Vec<(&str, String)>, String> {
    let given = match given {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(given)) => given,
        Some(_) => return Err("headers is not an object".to_owned()),
    };
    let mut headers = Vec::with_capacity(given.len());
    for (name, value) in given {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        for value in values {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                _ => return Err(format!("the header {name} is not a string")),
            };
            headers.push((name.as_str(), value));
        }
    }
    Ok(headers)
}
