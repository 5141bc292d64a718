//! Gates that are not there any more, and keys that several processes share.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::message::State;
use tashika_domain::message::gate::{FlowControl, Queue};
use tashika_domain::{Changes, Write};
use tashika_engine::commands::queue::Pin;
use tashika_engine::{KeyRing, Pruner};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::queue_rig::{Node, Sink, busy};
use crate::support::{HOUR, stop};

on_both!(
    a_gate_that_went_away_under_its_messages_comes_back,
    a_flow_control_that_nobody_uses_is_forgotten,
    processes_sign_with_the_same_keys,
);

/// Deleted in the very moment in which somebody came in: nobody waits for ever.
async fn a_gate_that_went_away_under_its_messages_comes_back(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let limits =
        [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", "parallelism=3")];
    let queued = node.publish(&sink.url("/"), &[("Upstash-Queue-Name", "q")], "x").await;
    let throttled = node.publish(&sink.url("/"), &limits, "x").await;
    let deleted_at = Some(node.clock.now());
    let queue = node.store.queue("q").await.unwrap().unwrap();
    let control = node.store.flow_control("k").await.unwrap().unwrap();
    let queue = Queue { deleted_at, version: queue.version + 1, ..queue };
    let control = FlowControl { deleted_at, version: control.version + 1, ..control };
    let gone = Changes::from(Write::QueueUpdate(Box::new(queue)))
        .with(Write::FlowUpdate(Box::new(control)));
    node.store.commit(gone).await.unwrap();
    let running = node.start();
    node.ended(queued, State::Delivered).await;
    node.ended(throttled, State::Delivered).await;
    stop(running).await;
    let flow = node.messages.flow("k").await.unwrap();
    assert_eq!(flow.control.parallelism, Some(3), "with the limits that it asked for");
    assert!(node.messages.queue("q").await.is_ok());
}

/// Keys are often made of what a message is about, a customer or an order: each would stay for ever.
async fn a_flow_control_that_nobody_uses_is_forgotten(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let value = ("Upstash-Flow-Control-Value", "parallelism=3");
    let with = |key| [("Upstash-Flow-Control-Key", key), value];
    let running = node.start();
    for key in ["over", "paused", "pinned"] {
        let id = node.publish(&sink.url("/"), &with(key), "x").await;
        node.ended(id, State::Delivered).await;
    }
    stop(running).await;
    node.messages.pause_flow("paused", true).await.unwrap();
    node.messages.pin_flow("pinned", Pin { parallelism: Some(2), ..Pin::default() }).await.unwrap();
    node.publish(&sink.url("/"), &with("waits"), "x").await;

    let later = Node::ahead(&db, HOUR * 24 * 8).await;
    later.publish(&sink.url("/"), &with("new"), "x").await;
    let pruner = Pruner::new(Arc::new(later.engine("host:1:a", &busy())));
    assert_eq!(pruner.run_once().await.unwrap().flow_controls, 1);
    let left = later.store.flow_controls().await.unwrap();
    let left: Vec<_> = left.iter().map(|control| control.key.as_str()).collect();
    assert_eq!(left, ["new", "paused", "pinned", "waits"]);
    assert_eq!(pruner.run_once().await.unwrap().flow_controls, 0, "once");

    let running = later.start();
    let again = later.publish(&sink.url("/"), &with("over"), "x").await;
    later.ended(again, State::Delivered).await;
    stop(running).await;
    let control = later.store.flow_control("over").await.unwrap().expect("it came back");
    assert_eq!(control.parallelism, Some(3), "with the message's limits");
}

async fn processes_sign_with_the_same_keys(db: TestDb) {
    let node = Node::new(&db).await;
    let (one, two) = (KeyRing::new(node.store.clone(), None), KeyRing::new(db.open().await, None));
    let now = node.clock.now();
    let (first, same) = tokio::join!(one.keys(now), two.keys(now));
    let first = first.unwrap();
    assert_eq!(first, same.unwrap(), "made once");
    assert_ne!(first.current, first.next);
    let rotated = one.rotate(now).await.unwrap();
    assert_eq!(rotated.current, first.next, "receivers know it already");
    assert_eq!(one.current(now).await.unwrap(), rotated.current);
    // The other process hears of it a few seconds later.
    let later = now.plus(Duration::from_secs(6));
    assert_eq!(two.keys(later).await.unwrap(), rotated);
    let (a, b) = tokio::join!(one.rotate(later), two.rotate(later));
    let last = node.store.signing_keys().await.unwrap().unwrap();
    assert_eq!(last.version, 4, "neither of the two is lost");
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(a == last || b == last);
    assert!(a.current == b.next || b.current == a.next);
    let fixed = KeyRing::new(node.store.clone(), Some(("sig_a".into(), "sig_b".into())));
    assert!(fixed.rotate(later).await.is_err());
    assert_eq!(fixed.current(later).await.unwrap(), "sig_a");
}
