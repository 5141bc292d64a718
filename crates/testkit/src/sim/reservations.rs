//! Reservations: few slots, many customers, the gateway's pages, and a studio that makes the videos.
//!
//! The gateway, its books, its network and its webhooks are those of `payments`; here are
//!
//! - `swarm`: what the run is like (every probability is itself drawn).
//! - `clients`, `book`: customers who hold, pay, turn back, cancel and click twice, and what they remember.
//! - `studio`: whoever makes the videos: fails, hangs, loses submissions, calls back late, twice or never.
//! - `person`: who looks after renders that failed, if anybody does, in time or not.
//! - `invariants`, `story`, `check`: what must be true.
//! - `planted`: deliberate mistakes that the invariants must find.
//!
//! A callback goes through the decision of the product (`domain::render::conclude::hear`), but not through
//! the table of webhooks: whoever confirms it with Shotstack speaks HTTP. Letters are written and stay
//! where they are; that they are sent is another lane's affair.

mod book;
mod check;
mod clients;
mod invariants;
mod person;
mod planted;
mod process;
mod scene;
mod story;
mod studio;
mod swarm;

pub(crate) use scene::Scene;

use super::{
    Options, Planted, dice, fate, life, log, mix, payments, scene as scenery, stage, tally, trouble,
};
