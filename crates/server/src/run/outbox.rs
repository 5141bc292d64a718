//! `tashika outbox`: looking at effects and acting on them.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tashika_domain::order::Execution;
use tashika_domain::{EffectId, Lane};
use tashika_engine::Rescuer;
use tashika_engine::commands::order::Resolution;
use tashika_engine::commands::outbox::Outbox;
use tashika_store::{AttemptRecord, EffectFilter};

use super::output::say;
use super::progress::Progress;
use super::table;
use crate::app::App;
use crate::cli::outbox::{self as args, OutboxArgs, OutboxCommand};
use crate::config::Config;
use crate::http::outbox::{attempt, shown};

pub async fn outbox(config: &Config, args: OutboxArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let app = App::open_existing(config).await?;
    let json = args.json;
    match args.command {
        OutboxCommand::Stats => stats(&app, json, out).await,
        OutboxCommand::List { filter, limit, cursor } => {
            let before = cursor.map(|cursor| parse_id(&cursor)).transpose()?;
            let filter = EffectFilter {
                lane: filter.lane,
                status: filter.status,
                before,
                ..EffectFilter::default()
            };
            list(&app, &filter, i64::from(limit), json, out).await
        }
        OutboxCommand::Show { id } => show(&app, id, json, out).await,
        OutboxCommand::Requeue { ids, all, lane, error_code, by } => {
            let filter = EffectFilter { lane, error_code, ..EffectFilter::default() };
            requeue(&app.outbox().by(by.by), &ids, all.then_some(filter), json, out).await
        }
        OutboxCommand::Release { lane } => release(&app, config, lane, json, out).await,
        OutboxCommand::Resolve { key, action, execution, note, by } => {
            let resolution = resolution(action, execution.as_deref())?;
            app.orders(config).resolve_as(&key, resolution, &note, &by.by).await?;
            say(out, json, &json!({"resolved": key, "action": action.as_str()}), "resolved")
        }
    }
}

fn parse_id(text: &str) -> anyhow::Result<EffectId> {
    Ok(EffectId(text.parse().context("the cursor is not one that `outbox list` printed")?))
}

async fn stats(app: &App, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let counts = app.store.effect_counts().await?;
    if json {
        let items: Vec<Value> = counts
            .iter()
            .map(
                |c| json!({"lane": c.lane.as_str(), "status": c.status.as_str(), "count": c.count}),
            )
            .collect();
        writeln!(out, "{}", json!({ "items": items }))?;
        return Ok(());
    }
    if counts.is_empty() {
        writeln!(out, "the outbox is empty")?;
        return Ok(());
    }
    let row = |c: &tashika_store::EffectCount| {
        vec![c.lane.to_string(), c.status.as_str().to_owned(), c.count.to_string()]
    };
    let rows: Vec<Vec<String>> = counts.iter().map(row).collect();
    Ok(table::print(out, &["LANE", "STATUS", "COUNT"], &rows)?)
}

async fn list(
    app: &App,
    filter: &EffectFilter,
    limit: i64,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let page = app.store.effects(filter, limit).await?;
    let full = i64::try_from(page.len()).unwrap_or(i64::MAX) == limit;
    let cursor = page.last().filter(|_| full).map(|last| last.id.to_string());
    if json {
        let mut document = json!({ "items": page.iter().map(shown).collect::<Vec<_>>() });
        if let Some(cursor) = cursor {
            document["nextCursor"] = cursor.into();
        }
        writeln!(out, "{document}")?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = page
        .iter()
        .map(|effect| {
            vec![
                effect.id.to_string(),
                effect.lane.to_string(),
                effect.status.as_str().to_owned(),
                effect.attempts.to_string(),
                effect.last_error_code.clone().unwrap_or_default(),
                effect.key.clone().unwrap_or_default(),
                effect.next_run_at.to_string(),
            ]
        })
        .collect();
    let headings = ["ID", "LANE", "STATUS", "ATTEMPTS", "LAST ERROR", "KEY", "NEXT RUN"];
    table::print(out, &headings, &rows)?;
    if let Some(cursor) = cursor {
        writeln!(out, "more: --cursor {cursor}")?;
    }
    Ok(())
}

async fn show(app: &App, id: EffectId, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(effect) = app.store.effect(id).await? else { bail!("no effect has the id {id}") };
    let attempts = app.store.attempts(id).await?;
    let cases = match &effect.key {
        Some(key) => app.store.cases_of(&effect.kind, key).await?,
        None => Vec::new(),
    };
    let mut document = shown(&effect);
    document["attemptLog"] = attempts.iter().map(attempt).collect();
    document["cases"] = cases
        .iter()
        .map(|case| {
            json!({
                "id": case.id, "kind": case.kind, "status": case.status.as_str(),
                "summary": case.summary, "actions": case.actions, "openedAt": case.opened_at,
            })
        })
        .collect();
    if json {
        writeln!(out, "{document}")?;
        return Ok(());
    }
    for (name, value) in document.as_object().into_iter().flatten() {
        match value {
            Value::Null | Value::Array(_) => {}
            Value::String(text) => writeln!(out, "{name:<14} {text}")?,
            other => writeln!(out, "{name:<14} {other}")?,
        }
    }
    for case in &cases {
        writeln!(out, "\ncase ({}): {}", case.status.as_str(), case.summary)?;
        writeln!(
            out,
            "  decide with: tashika outbox resolve KEY --action {}",
            case.actions.join("|")
        )?;
    }
    writeln!(out)?;
    let rows: Vec<Vec<String>> = attempts.iter().map(attempt_row).collect();
    let headings = ["LEASE", "STARTED", "MS", "OUTCOME", "CODE", "REQUEST", "REPLY", "WORKER"];
    Ok(table::print(out, &headings, &rows)?)
}

fn attempt_row(attempt: &AttemptRecord) -> Vec<String> {
    let exchange = attempt.exchange.as_ref();
    vec![
        attempt.fence.to_string(),
        attempt.started_at.to_string(),
        attempt.finished_at.since(attempt.started_at).as_millis().to_string(),
        attempt.outcome.clone(),
        attempt.code.clone().unwrap_or_default(),
        exchange.map(|e| e.request.clone()).unwrap_or_default(),
        exchange.map(|e| e.reply.clone()).unwrap_or_default(),
        attempt.worker.clone(),
    ]
}

async fn requeue(
    outbox: &Outbox,
    ids: &[EffectId],
    all: Option<EffectFilter>,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let requeued = if let Some(filter) = all {
        let mut progress = Progress::of("requeued", None);
        outbox.requeue_all_telling(filter, |count| progress.reach(count)).await?
    } else {
        for id in ids {
            outbox.requeue(*id).await.with_context(|| id.to_string())?;
        }
        u64::try_from(ids.len())?
    };
    say(out, json, &json!({ "requeued": requeued }), &format!("requeued {requeued}"))
}

async fn release(
    app: &App,
    config: &Config,
    lane: Option<Lane>,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let rescuer = Rescuer::new(std::sync::Arc::new(app.engine(config, true)));
    let lanes = match lane {
        Some(lane) => vec![lane],
        None => config.lanes.keys().cloned().collect(),
    };
    let mut released = 0;
    for lane in lanes {
        let swept = rescuer.sweep_lane(&lane, config.lane(&lane), app.clock.now()).await?;
        released += swept.rescued;
    }
    say(out, json, &json!({ "released": released }), &format!("released {released}"))
}

fn resolution(action: args::Resolution, execution: Option<&Path>) -> anyhow::Result<Resolution> {
    Ok(match (action, execution) {
        (args::Resolution::Executed, Some(path)) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading {}", path.display()))?;
            let execution: Execution =
                serde_json::from_str(&text).context("the execution cannot be read")?;
            Resolution::Executed(execution)
        }
        (args::Resolution::Executed, None) => bail!("--execution is needed"),
        (args::Resolution::NotExecuted, _) => Resolution::NotExecuted,
        (args::Resolution::Resend, _) => Resolution::Resend,
    })
}
