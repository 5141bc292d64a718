//! `tashika mail batches`: how far they have come, and the rest of them.

use std::io::Write;

use serde_json::{Value, json};
use tashika_engine::commands::mail::{BatchView, Mails};
use tashika_store::MailFilter;
use uuid::Uuid;

use super::told;
use crate::cli::mail::BatchesCommand;
use crate::http::mail_json::{batch, failures};
use crate::http::page::Page;
use crate::run::ask;
use crate::run::output::{fields, page, say, text};
use crate::run::table;

pub async fn batches(
    mails: &Mails,
    command: BatchesCommand,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match command {
        BatchesCommand::List { page } => list(mails, page.page(), json, out).await,
        BatchesCommand::Show { id } => {
            let view = found(mails, id).await?;
            let mut document = batch(&view);
            document["failures"] = json!(failures(&view.failures));
            if json {
                return Ok(writeln!(out, "{document}")?);
            }
            fields(out, &document)?;
            let rows: Vec<Vec<String>> =
                document["failures"].as_array().into_iter().flatten().map(failure).collect();
            if rows.is_empty() {
                return Ok(writeln!(out, "\nnothing of it has failed")?);
            }
            writeln!(out)?;
            Ok(table::print(out, &FAILURE, &rows)?)
        }
        BatchesCommand::Failures { id, status, page: asked } => {
            found(mails, id).await?;
            let asked = asked.page();
            let filter = MailFilter {
                to: None,
                batch: Some(id),
                status: Some(status),
                before: asked.before,
            };
            let failed = mails.list(&filter, asked.fetch()).await.map_err(told)?;
            let items = failed.iter().map(|mail| mail.id).zip(failures(&failed)).collect();
            let document = asked.document(items, None);
            page(out, json, &document, &FAILURE, "nothing of it ended this way", failure)
        }
        BatchesCommand::Cancel { id, yes, by } => {
            let queued = found(mails, id).await?.counts.queued;
            ask::confirm(&format!("Cancel {queued} mails that are not sent yet?"), yes)?;
            let view = mails.cancel(id, &by.by).await.map_err(told)?;
            say(
                out,
                json,
                &batch(&view),
                "the rest is being cancelled; what is on its way is not called back",
            )
        }
        BatchesCommand::Retry { id, statuses, by } => {
            let view = mails.retry(id, &statuses, &by.by).await.map_err(told)?;
            say(out, json, &batch(&view), "it is being queued again")
        }
    }
}

const FAILURE: [&str; 5] = ["ID", "TO", "STATUS", "CLASS", "SAID"];

fn failure(mail: &Value) -> Vec<String> {
    ["id", "to", "status", "class", "text"].map(|name| text(&mail[name])).to_vec()
}

async fn found(mails: &Mails, id: Uuid) -> anyhow::Result<BatchView> {
    mails.batch(id).await.map_err(|error| told(error).context(format!("batch {id}")))
}

async fn list(mails: &Mails, asked: Page, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let views = mails.batches(asked.before, asked.fetch()).await.map_err(told)?;
    let items = views.iter().map(|view| (view.batch.id, batch(view)));
    let document = asked.document(items.collect(), None);
    let headings = ["ID", "TEMPLATE", "STATUS", "SENT", "OF", "FAILED", "IN DOUBT", "CREATED"];
    page(out, json, &document, &headings, "no batch was ever sent", |view| {
        let names =
            ["id", "template", "status", "sent", "total", "failed", "possiblySent", "createdAt"];
        names.map(|name| text(&view[name])).to_vec()
    })
}
