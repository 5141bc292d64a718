//! What happened, page by page.

use serde_json::{Value, json};
use tashika_testkit::on_both;

use super::*;

on_both!(every_attempt_leaves_its_states_newest_first, no_page_repeats_or_skips_an_event,);

fn states(answer: &Value, name: &str) -> Vec<String> {
    let list = answer[name].as_array().unwrap();
    list.iter().map(|event| event["state"].as_str().unwrap().to_owned()).collect()
}

async fn every_attempt_leaves_its_states_newest_first(db: TestDb) {
    let world = World::on(db, &[]).await;
    let retry = Came::Again { retry_in: Some(std::time::Duration::from_secs(60)) };
    let id = world.publish("https://a.example", &[("upstash-retry-delay", "1000")]).await;
    world.attempted(&id, retry, 500).await;
    world.attempted(&id, Came::Lapsed, 0).await;
    world.attempted(&id, Came::Delivered, 200).await;
    let all = world.get(&format!("/v2/events?messageId={id}")).await.json();
    let expected =
        ["DELIVERED", "ACTIVE", "ERROR", "ACTIVE", "RETRY", "ERROR", "ACTIVE", "CREATED"];
    assert_eq!(states(&all, "events"), expected);
    assert!(all.get("cursor").is_none());
    let logs = world.get(&format!("/v2/logs?messageIds={id}")).await.json();
    assert_eq!(states(&logs, "logs"), expected);
    let (delivered, retried) = (&all["events"][0], &all["events"][4]);
    assert_eq!(
        (&delivered["responseStatus"], &delivered["responseBody"]),
        (&json!(200), &json!("YW5zd2Vy"))
    );
    assert_eq!(
        (&delivered["body"], &delivered["retryDelayExpr"]),
        (&json!("aGVsbG8="), &json!("1000"))
    );
    assert!(retried["nextDeliveryTime"].as_i64() > retried["time"].as_i64());

    let failed = world.publish("https://b.example", &[]).await;
    world.attempted(&failed, Came::Never, 489).await;
    let cancelled = world.publish("https://c.example", &[]).await;
    world.delete(&format!("/v2/messages/{cancelled}"), "").await;
    for (query, expected) in [
        ("url=https://b.example", &["FAILED", "ERROR", "ACTIVE", "CREATED"][..]),
        ("host=c.example", &["CANCELED", "CANCEL_REQUESTED", "CREATED"]),
        ("state=DELIVERED", &["DELIVERED"]),
        ("state=IN_PROGRESS&url=https://b.example", &["ERROR", "ACTIVE"]),
        ("state=CANCELLED", &["CANCELED"]),
        ("state=CREATED,FAILED&host=b.example&order=earliestFirst", &["CREATED", "FAILED"]),
        ("messageId=msg_x", &[]),
        ("toDate=1", &[]),
    ] {
        let answer = world.get(&format!("/v2/events?{query}")).await.json();
        assert_eq!(states(&answer, "events"), expected, "{query}");
    }
}

async fn no_page_repeats_or_skips_an_event(db: TestDb) {
    let world = World::on(db, &[]).await;
    let retry = Came::Again { retry_in: None };
    for _ in 0..4 {
        let id = world.publish("https://a.example", &[]).await;
        world.attempted(&id, retry, 500).await;
        world.attempted(&id, Came::Delivered, 200).await;
    }
    let key =
        |event: &Value| format!("{} {} {}", event["messageId"], event["state"], event["time"]);
    let whole = world.get("/v2/events").await.json();
    let whole: Vec<String> = whole["events"].as_array().unwrap().iter().map(key).collect();
    assert_eq!(whole.len(), 24);
    for order in ["latestFirst", "earliestFirst"] {
        for (count, filter) in [
            (1, ""),
            (2, ""),
            (3, ""),
            (5, ""),
            (24, ""),
            (1, "&state=DELIVERED"),
            (2, "&state=RETRY,CREATED"),
        ] {
            let mut seen = Vec::new();
            let mut cursor = String::new();
            loop {
                let path =
                    format!("/v2/events?count={count}&order={order}&cursor={cursor}{filter}");
                let page = world.get(&path).await.json();
                let events = page["events"].as_array().unwrap();
                assert!(events.len() <= count);
                seen.extend(events.iter().map(key));
                match page.get("cursor") {
                    Some(next) => next.as_str().unwrap().clone_into(&mut cursor),
                    None => break,
                }
            }
            let wanted = |event: &&String| match filter {
                "" => true,
                "&state=DELIVERED" => event.contains("DELIVERED"),
                _ => event.contains("RETRY") || event.contains("CREATED"),
            };
            let mut expected: Vec<String> = whole.iter().filter(wanted).cloned().collect();
            expected.sort();
            seen.sort();
            assert_eq!(seen, expected, "{order} {count} {filter}");
        }
    }
    let future = world.get("/v2/events?cursor=4102444800000").await.json();
    assert_eq!(future["events"].as_array().map(Vec::len), Some(24), "a time is a cursor too");
    assert_eq!(world.get("/v2/events?cursor=1000").await.json(), json!({"events": []}));
    assert_eq!(world.get("/v2/events?cursor=x").await.status, 400);
}
