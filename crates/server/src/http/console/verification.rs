//! Checking the audit chain: started by somebody, watched by everybody.
//!
//! A long chain takes longer than a request may, so it is walked beside it. One walk at a time; what it
//! found stays until the next one, in the memory of this process.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_engine::sealer::{self, Finding, Verified};

use super::Face;
use crate::http::auth::Client;
use crate::http::problem::Problem;
use crate::http::unavailable;

/// Findings that are named; more are counted.
const NAMED: usize = 100;

#[derive(Clone, Default)]
pub(super) struct Verification(Arc<Mutex<Option<Walk>>>);

struct Walk {
    who: String,
    started_at: Timestamp,
    /// Seals that there were at the start.
    total: i64,
    seen: Verified,
    end: Option<End>,
}

enum End {
    Walked(Timestamp),
    /// The store was away.
    Failed(Timestamp),
}

impl Verification {
    fn with<T>(&self, work: impl FnOnce(&mut Option<Walk>) -> T) -> T {
        // A walk is replaced as a whole, so a panic elsewhere does not spoil it.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn update(&self, change: impl FnOnce(&mut Walk)) {
        self.with(|walk| walk.as_mut().map(change));
    }
}

/// Begins a walk, or joins the one that is under way.
pub(super) async fn start(
    State(face): State<Arc<Face>>,
    Extension(client): Extension<Client>,
) -> Result<Response, Problem> {
    let total = face.store.last_sealed().await.map_err(|error| unavailable(&error))?;
    let started_at = face.clock.now();
    let begins = face.verification.with(|walk| {
        let running = walk.as_ref().is_some_and(|walk| walk.end.is_none());
        if !running {
            let seen = Verified::default();
            *walk = Some(Walk { who: client.0, started_at, total, seen, end: None });
        }
        !running
    });
    if begins {
        tokio::spawn(walk(Arc::clone(&face)));
    }
    Ok((StatusCode::ACCEPTED, Json(face.verification.with(|walk| shown(walk.as_ref()))))
        .into_response())
}

async fn walk(face: Arc<Face>) {
    let verification = face.verification.clone();
    let telling = verification.clone();
    let tell = move |seen: &Verified| {
        let counts = Verified { findings: Vec::new(), ..seen.clone() };
        telling.update(|walk| walk.seen = counts);
    };
    // The end of the process does not wait for it.
    let walked = sealer::verify_telling(&face.store, tell);
    let Some(walked) = face.stop.run_until_cancelled(walked).await else { return };
    let now = face.clock.now();
    match walked {
        Ok(seen) => verification.update(|walk| {
            walk.seen = seen;
            walk.end = Some(End::Walked(now));
        }),
        Err(error) => {
            tracing::warn!(%error, "the audit chain could not be walked to its end");
            verification.update(|walk| walk.end = Some(End::Failed(now)));
        }
    }
}

pub(super) async fn look(State(face): State<Arc<Face>>) -> Response {
    Json(face.verification.with(|walk| shown(walk.as_ref()))).into_response()
}

fn shown(walk: Option<&Walk>) -> Value {
    let Some(walk) = walk else { return json!({"state": "none"}) };
    let Walk { who, started_at, total, seen, end } = walk;
    let (state, ended_at) = match end {
        None => ("running", None),
        Some(End::Walked(at)) if seen.findings.is_empty() => ("intact", Some(at)),
        Some(End::Walked(at)) => ("broken", Some(at)),
        Some(End::Failed(at)) => ("failed", Some(at)),
    };
    json!({
        "state": state,
        "who": who,
        "startedAt": started_at,
        "endedAt": ended_at,
        "totalSeals": total,
        "seals": seen.seals,
        "lines": seen.lines,
        "expired": seen.expired,
        "unsealed": seen.unsealed,
        "findingCount": seen.findings.len(),
        "findings": seen.findings.iter().take(NAMED).map(finding).collect::<Vec<_>>(),
    })
}

pub(crate) fn finding(finding: &Finding) -> Value {
    match finding {
        Finding::Changed(id) => json!({"what": "changed", "line": id}),
        Finding::Removed(id) => json!({"what": "removed", "line": id}),
        Finding::SlippedIn(id) => json!({"what": "slippedIn", "line": id}),
        Finding::Broken(seal) => json!({"what": "broken", "seal": seal}),
        Finding::Missing(seal) => json!({"what": "missing", "seal": seal}),
    }
}
