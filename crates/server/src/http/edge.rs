//! What happens to every request, whatever it asks for.
//!
//! The outermost layer, put there by the shell: gives the request its id, trace and language, limits
//! how long it may take, turns errors into problem documents, and writes one log line and two metrics
//! about it. It guarantees that each request is logged exactly once, also when the client goes away
//! before its answer. Neither paths with their parameters nor queries, headers or bodies are logged.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use metrics::Label;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::body::BodyLimits;
use super::language::Language;
use super::listener::Ambiguous;
use super::problem::{self, Code, Problem};
use super::qstash;
use super::request_id::{RequestId, RequestIds, X_REQUEST_ID};
use crate::telemetry::{Traceparent, note, span_parent, trace, traceparent_of};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const NO_SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// Paths that machines ask for every few seconds: their log lines would hide the others.
const QUIET: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/console/api/overview"];
/// What the log says when nobody waited for the answer; no client ever sees it.
const CLIENT_GONE: u16 = 499;

/// The limits that hold for every request.
#[derive(Clone)]
pub(super) struct Edge(pub Arc<Settings>);

pub(super) struct Settings {
    pub ids: RequestIds,
    pub max_headers: usize,
    pub request_timeout: Duration,
    pub body: BodyLimits,
}

/// What the edge has found out about a request, for its handler.
#[derive(Clone)]
pub(super) struct Known {
    pub id: RequestId,
    pub traceparent: Traceparent,
    pub body: BodyLimits,
}

/// The layer.
pub(super) async fn pass(State(Edge(edge)): State<Edge>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let path = matched.map_or(Cow::Borrowed("(none)"), |path| path.as_str().to_owned().into());
    let through = |mut request: Request, known: Known| {
        let extensions = request.extensions_mut();
        extensions.insert(known.id);
        extensions.insert(known.traceparent);
        extensions.insert(known.body);
        next.run(request)
    };
    around(&edge, path, request, through).await
}

/// The same around whatever answers the request. `path`: what the log and the metrics call it.
pub(super) async fn around<Answer: Future<Output = Response>>(
    edge: &Settings,
    path: Cow<'static, str>,
    request: Request,
    through: impl FnOnce(Request, Known) -> Answer,
) -> Response {
    let id = edge.ids.of(request.headers());
    let language = Language::of(request.headers());
    let of_queue = qstash::owns(request.uri().path());
    let seen = Seen::new(&request, path, &id);
    let traceparent = Traceparent(outgoing(&seen.span, request.headers()));
    let too_many = request.headers().len() > edge.max_headers;
    let ambiguous = request.extensions().get::<Ambiguous>().is_some();
    let known = Known { id: id.clone(), traceparent: traceparent.clone(), body: edge.body };
    let answer = async {
        if too_many {
            return Problem::new(Code::HeadersTooLarge).into_response();
        }
        if ambiguous {
            return misread();
        }
        match tokio::time::timeout(edge.request_timeout, through(request, known)).await {
            Ok(response) => response,
            Err(_) => Problem::new(Code::ProcessingTimeout).into_response(),
        }
    };
    let response = answer.instrument(seen.span.clone()).await;
    let mut response = if of_queue {
        problem::finish_plain(response)
    } else {
        problem::finish(response, language, id.as_str())
    };
    let headers = response.headers_mut();
    headers.insert(X_REQUEST_ID, id.header().clone());
    headers.insert(NO_SNIFF, HeaderValue::from_static("nosniff"));
    if let Some(value) = traceparent.0.and_then(|text| text.try_into().ok()) {
        headers.insert(TRACEPARENT, value);
    }
    seen.answered(response.status());
    response
}

/// What follows on the connection may be a part of the same request to others: it is not read.
fn misread() -> Response {
    let problem = Problem::new(Code::BadRequest).detail(
        "The request must have one Host, and either Content-Length or Transfer-Encoding.",
        "Host は一つだけ、Content-Length と Transfer-Encoding はどちらか一方だけ指定してください。",
    );
    let mut response = problem.into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Joins the caller's trace, and says under which context our own work belongs.
fn outgoing(span: &Span, headers: &HeaderMap) -> Option<String> {
    let incoming = headers
        .get(TRACEPARENT)
        .and_then(|value| value.to_str().ok())
        .filter(|text| trace::parse_traceparent(text).is_some());
    if let Some(parent) = incoming {
        span_parent(span, parent);
    }
    // With traces off there is no span of ours to name: the caller's context is handed through.
    traceparent_of(span).or_else(|| incoming.map(str::to_owned))
}

/// One request, from its head until its answer's, or until nobody waits for it any more.
struct Seen {
    span: Span,
    method: Method,
    path: Cow<'static, str>,
    request_id: RequestId,
    since: Instant,
    status: Option<StatusCode>,
}

impl Seen {
    fn new(request: &Request, path: Cow<'static, str>, id: &RequestId) -> Self {
        let method = request.method().clone();
        let span = tracing::info_span!(
            "http.request",
            otel.name = format!("{method} {path}"),
            otel.kind = "server",
            method = %method,
            path = &*path,
            request_id = id.as_str(),
        );
        Self { span, method, path, request_id: id.clone(), since: Instant::now(), status: None }
    }

    fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
        // For the trace alone: a recorded field would make the log render all fields of the span again.
        note(&self.span, "http.response.status_code", i64::from(status.as_u16()));
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let status = self.status.map_or(CLIENT_GONE, |status| status.as_u16());
        let latency_ms = self.since.elapsed().as_secs_f64() * 1000.0;
        let method = method_label(&self.method);
        let mut labels = vec![Label::new("method", method), Label::new("path", self.path.clone())];
        metrics::histogram!("http_request_latency_ms", labels.clone()).record(latency_ms);
        labels.push(Label::new("status", status.to_string()));
        metrics::counter!("http_requests_total", labels).increment(1);

        // Three decimals: microseconds, which is what a clock is good for here.
        let latency_ms = (latency_ms * 1000.0).round() / 1000.0;
        let (path, request_id) = (&*self.path, self.request_id.as_str());
        if status >= 500 {
            tracing::warn!(parent: None, method, path, status, latency_ms, request_id, "request");
        } else if QUIET.contains(&path) {
            tracing::debug!(parent: None, method, path, status, latency_ms, request_id, "request");
        } else {
            tracing::info!(parent: None, method, path, status, latency_ms, request_id, "request");
        }
    }
}

/// Methods can be invented by callers; labels must not be.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
