//! Mails, and the server that takes them.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `server`, `line`: the mail server, what truly arrived, and the way to it.
//! - `clients`, `book`: who sends mails and batches, cancels and retries; what they remember.
//! - `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.
//!
//! The clocks of nodes differ, as where several machines share a PostgreSQL server; permits to send are
//! timed by the database, as there.

mod book;
mod check;
mod clients;
mod line;
mod planted;
mod process;
mod server;
mod swarm;

/// Everything that outlives a process.
pub(crate) type Scene = scene::Scene<swarm::Swarm>;

use super::{Planted, dice, fate, life, log, mix, scene, stage, tally, trouble};
