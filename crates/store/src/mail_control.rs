//! `mail_control`, `mail_permits`, `mail_quota`: what all processes together may send.
//!
//! A permit is given under the lock of the control row: what is found and what is decided about it
//! are one transaction. Moments of permits are the database's own on PostgreSQL, so that the clocks of
//! two machines need not agree for a rate to hold; whoever asks is told how long to wait, not until when.

use std::time::Duration;

use futures_util::future::{join, join3, join5};
use rusqlite::{Connection, OptionalExtension as _, params};
use tashika_domain::Timestamp;
use tashika_domain::mail::control::{Control, LaneState};
use tashika_domain::mail::pace::{self, Found, Leave, Limits};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::cell::Cell;
use crate::error::StoreError;
use crate::row::{Param, PgTime, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};
use crate::{Backend, Store};

const FIXED: [Column; 1] = [("id", Kind::Uuid)];

const CHANGING: [Column; 6] = [
    ("version", Kind::Int),
    ("state", Kind::Text),
    ("until", Kind::Time),
    ("reason", Kind::Text),
    ("slow_until", Kind::Time),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("mail_control", &FIXED, &CHANGING));

impl Kept for Control {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        Self::ID
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![Cell::Uuid(Self::ID)]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.state.as_str().into(),
            self.until.into(),
            self.reason.as_deref().into(),
            self.slow_until.into(),
            Cell::Time(self.updated_at),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Control, StoreError> {
    let read = Reader::by_uuid(row, "mail_control", "id");
    Ok(Control {
        version: read.int("version")?,
        state: read.word("state", LaneState::parse)?,
        until: read.opt_time("until")?,
        reason: read.opt_text("reason")?,
        slow_until: read.opt_time("slow_until")?,
        updated_at: read.time("updated_at")?,
    })
}

/// Who wants to send a mail.
#[derive(Clone, Debug, PartialEq)]
pub struct PermitWish {
    /// Names the permit.
    pub id: Uuid,
    pub worker: String,
    pub now: Timestamp,
    pub limits: Limits,
    /// For how long it counts if nobody ever gives it back.
    pub at_most: Duration,
}

/// What was decided, and with what in view.
#[derive(Clone, Debug, PartialEq)]
pub struct PermitAnswer {
    pub leave: Leave,
    pub found: Found,
}

/// Nobody waits for permits to be on disk. If the database itself crashes, it may forget those of the
/// last moment, and the lane is a moment too fast or a few mails over its quota; a process that crashes
/// changes nothing.
const BEGIN_UNHURRIED: &str = "begin; set local synchronous_commit = off";

const END_PG: &str = "with given_back as (
        update mail_quota set used = used - 1 where minute = $3 and used > 0 and $4)
   update mail_permits set ends_at = clock_timestamp() + $2 * interval '1 microsecond'
    where id = $1";

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

impl Store {
    /// The state of the mail lane.
    pub async fn mail_control(&self) -> Result<Control, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        let found = self.query(sql, vec![Param::Uuid(Control::ID)], parse).await?.pop();
        found.ok_or_else(|| StoreError::Rejected("mail_control has lost its row".to_owned()))
    }

    /// Asks for leave to send a mail now. If it is granted, the permit is out and the quota counted.
    pub async fn take_mail_permit(&self, wish: PermitWish) -> Result<PermitAnswer, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                // Rows are read in the writer's transaction, and a row that means nothing to us is not
                // SQLite's error.
                let clock = sqlite.clock();
                sqlite.upkeep(move |db| Ok(take_sqlite(db, &wish, clock(wish.now)))).await?
            }
            Backend::Postgres(postgres) => {
                let client = postgres.writer().await?;
                let answer = take_pg(&client, &wish).await;
                if answer.is_err() {
                    // It may be in the middle of a transaction.
                    drop(deadpool_postgres::Object::take(client));
                }
                answer
            }
        }
    }

    /// The attempt is over: the permit counts for a little longer, and the quota is given back if it is
    /// certain that nothing was sent.
    pub async fn end_mail_permit(
        &self,
        id: Uuid,
        taken_at: Timestamp,
        rest: Duration,
        unsent: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let minute = pace::minute(taken_at);
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                let clock = sqlite.clock();
                sqlite
                    .upkeep(move |db| {
                        let ends = clock(now).plus(rest).as_micros();
                        db.prepare_cached("update mail_permits set ends_at = ?2 where id = ?1")?
                            .execute(params![id.as_bytes(), ends])?;
                        if unsent {
                            db.prepare_cached(
                                "update mail_quota set used = used - 1
                                  where minute = ?1 and used > 0",
                            )?
                            .execute(params![minute])?;
                        }
                        Ok(())
                    })
                    .await
            }
            Backend::Postgres(postgres) => {
                let client = postgres.writer().await?;
                let statement = client.prepare_cached(END_PG).await?;
                let rest = micros_f64(rest);
                let params: [&(dyn ToSql + Sync); 4] = [&id, &rest, &minute, &unsent];
                let (begun, ended, committed) = join3(
                    client.batch_execute(BEGIN_UNHURRIED),
                    client.execute(&statement, &params),
                    client.batch_execute("commit"),
                )
                .await;
                begun.and(ended).and(committed)?;
                Ok(())
            }
        }
    }

    /// How many mails the quota counts now, and how many permits are out.
    pub async fn mail_usage(&self, now: Timestamp) -> Result<(i64, i64), StoreError> {
        let sql = "select cast(coalesce(sum(used), 0) as bigint) as n from mail_quota
             where minute >= $1";
        let used = self.count(sql, vec![Param::Int(pace::first_counted(now))]).await?;
        let permits = self.count(
            "select count(*) as n from mail_permits where ends_at > $1",
            vec![Param::Time(now)],
        );
        Ok((used, permits.await?))
    }

    /// Forgets minutes that count no more.
    pub async fn prune_mail_quota(&self, now: Timestamp) -> Result<u64, StoreError> {
        let sql = "delete from mail_quota where minute < $1".to_owned();
        // An hour more: a process whose clock is behind may still ask.
        self.execute(sql, vec![Param::Int(pace::first_counted(now) - 60)]).await
    }
}

/// Moments are read before anybody waits for the database: a permit that is a little ahead of ours belongs to
/// somebody who came later and was faster.
const PUT_BACK: Duration = Duration::from_secs(60);

fn micros_f64(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000_000.0
}

/// `time` is the database's, as far as permits are concerned.
fn take_sqlite(
    db: &Connection,
    wish: &PermitWish,
    time: Timestamp,
) -> Result<PermitAnswer, StoreError> {
    let now = time.as_micros();
    let sql = format!("{} where id = ?1", TABLE.select());
    let control = db
        .prepare_cached(&sql)?
        .query_row(params![Control::ID.as_bytes()], |row| Ok(parse(row)))
        .optional()?
        .ok_or_else(|| StoreError::Rejected("mail_control has lost its row".to_owned()))??;
    // A permit that would end much later than one of this moment was taken before the clock was put back.
    db.prepare_cached("delete from mail_permits where ends_at <= ?1 or ends_at > ?1 + ?2")?
        .execute(params![now, micros(wish.at_most + PUT_BACK)])?;
    let (permits, first): (i64, Option<i64>) = db
        .prepare_cached("select count(*), min(ends_at) from mail_permits")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (used, oldest): (i64, Option<i64>) = db
        .prepare_cached(
            "select coalesce(sum(used), 0), min(minute) from mail_quota
              where minute >= ?1 and used > 0",
        )?
        .query_row(params![pace::first_counted(wish.now)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let first_back_in = first.map(|at| Timestamp::from_micros(at).since(time));
    let found = Found { control, permits, first_back_in, used, oldest };
    let leave = pace::decide(&found, &wish.limits, wish.now);
    if leave == Leave::Granted {
        db.prepare_cached(
            "insert into mail_permits (id, worker, taken_at, ends_at) values (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            wish.id.as_bytes(),
            wish.worker,
            now,
            now + micros(wish.at_most)
        ])?;
        db.prepare_cached(
            "insert into mail_quota (minute, used) values (?1, 1)
             on conflict (minute) do update set used = mail_quota.used + 1",
        )?
        .execute(params![pace::minute(wish.now)])?;
    }
    Ok(PermitAnswer { leave, found })
}

/// Twice to the database and back, however many statements: everybody else waits for the lock.
async fn take_pg(
    client: &deadpool_postgres::Object,
    wish: &PermitWish,
) -> Result<PermitAnswer, StoreError> {
    let sql = format!("{} where id = $1 for update", TABLE.select());
    let lock = client.prepare_cached(&sql).await?;
    let clear = client.prepare_cached(CLEAR_PG).await?;
    let count = client.prepare_cached(COUNT_PG).await?;
    let sum = client.prepare_cached(SUM_PG).await?;
    let insert = client.prepare_cached(INSERT_PG).await?;
    let first_counted = pace::first_counted(wish.now);
    let sum_params: [&(dyn ToSql + Sync); 1] = [&first_counted];
    // Sent in one go and done one after the other: each statement sees what was committed before the
    // lock was ours.
    let (begun, control, cleared, counted, summed) = join5(
        client.batch_execute(BEGIN_UNHURRIED),
        client.query_one(&lock, &[&Control::ID]),
        client.execute(&clear, &[]),
        client.query_one(&count, &[]),
        client.query_one(&sum, &sum_params),
    )
    .await;
    begun?;
    let control = parse(&control?)?;
    cleared?;
    let (counted, summed) = (counted?, summed?);
    let back_in: Option<f64> = counted.get("back_in");
    let found = Found {
        control,
        permits: counted.get("n"),
        first_back_in: back_in.map(|s| Duration::try_from_secs_f64(s).unwrap_or_default()),
        used: summed.get("used"),
        oldest: summed.get("oldest"),
    };
    let leave = pace::decide(&found, &wish.limits, wish.now);
    if leave == Leave::Granted {
        let (minute, at_most) = (pace::minute(wish.now), micros_f64(wish.at_most));
        let taken = PgTime(wish.now);
        let params: [&(dyn ToSql + Sync); 5] = [&wish.id, &wish.worker, &taken, &at_most, &minute];
        let (inserted, ended) =
            join(client.execute(&insert, &params), client.batch_execute("commit")).await;
        inserted?;
        ended?;
    } else {
        client.batch_execute("commit").await?;
    }
    Ok(PermitAnswer { leave, found })
}

const CLEAR_PG: &str = "delete from mail_permits where ends_at <= clock_timestamp()";

const COUNT_PG: &str = "select count(*) as n,
        extract(epoch from min(ends_at) - clock_timestamp())::float8 as back_in
   from mail_permits";

const SUM_PG: &str = "select cast(coalesce(sum(used), 0) as bigint) as used, min(minute) as oldest
   from mail_quota where minute >= $1 and used > 0";

const INSERT_PG: &str = "with counted as (
        insert into mail_quota (minute, used) values ($5, 1)
        on conflict (minute) do update set used = mail_quota.used + 1)
   insert into mail_permits (id, worker, taken_at, ends_at)
   values ($1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond')";
