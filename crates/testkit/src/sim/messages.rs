//! Messages, and the consumers that they are delivered to.
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `world`, `line`: the consumers, what they truly did, and the way to them.
//! - `turnstile`: what must be true at the moment at which an attempt begins.
//! - `clients`, `gates`, `book`, `person`: who publishes, who opens and closes queues, what they
//!   remember, who looks after dead letters.
//! - `invariants`, `check`: what must be true of the messages.
//! - `planted`: deliberate mistakes that the invariants must find.

mod book;
mod check;
mod clients;
mod gates;
mod invariants;
mod line;
mod person;
mod planted;
mod process;
mod swarm;
mod turnstile;
mod world;

/// Everything that outlives a process.
pub(crate) type Scene = scene::Scene<swarm::Swarm>;

use super::{Planted, dice, fate, life, log, mix, scene, stage, tally, trouble};
