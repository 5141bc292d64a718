//! The person: looks after renders that failed, where somebody does; has them tried again, or makes the
//! video by hand.

use std::sync::Arc;

use serde_json::json;
use tashika_domain::case::CaseStatus;
use tashika_domain::render::CASE_FAILED;
use tashika_engine::commands::render::RenderError;
use tashika_store::CaseFilter;
use uuid::Uuid;

use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

/// Cases that a person looks at in one go.
const PAGE: i64 = 20;

pub(crate) fn look(process: &Arc<Process>, dice: &mut Stream) {
    let (process, mut dice) = (Arc::clone(process), dice.clone());
    process.scene.book().act(true);
    tokio::spawn(async move {
        process.fate.alive().await;
        let decided = decide(&process, &mut dice).await;
        process.fate.alive().await;
        process.scene.book().act(false);
        if let Err(error) = decided
            && !is_of_the_disk(&format!("{error:#}"))
        {
            process.broken("answers as agreed", "", &format!("a person was told: {error:#}"));
        }
    });
}

async fn decide(process: &Process, dice: &mut Stream) -> anyhow::Result<()> {
    let filter = CaseFilter {
        status: Some(CaseStatus::Open),
        kind: Some(CASE_FAILED.to_owned()),
        ..CaseFilter::default()
    };
    let cases = process.store.cases(&filter, PAGE).await?;
    if cases.is_empty() {
        return Ok(());
    }
    let id: Uuid = dice.pick(&cases).subject_id.parse()?;
    let by_hand = dice.hit(Odds::percent(50));
    let decided = if by_hand {
        process.renders.resolve(id, "sim", &json!({"note": "made by hand"})).await
    } else {
        process.renders.retry(id, "sim").await
    };
    process.fate.alive().await;
    let word = match decided {
        Ok(_) => {
            process.scene.log.count(Tally::CaseResolved);
            "done"
        }
        // The clock, the customer or a late video was faster.
        Err(RenderError::State(_)) => "too late",
        Err(error) => return Err(error.into()),
    };
    let text = format!("person looks after render {id}, by hand: {by_hand}, {word}");
    process.scene.log.note(process.clock.now(), &text);
    Ok(())
}
