//! Each operation is counted once and has its span below the caller's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tashika_providers::broker::Broker as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument as _, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::broker::{NOW, broker, send};
use crate::server::{Act, Server, reply};

#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

struct Count(Counts, String);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        let mut counts = self.0.0.lock().unwrap();
        *counts.entry(self.1.clone()).or_default() += value;
    }

    fn absolute(&self, _value: u64) {}
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|l| format!("{}={}", l.key(), l.value()));
        let labels: Vec<String> = labels.collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::new(Count(self.clone(), name)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Writes `parent > span field=value` lines.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a str, &'a Spans);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let line = format!("{} {}={value:?}", self.0, field.name());
        self.1.0.lock().unwrap().push(line);
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map_or("-", |parent| parent.name());
        let name = format!("{parent} > {}", span.name());
        attributes.record(&mut Fields(&name, self));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Fields(span.name(), self));
    }
}

#[tokio::test]
async fn operations_are_counted_and_traced() {
    let (counts, spans) = (Counts::default(), Spans::default());
    let _recording = metrics::set_default_local_recorder(&counts);
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _tracing = tracing::subscriber::set_default(subscriber);

    let answers = [422, 500, 504, 403, 429, 200].map(|status| Act::Say(reply(status, "", "")));
    let server = Server::playing(answers).await;
    let broker = broker(server.url(""), true);
    for _ in 0..5 {
        send(&broker).instrument(info_span!("outbox.process")).await;
    }
    broker.heartbeat(NOW).await;
    let paper = tashika_providers::broker::paper::PaperBroker::new();
    paper.status("key-0001", NOW).await;

    let counts = counts.0.lock().unwrap().clone();
    let expected = [
        ("broker_requests_total{adapter=http,outcome=down}", 2),
        ("broker_requests_total{adapter=http,outcome=internal}", 1),
        ("broker_requests_total{adapter=http,outcome=rejected}", 1),
        ("broker_requests_total{adapter=http,outcome=timeout}", 1),
        ("broker_requests_total{adapter=paper,outcome=ok}", 1),
    ];
    assert_eq!(counts, expected.map(|(name, n)| (name.to_owned(), n)).into());

    let spans = spans.0.lock().unwrap().clone();
    for line in [
        "outbox.process > broker.send adapter=\"http\"",
        "broker.send outcome=\"rejected\"",
        "- > broker.heartbeat adapter=\"http\"",
        "- > broker.status adapter=\"paper\"",
        "broker.status rtt_ms=0",
    ] {
        assert!(spans.iter().any(|span| span == line), "{line} in {spans:#?}");
    }
    assert!(spans.iter().any(|line| line.starts_with("broker.send rtt_ms=")));
}
