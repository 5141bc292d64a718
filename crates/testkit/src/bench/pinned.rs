//! A foreign transaction that stays open, under steady work: the failure that benchmarks hide.
//!
//! While it is open, the server may not remove the versions of rows that the work leaves behind. A
//! queue whose claims walk over them gets slower with every second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tashika_domain::changes::{Lease, Settle};
use tashika_domain::effect::{Effect, Verdict};
use tashika_domain::{Changes, Write};
use tashika_store::{Claim, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Figure, LANE, Maker, Options, World, quantile};

/// Effects per second.
const RATE: u64 = 3000;
const TICKS_PER_SECOND: u64 = 100;

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let pinned_for = Duration::from_secs(options.pinned_seconds);
    let calm = pinned_for.min(Duration::from_secs(20));
    let (store, maker) = (world.store().await?, Maker::new());
    let stop = Arc::new(AtomicBool::new(false));
    let producing = tokio::spawn(produce(store.clone(), maker.clone(), Arc::clone(&stop)));

    let mut figures = Vec::new();
    let mut report = |phase: &str, (mut claims, backlog): (Vec<Duration>, i64)| {
        let note = format!("{} claims, {backlog} waiting afterwards", claims.len());
        for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
            let what = format!("claim {name} at {RATE}/s, {phase}");
            let figure = quantile(&mut claims, share);
            figures.push(Figure::plain(world.name(), what, "ms", figure, note.clone()));
        }
    };
    report("before", consume(&store, &maker, calm).await?);
    let pin = super::limit_postgres::connect(&world.url).await?;
    // It has read something, and written something: both hold the horizon.
    let sql = "begin isolation level repeatable read; select count(*) from outbox;
               select pg_current_xact_id()";
    pin.batch_execute(sql).await?;
    let third = pinned_for / 3;
    report("pinned, first third", consume(&store, &maker, third).await?);
    report("pinned, second third", consume(&store, &maker, third).await?);
    report("pinned, last third", consume(&store, &maker, third).await?);
    pin.batch_execute("commit").await?;
    report("after", consume(&store, &maker, calm).await?);
    stop.store(true, Ordering::Relaxed);
    producing.await??;
    Ok(figures)
}

/// Enqueues at a steady rate.
async fn produce(store: Store, maker: Maker, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_millis(1000 / TICKS_PER_SECOND));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut commits = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        for _ in 0..RATE / TICKS_PER_SECOND {
            let (store, effect) = (store.clone(), maker.effect());
            commits.spawn(async move { store.commit(Changes::from(Write::Enqueue(effect))).await });
        }
        while let Some(done) = commits.try_join_next() {
            done??;
        }
    }
    Ok(())
}

/// Claims and settles for a while; returns how long the claims took, and how much still waits.
async fn consume(
    store: &Store,
    maker: &Maker,
    span: Duration,
) -> anyhow::Result<(Vec<Duration>, i64)> {
    let (started, mut claims) = (Instant::now(), Vec::new());
    let mut look_back = tokio::spawn(std::future::ready(()));
    while started.elapsed() < span {
        // As the rescuer does beside the claims.
        if look_back.is_finished() {
            let store = store.clone();
            look_back = tokio::spawn(async move {
                let began = Instant::now();
                drop(store.look_back(&LANE).await);
                tokio::time::sleep((began.elapsed() * 50).max(Duration::from_secs(1))).await;
            });
        }
        let asked = Instant::now();
        let claim = Claim { lane: &LANE, worker: "bench", now: maker.clock.now(), limit: 256 };
        let effects = store.claim(claim).await?;
        claims.push(asked.elapsed());
        if effects.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let mut settled = JoinSet::new();
        for effect in effects {
            let (store, changes) = (store.clone(), settle(&effect, maker));
            settled.spawn(async move { store.commit(changes).await });
        }
        while let Some(done) = settled.join_next().await {
            done??;
        }
    }
    look_back.abort();
    Ok((claims, store.waiting_count().await?))
}

fn settle(effect: &Effect, maker: &Maker) -> Changes {
    let now = maker.clock.now();
    Changes::from(Write::Settle(Settle {
        lease: Lease { id: effect.id, fence: effect.fence },
        verdict: Verdict::Succeeded,
        now,
        expires_at: now.plus(Duration::from_secs(48 * 3600)),
        unheard_since: None,
    }))
}
