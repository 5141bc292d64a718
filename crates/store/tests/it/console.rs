//! What the console asks.

use tashika_domain::{Lane, Status};
use tashika_store::{Counted, EffectFilter, RaceFilter};
use uuid::Uuid;

use crate::support::*;

on_both!(
    effects_are_found_by_their_key_whatever_their_kind,
    only_what_is_due_waits,
    waits_and_the_flow_are_seen_by_lane,
    a_look_goes_back_as_far_as_it_may,
    counting_ends_at_its_limit,
    the_newest_row_of_every_table_is_told,
);

async fn effects_are_found_by_their_key_whatever_their_kind(db: Db) {
    let store = db.open().await;
    let of_kind = |number: u64, kind: &str, key: &str| {
        let mut effect = keyed(number, key);
        effect.kind = kind.into();
        effect
    };
    enqueue(
        &store,
        [
            of_kind(1, "alpha", "key-1"),
            of_kind(2, "mid", "key-2"),
            of_kind(3, "zeta", "key-1"),
            effect(4),
        ],
    )
    .await;
    let found = async |key: &str| -> Vec<_> {
        store.effects_of_key(key).await.unwrap().iter().map(|row| row.id).collect()
    };
    assert_eq!(found("key-1").await, [id(3), id(1)]);
    assert_eq!(found("key-2").await, [id(2)]);
    assert_eq!(found("key-3").await, []);
    assert_eq!(found("").await, []);
}

async fn only_what_is_due_waits(db: Db) {
    let store = db.open().await;
    assert_eq!(store.due_by_lane(at(1)).await.unwrap(), []);
    let mut later = effect(3);
    later.run_at = at(500);
    let mut mail = effect(4);
    mail.lane = Lane::MAIL;
    enqueue(&store, [effect(1), effect(2), later, mail]).await;
    let due = async |now| -> Vec<_> {
        let found = store.due_by_lane(now).await.unwrap();
        found.into_iter().map(|one| (one.lane, one.count)).collect()
    };
    assert_eq!(due(at(100)).await, [(Lane::MAIL, 1), (Lane::ORDERS, 2)]);
    assert_eq!(due(at(600)).await, [(Lane::MAIL, 1), (Lane::ORDERS, 3)]);
    claim(&store, at(100), 1).await;
    assert_eq!(due(at(100)).await, [(Lane::MAIL, 1), (Lane::ORDERS, 1)]);
}

async fn waits_and_the_flow_are_seen_by_lane(db: Db) {
    let store = db.open().await;
    assert_eq!(store.depth_by_lane(at(1)).await.unwrap(), []);
    assert_eq!(store.recent_by_lane(at(0), 10).await.unwrap(), []);
    let (mut early, mut late) = (effect(1), effect(2));
    (early.run_at, late.run_at) = (at(40), at(60));
    enqueue(&store, [early, late]).await;
    let depth = async |now| -> Vec<_> {
        let found = store.depth_by_lane(now).await.unwrap();
        found.into_iter().map(|one| (one.lane, one.due, one.oldest)).collect()
    };
    assert_eq!(depth(at(50)).await, [(Lane::ORDERS, 1, at(40))]);
    assert_eq!(depth(at(100)).await, [(Lane::ORDERS, 2, at(40))]);
    claim(&store, at(100), 1).await;
    assert_eq!(depth(at(100)).await, [(Lane::ORDERS, 1, at(60))]);
    let recent = async |since, look| -> Vec<_> {
        let found = store.recent_by_lane(since, look).await.unwrap();
        found.into_iter().map(|one| (one.lane, one.status, one.count)).collect()
    };
    // What is under way is seen however long it has been; what waits, if it changed lately.
    assert_eq!(recent(at(1000), 10).await, [(Lane::ORDERS, Status::Sending, 1)]);
    // The newest only: the one that was claimed is older.
    assert_eq!(recent(at(1000), 1).await, []);
}

async fn a_look_goes_back_as_far_as_it_may(db: Db) {
    let store = db.open().await;
    assert_eq!(store.effect_before(None, 0).await.unwrap(), None);
    enqueue(&store, (1..=9).map(effect)).await;
    assert_eq!(store.effect_before(None, 0).await.unwrap(), Some(id(9)));
    assert_eq!(store.effect_before(None, 3).await.unwrap(), Some(id(6)));
    assert_eq!(store.effect_before(Some(id(6)), 3).await.unwrap(), Some(id(2)));
    assert_eq!(store.effect_before(Some(id(3)), 3).await.unwrap(), None, "that is everything");
    let near = EffectFilter { since: Some(id(6)), before: Some(id(8)), ..EffectFilter::default() };
    let near = store.effects(&near, 9).await.unwrap();
    assert_eq!(near.iter().map(|row| row.id).collect::<Vec<_>>(), [id(7), id(6)]);
    assert_eq!(store.message_before(None, 3).await.unwrap(), None);
}

async fn counting_ends_at_its_limit(db: Db) {
    let store = db.open().await;
    for what in [
        Counted::OpenCases,
        Counted::FiringAlerts,
        Counted::AbortedEffects,
        Counted::DeadLetters,
        Counted::FailedWebhooks,
        Counted::PaymentsInDoubt,
    ] {
        assert_eq!(store.counted(what, 5).await.unwrap(), 0, "{what:?}");
    }
    enqueue(&store, (1..=7).map(effect)).await;
    let held = claim(&store, at(1), 7).await;
    done(&store, held.iter().map(|effect| abort(lease(effect), false, at(2)))).await;
    assert_eq!(store.counted(Counted::AbortedEffects, 5).await.unwrap(), 5);
    assert_eq!(store.counted(Counted::AbortedEffects, 50).await.unwrap(), 7);
    assert_eq!(store.races(&RaceFilter::default(), 5).await.unwrap(), []);
}

async fn the_newest_row_of_every_table_is_told(db: Db) {
    let store = db.open().await;
    let empty = store.newest().await.unwrap();
    assert!(empty.iter().all(|newest| newest.id.is_none()), "{empty:?}");
    enqueue(&store, [effect(2), effect(1)]).await;
    let found = store.newest().await.unwrap();
    let outbox: Vec<Option<Uuid>> =
        found.iter().filter(|newest| newest.table == "outbox").map(|newest| newest.id).collect();
    assert_eq!(outbox, [Some(id(2).0)]);
}
