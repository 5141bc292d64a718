//! What Tashika decides.
//!
//! Pure data and pure functions: state machines, decisions, and [`Changes`], the description of one
//! transaction. Called by `engine` (which reads, decides here, and commits) and read by `store` and
//! `providers` for their types. It guarantees that the same input gives the same answer: there is no
//! clock, no randomness, no I/O and no async in this crate. It does not know how anything is stored
//! or sent.

pub mod alert;
pub mod audit;
pub mod billing;
pub mod case;
pub mod changes;
pub mod check;
pub mod decimal;
pub mod digest;
pub mod effect;
pub mod event;
pub mod ids;
pub mod lane;
pub mod ledger;
pub mod mail;
pub mod mask;
pub mod message;
pub mod mutant;
pub mod order;
pub mod outcome;
pub mod payment;
pub mod race;
pub mod render;
pub mod reservation;
pub mod text;
pub mod time;
pub mod webhook;

pub use changes::{Changes, Write};
pub use effect::{Effect, EffectId, NewEffect, Status};
pub use lane::{Lane, LanePolicy};
pub use outcome::Outcome;
pub use time::Timestamp;
