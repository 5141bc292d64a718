//! Many callers at the same moment: they share a flush, and nothing else.

use std::sync::Arc;

use futures_util::future::join_all;
use tashika_domain::changes::{Lease, LedgerTouch};
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::{Changes, Status, Write};
use tashika_store::{Dialect, Key, Store, Written};

use crate::support::*;

on_both!(
    losers_in_a_group_fail_alone,
    who_fails_late_leaves_nothing_behind,
    a_refused_statement_fails_alone,
    one_key_has_one_winner,
    one_request_has_one_winner,
    keys_in_opposite_orders_end_in_one_winner_each,
    the_newer_fence_wins_whoever_comes_first,
    a_thousand_callers_are_all_answered,
    a_lease_ends_once_whoever_ends_it,
);

/// Runs all of them at once and returns what each was told, in their order.
async fn at_once(store: &Store, all: Vec<Changes>) -> Vec<Said> {
    let told = all.into_iter().map(|changes| {
        let store = store.clone();
        tokio::spawn(async move { said(&store.commit(changes).await) })
    });
    join_all(told).await.into_iter().map(|told| told.expect("no panic")).collect()
}

/// 40 leases, each of them once lost and taken again: fence 1 is stale, fence 2 holds.
async fn leases(store: &Store, first: u64, count: u64) -> Vec<Lease> {
    enqueue(store, (first..first + count).map(effect)).await;
    let claimed = claim(store, at(1), 1000).await;
    assert_eq!(claimed.len() as u64, count);
    done(store, claimed.iter().map(|effect| release(lease(effect), at(1)))).await;
    claim(store, at(2), 1000).await.iter().map(lease).collect()
}

fn stale(lease: Lease) -> Lease {
    Lease { fence: lease.fence - 1, ..lease }
}

async fn losers_in_a_group_fail_alone(db: Db) {
    let store = db.open().await;
    let leases = leases(&store, 1000, 40).await;
    enqueue(&store, [keyed(1, "taken")]).await;
    done(&store, [Write::LedgerAccept(accept("taken"))]).await;
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for (lease, n) in leases.iter().zip(0_u64..) {
        let key = format!("k{n}");
        let number = 10 + n;
        let (writes, result): (Vec<Write>, Said) = match n % 8 {
            0 => (vec![Write::Enqueue(effect(number))], Said::Done),
            1 => (vec![Write::Enqueue(keyed(number, "taken"))], Said::Taken(Key::Effect)),
            2 => (vec![succeed(*lease, at(3))], Said::Done),
            3 => (vec![succeed(stale(*lease), at(3))], Said::Stale(lease.id)),
            4 => (
                vec![Write::LedgerAccept(accept(&key)), Write::Enqueue(keyed(number, &key))],
                Said::Done,
            ),
            5 => (
                vec![Write::LedgerAccept(accept("taken")), Write::Enqueue(keyed(number, &key))],
                Said::Taken(Key::Ledger),
            ),
            6 => (vec![refused(*lease)], Said::Rejected),
            _ => (
                vec![
                    Write::LedgerSettle(ended(&key, LedgerStatus::Succeeded, at(3))),
                    succeed(*lease, at(3)),
                    Write::Attempt(attempt(*lease)),
                ],
                Said::Done,
            ),
        };
        all.push(changes(writes));
        expected.push(result);
    }
    assert_eq!(at_once(&store, all).await, expected);
    drop(store);

    let store = db.open().await;
    for (lease, n) in leases.iter().zip(0_u64..) {
        let settled = row(&store, lease.id).await.status == Status::Succeeded;
        assert_eq!(settled, matches!(n % 8, 2 | 7), "lease {n}");
        let enqueued = store.effect(id(10 + n)).await.unwrap().is_some();
        assert_eq!(enqueued, matches!(n % 8, 0 | 4), "effect {n}");
        let entry = store.ledger_entry(&ledger_key(&format!("k{n}"))).await.unwrap();
        assert_eq!(entry.is_some(), matches!(n % 8, 4 | 7), "ledger {n}");
    }
}

async fn who_fails_late_leaves_nothing_behind(db: Db) {
    let store = db.open().await;
    let leases = leases(&store, 1000, 60).await;
    enqueue(&store, [keyed(1, "taken")]).await;
    let mut all = Vec::new();
    let mut expected = Vec::new();
    for (lease, n) in leases.iter().zip(0_u64..) {
        let key = format!("k{n}");
        let (last, result) = match n % 3 {
            0 => (Write::Enqueue(keyed(10 + n, &key)), Said::Done),
            1 => (Write::Enqueue(keyed(10 + n, "taken")), Said::Taken(Key::Effect)),
            _ => (refused(*lease), Said::Rejected),
        };
        all.push(changes([Write::LedgerAccept(accept(&key)), last]));
        expected.push(result);
    }
    assert_eq!(at_once(&store, all).await, expected);
    for (n, result) in expected.into_iter().enumerate() {
        let again = match result {
            Said::Done => Said::Taken(Key::Ledger),
            _ => Said::Done,
        };
        let accepted = commit(&store, [Write::LedgerAccept(accept(&format!("k{n}")))]).await;
        assert_eq!(accepted, again, "k{n}");
    }
}

async fn a_refused_statement_fails_alone(db: Db) {
    let store = db.open().await;
    let leases = leases(&store, 1000, 3).await;
    let mut all: Vec<Changes> = (0..200).map(|n| Write::Enqueue(effect(n)).into()).collect();
    let mut expected = vec![Said::Done; 200];
    for (lease, position) in leases.iter().zip([0, 100, 202]) {
        all.insert(position, refused(*lease).into());
        expected.insert(position, Said::Rejected);
    }
    if db.dialect() == Dialect::Postgres {
        // SQLite keeps JSON as text and does not look into it.
        let mut unreadable = effect(5000);
        unreadable.payload = "{".into();
        all.insert(150, Write::Enqueue(unreadable).into());
        expected.insert(150, Said::Rejected);
    }
    assert_eq!(at_once(&store, all).await, expected);
    assert_eq!(all_but(&store, &leases).await, 200);
}

async fn all_but(store: &Store, leases: &[Lease]) -> usize {
    all(store).await.iter().filter(|row| leases.iter().all(|lease| lease.id != row.id)).count()
}

async fn one_key_has_one_winner(db: Db) {
    let store = db.open().await;
    let wishes = (0..50).map(|n| Write::Enqueue(keyed(n, "k")).into()).collect();
    let told = at_once(&store, wishes).await;
    assert_eq!(told.iter().filter(|said| **said == Said::Done).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|said| **said == Said::Taken(Key::Effect)).count(), 49);
    let winner = told.iter().position(|said| *said == Said::Done).unwrap();
    assert_eq!(all(&store).await.iter().map(|r| r.id).collect::<Vec<_>>(), [id(winner as u64)]);
}

/// As an API does it: the ledger and the effect together, from two processes.
async fn one_request_has_one_winner(db: Db) {
    let stores = [db.open().await, db.open().await];
    let told = join_all((0..64).zip(stores.iter().cycle()).map(|(n, store)| {
        let store = store.clone();
        tokio::spawn(async move {
            let writes = [Write::LedgerAccept(accept("k")), Write::Enqueue(keyed(n, "k"))];
            commit(&store, writes).await
        })
    }))
    .await;
    let told: Vec<Said> = told.into_iter().map(|told| told.unwrap()).collect();
    assert_eq!(told.iter().filter(|said| **said == Said::Done).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|said| **said == Said::Taken(Key::Ledger)).count(), 63);
    assert_eq!(all(&stores[0]).await.len(), 1);
}

/// Two processes that want the same keys in opposite orders wait for each other.
async fn keys_in_opposite_orders_end_in_one_winner_each(db: Db) {
    let stores = [db.open().await, db.open().await];
    for round in 0..8_u64 {
        let key = |n: u64| format!("r{round} k{n}");
        let number = |store: u64, n: u64| 10_000 * (store + 1) + 100 * round + n;
        let forward = (0..20).map(|n| Write::Enqueue(keyed(number(0, n), &key(n))));
        let backward = (0..20).rev().map(|n| Write::Enqueue(keyed(number(1, n), &key(n))));
        let (one, two) = tokio::join!(commit(&stores[0], forward), commit(&stores[1], backward));
        let taken = Said::Taken(Key::Effect);
        assert!(
            (one == Said::Done && two == taken) || (one == taken && two == Said::Done),
            "{one:?}, {two:?}"
        );
    }
    assert_eq!(all(&stores[0]).await.len(), 8 * 20);
}

async fn the_newer_fence_wins_whoever_comes_first(db: Db) {
    let store = db.open().await;
    let leases = leases(&store, 1, 40).await;
    let both = leases.iter().zip(0..).flat_map(|(lease, n)| {
        let mut pair =
            [(succeed(stale(*lease), at(3)), false), (abort(*lease, false, at(3)), true)];
        if n % 2 == 0 {
            pair.reverse();
        }
        pair
    });
    let (writes, winners): (Vec<Write>, Vec<bool>) = both.unzip();
    let told = at_once(&store, writes.into_iter().map(Changes::from).collect()).await;
    for (said, wins) in told.iter().zip(winners) {
        assert_eq!(*said == Said::Done, wins, "{said:?}");
    }
    for lease in leases {
        assert_eq!(row(&store, lease.id).await.status, Status::Aborted);
    }
}

async fn a_thousand_callers_are_all_answered(db: Db) {
    let store = Arc::new(db.open().await);
    let wishes = (0..1000).map(|n| Write::Enqueue(effect(n)).into()).collect();
    let told = at_once(&store, wishes).await;
    assert!(told.iter().all(|said| *said == Said::Done));
    assert_eq!(store.waiting_count().await.unwrap(), 1000);
}

/// Whoever is told that the database was not available, and that nothing was written, asks again: on a machine with much
/// else to do a lock may last longer than anybody waits for it.
async fn insist(store: &Store, write: Write) -> Said {
    loop {
        let said = commit(store, [write.clone()]).await;
        if said != Said::Unavailable(Written::No) {
            return said;
        }
    }
}

/// Six workers in two processes; each end of a lease is written twice at the same moment.
async fn a_lease_ends_once_whoever_ends_it(db: Db) {
    let stores = [db.open().await, db.open().await];
    enqueue(&stores[0], (0..30).map(effect)).await;
    let workers = (0..6).map(|worker| {
        let [one, two] = stores.clone();
        tokio::spawn(async move {
            let mut claims = Vec::new();
            for round in 0..40 {
                for effect in claim(if worker % 2 == 0 { &one } else { &two }, at(1), 4).await {
                    let held = lease(&effect);
                    claims.push(held.id);
                    let ends = [
                        release(held, at(1)),
                        retry(held, at(1), at(1)),
                        abort(held, round % 2 == 0, at(1)),
                    ];
                    let (first, second) = (ends[round % 3].clone(), ends[(round + 1) % 3].clone());
                    let (first, second) = tokio::join!(insist(&one, first), insist(&two, second));
                    let stale = Said::Stale(held.id);
                    let once = (first == Said::Done && second == stale)
                        || (first == stale && second == Said::Done);
                    assert!(once, "{first:?}, {second:?}");
                    // Brings it back if it was given up; otherwise there is nothing to bring back.
                    let back = insist(&one, requeue(held.id, true, at(1))).await;
                    assert!(back == Said::Done || back == stale, "{back:?}");
                }
            }
            claims
        })
    });
    let mut fences = std::collections::BTreeMap::new();
    for claims in join_all(workers).await {
        for id in claims.unwrap() {
            *fences.entry(id).or_insert(0) += 1;
        }
    }
    for row in all(&stores[0]).await {
        assert_eq!(Some(&row.fence), fences.get(&row.id), "one fence for each claim");
        assert_ne!(row.status, Status::Sending);
    }
}

mod changes_of_one_row_keep_their_order {
    use super::*;

    /// One thread: everything is in the queue before anybody looks into it, and so in one group.
    #[tokio::test]
    async fn sqlite() {
        case(Db::sqlite()).await;
    }

    #[tokio::test]
    async fn postgres() {
        case(Db::postgres()).await;
    }

    /// Each change expects what the one before has left behind.
    async fn case(db: Db) {
        let store = db.open().await;
        let life = |key: &str| -> Vec<Changes> {
            let touch = LedgerTouch { key: ledger_key(key), now: at(2) };
            vec![
                Write::LedgerAccept(accept(key)).into(),
                changes([Write::LedgerSettle(ended(key, LedgerStatus::Failed, at(1)))]),
                changes([Write::LedgerReopen(touch), Write::Enqueue(keyed_by(key))]),
                Write::LedgerSettle(ended(key, LedgerStatus::Succeeded, at(3))).into(),
            ]
        };
        let keys: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
        let all: Vec<Changes> = keys.iter().flat_map(|key| life(key)).collect();
        let told = join_all(all.into_iter().map(|changes| store.commit(changes))).await;
        for result in told {
            result.unwrap();
        }
        for key in keys {
            let entry = store.ledger_entry(&ledger_key(&key)).await.unwrap().unwrap();
            let seen = (entry.status, entry.first_seen_at, entry.last_seen_at);
            assert_eq!(seen, (LedgerStatus::Succeeded, at(0), at(3)));
        }
    }

    fn keyed_by(key: &str) -> tashika_domain::NewEffect {
        let number = key[1..].parse().expect("a number");
        keyed(number, key)
    }
}
