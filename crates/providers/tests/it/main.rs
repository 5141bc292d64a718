//! The crate against real sockets.
//!
//! `cfg(test)` always holds here; it tells the linter that the helpers are test code too.

#[cfg(test)]
mod broker;
#[cfg(test)]
mod checkout;
#[cfg(test)]
mod client;
#[cfg(test)]
mod courier;
#[cfg(test)]
mod courier_guard;
#[cfg(test)]
mod courier_wire;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod gateway_http;
#[cfg(test)]
mod gateway_sandbox;
#[cfg(test)]
mod gateway_stripe;
#[cfg(test)]
mod gateway_stripe_states;
#[cfg(test)]
mod localstripe;
#[cfg(test)]
mod mail_file;
#[cfg(test)]
mod mail_sandbox;
#[cfg(test)]
mod observed;
#[cfg(test)]
mod qstash;
#[cfg(test)]
mod renders;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod server;
#[cfg(test)]
mod smtp;
#[cfg(test)]
mod smtp_faults;
#[cfg(test)]
mod smtp_reuse;
#[cfg(test)]
mod smtp_wire;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod webhook_headers;
#[cfg(test)]
mod webhooks;
