//! The simulator: the real engine and the real SQLite store, in a world that lies, loses and dies.
//!
//! A run is a function of its seed. Time is simulated, everything happens on one thread, and every
//! chance decision comes from a stream of the seed: the same seed gives the same trace, to the byte,
//! in every process and build. Called by `tashika sim` and by tests.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `world`, `plan`, `line`: the broker, its true books, and the network before it; they outlive
//!   the processes.
//! - `clients`, `book`, `person`: who asks, what they remember, who decides.
//! - `life`, `fate`: a process from start to end; when it dies, its database files are copied as they
//!   lie and the next life recovers from the copy. In some runs a second process sends as well; each
//!   may lose its way to the database for longer than a lease.
//! - `invariants`, `check`: what must be true, checked at every step and at the end, when the faults
//!   are switched off and everything must come to rest.
//! - `planted`: deliberate mistakes that the invariants must find.
//!
//! What it does not cover: the loss of power (a process crash loses nothing that SQLite has handed
//! to the operating system), errors of the disk, processes that die one by one, PostgreSQL, HTTP, and
//! keys that are used again after the ledger has forgotten them.

mod book;
mod check;
mod clients;
mod dice;
mod fate;
mod invariants;
mod life;
mod line;
mod log;
mod person;
mod plan;
mod planted;
mod report;
mod scene;
mod swarm;
mod tally;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use life::End;
pub use log::Violation;
pub use planted::Planted;
pub use report::{Report, main};
use scene::Scene;
pub use tally::Tally;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// Things that clients do in one run.
    pub steps: u64,
    /// Runs, with this seed and the ones that follow it.
    pub runs: u64,
    /// Tells the whole story, not only how it ended.
    pub verbose: bool,
    /// A deliberate mistake.
    pub planted: Option<Planted>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, steps: 500, runs: 1, verbose: false, planted: None }
    }
}

/// More lives than this in one run are no progress.
const LIVES_MAX: u32 = 10_000;
/// A disk in memory, where the system has one: runs write much and keep nothing.
const MEMORY_DISK: &str = "/dev/shm";

/// Runs one seed. An error is about the machine (no folder, no space), not about the product.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let Options { seed, steps, planted, verbose, .. } = *options;
    let scene = Arc::new(Scene::new(seed, steps, planted, verbose));
    let folder = scratch().context("no folder for the simulated database")?;
    let mut file = file_of(folder.path(), 1);
    let mut lives = 0;
    loop {
        lives += 1;
        let next = file_of(folder.path(), lives + 1);
        match life::live(&scene, lives, &file, &next)? {
            End::Over => break,
            End::Died => {
                remove(&file);
                file = next;
            }
            End::Stopped => {}
        }
        anyhow::ensure!(lives < LIVES_MAX, "seed {seed}: the run makes no progress");
    }
    Ok(Report::new(&scene, lives))
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
