//! The crate against real sockets.
//!
//! `cfg(test)` always holds here; it tells the linter that the helpers are test code too.

#[cfg(test)]
mod broker;
#[cfg(test)]
mod client;
#[cfg(test)]
mod observed;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tls;
