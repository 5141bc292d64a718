//! What no client should send: answered with a problem, and nothing is kept of it.

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{KEY, Request, Server, Setup, order, rows};

on_both!(bad_input_is_explained_and_nothing_is_stored);

const INVALID_JSON: (u16, &str) = (400, "INVALID_JSON");
const VALIDATION: (u16, &str) = (422, "VALIDATION_ERROR");

/// A valid body in which one part is something else.
fn with(valid: &str, bad: &str) -> Vec<u8> {
    let text = order(KEY).to_string();
    assert!(text.contains(valid), "{text}");
    text.replace(valid, bad).into_bytes()
}

/// A valid body with one more field.
fn plus(field: &str) -> Vec<u8> {
    with("\"side\"", &format!("{field},\"side\""))
}

fn bodies() -> Vec<(&'static str, Vec<u8>, (u16, &'static str))> {
    let mut not_text = order(KEY).to_string().into_bytes();
    let at = not_text.windows(3).position(|bytes| bytes == b"BUY").unwrap();
    not_text[at] = 0xff;
    vec![
        ("nothing", Vec::new(), INVALID_JSON),
        ("no JSON", b"instrument=USDJPY".to_vec(), INVALID_JSON),
        ("half a document", order(KEY).to_string().into_bytes()[..40].to_vec(), INVALID_JSON),
        ("two documents", with("{", "{}{"), INVALID_JSON),
        ("a trailing comma", with("}", ",}"), INVALID_JSON),
        ("a comment", with("{", "{/**/"), INVALID_JSON),
        ("invalid UTF-8", not_text, INVALID_JSON),
        ("half a character", with("BUY", "\\ud83d"), INVALID_JSON),
        ("a byte order mark", with("{", "\u{feff}{"), INVALID_JSON),
        ("not a number", with("1000", "NaN"), INVALID_JSON),
        ("infinity", with("1000", "Infinity"), INVALID_JSON),
        ("beyond all numbers", with("1000", "1e400"), INVALID_JSON),
        ("a hexadecimal number", with("1000", "0x10"), INVALID_JSON),
        ("the same key twice", plus("\"qty\":1"), INVALID_JSON),
        ("deep arrays", "[".repeat(100_000).into_bytes(), INVALID_JSON),
        ("deep objects", "{\"a\":".repeat(100_000).into_bytes(), INVALID_JSON),
        (
            "depth in a tag",
            plus(&format!("\"tags\":{}{}", "[".repeat(64), "]".repeat(64))),
            INVALID_JSON,
        ),
        ("a list", b"[]".to_vec(), VALIDATION),
        ("null", b"null".to_vec(), VALIDATION),
        ("a string", b"\"order\"".to_vec(), VALIDATION),
        ("an empty object", b"{}".to_vec(), VALIDATION),
        ("no side", with("\"side\":\"BUY\"", "\"order_id\":\"o-1\""), VALIDATION),
        ("an unknown field", plus("\"leverage\":10"), VALIDATION),
        ("an unknown constraint", plus("\"risk_constraints\":{\"max_fun\":1}"), VALIDATION),
        ("a number as a string", with("1000", "\"1000\""), VALIDATION),
        ("a quantity of null", with("1000", "null"), VALIDATION),
        ("a quantity of true", with("1000", "true"), VALIDATION),
        ("a huge number", with("1000", "1e300"), VALIDATION),
        ("a tiny number", with("1000", "1e-300"), VALIDATION),
        ("an integer of sixty digits", with("1000", &"9".repeat(60)), VALIDATION),
        ("zero", with("1000", "0"), VALIDATION),
        ("minus zero", with("1000", "-0"), VALIDATION),
        ("minus zero point zero", with("1000", "-0.0"), VALIDATION),
        ("less than nothing", with("1000", "-1000"), VALIDATION),
        ("half a step", with("1000", "0.005"), VALIDATION),
        ("a price of zero", with("150.25", "0"), VALIDATION),
        ("a huge price", with("150.25", "1e300"), VALIDATION),
        ("a tiny price", with("150.25", "5e-324"), VALIDATION),
        ("a side of seven", with("\"BUY\"", "7"), VALIDATION),
        ("an instrument in small letters", with("USDJPY", "usdjpy"), VALIDATION),
        ("an instrument with NUL", with("USDJPY", "USD\\u0000PY"), VALIDATION),
        ("an order id with NUL", plus("\"order_id\":\"o\\u0000\""), VALIDATION),
        ("a trace with NUL", plus("\"trace_id\":\"t\\u0000\""), VALIDATION),
        ("a tag with NUL", plus("\"tags\":[\"t\\u0000\"]"), VALIDATION),
        ("a field with NUL", plus("\"f\\u0000\":1"), VALIDATION),
        ("tags as a map", plus("\"tags\":{}"), VALIDATION),
        ("tags of numbers", plus("\"tags\":[1]"), VALIDATION),
        ("a time that is none", plus("\"requested_at\":\"2026-02-30T00:00:00Z\""), VALIDATION),
        ("a time without a zone", plus("\"requested_at\":\"2026-02-03T00:00:00\""), VALIDATION),
    ]
}

/// Requests that are wrong beyond their body.
fn requests() -> Vec<(&'static str, Request, (u16, &'static str))> {
    let good = || order(KEY).to_string();
    let key = |key: &str| Request::post(key, order(key).to_string());
    let typed = |kind: &str| {
        Request::post(KEY, good()).without("content-type").header("content-type", kind)
    };
    let large = plus(&format!("\"order_id\":\"{}\"", "x".repeat(2 << 20)));
    vec![
        ("a body of two mebibytes", Request::post(KEY, large), (413, "PAYLOAD_TOO_LARGE")),
        ("a form", typed("application/x-www-form-urlencoded"), (415, "UNSUPPORTED_MEDIA_TYPE")),
        ("plain text", typed("text/plain"), (415, "UNSUPPORTED_MEDIA_TYPE")),
        (
            "another alphabet",
            typed("application/json; charset=utf-16"),
            (415, "UNSUPPORTED_MEDIA_TYPE"),
        ),
        (
            "no type",
            Request::post(KEY, good()).without("content-type"),
            (415, "UNSUPPORTED_MEDIA_TYPE"),
        ),
        (
            "an unknown encoding",
            Request::post(KEY, good()).header("content-encoding", "br"),
            (415, "UNSUPPORTED_MEDIA_TYPE"),
        ),
        ("a short key", key("seven77"), VALIDATION),
        ("a long key", key(&"k".repeat(65)), VALIDATION),
        ("a very long key", key(&"k".repeat(8000)), VALIDATION),
        (
            "a key with NUL",
            Request::post(KEY, with(KEY, "key\\u00000001")),
            (422, "IDEMPOTENCY_MISMATCH"),
        ),
        (
            "a key that is no text",
            Request::post(b"key-\xff\xfe01", good()),
            (422, "IDEMPOTENCY_MISMATCH"),
        ),
        (
            "a key that is a number",
            Request::post(KEY, with("\"key-0001\"", "12345678")),
            VALIDATION,
        ),
        (
            "two keys",
            Request::post(KEY, good()).header("idempotency-key", "key-0002"),
            (400, "IDEMPOTENCY_KEY_INVALID"),
        ),
        ("the wrong method", Request::new("DELETE", "/do/order"), (405, "METHOD_NOT_ALLOWED")),
        ("an invented method", Request::new("BREW", "/do/order"), (405, "METHOD_NOT_ALLOWED")),
        (
            "posting to a key",
            Request::new("POST", "/do/order/key-0001"),
            (405, "METHOD_NOT_ALLOWED"),
        ),
        ("an unknown path", Request::get("/do/orders"), (404, "NOT_FOUND")),
        ("a path with a slash more", Request::get("/do/order/"), (404, "NOT_FOUND")),
        ("asking for NUL", Request::get("/do/order/key%00001"), (404, "ORDER_NOT_FOUND")),
        ("asking for no text", Request::get("/do/order/%ff%fe"), (400, "BAD_REQUEST")),
        (
            "asking for a very long key",
            Request::get(&format!("/do/order/{}", "k".repeat(8000))),
            (404, "ORDER_NOT_FOUND"),
        ),
    ]
}

async fn bad_input_is_explained_and_nothing_is_stored(db: TestDb) {
    let setup = Setup::of(&db);
    let server = setup.start().await;
    let bodies =
        bodies().into_iter().map(|(what, body, told)| (what, Request::post(KEY, body), told));
    for (what, request, (status, code)) in bodies.chain(requests()) {
        let answer = server.ask(request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        answer.is_problem(status, code);
        if status == 405 {
            assert!(answer.header("allow").is_some(), "{what}: {answer:?}");
        }
    }
    no_http(&server).await;
    let stats = setup.print_json(&["outbox", "stats", "--json"]).await;
    assert_eq!(stats, json!({"items": []}));
    for table in ["idempo_ledger", "outbox", "cases"] {
        assert_eq!(rows(&db.url(), &format!("select count(*) from {table}")).await, [["0"]]);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}

/// What is not even HTTP is answered by the bare status: there is no request to explain.
async fn no_http(server: &Server) {
    for (what, request, status) in [
        ("NUL in a header", Request::post(b"key-\x0001", "{}"), 400),
        ("a head of 64 KiB", Request::post("k".repeat(65_536), "{}"), 431),
        (
            "a thousand headers",
            (0..1000).fold(Request::get("/"), |r, n| r.header(&format!("x-{n}"), "1")),
            431,
        ),
    ] {
        let answer = server.ask(request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
    }
}
