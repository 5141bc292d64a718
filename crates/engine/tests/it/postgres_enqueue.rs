//! Orders that an application enqueues inside its own transaction.

use serde_json::{Value, json};
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::{CASE_UNANSWERED, request_digest};
use tashika_testkit::broker::{Account, Act};
use tashika_testkit::database::TestDb;

use crate::support::{KEY, Rig, body, patience, policy, stop};

async fn enqueue(rig: &Rig, key: &str) {
    let payload = body(key);
    rig.db
        .sql(&format!("select tashika.enqueue('orders', 'order', '{key}', '{payload}'::jsonb)"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_in_sql_is_executed_and_found() {
    let rig = Rig::with_keys(TestDb::postgres()).await;
    let running = rig.start(policy());
    enqueue(&rig, KEY).await;

    rig.succeeded(KEY).await;
    assert_eq!(rig.broker.executed(KEY), 1);
    let view = rig.find(KEY).await;
    assert_eq!((view.status, view.case), (LedgerStatus::Succeeded, None));
    let told: Value = serde_json::from_str(&view.body).unwrap();
    assert_eq!((&told["status"], &told["idempotency_key"]), (&json!("ok"), &json!(KEY)));
    let entry = rig.entry(KEY).await;
    assert_eq!(entry.request_digest, request_digest(&body(KEY)));
    // The caller who asks for the same through the front door gets the same answer.
    assert_eq!(rig.replay(KEY).await, (200, told));
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_in_sql_is_accepted_until_it_is_settled() {
    let rig = Rig::with_keys(TestDb::postgres()).await;
    rig.broker.script([Act::refuse("BROKER_REJECTED")]);
    enqueue(&rig, KEY).await;
    let view = rig.find(KEY).await;
    assert_eq!(view.status, LedgerStatus::Accepted);
    let told: Value = serde_json::from_str(&view.body).unwrap();
    assert_eq!(told["status"], json!("accepted"));

    let running = rig.start(policy());
    rig.aborted(KEY).await;
    let view = rig.find(KEY).await;
    assert_eq!((view.status, rig.entry(KEY).await.http_status), (LedgerStatus::Failed, 400));
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_enqueued_in_sql_that_nobody_answers_for_becomes_a_case() {
    let rig = Rig::without_keys(TestDb::postgres()).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.broker.usual_account(Account::Lose);
    enqueue(&rig, KEY).await;

    let running = rig.start(patience(2));
    rig.aborted(KEY).await;
    let view = rig.find(KEY).await;
    assert_eq!(view.status, LedgerStatus::Accepted, "nobody knows");
    assert_eq!(view.case.map(|case| case.kind).as_deref(), Some(CASE_UNANSWERED));
    let resolution = tashika_engine::commands::order::Resolution::NotExecuted;
    rig.orders.resolve(KEY, resolution, "").await.unwrap();
    assert_eq!(rig.find(KEY).await.status, LedgerStatus::Failed);
    assert_eq!(rig.replay(KEY).await.0, 504);
    stop(running).await;
}
