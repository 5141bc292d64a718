//! The crate against real sockets.

mod broker;
mod client;
mod observed;
mod reuse;
mod server;
mod tls;
