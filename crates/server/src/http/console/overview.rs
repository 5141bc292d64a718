//! The first page: what flows, what waits, and what needs somebody.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};
use tashika_domain::alert::AlertState;
use tashika_domain::case::CaseStatus;
use tashika_engine::Step;
use tashika_store::{AlertFilter, CaseFilter, Counted, RaceFilter, Store, StoreError};

use super::Face;
use crate::http::problem::Problem;
use crate::http::{cases, races, unavailable};

/// Counting ends here: more is shown as "1000+".
const COUNT_MAX: i64 = 1000;
/// Cases, alerts and races that the first page names.
const NAMED: i64 = 5;

pub(super) async fn overview(State(face): State<Arc<Face>>) -> Result<Response, Problem> {
    let found = face.overview().await.map_err(|error| unavailable(&error))?;
    Ok(Json(found).into_response())
}

impl Face {
    async fn overview(&self) -> Result<Value, StoreError> {
        let mut found = standing(&self.store).await?;
        let steps = self.engine.pulse().steps();
        found["node"] = json!(self.engine.worker());
        found["at"] = json!(self.clock.now());
        found["steps"] = steps.iter().map(step).collect();
        Ok(found)
    }
}

/// What needs somebody, and what raced: for the first page and for `tashika top`.
pub(crate) async fn standing(store: &Store) -> Result<Value, StoreError> {
    let mut counts = Map::new();
    for (name, what) in [
        ("openCases", Counted::OpenCases),
        ("firingAlerts", Counted::FiringAlerts),
        ("abortedEffects", Counted::AbortedEffects),
        ("deadLetters", Counted::DeadLetters),
        ("failedWebhooks", Counted::FailedWebhooks),
        ("paymentsInDoubt", Counted::PaymentsInDoubt),
    ] {
        counts.insert(name.to_owned(), store.counted(what, COUNT_MAX).await?.into());
    }
    let open = CaseFilter { status: Some(CaseStatus::Open), ..CaseFilter::default() };
    let open = store.cases(&open, NAMED).await?;
    let firing = AlertFilter { state: Some(AlertState::Firing), ..AlertFilter::default() };
    let alerts = store.alerts(&firing, NAMED).await?;
    let alerts: Vec<Value> = alerts
        .iter()
        .map(|alert| {
            json!({
                "id": alert.id, "rule": alert.rule, "severity": alert.severity,
                "message": alert.message, "count": alert.count, "firedAt": alert.fired_at,
            })
        })
        .collect();
    let seen = store.races(&RaceFilter::default(), NAMED).await?;
    Ok(json!({
        "countMax": COUNT_MAX,
        "counts": counts,
        "cases": open.iter().map(cases::case).collect::<Vec<_>>(),
        "alerts": alerts,
        "races": seen.iter().map(races::race).collect::<Vec<_>>(),
    }))
}

/// Some seconds: per lane `[succeeded, failed, aborted, p50, p95]`, and what waited at their end.
fn step(step: &Step) -> Value {
    let lanes: Map<String, Value> = step
        .lanes
        .iter()
        .map(|(lane, tally)| {
            let numbers = json!([
                tally.succeeded,
                tally.failed,
                tally.aborted,
                tally.quantile(0.5),
                tally.quantile(0.95)
            ]);
            (lane.as_str().to_owned(), numbers)
        })
        .collect();
    let waiting: Map<String, Value> =
        step.waiting.iter().map(|w| (w.lane.as_str().to_owned(), w.count.into())).collect();
    json!({"at": step.at, "sec": step.took.as_secs_f64(), "lanes": lanes, "waiting": waiting})
}
