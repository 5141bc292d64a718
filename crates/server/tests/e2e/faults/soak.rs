//! The mixed load for a while, with nothing broken but the outside: memory, descriptors, connections and latency stay as they
//! are, and what is over is forgotten.
//!
//! `TASHIKA_SOAK_SEC` says for how long (each night an hour). Nothing here depends on speed: latencies are printed, and
//! what grows is compared with itself. The clients want less than a server can do on two cores: only then it is at the end as
//! it was at the beginning, and what piles up is a mistake.

use std::sync::Arc;
use std::time::Duration;

use tashika_store::Dialect;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::time::Instant;

use super::load::Load;
use super::town::Town;
use super::{books, number, seed};
use crate::support::{Server, Setup, rows};

on_both!(nothing_grows_under_mixed_load);

const SECONDS: usize = 60;
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two wishes of a client: about two thirds of what two debug builds, one on each database, can do on two cores.
const PACE: Duration = Duration::from_millis(600);
/// How many of its earlier wishes a client has not looked at: what is over is forgotten after some 18 seconds.
const LAG: usize = 3;
/// Two pools, the flushers and the listener, of `TASHIKA_POSTGRES_CONNECTIONS` = 8, and one more for each that is being
/// replaced.
const CONNECTIONS_MAX: f64 = 32.0;

/// What is kept for a while only, and not a moment longer once it is over.
const FORGOTTEN: [(&str, &str); 5] = [
    ("effects", "outbox where status = 'succeeded'"),
    ("ledger entries", "idempo_ledger where status = 'succeeded'"),
    ("webhooks", "webhook_events where status = 'success'"),
    ("messages", "messages where state = 'delivered'"),
    ("mails", "mail_deliveries where status = 'sent'"),
];

/// What waits, on its way to an end.
const WAITING: &str =
    "outbox where status in ('pending', 'sending', 'failed') and lane <> 'timers'";

/// One look at the process and its database.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    memory_mib: f64,
    descriptors: f64,
    threads: f64,
    connections: f64,
    /// Rows that are over, and not yet forgotten.
    over: f64,
    /// Effects that are not over.
    waiting: f64,
    database_mib: f64,
}

impl Look {
    async fn at(server: &Server, db: &TestDb) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let field = |name: &str| -> f64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
        let (connections, bytes) = match db.dialect() {
            Dialect::Postgres => {
                let sql = "select (select count(*) from pg_stat_activity
                                    where application_name = 'tashika' and datname = current_database()),
                                  pg_database_size(current_database())";
                let row = &rows(&db.url(), sql).await[0];
                (row[0].parse().unwrap(), row[1].parse().unwrap())
            }
            Dialect::Sqlite => {
                let sql =
                    "select page_count * page_size from pragma_page_count(), pragma_page_size()";
                (0.0, rows(&db.url(), sql).await[0][0].parse().unwrap())
            }
        };
        let over = FORGOTTEN.map(|(_, from)| format!("(select count(*) from {from})")).join(" + ");
        let sql = format!("select {over}, (select count(*) from {WAITING})");
        let counts = &rows(&db.url(), &sql).await[0];
        Self {
            memory_mib: field("VmRSS:") / 1024.0,
            descriptors: f64::from(u32::try_from(descriptors).unwrap()),
            threads: field("Threads:"),
            connections,
            over: counts[0].parse().unwrap(),
            waiting: counts[1].parse().unwrap(),
            database_mib: bytes_to_mib(bytes),
        }
    }
}

fn bytes_to_mib(bytes: f64) -> f64 {
    bytes / 1024.0 / 1024.0
}

/// Looks at three parts of a run, one after the other.
fn thirds<T>(all: &[T]) -> [&[T]; 3] {
    let third = all.len() / 3;
    [&all[..third], &all[third..2 * third], &all[2 * third..]]
}

fn mean(looks: &[Look], value: fn(&Look) -> f64) -> f64 {
    let count = f64::from(u32::try_from(looks.len()).unwrap());
    looks.iter().map(value).sum::<f64>() / count
}

fn most(looks: &[Look], value: fn(&Look) -> f64) -> f64 {
    looks.iter().map(value).fold(0.0, f64::max)
}

fn quantile(sorted: &[f64], part: usize) -> f64 {
    sorted[(sorted.len() - 1) * part / 100]
}

async fn nothing_grows_under_mixed_load(db: TestDb) {
    let (seconds, seed) = (number("TASHIKA_SOAK_SEC", SECONDS), seed());
    let load =
        Arc::new(Load::new(Town::with_keys(seed).await, seed).looking_back(LAG).at_pace(PACE));
    let setup = forgetful(load.town.setup(Setup::of(&db)));
    let server = setup.start().await;
    Load::prepare(&server).await;
    load.served_by([&server]);
    let mut clients = load.begin();
    clients.until_more(40).await;

    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let mut looks = Vec::new();
    while Instant::now() < end {
        looks.push(Look::at(&server, &db).await);
        clients.are_well();
        tokio::time::sleep(LOOK_EVERY).await;
    }
    clients.finish().await;
    report(&load, &looks);

    let title = format!("{:?}, seed {seed}: {seconds} s of mixed load", db.dialect());
    books::balance(&title, &load, &db.url(), &server).await;
    for (what, from) in FORGOTTEN {
        until(&format!("{what} to be forgotten"), async || {
            (rows(&db.url(), &format!("select count(*) from {from}")).await == [["0"]])
                .then_some(())
        })
        .await;
    }
    let [_, middle, last] = thirds(&looks);
    let (before, after) =
        (mean(middle, |look| look.memory_mib), mean(last, |look| look.memory_mib));
    assert!(after < before * 1.25 + 16.0, "memory grows: {before:.0} MiB, then {after:.0} MiB");
    let (before, after) =
        (most(middle, |look| look.descriptors), most(last, |look| look.descriptors));
    assert!(after < before * 1.25 + 40.0, "descriptors leak: {before}, then {after}");
    let connections = most(&looks, |look| look.connections);
    assert!(connections <= CONNECTIONS_MAX, "{connections} connections to PostgreSQL");
    let (before, after) = (most(middle, |look| look.threads), most(last, |look| look.threads));
    assert!(after <= before + 8.0, "threads pile up: {before}, then {after}");
    let (before, after) = (most(middle, |look| look.over), most(last, |look| look.over));
    assert!(after < before * 1.5 + 500.0, "what is over is kept: {before} rows, then {after}");
    let (before, after) = (most(middle, |look| look.waiting), most(last, |look| look.waiting));
    assert!(after < before * 1.5 + 500.0, "work piles up: {before} effects, then {after}");
    server.stop().await;
}

/// Forgets everything soon: a minute must show what a month would.
fn forgetful(setup: Setup) -> Setup {
    setup
        .set("OUTBOX_PRUNE_INTERVAL_SEC", 1)
        .set("OUTBOX_KEEP_HOURS", "0.003")
        .set("IDEMPO_TTL_HOURS", "0.005")
        .set("PAYMENT_IDEMPO_TTL_HOURS", "0.005")
        .set("WEBHOOK_KEEP_DAYS", "0.0002")
        .set("QUEUE_KEEP_DAYS", "0.0002")
        .set("MAIL_KEEP_DAYS", "0.0002")
}

fn report(load: &Load, looks: &[Look]) {
    for (name, look) in ["first", "middle", "last"].into_iter().zip(thirds(looks)) {
        println!(
            "{name} third: memory {:.0} MiB, at most {:.0} descriptors, {:.0} threads, {:.0} connections; \
             database {:.1} MiB, {:.0} rows over and not yet forgotten, {:.0} effects waiting",
            mean(look, |look| look.memory_mib),
            most(look, |look| look.descriptors),
            most(look, |look| look.threads),
            most(look, |look| look.connections),
            most(look, |look| look.database_mib),
            most(look, |look| look.over),
            most(look, |look| look.waiting),
        );
    }
    let tally = load.tally.lock().unwrap();
    for (name, part) in ["first", "middle", "last"].into_iter().zip(thirds(&tally.latencies)) {
        let mut took: Vec<f64> = part.iter().map(|(_, took)| *took).collect();
        took.sort_by(f64::total_cmp);
        let span = part.last().unwrap().0 - part[0].0;
        println!(
            "{name} third: {} answers in {span:.0} s, median {:.1} ms, 99 of 100 within {:.1} ms",
            took.len(),
            quantile(&took, 50),
            quantile(&took, 99),
        );
    }
}
