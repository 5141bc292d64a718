//! The API's description and the pages for people. Nothing here depends on the database.

use serde_json::Value;
use tashika_testkit::database::TestDb;

use crate::support::{Answer, Request, Setup};

#[tokio::test]
async fn the_description_lists_every_route_sqlite() {
    let server = Setup::of(&TestDb::sqlite()).start().await;
    let answer = server.get("/openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let api = answer.json();
    assert!(api["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{api}");
    for (path, method) in [
        ("/do/order", "post"),
        ("/do/order/{key}", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    ] {
        let operation = &api["paths"][path][method];
        assert!(operation["responses"].is_object(), "{method} {path}");
    }
    let responses = &api["paths"]["/do/order"]["post"]["responses"];
    for status in ["200", "201", "400", "409", "422", "429", "500", "503", "504"] {
        assert!(responses[status].is_object(), "{status}");
    }
    references_lead_somewhere(&api, &api);
    server.stop().await;
}

fn references_lead_somewhere(api: &Value, part: &Value) {
    if let Some(target) = part.get("$ref").and_then(Value::as_str) {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(api.pointer(pointer).is_some(), "{target}");
    }
    let inner: Vec<&Value> = match part {
        Value::Object(map) => map.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    for part in inner {
        references_lead_somewhere(api, part);
    }
}

/// The values of `src` and `href`.
fn loaded(page: &str) -> Vec<&str> {
    let attribute = |name| page.split(name).skip(1).filter_map(|rest| rest.split('"').next());
    attribute("src=\"").chain(attribute("href=\"")).collect()
}

#[tokio::test]
async fn the_pages_load_nothing_from_elsewhere_sqlite() {
    let server = Setup::of(&TestDb::sqlite()).start().await;
    for (path, language) in
        [("/", "en"), ("/", "ja"), ("/docs", "en"), ("/docs", "ja"), ("/docs/errors", "en")]
    {
        let page: Answer = server.ask(Request::get(path).header("accept-language", language)).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
        assert!(page.body.contains(&format!("lang=\"{language}\"")), "{path} {language}");
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'none'") && !policy.contains("http"), "{policy}");
        let parts = loaded(&page.body);
        assert!(!parts.is_empty(), "{path}");
        for part in parts.into_iter().filter(|part| !part.starts_with('#')) {
            assert!(part.starts_with('/') && !part.starts_with("//"), "{path} loads {part}");
            let target = part.split('#').next().unwrap();
            assert_eq!(server.get(target).await.status, 200, "{path} loads {part}");
        }
    }
    for part in ["/docs/app.js", "/docs/style.css"] {
        let answer = server.get(part).await;
        for far in ["http://", "https://", "@import", " url("] {
            assert!(!answer.body.contains(far), "{part} has {far}");
        }
    }
    server.stop().await;
}
