//! PostgreSQL crashes, cuts connections, keeps statements waiting and refuses to write, one after the other, while the
//! whole load goes on. A server of the test's own, with two processes of ours on it.

use std::sync::Arc;
use std::time::Duration;

use tashika_testkit::gate::until;
use tashika_testkit::postgres::Cluster;
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio_postgres::NoTls;

use super::load::{Clients, Load};
use super::town::Town;
use super::{books, seed};
use crate::support::{Setup, rows};

/// How long a fault lasts: the length of the story, not a wait for something.
const FAULT: Duration = Duration::from_secs(4);

/// What a fault did to the clients.
struct Watch<'a> {
    load: &'a Load,
    what: &'static str,
    before: (usize, usize),
}

impl<'a> Watch<'a> {
    fn begin(load: &'a Load, what: &'static str) -> Self {
        let tally = load.tally.lock().unwrap();
        Self { load, what, before: (tally.total(), tally.refused.values().sum()) }
    }

    fn refused(&self) -> usize {
        self.load.tally.lock().unwrap().refused.values().sum::<usize>() - self.before.1
    }

    /// Waits until somebody was refused: the fault is felt.
    async fn felt(&self) {
        until(self.what, async || (self.refused() > 0).then_some(())).await;
    }

    /// The fault is over; waits until things go on.
    async fn over(self, clients: &mut Clients) {
        let (during, refused) = (self.load.acknowledgements() - self.before.0, self.refused());
        let since = Instant::now();
        clients.until_more(1).await;
        let back = since.elapsed();
        clients.until_more(30).await;
        println!(
            "{}: {during} acknowledged and {refused} refused meanwhile, the next acknowledgement {back:.0?} after it",
            self.what
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_the_database_under_mixed_load_postgres() {
    let mut cluster = block_in_place(Cluster::start);
    let url = cluster.url().to_owned();
    let seed = seed();
    let load = Arc::new(Load::new(Town::with_keys(seed).await, seed));
    let setup = load.town.setup(Setup::on(&url)).set("TASHIKA_REQUEST_TIMEOUT_MS", 6000);
    let servers = [setup.start().await, setup.start().await];
    Load::prepare(&servers[0]).await;
    load.served_by(&servers);
    let mut clients = load.begin();
    clients.until_more(40).await;

    let watch = Watch::begin(&load, "PostgreSQL crashed and was away");
    block_in_place(|| cluster.stop_immediately());
    watch.felt().await;
    tokio::time::sleep(FAULT).await;
    block_in_place(|| cluster.restart());
    watch.over(&mut clients).await;

    let watch = Watch::begin(&load, "all connections were cut, ten times");
    for _ in 0..10 {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'tashika'";
        rows(&url, sql).await;
        tokio::time::sleep(FAULT / 10).await;
    }
    watch.over(&mut clients).await;

    let watch = Watch::begin(&load, "a stranger held a lock, and statements ran out of time");
    let (stranger, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    stranger.batch_execute("begin; lock table outbox in access exclusive mode").await.unwrap();
    watch.felt().await;
    tokio::time::sleep(FAULT).await;
    drop(stranger);
    connection.await.unwrap().unwrap();
    watch.over(&mut clients).await;

    let watch = Watch::begin(&load, "the database was read-only");
    rows(&url, "alter system set default_transaction_read_only = on").await;
    rows(&url, "select pg_reload_conf()").await;
    watch.felt().await;
    let shown = servers[0].get("/payments?limit=1").await;
    assert_eq!(shown.status, 200, "reading goes on: {shown:?}");
    tokio::time::sleep(FAULT).await;
    rows(&url, "alter system reset default_transaction_read_only").await;
    rows(&url, "select pg_reload_conf()").await;
    watch.over(&mut clients).await;

    clients.finish().await;
    let title = format!("PostgreSQL, seed {seed}: crash, cut connections, locks, read-only");
    books::balance(&title, &load, &url, &servers[0]).await;
    for server in servers {
        server.stop().await;
    }
    let verdict = setup.print(&["audit", "verify"]).await;
    assert!(verdict.starts_with("intact"), "{verdict}");
}
