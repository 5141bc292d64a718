//! Problem documents (RFC 9457): how every error is answered.
//!
//! Handlers return a [`Problem`]; the edge finishes it with the request's id and language, and turns
//! bare error statuses of libraries (404, 405, 413 …) into problems too. It guarantees that an answer
//! of ours with an error status carries a code of the table. It never repeats what was sent: a detail
//! is written by a handler, not copied from a request. Bodies that are JSON already (stored answers)
//! are left alone.

pub mod codes;

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tashika_domain::order::Violation;
use utoipa::ToSchema;

pub use codes::Code;

use super::language::Language;

pub const CONTENT_TYPE_PROBLEM: &str = "application/problem+json";

/// Something is wrong, and this is what the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    /// English and Japanese; the table's own sentence otherwise.
    detail: Option<(String, String)>,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
}

/// One thing that is wrong with a field of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The field; empty for the body as a whole.
    pub field: String,
    pub problem: String,
}

/// What goes over the wire.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct Document {
    /// Where the code is explained.
    #[serde(rename = "type")]
    #[schema(example = "/docs/errors#IDEMPOTENCY_CONFLICT")]
    pub kind: String,
    #[schema(example = "Idempotency conflict")]
    pub title: String,
    #[schema(example = 409)]
    pub status: u16,
    pub detail: String,
    /// For programs; never changes its meaning.
    #[schema(example = "IDEMPOTENCY_CONFLICT")]
    pub code: String,
    /// Finds the request in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Every field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl Problem {
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, detail: None, errors: Vec::new(), retry_after: None }
    }

    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Says it more precisely than the table, in both languages.
    #[must_use]
    pub fn detail(mut self, english: impl Into<String>, japanese: impl Into<String>) -> Self {
        self.detail = Some((english.into(), japanese.into()));
        self
    }

    /// `VALIDATION_ERROR` with everything that is wrong.
    #[must_use]
    pub fn violations(violations: Vec<Violation>) -> Self {
        let errors = violations
            .into_iter()
            .map(|violation| FieldError { field: violation.field, problem: violation.problem });
        Self { errors: errors.collect(), ..Self::new(Code::ValidationError) }
    }

    /// How long to wait, where it is known better than the table's guess.
    #[must_use]
    pub const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The document in a language.
    #[must_use]
    pub fn document(&self, language: Language, request_id: Option<&str>) -> Document {
        let entry = self.code.entry();
        let detail = match &self.detail {
            Some((english, japanese)) => language.pick(english, japanese),
            None => language.pick(entry.detail.en, entry.detail.ja),
        };
        Document {
            kind: format!("/docs/errors#{}", entry.name),
            title: language.pick(entry.title.en, entry.title.ja).to_owned(),
            status: entry.status.as_u16(),
            detail: detail.to_owned(),
            code: entry.name.to_owned(),
            request_id: request_id.map(str::to_owned),
            errors: self.errors.clone(),
        }
    }

    fn render(&self, language: Language, request_id: Option<&str>) -> Response {
        let document = self.document(language, request_id);
        // A structure of strings always serialises.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE_PROBLEM));
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
        headers.insert(VARY, HeaderValue::from_static("accept-language"));
        let table = self.code.entry().retry_after.map(Duration::from_secs);
        if let Some(wait) = self.retry_after.or(table) {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if self.code == Code::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tashika\""));
        }
        response
    }
}

/// Rounded up: coming back a moment too early would be refused again.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl IntoResponse for Problem {
    /// A complete answer in English; the edge renders it again for the request at hand.
    fn into_response(self) -> Response {
        let mut response = self.render(Language::English, None);
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives every error its document, in the request's language and with its id.
#[must_use]
pub fn finish(mut response: Response, language: Language, request_id: &str) -> Response {
    let status = response.status();
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if is_error(status) && !is_json(&response) => Problem::new(Code::of_status(status)),
        None => return response,
    };
    let mut rendered = problem.render(language, Some(request_id));
    // An unexplained status keeps itself: the code is the nearest, the status is the fact.
    *rendered.status_mut() = status;
    // Headers of the original (`Allow` of a 405 above all) stay, but not those about its body.
    let mut headers = std::mem::take(response.headers_mut());
    headers.remove(CONTENT_LENGTH);
    for (name, value) in rendered.headers() {
        headers.insert(name, value.clone());
    }
    *rendered.headers_mut() = headers;
    rendered
}

/// The same for callers of the queue, who expect `{"error": "…"}`, in English, and nothing else.
#[must_use]
pub fn finish_plain(mut response: Response) -> Response {
    let status = response.status();
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if is_error(status) && !is_json(&response) => Problem::new(Code::of_status(status)),
        None => return response,
    };
    let why = match problem.code {
        // To the letter what the hosted service says.
        Code::Unauthorized => "unable to authenticate: invalid token".to_owned(),
        _ => problem.document(Language::English, None).detail,
    };
    let body = serde_json::json!({ "error": why }).to_string();
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_LANGUAGE);
    headers.remove(VARY);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Body::from(body);
    response
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn is_json(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/") && kind.contains("json"))
}

/// The answer to a panic; the panic itself was logged by the process's hook.
#[must_use]
pub fn of_panic(_payload: Box<dyn std::any::Any + Send>) -> Response {
    Problem::new(Code::InternalError).into_response()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    async fn body(response: Response) -> Value {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn both_languages_say_the_same_code() {
        let response = Problem::new(Code::IdempotencyConflict).into_response();
        let response = finish(response, Language::Japanese, "r-1");
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[CONTENT_TYPE], CONTENT_TYPE_PROBLEM);
        assert_eq!(response.headers()[CONTENT_LANGUAGE], "ja");
        assert_eq!(
            body(response).await,
            json!({
                "type": "/docs/errors#IDEMPOTENCY_CONFLICT",
                "title": "冪等キーの競合",
                "status": 409,
                "detail": "この冪等キーは別の内容で使われています。",
                "code": "IDEMPOTENCY_CONFLICT",
                "request_id": "r-1",
            })
        );
        let response = Problem::new(Code::IdempotencyConflict).into_response();
        let english = body(finish(response, Language::English, "r-1")).await;
        assert_eq!(english["title"], "Idempotency conflict");
    }

    #[tokio::test]
    async fn violations_and_details_are_carried() {
        let violation = Violation { field: "qty".into(), problem: "must be greater than 0".into() };
        let document = body(Problem::violations(vec![violation]).into_response()).await;
        assert_eq!(document["errors"][0]["field"], "qty");
        let precise = Problem::new(Code::InvalidJson).detail("line 1", "1 行目");
        assert_eq!(precise.document(Language::Japanese, None).detail, "1 行目");
    }

    #[test]
    fn waits_are_rounded_up() {
        let response = Problem::new(Code::RateLimited)
            .retry_after(Duration::from_millis(1200))
            .into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let response = Problem::new(Code::StoreUnavailable).into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let response = Problem::new(Code::Unauthorized).into_response();
        assert!(response.headers().contains_key(WWW_AUTHENTICATE));
    }

    #[tokio::test]
    async fn bare_statuses_become_problems_and_json_bodies_stay() {
        let mut bare = Response::new(Body::from("plain words"));
        *bare.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        bare.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("GET"));
        bare.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("11"));
        let finished = finish(bare, Language::English, "r-1");
        assert_eq!(finished.headers()[http::header::ALLOW], "GET");
        assert!(!finished.headers().contains_key(CONTENT_LENGTH));
        assert_eq!(body(finished).await["code"], "METHOD_NOT_ALLOWED");

        let mut stored = Response::new(Body::from(r#"{"status":"error"}"#));
        *stored.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        stored.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let finished = finish(stored, Language::English, "r-1");
        assert_eq!(finished.status(), 504);
        assert_eq!(body(finished).await, json!({"status": "error"}));
    }
}
