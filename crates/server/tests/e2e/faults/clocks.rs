//! The wall clock is set back and forth by an hour under load.
//!
//! What was due keeps its moment: while the clock is an hour behind, what was put off before waits, and everything new
//! goes on. So the story ends with the latest clock of all. The order of a queue is the order of its moments: what comes
//! after the clock was put back goes before what was waiting then (docs/reliability-faults.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tashika_testkit::shim::Shim;

use super::load::Load;
use super::town::Town;
use super::{books, seed};
use crate::support::{Broker, KEY, Setup, order};

on_both!(the_clock_jumps_by_an_hour, a_clock_that_is_put_back_stops_nobody_from_looking);

const HOUR_SEC: i64 = 3600;

/// How much broker, gateway, mail server and sink have heard.
async fn moved(load: &Load) -> [usize; 4] {
    let town = &load.town;
    let mails = town.office.server.stats().await.accepted;
    let messages = town.sink.heard.attempts.load(Ordering::Relaxed);
    [town.broker.scripted.seen().sends(), town.gateway.world.heard().len(), mails, messages]
}

async fn the_clock_jumps_by_an_hour(db: TestDb) {
    let (shim, seed) = (Shim::build(), seed());
    // After a jump forward every lease is over at once, also of work that goes on.
    let load = Arc::new(Load::new(Town::with_keys(seed).await, seed).out_of_order());
    let mut setup = load
        .town
        .setup(Setup::of(&db))
        // The senders' clocks do not jump.
        .set("WEBHOOK_TOLERANCE_SEC", 4 * HOUR_SEC)
        .set("QUEUE_DEDUP_WINDOW_SEC", 24 * HOUR_SEC);
    for (name, value) in shim.settings() {
        setup = setup.set(name, value);
    }
    let server = setup.start().await;
    Load::prepare(&server).await;
    load.served_by([&server]);
    let mut clients = load.begin();
    clients.until_more(60).await;
    for offset in [-HOUR_SEC, 0, -HOUR_SEC, HOUR_SEC] {
        shim.clock(offset);
        let before = moved(&load).await;
        clients.until_more(60).await;
        // Also what was acknowledged is done, whatever the clock says.
        until("everybody to have been heard from", async || {
            moved(&load).await.iter().zip(&before).all(|(now, then)| *now > then + 3).then_some(())
        })
        .await;
        until("/readyz", async || (server.get("/readyz").await.status == 200).then_some(())).await;
    }
    clients.finish().await;
    let title = format!("{:?}, seed {seed}: clock set to -1 h, back, -1 h, +1 h", db.dialect());
    books::balance(&title, &load, &db.url(), &server).await;
    server.stop().await;
}

/// What another process writes is found by looking: nobody tells a server on SQLite. So the looks must go on.
async fn a_clock_that_is_put_back_stops_nobody_from_looking(db: TestDb) {
    let (shim, broker) = (Shim::build(), Broker::with_keys().await);
    let mut setup = Setup::of(&db).broker(&broker);
    for (name, value) in shim.settings() {
        setup = setup.set(name, value);
    }
    broker.scripted.script([Act::refuse("BROKER_BAD_REQUEST")]);
    let server = setup.start().await;
    server.accepted(&order(KEY)).await;
    assert_eq!(server.settled(KEY).await["status"], "error");
    shim.clock(-HOUR_SEC);
    // Let the server see the other clock first: its last look was an hour ahead.
    server.accepted(&order("another-key")).await;
    server.executed("another-key").await;
    setup.print(&["outbox", "requeue", "--all"]).await;
    server.executed(KEY).await;
    assert_eq!(broker.scripted.executed(KEY), 1);
    server.stop().await;
}
