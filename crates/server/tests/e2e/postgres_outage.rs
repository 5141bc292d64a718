//! PostgreSQL is away for ten seconds, or stands still, while clients place orders.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tashika_testkit::broker::Act;
use tashika_testkit::gate::until;
use tashika_testkit::postgres::Cluster;
use tokio::task::{JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;

use crate::support::{Answer, Broker, Request, Server, Setup, order, rows};

const CLIENTS: usize = 4;
/// How long the database is away: the length of the story, not a wait for something.
const OUTAGE: Duration = Duration::from_secs(10);

/// What the clients heard.
#[derive(Default)]
struct Heard {
    acknowledged: BTreeSet<String>,
    /// Orders of which nobody knows whether they were taken.
    refused: BTreeSet<String>,
    codes: BTreeSet<String>,
}

/// One client that places one order after the other, whatever it is answered.
async fn place(
    client: usize,
    server: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    stop: CancellationToken,
) {
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    for n in 0.. {
        if stop.run_until_cancelled(pace.tick()).await.is_none() {
            return;
        }
        let key = format!("client-{client}-{n:05}");
        let answer = Request::order(&order(&key)).send(server).await.unwrap();
        let mut heard = heard.lock().unwrap();
        if answer.status == 201 {
            heard.acknowledged.insert(key);
        } else {
            heard.codes.insert(refusal(&answer));
            heard.refused.insert(key);
        }
    }
}

/// The code of a refusal, which must be a 503 that says when to come back.
fn refusal(answer: &Answer) -> String {
    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    answer.is_problem(503, &code);
    assert!(answer.retry_after() >= 1, "{answer:?}");
    code
}

async fn readiness(server: &Server, status: u16) {
    until(&format!("/readyz to answer {status}"), async || {
        let answer = server.get("/readyz").await;
        (answer.status == status).then_some(())
    })
    .await;
}

/// The story: load, `begin`, the outage, `end`, load again, and then nothing may be missing.
async fn outage(begin: fn(&mut Cluster), end: fn(&mut Cluster)) -> BTreeSet<String> {
    let mut cluster = block_in_place(Cluster::start);
    let broker = Broker::without_keys().await;
    let setup = Setup::on(cluster.url())
        .broker(&broker)
        .set("BROKER_TIMEOUT_MS", 1000)
        .set("OUTBOX_LOCK_LEASE_SEC", 3)
        .set("TASHIKA_REQUEST_TIMEOUT_MS", 4000);
    let server = setup.start().await;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let stop = CancellationToken::new();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(place(client, server.address, Arc::clone(&heard), stop.clone()));
    }
    let acknowledged = || heard.lock().unwrap().acknowledged.len();
    until("orders before", async || (acknowledged() > 20).then_some(())).await;
    broker.scripted.script([Act::ExecuteThenLose, Act::LoseBefore, Act::Fail { executed: true }]);

    let over = tokio::time::Instant::now() + OUTAGE;
    block_in_place(|| begin(&mut cluster));
    readiness(&server, 503).await;
    let asked = server.get("/do/order/client-0-00000").await;
    refusal(&asked);
    assert_eq!(server.get("/healthz").await.status, 200, "the process itself is well");
    tokio::time::sleep_until(over).await;
    block_in_place(|| end(&mut cluster));

    readiness(&server, 200).await;
    let before = acknowledged();
    until("orders after", async || (acknowledged() > before + 20).then_some(())).await;
    stop.cancel();
    clients.join_all().await;
    let heard = Arc::into_inner(heard).unwrap().into_inner().unwrap();
    assert!(!heard.refused.is_empty(), "the outage was noticed");
    for key in &heard.acknowledged {
        server.executed(key).await;
        assert_eq!(broker.scripted.executed(key), 1, "{key}");
    }
    // Whoever was refused repeats under the same key, and it is still one order.
    for key in &heard.refused {
        let answer = server.place(&order(key)).await;
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    }
    for key in &heard.refused {
        server.executed(key).await;
        assert_eq!(broker.scripted.executed(key), 1, "{key}");
    }
    let open = "select count(*) from outbox where status <> 'succeeded'";
    assert_eq!(rows(cluster.url(), open).await, [["0"]]);
    server.stop().await;
    println!(
        "{} acknowledged, {} refused ({:?}), {} executions",
        heard.acknowledged.len(),
        heard.refused.len(),
        heard.codes,
        broker.scripted.seen().executions.len(),
    );
    heard.codes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seconds_without_a_database_lose_nothing_and_repeat_nothing() {
    let codes = outage(Cluster::stop_immediately, Cluster::restart).await;
    assert_eq!(codes, BTreeSet::from(["STORE_UNAVAILABLE".to_owned()]));
}

/// Nothing breaks, and nothing answers: requests run into a time limit of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_stands_still_loses_nothing_and_repeats_nothing() {
    let codes = outage(Cluster::freeze, Cluster::thaw).await;
    let known = ["PROCESSING_TIMEOUT", "STORE_UNAVAILABLE"].map(str::to_owned);
    assert!(codes.is_subset(&known.into()), "{codes:?}");
}
