//! PostgreSQL's own limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::limit::{BATCH, Waiting, wait_each};
use super::{KIND, LANE, Maker, PAYLOAD, key, per_second};

pub(crate) struct PgQueue {
    url: String,
}

const TABLE: &str = "create table if not exists queue (
        id uuid not null primary key, lane text not null, kind text not null, key text,
        payload jsonb not null, status text not null, attempts integer not null,
        locked_by text, locked_at timestamptz, run_at timestamptz not null,
        created_at timestamptz not null, updated_at timestamptz not null,
        expires_at timestamptz not null);
    create unique index if not exists queue_key on queue (kind, key);
    create index if not exists queue_due on queue (lane, run_at, id) where status = 'pending';";

const INSERT: &str = "insert into queue
     select id, $5, $6, key, payload::jsonb, 'pending', 0, null, null, at, at, at, at
       from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[])
         as t (id, key, payload, at)
     on conflict do nothing returning id";

const CLAIM: &str = "with due as materialized (
        select id from queue where lane = $1 and status = 'pending' and run_at <= $2
         order by run_at, id limit $3 for update skip locked)
     update queue set status = 'sending', locked_by = 'me', locked_at = $2, updated_at = $2
      where id = any(array(select id from due)) returning id, payload::text";

const COMPLETE: &str = "update queue set status = 'succeeded', locked_by = null, locked_at = null,
        updated_at = $2 where id = any($1) and status = 'sending'";

/// Removes everything that earlier measurements left in a database.
pub(crate) async fn reset(url: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let sql = "drop schema if exists tashika cascade; drop schema public cascade;
               create schema public";
    Ok(client.batch_execute(sql).await?)
}

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    // As for our own side: no plan of these statements may ever read a whole table.
    let settings = "set enable_seqscan = off; set enable_bitmapscan = off;
                    set plan_cache_mode = force_generic_plan";
    client.batch_execute(settings).await?;
    Ok(client)
}

fn now(maker: &Maker) -> SystemTime {
    let micros = u64::try_from(maker.clock.now().as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

impl PgQueue {
    pub async fn create(url: &str) -> anyhow::Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(TABLE).await?;
        Ok(Self { url: url.to_owned() })
    }

    pub async fn group_commit(&self, callers: usize, span: Duration) -> anyhow::Result<f64> {
        let (send, receive) = mpsc::channel::<Waiting>(16_384);
        let receive = Arc::new(Mutex::new(receive));
        let mut flushers = Vec::new();
        for _ in 0..2 {
            let (client, receive) = (connect(&self.url).await?, Arc::clone(&receive));
            flushers.push(tokio::spawn(flush(client, receive)));
        }
        let rate = wait_each(send, callers, span).await;
        for flusher in flushers {
            flusher.await??;
        }
        rate
    }

    /// One connection inserts batches, another claims and completes them.
    pub async fn cycle(&self, backlog: usize, span: Duration) -> anyhow::Result<f64> {
        let maker = Maker::new();
        let producer = connect(&self.url).await?;
        for _ in 0..backlog.div_ceil(BATCH.into()) {
            insert(&producer, &maker, BATCH.into()).await?;
        }
        producer.batch_execute("analyze queue").await?;
        // As many rows in flight on top of the backlog as a full batch on either side.
        let room = Arc::new(Semaphore::new(2 * usize::from(BATCH)));
        let completed = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let producing = tokio::spawn({
            let (room, maker) = (Arc::clone(&room), maker.clone());
            async move {
                loop {
                    room.acquire_many(u32::from(BATCH)).await?.forget();
                    insert(&producer, &maker, BATCH.into()).await?;
                }
                #[expect(unreachable_code, reason = "gives the loop's errors a type")]
                Ok::<(), anyhow::Error>(())
            }
        });
        let consumer = connect(&self.url).await?;
        let (claim, complete) = (consumer.prepare(CLAIM).await?, consumer.prepare(COMPLETE).await?);
        while started.elapsed() < span {
            let at = now(&maker);
            let limit = i64::from(BATCH);
            let rows = consumer.query(&claim, &[&LANE.as_str(), &at, &limit]).await?;
            let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            consumer.execute(&complete, &[&ids, &at]).await?;
            completed.fetch_add(ids.len() as u64, Ordering::Relaxed);
            room.add_permits(ids.len());
        }
        let rate = per_second(completed.load(Ordering::Relaxed), started.elapsed());
        producing.abort();
        Ok(rate)
    }
}

async fn insert(client: &Client, maker: &Maker, count: usize) -> anyhow::Result<()> {
    let ids: Vec<_> = (0..count).map(|_| maker.ids.effect()).collect();
    let keys: Vec<String> = ids.iter().map(|id| key(*id)).collect();
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let (payloads, times) = (vec![PAYLOAD; count], vec![now(maker); count]);
    let params: [&(dyn ToSql + Sync); 6] = [&ids, &keys, &payloads, &times, &LANE.as_str(), &KIND];
    client.query(INSERT, &params).await?;
    Ok(())
}

async fn flush(client: Client, waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>) -> anyhow::Result<()> {
    let (statement, maker) = (client.prepare(INSERT).await?, Maker::new());
    let mut batch = Vec::with_capacity(512);
    loop {
        if waiting.lock().await.recv_many(&mut batch, 512).await == 0 {
            return Ok(());
        }
        let ids: Vec<Uuid> = batch.iter().map(|((id, _), _)| *id).collect();
        let keys: Vec<&str> = batch.iter().map(|((_, key), _)| key.as_str()).collect();
        let (payloads, times) = (vec![PAYLOAD; ids.len()], vec![now(&maker); ids.len()]);
        let params: [&(dyn ToSql + Sync); 6] =
            [&ids, &keys, &payloads, &times, &LANE.as_str(), &KIND];
        client.query(&statement, &params).await?;
        for (_, tell) in batch.drain(..) {
            tell.send(()).ok();
        }
    }
}
