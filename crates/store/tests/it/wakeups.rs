//! Wake-ups: what this process has committed, it knows at once.

use tashika_domain::{Lane, NewEffect, Write};
use tashika_store::{Dialect, Store};

use crate::support::*;

on_both!(
    a_commit_marks_the_lanes_that_have_work,
    a_commit_tells_when_the_next_is_due,
    what_was_not_committed_wakes_nobody,
    what_comes_back_is_told,
);

/// A lane that nobody else marks.
fn invoice(number: u64) -> NewEffect {
    let lane = Lane::parse("invoices").expect("a name");
    NewEffect { lane, ..effect(number) }
}

/// A store that will not wake anybody by itself any more.
async fn quiet(db: &Db) -> Store {
    let store = db.open().await;
    if db.dialect() == Dialect::Postgres {
        listening(&store).await;
    }
    store
}

async fn a_commit_marks_the_lanes_that_have_work(db: Db) {
    let store = quiet(&db).await;
    let wakeups = store.wakeups();
    enqueue(&store, [invoice(1), NewEffect { lane: Lane::MAIL, ..effect(2) }]).await;
    assert_eq!(
        wakeups.take().into_iter().collect::<Vec<_>>(),
        [invoice(1).lane, Lane::MAIL],
        "before the commit returns"
    );
    soon("the waiting dispatcher", wakeups.wait()).await;
}

async fn a_commit_tells_when_the_next_is_due(db: Db) {
    let store = quiet(&db).await;
    let wakeups = store.wakeups();
    assert_eq!(wakeups.next_due(), None);
    enqueue(&store, [NewEffect { run_at: at(50), ..invoice(1) }]).await;
    assert_eq!(wakeups.next_due(), Some(at(50)));
    enqueue(&store, [NewEffect { run_at: at(60), ..invoice(2) }]).await;
    enqueue(&store, [NewEffect { run_at: at(40), ..invoice(3) }]).await;
    soon("the waiting dispatcher", wakeups.wait()).await;
    assert_eq!(wakeups.next_due(), Some(at(40)));
    assert!(wakeups.take().is_empty());
    assert!(!wakeups.take_due(millis(39_999)));
    assert!(wakeups.take_due(at(40)));
    assert!(!wakeups.take_due(at(100)), "told once");
}

async fn what_was_not_committed_wakes_nobody(db: Db) {
    let store = db.open().await;
    enqueue(&store, [NewEffect { key: Some("k".into()), ..invoice(1) }]).await;
    drop(store);
    let store = quiet(&db).await;
    let again = NewEffect { key: Some("k".into()), ..invoice(2) };
    let taken = Said::Taken(tashika_store::Key::Effect);
    assert_eq!(commit(&store, [Write::Enqueue(again)]).await, taken);
    assert!(store.wakeups().take().is_empty());
    assert_eq!(store.wakeups().next_due(), None);
}

async fn what_comes_back_is_told(db: Db) {
    let store = quiet(&db).await;
    enqueue(&store, (1..=3).map(invoice)).await;
    let held = claim_as(&store, &invoice(1).lane, "w", at(1), 9).await;
    let wakeups = store.wakeups();
    let told = |write| {
        let (store, wakeups) = (&store, &wakeups);
        async move {
            done(store, [write]).await;
            let due = wakeups.next_due();
            wakeups.take_due(at(FOREVER));
            due
        }
    };
    assert_eq!(told(retry(lease(&held[0]), at(30), at(2))).await, Some(at(30)));
    assert_eq!(told(release(lease(&held[1]), at(3))).await, Some(at(3)));
    assert_eq!(told(abort(lease(&held[2]), false, at(4))).await, None);
    assert_eq!(told(requeue(id(3), true, at(5))).await, Some(at(5)));
}
