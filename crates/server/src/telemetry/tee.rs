//! Counts twice: for Prometheus, and for the watchman's rules about this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tashika_engine::{Buckets, Meter};

/// A recorder with a meter beside it.
pub(super) struct Tee<R> {
    recorder: R,
    meter: Arc<Meter>,
    counters: Known<Counter>,
    histograms: Known<Histogram>,
}

/// What was registered before. A counter with labels is registered whenever it counts, a dozen times for every message.
struct Known<T>(RwLock<HashMap<Key, T>>);

impl<T: Clone> Known<T> {
    fn get(&self, key: &Key, register: impl FnOnce() -> T) -> T {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return known.clone();
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(key.clone()).or_insert_with(register).clone()
    }
}

impl<R> Tee<R> {
    pub fn new(recorder: R, meter: Arc<Meter>) -> Self {
        Self {
            recorder,
            meter,
            counters: Known(RwLock::default()),
            histograms: Known(RwLock::default()),
        }
    }
}

struct TwoCounters(Counter, Arc<AtomicU64>);

impl CounterFn for TwoCounters {
    fn increment(&self, value: u64) {
        self.0.increment(value);
        self.1.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
        self.1.fetch_max(value, Ordering::Relaxed);
    }
}

struct TwoHistograms(Histogram, Arc<Buckets>);

impl HistogramFn for TwoHistograms {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.record(value);
    }
}

impl<R: Recorder> Recorder for Tee<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.recorder.describe_counter(name, unit, about);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.recorder.describe_gauge(name, unit, about);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.recorder.describe_histogram(name, unit, about);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.counters.get(key, || {
            let counter = self.recorder.register_counter(key, metadata);
            match self.meter.counter(key) {
                Some(mirror) => Counter::from_arc(Arc::new(TwoCounters(counter, mirror))),
                None => counter,
            }
        })
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.recorder.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.histograms.get(key, || {
            let histogram = self.recorder.register_histogram(key, metadata);
            match self.meter.histogram(key) {
                Some(mirror) => Histogram::from_arc(Arc::new(TwoHistograms(histogram, mirror))),
                None => histogram,
            }
        })
    }
}
