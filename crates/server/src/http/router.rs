//! Puts routes behind the layers that every request passes.
//!
//! [`Shell`] takes the API's routes in two kinds, those that need a token and those that do not, adds
//! the pages for people, and wraps everything in the right order. From the outside in:
//!
//! 1. `edge`: id, trace, deadline, log line, problem documents;
//! 2. panics become `INTERNAL_ERROR`;
//! 3. requests that a browser makes for another site are refused;
//! 4. the limit on bodies;
//! 5. on protected routes only: the token.
//!
//! What belongs to the queue comes in by a door of its own (`qstash::door`), through the same checks.
//!
//! Paths that do not exist answer 404 whether or not there is a token, so that typing errors look
//! like typing errors.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use tashika_engine::Clock;
use tower::{Service, ServiceBuilder};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::csrf::{CsrfLayer, ProtectionError};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use super::auth::{self, Auth};
use super::body::BodyLimits;
use super::console::session::Sessions;
use super::docs;
use super::docs::exact::{self, Facts};
use super::edge::{self, Edge, Settings};
use super::problem::{self, Code, Problem};
use super::qstash;
use super::qstash::door::Door;
use super::request_id::RequestIds;
use crate::config::Config;

/// Builds the server's router.
pub struct Shell {
    edge: Edge,
    auth: Auth,
    protected: OpenApiRouter,
    open: OpenApiRouter,
    queue: Option<Arc<qstash::Face>>,
    facts: Facts,
}

impl Shell {
    #[must_use]
    pub fn new(config: &Config, ids: RequestIds) -> Self {
        let sessions =
            config.console.enabled.then(|| Arc::new(Sessions::new(config, Clock::System)));
        let http = &config.http;
        // Below the request's own deadline, so that a body that never comes is told apart from a slow
        // handler: the first is the caller's affair (408), the second ours (503).
        let body_timeout = http.body_timeout.min(http.request_timeout * 9 / 10);
        Self {
            edge: Edge(Arc::new(Settings {
                ids,
                max_headers: http.max_headers,
                request_timeout: http.request_timeout,
                body: BodyLimits { bytes: http.body_limit, timeout: body_timeout },
            })),
            auth: Auth::with_sessions(&config.tokens, sessions),
            protected: OpenApiRouter::new(),
            open: OpenApiRouter::new(),
            queue: None,
            facts: Facts::of(config),
        }
    }

    /// Who may use the API, for the console's login.
    #[must_use]
    pub fn auth(&self) -> Auth {
        self.auth.clone()
    }

    /// Adds routes that need a token. Handlers find the [`auth::Client`] as an extension.
    #[must_use]
    pub fn protected(mut self, routes: OpenApiRouter) -> Self {
        self.protected = self.protected.merge(routes);
        self
    }

    /// Adds routes that need none: health checks, and endpoints that check signatures of their own.
    #[must_use]
    pub fn open(mut self, routes: OpenApiRouter) -> Self {
        self.open = self.open.merge(routes);
        self
    }

    /// Adds the queue.
    #[must_use]
    pub fn queue(mut self, face: Arc<qstash::Face>) -> Self {
        self.protected = self.protected.merge(OpenApiRouter::with_openapi(qstash::of_queue()));
        self.queue = Some(face);
        self
    }

    /// The whole server, and its description as `/openapi.json` answers it.
    pub fn build(self) -> (Front, OpenApi) {
        let (mut protected, protected_api) = self.protected.split_for_parts();
        let (open, open_api) = self.open.split_for_parts();
        let api = docs::describe(protected_api, open_api, !self.auth.is_open());
        if protected.has_routes() {
            let layer = from_fn_with_state(self.auth.clone(), auth::require);
            protected = protected
                .route_layer(layer)
                .layer(map_response(async |response| never_stored(response)));
        }
        let document = exact::document(&api, &self.facts);
        let pages = docs::routes(&api, &document, !self.auth.is_open());
        let limit = self.edge.0.body.bytes;
        let queue = self.queue.map(|face| Door::new(self.edge.clone(), self.auth, face));
        // In one piece: each layer of a router is another box, cloned for every request.
        let shell = ServiceBuilder::new()
            .layer(from_fn_with_state(self.edge, edge::pass))
            .layer(CatchPanicLayer::custom(problem::of_panic))
            .layer(guard())
            .layer(DefaultBodyLimit::max(limit));
        let router = protected.merge(open).merge(pages).layer(shell);
        #[cfg(debug_assertions)]
        for path in exact::undocumented(&router, &document) {
            tracing::error!(path, "a route is not part of the API's description");
        }
        (Front { queue, router }, api)
    }
}

/// The server, as the listener calls it.
#[derive(Clone)]
pub struct Front {
    queue: Option<Door>,
    router: Router,
}

impl From<Router> for Front {
    fn from(router: Router) -> Self {
        Self { queue: None, router }
    }
}

impl Service<Request> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match &self.queue {
            Some(queue) if Door::leads_to(request.uri().path()) => {
                Box::pin(queue.clone().pass(request).map(Ok))
            }
            _ => Box::pin(self.router.call(request)),
        }
    }
}

/// Answers a request that a browser makes for another site.
pub(super) type CrossSite = fn(ProtectionError) -> Response;

/// Refuses such requests.
pub(super) fn guard() -> CsrfLayer<CrossSite> {
    CsrfLayer::new().with_rejection_response(cross_site as CrossSite)
}

/// Answers about somebody's orders do not belong into any cache.
pub(super) fn never_stored(mut response: Response) -> Response {
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn cross_site(_: ProtectionError) -> Response {
    Problem::new(Code::CrossSiteRequest).into_response()
}

#[cfg(test)]
mod probes;
#[cfg(test)]
mod tests;
