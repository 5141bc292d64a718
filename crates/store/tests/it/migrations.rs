//! From an empty database, from a current one, from too new a one, and by many at once.

use futures_util::future::join_all;
use tashika_store::{Dialect, KNOWN_VERSION, Store, StoreError};

use crate::support::*;

on_both!(
    an_empty_database_is_migrated_once,
    opening_migrates_and_keeps_what_is_there,
    many_may_start_at_once,
    a_newer_database_is_refused,
    a_database_that_is_not_there_is_unavailable_or_created,
);

async fn an_empty_database_is_migrated_once(db: Db) {
    assert_eq!(
        Store::migrate(&db.url()).await.unwrap(),
        [
            "foundation",
            "payments",
            "webhooks",
            "queue",
            "confirmations",
            "mail",
            "reservations",
            "renders",
            "watch",
            "console",
            "lists",
            "spelled_checks",
            "in_hand",
            "last_attempt"
        ]
    );
    assert_eq!(Store::migrate(&db.url()).await.unwrap(), Vec::<&str>::new());
    assert_eq!(db.number("select max(version) from tashika_migrations").await, KNOWN_VERSION);
}

async fn opening_migrates_and_keeps_what_is_there(db: Db) {
    enqueue(&db.open().await, [effect(1)]).await;
    let before = db.content().await;
    let store = db.open().await;
    assert_eq!(db.content().await, before);
    assert_eq!(ids(&claim(&store, at(1), 9).await), [id(1)]);
}

async fn many_may_start_at_once(db: Db) {
    let url = db.url();
    let starting = (0..8).map(|n| {
        let url = url.clone();
        tokio::spawn(async move {
            let store = Store::open(&url, 2).await.expect("the store opens");
            enqueue(&store, [effect(n)]).await;
            store
        })
    });
    let stores: Vec<Store> =
        join_all(starting).await.into_iter().map(|store| store.unwrap()).collect();
    assert_eq!(all(&stores[0]).await.len(), 8);
    // Each once, whatever numbers they have.
    let twice = "select count(*) - count(distinct version) from tashika_migrations";
    assert_eq!(db.number(twice).await, 0);
    assert_eq!(db.number("select max(version) from tashika_migrations").await, KNOWN_VERSION);
}

async fn a_newer_database_is_refused(db: Db) {
    enqueue(&db.open().await, [effect(1)]).await;
    db.sql("insert into tashika_migrations (version, name) values (9999, 'tomorrow')")
        .await
        .unwrap();
    let before = db.content().await;
    for refused in [
        Store::open(&db.url(), 2).await.map(drop).unwrap_err(),
        Store::migrate(&db.url()).await.map(drop).unwrap_err(),
    ] {
        assert!(
            matches!(refused, StoreError::TooNew { found: 9999, known: KNOWN_VERSION }),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(text.contains("9999") && text.contains("newer"), "{text}");
    }
    assert_eq!(db.content().await, before);
}

async fn a_database_that_is_not_there_is_unavailable_or_created(db: Db) {
    match db.dialect() {
        Dialect::Sqlite => {
            assert!(!db.file().exists());
            db.open().await;
            assert!(db.file().exists());
        }
        Dialect::Postgres => {
            let url = format!("{}_missing", db.url());
            let error = Store::open(&url, 2).await.map(drop).unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains("_missing"), "{error}");
            let nobody = "postgres://u:p@127.0.0.1:1/x";
            let error = Store::open(nobody, 2).await.map(drop).unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        }
    }
}

#[test]
fn the_url_says_which_database() {
    assert_eq!(Dialect::of("sqlite:a.db").unwrap(), Dialect::Sqlite);
    assert_eq!(Dialect::of("postgres://h/d").unwrap(), Dialect::Postgres);
    assert_eq!(Dialect::of("postgresql://h/d").unwrap(), Dialect::Postgres);
    for bad in ["", "mysql://h/d", "a.db", "Postgres://h"] {
        assert!(matches!(Dialect::of(bad), Err(StoreError::BadUrl(_))), "{bad:?}");
    }
}

#[tokio::test]
async fn a_url_that_cannot_be_used_says_why() {
    for (url, why) in [
        ("sqlite:", "path of a file"),
        ("sqlite::memory:", "path of a file"),
        ("sqlite:/nonexistent/folder/a.db", "/nonexistent/folder does not exist"),
        ("postgres://h:port/d", "not a PostgreSQL URL"),
    ] {
        let error = Store::open(url, 2).await.map(drop).unwrap_err();
        assert!(matches!(error, StoreError::BadUrl(_)), "{url}: {error:?}");
        assert!(error.to_string().contains(why), "{url}: {error}");
        assert!(error.to_string().contains("TASHIKA_DATABASE_URL"), "{url}: {error}");
    }
}
