//! `/v2/publish/{destination}`, `/v2/enqueue/{queue}/{destination}`

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tashika_domain::message::{names, public_id};
use tashika_engine::commands::message::{Messages, Publish, Published, Receipt};

use super::call::Call;
use super::fault::Fault;
use super::with_status;

pub(super) async fn publish(queue: &Messages, call: &Call, rest: &str) -> Result<Response, Fault> {
    take(queue, call, rest, None).await
}

pub(super) async fn enqueue(queue: &Messages, call: &Call, rest: &str) -> Result<Response, Fault> {
    let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
    names::check(name).map_err(|why| Fault::bad(format!("invalid queue name: {why}")))?;
    take(queue, call, rest, Some(name.to_owned())).await
}

async fn take(
    messages: &Messages,
    call: &Call,
    rest: &str,
    queue: Option<String>,
) -> Result<Response, Fault> {
    call.only(&Method::POST, "POST")?;
    let published = messages.publish(Publish {
        destination: call.destination(rest)?,
        spec: call.spec()?,
        body: call.body(),
        queue,
        caller_ip: call.caller_ip.clone(),
        traceparent: call.traceparent.clone(),
    });
    let published = published.await?;
    let added = match &published {
        Published::One(receipt) => !receipt.deduplicated,
        Published::Group(receipts) => receipts.iter().any(|receipt| !receipt.deduplicated),
    };
    let status = if added { StatusCode::OK } else { StatusCode::ACCEPTED };
    with_status(status, &shown(&published))
}

/// An object for a URL, an array for a group.
pub(super) fn shown(published: &Published) -> Value {
    match published {
        Published::One(one) => receipt(one, false),
        Published::Group(all) => all.iter().map(|one| receipt(one, true)).collect(),
    }
}

fn receipt(receipt: &Receipt, with_url: bool) -> Value {
    let mut shown = json!({ "messageId": public_id(receipt.id) });
    if with_url {
        shown["url"] = json!(receipt.url);
    }
    if receipt.deduplicated {
        shown["deduplicated"] = json!(true);
    }
    shown
}
