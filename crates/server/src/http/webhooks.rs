//! `/webhooks/{source}`: what senders deliver; `/webhook-events`: what became of it.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tashika_domain::mask::{masked, masked_text};
use tashika_domain::webhook::{Status, WebhookEvent};
use tashika_engine::commands::webhook::{Received, Rejected, Taken, WebhookError, Webhooks};
use tashika_providers::webhook::RefusedKind;
use tashika_store::{Listed, WebhookFilter};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::body::RawBody;
use super::json::OptionalJsonBody;
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::{
    WebhookEventSchema, WebhookEventsSchema, WebhookStatsSchema, WebhookStatusSchema,
};
use super::unavailable;
use crate::telemetry::Traceparent;

/// Senders prove themselves by their signature.
pub fn open_routes(webhooks: Arc<Webhooks>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(receive))
        .routes(routes!(receive_billing))
        .routes(routes!(receive_render))
        .with_state(webhooks)
}

pub fn protected_routes(webhooks: Arc<Webhooks>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(stats))
        .routes(routes!(replay_all))
        .routes(routes!(find))
        .routes(routes!(replay))
        .with_state(webhooks)
}

/// Deliver an event
///
/// Verified over the raw bytes, then written down with the effect that processes it: 204 means that it
/// is on disk. The same event again is 204 and changes nothing, except that one that had failed is
/// processed again.
#[utoipa::path(
    post,
    path = "/webhooks/{source}",
    tag = "webhooks",
    operation_id = "receiveWebhook",
    params(("source" = String, Path, description = "`stripe`, or a name in `WEBHOOK_SOURCES`")),
    responses(
        (status = 204, description = "Durable",
            headers(("X-Event-Id" = String, description = "The sender's id"), ("X-Message-Id" = String, description = "Ours"))),
        (status = 400, description = "The signature or the payload is not valid", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such source", body = Document, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "Not durable: send it again", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn receive(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(traceparent): Extension<Traceparent>,
    Path(source): Path<String>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    accept(&webhooks, &source, &headers, &body, &traceparent).await
}

/// Deliver an event of Stripe
///
/// Another name for `/webhooks/stripe`.
#[utoipa::path(
    post,
    path = "/api/v1/billing/webhook",
    tag = "webhooks",
    operation_id = "receiveBillingWebhook",
    responses(
        (status = 204, description = "Durable"),
        (status = 400, description = "The signature or the payload is not valid", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "`STRIPE_WEBHOOK_SECRET` is not set", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "Not durable: send it again", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn receive_billing(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(traceparent): Extension<Traceparent>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    accept(&webhooks, "stripe", &headers, &body, &traceparent).await
}

/// Deliver a callback about a render
///
/// The address that Tashika gives to the provider with each attempt: it names the render and the
/// attempt, so that a submission whose answer was lost is found by its callback.
#[utoipa::path(
    post,
    path = "/webhooks/{source}/renders/{render}/{attempt}",
    tag = "webhooks",
    operation_id = "receiveRenderCallback",
    params(
        ("source" = String, Path, description = "A name in `WEBHOOK_SOURCES`"),
        ("render" = uuid::Uuid, Path, description = "Our id of the render"),
        ("attempt" = u32, Path),
    ),
    responses(
        (status = 204, description = "Durable"),
        (status = 400, description = "The payload is not valid", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such source", body = Document, content_type = "application/problem+json"),
        (status = 503, description = "Not durable: send it again", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn receive_render(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(traceparent): Extension<Traceparent>,
    Path((source, render, attempt)): Path<(String, String, String)>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    let known = Uuid::try_parse(&render).ok().zip(attempt.parse::<u32>().ok());
    let (render, attempt) = known.ok_or_else(|| Problem::new(Code::RenderNotFound))?;
    let reference = format!("{render}/{attempt}");
    accept_about(&webhooks, &source, &headers, &body, &traceparent, Some(&reference)).await
}

async fn accept(
    webhooks: &Webhooks,
    source: &str,
    headers: &HeaderMap,
    body: &[u8],
    traceparent: &Traceparent,
) -> Result<Response, Problem> {
    accept_about(webhooks, source, headers, body, traceparent, None).await
}

async fn accept_about(
    webhooks: &Webhooks,
    source: &str,
    headers: &HeaderMap,
    body: &[u8],
    traceparent: &Traceparent,
    reference: Option<&str>,
) -> Result<Response, Problem> {
    let received = Received { source, headers, body, traceparent: traceparent.0.as_deref() };
    let accepted = match webhooks.receive_about(received, reference).await.map_err(refusal)? {
        Taken::Accepted(accepted) => accepted,
        Taken::Challenged(text) => return Ok(text.into_response()),
    };
    let mut response = StatusCode::NO_CONTENT.into_response();
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    };
    set("x-event-id", &accepted.event_id);
    set("x-message-id", &accepted.message_id.to_string());
    Ok(response)
}

/// List events
#[utoipa::path(
    get,
    path = "/webhook-events",
    tag = "webhooks",
    operation_id = "listWebhookEvents",
    params(
        ("status" = Option<WebhookStatusSchema>, Query),
        ("type" = Option<String>, Query),
        ("source" = Option<String>, Query),
        ("officeId" = Option<String>, Query),
        ("from" = Option<String>, Query, description = "RFC 3339", format = DateTime),
        ("to" = Option<String>, Query, description = "RFC 3339", format = DateTime),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "Newest first; payloads masked", body = WebhookEventsSchema)),
)]
async fn list(
    State(webhooks): State<Arc<Webhooks>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let names = ["status", "type", "source", "officeId", "from", "to"];
    let query = Query::read(query.as_deref(), &names)?;
    let page = query.page()?;
    let filter = filter(&query)?;
    let chosen = [filter.status.is_some(), filter.event_type.is_some(), filter.office_id.is_some()];
    let is_indexed = filter.source.is_none() && chosen.iter().filter(|chosen| **chosen).count() < 2;
    let span = (filter.from, filter.to);
    let reach = page.reach(webhooks.store(), Listed::WebhookEvents, span, is_indexed).await;
    let reach = reach.map_err(|error| unavailable(&error))?;
    let filter = WebhookFilter { before: reach.before, since: reach.since, ..filter };
    let found = webhooks.list(&filter, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer_of(found.iter().map(|event| (event.id, shown(event))).collect(), reach))
}

fn filter(query: &Query) -> Result<WebhookFilter, Problem> {
    let text = |name: &str| query.text(name).map(str::to_owned);
    Ok(WebhookFilter {
        status: query.word("status", Status::parse)?,
        event_type: text("type"),
        source: text("source"),
        office_id: text("officeId"),
        given_up: false,
        from: query.word("from", |text| text.parse().ok())?,
        to: query.word("to", |text| text.parse().ok())?,
        before: None,
        since: None,
    })
}

/// Count events
#[utoipa::path(
    get,
    path = "/webhook-events/stats",
    tag = "webhooks",
    operation_id = "countWebhookEvents",
    responses((status = 200, description = "By type and status", body = WebhookStatsSchema)),
)]
async fn stats(State(webhooks): State<Arc<Webhooks>>) -> Result<Response, Problem> {
    let counts = webhooks.stats().await.map_err(refusal)?;
    let items: Vec<Value> = counts
        .iter()
        .map(|c| json!({"eventType": c.event_type, "status": c.status.as_str(), "count": c.count}))
        .collect();
    Ok(Json(json!({ "items": items })).into_response())
}

/// Look an event up
#[utoipa::path(
    get,
    path = "/webhook-events/{id}",
    tag = "webhooks",
    operation_id = "getWebhookEvent",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The event; its payload masked", body = WebhookEventSchema),
        (status = 404, description = "No such event", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(webhooks): State<Arc<Webhooks>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let event = webhooks.find(parse(&id)?).await.map_err(refusal)?;
    Ok(Json(shown(&event)).into_response())
}

/// Process an event again
#[utoipa::path(
    post,
    path = "/webhook-events/{id}/replay",
    tag = "webhooks",
    operation_id = "replayWebhookEvent",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 202, description = "It is pending again", body = WebhookEventSchema),
        (status = 404, description = "No such event", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It has not failed", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn replay(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let event = webhooks.replay(parse(&id)?, &client.0).await.map_err(refusal)?;
    Ok((StatusCode::ACCEPTED, Json(shown(&event))).into_response())
}

/// Process failed events again
///
/// All, or those that the query names.
#[utoipa::path(
    post,
    path = "/webhook-events/replay",
    tag = "webhooks",
    operation_id = "replayWebhookEvents",
    params(
        ("type" = Option<String>, Query),
        ("source" = Option<String>, Query),
        ("officeId" = Option<String>, Query),
        ("from" = Option<String>, Query, description = "RFC 3339", format = DateTime),
        ("to" = Option<String>, Query, description = "RFC 3339", format = DateTime),
    ),
    responses((status = 202, description = "`replayed`: how many are pending again", body = Value)),
)]
async fn replay_all(
    State(webhooks): State<Arc<Webhooks>>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    // There is nothing to say in a body; whoever says something means something else.
    if body.as_object().is_some_and(|body| !body.is_empty()) {
        return Err(Problem::new(Code::BadRequest));
    }
    let query = Query::read(query.as_deref(), &["type", "source", "officeId", "from", "to"])?;
    let replayed = webhooks.replay_all(&filter(&query)?, &client.0).await.map_err(refusal)?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "replayed": replayed }))).into_response())
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::WebhookEventNotFound))
}

pub(crate) fn shown(event: &WebhookEvent) -> Value {
    json!({
        "id": event.id,
        "eventId": event.event_id,
        "eventType": event.event_type,
        "source": event.source,
        "billingId": event.billing_id,
        "officeId": event.office_id,
        "status": event.status.as_str(),
        "errorMessage": event.error_message.as_deref().map(masked_text),
        "processedAt": event.processed_at,
        "occurredAt": event.occurred_at,
        "createdAt": event.created_at,
        "payload": masked(&event.said()),
        "confirmBy": event.confirm_by,
        "confirmed": event.confirmed.as_ref().map(masked),
    })
}

pub(crate) fn refusal(error: WebhookError) -> Problem {
    match error {
        WebhookError::UnknownSource => Problem::new(Code::SourceNotFound),
        WebhookError::Refused(Rejected { refused, event_id, participant_id }) => {
            let (code, error_type) = match refused.what {
                RefusedKind::Signature => (Code::InvalidSignature, "invalid_signature"),
                RefusedKind::Payload => (Code::InvalidPayload, "invalid_payload"),
            };
            let reason = refused.reason;
            tracing::warn!(event_id, participant_id, error_type, reason, "a webhook was refused");
            Problem::new(code)
        }
        WebhookError::NotFound => Problem::new(Code::WebhookEventNotFound),
        WebhookError::NotFailed => Problem::new(Code::WebhookEventNotFailed),
        WebhookError::Store(error) => unavailable(&error),
    }
}
