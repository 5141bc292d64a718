//! Every rule fires and resolves, once for everybody; people are told once, and not while they do not want to.

use std::time::Duration;

use tashika_domain::alert::rules::{Measure, defaults};
use tashika_domain::alert::watch::LINGER;
use tashika_domain::alert::{AlertRefusal, AlertState};
use tashika_engine::commands::alert::{AlertError, Alerts};
use tashika_engine::{AlertSettings, Clock, Pruner};
use tashika_store::{AuditFilter, Dialect};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::alert_rig::{START, Tower, after, alert_settings, case, critical, rule};
use crate::support::engine;

on_both!(
    every_rule_fires_and_resolves,
    a_thousand_stuck_payments_are_one_alert_with_a_count,
    one_alert_fires_however_many_processes_watch,
    what_one_process_counts_another_does_not_end,
    too_few_events_say_nothing,
    a_rule_that_is_off_resolves_what_it_fired,
    an_alert_is_acknowledged_once_by_whoever_was_first,
    nobody_is_told_while_an_alert_is_silenced,
    a_silence_also_holds_for_the_next_alert_of_its_rule,
    a_lost_commit_is_made_good_by_the_next_look,
    alerts_that_are_over_are_pruned,
);

/// For each row of the table: how many are not enough, and how many are.
const AMOUNTS: [(&str, u64, u64); 19] = [
    ("payment_pending_verification", 10, 11),
    ("payment_verification_failed", 0, 1),
    ("payment_gateway_timeouts", 5, 6),
    ("queue_dead_letters", 0, 1),
    ("queue_dead_letters_old", 86_390, 86_410),
    ("queue_retries", 9, 10),
    ("queue_publish_failures", 10, 11),
    ("queue_worker_errors", 5, 6),
    ("queue_end_to_end", 9_000, 20_000),
    ("order_conflicts", 50, 51),
    ("broker_timeouts", 20, 21),
    ("outbox_pending", 1000, 1001),
    ("expiry_refunds", 4, 5),
    ("render_refund", 0, 1),
    ("manual_case", 0, 1),
    ("mail_lane_stopped", 0, 1),
    ("mail_quota_near", 89, 90),
    ("availability", 10, 11),
    ("store_slow", 900, 2_000),
];

async fn every_rule_fires_and_resolves(db: TestDb) {
    let named: Vec<&str> = AMOUNTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(named, defaults().iter().map(|rule| rule.name).collect::<Vec<_>>());
    let dialect = db.dialect();
    for (name, not_yet, enough) in AMOUNTS {
        let db = fresh(dialect);
        let rule = rule(name);
        if not_yet > 0 {
            let tower = Tower::new(&db).await;
            tower.heat(&rule, not_yet, START).await;
            tower.look(START).await;
            tower.look(START.plus(rule.hold)).await;
            assert_eq!(tower.firing(name).await, None, "{name}: not yet");
        }
        let db = fresh(dialect);
        let tower = Tower::new(&db).await;
        tower.heat(&rule, enough, START).await;
        tower.look(START).await;
        if !rule.hold.is_zero() {
            tower.look(START.plus(rule.hold).minus(Duration::from_secs(1))).await;
            assert_eq!(tower.firing(name).await, None, "{name}: not for long enough");
        }
        let now = START.plus(rule.hold);
        tower.look(now).await;
        let alert = tower.firing(name).await.unwrap_or_else(|| panic!("{name} does not fire"));
        assert_eq!((alert.severity, alert.fired_at), (rule.severity, now), "{name}");
        assert!(alert.count > 0, "{name}: {alert:?}");
        tower.look(now.plus(Duration::from_secs(1))).await;
        assert_eq!(tower.alerts(name).await.len(), 1, "{name} fires once");
        assert_eq!(tower.told(name).await, ["firing"], "{name}");

        let now = now.plus(Duration::from_secs(2));
        tower.cool(&rule, enough, now).await;
        let over = now.plus(rule.window).plus(LINGER);
        tower.look(over).await;
        assert_eq!(tower.firing(name).await, None, "{name} is over");
        let [alert] = &tower.alerts(name).await[..] else { panic!("{name}: history is kept") };
        assert_eq!(alert.state, AlertState::Resolved);
        assert!(alert.resolved_at.is_some());
        tower.look(over.plus(Duration::from_secs(1))).await;
        assert_eq!(tower.told(name).await, ["firing", "resolved"], "{name}");
    }
}

/// A database of its own for each rule.
fn fresh(dialect: Dialect) -> TestDb {
    match dialect {
        Dialect::Sqlite => TestDb::sqlite(),
        Dialect::Postgres => TestDb::postgres(),
    }
}

async fn a_thousand_stuck_payments_are_one_alert_with_a_count(db: TestDb) {
    let tower = Tower::new(&db).await;
    let unknown = rule("payment_verification_failed");
    tower.heat(&unknown, 1000, START).await;
    for second in 0..5 {
        tower.look(after(second)).await;
    }
    let alert = tower.firing(unknown.name).await.unwrap();
    assert_eq!((alert.count, alert.message.as_str()), (1000, "told"));
    assert!(alert.labels["paymentId"].is_string(), "an example: {alert:?}");
    assert_eq!(tower.alerts(unknown.name).await.len(), 1);
    let all = tower.firing("manual_case").await.unwrap();
    assert_eq!((all.count, critical(&all)), (1000, true));
    assert_eq!(all.labels["payment_unknown"], "1000");
    assert_eq!(tower.told(unknown.name).await, ["firing"], "nobody is called a thousand times");

    tower.cool(&unknown, 999, after(5)).await;
    tower.look(after(6)).await;
    assert_eq!(tower.firing(unknown.name).await.unwrap().count, 1, "one is left");
    assert_eq!(tower.told(unknown.name).await, ["firing"], "a count is no news");
    tower.cool(&unknown, 1000, after(7)).await;
    tower.look(after(8)).await;
    assert_eq!(tower.firing(unknown.name).await, None);
    assert_eq!(tower.told(unknown.name).await, ["firing", "resolved"]);
}

async fn one_alert_fires_however_many_processes_watch(db: TestDb) {
    let first = Tower::new(&db).await;
    let mut towers = vec![first];
    for _ in 0..4 {
        towers.push(Tower::with(db.open().await, alert_settings(Some("chat"))));
    }
    let dead = rule("queue_dead_letters");
    towers[0].heat(&dead, 3, START).await;
    for round in 0..3 {
        let looks = towers.iter().map(|tower| tower.look(after(round)));
        futures_util::future::join_all(looks).await;
    }
    assert_eq!(towers[0].alerts(dead.name).await.len(), 1);
    assert_eq!(towers[0].told(dead.name).await, ["firing"]);
    towers[0].cool(&dead, 3, after(4)).await;
    for round in 5..8 {
        let looks = towers.iter().map(|tower| tower.look(after(round)));
        futures_util::future::join_all(looks).await;
    }
    assert_eq!(towers[0].firing(dead.name).await, None);
    assert_eq!(towers[0].told(dead.name).await, ["firing", "resolved"]);
}

async fn what_one_process_counts_another_does_not_end(db: TestDb) {
    let hot = Tower::new(&db).await;
    let cold = Tower::with(db.open().await, alert_settings(Some("chat")));
    let timeouts = rule("broker_timeouts");
    for second in (0..200).step_by(10) {
        hot.heat(&timeouts, 21, after(second)).await;
        hot.look(after(second)).await;
        cold.look(after(second)).await;
        assert!(hot.firing(timeouts.name).await.is_some(), "after {second} s");
    }
    assert_eq!(hot.alerts(timeouts.name).await.len(), 1);
    // The process is gone, and with it whoever could say that it is over.
    drop(hot);
    cold.look(after(195 + 50)).await;
    assert!(cold.firing(timeouts.name).await.is_some());
    cold.look(after(195 + 80)).await;
    assert_eq!(cold.firing(timeouts.name).await, None);
}

async fn too_few_events_say_nothing(db: TestDb) {
    let tower = Tower::new(&db).await;
    let errors = rule("queue_worker_errors");
    let Measure::Share { part, whole } = &errors.measure else { panic!() };
    tower.count(part[0], 19);
    tower.look(START).await;
    assert_eq!(tower.firing(errors.name).await, None, "nineteen of nineteen");
    tower.count(whole[0], 1);
    tower.look(after(1)).await;
    let alert = tower.firing(errors.name).await.unwrap();
    assert_eq!((alert.count, &alert.labels["of"]), (19, &serde_json::json!("20")));
}

async fn a_rule_that_is_off_resolves_what_it_fired(db: TestDb) {
    let tower = Tower::new(&db).await;
    let dead = rule("queue_dead_letters");
    tower.heat(&dead, 1, START).await;
    tower.look(START).await;
    let mut settings: AlertSettings = alert_settings(Some("chat"));
    settings.rules.iter_mut().find(|rule| rule.name == dead.name).unwrap().enabled = false;
    let off = Tower::with(tower.store.clone(), settings);
    off.look(after(1)).await;
    assert_eq!(off.firing(dead.name).await, None);
    off.look(after(2)).await;
    assert_eq!(off.alerts(dead.name).await.len(), 1);
}

async fn an_alert_is_acknowledged_once_by_whoever_was_first(db: TestDb) {
    let tower = Tower::new(&db).await;
    tower.done([tashika_domain::Write::OpenCase(case("payment_difference", 1, START))]).await;
    tower.look(START).await;
    let alert = tower.firing("manual_case").await.unwrap();
    let alerts = Alerts::new(tower.store.clone(), Clock::simulated(after(1)));
    let people = ["mika", "ken", "yui"].map(|who| alerts.acknowledge(alert.id, who, "on it"));
    for seen in futures_util::future::join_all(people).await {
        assert!(seen.unwrap().acknowledged.is_some());
    }
    let first = tower.firing("manual_case").await.unwrap().acknowledged.unwrap();
    let again = alerts.acknowledge(alert.id, "late", "").await.unwrap();
    assert_eq!(again.acknowledged.as_ref(), Some(&first), "a repeat changes nothing");
    let filter =
        AuditFilter { action: Some("alert.acknowledged".into()), ..AuditFilter::default() };
    let lines = tower.store.audit_logs(&filter, 10).await.unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].actor_id.as_deref(), Some(first.by.as_str()));

    tower.cool(&rule("manual_case"), 2, after(2)).await;
    tower.look(after(3)).await;
    assert!(alerts.acknowledge(alert.id, "late", "").await.is_ok(), "it was seen before");
    tower.done([tashika_domain::Write::OpenCase(case("payment_difference", 5, after(4)))]).await;
    tower.look(after(4)).await;
    let next = tower.firing("manual_case").await.unwrap();
    assert_eq!(next.acknowledged, None, "the next one is news");
    tower.cool(&rule("manual_case"), 9, after(5)).await;
    tower.look(after(5)).await;
    let refused = alerts.acknowledge(next.id, "late", "").await.unwrap_err();
    assert!(matches!(refused, AlertError::Refused(AlertRefusal::NotFiring)));
    let nobody = alerts.acknowledge(uuid::Uuid::nil(), "x", "").await.unwrap_err();
    assert!(matches!(nobody, AlertError::NotFound));
}

async fn nobody_is_told_while_an_alert_is_silenced(db: TestDb) {
    let tower = Tower::new(&db).await;
    let dead = rule("queue_dead_letters");
    tower.heat(&dead, 1, START).await;
    tower.look(START).await;
    let alert = tower.firing(dead.name).await.unwrap();
    let alerts = Alerts::new(tower.store.clone(), Clock::simulated(after(1)));
    let until = after(100);
    let silenced = alerts.silence(alert.id, until, "mika", "known").await.unwrap();
    assert_eq!(silenced.silenced.as_ref().map(|s| s.until), Some(until));
    let again = alerts.silence(alert.id, until, "mika", "known").await.unwrap();
    assert_eq!(again.version, silenced.version, "a repeat changes nothing");
    tower.cool(&dead, 1, after(2)).await;
    tower.look(after(3)).await;
    assert_eq!(tower.told(dead.name).await, ["firing"], "nor that it is over");
    tower.look(after(101)).await;
    assert_eq!(tower.told(dead.name).await, ["firing"]);
    let filter = AuditFilter { action: Some("alert.silenced".into()), ..AuditFilter::default() };
    assert_eq!(tower.store.audit_logs(&filter, 10).await.unwrap().len(), 1);
}

async fn a_silence_also_holds_for_the_next_alert_of_its_rule(db: TestDb) {
    let tower = Tower::new(&db).await;
    let unknown = rule("payment_verification_failed");
    tower.heat(&unknown, 1, START).await;
    tower.look(START).await;
    let alert = tower.firing(unknown.name).await.unwrap();
    let alerts = Alerts::new(tower.store.clone(), Clock::simulated(after(1)));
    alerts.silence(alert.id, after(100), "mika", "known").await.unwrap();
    tower.cool(&unknown, 1, after(2)).await;
    tower.look(after(2)).await;
    tower.heat(&unknown, 1, after(3)).await;
    tower.look(after(3)).await;
    assert!(tower.firing(unknown.name).await.is_some(), "it fires, and is listed");
    assert_eq!(tower.told(unknown.name).await, ["firing"]);
    // It fires still when the silence is over: now somebody wants to know.
    tower.look(after(100)).await;
    assert_eq!(tower.told(unknown.name).await, ["firing", "firing"]);
    let next = tower.firing(unknown.name).await.unwrap();
    let ended = alerts.silence(alert.id, after(0), "mika", "over").await.unwrap();
    assert_eq!((ended.silenced, next.silenced), (None, None));
}

/// Whatever the process was doing when it died: the row says what people were not told yet.
async fn a_lost_commit_is_made_good_by_the_next_look(db: TestDb) {
    let tower = Tower::new(&db).await;
    let stopped = rule("mail_lane_stopped");
    tower.heat(&stopped, 1, START).await;
    assert_eq!(tower.told(stopped.name).await, [] as [String; 0], "it died before it could tell");
    drop(tower);
    let next = Tower::new(&db).await;
    next.look(after(1)).await;
    next.look(after(2)).await;
    assert_eq!(next.told(stopped.name).await, ["firing"]);
    next.heat(&stopped, 1, after(3)).await;
    next.look(after(3)).await;
    assert_eq!(next.firing(stopped.name).await.unwrap().count, 2);
    assert_eq!(next.told(stopped.name).await, ["firing"], "a count is no news");
}

async fn alerts_that_are_over_are_pruned(db: TestDb) {
    let tower = Tower::new(&db).await;
    let dead = rule("queue_dead_letters");
    tower.heat(&dead, 1, START).await;
    tower.look(START).await;
    tower.cool(&dead, 1, after(1)).await;
    tower.look(after(1)).await;
    tower.look(after(2)).await;
    let pruner = |clock| Pruner::new(std::sync::Arc::new(engine(&tower.store, clock, "host:1:a")));
    let days = |days: u64| Clock::simulated(START.plus(Duration::from_secs(days * 86_400)));
    assert_eq!(pruner(days(89)).run_once().await.unwrap().alerts, 0);
    assert_eq!(pruner(days(91)).run_once().await.unwrap().alerts, 1);
    assert_eq!(tower.alerts(dead.name).await, []);
}
