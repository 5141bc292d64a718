//! `/renders`: the videos that customers have paid for, and people who help with them.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use tashika_domain::render::{Render, RenderStatus};
use tashika_engine::commands::render::{RenderError, RenderView, Renders};
use tashika_store::RenderFilter;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::json::JsonBody;
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::RenderStatusSchema;
use super::{cases, unavailable};

pub fn routes(renders: Arc<Renders>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(find))
        .routes(routes!(retry))
        .routes(routes!(resolve))
        .with_state(renders)
}

#[derive(ToSchema)]
#[schema(as = Render, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what is answered")]
pub struct RenderSchema {
    #[schema(format = Uuid)]
    id: String,
    #[schema(format = Uuid)]
    reservation_id: String,
    video_id: i64,
    status: RenderStatusSchema,
    /// Submissions so far, and how many there may be before a person is asked.
    attempts: u32,
    attempts_allowed: u32,
    /// Submitted, and nobody has answered.
    in_doubt: bool,
    provider: String,
    provider_id: Option<String>,
    output_url: Option<String>,
    /// When the provider deletes it.
    #[schema(format = DateTime)]
    output_expires_at: Option<String>,
    /// Where the copy is, on the server.
    output_path: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
    /// `given_up` or `cancelled`, if it is over without a video.
    closed: Option<String>,
    #[schema(format = DateTime)]
    closed_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    /// What waits for a person.
    case: Option<Value>,
}

#[derive(ToSchema)]
#[schema(as = Renders, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what is answered")]
pub struct RendersSchema {
    items: Vec<RenderSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = RenderResolution, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what is taken")]
pub struct ResolutionSchema {
    /// The video, where there is one; else it was handled some other way.
    #[schema(pattern = "^https?://[^\\s\\u0000-\\u001f\\u007f-\\u009f]+$", max_length = 2000)]
    output_url: Option<String>,
    /// What was done.
    #[schema(pattern = "^[^\\u0000]*[^\\u0000\\s][^\\u0000]*$", max_length = 1000)]
    note: String,
}

/// List renders
#[utoipa::path(
    get,
    path = "/renders",
    tag = "renders",
    operation_id = "listRenders",
    params(
        ("status" = Option<RenderStatusSchema>, Query),
        ("reservationId" = Option<uuid::Uuid>, Query),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = RendersSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(renders): State<Arc<Renders>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["status", "reservationId"])?;
    let page = query.page()?;
    let filter = RenderFilter {
        status: query.word("status", RenderStatus::parse)?,
        reservation_id: query.word("reservationId", |text| text.parse().ok())?,
        before: page.before,
    };
    let found = renders.list(&filter, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|render| (render.id, shown(render))).collect()))
}

/// Look a render up
#[utoipa::path(
    get,
    path = "/renders/{id}",
    tag = "renders",
    operation_id = "getRender",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The render as it is now; `case` is there when a person has to help", body = RenderSchema),
        (status = 404, description = "No such render", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(renders): State<Arc<Renders>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(answer(&renders.find(parse(&id)?).await.map_err(refusal)?))
}

/// Have a failed render tried again
///
/// As often as before. One that is under way is answered as it is.
#[utoipa::path(
    post,
    path = "/renders/{id}/retry",
    tag = "renders",
    operation_id = "retryRender",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The render as it is now", body = RenderSchema),
        (status = 404, description = "No such render", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It is done, or over", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn retry(
    State(renders): State<Arc<Renders>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(answer(&renders.retry(parse(&id)?, &client.0).await.map_err(refusal)?))
}

/// Say that a failed render was taken care of
///
/// With the address of a video, or without, where it was handled some other way. Nobody is refunded
/// then.
#[utoipa::path(
    post,
    path = "/renders/{id}/resolve",
    tag = "renders",
    operation_id = "resolveRender",
    request_body = ResolutionSchema,
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "`done`", body = RenderSchema),
        (status = 404, description = "No such render", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It has not failed, or is over", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The request is not valid", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn resolve(
    State(renders): State<Arc<Renders>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    Ok(answer(&renders.resolve(parse(&id)?, &client.0, &body).await.map_err(refusal)?))
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::RenderNotFound))
}

fn answer(view: &RenderView) -> Response {
    let mut body = shown(&view.render);
    if let Some(case) = &view.case {
        body["case"] = cases::case(case);
    }
    Json(body).into_response()
}

fn shown(render: &Render) -> Value {
    let error = render.error.as_ref();
    json!({
        "id": render.id,
        "reservationId": render.reservation_id,
        "videoId": render.video_id,
        "status": render.status.as_str(),
        "attempts": render.attempts,
        "attemptsAllowed": render.allowed,
        "inDoubt": render.is_in_doubt(),
        "provider": render.provider,
        "providerId": render.provider_id,
        "outputUrl": render.output_url,
        "outputExpiresAt": render.output_expires_at,
        "outputPath": render.output_path,
        "errorCode": error.map(|reason| &reason.code),
        "errorMessage": error.map(|reason| &reason.message),
        "closed": render.closed.map(|(_, why)| why.as_str()),
        "closedAt": render.closed.map(|(at, _)| at),
        "createdAt": render.created_at,
        "updatedAt": render.updated_at,
    })
}

fn refusal(error: RenderError) -> Problem {
    match error {
        RenderError::Invalid(violations) => Problem::violations(violations),
        RenderError::NotFound => Problem::new(Code::RenderNotFound),
        RenderError::State(_) => Problem::new(Code::RenderNotFailed),
        RenderError::Store(error) => unavailable(&error),
    }
}

#[cfg(test)]
mod tests;
