//! What is to be hidden is hidden in every answer, and nowhere else.

use tashika_testkit::on_both;

use super::*;

on_both!(no_answer_shows_what_is_to_be_hidden,);

async fn no_answer_shows_what_is_to_be_hidden(db: TestDb) {
    let world = World::on(db, &[]).await;
    let headers = [
        ("upstash-redact-fields", "body, header[x-secret]"),
        ("upstash-forward-x-secret", "s3cret"),
        ("upstash-forward-x-open", "open"),
        ("upstash-callback", "https://c.example"),
        ("upstash-callback-forward-x-secret", "s3cret"),
    ];
    let body = "s3cret of a body";
    let sent = world.post("/v2/publish/https://a.example", &headers, body).await.json();
    let id = sent["messageId"].as_str().unwrap();
    let retry = Came::Again { retry_in: None };
    world.attempted(id, retry, 500).await;
    world.attempted(id, Came::Never, 489).await;
    let scheduled = [&headers[..], &[("upstash-cron", "* * * * *")]].concat();
    let made = world.post("/v2/schedules/https://a.example", &scheduled, body).await.json();
    let letter =
        world.get("/v2/dlq").await.json()["messages"][0]["dlqId"].as_str().unwrap().to_owned();
    // Base64 of the beginning of the body, in events and in what callbacks repeat.
    let coded = "czNjcmV0";
    for path in [
        format!("/v2/messages/{id}"),
        "/v2/events".into(),
        "/v2/logs?url=https://c.example".into(),
        "/v2/dlq".into(),
        format!("/v2/dlq/{letter}"),
        "/v2/schedules".into(),
        format!("/v2/schedules/{}", made["scheduleId"].as_str().unwrap()),
    ] {
        let answer = world.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.text.contains("REDACTED:"), "{path} {}", answer.text);
        for hidden in ["s3cret", coded] {
            assert!(!answer.text.contains(hidden), "{path} {}", answer.text);
        }
    }
    let resent = world.post(&format!("/v2/dlq/retry/{letter}"), &[], "").await.json();
    let again = parse_id(resent["messageId"].as_str().unwrap()).unwrap();
    let again = world.app.messages.message(again).await.unwrap();
    assert_eq!(&again.body[..], body.as_bytes(), "what is sent again is the original");
    assert_eq!(again.asked.headers["X-Secret"], ["s3cret"]);
    let shown = world.get(&format!("/v2/messages/{}", resent["messageId"].as_str().unwrap())).await;
    assert!(!shown.text.contains("s3cret") && shown.text.contains("open"), "{}", shown.text);
}
