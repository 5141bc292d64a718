//! `GET /console/api/live`: that something has changed, as server-sent events.
//!
//! A hint names parts of the console in which something is new; the page then asks the API again. Hints
//! may come late or not at all: pages look by themselves from time to time. While somebody listens, one
//! task looks at the newest row of each table once a second, whoever has written it, and at what the
//! workers of this process do. Who listens is sent away at the end of the process, and every ten minutes,
//! so that a session that has ended does not go on listening.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde_json::json;
use tashika_engine::{Clock, Engine};
use tashika_store::{Counted, Store, StoreError};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Face;
use crate::http::problem::{Code, Problem};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// A sign of life for proxies that close what is silent.
const BEAT: Duration = Duration::from_secs(15);
/// How long one listener stays.
const STAY: Duration = Duration::from_secs(600);

type Hint = Arc<BTreeSet<&'static str>>;

/// Tells listeners.
#[derive(Default)]
pub(super) struct Hub {
    hints: watch::Sender<Hint>,
}

/// Which part of the console a table belongs to.
fn part(table: &str) -> &'static str {
    match table {
        "payments" => "payments",
        "cases" => "cases",
        "alerts" => "alerts",
        "webhook_events" => "webhooks",
        "messages" | "message_log" | "last_attempts" => "queue",
        "mail_deliveries" => "mail",
        "reservations" => "reservations",
        "renders" => "renders",
        "race_conditions" => "races",
        "audit_logs" => "audit",
        _ => "outbox",
    }
}

/// Everything by which a change is noticed.
type Seen = BTreeMap<String, (&'static str, String)>;

async fn look(store: &Store, engine: &Engine) -> Result<Seen, StoreError> {
    let mut seen = Seen::new();
    for newest in store.newest().await? {
        let id = newest.id.map(|id| id.to_string()).unwrap_or_default();
        let part = part(&newest.table);
        seen.insert(newest.table, (part, id));
    }
    // What ends leaves no new row.
    for (name, part, what) in [
        ("open", "cases", Counted::OpenCases),
        ("firing", "alerts", Counted::FiringAlerts),
        ("letters", "queue", Counted::DeadLetters),
        ("aborted", "outbox", Counted::AbortedEffects),
    ] {
        seen.insert(name.to_owned(), (part, store.counted(what, 1000).await?.to_string()));
    }
    seen.insert("beats".to_owned(), ("flow", engine.pulse().beats().to_string()));
    Ok(seen)
}

/// The task: looks while somebody listens.
pub(super) async fn watch(
    hub: Arc<Hub>,
    store: Store,
    engine: Arc<Engine>,
    clock: Clock,
    stop: CancellationToken,
) {
    let mut before: Option<Seen> = None;
    while stop.run_until_cancelled(clock.sleep(PERIOD)).await.is_some() {
        if hub.hints.receiver_count() == 0 {
            before = None;
            continue;
        }
        match look(&store, &engine).await {
            Ok(now) => {
                if let Some(before) = &before {
                    let changed =
                        now.iter().filter(|(name, state)| before.get(*name) != Some(state));
                    let parts: BTreeSet<&'static str> =
                        changed.map(|(_, (part, _))| *part).collect();
                    if !parts.is_empty() {
                        hub.hints.send_replace(Arc::new(parts));
                    }
                }
                before = Some(now);
            }
            Err(error) => tracing::debug!(%error, "the console could not look for changes"),
        }
    }
}

/// One page that listens.
struct Listener {
    hints: watch::Receiver<Hint>,
    greeted: bool,
    until: Instant,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if !self.greeted {
            self.greeted = true;
            return Some((Ok("retry: 2000\nevent: hello\ndata: {}\n\n".into()), self));
        }
        let text = tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            () = tokio::time::sleep_until(self.until) => return None,
            heard = self.hints.changed() => {
                // The hub is there for as long as the server.
                heard.ok()?;
                let parts = Arc::clone(&self.hints.borrow_and_update());
                format!("event: change\ndata: {}\n\n", json!({ "parts": *parts }))
            }
            () = tokio::time::sleep(BEAT) => ": still here\n\n".to_owned(),
        };
        Some((Ok(text.into()), self))
    }
}

pub(super) async fn listen(State(face): State<Arc<Face>>) -> Result<Response, Problem> {
    let place = Arc::clone(&face.listeners).try_acquire_owned();
    let place = place.map_err(|_| Problem::new(Code::ServerBusy))?;
    let mut hints = face.hub.hints.subscribe();
    hints.mark_unchanged();
    let listener = Listener {
        hints,
        greeted: false,
        until: Instant::now() + STAY,
        stop: face.stop.clone(),
        _place: place,
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Some proxies gather answers; this one is read while it is written.
        (http::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    let body = Body::from_stream(stream::unfold(listener, Listener::next));
    Ok((headers, body).into_response())
}
