//! Payments, and the gateway that moves the money.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `account`, `world`, `line`: the gateway, its true books, and the network before it.
//! - `post`: its webhooks: late, twice, out of order, or never.
//! - `clients`, `book`, `person`: who asks, what they remember, who decides.
//! - `invariants`, `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.

mod account;
mod book;
mod check;
mod clients;
mod invariants;
mod line;
mod person;
mod planted;
mod post;
mod process;
mod scene;
mod swarm;
mod world;

pub(crate) use scene::Scene;

use super::{Planted, dice, fate, life, log, plan, stage, tally, trouble};
