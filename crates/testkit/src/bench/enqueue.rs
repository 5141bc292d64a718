//! Enqueueing: callers that each wait for their own effect to be durable.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tashika_domain::{Changes, Write};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::limit::Queue;
use super::{Figure, Maker, Options, World, per_second};

static COUNTED: AtomicU64 = AtomicU64::new(0);

/// One more row is durable.
pub(crate) fn count_one() {
    COUNTED.fetch_add(1, Ordering::Relaxed);
}

/// Runs callers for a while; returns what they counted per second, without the first moments.
pub(crate) async fn callers<F>(
    count: usize,
    span: Duration,
    caller: impl Fn() -> F,
) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        tasks.spawn(caller());
    }
    drop(caller);
    let warm_up = span / 10;
    let rate = tokio::select! {
        Some(ended) = tasks.join_next() => {
            ended??;
            anyhow::bail!("a caller ended early");
        }
        rate = async {
            tokio::time::sleep(warm_up).await;
            let (started, before) = (Instant::now(), COUNTED.load(Ordering::Relaxed));
            tokio::time::sleep(span).await;
            per_second(COUNTED.load(Ordering::Relaxed) - before, started.elapsed())
        } => rate,
    };
    tasks.shutdown().await;
    Ok(rate)
}

pub(crate) async fn ours(world: &World, count: usize, span: Duration) -> anyhow::Result<f64> {
    let store = world.store().await?;
    let maker = Maker::new();
    callers(count, span, || {
        let (store, maker) = (store.clone(), maker.clone());
        async move {
            loop {
                store.commit(Changes::from(Write::Enqueue(maker.effect()))).await?;
                count_one();
            }
        }
    })
    .await
}

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let span = Duration::from_secs(options.seconds);
    let callers = options.callers;
    let queue = Queue::create(world).await?;
    // Limit, ours, limit again: the machine may change its mood in between.
    let before = queue.group_commit(callers, span).await?;
    let tashika = ours(world, callers, span).await?;
    let after = queue.group_commit(callers, span).await?;
    let what = format!("enqueue, {callers} callers, each durable");
    let note = format!("limit {before:.0} before, {after:.0} after");
    Ok(vec![Figure::rate(world.name(), what, tashika, f64::midpoint(before, after), note)])
}
