//! The simulator: the real engine and the real SQLite store, in a world that lies, loses and dies.
//!
//! A run is a function of its seed. Time is simulated, everything happens on one thread, and every
//! chance decision comes from a stream of the seed: the same seed gives the same trace, to the byte,
//! in every process and build. Called by `tashika sim` and by tests.
//!
//! - `orders`, `payments`, `messages`, `reservations`: the kinds of run ([`Profile`]), each with its world, its
//!   clients, its person, its invariants and its planted mistakes. Reservations are paid at the gateway of
//!   `payments`.
//! - `stage`, `log`, `tally`, `dice`: what every run has: the seed, the time, the trace.
//! - `trouble`, `plan`: what goes wrong, and what that means for one request.
//! - `life`, `fate`: a process from start to end; when it dies, its database files are copied as they
//!   lie and the next life recovers from the copy. In some runs a second process sends as well; each
//!   may lose its way to the database for longer than a lease. At the end the faults are switched
//!   off, and everything must come to rest.
//!
//! What it does not cover: the loss of power (a process crash loses nothing that SQLite has handed
//! to the operating system), errors of the disk, processes that die one by one, PostgreSQL, HTTP,
//! keys that are used again after the ledger has forgotten them, events to sinks, webhooks that are
//! forwarded, letters beyond their being written, and the way of a render's callback before it is confirmed.

mod dice;
mod fate;
mod life;
mod log;
mod messages;
mod orders;
mod payments;
mod plan;
mod planted;
mod report;
mod reservations;
mod stage;
mod tally;
mod trouble;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use life::{End, Play};
pub use log::Violation;
pub use planted::Planted;
pub use report::{Report, main};
pub use tally::Tally;

/// What kind of world is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    #[default]
    Orders,
    Payments,
    Messages,
    Reservations,
}

impl Profile {
    pub const ALL: [Self; 4] = [Self::Orders, Self::Payments, Self::Messages, Self::Reservations];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Payments => "payments",
            Self::Messages => "messages",
            Self::Reservations => "reservations",
        }
    }
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    pub profile: Profile,
    pub seed: u64,
    /// Things that clients do in one run.
    pub steps: u64,
    /// Runs, with this seed and the ones that follow it.
    pub runs: u64,
    /// Tells the whole story, not only how it ended.
    pub verbose: bool,
    /// A deliberate mistake; it has a profile of its own.
    pub planted: Option<Planted>,
}

impl Default for Options {
    fn default() -> Self {
        let profile = Profile::default();
        Self { profile, seed: 1, steps: 500, runs: 1, verbose: false, planted: None }
    }
}

/// More lives than this in one run are no progress.
const LIVES_MAX: u32 = 10_000;
/// A disk in memory, where the system has one: runs write much and keep nothing.
const MEMORY_DISK: &str = "/dev/shm";

/// Runs one seed. An error is about the machine (no folder, no space), not about the product.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let Options { seed, steps, planted, verbose, .. } = *options;
    let profile = planted.map_or(options.profile, Planted::profile);
    match profile {
        Profile::Orders => play(orders::Scene::new(seed, steps, planted, verbose), profile),
        Profile::Payments => play(payments::Scene::new(seed, steps, planted, verbose), profile),
        Profile::Messages => play(messages::Scene::new(seed, steps, planted, verbose), profile),
        Profile::Reservations => {
            play(reservations::Scene::new(seed, steps, planted, verbose), profile)
        }
    }
}

/// Life after life, until the run is over.
fn play(play: impl Play, profile: Profile) -> anyhow::Result<Report> {
    let play = Arc::new(play);
    let seed = play.stage().seed;
    let folder = scratch().context("no folder for the simulated database")?;
    let mut file = file_of(folder.path(), 1);
    let mut lives = 0;
    loop {
        lives += 1;
        let next = file_of(folder.path(), lives + 1);
        match life::live(&play, lives, &file, &next)? {
            End::Over => break,
            End::Died => {
                remove(&file);
                file = next;
            }
            End::Stopped => {}
        }
        anyhow::ensure!(lives < LIVES_MAX, "seed {seed}: the run makes no progress");
    }
    Ok(Report::new(&*play, profile, lives))
}

fn scratch() -> std::io::Result<tempfile::TempDir> {
    let named = tempfile::Builder::new().prefix("tashika-sim-").clone();
    named.tempdir_in(MEMORY_DISK).or_else(|_| named.tempdir())
}

fn file_of(folder: &Path, life: u32) -> PathBuf {
    folder.join(format!("life-{life}.db"))
}

/// What a dead process left behind is no longer needed once it was copied.
fn remove(file: &Path) {
    // What cannot be removed goes with the folder.
    std::fs::remove_file(file).ok();
}
