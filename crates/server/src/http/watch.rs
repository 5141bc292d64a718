//! `/cases` and `/alerts`: what waits for a person, and what somebody should look at.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use tashika_domain::alert::AlertState;
use tashika_domain::case::{Case, CaseStatus};
use tashika_store::{CaseFilter, Store};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::page::Query;
use super::problem::{Document, Problem};
use super::schema::{AlertsSchema, CasesSchema};
use super::unavailable;

pub fn routes(store: Store) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(cases)).routes(routes!(alerts)).with_state(store)
}

/// List cases
///
/// Everything that software could not decide.
#[utoipa::path(
    get,
    path = "/cases",
    tag = "watch",
    operation_id = "listCases",
    params(
        ("status" = Option<String>, Query, description = "open or resolved"),
        ("kind" = Option<String>, Query, description = "E.g. payment_unknown"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = CasesSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn cases(State(store): State<Store>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["status", "kind"])?;
    let page = query.page()?;
    let filter = CaseFilter {
        status: query.word("status", CaseStatus::parse)?,
        kind: query.text("kind").map(str::to_owned),
        before: page.before,
    };
    let found = store.cases(&filter, page.fetch()).await.map_err(|error| unavailable(&error))?;
    Ok(page.answer(found.iter().map(|case| (case.id, self::case(case))).collect()))
}

/// List alerts
#[utoipa::path(
    get,
    path = "/alerts",
    tag = "watch",
    operation_id = "listAlerts",
    params(
        ("state" = Option<String>, Query, description = "firing or resolved"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = AlertsSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn alerts(
    State(store): State<Store>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["state"])?;
    let page = query.page()?;
    let state = query.word("state", AlertState::parse)?;
    let found = store.alerts(state, page.before, page.fetch()).await;
    let found = found.map_err(|error| unavailable(&error))?;
    let items = found.iter().map(|alert| {
        let item = json!({
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
        (alert.id, item)
    });
    Ok(page.answer(items.collect()))
}

/// A case, in a list or with its subject.
pub(super) fn case(case: &Case) -> Value {
    let details: Value = serde_json::from_str(&case.details).unwrap_or_default();
    let mut body = json!({
        "id": case.id,
        "kind": case.kind,
        "status": case.status.as_str(),
        "subjectType": case.subject_type,
        "subjectId": case.subject_id,
        "summary": case.summary,
        "actions": case.actions,
        "openedAt": case.opened_at,
        "details": details,
    });
    if let Some(end) = &case.resolution {
        body["resolvedAt"] = json!(end.at);
        body["resolution"] = json!(end.action);
        body["note"] = json!(end.note);
    }
    body
}
