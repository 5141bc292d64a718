//! `claim`: one worker at a time, the longest due first.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tashika_domain::effect::{EffectId, NewEffect};
use tashika_domain::{Lane, Status, Write};
use tashika_store::Store;

use crate::support::*;

on_both!(
    the_longest_due_come_first,
    equally_due_come_in_the_order_of_their_ids,
    what_is_not_due_is_left_alone,
    failed_effects_are_claimed_when_their_backoff_is_over,
    what_is_settled_or_held_is_left_alone,
    lanes_are_apart,
    a_claim_locks_and_counts,
    the_limit_is_kept,
    a_late_enqueue_of_the_past_is_found,
    claims_at_once_never_share_an_effect,
    claimers_and_settlers_at_once_do_every_effect_once,
);

async fn the_longest_due_come_first(db: Db) {
    let store = db.open().await;
    let due = [(1, 30), (2, 10), (3, 20), (4, 10), (5, 0)];
    enqueue(&store, due.map(|(n, run)| NewEffect { run_at: at(run), ..effect(n) })).await;
    assert_eq!(ids(&claim(&store, at(60), 2).await), [5, 2].map(id));
    assert_eq!(ids(&claim(&store, at(60), 9).await), [4, 3, 1].map(id));
}

async fn equally_due_come_in_the_order_of_their_ids(db: Db) {
    let store = db.open().await;
    enqueue(&store, [4, 2, 5, 1, 3].map(effect)).await;
    assert_eq!(ids(&claim(&store, at(0), 3).await), [1, 2, 3].map(id));
    assert_eq!(ids(&claim(&store, at(0), 3).await), [4, 5].map(id));
    assert_eq!(claim(&store, at(0), 3).await, []);
}

async fn what_is_not_due_is_left_alone(db: Db) {
    let store = db.open().await;
    enqueue(&store, [NewEffect { run_at: at(10), ..effect(1) }]).await;
    assert_eq!(claim(&store, millis(9_999), 9).await, []);
    assert_eq!(row(&store, id(1)).await.status, Status::Pending);
    assert_eq!(ids(&claim(&store, at(10), 9).await), [id(1)]);
}

async fn failed_effects_are_claimed_when_their_backoff_is_over(db: Db) {
    let store = db.open().await;
    let held = held(&store, 1).await;
    done(&store, [retry(held, at(6), at(1))]).await;
    let failed = row(&store, id(1)).await;
    assert_eq!((failed.status, failed.attempts, failed.next_run_at), (Status::Failed, 1, at(6)));
    assert_eq!(claim(&store, millis(5_999), 9).await, []);
    let again = claim(&store, at(6), 9).await.remove(0);
    assert_eq!((again.id, again.attempts, again.fence, again.run_at), (id(1), 1, 2, at(6)));
}

async fn what_is_settled_or_held_is_left_alone(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=3).map(effect)).await;
    let claimed = claim(&store, at(0), 9).await;
    done(&store, [succeed(lease(&claimed[0]), at(1)), abort(lease(&claimed[1]), false, at(1))])
        .await;
    assert_eq!(claim(&store, at(FOREVER), 9).await, []);
}

async fn lanes_are_apart(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1), NewEffect { lane: Lane::MAIL, ..effect(2) }]).await;
    assert_eq!(claim_as(&store, &Lane::RENDERS, "w", at(1), 9).await, []);
    assert_eq!(ids(&claim_as(&store, &Lane::MAIL, "w", at(1), 9).await), [id(2)]);
    assert_eq!(row(&store, id(1)).await.status, Status::Pending);
    assert_eq!(ids(&claim_as(&store, &Lane::ORDERS, "w", at(1), 9).await), [id(1)]);
}

async fn a_claim_locks_and_counts(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    for round in 1..=3 {
        let worker = format!("host:{round}");
        let claimed = claim_as(&store, &Lane::ORDERS, &worker, at(round), 9).await;
        assert_eq!(claimed[0].fence, round);
        let held = row(&store, id(1)).await;
        assert_eq!((held.status, held.fence), (Status::Sending, round));
        assert_eq!((held.locked_by, held.locked_at), (Some(worker), Some(at(round))));
        assert_eq!(held.updated_at, at(round));
        done(&store, [release(lease(&claimed[0]), at(round))]).await;
        let free = row(&store, id(1)).await;
        assert_eq!((free.status, free.fence), (Status::Pending, round));
        assert_eq!((free.locked_by, free.locked_at), (None, None));
    }
}

async fn the_limit_is_kept(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=10).map(effect)).await;
    assert_eq!(claim(&store, at(1), 0).await, []);
    assert_eq!(claim(&store, at(1), 4).await.len(), 4);
    assert_eq!(claim(&store, at(1), usize::MAX).await.len(), 6);
}

/// An effect may be due before others that were claimed long ago.
async fn a_late_enqueue_of_the_past_is_found(db: Db) {
    let store = db.open().await;
    enqueue(&store, [NewEffect { run_at: at(100), created_at: at(100), ..effect(1) }]).await;
    assert_eq!(claim(&store, at(1000), 9).await.len(), 1);
    assert_eq!(claim(&store, at(1000), 9).await.len(), 0);
    enqueue(&store, [NewEffect { run_at: at(5), created_at: at(1000), ..effect(2) }]).await;
    assert_eq!(ids(&claim(&store, at(1000), 9).await), [id(2)]);
}

/// Several processes, several tasks in each, small bites.
async fn claims_at_once_never_share_an_effect(db: Db) {
    let count = 1500;
    let stores = [db.open().await, db.open().await, db.open().await];
    enqueue(&stores[0], (0..count).map(effect)).await;
    let workers = (0..6).map(|n| {
        let store = stores[n % 3].clone();
        tokio::spawn(async move {
            let worker = format!("host:{n}");
            let mut mine = Vec::new();
            loop {
                let got = claim_as(&store, &Lane::ORDERS, &worker, at(1), 7).await;
                if got.is_empty() {
                    // Others may hold rows for a moment that they do not keep; the count decides.
                    return (worker, mine);
                }
                mine.extend(ids(&got));
            }
        })
    });
    let mut owners: BTreeMap<EffectId, String> = BTreeMap::new();
    for worker in join_all(workers).await {
        let (worker, mine) = worker.unwrap();
        for id in mine {
            assert_eq!(owners.insert(id, worker.clone()), None, "{id} was claimed twice");
        }
    }
    assert_eq!(owners.len() as u64, count);
    for row in all(&stores[0]).await {
        assert_eq!((row.locked_by.as_ref(), row.fence), (owners.get(&row.id), 1));
    }
}

/// Enqueue, claim and settle all at the same time: nothing is lost, nothing is done twice.
async fn claimers_and_settlers_at_once_do_every_effect_once(db: Db) {
    let count: u64 = 600;
    let stores = [db.open().await, db.open().await];
    let producer = async |store: Store, first: u64| {
        for n in first..first + count / 2 {
            enqueue(&store, [effect(n)]).await;
        }
    };
    let producers = async {
        tokio::join!(producer(stores[0].clone(), 0), producer(stores[1].clone(), count / 2));
    };
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let (store, tell) = (stores[n % 2].clone(), tell.clone());
            tokio::spawn(async move {
                loop {
                    for effect in claim(&store, at(1), 5).await {
                        done(&store, [succeed(lease(&effect), at(2))]).await;
                        if tell.send(effect.id).is_err() {
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    producers.await;
    let mut finished = Vec::new();
    while (finished.len() as u64) < count {
        finished.push(soon("every effect is done", told.recv()).await.unwrap());
    }
    for worker in workers {
        worker.abort();
    }
    finished.sort();
    finished.dedup();
    assert_eq!(finished.len() as u64, count);
    let settled = all(&stores[0]).await;
    assert!(settled.iter().all(|row| row.status == Status::Succeeded && row.fence == 1));
    let left = commit(&stores[0], [Write::Enqueue(effect(9999))]).await;
    assert_eq!(left, Said::Done, "the stores still work");
}
