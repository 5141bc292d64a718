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
mod scene;
mod swarm;
mod world;

pub(crate) use scene::Scene;

use super::{Options, Planted, dice, fate, life, log, mix, plan, stage, tally, trouble};
