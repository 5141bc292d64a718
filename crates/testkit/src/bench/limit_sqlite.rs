//! SQLite's own limit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::limit::{BATCH, Waiting, wait_each};
use super::{KIND, LANE, Maker, PAYLOAD, key, per_second};

pub(crate) struct SqliteQueue {
    path: PathBuf,
}

const TABLE: &str = "create table if not exists queue (
        id blob not null primary key, lane text not null, kind text not null, key text,
        payload text not null, status text not null, attempts integer not null,
        locked_by text, locked_at integer, run_at integer not null, created_at integer not null,
        updated_at integer not null, expires_at integer not null
    ) strict, without rowid;
    create unique index if not exists queue_key on queue (kind, key);
    create index if not exists queue_due on queue (lane, run_at, id) where status = 'pending';";

const INSERT: &str = "insert into queue values
        (?1, ?2, ?3, ?4, ?5, 'pending', 0, null, null, ?6, ?6, ?6, ?7) on conflict do nothing";

const CLAIM: &str = "update queue set status = 'sending', locked_by = 'me', locked_at = ?1,
        updated_at = ?1
     where id in (select id from queue where lane = ?2 and status = 'pending' and run_at <= ?1
                   order by run_at, id limit ?3)
     returning id, payload";

const COMPLETE: &str = "update queue set status = 'succeeded', locked_by = null, locked_at = null,
        updated_at = ?2 where id = ?1 and status = 'sending'";

impl SqliteQueue {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let queue = Self { path: path.to_owned() };
        queue.connect()?.execute_batch(TABLE)?;
        Ok(queue)
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        let db = Connection::open(&self.path)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "cache_size", -16_384)?;
        Ok(db)
    }

    pub async fn group_commit(&self, callers: usize, span: Duration) -> anyhow::Result<f64> {
        let (send, mut receive) = mpsc::channel::<Waiting>(16_384);
        let db = self.connect()?;
        let writer = std::thread::spawn(move || -> anyhow::Result<()> {
            let mut waiting = Vec::with_capacity(512);
            while receive.blocking_recv_many(&mut waiting, 512) > 0 {
                db.execute_batch("begin immediate")?;
                {
                    let mut insert = db.prepare_cached(INSERT)?;
                    for ((id, key), _) in &waiting {
                        let id = id.as_bytes();
                        insert.execute(params![id, LANE.as_str(), KIND, key, PAYLOAD, 1, 2])?;
                    }
                }
                db.execute_batch("commit")?;
                for (_, tell) in waiting.drain(..) {
                    tell.send(()).ok();
                }
            }
            Ok(())
        });
        let rate = wait_each(send, callers, span).await;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        rate
    }

    /// Insert, claim and complete a batch each, one transaction per step, as a worker would.
    pub fn cycle(&self, backlog: usize, span: Duration) -> anyhow::Result<f64> {
        let (db, maker) = (self.connect()?, Maker::new());
        let insert_batch = |count: usize| -> anyhow::Result<()> {
            db.execute_batch("begin immediate")?;
            let mut insert = db.prepare_cached(INSERT)?;
            for _ in 0..count {
                let (id, now) = (maker.ids.effect(), maker.clock.now().as_micros());
                let row = params![id.0.as_bytes(), LANE.as_str(), KIND, key(id), PAYLOAD, now, now];
                insert.execute(row)?;
            }
            drop(insert);
            Ok(db.execute_batch("commit")?)
        };
        for _ in 0..backlog.div_ceil(BATCH.into()) {
            insert_batch(BATCH.into())?;
        }
        let (started, mut completed) = (Instant::now(), 0);
        while started.elapsed() < span {
            insert_batch(BATCH.into())?;
            let now = maker.clock.now().as_micros();
            db.execute_batch("begin immediate")?;
            let claimed: Vec<[u8; 16]> = db
                .prepare_cached(CLAIM)?
                .query_map(params![now, LANE.as_str(), BATCH], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            db.execute_batch("commit; begin immediate")?;
            let mut complete = db.prepare_cached(COMPLETE)?;
            for id in &claimed {
                complete.execute(params![id, now])?;
            }
            drop(complete);
            db.execute_batch("commit")?;
            completed += claimed.len() as u64;
        }
        Ok(per_second(completed, started.elapsed()))
    }
}
