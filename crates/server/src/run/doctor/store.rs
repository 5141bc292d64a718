//! The database, its clock, and who holds what in it.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_store::{Counted, StoreError, WorkerRow};

use super::{Finding, STORE_LIMIT};
use crate::app::App;
use crate::config::Config;
use crate::run::output::ago;

pub(super) const REACH: &str =
    "check TASHIKA_DATABASE_URL, that the server runs, and that the user may log in";

/// Clocks further apart than this make leases lapse early or late.
const SKEW_MAX: Duration = Duration::from_secs(2);
/// Counting ends here.
const COUNT_MAX: i64 = 1000;

pub(super) async fn check(app: &App, config: &Config) -> Vec<Finding> {
    let looked = async {
        let mut findings = database(app).await?;
        findings.extend(processes(app, config).await?);
        findings.extend(waiting_for_people(app).await?);
        Ok::<_, StoreError>(findings)
    };
    match tokio::time::timeout(STORE_LIMIT, looked).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![Finding::bad("database", error.to_string(), REACH)],
        Err(_) => {
            let text = format!("no answer within {} s", STORE_LIMIT.as_secs());
            vec![Finding::bad("database", text, "look for what keeps it busy, or for a full disk")]
        }
    }
}

async fn database(app: &App) -> Result<Vec<Finding>, StoreError> {
    let asked = app.clock.now();
    let found = app.store.diagnose().await?;
    let answered = app.clock.now();
    let mebibytes = found.size / (1024 * 1024);
    let mut findings =
        vec![Finding::good("database", format!("{}, {mebibytes} MiB", found.version))];
    app.store.probe(answered).await?;
    let took = app.clock.now().since(answered);
    findings.push(Finding::good("commit", format!("durable in {} ms", took.as_millis())));
    findings.push(clock(asked, found.time, answered));
    if let Some(pin) = found.pin {
        findings.push(Finding::bad(
            "horizon",
            format!(
                "session {} ({}, {}) has kept a transaction open for {} s: dead rows cannot be removed",
                pin.pid, pin.application, pin.state, pin.open_for.as_secs(),
            ),
            format!("end it, or: select pg_terminate_backend({})", pin.pid),
        ));
    }
    Ok(findings)
}

/// The database's clock was read between the other two moments.
fn clock(asked: Timestamp, theirs: Option<Timestamp>, answered: Timestamp) -> Finding {
    let Some(theirs) = theirs else {
        return Finding::good(
            "clock",
            "the database has none of its own: every time is this machine's",
        );
    };
    let skew = theirs.since(answered).max(asked.since(theirs));
    if skew > SKEW_MAX {
        return Finding::bad(
            "clock",
            format!("this machine and the database differ by {} ms", skew.as_millis()),
            "synchronise the clocks (NTP): leases are compared across machines",
        );
    }
    Finding::good("clock", "agrees with the database's")
}

fn is_alive(worker: &WorkerRow, now: Timestamp) -> bool {
    let lease = Duration::from_millis(u64::try_from(worker.lease_ms).unwrap_or(0));
    worker.heartbeat_at.plus(lease) > now
}

/// Who works, who has stopped without saying so, and what they still hold.
async fn processes(app: &App, config: &Config) -> Result<Vec<Finding>, StoreError> {
    let now = app.clock.now();
    let workers = app.store.workers().await?;
    let (alive, silent): (Vec<_>, Vec<_>) = workers.iter().partition(|w| is_alive(w, now));
    let waiting: i64 = app.store.due_by_lane(now).await?.iter().map(|lane| lane.count).sum();
    let mut findings = vec![match (alive.len(), waiting) {
        (0, 1..) => Finding::bad(
            "workers",
            format!("nobody works, and {waiting} effects are due"),
            "start `tashika serve`, or find out why it ended",
        ),
        (0, _) => Finding::note("workers", "0 alive", "`tashika serve` starts one"),
        (count, _) => Finding::good("workers", format!("{count} alive")),
    }];
    for worker in silent {
        let since = ago(worker.heartbeat_at, now);
        findings.push(Finding::note(
            "workers",
            format!("{} has given no sign of life for {since}", worker.id),
            "it died or is cut off from the database; a running worker takes over what it held",
        ));
    }
    findings.push(leases(app, config, now).await?);
    Ok(findings)
}

async fn leases(app: &App, config: &Config, now: Timestamp) -> Result<Finding, StoreError> {
    let mut holders: BTreeMap<String, (usize, Timestamp)> = BTreeMap::new();
    for (lane, policy) in &config.lanes {
        for lapsed in app.store.lapsed(lane, now.minus(policy.lease), COUNT_MAX).await? {
            let held = holders.entry(lapsed.worker).or_insert((0, lapsed.locked_at));
            *held = (held.0 + 1, held.1.min(lapsed.locked_at));
        }
    }
    if holders.is_empty() {
        return Ok(Finding::good("leases", "none has run out"));
    }
    let count: usize = holders.values().map(|(count, _)| count).sum();
    let named = holders.iter().map(|(worker, (count, since))| {
        format!("{worker} holds {count}, unheard of for {}", ago(*since, now))
    });
    Ok(Finding::bad(
        "leases",
        format!(
            "{count} effects are held by workers that give no sign of life: {}",
            named.collect::<Vec<_>>().join("; ")
        ),
        "a running worker takes them over; or: tashika outbox release",
    ))
}

/// What stands around until somebody looks.
async fn waiting_for_people(app: &App) -> Result<Vec<Finding>, StoreError> {
    let shown = |count: i64| {
        let more = if count >= COUNT_MAX { " or more" } else { "" };
        format!("{count}{more}")
    };
    let mut findings = Vec::new();
    let aborted = app.store.counted(Counted::AbortedEffects, COUNT_MAX).await?;
    findings.push(if aborted == 0 {
        Finding::good("dead letters", "none")
    } else {
        Finding::bad(
            "dead letters",
            format!("{} effects were given up", shown(aborted)),
            "tashika outbox list --status aborted, then requeue or leave them",
        )
    });
    let letters = app.store.counted(Counted::DeadLetters, COUNT_MAX).await?;
    if letters > 0 {
        findings.push(Finding::bad(
            "messages",
            format!("{} dead letters", shown(letters)),
            "tashika dlq list, then retry or delete",
        ));
    }
    let events = app.store.counted(Counted::FailedWebhooks, COUNT_MAX).await?;
    if events > 0 {
        findings.push(Finding::bad(
            "webhooks",
            format!("{} events could not be processed", shown(events)),
            "tashika webhooks list --status failed, then replay",
        ));
    }
    let cases = app.store.counted(Counted::OpenCases, COUNT_MAX).await?;
    if cases > 0 {
        findings.push(Finding::bad(
            "cases",
            format!("{} wait for a person", shown(cases)),
            "tashika cases list --status open, then show and decide",
        ));
    }
    let control = app.store.mail_control().await?;
    if !control.is_open(app.clock.now()) {
        let why = control.reason.unwrap_or_default();
        findings.push(Finding::bad(
            "mail lane",
            format!("{}: {why}", control.state.as_str()),
            "correct the cause, then `tashika mail resume`; mails wait and none is lost",
        ));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn clocks_are_compared_with_the_moments_around() {
        let at = |ms: i64| Timestamp::from_micros(ms * 1000);
        for (theirs, level) in [
            (Some(at(10_500)), Level::Ok),
            (Some(at(8_000)), Level::Ok),
            (Some(at(13_000)), Level::Ok),
            (Some(at(7_999)), Level::Alert),
            (Some(at(13_001)), Level::Alert),
            (None, Level::Ok),
        ] {
            let found = clock(at(10_000), theirs, at(11_000));
            assert_eq!(found.level, level, "{theirs:?}: {}", found.text);
            assert_eq!(found.advice.is_some(), level == Level::Alert);
        }
        assert!(clock(at(0), None, at(0)).text.contains("this machine's"));
    }
}
