//! Messages that go straight into the hands of the process that took them.

use std::time::Duration;

use tashika_domain::effect::EffectId;
use tashika_domain::message::asked::Asked;
use tashika_domain::message::{Begin, Draft, Logged, Message, State, accept, cancel};
use tashika_domain::{LanePolicy, Status};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::queue_rig::{AT_ONCE, Node, Sink, busy, says};
use crate::support::{HOUR, stop};

on_both!(
    a_delivered_message_leaves_no_effect_behind,
    a_message_that_fails_is_an_effect_like_any_other,
    a_message_whose_holder_is_gone_is_delivered_by_another,
    a_cancelled_message_whose_holder_is_gone_is_let_go,
    a_holder_that_was_given_up_too_early_writes_nothing,
    a_holder_that_takes_long_stays_the_holder,
    what_is_in_hand_and_not_begun_goes_back_at_the_end,
    a_message_for_a_long_line_stands_behind_it_from_the_beginning,
    a_new_message_does_not_wait_for_all_that_came_before,
);

async fn a_delivered_message_leaves_no_effect_behind(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let running = node.start();
    // Before that, perhaps nobody worked yet, and there was no place.
    let id = in_hand(&node, &sink.url("/")).await;
    let message = node.ended(id, State::Delivered).await;
    stop(running).await;
    assert_eq!(message.held, None);
    assert_eq!(node.effect_status(id).await, None);
    assert_eq!(node.logged(id).await, [Logged::Delivered]);
}

/// Publishes until a message has found a place; the others are delivered as well.
async fn in_hand(node: &Node, url: &str) -> Uuid {
    until("a place", async || {
        let id = node.publish(url, &[AT_ONCE], "x").await;
        let ended = until("the end", async || {
            Some(node.message(id).await).filter(|message| message.state.is_over())
        });
        ended.await;
        node.effect_status(id).await.is_none().then_some(id)
    })
    .await
}

async fn a_message_that_fails_is_an_effect_like_any_other(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|_, before| says(if before < 2 { 500 } else { 200 })).await;
    let running = node.start();
    let id = node.publish(&sink.url("/"), &[AT_ONCE], "x").await;
    node.ended(id, State::Delivered).await;
    stop(running).await;
    let effect = node.store.effect(EffectId(id)).await.unwrap().expect("it has a row");
    assert_eq!((effect.status, effect.attempts), (Status::Succeeded, 2));
    assert_eq!(effect.fence, 3, "each attempt has its own");
    assert_eq!(node.logged(id).await, [Logged::Error, Logged::Error, Logged::Delivered]);
}

/// A message in the hands of a process that is no more.
async fn orphan(node: &Node, url: String) -> Message {
    let now = node.clock.now();
    let (message, changes) = accept(Draft {
        id: node.fresh_id(),
        asked: Asked { url, ..Asked::default() }.into(),
        body: b"x"[..].into(),
        not_before: None,
        dedup_key: None,
        holds: None,
        traceparent: None,
        now,
        expires_at: now.plus(HOUR),
        begin: Begin::InHand("host:9:gone".into()),
    });
    node.store.commit(changes).await.unwrap();
    message
}

async fn a_message_whose_holder_is_gone_is_delivered_by_another(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let id = orphan(&node, sink.url("/")).await.id;
    let running = node.start();
    let other = node.publish(&sink.url("/other"), &[], "x").await;
    node.ended(other, State::Delivered).await;
    stop(running).await;
    assert_eq!(sink.count(), 1, "not before its lease is over");
    let later = Node::ahead(&db, HOUR).await;
    let running = later.start();
    later.ended(id, State::Delivered).await;
    stop(running).await;
    assert_eq!(later.logged(id).await, [Logged::Lapsed, Logged::Delivered]);
    assert_eq!(sink.heard()[1].header("upstash-retried"), "0", "a crash of ours is no retry");
    later.assert_nothing_is_forgotten().await;
}

async fn a_cancelled_message_whose_holder_is_gone_is_let_go(db: TestDb) {
    let (node, sink) = (Node::new(&db).await, Sink::fine().await);
    let message = orphan(&node, sink.url("/")).await;
    let changes = cancel(&message, node.clock.now()).expect("it has not ended");
    node.store.commit(changes).await.unwrap();
    let later = Node::ahead(&db, HOUR).await;
    let running = later.start();
    until("nobody has it", async || later.message(message.id).await.held.is_none().then_some(()))
        .await;
    stop(running).await;
    assert_eq!(sink.count(), 0);
    assert_eq!(later.message(message.id).await.state, State::Cancelled);
    assert_eq!(later.effect_status(message.id).await, None);
    assert_eq!(later.logged(message.id).await, [Logged::Cancelled, Logged::Lapsed]);
}

async fn a_holder_that_was_given_up_too_early_writes_nothing(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, before| match (heard.uri.path(), before) {
            ("/slow", 0) => says(500).behind(&gate),
            _ => says(200),
        }
    })
    .await;
    let running = node.start();
    let warm = in_hand(&node, &sink.url("/warm")).await;
    let id = node.publish(&sink.url("/slow"), &[AT_ONCE], "x").await;
    until("its first attempt", async || {
        sink.heard().iter().any(|heard| heard.uri.path() == "/slow").then_some(())
    })
    .await;
    assert!(node.message(id).await.held.is_some());
    // By its clock the first one's lease is long over.
    let later = Node::ahead(&db, HOUR).await;
    let other = later.engine("host:2:b", &busy()).start();
    let delivered = later.ended(id, State::Delivered).await;
    gate.open();
    let last = node.publish(&sink.url("/last"), &[AT_ONCE], "x").await;
    node.ended(last, State::Delivered).await;
    stop(running).await;
    stop(other).await;
    assert_eq!(node.message(id).await, delivered, "as the second has left it");
    assert_eq!(node.logged(id).await, [Logged::Lapsed, Logged::Delivered]);
    assert_eq!(node.effect_status(id).await, Some(Status::Succeeded));
    assert_ne!(warm, id);
}

async fn a_holder_that_takes_long_stays_the_holder(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, _| match heard.uri.path() {
            "/slow" => says(200).behind(&gate),
            _ => says(200),
        }
    })
    .await;
    let brief = LanePolicy { lease: Duration::from_millis(400), ..busy() };
    let running = node.engine("host:1:a", &brief).start();
    in_hand(&node, &sink.url("/warm")).await;
    let id = node.publish(&sink.url("/slow"), &[AT_ONCE], "x").await;
    let first = node.message(id).await;
    let since = first.held.expect("it is in hand").at;
    until("some leases later", async || {
        let held = node.message(id).await.held.expect("it stays in hand");
        (held.at.since(since) > brief.lease * 3).then_some(())
    })
    .await;
    gate.open();
    node.ended(id, State::Delivered).await;
    stop(running).await;
    assert_eq!(node.logged(id).await, [Logged::Delivered]);
    assert_eq!(node.effect_status(id).await, None);
    let slow = sink.heard().iter().filter(|heard| heard.uri.path() == "/slow").count();
    assert_eq!(slow, 1);
}

async fn what_is_in_hand_and_not_begun_goes_back_at_the_end(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, _| match heard.uri.path() {
            "/slow" => says(200).behind(&gate),
            _ => says(200),
        }
    })
    .await;
    let one = LanePolicy { concurrency: 1, ..busy() };
    let running = node.engine("host:1:a", &one).start();
    in_hand(&node, &sink.url("/warm")).await;
    let begun = node.publish(&sink.url("/slow"), &[AT_ONCE], "x").await;
    until("it is attempted", async || {
        sink.heard().iter().any(|heard| heard.uri.path() == "/slow").then_some(())
    })
    .await;
    let waits = node.publish(&sink.url("/behind"), &[AT_ONCE], "x").await;
    let stopping = tokio::spawn(stop(running));
    until("it goes back", async || {
        (node.effect_status(waits).await == Some(Status::Pending)).then_some(())
    })
    .await;
    gate.open();
    stopping.await.unwrap();
    assert_eq!(node.message(begun).await.state, State::Delivered);
    let message = node.message(waits).await;
    assert_eq!((message.state, message.held), (State::Ready, None));
    let effect = node.store.effect(EffectId(waits)).await.unwrap().expect("it has a row");
    assert_eq!(effect.attempts, 0);
    let running = node.start();
    node.ended(waits, State::Delivered).await;
    stop(running).await;
}

async fn a_message_for_a_long_line_stands_behind_it_from_the_beginning(db: TestDb) {
    let (node, gate) = (Node::with_room(&db, 1).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let running = node.start();
    let mut published = Vec::new();
    // The longer nothing moves, the longer the line.
    let (id, accepted_at) = until("a long line", async || {
        let id = node.publish(&sink.url("/"), &[], "x").await;
        published.push(id);
        let effect = node.store.effect(EffectId(id)).await.unwrap()?;
        let line = effect.next_run_at.since(effect.created_at);
        (effect.fence == 0 && line > Duration::ZERO).then_some((id, effect.created_at))
    })
    .await;
    assert_eq!(node.message(id).await.not_before, accepted_at, "it waits for nothing else");
    gate.open();
    for id in published {
        node.ended(id, State::Delivered).await;
    }
    stop(running).await;
    node.assert_nothing_is_forgotten().await;
}

async fn a_new_message_does_not_wait_for_all_that_came_before(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let mut published = Vec::new();
    for _ in 0..50 {
        published.push(node.publish(&sink.url("/old"), &[], "x").await);
    }
    // More wait in the store than can be claimed, for as long as the gate is closed.
    let one_by_one = LanePolicy { concurrency: 1, batch: 8, ..busy() };
    let running = node.engine("host:1:a", &one_by_one).start();
    sink.until_heard(1).await;
    let last = node.publish(&sink.url("/new"), &[], "x").await;
    assert!(node.message(last).await.held.is_some(), "there is a place");
    published.push(last);
    gate.open();
    for id in published {
        node.ended(id, State::Delivered).await;
    }
    stop(running).await;
    let heard = sink.heard();
    let place = heard.iter().position(|heard| heard.message() == last).expect("it was delivered");
    assert!(place <= 3, "{place} before it");
}
