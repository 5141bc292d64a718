//! `alerts`: what somebody should look at now.

use rusqlite::{Connection, params};
use tashika_domain::alert::{Alert, AlertResolution, AlertState, NewAlert, Severity};
use uuid::Uuid;

use crate::Store;
use crate::error::{CommitError, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader};
use crate::step::{Owner, Step, column};

macro_rules! count_one_more {
    () => {
        "on conflict (rule, subject) where state = 'firing' do update set
            count = alerts.count + 1, message = excluded.message, labels = excluded.labels"
    };
}

const FIRE_SQLITE: &str = concat!(
    "insert into alerts (id, rule, subject, severity, state, message, count, fired_at, labels)
     values (?1, ?2, ?3, ?4, 'firing', ?5, 1, ?6, ?7) ",
    count_one_more!()
);

const FIRE_PG: &str = concat!(
    "insert into alerts (id, rule, subject, severity, state, message, count, fired_at, labels)
     select id, rule, subject, severity, 'firing', message, 1, now, labels::jsonb
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
                   $7::text[])
         as t (id, rule, subject, severity, message, now, labels) ",
    count_one_more!()
);

const RESOLVE_SQLITE: &str = "update alerts set state = 'resolved', resolved_at = ?3
     where rule = ?1 and subject = ?2 and state = 'firing'";

const RESOLVE_PG: &str = "update alerts a set state = 'resolved', resolved_at = t.now
      from unnest($1::text[], $2::text[], $3::timestamptz[]) as t (rule, subject, now)
     where a.rule = t.rule and a.subject = t.subject and a.state = 'firing'";

pub(crate) fn fire_sqlite(db: &Connection, alert: &NewAlert) -> Result<(), CommitError> {
    db.prepare_cached(FIRE_SQLITE)?.execute(params![
        alert.id.as_bytes(),
        alert.rule,
        alert.subject,
        alert.severity.as_str(),
        alert.message,
        alert.now.as_micros(),
        alert.labels,
    ])?;
    Ok(())
}

pub(crate) fn fire_pg<'a>(rows: &[(Owner, &'a NewAlert)]) -> Step<'a> {
    Step {
        sql: FIRE_PG,
        params: vec![
            column(rows, |r| r.id),
            column(rows, |r| r.rule),
            column(rows, |r| r.subject.as_str()),
            column(rows, |r| r.severity.as_str()),
            column(rows, |r| r.message),
            column(rows, |r| PgTime(r.now)),
            column(rows, |r| r.labels.as_str()),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

pub(crate) fn resolve_sqlite(db: &Connection, end: &AlertResolution) -> Result<(), CommitError> {
    db.prepare_cached(RESOLVE_SQLITE)?.execute(params![
        end.rule,
        end.subject,
        end.now.as_micros()
    ])?;
    Ok(())
}

pub(crate) fn resolve_pg<'a>(rows: &[(Owner, &'a AlertResolution)]) -> Step<'a> {
    Step {
        sql: RESOLVE_PG,
        params: vec![
            column(rows, |r| r.rule),
            column(rows, |r| r.subject.as_str()),
            column(rows, |r| PgTime(r.now)),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

impl Store {
    /// A page of alerts, newest first.
    pub async fn alerts(
        &self,
        state: Option<AlertState>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Alert>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("state =", state.map(AlertState::as_str));
        chosen.add("id <", before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!(
            "select id, rule, severity, state, message, count, fired_at, resolved_at,
                cast(labels as text) as labels from alerts {conditions}"
        );
        self.query(sql, params, |row| {
            let read = Reader::by_uuid(row, "alerts", "id");
            let labels = serde_json::from_str(&read.text("labels")?)
                .map_err(|e| read.corrupt("labels", e.to_string()))?;
            Ok(Alert {
                id: read.uuid("id")?,
                rule: read.text("rule")?,
                severity: read.word("severity", Severity::parse)?,
                state: read.word("state", AlertState::parse)?,
                message: read.text("message")?,
                count: read.int("count")?,
                fired_at: read.time("fired_at")?,
                resolved_at: read.opt_time("resolved_at")?,
                labels,
            })
        })
        .await
    }
}
