//! How Tashika speaks to strangers.
//!
//! Everything that leaves the process for somebody else's API goes through this crate, and every
//! reply comes back as an [`Outcome`](tashika_domain::Outcome): done, refused, busy or lost; only the
//! [`courier`] says no more than what it heard, since the message has its own rules for that. Called
//! by `engine`; knows nothing of the store, so no call to a stranger can happen inside a
//! transaction. It guarantees that one call is one attempt: nothing in here repeats an effect, and
//! a reply that leaves room for doubt is never reported as a failure. It does not decide what a
//! lost answer leads to; that is `domain`.

pub mod broker;
pub mod courier;
pub mod gateway;
pub mod guard;
pub mod http;
pub mod mail;
pub mod qstash;
pub mod render;
pub mod reply;
pub mod shotstack;
pub mod signature;
pub mod sink;
pub mod templates;
pub mod tls;
pub mod upstash;
pub mod webhook;
pub mod workers;
