//! Orders that an application enqueues with SQL, inside its own transaction, while the server runs.

use serde_json::json;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tokio_postgres::NoTls;

use crate::support::{Broker, KEY, Setup, order};

const ENQUEUE: &str = "select tashika.enqueue('orders', 'order', $1, $2)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_with_sql_is_executed_after_the_commit_and_not_before() {
    let db = TestDb::postgres();
    let broker = Broker::without_keys().await;
    let server = Setup::of(&db).broker(&broker).start().await;
    let (mut application, connection) = tokio_postgres::connect(&db.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    application.batch_execute("create table sales (id text primary key)").await.unwrap();

    let rolled_back = application.transaction().await.unwrap();
    rolled_back.execute(ENQUEUE, &[&"never-0001", &order("never-0001")]).await.unwrap();
    rolled_back.rollback().await.unwrap();

    let sale = application.transaction().await.unwrap();
    sale.execute("insert into sales values ('sale-1')", &[]).await.unwrap();
    sale.execute(ENQUEUE, &[&KEY, &order(KEY)]).await.unwrap();
    // An order that comes later and is done shows that the workers have looked.
    server.accepted(&order("later-0001")).await;
    server.executed("later-0001").await;
    assert_eq!(broker.scripted.sent(KEY), 0, "the transaction is open");
    server.get("/do/order/key-0001").await.is_problem(404, "ORDER_NOT_FOUND");

    sale.commit().await.unwrap();
    let result = server.executed(KEY).await;
    assert_eq!(
        (&result["idempotency_key"], &result["instrument"]),
        (&KEY.into(), &"USDJPY".into())
    );
    assert_eq!((broker.scripted.sent(KEY), broker.scripted.executed(KEY)), (1, 1));
    server.get("/do/order/never-0001").await.is_problem(404, "ORDER_NOT_FOUND");
    assert_eq!(broker.scripted.sent("never-0001"), 0);

    // The same key again is the same order, from either side.
    application.execute(ENQUEUE, &[&KEY, &order(KEY)]).await.unwrap();
    let replay = server.place(&order(KEY)).await;
    assert_eq!((replay.status, replay.replayed(), replay.json()), (200, true, result));
    application.execute(ENQUEUE, &[&"later-0001", &order("later-0001")]).await.unwrap();
    application.execute(ENQUEUE, &[&"last-00001", &order("last-00001")]).await.unwrap();
    server.executed("last-00001").await;
    assert_eq!(broker.scripted.seen().executions.len(), 3);
    server.stop().await;
}

/// The ledger knows nothing of such an order until it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_with_sql_cannot_be_placed_again_on_postgres() {
    let db = TestDb::postgres();
    let (broker, gate) = (Broker::without_keys().await, Gate::closed());
    broker.scripted.script([Act::Execute.behind(&gate)]);
    let server = Setup::of(&db).broker(&broker).set("BROKER_TIMEOUT_MS", 60_000).start().await;
    let body = order(KEY);
    db.sql(&format!("select tashika.enqueue('orders', 'order', '{KEY}', '{body}')")).await;
    broker.scripted.until_sends(1).await;
    assert_eq!(server.find(KEY).await["status"], "accepted");
    let repeat = server.place(&body).await;
    repeat.is_problem(409, "IDEMPOTENCY_IN_PROGRESS");
    assert!(repeat.retry_after() >= 1);
    let mut other = body.clone();
    other["qty"] = json!(7);
    server.place(&other).await.is_problem(409, "IDEMPOTENCY_CONFLICT");

    gate.open();
    let result = server.executed(KEY).await;
    let repeat = server.place(&body).await;
    assert_eq!((repeat.status, repeat.replayed(), repeat.json()), (200, true, result));
    server.place(&other).await.is_problem(409, "IDEMPOTENCY_CONFLICT");
    assert_eq!((broker.scripted.sent(KEY), broker.scripted.executed(KEY)), (1, 1));
    server.stop().await;
}

/// Asked for at every moment of its life, an order is never unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_with_sql_is_known_from_its_commit_on_postgres() {
    let db = TestDb::postgres();
    let server = Setup::of(&db).start().await;
    for n in 0..50 {
        let key = format!("order-{n:04}");
        let body = order(&key);
        db.sql(&format!("select tashika.enqueue('orders', 'order', '{key}', '{body}')")).await;
        server.executed(&key).await;
    }
    server.stop().await;
}

/// What cannot be read is given up at once; nobody is asked to send it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_read_is_aborted_on_postgres() {
    let db = TestDb::postgres();
    let broker = Broker::with_keys().await;
    let setup = Setup::of(&db).broker(&broker);
    let server = setup.start().await;
    db.sql(r#"select tashika.enqueue('orders', 'order', 'broken-001', '{"side":"HOLD"}')"#).await;
    let effect = until("the end", async || {
        let list = setup.print_json(&["outbox", "list", "--json", "--status", "aborted"]).await;
        list["items"].get(0).cloned()
    })
    .await;
    assert_eq!((&effect["idempotencyKey"], &effect["attempts"]), (&"broken-001".into(), &1.into()));
    assert_eq!(broker.scripted.seen().sends(), 0);
    server.stop().await;
}
