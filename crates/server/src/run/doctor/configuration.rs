//! What the settings say by themselves.

use tashika_domain::Lane;

use super::Finding;
use crate::config::{Config, ConfigError};

/// A configuration with which nothing starts: each reason by itself.
pub(super) fn refused(error: &ConfigError) -> Vec<Finding> {
    let advice = "correct it: `tashika config --markdown` explains every setting";
    error.problems.iter().map(|problem| Finding::bad("configuration", problem, advice)).collect()
}

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<Finding> = config
        .warnings
        .iter()
        .map(|warning| {
            let advice = "`tashika config` shows where each value came from";
            Finding::note("configuration", warning, advice)
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::good("configuration", "no contradictions"));
    }
    let off: Vec<&str> = Lane::OWN
        .iter()
        .filter(|lane| !config.enabled_lanes.contains(lane))
        .map(Lane::as_str)
        .collect();
    if !off.is_empty() {
        findings.push(Finding::note(
            "lanes",
            format!("off in this configuration: {}; what is accepted waits", off.join(", ")),
            "OUTBOX_ENABLED and OUTBOX_LANE_ENABLED switch them on",
        ));
    }
    let alerts = &config.alerts;
    if alerts.webhook_url.is_none() && alerts.mail_to.is_empty() {
        findings.push(Finding::note(
            "alerts",
            "they are written to the log, and nobody is told",
            "set ALERT_WEBHOOK_URL or ALERT_MAIL_TO",
        ));
    }
    findings
}
