//! `tashika bench`: our figures beside the database's own limit.

use std::io::Write;

use tashika_testkit::bench::{Options, run};
use tashika_testkit::postgres::Database;

use crate::cli::args::BenchArgs;

pub async fn bench(args: &BenchArgs, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let databases = match args.on.as_slice() {
        [] => vec![Database::Sqlite, Database::Postgres],
        chosen => chosen.iter().map(|database| (*database).into()).collect(),
    };
    let options = Options {
        databases,
        postgres_url: args.postgres_url.clone(),
        scenarios: args.scenarios.clone(),
        seconds: u64::from(args.seconds),
        callers: args.callers as usize,
        backlogs: args.backlog.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect(),
        pinned_seconds: u64::from(args.pinned_seconds),
        json: args.json.clone(),
    };
    run(&options, out).await?;
    Ok(())
}
