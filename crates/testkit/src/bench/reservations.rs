//! The end of holds: how late a hold ends while 100,000 others are outstanding.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tashika_domain::mail::Locale;
use tashika_domain::payment::{PaymentRules, RequestKey};
use tashika_domain::reservation::decide::{Asked, At, hold};
use tashika_domain::reservation::{HOLD_KIND, ReservationRequest, ReservationRules, Status};
use tashika_domain::{Lane, LanePolicy};
use tashika_engine::{Engine, HoldHandler, Settings, StoredBook, Till};
use tashika_providers::gateway::sandbox::SandboxGateway;
use tashika_store::{ReservationFilter, Store};
use uuid::Uuid;

use super::{Figure, Maker, World, quantile};
use crate::gate::until;

/// Held for an hour, and in the way.
const OUTSTANDING: u32 = 100_000;
/// Held for a moment: what is measured.
const ENDING: u32 = 2_000;
/// So many end per second.
const PER_SECOND: u32 = 200;
/// Commits under way at once.
const PARALLEL: usize = 512;

pub(crate) async fn measure(world: &World) -> anyhow::Result<Vec<Figure>> {
    let (store, maker) = (world.store().await?, Maker::new());
    fill(&store, &maker, 0..OUTSTANDING, |_| Duration::from_secs(3600)).await?;
    let book = Arc::new(StoredBook(store.clone()));
    let till = Arc::new(Till {
        store: store.clone(),
        clock: maker.clock,
        gateway: Arc::new(SandboxGateway::new(book, Duration::from_secs(5))),
        rules: PaymentRules::default(),
        reservations: ReservationRules::default(),
    });
    let running = Engine::new(store.clone(), maker.clock, maker.ids.clone(), Settings::default())
        .lane(Lane::TIMERS, LanePolicy::default())
        .effect(HOLD_KIND, HoldHandler::new(till))
        .start();
    // One after the other, from two seconds on: by then they are all there.
    let spread =
        |n: u32| Duration::from_secs(2) + Duration::from_secs(1) * (n - OUTSTANDING) / PER_SECOND;
    let ids = fill(&store, &maker, OUTSTANDING..OUTSTANDING + ENDING, spread).await?;
    let mut late = until("the end of the holds", async || ended(&store, ids.len()).await).await;
    running.stop(Duration::from_secs(10)).await;
    let note = format!("{OUTSTANDING} holds outstanding, {PER_SECOND} end per second");
    let figure = |what: &str, share: f64, late: &mut [Duration]| {
        let (what, value) =
            (format!("end of a hold after its time, {what}"), quantile(late, share));
        Figure::plain(world.name(), what, "ms", value, note.clone())
    };
    Ok(vec![
        figure("p50", 0.5, &mut late),
        figure("p99", 0.99, &mut late),
        figure("longest", 1.0, &mut late),
    ])
}

/// How late each hold ended, once all have.
async fn ended(store: &Store, count: usize) -> Option<Vec<Duration>> {
    let filter =
        ReservationFilter { status: Some(Status::Expired), ..ReservationFilter::default() };
    let limit = i64::try_from(count).unwrap_or(i64::MAX);
    let found = store.reservations(&filter, limit).await.ok()?;
    if found.len() < count {
        return None;
    }
    let late = found.iter().filter_map(|r| Some(r.expired_at?.since(r.hold_expires_at)));
    Some(late.collect())
}

async fn fill(
    store: &Store,
    maker: &Maker,
    numbers: std::ops::Range<u32>,
    held_for: impl Fn(u32) -> Duration,
) -> anyhow::Result<Vec<Uuid>> {
    let payments = PaymentRules::default();
    let holds = numbers.map(|number| {
        let rules = ReservationRules { hold: held_for(number), ..ReservationRules::default() };
        let at =
            At { now: maker.clock.now(), rules: &rules, payments: &payments, slot_taken: false };
        let key = RequestKey { key: format!("k-{number}"), digest: String::new() };
        let asked = Asked { id: maker.ids.uuid(), key, traceparent: None };
        hold(request(number), asked, None, at)
    });
    let writing = stream::iter(holds).map(|decided| async move {
        store.commit(decided.changes).await?;
        anyhow::Ok(decided.reservation.id)
    });
    writing.buffer_unordered(PARALLEL).try_collect().await
}

fn request(number: u32) -> ReservationRequest {
    ReservationRequest {
        video_id: 1,
        projection_date: "2099-12-24".into(),
        slot_number: i64::from(number) + 1,
        user_id: format!("u-{number}"),
        user_email: "somebody@example.com".into(),
        locale: Locale::Ja,
        amount: 1500,
        currency: "JPY".into(),
    }
}
