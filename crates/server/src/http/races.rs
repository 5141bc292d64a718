//! `/races`: what happened in an order nobody wanted, and what was done about it.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use tashika_store::{Listed, RaceFilter, RaceRow, Store};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::page::Query;
use super::problem::{Document, Problem};
use super::schema::reservations::RacesSchema;
use super::unavailable;

pub fn routes(store: Store) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(races)).with_state(store)
}

/// List races
///
/// Two things that happened in an order nobody wanted, and what was done about it.
#[utoipa::path(
    get,
    path = "/races",
    tag = "watch",
    operation_id = "listRaces",
    params(
        ("scenario" = Option<String>, Query, description = "E.g. EXPIRED_AFTER_PAYMENT"),
        ("resolution" = Option<String>, Query, description = "REFUNDED, VOIDED, RETRY or MANUAL_REQUIRED"),
        ("subjectId" = Option<String>, Query, description = "A reservation's or payment's id"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = RacesSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn races(State(store): State<Store>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["scenario", "resolution", "subjectId"])?;
    let page = query.page()?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let filter = RaceFilter {
        scenario: text("scenario"),
        resolution: text("resolution"),
        subject_id: text("subjectId"),
        ..RaceFilter::default()
    };
    let away = |error| unavailable(&error);
    let is_indexed =
        filter.subject_id.is_some() || filter.scenario.is_none() || filter.resolution.is_none();
    let reach = page.reach(&store, Listed::Races, (None, None), is_indexed).await.map_err(away)?;
    let filter = RaceFilter { before: reach.before, since: reach.since, ..filter };
    let found = store.races(&filter, page.fetch()).await.map_err(away)?;
    Ok(page.answer_of(found.iter().map(|race| (race.id, self::race(race))).collect(), reach))
}

/// A race, in a list or with its subject.
pub(in crate::http) fn race(race: &RaceRow) -> Value {
    let details: Value = serde_json::from_str(&race.details).unwrap_or_default();
    json!({
        "id": race.id,
        "scenario": race.scenario,
        "resolution": race.resolution,
        "subjectType": race.subject_type,
        "subjectId": race.subject_id,
        "detectedAt": race.detected_at,
        "details": details,
    })
}
