//! The full cycle: accept, claim, perform nothing, settle, with work waiting in front.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tashika_domain::{Changes, LanePolicy, Outcome, Write};
use tashika_engine::{Engine, Settings, Simple};
use tashika_store::Store;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::limit::{self, Queue};
use super::{Figure, KIND, LANE, Maker, Options, World, per_second};

const BATCH: usize = limit::BATCH as usize;

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let span = Duration::from_secs(options.seconds);
    let mut figures = Vec::new();
    for backlog in &options.backlogs {
        // Each on a database of its own: neither pays for the other's rows.
        let limit = {
            let world = World::open(world.database, options).await?;
            Queue::create(&world).await?.cycle(*backlog, span).await?
        };
        let world = World::open(world.database, options).await?;
        // As many callers, each waiting for its own effect to be durable, as the hand-written side
        // has rows in a batch.
        let tashika = ours(&world, BATCH, *backlog, span).await?;
        let what = format!("full cycle, {backlog} waiting");
        let note = format!("{BATCH} callers; limit: batches of {BATCH}");
        figures.push(Figure::rate(world.name(), what, tashika, limit, note));
    }
    Ok(figures)
}

async fn ours(
    world: &World,
    callers: usize,
    backlog: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let (store, maker) = (world.store().await?, Maker::new());
    fill(&store, &maker, backlog).await?;
    if let Ok(client) = super::limit_postgres::connect(&world.url).await {
        client.batch_execute("analyze outbox").await?;
    }
    // As many in flight on top of the backlog as the hand-written side allows itself.
    let room = Arc::new(Semaphore::new(2 * BATCH));
    let performed = Arc::new(AtomicU64::new(0));
    let policy = LanePolicy { concurrency: 2 * BATCH, batch: BATCH, ..LanePolicy::default() };
    let running = {
        let (room, performed) = (Arc::clone(&room), Arc::clone(&performed));
        let nothing = Simple(move |_: &tashika_domain::Effect| {
            performed.fetch_add(1, Ordering::Relaxed);
            room.add_permits(1);
            Outcome::Done(Value::Null)
        });
        Engine::new(store.clone(), maker.clock, maker.ids.clone(), Settings::default())
            .lane(LANE, policy)
            .effect(KIND, nothing)
            .start()
    };
    let mut producers = JoinSet::new();
    for _ in 0..callers {
        let (store, maker, room) = (store.clone(), maker.clone(), Arc::clone(&room));
        producers.spawn(async move {
            loop {
                room.acquire().await?.forget();
                store.commit(Changes::from(Write::Enqueue(maker.effect()))).await?;
            }
            #[expect(unreachable_code, reason = "gives the loop's errors a type")]
            Ok::<(), anyhow::Error>(())
        });
    }
    tokio::time::sleep(span / 10).await;
    let (started, before) = (Instant::now(), performed.load(Ordering::Relaxed));
    tokio::time::sleep(span).await;
    let rate = per_second(performed.load(Ordering::Relaxed) - before, started.elapsed());
    producers.shutdown().await;
    running.stop(Duration::from_secs(30)).await;
    Ok(rate)
}

/// Puts effects in front of the queue.
pub(crate) async fn fill(store: &Store, maker: &Maker, count: usize) -> anyhow::Result<()> {
    let mut left = count;
    while left > 0 {
        let mut batch = JoinSet::new();
        for _ in 0..left.min(8 * BATCH) {
            let (store, effect) = (store.clone(), maker.effect());
            batch.spawn(async move { store.commit(Changes::from(Write::Enqueue(effect))).await });
        }
        left -= batch.len();
        while let Some(done) = batch.join_next().await {
            done??;
        }
    }
    Ok(())
}
