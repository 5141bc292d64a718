//! `/v2/topics`: groups of URLs.

use axum::response::Response;
use http::Method;
use serde_json::Value;
use tashika_domain::message::asked::Headers;
use tashika_domain::message::group::{Endpoint, EndpointRef};
use tashika_domain::message::names;
use tashika_domain::message::spec::Spec;
use tashika_engine::commands::message::Messages;

use super::batch;
use super::call::Call;
use super::fault::Fault;
use super::{done, ok, view};

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let Some(rest) = rest else {
        call.only(&Method::GET, "GET")?;
        return ok(&queue.groups().await?.iter().map(view::group).collect());
    };
    match rest.split_once('/') {
        None => one(queue, call, rest).await,
        Some((name, "endpoints")) => endpoints(queue, call, name).await,
        Some(_) => Err(Fault::nowhere()),
    }
}

async fn one(queue: &Messages, call: &Call, name: &str) -> Result<Response, Fault> {
    match call.method {
        Method::GET => ok(&view::group(&queue.group(name).await?)),
        // Also one that is not there: a client deletes before it creates.
        Method::DELETE => {
            queue.delete_group(name).await?;
            done()
        }
        Method::PATCH => {
            let headers = default_headers(&call.json()?)?;
            queue.set_group_headers(name, &headers).await?;
            done()
        }
        _ => Err(Fault::Method("GET, DELETE, PATCH")),
    }
}

async fn endpoints(queue: &Messages, call: &Call, name: &str) -> Result<Response, Fault> {
    names::check(name).map_err(|why| Fault::bad(format!("invalid topic name: {why}")))?;
    match call.method {
        Method::POST => {
            let mut endpoints = Vec::new();
            for EndpointRef { url, name } in listed(&call.json()?)? {
                let url = url.ok_or_else(|| Fault::bad("an endpoint needs a url"))?;
                endpoints.push(Endpoint { url, name });
            }
            queue.add_endpoints(name, &endpoints).await?;
        }
        Method::DELETE => {
            let gone = listed(&call.json()?)?;
            if gone.iter().any(|one| one.url.is_none() && one.name.is_none()) {
                return Err(Fault::bad("an endpoint needs a url or a name"));
            }
            queue.remove_endpoints(name, &gone).await?;
        }
        _ => return Err(Fault::Method("POST, DELETE")),
    }
    done()
}

fn listed(body: &Value) -> Result<Vec<EndpointRef>, Fault> {
    let wrong = || Fault::bad("the body is not of the form {\"endpoints\": [{\"url\": \"…\"}]}");
    let list = body["endpoints"].as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    let read = |one: &Value| {
        let text = |name: &str| match one.get(name) {
            None | Some(Value::Null) => Ok(None),
            // One SDK sends an empty name for none.
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) if !text.contains('\0') => Ok(Some(text.clone())),
            Some(_) => Err(wrong()),
        };
        if !one.is_object() {
            return Err(wrong());
        }
        Ok(EndpointRef { url: text("url")?, name: text("name")? })
    };
    list.iter().map(read).collect()
}

/// Headers that every message of a group gets, with or without the prefix for forwarding.
fn default_headers(body: &Value) -> Result<Headers, Fault> {
    const PREFIX: &str = "upstash-forward-";
    let given = body.get("headers").filter(|headers| headers.is_object());
    let given = given.ok_or_else(|| Fault::bad("the body is not of the form {\"headers\": {}}"))?;
    let mut prefixed = Vec::new();
    for (name, value) in batch::headers(Some(given)).map_err(Fault::bad)? {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with(PREFIX) {
            prefixed.push((lower, value));
        } else if lower.starts_with("upstash-") {
            let why = format!("a topic's headers are forwarded; {name} is a setting of messages");
            return Err(Fault::bad(why));
        } else {
            prefixed.push((format!("{PREFIX}{lower}"), value));
        }
    }
    let pairs = prefixed.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(Spec::read(pairs).map_err(Fault::bad)?.headers)
}
