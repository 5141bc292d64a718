//! A lane's valve: closed for a while when there is no sense in claiming.
//!
//! Kept by one process for itself. It decides when effects are claimed, never whether: it opens by
//! itself, and whoever has closed it too long has lost only time.

use std::sync::atomic::{AtomicI64, Ordering};

use tashika_domain::Timestamp;

#[derive(Debug)]
pub struct Valve(AtomicI64);

impl Default for Valve {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Valve {
    /// Nothing is claimed before this moment.
    pub fn close_until(&self, at: Timestamp) {
        self.0.store(at.as_micros(), Ordering::Relaxed);
    }

    pub fn open(&self) {
        self.0.store(i64::MIN, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_closed(&self, now: Timestamp) -> bool {
        now.as_micros() < self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valve_opens_by_itself() {
        let valve = Valve::default();
        let at = Timestamp::from_micros;
        assert!(!valve.is_closed(at(0)));
        valve.close_until(at(10));
        assert!(valve.is_closed(at(9)));
        assert!(!valve.is_closed(at(10)));
        valve.close_until(at(20));
        valve.open();
        assert!(!valve.is_closed(at(9)));
    }
}
