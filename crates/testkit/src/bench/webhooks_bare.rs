//! The bare handler: what somebody would write who needed only this one endpoint, knew the database
//! well and batched everything. It keeps the same facts under the same indexes, and verifies nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rusqlite::{Connection, params};
use serde::Deserialize;
use tashika_engine::Ids;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Maker, World, limit_postgres};
use crate::postgres::Database;

/// Events per transaction, at most.
const BATCH: usize = 512;

/// An event, and whom to tell that it is durable.
struct Waiting {
    id: Uuid,
    event_id: String,
    event_type: String,
    body: Bytes,
    tell: oneshot::Sender<()>,
}

/// The server, on threads of its own.
pub(crate) struct Bare {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Bare {
    /// `deliver_to`: what was accepted is sent there, and that is all.
    pub async fn start(world: &World, deliver_to: Option<SocketAddr>) -> anyhow::Result<Self> {
        let (send, receive) = mpsc::channel(16_384);
        let (stop, stopped) = oneshot::channel();
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (database, url, path) = (world.database, world.url.clone(), world.sqlite_file());
        let (ready, is_ready) = oneshot::channel();
        // As many threads as our own server has.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            let served = runtime.block_on(async move {
                match database {
                    Database::Sqlite => {
                        let db = open_sqlite(&path)?;
                        std::thread::spawn(move || write_sqlite(&db, receive));
                    }
                    Database::Postgres => start_postgres(&url, receive).await?,
                }
                ready.send(()).ok();
                let maker = Maker::new();
                let router = axum::Router::new()
                    .route("/webhooks/stripe", post(take))
                    .with_state(Face { send, ids: maker.ids, out: deliver_to.map(Out::new) });
                let serving = axum::serve(TcpListener::from_std(listener)?, router);
                tokio::select! {
                    served = serving => Ok(served?),
                    _ = stopped => Ok(()),
                }
            });
            runtime.shutdown_background();
            served
        });
        if is_ready.await.is_err() {
            thread.join().map_err(|_| anyhow::anyhow!("the bare handler panicked"))??;
            anyhow::bail!("the bare handler did not start");
        }
        Ok(Self { address, stop, thread })
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.send(()).ok();
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the bare handler panicked"))?
    }
}

#[derive(Clone)]
struct Face {
    send: mpsc::Sender<Waiting>,
    ids: Ids,
    out: Option<Out>,
}

/// Sends on what was accepted.
#[derive(Clone)]
struct Out {
    client: Client<HttpConnector, Full<Bytes>>,
    to: Uri,
}

impl Out {
    fn new(to: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let to = Uri::builder().scheme("http").authority(to.to_string()).path_and_query("/hook");
        Self { client, to: to.build().expect("an address makes a URL") }
    }

    fn deliver(&self, body: Bytes) {
        let out = self.clone();
        tokio::spawn(async move {
            let mut request = http::Request::new(Full::new(body));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = out.to;
            let json = http::HeaderValue::from_static("application/json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, json);
            if let Ok(answer) = out.client.request(request).await {
                answer.into_body().collect().await.ok();
            }
        });
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

async fn take(State(face): State<Face>, body: Bytes) -> StatusCode {
    let Ok(Event { id, kind }) = serde_json::from_slice(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let (event_id, event_type) = (id.to_owned(), kind.to_owned());
    let (tell, told) = oneshot::channel();
    let waiting = Waiting { id: face.ids.uuid(), event_id, event_type, body: body.clone(), tell };
    if face.send.send(waiting).await.is_err() || told.await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if let Some(out) = &face.out {
        out.deliver(body);
    }
    StatusCode::NO_CONTENT
}

fn open_sqlite(path: &std::path::Path) -> anyhow::Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "cache_size", -16_384)?;
    db.execute_batch(
        "create table if not exists events (
            id blob not null primary key, source text not null, event_id text not null,
            event_type text not null, payload text not null, body blob not null,
            status text not null, created_at integer not null) strict, without rowid;
         create unique index if not exists events_event on events (source, event_id);
         create index if not exists events_status on events (status, id);
         create index if not exists events_type on events (event_type, id);
         create table if not exists jobs (
            id blob not null primary key, lane text not null, kind text not null,
            payload text not null, status text not null, attempts integer not null,
            run_at integer not null, created_at integer not null, expires_at integer not null)
            strict, without rowid;
         create index if not exists jobs_due on jobs (lane, run_at, id) where status = 'pending'",
    )?;
    Ok(db)
}

fn write_sqlite(db: &Connection, mut receive: mpsc::Receiver<Waiting>) -> anyhow::Result<()> {
    let (mut waiting, maker) = (Vec::with_capacity(BATCH), Maker::new());
    while receive.blocking_recv_many(&mut waiting, BATCH) > 0 {
        let now = maker.clock.now().as_micros();
        db.execute_batch("begin immediate")?;
        {
            let mut event = db.prepare_cached(
                "insert into events values (?1, 'stripe', ?2, ?3, ?4, ?5, 'pending', ?6)
                 on conflict do nothing",
            )?;
            let mut job = db.prepare_cached(
                "insert into jobs values (?1, 'webhooks', 'webhook', '{}', 'pending', 0, ?2, ?2, ?2)",
            )?;
            for it in &waiting {
                let (id, text) = (it.id.as_bytes(), std::str::from_utf8(&it.body)?);
                let row = params![id, it.event_id, it.event_type, text, &it.body[..], now];
                if event.execute(row)? > 0 {
                    job.execute(params![id, now])?;
                }
            }
        }
        db.execute_batch("commit")?;
        for it in waiting.drain(..) {
            it.tell.send(()).ok();
        }
    }
    Ok(())
}

const INSERT: &str = "with t as (
        select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[])
            as t (id, event_id, event_type, payload, body)),
     fresh as (
        insert into events
        select id, 'stripe', event_id, event_type, payload::jsonb, body, 'pending', $6 from t
        on conflict do nothing returning id)
     insert into jobs select id, 'webhooks', 'webhook', '{}', 'pending', 0, $6, $6, $6 from fresh";

async fn start_postgres(url: &str, receive: mpsc::Receiver<Waiting>) -> anyhow::Result<()> {
    let client = limit_postgres::connect(url).await?;
    client
        .batch_execute(
            "create table if not exists events (
                id uuid not null primary key, source text not null, event_id text not null,
                event_type text not null, payload jsonb not null, body bytea not null,
                status text not null, created_at timestamptz not null);
             create unique index if not exists events_event on events (source, event_id);
             create index if not exists events_status on events (status, id);
             create index if not exists events_type on events (event_type, id);
             create table if not exists jobs (
                id uuid not null primary key, lane text not null, kind text not null,
                payload jsonb not null, status text not null, attempts integer not null,
                run_at timestamptz not null, created_at timestamptz not null,
                expires_at timestamptz not null);
             create index if not exists jobs_due on jobs (lane, run_at, id) where status = 'pending'",
        )
        .await?;
    let receive = Arc::new(Mutex::new(receive));
    for _ in 0..2 {
        let (client, receive) = (limit_postgres::connect(url).await?, Arc::clone(&receive));
        tokio::spawn(write_postgres(client, receive));
    }
    Ok(())
}

async fn write_postgres(
    client: tokio_postgres::Client,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>,
) -> anyhow::Result<()> {
    let (statement, maker) = (client.prepare(INSERT).await?, Maker::new());
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.lock().await.recv_many(&mut batch, BATCH).await > 0 {
        let micros = u64::try_from(maker.clock.now().as_micros())?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        let ids: Vec<Uuid> = batch.iter().map(|it| it.id).collect();
        let events: Vec<&str> = batch.iter().map(|it| it.event_id.as_str()).collect();
        let types: Vec<&str> = batch.iter().map(|it| it.event_type.as_str()).collect();
        let bodies: Vec<&[u8]> = batch.iter().map(|it| &it.body[..]).collect();
        let texts: Result<Vec<&str>, _> =
            bodies.iter().map(|body| std::str::from_utf8(body)).collect();
        let texts = texts?;
        let params: [&(dyn ToSql + Sync); 6] = [&ids, &events, &types, &texts, &bodies, &now];
        client.execute(&statement, &params).await?;
        for it in batch.drain(..) {
            it.tell.send(()).ok();
        }
    }
    Ok(())
}
