//! What the commands do.

mod alerts;
mod audit;
mod bench;
mod console;
mod doctor;
mod mail;
mod outbox;
mod serve;
mod table;

use std::io::Write;

use secrecy::ExposeSecret as _;
use tashika_store::Store;
use tashika_testkit::sim;

pub use alerts::alerts;
pub use audit::verify as audit;
pub use bench::bench;
pub use console::console;
pub use doctor::doctor;
pub use mail::mail;
pub use outbox::outbox;
pub use serve::serve;

use crate::cli::args::{SimArgs, SimProfile};
use crate::config::Config;

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
