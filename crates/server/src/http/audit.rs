//! `/audit-logs`: who did what to what.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use tashika_domain::audit::Audit;
use tashika_domain::mask::masked;
use tashika_store::{AuditFilter, Listed, Store};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::page::Query;
use super::problem::Problem;
use super::schema::AuditLogsSchema;
use super::unavailable;

pub fn routes(store: Store) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(audit_logs)).with_state(store)
}

/// List audit lines
///
/// Who did what to what. Written with the change itself, never changed.
#[utoipa::path(
    get,
    path = "/audit-logs",
    tag = "audit",
    operation_id = "listAuditLogs",
    params(
        ("action" = Option<String>, Query),
        ("targetType" = Option<String>, Query),
        ("targetId" = Option<String>, Query),
        ("officeId" = Option<String>, Query),
        ("from" = Option<String>, Query, description = "RFC 3339", format = DateTime),
        ("to" = Option<String>, Query, description = "RFC 3339", format = DateTime),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "Newest first", body = AuditLogsSchema)),
)]
async fn audit_logs(
    State(store): State<Store>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let names = ["action", "targetType", "targetId", "officeId", "from", "to"];
    let query = Query::read(query.as_deref(), &names)?;
    let page = query.page()?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let filter = AuditFilter {
        action: text("action"),
        target_type: text("targetType"),
        target_id: text("targetId"),
        office_id: text("officeId"),
        from: query.word("from", |text| text.parse().ok())?,
        to: query.word("to", |text| text.parse().ok())?,
        ..AuditFilter::default()
    };
    let away = |error| unavailable(&error);
    let chosen = [filter.action.is_some(), filter.office_id.is_some()];
    let alone = filter.target_type.is_none() && chosen != [true, true];
    let is_indexed = filter.target_id.is_some() || alone;
    let span = (filter.from, filter.to);
    let reach = page.reach(&store, Listed::AuditLogs, span, is_indexed).await.map_err(away)?;
    let filter = AuditFilter { before: reach.before, since: reach.since, ..filter };
    let found = store.audit_logs(&filter, page.fetch()).await.map_err(away)?;
    Ok(page.answer_of(found.iter().map(|line| (line.id, shown(line))).collect(), reach))
}

pub(crate) fn shown(line: &Audit) -> Value {
    let details: Value = serde_json::from_str(&line.details).unwrap_or_default();
    json!({
        "id": line.id,
        "actorId": line.actor_id,
        "actorRole": line.actor_role,
        "action": line.action,
        "targetType": line.target_type,
        "targetId": line.target_id,
        "officeId": line.office_id,
        "details": masked(&details),
        "createdAt": line.created_at,
    })
}
