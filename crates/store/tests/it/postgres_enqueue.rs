//! Enqueueing inside an application's own transaction: by SQL, and from Rust.

use tashika_domain::{Lane, NewEffect, Status, Timestamp};
use tashika_store::{EffectRow, Key, Store, enqueue_in};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::support::*;

/// A lane of the application's own.
fn lane() -> Lane {
    Lane::parse("invoices").expect("a name")
}

async fn by_sql(client: &Client, arguments: &str) -> Uuid {
    let sql = format!("select tashika.enqueue({arguments})");
    client.query_one(&sql, &[]).await.expect("the function takes it").get(0)
}

const INVOICE: &str = r#"'invoices', 'invoice', null, '{"n": 1}'"#;

async fn clock(client: &Client) -> Timestamp {
    let micros = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    Timestamp::from_micros(client.query_one(micros, &[]).await.expect("the time").get(0))
}

#[tokio::test]
async fn the_effect_exists_exactly_if_the_transaction_commits() {
    let db = Db::postgres();
    let store = db.open().await;
    let mut client = connect(&db.url()).await;
    client.batch_execute("create table invoices (n int)").await.unwrap();

    let work = client.transaction().await.unwrap();
    work.execute("insert into invoices values (1)", &[]).await.unwrap();
    let sql = format!("select tashika.enqueue({INVOICE})");
    let first: Uuid = work.query_one(&sql, &[]).await.unwrap().get(0);
    assert!(all(&store).await.is_empty(), "not before the commit");
    work.rollback().await.unwrap();
    assert!(all(&store).await.is_empty(), "nor after a rollback");

    let work = client.transaction().await.unwrap();
    let second: Uuid = work.query_one(&sql, &[]).await.unwrap().get(0);
    work.commit().await.unwrap();
    let rows = all(&store).await;
    assert_eq!(rows.iter().map(|row| row.id.0).collect::<Vec<_>>(), [second]);
    assert_ne!(first, second);
}

#[tokio::test]
async fn the_effect_is_an_effect_like_any_other() {
    let db = Db::postgres();
    let store = db.open().await;
    let client = connect(&db.url()).await;
    let before = clock(&client).await;
    let arguments = r#"'invoices', 'invoice', 'inv-1', '{"n": 1}'"#;
    let id = tashika_domain::EffectId(by_sql(&client, arguments).await);
    let now = clock(&client).await;
    let EffectRow { lane: found, kind, key, status, attempts, in_doubt, fence, .. } =
        row(&store, id).await;
    assert_eq!((found, kind.as_str(), key.as_deref()), (lane(), "invoice", Some("inv-1")));
    assert_eq!((status, attempts, in_doubt, fence), (Status::Pending, 0, false, 0));
    let row = row(&store, id).await;
    assert!(before <= row.created_at && row.created_at <= now && row.next_run_at == row.created_at);
    assert_eq!(row.expires_at.since(row.created_at).as_secs(), 48 * 3600);
    let claimed = claim_as(&store, &lane(), "w", now, 9).await.remove(0);
    assert_eq!((claimed.id, claimed.payload.as_str()), (id, r#"{"n": 1}"#));
    done(&store, [succeed(lease(&claimed), now)]).await;
}

#[tokio::test]
async fn a_commit_wakes_a_waiting_store() {
    let db = Db::postgres();
    let store = db.open().await;
    listening(&store).await;
    let mut client = connect(&db.url()).await;
    let work = client.transaction().await.unwrap();
    work.execute(&format!("select tashika.enqueue({INVOICE})"), &[]).await.unwrap();
    assert!(store.wakeups().take().is_empty());
    work.commit().await.unwrap();
    woken_for(&store, &lane()).await;
    let now = clock(&client).await;
    assert_eq!(claim_as(&store, &lane(), "w", now, 9).await.len(), 1);
}

#[tokio::test]
async fn another_process_is_woken_by_a_commit() {
    let db = Db::postgres();
    let (one, two) = (db.open().await, db.open().await);
    listening(&two).await;
    enqueue(&one, [NewEffect { lane: lane(), ..effect(1) }]).await;
    woken_for(&two, &lane()).await;
}

#[tokio::test]
async fn bad_arguments_are_refused_with_their_name() {
    let db = Db::postgres();
    let store = db.open().await;
    let client = connect(&db.url()).await;
    let long = |n: usize| "x".repeat(n);
    let cases = [
        ("null, 'k', null, '{}'".to_owned(), "lane"),
        ("'', 'k', null, '{}'".to_owned(), "lane"),
        ("'Orders', 'k', null, '{}'".to_owned(), "lane"),
        ("E'orders\\n', 'k', null, '{}'".to_owned(), "lane"),
        ("'9lives', 'k', null, '{}'".to_owned(), "lane"),
        ("'ördres', 'k', null, '{}'".to_owned(), "lane"),
        (format!("'{}', 'k', null, '{{}}'", long(33)), "lane"),
        ("'orders', null, null, '{}'".to_owned(), "kind"),
        ("'orders', '', null, '{}'".to_owned(), "kind"),
        (format!("'orders', '{}', null, '{{}}'", long(65)), "kind"),
        ("'orders', 'k', '', '{}'".to_owned(), "key"),
        (format!("'orders', 'k', '{}', '{{}}'", long(256)), "key"),
        ("'orders', 'k', null, null".to_owned(), "payload"),
    ];
    for (arguments, name) in cases {
        let sql = format!("select tashika.enqueue({arguments})");
        let error = client.query(&sql, &[]).await.map(drop).expect_err(&arguments);
        let error = error.as_db_error().unwrap();
        assert_eq!(*error.code(), SqlState::INVALID_PARAMETER_VALUE, "{arguments}: {error}");
        let begin = format!("tashika.enqueue: {name} must");
        assert!(error.message().starts_with(&begin), "{arguments}: {error}");
    }
    let not_json = client.query("select tashika.enqueue('orders', 'k', null, '{')", &[]).await;
    let code = not_json.map(drop).unwrap_err().code().cloned();
    assert_eq!(code, Some(SqlState::INVALID_TEXT_REPRESENTATION));
    assert!(all(&store).await.is_empty());
    let longest = format!("'{0}', '{1}{1}', '{2}', '1'", long(32), long(32), long(255));
    by_sql(&client, &longest).await;
    assert!(Lane::parse(&long(32)).is_some(), "what the function takes, the store can read");
    assert_eq!(all(&store).await.len(), 1);
}

#[tokio::test]
async fn a_taken_key_returns_its_holder() {
    let db = Db::postgres();
    let store = db.open().await;
    let client = connect(&db.url()).await;
    enqueue(&store, [NewEffect { expires_at: at(FOREVER * 1000), ..keyed(1, "k") }]).await;
    assert_eq!(by_sql(&client, "'orders', 'order', 'k', '{}'").await, id(1).0);
    let other_kind = by_sql(&client, "'orders', 'mail', 'k', '{}'").await;
    assert_ne!(other_kind, id(1).0);
    assert_eq!(by_sql(&client, "'mail', 'mail', 'k', '{}'").await, other_kind);
    assert_eq!(all(&store).await.len(), 2);
}

#[tokio::test]
async fn a_key_in_an_open_transaction_is_waited_for() {
    let db = Db::postgres();
    let store = db.open().await;
    let (mut one, two) = (connect(&db.url()).await, connect(&db.url()).await);
    let work = one.transaction().await.unwrap();
    let sql = "select tashika.enqueue('orders', 'order', 'k', '{}')";
    let holder: Uuid = work.query_one(sql, &[]).await.unwrap().get(0);
    let second = tokio::spawn(async move { by_sql(&two, "'orders', 'order', 'k', '{}'").await });
    let waiting = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'";
    soon("the second waits", async { while db.number(waiting).await == 0 {} }).await;
    work.commit().await.unwrap();
    assert_eq!(second.await.unwrap(), holder);
    assert_eq!(all(&store).await.len(), 1);
}

/// As with every other way to enqueue: what is settled and over does not block its key.
#[tokio::test]
async fn a_key_is_reusable_when_its_effect_is_settled_and_over() {
    let db = Db::postgres();
    let store = db.open().await;
    let mut client = connect(&db.url()).await;
    for (round, by_hand) in [(0, true), (10, false)] {
        let key = format!("k{round}");
        enqueue(&store, [keyed(round, &key)]).await;
        let held = lease(&claim(&store, at(1), 1).await[0]);
        done(&store, [abort(held, true, at(1)), tashika_domain::Write::Attempt(attempt(held))])
            .await;
        db.sql("update outbox set expires_at = now() - interval '1 second'").await.unwrap();
        let new = if by_hand {
            by_sql(&client, &format!(r#"'mail', 'order', '{key}', '{{"second": true}}'"#)).await
        } else {
            let now = clock(&client).await;
            let again = NewEffect {
                lane: Lane::MAIL,
                payload: r#"{"second": true}"#.into(),
                run_at: now,
                created_at: now,
                ..keyed(round + 1, &key)
            };
            let work = client.transaction().await.unwrap();
            enqueue_in(&work, &again).await.unwrap();
            work.commit().await.unwrap();
            again.id.0
        };
        assert_eq!(store.effect(id(round)).await.unwrap(), None);
        let row = row(&store, tashika_domain::EffectId(new)).await;
        assert_eq!((row.status, row.attempts, row.fence), (Status::Pending, 0, 0));
        assert_eq!((row.in_doubt, row.last_error_code, &row.lane), (false, None, &Lane::MAIL));
        let now = clock(&client).await;
        let claimed = claim_as(&store, &Lane::MAIL, "w", now, 9).await.remove(0);
        assert_eq!(claimed.payload, r#"{"second": true}"#);
        done(&store, [succeed(lease(&claimed), now)]).await;
    }
}

#[tokio::test]
async fn a_moment_in_the_future_is_kept_and_one_in_the_past_is_now() {
    let db = Db::postgres();
    let store = db.open().await;
    let client = connect(&db.url()).await;
    by_sql(&client, "'orders', 'order', 'later', '{}', now() + interval '1 hour'").await;
    let before = clock(&client).await;
    by_sql(&client, "'orders', 'order', 'past', '{}', now() - interval '1 hour'").await;
    let now = clock(&client).await;
    let past = store.effect_by_key("order", "past").await.unwrap().unwrap();
    assert!(past.next_run_at >= before && past.next_run_at <= now);
    let due = claim(&store, now, 9).await;
    assert_eq!(ids(&due), [past.id]);
    let later = store.effect_by_key("order", "later").await.unwrap().unwrap();
    assert!((3590..3610).contains(&later.next_run_at.since(now).as_secs()));
    assert_eq!(ids(&claim(&store, later.next_run_at, 9).await), [later.id]);
}

#[tokio::test]
async fn ids_sort_by_time_and_many_fit_into_one_statement() {
    let db = Db::postgres();
    let store = db.open().await;
    let client = connect(&db.url()).await;
    let before = clock(&client).await;
    let sql = "select tashika.enqueue('orders', 'order', null, to_jsonb(n))
                 from generate_series(1, 500) n";
    let rows = client.query(sql, &[]).await.unwrap();
    let after = clock(&client).await;
    let mut stamps = Vec::new();
    for row in rows {
        let id: Uuid = row.get(0);
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        stamps.push(seconds * 1000 + u64::from(nanos) / 1_000_000);
    }
    assert!(stamps.is_sorted());
    assert!(before.as_millis().cast_unsigned() <= stamps[0]);
    assert!(stamps[499] <= after.as_millis().cast_unsigned());
    assert_eq!(all(&store).await.len(), 500);
}

#[tokio::test]
async fn tashika_may_live_in_a_schema_of_its_own() {
    let db = Db::postgres();
    db.sql("create schema app").await.unwrap();
    let url = format!("{}?options=-csearch_path%3Dapp", db.url());
    let store = Store::open(&url, 2).await.unwrap();
    assert_eq!(db.number("select count(*) from app.outbox").await, 0, "the tables are there");
    // An application that knows nothing of that schema.
    let client = connect(&db.url()).await;
    let id = tashika_domain::EffectId(by_sql(&client, "'orders', 'order', 'k', '{}'").await);
    let now = clock(&client).await;
    let held = claim(&store, now, 9).await.remove(0);
    assert_eq!(held.id, id);
    done(&store, [abort(lease(&held), false, now)]).await;
    // An operator who names it.
    db.sql("update app.outbox_orders set status = 'pending', attempts = 0, next_run_at = null")
        .await
        .unwrap();
    assert_eq!(row(&store, id).await.status, Status::Pending);
    Store::open(&url, 2).await.unwrap();
    let public = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(db.number(public).await, 0);
}

/// `outbox` is a name that applications like as well.
#[tokio::test]
async fn an_outbox_of_the_applications_own_is_not_mistaken_for_ours() {
    let db = Db::postgres();
    Store::migrate(&db.url()).await.unwrap();
    let store = Store::open(&format!("{}?options=-csearch_path%3Dpublic", db.url()), 2).await;
    let store = store.unwrap();
    let client = connect(&db.url()).await;
    // The schema that comes first in everybody's search path, and the one before that.
    let own = "create schema authorization current_user; create table outbox (n int);
               create temporary table outbox (n int)";
    client.batch_execute(own).await.unwrap();
    by_sql(&client, "'orders', 'order', 'k', '{}'").await;
    assert_eq!(all(&store).await.len(), 1);
    let requeue = "update outbox_orders set status = 'aborted'";
    assert_eq!(client.execute(requeue, &[]).await.unwrap(), 1);
    assert_eq!(all(&store).await[0].status, Status::Aborted);
}

#[tokio::test]
async fn enqueue_in_follows_the_callers_transaction() {
    let db = Db::postgres();
    let store = db.open().await;
    listening(&store).await;
    let mut client = connect(&db.url()).await;
    let new = |n, key: &str| NewEffect { lane: lane(), ..keyed(n, key) };

    let work = client.transaction().await.unwrap();
    enqueue_in(&work, &new(1, "k")).await.unwrap();
    work.rollback().await.unwrap();
    assert!(all(&store).await.is_empty());

    let work = client.transaction().await.unwrap();
    enqueue_in(&work, &new(2, "k")).await.unwrap();
    let taken = enqueue_in(&work, &new(3, "k")).await;
    assert_eq!(said(&taken), Said::Taken(Key::Effect));
    enqueue_in(&work, &new(4, "other")).await.unwrap();
    assert!(all(&store).await.is_empty());
    work.commit().await.unwrap();
    woken_for(&store, &lane()).await;
    let claimed = claim_as(&store, &lane(), "w", at(1), 9).await;
    assert_eq!(ids(&claimed), [id(2), id(4)], "the transaction stayed usable");

    // Without a transaction each is one of its own.
    enqueue_in(&client, &new(5, "alone")).await.unwrap();
    woken_for(&store, &lane()).await;
    assert_eq!(ids(&claim_as(&store, &lane(), "w", at(1), 9).await), [id(5)]);
}
