//! Looks at what stands around: gauges for Prometheus, alerts for people.
//!
//! Every process has one, and any number may look at the same time: alerts are rows, and whoever loses a
//! race looks again. What the database knows is read from it; what only this process knows, its
//! counters, is remembered with the time and compared with what it was before. That memory is a
//! measurement and no promise: after a restart it begins anew, and whatever fires is in the database.

mod history;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tashika_domain::alert::notify::tell;
use tashika_domain::alert::rules::{Measure, Rule};
use tashika_domain::alert::watch::{Reading, Step, Telling, look, telling};
use tashika_domain::alert::{Alert, AlertState, Announced, Severity, Silenced};
use tashika_domain::case::{Case, CaseResolution, CaseStatus, DEAD_LETTER};
use tashika_domain::{Changes, EffectId, Status, Timestamp, Write, message};
use tashika_store::{CaseFilter, CommitError, StoreError};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::Engine;
use history::History;

/// Counting a large table takes time: it may take this share of it.
const SHARE: u32 = 50;

/// And never keeps the next look waiting for more than so many periods: one slow moment of the
/// database must not leave people without alerts.
const LONGEST: u32 = 6;

/// Between two looks that were woken up for: a thousand cases at once are worth a few looks.
const CALM: Duration = Duration::from_millis(200);

/// Alerts in one look. There are about as many as rules.
const ALERTS: i64 = 1000;

/// Cases about dead letters that one look compares with what they are about.
const CASES: i64 = 100;

/// Watches.
pub struct Watchman {
    engine: Arc<Engine>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Since when a rule's condition has been seen to hold without a break.
    hot: BTreeMap<&'static str, Timestamp>,
    histories: BTreeMap<&'static str, History>,
    /// Where the look at cases about dead letters goes on.
    cases_before: Option<Uuid>,
}

impl Watchman {
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        let start = engine.clock.now();
        let rules = engine.settings.alerts.rules.iter();
        // What is counted before the first look counts.
        let histories = rules
            .filter(|rule| rule.measure.is_local())
            .map(|rule| (rule.name, History::since(start)))
            .collect();
        Self { engine, memory: Mutex::new(Memory { histories, ..Memory::default() }) }
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        let wakeups = self.engine.store.wakeups();
        loop {
            let began = self.engine.clock.now();
            if let Err(error) = self.run_once(began).await {
                tracing::warn!(%error, "the watchman could not look at everything");
            }
            let took = self.engine.clock.now().since(began);
            let pause = pause(took, self.engine.settings.alerts.every);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.clock.sleep(pause) => {}
            }
            let period = self.engine.settings.alerts.every.saturating_sub(pause);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = wakeups.attention() => {}
                () = self.engine.clock.sleep(period) => {}
            }
        }
    }

    /// One look at everything.
    pub async fn run_once(&self, now: Timestamp) -> Result<(), StoreError> {
        self.engine.pulse.close(now, self.engine.store.due_by_lane(now).await?);
        let mut memory = self.memory.lock().await;
        let facts = readings::facts(&self.engine, now).await?;
        let store = &self.engine.store;
        let open = store.alerts_open(ALERTS).await?;
        let silences = store.silences(now).await?;
        let mut told: BTreeSet<Uuid> = BTreeSet::new();
        for rule in &self.engine.settings.alerts.rules {
            let reading = readings::read(&self.engine, rule, &facts, &mut memory.histories, now);
            let reading = reading.await?;
            let firing = firing(&open, rule);
            let step = self.step(rule, reading.as_ref(), firing, &mut memory.hot, now);
            let (after, new) = match step {
                Step::Nothing => continue,
                Step::Fire(alert) => (*alert, true),
                Step::Refresh(alert) | Step::Resolve(alert) => (*alert, false),
            };
            told.insert(after.id);
            self.write(after, new, &silences, now).await?;
        }
        // What others have fired or resolved, and what was silenced until now.
        for alert in open.iter().filter(|alert| !told.contains(&alert.id)) {
            if telling(alert, is_silenced(alert, &silences)) != Telling::Not {
                let after = Alert { version: alert.version + 1, ..alert.clone() };
                self.write(after, false, &silences, now).await?;
            }
        }
        self.show(&store.alerts_open(ALERTS).await?);
        self.tidy(&mut memory, now).await
    }

    fn step(
        &self,
        rule: &Rule,
        reading: Option<&Reading>,
        firing: Option<&Alert>,
        hot: &mut BTreeMap<&'static str, Timestamp>,
        now: Timestamp,
    ) -> Step {
        if rule.measure == Measure::Reported {
            return Step::Nothing;
        }
        let none = Reading::default();
        let holds = rule.enabled && reading.is_some_and(|reading| rule.holds(reading.value));
        let since = if holds {
            Some(*hot.entry(rule.name).or_insert(now))
        } else {
            hot.remove(rule.name);
            None
        };
        look(rule, reading.unwrap_or(&none), firing, since, self.engine.ids.uuid(), now)
    }

    /// Writes an alert as it is now, with whatever tells people about it.
    async fn write(
        &self,
        mut alert: Alert,
        new: bool,
        silences: &BTreeSet<Silenced>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let wanted = telling(&alert, is_silenced(&alert, silences));
        let mut changes = Changes::new();
        if wanted != Telling::Not {
            alert.announced = Announced::from(alert.state);
        }
        if wanted == Telling::Tell {
            changes.extend(tell(&alert, &self.engine.settings.alerts.channels, now));
        }
        let row = Box::new(alert.clone());
        changes.push(if new { Write::AlertInsert(row) } else { Write::AlertUpdate(row) });
        match self.engine.store.commit(changes).await {
            Ok(()) if wanted == Telling::Tell => log(&alert),
            // Somebody else was faster: the next look sees what they have written.
            Ok(())
            | Err(CommitError::Taken(_) | CommitError::Outdated { .. } | CommitError::Stale(_)) => {
            }
            Err(CommitError::Store(error)) => return Err(error),
        }
        Ok(())
    }

    /// For Prometheus: how many alerts of each rule are firing.
    #[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
    fn show(&self, open: &[Alert]) {
        for rule in &self.engine.settings.alerts.rules {
            let of_rule =
                |alert: &&Alert| alert.rule == rule.name && alert.state == AlertState::Firing;
            let count = open.iter().filter(of_rule).count();
            gauge!("alert_firing", "rule" => rule.name).set(count as f64);
        }
    }

    /// Closes cases about dead letters that are none any more: sent again or removed by other means.
    async fn tidy(&self, memory: &mut Memory, now: Timestamp) -> Result<(), StoreError> {
        let filter = CaseFilter {
            status: Some(CaseStatus::Open),
            kind: Some(DEAD_LETTER.to_owned()),
            before: memory.cases_before,
            ..CaseFilter::default()
        };
        let cases = self.engine.store.cases(&filter, CASES).await?;
        // After the oldest one it begins again with the newest.
        memory.cases_before = cases.last().map(|case| case.id);
        for case in cases {
            if self.is_dead(&case).await? {
                continue;
            }
            let end = CaseResolution {
                kind: DEAD_LETTER,
                subject_id: case.subject_id,
                action: "gone".to_owned(),
                note: "it is not a dead letter any more".to_owned(),
                now,
            };
            let closed = self.engine.store.commit(Changes::from(Write::ResolveCase(end))).await;
            if let Err(CommitError::Store(error)) = closed {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn is_dead(&self, case: &Case) -> Result<bool, StoreError> {
        let Ok(id) = case.subject_id.parse::<Uuid>() else { return Ok(true) };
        if case.subject_type == message::KIND {
            let letter = self.engine.store.message(id).await?;
            return Ok(letter.is_some_and(|letter| letter.dlq_id.is_some()));
        }
        let effect = self.engine.store.effect(EffectId(id)).await?;
        // One that was pruned was not tried again: whoever waits for it still does.
        Ok(effect.is_none_or(|effect| effect.status == Status::Aborted))
    }
}

/// How long nobody is listened to after a look that took so long.
fn pause(took: Duration, every: Duration) -> Duration {
    CALM.max(took.saturating_mul(SHARE).min(every.saturating_mul(LONGEST)))
}

/// The alert of a rule that the watchman measures itself.
fn firing<'a>(open: &'a [Alert], rule: &Rule) -> Option<&'a Alert> {
    open.iter().find(|alert| {
        alert.state == AlertState::Firing && alert.rule == rule.name && alert.subject == rule.name
    })
}

fn is_silenced(alert: &Alert, silences: &BTreeSet<Silenced>) -> bool {
    let about = Silenced { rule: alert.rule.clone(), subject: alert.subject.clone() };
    silences.contains(&about)
}

/// The log is told what people are told.
fn log(alert: &Alert) {
    // The levels differ, the fields do not.
    macro_rules! say {
        ($level:ident, $text:literal) => {
            tracing::$level!(
                alert_id = %alert.id,
                rule = alert.rule,
                severity = alert.severity.as_str(),
                state = alert.state.as_str(),
                count = alert.count,
                reason = alert.message,
                $text
            )
        };
    }
    match (alert.state, alert.severity) {
        (AlertState::Resolved, _) => say!(info, "an alert is resolved"),
        (AlertState::Firing, Severity::Warning) => say!(warn, "an alert fires"),
        (AlertState::Firing, Severity::High | Severity::Critical) => say!(error, "an alert fires"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_look_is_paid_for_but_blinds_nobody() {
        let every = Duration::from_secs(10);
        assert_eq!(pause(Duration::from_millis(1), every), CALM);
        assert_eq!(pause(Duration::from_millis(100), every), Duration::from_secs(5));
        assert_eq!(pause(Duration::from_secs(8), every), Duration::from_secs(60));
        assert_eq!(pause(Duration::MAX, Duration::MAX), Duration::MAX);
    }
}
