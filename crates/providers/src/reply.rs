//! How every operation of every adapter ends.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tashika_domain::Outcome;
use tashika_domain::outcome::Exchange;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How an operation ended, with the evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply<T> {
    pub outcome: Outcome<T>,
    pub exchange: Exchange,
    /// From the first byte to the last, zero where nothing left the process.
    pub rtt: Duration,
}

impl<T> Reply<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reply<U> {
        Reply { outcome: self.outcome.map(f), exchange: self.exchange, rtt: self.rtt }
    }
}
