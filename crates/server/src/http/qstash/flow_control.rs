//! `/v2/flowControl`, `/v2/globalParallelism`

use axum::response::Response;
use http::Method;
use serde_json::json;
use tashika_domain::message::flow;
use tashika_engine::commands::message::Messages;
use tashika_engine::commands::queue::Pin;

use super::call::Call;
use super::fault::Fault;
use super::query::Query;
use super::{Face, done, ok, view};

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let Some(rest) = rest else {
        call.only(&Method::GET, "GET")?;
        let query = Query::plain(call, &["search"])?;
        let flows = queue.flows(query.one("search")?.unwrap_or_default()).await?;
        return ok(&flows.iter().map(view::flow).collect());
    };
    if call.method == Method::GET {
        return ok(&view::flow(&queue.flow(&key(rest)?).await?));
    }
    // A key may have slashes in it, an action has none.
    let Some((name, action)) = rest.rsplit_once('/').filter(|(_, last)| ACTIONS.contains(last))
    else {
        call.only(&Method::POST, "GET")?;
        return Err(Fault::nowhere());
    };
    call.only(&Method::POST, "POST")?;
    act(queue, call, &key(name)?, action).await
}

const ACTIONS: [&str; 6] = ["pause", "resume", "resetRate", "reset", "pin", "unpin"];

async fn act(queue: &Messages, call: &Call, key: &str, action: &str) -> Result<Response, Fault> {
    match action {
        "pause" | "resume" => queue.pause_flow(key, action == "pause").await?,
        "resetRate" | "reset" => queue.reset_flow_rate(key).await?,
        "pin" => {
            let query = Query::plain(call, &["parallelism", "rate", "period"])?;
            let limit = |name| {
                let given = query.one(name)?;
                given.map(|text| flow::limit(name, text).map_err(Fault::bad)).transpose()
            };
            let (parallelism, rate) = (limit("parallelism")?, limit("rate")?);
            let period = query.one("period")?;
            let period = period.map(|text| flow::period(text).map_err(Fault::bad)).transpose()?;
            if parallelism.is_none() && rate.is_none() && period.is_none() {
                return Err(Fault::bad("one of parallelism, rate and period is needed"));
            }
            queue.pin_flow(key, Pin { parallelism, rate, period }).await?;
        }
        "unpin" => {
            let query = Query::plain(call, &["parallelism", "rate"])?;
            let truth = |name| match query.one(name)?.map(str::to_ascii_lowercase).as_deref() {
                None | Some("false") => Ok(false),
                Some("true") => Ok(true),
                Some(_) => Err(Fault::bad(format!("{name} is neither true nor false"))),
            };
            let (parallelism, rate) = (truth("parallelism")?, truth("rate")?);
            if !parallelism && !rate {
                return Err(Fault::bad("one of parallelism=true and rate=true is needed"));
            }
            queue.unpin_flow(key, parallelism, rate).await?;
        }
        _ => return Err(Fault::nowhere()),
    }
    done()
}

/// A key in a path. Clients do not escape it, but what a path cannot carry is escaped all the same.
fn key(raw: &str) -> Result<String, Fault> {
    // In a path, a plus is a plus.
    let text = raw.replace('+', "%2B");
    let pair = format!("={}", text.replace('&', "%26"));
    let decoded = url::form_urlencoded::parse(pair.as_bytes()).next();
    let key = decoded.map(|(_, key)| key.into_owned()).unwrap_or_default();
    flow::check_key(&key).map_err(Fault::bad)?;
    Ok(key)
}

/// Every delivery of this server together.
pub(super) async fn all(face: &Face, call: &Call) -> Result<Response, Fault> {
    call.only(&Method::GET, "GET")?;
    let count = face.messages.in_flight().await?;
    ok(&json!({ "parallelismMax": face.parallelism, "parallelismCount": count }))
}
