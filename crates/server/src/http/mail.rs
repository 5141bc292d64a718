//! `/mail`: single mails, the lane, the sandbox's inbox; `/notifications/deadlines`.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use tashika_domain::mail::Status;
use tashika_engine::commands::mail::{MailError, Mails, SendMail};
use tashika_store::MailFilter;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::idempotency::{key, mark_replayed};
use super::json::JsonBody;
use super::mail_json::{lane, letter, mail, refusal};
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::mail::{
    DeadlinesRequestSchema, DeadlinesSchema, InboxSchema, MailLaneSchema, MailRequestSchema,
    MailSchema, MailStatusSchema, MailsSchema,
};
use crate::telemetry::Traceparent;

pub fn routes(mails: &Arc<Mails>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(send))
        .routes(routes!(deliveries))
        .routes(routes!(delivery))
        .routes(routes!(state))
        .routes(routes!(resume))
        .routes(routes!(inbox))
        .routes(routes!(deadlines))
        .with_state(Arc::clone(mails))
        .merge(super::mail_batches::routes(Arc::clone(mails)))
}

/// Send a mail
///
/// 202 means that it is on disk: it is sent at the allowed pace and tried again where that helps.
#[utoipa::path(
    post,
    path = "/mail",
    tag = "mail",
    operation_id = "sendMail",
    request_body = MailRequestSchema,
    params(("Idempotency-Key" = Option<String>, Header, description = "Or `idempotencyKey` in the body: the same mail is not sent twice")),
    responses(
        (status = 202, description = "Durable", body = MailSchema),
        (status = 200, description = "Asked for before: the mail as it is now", body = MailSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 409, description = "The key belongs to another mail", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "Not valid, the template does not exist or misses a variable, or the keys differ", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "Not durable: send it again", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn send(
    State(mails): State<Arc<Mails>>,
    Extension(traceparent): Extension<Traceparent>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let request = SendMail { header_key: key(&headers)?, body: &body, traceparent: traceparent.0 };
    let taken = mails.send(request).await.map_err(refusal)?;
    Ok(answer(mail(&taken.row), taken.replayed))
}

/// 202 for what is new, 200 for what was known.
pub(super) fn answer(body: serde_json::Value, replayed: bool) -> Response {
    if !replayed {
        return (StatusCode::ACCEPTED, Json(body)).into_response();
    }
    let mut response = Json(body).into_response();
    mark_replayed(&mut response);
    response
}

/// Was it sent?
///
/// Mails to an address, of a batch or in a status, with every attempt.
#[utoipa::path(
    get,
    path = "/mail/deliveries",
    tag = "mail",
    operation_id = "listMails",
    params(
        ("to" = Option<String>, Query, description = "An address, in any case of letters"),
        ("batch" = Option<uuid::Uuid>, Query),
        ("status" = Option<MailStatusSchema>, Query),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "Newest first", body = MailsSchema)),
)]
async fn deliveries(
    State(mails): State<Arc<Mails>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["to", "batch", "status"])?;
    let page = query.page()?;
    let filter = MailFilter {
        to: query.text("to").map(str::to_owned),
        batch: query.word("batch", |text| text.parse().ok())?,
        status: query.word("status", Status::parse_public)?,
        before: page.before,
    };
    let found = mails.list(&filter, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|found| (found.id, mail(found))).collect()))
}

/// Look a mail up
#[utoipa::path(
    get,
    path = "/mail/deliveries/{id}",
    tag = "mail",
    operation_id = "getMail",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The mail, with every attempt", body = MailSchema),
        (status = 404, description = "No such mail", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn delivery(
    State(mails): State<Arc<Mails>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: Uuid = id.parse().map_err(|_| Problem::new(Code::MailNotFound))?;
    Ok(Json(mail(&mails.find(id).await.map_err(refusal)?)).into_response())
}

/// Look at the lane
///
/// Whether mails are sent, and what is left of the quota.
#[utoipa::path(
    get,
    path = "/mail/lane",
    tag = "mail",
    operation_id = "getMailLane",
    responses((status = 200, description = "open, parked (the quota) or stopped (the settings)", body = MailLaneSchema)),
)]
async fn state(State(mails): State<Arc<Mails>>) -> Result<Response, Problem> {
    Ok(Json(lane(&mails.lane().await.map_err(refusal)?)).into_response())
}

/// Open the lane again
///
/// After the quota was raised or the settings were corrected. A lane that was stopped also opens by
/// itself when a probe is answered well; one that was parked, when its time is over.
#[utoipa::path(
    post,
    path = "/mail/resume",
    tag = "mail",
    operation_id = "resumeMail",
    responses((status = 200, description = "`resumed`: whether it had been closed", body = MailLaneSchema)),
)]
async fn resume(
    State(mails): State<Arc<Mails>>,
    Extension(client): Extension<Client>,
) -> Result<Response, Problem> {
    let resumed = mails.resume(&client.0).await.map_err(refusal)?;
    let mut shown = lane(&mails.lane().await.map_err(refusal)?);
    shown["resumed"] = json!(resumed);
    Ok(Json(shown).into_response())
}

/// Look into the sandbox's inbox
///
/// What would have been sent, with its words. Only for `MAIL_PROVIDER=sandbox`.
#[utoipa::path(
    get,
    path = "/mail/inbox",
    tag = "mail",
    operation_id = "getMailInbox",
    params(
        ("to" = Option<String>, Query),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = InboxSchema),
        (status = 404, description = "Mails leave this server", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn inbox(
    State(mails): State<Arc<Mails>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["to"])?;
    let page = query.page()?;
    let found = mails.inbox(query.text("to"), page.before, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|(found, w)| (found.id, letter(found, w.as_ref()))).collect()))
}

/// Notify staff of deadlines
///
/// One mail to each member of staff for whom something is due within their own threshold; now, or at
/// `runAt`. Whoever has nothing due is skipped.
#[utoipa::path(
    post,
    path = "/notifications/deadlines",
    tag = "mail",
    operation_id = "notifyDeadlines",
    request_body = DeadlinesRequestSchema,
    params(("Idempotency-Key" = Option<String>, Header, description = "Or `idempotencyKey` in the body")),
    responses(
        (status = 202, description = "Durable; `id` is a batch of mails", body = DeadlinesSchema),
        (status = 200, description = "Asked for before", body = DeadlinesSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 409, description = "The key belongs to another request", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "Not valid", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn deadlines(
    State(mails): State<Arc<Mails>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let notified = mails.notify(key(&headers)?, &body, &client.0).await.map_err(refusal)?;
    let shown = json!({
        "id": notified.batch.id,
        "status": notified.batch.status.as_str(),
        "mails": notified.batch.total,
        "skipped": notified.skipped,
        "runAt": notified.run_at,
    });
    Ok(answer(shown, notified.replayed))
}

/// A batch that does not exist, also where the id could be none.
pub(super) fn batch_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| refusal(MailError::BatchNotFound))
}
