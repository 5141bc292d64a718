//! What the commands do.

mod alerts;
mod ask;
mod audit;
mod bench;
mod cases;
mod console;
mod demo;
mod dlq;
mod doctor;
mod mail;
mod outbox;
mod output;
mod payments;
mod progress;
mod serve;
mod shell;
mod table;
mod top;
mod webhooks;

use std::io::Write;
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use tashika_engine::Engine;
use tashika_store::Store;
use tashika_testkit::sim;

pub use alerts::alerts;
pub use audit::audit;
pub use bench::bench;
pub use cases::cases;
pub use console::console;
pub use demo::demo;
pub use dlq::dlq;
pub use doctor::doctor;
pub use mail::mail;
pub use outbox::outbox;
pub use payments::payments;
pub use serve::serve;
pub use shell::{completions, man};
pub use top::top;
pub use webhooks::webhooks;

use crate::app::App;
use crate::cli::args::{SimArgs, SimProfile};
use crate::config::Config;

/// Runs what needs an engine for as long as it takes: leases are renewed, and what was begun at a
/// gateway is waited for. What does not end in time is taken over by a worker, as after a crash.
async fn attended<T>(
    app: &App,
    config: &Config,
    work: impl AsyncFnOnce(&Arc<Engine>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let running = app.engine(config, false).attend();
    let done = work(running.engine()).await;
    if !running.stop(config.shutdown).await {
        eprintln!("tashika: something has not ended yet; a worker takes it over");
    }
    done
}

/// `tashika migrate`
pub async fn migrate(config: &Config, out: &mut impl Write) -> anyhow::Result<()> {
    let applied = Store::migrate(config.database_url.expose_secret()).await?;
    if applied.is_empty() {
        writeln!(out, "the database is up to date (version {})", tashika_store::KNOWN_VERSION)?;
    }
    for name in applied {
        writeln!(out, "applied {name}")?;
    }
    Ok(())
}

/// `tashika sim`; returns whether every promise was kept.
pub fn sim(args: SimArgs, out: &mut impl Write) -> bool {
    let profiles = match args.profile {
        SimProfile::Orders => vec![sim::Profile::Orders],
        SimProfile::Payments => vec![sim::Profile::Payments],
        SimProfile::Messages => vec![sim::Profile::Messages],
        SimProfile::Reservations => vec![sim::Profile::Reservations],
        SimProfile::Mail => vec![sim::Profile::Mail],
        SimProfile::All => sim::Profile::ALL.to_vec(),
    };
    let mix = sim::Mix {
        without: args.without.into_iter().flat_map(|faults| faults.0).collect(),
        nodes: args.nodes.map(|nodes| nodes as usize),
        lives: args.lives,
        skip: args.skip.map(|steps| steps.0).unwrap_or_default(),
    };
    let SimArgs { seed, steps, runs, verbose, .. } = args;
    let options = sim::Options { seed, steps, runs, verbose, mix, ..sim::Options::default() };
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let asked = sim::Asked {
        profiles,
        jobs: args.jobs.map_or_else(processors, |jobs| jobs as usize),
        coverage: args.coverage,
        shrink: !args.no_shrink,
    };
    sim::main(&options, &asked, out) == 0
}
