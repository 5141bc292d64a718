//! `tashika bench`: our figures beside the database's own limit, in one run.
//!
//! Every figure of Tashika stands next to the figure of hand-written batched SQL doing the same work
//! on the same database a moment before or after, and only the ratio between the two means anything:
//! machines differ, and the same machine differs from minute to minute. The hand-written side keeps
//! the same facts about an effect under the same indexes, and nothing of ours in between.

mod cycle;
mod enqueue;
mod footprint;
mod latency;
mod limit;
mod limit_postgres;
mod limit_sqlite;
mod lists;
mod lists_rows;
mod messages;
mod messages_sink;
mod payments;
mod pinned;
mod reservations;
mod server;
mod webhooks;
mod webhooks_bare;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tashika_domain::{EffectId, Lane, NewEffect};
use tashika_engine::{Clock, Ids};
use tashika_store::Store;

use crate::postgres::{Cluster, Database};

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub databases: Vec<Database>,
    /// A server to measure on; without one a throwaway server is started.
    pub postgres_url: Option<String>,
    pub scenarios: Vec<Scenario>,
    /// For each measurement.
    pub seconds: u64,
    /// Callers that each wait for their own effect to be durable.
    pub callers: usize,
    /// Effects waiting while the full cycle is measured.
    pub backlogs: Vec<usize>,
    /// How long the foreign transaction is held open.
    pub pinned_seconds: u64,
    pub json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Enqueue,
    Cycle,
    Latency,
    Pinned,
    Footprint,
    Payments,
    Webhooks,
    Messages,
    Reservations,
    Lists,
}

impl Scenario {
    pub const ALL: [Self; 10] = [
        Self::Enqueue,
        Self::Cycle,
        Self::Latency,
        Self::Pinned,
        Self::Footprint,
        Self::Payments,
        Self::Webhooks,
        Self::Messages,
        Self::Reservations,
        Self::Lists,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Cycle => "cycle",
            Self::Latency => "latency",
            Self::Pinned => "pinned",
            Self::Footprint => "footprint",
            Self::Payments => "payments",
            Self::Webhooks => "webhooks",
            Self::Messages => "messages",
            Self::Reservations => "reservations",
            Self::Lists => "lists",
        }
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.as_str() == name)
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub database: &'static str,
    pub what: String,
    pub unit: &'static str,
    pub tashika: f64,
    /// The database's own, with hand-written SQL.
    pub limit: Option<f64>,
    pub ratio: Option<f64>,
    pub note: String,
}

impl Figure {
    fn rate(database: &'static str, what: String, tashika: f64, limit: f64, note: String) -> Self {
        let ratio = Some(tashika / limit);
        Self { database, what, unit: "per s", tashika, limit: Some(limit), ratio, note }
    }

    fn plain(
        database: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        tashika: f64,
        note: impl Into<String>,
    ) -> Self {
        let (what, note) = (what.into(), note.into());
        Self { database, what, unit, tashika, limit: None, ratio: None, note }
    }
}

/// Measures, prints each figure as it comes, then the table; writes JSON if asked to.
pub async fn run(options: &Options, out: &mut (dyn Write + Send)) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for database in &options.databases {
        for scenario in &options.scenarios {
            let world = World::open(*database, options).await?;
            let measured = match scenario {
                Scenario::Enqueue => enqueue::measure(&world, options).await,
                Scenario::Cycle => cycle::measure(&world, options).await,
                Scenario::Latency => latency::measure(&world, options).await,
                Scenario::Pinned if *database == Database::Postgres => {
                    pinned::measure(&world, options).await
                }
                Scenario::Pinned => Ok(Vec::new()),
                Scenario::Footprint => footprint::measure(&world).await,
                Scenario::Payments => payments::measure(&world, options).await,
                Scenario::Webhooks => webhooks::measure(&world, options).await,
                Scenario::Messages => messages::measure(&world, options).await,
                Scenario::Reservations => reservations::measure(&world).await,
                Scenario::Lists => lists::measure(&world, options).await,
            }
            .with_context(|| format!("measuring {} on {}", scenario.as_str(), world.name()))?;
            for figure in measured {
                writeln!(out, "{}", line(&figure))?;
                figures.push(figure);
            }
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&figures)?)?;
    }
    Ok(figures)
}

fn line(figure: &Figure) -> String {
    let number = |n: f64| if n >= 100.0 { format!("{n:.0}") } else { format!("{n:.2}") };
    let limit = figure.limit.map_or_else(|| "-".into(), number);
    let ratio = figure.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
    format!(
        "{:<9} {:<44} {:>9} {:<6} limit {:>9}  ratio {:>5}  {}",
        figure.database,
        figure.what,
        number(figure.tashika),
        figure.unit,
        limit,
        ratio,
        figure.note,
    )
}

/// A fresh database to measure on.
pub(crate) struct World {
    pub database: Database,
    /// For Tashika: `sqlite:…` or `postgres://…`.
    pub url: String,
    folder: tempfile::TempDir,
    /// Keeps a throwaway server alive.
    _cluster: Option<Cluster>,
}

impl World {
    async fn open(database: Database, options: &Options) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(".").or_else(|_| tempfile::tempdir())?;
        let (url, cluster) = match (database, &options.postgres_url) {
            (Database::Sqlite, _) => {
                (format!("sqlite:{}", folder.path().join("tashika.db").display()), None)
            }
            (Database::Postgres, Some(url)) => {
                limit_postgres::reset(url).await?;
                (url.clone(), None)
            }
            (Database::Postgres, None) => {
                let cluster = Cluster::start_durable()?;
                (cluster.url().to_owned(), Some(cluster))
            }
        };
        Ok(Self { database, url, folder, _cluster: cluster })
    }

    pub fn name(&self) -> &'static str {
        match self.database {
            Database::Sqlite => "sqlite",
            Database::Postgres => "postgres",
        }
    }

    /// A file for the hand-written side of SQLite.
    pub fn sqlite_file(&self) -> PathBuf {
        self.folder.path().join("limit.db")
    }

    pub async fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.url, 8).await?)
    }

    /// What the database does by itself by the time that so many rows are there, and would otherwise do while something
    /// is measured.
    pub async fn tidy(&self) -> anyhow::Result<()> {
        match self.database {
            Database::Sqlite => {
                let path = self.url.trim_start_matches("sqlite:").to_owned();
                tokio::task::spawn_blocking(move || {
                    let db = rusqlite::Connection::open(path)?;
                    db.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
                })
                .await??;
            }
            Database::Postgres => {
                let client = limit_postgres::connect(&self.url).await?;
                client.batch_execute("vacuum analyze").await?;
                client.batch_execute("checkpoint").await?;
            }
        }
        Ok(())
    }
}

/// Makes effects that do nothing.
#[derive(Clone)]
pub(crate) struct Maker {
    pub clock: Clock,
    pub ids: Ids,
}

/// The size of a small order.
pub(crate) const PAYLOAD: &str = r#"{"instrument":"USDJPY","side":"BUY","qty":1000,"price":150.25,"idempotency_key":"00000000-0000-0000-0000-000000000000"}"#;
pub(crate) const KIND: &str = "nothing";
pub(crate) const LANE: Lane = Lane::EVENTS;

impl Maker {
    pub fn new() -> Self {
        let clock = Clock::System;
        Self { clock, ids: Ids::random(clock) }
    }

    pub fn effect(&self) -> NewEffect {
        let (id, now) = (self.ids.effect(), self.clock.now());
        NewEffect {
            id,
            lane: LANE,
            kind: KIND.into(),
            key: Some(key(id)),
            digest: None,
            payload: PAYLOAD.into(),
            run_at: now,
            created_at: now,
            expires_at: now.plus(Duration::from_secs(48 * 3600)),
            traceparent: None,
            held_by: None,
        }
    }
}

pub(crate) fn key(id: EffectId) -> String {
    id.0.simple().to_string()
}

/// The value below which `share` of the samples lie, in milliseconds.
pub(crate) fn quantile(samples: &mut [Duration], share: f64) -> f64 {
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a list of samples"
    )]
    let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
    samples.get(index).map_or(f64::NAN, |sample| sample.as_secs_f64() * 1000.0)
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
pub(crate) fn per_second(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}
