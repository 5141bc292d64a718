//! Whole requests through all layers, without a socket where none is needed.

use std::sync::Mutex;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, Request};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use utoipa_axum::routes;

use super::*;
use crate::config::{LogConfig, LogFormat, Sources};
use crate::http::{Client, JsonBody, RawBody};
use crate::telemetry::{Traceparent, log_layer};

const TOKEN: &str = "a-token-of-many-letters";

fn config(pairs: &[(&str, &str)]) -> Config {
    let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Config::from_sources(&Sources { file: None, environment: pairs.collect() }).unwrap()
}

/// Takes an order.
#[utoipa::path(post, path = "/do/order", responses((status = 201, description = "accepted")))]
async fn order(
    Extension(client): Extension<Client>,
    Extension(traceparent): Extension<Traceparent>,
    JsonBody(body): JsonBody,
) -> (StatusCode, String) {
    let seen = json!({"client": client.0, "body": body, "traceparent": traceparent.0});
    (StatusCode::CREATED, seen.to_string())
}

#[utoipa::path(get, path = "/do/order/{key}", responses((status = 200, description = "found")))]
async fn order_by_key(Path(_key): Path<String>) -> Problem {
    Problem::new(Code::OrderNotFound)
}

#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "alive")))]
async fn health() -> &'static str {
    "ok"
}

async fn panics() -> &'static str {
    panic!("for the test")
}

async fn never() -> &'static str {
    std::future::pending().await
}

async fn wants_number(Query(_): Query<std::collections::BTreeMap<String, u8>>) {}

fn shell(pairs: &[(&str, &str)]) -> (Front, OpenApi) {
    let protected = OpenApiRouter::new()
        .routes(routes!(order))
        .routes(routes!(order_by_key))
        .route("/raw", axum::routing::post(async |RawBody(_): RawBody| "read"))
        .route("/panics", axum::routing::get(panics))
        .route("/never", axum::routing::get(never))
        .route("/number", axum::routing::get(wants_number));
    Shell::new(&config(pairs), RequestIds::from_seed(1))
        .protected(protected)
        .open(OpenApiRouter::new().routes(routes!(health)))
        .build()
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
    /// The code of a complete problem document.
    fn code(&self) -> String {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        let document = self.json();
        assert_eq!(document["status"], self.status);
        assert_eq!(document["request_id"], self.headers["x-request-id"].to_str().unwrap());
        let code = document["code"].as_str().unwrap().to_owned();
        assert_eq!(document["type"], format!("/docs/errors#{code}"));
        code
    }
}

async fn ask(router: &Front, request: Request) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

fn get(path: &str) -> Request {
    request(Method::GET, path, &[], "")
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn everything_that_is_wrong_is_a_problem_with_its_code() {
    let (router, _) =
        shell(&[("TASHIKA_BODY_LIMIT_BYTES", "1024"), ("TASHIKA_REQUEST_TIMEOUT_MS", "50")]);
    let post =
        |headers: &[(&str, &str)], body: &str| request(Method::POST, "/do/order", headers, body);
    let cross_site = [JSON, ("sec-fetch-site", "cross-site")];
    let long = "x".repeat(2000);
    let many: Vec<(&str, &str)> = vec![("x-many", "x"); 65];
    for (request, status, code) in [
        (get("/nowhere"), 404, "NOT_FOUND"),
        (get("/do/order/unknown-key"), 404, "ORDER_NOT_FOUND"),
        (request(Method::DELETE, "/do/order", &[], ""), 405, "METHOD_NOT_ALLOWED"),
        (post(&[], "{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (post(&[("content-type", "text/plain")], "{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (post(&[JSON, ("content-encoding", "br")], "{}"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (post(&[JSON], "{"), 400, "INVALID_JSON"),
        (post(&[JSON], &long), 413, "PAYLOAD_TOO_LARGE"),
        (post(&cross_site, "{}"), 403, "CROSS_SITE_REQUEST"),
        (post(&[JSON, ("origin", "https://evil.example")], "{}"), 403, "CROSS_SITE_REQUEST"),
        (request(Method::POST, "/raw", &[], &long), 413, "PAYLOAD_TOO_LARGE"),
        (get("/number?n=x"), 400, "BAD_REQUEST"),
        (request(Method::GET, "/healthz", &many, ""), 431, "HEADERS_TOO_LARGE"),
        (get("/panics"), 500, "INTERNAL_ERROR"),
        (get("/never"), 503, "PROCESSING_TIMEOUT"),
    ] {
        let about = format!("{} {}", request.method(), request.uri());
        let answer = ask(&router, request).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{about}");
        assert!(!answer.body.contains("for the test") && !answer.body.contains("xxx"));
    }
    let wrong = ask(&router, request(Method::DELETE, "/do/order", &[], "")).await;
    assert_eq!(wrong.headers[ALLOW], "POST");
}

#[tokio::test]
async fn a_body_that_never_comes_is_answered_408() {
    let (router, _) =
        shell(&[("TASHIKA_BODY_TIMEOUT_MS", "60000"), ("TASHIKA_REQUEST_TIMEOUT_MS", "200")]);
    let mut waiting = request(Method::POST, "/do/order", &[JSON], "");
    *waiting.body_mut() = Body::new(Pending);
    let answer = ask(&router, waiting).await;
    assert_eq!((answer.status, answer.code().as_str()), (408, "REQUEST_TIMEOUT"));
}

/// A body of which nothing ever arrives.
struct Pending;

impl hyper::body::Body for Pending {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn problems_speak_the_callers_language_and_carry_its_id() {
    let (router, _) = shell(&[]);
    let headers = [("accept-language", "ja-JP, en;q=0.5"), ("x-request-id", "mine-7")];
    let answer = ask(&router, request(Method::GET, "/do/order/k", &headers, "")).await;
    assert_eq!(answer.code(), "ORDER_NOT_FOUND");
    assert_eq!(answer.json()["title"], "注文が見つかりません");
    assert_eq!(answer.headers["x-request-id"], "mine-7");
    assert_eq!(answer.headers["content-language"], "ja");
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn tokens_guard_the_api_and_nothing_else() {
    let (router, _) = shell(&[("TASHIKA_API_TOKENS", TOKEN)]);
    let bearer = format!("Bearer {TOKEN}");
    let post = |headers: &[(&str, &str)]| request(Method::POST, "/do/order", headers, "{}");
    let refused = ask(&router, post(&[JSON])).await;
    assert_eq!((refused.status, refused.code().as_str()), (401, "UNAUTHORIZED"));
    assert!(refused.headers.contains_key("www-authenticate"));
    let wrong = ask(&router, post(&[JSON, (AUTHORIZATION.as_str(), "Bearer nope")])).await;
    assert_eq!(wrong.status, 401);
    assert!(!wrong.body.contains("nope"));
    let accepted = ask(&router, post(&[JSON, (AUTHORIZATION.as_str(), &bearer)])).await;
    assert_eq!(accepted.status, 201);
    let client = accepted.json()["client"].as_str().unwrap().to_owned();
    assert!(client.starts_with("c-") && !accepted.body.contains(TOKEN));
    for open in ["/healthz", "/", "/docs", "/docs/errors", "/openapi.json"] {
        assert_eq!(ask(&router, get(open)).await.status, 200, "{open}");
    }
    assert_eq!(ask(&router, get("/nowhere")).await.status, 404);
    let document = ask(&router, get("/openapi.json")).await.json();
    let secured = &document["paths"]["/do/order"]["post"];
    assert_eq!(secured["security"][0], json!({"token": []}));
    assert!(secured["responses"]["401"].is_object());
    assert!(document["paths"]["/healthz"]["get"]["security"].is_null());
}

#[tokio::test]
async fn without_tokens_clients_are_anonymous_and_names_must_be_local() {
    let (router, _) = shell(&[]);
    let post = |host: &str| request(Method::POST, "/do/order", &[JSON, ("host", host)], "{}");
    let answer = ask(&router, post("localhost:8080")).await;
    assert_eq!(answer.json()["client"], "anonymous");
    let rebound = ask(&router, post("evil.example")).await;
    assert_eq!((rebound.status, rebound.code().as_str()), (421, "MISDIRECTED_REQUEST"));
}

#[tokio::test]
async fn the_callers_trace_is_handed_through() {
    let (router, _) = shell(&[]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let post =
        |trace: &str| request(Method::POST, "/do/order", &[JSON, ("traceparent", trace)], "{}");
    let answer = ask(&router, post(trace)).await;
    assert_eq!(answer.json()["traceparent"], trace);
    assert_eq!(answer.headers["traceparent"], trace);
    let answer = ask(&router, post("garbage")).await;
    assert!(answer.json()["traceparent"].is_null());
    assert!(!answer.headers.contains_key("traceparent"));
}

#[tokio::test]
async fn the_description_has_every_operation_and_its_problems() {
    let (router, _) = shell(&[]);
    let document = ask(&router, get("/openapi.json")).await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert_eq!(document["info"]["title"], "Tashika");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let responses = &document["paths"]["/do/order/{key}"]["get"]["responses"];
    // Every status is listed: one that is not is a mistake.
    assert!(responses["default"].is_null() && responses["500"].is_object());
    let problem = &responses["400"];
    let schema = &problem["content"]["application/problem+json"]["schema"]["$ref"];
    assert_eq!(schema, "#/components/schemas/Problem");
    let properties = &document["components"]["schemas"]["Problem"]["properties"];
    for name in ["type", "title", "status", "detail", "code", "request_id", "errors"] {
        assert!(properties[name].is_object(), "{name}");
    }
}

#[test]
fn a_route_that_is_not_described_is_noticed() {
    let (router, api) = shell(&[]);
    let document = serde_json::to_value(&api).unwrap();
    let missing = exact::undocumented(&router.router, &document);
    assert_eq!(missing, ["/never", "/number", "/panics", "/raw"]);
}

#[tokio::test]
async fn the_pages_need_nothing_from_elsewhere() {
    let (router, _) = shell(&[]);
    for path in ["/", "/docs", "/docs/errors"] {
        let answer = ask(&router, get(path)).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
        assert!(!answer.body.contains("https://"), "{path}");
        assert!(!answer.body.contains("style="), "{path}");
        assert!(answer.body.contains("<html lang=\"en\">"), "{path}");
        assert!(!answer.body.contains("{{"), "{path}");
    }
    let japanese = request(Method::GET, "/", &[("accept-language", "ja")], "");
    let page = ask(&router, japanese).await.body;
    assert!(page.contains("<html lang=\"ja\">") && page.contains("curl -i"));
    let errors = ask(&router, get("/docs/errors")).await.body;
    for entry in problem::codes::ENTRIES {
        let anchor = format!("id=\"{}\"", entry.name);
        assert!(errors.contains(&anchor), "{anchor}");
    }
    for (path, kind) in [("/docs/app.js", "text/javascript"), ("/docs/style.css", "text/css")] {
        let answer = ask(&router, get(path)).await;
        assert!(answer.headers[CONTENT_TYPE].to_str().unwrap().starts_with(kind));
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_is_one_log_line_without_anything_private() {
    // Made before anybody listens: its routes for tests are in no description, which it says.
    let (router, _) = shell(&[("TASHIKA_API_TOKENS", TOKEN)]);
    let lines = Lines::default();
    let writer = lines.clone();
    let logs = LogConfig { filter: "info".into(), format: LogFormat::Json };
    let layer = log_layer(&logs, move || writer.clone(), true).unwrap();
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let bearer = format!("Bearer {TOKEN}");
    let headers = [JSON, ("authorization", bearer.as_str()), ("x-request-id", "r-1")];
    let body = r#"{"s3cret":"in the body"}"#;
    let asked = request(Method::POST, "/do/order?q=s3cret", &headers, body);
    assert_eq!(ask(&router, asked).await.status, 201);
    let by_key = request(Method::GET, "/do/order/s3cret-key", &headers, "");
    ask(&router, by_key).await;
    ask(&router, get("/healthz")).await;
    ask(&router, request(Method::GET, "/s3cret", &headers, "")).await;
    let never = request(Method::GET, "/never", &headers, "");
    let gone = tokio::time::timeout(Duration::from_secs(1), ask(&router, never));
    assert!(gone.await.is_err(), "the client does not wait");

    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("s3cret") && !text.contains(TOKEN), "{text}");
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let seen: Vec<Value> = lines
        .iter()
        .map(|line| json!([line["method"], line["path"], line["status"], line["request_id"]]))
        .collect();
    assert_eq!(
        seen,
        [
            json!(["POST", "/do/order", 201, "r-1"]),
            json!(["GET", "/do/order/{key}", 404, "r-1"]),
            json!(["GET", "(none)", 404, "r-1"]),
            json!(["GET", "/never", 499, "r-1"]),
        ],
        "{text}"
    );
    assert!(lines.iter().all(|line| line["latency_ms"].is_number()));
}
