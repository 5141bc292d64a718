//! A small application that shares its PostgreSQL database with Tashika.
//!
//! It sells things. For each sale it owes the customer a receipt, and it must never happen that a
//! sale is recorded without its receipt being owed, or the other way round. So it enqueues the
//! receipt in the same transaction as the sale, in both ways that there are:
//!
//! 1. `select tashika.enqueue(...)`, which works from any language that speaks SQL;
//! 2. [`tashika_store::enqueue_in`], on the application's own connection, from Rust.
//!
//! The receipts are written by an engine that the application embeds, with a handler of its own on
//! a lane of its own.
//!
//! ```sh
//! cargo run -p tashika-example-shop -- postgres://localhost/shop
//! ```

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tashika_domain::effect::{Effect, NewEffect};
use tashika_domain::{Lane, LanePolicy, Outcome};
use tashika_engine::{Clock, Engine, Ids, Settings, Simple};
use tashika_store::{Store, enqueue_in};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

const RECEIPT: &str = "shop.receipt";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("usage: shop postgres://user@host/database")?;
    let lane = Lane::parse("shop").context("a lane's name is a-z, 0-9 and _")?;

    // Tashika's side: its tables, and an engine that writes receipts.
    let store = Store::open(&url, 4).await?;
    let (clock, ids) = (Clock::System, Ids::random(Clock::System));
    let (written, mut receipts) = mpsc::unbounded_channel();
    let write_receipt = Simple(move |effect: &Effect| {
        // A real one would send a mail here, and say Busy, Refused or Lost when that did not work.
        written.send(effect.key.clone().unwrap_or_default()).ok();
        Outcome::Done(Value::Null)
    });
    let engine = Engine::new(store, clock, ids.clone(), Settings::default())
        .lane(lane.clone(), LanePolicy::default())
        .effect(RECEIPT, write_receipt)
        .start();

    // The shop's side: its own table, its own connection, its own transactions.
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("create table if not exists sales (id text primary key)").await?;

    sell_with_sql(&mut client, "sale-1", true).await?;
    // The customer changed their mind: no sale, and so no receipt.
    sell_with_sql(&mut client, "sale-2", false).await?;
    let effect = |sale: &str| {
        let now = clock.now();
        NewEffect {
            id: ids.effect(),
            lane: lane.clone(),
            kind: RECEIPT.into(),
            key: Some(sale.into()),
            digest: None,
            payload: json!({ "sale": sale }).to_string(),
            run_at: now,
            created_at: now,
            expires_at: now.plus(Duration::from_secs(48 * 3600)),
            traceparent: None,
            held_by: None,
        }
    };
    sell_with_rust(&mut client, &effect("sale-3"), true).await?;
    sell_with_rust(&mut client, &effect("sale-4"), false).await?;

    for _ in 0..2 {
        let sale = receipts.recv().await.context("the engine has stopped")?;
        println!("receipt for {sale}");
    }
    engine.stop(Duration::from_secs(5)).await;
    let sales = client.query_one("select count(*) from sales", &[]).await?;
    println!("{} sales", sales.get::<_, i64>(0));
    Ok(())
}

/// From any language: one more statement in the transaction.
async fn sell_with_sql(client: &mut Client, sale: &str, keep: bool) -> anyhow::Result<()> {
    let transaction = client.transaction().await?;
    transaction.execute("insert into sales (id) values ($1)", &[&sale]).await?;
    let payload = tokio_postgres::types::Json(json!({ "sale": sale }));
    transaction
        .execute("select tashika.enqueue('shop', $1, $2, $3)", &[&RECEIPT, &sale, &payload])
        .await?;
    if keep {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(())
}

/// From Rust: one more call in the transaction.
async fn sell_with_rust(
    client: &mut Client,
    receipt: &NewEffect,
    keep: bool,
) -> anyhow::Result<()> {
    let transaction = client.transaction().await?;
    transaction.execute("insert into sales (id) values ($1)", &[&receipt.key]).await?;
    enqueue_in(&transaction, receipt).await?;
    if keep {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(())
}
