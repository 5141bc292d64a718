//! Orders, and the broker that executes them.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `world`, `line`: the broker, its true books, and the network before it.
//! - `clients`, `book`, `person`: who asks, what they remember, who decides.
//! - `invariants`, `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.

mod book;
mod check;
mod clients;
mod invariants;
mod line;
mod person;
mod planted;
mod process;
mod swarm;
mod world;

/// Everything that outlives a process.
pub(crate) type Scene = scene::Scene<swarm::Swarm>;

use super::{Planted, dice, fate, life, log, mix, plan, scene, stage, tally, trouble};
