//! The worker protocol: W-101 to W-105, and what the seed says about conflicts and broken payloads.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{NO_HANDLER, PAYLOAD_UNREADABLE, Verdict};
use tashika_domain::ledger::{IDEMPOTENCY_CONFLICT, LedgerKey, LedgerSettlement, LedgerStatus};
use tashika_domain::order::{ExecResult, KIND, broker_code};
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::{Changes, Lane, LanePolicy, Status, Write};
use tashika_engine::{Clock, Simple};
use tashika_store::{CommitError, Key};
use tashika_testkit::broker::{Act, Heard, ScriptedBroker};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::Gate;
use tashika_testkit::on_both;

use crate::support::{
    HOUR, KEY, Rig, ahead, all_rows, body, claim, effect, effect_row, engine, enqueue, orders,
    patience, place, policy, stop, unlimited, until_settled,
};

on_both!(
    w_101_pending_sending_succeeded,
    w_102_timeout_then_success,
    w_103_crashed_worker_is_taken_over_after_the_lease,
    w_104_max_attempts_aborts_and_requeue_succeeds,
    w_105_ledger_succeeded_settles_leftover_without_sending,
    another_digest_in_the_ledger_aborts_and_leaves_the_ledger_alone,
    a_conflict_that_appears_in_mid_send_leaves_the_ledger_alone,
    a_success_that_appears_in_mid_send_settles_the_row,
    an_unreadable_payload_aborts_at_once,
    a_payload_with_another_key_is_unreadable,
    a_kind_without_a_handler_waits_for_a_process_that_knows_it,
    a_long_message_is_cut_at_512_characters,
    a_message_that_no_text_column_takes_is_settled_all_the_same,
    a_settlement_that_fails_on_the_ledger_leaves_the_row_untouched,
    all_aborted_effects_are_requeued_by_filter,
    a_requeued_order_is_accepted_again,
    the_seeds_own_statements_requeue_and_release,
);

async fn w_101_pending_sending_succeeded(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place(KEY).await;
    assert_eq!(rig.row(KEY).await.status, Status::Pending);
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Accepted);

    let running = rig.start(policy());
    rig.broker.until_sends(1).await;
    let row = rig.row(KEY).await;
    assert_eq!(row.status, Status::Sending);
    assert_eq!(row.locked_by.as_deref(), Some("host:1:a"));
    assert!(row.locked_at.is_some());
    gate.open();

    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (0, false));
    assert_eq!((row.locked_by, row.locked_at, row.last_error_code), (None, None, None));
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Succeeded, 200));
    let result: ExecResult = serde_json::from_str(&entry.response).unwrap();
    assert_eq!(result.status, "ok");
    assert_eq!(result.idempotency_key, KEY);
    assert_eq!(result.broker.order_ref.as_deref(), Some("B-1"));
    assert!(result.requested_at <= result.completed_at);
    assert_eq!(entry.result_digest, Some(result.digest()));
    assert_eq!(rig.outcomes(KEY).await, ["done"]);
    assert_eq!(rig.broker.executed(KEY), 1);
    stop(running).await;
    assert_eq!(rig.store.workers().await.unwrap(), [], "it took its leave");
}

async fn w_102_timeout_then_success(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::LoseBefore]);
    rig.place(KEY).await;

    let patient = LanePolicy { backoff: vec![HOUR], ..policy() };
    let running = rig.start(patient.clone());
    let row = rig.until_status(KEY, Status::Failed).await;
    assert_eq!((row.attempts, row.in_doubt), (1, true));
    assert_eq!(row.last_error_code.as_deref(), Some("BROKER_TIMEOUT"));
    assert_eq!(row.locked_by, None);
    assert_eq!(row.next_run_at, row.updated_at.plus(HOUR));
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Accepted);
    stop(running).await;

    // The backoff has passed for whoever looks an hour later.
    let running = rig.engine_at(ahead(2 * HOUR), "host:2:b", patient).start();
    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (1, false));
    assert_eq!(rig.outcomes(KEY).await, ["lost", "done"]);
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Succeeded);
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (2, 1));
    stop(running).await;
}

/// The first worker's process is suspended in mid-send, heartbeats and all, and comes back when the
/// second has long done its work.
async fn w_103_crashed_worker_is_taken_over_after_the_lease(db: TestDb) {
    let short = LanePolicy { lease: Duration::from_secs(1), ..policy() };
    let rig = Rig::with_keys(db).await;
    let (frozen, end) = (Gate::closed(), Gate::closed());
    rig.broker.script([Act::Freeze(frozen.clone(), Box::new(Act::Execute))]);
    rig.place(KEY).await;
    let first = std::thread::spawn({
        let (url, broker, policy) = (rig.db.url(), rig.broker.clone(), short.clone());
        let end = end.clone();
        move || process(&url, broker, policy, &end)
    });
    rig.broker.until_sends(1).await;

    let second = rig.engine("host:2:b", short).start();
    let row = rig.succeeded(KEY).await;
    assert_eq!(row.attempts, 1, "the lapse is a failure");
    assert_eq!(row.fence, 2);
    let settled = rig.entry(KEY).await;
    assert_eq!(settled.status, LedgerStatus::Succeeded);

    frozen.open();
    end.open();
    tokio::task::spawn_blocking(|| first.join()).await.unwrap().unwrap();
    assert_eq!(rig.row(KEY).await, row, "the late settlement wrote nothing");
    assert_eq!(rig.entry(KEY).await, settled);
    let attempts = rig.attempts(KEY).await;
    let told: Vec<_> = attempts.iter().map(|a| (a.worker.as_str(), a.outcome.as_str())).collect();
    assert_eq!(told, [("host:1:a", "lapsed"), ("host:2:b", "done")]);
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (2, 1));
    stop(second).await;
}

/// One process with one thread, which works until the gate opens.
fn process(url: &str, broker: ScriptedBroker, policy: LanePolicy, end: &Gate) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = tashika_store::Store::open(url, 4).await.unwrap();
        let handler = tashika_engine::OrderHandler::new(Arc::new(broker), HOUR);
        let engine = engine(&store, Clock::System, "host:1:a").lane(Lane::ORDERS, policy);
        let running = engine.effect(KIND, handler).start();
        end.passed().await;
        stop(running).await;
    });
}

async fn w_104_max_attempts_aborts_and_requeue_succeeds(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::busy(), Act::busy(), Act::busy()]);
    rig.place(KEY).await;

    let running = rig.start(patience(3));
    let row = rig.aborted(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (3, false));
    assert_eq!(row.last_error_code.as_deref(), Some("BROKER_RATE_LIMITED"));
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 503));
    assert_eq!(rig.broker.executed(KEY), 0);

    rig.outbox.requeue(row.id).await.unwrap();
    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.last_error_code, row.last_error_msg), (0, None, None));
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Succeeded, 200));
    assert_eq!(rig.outcomes(KEY).await, ["busy", "busy", "busy", "done"]);
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (4, 1));
    rig.outbox.requeue(row.id).await.unwrap_err();
    stop(running).await;
}

async fn w_105_ledger_succeeded_settles_leftover_without_sending(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let entry = rig.entry(KEY).await;
    let settlement = LedgerSettlement {
        key: entry.key.clone(),
        request_digest: entry.request_digest.clone(),
        status: LedgerStatus::Succeeded,
        http_status: 200,
        response: r#"{"status": "ok"}"#.into(),
        result_digest: None,
        now: entry.first_seen_at,
        expires_at: entry.expires_at,
    };
    rig.store.commit(Changes::from(Write::LedgerSettle(settlement))).await.unwrap();
    let settled = rig.entry(KEY).await;

    let running = rig.start(policy());
    let row = rig.succeeded(KEY).await;
    assert_eq!((row.attempts, row.locked_by), (0, None));
    assert_eq!(rig.entry(KEY).await, settled, "the ledger is the truth and stays as it is");
    assert_eq!(rig.broker.seen().heard, [], "the broker heard nothing of it");
    stop(running).await;
}

async fn another_digest_in_the_ledger_aborts_and_leaves_the_ledger_alone(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    rig.db.sql("update idempo_ledger set request_digest = 'sha256:other'").await;
    let entry = rig.entry(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert_eq!(row.last_error_code.as_deref(), Some(IDEMPOTENCY_CONFLICT));
    assert!(!row.in_doubt);
    assert_eq!(rig.entry(KEY).await, entry);
    assert_eq!(rig.broker.seen().heard, []);
    stop(running).await;
}

async fn a_conflict_that_appears_in_mid_send_leaves_the_ledger_alone(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place(KEY).await;
    let running = rig.start(policy());
    rig.broker.until_sends(1).await;
    rig.db.sql("update idempo_ledger set request_digest = 'sha256:other'").await;
    let entry = rig.entry(KEY).await;
    gate.open();

    let row = rig.aborted(KEY).await;
    assert_eq!(row.last_error_code.as_deref(), Some(IDEMPOTENCY_CONFLICT));
    assert_eq!(rig.entry(KEY).await, entry);
    assert_eq!(rig.broker.sent(KEY), 1);
    stop(running).await;
}

async fn a_success_that_appears_in_mid_send_settles_the_row(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let gate = Gate::closed();
    rig.broker.script([Act::Execute.behind(&gate)]);
    rig.place(KEY).await;
    let running = rig.start(policy());
    rig.broker.until_sends(1).await;
    rig.db.sql("update idempo_ledger set status = 'succeeded'").await;
    let entry = rig.entry(KEY).await;
    gate.open();

    rig.succeeded(KEY).await;
    assert_eq!(rig.entry(KEY).await, entry);
    stop(running).await;
}

async fn an_unreadable_payload_aborts_at_once(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let broken = [json!([1, 2]), json!({"instrument": 7}), json!("text"), json!(null)];
    let effects: Vec<_> = broken
        .iter()
        .enumerate()
        .map(|(n, payload)| effect(&Lane::ORDERS, KIND, Some(&format!("broken-{n}")), payload))
        .collect();
    let ids: Vec<_> = effects.iter().map(|effect| effect.id).collect();
    enqueue(&rig.store, effects).await;

    let running = rig.start(policy());
    for id in ids {
        let row = until_settled(&rig.store, id).await;
        assert_eq!((row.status, row.attempts), (Status::Aborted, 1));
        assert_eq!(row.last_error_code.as_deref(), Some(PAYLOAD_UNREADABLE));
        assert!(!row.in_doubt, "it was never sent");
        assert_eq!(rig.store.attempts(id).await.unwrap().len(), 1);
    }
    assert_eq!(rig.broker.seen().heard, []);
    for n in 0..4 {
        let key = format!("broken-{n}");
        let entry = rig.entry(&key).await;
        assert_eq!((entry.status, entry.http_status), (LedgerStatus::Failed, 500));
        let view = rig.find(&key).await;
        assert_eq!(view.status, LedgerStatus::Failed, "nobody will send it any more");
        let told: Value = serde_json::from_str(&view.body).unwrap();
        assert_eq!(told["reason_code"], json!("INTERNAL_ERROR"));
    }
    stop(running).await;
}

/// The broker knows the order by the payload's key, everybody else by the effect's.
async fn a_payload_with_another_key_is_unreadable(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let mixed_up = effect(&Lane::ORDERS, KIND, Some("key-0002"), &body(KEY));
    let id = mixed_up.id;
    enqueue(&rig.store, [mixed_up]).await;

    let running = rig.start(policy());
    let row = until_settled(&rig.store, id).await;
    assert_eq!(row.status, Status::Aborted);
    assert_eq!(row.last_error_code.as_deref(), Some(PAYLOAD_UNREADABLE));
    assert_eq!(rig.broker.seen().heard, []);
    stop(running).await;
}

async fn a_kind_without_a_handler_waits_for_a_process_that_knows_it(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let stranger = effect(&Lane::ORDERS, "mystery", None, &json!({}));
    let id = stranger.id;
    enqueue(&rig.store, [stranger]).await;

    let running = rig.start(patience(2));
    let row = until_settled(&rig.store, id).await;
    assert_eq!((row.status, row.attempts), (Status::Aborted, 2));
    assert_eq!(row.last_error_code.as_deref(), Some(NO_HANDLER));
    assert!(!row.in_doubt);
    stop(running).await;

    rig.outbox.requeue(id).await.unwrap();
    let knows = Simple(|_: &_| Outcome::Done(Value::Null));
    let running = rig.engine("host:2:b", policy()).effect("mystery", knows).start();
    assert_eq!(until_settled(&rig.store, id).await.status, Status::Succeeded);
    stop(running).await;
}

async fn a_long_message_is_cut_at_512_characters(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::Refuse(Reason::new(broker_code::BAD_REQUEST, "確".repeat(600)))]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert_eq!(row.last_error_msg.unwrap().chars().count(), 512);
    stop(running).await;
}

async fn a_message_that_no_text_column_takes_is_settled_all_the_same(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let message = "the broker said \u{0} and nothing else";
    rig.broker.script([Act::Refuse(Reason::new(broker_code::BAD_REQUEST, message))]);
    rig.place(KEY).await;

    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert_eq!(row.last_error_msg.as_deref(), Some("the broker said  and nothing else"));
    assert_eq!((rig.broker.sent(KEY), rig.entry(KEY).await.http_status), (1, 400));
    stop(running).await;
}

async fn a_settlement_that_fails_on_the_ledger_leaves_the_row_untouched(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.place(KEY).await;
    let now = Clock::System.now();
    let held = claim(&rig.store, "host:1:a", now).await;
    let lease = Lease { id: held[0].id, fence: held[0].fence };
    let (row, entry) = (rig.row(KEY).await, rig.entry(KEY).await);

    // The row's write stands first here; the ledger's is performed first, and fails.
    let settle =
        Settle { lease, verdict: Verdict::Succeeded, now, expires_at: now, unheard_since: None };
    let settlement = LedgerSettlement {
        key: LedgerKey::new(KIND, KEY),
        request_digest: "sha256:other".into(),
        status: LedgerStatus::Succeeded,
        http_status: 200,
        response: "{}".into(),
        result_digest: None,
        now,
        expires_at: now,
    };
    let changes = Changes::from(Write::Settle(settle)).with(Write::LedgerSettle(settlement));
    let refused = rig.store.commit(changes).await.unwrap_err();

    assert!(matches!(refused, CommitError::Taken(Key::Ledger)), "{refused}");
    assert_eq!(rig.row(KEY).await, row);
    assert_eq!(rig.entry(KEY).await, entry);
}

async fn all_aborted_effects_are_requeued_by_filter(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    let keys: Vec<String> = (0..5).map(|n| format!("order-0{n}")).collect();
    for key in &keys {
        rig.broker.script_for(key, [Act::refuse(broker_code::BAD_REQUEST)]);
        rig.place(key).await;
    }
    let other = effect(&Lane::MAIL, "letter", None, &json!({}));
    let letter = other.id;
    enqueue(&rig.store, [other]).await;
    let refuses = Simple(|_: &_| Outcome::Refused(Reason::new("NO", "")));
    let running = rig
        .engine("host:1:a", policy())
        .lane(Lane::MAIL, policy())
        .effect("letter", refuses)
        .start();
    for row in all_rows(&rig.store).await {
        assert_eq!(until_settled(&rig.store, row.id).await.status, Status::Aborted);
    }

    let filter = tashika_store::EffectFilter { lane: Some(Lane::ORDERS), ..Default::default() };
    assert_eq!(rig.outbox.requeue_all(filter).await.unwrap(), 5);

    for key in &keys {
        rig.succeeded(key).await;
        assert_eq!(rig.broker.executed(key), 1);
    }
    assert_eq!(effect_row(&rig.store, letter).await.status, Status::Aborted);
    stop(running).await;
}

/// Until it has ended again, a requeued order is an accepted order, whatever it was before.
async fn a_requeued_order_is_accepted_again(db: TestDb) {
    let rig = Rig::with_keys(db).await;
    rig.broker.script([Act::refuse(broker_code::BAD_REQUEST)]);
    rig.place(KEY).await;
    let running = rig.start(policy());
    let row = rig.aborted(KEY).await;
    assert_eq!(rig.replay(KEY).await.0, 400);
    stop(running).await;

    rig.outbox.requeue(row.id).await.unwrap();

    let (http_status, told) = rig.replay(KEY).await;
    assert_eq!((http_status, &told["status"]), (200, &json!("accepted")));
    assert_eq!(told["idempotency_key"], json!(KEY));
    let view = rig.find(KEY).await;
    assert_eq!(view.status, LedgerStatus::Accepted);
    let told: Value = serde_json::from_str(&view.body).unwrap();
    assert_eq!(told["status"], json!("accepted"));
    let other = orders(&rig.store, Clock::System, unlimited());
    let mut changed = body(KEY);
    changed["qty"] = json!(2);
    place(&other, &changed).await.unwrap_err();
    assert_eq!(rig.broker.seen().heard, [Heard::Send(KEY.into())]);
}

/// Operators of order systems know these by heart. The first forgets the ledger, the second forgets
/// that the order may have been sent; neither may do harm.
async fn the_seeds_own_statements_requeue_and_release(db: TestDb) {
    let rig = Rig::without_keys(db).await;
    rig.broker.script_for("aborted-1", [Act::refuse(broker_code::BAD_REQUEST)]);
    rig.broker.script_for("lapsed-01", [Act::ExecuteThenLose]);
    rig.place("aborted-1").await;
    let running = rig.start(policy());
    rig.aborted("aborted-1").await;
    stop(running).await;
    rig.place("lapsed-01").await;
    let sent = claim(&rig.store, "host:9:dead", Clock::System.now()).await;
    let order = tashika_domain::order::OrderRequest::from_stored(&sent[0].payload).unwrap();
    let (body, now) = (&sent[0].payload, Clock::System.now());
    let send = tashika_providers::broker::SendOrder { order: &order, body, now, traceparent: None };
    tashika_providers::broker::Broker::send(&rig.broker, send).await;

    rig.db
        .sql(
            "update outbox_orders set status='pending', attempts=0, last_error_code=NULL,
                    last_error_msg=NULL, next_run_at=NULL
              where idempotency_key = 'aborted-1'",
        )
        .await;
    rig.db
        .sql(
            "update outbox_orders set status='pending', locked_by=NULL, locked_at=NULL
              where status='sending'",
        )
        .await;

    let running = rig.start(policy());
    for key in ["aborted-1", "lapsed-01"] {
        rig.succeeded(key).await;
        assert_eq!(rig.entry(key).await.status, LedgerStatus::Succeeded);
        assert_eq!(rig.broker.executed(key), 1, "{key}");
    }
    assert_eq!((rig.broker.sent("lapsed-01"), rig.broker.asked("lapsed-01")), (1, 1));
    stop(running).await;
}
