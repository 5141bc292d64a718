//! The engine on real databases, against a broker that does what a script says.
//!
//! A case is an `async fn case(db: TestDb)`, listed in `on_both!`: it becomes `case::sqlite` and
//! `case::postgres`. The oracle is always the broker's own ledger of what it executed.
//!
//! `cfg(test)` always holds here; it tells the linter that the helpers are test code too.

#[cfg(test)]
mod alert_rig;
#[cfg(test)]
mod mail_rig;
#[cfg(test)]
mod payments_support;
#[cfg(test)]
mod queue_rig;
#[cfg(test)]
mod reservations_support;
#[cfg(test)]
mod support;
#[cfg(test)]
mod webhook_rig;

#[cfg(test)]
mod alert_delivery;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod audit_lines;
#[cfg(test)]
mod backoff;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod confirmations;
#[cfg(test)]
mod doubt;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod http_broker;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod mail;
#[cfg(test)]
mod mail_batches;
#[cfg(test)]
mod mail_races;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod payments;
#[cfg(test)]
mod payments_cases;
#[cfg(test)]
mod payments_keys;
#[cfg(test)]
mod payments_races;
#[cfg(test)]
mod payments_table;
#[cfg(test)]
mod payments_upkeep;
#[cfg(test)]
mod poison;
#[cfg(test)]
mod postgres_enqueue;
#[cfg(test)]
mod postgres_outage;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod queue_delivery;
#[cfg(test)]
mod queue_flow;
#[cfg(test)]
mod queue_gates;
#[cfg(test)]
mod queue_hand;
#[cfg(test)]
mod queue_once;
#[cfg(test)]
mod queue_order;
#[cfg(test)]
mod queue_schedules;
#[cfg(test)]
mod queue_storms;
#[cfg(test)]
mod renders;
#[cfg(test)]
mod reservations;
#[cfg(test)]
mod reservations_forced;
#[cfg(test)]
mod reservations_races;
#[cfg(test)]
mod reservations_renders;
#[cfg(test)]
mod resolutions;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod upkeep;
#[cfg(test)]
mod wakeups;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod webhooks_payments;
