//! Queues: first in, first out, so many at a time.

use tashika_domain::message::State;
use tashika_engine::commands::message::Published;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::queue_rig::{AT_ONCE, Node, Sink, publish, says};
use crate::support::stop;

on_both!(
    a_queue_keeps_its_order,
    a_queue_keeps_its_order_across_retries,
    a_batch_keeps_its_order,
    a_dead_letter_makes_room_for_the_next,
    the_next_waits_for_the_callback,
    a_paused_queue_takes_and_does_not_deliver,
    a_wide_queue_is_no_wider,
    a_deleted_queue_delivers_nothing,
    two_processes_keep_one_order,
    a_cancelled_head_lets_the_next_pass,
);

const QUEUE: (&str, &str) = ("Upstash-Queue-Name", "q");

async fn enqueue(node: &Node, url: &str, count: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(node.publish(url, &[QUEUE, AT_ONCE], &format!("{number:03}")).await);
    }
    ids
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:03}")).collect()
}

async fn a_queue_keeps_its_order(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    enqueue(&node, &sink.url("/"), 30).await;
    assert_eq!(node.all_ended().await["delivered"], 30);
    stop(running).await;
    assert_eq!(sink.bodies(), numbers(30));
    assert_eq!(sink.most(), 1);
    assert!(sink.heard().iter().all(|heard| heard.header("upstash-queue-name") == "q"));
}

async fn a_queue_keeps_its_order_across_retries(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, before| {
        let bad = heard.text().ends_with('0') && before < 3;
        says(if bad { 500 } else { 200 })
    })
    .await;
    enqueue(&node, &sink.url("/"), 12).await;
    let running = node.start();
    assert_eq!(node.all_ended().await["delivered"], 12);
    stop(running).await;
    let mut bodies = sink.bodies();
    assert_eq!(bodies.len(), 12 + 3 + 3);
    bodies.dedup();
    assert_eq!(bodies, numbers(12));
}

async fn a_batch_keeps_its_order(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let batch: Vec<_> =
        numbers(40).iter().map(|body| publish(&sink.url("/"), &[QUEUE], body)).collect();
    let published = node.messages.publish_all(batch).await.unwrap();
    assert!(published.iter().all(|published| matches!(published, Published::One(_))));
    let running = node.start();
    assert_eq!(node.all_ended().await["delivered"], 40);
    stop(running).await;
    assert_eq!(sink.bodies(), numbers(40));
}

async fn a_dead_letter_makes_room_for_the_next(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| says(if heard.text() == "000" { 500 } else { 200 })).await;
    let ids = enqueue(&node, &sink.url("/"), 2).await;
    let running = node.start();
    node.ended(ids[0], State::Failed).await;
    node.ended(ids[1], State::Delivered).await;
    stop(running).await;
    assert_eq!(sink.bodies(), ["000", "000", "000", "000", "001"]);
}

async fn the_next_waits_for_the_callback(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, _| match heard.uri.path() {
            "/told" => says(200).behind(&gate),
            _ => says(200),
        }
    })
    .await;
    let callback = sink.url("/told");
    let settings = [QUEUE, ("Upstash-Callback", callback.as_str())];
    let first = node.publish(&sink.url("/hook"), &settings, "first").await;
    let second = node.publish(&sink.url("/hook"), &[QUEUE], "second").await;
    let running = node.start();
    node.ended(first, State::Delivered).await;
    sink.until_heard(2).await;
    // Somebody outside the queue goes all the way meanwhile.
    let other = node.publish(&sink.url("/other"), &[], "x").await;
    node.ended(other, State::Delivered).await;
    assert_eq!(node.message(second).await.state, State::Queued);
    gate.open();
    node.ended(second, State::Delivered).await;
    stop(running).await;
    let paths: Vec<String> = sink.heard().iter().map(|heard| heard.uri.path().to_owned()).collect();
    assert_eq!(paths, ["/hook", "/told", "/other", "/hook"]);
}

async fn a_paused_queue_takes_and_does_not_deliver(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    node.messages.set_queue("q", None, Some(true)).await.unwrap();
    let ids = enqueue(&node, &sink.url("/"), 3).await;
    let other = node.publish(&sink.url("/"), &[("Upstash-Queue-Name", "other")], "x").await;
    node.ended(other, State::Delivered).await;
    let view = node.messages.queue("q").await.unwrap();
    assert_eq!((view.lag, view.queue.paused), (3, true));
    for id in &ids {
        assert_eq!(node.message(*id).await.state, State::Queued);
    }
    node.messages.pause_queue("q", false).await.unwrap();
    for id in ids {
        node.ended(id, State::Delivered).await;
    }
    stop(running).await;
    assert_eq!(node.messages.queue("q").await.unwrap().lag, 0);
    assert_eq!(sink.bodies(), ["x", "000", "001", "002"]);
}

async fn a_wide_queue_is_no_wider(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, _| {
            if heard.text().as_str() < "003" { says(200).behind(&gate) } else { says(200) }
        }
    })
    .await;
    node.messages.set_queue("q", Some(3), None).await.unwrap();
    enqueue(&node, &sink.url("/"), 60).await;
    let running = node.start();
    sink.until_heard(3).await;
    gate.open();
    assert_eq!(node.all_ended().await["delivered"], 60);
    stop(running).await;
    assert_eq!(sink.most(), 3);
}

async fn a_deleted_queue_delivers_nothing(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let ids = enqueue(&node, &sink.url("/"), 3).await;
    let running = node.start();
    sink.until_heard(1).await;
    node.messages.delete_queue("q").await.unwrap();
    node.messages.delete_queue("q").await.unwrap();
    gate.open();
    node.ended(ids[0], State::Delivered).await;
    for id in &ids[1..] {
        node.ended(*id, State::Cancelled).await;
    }
    assert!(node.messages.queue("q").await.is_err());
    let again = node.publish(&sink.url("/"), &[QUEUE], "again").await;
    node.ended(again, State::Delivered).await;
    stop(running).await;
    assert_eq!(sink.bodies(), ["000", "again"]);
}

async fn two_processes_keep_one_order(db: TestDb) {
    let (one, two) = (Node::new(&db).await, Node::new(&db).await);
    let sink = Sink::start(|_, before| says(if before == 0 { 500 } else { 200 })).await;
    let running = [one.start(), two.engine("host:2:b", &crate::queue_rig::busy()).start()];
    for number in 0..20 {
        let node = if number % 2 == 0 { &one } else { &two };
        node.publish(&sink.url("/"), &[QUEUE, AT_ONCE], &format!("{number:03}")).await;
    }
    assert_eq!(one.all_ended().await["delivered"], 20);
    for running in running {
        stop(running).await;
    }
    let mut bodies = sink.bodies();
    assert_eq!((bodies.len(), sink.most()), (40, 1));
    bodies.dedup();
    assert_eq!(bodies, numbers(20));
}

async fn a_cancelled_head_lets_the_next_pass(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| says(if heard.text() == "head" { 500 } else { 200 })).await;
    let hour = ("Upstash-Retry-Delay", "3600000");
    let head = node.publish(&sink.url("/"), &[QUEUE, hour], "head").await;
    let next = node.publish(&sink.url("/"), &[QUEUE], "next").await;
    let running = node.start();
    until("a failure", async || (!node.log(head).await.is_empty()).then_some(())).await;
    assert_eq!(node.message(next).await.state, State::Queued);
    assert!(node.messages.cancel(head).await.unwrap());
    node.ended(next, State::Delivered).await;
    stop(running).await;
}
