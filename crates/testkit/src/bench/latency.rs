//! Pick-up latency: from the caller's commit to the handler, when nothing else is going on.

use std::time::Duration;

use serde_json::Value;
use tashika_domain::{Changes, LanePolicy, Outcome, Write};
use tashika_engine::{Engine, Settings, Simple};
use tashika_store::Store;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Figure, KIND, LANE, Maker, Options, World, quantile};
use crate::postgres::Database;

/// Enough for a 99th percentile that is not a single sample.
const SAMPLES: usize = 500;
/// Long enough for everything to have gone to sleep again.
const PAUSE: Duration = Duration::from_millis(25);

pub(crate) async fn measure(world: &World, _: &Options) -> anyhow::Result<Vec<Figure>> {
    let (store, maker) = (world.store().await?, Maker::new());
    let (started, mut starts) = mpsc::unbounded_channel();
    let report = Simple(move |_: &tashika_domain::Effect| {
        started.send(Instant::now()).ok();
        Outcome::Done(Value::Null)
    });
    let running = Engine::new(store.clone(), maker.clock, maker.ids.clone(), Settings::default())
        .lane(LANE, LanePolicy::default())
        .effect(KIND, report)
        .start();
    let mut figures = Vec::new();
    let mut from = vec![("the same process", store)];
    if world.database == Database::Postgres {
        // Another store knows nothing of this process's dispatcher: only the notification does.
        from.push(("another process", world.store().await?));
    }
    for (whence, store) in from {
        let mut samples = sample(&store, &maker, &mut starts).await?;
        let (p50, p99) = (quantile(&mut samples, 0.50), quantile(&mut samples, 0.99));
        let what = |p| format!("pick-up {p}, enqueued by {whence}");
        let note = "commit included";
        figures.push(Figure::plain(world.name(), what("p50"), "ms", p50, note));
        figures.push(Figure::plain(world.name(), what("p99"), "ms", p99, note));
    }
    running.stop(Duration::from_secs(10)).await;
    Ok(figures)
}

async fn sample(
    store: &Store,
    maker: &Maker,
    starts: &mut mpsc::UnboundedReceiver<Instant>,
) -> anyhow::Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        tokio::time::sleep(PAUSE).await;
        let asked = Instant::now();
        store.commit(Changes::from(Write::Enqueue(maker.effect()))).await?;
        let Some(started) = starts.recv().await else { anyhow::bail!("the engine has stopped") };
        samples.push(started.duration_since(asked));
    }
    Ok(samples)
}
