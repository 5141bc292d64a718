//! `race_conditions`: races that were noticed, and what was done.

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::race::NewRace;
use uuid::Uuid;

use crate::Store;
use crate::error::{CommitError, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column};

const RECORD_SQLITE: &str = "insert into race_conditions (id, scenario, subject_type, subject_id,
        resolution, details, detected_at)
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const RECORD_PG: &str = "insert into race_conditions (id, scenario, subject_type, subject_id,
        resolution, details, detected_at)
     select id, scenario, subject_type, subject_id, resolution, details::jsonb, now
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                   $7::timestamptz[])
         as t (id, scenario, subject_type, subject_id, resolution, details, now)";

pub(crate) fn record_sqlite(db: &Connection, race: &NewRace) -> Result<(), CommitError> {
    db.prepare_cached(RECORD_SQLITE)?.execute(params![
        race.id.as_bytes(),
        race.scenario,
        race.subject_type,
        race.subject_id,
        race.resolution,
        race.details,
        race.now.as_micros(),
    ])?;
    Ok(())
}

pub(crate) fn record_pg<'a>(rows: &[(Owner, &'a NewRace)]) -> Step<'a> {
    Step {
        sql: RECORD_PG,
        params: vec![
            column(rows, |r| r.id),
            column(rows, |r| r.scenario),
            column(rows, |r| r.subject_type),
            column(rows, |r| r.subject_id.as_str()),
            column(rows, |r| r.resolution),
            column(rows, |r| r.details.as_str()),
            column(rows, |r| PgTime(r.now)),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

/// A race as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RaceRow {
    pub id: Uuid,
    pub scenario: String,
    pub subject_type: String,
    pub subject_id: String,
    pub resolution: String,
    /// JSON text.
    pub details: String,
    pub detected_at: Timestamp,
}

impl Store {
    /// The races that a subject was in, oldest first.
    pub async fn races_of(
        &self,
        subject_type: &str,
        subject_id: &str,
    ) -> Result<Vec<RaceRow>, StoreError> {
        let sql = format!("{SELECT} where subject_type = $1 and subject_id = $2 order by id");
        self.query(sql, vec![subject_type.into(), subject_id.into()], parse).await
    }

    /// A page of races, newest first.
    pub async fn races(&self, filter: &RaceFilter, limit: i64) -> Result<Vec<RaceRow>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("scenario =", filter.scenario.as_deref());
        chosen.add("resolution =", filter.resolution.as_deref());
        chosen.add("subject_id =", filter.subject_id.as_deref());
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        self.query(format!("{SELECT} {conditions}"), params, parse).await
    }

    /// How many races of a scenario have ended in a way since a moment.
    pub async fn race_count(
        &self,
        scenario: &str,
        resolution: &str,
        since: Timestamp,
    ) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from race_conditions
             where scenario = $1 and resolution = $2 and detected_at > $3";
        let params = vec![scenario.into(), resolution.into(), since.into()];
        let found = self.query(sql.to_owned(), params, |row| {
            Reader::named(row, "race_conditions", "count").int("n")
        });
        Ok(found.await?.pop().unwrap_or(0))
    }
}

const SELECT: &str = "select id, scenario, subject_type, subject_id, resolution,
        cast(details as text) as details, detected_at
     from race_conditions";

fn parse(row: &dyn Row) -> Result<RaceRow, StoreError> {
    let read = Reader::by_uuid(row, "race_conditions", "id");
    Ok(RaceRow {
        id: read.uuid("id")?,
        scenario: read.text("scenario")?,
        subject_type: read.text("subject_type")?,
        subject_id: read.text("subject_id")?,
        resolution: read.text("resolution")?,
        details: read.text("details")?,
        detected_at: read.time("detected_at")?,
    })
}

/// Which races to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaceFilter {
    pub scenario: Option<String>,
    pub resolution: Option<String>,
    pub subject_id: Option<String>,
    /// Only races older than this one: the last id of the page before.
    pub before: Option<Uuid>,
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
}
