//! Payments.

pub mod remote;
