//! `/do/order`: placing orders and asking about them.
//!
//! Snake case by contract. Handlers read the request and word the answer; everything in between is
//! `engine::commands::order`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tashika_engine::commands::order::{OrderError, Orders, PlaceOrder, Placed};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Client;
use super::idempotency::{key, mark_replayed};
use super::json::JsonBody;
use super::problem::{Code, Document, Problem};
use super::schema::{ExecResultSchema, OrderAckSchema, OrderRequestSchema};
use super::unavailable;
use crate::telemetry::Traceparent;

pub fn routes(orders: Arc<Orders>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(place)).routes(routes!(find)).with_state(orders)
}

/// Place an order
///
/// Accepted orders are durable before the answer, and sent in the background. The same key with the
/// same body is answered from the ledger: with the acknowledgement while the order is under way,
/// with its result afterwards.
#[utoipa::path(
    post,
    path = "/do/order",
    tag = "orders",
    operation_id = "placeOrder",
    request_body = OrderRequestSchema,
    params(
        ("Idempotency-Key" = String, Header, description = "Equal to `idempotency_key`; bare or in quotes", min_length = 8, max_length = 64),
    ),
    responses(
        (status = 201, description = "Accepted for the first time", body = OrderAckSchema),
        (status = 200, description = "A replay: what is known by now", body = ExecResultSchema,
            headers(("Idempotent-Replayed" = String, description = "`true`"))),
        (status = 400, description = "A replay of an order that the broker rejected, or a request that cannot be read",
            content((ExecResultSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 409, description = "The key belongs to another order, or to one that an application has enqueued and that has not ended", body = Document,
            content_type = "application/problem+json"),
        (status = 422, description = "Header and body disagree, or the order is not valid", body = Document,
            content_type = "application/problem+json"),
        (status = 429, description = "Too many orders", body = Document,
            content_type = "application/problem+json",
            headers(("Retry-After" = u64, description = "Seconds"))),
        (status = 500, description = "A replay of an order that failed inside",
            content((ExecResultSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 503, description = "The database is away, or a replay of an order whose broker was down",
            content((ExecResultSchema = "application/json"), (Document = "application/problem+json"))),
        (status = 504, description = "A replay of an order that the broker never answered", body = ExecResultSchema),
    ),
)]
async fn place(
    State(orders): State<Arc<Orders>>,
    Extension(client): Extension<Client>,
    Extension(traceparent): Extension<Traceparent>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let placed = orders
        .place(PlaceOrder {
            client: &client.0,
            header_key: key(&headers)?,
            body: &body,
            traceparent: traceparent.0,
        })
        .await
        .map_err(refusal)?;
    Ok(match placed {
        Placed::Accepted(ack) => json(StatusCode::CREATED, ack.to_string()),
        Placed::Replayed { http_status, body } => {
            let status = StatusCode::from_u16(http_status).unwrap_or(StatusCode::OK);
            let mut response = json(status, body);
            mark_replayed(&mut response);
            response
        }
    })
}

/// Look an order up
///
/// The acknowledgement while the order is under way, its result afterwards. `case` is there when a
/// person has to decide.
#[utoipa::path(
    get,
    path = "/do/order/{key}",
    tag = "orders",
    operation_id = "getOrder",
    params(("key" = String, Path, description = "The idempotency key")),
    responses(
        (status = 200, description = "The order as it stands", body = ExecResultSchema),
        (status = 404, description = "No order is known under this key", body = Document,
            content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(orders): State<Arc<Orders>>,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    // PostgreSQL has no NUL in texts; nobody can have placed an order under such a key.
    let found = if key.contains('\0') {
        None
    } else {
        orders.find(&key).await.map_err(|error| unavailable(&error))?
    };
    let view = found.ok_or(Problem::new(Code::OrderNotFound))?;
    let Some(case) = view.case else {
        return Ok(json(StatusCode::OK, view.body));
    };
    let mut body: Value = serde_json::from_str(&view.body).unwrap_or_default();
    body["case"] = serde_json::json!({
        "id": case.id,
        "kind": case.kind,
        "summary": case.summary,
        "actions": case.actions,
        "opened_at": case.opened_at,
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn refusal(error: OrderError) -> Problem {
    match error {
        OrderError::KeyMissing => Problem::new(Code::IdempotencyKeyMissing),
        OrderError::KeyMismatch => Problem::new(Code::IdempotencyMismatch),
        OrderError::Invalid(violations) => Problem::violations(violations),
        OrderError::Conflict => Problem::new(Code::IdempotencyConflict),
        OrderError::InProgress => Problem::new(Code::IdempotencyInProgress),
        OrderError::RateLimited(wait) => Problem::new(Code::RateLimited).retry_after(wait),
        OrderError::Store(error) => unavailable(&error),
    }
}
