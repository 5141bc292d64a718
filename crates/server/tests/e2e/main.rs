//! The real binary, from the outside: started as a process, spoken to over sockets, killed for real.
//!
//! A case is an `async fn case(db: TestDb)`, listed in `on_both!`: it becomes `case::sqlite` and
//! `case::postgres`. The oracles are the answers on the wire, the rows in the database, and the
//! broker's own ledger of what it executed.
//!
//! `cfg(test)` always holds here; it tells the linter that the helpers are test code too.

#[cfg(test)]
mod support;

#[cfg(test)]
mod abuse;
#[cfg(test)]
mod abuse_connections;
#[cfg(test)]
mod abuse_input;
#[cfg(test)]
mod abuse_secrets;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod console;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod digests;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod mail;
#[cfg(test)]
mod mail_batches;
#[cfg(test)]
mod mail_crash;
#[cfg(test)]
mod mail_faults;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod payments_answers;
#[cfg(test)]
mod payments_cases;
#[cfg(test)]
mod payments_crash;
#[cfg(test)]
mod payments_input;
#[cfg(test)]
mod payments_life;
#[cfg(test)]
mod payments_metrics;
#[cfg(test)]
mod payments_sandbox;
#[cfg(test)]
mod payments_traces;
#[cfg(test)]
mod postgres_enqueue;
#[cfg(test)]
mod postgres_outage;
#[cfg(test)]
mod postgres_takeover;
#[cfg(test)]
mod qstash;
#[cfg(test)]
mod qstash_crash;
#[cfg(test)]
mod reservations;
#[cfg(test)]
mod reservations_crash;
#[cfg(test)]
mod reservations_renders;
#[cfg(test)]
mod reservations_storm;
#[cfg(test)]
mod roles;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod sqlite_lock;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod webhook_crash;
#[cfg(test)]
mod webhook_logs;
#[cfg(test)]
mod webhook_senders;
#[cfg(test)]
mod webhooks;
