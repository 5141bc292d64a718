//! The plans of statements, as the store's own sessions run them.

use std::time::Duration;

use tashika_domain::mail::pace::Limits;
use tashika_store::{PermitWish, Store};
use uuid::Uuid;

use crate::support::*;

/// `auto_explain` writes the plan of every statement into the log of a server of our own.
async fn explained(url: &str) -> Store {
    let url = format!(
        "{url}?options=-csession_preload_libraries%3Dauto_explain\
         %20-cauto_explain.log_min_duration%3D0%20-cauto_explain.log_analyze%3Don"
    );
    Store::open(&url, 2).await.unwrap()
}

#[tokio::test]
async fn a_claim_walks_its_index_whatever_waits() {
    let cluster = cluster();
    let store = explained(cluster.url()).await;
    let client = connect(cluster.url()).await;
    let fill = "insert into outbox (id, lane, kind, payload, status, attempts, in_doubt, fence,
                    next_run_at, created_at, updated_at, expires_at)
                select gen_random_uuid(), 'orders', 'order', '{}', 'pending', 0, false, 0,
                       to_timestamp(1700000000 + n % 1000), now(), now(), now()
                  from generate_series(1, 50000) n";
    // With the statistics of an empty table, of a full one, and of one that was emptied again.
    client.batch_execute("analyze outbox").await.unwrap();
    client.batch_execute(fill).await.unwrap();
    check(&store, &client, 32).await;
    client.batch_execute("analyze outbox").await.unwrap();
    check(&store, &client, 32).await;
    check(&store, &client, 1000).await;
    client
        .batch_execute(
            "update outbox set status = 'succeeded' where status = 'pending'; analyze outbox",
        )
        .await
        .unwrap();
    client.batch_execute(fill).await.unwrap();
    check(&store, &client, 32).await;
}

async fn check(store: &Store, client: &tokio_postgres::Client, limit: usize) {
    let claimed = claim(store, at(2000), limit).await;
    assert_eq!(claimed.len(), limit);
    let plan = last_plan(client).await;
    assert!(plan.contains("Index Scan using outbox_due on outbox"), "{plan}");
    assert!(plan.contains("Index Scan using outbox_pkey on outbox"), "{plan}");
    for dear in ["Seq Scan", "Sort", "Bitmap", "Hash"] {
        assert!(!plan.contains(dear), "{dear}:\n{plan}");
    }
    // Nothing was walked over to find them.
    let scan = plan.split("Index Scan using outbox_due").nth(1).expect("the scan");
    let rows = scan.split("rows=").nth(2).expect("the actual rows");
    let rows: String = rows.chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(rows, limit.to_string(), "{plan}");
}

/// A small table may be read as a whole. That looks dear to the planner here, and is not: compiling it would be.
#[tokio::test]
async fn nothing_is_compiled() {
    let cluster = cluster();
    let store = explained(cluster.url()).await;
    let client = connect(cluster.url()).await;
    let wish = PermitWish {
        id: Uuid::from_u128(1),
        worker: "w".into(),
        limits: Limits { rate_per_sec: 1000.0, daily_quota: 0 },
        at_most: Duration::from_secs(30),
        now: at(100),
    };
    store.take_mail_permit(wish).await.unwrap();
    let log = log(&client).await;
    assert!(log.contains("Seq Scan on mail_permits"), "{log}");
    assert!(!log.contains("JIT:"), "{log}");
}

/// It is written before an answer is sent.
async fn log(client: &tokio_postgres::Client) -> String {
    let read = "select pg_read_file(current_setting('data_directory') || '/../log')";
    client.query_one(read, &[]).await.expect("the log").get(0)
}

/// The log's last claim.
async fn last_plan(client: &tokio_postgres::Client) -> String {
    let log = log(client).await;
    let claim = log.rsplit("Query Text: ").find(|text| text.starts_with("with due as"));
    // An entry's further lines are indented.
    let lines = claim.expect("a claim").lines().enumerate();
    let plan = lines.take_while(|(n, line)| *n == 0 || line.starts_with('\t'));
    plan.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}
