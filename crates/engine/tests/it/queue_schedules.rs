//! Schedules: each tick once, whoever performs it.

use std::sync::Arc;
use std::time::Duration;

use tashika_domain::message::State;
use tashika_domain::message::address::Destination;
use tashika_domain::message::group::Endpoint;
use tashika_domain::{Lane, LanePolicy, Timestamp};
use tashika_engine::commands::schedule::NewSchedule;
use tashika_engine::{Clock, Rescuer, Running};
use tashika_providers::guard::Guard;
use tashika_store::Claim;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::queue_rig::{Node, Sink, busy, spec};
use crate::support::{HOUR, stop};

on_both!(
    a_tick_fires_once_with_two_processes,
    a_paused_schedule_does_not_fire,
    a_schedule_is_overwritten,
    a_deleted_schedule_does_not_fire,
    a_group_gets_every_firing,
    a_group_that_is_gone_is_told_and_the_next_tick_comes,
    a_firing_meets_a_gate_that_somebody_else_has_just_made,
    a_firing_that_was_given_up_is_not_the_last,
);

/// Minutes from the moment at which all cases begin, on the full minute.
fn minute(minutes: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus(Duration::from_secs(60 * minutes))
}

/// A process in whose eyes it is so late.
async fn at(db: &TestDb, now: Timestamp) -> Node {
    Node::guarded(db, Clock::simulated(now), Guard::off()).await
}

fn every_minute(destination: Destination, settings: &[(&str, &str)]) -> NewSchedule {
    let mut settings = settings.to_vec();
    settings.push(("Upstash-Schedule-Id", "s"));
    if !settings.iter().any(|(name, _)| *name == "Upstash-Cron") {
        settings.push(("Upstash-Cron", "* * * * *"));
    }
    NewSchedule { destination, spec: spec(&settings), body: b"tick"[..].into(), caller_ip: None }
}

async fn stop_all(running: impl IntoIterator<Item = Running>) {
    for running in running {
        stop(running).await;
    }
}

/// Waits until the schedule has fired so often.
async fn fired(node: &Node, count: usize) {
    until("firings", async || (node.all().await.len() >= count).then_some(())).await;
}

async fn a_tick_fires_once_with_two_processes(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    let url = Destination::Url(sink.url("/tick"));
    node.messages.set_schedule(every_minute(url, &[])).await.unwrap();
    for tick in 1..=3 {
        // Just after the tick: whatever is due is due now.
        let now = minute(tick).plus(Duration::from_secs(1));
        let (one, two) = (at(&db, now).await, at(&db, now).await);
        let running =
            [one.engine("host:1:a", &busy()).start(), two.engine("host:2:b", &busy()).start()];
        fired(&one, usize::try_from(tick).unwrap()).await;
        one.all_ended().await;
        stop_all(running).await;
        assert_eq!(sink.count(), usize::try_from(tick).unwrap());
        let schedule = one.messages.schedule("s").await.unwrap();
        assert_eq!(schedule.next_at, Some(minute(tick + 1)));
        assert_eq!(schedule.last_messages.len(), 1);
        let states = one.messages.last_states(&schedule).await.unwrap();
        assert_eq!(states, [(schedule.last_messages[0], State::Delivered)]);
    }
    assert!(sink.heard().iter().all(|heard| heard.header("upstash-schedule-id") == "s"));
    assert_eq!(sink.bodies(), ["tick", "tick", "tick"]);
}

/// Runs a process an hour later, until a message of its own has come through.
async fn an_hour_later(db: &TestDb, sink: &Sink) -> Node {
    let later = at(db, minute(60)).await;
    let running = later.engine("host:1:a", &busy()).start();
    // Timers are claimed as well by then: the marker is one itself.
    let marker = NewSchedule {
        spec: spec(&[("Upstash-Schedule-Id", "marker"), ("Upstash-Cron", "* * * * *")]),
        ..every_minute(Destination::Url(sink.url("/marker")), &[])
    };
    let before = at(db, minute(50)).await;
    before.messages.set_schedule(marker).await.unwrap();
    until("the marker", async || {
        sink.heard().iter().any(|heard| heard.uri.path() == "/marker").then_some(())
    })
    .await;
    later.messages.delete_schedule("marker").await.unwrap();
    stop(running).await;
    later
}

async fn a_paused_schedule_does_not_fire(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    let url = Destination::Url(sink.url("/tick"));
    node.messages.set_schedule(every_minute(url, &[])).await.unwrap();
    node.messages.pause_schedule("s", true).await.unwrap();
    assert_eq!(node.messages.schedule("s").await.unwrap().next_at, None);
    let later = an_hour_later(&db, &sink).await;
    assert!(sink.heard().iter().all(|heard| heard.uri.path() != "/tick"));
    later.messages.pause_schedule("s", false).await.unwrap();
    assert_eq!(later.messages.schedule("s").await.unwrap().next_at, Some(minute(61)));
    let then = at(&db, minute(62)).await;
    let running = then.start();
    until("the tick", async || {
        sink.heard().iter().any(|heard| heard.uri.path() == "/tick").then_some(())
    })
    .await;
    stop(running).await;
}

async fn a_schedule_is_overwritten(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    let old = Destination::Url(sink.url("/old"));
    let name = node.messages.set_schedule(every_minute(old, &[])).await.unwrap();
    let new = Destination::Url(sink.url("/new"));
    let settings = [("Upstash-Cron", "*/5 * * * *"), ("Upstash-Retries", "7")];
    assert_eq!(node.messages.set_schedule(every_minute(new, &settings)).await.unwrap(), name);
    let schedule = node.messages.schedule("s").await.unwrap();
    assert_eq!((schedule.next_at, schedule.asked.retries), (Some(minute(5)), 7));
    assert_eq!(node.messages.schedules().await.unwrap().len(), 1);
    an_hour_later(&db, &sink).await;
    let paths: Vec<String> = sink.heard().iter().map(|heard| heard.uri.path().to_owned()).collect();
    assert!(!paths.contains(&"/old".to_owned()), "{paths:?}");
}

async fn a_deleted_schedule_does_not_fire(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    let url = || Destination::Url(sink.url("/tick"));
    node.messages.set_schedule(every_minute(url(), &[])).await.unwrap();
    node.messages.delete_schedule("s").await.unwrap();
    assert!(node.messages.delete_schedule("s").await.is_err());
    an_hour_later(&db, &sink).await;
    assert!(sink.heard().iter().all(|heard| heard.uri.path() == "/marker"));
    node.messages.set_schedule(every_minute(url(), &[])).await.unwrap();
    assert_eq!(node.messages.schedule("s").await.unwrap().version, 1, "its name is free again");
}

async fn a_group_gets_every_firing(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    let endpoints = ["/a", "/b"].map(|path| Endpoint { url: sink.url(path), name: None });
    node.messages.add_endpoints("team", &endpoints).await.unwrap();
    let team = Destination::Group("team".into());
    node.messages.set_schedule(every_minute(team, &[("Upstash-Delay", "10s")])).await.unwrap();
    let later = at(&db, minute(1)).await;
    let running = later.start();
    fired(&later, 2).await;
    let made = later.all().await;
    assert!(
        made.iter()
            .all(|message| message.not_before == message.created_at.plus(Duration::from_secs(10)))
    );
    stop(running).await;
    let even_later = at(&db, minute(1).plus(Duration::from_secs(30))).await;
    let running = even_later.start();
    even_later.all_ended().await;
    stop(running).await;
    assert_eq!(sink.count(), 2);
}

async fn a_group_that_is_gone_is_told_and_the_next_tick_comes(db: TestDb) {
    let node = at(&db, minute(0)).await;
    let team = Destination::Group("team".into());
    node.messages.set_schedule(every_minute(team, &[])).await.unwrap();
    let later = at(&db, minute(1)).await;
    let running = later.start();
    let schedule = until("a firing", async || {
        let schedule = later.messages.schedule("s").await.unwrap();
        Some(schedule).filter(|schedule| schedule.last_at.is_some())
    })
    .await;
    stop(running).await;
    assert!(schedule.error.is_some_and(|why| why.contains("team")));
    assert_eq!(schedule.next_at, Some(minute(2)));
    assert_eq!(later.all().await.len(), 0);
}

/// Two schedules make the same new queue and the same new key in the same moment: each of them is
/// told of its turn once more, and none waits for a lease.
async fn a_firing_meets_a_gate_that_somebody_else_has_just_made(db: TestDb) {
    let sink = Sink::fine().await;
    let node = at(&db, minute(0)).await;
    for number in 0..16 {
        let name = format!("s{number}");
        let settings = [
            ("Upstash-Cron", "* * * * *"),
            ("Upstash-Schedule-Id", name.as_str()),
            ("Upstash-Queue-Name", "q"),
            ("Upstash-Flow-Control-Key", "k"),
            ("Upstash-Flow-Control-Value", "parallelism=3"),
        ];
        let url = Destination::Url(sink.url("/"));
        let new = NewSchedule { spec: spec(&settings), ..every_minute(url, &[]) };
        node.messages.set_schedule(new).await.unwrap();
    }
    let later = at(&db, minute(1)).await;
    let running = later.start();
    fired(&later, 16).await;
    later.all_ended().await;
    stop(running).await;
    assert_eq!(sink.count(), 16);
}

/// Workers disappear over a firing until it is given up: that tick is lost and told of, the schedule
/// goes on.
async fn a_firing_that_was_given_up_is_not_the_last(db: TestDb) {
    let node = at(&db, minute(0)).await;
    let url = Destination::Url("https://a.example/".into());
    node.messages.set_schedule(every_minute(url, &[])).await.unwrap();
    let later = at(&db, minute(1)).await;
    let now = later.clock.now();
    let claim = Claim { lane: &Lane::TIMERS, worker: "host:9:dead", now, limit: 9 };
    let claimed = later.store.claim(claim).await.unwrap();
    assert_eq!(claimed.len(), 1);
    db.last_heard(claimed[0].id, now.minus(HOUR)).await;
    let last = LanePolicy { max_attempts: 1, ..busy() };
    let rescuer = Rescuer::new(Arc::new(later.engine("host:1:a", &last)));
    assert_eq!(rescuer.sweep_lane(&Lane::TIMERS, &last, now).await.unwrap().rescued, 1);
    let schedule = later.messages.schedule("s").await.unwrap();
    assert_eq!(schedule.next_at, Some(minute(2)));
    assert!(schedule.error.is_some());
}
