//! SIGTERM: what is open is finished, what was not started goes back, and the process ends with 0.

use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;
use tokio::net::TcpStream;

use crate::support::{Broker, Request, Server, Setup, order, rows};

on_both!(
    what_is_open_is_finished_and_the_rest_goes_back,
    a_second_signal_ends_the_process_at_once,
    what_does_not_end_in_time_is_left_to_its_lease,
);

const ORDERS: usize = 12;
const CONCURRENCY: usize = 2;

fn key(n: usize) -> String {
    format!("order-{n:04}")
}

/// A server whose sends all wait at the gate, with more orders claimed than it may send at once.
async fn under_load(db: &TestDb, broker: &Broker, gate: &Gate, seconds: u32) -> Server {
    broker.scripted.usually(Act::Execute.behind(gate));
    let setup = Setup::of(db)
        .broker(broker)
        .set("OUTBOX_CONCURRENCY", CONCURRENCY)
        .set("BROKER_TIMEOUT_MS", 60_000)
        .set("TASHIKA_SHUTDOWN_SEC", seconds);
    let server = setup.start().await;
    for n in 0..ORDERS {
        server.accepted(&order(&key(n))).await;
    }
    broker.scripted.until("sends", |seen| seen.in_flight == CONCURRENCY).await;
    until("every order to be claimed", async || {
        (statuses(db).await == [["sending".to_owned(), ORDERS.to_string(), "0".to_owned()]])
            .then_some(())
    })
    .await;
    server
}

/// Status, count and attempts of all effects.
async fn statuses(db: &TestDb) -> Vec<Vec<String>> {
    let sql = "select status, count(*), max(attempts) from outbox group by 1 order by 1";
    rows(&db.url(), sql).await
}

async fn stopping(server: &Server) {
    server.signal("TERM").await;
    let stopping = |event: &serde_json::Value| event["message"].to_string().contains("stopping");
    server.log.until("the first signal to be heard", stopping).await;
}

async fn what_is_open_is_finished_and_the_rest_goes_back(db: TestDb) {
    let (broker, gate) = (Broker::without_keys().await, Gate::closed());
    let server = under_load(&db, &broker, &gate, 60).await;
    let late = "order-late";
    let request = Request::order(&order(late)).open(server.address).await;

    stopping(&server).await;

    until("new connections to be refused", async || TcpStream::connect(server.address).await.err())
        .await;
    // The request is still open, and the workers have stopped all the same.
    until("what was not started to go back", async || {
        let unstarted = (ORDERS - CONCURRENCY).to_string();
        let back = ["pending".to_owned(), unstarted, "0".to_owned()];
        let kept = ["sending".to_owned(), CONCURRENCY.to_string(), "0".to_owned()];
        (statuses(&db).await == [back, kept]).then_some(())
    })
    .await;
    let answer = request.finish().await;
    assert_eq!(answer.status, 201, "{answer:?}");
    gate.open();
    let (code, log) = server.ended().await;
    assert_eq!(code, Some(0), "{}", log.text());
    let open = (ORDERS - CONCURRENCY + 1).to_string();
    assert_eq!(
        statuses(&db).await,
        [["pending", &open, "0"], ["succeeded", &CONCURRENCY.to_string(), "0"]],
        "what was accepted last waits too"
    );
    assert_eq!(broker.scripted.seen().executions.len(), CONCURRENCY);

    let next = Setup::of(&db).broker(&broker).start().await;
    for key in (0..ORDERS).map(key).chain([late.to_owned()]) {
        next.executed(&key).await;
        assert_eq!((broker.scripted.sent(&key), broker.scripted.executed(&key)), (1, 1), "{key}");
    }
    next.stop().await;
}

async fn a_second_signal_ends_the_process_at_once(db: TestDb) {
    let (broker, gate) = (Broker::without_keys().await, Gate::closed());
    let server = under_load(&db, &broker, &gate, 3600).await;
    stopping(&server).await;
    server.signal("INT").await;
    let (code, _) = server.ended().await;
    assert_eq!(code, Some(130));
}

async fn what_does_not_end_in_time_is_left_to_its_lease(db: TestDb) {
    let (broker, gate) = (Broker::without_keys().await, Gate::closed());
    let server = under_load(&db, &broker, &gate, 1).await;
    let log = server.stop().await;
    assert!(log.text().contains("did not end in time"), "{}", log.text());
    let (back, kept) = ((ORDERS - CONCURRENCY).to_string(), CONCURRENCY.to_string());
    assert_eq!(statuses(&db).await, [["pending", &back, "0"], ["sending", &kept, "0"]]);
}
