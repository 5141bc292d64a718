//! What callers may ask for: the same for HTTP, the command line, the console and programs.

pub mod alert;
pub mod billing;
pub mod case;
pub mod dead_letter;
pub mod group;
pub mod keys;
pub mod mail;
pub mod mail_batch;
pub mod message;
mod message_hand;
pub mod order;
pub mod outbox;
pub mod payment;
pub mod queue;
pub mod render;
pub mod reservation;
pub mod schedule;
pub mod webhook;

mod limits;

pub use limits::Limits;

/// Who asks, and under which key.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    /// The `Idempotency-Key` header.
    pub key: Option<&'a str>,
    /// On whose behalf (`X-User-Id`); must be the user whose it is.
    pub user: Option<&'a str>,
    pub traceparent: Option<String>,
}

/// How often a change is decided again because somebody else was faster; this often is a defect.
pub(crate) const DECISIONS: usize = 100;
