//! `tashika audit`: whether the audit log is what was written.

use std::io::Write;

use tashika_engine::sealer::{self, Finding};

use crate::app::App;
use crate::config::Config;

/// Walks the chain and names every line that does not fit. Returns whether all do.
pub async fn verify(config: &Config, out: &mut impl Write) -> anyhow::Result<bool> {
    let app = App::open_existing(config).await?;
    let seen = sealer::verify(&app.store).await?;
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
    Ok(seen.findings.is_empty())
}
