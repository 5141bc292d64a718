//! `tashika mail`: what mails say, without sending any; what became of them, and the lane.

mod batches;

use std::io::Write;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tashika_engine::commands::mail::{MailError, Mails};
use tashika_providers::templates::Templates;
use tashika_store::MailFilter;

use super::output::{away, fields, page, refused, say, text};
use super::table;
use crate::app::App;
use crate::cli::mail::{MailArgs, MailCommand};
use crate::config::{Config, ConfigError};
use crate::http::mail_json::{lane, letter, mail as shown, refusal};
use crate::http::page::Page;

/// The templates can be read without a configuration; everything else is in the store.
pub async fn mail(
    config: impl FnOnce() -> Result<Config, ConfigError>,
    args: MailArgs,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let MailArgs { templates, json, command } = args;
    if matches!(command, MailCommand::Templates | MailCommand::Preview { .. }) {
        return words(&Templates::load(templates.as_deref())?, command, json, out);
    }
    let mails = App::open_existing(&config()?).await?.mails();
    match command {
        MailCommand::List { to, batch, status, page } => {
            let page = page.page();
            let filter = MailFilter { to, batch, status, before: page.before };
            list(&mails, &filter, page, json, out).await
        }
        MailCommand::Show { id } => {
            let found = mails.find(id).await.map_err(told)?;
            let document = shown(&found);
            if json {
                return Ok(writeln!(out, "{document}")?);
            }
            fields(out, &document)?;
            history(&document["history"], out)
        }
        MailCommand::Batches { command } => batches::batches(&mails, command, json, out).await,
        MailCommand::Lane => {
            let document = lane(&mails.lane().await.map_err(told)?);
            if json { Ok(writeln!(out, "{document}")?) } else { fields(out, &document) }
        }
        MailCommand::Resume { by } => {
            let resumed = mails.resume(&by.by).await.map_err(told)?;
            let mut document = lane(&mails.lane().await.map_err(told)?);
            document["resumed"] = json!(resumed);
            let sentence = if resumed { "the lane is open again" } else { "the lane was open" };
            say(out, json, &document, sentence)
        }
        MailCommand::Inbox { to, page } => {
            inbox(&mails, to.as_deref(), page.page(), json, out).await
        }
        MailCommand::Templates | MailCommand::Preview { .. } => unreachable!("answered above"),
    }
}

fn told(error: MailError) -> anyhow::Error {
    match error {
        MailError::Store(error) => away(error),
        other => refused(&refusal(other)),
    }
}

async fn list(
    mails: &Mails,
    filter: &MailFilter,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = mails.list(filter, asked.fetch()).await.map_err(told)?;
    let document = asked.document(found.iter().map(|mail| (mail.id, shown(mail))).collect(), None);
    let headings = ["ID", "TO", "TEMPLATE", "STATUS", "ATTEMPTS", "CREATED", "FAILURE"];
    page(out, json, &document, &headings, "there are no such mails", |mail| {
        let mut row: Vec<String> = ["id", "to", "template", "status", "attempts", "createdAt"]
            .map(|name| text(&mail[name]))
            .to_vec();
        row.push(text(&mail["failure"]["text"]));
        row
    })
}

fn history(tries: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let row =
        |tried: &Value| ["at", "outcome", "code", "text"].map(|name| text(&tried[name])).to_vec();
    let rows: Vec<Vec<String>> = tries.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(writeln!(out, "\nit was not tried yet")?);
    }
    writeln!(out)?;
    Ok(table::print(out, &["AT", "OUTCOME", "CODE", "SAID"], &rows)?)
}

async fn inbox(
    mails: &Mails,
    to: Option<&str>,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = mails.inbox(to, asked.before, asked.fetch()).await.map_err(told)?;
    let items = found.iter().map(|(mail, words)| (mail.id, letter(mail, words.as_ref())));
    let document = asked.document(items.collect(), None);
    let empty = "the inbox is empty: nothing was sent yet";
    page(out, json, &document, &["ID", "TO", "SENT", "SUBJECT"], empty, |mail| {
        ["id", "to", "sentAt", "subject"].map(|name| text(&mail[name])).to_vec()
    })
}

/// What templates want to know and what they say.
fn words(
    templates: &Templates,
    command: MailCommand,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match command {
        MailCommand::Preview { template, locale, data, html, text } => {
            let Some(first) = templates.locales(&template).next() else {
                let names = templates.names().collect::<Vec<_>>().join(", ");
                bail!("there is no template `{template}`; there are {names}");
            };
            let data: Value = match data {
                Some(path) => {
                    let text = std::fs::read_to_string(&path)
                        .with_context(|| path.display().to_string())?;
                    serde_json::from_str(&text).with_context(|| path.display().to_string())?
                }
                None => templates.sample(&template).cloned().unwrap_or_default(),
            };
            let mail = templates.render(&template, locale.unwrap_or(first), &data)?;
            if json {
                let words = json!({"subject": mail.subject, "html": mail.html, "text": mail.text});
                writeln!(out, "{words}")?;
            } else if html {
                writeln!(out, "{}", mail.html)?;
            } else if text {
                writeln!(out, "{}", mail.text)?;
            } else {
                writeln!(out, "Subject: {}\n\n{}", mail.subject, mail.text)?;
            }
            Ok(())
        }
        _ => known(templates, json, out),
    }
}

fn known(templates: &Templates, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if json {
        let mut items = Vec::new();
        for name in templates.names() {
            let locales: Vec<_> = templates.locales(name).map(|l| l.to_string()).collect();
            let variables = templates.variables(name)?;
            let variables: Vec<Value> =
                variables.iter().map(|v| json!({"name": v.name, "meaning": v.meaning})).collect();
            items.push(json!({"name": name, "locales": locales, "variables": variables}));
        }
        return Ok(writeln!(out, "{}", json!({ "items": items }))?);
    }
    for name in templates.names() {
        let locales: Vec<_> = templates.locales(name).map(|locale| locale.to_string()).collect();
        writeln!(out, "{name} ({})", locales.join(", "))?;
        for variable in templates.variables(name)? {
            match variable.meaning {
                Some(meaning) => writeln!(out, "  {}: {meaning}", variable.name)?,
                None => writeln!(out, "  {}", variable.name)?,
            }
        }
    }
    Ok(())
}
