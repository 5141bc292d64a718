//! Renders are kept whole, found by what is known of them, and written only in turn.

use tashika_domain::outcome::Reason;
use tashika_domain::render::conclude::{At, Learned, conclude};
use tashika_domain::render::{Render, RenderOrder, RenderRules, RenderStatus, Why, start};
use tashika_domain::{Changes, Lane, Write};
use tashika_store::{CommitError, RenderFilter};
use uuid::Uuid;

use crate::support::*;

on_both!(
    every_column_of_a_render_reads_back,
    a_render_begins_with_its_effect,
    of_two_who_write_one_wins,
    of_two_who_decide_in_the_same_millisecond_one_is_outdated,
    what_contradicts_itself_is_refused,
    renders_are_listed_by_status_and_reservation,
    renders_that_are_over_are_forgotten_and_no_others,
);

fn uuid(number: u64) -> Uuid {
    id(number).0
}

fn begun(number: u64) -> (Render, Changes) {
    let rules = RenderRules::default();
    let order = RenderOrder {
        id: uuid(number),
        reservation_id: uuid(number + 1000),
        video_id: -42,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        rules: &rules,
    };
    let changes = start(order, at(1));
    let render = changes.writes().iter().find_map(|write| match write {
        Write::RenderInsert(render) => Some((**render).clone()),
        _ => None,
    });
    (render.unwrap(), changes)
}

fn update(render: &Render) -> Changes {
    Write::RenderUpdate(Box::new(render.clone())).into()
}

async fn every_column_of_a_render_reads_back(db: Db) {
    let store = db.open().await;
    let (bare, changes) = begun(1);
    store.commit(changes).await.unwrap();
    assert_eq!(store.render(bare.id).await.unwrap(), Some(bare.clone()));
    let full = Render {
        version: 2,
        status: RenderStatus::Failed,
        attempts: 3,
        allowed: 6,
        step: 9,
        provider_id: Some("r-1".into()),
        submitted_at: Some(at(2)),
        output_url: Some("https://a/b".into()),
        output_expires_at: Some(at(3)),
        output_path: Some("/tmp/確か.mp4".into()),
        error: Some(Reason::new("CODE", "words")),
        closed: Some((at(4), Why::GivenUp)),
        updated_at: at(5),
        ..bare.clone()
    };
    store.commit(update(&full)).await.unwrap();
    assert_eq!(store.render(bare.id).await.unwrap(), Some(full.clone()));
    assert_eq!(store.render_of_provider("sandbox", "r-1").await.unwrap(), Some(full));
    assert_eq!(store.render_of_provider("shotstack", "r-1").await.unwrap(), None);
}

/// Found by the simulator: ids follow from what is decided and when, so both have the same effect in their
/// hands. That is a lost race, and not a database that fails.
async fn of_two_who_decide_in_the_same_millisecond_one_is_outdated(db: Db) {
    let store = db.open().await;
    let (render, changes) = begun(1);
    store.commit(changes).await.unwrap();
    let failed = Learned::Failed(Reason::new("CODE", "words"));
    let moment = At { now: at(2), rules: &RenderRules::default(), via: "question" };
    let decided = conclude(&render, &failed, moment);
    let (one, two) = tokio::join!(store.commit(decided.clone()), store.commit(decided.clone()));
    let lost = [one, two].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(matches!(lost[..], [CommitError::Outdated { table: "renders", .. }]), "{lost:?}");
    let again = store.commit(decided).await;
    assert!(matches!(again, Err(CommitError::Outdated { .. })), "{again:?}");
    assert_eq!(all(&store).await.len(), 2, "the first step and the second");
}

async fn a_render_begins_with_its_effect(db: Db) {
    let store = db.open().await;
    let (render, changes) = begun(1);
    store.commit(changes).await.unwrap();
    let effects = all(&store).await;
    assert_eq!(effects.len(), 1);
    assert_eq!((&effects[0].lane, effects[0].kind.as_str()), (&Lane::RENDERS, "render"));
    // The same row again writes nothing at all, not even its effect.
    let (_, changes) = begun(1);
    assert!(store.commit(changes).await.is_err());
    assert_eq!(all(&store).await.len(), 1);
    assert_eq!(store.renders_of(render.reservation_id).await.unwrap(), [render]);
}

async fn of_two_who_write_one_wins(db: Db) {
    let store = db.open().await;
    let (render, changes) = begun(1);
    store.commit(changes).await.unwrap();
    let next = |status| Render { version: 2, status, submitted_at: Some(at(2)), ..render.clone() };
    let (one, two) = (next(RenderStatus::Processing), next(RenderStatus::Done));
    let (first, second) =
        futures_util::future::join(store.commit(update(&one)), store.commit(update(&two))).await;
    let lost = |result: &Result<(), CommitError>| {
        matches!(result, Err(CommitError::Outdated { table: "renders", .. }))
    };
    assert!(first.is_ok() && lost(&second) || second.is_ok() && lost(&first));
}

async fn what_contradicts_itself_is_refused(db: Db) {
    let store = db.open().await;
    let (render, changes) = begun(1);
    store.commit(changes).await.unwrap();
    let next = Render { version: 2, ..render.clone() };
    for wrong in [
        Render { status: RenderStatus::Processing, ..next.clone() },
        Render { closed: Some((at(1), Why::Cancelled)), ..next.clone() },
    ] {
        assert!(store.commit(update(&wrong)).await.is_err(), "{wrong:?}");
    }
    assert_eq!(store.render(render.id).await.unwrap(), Some(render));
}

async fn renders_are_listed_by_status_and_reservation(db: Db) {
    let store = db.open().await;
    for number in 1..=3 {
        let (render, changes) = begun(number);
        store.commit(changes).await.unwrap();
        if number == 2 {
            let done = Render { version: 2, status: RenderStatus::Done, ..render };
            store.commit(update(&done)).await.unwrap();
        }
    }
    let listed = async |filter: RenderFilter, limit| -> Vec<Uuid> {
        let found = store.renders(&filter, limit).await.unwrap();
        found.into_iter().map(|render| render.id).collect()
    };
    let all = RenderFilter::default();
    assert_eq!(listed(all.clone(), 10).await, [uuid(3), uuid(2), uuid(1)]);
    assert_eq!(listed(all.clone(), 1).await, [uuid(3)]);
    let before = RenderFilter { before: Some(uuid(3)), ..all.clone() };
    assert_eq!(listed(before, 10).await, [uuid(2), uuid(1)]);
    let done = RenderFilter { status: Some(RenderStatus::Done), ..all.clone() };
    assert_eq!(listed(done, 10).await, [uuid(2)]);
    let of = RenderFilter { reservation_id: Some(uuid(1001)), ..all };
    assert_eq!(listed(of, 10).await, [uuid(1)]);
}

async fn renders_that_are_over_are_forgotten_and_no_others(db: Db) {
    let store = db.open().await;
    let ends = |render: &Render, status, closed| Render {
        version: 2,
        status,
        closed,
        updated_at: at(5),
        ..render.clone()
    };
    let mut all = Vec::new();
    for number in 1..=5 {
        let (render, changes) = begun(number);
        store.commit(changes).await.unwrap();
        all.push(render);
    }
    // Done, given up, waiting for a person; under way; and done a moment ago.
    let closed = Some((at(5), Why::GivenUp));
    store.commit(update(&ends(&all[0], RenderStatus::Done, None))).await.unwrap();
    store.commit(update(&ends(&all[1], RenderStatus::Failed, closed))).await.unwrap();
    store.commit(update(&ends(&all[2], RenderStatus::Failed, None))).await.unwrap();
    let fresh = Render { updated_at: at(9), ..ends(&all[4], RenderStatus::Done, None) };
    store.commit(update(&fresh)).await.unwrap();
    assert_eq!(store.prune_renders(at(6), 1).await.unwrap(), 1, "in portions");
    assert_eq!(store.prune_renders(at(6), 100).await.unwrap(), 1);
    assert_eq!(store.prune_renders(at(6), 100).await.unwrap(), 0);
    let mut left = Vec::new();
    for render in &all {
        left.push(store.render(render.id).await.unwrap().is_some());
    }
    assert_eq!(left, [false, false, true, true, true]);
}
