//! A worker that jobs and events are delivered to, and that has bad moments.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::chance::Chance;

/// How often the worker fails, of a hundred deliveries.
const BAD_MOMENTS: u64 = 20;

struct Shared {
    chance: Chance,
    behaves: bool,
    /// The jobs that it has done.
    done: BTreeSet<u64>,
    events: usize,
}

pub(super) struct Worker {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    serving: JoinHandle<()>,
}

impl Worker {
    pub async fn start(seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let chance = Chance::of(seed, 1000);
        let shared = Shared { chance, behaves: false, done: BTreeSet::new(), events: 0 };
        let shared = Arc::new(Mutex::new(shared));
        let router = Router::new()
            .route("/jobs", post(job))
            .route("/events", post(event))
            .with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap_or_default();
        });
        Ok(Self { address, shared, serving })
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn behave(&self) {
        self.with(|shared| shared.behaves = true);
    }

    pub fn done(&self) -> BTreeSet<u64> {
        self.with(|shared| shared.done.clone())
    }

    pub fn events(&self) -> usize {
        self.with(|shared| shared.events)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shared) -> T) -> T {
        look(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A job that is broken fails whenever it comes; others when the worker has a bad moment.
async fn job(State(shared): State<Arc<Mutex<Shared>>>, body: Bytes) -> (StatusCode, &'static str) {
    let job: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if job["broken"] == true {
        return (StatusCode::UNPROCESSABLE_ENTITY, "this job makes no sense to me");
    }
    if !shared.behaves && shared.chance.in_hundred(BAD_MOMENTS) {
        return (StatusCode::SERVICE_UNAVAILABLE, "not now");
    }
    if let Some(number) = job["job"].as_u64() {
        shared.done.insert(number);
    }
    (StatusCode::OK, "done")
}

async fn event(State(shared): State<Arc<Mutex<Shared>>>) -> StatusCode {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if !shared.behaves && shared.chance.in_hundred(BAD_MOMENTS) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    shared.events += 1;
    StatusCode::NO_CONTENT
}
