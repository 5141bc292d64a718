//! The hand-written side: what somebody would write who needed only this one queue, knew the
//! database well and batched everything.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::limit_postgres::PgQueue;
use super::limit_sqlite::SqliteQueue;
use super::{Maker, World, enqueue, key};
use crate::postgres::Database;

/// Rows per statement and per transaction.
pub(crate) const BATCH: u16 = 1000;

/// One row of the hand-written queue, id and key, and whom to tell that it is durable.
pub(crate) type Waiting = ((Uuid, String), oneshot::Sender<()>);

/// Callers that each hand over a row and wait for it, again and again. Rows per second.
pub(crate) async fn wait_each(
    send: mpsc::Sender<Waiting>,
    callers: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    enqueue::callers(callers, span, move || {
        let (send, maker) = (send.clone(), Maker::new());
        async move {
            loop {
                let id = maker.ids.effect();
                let (tell, told) = oneshot::channel();
                send.send(((id.0, key(id)), tell)).await?;
                told.await?;
                enqueue::count_one();
            }
        }
    })
    .await
}

/// A queue table and the statements on it, on either database.
pub(crate) enum Queue {
    Sqlite(SqliteQueue),
    Postgres(PgQueue),
}

impl Queue {
    pub async fn create(world: &World) -> anyhow::Result<Self> {
        Ok(match world.database {
            Database::Sqlite => Self::Sqlite(SqliteQueue::create(&world.sqlite_file())?),
            Database::Postgres => Self::Postgres(PgQueue::create(&world.url).await?),
        })
    }

    /// Callers that each wait for their own row to be durable, served by group commit. Rows per second.
    pub async fn group_commit(&self, callers: usize, span: Duration) -> anyhow::Result<f64> {
        match self {
            Self::Sqlite(queue) => queue.group_commit(callers, span).await,
            Self::Postgres(queue) => queue.group_commit(callers, span).await,
        }
    }

    /// Inserts, claims and completes in batches, with `backlog` rows waiting. Rows per second.
    pub async fn cycle(&self, backlog: usize, span: Duration) -> anyhow::Result<f64> {
        match self {
            Self::Sqlite(queue) => queue.cycle(backlog, span),
            Self::Postgres(queue) => queue.cycle(backlog, span).await,
        }
    }
}
