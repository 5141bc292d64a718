//! The way into `/v2`, past the router.
//!
//! Destinations are paths within paths, so a router has nothing to tell here; and messages come more often than anything
//! else. A request passes the same checks in the same order as all others (`router`), without a layer's box for each of them.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::Method;
use http::header::CONTENT_LENGTH;
use hyper::body::Body as _;
use tower::{Layer as _, Service, ServiceExt as _};
use tower_http::csrf::Csrf;

use super::{BASE, Face};
use crate::http::auth::Auth;
use crate::http::edge::{self, Edge, Known};
use crate::http::problem;
use crate::http::router::{CrossSite, guard, never_stored};

/// The queue, with everything that stands before it.
#[derive(Clone)]
pub(in crate::http) struct Door {
    edge: Edge,
    inner: Csrf<Inner, CrossSite>,
}

impl Door {
    pub fn new(edge: Edge, auth: Auth, face: Arc<Face>) -> Self {
        Self { edge, inner: guard().layer(Inner { auth, face }) }
    }

    /// Whether a request comes in here. Others find nothing at their paths, with or without a token.
    pub fn leads_to(path: &str) -> bool {
        path.len() > BASE.len() && path.starts_with(BASE)
    }

    pub async fn pass(self, request: Request) -> Response {
        let path = super::shape(request.uri().path());
        let is_head = request.method() == Method::HEAD;
        let Self { edge, inner } = self;
        let through = |mut request: Request, known: Known| async move {
            request.extensions_mut().insert(known);
            match AssertUnwindSafe(inner.oneshot(request)).catch_unwind().await {
                Ok(Ok(response)) => response,
                Err(panic) => problem::of_panic(panic),
            }
        };
        let response = edge::around(&edge.0, path.into(), request, through).await;
        if is_head { without_body(response) } else { response }
    }
}

/// Its body's length is told, and the body is not sent: a client of HTTP/2 takes one for a broken stream.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    *response.body_mut() = Body::empty();
    response
}

/// Behind the check for requests of other sites.
#[derive(Clone)]
struct Inner {
    auth: Auth,
    face: Arc<Face>,
}

impl Service<Request> for Inner {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Self { auth, face } = self.clone();
        Box::pin(async move {
            let response = match auth.admit(&request) {
                Ok(_) => super::answer(&face, request).await,
                Err(problem) => problem.into_response(),
            };
            Ok(never_stored(response))
        })
    }
}
