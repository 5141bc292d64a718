//! `tashika webhooks`: events that were received, looked at and processed again.

use std::io::Write;

use serde_json::{Value, json};
use tashika_domain::webhook::Status;
use tashika_engine::commands::webhook::{WebhookError, Webhooks};
use tashika_store::WebhookFilter;
use uuid::Uuid;

use super::output::{List, away, fields, page, refused, say, text};
use super::progress::Progress;
use crate::app::App;
use crate::cli::webhooks::{EventFilter, WebhooksArgs, WebhooksCommand};
use crate::config::Config;
use crate::http::page::Page;
use crate::http::webhooks::{refusal, shown};

/// Returns whether every event that was named could be processed again.
pub async fn webhooks(
    config: &Config,
    args: WebhooksArgs,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let app = App::open_existing(config).await?;
    let (webhooks, json) = (app.webhooks(config)?, args.json);
    match args.command {
        WebhooksCommand::List { status, filter, page } => {
            let page = page.page();
            let filter = WebhookFilter { status, before: page.before, ..chosen(filter) };
            list(&webhooks, &filter, page, json, out).await?;
            Ok(true)
        }
        WebhooksCommand::Stats => stats(&webhooks, json, out).await.map(|()| true),
        WebhooksCommand::Show { id } => {
            let event = webhooks.find(id).await.map_err(|error| told(id, error))?;
            let document = shown(&event);
            if json {
                writeln!(out, "{document}")?;
            } else {
                fields(out, &document)?;
            }
            Ok(true)
        }
        WebhooksCommand::Replay { all: true, filter, by, .. } => {
            let mut progress = Progress::of("replayed", None);
            let tell = |count| progress.reach(count);
            let replayed = webhooks.replay_all_telling(&chosen(filter), &by.by, tell).await;
            drop(progress);
            let replayed = replayed.map_err(|error| anyhow::anyhow!("{error}"))?;
            say(out, json, &json!({ "replayed": replayed }), &format!("replayed {replayed}"))?;
            Ok(true)
        }
        WebhooksCommand::Replay { ids, by, .. } => replay(&webhooks, &ids, &by.by, json, out).await,
    }
}

fn chosen(filter: EventFilter) -> WebhookFilter {
    let EventFilter { event_type, source, office_id, from, to } = filter;
    WebhookFilter { event_type, source, office_id, from, to, ..WebhookFilter::default() }
}

/// An error about an event, in one line that names it.
fn told(id: Uuid, error: WebhookError) -> anyhow::Error {
    match error {
        WebhookError::Store(error) => away(error),
        other => refused(&refusal(other)).context(format!("event {id}")),
    }
}

async fn list(
    webhooks: &Webhooks,
    filter: &WebhookFilter,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = webhooks.list(filter, asked.fetch()).await?;
    let document =
        asked.document(found.iter().map(|event| (event.id, shown(event))).collect(), None);
    let headings = ["ID", "SOURCE", "TYPE", "STATUS", "EVENT", "RECEIVED", "ERROR"];
    let empty = match filter.status {
        Some(Status::Failed) => "no event has failed",
        _ => "there are no such events",
    };
    page(out, json, &document, &headings, empty, |event| {
        let names = ["id", "source", "eventType", "status", "eventId", "createdAt", "errorMessage"];
        names.map(|name| text(&event[name])).to_vec()
    })
}

async fn stats(webhooks: &Webhooks, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let counts = webhooks.stats().await?;
    if json {
        let item = |c: &tashika_store::WebhookCount| json!({"eventType": c.event_type, "status": c.status.as_str(), "count": c.count});
        let items: Vec<Value> = counts.iter().map(item).collect();
        return Ok(writeln!(out, "{}", json!({ "items": items }))?);
    }
    let rows = counts
        .iter()
        .map(|c| vec![c.event_type.clone(), c.status.as_str().to_owned(), c.count.to_string()]);
    List {
        headings: &["TYPE", "STATUS", "COUNT"],
        rows: rows.collect(),
        empty: "no event was received",
        cursor: None,
    }
    .print(out)
}

/// Each by itself: one that cannot be processed again is named, and does not stop the others.
async fn replay(
    webhooks: &Webhooks,
    ids: &[Uuid],
    who: &str,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let (mut replayed, mut refusals) = (Vec::new(), Vec::new());
    let mut progress = Progress::of("replayed", u64::try_from(ids.len()).ok());
    for (place, id) in ids.iter().enumerate() {
        match webhooks.replay(*id, who).await {
            Ok(event) => replayed.push(shown(&event)),
            Err(WebhookError::Store(error)) => return Err(away(error)),
            Err(error) => refusals.push((*id, told(*id, error))),
        }
        progress.reach(u64::try_from(place + 1).unwrap_or(u64::MAX));
    }
    drop(progress);
    let count = replayed.len();
    let mut document = json!({ "replayed": count, "items": replayed });
    if !refusals.is_empty() {
        let refused = refusals.iter().map(|(id, why)| json!({"id": id, "why": format!("{why:#}")}));
        document["refused"] = refused.collect();
    }
    say(out, json, &document, &format!("replayed {count}"))?;
    for (_, why) in &refusals {
        eprintln!("tashika: {why:#}");
    }
    Ok(refusals.is_empty())
}
