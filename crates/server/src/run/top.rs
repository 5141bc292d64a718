//! `tashika top`: what flows, what waits and what needs somebody, in a terminal.
//!
//! It reads the store, as the console's first page does, and changes nothing: it can be left open beside
//! any number of processes.

mod frame;
mod screen;

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::{Lane, Status, Timestamp};
use tashika_store::StoreError;

use self::frame::frame;
use self::screen::Screen;
use crate::app::App;
use crate::cli::top::TopArgs;
use crate::config::Config;
use crate::http::console::overview::standing;
use crate::signals;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// What counts as the flow.
const LATELY: Duration = Duration::from_secs(60);
/// The flow is seen among so many of the newest effects: a look every second must stay small.
const LOOK: i64 = 10_000;

pub async fn top(config: &Config, args: TopArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let app = App::open_existing(config).await?;
    if args.json {
        return Ok(writeln!(out, "{}", read(&app, app.clock.now()).await?)?);
    }
    let people = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || !people {
        for line in frame(&read(&app, app.clock.now()).await?, app.clock.now()) {
            writeln!(out, "{}", line.text)?;
        }
        return Ok(());
    }
    watch(&app).await
}

/// Redraws until somebody has seen enough.
async fn watch(app: &App) -> anyhow::Result<()> {
    let stop = signals::watch()?;
    let (mut screen, mut keys) = Screen::open()?;
    let mut listening = true;
    loop {
        let now = app.clock.now();
        // A database that is away for a moment is what somebody wants to see come back.
        let lines = match read(app, now).await {
            Ok(reading) => frame(&reading, now),
            Err(error) => vec![frame::Line::plain(format!("the store does not answer: {error}"))],
        };
        screen.draw(&lines)?;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            key = keys.recv(), if listening => match key {
                Some(b'q' | b'Q' | 0x1b) => return Ok(()),
                Some(_) => {}
                None => listening = false,
            },
            () = app.clock.sleep(PERIOD) => {}
        }
    }
}

/// Everything that is shown, as a document.
async fn read(app: &App, now: Timestamp) -> Result<Value, StoreError> {
    let mut found = standing(&app.store).await?;
    found["at"] = json!(now);
    found["lanes"] = lanes(app, now).await?.into();
    let processes = app.store.workers().await?.into_iter().map(|worker| {
        let lease = Duration::from_millis(u64::try_from(worker.lease_ms).unwrap_or(0));
        json!({
            "id": worker.id,
            "startedAt": worker.started_at,
            "heartbeatAt": worker.heartbeat_at,
            "alive": worker.heartbeat_at.plus(lease) > now,
        })
    });
    found["processes"] = processes.collect();
    let control = app.store.mail_control().await?;
    if !control.is_open(now) {
        found["mailLane"] = json!({"state": control.state.as_str(), "reason": control.reason});
    }
    Ok(found)
}

async fn lanes(app: &App, now: Timestamp) -> Result<Vec<Value>, StoreError> {
    let waiting = app.store.depth_by_lane(now).await?;
    let recent = app.store.recent_by_lane(now.minus(LATELY), LOOK).await?;
    let mut lanes: Vec<Lane> = Lane::OWN.to_vec();
    for lane in waiting.iter().map(|w| &w.lane).chain(recent.iter().map(|r| &r.lane)) {
        if !lanes.contains(lane) {
            lanes.push(lane.clone());
        }
    }
    let row = |lane: &Lane| {
        let depth = waiting.iter().find(|depth| depth.lane == *lane);
        let count = |status: Status| {
            let found = recent.iter().find(|r| r.lane == *lane && r.status == status);
            found.map_or(0, |found| found.count)
        };
        json!({
            "lane": lane.as_str(),
            "waiting": depth.map_or(0, |depth| depth.due),
            "oldestDueAt": depth.map(|depth| depth.oldest),
            "sending": count(Status::Sending),
            "succeeded": count(Status::Succeeded),
            "failed": count(Status::Failed),
            "aborted": count(Status::Aborted),
        })
    };
    Ok(lanes.iter().map(row).collect())
}
