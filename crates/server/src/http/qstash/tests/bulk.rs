//! Operations on many messages touch what was named, and nothing else.

use serde_json::json;
use tashika_domain::message::public_id;
use tashika_testkit::on_both;

use super::*;

on_both!(
    what_is_not_understood_touches_nothing,
    messages_are_cancelled_one_by_name_by_filter_and_all,
    dead_letters_are_listed_in_pages_and_removed,
    dead_letters_are_sent_again_as_they_were_unless_told_otherwise,
);

async fn what_is_not_understood_touches_nothing(db: TestDb) {
    let world = World::on(db, &[]).await;
    world.publish("https://a.example", &[("upstash-label", "a")]).await;
    world.dead("https://a.example", &[]).await;
    let before = world.open_and_dead().await;
    assert_eq!(before, (1, 1));
    for path in ["/v2/messages", "/v2/dlq"] {
        for query in [
            "labeel=x",
            "label=",
            "url=",
            "label=a,",
            "fromDate=",
            "fromDate=x",
            "toDate=-1",
            "count=x",
            "count=-1",
            "order=x",
            "messageIds=",
            "dlqIds=",
            "fromDate=1&fromDate=2",
            "label=%00",
            "upstash-label=a",
            "all=true",
            "topicName=&label=a",
        ] {
            let answer = world.delete(&format!("{path}?{query}"), "").await;
            assert_eq!(answer.status, 400, "{path}?{query} {}", answer.text);
        }
        for body in [
            "{}",
            "[]",
            "null",
            "x",
            " ",
            "{\"messageIds\":[]}",
            "{\"dlqIds\":[]}",
            "{\"messageIds\":null}",
            "{\"dlqIds\":[1]}",
            "{\"dlqIds\":[\"\"]}",
            "{\"messageIds\":\"all\"}",
            "{\"ids\":[\"x\"]}",
            "{\"messageIds\":[\"x\"],\"more\":1}",
            "{\"dlqIds\":[\"x\"],\"dlqIds\":[]}",
        ] {
            let answer = world.delete(path, body).await;
            assert_eq!(answer.status, 400, "{path} {body} {}", answer.text);
        }
    }
    for named in [
        ("/v2/messages?messageIds=msg_x", ""),
        ("/v2/messages?messageIds=msg_x,y&label=a", ""),
        ("/v2/messages", "{\"messageIds\":[\"msg_x\"]}"),
        ("/v2/messages?label=b", ""),
        ("/v2/dlq?dlqIds=x", ""),
        ("/v2/dlq?messageId=x", ""),
        ("/v2/dlq", "{\"dlqIds\":[\"x\"]}"),
        ("/v2/dlq?responseStatus=500", ""),
        ("/v2/dlq?toDate=1", ""),
    ] {
        let answer = world.delete(named.0, named.1).await;
        assert_eq!(answer.status, 200, "{named:?} {}", answer.text);
    }
    let retried = world.post("/v2/dlq/retry?dlqIds=x", &[], "").await;
    assert_eq!((retried.status, retried.json()), (201, json!({"responses": []})));
    assert_eq!(world.open_and_dead().await, before);
}

async fn messages_are_cancelled_one_by_name_by_filter_and_all(db: TestDb) {
    let world = World::on(db, &[]).await;
    let mut ids = Vec::new();
    for number in 0..8 {
        let label = format!("l{}", number % 4);
        ids.push(world.publish("https://a.example", &[("upstash-label", &label)]).await);
    }
    let one = world.delete(&format!("/v2/messages/{}", ids[0]), "").await;
    assert_eq!(one.json(), json!({"cancelled": 1}));
    let again = world.delete(&format!("/v2/messages/{}", ids[0]), "").await;
    assert_eq!((again.status, again.json()), (200, json!({"cancelled": 0})), "it has ended");
    let unknown = world.delete("/v2/messages/msg_00000000000000000000000000000000", "").await;
    assert_eq!(unknown.status, 404);
    // More than a database takes as alternatives of one condition.
    let others = (0..3000).map(|number: u128| public_id(uuid::Uuid::from_u128(number)));
    let named: Vec<String> = others.chain([ids[0].clone(), ids[1].clone(), "x".into()]).collect();
    let body = json!({ "messageIds": named }).to_string();
    assert_eq!(world.delete("/v2/messages", &body).await.json(), json!({"cancelled": 1}));
    let path =
        format!("/v2/messages?messageIds={}&messageIds={},{}&label=none", ids[2], ids[3], ids[3]);
    assert_eq!(
        world.delete(&path, "").await.json(),
        json!({"cancelled": 2}),
        "ids win over filters"
    );
    let by_label = world.delete("/v2/messages?label=l0&label=l1&count=1", "").await;
    assert_eq!(by_label.json(), json!({"cancelled": 2}));
    assert_eq!(world.open_and_dead().await.0, 2);
    assert_eq!(world.delete("/v2/messages", "").await.json(), json!({"cancelled": 2}));
    assert_eq!(world.open_and_dead().await.0, 0);
}

async fn dead_letters_are_listed_in_pages_and_removed(db: TestDb) {
    let world = World::on(db, &[]).await;
    let mut names = Vec::new();
    for number in 0..5 {
        names.push(world.dead(&format!("https://a.example/{number}"), &[]).await);
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page =
            world.get(&format!("/v2/dlq?count=2&order=earliestFirst&cursor={cursor}")).await.json();
        let letters = page["messages"].as_array().unwrap();
        seen.extend(letters.iter().map(|letter| letter["dlqId"].as_str().unwrap().to_owned()));
        match page.get("cursor") {
            Some(next) => next.as_str().unwrap().clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(seen, names);
    let one = world.get(&format!("/v2/dlq/{}", names[0])).await.json();
    assert_eq!((&one["responseStatus"], &one["responseBody"]), (&json!(489), &json!("answer")));
    assert_eq!(world.delete(&format!("/v2/dlq/{}", names[0]), "").await.status, 200);
    assert_eq!(world.delete(&format!("/v2/dlq/{}", names[0]), "").await.status, 404, "it is gone");
    let body = json!({"dlqIds": [names[0], names[1]]}).to_string();
    assert_eq!(world.delete("/v2/dlq", &body).await.json(), json!({"deleted": 1}));
    let page = world.delete("/v2/dlq?count=1", "").await.json();
    assert_eq!(page["deleted"], 1);
    assert!(page["cursor"].is_string(), "{page}");
    assert_eq!(
        world.delete("/v2/dlq?url=https://a.example/2", "").await.json(),
        json!({"deleted": 1})
    );
    assert_eq!(world.delete("/v2/dlq", "").await.json(), json!({"deleted": 1}));
    assert_eq!(world.get("/v2/dlq").await.json(), json!({"messages": []}));
}

async fn dead_letters_are_sent_again_as_they_were_unless_told_otherwise(db: TestDb) {
    let world = World::on(db, &[]).await;
    let headers =
        [("content-type", "text/plain"), ("upstash-retries", "5"), ("upstash-label", "l")];
    let first = world.dead("https://a.example/1", &headers).await;
    let second = world.dead("https://a.example/2", &headers).await;
    world.dead("https://a.example/3", &headers).await;
    let overrides = [("content-type", "application/json"), ("upstash-retries", "1")];
    let path = format!("/v2/dlq/retry?dlqIds={first}&upstash-method=PUT");
    let sent = world.post(&path, &overrides, "").await;
    assert_eq!(sent.status, 201);
    let id = sent.json()["responses"][0]["messageId"].as_str().unwrap().to_owned();
    let message = world.get(&format!("/v2/messages/{id}")).await.json();
    assert_eq!(message["method"], "PUT");
    assert_eq!((&message["maxRetries"], &message["label"]), (&json!(1), &json!("l")));
    assert_eq!(
        (&message["body"], &message["header"]["Content-Type"]),
        (&json!("hello"), &json!(["text/plain"]))
    );
    let one = world.post(&format!("/v2/dlq/retry/{second}"), &[], "").await;
    assert!(one.status == 201 && one.json()["messageId"].is_string());
    assert_eq!(world.post(&format!("/v2/dlq/retry/{second}"), &[], "").await.status, 404);
    assert_eq!(
        world.post("/v2/dlq/retry?count=100", &[], "").await.json()["responses"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(world.open_and_dead().await, (3, 0));
}
