//! What the world sees of Tashika: configuration, telemetry, HTTP and the command line.
//!
//! The `tashika` binary is made of these modules; tests and the engine's callers use them as a
//! library. Nothing here decides anything about effects: handlers read and write through the engine.

pub mod app;
pub mod cli;
pub mod config;
pub mod http;
pub mod monitoring;
pub mod password;
pub mod run;
pub mod signals;
pub mod telemetry;

#[cfg(test)]
mod testing;
