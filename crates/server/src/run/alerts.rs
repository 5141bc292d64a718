//! `tashika alerts`: what fires, what somebody does about it, and the rules for other tools.

use std::io::Write;

use serde_json::{Value, json};
use tashika_domain::alert::rules::span;
use tashika_domain::alert::{AlertState, request};
use tashika_domain::check::Violation;
use tashika_engine::commands::alert::{AlertError, Alerts};
use tashika_store::AlertFilter;
use uuid::Uuid;

use super::output::{away, fields, page, refused, say, text};
use super::table;
use crate::app::App;
use crate::cli::alerts::{AlertsArgs, AlertsCommand};
use crate::config::Config;
use crate::http::alerts::{described, refusal, shown};
use crate::http::language::Language;
use crate::http::page::Page;
use crate::http::problem::Problem;
use crate::monitoring;

pub async fn alerts(config: &Config, args: AlertsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let json = args.json;
    match args.command {
        AlertsCommand::Rules { prometheus: true } => {
            Ok(out.write_all(monitoring::prometheus(&config.alerts.rules).as_bytes())?)
        }
        AlertsCommand::Rules { prometheus: false } => rules(config, json, out),
        AlertsCommand::Dashboard => {
            Ok(writeln!(out, "{:#}", monitoring::dashboard(&config.alerts.rules))?)
        }
        stored => {
            let app = App::open_existing(config).await?;
            act(&app.alerts(config).alerts, stored, json, out).await
        }
    }
}

/// The commands that need the store.
async fn act(
    alerts: &Alerts,
    command: AlertsCommand,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match command {
        AlertsCommand::List { state, severity, rule, page } => {
            let page = page.page();
            let filter = AlertFilter { state, severity, rule, before: page.before, since: None };
            list(alerts, &filter, page, json, out).await
        }
        AlertsCommand::Show { id } => {
            let alert = shown(&alerts.find(id).await.map_err(|error| told(id, error))?);
            if json { Ok(writeln!(out, "{alert}")?) } else { fields(out, &alert) }
        }
        AlertsCommand::Acknowledge { id, note, by } => {
            let note = request::parse_note(&json!({ "note": note })).map_err(invalid)?;
            let alert = alerts.acknowledge(id, &by.by, &note).await;
            let alert = alert.map_err(|error| told(id, error))?;
            let who = alert.acknowledged.as_ref().map(|seen| seen.by.clone()).unwrap_or_default();
            say(out, json, &shown(&alert), &format!("acknowledged by {who}"))
        }
        AlertsCommand::Silence { id, span, until, over, reason, by } => {
            let mut body = json!({ "reason": reason });
            match (until, over) {
                (Some(until), _) => body["until"] = json!(until),
                (None, true) => body["minutes"] = json!(0),
                (None, false) => body["minutes"] = json!(span),
            }
            let (until, reason) = request::parse_silence(&body, alerts.now()).map_err(invalid)?;
            let alert = alerts.silence(id, until, &by.by, &reason).await;
            let alert = alert.map_err(|error| told(id, error))?;
            let sentence = if over {
                "people are told about it again".to_owned()
            } else {
                format!("nobody is told about it until {until}; it goes on firing")
            };
            say(out, json, &shown(&alert), &sentence)
        }
        AlertsCommand::Rules { .. } | AlertsCommand::Dashboard => {
            unreachable!("answered without the store")
        }
    }
}

fn invalid(violations: Vec<Violation>) -> anyhow::Error {
    refused(&Problem::violations(violations))
}

/// An error about an alert, in one line that names it.
fn told(id: Uuid, error: AlertError) -> anyhow::Error {
    match error {
        AlertError::Store(error) => away(error),
        other => refused(&refusal(other)).context(format!("alert {id}")),
    }
}

async fn list(
    alerts: &Alerts,
    filter: &AlertFilter,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = alerts.store().alerts(filter, asked.fetch()).await?;
    let document =
        asked.document(found.iter().map(|alert| (alert.id, shown(alert))).collect(), None);
    let headings = ["ID", "RULE", "SEVERITY", "STATE", "COUNT", "FIRED", "SEEN BY", "MESSAGE"];
    let empty = match filter.state {
        Some(AlertState::Firing) => "nothing fires",
        _ => "there are no such alerts",
    };
    page(out, json, &document, &headings, empty, |alert| {
        let names =
            ["id", "rule", "severity", "state", "count", "firedAt", "acknowledgedBy", "message"];
        names.map(|name| text(&alert[name])).to_vec()
    })
}

fn rules(config: &Config, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let rules = &config.alerts.rules;
    if json {
        let items: Vec<Value> =
            rules.iter().map(|rule| described(rule, Language::English)).collect();
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
