//! `tashika doctor`: checks, and what to do about what it finds.
//!
//! Nothing is changed and nothing is sent: the database commits a probe, everybody else is asked what
//! they would be asked anyway. Each check has a limit of time, and each finding says what to do. Secrets
//! are not shown: an address is named by its setting.

mod configuration;
mod outside;
mod store;

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::app::{App, AppError};
use crate::config::{Config, ConfigError};

/// Whoever does not answer within this does not answer.
const LIMIT: Duration = Duration::from_secs(10);
/// A large table may be read once.
const STORE_LIMIT: Duration = Duration::from_secs(60);

struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    /// Allowed, and worth knowing.
    Note,
    /// Somebody must act.
    Alert,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Alert => "ALERT",
        }
    }
}

impl Finding {
    fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    fn note(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Note, text: text.into(), advice: Some(advice.into()) }
    }

    fn bad(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Alert, text: text.into(), advice: Some(advice.into()) }
    }
}

/// Returns whether everything is in order.
pub async fn doctor(
    config: Result<Config, ConfigError>,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let findings = match &config {
        Ok(config) => examine(config).await,
        Err(refused) => configuration::refused(refused),
    };
    let healthy = findings.iter().all(|finding| finding.level != Level::Alert);
    if json {
        let items: Vec<_> = findings
            .iter()
            .map(|f| {
                let level = f.level.as_str().to_lowercase();
                json!({"check": f.check, "level": level, "text": f.text, "advice": f.advice})
            })
            .collect();
        writeln!(out, "{}", json!({ "ok": healthy, "items": items }))?;
        return Ok(healthy);
    }
    for finding in &findings {
        let text = super::table::plain(&finding.text);
        writeln!(out, "{:<5}  {:<14} {text}", finding.level.as_str(), finding.check)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "       {:<14} → {advice}", "")?;
        }
    }
    Ok(healthy)
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = configuration::check(config);
    let opened = tokio::time::timeout(LIMIT, App::open_existing(config)).await;
    match opened {
        Err(_) => findings.push(Finding::bad(
            "database",
            format!("no answer within {} s", LIMIT.as_secs()),
            store::REACH,
        )),
        Ok(Err(error)) => findings.push(unopened(&error)),
        Ok(Ok(app)) => {
            findings.extend(store::check(&app, config).await);
            findings.extend(outside::check(&app).await);
        }
    }
    findings
}

/// Why a process like this one would not start.
fn unopened(error: &AppError) -> Finding {
    let (check, advice) = match error {
        AppError::Store(_) => ("database", store::REACH),
        AppError::NoDatabase(_) => ("database", "start the server once"),
        AppError::Broker(_) => ("broker", "correct the setting"),
        AppError::Stripe(_) | AppError::Gateway(_) => ("gateway", "correct the setting"),
        AppError::Sink(_)
        | AppError::AlertSink(_)
        | AppError::Worker(_)
        | AppError::Source(_)
        | AppError::Qstash(_)
        | AppError::Shotstack(_) => ("events", "correct the setting"),
        AppError::Templates(_) | AppError::Mail(_) => ("mail", "correct the setting"),
        AppError::Renderer(_)
        | AppError::TemplateFile(_)
        | AppError::Template(_)
        | AppError::Outputs(_) => ("renders", "correct the setting"),
        AppError::Courier(_) => ("deliveries", "install the machine's root certificates"),
    };
    Finding::bad(check, error.to_string(), advice)
}
