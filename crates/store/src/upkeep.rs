//! Small writes of the machinery itself: signs of life, quotas, retention.

use rusqlite::params;
use tashika_domain::Timestamp;
use uuid::Uuid;

use crate::error::StoreError;
use crate::row::{Param, PgTime, Reader};
use crate::{Backend, Store};

macro_rules! prunable {
    () => {
        "status in ('succeeded', 'aborted') and not exists (
            select 1 from cases
             where cases.subject_type = outbox.kind and cases.subject_id = outbox.idempotency_key
               and cases.status = 'open')"
    };
}

/// A process that claims effects.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerRow {
    pub id: String,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    pub lease_ms: i64,
}

impl Store {
    /// A worker's sign of life.
    pub async fn worker_alive(
        &self,
        id: &str,
        now: Timestamp,
        lease: std::time::Duration,
    ) -> Result<(), StoreError> {
        let sql = "insert into workers (id, started_at, heartbeat_at, lease_ms)
             values ($1, $2, $2, $3)
             on conflict (id) do update set heartbeat_at = excluded.heartbeat_at"
            .to_owned();
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        self.execute(sql, vec![id.into(), Param::Time(now), Param::Int(lease)]).await?;
        Ok(())
    }

    /// A worker has ended, or its lapse has been dealt with.
    pub async fn worker_gone(&self, id: &str) -> Result<(), StoreError> {
        self.execute("delete from workers where id = $1".to_owned(), vec![id.into()]).await?;
        Ok(())
    }

    pub async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        // A probe leaves a row as well, without a lease that could lapse.
        let sql = "select id, started_at, heartbeat_at, lease_ms from workers
             where lease_ms > 0 order by id";
        self.query(sql.to_owned(), vec![], |row| {
            let read = Reader::named(
                row,
                "workers",
                row.opt_text("id").ok().flatten().unwrap_or_default(),
            );
            Ok(WorkerRow {
                id: read.text("id")?,
                started_at: read.time("started_at")?,
                heartbeat_at: read.time("heartbeat_at")?,
                lease_ms: read.int("lease_ms")?,
            })
        })
        .await
    }

    /// Reserves up to `want` of a client's daily quota; returns how much was granted.
    pub async fn reserve_quota(
        &self,
        client: &str,
        day: i64,
        want: i64,
        limit: i64,
    ) -> Result<i64, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                let client = client.to_owned();
                sqlite
                    .upkeep(move |db| {
                        db.execute(
                            "insert into quotas (client, day, used) values (?1, ?2, 0)
                             on conflict do nothing",
                            params![client, day],
                        )?;
                        let used: i64 = db.query_row(
                            "select used from quotas where client = ?1 and day = ?2",
                            params![client, day],
                            |row| row.get(0),
                        )?;
                        let granted = want.min(limit - used).max(0);
                        db.execute(
                            "update quotas set used = used + ?3 where client = ?1 and day = ?2",
                            params![client, day, granted],
                        )?;
                        Ok(granted)
                    })
                    .await
            }
            Backend::Postgres(postgres) => {
                let db = postgres.writer().await?;
                db.execute(
                    "insert into quotas (client, day, used) values ($1, $2, 0)
                     on conflict do nothing",
                    &[&client, &day],
                )
                .await?;
                let row = db
                    .query_one(
                        "update quotas q set used = q.used + g.granted
                           from (select greatest(0, least($3::int8, $4::int8 - used)) as granted
                                   from quotas where client = $1 and day = $2 for update) g
                          where q.client = $1 and q.day = $2
                          returning g.granted",
                        &[&client, &day, &want, &limit],
                    )
                    .await?;
                Ok(row.get(0))
            }
        }
    }

    /// Gives back what was reserved and not used.
    pub async fn return_quota(
        &self,
        client: &str,
        day: i64,
        unused: i64,
    ) -> Result<(), StoreError> {
        let sql = "update quotas set used = used - $3 where client = $1 and day = $2".to_owned();
        self.execute(sql, vec![client.into(), Param::Int(day), Param::Int(unused)]).await?;
        Ok(())
    }

    /// Forgets quotas of days before `day`.
    pub async fn prune_quotas(&self, day: i64) -> Result<u64, StoreError> {
        self.execute("delete from quotas where day < $1".to_owned(), vec![Param::Int(day)]).await
    }

    /// Whether the store can commit now: writes, and waits for the flush.
    pub async fn probe(&self, now: Timestamp) -> Result<(), StoreError> {
        self.worker_alive("readiness-probe", now, std::time::Duration::ZERO).await
    }

    /// Removes effects by id, if they are still settled and over.
    ///
    /// What an open case is about stays: it is the evidence, and the decision needs it.
    pub(crate) async fn remove_settled(
        &self,
        ids: Vec<Uuid>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        if ids.is_empty() {
            return Ok(0);
        }
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                sqlite
                    .upkeep(move |db| {
                        let mut effect = db.prepare_cached(concat!(
                            "delete from outbox where id = ?1 and expires_at <= ?2 and ",
                            prunable!()
                        ))?;
                        let mut removed = 0;
                        for id in &ids {
                            removed += effect.execute(params![id.as_bytes(), now.as_micros()])?;
                        }
                        Ok(removed as u64)
                    })
                    .await
            }
            Backend::Postgres(postgres) => {
                let removed = postgres
                    .writer()
                    .await?
                    .execute(
                        concat!(
                            "delete from outbox where id = any($1) and expires_at <= $2 and ",
                            prunable!()
                        ),
                        &[&ids, &PgTime(now)],
                    )
                    .await?;
                Ok(removed)
            }
        }
    }
}
