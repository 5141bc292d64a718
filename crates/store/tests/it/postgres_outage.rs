//! The database goes away and comes back: quick answers, true answers, and no restart.

use std::time::Duration;

use futures_util::future::join_all;
use tashika_domain::{Lane, Write};
use tashika_store::{Claim, Store, StoreError, Written};
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_told_quickly_and_found_again() {
    let mut cluster = cluster();
    let store = Store::open(cluster.url(), 4).await.unwrap();
    listening(&store).await;
    enqueue(&store, (1..=3).map(effect)).await;
    let held = lease(&claim(&store, at(1), 1).await[0]);
    store.wakeups().take();

    tokio::task::block_in_place(|| cluster.stop_immediately());
    for n in 0..5 {
        let patience = Duration::from_secs(5);
        let answers = async {
            let commit = commit(&store, [Write::Enqueue(effect(100 + n))]).await;
            assert!(matches!(commit, Said::Unavailable(_)), "{commit:?}");
            let claim = Claim { lane: &Lane::ORDERS, worker: "w", now: at(1), limit: 9 };
            let unavailable = |error| matches!(error, StoreError::Unavailable { .. });
            assert!(unavailable(store.claim(claim).await.unwrap_err()));
            assert!(unavailable(store.effect(id(1)).await.unwrap_err()));
            assert!(unavailable(store.renew(vec![held], at(2)).await.unwrap_err()));
            assert!(unavailable(store.probe(at(2)).await.unwrap_err()));
        };
        tokio::time::timeout(patience, answers).await.expect("answers within five seconds");
    }

    tokio::task::block_in_place(|| cluster.restart());
    // The listener is back when it marks the lanes.
    listening(&store).await;
    assert_eq!(all(&store).await.len(), 3, "what was acknowledged, and nothing else");
    done(&store, [succeed(held, at(2)), Write::Enqueue(effect(4))]).await;
    assert_eq!(ids(&claim(&store, at(2), 9).await), [2, 3, 4].map(id));
    store.probe(at(3)).await.unwrap();

    store.wakeups().take();
    let client = connect(cluster.url()).await;
    client.query("select tashika.enqueue('invoices', 'i', null, '{}')", &[]).await.unwrap();
    woken_for(&store, &Lane::parse("invoices").unwrap()).await;
}

/// Everybody writes while the server crashes. Each answer must be true afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_under_load_leaves_true_answers() {
    let mut cluster = cluster();
    let store = Store::open(cluster.url(), 4).await.unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let callers: Vec<_> = (0..64_u64)
        .map(|caller| {
            let (store, tell) = (store.clone(), tell.clone());
            tokio::spawn(async move {
                let mut n = caller;
                loop {
                    let key = format!("k{n}");
                    let request =
                        [Write::LedgerAccept(accept(&key)), Write::Enqueue(keyed(n, &key))];
                    // Some with one write, some with two: both ways to commit.
                    let said = commit(&store, request.into_iter().skip((n % 2) as usize)).await;
                    if tell.send((n, said)).is_err() {
                        return;
                    }
                    n += 64;
                }
            })
        })
        .collect();
    drop(tell);
    let mut answers = Vec::new();
    for _ in 0..3 {
        collect(&mut told, &mut answers, 500, |said| *said == Said::Done).await;
        tokio::task::block_in_place(|| cluster.stop_immediately());
        collect(&mut told, &mut answers, 500, |said| *said != Said::Done).await;
        tokio::task::block_in_place(|| cluster.restart());
    }
    collect(&mut told, &mut answers, 500, |said| *said == Said::Done).await;
    told.close();
    while let Some(answer) = told.recv().await {
        answers.push(answer);
    }
    for caller in callers {
        soon("the caller ends", caller).await.unwrap();
    }
    for (n, said) in answers {
        let there = store.effect(id(n)).await.unwrap().is_some();
        match said {
            Said::Done => assert!(there, "{n} was acknowledged and is lost"),
            Said::Unavailable(Written::No) => {
                assert!(!there, "{n} was said not to be written, and is there");
            }
            Said::Unavailable(Written::Unknown) => {}
            other => panic!("{n}: {other:?}"),
        }
    }
}

async fn collect(
    told: &mut mpsc::UnboundedReceiver<(u64, Said)>,
    answers: &mut Vec<(u64, Said)>,
    mut count: usize,
    wanted: impl Fn(&Said) -> bool,
) {
    while count > 0 {
        let answer = soon("answers go on", told.recv()).await.expect("the callers live");
        count -= usize::from(wanted(&answer.1));
        answers.push(answer);
    }
}

/// A server that stands still has perhaps written, perhaps not. The clock of the runtime is turned
/// forward, so that nobody has to wait for the patience of the store to end.
#[tokio::test]
async fn a_server_that_stands_still_leaves_the_fate_unknown() {
    let mut cluster = cluster();
    let store = Store::open(cluster.url(), 4).await.unwrap();
    enqueue(&store, [effect(1)]).await;
    // Connections are there: what is tried is to write, not to connect.
    for probe in join_all((0..4).map(|_| store.probe(at(1)))).await {
        probe.unwrap();
    }
    cluster.freeze();
    tokio::time::pause();
    let writes = (2..5).map(|n| commit(&store, [Write::Enqueue(effect(n))]));
    let told = join_all(writes).await;
    assert_eq!(told, [const { Said::Unavailable(Written::Unknown) }; 3]);
    cluster.thaw();
    tokio::time::resume();
    enqueue(&store, [effect(5)]).await;
    let there = all(&store).await;
    assert!(there.iter().any(|row| row.id == id(1)) && there.iter().any(|row| row.id == id(5)));
}

/// A session of somebody else holds a row that one of us wants. The others must not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_locked_by_a_stranger_stops_only_its_own_writer() {
    let db = Db::postgres();
    let store = db.open().await;
    let held = held(&store, 1).await;
    let mut client = connect(&db.url()).await;
    let work = client.transaction().await.unwrap();
    work.execute("select * from outbox for update", &[]).await.unwrap();
    let sql = "select tashika.enqueue('orders', 'order', 'k', '{}')";
    work.execute(sql, &[]).await.unwrap();

    let stuck = [
        changes([succeed(held, at(2))]),
        changes([Write::LedgerAccept(accept("k")), Write::Enqueue(keyed(2, "k"))]),
    ];
    let stuck: Vec<_> = stuck
        .into_iter()
        .map(|changes| {
            let store = store.clone();
            tokio::spawn(async move { said(&store.commit(changes).await) })
        })
        .collect();
    let neighbours = (10..200).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { commit(&store, [Write::Enqueue(effect(n))]).await })
    });
    for neighbour in join_all(neighbours).await {
        assert_eq!(neighbour.unwrap(), Said::Done);
    }
    for stuck in stuck {
        assert_eq!(stuck.await.unwrap(), Said::Unavailable(Written::No));
    }
    work.rollback().await.unwrap();
    done(&store, [succeed(held, at(2))]).await;
}

/// A store that is dropped takes its connections with it, however much its listener still hears.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_store_leaves_no_connections() {
    let db = Db::postgres();
    let store = db.open().await;
    listening(&store).await;
    enqueue(&store, [effect(1)]).await;
    drop(store);
    let client = connect(&db.url()).await;
    let count = "select count(*), pg_notify('tashika_outbox', 'orders 0') from pg_stat_activity
                  where datname = current_database() and application_name = 'tashika'";
    let gone = async {
        while client.query_one(count, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the connections end", gone).await;
}
