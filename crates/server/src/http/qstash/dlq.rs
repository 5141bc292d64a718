//! `/v2/dlq`: dead letters, looked at, removed, sent again.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tashika_domain::message::span::shown;
use tashika_domain::message::{Message, public_id};
use tashika_engine::commands::message::Messages;
use tashika_store::MessageFilter;

use super::call::Call;
use super::fault::Fault;
use super::query::{Chosen, Query, SETTINGS, ids_in_body};
use super::{done, ok, view, with_status};

/// Dead letters in one answer.
const PAGE: usize = 100;

/// What dead letters can be chosen by, beside the common parameters.
const KNOWN: [&str; 5] = ["dlqIds", "messageId", "responseStatus", "host", "path"];

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    match rest {
        None if call.method == Method::GET => list(queue, call).await,
        None if call.method == Method::DELETE => remove(queue, call).await,
        None => Err(Fault::Method("GET, DELETE")),
        Some("retry") => {
            call.only(&Method::POST, "POST")?;
            retry(queue, call).await
        }
        Some(rest) => match rest.strip_prefix("retry/") {
            Some(id) => {
                call.only(&Method::POST, "POST")?;
                retry_one(queue, call, id).await
            }
            None => one(queue, call, rest).await,
        },
    }
}

async fn one(queue: &Messages, call: &Call, id: &str) -> Result<Response, Fault> {
    match call.method {
        Method::GET => ok(&view::dead_letter(&queue.dead_letter(id).await?)),
        Method::DELETE => {
            let letter = queue.dead_letter(id).await?;
            if queue.bury(&letter).await? { done() } else { Err(gone(id)) }
        }
        _ => Err(Fault::Method("GET, DELETE")),
    }
}

fn gone(id: &str) -> Fault {
    Fault::not_found(format!("dlq message {} not found", shown(id)))
}

async fn list(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    let query = read(call)?;
    let limit = query.count(PAGE)?.unwrap_or(PAGE);
    let mut chosen = choose(&query, Vec::new())?;
    let mut rest = None;
    if let Some(filter) = &mut chosen {
        filter.since = queue.letters_back(filter).await?;
        rest = filter.since.map(|since| since.simple().to_string());
    }
    let (letters, cursor) = page(queue, chosen.as_ref(), limit).await?;
    let cursor = cursor.or(rest);
    let messages: Vec<Value> = letters.iter().map(view::dead_letter).collect();
    ok(&with_cursor(json!({ "messages": messages }), cursor))
}

/// Without a count, everything that fits goes.
async fn remove(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    let ids = ids_in_body(call, "dlqIds")?;
    let query = read(call)?;
    let count = query.count(PAGE)?;
    let mut chosen = spared(choose(&query, ids)?);
    let mut deleted = 0;
    let cursor = loop {
        let (letters, cursor) = page(queue, chosen.as_ref(), count.unwrap_or(PAGE)).await?;
        for letter in &letters {
            deleted += u64::from(queue.bury(letter).await?);
        }
        match (&mut chosen, letters.last()) {
            (Some(filter), Some(last)) if count.is_none() && cursor.is_some() => {
                filter.after = Some(last.id);
            }
            _ => break cursor,
        }
    };
    ok(&with_cursor(json!({ "deleted": deleted }), cursor))
}

async fn retry(queue: &Messages, call: &Call) -> Result<Response, Fault> {
    let ids = ids_in_body(call, "dlqIds")?;
    let query = Query::filter(call, &[&KNOWN[..], &[SETTINGS]].concat())?;
    let overrides = call.overrides()?;
    let chosen = spared(choose(&query, ids)?);
    // Letters that are named are all sent; of the others, a page.
    let named = chosen.as_ref().map_or(0, |filter| filter.dlq_ids.len());
    let count = query.count(PAGE)?;
    let limit = if named > 0 { named } else { count.unwrap_or(PAGE) };
    let (letters, cursor) = page(queue, chosen.as_ref(), limit).await?;
    let mut responses = Vec::with_capacity(letters.len());
    for letter in &letters {
        if let Some(id) = queue.resend(letter, &overrides).await? {
            responses.push(json!({ "messageId": public_id(id) }));
        }
    }
    let answer = with_cursor(json!({ "responses": responses }), cursor);
    with_status(StatusCode::CREATED, &answer)
}

async fn retry_one(queue: &Messages, call: &Call, id: &str) -> Result<Response, Fault> {
    let overrides = call.overrides()?;
    let letter = queue.dead_letter(id).await?;
    let resent = queue.resend(&letter, &overrides).await?.ok_or_else(|| gone(id))?;
    with_status(StatusCode::CREATED, &json!({ "messageId": public_id(resent) }))
}

fn read(call: &Call) -> Result<Query, Fault> {
    Query::filter(call, &KNOWN)
}

/// `None` if nothing can fit.
fn choose(query: &Query, ids: Vec<String>) -> Result<Option<MessageFilter>, Fault> {
    let after = query.after()?;
    Ok(match query.chosen(Vec::new(), ids)? {
        Chosen::Nothing => None,
        Chosen::These(filter) => Some(MessageFilter { after, ..*filter }),
    })
}

/// Without what Tashika itself has sent, unless it is named.
fn spared(chosen: Option<MessageFilter>) -> Option<MessageFilter> {
    chosen.map(|filter| MessageFilter { spare_own: true, ..filter })
}

/// A page, and where the next begins if there is one.
async fn page(
    queue: &Messages,
    filter: Option<&MessageFilter>,
    limit: usize,
) -> Result<(Vec<Message>, Option<String>), Fault> {
    let Some(filter) = filter else { return Ok((Vec::new(), None)) };
    // One more shows whether there is another page.
    let fetch = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut letters = queue.dead_letters(filter, fetch).await?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let cursor = letters.last().filter(|_| more).map(|last| last.id.simple().to_string());
    Ok((letters, cursor))
}

/// At the end of a list there is no cursor at all: the SDKs loop until then.
pub(super) fn with_cursor(mut answer: Value, cursor: Option<String>) -> Value {
    if let Some(cursor) = cursor {
        answer["cursor"] = json!(cursor);
    }
    answer
}
