//! Spans over OTLP, joined to the trace of the request that placed the order.

use std::sync::{Arc, Mutex};

use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Broker, KEY, Request, Setup, order};

const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;

/// A collector that keeps what it is sent, as it came.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    pub async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sink = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(sink.clone().take(stream));
            }
        });
        format!("http://{address}")
    }

    /// Answers every request when it is complete.
    async fn take(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            assert!(head.starts_with("post /v1/traces "), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            if bytes.len() < end + 4 + length {
                continue;
            }
            self.0.lock().unwrap().append(&mut bytes);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    }

    /// Everything that it was sent.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn count(&self, wanted: &[u8]) -> usize {
        let bytes = self.0.lock().unwrap();
        bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_from_the_request_to_the_broker_sqlite() {
    let (db, sink, broker) = (TestDb::sqlite(), Sink::default(), Broker::with_keys().await);
    broker.scripted.script([Act::ExecuteThenLose]);
    let setup = Setup::of(&db).broker(&broker);
    let server = setup.set("OTEL_EXPORTER_OTLP_ENDPOINT", sink.start().await).start().await;
    let traced = Request::order(&order(KEY))
        .header("traceparent", format!("00-{TRACE:032x}-b7ad6b7169203331-01"));
    let answer = server.ask(traced).await;
    let told = answer.header("traceparent").unwrap_or_default();
    assert!(told.starts_with(&format!("00-{TRACE:032x}-")), "{answer:?}");
    assert!(!told.contains("b7ad6b7169203331"), "a span of its own: {told}");
    server.executed(KEY).await;
    // The last spans are exported before the process ends.
    server.stop().await;

    assert_eq!(sink.count(b"outbox.process"), 2, "one for each attempt");
    assert_eq!(sink.count(b"broker.send"), 2);
    assert!(sink.count(b"POST /do/order") >= 1);
    // The request's span, two attempts and two sends; asking about the order is no part of it.
    assert!(sink.count(&TRACE.to_be_bytes()) >= 5, "{}", sink.count(&TRACE.to_be_bytes()));
    for secret in [KEY.as_bytes(), Broker::secret().as_bytes()] {
        assert_eq!(sink.count(secret), 0);
    }
}

#[tokio::test]
async fn a_collector_that_is_away_disturbs_nothing_sqlite() {
    let db = TestDb::sqlite();
    let nobody = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    let endpoint = format!("http://{nobody}");
    let server = Setup::of(&db).set("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).start().await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}
