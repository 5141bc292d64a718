//! The network between a process and PostgreSQL: slow, lossy, broken, and partitioned for longer than a lease. The other
//! process has a good line and takes over; what the first one had sent arrives when the line is back, and must not count.
//!
//! A proxy stands in for the network (`testkit::proxy`): not every kernel that tests run on can lose packets.

use std::sync::Arc;
use std::time::Duration;

use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::proxy::{Line, Proxy};

use super::load::Load;
use super::town::{LEASE_SEC, Town};
use super::{books, held_by, seed, taken_over};
use crate::support::Setup;

/// How long a fault lasts: the length of the story, not a wait for something.
const FAULT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_and_a_partition_longer_than_a_lease_postgres() {
    let db = TestDb::postgres();
    let seed = seed();
    let proxy = Proxy::to(&db.url(), seed).await;
    let load = Arc::new(Load::new(Town::with_keys(seed).await, seed));
    let setup = |url: &str| load.town.setup(Setup::on(url)).set("TASHIKA_REQUEST_TIMEOUT_MS", 6000);
    let (far, near) = (setup(&proxy.url()).start().await, setup(&db.url()).start().await);
    Load::prepare(&near).await;
    load.served_by([&far, &near]);
    let mut clients = load.begin();
    clients.until_more(40).await;

    for line in [
        Line::Slow(Duration::from_millis(60)),
        Line::Lossy { percent: 10, resent_after: Duration::from_millis(250) },
    ] {
        proxy.set(line);
        tokio::time::sleep(FAULT).await;
        clients.until_more(20).await;
    }
    proxy.set(Line::Good);
    clients.until_more(20).await;

    for _ in 0..2 {
        loop {
            proxy.set(Line::Partitioned);
            // What had passed before has arrived by then; what is still in its hands stays there.
            tokio::time::sleep(Duration::from_millis(100)).await;
            if held_by(&db.url(), far.pid()).await > 0 {
                break;
            }
            proxy.set(Line::Good);
            clients.until_more(5).await;
        }
        until("the other process to take over", async || {
            (held_by(&db.url(), far.pid()).await == 0).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_secs(LEASE_SEC)).await;
        // What was on its way arrives now.
        proxy.set(Line::Good);
        clients.until_more(40).await;
    }
    proxy.set(Line::Cut);
    tokio::time::sleep(FAULT).await;
    proxy.set(Line::Good);
    clients.until_more(40).await;

    clients.finish().await;
    let taken_over = taken_over(&db.url()).await;
    let title = format!(
        "PostgreSQL behind a bad line, seed {seed}: slow, lossy, two partitions longer than a lease, cut; {taken_over} effects \
         taken over, {} bytes held back and delivered late",
        proxy.held_back()
    );
    assert!(taken_over > 0 && proxy.held_back() > 0, "there was something to fence off");
    books::balance(&title, &load, &db.url(), &near).await;
    far.stop().await;
    near.stop().await;
}
