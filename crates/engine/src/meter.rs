//! What this process has counted, for rules about rates.
//!
//! A mirror of the few metrics that rules ask for: the process's recorder writes into it, and the watchman
//! reads totals, remembers them with the time, and takes differences. It knows no time and no window.
//! What other processes count is theirs: their watchmen look at it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::Key;
use tashika_domain::alert::rules::{Counter, Measure, Rule, defaults};

/// Upper bounds of the buckets, in the unit of the histogram. Values between two are taken as spread
/// evenly.
pub const BOUNDS: [f64; 18] = [
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    7_500.0,
    10_000.0,
    15_000.0,
    30_000.0,
    60_000.0,
    120_000.0,
    300_000.0,
    3_600_000.0,
];

type Series<T> = BTreeMap<&'static str, RwLock<HashMap<Key, Arc<T>>>>;

/// The counters and histograms that rules are about.
#[derive(Debug)]
pub struct Meter {
    counters: Series<AtomicU64>,
    histograms: Series<Buckets>,
}

/// A histogram: how many values were up to each bound, and above the last one.
#[derive(Debug, Default)]
pub struct Buckets([AtomicU64; BOUNDS.len() + 1]);

impl Buckets {
    pub fn record(&self, value: f64) {
        let place = BOUNDS.iter().position(|bound| value <= *bound).unwrap_or(BOUNDS.len());
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for Meter {
    /// Mirrors what the rules ask for.
    fn default() -> Self {
        let rules = defaults();
        let names = |wanted: fn(&Rule) -> bool| {
            let rules = rules.iter().filter(move |rule| wanted(rule));
            rules.flat_map(|rule| rule.measure.counters()).map(|counter| counter.metric)
        };
        let is_histogram = |rule: &Rule| matches!(rule.measure, Measure::P95(_));
        Self {
            counters: names(|rule| !matches!(rule.measure, Measure::P95(_)))
                .map(|name| (name, RwLock::default()))
                .collect(),
            histograms: names(is_histogram).map(|name| (name, RwLock::default())).collect(),
        }
    }
}

fn series<T: Default>(all: &Series<T>, key: &Key) -> Option<Arc<T>> {
    let known = all.get(key.name())?;
    if let Some(found) = known.read().unwrap_or_else(PoisonError::into_inner).get(key) {
        return Some(Arc::clone(found));
    }
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    Some(Arc::clone(known.entry(key.clone()).or_default()))
}

impl Meter {
    /// Where a counter is mirrored, if any rule asks for it.
    #[must_use]
    pub fn counter(&self, key: &Key) -> Option<Arc<AtomicU64>> {
        series(&self.counters, key)
    }

    /// Where a histogram is mirrored, if any rule asks for it.
    #[must_use]
    pub fn histogram(&self, key: &Key) -> Option<Arc<Buckets>> {
        series(&self.histograms, key)
    }

    /// The sum of a counter's series.
    #[must_use]
    pub fn total(&self, counter: &Counter) -> u64 {
        let Some(known) = self.counters.get(counter.metric) else { return 0 };
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = known.iter().filter(|(key, _)| takes(counter, key));
        wanted.map(|(_, cell)| cell.load(Ordering::Relaxed)).sum()
    }

    /// The sums of a histogram's buckets.
    #[must_use]
    pub fn buckets(&self, counter: &Counter) -> Vec<u64> {
        let mut sums = vec![0; BOUNDS.len() + 1];
        let Some(known) = self.histograms.get(counter.metric) else { return sums };
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        for (_, buckets) in known.iter().filter(|(key, _)| takes(counter, key)) {
            for (sum, bucket) in sums.iter_mut().zip(&buckets.0) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

fn takes(counter: &Counter, key: &Key) -> bool {
    counter.takes(key.labels().map(|label| (label.key(), label.value())))
}

/// The value that 95 of 100 are not above, and how many there were.
#[expect(clippy::cast_precision_loss, reason = "a quantile of buckets is an estimate")]
#[must_use]
pub fn p95(buckets: &[u64]) -> (f64, u64) {
    let all: u64 = buckets.iter().sum();
    let wanted = all as f64 * 0.95;
    let (mut below, mut lower) = (0.0, 0.0);
    for (count, bound) in buckets.iter().zip(BOUNDS) {
        let here = *count as f64;
        if here > 0.0 && below + here >= wanted {
            return (lower + (bound - lower) * ((wanted - below) / here), all);
        }
        below += here;
        lower = bound;
    }
    (if all == 0 { 0.0 } else { lower }, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(metric: &'static str, label: Option<(&'static str, &'static str)>) -> Counter {
        Counter { metric, label }
    }

    #[test]
    fn series_are_told_apart_by_their_labels_and_added_up() {
        let meter = Meter::default();
        for (outcome, times) in [("timeout", 3), ("ok", 4)] {
            let key = Key::from_parts("broker_requests_total", &[("outcome", outcome)]);
            for _ in 0..2 {
                let cell = meter.counter(&key).expect("a rule asks for it");
                cell.fetch_add(times, Ordering::Relaxed);
            }
        }
        let timeouts = counter("broker_requests_total", Some(("outcome", "timeout")));
        assert_eq!(meter.total(&timeouts), 6);
        assert_eq!(meter.total(&counter("broker_requests_total", None)), 14);
        assert!(meter.counter(&Key::from_name("nobody_asks_total")).is_none());
        assert_eq!(meter.total(&counter("nobody_asks_total", None)), 0);
    }

    #[test]
    fn a_quantile_is_found_within_its_bucket() {
        let meter = Meter::default();
        let key = Key::from_name("queue_end_to_end_ms");
        let wanted = counter("queue_end_to_end_ms", None);
        assert_eq!(p95(&meter.buckets(&wanted)), (0.0, 0));
        let buckets = meter.histogram(&key).expect("a rule asks for it");
        for _ in 0..95 {
            buckets.record(1.0);
        }
        for _ in 0..5 {
            buckets.record(20_000.0);
        }
        assert_eq!(p95(&meter.buckets(&wanted)), (5.0, 100));
        buckets.record(1e9);
        let (value, count) = p95(&meter.buckets(&wanted));
        assert!(value > 15_000.0 && value <= 30_000.0 && count == 101, "{value}");
        let alone = Buckets::default();
        alone.record(1e9);
        let counts: Vec<u64> = alone.0.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        assert_eq!(p95(&counts), (3_600_000.0, 1), "the last bound is as far as it can be told");
    }
}
