//! `/console`: the operator's console.
//!
//! A page and its modules, compiled in (`assets`), that call the same JSON API as everybody else with
//! the cookie of a login (`login`, `session`). What the API does not answer and only the console asks is
//! under `/console/api`: it belongs to the console of the same binary, changes with it, and is therefore
//! not part of the API's description. Everything is behind the layers of every other request; data is
//! behind the token or the session.

mod assets;
mod live;
mod login;
mod messages;
pub(crate) mod overview;
pub mod session;
mod settings;
pub(crate) mod verification;

use std::sync::Arc;

use axum::routing::{get, post};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, HeaderName, REFERRER_POLICY};
use serde_json::Value;
use tashika_engine::{Clock, Engine, Ids};
use tashika_store::Store;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use super::auth::Auth;
use super::auth::throttle::Throttle;
use crate::config::Config;

/// What only this origin's own files may do. `data:` is for the icon of the browser's tab.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Logins that are checked at the same moment: each takes 32 MiB.
const LOGINS: usize = 2;
/// Pages that are told about changes at the same moment.
const LISTENERS: usize = 64;

/// What the handlers share.
pub struct Face {
    auth: Auth,
    store: Store,
    clock: Clock,
    ids: Ids,
    engine: Arc<Engine>,
    settings: Value,
    stop: CancellationToken,
    logins: Semaphore,
    throttle: Throttle,
    listeners: Arc<Semaphore>,
    hub: Arc<live::Hub>,
    verification: verification::Verification,
}

/// What the console is made of.
pub struct Parts {
    pub store: Store,
    pub clock: Clock,
    pub ids: Ids,
    pub engine: Arc<Engine>,
    /// The end of the process: whoever listens is sent away.
    pub stop: CancellationToken,
}

impl Face {
    #[must_use]
    pub fn new(config: &Config, auth: Auth, parts: Parts) -> Arc<Self> {
        let Parts { store, clock, ids, engine, stop } = parts;
        let hub = Arc::new(live::Hub::default());
        tokio::spawn(live::watch(
            Arc::clone(&hub),
            store.clone(),
            Arc::clone(&engine),
            clock,
            stop.clone(),
        ));
        Arc::new(Self {
            auth,
            store,
            clock,
            ids,
            settings: settings::document(config, engine.worker()),
            engine,
            stop,
            logins: Semaphore::new(LOGINS),
            throttle: Throttle::default(),
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            hub,
            verification: verification::Verification::default(),
        })
    }

    /// Must somebody log in? Where the API is open to this machine, so is the console.
    fn needs_login(&self) -> bool {
        let users = self.auth.sessions().is_some_and(|sessions| !sessions.users.is_empty());
        !self.auth.is_open() || users
    }
}

/// The page, its files, and the login. None of it holds data.
pub fn open_routes(face: &Arc<Face>) -> OpenApiRouter {
    let router = OpenApiRouter::new()
        .route("/console/api/session", get(login::session))
        .route("/console/api/login", post(login::login))
        .route("/console/api/logout", post(login::logout))
        .with_state(Arc::clone(face));
    router.merge(assets::routes())
}

pub fn protected_routes(face: &Arc<Face>) -> OpenApiRouter {
    OpenApiRouter::new()
        .route("/console/api/overview", get(overview::overview))
        .route("/console/api/live", get(live::listen))
        .route("/console/api/settings", get(settings::settings))
        .route("/console/api/messages", get(messages::list))
        .route("/console/api/audit/verification", get(verification::look).post(verification::start))
        .with_state(Arc::clone(face))
}

/// The headers of everything that a browser shows.
fn guarded() -> [(HeaderName, HeaderValue); 3] {
    [
        (http::header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
    ]
}

/// Nobody keeps who is logged in.
fn unkept() -> [(HeaderName, HeaderValue); 1] {
    [(CACHE_CONTROL, HeaderValue::from_static("no-store"))]
}
