//! Everything around messages: tokens, errors, queues, topics, schedules, flow control, keys.

use std::sync::Mutex;

use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::config::{LogConfig, LogFormat};
use crate::telemetry::log_layer;

const TOKEN: &str = "a-token-of-many-letters";

#[tokio::test]
async fn tokens_come_in_the_header_or_in_the_query() {
    let world = World::with(&[("TASHIKA_API_TOKENS", TOKEN)]).await;
    let bearer = format!("Bearer {TOKEN}");
    for (path, authorization, status) in [
        ("/v2/keys".to_owned(), None, 401),
        ("/v2/keys".to_owned(), Some("Bearer wrong"), 401),
        ("/v2/keys?qstash_token=wrong".to_owned(), None, 401),
        ("/v2/keys".to_owned(), Some(bearer.as_str()), 200),
        (format!("/v2/keys?qstash_token={TOKEN}"), None, 200),
        (format!("/v2/keys?qstash%5Ftoken={TOKEN}"), Some("Bearer of-a-webhook"), 200),
    ] {
        let headers: Vec<_> =
            authorization.map(|value| ("authorization", value)).into_iter().collect();
        let answer = world.ask(Method::GET, &path, &headers, "").await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store");
        if status == 401 {
            assert_eq!(answer.error(), "unable to authenticate: invalid token");
        }
    }
    // Whoever mistypes a path need not have a token to be told.
    assert_eq!(world.get("/v2/").await.status, 404);
    let path = format!("/v2/publish/https://a.example/?qstash_token={TOKEN}");
    let id = world.post(&path, &[], "").await.json()["messageId"].as_str().unwrap().to_owned();
    let message = world.get(&format!("/v2/messages/{id}?qstash_token={TOKEN}")).await;
    assert!(!message.text.contains(TOKEN), "{}", message.text);
}

#[tokio::test]
async fn who_asks_for_the_head_gets_no_body() {
    let world = World::new().await;
    for path in ["/v2/keys", "/v2/unknown"] {
        let whole = world.ask(Method::PUT, path, &[], "").await;
        let head = world.ask(Method::HEAD, path, &[], "").await;
        assert_eq!((head.status, head.text.as_str()), (whole.status, ""), "{path}");
        assert_eq!(head.headers["content-length"], whole.text.len().to_string(), "{path}");
    }
}

#[tokio::test]
async fn too_many_headers_are_refused_as_everywhere() {
    let world = World::with(&[("TASHIKA_MAX_HEADERS", "8")]).await;
    let headers = [("x", "1"); 9];
    assert_eq!(world.ask(Method::GET, "/v2/keys", &headers[..8], "").await.status, 200);
    let answer = world.ask(Method::GET, "/v2/keys", &headers, "").await;
    assert_eq!((answer.status, answer.error().is_empty()), (431, false));
}

#[test]
fn the_log_names_few_paths_however_many_are_asked_for() {
    for (path, expected) in [
        ("/v2/batch", "/v2/batch"),
        ("/v2/publish/https://a.example/s3cret", "/v2/publish/{*rest}"),
        ("/v2/dlq/1-2", "/v2/dlq/{*rest}"),
        ("/v2/publish/", "/v2/{*rest}"),
        ("/v2/publishing/x", "/v2/{*rest}"),
        ("/v2/llm", "/v2/{*rest}"),
        ("/v2//", "/v2/{*rest}"),
    ] {
        assert_eq!(shape(path), expected, "{path}");
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

#[tokio::test]
async fn the_log_knows_neither_tokens_nor_destinations() {
    let world = World::with(&[("TASHIKA_API_TOKENS", TOKEN)]).await;
    let lines = Lines::default();
    let writer = lines.clone();
    let logs = LogConfig { filter: "debug".into(), format: LogFormat::Json };
    let layer = log_layer(&logs, move || writer.clone(), true).unwrap();
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    for token in [TOKEN, "s3cret"] {
        let path = format!("/v2/publish/https://a.example/s3cret?qstash_token={token}&x=s3cret");
        world.post(&path, &[("upstash-forward-x", "s3cret")], "s3cret").await;
    }
    world.get(&format!("/v2/nowhere/s3cret?qstash_token={TOKEN}")).await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("/v2/publish/{*rest}"), "{text}");
    assert!(!text.contains("s3cret") && !text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn everything_that_is_wrong_is_one_sentence() {
    let world = World::with(&[("TASHIKA_BODY_LIMIT_BYTES", "1024")]).await;
    let long = "x".repeat(2000);
    for (method, path, body, status) in [
        (Method::GET, "/v2", "", 404),
        (Method::GET, "/v2/", "", 404),
        (Method::GET, "/v2/nothing", "", 404),
        (Method::GET, "/v2/keys/nothing", "", 404),
        (Method::POST, "/v2/chat/completions", "{}", 404),
        (Method::DELETE, "/v2/workflows/runs/x?cancel=true", "", 404),
        (Method::PUT, "/v2/keys", "", 405),
        (Method::GET, "/v2/publish/https://a.example", "", 405),
        (Method::GET, "/v2/messages", "", 405),
        (Method::POST, "/v2/publish/https://a.example", &long, 413),
        (Method::GET, "/v2/messages/msg_x", "", 404),
        (Method::DELETE, "/v2/messages/", "", 404),
        (Method::DELETE, "/v2/dlq/", "", 404),
        (Method::GET, "/v2/queues/none", "", 404),
        (Method::POST, "/v2/queues", "{", 400),
        (Method::POST, "/v2/queues", r#"{"queueName":"a b"}"#, 400),
        (Method::POST, "/v2/queues", r#"{"queueName":"a","parallelism":0}"#, 400),
        (Method::GET, "/v2/topics/none", "", 404),
        (Method::POST, "/v2/topics/g/endpoints", r#"{"endpoints":[]}"#, 400),
        (Method::GET, "/v2/flowControl/none", "", 404),
        (Method::POST, "/v2/flowControl/none/pause", "", 404),
        (Method::GET, "/v2/schedules/none", "", 404),
        (Method::GET, "/v2/events?labeel=x", "", 400),
        (Method::GET, "/v2/events?state=DONE", "", 400),
        (Method::GET, "/v2/dlq?count=0", "", 400),
    ] {
        let answer = world.ask(method.clone(), path, &[("accept-language", "ja")], body).await;
        assert_eq!(answer.status, status, "{method} {path} {}", answer.text);
        // In English, whatever language the caller prefers.
        assert!(answer.error().chars().all(|c| c < '\u{3000}'), "{}", answer.text);
        assert_eq!(answer.headers.contains_key("allow"), status == 405);
    }
    let cross_site = [("sec-fetch-site", "cross-site")];
    assert_eq!(world.post("/v2/keys/rotate", &cross_site, "").await.status, 403);
}

#[tokio::test]
async fn a_store_that_fails_is_503_and_says_when_to_come_back() {
    let world = World::new().await;
    world.database.sql("alter table messages rename to elsewhere").await;
    let answer = world.post("/v2/publish/https://a.example", &[], "").await;
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(answer.headers["retry-after"], "1");
    answer.error();
}

#[tokio::test]
async fn queues_are_made_paused_and_removed() {
    let world = World::new().await;
    let set = world.post("/v2/queues", &[], r#"{"queueName":"q","parallelism":3,"paused":null}"#);
    assert_eq!(set.await.status, 200);
    world.post("/v2/enqueue/q/https://a.example", &[], "").await;
    assert_eq!(world.post("/v2/queues/q/pause", &[], "").await.status, 200);
    let mut queue = world.get("/v2/queues/q").await.json();
    assert_eq!(world.get("/v2/queues").await.json(), json!([queue]));
    assert!(queue["createdAt"].take().is_i64() && queue["updatedAt"].take().is_i64());
    let expected = json!({"name": "q", "parallelism": 3, "lag": 1, "paused": true, "createdAt": null, "updatedAt": null});
    assert_eq!(queue, expected);
    assert_eq!(world.post("/v2/queues/q/resume", &[], "").await.status, 200);
    assert_eq!(world.get("/v2/queues/q").await.json()["paused"], false);
    assert_eq!(world.delete("/v2/queues/q", "").await.status, 200);
    assert_eq!(world.get("/v2/queues/q").await.status, 404);
}

#[tokio::test]
async fn topics_have_endpoints_and_headers() {
    let world = World::new().await;
    let endpoints =
        r#"{"endpoints":[{"url":"https://a.example","name":"a"},{"url":"https://b.example"}]}"#;
    world.post("/v2/topics/g/endpoints", &[], endpoints).await;
    let headers = r#"{"headers":{"x-team":"red","Upstash-Forward-X-More":["1","2"]}}"#;
    let patched = world.ask(Method::PATCH, "/v2/topics/g", &[], headers).await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    let group = world.get("/v2/topics/g").await.json();
    assert_eq!(group["headers"], json!({"X-Team": ["red"], "X-More": ["1", "2"]}));
    assert_eq!(
        group["endpoints"],
        json!([{"url": "https://a.example", "name": "a"}, {"url": "https://b.example"}])
    );
    let setting = r#"{"headers":{"Upstash-Retries":"3"}}"#;
    assert_eq!(world.ask(Method::PATCH, "/v2/topics/g", &[], setting).await.status, 400);
    for gone in
        [r#"{"endpoints":[{"name":"a"}]}"#, r#"{"endpoints":[{"url":"https://b.example"}]}"#]
    {
        assert_eq!(world.delete("/v2/topics/g/endpoints", gone).await.status, 200);
    }
    assert_eq!(world.get("/v2/topics/g").await.status, 404, "nothing is left of it");
}

#[tokio::test]
async fn schedules_are_made_paused_and_overwritten() {
    let world = World::new().await;
    let headers = [("upstash-cron", "CRON_TZ=Asia/Tokyo 0 9 * * *"), ("upstash-schedule-id", "s")];
    let made = world.post("/v2/schedules/https://a.example/pause", &headers, "").await;
    assert_eq!((made.status, made.json()), (200, json!({"scheduleId": "s"})));
    let schedule = world.get("/v2/schedules/s").await.json();
    assert_eq!(schedule["cron"], "CRON_TZ=Asia/Tokyo 0 9 * * *");
    assert_eq!((&schedule["isPaused"], &schedule["retries"]), (&json!(false), &json!(3)));
    assert!(schedule.get("body").is_none() && schedule["nextScheduleTime"].is_i64());
    for (method, action, paused) in [
        (Method::PATCH, "pause", true),
        (Method::POST, "resume", false),
        (Method::POST, "pause", true),
    ] {
        let path = format!("/v2/schedules/s/{action}");
        assert_eq!(world.ask(method, &path, &[], "").await.status, 200);
        assert_eq!(world.get("/v2/schedules/s").await.json()["isPaused"], paused);
    }
    assert_eq!(world.get("/v2/schedules").await.json().as_array().map(Vec::len), Some(1));
    assert_eq!(world.delete("/v2/schedules/s", "").await.status, 200);
    assert_eq!(world.get("/v2/schedules").await.json(), json!([]));
}

#[tokio::test]
async fn flow_controls_are_found_by_keys_of_all_kinds() {
    let world = World::new().await;
    for (key, path) in
        [("plain", "plain"), ("a/b", "a/b"), ("a b+c", "a%20b+c"), ("a&b=c", "a&b=c")]
    {
        let headers = [
            ("upstash-flow-control-key", key),
            ("upstash-flow-control-value", "rate=5, period=1m"),
        ];
        world.publish("https://a.example", &headers).await;
        let base = format!("/v2/flowControl/{path}");
        let flow = world.get(&base).await.json();
        assert_eq!(flow["flowControlKey"], key);
        assert_eq!((&flow["rateMax"], &flow["ratePeriod"]), (&json!(5), &json!(60)));
        assert!(flow.get("parallelismMax").is_none());
        let act =
            async |action: &str| world.post(&format!("{base}/{action}"), &[], "").await.status;
        assert_eq!(act("pin?parallelism=2&rate=9&period=30").await, 200);
        assert_eq!(act("pause").await, 200);
        let flow = world.get(&base).await.json();
        assert_eq!((&flow["parallelismMax"], &flow["rateMax"]), (&json!(2), &json!(9)));
        assert_eq!((&flow["ratePeriod"], &flow["isPaused"]), (&json!(30), &json!(true)));
        assert_eq!(
            (&flow["isPinnedParallelism"], &flow["isPinnedRate"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(act("unpin?parallelism=true&rate=True").await, 200);
        assert_eq!(act("resume").await, 200);
        assert_eq!((act("resetRate").await, act("reset").await), (200, 200));
        assert_eq!(
            (act("pin").await, act("pin?rat=1").await, act("pin?rate=0").await),
            (400, 400, 400)
        );
        assert_eq!(act("explode").await, 404);
    }
    assert_eq!(
        world.get("/v2/flowControl?search=a").await.json().as_array().map(Vec::len),
        Some(4)
    );
    let all = world.get("/v2/globalParallelism").await.json();
    assert_eq!(all, json!({"parallelismMax": 7, "parallelismCount": 0}));
}

#[tokio::test]
async fn keys_are_rotated_unless_the_operator_has_set_them() {
    let world = World::new().await;
    let before = world.get("/v2/keys").await.json();
    let after = world.post("/v2/keys/rotate", &[], "").await.json();
    assert_eq!(after["current"], before["next"]);
    assert_eq!(world.get("/v2/keys").await.json(), after);
    let keys = [("QSTASH_CURRENT_SIGNING_KEY", "sig_1"), ("QSTASH_NEXT_SIGNING_KEY", "sig_2")];
    let world = World::with(&keys).await;
    assert_eq!(world.get("/v2/keys").await.json(), json!({"current": "sig_1", "next": "sig_2"}));
    let refused = world.post("/v2/keys/rotate", &[], "").await;
    assert_eq!(refused.status, 412);
    assert!(refused.error().contains("configuration"));
}
