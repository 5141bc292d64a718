//! `cases`: what a person has to decide.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use tashika_domain::case::{Case, CaseClosing, CaseEnd, CaseResolution, CaseStatus, NewCase};
use tashika_domain::mutant::{self, Mutant};
use uuid::Uuid;

use crate::Store;
use crate::error::{CommitError, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column, missing};

// A case that is open already stays as it is: the question has not changed.
const OPEN_SQLITE: &str = "insert into cases (id, kind, status, subject_type, subject_id, summary,
        actions, details, opened_at)
     values (?1, ?2, 'open', ?3, ?4, ?5, ?6, ?7, ?8)
     on conflict (kind, subject_id) where status = 'open' do nothing";

const OPEN_PG: &str = "insert into cases (id, kind, status, subject_type, subject_id, summary,
        actions, details, opened_at)
     select id, kind, 'open', subject_type, subject_id, summary, actions::jsonb, details::jsonb, now
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                   $7::text[], $8::timestamptz[])
         as t (id, kind, subject_type, subject_id, summary, actions, details, now)
     on conflict (kind, subject_id) where status = 'open' do nothing";

const RESOLVE_SQLITE: &str = "update cases
        set status = 'resolved', resolved_at = ?3, resolution = ?4, note = ?5
     where kind = ?1 and subject_id = ?2 and status = 'open'";

const RESOLVE_PG: &str = "update cases c
        set status = 'resolved', resolved_at = t.now, resolution = t.action, note = t.note
      from unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[])
        as t (kind, subject_id, now, action, note)
     where c.kind = t.kind and c.subject_id = t.subject_id and c.status = 'open'";

const CLOSE_SQLITE: &str = "update cases
        set status = 'resolved', resolved_at = ?2, resolution = ?3, note = ?4, resolved_by = ?5
     where id = ?1 and status = 'open'";

const CLOSE_PG: &str = "update cases c
        set status = 'resolved', resolved_at = t.now, resolution = t.action, note = t.note,
            resolved_by = t.who
      from unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[])
        as t (id, now, action, note, who)
     where c.id = t.id and c.status = 'open' returning c.id";

pub(crate) fn close_sqlite(db: &Connection, end: &CaseClosing) -> Result<(), CommitError> {
    let open = "status = 'open'";
    let sql = mutant::instead(Mutant::CaseDecidedTwice, CLOSE_SQLITE, open, "true");
    let closed = db.prepare_cached(&sql)?.execute(params![
        end.id.as_bytes(),
        end.now.as_micros(),
        end.action,
        end.note,
        end.by,
    ])?;
    if closed == 1 { Ok(()) } else { Err(gone(&end.id)) }
}

pub(crate) fn close_pg<'a>(rows: &[(Owner, &'a CaseClosing)]) -> Step<'a> {
    let owners: Vec<(Owner, Uuid)> = rows.iter().map(|(owner, row)| (*owner, row.id)).collect();
    Step {
        sql: CLOSE_PG,
        params: vec![
            column(rows, |r| r.id),
            column(rows, |r| PgTime(r.now)),
            column(rows, |r| r.action.as_str()),
            column(rows, |r| r.note.as_str()),
            column(rows, |r| r.by.as_str()),
        ],
        judge: Box::new(move |found| missing(owners.into_iter(), found, |row| row.get("id"), gone)),
    }
}

/// Somebody else has closed the case.
fn gone(id: &Uuid) -> CommitError {
    CommitError::Outdated { table: "cases", id: *id }
}

pub(crate) fn open_sqlite(db: &Connection, case: &NewCase) -> Result<(), CommitError> {
    db.prepare_cached(OPEN_SQLITE)?.execute(params![
        case.id.as_bytes(),
        case.kind,
        case.subject_type,
        case.subject_id,
        case.summary,
        actions_json(case),
        case.details,
        case.now.as_micros(),
    ])?;
    Ok(())
}

pub(crate) fn open_pg<'a>(rows: &[(Owner, &'a NewCase)]) -> Step<'a> {
    Step {
        sql: OPEN_PG,
        params: vec![
            column(rows, |r| r.id),
            column(rows, |r| r.kind),
            column(rows, |r| r.subject_type),
            column(rows, |r| r.subject_id.as_str()),
            column(rows, |r| r.summary.as_str()),
            column(rows, actions_json),
            column(rows, |r| r.details.as_str()),
            column(rows, |r| PgTime(r.now)),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

pub(crate) fn resolve_sqlite(db: &Connection, end: &CaseResolution) -> Result<(), CommitError> {
    db.prepare_cached(RESOLVE_SQLITE)?.execute(params![
        end.kind,
        end.subject_id,
        end.now.as_micros(),
        end.action,
        end.note,
    ])?;
    Ok(())
}

pub(crate) fn resolve_pg<'a>(rows: &[(Owner, &'a CaseResolution)]) -> Step<'a> {
    Step {
        sql: RESOLVE_PG,
        params: vec![
            column(rows, |r| r.kind),
            column(rows, |r| r.subject_id.as_str()),
            column(rows, |r| PgTime(r.now)),
            column(rows, |r| r.action.as_str()),
            column(rows, |r| r.note.as_str()),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

fn actions_json(case: &NewCase) -> String {
    serde_json::json!(case.actions).to_string()
}

const COLUMNS: &str = "id, kind, status, subject_type, subject_id, summary,
    cast(actions as text) as actions, cast(details as text) as details, opened_at, resolved_at,
    resolution, note, resolved_by";

fn parse(row: &dyn Row) -> Result<Case, StoreError> {
    let read = Reader::by_uuid(row, "cases", "id");
    let actions = serde_json::from_str(&read.text("actions")?)
        .map_err(|e| read.corrupt("actions", e.to_string()))?;
    let resolution = match read.opt_time("resolved_at")? {
        None => None,
        Some(at) => Some(CaseEnd {
            action: read.opt_text("resolution")?.unwrap_or_default(),
            note: read.opt_text("note")?.unwrap_or_default(),
            by: read.opt_text("resolved_by")?,
            at,
        }),
    };
    Ok(Case {
        id: read.uuid("id")?,
        kind: read.text("kind")?,
        status: read.word("status", CaseStatus::parse)?,
        subject_type: read.text("subject_type")?,
        subject_id: read.text("subject_id")?,
        summary: read.text("summary")?,
        actions,
        details: read.text("details")?,
        opened_at: read.time("opened_at")?,
        resolution,
    })
}

/// Which cases to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseFilter {
    pub status: Option<CaseStatus>,
    pub kind: Option<String>,
    pub subject_type: Option<String>,
    pub subject_id: Option<String>,
    /// Only cases older than this one: the last id of the page before.
    pub before: Option<Uuid>,
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
}

impl Store {
    /// The cases about a subject, newest first.
    pub async fn cases_of(
        &self,
        subject_type: &str,
        subject_id: &str,
    ) -> Result<Vec<Case>, StoreError> {
        let sql = format!(
            "select {COLUMNS} from cases where subject_type = $1 and subject_id = $2
             order by opened_at desc, id desc"
        );
        self.query(sql, vec![Param::from(subject_type), Param::from(subject_id)], parse).await
    }

    /// A page of cases, newest first.
    pub async fn cases(&self, filter: &CaseFilter, limit: i64) -> Result<Vec<Case>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("status =", filter.status.map(CaseStatus::as_str));
        chosen.add("kind =", filter.kind.as_deref());
        chosen.add("subject_type =", filter.subject_type.as_deref());
        chosen.add("subject_id =", filter.subject_id.as_deref());
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("select {COLUMNS} from cases {conditions}");
        self.query(sql, params, parse).await
    }

    pub async fn case(&self, id: Uuid) -> Result<Option<Case>, StoreError> {
        let sql = format!("select {COLUMNS} from cases where id = $1");
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// How many cases of each kind are open.
    pub async fn open_case_counts(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        // Answered from the index of open cases alone.
        let sql = "select kind, count(*) as n from cases where status = 'open' group by kind";
        let found = self.query(sql.to_owned(), vec![], |row| {
            let read = Reader::named(row, "cases", "count");
            Ok((read.text("kind")?, read.int("n")?))
        });
        Ok(found.await?.into_iter().collect())
    }
}
