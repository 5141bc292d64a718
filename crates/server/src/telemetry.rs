//! Logs and traces of the whole process.
//!
//! Called once by every command: [`init`] at the start, [`Guard::shutdown`] at the end. Logs go to
//! standard error, one JSON object per line (or text for people). Traces go to an OpenTelemetry
//! collector when `OTEL_EXPORTER_OTLP_ENDPOINT` is set and cost nothing when it is not.
//! It guarantees that calling [`init`] twice in one process is harmless, and that spans which ended
//! before the shutdown are exported or given up within a deadline. It does not decide what is logged:
//! each module logs where it handles something, with fields and without payloads.

mod lines;
pub mod metrics;
mod tee;
pub mod trace;

use std::io::IsTerminal as _;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::lines::{Fields, Lines};
use crate::config::{LogConfig, LogFormat, TraceConfig};

pub use metrics::Metrics;
pub use trace::{Traceparent, current_traceparent, note, span_parent, traceparent_of};

/// How long the last spans may take to reach the collector.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);
/// Libraries that log what we never do, whatever `TASHIKA_LOG` says: the database's driver the
/// parameters of statements (keys, payloads), the browser check the paths of requests (keys).
const KEPT_QUIET: [(&str, LevelFilter); 2] =
    [("tokio_postgres", LevelFilter::WARN), ("tower_http", LevelFilter::WARN)];
/// A panic's message is for finding the place, not for carrying data out of it.
const PANIC_MESSAGE_MAX: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("TASHIKA_LOG: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT: the exporter cannot be built: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Ends telemetry in order. Dropping it without [`Guard::shutdown`] loses the last spans.
#[must_use]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Exports what is left, within a deadline.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else {
            return;
        };
        // The library blocks its caller until the exporter's task has answered: not on a worker thread.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown());
        match tokio::time::timeout(FLUSH_DEADLINE, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last traces were not exported"),
            Ok(Err(error)) => tracing::warn!(%error, "the last traces were not exported"),
            Err(_) => tracing::warn!("the last traces were not exported in time"),
        }
    }
}

/// Starts logs, and traces if they are configured. Needs a Tokio runtime when traces are on.
///
/// A second call in one process changes nothing and returns a guard that has nothing to do.
pub fn init(logs: &LogConfig, traces: Option<&TraceConfig>) -> Result<Guard, TelemetryError> {
    let provider = traces.map(tracer_provider).transpose()?;
    let subscriber = tracing_subscriber::registry()
        .with(log_layer(logs, std::io::stderr, provider.is_none())?)
        .with(provider.as_ref().map(trace_layer));
    if subscriber.try_init().is_err() {
        return Ok(Guard { provider: None });
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(Guard { provider })
}

/// A boxed layer, so that all kinds have one type.
type BoxedLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// The log. `alone`: nobody else listens, so that what it does not want need not be made at all. The filter of one listener
/// among several looks into a table of its own whenever a span is entered or left, dozens of times for every request.
pub(crate) fn log_layer<S, W>(
    config: &LogConfig,
    writer: W,
    alone: bool,
) -> Result<BoxedLayer<S>, tracing_subscriber::filter::ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer: BoxedLayer<S> = match config.format {
        LogFormat::Json => layer.fmt_fields(Fields).event_format(Lines).boxed(),
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    // Directives about spans and their fields need a filter that remembers spans. Almost nobody asks for them.
    if !config.filter.contains(['[', '{']) {
        let filter = config.filter.parse::<Targets>()?.with_targets(KEPT_QUIET);
        return Ok(if alone {
            filter.and_then(layer).boxed()
        } else {
            layer.with_filter(filter).boxed()
        });
    }
    let mut filter: EnvFilter = config.filter.parse()?;
    for (target, level) in KEPT_QUIET {
        filter = filter.add_directive(format!("{target}={level}").parse()?);
    }
    Ok(if alone { filter.and_then(layer).boxed() } else { layer.with_filter(filter).boxed() })
}

fn trace_layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // Our own spans only: those of the exporter's HTTP client would be exported in turn, for ever.
    let ours = Targets::new().with_target("tashika", LevelFilter::INFO);
    tracing_opentelemetry::layer().with_tracer(provider.tracer("tashika")).with_filter(ours)
}

fn tracer_provider(config: &TraceConfig) -> Result<SdkTracerProvider, TelemetryError> {
    // The standard says that the signal's path is appended to the base address.
    let base = config.endpoint.as_str().trim_end_matches('/');
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_headers([("user-agent".into(), "tashika".into())].into())
        .with_endpoint(format!("{base}/v1/traces"))
        .build()?;
    let resource = Resource::builder().with_service_name(config.service_name.clone()).build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter, Tokio).build())
        .with_resource(resource)
        .build())
}

/// Panics become log lines, so that they are found where everything else is.
fn log_panic(info: &std::panic::PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("(no message)");
    let message: String = message.chars().take(PANIC_MESSAGE_MAX).collect();
    let location = info.location().map(ToString::to_string);
    tracing::error!(panic = message, location, "panicked");
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logs(format: LogFormat) -> LogConfig {
        LogConfig { filter: "info".into(), format }
    }

    /// Whether directives are about modules or about spans: they hold, and what must not be logged is not.
    #[test]
    fn filters_with_and_without_spans_keep_the_same_libraries_quiet() {
        let (modules, spans) = (("debug", false), ("debug,[work]=trace", true));
        let cases = [(modules, true), (modules, false), (spans, true), (spans, false)];
        for ((filter, inside), alone) in cases {
            let lines = Lines::default();
            let writer = lines.clone();
            let config = LogConfig { filter: filter.into(), format: LogFormat::Json };
            let layer = log_layer(&config, move || writer.clone(), alone).unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::debug!("ours");
                tracing::trace!("too much");
                tracing::info_span!("work").in_scope(|| tracing::trace!("inside"));
                tracing::info!(target: "tokio_postgres::query", "parameters");
                tracing::warn!(target: "tower_http", "worth knowing");
            });
            let bytes = lines.0.lock().unwrap().clone();
            let text = String::from_utf8(bytes).unwrap();
            let told = ["ours", "too much", "inside", "parameters", "worth knowing"]
                .map(|message| text.contains(message));
            assert_eq!(told, [true, false, inside, false, true], "{filter}, {alone}: {text}");
        }
        let config = LogConfig { filter: "info,[".into(), format: LogFormat::Json };
        assert!(
            log_layer::<tracing_subscriber::Registry, _>(&config, std::io::stderr, true).is_err()
        );
    }

    #[test]
    fn json_lines_have_flat_fields_and_rfc_3339_times() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = log_layer(&logs(LogFormat::Json), move || writer.clone(), true).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _entered = tracing::info_span!("http.request", request_id = "r-1").entered();
            tracing::info!(outbox_id = "e-1", latency_ms = 7, "settled");
            tracing::debug!("not shown");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "settled");
        assert_eq!(line["latency_ms"], 7);
        assert_eq!(line["span"]["request_id"], "r-1");
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }

    #[test]
    fn whatever_is_logged_is_one_line_of_json() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = log_layer(&logs(LogFormat::Json), move || writer.clone(), true).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let span = tracing::info_span!("work", who = "a\"b", outcome = tracing::field::Empty);
            span.record("outcome", "確か");
            span.in_scope(|| {
                let ugly = "\"quoted\"\\ \n\u{1}\u{7f}\t 確か";
                tracing::info!(
                    r#type = ugly,
                    nothing = None::<u64>,
                    f = f64::NAN,
                    half = 0.5,
                    yes = true,
                    ?ugly,
                    "{ugly}"
                );
                tracing::warn!(parent: None, negative = -7, "alone");
            });
            tracing::info!("bare");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let [ugly, alone, bare] = &lines[..] else { panic!("{text}") };
        let said = "\"quoted\"\\ \n\u{1}\u{7f}\t 確か";
        assert_eq!((&ugly["type"], &ugly["message"]), (&said.into(), &said.into()));
        assert_eq!(
            (&ugly["f"], &ugly["half"], &ugly["yes"]),
            (&serde_json::Value::Null, &0.5.into(), &true.into())
        );
        assert_eq!(
            ugly["span"],
            serde_json::json!({"name": "work", "who": "a\"b", "outcome": "確か"})
        );
        assert_eq!(
            (&alone["level"], &alone["negative"], alone.get("span")),
            (&"WARN".into(), &(-7).into(), None)
        );
        assert_eq!((&bare["message"], bare.get("span")), (&"bare".into(), None));
    }

    #[tokio::test]
    async fn initialising_twice_is_harmless() {
        let first = init(&logs(LogFormat::Text), None).unwrap();
        let second = init(&logs(LogFormat::Json), None).unwrap();
        first.shutdown().await;
        second.shutdown().await;
    }

    /// Takes one export and returns what it was sent.
    async fn collect_one(listener: tokio::net::TcpListener) -> (String, Vec<u8>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        let head_end = loop {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0);
            if let Some(at) = received.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&received[..head_end]).to_ascii_lowercase();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.trim().parse().ok())
            .unwrap();
        while received.len() < head_end + length {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        (head, received.split_off(head_end))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn spans_reach_the_collector_and_join_the_stored_trace() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = tokio::spawn(collect_one(listener));
        let provider = tracer_provider(&TraceConfig {
            endpoint: endpoint.parse().unwrap(),
            service_name: "tashika-under-test".into(),
        })
        .unwrap();

        let stored = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let subscriber = tracing_subscriber::registry().with(trace_layer(&provider));
        tracing::subscriber::with_default(subscriber, || {
            let process = tracing::info_span!("outbox.process");
            span_parent(&process, stored);
            let here = process.in_scope(current_traceparent).unwrap();
            assert!(here.starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
            assert!(!here.contains("b7ad6b7169203331"), "a span of its own");
            process.in_scope(|| tracing::info_span!("broker.send").in_scope(|| ()));
        });
        Guard { provider: Some(provider) }.shutdown().await;

        let (head, body) = collector.await.unwrap();
        assert!(head.starts_with("post /v1/traces "), "{head}");
        let holds = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
        assert!(holds(b"outbox.process") && holds(b"broker.send"));
        assert!(holds(b"tashika-under-test"));
        let trace_id = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
        assert!(holds(&trace_id));
    }
}
