//! The API's description: `/openapi.json`, a page to browse and try it, and the list of errors.
//!
//! Plugged in by the shell. Everything is compiled in and works without a network: one style sheet and
//! one script, both of this origin, so that the content security policy needs no exceptions. The
//! description is generated from the handlers; what holds for every operation is added by `exact`. It
//! has the whole API; what the console alone asks (`/console/api/…`) is no part of it, and may change
//! with every version.

pub(super) mod exact;

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
};
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::{Modify, OpenApi as _};

use super::home::{self, escape};
use super::language::Language;
use super::problem::codes::ENTRIES;
use super::problem::{Document, FieldError};

const PAGE: &str = include_str!("../../assets/docs.html");
const SCRIPT: &str = include_str!("../../assets/app.js");
const STYLE: &str = include_str!("../../assets/style.css");

/// Nothing from elsewhere, nothing inline, no embedding.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const TOKEN: &str = "token";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Tashika",
        description = "Every call to somebody else's API ends in a known state.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(Document, FieldError)),
    modifiers(&Token),
)]
struct Base;

struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme(TOKEN, scheme);
    }
}

/// The whole description: both kinds of routes, and what holds for all of them.
pub(super) fn describe(mut protected: OpenApi, open: OpenApi, needs_token: bool) -> OpenApi {
    for operation in operations(&mut protected) {
        if needs_token {
            let requirement = SecurityRequirement::new(TOKEN, Vec::<String>::new());
            operation.security = Some(vec![requirement]);
        }
    }
    let mut api = Base::openapi();
    env!("CARGO_PKG_VERSION").clone_into(&mut api.info.version);
    api.merge(protected);
    api.merge(open);
    api
}

fn operations(api: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    api.paths.paths.values_mut().flat_map(|item: &mut PathItem| {
        let all = [
            item.get.as_mut(),
            item.put.as_mut(),
            item.post.as_mut(),
            item.delete.as_mut(),
            item.patch.as_mut(),
            item.head.as_mut(),
            item.options.as_mut(),
        ];
        all.into_iter().flatten()
    })
}

/// What the pages are made of.
struct Pages {
    home: home::Home,
    /// The body of `/openapi.json`.
    description: Bytes,
}

/// `/`, `/docs`, `/docs/errors`, `/openapi.json` and what they need. None of it takes a token: it says
/// nothing that the source code does not.
pub(super) fn routes(api: &OpenApi, document: &Value, needs_token: bool) -> Router {
    let description = document.to_string();
    let pages = Pages { home: home::Home::new(api, needs_token), description: description.into() };
    Router::new()
        .route("/", get(home_page))
        .route("/docs", get(docs_page))
        .route("/docs/errors", get(errors_page))
        .route("/docs/app.js", asset("text/javascript; charset=utf-8", SCRIPT))
        .route("/docs/style.css", asset("text/css; charset=utf-8", STYLE))
        .route("/openapi.json", get(openapi))
        .with_state(Arc::new(pages))
}

async fn home_page(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    let language = Language::of(&headers);
    page(language, pages.home.render(language, &headers))
}

async fn docs_page(headers: HeaderMap) -> Response {
    let language = Language::of(&headers);
    page(language, PAGE.replace("{{lang}}", language.tag()))
}

async fn errors_page(headers: HeaderMap) -> Response {
    let language = Language::of(&headers);
    page(language, errors(language))
}

async fn openapi(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], pages.description.clone())
}

fn asset(kind: &'static str, text: &'static str) -> MethodRouter<Arc<Pages>> {
    // The files change with the binary, under the same names.
    get(async move || ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text))
}

fn page(language: Language, html: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_LANGUAGE, language.tag()),
        (VARY, "accept-language"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, html).into_response()
}

fn errors(language: Language) -> String {
    let mut sections = String::new();
    for entry in ENTRIES {
        let title = escape(language.pick(entry.title.en, entry.title.ja));
        let detail = escape(language.pick(entry.detail.en, entry.detail.ja));
        let advice = home::with_code(language.pick(entry.advice.en, entry.advice.ja));
        let (name, status) = (entry.name, entry.status.as_u16());
        // Writing to a String cannot fail.
        writeln!(
            sections,
            "<section class=\"error\" id=\"{name}\"><h2><a href=\"#{name}\">{name}</a></h2>\
             <p><strong>{status}</strong> · {title}</p><p>{detail}</p><p>{advice}</p></section>"
        )
        .unwrap_or_default();
    }
    let introduction = language.pick(
        "Every error is answered as application/problem+json. Programs look at code; this page says what each means and what to do.",
        "エラーはすべて application/problem+json で返ります。プログラムは code を見てください。各コードの意味と対処を示します。",
    );
    home::frame(
        language,
        language.pick("Errors", "エラー一覧"),
        &format!("<p>{introduction}</p>\n{sections}"),
    )
}
