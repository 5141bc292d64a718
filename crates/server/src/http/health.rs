//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tashika_store::Store;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::{Code, Document, Problem};
use crate::telemetry::Metrics;

/// A probe is an answer for this long: nobody can make the server write by asking often.
const FRESH: Duration = Duration::from_millis(500);
/// A store that takes longer to commit is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of the server, in a word.
#[derive(Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
}

/// Asks the store whether it can commit, and remembers the answer for a moment.
pub struct Readiness {
    store: Store,
    clock: Clock,
    last: Mutex<Option<(Timestamp, bool)>>,
}

impl Readiness {
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock, last: Mutex::new(None) }
    }

    async fn ready(&self) -> bool {
        let mut last = self.last.lock().await;
        let now = self.clock.now();
        if let Some((_, ready)) = last.filter(|(at, _)| !at.plus(FRESH).has_come(now, FRESH)) {
            return ready;
        }
        let probe = tokio::time::timeout(PATIENCE, self.store.probe(now)).await;
        let ready = match probe {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready");
                false
            }
            Err(_) => {
                tracing::warn!("not ready: the store did not commit in time");
                false
            }
        };
        *last = Some((self.clock.now(), ready));
        ready
    }
}

/// Routes that need no token.
pub fn open_routes(readiness: Arc<Readiness>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).with_state(readiness)
}

/// Routes that need one.
pub fn protected_routes(metrics: Metrics) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(scrape)).with_state(metrics)
}

/// Is the process alive?
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "operation",
    operation_id = "health",
    responses((status = 200, description = "It is", body = Health)),
)]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Can the server do its work? Fails when the store cannot commit.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operation",
    operation_id = "readiness",
    responses(
        (status = 200, description = "It can", body = Health),
        (status = 503, description = "The store cannot commit", body = Document,
            content_type = "application/problem+json"),
    ),
)]
async fn readyz(State(readiness): State<Arc<Readiness>>) -> Result<Json<Health>, Problem> {
    if readiness.ready().await {
        Ok(Json(Health { status: "ready" }))
    } else {
        Err(Problem::new(Code::StoreUnavailable))
    }
}

/// Metrics in Prometheus' text format
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operation",
    operation_id = "metrics",
    responses((status = 200, description = "All metrics", body = String, content_type = "text/plain")),
)]
async fn scrape(State(metrics): State<Metrics>) -> Response {
    ([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], metrics.render()).into_response()
}
