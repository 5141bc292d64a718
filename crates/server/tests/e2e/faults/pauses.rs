//! A process stands still (SIGSTOP) for longer than its leases, and goes on as if nothing had happened.
//!
//! On PostgreSQL a second process takes over meanwhile, and what the first one still believes to be its own must not be
//! written. On SQLite there is no second process: the one that slept finds its own leases over.

use std::sync::Arc;
use std::time::Duration;

use tashika_store::Dialect;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use super::load::Load;
use super::town::{LEASE_SEC, Town};
use super::{books, held_by, seed, taken_over};
use crate::support::{Server, Setup};

on_both!(suspended_for_longer_than_a_lease);

const PAUSES: usize = 2;

/// Suspends a process that has effects in its hands.
async fn suspend_in_the_middle(server: &Server, db: &TestDb) {
    loop {
        server.signal("STOP").await;
        if held_by(&db.url(), server.pid()).await > 0 {
            return;
        }
        server.signal("CONT").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn suspended_for_longer_than_a_lease(db: TestDb) {
    let seed = seed();
    // Who wakes up in the middle of sending sends: only keys can help there.
    let load = Arc::new(Load::new(Town::with_keys(seed).await, seed));
    let setup = load.town.setup(Setup::of(&db));
    let mut servers = vec![setup.start().await];
    if db.dialect() == Dialect::Postgres {
        servers.push(setup.start().await);
    }
    Load::prepare(&servers[0]).await;
    load.served_by(&servers);
    let mut clients = load.begin();
    clients.until_more(40).await;
    for pause in 0..PAUSES {
        let sleeper = &servers[pause % servers.len()];
        suspend_in_the_middle(sleeper, &db).await;
        if servers.len() > 1 {
            until("the other one to take over", async || {
                (held_by(&db.url(), sleeper.pid()).await == 0).then_some(())
            })
            .await;
            clients.until_more(20).await;
        }
        tokio::time::sleep(Duration::from_secs(LEASE_SEC * 2)).await;
        sleeper.signal("CONT").await;
        clients.until_more(40).await;
    }
    clients.finish().await;
    let taken_over = taken_over(&db.url()).await;
    let title = format!(
        "{:?}, seed {seed}: {PAUSES} pauses of more than {} s with leases of {LEASE_SEC} s, {taken_over} effects taken over",
        db.dialect(),
        LEASE_SEC * 2
    );
    books::balance(&title, &load, &db.url(), &servers[0]).await;
    for server in servers {
        server.stop().await;
    }
}
