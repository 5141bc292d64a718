//! `/mail/batches`: many mails at once.
//!
//! The body is read as it comes, taken apart by [`super::mail_stream`], and written down in portions.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tashika_domain::check::Violation;
use tashika_domain::mail::Status;
use tashika_engine::commands::mail::{Mails, Taken};
use tashika_engine::commands::mail_batch::Receiving;
use tashika_store::MailFilter;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Client;
use super::body::BodyLimits;
use super::idempotency::key;
use super::json::OptionalJsonBody;
use super::mail::{answer, batch_id};
use super::mail_json::{batch, failures, refusal};
use super::mail_stream::{Format, Splitter};
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::MailFailureStatusSchema;
use super::schema::mail::{
    MailBatchRequestSchema, MailBatchRetrySchema, MailBatchSchema, MailBatchesSchema,
    MailFailuresSchema,
};

pub fn routes(mails: Arc<Mails>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(receive, list))
        .routes(routes!(find))
        .routes(routes!(failed))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .with_state(mails)
}

/// Send many mails
///
/// As one document, or as a stream of lines (`application/x-ndjson`): the first names the template, each
/// one after it a recipient. Nothing is sent before all of it is there: a stream that breaks off sends
/// nothing and may be sent again.
#[utoipa::path(
    post,
    path = "/mail/batches",
    tag = "mail",
    operation_id = "sendMailBatch",
    request_body(content(
        (MailBatchRequestSchema = "application/json"),
        (String = "application/x-ndjson"),
    )),
    params(("Idempotency-Key" = Option<String>, Header, description = "Or `idempotencyKey` in the body")),
    responses(
        (status = 202, description = "All of it is durable", body = MailBatchSchema),
        (status = 200, description = "Asked for before: the batch as it is now", body = MailBatchSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 409, description = "The key belongs to another batch, or to one that is being received", body = Document, content_type = "application/problem+json"),
        (status = 413, description = "More than 100,000 recipients", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "Not valid; nothing is sent", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "Not durable: send it again", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn receive(
    State(mails): State<Arc<Mails>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let format = Format::of(&headers)?;
    let limits = BodyLimits::of(&request);
    let mut intake = Intake {
        splitter: Splitter::new(format, limits.bytes),
        receiving: None,
        mails: &mails,
        headers: &headers,
        client: &client.0,
    };
    let taken = match intake.read(request, limits).await {
        Ok(()) => match intake.receiving.take() {
            Some(receiving) => finish(receiving).await?,
            None => return Err(no_recipients()),
        },
        Err(problem) => {
            if let Some(receiving) = intake.receiving.take() {
                receiving.abort().await;
            }
            return Err(problem);
        }
    };
    let view = mails.batch(taken.row.id).await.map_err(refusal)?;
    Ok(answer(batch(&view), taken.replayed))
}

async fn finish(
    receiving: Receiving,
) -> Result<Taken<tashika_domain::mail::batch::Batch>, Problem> {
    receiving.finish().await.map_err(refusal)
}

fn no_recipients() -> Problem {
    let problem = "at least one recipient is required".to_owned();
    Problem::violations(vec![Violation { field: "recipients".to_owned(), problem }])
}

/// A batch on its way in.
struct Intake<'a> {
    splitter: Splitter,
    receiving: Option<Receiving>,
    mails: &'a Arc<Mails>,
    headers: &'a HeaderMap,
    client: &'a str,
}

impl Intake<'_> {
    async fn read(&mut self, request: Request, limits: BodyLimits) -> Result<(), Problem> {
        let mut body = request.into_body();
        loop {
            // Each portion has its own time: a long stream may take long as long as it comes.
            let frame = match tokio::time::timeout(limits.timeout, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) => {
                    return Err(Problem::new(Code::BadRequest)
                        .detail("The body broke off.", "本文が途中で切れました。"));
                }
                Err(_) => return Err(Problem::new(Code::RequestTimeout)),
            };
            if let Some(data) = frame.data_ref() {
                self.splitter.feed(data)?;
                self.drain().await?;
            }
        }
        self.splitter.end()?;
        self.drain().await
    }

    async fn drain(&mut self) -> Result<(), Problem> {
        if self.receiving.is_none()
            && let Some(head) = self.splitter.head()
        {
            let begun = self.mails.receive(head, key(self.headers)?, self.client).await;
            self.receiving = Some(begun.map_err(refusal)?);
        }
        let Some(receiving) = &mut self.receiving else { return Ok(()) };
        while let Some(recipient) = self.splitter.next_recipient()? {
            receiving.add(&recipient).await.map_err(refusal)?;
        }
        Ok(())
    }
}

/// List batches
#[utoipa::path(
    get,
    path = "/mail/batches",
    tag = "mail",
    operation_id = "listMailBatches",
    params(
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "Newest first", body = MailBatchesSchema)),
)]
async fn list(
    State(mails): State<Arc<Mails>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let page = Query::read(query.as_deref(), &[])?.page()?;
    let found = mails.batches(page.before, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|view| (view.batch.id, batch(view))).collect()))
}

/// Look a batch up
///
/// How far it has come, and the newest of its failures.
#[utoipa::path(
    get,
    path = "/mail/batches/{id}",
    tag = "mail",
    operation_id = "getMailBatch",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "Counts, and up to 50 failures of each kind", body = MailBatchSchema),
        (status = 404, description = "No such batch", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(mails): State<Arc<Mails>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let view = mails.batch(batch_id(&id)?).await.map_err(refusal)?;
    let mut shown = batch(&view);
    shown["failures"] = json!(failures(&view.failures));
    Ok(Json(shown).into_response())
}

/// List a batch's failures
#[utoipa::path(
    get,
    path = "/mail/batches/{id}/failures",
    tag = "mail",
    operation_id = "listMailBatchFailures",
    params(
        ("id" = uuid::Uuid, Path),
        ("status" = Option<MailFailureStatusSchema>, Query, description = "Default `failed`"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = MailFailuresSchema),
        (status = 404, description = "No such batch", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn failed(
    State(mails): State<Arc<Mails>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["status"])?;
    let page = query.page()?;
    let status = query.word("status", failure_status)?.unwrap_or(Status::Failed);
    let id = batch_id(&id)?;
    mails.batch(id).await.map_err(refusal)?;
    let filter =
        MailFilter { to: None, batch: Some(id), status: Some(status), before: page.before };
    let found = mails.list(&filter, page.fetch()).await.map_err(refusal)?;
    let shown = failures(&found);
    Ok(page.answer(found.iter().map(|mail| mail.id).zip(shown).collect()))
}

pub(crate) fn failure_status(text: &str) -> Option<Status> {
    let found = Status::parse_public(text)?;
    matches!(found, Status::Failed | Status::PossiblySent).then_some(found)
}

/// Cancel the rest of a batch
///
/// What is not sent yet is not sent any more. What is being sent at this moment is not called back.
#[utoipa::path(
    post,
    path = "/mail/batches/{id}/cancel",
    tag = "mail",
    operation_id = "cancelMailBatch",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 202, description = "It is being cancelled", body = MailBatchSchema),
        (status = 404, description = "No such batch", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It was cancelled before, or never complete", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn cancel(
    State(mails): State<Arc<Mails>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let view = mails.cancel(batch_id(&id)?, &client.0).await.map_err(refusal)?;
    Ok((StatusCode::ACCEPTED, Json(batch(&view))).into_response())
}

/// Try the rest of a batch again
///
/// What failed; with `statuses`, also what was cancelled or may have arrived.
#[utoipa::path(
    post,
    path = "/mail/batches/{id}/retry",
    tag = "mail",
    operation_id = "retryMailBatch",
    params(("id" = uuid::Uuid, Path)),
    request_body(content = Option<MailBatchRetrySchema>, content_type = "application/json"),
    responses(
        (status = 202, description = "It is being queued again", body = MailBatchSchema),
        (status = 404, description = "No such batch", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It was never complete", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "Not valid", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn retry(
    State(mails): State<Arc<Mails>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let statuses = statuses(&body)?;
    let view = mails.retry(batch_id(&id)?, &statuses, &client.0).await.map_err(refusal)?;
    Ok((StatusCode::ACCEPTED, Json(batch(&view))).into_response())
}

pub(crate) fn statuses(body: &Value) -> Result<Vec<Status>, Problem> {
    let wrong = |problem: &str| {
        let (field, problem) = ("statuses".to_owned(), problem.to_owned());
        Problem::violations(vec![Violation { field, problem }])
    };
    let Some(map) = body.as_object() else { return Err(wrong("the body must be an object")) };
    if map.keys().any(|name| name != "statuses") {
        return Err(wrong("is the only field"));
    }
    let Some(asked) = map.get("statuses") else { return Ok(vec![Status::Failed]) };
    let retried = |value: &Value| {
        let found = Status::parse_public(value.as_str()?)?;
        matches!(found, Status::Failed | Status::PossiblySent | Status::Cancelled).then_some(found)
    };
    let read: Option<Vec<Status>> =
        asked.as_array().and_then(|list| list.iter().map(retried).collect());
    match read {
        Some(list) if !list.is_empty() => Ok(list),
        _ => Err(wrong("must be a list of failed, possiblySent, cancelled")),
    }
}
