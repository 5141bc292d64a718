//! `tashika cases`: what software could not decide, looked at and decided.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};
use tashika_domain::case::CaseStatus;
use tashika_engine::Engine;
use tashika_engine::commands::case::{CaseError, Desk};
use tashika_store::CaseFilter;
use uuid::Uuid;

use super::output::{away, fields, page, refused, say, text, timeline};
use super::{ask, attended};
use crate::app::App;
use crate::cli::cases::{CasesArgs, CasesCommand};
use crate::config::Config;
use crate::http::cases::{decision, item, laid_out, refusal};
use crate::http::language::Language;
use crate::http::page::Page;

pub async fn cases(config: &Config, args: CasesArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let app = App::open_existing(config).await?;
    let json = args.json;
    match args.command {
        CasesCommand::List { status, kind, subject_type, subject_id, page } => {
            let page = page.page();
            let before = page.before;
            let filter = CaseFilter { status, kind, subject_type, subject_id, before, since: None };
            list(&app, &filter, page, json, out).await
        }
        CasesCommand::Show { id } => {
            let engine = Arc::new(app.engine(config, false));
            show(&desk(&app, config, &engine), id, json, out).await
        }
        CasesCommand::Decide { id, action, note, execution, yes, by } => {
            let body = body(&note, execution.as_deref())?;
            attended(&app, config, async |engine| {
                let desk = desk(&app, config, engine);
                let choice = Choice { id, action, yes };
                decide(&desk, choice, &body, by.by, json, out).await
            })
            .await
        }
    }
}

fn desk(app: &App, config: &Config, engine: &Arc<Engine>) -> Desk {
    let orders = Arc::new(app.orders(config));
    app.desk(config, &orders, &Arc::new(app.payments(config, engine)))
}

/// An error about a case, in one line that names it.
fn told(id: Uuid, error: CaseError) -> anyhow::Error {
    match error {
        CaseError::Store(error) => away(error),
        other => refused(&refusal(&other)).context(format!("case {id}")),
    }
}

async fn list(
    app: &App,
    filter: &CaseFilter,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = app.store.cases(filter, asked.fetch()).await?;
    let document = asked.document(found.iter().map(|case| (case.id, item(case))).collect(), None);
    let headings = ["ID", "KIND", "STATUS", "ABOUT", "OPENED", "SUMMARY"];
    let open = filter.status == Some(CaseStatus::Open);
    let empty = if open {
        "no case is open: nothing waits for a person"
    } else {
        "there are no such cases"
    };
    page(out, json, &document, &headings, empty, |case| {
        let about = format!("{} {}", text(&case["subjectType"]), text(&case["subjectId"]));
        let cell = |name: &str| text(&case[name]);
        vec![cell("id"), cell("kind"), cell("status"), about, cell("openedAt"), cell("summary")]
    })
}

async fn show(desk: &Desk, id: Uuid, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let (case, dossier) = desk.look(id).await.map_err(|error| told(id, error))?;
    let document = laid_out(&case, &dossier, Language::English);
    if json {
        return Ok(writeln!(out, "{document}")?);
    }
    fields(out, &item(&case))?;
    writeln!(out, "\nWhat happened\n")?;
    timeline(out, &document["timeline"])?;
    writeln!(out, "\nWhat was tried\n\n{}", text(&document["tried"]["summary"]))?;
    writeln!(out, "\nWhat may be done now\n")?;
    if dossier.choices.is_empty() {
        writeln!(out, "nothing")?;
    }
    for choice in &dossier.choices {
        let note = if choice.needs_note { " --note WHY" } else { "" };
        writeln!(out, "{}: {}", choice.action, choice.label.en)?;
        writeln!(out, "    {}", choice.consequence.en)?;
        writeln!(out, "    → tashika cases decide {id} {}{note}", choice.action)?;
    }
    Ok(())
}

/// What the API takes as the body of a decision.
fn body(note: &str, execution: Option<&Path>) -> anyhow::Result<Value> {
    let mut body = json!({ "note": note });
    if let Some(path) = execution {
        let read = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        body["execution"] =
            serde_json::from_str(&read).with_context(|| path.display().to_string())?;
    }
    Ok(body)
}

struct Choice {
    id: Uuid,
    action: String,
    yes: bool,
}

async fn decide(
    desk: &Desk,
    choice: Choice,
    body: &Value,
    who: String,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Choice { id, action, yes } = choice;
    let decision = decision(action, body, who).map_err(|problem| refused(&problem))?;
    // What is not offered now needs no question: the desk says what is.
    let (_, dossier) = desk.look(id).await.map_err(|error| told(id, error))?;
    if let Some(offered) = dossier.choices.iter().find(|offer| offer.action == decision.action) {
        let question = format!("{}\n{}", offered.consequence.en, offered.confirm.en);
        ask::confirm(&question, yes)?;
    }
    let case = desk.act(id, &decision, body).await.map_err(|error| told(id, error))?;
    let sentence = match &case.resolution {
        Some(end) => format!("resolved: {}", end.action),
        None => "done; the case is still open".to_owned(),
    };
    say(out, json, &item(&case), &sentence)
}
