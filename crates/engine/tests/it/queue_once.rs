//! Messages that must not go out: duplicates, and what was cancelled.

use std::sync::Arc;

use futures_util::future::join_all;
use tashika_domain::message::{Logged, State};
use tashika_domain::{LanePolicy, Status};
use tashika_engine::commands::message::Published;
use tashika_store::MessageFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::queue_rig::{AT_ONCE, Node, Sink, WINDOW, busy, publish, says};
use crate::support::{HOUR, stop};

on_both!(
    a_duplicate_is_the_first_message,
    many_duplicates_at_once_are_one_message,
    duplicates_within_a_batch_are_one_message,
    the_window_ends,
    a_key_opens_again_after_failure,
    a_key_opens_again_after_cancelling,
    a_message_that_waits_is_cancelled,
    a_message_that_waits_for_a_retry_is_cancelled,
    a_message_in_flight_stays_cancelled_when_it_fails,
    a_message_in_flight_stays_cancelled_when_it_arrives,
    a_claimed_message_that_was_cancelled_is_not_sent,
    a_message_that_was_put_off_and_cancelled_is_not_sent,
    many_are_cancelled_by_what_they_are,
    a_dead_letter_is_not_delivered_by_requeueing_its_effect,
);

const ID: (&str, &str) = ("Upstash-Deduplication-Id", "d-1");
const BY_CONTENT: (&str, &str) = ("Upstash-Content-Based-Deduplication", "true");

async fn a_duplicate_is_the_first_message(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let (url, other) = (sink.url("/"), sink.url("/other"));
    let first = node.receipt(&url, &[ID], "x").await;
    let second = node.receipt(&other, &[ID], "another body").await;
    assert!(!first.deduplicated && second.deduplicated);
    assert_eq!(first.id, second.id);
    let content = node.receipt(&url, &[BY_CONTENT], "x").await;
    let same = node.receipt(&url, &[BY_CONTENT], "x").await;
    assert_eq!((same.id, same.deduplicated), (content.id, true));
    for (url, settings, body) in [
        (&url, vec![BY_CONTENT], "y"),
        (&other, vec![BY_CONTENT], "x"),
        (&url, vec![BY_CONTENT, ("Upstash-Forward-X", "1")], "x"),
    ] {
        assert!(!node.receipt(url, &settings, body).await.deduplicated);
    }
    let running = node.start();
    assert_eq!(node.all_ended().await["delivered"], 5);
    assert!(node.receipt(&url, &[ID], "x").await.deduplicated, "also when it is over");
    stop(running).await;
    assert_eq!(sink.count(), 5);
}

async fn many_duplicates_at_once_are_one_message(db: TestDb) {
    let sink = Sink::fine().await;
    let nodes = [Arc::new(Node::new(&db).await), Arc::new(Node::new(&db).await)];
    for settings in [[ID], [BY_CONTENT]] {
        let calls = (0..32).map(|number| {
            let (node, url) = (Arc::clone(&nodes[number % 2]), sink.url("/"));
            tokio::spawn(async move { node.receipt(&url, &settings, "x").await })
        });
        let receipts: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        assert!(receipts.iter().all(|receipt| receipt.id == receipts[0].id), "{receipts:?}");
        assert_eq!(receipts.iter().filter(|receipt| !receipt.deduplicated).count(), 1);
    }
    let running = nodes[0].start();
    assert_eq!(nodes[0].all_ended().await["delivered"], 2);
    stop(running).await;
    assert_eq!(sink.count(), 2);
}

async fn duplicates_within_a_batch_are_one_message(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let known = node.publish(&sink.url("/"), &[ID], "x").await;
    let other = ("Upstash-Deduplication-Id", "d-2");
    let batch = [ID, other, other, ("Upstash-Label", "none")];
    let batch = batch.map(|setting| publish(&sink.url("/"), &[setting], "x")).to_vec();
    let published = node.messages.publish_all(batch).await.unwrap();
    let receipts: Vec<_> = published
        .into_iter()
        .map(|published| match published {
            Published::One(receipt) => (receipt.id, receipt.deduplicated),
            group @ Published::Group(_) => panic!("{group:?}"),
        })
        .collect();
    assert_eq!(receipts[0], (known, true));
    assert!(!receipts[1].1);
    assert_eq!(receipts[2], (receipts[1].0, true));
    assert!(!receipts[3].1);
    assert_eq!(node.all().await.len(), 3);
}

async fn the_window_ends(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let first = node.publish(&sink.url("/"), &[ID], "x").await;
    let later = Node::ahead(&db, WINDOW * 2).await;
    let second = later.publish(&sink.url("/"), &[ID], "x").await;
    assert_ne!(first, second);
    assert_eq!(later.receipt(&sink.url("/"), &[ID], "x").await.id, second);
    assert_eq!(later.message(first).await.dedup_key, None);
}

async fn a_key_opens_again_after_failure(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| says(if heard.text() == "good" { 200 } else { 500 })).await;
    let running = node.start();
    let settings = [ID, ("Upstash-Retries", "0")];
    let first = node.publish(&sink.url("/"), &settings, "bad").await;
    node.ended(first, State::Failed).await;
    let second = node.publish(&sink.url("/"), &settings, "good").await;
    node.ended(second, State::Delivered).await;
    assert!(node.receipt(&sink.url("/"), &settings, "good").await.deduplicated);
    stop(running).await;
}

async fn a_key_opens_again_after_cancelling(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let first = node.publish(&sink.url("/"), &[ID], "x").await;
    assert!(node.messages.cancel(first).await.unwrap());
    assert!(!node.messages.cancel(first).await.unwrap(), "once");
    node.publish(&sink.url("/"), &[ID], "x").await;
}

async fn a_message_that_waits_is_cancelled(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let limits = ("Upstash-Flow-Control-Value", "rate=1,period=7d");
    let waiting: [&[(&str, &str)]; 4] = [
        &[],
        &[("Upstash-Delay", "1h")],
        &[("Upstash-Queue-Name", "q")],
        &[("Upstash-Flow-Control-Key", "k"), limits],
    ];
    for settings in waiting {
        let id = node.publish(&sink.url("/"), settings, "x").await;
        assert!(node.messages.cancel(id).await.unwrap());
        let message = node.message(id).await;
        assert_eq!(message.state, State::Cancelled);
        assert_eq!(node.effect_status(id).await, Some(Status::Aborted));
        assert_eq!(node.logged(id).await, [Logged::Cancelled]);
    }
    let later = Node::ahead(&db, HOUR * 2).await;
    let running = later.start();
    let last = later.publish(&sink.url("/last"), &[("Upstash-Queue-Name", "q")], "x").await;
    later.ended(last, State::Delivered).await;
    stop(running).await;
    assert_eq!(sink.count(), 1);
}

async fn a_message_that_waits_for_a_retry_is_cancelled(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, _| says(500)).await;
    let running = node.start();
    let limits = ("Upstash-Flow-Control-Value", "parallelism=1");
    let hour = ("Upstash-Retry-Delay", "3600000");
    let settings: [&[(&str, &str)]; 2] =
        [&[hour], &[hour, ("Upstash-Flow-Control-Key", "k"), limits]];
    for settings in settings {
        let id = node.publish(&sink.url("/"), settings, "x").await;
        until("a failure", async || (!node.log(id).await.is_empty()).then_some(())).await;
        assert!(node.messages.cancel(id).await.unwrap());
        assert_eq!(node.effect_status(id).await, Some(Status::Aborted));
        assert_eq!(node.logged(id).await, [Logged::Error, Logged::Cancelled]);
    }
    stop(running).await;
    let later = Node::ahead(&db, HOUR * 2).await;
    let running = later.start();
    let last = later.publish(&sink.url("/"), &[("Upstash-Retries", "0")], "x").await;
    later.ended(last, State::Failed).await;
    stop(running).await;
    assert_eq!(sink.count(), 3);
}

/// Cancels a message while its destination thinks; returns what the destination's answer led to.
async fn cancelled_in_flight(db: &TestDb, status: u16) -> (Node, Sink, uuid::Uuid) {
    let (node, gate) = (Node::new(db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, _| match heard.uri.path() {
            "/slow" => says(status).behind(&gate),
            _ => says(200),
        }
    })
    .await;
    let running = node.start();
    let callback = sink.url("/told");
    let settings = [AT_ONCE, ("Upstash-Callback", callback.as_str())];
    let id = node.publish(&sink.url("/slow"), &settings, "x").await;
    sink.until_heard(1).await;
    assert!(node.messages.cancel(id).await.unwrap());
    gate.open();
    until("the end of the attempt", async || node.is_settled(id).await.then_some(())).await;
    let last = node.publish(&sink.url("/last"), &[], "x").await;
    node.ended(last, State::Delivered).await;
    stop(running).await;
    assert_eq!(node.message(id).await.state, State::Cancelled);
    (node, sink, id)
}

async fn a_message_in_flight_stays_cancelled_when_it_fails(db: TestDb) {
    let (node, sink, id) = cancelled_in_flight(&db, 500).await;
    assert_eq!(sink.count(), 2, "no further attempt, and nobody is told");
    assert_eq!(node.logged(id).await, [Logged::Cancelled, Logged::Error]);
    node.assert_nothing_is_forgotten().await;
}

async fn a_message_in_flight_stays_cancelled_when_it_arrives(db: TestDb) {
    let (node, sink, id) = cancelled_in_flight(&db, 200).await;
    assert_eq!(sink.count(), 2);
    assert_eq!(node.logged(id).await, [Logged::Cancelled, Logged::Delivered]);
}

async fn a_claimed_message_that_was_cancelled_is_not_sent(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let slow = node.publish(&sink.url("/slow"), &[], "x").await;
    let behind = node.publish(&sink.url("/behind"), &[], "x").await;
    // Both are claimed in one go; only one of them is started.
    let one = LanePolicy { concurrency: 1, ..busy() };
    let running = node.engine("host:1:a", &one).start();
    until("both claimed", async || {
        (node.effect_status(behind).await == Some(Status::Sending)).then_some(())
    })
    .await;
    sink.until_heard(1).await;
    let first = sink.heard()[0].message();
    let other = if first == slow { behind } else { slow };
    assert!(node.messages.cancel(other).await.unwrap());
    gate.open();
    node.ended(first, State::Delivered).await;
    until("its end", async || node.is_settled(other).await.then_some(())).await;
    stop(running).await;
    assert_eq!(sink.count(), 1, "what was not begun is not begun any more");
}

async fn a_message_that_was_put_off_and_cancelled_is_not_sent(db: TestDb) {
    let (node, gate) = (Node::with_room(&db, 1).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    // One at a time: all others are put off again and again.
    let running = node.start();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(node.publish(&sink.url("/"), &[], "x").await);
    }
    sink.until_heard(1).await;
    let first = sink.heard()[0].message();
    for id in ids.iter().filter(|id| **id != first) {
        assert!(node.messages.cancel(*id).await.unwrap());
    }
    gate.open();
    for id in &ids {
        until("its end", async || node.is_settled(*id).await.then_some(())).await;
    }
    stop(running).await;
    assert_eq!(sink.count(), 1);
    node.assert_nothing_is_forgotten().await;
}

async fn many_are_cancelled_by_what_they_are(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    for label in ["a", "a", "b", "A", "aa"] {
        node.publish(&sink.url("/"), &[("Upstash-Label", label)], "x").await;
    }
    let labelled =
        |label: &str| MessageFilter { labels: vec![label.to_owned()], ..MessageFilter::default() };
    assert_eq!(node.messages.cancel_all(&labelled("none"), 100).await.unwrap(), 0);
    assert_eq!(node.messages.cancel_all(&labelled("a"), 1).await.unwrap(), 1);
    assert_eq!(node.messages.cancel_all(&labelled("a"), 100).await.unwrap(), 1);
    let counts = node.counts().await;
    assert_eq!((counts["cancelled"], counts["ready"]), (2, 3));
}

async fn a_dead_letter_is_not_delivered_by_requeueing_its_effect(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::start(|_, _| says(500)).await);
    let running = node.start();
    let id = node.publish(&sink.url("/"), &[("Upstash-Retries", "0")], "x").await;
    let letter = node.ended(id, State::Failed).await;
    let outbox = tashika_engine::commands::outbox::Outbox::new(node.store.clone(), node.clock);
    outbox.requeue(tashika_domain::EffectId(id)).await.unwrap();
    until("its end", async || node.is_settled(id).await.then_some(())).await;
    stop(running).await;
    assert_eq!((sink.count(), node.message(id).await), (1, letter), "it can be sent again instead");
}
