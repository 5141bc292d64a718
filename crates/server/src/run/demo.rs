//! `tashika demo`: a small world in which answers get lost, and the real server in the middle of it.
//!
//! Everything is in this process and on loopback addresses: the server as `tashika serve` runs it, on
//! a database in a temporary folder; a gateway and a broker that fail by chance and keep true ledgers;
//! a worker with bad moments; and customers, who use the API. Every few seconds a line says how it
//! stands. At the end the customers go home, the faults are switched off, and when everything is at
//! rest what Tashika believes is compared with what the others did.
//!
//! It guarantees that nothing is left behind unless `--keep` says so, and that it ends well only if the
//! books are balanced.

mod books;
mod browser;
mod caller;
mod chance;
mod customers;
mod postman;
mod settings;
mod summary;
mod worker;
mod world;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::books::Books;
use self::caller::Caller;
use self::chance::Chance;
use self::customers::Scene;
use self::settings::{HOLD_SEC, Places};
use self::world::World;
use crate::app::App;
use crate::cli::args::Role;
use crate::cli::demo::DemoArgs;
use crate::signals;
use crate::telemetry::{self, Metrics};

/// Between two lines on the terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How long everything may take to come to rest: the longest hold, then whatever waits for mail.
const REST_WITHIN: Duration = Duration::from_secs(HOLD_SEC + 48);
/// Between two looks at whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Returns whether the books are balanced.
pub async fn demo(args: &DemoArgs, out: &mut impl Write) -> anyhow::Result<bool> {
    let folder = tempfile::Builder::new().prefix("tashika-demo-").tempdir()?;
    let ended = play(args, folder.path(), out).await;
    if args.keep {
        writeln!(out, "  The database is in {}", folder.keep().display())?;
    } else {
        folder.close().context("the demonstration's folder could not be removed")?;
    }
    ended
}

async fn play(
    args: &DemoArgs,
    folder: &std::path::Path,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let signals = signals::counted()?;
    let world = World::start(args.seed).await?;
    let listener = listen(args.port, out).await?;
    let config = settings::config(&Places {
        listen: listener.local_addr()?,
        folder,
        gateway: &world.gateway_server.base_url(),
        broker: &world.broker_server.base_url(),
        worker: &world.worker.base_url(),
    })?;
    let telemetry = telemetry::init(&config.logs, None)?;
    let metrics = Metrics::install();
    let app = App::open(&config).await?;
    let (told, ready) = oneshot::channel();
    let stop = CancellationToken::new();
    let serving = async {
        let tell = |address, _| told.send(address).unwrap_or_default();
        let served = super::serve::serve_until(
            &config,
            Role::All,
            &app,
            &metrics,
            listener,
            stop.clone(),
            tell,
        );
        let served = served.await;
        stop.cancel();
        served
    };
    let story = async {
        let address: SocketAddr = ready.await.context("the server did not start")?;
        let ended = Play { args, world, metrics: &metrics, signals, stop: &stop };
        let ended = ended.run(address, out).await;
        stop.cancel();
        ended
    };
    let (served, ended) = tokio::join!(serving, story);
    telemetry.shutdown().await;
    served?;
    ended
}

/// The port that was asked for, or another one.
async fn listen(port: u16, out: &mut impl Write) -> anyhow::Result<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            writeln!(out, "  Port {port} is in use; another one is taken.")?;
            Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
        }
        bound => bound.with_context(|| format!("cannot listen on port {port}")),
    }
}

struct Play<'a> {
    args: &'a DemoArgs,
    world: Arc<World>,
    metrics: &'a Metrics,
    /// How many signals have come: the first ends the demonstration, the second its end.
    signals: watch::Receiver<u32>,
    stop: &'a CancellationToken,
}

impl Play<'_> {
    async fn run(mut self, address: SocketAddr, out: &mut impl Write) -> anyhow::Result<bool> {
        let console = format!("http://{address}/console");
        out.write_all(summary::welcome(&console, self.args.seconds).as_bytes())?;
        if let Some(word) = browser::show(&console, self.args.open) {
            writeln!(out, "  {word}\n")?;
        }
        out.flush()?;
        let caller = Caller::new(&format!("http://{address}"))?;
        let over = CancellationToken::new();
        let scene = Scene {
            world: Arc::clone(&self.world),
            caller: caller.clone(),
            over: over.clone(),
            name: format!("demo-{}", self.args.seed),
        };
        let mut everybody = customers::start(&scene, self.args.seed);
        let chance = Chance::of(self.args.seed, 60);
        let (world, post) = (Arc::clone(&self.world), caller.clone());
        everybody.spawn(postman::deliver(world, post, chance, over.clone()));

        self.watch(&caller, out).await?;

        writeln!(
            out,
            "\n  The customers go home, the faults are switched off, and what is open is settled …"
        )?;
        out.flush()?;
        over.cancel();
        while everybody.join_next().await.is_some() {}
        self.world.behave();
        self.close(&caller, out).await
    }

    /// Says how it stands, until it is time to end.
    async fn watch(&mut self, caller: &Caller, out: &mut impl Write) -> anyhow::Result<()> {
        let began = Instant::now();
        let end = self.args.seconds.map(|seconds| began + Duration::from_secs(seconds));
        let mut tick = interval(LINE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                _ = self.signals.wait_for(|count| *count > 0) => return Ok(()),
                () = sleep_until(end.unwrap_or(began)), if end.is_some() => return Ok(()),
                _ = tick.tick() => {
                    let line = summary::line(began.elapsed(), &self.world, caller, self.metrics);
                    out.write_all(line.await?.as_bytes())?;
                    out.flush()?;
                }
            }
        }
    }

    /// Waits until everything is at rest, within reason, and compares the books.
    async fn close(&mut self, caller: &Caller, out: &mut impl Write) -> anyhow::Result<bool> {
        let deadline = Instant::now() + REST_WITHIN;
        let mut asked = 0;
        let books = loop {
            asked += ask_about_cases(caller).await?;
            // In this order: what arrives between the two is seen by the next look.
            let arrived = self.world.gateway.on_their_way() == 0;
            let books = Books::read(&self.world, caller).await?;
            if arrived && books.at_rest() || Instant::now() >= deadline {
                break books;
            }
            let hurry = self.signals.wait_for(|count| *count > 1);
            if timeout_at(Instant::now() + LOOK_EVERY, hurry).await.is_ok() {
                writeln!(out, "  Stopped at once: the books were not closed.")?;
                return Ok(false);
            }
        };
        if asked > 0 {
            let payments = summary::many(asked, "payment");
            writeln!(
                out,
                "  {payments} had been left to a person: the gateway was asked once more, and answered."
            )?;
        }
        let cases = caller.all("/cases?status=open").await?;
        out.write_all(summary::balance(&books, &self.world, &cases).as_bytes())?;
        out.flush()?;
        Ok(books.balanced() && books.at_rest())
    }
}

/// Does what a person would do first with a payment that nobody knew the outcome of: has the gateway
/// asked, which answers again. Returns how many it settled.
async fn ask_about_cases(caller: &Caller) -> anyhow::Result<u64> {
    let mut settled = 0;
    for case in caller.all("/cases?status=open&kind=payment_unknown").await? {
        let id = case["id"].as_str().unwrap_or_default();
        let body: Value = json!({"note": "the gateway answers again"});
        let path = format!("/cases/{id}/actions/verify");
        let answer = caller.post(&path, &format!("verify-{id}"), &body).await;
        settled += u64::from(answer.is_some_and(|answer| answer.body["status"] == "resolved"));
    }
    Ok(settled)
}
