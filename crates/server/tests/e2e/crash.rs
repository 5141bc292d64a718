//! `kill -9`, again and again, while clients place orders through a broker that fails in every way.
//!
//! The oracle is the broker's own ledger: whatever was acknowledged ends, and is executed at most once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tashika_testkit::broker::{Account, Act};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::support::{Broker, Request, Server, Setup, order, rows};

on_both!(
    killed_ten_times_with_a_broker_that_takes_keys,
    killed_ten_times_with_a_broker_that_does_not,
);

const ROUNDS: usize = 10;
const CLIENTS: usize = 4;
/// Orders that are acknowledged in a round before the process is killed.
const PER_ROUND: usize = 15;

async fn killed_ten_times_with_a_broker_that_takes_keys(db: TestDb) {
    killed_again_and_again(db, Broker::with_keys().await).await;
}

async fn killed_ten_times_with_a_broker_that_does_not(db: TestDb) {
    killed_again_and_again(db, Broker::without_keys().await).await;
}

/// Faults for a round, in a fixed order: about half of the orders meet one.
fn faults(broker: &Broker) {
    broker.scripted.script([
        Act::Execute,
        Act::ExecuteThenLose,
        Act::Execute,
        Act::LoseBefore,
        Act::Fail { executed: true },
        Act::Execute,
        Act::Fail { executed: false },
        Act::busy(),
        Act::Execute,
        Act::ExecuteThenLose,
        Act::Execute,
        Act::refuse("BROKER_BAD_REQUEST"),
        Act::Execute,
    ]);
    broker.scripted.account([Account::Truth, Account::Lose, Account::Busy, Account::Truth]);
}

/// What the clients know: their orders, and whether each was acknowledged.
#[derive(Default)]
struct Clients {
    orders: Mutex<BTreeMap<String, bool>>,
    acknowledged: AtomicUsize,
}

impl Clients {
    /// One client: an order that was not acknowledged is placed again under its key, like any client
    /// would do; then the next one. Until the server is gone.
    async fn place_until_gone(self: Arc<Self>, client: usize, server: SocketAddr) {
        loop {
            let key = self.next(client);
            match Request::order(&order(&key)).send(server).await {
                // Also what failed meanwhile was acknowledged before.
                Ok(answer) if answer.status == 201 || answer.replayed() => {
                    self.orders.lock().unwrap().insert(key, true);
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => panic!("{key}: {answer:?}"),
                Err(_) => return,
            }
        }
    }

    /// The order that this client still waits for, or a new one.
    fn next(&self, client: usize) -> String {
        let mut orders = self.orders.lock().unwrap();
        let own = format!("client-{client}-");
        let open =
            orders.iter().find(|(key, acknowledged)| key.starts_with(&own) && !**acknowledged);
        if let Some((key, _)) = open {
            return key.clone();
        }
        let key = format!("{own}{:04}", orders.len());
        orders.insert(key.clone(), false);
        key
    }
}

async fn killed_again_and_again(db: TestDb, broker: Broker) {
    let setup = Setup::of(&db)
        .broker(&broker)
        .set("OUTBOX_LOCK_LEASE_SEC", 2)
        .set("BROKER_TIMEOUT_MS", 1000)
        .set("OUTBOX_BACKOFF_SEC", "0.05");
    let clients = Arc::new(Clients::default());
    for round in 1..=ROUNDS {
        faults(&broker);
        let server = setup.start().await;
        let mut placing = JoinSet::new();
        for client in 0..CLIENTS {
            placing.spawn(Arc::clone(&clients).place_until_gone(client, server.address));
        }
        until("acknowledgements", async || {
            (clients.acknowledged.load(Ordering::Relaxed) >= round * PER_ROUND).then_some(())
        })
        .await;
        // In the middle of sending.
        let sent = broker.scripted.seen().sends();
        broker.scripted.until_sends(sent + 1).await;
        server.kill().await;
        placing.join_all().await;
    }
    let server = setup.start().await;
    let acknowledged: Vec<String> = {
        let orders = clients.orders.lock().unwrap();
        orders
            .iter()
            .filter(|(_, acknowledged)| **acknowledged)
            .map(|(key, _)| key.clone())
            .collect()
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for key in &acknowledged {
        *counts.entry(check(&server, &broker, key).await).or_default() += 1;
    }
    // What was not acknowledged may have been accepted all the same; it must not be executed twice.
    for key in clients.orders.lock().unwrap().keys() {
        assert!(broker.scripted.executed(key) <= 1, "{key} was executed twice");
    }
    until("every effect to end", async || {
        let sql = "select count(*) from outbox where status not in ('succeeded', 'aborted')";
        (rows(&db.url(), sql).await == [["0"]]).then_some(())
    })
    .await;
    server.stop().await;
    assert!(broker.server.turned_away().is_empty());
    let seen = broker.scripted.seen();
    println!(
        "{ROUNDS} kills, {} acknowledged: {counts:?}; the broker got {} sends and executed {}",
        acknowledged.len(),
        seen.sends(),
        seen.executions.len(),
    );
    assert!(counts.get("executed").is_some_and(|count| *count > ROUNDS), "{counts:?}");
}

/// Waits for the end of an order and compares it with the broker's ledger.
async fn check(server: &Server, broker: &Broker, key: &str) -> &'static str {
    let ended = |found: &Value| found["status"] != "accepted" || found["case"].is_object();
    let found =
        until(&format!("the end of {key}"), async || Some(server.find(key).await).filter(ended))
            .await;
    let executed = broker.scripted.executed(key);
    if found["case"].is_object() {
        assert!(executed <= 1, "{key} was executed {executed} times: {found}");
        return "case";
    }
    if found["status"] == "ok" {
        assert_eq!(executed, 1, "{key} succeeded: {found}");
        return "executed";
    }
    // Told as failed without a case: then it must not have happened.
    assert_eq!(executed, 0, "{key} failed: {found}");
    "failed"
}
