//! Taking, keeping and losing the right to work on an effect.
//!
//! Called by the dispatcher (claim, renew) and the rescuer (lapsed, look back). Guarantees: an
//! effect is claimed by one worker at a time, each claim has a new fence, and the cost of a claim
//! depends on how much it takes, not on how much waits or how much has been done.
//!
//! On PostgreSQL the claim does not start at the beginning of the index but at a *floor* that moves
//! with the work. Rows that were claimed leave dead index entries behind, and while any session keeps
//! a transaction open, vacuum may not remove them: a claim that starts at the beginning walks over
//! all of them, every time. What may hide below the floor (a transaction that committed late, a row
//! edited by hand) is found by [`Store::look_back`], or announced by a notification.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};
use tashika_domain::changes::Lease;
use tashika_domain::effect::{Effect, EffectId, FIRST_FENCE};
use tashika_domain::{Lane, Timestamp};
use uuid::Uuid;

use crate::error::StoreError;
use crate::row::{Param, PgTime, Reader, Row};
use crate::{Backend, Store};

/// How far below the last claimed row a claim starts: commits may become visible a little out of
/// order, within a flush and between processes.
const FLOOR_MARGIN: Duration = Duration::from_millis(200);

/// What a worker wants.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    pub lane: &'a Lane,
    pub worker: &'a str,
    pub now: Timestamp,
    pub limit: usize,
}

const CLAIM_SQLITE: &str = "update outbox set status = 'sending', locked_by = ?1, locked_at = ?2,
        fence = fence + 1, updated_at = ?2
     where id in (select id from outbox
                   where lane = ?3 and status in ('pending', 'failed') and next_run_at <= ?2
                   order by next_run_at, id limit ?4)
     returning id, kind, idempotency_key, request_digest, payload, attempts, in_doubt, fence,
               created_at, next_run_at, traceparent";

// The array makes the planner fetch the chosen rows by primary key, however large it believes the
// inner result to be.
pub(crate) const CLAIM_PG: &str = "with due as materialized (
        select id from outbox
         where lane = $3 and status in ('pending', 'failed')
           and next_run_at >= $5 and next_run_at <= $2
         order by next_run_at, id limit $4
           for update skip locked)
     update outbox set status = 'sending', locked_by = $1, locked_at = $2,
        fence = fence + 1, updated_at = $2
     where id = any(array(select id from due))
     returning id, kind, idempotency_key, request_digest, cast(payload as text), attempts, in_doubt,
               fence, created_at, next_run_at, traceparent";

// A renewal that was held up must not undo one that overtook it.
const RENEW_SQLITE: &str = "update outbox set locked_at = max(locked_at, ?3), updated_at = ?3
     where id = ?1 and fence = ?2 and status = 'sending'";

const RENEW_PG: &str = "update outbox o set locked_at = greatest(o.locked_at, $3), updated_at = $3
       from unnest($1::uuid[], $2::int8[]) as t (id, fence)
      where o.id = t.id and o.fence = t.fence and o.status = 'sending'
      returning o.id, o.fence";

// With a new version: whoever found it lapsed before has decided about something else.
const RENEW_HELD_SQLITE: &str = "update messages set held_at = max(held_at, ?2),
        version = version + 1
     where id = ?1 and held_by is not null";

const RENEW_HELD_PG: &str = "update messages set held_at = greatest(held_at, $2),
        version = version + 1
     where id = any($1) and held_by is not null
     returning id";

pub(crate) fn claim_sqlite(
    db: &Connection,
    lane: &Lane,
    worker: &str,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Effect>> {
    let mut statement = db.prepare_cached(CLAIM_SQLITE)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows =
        statement.query_map(params![worker, now.as_micros(), lane.as_str(), limit], |row| {
            Ok(Effect {
                id: EffectId(Uuid::from_bytes(row.get(0)?)),
                lane: lane.clone(),
                kind: row.get(1)?,
                key: row.get(2)?,
                digest: row.get(3)?,
                payload: row.get(4)?,
                attempts: row.get(5)?,
                in_doubt: row.get(6)?,
                fence: row.get(7)?,
                has_row: true,
                created_at: Timestamp::from_micros(row.get(8)?),
                run_at: Timestamp::from_micros(row.get(9)?),
                traceparent: row.get(10)?,
            })
        })?;
    rows.collect()
}

fn effect_from_pg(row: &tokio_postgres::Row, lane: &Lane) -> Result<Effect, tokio_postgres::Error> {
    let attempts: i32 = row.try_get(5)?;
    Ok(Effect {
        id: EffectId(row.try_get(0)?),
        lane: lane.clone(),
        kind: row.try_get(1)?,
        key: row.try_get(2)?,
        digest: row.try_get(3)?,
        payload: row.try_get(4)?,
        attempts: u32::try_from(attempts).unwrap_or(0),
        in_doubt: row.try_get(6)?,
        fence: row.try_get(7)?,
        has_row: true,
        created_at: row.try_get::<_, PgTime>(8)?.0,
        run_at: row.try_get::<_, PgTime>(9)?.0,
        traceparent: row.try_get(10)?,
    })
}

/// Where claims start, by lane.
#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<BTreeMap<Lane, Floor>>);

#[derive(Debug)]
struct Floor {
    at: Timestamp,
    /// The earliest effect announced since the last claim began. Kept apart, so that a claim that
    /// was under way and could not see it does not raise the floor above it.
    announced: Option<Timestamp>,
}

/// Before everything.
pub(crate) const BOTTOM: Timestamp = Timestamp::from_micros(0);

impl Floors {
    /// Where the claim that begins now must start.
    fn begin(&self, lane: &Lane) -> Timestamp {
        let mut floors = self.lock();
        let Some(floor) = floors.get_mut(lane) else { return BOTTOM };
        if let Some(announced) = floor.announced.take() {
            floor.at = floor.at.min(announced);
        }
        floor.at
    }

    /// Something may be waiting at `at`.
    pub fn announce(&self, lane: &Lane, at: Timestamp) {
        if let Some(floor) = self.lock().get_mut(lane) {
            floor.announced = Some(floor.announced.map_or(at, |known| known.min(at)));
        }
    }

    /// Something may be waiting at `at` in any lane. Returns the lanes that have a floor.
    pub fn announce_everywhere(&self, at: Timestamp) -> Vec<Lane> {
        let lanes: Vec<Lane> = self.lock().keys().cloned().collect();
        for lane in &lanes {
            self.announce(lane, at);
        }
        lanes
    }

    /// A claim has taken or seen everything between `from` and `at`.
    fn raise(&self, lane: &Lane, from: Timestamp, at: Timestamp) {
        let mut floors = self.lock();
        let floor = floors.entry(lane.clone()).or_insert(Floor { at: BOTTOM, announced: None });
        // Lower than where it began: another claim has been told of something that it did not see.
        if floor.at >= from {
            floor.at = floor.at.max(at.minus(FLOOR_MARGIN));
        }
    }

    fn current(&self, lane: &Lane) -> Timestamp {
        self.lock().get(lane).map_or(BOTTOM, |floor| floor.at)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Lane, Floor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An effect whose worker gave no sign of life.
#[derive(Clone, Debug)]
pub struct Lapsed {
    pub effect: Effect,
    pub worker: String,
    pub locked_at: Timestamp,
}

impl Store {
    /// Takes up to `limit` due effects of a lane, the longest due first.
    pub async fn claim(&self, claim: Claim<'_>) -> Result<Vec<Effect>, StoreError> {
        let Claim { lane, worker, now, limit } = claim;
        let mut effects = match &self.backend {
            Backend::Sqlite(sqlite) => {
                let (lane, worker) = (lane.clone(), worker.to_owned());
                sqlite.upkeep(move |db| claim_sqlite(db, &lane, &worker, now, limit)).await?
            }
            Backend::Postgres(postgres) => {
                let floor = postgres.floors.begin(lane);
                let client = postgres.writer().await?;
                let statement = client.prepare_cached(CLAIM_PG).await.map_err(StoreError::from)?;
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let rows = client
                    .query(
                        &statement,
                        &[&worker, &PgTime(now), &lane.as_str(), &limit, &PgTime(floor)],
                    )
                    .await?;
                let effects: Vec<Effect> =
                    rows.iter().map(|row| effect_from_pg(row, lane)).collect::<Result<_, _>>()?;
                // A claim that came back short has seen everything that was due.
                let last = effects.iter().map(|effect| effect.run_at).max();
                let short = i64::try_from(effects.len()).unwrap_or(i64::MAX) < limit;
                if let Some(at) = if short { Some(now) } else { last } {
                    postgres.floors.raise(lane, floor, at);
                }
                effects
            }
        };
        effects.sort_by_key(|effect| (effect.run_at, effect.id));
        Ok(effects)
    }

    /// A sign of life for the effects a worker holds. Returns those it no longer holds.
    pub async fn renew(
        &self,
        leases: Vec<Lease>,
        now: Timestamp,
    ) -> Result<Vec<Lease>, StoreError> {
        if leases.is_empty() {
            return Ok(leases);
        }
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                sqlite.upkeep(move |db| renew_sqlite(db, &leases, now)).await
            }
            Backend::Postgres(postgres) => renew_pg(&*postgres.writer().await?, leases, now).await,
        }
    }

    /// Effects of a lane that were last heard of before `cutoff`.
    ///
    /// Reads the whole table: an index on `locked_at` would cost every claim a quarter of its speed
    /// for something that happens when a process dies. The rescuer calls it when it has a reason to.
    /// Messages that carry their lease themselves have an index.
    pub async fn lapsed(
        &self,
        lane: &Lane,
        cutoff: Timestamp,
        limit: i64,
    ) -> Result<Vec<Lapsed>, StoreError> {
        let sql = format!(
            "select {LAPSED_COLUMNS} from outbox
              where status = 'sending' and lane = $1 and locked_at <= $2
              order by id limit $3"
        );
        let params = vec![Param::from(lane.as_str()), Param::Time(cutoff), Param::Int(limit)];
        let mut found = self.query(sql, params, parse_lapsed).await?;
        if *lane == Lane::DELIVERIES {
            found.extend(self.messages_left(cutoff, limit).await?);
        }
        Ok(found)
    }

    /// The lanes of effects whose lease was last renewed by `cutoff`. Reads all of the outbox, once for all lanes.
    pub async fn lanes_lapsed(&self, cutoff: Timestamp) -> Result<Vec<Lane>, StoreError> {
        let sql = format!(
            "select lane from outbox where status = 'sending' and locked_at <= $1
             union
             select '{}' as lane from messages where held_by is not null and held_at <= $1",
            Lane::DELIVERIES,
        );
        self.query(sql, vec![Param::Time(cutoff)], |row| {
            Reader::named(row, "outbox", "lane").word("lane", Lane::parse)
        })
        .await
    }

    /// Looks for due effects that lie below the floor, and lowers the floor to them.
    ///
    /// Returns whether there were any. Only PostgreSQL has a floor.
    pub async fn look_back(&self, lane: &Lane) -> Result<bool, StoreError> {
        let Backend::Postgres(postgres) = &self.backend else {
            return Ok(false);
        };
        let floor = postgres.floors.current(lane);
        let row = postgres
            .reader()
            .await?
            .query_opt(
                "select next_run_at from outbox
                  where lane = $1 and status in ('pending', 'failed') and next_run_at < $2
                  order by next_run_at limit 1",
                &[&lane.as_str(), &PgTime(floor)],
            )
            .await?;
        let Some(row) = row else { return Ok(false) };
        postgres.floors.announce(lane, row.try_get::<_, PgTime>(0)?.0);
        self.wakeups.mark(lane);
        Ok(true)
    }
}

/// Renews what it finds; returns the rest.
fn renew_sqlite(db: &Connection, leases: &[Lease], now: Timestamp) -> rusqlite::Result<Vec<Lease>> {
    let mut claimed = db.prepare_cached(RENEW_SQLITE)?;
    let mut held = db.prepare_cached(RENEW_HELD_SQLITE)?;
    let mut lost = Vec::new();
    for lease in leases {
        let id = lease.id.0.as_bytes();
        let mut found = claimed.execute(params![id, lease.fence, now.as_micros()])?;
        if found == 0 && lease.fence == FIRST_FENCE {
            found = held.execute(params![id, now.as_micros()])?;
        }
        if found == 0 {
            lost.push(*lease);
        }
    }
    Ok(lost)
}

async fn renew_pg(
    client: &tokio_postgres::Client,
    mut leases: Vec<Lease>,
    now: Timestamp,
) -> Result<Vec<Lease>, StoreError> {
    let ids: Vec<Uuid> = leases.iter().map(|lease| lease.id.0).collect();
    let fences: Vec<i64> = leases.iter().map(|lease| lease.fence).collect();
    let rows = client.query(RENEW_PG, &[&ids, &fences, &PgTime(now)]).await?;
    // By fence as well: an earlier lease of the same effect is lost, not held.
    let claimed: HashSet<Lease> =
        rows.iter().map(|row| Lease { id: EffectId(row.get(0)), fence: row.get(1) }).collect();
    leases.retain(|lease| !claimed.contains(lease));
    let first = leases.iter().filter(|lease| lease.fence == FIRST_FENCE);
    let ids: Vec<Uuid> = first.map(|lease| lease.id.0).collect();
    if !ids.is_empty() {
        let rows = client.query(RENEW_HELD_PG, &[&ids, &PgTime(now)]).await?;
        let held: HashSet<Lease> =
            rows.iter().map(|row| Lease { id: EffectId(row.get(0)), fence: FIRST_FENCE }).collect();
        leases.retain(|lease| !held.contains(lease));
    }
    Ok(leases)
}

const LAPSED_COLUMNS: &str = "id, lane, kind, idempotency_key, request_digest,
    cast(payload as text) as payload, attempts, in_doubt, fence, created_at, next_run_at,
    traceparent, locked_by, locked_at";

fn parse_lapsed(row: &dyn Row) -> Result<Lapsed, StoreError> {
    let read = Reader::by_uuid(row, "outbox", "id");
    Ok(Lapsed {
        effect: Effect {
            id: EffectId(read.uuid("id")?),
            lane: read.word("lane", Lane::parse)?,
            kind: read.text("kind")?,
            key: read.opt_text("idempotency_key")?,
            digest: read.opt_text("request_digest")?,
            payload: read.text("payload")?,
            attempts: read.number("attempts")?,
            in_doubt: read.bool("in_doubt")?,
            fence: read.int("fence")?,
            has_row: true,
            created_at: read.time("created_at")?,
            run_at: read.time("next_run_at")?,
            traceparent: read.opt_text("traceparent")?,
        },
        worker: read.text("locked_by")?,
        locked_at: read.time("locked_at")?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::migrate;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn the_floor_rises_with_the_work_and_keeps_a_margin() {
        let (floors, lane) = (Floors::default(), Lane::ORDERS);
        assert_eq!(floors.begin(&lane), BOTTOM);
        floors.raise(&lane, BOTTOM, at(10_000));
        assert_eq!(floors.begin(&lane), at(9_800));
        floors.raise(&lane, at(9_800), at(9_000));
        assert_eq!(floors.begin(&lane), at(9_800), "never sinks by itself");
    }

    #[test]
    fn what_is_announced_during_a_claim_is_not_passed_over() {
        let (floors, lane) = (Floors::default(), Lane::ORDERS);
        floors.raise(&lane, BOTTOM, at(10_000));
        let from = floors.begin(&lane);
        floors.announce(&lane, at(11_000));
        floors.raise(&lane, from, at(20_000));
        assert!(from < at(11_000));
        assert_eq!(floors.begin(&lane), at(11_000));
        floors.raise(&lane, at(11_000), at(21_000));
        assert_eq!(floors.begin(&lane), at(20_800), "seen once is enough");
    }

    #[test]
    fn a_claim_does_not_pass_over_what_only_another_was_told_of() {
        let (floors, lane) = (Floors::default(), Lane::ORDERS);
        floors.raise(&lane, BOTTOM, at(10_000));
        let first = floors.begin(&lane);
        floors.announce(&lane, at(5_000));
        let second = floors.begin(&lane);
        assert_eq!((first, second), (at(9_800), at(5_000)));
        floors.raise(&lane, first, at(20_000));
        floors.raise(&lane, second, at(5_500));
        assert_eq!(floors.begin(&lane), at(5_300), "the second took only a part");
    }
    #[test]
    fn sqlite_compiles_the_claim_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = migrate::open_sqlite(&folder.path().join("claims.db")).expect("a database");
        migrate::sqlite(&db).expect("its schema");
        for (lane, limit) in [(Lane::ORDERS, 10), (Lane::MAIL, 20), (Lane::ORDERS, 30)] {
            claim_sqlite(&db, &lane, "worker", at(1), limit).expect("nothing is there");
        }
        let statement = db.prepare_cached(CLAIM_SQLITE).expect("it is known");
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
