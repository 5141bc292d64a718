//! What a look at a rule means.
//!
//! Called by the watchman of every process, with what it has measured and what is firing. Any number of
//! processes may look at the same time: a new alert expects that none is firing, everything else
//! expects the version that was read, and whoever loses looks again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::rules::Rule;
use super::{Alert, AlertState, Announced};
use crate::time::Timestamp;

/// A process that sees the cause says so this often, so that others do not take it for gone.
pub const REFRESH: Duration = Duration::from_secs(20);

/// What only one process can see is over when nobody has seen it for so long.
pub const LINGER: Duration = Duration::from_secs(60);

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub value: f64,
    /// How many of what is counted.
    pub count: i64,
    /// What the value alone does not say: an example, a total.
    pub labels: BTreeMap<String, String>,
    /// A more exact sentence than the rule's own.
    pub message: Option<String>,
}

/// What is to be done about a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Nothing,
    /// It fires now. Expects that none of this rule does.
    Fire(Box<Alert>),
    /// It goes on firing, and something about it is new.
    Refresh(Box<Alert>),
    Resolve(Box<Alert>),
}

/// One look: `hot_since` is when this process first saw the condition hold without a break.
#[must_use]
pub fn look(
    rule: &Rule,
    reading: &Reading,
    firing: Option<&Alert>,
    hot_since: Option<Timestamp>,
    id: Uuid,
    now: Timestamp,
) -> Step {
    match (firing, hot_since) {
        (None, Some(since)) if now.since(since) >= rule.hold => {
            Step::Fire(Box::new(fired(rule, reading, id, now)))
        }
        (None, _) => Step::Nothing,
        (Some(alert), Some(_)) => refreshed(alert, rule, reading, now),
        (Some(alert), None) if rule.measure.is_local() && now.since(alert.seen_at) < LINGER => {
            Step::Nothing
        }
        (Some(alert), None) => Step::Resolve(Box::new(Alert {
            version: alert.version + 1,
            state: AlertState::Resolved,
            resolved_at: Some(now),
            ..alert.clone()
        })),
    }
}

fn fired(rule: &Rule, reading: &Reading, id: Uuid, now: Timestamp) -> Alert {
    Alert {
        id,
        version: 1,
        rule: rule.name.to_owned(),
        subject: rule.name.to_owned(),
        severity: rule.severity,
        state: AlertState::Firing,
        message: message(rule, reading),
        count: reading.count,
        fired_at: now,
        seen_at: now,
        resolved_at: None,
        labels: labels(rule, reading),
        announced: Announced::Nothing,
        acknowledged: None,
        silenced: None,
    }
}

fn refreshed(alert: &Alert, rule: &Rule, reading: &Reading, now: Timestamp) -> Step {
    let (message, labels) = (message(rule, reading), labels(rule, reading));
    // The examples of a list may change while its length does not.
    let same = alert.count == reading.count && alert.message == message;
    let exact = rule.measure.is_local() || alert.labels == labels;
    if same && exact && now.since(alert.seen_at) < REFRESH {
        return Step::Nothing;
    }
    Step::Refresh(Box::new(Alert {
        version: alert.version + 1,
        message,
        count: reading.count,
        seen_at: now,
        labels,
        ..alert.clone()
    }))
}

fn message(rule: &Rule, reading: &Reading) -> String {
    reading.message.clone().unwrap_or_else(|| rule.text.en.to_owned())
}

fn labels(rule: &Rule, reading: &Reading) -> Value {
    let mut labels = reading.labels.clone();
    // A thousandth is exact enough, and stays the same while nothing happens.
    let value = (reading.value * 1000.0).round() / 1000.0;
    labels.insert("value".to_owned(), value.to_string());
    labels.insert("threshold".to_owned(), rule.threshold.to_string());
    json!(labels)
}

/// Whether people are to be told about an alert as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// They know, or do not want to yet.
    Not,
    Tell,
    /// Nobody is told any more: it was over before anybody wanted to hear of it.
    Forget,
}

/// Each state is told once; nothing is told while somebody has silenced it.
#[must_use]
pub fn telling(alert: &Alert, silenced: bool) -> Telling {
    match (alert.state, alert.announced, silenced) {
        (AlertState::Firing, Announced::Nothing, false)
        | (AlertState::Resolved, Announced::Nothing | Announced::Firing, false) => Telling::Tell,
        (AlertState::Resolved, Announced::Nothing | Announced::Firing, true) => Telling::Forget,
        (AlertState::Firing, _, _) | (AlertState::Resolved, Announced::Resolved, _) => Telling::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::defaults;
    use super::*;

    fn rule(name: &str) -> Rule {
        defaults().into_iter().find(|rule| rule.name == name).expect("a rule")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn reading(count: i32) -> Reading {
        Reading { value: f64::from(count), count: count.into(), ..Reading::default() }
    }

    fn fire(rule: &Rule) -> Alert {
        match look(rule, &reading(1), None, Some(at(0)), Uuid::nil(), at(1000)) {
            Step::Fire(alert) => *alert,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_condition_must_hold_for_its_time() {
        let rule = rule("outbox_pending");
        let seen = |since, now| look(&rule, &reading(2000), None, since, Uuid::nil(), at(now));
        assert_eq!(seen(None, 10_000), Step::Nothing);
        assert_eq!(seen(Some(at(100)), 100), Step::Nothing);
        assert_eq!(seen(Some(at(100)), 999), Step::Nothing);
        assert!(matches!(seen(Some(at(100)), 1000), Step::Fire(_)));
    }

    #[test]
    fn an_alert_follows_its_count_and_ends_with_its_cause() {
        let rule = rule("manual_case");
        let alert = fire(&rule);
        let seen = |count, since, now| {
            look(&rule, &reading(count), Some(&alert), since, Uuid::nil(), at(now))
        };
        assert_eq!(seen(1, Some(at(0)), 1001), Step::Nothing, "nothing is new");
        let Step::Refresh(more) = seen(1000, Some(at(0)), 1001) else { panic!() };
        assert_eq!((more.count, more.version, more.fired_at), (1000, 2, at(1000)));
        assert!(matches!(seen(1, Some(at(0)), 1020), Step::Refresh(_)), "a sign of life");
        let Step::Resolve(over) = seen(0, None, 1001) else { panic!() };
        assert_eq!((over.state, over.resolved_at), (AlertState::Resolved, Some(at(1001))));
        assert_eq!(over.count, 1, "what it was about");
    }

    #[test]
    fn what_one_process_does_not_see_another_may() {
        let rule = rule("broker_timeouts");
        let alert = fire(&rule);
        let seen = |now| look(&rule, &reading(0), Some(&alert), None, Uuid::nil(), at(now));
        assert_eq!(seen(1059), Step::Nothing);
        assert!(matches!(seen(1060), Step::Resolve(_)));
    }

    #[test]
    fn each_state_is_told_once_and_silence_is_kept() {
        use AlertState::{Firing, Resolved};
        for (state, announced, silenced, expected) in [
            (Firing, Announced::Nothing, false, Telling::Tell),
            (Firing, Announced::Nothing, true, Telling::Not),
            (Firing, Announced::Firing, false, Telling::Not),
            (Firing, Announced::Firing, true, Telling::Not),
            (Resolved, Announced::Nothing, false, Telling::Tell),
            (Resolved, Announced::Nothing, true, Telling::Forget),
            (Resolved, Announced::Firing, false, Telling::Tell),
            (Resolved, Announced::Firing, true, Telling::Forget),
            (Resolved, Announced::Resolved, false, Telling::Not),
            (Resolved, Announced::Resolved, true, Telling::Not),
        ] {
            let alert = Alert { state, announced, ..fire(&rule("manual_case")) };
            assert_eq!(telling(&alert, silenced), expected, "{state:?} {announced:?} {silenced}");
        }
    }
}
