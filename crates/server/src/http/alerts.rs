//! `/alerts`: what somebody should look at now, and what they did about it.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::HeaderMap;
use serde_json::{Value, json};
use tashika_domain::alert::rules::{Measure, Rule};
use tashika_domain::alert::{Alert, AlertState, Severity, request};
use tashika_engine::commands::alert::{AlertError, Alerts};
use tashika_store::{AlertFilter, Listed};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::json::{JsonBody, OptionalJsonBody};
use super::language::Language;
use super::operator::who;
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::{
    AlertSchema, AlertStateSchema, AlertsSchema, NoteSchema, RulesSchema, SeveritySchema,
    SilenceSchema,
};
use super::unavailable;

/// What the handlers share.
pub struct Face {
    pub alerts: Alerts,
    /// As they are in force.
    pub rules: Vec<Rule>,
}

pub fn routes(face: Arc<Face>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(rules))
        .routes(routes!(find))
        .routes(routes!(acknowledge))
        .routes(routes!(silence))
        .with_state(face)
}

/// List alerts
///
/// Each fires once, however many reasons there are for it: `count` says how many.
#[utoipa::path(
    get,
    path = "/alerts",
    tag = "watch",
    operation_id = "listAlerts",
    params(
        ("state" = Option<AlertStateSchema>, Query),
        ("severity" = Option<SeveritySchema>, Query),
        ("rule" = Option<String>, Query, description = "E.g. manual_case"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = AlertsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(face): State<Arc<Face>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["state", "severity", "rule"])?;
    let page = query.page()?;
    let filter = AlertFilter {
        state: query.word("state", AlertState::parse)?,
        severity: query.word("severity", Severity::parse)?,
        rule: query.text("rule").map(str::to_owned),
        ..AlertFilter::default()
    };
    let (store, away) = (face.alerts.store(), |error| unavailable(&error));
    let chosen = [filter.state.is_some(), filter.severity.is_some(), filter.rule.is_some()];
    let is_indexed = chosen.iter().filter(|chosen| **chosen).count() < 2;
    let reach = page.reach(store, Listed::Alerts, (None, None), is_indexed).await.map_err(away)?;
    let filter = AlertFilter { before: reach.before, since: reach.since, ..filter };
    let found = store.alerts(&filter, page.fetch()).await.map_err(away)?;
    Ok(page.answer_of(found.iter().map(|alert| (alert.id, shown(alert))).collect(), reach))
}

/// List rules
///
/// What is watched, with the numbers that are in force and the same as a Prometheus expression.
#[utoipa::path(
    get,
    path = "/alerts/rules",
    tag = "watch",
    operation_id = "listAlertRules",
    responses((status = 200, description = "Every rule", body = RulesSchema)),
)]
async fn rules(State(face): State<Arc<Face>>, headers: HeaderMap) -> Response {
    let language = Language::of(&headers);
    let items: Vec<Value> = face.rules.iter().map(|rule| described(rule, language)).collect();
    Json(json!({ "items": items })).into_response()
}

pub(crate) fn described(rule: &Rule, language: Language) -> Value {
    json!({
        "name": rule.name,
        "severity": rule.severity,
        "comparison": rule.comparison.as_str(),
        "threshold": rule.threshold,
        "windowSeconds": rule.window.as_secs_f64(),
        "forSeconds": rule.hold.as_secs_f64(),
        "minimum": rule.minimum,
        "enabled": rule.enabled,
        "reported": rule.measure == Measure::Reported,
        "message": language.pick(rule.text.en, rule.text.ja),
        "advice": language.pick(rule.advice.en, rule.advice.ja),
        "expression": rule.expression(),
    })
}

/// Find an alert
#[utoipa::path(
    get,
    path = "/alerts/{id}",
    tag = "watch",
    operation_id = "getAlert",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The alert", body = AlertSchema),
        (status = 404, description = "No such alert", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(State(face): State<Arc<Face>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let alert = face.alerts.find(parse(&id)?).await.map_err(refusal)?;
    Ok(Json(shown(&alert)).into_response())
}

/// Acknowledge an alert
///
/// Somebody has seen it. A repeat changes nothing: whoever was first stays.
#[utoipa::path(
    post,
    path = "/alerts/{id}/acknowledge",
    tag = "watch",
    operation_id = "acknowledgeAlert",
    request_body(content = Option<NoteSchema>, content_type = "application/json"),
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header, description = "Who; else the token")),
    responses(
        (status = 200, description = "The alert", body = AlertSchema),
        (status = 400, description = "The request cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such alert", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "It is not firing any more", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The note cannot be used", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn acknowledge(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let (id, who) = (parse(&id)?, who(&headers, &client)?);
    let note = request::parse_note(&body).map_err(Problem::violations)?;
    let alert = face.alerts.acknowledge(id, &who, &note).await.map_err(refusal)?;
    Ok(Json(shown(&alert)).into_response())
}

/// Silence an alert
///
/// Nobody is told about it, nor about the next ones of the same rule and subject, until then. It goes on
/// firing and is listed. `minutes: 0` ends a silence.
#[utoipa::path(
    post,
    path = "/alerts/{id}/silence",
    tag = "watch",
    operation_id = "silenceAlert",
    request_body = SilenceSchema,
    params(("id" = uuid::Uuid, Path), ("X-User-Id" = Option<String>, Header, description = "Who; else the token")),
    responses(
        (status = 200, description = "The alert", body = AlertSchema),
        (status = 400, description = "The request cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such alert", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "No end, or no reason", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn silence(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let (id, who) = (parse(&id)?, who(&headers, &client)?);
    let (until, reason) =
        request::parse_silence(&body, face.alerts.now()).map_err(Problem::violations)?;
    let alert = face.alerts.silence(id, until, &who, &reason).await.map_err(refusal)?;
    Ok(Json(shown(&alert)).into_response())
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::AlertNotFound))
}

pub(crate) fn refusal(error: AlertError) -> Problem {
    match error {
        AlertError::NotFound => Problem::new(Code::AlertNotFound),
        AlertError::Refused(_) => Problem::new(Code::AlertNotFiring),
        AlertError::Store(error) => unavailable(&error),
    }
}

/// An alert as answers show it.
pub(crate) fn shown(alert: &Alert) -> Value {
    let mut item = json!({
        "id": alert.id,
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "message": alert.message,
        "count": alert.count,
        "firedAt": alert.fired_at,
        "resolvedAt": alert.resolved_at,
        "labels": alert.labels,
    });
    if let Some(seen) = &alert.acknowledged {
        item["acknowledgedAt"] = json!(seen.at);
        item["acknowledgedBy"] = json!(seen.by);
    }
    if let Some(silence) = &alert.silenced {
        item["silencedUntil"] = json!(silence.until);
        item["silencedBy"] = json!(silence.by);
        item["silenceReason"] = json!(silence.reason);
    }
    item
}
