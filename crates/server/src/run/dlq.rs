//! `tashika dlq`: dead letters, looked at, sent again, removed.

use std::io::Write;

use serde_json::{Value, json};
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{Message, public_id};
use tashika_engine::commands::message::{Messages, QueueError};
use tashika_store::MessageFilter;
use uuid::Uuid;

use super::ask;
use super::output::{List, away, fields, text};
use super::progress::Progress;
use crate::app::App;
use crate::cli::dlq::{DlqArgs, DlqCommand, LetterFilter};
use crate::config::Config;
use crate::http::qstash::view::dead_letter;

/// Dead letters taken in one go.
const PAGE: i64 = 100;

/// Returns whether every letter that was named was there.
pub async fn dlq(config: &Config, args: DlqArgs, out: &mut impl Write) -> anyhow::Result<bool> {
    let app = App::open_existing(config).await?;
    let (queue, json) = (&*app.messages, args.json);
    match args.command {
        DlqCommand::List { filter, limit, cursor } => {
            let filter = MessageFilter { after: cursor, ..chosen(filter) };
            list(queue, &filter, limit, json, out).await?;
            Ok(true)
        }
        DlqCommand::Show { id } => {
            let document = dead_letter(&queue.dead_letter(&id).await.map_err(told)?);
            if json {
                writeln!(out, "{document}")?;
            } else {
                fields(out, &document)?;
            }
            Ok(true)
        }
        DlqCommand::Retry { ids, all, filter } => {
            let asked =
                if all { Asked::Fitting(Box::new(chosen(filter))) } else { Asked::Named(ids) };
            let done = walk(&app, asked, Act::Retry).await?;
            report(&done, json, out)
        }
        DlqCommand::Delete { ids, all, filter, yes } => {
            let question = match (all, filter == LetterFilter::default()) {
                (true, true) => "Remove all dead letters but Tashika's own?".to_owned(),
                (true, false) => "Remove every dead letter that the filters match?".to_owned(),
                (false, _) => format!("Remove {} dead letters?", ids.len()),
            };
            ask::confirm(&question, yes)?;
            let asked =
                if all { Asked::Fitting(Box::new(chosen(filter))) } else { Asked::Named(ids) };
            let done = walk(&app, asked, Act::Delete).await?;
            report(&done, json, out)
        }
    }
}

fn told(error: QueueError) -> anyhow::Error {
    match error {
        QueueError::Store(error) => away(error),
        other => anyhow::anyhow!("{other}"),
    }
}

fn chosen(filter: LetterFilter) -> MessageFilter {
    MessageFilter {
        urls: filter.url,
        hosts: filter.host.iter().map(|host| host.to_lowercase()).collect(),
        paths: filter.path,
        queues: filter.queue,
        topics: filter.topic,
        schedules: filter.schedule,
        labels: filter.label,
        flow_keys: filter.flow_control_key,
        response_statuses: filter.response_status.iter().map(ToString::to_string).collect(),
        from: filter.from,
        to: filter.to,
        ..MessageFilter::default()
    }
}

async fn list(
    queue: &Messages,
    filter: &MessageFilter,
    limit: u32,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut letters = queue.dead_letters(filter, i64::from(limit) + 1).await.map_err(told)?;
    let more = letters.len() > limit as usize;
    letters.truncate(limit as usize);
    let cursor = letters.last().filter(|_| more).map(|last| last.id.simple().to_string());
    let items: Vec<Value> = letters.iter().map(dead_letter).collect();
    if json {
        let mut document = json!({ "messages": items });
        if let Some(cursor) = cursor {
            document["cursor"] = json!(cursor);
        }
        return Ok(writeln!(out, "{document}")?);
    }
    let row = |letter: &Value| {
        let status = match &letter["responseStatus"] {
            Value::Number(status) if status.as_u64() > Some(0) => status.to_string(),
            _ => "none".to_owned(),
        };
        let cell = |name: &str| text(&letter[name]);
        vec![cell("dlqId"), cell("url"), cell("queueName"), status, excerpt(&cell("responseBody"))]
    };
    List {
        headings: &["DLQ ID", "URL", "QUEUE", "ANSWER", "SAID"],
        rows: items.iter().map(row).collect(),
        empty: "there are no such dead letters: everything was delivered, or is still being tried",
        cursor: cursor.as_deref(),
    }
    .print(out)
}

/// The beginning of what a destination said.
fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Which letters a bulk touches: those that are named, or those that fit, and no others.
enum Asked {
    Named(Vec<String>),
    Fitting(Box<MessageFilter>),
}

#[derive(Clone, Copy)]
enum Act {
    Retry,
    Delete,
}

/// What became of letters.
struct Done {
    act: Act,
    /// The letter, and the message it was sent again as.
    touched: Vec<(String, Option<Uuid>)>,
    /// Named, and no dead letters (any more).
    missing: Vec<String>,
}

impl Done {
    /// One letter, as it was read. Somebody else may have been faster.
    async fn take(&mut self, queue: &Messages, letter: &Message) -> anyhow::Result<()> {
        let id = letter.dlq_id.clone().unwrap_or_default();
        let made = match self.act {
            Act::Retry => queue.resend(letter, &Spec::default()).await.map_err(told)?.map(Some),
            Act::Delete => queue.bury(letter).await.map_err(told)?.then_some(None),
        };
        match made {
            Some(message) => self.touched.push((id, message)),
            None => self.missing.push(id),
        }
        Ok(())
    }

    fn count(&self) -> u64 {
        u64::try_from(self.touched.len() + self.missing.len()).unwrap_or(u64::MAX)
    }
}

async fn walk(app: &App, asked: Asked, act: Act) -> anyhow::Result<Done> {
    let queue = &*app.messages;
    let what = match act {
        Act::Retry => "sent again",
        Act::Delete => "removed",
    };
    let mut done = Done { act, touched: Vec::new(), missing: Vec::new() };
    match asked {
        Asked::Named(ids) => {
            let mut progress = Progress::of(what, u64::try_from(ids.len()).ok());
            for id in ids {
                match queue.dead_letter(&id).await {
                    Ok(letter) => done.take(queue, &letter).await?,
                    Err(QueueError::NotFound(_)) => done.missing.push(id),
                    Err(error) => return Err(told(error)),
                }
                progress.reach(done.count());
            }
        }
        Asked::Fitting(filter) => {
            // What a filter leaves of them is not known before.
            let total = if *filter == MessageFilter::default() {
                u64::try_from(app.store.dead_letters().await?.0).ok()
            } else {
                None
            };
            let mut progress = Progress::of(what, total);
            // Newest first and only further back: what dies meanwhile is not touched.
            let mut filter = MessageFilter { spare_own: true, ..*filter };
            loop {
                let letters = queue.dead_letters(&filter, PAGE).await.map_err(told)?;
                let Some(last) = letters.last() else { break };
                filter.after = Some(last.id);
                for letter in &letters {
                    done.take(queue, letter).await?;
                    progress.reach(done.count());
                }
            }
            // They were not named: whoever was faster has done what was asked for, or something else.
            done.missing.clear();
        }
    }
    Ok(done)
}

fn report(done: &Done, json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let count = done.touched.len();
    if json {
        let mut document = match done.act {
            Act::Retry => {
                let sent = done
                    .touched
                    .iter()
                    .map(|(id, message)| json!({"dlqId": id, "messageId": message.map(public_id)}));
                json!({ "responses": sent.collect::<Vec<_>>() })
            }
            Act::Delete => json!({ "deleted": count }),
        };
        if !done.missing.is_empty() {
            document["missing"] = json!(done.missing);
        }
        writeln!(out, "{document}")?;
    } else {
        match done.act {
            Act::Retry => writeln!(out, "sent {count} again")?,
            Act::Delete => writeln!(out, "removed {count}")?,
        }
    }
    for id in &done.missing {
        eprintln!("tashika: {}: there is no such dead letter", super::table::plain(id));
    }
    Ok(done.missing.is_empty())
}
