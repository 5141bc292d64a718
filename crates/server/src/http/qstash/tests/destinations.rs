//! Where messages go: paths to the byte, settings in queries, batches.

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_destination_is_the_rest_of_the_path_to_the_byte() {
    let world = World::new().await;
    for (sent, kept) in [
        ("https://a.example", "https://a.example"),
        ("https://a.example/a%20b//c/../d;e", "https://a.example/a%20b//c/../d;e"),
        ("https://a.example/%2F%c3%bc?x=1&y=%26&x=2", "https://a.example/%2F%c3%bc?x=1&y=%26&x=2"),
        ("https://user:pw@a.example:8443/", "https://user:pw@a.example:8443/"),
        ("http://a.example/pause", "http://a.example/pause"),
        ("https://a.example/?", "https://a.example/?"),
        (
            "https://a.example/?u=https://b.example/v2/x",
            "https://a.example/?u=https://b.example/v2/x",
        ),
        ("https://a.example/x?upstash-retries=2", "https://a.example/x"),
        ("https://a.example/x?a=1&qstash_token=t&b=%20", "https://a.example/x?a=1&b=%20"),
        ("https://a.example/x?Upstash-Label=l&a", "https://a.example/x?a"),
    ] {
        let id = world.publish(sent, &[]).await;
        let message = world.get(&format!("/v2/messages/{id}")).await.json();
        assert_eq!(message["url"], kept);
        let enqueued = world.post(&format!("/v2/enqueue/q/{sent}"), &[], "").await.json();
        let id = enqueued["messageId"].as_str().unwrap();
        let message = world.get(&format!("/v2/messages/{id}")).await.json();
        assert_eq!((&message["url"], &message["queueName"]), (&json!(kept), &json!("q")));
        let headers = [("upstash-cron", "* * * * *"), ("upstash-schedule-id", "s")];
        assert_eq!(world.post(&format!("/v2/schedules/{sent}"), &headers, "").await.status, 200);
        assert_eq!(world.get("/v2/schedules/s").await.json()["destination"], kept);
    }
}

#[tokio::test]
async fn what_is_no_destination_is_refused() {
    let world = World::new().await;
    for (path, status, why) in [
        ("/v2/publish/", 400, "a non-empty destination must be provided"),
        ("/v2/publish", 400, "a non-empty destination must be provided"),
        ("/v2/publish/a.example/x", 400, "invalid scheme"),
        ("/v2/publish/https://", 400, "no host"),
        ("/v2/publish/nobody", 404, "topic nobody not found"),
        ("/v2/publish/api/llm", 404, "api/llm is not part of this queue"),
        ("/v2/enqueue/a%20b/https://a.example", 400, "invalid queue name"),
        ("/v2/enqueue/q", 400, "a non-empty destination must be provided"),
        ("/v2/schedules/https://a.example", 400, "Upstash-Cron is required"),
        ("/v2/publish/https://a.example?upstash-retries=x", 400, "Upstash-Retries is invalid"),
        ("/v2/publish/https://a.example?upstash-deduplication-id=a:b", 400, "cannot contain ':'"),
    ] {
        let answer = world.post(path, &[], "").await;
        assert_eq!(answer.status, status, "{path} {}", answer.text);
        assert!(answer.error().contains(why), "{path} {}", answer.text);
    }
    assert_eq!(world.open_and_dead().await, (0, 0));
    assert_eq!(world.get("/v2/queues").await.json(), json!([]));
}

#[tokio::test]
async fn headers_win_over_the_query_and_telemetry_is_nobodys_business() {
    let world = World::new().await;
    let headers = [
        ("upstash-retries", "1"),
        ("upstash-telemetry-sdk", "x"),
        ("upstash-forward-test-header", "value"),
        ("content-type", "text/plain"),
        ("user-agent", "curl"),
        ("authorization", "Bearer whatever"),
        ("upstash-label", "a,b"),
        ("upstash-flow-control-key", "k"),
        ("upstash-flow-control-value", "parallelism=2"),
        ("upstash-content-based-deduplication", "False"),
    ];
    let query = "https://a.example/?upstash-retries=7&upstash-method=put";
    let id = world.publish(query, &headers).await;
    let mut message = world.get(&format!("/v2/messages/{id}")).await.json();
    let created = message["createdAt"].take();
    assert!(created.as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!(message["notBefore"].take(), created);
    assert_eq!(
        message,
        json!({
            "messageId": id,
            "url": "https://a.example/",
            "method": "PUT",
            "maxRetries": 1,
            "createdAt": null,
            "notBefore": null,
            "header": {"Content-Type": ["text/plain"], "Test-Header": ["value"]},
            "body": "hello",
            "callerIP": "10.1.2.3",
            "label": "a",
            "labels": ["a", "b"],
            "flowControlKey": "k",
            "parallelism": 2,
            "period": 1,
        })
    );
}

#[tokio::test]
async fn a_duplicate_is_202_with_the_first_ones_id() {
    let world = World::new().await;
    let headers = [("upstash-deduplication-id", "d")];
    let id = world.publish("https://a.example", &headers).await;
    let again = world.post("/v2/publish/https://a.example", &headers, "hello").await;
    assert_eq!(again.status, 202);
    assert_eq!(again.json(), json!({"messageId": id, "deduplicated": true}));
    assert_eq!(world.open_and_dead().await.0, 1);
}

#[tokio::test]
async fn a_group_is_answered_with_an_array() {
    let world = World::new().await;
    let endpoints = r#"{"endpoints":[{"url":"https://a.example/1","name":"one"},{"url":"https://a.example/2","name":""}]}"#;
    assert_eq!(world.delete("/v2/topics/g", "").await.status, 200, "although it is not there");
    assert_eq!(world.post("/v2/topics/g/endpoints", &[], endpoints).await.status, 200);
    let sent = world.post("/v2/publish/g?x=1", &[], "hello").await.json();
    let urls: Vec<&Value> = sent.as_array().unwrap().iter().map(|one| &one["url"]).collect();
    assert_eq!(urls, ["https://a.example/1", "https://a.example/2"]);
    let first = sent[0]["messageId"].as_str().unwrap();
    let message = world.get(&format!("/v2/messages/{first}")).await.json();
    assert_eq!((&message["topicName"], &message["endpointName"]), (&json!("g"), &json!("one")));
    let batch = json!([
        {"destination": "g", "headers": {}, "body": null, "queue": null},
        {"destination": "https://b.example", "headers": {"upstash-method": "GET"}},
    ]);
    let sent = world.post("/v2/batch", &[], &batch.to_string()).await.json();
    assert_eq!(sent[0].as_array().map(Vec::len), Some(2));
    assert!(sent[1]["messageId"].is_string(), "{sent}");
}

#[tokio::test]
async fn a_batch_is_taken_whole_or_not_at_all() {
    let world = World::with(&[("TASHIKA_SSRF_GUARD", "on")]).await;
    let good = json!({"destination": "https://a.example", "body": "x"});
    for (bad, why) in [
        (json!({"destination": "nobody"}), "topic nobody not found"),
        (json!({"destination": "http://127.0.0.1/"}), "loopback"),
        (
            json!({"destination": "https://a.example", "headers": {"Upstash-Delay": "x"}}),
            "Upstash-Delay",
        ),
        (json!({"destination": "https://a.example", "body": {}}), "body is not a string"),
        (json!({"destination": "https://a.example", "queue": "a b"}), "queue name"),
        (json!({"headers": {}}), "a non-empty destination"),
        (json!("https://a.example"), "not an object"),
    ] {
        let batch = json!([good, good, bad]).to_string();
        let answer = world.post("/v2/batch", &[], &batch).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        let error = answer.error();
        assert!(error.starts_with("batch item 2: ") && error.contains(why), "{error}");
    }
    for bad in ["", "{", "1", "[1", "null"] {
        assert_eq!(world.post("/v2/batch", &[], bad).await.status, 400, "{bad}");
    }
    assert_eq!(world.open_and_dead().await.0, 0);
    assert_eq!(world.post("/v2/batch", &[], "[]").await.json(), json!([]));
}
