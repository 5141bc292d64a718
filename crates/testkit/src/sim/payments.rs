//! Payments, and the gateway that moves the money.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `account`, `world`, `line`: the gateway, its true books, and the network before it.
//! - `post`, `postman`: its webhooks: late, twice, out of order, or never; and how they arrive.
//! - `clients`, `book`, `person`: who asks, what they remember, who decides.
//! - `invariants`, `webhooks`, `check`: what must be true.
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
mod postman;
mod process;
mod scene;
mod swarm;
mod webhooks;
mod world;

pub(crate) use scene::Scene;

use super::{Planted, dice, fate, life, log, plan, stage, tally, trouble};
