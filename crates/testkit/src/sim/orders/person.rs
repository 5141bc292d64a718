//! The person: decides cases with the broker's own records, and requeues dead letters.
//!
//! Truthful and patient: acts only when nothing is under way at the broker any more, which a person
//! learns by telephone and software cannot. (Requeueing an order in doubt while its request still
//! lingers in the network asks the broker too early; that is a person's decision, and not simulated.)

use std::sync::Arc;

use tashika_domain::Status;
use tashika_domain::case::CaseStatus;
use tashika_domain::order::KIND;
use tashika_engine::commands::order::Resolution;
use tashika_store::{CommitError, EffectFilter};

use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;
use super::world::Truth;

/// Dead letters that a person looks at in one go.
const PAGE: i64 = 20;

pub(crate) fn look(process: &Arc<Process>, dice: &mut Stream) {
    let (process, mut dice) = (Arc::clone(process), dice.clone());
    tokio::spawn(async move {
        if let Err(error) = decide(&process, &mut dice).await {
            process.fate.alive().await;
            process.broken("answers as agreed", "", &format!("a person was told: {error:#}"));
        }
    });
}

async fn decide(process: &Process, dice: &mut Stream) -> anyhow::Result<()> {
    process.fate.alive().await;
    let filter = EffectFilter { status: Some(Status::Aborted), ..EffectFilter::default() };
    let dead = process.store.effects(&filter, PAGE).await?;
    let dead: Vec<_> =
        dead.into_iter().filter_map(|effect| Some((effect.key?, effect.id))).collect();
    if dead.is_empty() {
        return Ok(());
    }
    let (key, id) = dice.pick(&dead).clone();
    let truth = {
        let mut world = process.scene.world();
        world.flush(process.clock.now(), &process.scene.log);
        world.truth(&key)
    };
    let busy = process.scene.book().entry(&key).is_none_or(|entry| entry.acting);
    if !truth.is_quiet() || busy {
        return Ok(());
    }
    let cases = process.store.cases_of(KIND, &key).await?;
    let open = cases.iter().any(|case| case.status == CaseStatus::Open);
    process.scene.book().intervene(&key, true);
    let outcome = if open && dice.hit(Odds::percent(75)) {
        resolve(process, dice, &key, &truth).await
    } else {
        requeue(process, &key, id).await
    };
    process.fate.alive().await;
    process.scene.book().intervene(&key, false);
    outcome
}

async fn resolve(
    process: &Process,
    dice: &mut Stream,
    key: &str,
    truth: &Truth,
) -> anyhow::Result<()> {
    let (resolution, word) = match truth.executions.first() {
        Some(done) => (Resolution::Executed(done.execution.clone()), "executed"),
        None if dice.hit(Odds::percent(50)) => (Resolution::NotExecuted, "not executed"),
        None => (Resolution::Resend, "resend"),
    };
    process.scene.log.note(process.clock.now(), &format!("person decides on {key}: {word}"));
    process.orders.resolve(key, resolution, "by the broker's records").await?;
    process.fate.alive().await;
    process.scene.log.count(Tally::CaseResolved);
    Ok(())
}

async fn requeue(process: &Process, key: &str, id: tashika_domain::EffectId) -> anyhow::Result<()> {
    use tashika_engine::commands::outbox::RequeueError;
    process.scene.log.note(process.clock.now(), &format!("person requeues {key}"));
    match process.outbox.requeue(id).await {
        Ok(()) => {
            process.fate.alive().await;
            process.scene.log.count(Tally::Requeued);
            Ok(())
        }
        // Another person was faster.
        Err(RequeueError::NotAborted(_) | RequeueError::Commit(CommitError::Stale(_))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
