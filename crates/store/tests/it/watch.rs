//! Alerts as the watchman keeps them, decisions about cases, and counts that must stay cheap.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tashika_domain::Write;
use tashika_domain::alert::{
    Acknowledged, Alert, AlertState, Announced, NewAlert, Severity, Silence, Silenced,
};
use tashika_domain::case::{CaseClosing, CaseResolution, CaseStatus, NewCase};
use tashika_domain::race::NewRace;
use tashika_store::{AlertFilter, CaseFilter, Dialect, Key};
use uuid::Uuid;

use crate::support::*;

on_both!(
    an_alert_fires_once_whoever_fires_it,
    an_alert_is_written_from_the_version_that_was_read,
    what_must_be_looked_at_is_found,
    silences_end_and_old_alerts_are_forgotten,
    of_two_decisions_about_a_case_one_counts,
    cases_are_found_by_what_they_are_about_and_counted_by_kind,
    races_are_counted_from_a_moment_on,
    counts_walk_an_index,
);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn alert(number: u64, rule: &str) -> Alert {
    let now = at(i64::try_from(number).unwrap());
    Alert {
        id: uuid(number),
        version: 1,
        rule: rule.into(),
        subject: rule.into(),
        severity: Severity::Critical,
        state: AlertState::Firing,
        message: "確か".into(),
        count: 1000,
        fired_at: now,
        seen_at: now,
        resolved_at: None,
        labels: json!({"value": "1000"}),
        announced: Announced::Firing,
        acknowledged: None,
        silenced: None,
    }
}

fn insert(alert: &Alert) -> Write {
    Write::AlertInsert(Box::new(alert.clone()))
}

fn update(alert: &Alert) -> Write {
    Write::AlertUpdate(Box::new(alert.clone()))
}

fn resolved(alert: &Alert, when: i64) -> Alert {
    let (state, resolved_at) = (AlertState::Resolved, Some(at(when)));
    Alert { version: alert.version + 1, state, resolved_at, ..alert.clone() }
}

async fn an_alert_fires_once_whoever_fires_it(db: Db) {
    let store = db.open().await;
    done(&store, [insert(&alert(1, "r"))]).await;
    assert_eq!(commit(&store, [insert(&alert(2, "r"))]).await, Said::Taken(Key::Alert));
    done(&store, [insert(&alert(3, "other"))]).await;
    // Somebody who does not look first counts one more of the same.
    let fire = NewAlert {
        id: uuid(4),
        rule: "r",
        subject: "r".into(),
        severity: Severity::Critical,
        message: "again",
        labels: "{}".into(),
        now: at(9),
    };
    done(&store, [Write::FireAlert(fire)]).await;
    let found = store.alert(uuid(1)).await.unwrap().unwrap();
    assert_eq!((found.count, found.version, found.seen_at), (1001, 2, at(9)));
    done(&store, [update(&resolved(&found, 10))]).await;
    done(&store, [insert(&alert(5, "r"))]).await;
    assert_eq!(db.number("select count(*) from alerts").await, 3);
}

async fn an_alert_is_written_from_the_version_that_was_read(db: Db) {
    let store = db.open().await;
    let first = alert(1, "r");
    done(&store, [insert(&first)]).await;
    let acknowledged = Some(Acknowledged { at: at(2), by: "mika".into() });
    let silenced = Some(Silence { until: at(50), by: "mika".into(), reason: "known".into() });
    let next = Alert { version: 2, acknowledged, silenced, ..first.clone() };
    done(&store, [update(&next)]).await;
    assert_eq!(store.alert(uuid(1)).await.unwrap(), Some(next.clone()));
    let late = Alert { version: 2, count: 7, ..first };
    assert_eq!(commit(&store, [update(&late)]).await, Said::Outdated("alerts"));
    assert_eq!(store.alert(uuid(1)).await.unwrap(), Some(next));
    assert_eq!(store.alert(uuid(2)).await.unwrap(), None);
}

async fn what_must_be_looked_at_is_found(db: Db) {
    let store = db.open().await;
    let [told, untold, over, forgotten] =
        [1, 2, 3, 4].map(|number| alert(number, &format!("rule_{number}")));
    let untold = Alert { announced: Announced::Nothing, ..untold };
    for alert in [&told, &untold, &over, &forgotten] {
        done(&store, [insert(alert)]).await;
    }
    done(&store, [update(&resolved(&over, 9))]).await;
    let announced = Announced::Resolved;
    done(&store, [update(&Alert { announced, ..resolved(&forgotten, 9) })]).await;
    let open: Vec<Uuid> = store.alerts_open(10).await.unwrap().iter().map(|a| a.id).collect();
    assert_eq!(open, [uuid(1), uuid(2), uuid(3)]);
    let by = |severity, rule: Option<&str>| AlertFilter {
        severity,
        rule: rule.map(ToOwned::to_owned),
        ..AlertFilter::default()
    };
    let found = async |filter: AlertFilter| store.alerts(&filter, 10).await.unwrap().len();
    assert_eq!(found(by(Some(Severity::Critical), None)).await, 4);
    assert_eq!(found(by(Some(Severity::Warning), None)).await, 0);
    assert_eq!(found(by(None, Some("rule_2"))).await, 1);
}

async fn silences_end_and_old_alerts_are_forgotten(db: Db) {
    let store = db.open().await;
    let silence = |until| Some(Silence { until: at(until), by: "m".into(), reason: "r".into() });
    let quiet = Alert { silenced: silence(50), ..alert(1, "quiet") };
    let over = Alert { announced: Announced::Resolved, ..resolved(&quiet, 5) };
    done(&store, [insert(&quiet)]).await;
    done(&store, [update(&over), insert(&alert(2, "loud"))]).await;
    let about = Silenced { rule: "quiet".into(), subject: "quiet".into() };
    assert_eq!(store.silences(at(49)).await.unwrap(), BTreeSet::from([about]));
    assert_eq!(store.silences(at(50)).await.unwrap(), BTreeSet::new());
    assert_eq!(store.prune_alerts(at(40), 10).await.unwrap(), 0, "its silence is in force");
    assert_eq!(store.prune_alerts(at(5), 10).await.unwrap(), 0);
    assert_eq!(store.prune_alerts(at(60), 10).await.unwrap(), 1);
    assert_eq!(store.prune_alerts(at(60), 10).await.unwrap(), 0, "what fires stays");
    assert!(store.alert(uuid(2)).await.unwrap().is_some());
}

fn case(number: u64, kind: &'static str, subject: &str) -> NewCase {
    NewCase {
        id: uuid(number),
        kind,
        subject_type: "payment",
        subject_id: subject.into(),
        summary: "nobody knows".into(),
        actions: vec!["charged"],
        details: "{}".into(),
        now: at(1),
    }
}

fn closing(number: u64, action: &str, by: &str) -> Write {
    Write::CloseCase(CaseClosing {
        id: uuid(number),
        action: action.into(),
        note: "looked".into(),
        by: by.into(),
        now: at(5),
    })
}

async fn of_two_decisions_about_a_case_one_counts(db: Db) {
    let store = db.open().await;
    done(&store, [Write::OpenCase(case(1, "payment_unknown", "p"))]).await;
    let race = (0..8).map(|n| {
        let store = store.clone();
        let write =
            closing(1, if n % 2 == 0 { "charged" } else { "not_charged" }, &format!("w{n}"));
        async move { commit(&store, [write, Write::Enqueue(effect(n))]).await }
    });
    let said = futures_util::future::join_all(race).await;
    assert_eq!(said.iter().filter(|said| **said == Said::Done).count(), 1, "{said:?}");
    let lost = said.iter().filter(|said| **said == Said::Outdated("cases"));
    assert_eq!(lost.count(), 7);
    assert_eq!(all(&store).await.len(), 1, "what goes with a decision that lost is not written");
    let end = store.case(uuid(1)).await.unwrap().unwrap().resolution.unwrap();
    assert!(end.by.is_some_and(|by| by.starts_with('w')) && end.at == at(5));
    // What closes by itself afterwards changes nothing.
    done(
        &store,
        [Write::ResolveCase(CaseResolution {
            kind: "payment_unknown",
            subject_id: "p".into(),
            action: "verified".into(),
            note: String::new(),
            now: at(9),
        })],
    )
    .await;
    assert_eq!(store.case(uuid(1)).await.unwrap().unwrap().resolution.unwrap().at, at(5));
    assert_eq!(commit(&store, [closing(2, "charged", "w")]).await, Said::Outdated("cases"));
}

async fn cases_are_found_by_what_they_are_about_and_counted_by_kind(db: Db) {
    let store = db.open().await;
    for (number, kind) in [(1, "payment_unknown"), (2, "payment_unknown"), (3, "dead_letter")] {
        done(&store, [Write::OpenCase(case(number, kind, &number.to_string()))]).await;
    }
    done(&store, [closing(2, "charged", "w")]).await;
    let counts = store.open_case_counts().await.unwrap();
    let expected = [("payment_unknown".to_owned(), 1), ("dead_letter".to_owned(), 1)];
    assert_eq!(counts, BTreeMap::from(expected));
    let by_subject = CaseFilter {
        subject_type: Some("payment".into()),
        subject_id: Some("2".into()),
        ..CaseFilter::default()
    };
    let found = store.cases(&by_subject, 10).await.unwrap();
    assert_eq!(
        found.iter().map(|c| (c.id, c.status)).collect::<Vec<_>>(),
        [(uuid(2), CaseStatus::Resolved)]
    );
}

async fn races_are_counted_from_a_moment_on(db: Db) {
    let store = db.open().await;
    for (number, scenario, resolution) in [
        (1, "EXPIRED_AFTER_PAYMENT", "REFUNDED"),
        (2, "EXPIRED_AFTER_PAYMENT", "REFUNDED"),
        (3, "EXPIRED_AFTER_PAYMENT", "RETRY"),
        (4, "RENDER_FAILURE", "REFUNDED"),
    ] {
        let race = NewRace {
            id: uuid(number),
            scenario,
            subject_type: "reservation",
            subject_id: "r".into(),
            resolution,
            details: "{}".into(),
            now: at(i64::try_from(number).unwrap()),
        };
        done(&store, [Write::Race(race)]).await;
    }
    let count = async |since| {
        store.race_count("EXPIRED_AFTER_PAYMENT", "REFUNDED", at(since)).await.unwrap()
    };
    assert_eq!([count(0).await, count(1).await, count(2).await], [2, 1, 0]);
}

/// With many rows, what is counted at every look must not be looked for row by row.
async fn counts_walk_an_index(db: Db) {
    drop(db.open().await);
    let (rows, explain) = match db.dialect() {
        Dialect::Sqlite => (
            "with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000) ",
            "explain query plan ",
        ),
        Dialect::Postgres => ("with n (i) as (select generate_series(1, 20000)) ", "explain "),
    };
    let key = db.pick("randomblob(16)", "gen_random_uuid()");
    let time = db.pick("i", "to_timestamp(i)");
    for fill in [
        format!(
            "insert into cases (id, kind, status, subject_type, subject_id, summary, actions, details,
                opened_at, resolved_at)
             {rows} select {key}, 'payment_unknown', case when i % 100 = 0 then 'open' else 'resolved' end,
                'payment', cast(i as text), '', '[]', '{{}}', {time},
                case when i % 100 = 0 then null else {time} end from n"
        ),
        format!(
            "insert into race_conditions (id, scenario, subject_type, subject_id, resolution, details,
                detected_at)
             {rows} select {key}, 'EXPIRED_AFTER_PAYMENT', 'r', cast(i as text), 'REFUNDED', '{{}}', {time}
                from n"
        ),
        format!(
            "insert into alerts (id, rule, subject, severity, state, message, count, fired_at, seen_at,
                resolved_at, labels, announced)
             {rows} select {key}, 'r', cast(i as text), 'high', 'resolved', '', 1, {time}, {time}, {time},
                '{{}}', 'resolved' from n"
        ),
        "analyze".to_owned(),
    ] {
        // The recursive list stands before the select on both.
        db.sql(&fill.replace(&format!("\n             {rows} select"), &format!("\n {rows} select")))
            .await
            .unwrap();
    }
    let moment = db.pick("19990", "to_timestamp(19990)");
    for (query, index) in [
        ("select kind, count(*) from cases where status = 'open' group by kind".to_owned(), "cases_open"),
        (
            "select id from cases where kind = 'payment_unknown' and status = 'open' order by id desc limit 1".to_owned(),
            "cases_",
        ),
        (
            format!(
                "select count(*) from race_conditions where scenario = 'EXPIRED_AFTER_PAYMENT'
                    and resolution = 'REFUNDED' and detected_at > {moment}"
            ),
            "race_conditions_scenario",
        ),
        (
            "select id from alerts where state = 'firing' or announced <> state order by id limit 10"
                .to_owned(),
            "alerts_open",
        ),
        // Lists read their page, in their own order.
        (
            "select id from race_conditions where subject_id = '7' order by id desc limit 51".to_owned(),
            "race_conditions_by_subject",
        ),
        (
            "select id from race_conditions where resolution = 'VOIDED' order by id desc limit 51"
                .to_owned(),
            "race_conditions_by_resolution",
        ),
        (
            "select id from cases where subject_id = 'absent' order by id desc limit 51".to_owned(),
            "cases_of_subject",
        ),
        (
            "select id from alerts where severity = 'critical' order by id desc limit 51".to_owned(),
            "alerts_severity",
        ),
    ] {
        let plan = db.sql(&format!("{explain}{query}")).await.unwrap();
        let plan = format!("{plan:?}");
        assert!(plan.contains(index), "{query}: {plan}");
    }
}
