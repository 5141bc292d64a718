//! The store's conformance suite: one set of cases, both databases, no skips.
//!
//! A case is an `async fn case(db: Db)`. [`on_both!`](support) makes two tests of it, `case::sqlite`
//! on a real file and `case::postgres` on a fresh database. What only one of them has is told by
//! the module's name: everything that needs PostgreSQL has `postgres` in its full name, which is
//! what `scripts/test --sqlite` leaves out.
//!
//! `cfg(test)` always holds here; it tells the linter that the helpers are test code too.

#[cfg(test)]
#[macro_use]
mod support;
#[cfg(test)]
mod message_rig;

#[cfg(test)]
mod claim;
#[cfg(test)]
mod commit;
#[cfg(test)]
mod console;
#[cfg(test)]
mod differential_with_postgres;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod group;
#[cfg(test)]
mod in_hand;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod mail;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod message_lists;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod migrations;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod parity_with_postgres;
#[cfg(test)]
mod payment_records;
#[cfg(test)]
mod payments;
#[cfg(test)]
mod postgres_enqueue;
#[cfg(test)]
mod postgres_floor;
#[cfg(test)]
mod postgres_outage;
#[cfg(test)]
mod postgres_plan;
#[cfg(test)]
mod records;
#[cfg(test)]
mod renders;
#[cfg(test)]
mod reservations;
#[cfg(test)]
mod sqlite_file;
#[cfg(test)]
mod upkeep;
#[cfg(test)]
mod wakeups;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod webhooks;
