//! Mails, and the server that takes them.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `server`, `line`: the mail server, what truly arrived, and the way to it.
//! - `clients`, `book`: who sends mails and batches, cancels and retries; what they remember.
//! - `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.
//!
//! All nodes have one clock: on SQLite they are on one machine, and on PostgreSQL the times of permits
//! are the database's.

mod book;
mod check;
mod clients;
mod line;
mod planted;
mod process;
mod scene;
mod server;
mod swarm;

pub(crate) use scene::Scene;

use super::{Options, Planted, dice, fate, life, log, mix, stage, tally, trouble};
