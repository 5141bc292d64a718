//! Metrics, kept in process and rendered for Prometheus.
//!
//! [`Metrics::install`] once at the start; every crate then counts through the `metrics` macros under
//! the names of the table below; `/metrics` answers [`Metrics::render`]. It guarantees that each
//! name has a description and explicit buckets, and that a second installation in one process returns
//! the first. It does not serve HTTP, and gauges show what their owner last set.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tashika_engine::Meter;
use tokio_util::sync::CancellationToken;

use super::tee::Tee;

/// Milliseconds: from a commit to memory up to the longest wait for a stranger.
const MS_BUCKETS: [f64; 16] = [
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0,
    10_000.0, 30_000.0,
];
/// Seconds: the age of waiting work, up to a day.
const SECONDS_BUCKETS: [f64; 16] = [
    0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0,
    86_400.0,
];
/// Histograms gather samples until they are drained; without a scraper this drains them.
const UPKEEP: Duration = Duration::from_secs(5);

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Counter(Labels),
    Gauge,
    Histogram(Unit),
}

/// A counter's labels. Where they are known in advance the counter starts at 0, so that its first
/// increase is seen as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    None,
    Known(&'static str, &'static [&'static str]),
    Open,
}

/// One row of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub sort: Sort,
    pub about: &'static str,
}

const fn metric(name: &'static str, sort: Sort, about: &'static str) -> Metric {
    Metric { name, sort, about }
}

const OUTBOX_OUTCOMES: &[&str] = &["succeeded", "failed", "aborted"];
const ORDER_OUTCOMES: &[&str] =
    &["accepted", "succeeded", "failed", "conflict", "validation", "rate_limited"];

const MAIL_OUTCOMES: &[&str] = &[
    "sent",
    "retryable",
    "throttled",
    "quota",
    "recipient",
    "configuration",
    "template",
    "possibly_sent",
    "worker_lost",
];
const HOLD_OUTCOMES: &[&str] = &["held", "replayed", "taken", "refused"];

/// Every metric of the contract. Dots of the specification are underscores here.
pub const CONTRACT: &[Metric] = &[
    metric(
        "outbox_claimed_total",
        Sort::Counter(Labels::None),
        "Effects that workers took a lease on.",
    ),
    metric(
        "outbox_processed_total",
        Sort::Counter(Labels::Known("outcome", OUTBOX_OUTCOMES)),
        "Attempts that ended, by what became of the effect.",
    ),
    metric(
        "outbox_retry_total",
        Sort::Counter(Labels::Open),
        "Attempts that will be repeated, by the number of the failed attempt.",
    ),
    metric(
        "outbox_lock_lease_expired_total",
        Sort::Counter(Labels::None),
        "Leases that ran out because their worker gave no sign of life.",
    ),
    metric(
        "outbox_latency_ms",
        Sort::Histogram(Unit::Milliseconds),
        "Time in a phase of an effect's life: claim, send or commit.",
    ),
    metric("outbox_pending_count", Sort::Gauge, "Effects that wait to be sent."),
    metric(
        "outbox_age_seconds",
        Sort::Histogram(Unit::Seconds),
        "How long an effect had been due when a worker claimed it.",
    ),
    metric(
        "order_requests_total",
        Sort::Counter(Labels::Known("outcome", ORDER_OUTCOMES)),
        "Orders, by how the request or the order ended.",
    ),
    metric(
        "idempotency_conflicts_total",
        Sort::Counter(Labels::None),
        "Requests that used a known key with another body.",
    ),
    metric(
        "broker_requests_total",
        Sort::Counter(Labels::Open),
        "Requests to the broker, by adapter and outcome.",
    ),
    metric(
        "do_order_latency_ms",
        Sort::Histogram(Unit::Milliseconds),
        "Time in a phase of an order: validation, accept, broker_rtt or total.",
    ),
    metric(
        "mail_requests_total",
        Sort::Counter(Labels::Known("outcome", &["accepted", "replayed"])),
        "Single mails that callers asked for, by whether they were new.",
    ),
    metric(
        "mail_batches_total",
        Sort::Counter(Labels::None),
        "Batches of mails that were received to the end.",
    ),
    metric(
        "mail_attempts_total",
        Sort::Counter(Labels::Known("outcome", MAIL_OUTCOMES)),
        "Attempts to send a mail, by what came of them.",
    ),
    metric("mail_sent_total", Sort::Counter(Labels::None), "Mails that the server took."),
    metric(
        "mail_retried_total",
        Sort::Counter(Labels::None),
        "Attempts after which a mail was to be tried again.",
    ),
    metric(
        "mail_failed_total",
        Sort::Counter(Labels::Known("class", &["retryable", "recipient", "template"])),
        "Mails that were given up and cannot have arrived, by the class of the last failure.",
    ),
    metric(
        "mail_possibly_sent_total",
        Sort::Counter(Labels::None),
        "Mails that were given up and may have arrived.",
    ),
    metric(
        "mail_possibly_duplicate_total",
        Sort::Counter(Labels::None),
        "Mails of which an attempt may have arrived without our knowing.",
    ),
    metric(
        "mail_probes_total",
        Sort::Counter(Labels::Known("outcome", &["accepted", "refused"])),
        "Probes of a mail server that had refused our settings.",
    ),
    metric(
        "mail_send_ms",
        Sort::Histogram(Unit::Milliseconds),
        "Time an attempt to send a mail took, from connecting to the last answer.",
    ),
    metric("mail_queued_count", Sort::Gauge, "Mails that have not ended."),
    metric("mail_queue_age_seconds", Sort::Gauge, "Age of the oldest mail that has not ended."),
    metric("mail_quota_left", Sort::Gauge, "Mails that may still be sent in the running 24 hours."),
    metric(
        "mail_rate_in_use",
        Sort::Gauge,
        "Mails under way or less than a second ago, of `MAIL_RATE_PER_SEC`, by all processes.",
    ),
    metric("idempo_ledger_rows", Sort::Gauge, "Rows in the idempotency ledger."),
    metric(
        "reservation_hold_total",
        Sort::Counter(Labels::Known("outcome", HOLD_OUTCOMES)),
        "Requests for a slot, by what came of them: held, replayed, taken or refused.",
    ),
    metric(
        "reservations_total",
        Sort::Counter(Labels::Open),
        "Reservations that entered a status.",
    ),
    metric(
        "race_conditions_total",
        Sort::Counter(Labels::Open),
        "Races that were noticed, by scenario and by how they were resolved.",
    ),
    metric(
        "payment_create_total",
        Sort::Counter(Labels::Open),
        "New payments, by the status that their caller was told and by currency.",
    ),
    metric(
        "payment_create_duration_seconds",
        Sort::Histogram(Unit::Seconds),
        "Time to answer a new payment, the gateway included, by the status that was told.",
    ),
    metric(
        "payment_idempotency_hit_total",
        Sort::Counter(Labels::None),
        "Requests about payments that were answered from an earlier one with the same key.",
    ),
    metric(
        "payment_gateway_request_total",
        Sort::Counter(Labels::Open),
        "Requests to the payment gateway, by gateway, operation and what came back.",
    ),
    metric(
        "payment_gateway_duration_seconds",
        Sort::Histogram(Unit::Seconds),
        "Time that the payment gateway took, by gateway and operation.",
    ),
    metric(
        "payment_gateway_timeout_total",
        Sort::Counter(Labels::None),
        "Requests that the payment gateway did not answer in time. More than 5 a minute: the gateway may be down.",
    ),
    metric(
        "payment_amount_total",
        Sort::Counter(Labels::Open),
        "Amounts of payments that entered a status, in the currency's smallest unit.",
    ),
    metric(
        "payment_active_count",
        Sort::Gauge,
        "Payments that are PENDING or AUTHORIZED now, by status.",
    ),
    metric(
        "payment_pending_verification_count",
        Sort::Gauge,
        "Payments whose outcome is not known and asked about. More than 10: look into it.",
    ),
    metric(
        "payment_verification_failed_total",
        Sort::Counter(Labels::None),
        "Payments whose outcome could not be found out: each waits for a person.",
    ),
    metric("queue_published_total", Sort::Counter(Labels::None), "Messages that were taken."),
    metric(
        "queue_publish_failures_total",
        Sort::Counter(Labels::None),
        "Messages that could not be taken because the database was away.",
    ),
    metric(
        "queue_relayed_total",
        Sort::Counter(Labels::Known("outcome", &["taken", "failed"])),
        "Messages handed to QStash, by whether it took them.",
    ),
    metric(
        "queue_deliveries_total",
        Sort::Counter(Labels::Known("outcome", &["delivered", "failed", "refused", "lapsed"])),
        "Attempts to deliver messages, by how they ended.",
    ),
    metric(
        "queue_retries_total",
        Sort::Counter(Labels::None),
        "Attempts to deliver messages after the first.",
    ),
    metric(
        "queue_end_to_end_ms",
        Sort::Histogram(Unit::Milliseconds),
        "Time from when a message was due until it was delivered.",
    ),
    metric("queue_dlq_count", Sort::Gauge, "Dead letters that wait for a person."),
    metric(
        "queue_dlq_oldest_seconds",
        Sort::Gauge,
        "How long the oldest dead letter has been waiting.",
    ),
    metric("cases_open", Sort::Gauge, "Cases that wait for a person, by kind."),
    metric("alert_value", Sort::Gauge, "What the rule of an alert was last measured at, by rule."),
    metric("alert_firing", Sort::Gauge, "Alerts that are firing, by rule."),
    metric(
        "renders_total",
        Sort::Counter(Labels::Known("status", &["done", "failed"])),
        "Renders that ended, by how.",
    ),
    metric(
        "render_requests_total",
        Sort::Counter(Labels::Open),
        "Requests to the provider of renders and copies of outputs, by provider, operation and what came back.",
    ),
    metric(
        "render_request_duration_seconds",
        Sort::Histogram(Unit::Seconds),
        "Time that the provider of renders took, by provider and operation.",
    ),
    metric(
        "http_requests_total",
        Sort::Counter(Labels::Open),
        "HTTP requests, by method, matched path and status.",
    ),
    metric(
        "http_request_latency_ms",
        Sort::Histogram(Unit::Milliseconds),
        "Time from a request's head to its answer's, by method and matched path.",
    ),
    metric("http_connections", Sort::Gauge, "Connections that are open now."),
    metric(
        "http_connections_refused_total",
        Sort::Counter(Labels::None),
        "Connections turned away because TASHIKA_MAX_CONNECTIONS was reached.",
    ),
    metric(
        "auth_failures_total",
        Sort::Counter(Labels::None),
        "Requests to protected paths without a valid token.",
    ),
];

/// The library has one recorder per process, so its handle is one too.
static INSTALLED: OnceLock<(PrometheusHandle, Arc<Meter>)> = OnceLock::new();

/// Access to everything that was counted.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    meter: Arc<Meter>,
}

impl Metrics {
    /// Installs the recorder, or returns the one that is installed.
    #[must_use]
    pub fn install() -> Self {
        let (handle, meter) = INSTALLED.get_or_init(|| {
            let recorder = builder().build_recorder();
            let (handle, meter) = (recorder.handle(), Arc::new(Meter::default()));
            let tee = Tee::new(recorder, Arc::clone(&meter));
            if metrics::set_global_recorder(tee).is_err() {
                tracing::warn!("another metrics recorder is installed; /metrics stays empty");
            }
            describe();
            (handle, meter)
        });
        Self { handle: handle.clone(), meter: Arc::clone(meter) }
    }

    /// What was counted, for rules about rates.
    #[must_use]
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// The body of `/metrics`, in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Content type of [`Self::render`].
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Keeps the memory of histograms bounded when nobody scrapes. Runs until `stop`.
    pub async fn upkeep(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(UPKEEP);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            self.handle.run_upkeep();
        }
    }
}

fn builder() -> PrometheusBuilder {
    let suffix = |suffix: &str| Matcher::Suffix(suffix.to_owned());
    // Fails only for an empty list of buckets.
    PrometheusBuilder::new()
        .set_buckets_for_metric(suffix("_ms"), &MS_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(suffix("_seconds"), &SECONDS_BUCKETS))
        .unwrap_or_default()
}

fn describe() {
    for metric in CONTRACT {
        let (name, about) = (metric.name, metric.about);
        match metric.sort {
            Sort::Counter(labels) => {
                metrics::describe_counter!(name, about);
                match labels {
                    Labels::None => metrics::counter!(name).increment(0),
                    Labels::Known(label, values) => {
                        for value in values {
                            metrics::counter!(name, label => *value).increment(0);
                        }
                    }
                    Labels::Open => {}
                }
            }
            Sort::Gauge => metrics::describe_gauge!(name, about),
            Sort::Histogram(unit) => metrics::describe_histogram!(name, unit, about),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_rendered_with_its_buckets_and_installing_twice_is_harmless() {
        let first = Metrics::install();
        let second = Metrics::install();
        metrics::histogram!("outbox_latency_ms", "phase" => "claim").record(3.0);
        metrics::histogram!("outbox_age_seconds").record(3.0);
        metrics::counter!("outbox_retry_total", "attempt" => "1").increment(1);
        metrics::gauge!("outbox_pending_count").set(2.0);
        let text = second.render();
        for part in [
            "outbox_latency_ms_bucket{phase=\"claim\",le=\"2.5\"} 0",
            "outbox_latency_ms_bucket{phase=\"claim\",le=\"5\"} 1",
            "outbox_age_seconds_bucket{le=\"86400\"} 1",
            "outbox_retry_total{attempt=\"1\"} 1",
            "outbox_claimed_total 0",
            "order_requests_total{outcome=\"rate_limited\"} 0",
            "outbox_pending_count 2",
            "# HELP outbox_pending_count Effects that wait to be sent.",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(first.render().contains("outbox_pending_count 2"));
    }

    #[test]
    fn rules_see_what_is_counted() {
        use tashika_domain::alert::rules::Counter;
        let meter = Metrics::install().meter();
        let failed =
            Counter { metric: "queue_deliveries_total", label: Some(("outcome", "failed")) };
        let before = meter.total(&failed);
        metrics::counter!("queue_deliveries_total", "outcome" => "failed").increment(2);
        metrics::counter!("queue_deliveries_total", "outcome" => "delivered").increment(5);
        assert_eq!(meter.total(&failed) - before, 2);
        let latency = Counter { metric: "queue_end_to_end_ms", label: None };
        metrics::histogram!("queue_end_to_end_ms").record(12_000.0);
        assert_eq!(meter.buckets(&latency).iter().sum::<u64>(), 1);
    }

    /// A rule about a metric that nobody has heard of would never fire.
    #[test]
    fn every_rule_is_about_metrics_of_the_contract() {
        for rule in tashika_domain::alert::rules::defaults() {
            for counter in rule.measure.counters() {
                let known = CONTRACT.iter().any(|metric| metric.name == counter.metric);
                assert!(known, "{}: {}", rule.name, counter.metric);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn upkeep_ends_when_told_to() {
        let stop = CancellationToken::new();
        let task = tokio::spawn(Metrics::install().upkeep(stop.clone()));
        tokio::time::advance(UPKEEP * 3).await;
        stop.cancel();
        task.await.unwrap();
    }
}
