//! `/outbox`: every effect, as operators look at it: listed, looked up by its idempotency key, tried again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use tashika_domain::mask::masked;
use tashika_domain::message::PARKED;
use tashika_domain::{EffectId, Lane, LanePolicy, Status};
use tashika_engine::commands::outbox::{Outbox, RequeueError};
use tashika_engine::{Clock, Engine, Rescuer};
use tashika_store::{AttemptRecord, CommitError, EffectFilter, EffectRow, Store};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::json::JsonBody;
use super::page::{Page, Query};
use super::problem::{Code, Document, Problem};
use super::schema::EffectStatusSchema;
use super::{cases, unavailable};

/// How many effects one page looks through for a filter that no index serves. What is further back is
/// on the next page.
const LOOK: i64 = 20_000;

/// Effects that one request may name.
const IDS_MAX: usize = 500;

/// What the handlers share.
pub struct Face {
    pub store: Store,
    pub clock: Clock,
    pub engine: Arc<Engine>,
    pub lanes: BTreeMap<Lane, LanePolicy>,
}

pub fn routes(face: Arc<Face>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(requeue_many))
        .routes(routes!(release))
        .routes(routes!(find))
        .routes(routes!(requeue))
        .with_state(face)
}

/// One thing owed to the outside, or to a later moment.
#[derive(ToSchema)]
#[schema(as = Effect)]
#[expect(dead_code, reason = "read by the OpenAPI generator only")]
struct EffectSchema {
    id: Uuid,
    lane: String,
    kind: String,
    #[schema(rename = "idempotencyKey")]
    idempotency_key: Option<String>,
    status: EffectStatusSchema,
    attempts: u32,
    /// Nobody knows whether it has happened.
    #[schema(rename = "inDoubt")]
    in_doubt: bool,
    #[schema(rename = "lastErrorCode")]
    last_error_code: Option<String>,
    #[schema(rename = "nextRunAt")]
    #[schema(format = DateTime)]
    /// None while it waits for its turn in a queue or a flow control.
    next_run_at: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Effects)]
#[expect(dead_code, reason = "read by the OpenAPI generator only")]
struct EffectsSchema {
    items: Vec<EffectSchema>,
    #[schema(rename = "nextCursor")]
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = RequeueRequest)]
#[expect(dead_code, reason = "read by the OpenAPI generator only")]
struct RequeueRequestSchema {
    #[schema(min_items = 1, max_items = 500)]
    ids: Vec<Uuid>,
}

#[derive(ToSchema)]
#[schema(as = Requeued)]
#[expect(dead_code, reason = "read by the OpenAPI generator only")]
struct RequeuedSchema {
    requeued: u64,
}

#[derive(ToSchema)]
#[schema(as = Released)]
#[expect(dead_code, reason = "read by the OpenAPI generator only")]
struct ReleasedSchema {
    released: u64,
}

/// List effects
///
/// A filter that fits rarely may answer a short or empty page with a `nextCursor`: go on from there.
#[utoipa::path(
    get,
    path = "/outbox",
    tag = "outbox",
    operation_id = "listEffects",
    params(
        ("key" = Option<String>, Query, description = "The idempotency key; alone"),
        ("lane" = Option<String>, Query, description = "E.g. orders", pattern = "^[a-z][a-z0-9_]{0,31}$"),
        ("status" = Option<EffectStatusSchema>, Query),
        ("kind" = Option<String>, Query),
        ("errorCode" = Option<String>, Query, description = "The code of the last failure"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = EffectsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(face): State<Arc<Face>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["key", "lane", "status", "kind", "errorCode"])?;
    let page = query.page()?;
    if let Some(key) = query.text("key") {
        let found = face.store.effects_of_key(key).await.map_err(|error| unavailable(&error))?;
        return Ok(page.answer(found.iter().map(|row| (row.id.0, shown(row))).collect()));
    }
    let filter = EffectFilter {
        lane: query.word("lane", Lane::parse)?,
        status: query.word("status", Status::parse)?,
        kind: query.text("kind").map(str::to_owned),
        error_code: query.text("errorCode").map(str::to_owned),
        before: page.before.map(EffectId),
        since: None,
    };
    face.page(filter, page).await.map_err(|error| unavailable(&error))
}

impl Face {
    async fn page(
        &self,
        mut filter: EffectFilter,
        page: Page,
    ) -> Result<Response, tashika_store::StoreError> {
        let plain = EffectFilter { before: filter.before, ..EffectFilter::default() };
        // What was given up has an index of its own, and without a filter everything fits.
        if filter != plain && filter.status != Some(Status::Aborted) {
            filter.since = self.store.effect_before(filter.before, LOOK).await?;
        }
        let found = self.store.effects(&filter, page.fetch()).await?;
        let items = found.iter().map(|row| (row.id.0, shown(row))).collect();
        Ok(page.answer_within(items, filter.since.map(|id| id.0)))
    }

    fn outbox(&self, client: Client) -> Outbox {
        Outbox::new(self.store.clone(), self.clock).by(client.0)
    }
}

/// Look an effect up
///
/// With every attempt, what it is to do, and the cases about it.
#[utoipa::path(
    get,
    path = "/outbox/{id}",
    tag = "outbox",
    operation_id = "getEffect",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The effect as it is now", body = EffectSchema),
        (status = 404, description = "No such effect", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(State(face): State<Arc<Face>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let away = |error| unavailable(&error);
    let effect = face.store.effect(id).await.map_err(away)?;
    let effect = effect.ok_or(Problem::new(Code::EffectNotFound))?;
    let attempts = face.store.attempts(id).await.map_err(away)?;
    let payload = face.store.payload(id).await.map_err(away)?.unwrap_or_default();
    let payload: Value = serde_json::from_str(&payload).unwrap_or_default();
    let mut document = shown(&effect);
    document["payload"] = masked(&payload);
    document["attemptLog"] = attempts.iter().map(attempt).collect();
    if let Some(key) = &effect.key {
        let open = face.store.cases_of(&effect.kind, key).await.map_err(away)?;
        document["cases"] = open.iter().map(cases::case).collect();
    }
    Ok(Json(document).into_response())
}

/// Try an effect again
///
/// One that was given up gets another life, with all its attempts. What was in doubt stays in doubt:
/// the other side is asked before anything is repeated.
#[utoipa::path(
    post,
    path = "/outbox/{id}/requeue",
    tag = "outbox",
    operation_id = "requeueEffect",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The effect, waiting for its turn", body = EffectSchema),
        (status = 404, description = "No such effect", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It was not given up", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn requeue(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    face.outbox(client).requeue(id).await.map_err(|error| refusal(&error))?;
    let effect = face.store.effect(id).await.map_err(|error| unavailable(&error))?;
    let effect = effect.ok_or(Problem::new(Code::EffectNotFound))?;
    Ok(Json(shown(&effect)).into_response())
}

/// Try effects again
///
/// Those that are named, as far as they were given up.
#[utoipa::path(
    post,
    path = "/outbox/requeue",
    tag = "outbox",
    operation_id = "requeueEffects",
    request_body = RequeueRequestSchema,
    responses(
        (status = 200, description = "How many were requeued", body = RequeuedSchema),
        (status = 400, description = "The body cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn requeue_many(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let ids = ids(&body).ok_or_else(|| {
        Problem::new(Code::BadRequest).detail(
            format!("The body is not of the form {{\"ids\": […]}} with 1 to {IDS_MAX} ids."),
            format!("本文は {{\"ids\": […]}}（1 から {IDS_MAX} 件）である必要があります。"),
        )
    })?;
    let outbox = face.outbox(client);
    let mut requeued = 0_u64;
    for id in ids {
        match outbox.requeue(id).await {
            Ok(()) => requeued += 1,
            // Gone, or somebody else was faster.
            Err(
                RequeueError::Unknown
                | RequeueError::NotAborted(_)
                | RequeueError::Commit(CommitError::Stale(_)),
            ) => {}
            Err(error) => return Err(refusal(&error)),
        }
    }
    Ok(Json(json!({ "requeued": requeued })).into_response())
}

fn ids(body: &Value) -> Option<Vec<EffectId>> {
    let body = body.as_object().filter(|body| body.len() == 1)?;
    let ids = body.get("ids")?.as_array().filter(|ids| (1..=IDS_MAX).contains(&ids.len()))?;
    ids.iter().map(|id| id.as_str()?.parse().ok().map(EffectId)).collect()
}

/// Give leases that have run out back
///
/// Now, instead of at the next look of a worker.
#[utoipa::path(
    post,
    path = "/outbox/release",
    tag = "outbox",
    operation_id = "releaseEffects",
    params(("lane" = Option<String>, Query, description = "Only of this lane", pattern = "^[a-z][a-z0-9_]{0,31}$")),
    responses(
        (status = 200, description = "How many were given back", body = ReleasedSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn release(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["lane"])?;
    let only = query.word("lane", Lane::parse)?;
    let rescuer = Rescuer::new(Arc::clone(&face.engine));
    let mut released = 0;
    for (lane, policy) in &face.lanes {
        if only.as_ref().is_none_or(|only| only == lane) {
            let swept = rescuer.sweep_lane(lane, policy, face.clock.now()).await;
            released += swept.map_err(|error| unavailable(&error))?.rescued;
        }
    }
    tracing::info!(who = client.0, released, "leases that had run out were given back");
    Ok(Json(json!({ "released": released })).into_response())
}

fn parse(id: &str) -> Result<EffectId, Problem> {
    let id: Uuid = id.parse().map_err(|_| Problem::new(Code::EffectNotFound))?;
    Ok(EffectId(id))
}

fn refusal(error: &RequeueError) -> Problem {
    match error {
        RequeueError::Unknown => Problem::new(Code::EffectNotFound),
        RequeueError::NotAborted(_) | RequeueError::Commit(CommitError::Stale(_)) => {
            Problem::new(Code::EffectNotAborted)
        }
        RequeueError::Store(error) | RequeueError::Commit(CommitError::Store(error)) => {
            unavailable(error)
        }
        RequeueError::Commit(error) => {
            tracing::error!(%error, "an effect could not be requeued");
            Problem::new(Code::InternalError)
        }
    }
}

/// An effect, in a list or by itself.
pub(crate) fn shown(effect: &EffectRow) -> Value {
    json!({
        "id": effect.id,
        "lane": effect.lane.as_str(),
        "kind": effect.kind,
        "idempotencyKey": effect.key,
        "status": effect.status.as_str(),
        "attempts": effect.attempts,
        "inDoubt": effect.in_doubt,
        "lastErrorCode": effect.last_error_code,
        "lastErrorMsg": effect.last_error_msg,
        "lockedBy": effect.locked_by,
        "lockedAt": effect.locked_at,
        // What waits at a gate has no time yet.
        "nextRunAt": (effect.next_run_at < PARKED).then_some(effect.next_run_at),
        "createdAt": effect.created_at,
        "updatedAt": effect.updated_at,
        "expiresAt": effect.expires_at,
    })
}

pub(crate) fn attempt(attempt: &AttemptRecord) -> Value {
    json!({
        "lease": attempt.fence,
        "worker": attempt.worker,
        "startedAt": attempt.started_at,
        "finishedAt": attempt.finished_at,
        "outcome": attempt.outcome,
        "code": attempt.code,
        "message": attempt.message,
        "exchange": attempt.exchange,
    })
}
