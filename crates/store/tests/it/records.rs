//! What explains an effect: attempts and cases.

use tashika_domain::Write;
use tashika_domain::case::{Case, CaseResolution, CaseStatus, NewCase};
use tashika_domain::changes::{Attempt, Lease};
use tashika_domain::outcome::Exchange;
use tashika_store::AttemptRecord;
use uuid::Uuid;

use crate::support::*;

on_both!(
    attempts_read_back_in_order,
    an_attempt_recorded_twice_stays_as_it_was,
    a_case_reads_back,
    one_case_is_open_per_subject,
    a_case_is_resolved_once,
    a_subject_may_have_a_case_again,
);

async fn attempts_read_back_in_order(db: Db) {
    let store = db.open().await;
    let lease = |fence| Lease { id: id(1), fence };
    let exchange = Exchange {
        request: "POST /orders".into(),
        reply: "201".into(),
        reference: Some("確-1".into()),
        sent: true,
    };
    let full = Attempt {
        exchange: Some(exchange.clone()),
        outcome: "done",
        code: None,
        message: None,
        ..attempt(lease(2))
    };
    let unsent = Exchange { reference: None, sent: false, ..exchange.clone() };
    let third = Attempt { exchange: Some(unsent.clone()), ..attempt(lease(3)) };
    done(&store, [Write::Attempt(third), Write::Attempt(full)]).await;
    done(&store, [Write::Attempt(attempt(lease(1)))]).await;
    let other = Lease { id: id(2), fence: 1 };
    done(&store, [Write::Attempt(attempt(other))]).await;
    let first = AttemptRecord {
        fence: 1,
        worker: "host:1:a".into(),
        started_at: at(1),
        finished_at: at(2),
        outcome: "busy".into(),
        code: Some("BROKER_5XX".into()),
        message: Some("busy".into()),
        exchange: None,
    };
    let second = AttemptRecord {
        fence: 2,
        outcome: "done".into(),
        code: None,
        message: None,
        exchange: Some(exchange),
        ..first.clone()
    };
    let third = AttemptRecord { fence: 3, exchange: Some(unsent), ..first.clone() };
    assert_eq!(store.attempts(id(1)).await.unwrap(), [first, second, third]);
    assert_eq!(store.attempts(id(2)).await.unwrap().len(), 1);
}

async fn an_attempt_recorded_twice_stays_as_it_was(db: Db) {
    let store = db.open().await;
    let first = attempt(Lease { id: id(1), fence: 1 });
    done(&store, [Write::Attempt(first.clone())]).await;
    let again = Attempt { outcome: "done", ..first };
    done(&store, [Write::Attempt(again.clone()), Write::Attempt(again)]).await;
    let found = store.attempts(id(1)).await.unwrap();
    assert_eq!(found.iter().map(|a| a.outcome.as_str()).collect::<Vec<_>>(), ["busy"]);
}

fn case(number: u128, subject: &str) -> NewCase {
    NewCase {
        id: Uuid::from_u128(number),
        kind: "order_unanswered",
        subject_type: "order",
        subject_id: subject.into(),
        summary: "the broker did not answer".into(),
        actions: vec!["retry", "mark_failed"],
        details: r#"{"asked":3}"#.into(),
        now: at(i64::try_from(number).expect("small")),
    }
}

fn resolution(subject: &str) -> CaseResolution {
    CaseResolution {
        kind: "order_unanswered",
        subject_id: subject.into(),
        action: "retry".into(),
        note: "確か".into(),
        now: at(9),
    }
}

async fn a_case_reads_back(db: Db) {
    let store = db.open().await;
    done(&store, [Write::OpenCase(case(1, "a")), Write::OpenCase(case(2, "b"))]).await;
    let found = store.cases_of("order", "a").await.unwrap();
    let details: serde_json::Value = serde_json::from_str(&found[0].details).unwrap();
    assert_eq!(details, serde_json::json!({"asked": 3}));
    let expected = Case {
        id: Uuid::from_u128(1),
        kind: "order_unanswered".into(),
        status: CaseStatus::Open,
        subject_type: "order".into(),
        subject_id: "a".into(),
        summary: "the broker did not answer".into(),
        actions: vec!["retry".into(), "mark_failed".into()],
        details: found[0].details.clone(),
        opened_at: at(1),
        resolution: None,
    };
    assert_eq!(found, [expected]);
    assert_eq!(store.cases_of("payment", "a").await.unwrap(), []);
}

async fn one_case_is_open_per_subject(db: Db) {
    let store = db.open().await;
    done(&store, [Write::OpenCase(case(1, "a"))]).await;
    done(&store, [Write::OpenCase(case(2, "a")), Write::Enqueue(effect(1))]).await;
    let other_kind = NewCase { kind: "order_disputed", ..case(3, "a") };
    done(&store, [Write::OpenCase(other_kind)]).await;
    let found = store.cases_of("order", "a").await.unwrap();
    assert_eq!(found.iter().map(|c| c.id.as_u128()).collect::<Vec<_>>(), [3, 1], "newest first");
    assert!(store.effect(id(1)).await.unwrap().is_some(), "the rest of the changes was made");
    done(&store, [Write::OpenCase(case(4, "b")), Write::OpenCase(case(5, "b"))]).await;
    assert_eq!(store.cases_of("order", "b").await.unwrap().len(), 1);
}

async fn a_case_is_resolved_once(db: Db) {
    let store = db.open().await;
    done(&store, [Write::ResolveCase(resolution("a"))]).await;
    done(&store, [Write::OpenCase(case(1, "a")), Write::OpenCase(case(2, "b"))]).await;
    done(&store, [Write::ResolveCase(resolution("a"))]).await;
    let second = CaseResolution { action: "mark_failed".into(), now: at(10), ..resolution("a") };
    done(&store, [Write::ResolveCase(second)]).await;
    assert_eq!(store.cases_of("order", "a").await.unwrap()[0].status, CaseStatus::Resolved);
    assert_eq!(store.cases_of("order", "b").await.unwrap()[0].status, CaseStatus::Open);
    let rows = db.sql("select resolution, note from cases where status = 'resolved'").await;
    assert_eq!(rows.unwrap(), [[Some("retry".to_owned()), Some("確か".to_owned())]]);
}

async fn a_subject_may_have_a_case_again(db: Db) {
    let store = db.open().await;
    done(&store, [Write::OpenCase(case(1, "a"))]).await;
    done(&store, [Write::ResolveCase(resolution("a"))]).await;
    done(&store, [Write::OpenCase(case(2, "a"))]).await;
    let found = store.cases_of("order", "a").await.unwrap();
    let seen: Vec<_> = found.iter().map(|c| (c.id.as_u128(), c.status)).collect();
    assert_eq!(seen, [(2, CaseStatus::Open), (1, CaseStatus::Resolved)]);
}
