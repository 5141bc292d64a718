//! Messages: published over HTTP, durable before they are answered, delivered to a destination.
//!
//! Beside our server, in the same run: what the same load generator gets out of a bare handler that
//! only accepts durably, and what a bare HTTP client that only delivers gets out of the same
//! destination. A queue does both for every message, on the same cores.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tashika_domain::message::{Asked, Begin, Draft, accept};
use tashika_domain::{Changes, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::messages_sink::{self, Sink};
use super::webhooks_bare::Bare;
use super::{Figure, Maker, Options, World, per_second, quantile, server};

/// Published and not yet delivered, at most: the rate that counts is that of deliveries.
const AHEAD: usize = 2000;
/// How often each side has its turn.
const TURNS: u32 = 3;
const TURNS_F: f64 = TURNS as f64;
/// Messages that wait for a destination that does not answer.
const FOR_A_SLOW_ONE: usize = 100_000;
/// For the pick-up.
const SAMPLES: usize = 300;
const PAUSE: Duration = Duration::from_millis(25);

const BODY: &str = r#"{"id":"evt_0000000000000000","type":"invoice.paid","customer":"cus_bench","amount":3000,"currency":"jpy"}"#;

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let span = Duration::from_secs(options.seconds);
    let mut sink = Sink::start().await?;
    let answering = raw_answering(&sink, options.callers, span).await?;
    // In turns: what else the machine does at a moment should meet all sides.
    let numbers = Arc::new(AtomicU64::new(1));
    let (mut accepting, mut delivering, mut both, mut few) = (0.0, 0.0, 0.0, Run::default());
    for _ in 0..TURNS {
        delivering += bare_delivering(sink.address, options.callers, span).await? / TURNS_F;
        accepting += bare_accepting(world, &numbers, options.callers, span).await? / TURNS_F;
        both += bare_both(world, &sink, &numbers, options.callers, span).await? / TURNS_F;
        few.add(tashika(world, &mut sink, options.callers, span).await?);
    }

    let limit = accepting.min(delivering);
    let note = format!(
        "bare: accepting {accepting:.0}, delivering {delivering:.0}, both {both:.0}; the destination answers {answering:.0}"
    );
    let name = world.name();
    let mut figures = vec![Figure::rate(
        name,
        format!("messages delivered, {} connections", options.callers),
        few.rate,
        limit,
        note,
    )];
    let what = "message delivered, the server's processor time";
    let note = "without the database's own, if it is another process";
    figures.push(Figure::plain(name, what, "µs", few.processor.as_secs_f64() * 1e6, note));
    let rate = few.rate;
    let mut pick_ups = vec![("idle".to_owned(), few.pick_up)];

    let delayed = options.backlogs.iter().copied().max().unwrap_or_default();
    if delayed > 0 {
        let next_week = Maker::new().clock.now().plus(Duration::from_secs(7 * 24 * 3600));
        write(world, delayed, "http://127.0.0.1:9/later", Some(next_week)).await?;
        world.tidy().await?;
        let mut many = Run::default();
        for _ in 0..TURNS {
            many.add(tashika(world, &mut sink, options.callers, span).await?);
        }
        let what = format!("… with {delayed} delayed ones waiting");
        figures.push(Figure::rate(name, what, many.rate, rate, "limit: without them".into()));
        pick_ups.push(("idle, delayed ones waiting".to_owned(), many.pick_up));
        let beside = beside_a_slow_one(world, &mut sink).await?;
        pick_ups.push((format!("{FOR_A_SLOW_ONE} waiting for a destination that hangs"), beside));
    }
    for (when, mut samples) in pick_ups {
        for (quantile_name, share) in [("p50", 0.50), ("p99", 0.99)] {
            let what = format!("message picked up {quantile_name}, {when}");
            let value = quantile(&mut samples, share);
            let note = "from the request to the destination";
            figures.push(Figure::plain(name, what, "ms", value, note));
        }
    }
    Ok(figures)
}

/// The mean of several turns.
#[derive(Default)]
struct Run {
    rate: f64,
    /// Of the server, per message.
    processor: Duration,
    pick_up: Vec<Duration>,
}

impl Run {
    fn add(&mut self, turn: Self) {
        self.rate += turn.rate / TURNS_F;
        self.processor += turn.processor / TURNS;
        self.pick_up.extend(turn.pick_up);
    }
}

async fn tashika(
    world: &World,
    sink: &mut Sink,
    connections: usize,
    span: Duration,
) -> anyhow::Result<Run> {
    // One destination here, against many in life.
    let settings = [("QUEUE_DESTINATION_CONCURRENCY", "256")];
    let (mut process, _) = server::start(world, &["serve"], &settings).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], server::PORT));
    let request = publish_request(sink.address);
    let (before, used) = (sink.counts.received.load(Ordering::Relaxed), processor(&process)?);
    let rate = delivered(address, &request, sink, connections, span).await?;
    let messages = sink.counts.received.load(Ordering::Relaxed) - before;
    let spent = processor(&process)?.saturating_sub(used);
    let processor = spent / u32::try_from(messages.max(1))?;
    let pick_up = pick_up(address, &request, sink).await?;
    process.kill().await?;
    Ok(Run { rate, processor, pick_up })
}

/// The processor time that a process has used.
fn processor(process: &Child) -> anyhow::Result<Duration> {
    let id = process.id().context("the server has ended")?;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // Its name, in parentheses, may hold anything; user and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').context("an unknown kind of /proc")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    // A hundredth of a second each, on every Linux that has not been built otherwise.
    Ok(Duration::from_millis(ticks * 10))
}

fn publish_request(to: SocketAddr) -> Vec<u8> {
    format!(
        "POST /v2/publish/http://{to}/hook HTTP/1.1\r\nhost: 127.0.0.1\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
    .into_bytes()
}

/// Deliveries per second while callers publish as fast as deliveries allow.
async fn delivered(
    address: SocketAddr,
    request: &[u8],
    sink: &Sink,
    connections: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let published = Arc::new(AtomicU64::new(sink.counts.received.load(Ordering::Relaxed)));
    sink.counts.room.forget_permits(usize::MAX);
    sink.counts.room.add_permits(AHEAD);
    let mut tasks = JoinSet::<anyhow::Result<()>>::new();
    for _ in 0..connections {
        let mut line = Line::connect(address, request).await?;
        let (published, counts) = (Arc::clone(&published), Arc::clone(&sink.counts));
        tasks.spawn(async move {
            loop {
                counts.room.acquire().await?.forget();
                published.fetch_add(1, Ordering::Relaxed);
                line.exchange().await?;
            }
        });
    }
    let rate = watched(&mut tasks, &sink.counts.received, span).await?;
    tasks.shutdown().await;
    let last = published.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(60);
    // Requests that were cut off may or may not have been taken.
    while sink.counts.received.load(Ordering::Relaxed) + u64::try_from(connections)? < last {
        anyhow::ensure!(Instant::now() < deadline, "messages were not delivered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(rate)
}

/// From one publish after the other to its delivery.
async fn pick_up(
    address: SocketAddr,
    request: &[u8],
    sink: &mut Sink,
) -> anyhow::Result<Vec<Duration>> {
    let mut line = Line::connect(address, request).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    sink.counts.told.store(true, Ordering::Relaxed);
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        line.exchange().await?;
        let arrival = tokio::time::timeout(Duration::from_secs(10), sink.arrivals.recv()).await;
        let arrived = arrival.context("no delivery")?.context("the destination is gone")?;
        samples.push(arrived.saturating_duration_since(began));
    }
    sink.counts.told.store(false, Ordering::Relaxed);
    Ok(samples)
}

/// How fast a counter counts, without the first moments.
async fn watched(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    counter: &AtomicU64,
    span: Duration,
) -> anyhow::Result<f64> {
    let measured = async {
        tokio::time::sleep(span / 5).await;
        let (began, before) = (Instant::now(), counter.load(Ordering::Relaxed));
        tokio::time::sleep(span).await;
        per_second(counter.load(Ordering::Relaxed) - before, began.elapsed())
    };
    tokio::select! {
        Some(ended) = tasks.join_next() => {
            ended??;
            anyhow::bail!("a connection ended early");
        }
        rate = measured => Ok(rate),
    }
}

/// `numbers`: those of the events, none of which comes twice.
async fn bare_accepting(
    world: &World,
    numbers: &Arc<AtomicU64>,
    connections: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let bare = Bare::start(world, None).await?;
    let (request, id_at) = bare_request();
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::<anyhow::Result<()>>::new();
    for _ in 0..connections {
        let mut line = Line::connect(bare.address, &request).await?;
        let (counter, number) = (Arc::clone(&counter), Arc::clone(numbers));
        tasks.spawn(async move {
            loop {
                number_event(&mut line.request[id_at..], number.fetch_add(1, Ordering::Relaxed))?;
                line.exchange().await?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let rate = watched(&mut tasks, &counter, span).await;
    tasks.shutdown().await;
    bare.stop().await?;
    rate
}

/// A request to the bare handler, and where the number of its event is.
fn bare_request() -> (Vec<u8>, usize) {
    let request = format!(
        "POST /webhooks/stripe HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let at = request.find("evt_").map_or(0, |at| at + "evt_".len());
    (request.into_bytes(), at)
}

/// Each request is about another event.
fn number_event(mut place: &mut [u8], number: u64) -> std::io::Result<()> {
    std::io::Write::write_fmt(&mut place, format_args!("{number:016x}"))
}

/// Accepting and delivering in one process with nothing in between: what comes in is durable before
/// it is answered, then it is sent on, and nobody notes what became of it. No queue, but the best that
/// one on these libraries could come near to.
async fn bare_both(
    world: &World,
    sink: &Sink,
    numbers: &Arc<AtomicU64>,
    connections: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let bare = Bare::start(world, Some(sink.address)).await?;
    let (request, id_at) = bare_request();
    sink.counts.room.forget_permits(usize::MAX);
    sink.counts.room.add_permits(AHEAD);
    let mut tasks = JoinSet::<anyhow::Result<()>>::new();
    for _ in 0..connections {
        let mut line = Line::connect(bare.address, &request).await?;
        let (counts, number) = (Arc::clone(&sink.counts), Arc::clone(numbers));
        tasks.spawn(async move {
            loop {
                counts.room.acquire().await?.forget();
                number_event(&mut line.request[id_at..], number.fetch_add(1, Ordering::Relaxed))?;
                line.exchange().await?;
            }
        });
    }
    let rate = watched(&mut tasks, &sink.counts.received, span).await;
    tasks.shutdown().await;
    bare.stop().await?;
    rate
}

/// An HTTP client in a loop.
async fn bare_delivering(
    to: SocketAddr,
    connections: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::<anyhow::Result<()>>::new();
    for _ in 0..connections {
        let (client, counter) = (client.clone(), Arc::clone(&counter));
        tasks.spawn(async move {
            loop {
                let request = http::Request::post(format!("http://{to}/hook"))
                    .header("content-type", "application/json")
                    .body(Full::from(BODY))?;
                let answer = client.request(request).await?;
                anyhow::ensure!(answer.status() == 204, "the destination answered otherwise");
                answer.into_body().collect().await?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let rate = watched(&mut tasks, &counter, span).await;
    tasks.shutdown().await;
    rate
}

/// What the destination itself can take.
async fn raw_answering(sink: &Sink, connections: usize, span: Duration) -> anyhow::Result<f64> {
    let request =
        format!("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    let mut tasks = JoinSet::<anyhow::Result<()>>::new();
    for _ in 0..connections {
        let mut line = Line::connect(sink.address, request.as_bytes()).await?;
        tasks.spawn(async move {
            loop {
                line.exchange().await?;
            }
        });
    }
    let rate = watched(&mut tasks, &sink.counts.received, span).await;
    tasks.shutdown().await;
    rate
}

/// The pick-up of messages while another destination takes connections, never answers, and has a long line before it.
async fn beside_a_slow_one(world: &World, sink: &mut Sink) -> anyhow::Result<Vec<Duration>> {
    let slow = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/slow", slow.local_addr()?);
    let mut hanging = JoinSet::<anyhow::Result<()>>::new();
    hanging.spawn(async move {
        let mut streams = Vec::new();
        loop {
            streams.push(slow.accept().await?);
        }
    });
    write(world, FOR_A_SLOW_ONE, &url, None).await?;
    let (mut process, _) = server::start(world, &["serve"], &[]).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], server::PORT));
    let samples = pick_up(address, &publish_request(sink.address), sink).await;
    process.kill().await?;
    samples
}

/// Writes messages, as if they had been published.
async fn write(
    world: &World,
    count: usize,
    url: &str,
    not_before: Option<Timestamp>,
) -> anyhow::Result<()> {
    let (store, maker) = (world.store().await?, Maker::new());
    let now = maker.clock.now();
    let expires_at = not_before.unwrap_or(now).plus(Duration::from_secs(24 * 3600));
    let asked = Arc::new(Asked { url: url.to_owned(), ..Asked::default() });
    let mut left = count;
    while left > 0 {
        let part = left.min(2000);
        left -= part;
        let mut changes = Changes::new();
        for _ in 0..part {
            let (_, message) = accept(Draft {
                id: maker.ids.uuid(),
                asked: Arc::clone(&asked),
                body: BODY.as_bytes().into(),
                not_before,
                dedup_key: None,
                holds: None,
                traceparent: None,
                now,
                expires_at,
                begin: Begin::Due,
            });
            changes.extend(message);
        }
        store.commit(changes).await?;
    }
    Ok(())
}

/// One connection that asks the same again and again.
struct Line {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Line {
    async fn connect(address: SocketAddr, request: &[u8]) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: request.to_vec(), answer: Vec::with_capacity(1024) })
    }

    async fn exchange(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        while !self.is_answered()? {
            let read = self.stream.read_buf(&mut self.answer).await?;
            anyhow::ensure!(read > 0, "the server hung up");
        }
        Ok(())
    }

    fn is_answered(&self) -> anyhow::Result<bool> {
        let begins = self.answer.len() < 10 || self.answer.starts_with(b"HTTP/1.1 2");
        anyhow::ensure!(begins, "the server answered {}", String::from_utf8_lossy(&self.answer));
        Ok(messages_sink::request(&self.answer).is_some())
    }
}
