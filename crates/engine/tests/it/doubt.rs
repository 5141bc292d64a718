//! Lost answers: brokers that recognise a repeat, and brokers that have to be asked.

use tashika_domain::effect::LEASE_EXPIRED;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::{CASE_UNANSWERED, KIND, OrderRequest, broker_code};
use tashika_domain::outcome::Reason;
use tashika_domain::{Lane, LanePolicy, Status};
use tashika_engine::Clock;
use tashika_engine::commands::order::Placed;
use tashika_providers::broker::{Broker as _, SendOrder};
use tashika_testkit::broker::{Account, Act, Heard};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::Gate;
use tashika_testkit::on_both;

use crate::support::{HOUR, KEY, Rig, body, claim, effect, enqueue, patience, place, policy, stop};

on_both!(
    with_keys_a_lost_answer_is_sent_again_and_executed_once,
    with_keys_an_order_that_arrives_late_is_executed_once,
    with_keys_an_order_lost_for_ever_fails_and_becomes_a_case,
    with_keys_a_refusal_after_a_lost_answer_becomes_a_case,
    without_keys_an_executed_order_is_found_and_not_sent_again,
    without_keys_an_order_that_never_arrived_is_sent_once_more,
    without_keys_a_rejected_order_fails_without_a_case,
    without_keys_an_order_that_nobody_answers_for_becomes_a_case,
    without_keys_an_order_that_is_worked_on_for_ever_becomes_a_case,
    without_keys_a_busy_broker_is_asked_again,
    without_keys_a_panic_is_asked_about,
    without_keys_a_dead_workers_order_is_asked_about,
    without_keys_a_dead_workers_last_attempt_becomes_a_case,
    without_keys_an_applications_unanswered_order_keeps_its_key,
    doubt_that_was_answered_is_gone,
);

fn send() -> Heard {
    Heard::Send(KEY.into())
}

fn status() -> Heard {
    Heard::Status(KEY.into())
}

async fn with_keys_a_lost_answer_is_sent_again_and_executed_once(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose, Act::Fail { executed: true }, Act::ExecuteThenLose]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (3, false));
    assert_eq!(rig.broker.seen().heard, [send(), send(), send(), send()], "nobody has to ask");
    assert_eq!(rig.broker.executed(KEY), 1);
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Succeeded);
    assert_eq!(rig.open_cases(KEY).await, []);
    stop(running).await;
}

async fn with_keys_an_order_that_arrives_late_is_executed_once(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let late = Gate::closed();
    rig.broker.script([Act::Late(late.clone())]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    late.open();
    // One more execution of another order: whatever arrived before it has arrived.
    rig.place("key-0002").await;
    rig.succeeded("key-0002").await;
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (2, 1));
    stop(running).await;
}

async fn with_keys_an_order_lost_for_ever_fails_and_becomes_a_case(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.usually(Act::LoseBefore);
    rig.place(KEY).await;

    let running = rig.start(patience(3));
    let row = rig.aborted(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (3, true));
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 504));
    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, told["reason_code"].as_str()), (504, Some("BROKER_TIMEOUT")));
    let cases = rig.open_cases(KEY).await;
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].kind, CASE_UNANSWERED);
    assert_eq!(cases[0].actions, ["executed", "not_executed", "resend"]);
    assert_eq!(rig.broker.sent(KEY), 3);
    stop(running).await;
}

async fn with_keys_a_refusal_after_a_lost_answer_becomes_a_case(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose, Act::refuse(broker_code::BAD_REQUEST)]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert!(row.in_doubt, "the second was refused; the first may have been executed");
    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, told["reason_code"].as_str()), (504, Some("BROKER_TIMEOUT")));
    assert_eq!(rig.open_cases(KEY).await.len(), 1);
    stop(running).await;
}

async fn without_keys_an_executed_order_is_found_and_not_sent_again(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (1, false));
    assert_eq!(rig.broker.seen().heard, [send(), status()]);
    assert_eq!(rig.broker.executed(KEY), 1);
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Succeeded, 200));
    assert!(entry.response.contains("B-1"), "{}", entry.response);
    stop(running).await;
}

async fn without_keys_an_order_that_never_arrived_is_sent_once_more(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::LoseBefore]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    assert_eq!(rig.broker.seen().heard, [send(), status(), send()]);
    assert_eq!(rig.broker.executed(KEY), 1);
    stop(running).await;
}

async fn without_keys_a_rejected_order_fails_without_a_case(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::LoseBefore]);
    rig.broker.account([Account::Rejected(Reason::new("BROKER_REJECTED", "no margin"))]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert!(!row.in_doubt, "the broker has answered");
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 400));
    assert_eq!(rig.open_cases(KEY).await, []);
    assert_eq!(rig.broker.seen().heard, [send(), status()]);
    stop(running).await;
}

/// The ledger stays as it was: whatever it said would be a guess.
async fn unanswered(rig: &Rig, policy: LanePolicy, asked: usize) {
    rig.place(KEY).await;
    let accepted = rig.entry(KEY).await;

    let running = rig.start(policy);
    let row = rig.aborted(KEY).await;
    assert!(row.in_doubt);
    assert_eq!(rig.entry(KEY).await, accepted);
    let view = rig.find(KEY).await;
    assert_eq!(view.status, LedgerStatus::Accepted);
    assert_eq!(view.case.map(|case| case.kind).as_deref(), Some(CASE_UNANSWERED));
    assert_eq!((rig.broker.sent(KEY), rig.broker.asked(KEY)), (1, asked));
    stop(running).await;
}

async fn without_keys_an_order_that_nobody_answers_for_becomes_a_case(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.broker.usual_account(Account::Lose);
    unanswered(&rig, patience(4), 3).await;
    assert_eq!(rig.broker.executed(KEY), 1);
}

async fn without_keys_an_order_that_is_worked_on_for_ever_becomes_a_case(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::LoseBefore]);
    rig.broker.usual_account(Account::Working);
    unanswered(&rig, patience(3), 2).await;
}

async fn without_keys_a_busy_broker_is_asked_again(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.broker.account([Account::Busy, Account::Lose, Account::Working]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.succeeded(KEY).await;
    assert_eq!(row.attempts, 4);
    assert_eq!(rig.broker.seen().heard, [send(), status(), status(), status(), status()]);
    assert_eq!(rig.broker.executed(KEY), 1);
    stop(running).await;
}

async fn without_keys_a_panic_is_asked_about(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::Panic("in the middle of it")]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    rig.succeeded(KEY).await;
    assert_eq!(rig.broker.seen().heard, [send(), status(), send()]);
    assert_eq!(rig.broker.executed(KEY), 1);
    stop(running).await;
}

/// A worker that sent an order an hour ago and was never heard of again.
async fn dead_worker(rig: &Rig) {
    rig.place(KEY).await;
    let claimed = claim(&rig.store, "host:9:dead", Clock::System.now()).await;
    assert_eq!(claimed.len(), 1);
    let order = OrderRequest::from_stored(&claimed[0].payload).unwrap();
    let (payload, now) = (body(KEY).to_string(), Clock::System.now());
    let send = SendOrder { order: &order, body: &payload, now, traceparent: None };
    rig.broker.send(send).await;
    rig.db.last_heard(claimed[0].id, now.minus(HOUR)).await;
}

async fn without_keys_a_dead_workers_order_is_asked_about(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    dead_worker(&rig).await;

    let running = rig.start(policy());
    let row = rig.succeeded(KEY).await;
    assert_eq!(row.attempts, 1);
    assert_eq!(rig.broker.seen().heard, [send(), status()]);
    assert_eq!(rig.broker.executed(KEY), 1);
    assert_eq!(rig.outcomes(KEY).await, ["lapsed", "done"]);
    stop(running).await;
}

async fn without_keys_a_dead_workers_last_attempt_becomes_a_case(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    dead_worker(&rig).await;

    let running = rig.start(patience(1));
    let row = rig.aborted(KEY).await;
    assert!(row.in_doubt);
    assert_eq!(row.last_error_code.as_deref(), Some(LEASE_EXPIRED));
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Accepted);
    assert_eq!(rig.open_cases(KEY).await.len(), 1);
    assert_eq!(rig.outcomes(KEY).await, ["lapsed"]);
    stop(running).await;
}

/// "Not found" clears the doubt of the first send; the second is turned away for good and there is
/// nothing to ask a person about.
async fn doubt_that_was_answered_is_gone(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::LoseBefore, Act::busy(), Act::refuse(broker_code::BAD_REQUEST)]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert!(!row.in_doubt);
    assert_eq!(rig.broker.seen().heard, [send(), status(), send(), send()]);
    assert_eq!(rig.entry(KEY).await.http_status, 400);
    assert_eq!(rig.open_cases(KEY).await, []);
    stop(running).await;
}

/// An application's order has no ledger entry until it is settled, and in doubt it is not. Whoever
/// asks for the same at the front door must not be taken for the first.
async fn without_keys_an_applications_unanswered_order_keeps_its_key(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.broker.usual_account(Account::Lose);
    enqueue(&rig.store, [effect(&Lane::ORDERS, KIND, Some(KEY), &body(KEY))]).await;
    let running = rig.start(patience(2));
    assert!(rig.aborted(KEY).await.in_doubt);

    let asked = place(&rig.orders, &body(KEY)).await;
    assert!(!matches!(asked, Ok(Placed::Accepted(_))), "{asked:?}");
    assert_eq!(rig.row(KEY).await.status, Status::Aborted);
    assert_eq!((rig.open_cases(KEY).await.len(), rig.broker.executed(KEY)), (1, 1));
    stop(running).await;
}
