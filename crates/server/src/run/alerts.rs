//! `tashika alerts`: what fires, and the rules for other tools.

use std::io::Write;

use serde_json::{Value, json};
use tashika_domain::alert::Alert;
use tashika_domain::alert::rules::span;
use tashika_store::AlertFilter;

use super::table;
use crate::app::App;
use crate::cli::args::{AlertsArgs, AlertsCommand};
use crate::config::Config;
use crate::monitoring;

pub async fn alerts(config: &Config, args: AlertsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    match args.command {
        AlertsCommand::List { state, limit } => {
            let app = App::open_existing(config).await?;
            let filter = AlertFilter { state, ..AlertFilter::default() };
            let found = app.store.alerts(&filter, i64::from(limit)).await?;
            list(&found, args.json, out)
        }
        AlertsCommand::Rules { prometheus: true } => {
            Ok(out.write_all(monitoring::prometheus(&config.alerts.rules).as_bytes())?)
        }
        AlertsCommand::Rules { prometheus: false } => rules(config, args.json, out),
        AlertsCommand::Dashboard => {
            Ok(writeln!(out, "{:#}", monitoring::dashboard(&config.alerts.rules))?)
        }
    }
}

fn list(found: &[Alert], json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if json {
        let item = |alert: &Alert| {
            json!({"id": alert.id, "rule": alert.rule, "severity": alert.severity,
                "state": alert.state, "count": alert.count, "firedAt": alert.fired_at,
                "resolvedAt": alert.resolved_at, "labels": alert.labels})
        };
        let items: Vec<Value> = found.iter().map(item).collect();
        return Ok(writeln!(out, "{}", json!({ "items": items }))?);
    }
    if found.is_empty() {
        return Ok(writeln!(out, "there are no alerts")?);
    }
    let row = |alert: &Alert| {
        vec![
            alert.rule.clone(),
            alert.severity.as_str().to_owned(),
            alert.state.as_str().to_owned(),
            alert.count.to_string(),
            alert.fired_at.to_string(),
            alert.message.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    Ok(table::print(out, &["RULE", "SEVERITY", "STATE", "COUNT", "FIRED", "MESSAGE"], &rows)?)
}

fn rules(config: &Config, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let rules = &config.alerts.rules;
    if json {
        let items: Vec<Value> = rules
            .iter()
            .map(|rule| {
                json!({"name": rule.name, "severity": rule.severity, "enabled": rule.enabled,
                    "comparison": rule.comparison.as_str(), "threshold": rule.threshold,
                    "expression": rule.expression()})
            })
            .collect();
        return Ok(writeln!(out, "{}", json!({ "items": items }))?);
    }
    let rows: Vec<Vec<String>> = rules
        .iter()
        .map(|rule| {
            vec![
                rule.name.to_owned(),
                rule.severity.as_str().to_owned(),
                format!("{} {}", rule.comparison.as_str(), rule.threshold),
                span(rule.window),
                span(rule.hold),
                if rule.enabled { "on" } else { "off" }.to_owned(),
                rule.text.en.to_owned(),
            ]
        })
        .collect();
    let headings = ["RULE", "SEVERITY", "THRESHOLD", "WINDOW", "FOR", "STATE", "MEANING"];
    Ok(table::print(out, &headings, &rows)?)
}
