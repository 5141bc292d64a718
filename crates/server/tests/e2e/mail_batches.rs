//! Batches over the wire: streamed, broken off, large.
//!
//! `TASHIKA_MAIL_BATCH` sets how many recipients the large one has.

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::mail::{TEMPLATE, batch, data, post};
use crate::support::{Request, Setup};

on_both!(
    a_stream_of_lines_is_taken_and_sent,
    a_stream_that_breaks_off_sends_nothing,
    a_batch_is_cancelled_and_tried_again,
    a_large_batch_is_taken_in_little_memory,
);

const LARGE: usize = 20_000;
/// Recipients in one piece of a stream.
const PIECE: usize = 500;

fn lines(range: std::ops::Range<usize>) -> String {
    let line = |n| json!({"to": format!("r{n}@example.com"), "data": data()}).to_string() + "\n";
    range.map(line).collect()
}

fn stream() -> Request {
    Request::new("POST", "/mail/batches").header("content-type", "application/x-ndjson")
}

fn head() -> String {
    json!({"template": TEMPLATE, "locale": "en"}).to_string() + "\n"
}

async fn a_stream_of_lines_is_taken_and_sent(db: TestDb) {
    let server = Setup::of(&db).set("MAIL_RATE_PER_SEC", 1000).start().await;
    let mut streamed = stream().header("idempotency-key", "k").begin(server.address).await;
    streamed.write(&head()).await;
    streamed.write(&lines(0..30)).await;
    let answer = streamed.finish().await;
    assert_eq!((answer.status, &answer.json()["total"]), (202, &json!(30)), "{answer:?}");
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let end = server.until_batch(&id, "the end", |batch| batch["status"] == "finished").await;
    assert_eq!(end["sent"], 30);
    let whole = stream().header("idempotency-key", "k").body(head() + &lines(0..30));
    let again = server.ask(whole).await;
    assert!(again.status == 200 && again.replayed(), "{again:?}");
    let other = stream().header("idempotency-key", "k").body(head() + &lines(0..31));
    server.ask(other).await.is_problem(409, "IDEMPOTENCY_CONFLICT");
    let headless = server.ask(stream().body(lines(0..1))).await;
    headless.is_problem(400, "BAD_REQUEST");
    server.stop().await;
}

async fn a_stream_that_breaks_off_sends_nothing(db: TestDb) {
    let server = Setup::of(&db).set("MAIL_RATE_PER_SEC", 1000).start().await;
    let mut streamed = stream().header("idempotency-key", "k").begin(server.address).await;
    streamed.write(&head()).await;
    streamed.write(&lines(0..1500)).await;
    let seen = until("a batch that is coming in", async || {
        let found = server.get("/mail/batches").await.json()["items"][0].clone();
        (found["status"] == "receiving" && found["total"] == 1000).then_some(found)
    })
    .await;
    server
        .ask(stream().header("idempotency-key", "k").body(head() + &lines(0..2)))
        .await
        .is_problem(409, "IDEMPOTENCY_IN_PROGRESS");
    streamed.write("{\"to\": \"nobody\"}\n").await;
    let refused = streamed.finish().await;
    refused.is_problem(422, "VALIDATION_ERROR");
    assert_eq!(refused.json()["errors"][0]["field"], "recipients[1500].to");
    let id = seen["id"].as_str().unwrap();
    let end = server.until_batch(id, "nothing queued", |batch| batch["queued"] == 0).await;
    assert_eq!((&end["status"], &end["cancelled"]), (&json!("aborted"), &json!(1000)));
    let corrected = server.ask(stream().header("idempotency-key", "k").body(head() + &lines(0..2)));
    let corrected = corrected.await;
    assert_eq!(corrected.status, 202, "{corrected:?}");
    let id = corrected.json()["id"].as_str().unwrap().to_owned();
    server.until_batch(&id, "the end", |batch| batch["sent"] == 2).await;
    assert_eq!(server.get("/mail/inbox").await.json()["items"].as_array().unwrap().len(), 2);
    server.stop().await;
}

async fn a_batch_is_cancelled_and_tried_again(db: TestDb) {
    // So slowly that most of it is still to come.
    let setup = Setup::of(&db).set("MAIL_RATE_PER_SEC", 1).set("MAIL_BACKOFF_SEC", "0.01");
    let server = setup.start().await;
    let to: Vec<String> = (0..30).map(|n| format!("r{n}@example.com")).collect();
    let id = server.send_batch(&batch(&to)).await;
    server.until_batch(&id, "a first mail", |batch| batch["sent"] != 0).await;
    let answer = server.ask(Request::new("POST", &format!("/mail/batches/{id}/cancel"))).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let end = server.until_batch(&id, "nothing queued", |batch| batch["queued"] == 0).await;
    assert_eq!(end["status"], "cancelled");
    let sum = |name: &str| end[name].as_i64().unwrap();
    assert_eq!(sum("sent") + sum("cancelled"), 30);
    assert!(sum("cancelled") > 20, "{end}");
    server
        .ask(Request::new("POST", &format!("/mail/batches/{id}/cancel")))
        .await
        .is_problem(409, "MAIL_BATCH_STATE");
    server.stop().await;
    let quick = Setup::of(&db).set("MAIL_RATE_PER_SEC", 1000).start().await;
    let wish = json!({"statuses": ["cancelled"]});
    let answer = quick.ask(post(&format!("/mail/batches/{id}/retry"), &wish)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let end = quick.until_batch(&id, "everything sent", |batch| batch["sent"] == 30).await;
    assert_eq!((&end["status"], &end["total"]), (&json!("finished"), &json!(30)));
    quick.stop().await;
}

/// The most memory a process has had, in kilobytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn a_large_batch_is_taken_in_little_memory(db: TestDb) {
    let wanted = std::env::var("TASHIKA_MAIL_BATCH").ok();
    let total: usize = wanted.map_or(LARGE, |text| text.parse().unwrap());
    let setup = Setup::of(&db)
        .set("MAIL_RATE_PER_SEC", 1)
        .set("TASHIKA_REQUEST_TIMEOUT_MS", 600_000)
        .set("TASHIKA_BODY_TIMEOUT_MS", 60_000);
    let server = setup.start().await;
    let before = peak_memory(server.pid());
    let began = tokio::time::Instant::now();
    let mut streamed = stream().begin(server.address).await;
    streamed.write(&head()).await;
    let half = total / 2;
    for first in (0..half).step_by(PIECE) {
        streamed.write(&lines(first..first + PIECE)).await;
    }
    // Half of it is out, and how far it has come can be seen.
    until("a batch that is coming in", async || {
        let found = server.get("/mail/batches").await.json()["items"][0].clone();
        (found["status"] == "receiving" && found["total"] != 0).then_some(())
    })
    .await;
    for first in (half..total).step_by(PIECE) {
        streamed.write(&lines(first..first + PIECE)).await;
    }
    let answer = streamed.finish().await;
    let took = began.elapsed();
    assert_eq!((answer.status, &answer.json()["total"]), (202, &json!(total)), "{answer:?}");
    let grown = (peak_memory(server.pid()) - before) / 1024;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let counted = tokio::time::Instant::now();
    let found = server.mail_batch(&id).await;
    let counting = counted.elapsed();
    println!(
        "{:?}: {total} recipients durable after {took:.1?}; {grown} MiB more memory at the peak; \
         counted in {counting:.0?}",
        db.dialect()
    );
    let sum = |name: &str| found[name].as_u64().unwrap();
    assert_eq!(sum("queued") + sum("sent"), total as u64, "{found}");
    assert!(grown < 100, "{grown} MiB");
    server.stop().await;
}
