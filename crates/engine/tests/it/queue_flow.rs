//! Flow control: no more at a time, no more in a period, whoever publishes and however much.

use std::time::Duration;

use tashika_domain::message::State;
use tashika_engine::commands::queue::Pin;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::queue_rig::{AT_ONCE, Node, Sink, busy, publish, says};
use crate::support::stop;

on_both!(
    parallelism_is_not_exceeded_under_load,
    a_rate_holds_in_every_period,
    a_retry_does_not_keep_others_waiting,
    a_paused_key_keeps_its_messages,
    pinned_limits_do_not_follow_the_messages,
    a_reset_begins_a_new_period,
    a_queue_and_a_flow_control_are_both_kept,
);

const KEY: (&str, &str) = ("Upstash-Flow-Control-Key", "k");

fn limits(value: &str) -> (&str, &str) {
    ("Upstash-Flow-Control-Value", value)
}

async fn parallelism_is_not_exceeded_under_load(db: TestDb) {
    let (one, two) = (Node::new(&db).await, Node::new(&db).await);
    let gate = Gate::closed();
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, before| match heard.text().as_str() {
            "0" | "1" | "2" | "3" | "4" => says(200).behind(&gate),
            text if text.ends_with('7') && before == 0 => says(500),
            _ => says(200),
        }
    })
    .await;
    let running = [one.start(), two.engine("host:2:b", &busy()).start()];
    let batch = |from: usize| {
        let of = |number| {
            let settings = [KEY, limits("parallelism=5"), AT_ONCE];
            publish(&sink.url("/"), &settings, &format!("{number}"))
        };
        (from..from + 100).map(of).collect::<Vec<_>>()
    };
    one.messages.publish_all(batch(0)).await.unwrap();
    two.messages.publish_all(batch(100)).await.unwrap();
    sink.until_heard(5).await;
    gate.open();
    assert_eq!(one.all_ended().await["delivered"], 200);
    for running in running {
        stop(running).await;
    }
    assert_eq!(sink.count(), 220);
    assert_eq!(sink.most(), 5);
    one.assert_nothing_is_forgotten().await;
}

async fn a_rate_holds_in_every_period(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(node.publish(&sink.url("/"), &[KEY, limits("rate=3,period=1s")], "x").await);
    }
    let counts = node.all_ended().await;
    stop(running).await;
    assert_eq!(counts["delivered"], 7);
    let mut through = Vec::new();
    for id in ids {
        through.push(node.message(id).await.due_at);
    }
    through.sort();
    // Periods follow each other; in each of them at most three were let through.
    let start = node.store.flow_control("k").await.unwrap().unwrap().created_at;
    let mut periods = std::collections::BTreeMap::new();
    for at in &through {
        *periods.entry(at.since(start).as_secs()).or_insert(0) += 1;
    }
    assert!(periods.len() >= 3 && periods.values().all(|count| *count <= 3), "{periods:?}");
}

async fn a_retry_does_not_keep_others_waiting(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| says(if heard.text() == "bad" { 500 } else { 200 })).await;
    let running = node.start();
    let settings = [KEY, limits("parallelism=1"), ("Upstash-Retry-Delay", "3600000")];
    let bad = node.publish(&sink.url("/"), &settings, "bad").await;
    let good = node.publish(&sink.url("/"), &settings, "good").await;
    node.ended(good, State::Delivered).await;
    stop(running).await;
    assert_eq!(node.message(bad).await.state, State::Throttled);
    node.assert_nothing_is_forgotten().await;
    let later = Node::ahead(&db, crate::support::HOUR * 2).await;
    let running = later.start();
    sink.until_heard(3).await;
    stop(running).await;
}

async fn a_paused_key_keeps_its_messages(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let settings = [KEY, limits("parallelism=5")];
    let first = node.publish(&sink.url("/"), &settings, "x").await;
    node.ended(first, State::Delivered).await;
    node.messages.pause_flow("k", true).await.unwrap();
    let second = node.publish(&sink.url("/"), &settings, "x").await;
    let other = node.publish(&sink.url("/"), &[], "x").await;
    node.ended(other, State::Delivered).await;
    let flow = node.messages.flow("k").await.unwrap();
    assert_eq!((flow.waiting, flow.active, flow.control.paused), (1, 0, true));
    node.messages.pause_flow("k", false).await.unwrap();
    node.ended(second, State::Delivered).await;
    stop(running).await;
}

async fn pinned_limits_do_not_follow_the_messages(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let first = node.publish(&sink.url("/"), &[KEY, limits("parallelism=1")], "x").await;
    node.messages.pin_flow("k", Pin { parallelism: Some(2), ..Pin::default() }).await.unwrap();
    for _ in 0..9 {
        node.publish(&sink.url("/"), &[KEY, limits("parallelism=9")], "x").await;
    }
    let running = node.start();
    sink.until_heard(2).await;
    let flow = node.messages.flow("k").await.unwrap();
    assert_eq!((flow.control.parallelism, flow.active, flow.waiting), (Some(2), 2, 8));
    gate.open();
    node.ended(first, State::Delivered).await;
    assert_eq!(node.all_ended().await["delivered"], 10);
    assert_eq!(sink.most(), 2);
    node.messages.unpin_flow("k", true, false).await.unwrap();
    assert_eq!(node.messages.flow("k").await.unwrap().control.parallelism, Some(2), "until then");
    node.publish(&sink.url("/"), &[KEY, limits("parallelism=9")], "x").await;
    assert_eq!(node.messages.flow("k").await.unwrap().control.parallelism, Some(9));
    stop(running).await;
}

async fn a_reset_begins_a_new_period(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    let settings = [KEY, limits("rate=1,period=1h")];
    let first = node.publish(&sink.url("/"), &settings, "x").await;
    let second = node.publish(&sink.url("/"), &settings, "x").await;
    node.ended(first, State::Delivered).await;
    let other = node.publish(&sink.url("/"), &[], "x").await;
    node.ended(other, State::Delivered).await;
    assert_eq!(node.message(second).await.state, State::Throttled);
    let flow = node.messages.flow("k").await.unwrap();
    assert_eq!((flow.control.period_count, flow.control.period), (1, Duration::from_secs(3600)));
    node.messages.reset_flow_rate("k").await.unwrap();
    node.ended(second, State::Delivered).await;
    stop(running).await;
}

async fn a_queue_and_a_flow_control_are_both_kept(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, before| says(if before == 0 { 500 } else { 200 })).await;
    node.messages.set_queue("q", Some(4), None).await.unwrap();
    let queue = ("Upstash-Queue-Name", "q");
    for number in 0..20 {
        let settings = [queue, KEY, limits("parallelism=2"), AT_ONCE];
        node.publish(&sink.url("/"), &settings, &number.to_string()).await;
    }
    let running = node.start();
    until("requests", async || (sink.count() > 10).then_some(())).await;
    assert!(node.store.active_in_queue("q").await.unwrap() <= 4);
    assert_eq!(node.all_ended().await["delivered"], 20);
    stop(running).await;
    assert_eq!(sink.count(), 40);
    assert!(sink.most() <= 2, "{} at once", sink.most());
}
