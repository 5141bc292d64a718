//! The console's files, compiled in: one page and the modules, styles and words that it loads.
//!
//! Everything but the page is served under a name that changes with the content, and may therefore be
//! kept for ever. The page itself is the same for everybody and holds no data.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};
use utoipa_axum::router::OpenApiRouter;

use super::guarded;
use crate::http::language::Language;
use crate::http::problem::{Code, Problem};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: &str = include_str!("../../../console/index.html");

/// A file: its name, its type, its content.
struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($kind:ident $name:literal),* $(,)?) => {
        &[$(File { name: $name, kind: $kind, text: include_str!(concat!("../../../console/", $name)) }),*]
    };
}

const FILES: &[File] = files![
    STYLE "style.css",
    SCRIPT "theme.js",
    SCRIPT "app.js",
    SCRIPT "api.js",
    SCRIPT "dom.js",
    SCRIPT "ui.js",
    SCRIPT "list.js",
    SCRIPT "charts.js",
    SCRIPT "timeline.js",
    SCRIPT "i18n.js",
    SCRIPT "pages/alerts.js",
    SCRIPT "pages/audit.js",
    SCRIPT "pages/billing.js",
    SCRIPT "pages/cases.js",
    SCRIPT "pages/deadletters.js",
    SCRIPT "pages/login.js",
    SCRIPT "pages/mail.js",
    SCRIPT "pages/orders.js",
    SCRIPT "pages/overview.js",
    SCRIPT "pages/payments.js",
    SCRIPT "pages/queue.js",
    SCRIPT "pages/reservations.js",
    SCRIPT "pages/search.js",
    SCRIPT "pages/settings.js",
    SCRIPT "pages/webhooks.js",
];

/// Every text that people read, one file per language, with the same keys.
const WORDS: [(&str, &str); 2] = [
    ("words/en.js", include_str!("../../../console/words/en.json")),
    ("words/ja.js", include_str!("../../../console/words/ja.json")),
];

/// What is served.
struct Served {
    /// Changes with any of the files.
    version: String,
    files: Vec<(&'static str, &'static str, Bytes)>,
}

impl Served {
    fn new() -> Self {
        let mut files: Vec<(&'static str, &'static str, Bytes)> =
            FILES.iter().map(|file| (file.name, file.kind, file.text.as_bytes().into())).collect();
        for (name, words) in WORDS {
            // Words are kept as JSON, for those who translate and for the test that compares them.
            files.push((name, SCRIPT, format!("export default {words}").into_bytes().into()));
        }
        let mut hash = Sha256::new();
        hash.update(PAGE.as_bytes());
        for (name, _, text) in &files {
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(name.as_bytes());
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let number = digest[..8].iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        Self { version: format!("{number:016x}"), files }
    }
}

pub(super) fn routes() -> OpenApiRouter {
    OpenApiRouter::new()
        .route("/console", get(page))
        .route("/console/", get(page))
        .route("/console/{*path}", get(page))
        .route("/console/assets/{version}/{*name}", get(file))
        .with_state(Arc::new(Served::new()))
}

/// Every path of the console is the same page; its script looks at the address. A path that is meant
/// for programs is not.
async fn page(
    State(served): State<Arc<Served>>,
    path: Option<Path<String>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if path.is_some_and(|Path(path)| path.starts_with("api/") || path.starts_with("assets/")) {
        return Err(Problem::new(Code::NotFound));
    }
    let language = Language::of(&headers);
    let tag = format!("\"{}-{}\"", served.version, language.tag());
    let mut response = if known(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let html = PAGE
            .replace("{{lang}}", language.tag())
            .replace("{{base}}", &format!("/console/assets/{}", served.version))
            .replace("{{noscript}}", language.pick(
                "The console needs JavaScript. Everything it does can be done with the API and the command line as well.",
                "コンソールには JavaScript が必要です。同じ操作は API とコマンドラインでも行えます。",
            ));
        ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
    };
    let set = response.headers_mut();
    set.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set.insert(VARY, HeaderValue::from_static("accept-language"));
    set.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.tag()));
    set.extend(guarded());
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        set.insert(ETAG, tag);
    }
    Ok(response)
}

fn known(headers: &HeaderMap, tag: &str) -> bool {
    let sent = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    sent.is_some_and(|sent| sent.split(',').any(|one| one.trim().trim_start_matches("W/") == tag))
}

async fn file(
    State(served): State<Arc<Served>>,
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let found = served.files.iter().find(|(known, _, _)| *known == name);
    let (_, kind, text) = found.ok_or(Problem::new(Code::NotFound))?;
    // During an update a page may ask a newer process: it gets what there is, and keeps nothing.
    let kept =
        if version == served.version { "public, max-age=31536000, immutable" } else { "no-store" };
    let tag = format!("\"{}\"", served.version);
    let mut response = if known(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, *kind)], text.clone()).into_response()
    };
    let set = response.headers_mut();
    set.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    set.extend(guarded());
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        set.insert(ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
mod tests;
