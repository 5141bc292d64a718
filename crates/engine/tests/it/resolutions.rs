//! What a person decides about an order that nobody answered for.

use serde_json::{Value, json};
use tashika_domain::Status;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::{Execution, Fill};
use tashika_engine::Clock;
use tashika_engine::commands::order::{Resolution, ResolveError};
use tashika_testkit::broker::{Account, Act};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{KEY, Rig, patience, policy, stop};

on_both!(
    executed_settles_the_ledger_with_the_execution,
    executed_corrects_a_ledger_that_says_failed,
    not_executed_settles_the_ledger_as_failed,
    resend_sends_without_asking,
    resend_gives_a_failed_order_another_life,
    a_requeued_order_in_doubt_is_asked_about_first,
    only_an_open_case_can_be_resolved,
);

fn execution() -> Resolution {
    let ts = Clock::System.now();
    Resolution::Executed(Execution {
        order_ref: "as the broker's statement says".into(),
        fills: vec![Fill { px: 150.0, qty: 1.0, ts }],
        cost: 0.0,
        warnings: vec![],
    })
}

/// An order whose answer was lost and that the broker does not want to talk about.
async fn unanswered(rig: &Rig) {
    rig.broker.script_for(KEY, [Act::ExecuteThenLose]);
    rig.broker.account([Account::Lose]);
    rig.place(KEY).await;
    let running = rig.start(patience(2));
    rig.aborted(KEY).await;
    stop(running).await;
    assert_eq!(rig.open_cases(KEY).await.len(), 1);
}

async fn executed_settles_the_ledger_with_the_execution(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    unanswered(&rig).await;

    rig.orders.resolve(KEY, execution(), "seen in the statement").await.unwrap();

    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, &told["status"]), (200, &json!("ok")));
    assert_eq!(told["broker"]["order_ref"], json!("as the broker's statement says"));
    let view = rig.find(KEY).await;
    assert_eq!((view.status, view.case), (LedgerStatus::Succeeded, None));
    assert_eq!(rig.open_cases(KEY).await, []);
}

async fn executed_corrects_a_ledger_that_says_failed(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose, Act::LoseBefore]);
    rig.place(KEY).await;
    let running = rig.start(patience(2));
    rig.aborted(KEY).await;
    stop(running).await;
    assert_eq!(rig.entry(KEY).await.http_status, 504);

    rig.orders.resolve(KEY, execution(), "").await.unwrap();

    assert_eq!(rig.replay(KEY).await.0, 200);
    assert_eq!(rig.find(KEY).await.status, LedgerStatus::Succeeded);
    assert_eq!(rig.open_cases(KEY).await, []);
}

async fn not_executed_settles_the_ledger_as_failed(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    unanswered(&rig).await;

    rig.orders.resolve(KEY, Resolution::NotExecuted, "they have no trace of it").await.unwrap();

    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, &told["reason_code"]), (504, &json!("BROKER_TIMEOUT")));
    assert_eq!(told["fills"], json!([]));
    let view = rig.find(KEY).await;
    assert_eq!((view.status, view.case), (LedgerStatus::Failed, None));
    assert_eq!(rig.row(KEY).await.status, Status::Aborted);
}

async fn resend_sends_without_asking(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::LoseBefore]);
    rig.broker.account([Account::Lose]);
    rig.place(KEY).await;
    let running = rig.start(patience(2));
    rig.aborted(KEY).await;

    rig.orders.resolve(KEY, Resolution::Resend, "").await.unwrap();

    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (0, false));
    assert_eq!((rig.broker.sent(KEY), rig.broker.asked(KEY)), (2, 1), "the person has answered");
    assert_eq!(rig.broker.executed(KEY), 1);
    let view = rig.find(KEY).await;
    assert_eq!((view.status, view.case), (LedgerStatus::Succeeded, None));
    assert_eq!(rig.open_cases(KEY).await, []);
    stop(running).await;
}

async fn resend_gives_a_failed_order_another_life(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::LoseBefore, Act::LoseBefore]);
    rig.place(KEY).await;
    let running = rig.start(patience(2));
    rig.aborted(KEY).await;
    stop(running).await;

    rig.orders.resolve(KEY, Resolution::Resend, "").await.unwrap();

    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, &told["status"]), (200, &json!("accepted")));
    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    assert_eq!(rig.replay(KEY).await.1["status"], json!("ok"));
    assert_eq!(rig.broker.executed(KEY), 1);
    stop(running).await;
}

/// A requeue is no answer.
async fn a_requeued_order_in_doubt_is_asked_about_first(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    unanswered(&rig).await;

    rig.outbox.requeue(rig.row(KEY).await.id).await.unwrap();

    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (1, 1));
    let told: Value = serde_json::from_str(&rig.entry(KEY).await.response).unwrap();
    assert_eq!(told["status"], json!("ok"));
    assert_eq!(rig.open_cases(KEY).await, [], "the broker has answered after all");
    stop(running).await;
}

async fn only_an_open_case_can_be_resolved(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    let resolve = async |key: &'static str| rig.orders.resolve(key, execution(), "").await;
    assert!(matches!(resolve("key-0009").await, Err(ResolveError::Unknown)));
    rig.place("key-0002").await;
    assert!(matches!(resolve("key-0002").await, Err(ResolveError::NoCase)));

    unanswered(&rig).await;
    resolve(KEY).await.unwrap();
    let settled = rig.entry(KEY).await;
    let again = rig.orders.resolve(KEY, Resolution::NotExecuted, "").await;
    assert!(matches!(again, Err(ResolveError::NoCase)), "{again:?}");
    assert_eq!(rig.entry(KEY).await, settled);
}
