//! What is kept beside payments: alerts, races, and the sandbox's own side of the world.

use serde_json::json;
use tashika_domain::Write;
use tashika_domain::alert::{Alert, AlertResolution, AlertState, Announced, NewAlert, Severity};
use tashika_domain::race::NewRace;
use tashika_store::{AlertFilter, RaceRow, SandboxRow};
use uuid::Uuid;

use crate::support::*;

on_both!(an_alert_fires_once_and_counts, a_race_comes_back, the_sandbox_writes_versions_in_turn,);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

async fn an_alert_fires_once_and_counts(db: Db) {
    let store = db.open().await;
    let alert = |number: u64, subject: &str, message: &'static str| {
        Write::FireAlert(NewAlert {
            id: uuid(number),
            rule: "rule",
            subject: subject.into(),
            severity: Severity::High,
            message,
            labels: json!({"n": number.to_string()}).to_string(),
            now: at(i64::try_from(number).unwrap()),
        })
    };
    done(&store, [alert(1, "a", "first")]).await;
    done(&store, [alert(2, "a", "second"), alert(3, "b", "other")]).await;
    let filter = |state, before| AlertFilter { state, before, ..AlertFilter::default() };
    let expected = |number: u64, message: &str, count: i64, label: &str| Alert {
        id: uuid(number),
        version: count,
        rule: "rule".into(),
        subject: String::new(),
        severity: Severity::High,
        state: AlertState::Firing,
        message: message.into(),
        count,
        fired_at: at(i64::try_from(number).unwrap()),
        seen_at: at(label.parse().unwrap()),
        resolved_at: None,
        labels: json!({ "n": label }),
        announced: Announced::Nothing,
        acknowledged: None,
        silenced: None,
    };
    let first = Alert { subject: "a".into(), ..expected(1, "second", 2, "2") };
    let other = Alert { subject: "b".into(), ..expected(3, "other", 1, "3") };
    let all = store.alerts(&filter(None, None), 10).await.unwrap();
    assert_eq!(all, [other.clone(), first.clone()]);
    let over = |subject: &str| {
        let subject = subject.into();
        Write::ResolveAlert(AlertResolution { rule: "rule", subject, now: at(50) })
    };
    done(&store, [over("a"), over("nobody")]).await;
    let resolved =
        Alert { state: AlertState::Resolved, resolved_at: Some(at(50)), version: 3, ..first };
    let firing = store.alerts(&filter(Some(AlertState::Firing), None), 10).await.unwrap();
    assert_eq!(firing, std::slice::from_ref(&other));
    let ended = store.alerts(&filter(Some(AlertState::Resolved), None), 10).await.unwrap();
    assert_eq!(ended, std::slice::from_ref(&resolved));
    done(&store, [alert(4, "a", "again")]).await;
    let page = store.alerts(&filter(None, Some(uuid(4))), 10).await.unwrap();
    assert_eq!(page, [other, resolved], "a new one, and the old one stays resolved");
    let newest = Alert { subject: "a".into(), ..expected(4, "again", 1, "4") };
    assert_eq!(store.alerts(&filter(None, None), 1).await.unwrap(), [newest]);
}

async fn a_race_comes_back(db: Db) {
    let store = db.open().await;
    let race = |number: u64, resolution| {
        Write::Race(NewRace {
            id: uuid(number),
            scenario: "LATE_EXECUTION",
            subject_type: "payment",
            subject_id: "p-1".into(),
            resolution,
            details: "{}".into(),
            now: at(7),
        })
    };
    done(&store, [race(2, "REFUNDED"), race(1, "VOIDED")]).await;
    let expected = |number: u64, resolution: &str| RaceRow {
        id: uuid(number),
        scenario: "LATE_EXECUTION".into(),
        subject_type: "payment".into(),
        subject_id: "p-1".into(),
        resolution: resolution.into(),
        details: "{}".into(),
        detected_at: at(7),
    };
    let races = store.races_of("payment", "p-1").await.unwrap();
    assert_eq!(races, [expected(1, "VOIDED"), expected(2, "REFUNDED")]);
    assert_eq!(store.races_of("payment", "p-2").await.unwrap(), []);
    assert_eq!(commit(&store, [race(3, "IGNORED")]).await, Said::Rejected);
}

async fn the_sandbox_writes_versions_in_turn(db: Db) {
    let store = db.open().await;
    let row = |number: u64, version: i64| SandboxRow {
        id: uuid(number),
        version,
        state: format!(r#"{{"v":{version}}}"#),
    };
    let save = async |row: SandboxRow, created| {
        store.save_sandbox_payment(row, at(created)).await.unwrap()
    };
    assert!(!save(row(1, 2), 1).await, "there is no first");
    assert!(save(row(1, 1), 1).await);
    assert!(!save(row(1, 1), 1).await, "there is one");
    assert!(save(row(1, 2), 9).await);
    assert!(!save(row(1, 2), 9).await && !save(row(1, 4), 9).await);
    assert_eq!(store.sandbox_payment(uuid(1)).await.unwrap(), Some(row(1, 2)));
    assert_eq!(store.sandbox_payment(uuid(2)).await.unwrap(), None);
    assert!(save(row(2, 1), 2).await && save(row(3, 1), 3).await);
    let list = async |from, until, after| {
        store.sandbox_payments(at(from), at(until), after, 10).await.unwrap()
    };
    assert_eq!(list(1, 3, None).await, [row(1, 2), row(2, 1)]);
    assert_eq!(list(1, 4, Some(uuid(1))).await, [row(2, 1), row(3, 1)]);
}
