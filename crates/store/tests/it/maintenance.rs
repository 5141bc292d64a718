//! The statements that operators of order systems know, through the view `outbox_orders`.

use tashika_domain::{Lane, NewEffect, Status, Timestamp};
use tashika_store::Dialect;

use crate::support::*;

on_both!(
    orders_are_counted_by_status,
    lapsed_locks_are_released,
    aborted_orders_are_queued_again,
    messages_are_cut_to_what_a_row_keeps,
    the_view_keeps_the_promises_of_the_table,
);

async fn orders_are_counted_by_status(db: Db) {
    let store = db.open().await;
    enqueue(&store, (1..=3).map(effect)).await;
    enqueue(&store, [NewEffect { kind: "mail".into(), ..effect(4) }]).await;
    claim(&store, at(1), 2).await;
    let mut rows = db.sql("SELECT status, count(*) FROM outbox_orders GROUP BY 1").await.unwrap();
    rows.sort();
    let count = |status: &str, count: &str| [status, count].map(|text| Some(text.to_owned()));
    assert_eq!(rows, [count("pending", "1"), count("sending", "2")]);
}

async fn lapsed_locks_are_released(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1), effect(2)]).await;
    enqueue(&store, [NewEffect { kind: "mail".into(), ..effect(3) }]).await;
    let claimed = claim(&store, at(1), 9).await;
    // One of them gave a sign of life a moment ago, by the database's own clock.
    let now = db.pick("cast(unixepoch('subsec') * 1000000 as integer)", "now()");
    let second = literal(&db, 2);
    db.sql(&format!("update outbox set locked_at = {now} where id = {second}")).await.unwrap();
    let release = db.pick(
        "UPDATE outbox_orders
            SET status='pending', locked_by=NULL, locked_at=NULL
          WHERE status='sending' AND locked_at < (unixepoch() - 120) * 1000000",
        "UPDATE outbox_orders
            SET status='pending', locked_by=NULL, locked_at=NULL
          WHERE status='sending' AND locked_at < now() - interval '120 seconds'",
    );
    db.sql(release).await.unwrap();
    let statuses: Vec<Status> = all(&store).await.iter().map(|row| row.status).collect();
    assert_eq!(statuses, [Status::Pending, Status::Sending, Status::Sending]);
    let old = lease(&claimed[0]);
    assert_eq!(commit(&store, [succeed(old, at(9))]).await, Said::Stale(id(1)));
    // Edited by hand and long due: the rescuer looks for such rows.
    assert_eq!(store.look_back(&Lane::ORDERS).await.unwrap(), db.dialect() == Dialect::Postgres);
    let again = claim(&store, at(9), 9).await;
    assert_eq!((ids(&again), again[0].fence), (vec![id(1)], 2));
    assert!(again[0].in_doubt, "nobody knows what its worker did");
}

fn literal(db: &Db, number: u64) -> String {
    match db.dialect() {
        Dialect::Sqlite => format!("x'{}'", id(number).0.simple()),
        Dialect::Postgres => format!("'{}'", id(number)),
    }
}

async fn aborted_orders_are_queued_again(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1), effect(2)]).await;
    for held in claim(&store, at(1), 9).await {
        done(&store, [abort(lease(&held), true, at(1))]).await;
    }
    let now = db.pick("unixepoch() * 1000000", "now()");
    let statement = format!(
        "UPDATE outbox_orders
            SET status='pending', attempts=0, last_error_code=NULL, last_error_msg=NULL,
                next_run_at=NULL, updated_at={now}
          WHERE id = {}",
        literal(&db, 1)
    );
    let clock = format!(
        "select cast({} as text)",
        db.pick(
            "cast(unixepoch('subsec') * 1000000 as integer)",
            "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
        )
    );
    let before = db.number(&clock).await;
    db.sql(&statement).await.unwrap();
    let after = db.number(&clock).await;

    let row_1 = row(&store, id(1)).await;
    assert_eq!((row_1.status, row_1.attempts), (Status::Pending, 0));
    assert_eq!((row_1.last_error_code, row_1.last_error_msg), (None, None));
    // SQLite's clock has milliseconds.
    let span = before - 1000..=after + 1000;
    assert!(span.contains(&row_1.next_run_at.as_micros()), "no time means now");
    assert!(span.contains(&row_1.updated_at.as_micros()));
    assert_eq!(row(&store, id(2)).await.status, Status::Aborted);
    let claimed = claim(&store, Timestamp::from_micros(after + 1000), 9).await;
    assert_eq!((ids(&claimed), claimed[0].fence), (vec![id(1)], 2));
    assert!(claimed[0].in_doubt, "a person's statement does not take the doubt away");
}

async fn messages_are_cut_to_what_a_row_keeps(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    let long = "確".repeat(600);
    db.sql(&format!("update outbox_orders set last_error_msg = '{long}'")).await.unwrap();
    assert_eq!(row(&store, id(1)).await.last_error_msg, Some("確".repeat(512)));
}

async fn the_view_keeps_the_promises_of_the_table(db: Db) {
    let store = db.open().await;
    enqueue(&store, [effect(1)]).await;
    let before = db.content().await;
    for broken in [
        "update outbox_orders set status = 'sending'",
        "update outbox_orders set status = 'sent'",
        "update outbox_orders set locked_by = 'me'",
        "update outbox_orders set attempts = null",
        "update outbox_orders set order_request_json = '{}'",
        "update outbox_orders set request_digest = 'sha256:other'",
        "update outbox_orders set idempotency_key = 'other'",
        "delete from outbox_orders",
        "insert into outbox_orders (status) values ('pending')",
    ] {
        db.sql(broken).await.expect_err(broken);
    }
    assert_eq!(db.content().await, before);
}
