//! Alerts: what somebody should look at now.
//!
//! An alert fires once per rule and subject, counts repeats, and is resolved when its cause is gone.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

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

/// An alert as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    pub id: Uuid,
    pub rule: String,
    pub severity: Severity,
    pub state: AlertState,
    pub message: String,
    pub count: i64,
    pub fired_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    pub labels: Value,
}
