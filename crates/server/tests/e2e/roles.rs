//! Processes that do half of the work.

use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{Broker, KEY, Request, Setup, order, rows};

on_both!(an_api_accepts_and_a_worker_sends, a_switched_off_outbox_accepts_and_does_not_send,);

async fn an_api_accepts_and_a_worker_sends(db: TestDb) {
    let broker = Broker::without_keys().await;
    let setup = Setup::of(&db).broker(&broker);
    let api = setup.clone().role("api").start().await;
    api.accepted(&order(KEY)).await;
    assert_eq!(api.find(KEY).await["status"], "accepted");
    api.stop().await;
    assert_eq!(untouched(&db).await, [["pending", "0", "", "0"]]);
    assert_eq!(broker.scripted.seen().heard, []);

    let worker = setup.clone().role("worker").start().await;
    broker.scripted.until("the execution", |seen| seen.executions.len() == 1).await;
    worker.ask(Request::order(&order("key-0002"))).await.is_problem(404, "NOT_FOUND");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(worker.get(path).await.status, 200, "{path}");
    }
    worker.stop().await;
    let server = setup.start().await;
    server.executed(KEY).await;
    server.stop().await;
}

async fn a_switched_off_outbox_accepts_and_does_not_send(db: TestDb) {
    let broker = Broker::without_keys().await;
    let setup = Setup::of(&db).broker(&broker);
    let server = setup.clone().set("OUTBOX_ENABLED", false).start().await;
    server.accepted(&order(KEY)).await;
    assert_eq!(server.place(&order(KEY)).await.status, 200);
    server.stop().await;
    assert_eq!(untouched(&db).await, [["pending", "0", "", "0"]]);
    assert_eq!(broker.scripted.seen().heard, []);

    let server = setup.start().await;
    server.executed(KEY).await;
    assert_eq!(broker.scripted.executed(KEY), 1);
    server.stop().await;
}

/// Status, attempts, holder, and how often it was claimed: a row that nobody took has a fence of 0.
async fn untouched(db: &TestDb) -> Vec<Vec<String>> {
    rows(&db.url(), "select status, attempts, locked_by, fence from outbox").await
}
