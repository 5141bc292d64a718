//! Each operation is counted once and has its span below the caller's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tashika_providers::broker::Broker as _;
use tashika_providers::gateway::Gateway as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument as _, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::broker::{NOW, broker, send};
use crate::gateway::{charge, refund_order};
use crate::gateway_stripe::stripe;
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

/// Of histograms only how often something was recorded: how long it took differs between runs.
impl HistogramFn for Count {
    fn record(&self, _value: f64) {
        self.increment(1);
    }
}

impl Counts {
    fn under(&self, key: &Key) -> Arc<Count> {
        let labels = key.labels().map(|l| format!("{}={}", l.key(), l.value()));
        let labels: Vec<String> = labels.collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::new(Count(self.clone(), name))
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.under(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.under(key))
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

#[tokio::test]
async fn gateways_are_counted_timed_and_traced() {
    let (counts, spans) = (Counts::default(), Spans::default());
    let _recording = metrics::set_default_local_recorder(&counts);
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _tracing = tracing::subscriber::set_default(subscriber);

    let declined = r#"{"error":{"code":"card_declined"}}"#;
    let answers = [(402, declined), (401, ""), (429, ""), (500, "")];
    let mut acts: Vec<Act> =
        answers.iter().map(|(status, body)| Act::Say(reply(*status, "", body))).collect();
    acts.push(Act::SayAndHold(vec![]));
    let server = Server::playing(acts).await;
    let gateway = stripe(server.url(""));
    let payment = charge(Some("pi_1"), "pm_card_visa");
    for _ in 0..5 {
        gateway.authorize(payment).instrument(info_span!("outbox.process")).await;
    }
    gateway.refund(charge(None, "pm"), refund_order(1)).await;
    gateway.status(charge(None, "pm")).await;

    let counts = counts.0.lock().unwrap().clone();
    let labels = "gateway=stripe,operation=authorize";
    let mut expected: BTreeMap<String, u64> = ["busy", "declined", "refused", "timeout", "unknown"]
        .map(|status| (format!("payment_gateway_request_total{{{labels},status={status}}}"), 1))
        .into();
    expected.insert(format!("payment_gateway_duration_seconds{{{labels}}}"), 5);
    expected.insert("payment_gateway_timeout_total{}".to_owned(), 1);
    assert_eq!(counts, expected, "what was not asked is not counted");

    let spans = spans.0.lock().unwrap().clone();
    for line in [
        "outbox.process > gateway.authorize gateway=\"stripe\"",
        "gateway.authorize outcome=\"declined\"",
        "gateway.authorize outcome=\"timeout\"",
        "- > gateway.refund gateway=\"stripe\"",
        "gateway.status outcome=\"ok\"",
        "gateway.status rtt_ms=0",
    ] {
        assert!(spans.iter().any(|span| span == line), "{line} in {spans:#?}");
    }
}
