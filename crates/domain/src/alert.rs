//! Alerts: what somebody should look at now.
//!
//! An alert fires once per rule and subject, whoever notices it first, and is resolved when its cause
//! is gone. [`rules`] is the table of what is watched, [`watch`] decides with what was measured, and
//! [`notify`] makes the effects that tell people.

pub mod notify;
pub mod request;
pub mod rules;
pub mod watch;

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit::{Actor, NewAudit, line_id};
use crate::changes::{Changes, Write};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Warning,
    High,
    Critical,
}

impl Severity {
    pub const ALL: [Self; 3] = [Self::Warning, Self::High, Self::Critical];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    Firing,
    Resolved,
}

impl AlertState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Firing, Self::Resolved].into_iter().find(|state| state.as_str() == text)
    }
}

/// Fires an alert, or counts one more of what is firing already.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlert {
    pub id: Uuid,
    pub rule: &'static str,
    /// What it is about: one alert per rule and subject fires at a time.
    pub subject: String,
    pub severity: Severity,
    pub message: &'static str,
    /// JSON text: an object of texts.
    pub labels: String,
    pub now: Timestamp,
}

/// The cause of an alert is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertResolution {
    pub rule: &'static str,
    pub subject: String,
    pub now: Timestamp,
}

/// An alert as it was read, and as it is written back.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    pub id: Uuid,
    pub version: i64,
    pub rule: String,
    /// What it is about. Alerts that the watchman measures are about the whole of their rule.
    pub subject: String,
    pub severity: Severity,
    pub state: AlertState,
    pub message: String,
    /// How many of what is counted there were when it was last looked at.
    pub count: i64,
    pub fired_at: Timestamp,
    /// When its cause was last seen.
    pub seen_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    /// An object of texts.
    pub labels: Value,
    pub announced: Announced,
    pub acknowledged: Option<Acknowledged>,
    pub silenced: Option<Silence>,
}

/// What people were told last about an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    Nothing,
    Firing,
    Resolved,
}

impl Announced {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Nothing, Self::Firing, Self::Resolved];
        all.into_iter().find(|announced| announced.as_str() == text)
    }
}

impl From<AlertState> for Announced {
    fn from(state: AlertState) -> Self {
        match state {
            AlertState::Firing => Self::Firing,
            AlertState::Resolved => Self::Resolved,
        }
    }
}

/// Somebody has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    pub at: Timestamp,
    pub by: String,
}

/// Nobody wants to be told until then. It goes on firing, and can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    pub until: Timestamp,
    pub by: String,
    pub reason: String,
}

/// A silence that is in force, by what it is about: it also holds for the next alert of the same rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Silenced {
    pub rule: String,
    pub subject: String,
}

/// Why an alert cannot be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertRefusal {
    #[error("the alert is not firing any more")]
    NotFiring,
}

/// Somebody has seen the alert. `None`: somebody had before, and stays the one who did.
pub fn acknowledge(
    alert: &Alert,
    who: &str,
    note: &str,
    now: Timestamp,
) -> Result<Option<Changes>, AlertRefusal> {
    if alert.acknowledged.is_some() {
        return Ok(None);
    }
    if alert.state != AlertState::Firing {
        return Err(AlertRefusal::NotFiring);
    }
    let acknowledged = Some(Acknowledged { at: now, by: who.to_owned() });
    let details = json!({"rule": alert.rule, "note": note});
    let after = Alert { version: alert.version + 1, acknowledged, ..alert.clone() };
    Ok(Some(audited(after, "alert.acknowledged", who, &details, now)))
}

/// Nobody is told about the alert, nor about the next ones of its rule and subject, before `until`. A
/// moment that is over ends a silence. `None`: it is so already.
#[must_use]
pub fn silence(
    alert: &Alert,
    until: Timestamp,
    who: &str,
    reason: &str,
    now: Timestamp,
) -> Option<Changes> {
    let wanted =
        (until > now).then(|| Silence { until, by: who.to_owned(), reason: reason.to_owned() });
    let in_force = alert.silenced.as_ref().filter(|silence| silence.until > now);
    if in_force == wanted.as_ref() {
        return None;
    }
    let action = if wanted.is_some() { "alert.silenced" } else { "alert.unsilenced" };
    let details = json!({"rule": alert.rule, "until": until, "reason": reason});
    let after = Alert { version: alert.version + 1, silenced: wanted, ..alert.clone() };
    Some(audited(after, action, who, &details, now))
}

fn audited(after: Alert, action: &str, who: &str, details: &Value, now: Timestamp) -> Changes {
    let target = after.id.to_string();
    let line = NewAudit {
        id: line_id(now, &target, action, after.version.unsigned_abs()),
        actor: Actor::operator(who),
        action: action.to_owned(),
        target_type: "alert",
        target_id: target,
        office_id: None,
        details: details.to_string(),
        now,
    };
    Changes::from(Write::AlertUpdate(Box::new(after))).with(Write::Audit(Box::new(line)))
}
