//! What is accepted comes to an end, whatever happens: crashes, slow destinations, destinations that are down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tashika_domain::LanePolicy;
use tashika_domain::message::conclude::LAPSES_MAX;
use tashika_domain::message::{Logged, State};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::queue_rig::{AT_ONCE, Heard, Node, Sink, busy, publish, says};
use crate::support::{HOUR, stop};

on_both!(
    what_a_dead_process_held_is_delivered_by_the_next,
    lapses_are_no_retries,
    a_message_that_takes_workers_down_is_given_up,
    a_worker_that_was_thought_dead_changes_nothing,
    the_sum_is_right_at_any_moment,
    a_slow_destination_does_not_delay_another,
    a_destination_that_was_down_gets_everything,
    what_is_over_is_pruned_and_nothing_else,
);

/// Short enough to run out within a case.
fn short_lease() -> LanePolicy {
    LanePolicy { lease: Duration::from_millis(800), ..busy() }
}

/// Runs a process of its own, with its own threads, and ends it in the middle of whatever it does.
async fn dies_when(db: &TestDb, worker: &'static str, sink: &Sink, heard: usize) {
    let (url, sink, enough) = (db.url(), sink.clone(), sink.count() + heard);
    let life = move || {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let node = Node::at_url(&url).await;
            let running = node.engine(worker, &short_lease()).start();
            sink.until_heard(enough).await;
            // Still running: nobody says goodbye.
            std::mem::forget(running);
        });
        runtime.shutdown_background();
    };
    tokio::task::spawn_blocking(life).await.unwrap();
}

async fn what_a_dead_process_held_is_delivered_by_the_next(db: TestDb) {
    let node = Node::new(&db).await;
    let gate = Gate::closed();
    let sink = Sink::start({
        let gate = gate.clone();
        move |heard, before| match heard.text().parse::<usize>() {
            Ok(number) if number % 10 == 3 && before == 0 => says(200).behind(&gate),
            Ok(number) if number % 10 == 7 => says(500),
            _ => says(200),
        }
    })
    .await;
    let mut queued = Vec::new();
    for number in 0..60 {
        let body = number.to_string();
        let url = sink.url("/");
        let settings: &[(&str, &str)] = match number % 3 {
            0 => &[AT_ONCE, ("Upstash-Queue-Name", "q")],
            1 => &[
                AT_ONCE,
                ("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "parallelism=4"),
            ],
            _ => &[AT_ONCE],
        };
        node.publish(&url, settings, &body).await;
        if number % 3 == 0 {
            queued.push(body);
        }
    }
    for worker in ["host:1:a", "host:2:b", "host:3:c"] {
        dies_when(&db, worker, &sink, 9).await;
        node.assert_nothing_is_forgotten().await;
    }
    gate.open();
    let running = node.engine("host:9:z", &short_lease()).start();
    let counts = node.all_ended().await;
    stop(running).await;
    assert_eq!((counts["delivered"], counts["failed"]), (54, 6));
    node.assert_nothing_is_forgotten().await;
    let mut order: Vec<String> = sink.bodies();
    order.retain(|body| queued.contains(body));
    order.dedup();
    assert_eq!(order, queued, "first in, first out, also across crashes");
}

async fn lapses_are_no_retries(db: TestDb) {
    let node = Node::new(&db).await;
    let gate = Gate::closed();
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, before| match before {
            0 | 1 => says(200).behind(&gate),
            2 => says(500),
            _ => says(200),
        }
    })
    .await;
    let settings = [AT_ONCE, ("Upstash-Retries", "1")];
    let id = node.publish(&sink.url("/"), &settings, "x").await;
    for worker in ["host:1:a", "host:2:b"] {
        dies_when(&db, worker, &sink, 1).await;
    }
    let running = node.engine("host:9:z", &short_lease()).start();
    node.ended(id, State::Delivered).await;
    stop(running).await;
    let expected = [Logged::Lapsed, Logged::Lapsed, Logged::Error, Logged::Delivered];
    assert_eq!(node.logged(id).await, expected);
    let heard = sink.heard();
    let retried: Vec<&str> = heard.iter().map(|heard| heard.header("upstash-retried")).collect();
    assert_eq!(retried, ["0", "0", "0", "1"], "our crashes are not the caller's retries");
    gate.open();
}

async fn a_message_that_takes_workers_down_is_given_up(db: TestDb) {
    let node = Node::new(&db).await;
    let gate = Gate::closed();
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let id = node.publish(&sink.url("/"), &[AT_ONCE], "x").await;
    let running = node.start();
    let rescue = node.engine("host:2:b", &busy());
    let rescuer = tashika_engine::Rescuer::new(Arc::new(rescue));
    for lapse in 0..=LAPSES_MAX {
        sink.until_heard(lapse as usize + 1).await;
        until("a lease that can be taken away", async || {
            let now = node.clock.now();
            db.last_heard(tashika_domain::EffectId(id), now.minus(HOUR)).await;
            let lane = tashika_domain::Lane::DELIVERIES;
            (rescuer.sweep_lane(&lane, &busy(), now).await.unwrap().rescued > 0).then_some(())
        })
        .await;
    }
    let letter = node.ended(id, State::Failed).await;
    gate.open();
    stop(running).await;
    assert!(letter.dlq_id.is_some());
    let log = node.logged(id).await;
    let lapses = log.iter().filter(|what| **what == Logged::Lapsed).count();
    assert_eq!(lapses, LAPSES_MAX as usize);
    assert_eq!(log.last(), Some(&Logged::Failed));
    assert_eq!(node.message(id).await.state, State::Failed, "an answer that comes late is late");
}

/// Its lease was taken away while it waited for an answer; the message waits at its gate again.
async fn a_worker_that_was_thought_dead_changes_nothing(db: TestDb) {
    let (node, gate) = (Node::new(&db).await, Gate::closed());
    let sink = Sink::start({
        let gate = gate.clone();
        move |_, before| if before == 0 { says(200).behind(&gate) } else { says(200) }
    })
    .await;
    let settings =
        [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", "parallelism=1")];
    let id = node.publish(&sink.url("/"), &settings, "x").await;
    let running = node.start();
    sink.until_heard(1).await;
    node.messages.pause_flow("k", true).await.unwrap();
    let rescue = node.engine("host:2:b", &busy());
    let rescuer = tashika_engine::Rescuer::new(Arc::new(rescue));
    let lane = tashika_domain::Lane::DELIVERIES;
    until("a lease that can be taken away", async || {
        let now = node.clock.now();
        db.last_heard(tashika_domain::EffectId(id), now.minus(HOUR)).await;
        (rescuer.sweep_lane(&lane, &busy(), now).await.unwrap().rescued > 0).then_some(())
    })
    .await;
    let waiting = node.message(id).await;
    assert_eq!(waiting.state, State::Throttled);
    gate.open();
    // Drains what it holds.
    stop(running).await;
    assert_eq!(node.message(id).await, waiting);
    assert_eq!(node.logged(id).await, [Logged::Lapsed]);
    let running = node.start();
    node.messages.pause_flow("k", false).await.unwrap();
    node.ended(id, State::Delivered).await;
    stop(running).await;
    assert_eq!(sink.count(), 2, "at least once");
}

async fn the_sum_is_right_at_any_moment(db: TestDb) {
    let node = Arc::new(Node::new(&db).await);
    let sink = Sink::start(|heard, before| match heard.text().len() % 4 {
        // A destination that answers with 5xx again and again would be spared, for longer than this case.
        0 => says(400),
        1 if before == 0 => says(429),
        _ => says(200),
    })
    .await;
    let running = node.start();
    let mut accepted = 0;
    for round in 0..10_usize {
        let one = |number: usize| {
            let queue = format!("q{}", number % 3);
            let settings = match number % 4 {
                0 => vec![AT_ONCE, ("Upstash-Queue-Name", queue.as_str())],
                1 => vec![
                    AT_ONCE,
                    ("Upstash-Flow-Control-Key", "k"),
                    ("Upstash-Flow-Control-Value", "parallelism=3"),
                ],
                2 => vec![AT_ONCE, ("Upstash-Delay", "1h")],
                _ => vec![AT_ONCE],
            };
            publish(&sink.url("/"), &settings, &"x".repeat(number + round))
        };
        let batch = (0..16).map(one).collect();
        accepted += node.messages.publish_all(batch).await.unwrap().len();
        for message in node.all().await.iter().rev().take(2) {
            node.messages.cancel(message.id).await.unwrap();
        }
        let counted: i64 = node.counts().await.values().sum();
        assert_eq!(usize::try_from(counted).unwrap(), accepted);
    }
    until("all but the delayed", async || {
        let open: Vec<_> =
            node.all().await.into_iter().filter(|message| !message.state.is_over()).collect();
        let now = node.clock.now();
        open.iter().all(|message| message.not_before > now).then_some(())
    })
    .await;
    stop(running).await;
    node.assert_nothing_is_forgotten().await;
    let counts = node.counts().await;
    let ended = ["delivered", "failed", "cancelled"].map(|state| counts.get(state).copied());
    assert!(ended.iter().all(Option::is_some), "{counts:?}");
    assert_eq!(usize::try_from(counts.values().sum::<i64>()).unwrap(), accepted);
}

async fn a_slow_destination_does_not_delay_another(db: TestDb) {
    // Far less than the lane would do at once.
    let (node, gate) = (Node::with_room(&db, 8).await, Gate::closed());
    let slow = Sink::start({
        let gate = gate.clone();
        move |_, _| says(200).behind(&gate)
    })
    .await;
    let fast = Sink::fine().await;
    let running = node.start();
    for _ in 0..20 {
        let batch = (0..100).map(|_| publish(&slow.url("/"), &[], "slow")).collect();
        node.messages.publish_all(batch).await.unwrap();
    }
    slow.until_heard(8).await;
    let began = node.clock.now();
    for _ in 0..5 {
        let id = node.publish(&fast.url("/"), &[], "fast").await;
        node.ended(id, State::Delivered).await;
    }
    let took = node.clock.now().since(began);
    assert_eq!((slow.count(), slow.most()), (8, 8), "none of the slow ones has moved");
    assert!(took < Duration::from_secs(5), "{took:?} for five messages");
    gate.open();
    stop(running).await;
    let later = Node::ahead(&db, HOUR).await;
    let running = later.start();
    assert_eq!(later.all_ended().await["delivered"], 2005);
    stop(running).await;
    let unique: BTreeSet<_> = slow.heard().iter().map(Heard::message).collect();
    assert_eq!((unique.len(), slow.count()), (2000, 2000), "each of them once");
}

async fn a_destination_that_was_down_gets_everything(db: TestDb) {
    let node = Node::new(&db).await;
    let down = Arc::new(AtomicBool::new(true));
    let sink = Sink::start({
        let down = Arc::clone(&down);
        move |_, _| says(if down.load(Ordering::SeqCst) { 503 } else { 200 })
    })
    .await;
    let fast = Sink::fine().await;
    let running = node.start();
    let settings = [("Upstash-Retry-Delay", "100"), ("Upstash-Retries", "1000")];
    let batch = (0..40).map(|_| publish(&sink.url("/"), &settings, "x")).collect();
    node.messages.publish_all(batch).await.unwrap();
    // In trouble after twenty failures in a row; then one attempt at a time, seconds apart. How many were on their way by
    // then is the machine's business.
    sink.until_heard(20).await;
    let other = node.publish(&fast.url("/"), &[], "x").await;
    node.ended(other, State::Delivered).await;
    let before = sink.count();
    until("a probe", async || (sink.count() > before).then_some(())).await;
    assert!(sink.count() < before + 40, "spared: {} and then {}", before, sink.count());
    down.store(false, Ordering::SeqCst);
    stop(running).await;
    let later = Node::ahead(&db, HOUR).await;
    let running = later.start();
    assert_eq!(later.all_ended().await["delivered"], 41);
    stop(running).await;
}

async fn what_is_over_is_pruned_and_nothing_else(db: TestDb) {
    let node = Node::new(&db).await;
    let sink = Sink::start(|heard, _| says(if heard.text() == "bad" { 500 } else { 200 })).await;
    let running = node.start();
    let none = ("Upstash-Retries", "0");
    let bad = node.publish(&sink.url("/"), &[none], "bad").await;
    let good = node.publish(&sink.url("/"), &[none], "good").await;
    let live = node.publish(&sink.url("/"), &[("Upstash-Delay", "7d")], "live").await;
    node.ended(bad, State::Failed).await;
    node.ended(good, State::Delivered).await;
    stop(running).await;
    let later = Node::ahead(&db, HOUR * 24 * 8).await;
    let pruner = tashika_engine::Pruner::new(Arc::new(later.engine("host:1:a", &busy())));
    assert_eq!(pruner.run_once().await.unwrap().messages, 1);
    let left: BTreeSet<_> = later.all().await.iter().map(|message| message.id).collect();
    assert_eq!(left, BTreeSet::from([bad, live]));
    let lines = later.store.lapses(good).await.unwrap();
    assert_eq!(lines, 0);
    let letter = later.message(bad).await;
    assert!(later.messages.bury(&letter).await.unwrap());
    assert_eq!(pruner.run_once().await.unwrap().messages, 1, "buried, it goes as well");
    assert_eq!(later.all().await.len(), 1);
}
