//! `tashika audit`: who did what, and whether the log is what was written.

use std::io::Write;
use std::sync::Mutex;

use serde_json::json;
use tashika_engine::sealer::{self, Finding, Verified};
use tashika_store::AuditFilter;

use super::output::{brief, page, text};
use super::progress::Progress;
use crate::app::App;
use crate::cli::audit::{AuditArgs, AuditCommand};
use crate::config::Config;
use crate::http::audit::shown;
use crate::http::console::verification::finding;
use crate::http::page::Page;

/// Returns whether all is as it was written.
pub async fn audit(config: &Config, args: AuditArgs, out: &mut impl Write) -> anyhow::Result<bool> {
    let app = App::open_existing(config).await?;
    match args.command {
        AuditCommand::Verify => verify(&app, args.json, out).await,
        AuditCommand::List { action, target_type, target_id, office_id, from, to, page } => {
            let page = page.page();
            let before = page.before;
            let filter = AuditFilter {
                action,
                target_type,
                target_id,
                office_id,
                from,
                to,
                before,
                since: None,
            };
            list(&app, &filter, page, args.json, out).await?;
            Ok(true)
        }
    }
}

async fn list(
    app: &App,
    filter: &AuditFilter,
    asked: Page,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = app.store.audit_logs(filter, asked.fetch()).await?;
    let document = asked.document(found.iter().map(|line| (line.id, shown(line))).collect(), None);
    let headings = ["AT", "WHO", "ROLE", "ACTION", "TARGET", "DETAILS"];
    page(out, json, &document, &headings, "the log has no such lines", |line| {
        let cell = |name: &str| text(&line[name]);
        let target = format!("{} {}", cell("targetType"), cell("targetId"));
        let details = brief(&line["details"]);
        vec![cell("createdAt"), cell("actorId"), cell("actorRole"), cell("action"), target, details]
    })
}

/// Walks the chain and names every line that does not fit.
async fn verify(app: &App, json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let seals = app.store.last_sealed().await?;
    let progress = Mutex::new(Progress::of("seals", u64::try_from(seals).ok()));
    let seen = sealer::verify_telling(&app.store, |seen| {
        if let Ok(mut progress) = progress.lock() {
            progress.reach(seen.seals);
        }
    })
    .await;
    drop(progress);
    let seen = seen?;
    let intact = seen.findings.is_empty();
    if json {
        let document = json!({
            "state": if intact { "intact" } else { "broken" },
            "seals": seen.seals,
            "lines": seen.lines,
            "expired": seen.expired,
            "unsealed": seen.unsealed,
            "findingCount": seen.findings.len(),
            "findings": seen.findings.iter().map(finding).collect::<Vec<_>>(),
        });
        writeln!(out, "{document}")?;
    } else {
        tell(&seen, out)?;
    }
    Ok(intact)
}

fn tell(seen: &Verified, out: &mut impl Write) -> anyhow::Result<()> {
    for finding in &seen.findings {
        match finding {
            Finding::Changed(id) => writeln!(out, "line {id} was changed after it was sealed")?,
            Finding::Removed(id) => writeln!(out, "line {id} was removed after it was sealed")?,
            Finding::Broken(seal) => {
                writeln!(out, "seal {seal} does not follow from its lines and the seal before it")?;
            }
            Finding::Missing(seal) => writeln!(out, "seal {seal} is missing")?,
            Finding::SlippedIn(id) => {
                writeln!(
                    out,
                    "line {id} was slipped in: no seal covers it, and newer ones are sealed"
                )?;
            }
        }
    }
    let verdict = if seen.findings.is_empty() { "intact" } else { "NOT INTACT" };
    writeln!(
        out,
        "{verdict}: {} sealed lines in {} seals, {} gone by retention, {} not sealed yet",
        seen.lines, seen.seals, seen.expired, seen.unsealed
    )?;
    Ok(())
}
