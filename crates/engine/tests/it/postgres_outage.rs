//! The database is away while orders are in flight.

use std::time::Duration;

use tashika_domain::order::KIND;
use tashika_domain::{Lane, LanePolicy, Status};
use tashika_engine::Clock;
use tashika_store::Store;
use tashika_testkit::broker::{Act, ScriptedBroker};
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::postgres::Cluster;

use crate::support::{REMEMBER, body, engine, orders, place, policy, stop, unlimited};

const ORDERS: usize = 20;

fn key(n: usize) -> String {
    format!("order-{n:02}")
}

/// The server goes when the broker has the orders and has not answered yet, and comes back when
/// `over` says so.
async fn outage(policy: LanePolicy, over: impl AsyncFnOnce()) {
    let mut cluster = tokio::task::block_in_place(Cluster::start);
    let store = Store::open(cluster.url(), 4).await.unwrap();
    let (broker, gate) = (ScriptedBroker::without_keys(), Gate::closed());
    broker.usually(Act::Execute.behind(&gate));
    let orders = orders(&store, Clock::System, unlimited());
    for n in 0..ORDERS {
        place(&orders, &body(&key(n))).await.unwrap();
    }
    let handler = tashika_engine::OrderHandler::new(std::sync::Arc::new(broker.clone()), REMEMBER);
    let policy = LanePolicy { concurrency: ORDERS / 2, ..policy };
    let running = engine(&store, Clock::System, "host:1:a")
        .lane(Lane::ORDERS, policy)
        .effect(KIND, handler)
        .start();
    broker.until("half of the orders", |seen| seen.in_flight == ORDERS / 2).await;

    tokio::task::block_in_place(|| cluster.stop_immediately());
    gate.open();
    broker.until("executions", |seen| seen.executions.len() >= ORDERS / 2).await;
    store.ledger_rows().await.unwrap_err();
    over().await;
    tokio::task::block_in_place(|| cluster.restart());

    for n in 0..ORDERS {
        until("an end", async || {
            let row = store.effect_by_key(KIND, &key(n)).await.ok()??;
            (row.status == Status::Succeeded).then_some(())
        })
        .await;
    }
    stop(running).await;
    for n in 0..ORDERS {
        assert_eq!((broker.sent(&key(n)), broker.executed(&key(n))), (1, 1), "order {n}");
        let entry = orders.find(&key(n)).await.unwrap().unwrap();
        assert_eq!(entry.status.as_str(), "succeeded");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_executed_during_an_outage_is_settled_after_it() {
    outage(policy(), async || {}).await;
}

/// Every lease has run out several times over when the database comes back, those of orders that
/// wait for their turn included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_longer_than_the_lease_executes_nothing_twice() {
    let lease = Duration::from_secs(1);
    let policy = LanePolicy { lease, ..policy() };
    outage(policy, async || {
        let over = Clock::System.now().plus(3 * lease);
        until("the end of every lease", async || (Clock::System.now() > over).then_some(())).await;
    })
    .await;
}
