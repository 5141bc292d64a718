//! What callers may ask for: the same for HTTP, the command line, the console and programs.

pub mod order;
pub mod outbox;
pub mod payment;

mod limits;

pub use limits::Limits;
