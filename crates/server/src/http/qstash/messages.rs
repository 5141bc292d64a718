//! `/v2/messages`: looked at, cancelled.

use axum::response::Response;
use http::Method;
use serde_json::json;
use tashika_domain::message::parse_id;
use tashika_domain::message::span::shown;
use tashika_engine::commands::message::Messages;
use uuid::Uuid;

use super::call::Call;
use super::fault::Fault;
use super::query::{Chosen, Query, ids_in_body};
use super::{ok, view};

/// Messages cancelled between two looks.
const STRIDE: i64 = 500;

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let Some(name) = rest else {
        call.only(&Method::DELETE, "DELETE")?;
        return cancel_many(queue, call).await;
    };
    match call.method {
        Method::GET => ok(&view::message(&queue.message(id(name)?).await?)),
        Method::DELETE => {
            // One that has ended is not cancelled, and not an error either: callers cannot know.
            let cancelled = queue.cancel(id(name)?).await?;
            ok(&json!({ "cancelled": u8::from(cancelled) }))
        }
        _ => Err(Fault::Method("GET, DELETE")),
    }
}

fn id(name: &str) -> Result<Uuid, Fault> {
    parse_id(name).ok_or_else(|| Fault::not_found(format!("message {} not found", shown(name))))
}

/// Without a query and a body: all of them. `count` is taken and, as in the hosted service, means
/// nothing: whoever cancels by a filter means everything that fits.
async fn cancel_many(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    let ids = ids_in_body(call, "messageIds")?;
    let query = Query::filter(call, &["messageIds", "host", "path"])?;
    query.count(1)?;
    let mut cancelled = 0;
    if let Chosen::These(filter) = query.chosen(ids, Vec::new())? {
        loop {
            let now = queue.cancel_all(&filter, STRIDE).await?;
            cancelled += now;
            if now == 0 {
                break;
            }
        }
    }
    ok(&json!({ "cancelled": cancelled }))
}
