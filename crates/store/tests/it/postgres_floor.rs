//! The floor of the claim: what lies below it is announced, or looked for, but never lost.

use tashika_domain::effect::{EffectId, NewEffect};
use tashika_domain::{Lane, Timestamp};
use tashika_store::Store;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::*;

fn lane() -> Lane {
    Lane::parse("invoices").expect("a name")
}

async fn claim_invoices(store: &Store, now: Timestamp, limit: usize) -> Vec<EffectId> {
    ids(&claim_as(store, &lane(), "w", now, limit).await)
}

fn invoice(number: u64, run_at: Timestamp) -> NewEffect {
    NewEffect { lane: lane(), run_at, created_at: run_at, ..effect(number) }
}

/// A moment well after everything that the database itself has dated.
async fn much_later(client: &Client) -> Timestamp {
    let micros = "select (extract(epoch from now() + interval '1 hour') * 1000000)::bigint";
    Timestamp::from_micros(client.query_one(micros, &[]).await.expect("the time").get(0))
}

/// Claims something that is due at `now`, and then finds nothing more: the floor is close to `now`.
async fn raise_the_floor(store: &Store, now: Timestamp) {
    enqueue(store, [invoice(now.as_micros().cast_unsigned() / 1000 % 1_000_000, now)]).await;
    assert_eq!(claim_invoices(store, now, 9).await.len(), 1);
    assert_eq!(claim_invoices(store, now, 9).await, []);
}

/// Claims whenever the store is woken, and never otherwise, until there is something.
async fn claimed_when_woken(store: &Store, now: Timestamp) -> Vec<EffectId> {
    let wakeups = store.wakeups();
    loop {
        soon("a wake-up", wakeups.wait()).await;
        wakeups.take();
        let claimed = claim_invoices(store, now, 9).await;
        if !claimed.is_empty() {
            return claimed;
        }
    }
}

/// An application's transaction stays open while the work goes on, and commits late.
#[tokio::test]
async fn a_late_commit_is_announced() {
    let db = Db::postgres();
    let store = db.open().await;
    listening(&store).await;
    let mut client = connect(&db.url()).await;
    let now = much_later(&client).await;
    let work = client.transaction().await.unwrap();
    let sql = "select tashika.enqueue('invoices', 'invoice', null, '{}')";
    let late: Uuid = work.query_one(sql, &[]).await.unwrap().get(0);
    raise_the_floor(&store, now).await;
    work.commit().await.unwrap();
    assert_eq!(claimed_when_woken(&store, now).await, [EffectId(late)]);
}

/// The same where no notification is sent or heard.
#[tokio::test]
async fn a_silent_late_commit_is_looked_for() {
    let db = Db::postgres();
    let store = db.open().await;
    let mut client = connect(&db.url()).await;
    let now = much_later(&client).await;
    let work = client.transaction().await.unwrap();
    let columns = "lane, kind, payload, status, attempts, in_doubt, fence, next_run_at,
                   created_at, updated_at, expires_at";
    let sql = format!(
        "insert into outbox (id, {columns})
         select gen_random_uuid(), 'invoices', 'invoice', '{{}}', 'pending', 0, false, 0,
                now(), now(), now(), now()
           from generate_series(1, 3)"
    );
    work.execute(&sql, &[]).await.unwrap();
    raise_the_floor(&store, now).await;
    work.commit().await.unwrap();
    assert_eq!(claim_invoices(&store, now, 9).await, [], "below the floor");

    assert!(!store.look_back(&Lane::MAIL).await.unwrap(), "lanes are apart");
    store.wakeups().take();
    assert!(store.look_back(&lane()).await.unwrap());
    assert!(store.wakeups().take().contains(&lane()), "looking back wakes the dispatcher");
    // In small bites: the floor must not jump over the rest.
    for _ in 0..3 {
        assert_eq!(claim_invoices(&store, now, 1).await.len(), 1);
    }
    assert!(!store.look_back(&lane()).await.unwrap());
    assert_eq!(claim_invoices(&store, now, 9).await, []);
}

#[tokio::test]
async fn another_process_announces_what_lies_below() {
    let db = Db::postgres();
    let (one, two) = (db.open().await, db.open().await);
    listening(&one).await;
    raise_the_floor(&one, at(1000)).await;
    enqueue(&two, [invoice(1, at(5)), invoice(2, at(6))]).await;
    assert_eq!(claimed_when_woken(&one, at(1000)).await, [id(1), id(2)]);
}

/// Whatever this process wrote itself it finds again, although the moment that stands in the row
/// was read before a commit that took long.
#[tokio::test]
async fn what_comes_back_below_the_floor_is_found() {
    let db = Db::postgres();
    let store = db.open().await;
    enqueue(&store, (1..=3).map(|n| invoice(n, at(1)))).await;
    let held = claim_as(&store, &lane(), "w", at(1), 9).await;
    done(&store, [abort(lease(&held[2]), false, at(2))]).await;
    raise_the_floor(&store, at(1000)).await;
    done(&store, [release(lease(&held[0]), at(5))]).await;
    assert_eq!(claim_invoices(&store, at(1000), 9).await, [id(1)]);
    done(&store, [retry(lease(&held[1]), at(6), at(5))]).await;
    assert_eq!(claim_invoices(&store, at(1000), 9).await, [id(2)]);
    done(&store, [requeue(id(3), true, at(7))]).await;
    assert_eq!(claim_invoices(&store, at(1000), 9).await, [id(3)]);
    let soon_due = NewEffect { created_at: at(7), ..invoice(4, at(8)) };
    enqueue(&store, [soon_due]).await;
    assert_eq!(claim_invoices(&store, at(1000), 9).await, [id(4)]);
}

/// What was announced while the listening connection was gone is found after it is back.
#[tokio::test]
async fn a_listener_that_was_gone_looks_again() {
    let db = Db::postgres();
    let store = db.open().await;
    listening(&store).await;
    let client = connect(&db.url()).await;
    let now = much_later(&client).await;
    raise_the_floor(&store, now).await;
    // The row comes with the end of the listener, and so before its return.
    let missed = "with gone as materialized (
                      select pg_terminate_backend(pid) from pg_stat_activity
                       where datname = current_database() and query like 'listen%')
                  select (select count(*) from gone), tashika.enqueue('invoices', 'i', null, '{}')";
    let row = client.query_one(missed, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1, "one listener");
    assert_eq!(claimed_when_woken(&store, now).await, [EffectId(row.get(1))]);
}
