//! Payments, and the gateway that moves the money.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `account`, `world`, `line`: the gateway, its true books, and the network before it.
//! - `page`: the pages on which customers of `reservations` pay.
//! - `office`: customers who pay every month, and what must be true of their billings.
//! - `post`, `postman`: its webhooks: late, twice, out of order, or never; and how they arrive.
//! - `clients`, `book`, `person`: who asks, what they remember, who decides.
//! - `invariants`, `webhooks`, `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.

pub(crate) mod account;
pub(crate) mod book;
pub(crate) mod check;
pub(crate) mod clients;
pub(crate) mod invariants;
pub(crate) mod line;
pub(crate) mod office;
pub(crate) mod page;
pub(crate) mod person;
pub(crate) mod planted;
pub(crate) mod post;
pub(crate) mod postman;
pub(crate) mod process;
pub(crate) mod swarm;
pub(crate) mod webhooks;
pub(crate) mod world;

/// Everything that outlives a process.
pub(crate) type Scene = scene::Scene<swarm::Swarm>;

use super::{Planted, dice, fate, life, log, mix, plan, scene, stage, tally, trouble};
