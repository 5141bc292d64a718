//! The simulator: the real engine and the real SQLite store, in a world that lies, loses and dies.
//!
//! A run is a function of its seed. Time is simulated, everything happens on one thread, and every
//! chance decision comes from a stream of the seed: the same seed gives the same trace, to the byte,
//! in every process and build. Called by `tashika sim` and by tests.
//!
//! - `orders`, `payments`, `messages`, `mail`, `reservations`: the kinds of run ([`Profile`]), each with its
//!   world, its clients, its person, its invariants and its planted mistakes. Reservations are paid at the
//!   gateway of `payments`.
//! - `stage`, `log`, `tally`, `dice`, `scene`: what every run has: the seed, the time, the trace, and what outlives a process.
//! - `trouble`, `plan`, `mix`: what goes wrong, what that means for one request, and how a run does
//!   without some of it.
//! - `life`, `fate`: a process from start to end; when it dies, its database files are copied as they
//!   lie and the next life recovers from the copy, perhaps with other settings. In some runs other
//!   processes send as well; each has a clock of its own, may die alone, and may lose its way to the
//!   database for longer than a lease. The disk may be full, or not say whether it has written. At the
//!   end the faults are switched off, and everything must come to rest.
//! - `coverage`: which transitions of the product's state machines were taken.
//! - `shrink`, `story`, `report`: a broken promise, in the smallest run that still breaks it, told.
//!
//! What it does not cover is in `docs/reliability.md`.

mod coverage;
mod dice;
mod fate;
mod life;
mod log;
mod mail;
mod messages;
mod mix;
mod orders;
mod payments;
mod plan;
mod planted;
mod report;
mod reservations;
mod scene;
mod shrink;
mod stage;
mod story;
mod tally;
mod trouble;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

pub use coverage::{Machine, Taken};
use life::{End, Play};
pub use log::Violation;
pub use mix::{Fault, Mix, parse_ranges};
pub use planted::Planted;
pub use report::{Asked, Report, main};
pub use shrink::{Shrunk, shrink};
pub use tally::Tally;

/// What kind of world is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    #[default]
    Orders,
    Payments,
    Messages,
    Reservations,
    Mail,
}

impl Profile {
    pub const ALL: [Self; 5] =
        [Self::Orders, Self::Payments, Self::Messages, Self::Reservations, Self::Mail];

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Payments => "payments",
            Self::Messages => "messages",
            Self::Reservations => "reservations",
            Self::Mail => "mail",
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
    /// What is taken away from the runs.
    pub mix: Mix,
}

impl Default for Options {
    fn default() -> Self {
        let profile = Profile::default();
        let mix = Mix::default();
        Self { profile, seed: 1, steps: 500, runs: 1, verbose: false, planted: None, mix }
    }
}

/// More lives than this in one run are no progress.
const LIVES_MAX: u32 = 10_000;
/// A disk in memory, where the system has one: runs write much and keep nothing.
const MEMORY_DISK: &str = "/dev/shm";

/// Runs one seed. An error is about the machine (no folder, no space), not about the product.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let profile = options.planted.map_or(options.profile, Planted::profile);
    match profile {
        Profile::Orders => play(orders::Scene::new(options), profile),
        Profile::Payments => play(payments::Scene::new(options), profile),
        Profile::Messages => play(messages::Scene::new(options), profile),
        Profile::Mail => play(mail::Scene::new(options), profile),
        Profile::Reservations => play(reservations::Scene::new(options), profile),
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
