//! Webhooks: signed events over HTTP, durable before they are answered.
//!
//! Our server as a process of its own, against a bare handler that reads the event's id and type,
//! makes the same rows durable in batches of its own, and does nothing else: no signature, no limits,
//! no log, no trace. The load generator runs beside both, on the same cores, and costs both the same:
//! connections that stay open, a request that is patched in place, one HMAC for each event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::webhooks_bare::Bare;
use super::{Figure, Maker, Options, World, per_second, quantile, server};

const SECRET: &str = "whsec_bench";
/// 16 digits that differ in every event.
const ID: &str = "0000000000000000";

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let span = Duration::from_secs(options.seconds);
    let connections = options.callers;
    let maker = Maker::new();
    let load = Load::new(&maker)?;
    // Limit, ours, limit again: the machine may change its mood in between.
    let before = bare(world, &load, connections, span).await?;
    let settings = [("STRIPE_WEBHOOK_SECRET", SECRET)];
    let (mut process, _) = server::start(world, &["serve", "--role", "api"], &settings).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], server::PORT));
    let tashika = load.closed(address, connections, span).await.context("Tashika")?;
    let mut waits =
        load.open(address, connections, tashika / 2.0, span).await.context("Tashika")?;
    process.kill().await?;
    let after = bare(world, &load, connections, span).await?;

    let what = format!("webhooks accepted, {connections} connections");
    let note = format!("a bare handler: {before:.0} before, {after:.0} after");
    let limit = f64::midpoint(before, after);
    let mut figures = vec![Figure::rate(world.name(), what, tashika, limit, note)];
    let note = format!("{:.0}/s, half of the above; {} events", tashika / 2.0, waits.len());
    for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
        let what = format!("webhook acknowledged at half that rate, {name}");
        let figure = quantile(&mut waits, share);
        figures.push(Figure::plain(world.name(), what, "ms", figure, note.clone()));
    }
    Ok(figures)
}

async fn bare(
    world: &World,
    load: &Load,
    connections: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let bare = Bare::start(world, None).await?;
    let rate = load.closed(bare.address, connections, span).await.context("the bare handler")?;
    bare.stop().await?;
    Ok(rate)
}

/// A sender like Stripe.
struct Load {
    next: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    request: Template,
}

/// A request with its places to patch.
#[derive(Clone)]
struct Template {
    bytes: Vec<u8>,
    id: usize,
    signature: usize,
    body: usize,
    /// Has seen the secret and the time.
    mac: Hmac<Sha256>,
}

impl Load {
    fn new(maker: &Maker) -> anyhow::Result<Self> {
        // Ids that no earlier run on this database has used.
        let first = maker.ids.number() & 0xffff_ffff_0000_0000;
        Ok(Self {
            next: Arc::new(AtomicU64::new(first)),
            answered: Arc::default(),
            request: Template::new(maker)?,
        })
    }

    /// Connections that each wait for one answer after the other. Answers per second, without the
    /// first moments.
    async fn closed(
        &self,
        address: SocketAddr,
        connections: usize,
        span: Duration,
    ) -> anyhow::Result<f64> {
        let mut tasks = JoinSet::<anyhow::Result<()>>::new();
        for _ in 0..connections {
            let mut line = self.connect(address).await?;
            let answered = Arc::clone(&self.answered);
            tasks.spawn(async move {
                loop {
                    line.exchange().await?;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let measured = async {
            tokio::time::sleep(span / 10).await;
            let (began, before) = (Instant::now(), self.answered.load(Ordering::Relaxed));
            tokio::time::sleep(span).await;
            per_second(self.answered.load(Ordering::Relaxed) - before, began.elapsed())
        };
        let rate = tokio::select! {
            Some(ended) = tasks.join_next() => {
                ended??;
                anyhow::bail!("a connection ended early");
            }
            rate = measured => rate,
        };
        tasks.shutdown().await;
        Ok(rate)
    }

    /// Events that are due at a fixed rate, whether or not earlier ones have been answered; how long
    /// each took from the moment at which it was due.
    async fn open(
        &self,
        address: SocketAddr,
        connections: usize,
        rate: f64,
        span: Duration,
    ) -> anyhow::Result<Vec<Duration>> {
        let count = u32::try_from(connections)?;
        let pause = Duration::from_secs_f64(f64::from(count) / rate);
        let began = Instant::now() + Duration::from_millis(50);
        let mut tasks = JoinSet::<anyhow::Result<Vec<Duration>>>::new();
        for n in 0..count {
            let mut line = self.connect(address).await?;
            tasks.spawn(async move {
                let mut waits = Vec::new();
                let mut due = began + pause * n / count;
                while due < began + span {
                    tokio::time::sleep_until(due).await;
                    line.exchange().await?;
                    waits.push(due.elapsed());
                    due += pause;
                }
                Ok(waits)
            });
        }
        let mut all = Vec::new();
        for waits in tasks.join_all().await {
            all.append(&mut waits?);
        }
        Ok(all)
    }

    async fn connect(&self, address: SocketAddr) -> anyhow::Result<Line> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (request, next) = (self.request.clone(), Arc::clone(&self.next));
        Ok(Line { stream, request, next, answer: Vec::with_capacity(1024) })
    }
}

/// One connection.
struct Line {
    stream: TcpStream,
    request: Template,
    next: Arc<AtomicU64>,
    answer: Vec<u8>,
}

impl Line {
    /// Sends an event, and reads its answer.
    async fn exchange(&mut self) -> anyhow::Result<()> {
        self.request.patch(self.next.fetch_add(1, Ordering::Relaxed));
        self.stream.write_all(&self.request.bytes).await?;
        self.answer.clear();
        // No body follows: the answer ends with its head.
        while !self.answer.ends_with(b"\r\n\r\n") {
            let read = self.stream.read_buf(&mut self.answer).await?;
            anyhow::ensure!(read > 0, "the server hung up");
            anyhow::ensure!(
                self.answer.len() < 12 || self.answer.starts_with(b"HTTP/1.1 204"),
                "the server answered {}",
                String::from_utf8_lossy(&self.answer)
            );
        }
        Ok(())
    }
}

impl Template {
    fn new(maker: &Maker) -> anyhow::Result<Self> {
        let now = maker.clock.now().as_micros() / 1_000_000;
        let body = format!(
            r#"{{"id":"evt_{ID}","object":"event","api_version":"2026-10-28.endive","created":{now},"data":{{"object":{{"id":"in_1PqXyZ2eZvKYlo2C","object":"invoice","amount_due":3000,"amount_paid":3000,"amount_remaining":0,"attempt_count":1,"attempted":true,"billing_reason":"subscription_cycle","collection_method":"charge_automatically","currency":"jpy","customer":"cus_bench","customer_email":"office@example.com","livemode":true,"paid":true,"period_end":{now},"period_start":{now},"status":"paid","subscription":"sub_1PqXyZ2eZvKYlo2C","subtotal":3000,"tax":null,"total":3000}}}},"livemode":true,"pending_webhooks":1,"request":{{"id":null,"idempotency_key":null}},"type":"invoice.payment_succeeded"}}"#
        );
        let head = format!(
            "POST /webhooks/stripe HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nstripe-signature: t={now},v1=",
            body.len()
        );
        let signature = head.len();
        let body_at = signature + 64 + 4;
        let id = body_at + body.find(ID).context("the id")?;
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
        mac.update(format!("{now}.").as_bytes());
        let bytes = format!("{head}{}\r\n\r\n{body}", "0".repeat(64)).into_bytes();
        Ok(Self { bytes, id, signature, body: body_at, mac })
    }

    /// Makes it the next event.
    fn patch(&mut self, number: u64) {
        hex(&number.to_be_bytes(), &mut self.bytes[self.id..][..16]);
        let mut mac = self.mac.clone();
        mac.update(&self.bytes[self.body..]);
        let signature = mac.finalize().into_bytes();
        hex(&signature, &mut self.bytes[self.signature..][..64]);
    }
}

fn hex(bytes: &[u8], into: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(into.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use secrecy::SecretString;
    use tashika_providers::webhook::{Scheme, Source};

    use super::*;

    #[test]
    fn what_is_sent_is_signed_as_stripe_does() {
        let maker = Maker::new();
        let mut request = Template::new(&maker).unwrap();
        let secrets = vec![SecretString::from(SECRET)];
        let scheme = Scheme::Stripe { secrets, tolerance: Duration::from_secs(300) };
        let source = Source::new("stripe", scheme).unwrap();
        for number in [1, u64::MAX] {
            request.patch(number);
            let (head, body) = request.bytes.split_at(request.body);
            let head = std::str::from_utf8(head).unwrap();
            let mut headers = HeaderMap::new();
            let signature = head.split("stripe-signature: ").nth(1).unwrap().trim_end();
            headers.insert("stripe-signature", HeaderValue::from_str(signature).unwrap());
            source.verify(&headers, body, maker.clock.now()).unwrap();
            let event = source.read(&headers, body).unwrap();
            assert_eq!(event.id, format!("evt_{number:016x}"));
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
        }
    }
}
