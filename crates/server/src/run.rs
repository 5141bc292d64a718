//! What the commands do.

mod alerts;
mod ask;
mod audit;
mod bench;
mod cases;
mod console;
mod dlq;
mod demo;
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
pub use dlq::dlq;
pub use demo::demo;
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
    let SimArgs { profile, seed, steps, runs, verbose } = args;
    let profile = match profile {
        SimProfile::Orders => sim::Profile::Orders,
        SimProfile::Payments => sim::Profile::Payments,
        SimProfile::Messages => sim::Profile::Messages,
        SimProfile::Reservations => sim::Profile::Reservations,
    };
    let options = sim::Options { profile, seed, steps, runs, verbose, planted: None };
    sim::main(&options, out) == 0
}
