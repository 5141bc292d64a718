//! Somebody else holds the file's write lock: as if the database were away.

use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;

use crate::support::{Broker, KEY, Setup, order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_file_refuses_and_recovers_sqlite() {
    let db = TestDb::sqlite();
    let broker = Broker::without_keys().await;
    let server = Setup::of(&db).broker(&broker).start().await;
    server.accepted(&order("before-001")).await;
    server.executed("before-001").await;

    let stranger = rusqlite::Connection::open(db.url().strip_prefix("sqlite:").unwrap()).unwrap();
    stranger.busy_timeout(tashika_testkit::gate::PATIENCE).unwrap();
    stranger.execute_batch("begin immediate").unwrap();
    let body = order(KEY);
    let (refused, unready) = tokio::join!(server.place(&body), server.get("/readyz"));
    refused.is_problem(503, "STORE_UNAVAILABLE");
    assert!(refused.retry_after() >= 1);
    unready.is_problem(503, "STORE_UNAVAILABLE");
    assert_eq!(server.find("before-001").await["status"], "ok", "reading goes on");
    stranger.execute_batch("rollback").unwrap();

    let answer = until("the order to be taken", async || {
        Some(server.place(&order(KEY)).await).filter(|answer| answer.status != 503)
    })
    .await;
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    server.executed(KEY).await;
    assert_eq!((broker.scripted.sent(KEY), broker.scripted.executed(KEY)), (1, 1));
    until("/readyz", async || (server.get("/readyz").await.status == 200).then_some(())).await;
    server.stop().await;
}
