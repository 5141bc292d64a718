//! `alerts`: what somebody should look at now.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::alert::{
    Acknowledged, Alert, AlertResolution, AlertState, Announced, NewAlert, Severity, Silence,
    Silenced,
};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{CommitError, Key, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 5] = [
    ("id", Kind::Uuid),
    ("rule", Kind::Text),
    ("subject", Kind::Text),
    ("severity", Kind::Text),
    ("fired_at", Kind::Time),
];

const CHANGING: [Column; 13] = [
    ("version", Kind::Int),
    ("state", Kind::Text),
    ("message", Kind::Text),
    ("count", Kind::Int),
    ("seen_at", Kind::Time),
    ("resolved_at", Kind::Time),
    ("labels", Kind::Json),
    ("announced", Kind::Text),
    ("acknowledged_at", Kind::Time),
    ("acknowledged_by", Kind::Text),
    ("silenced_until", Kind::Time),
    ("silenced_by", Kind::Text),
    ("silence_reason", Kind::Text),
];

static TABLE: Lazy = Lazy::new(|| Table::new("alerts", &FIXED, &CHANGING).unique(Key::Alert));

impl Kept for Alert {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            self.rule.as_str().into(),
            self.subject.as_str().into(),
            self.severity.as_str().into(),
            Cell::Time(self.fired_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let (acknowledged, silenced) = (self.acknowledged.as_ref(), self.silenced.as_ref());
        vec![
            Cell::Int(self.version),
            self.state.as_str().into(),
            self.message.as_str().into(),
            Cell::Int(self.count),
            Cell::Time(self.seen_at),
            self.resolved_at.into(),
            Cell::Text(self.labels.to_string().into()),
            self.announced.as_str().into(),
            acknowledged.map(|who| who.at).into(),
            acknowledged.map(|who| who.by.as_str()).into(),
            silenced.map(|silence| silence.until).into(),
            silenced.map(|silence| silence.by.as_str()).into(),
            silenced.map(|silence| silence.reason.as_str()).into(),
        ]
    }
}

macro_rules! count_one_more {
    () => {
        "on conflict (rule, subject) where state = 'firing' do update set
            count = alerts.count + 1, message = excluded.message, labels = excluded.labels,
            seen_at = excluded.seen_at, version = alerts.version + 1"
    };
}

const FIRE_SQLITE: &str = concat!(
    "insert into alerts (id, rule, subject, severity, state, message, count, fired_at, seen_at,
        labels)
     values (?1, ?2, ?3, ?4, 'firing', ?5, 1, ?6, ?6, ?7) ",
    count_one_more!()
);

const FIRE_PG: &str = concat!(
    "insert into alerts (id, rule, subject, severity, state, message, count, fired_at, seen_at,
        labels)
     select id, rule, subject, severity, 'firing', message, 1, now, now, labels::jsonb
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
                   $7::text[])
         as t (id, rule, subject, severity, message, now, labels) ",
    count_one_more!()
);

const RESOLVE_SQLITE: &str = "update alerts
        set state = 'resolved', resolved_at = ?3, version = version + 1
     where rule = ?1 and subject = ?2 and state = 'firing'";

const RESOLVE_PG: &str = "update alerts a
        set state = 'resolved', resolved_at = t.now, version = a.version + 1
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

fn parse(row: &dyn Row) -> Result<Alert, StoreError> {
    let read = Reader::by_uuid(row, "alerts", "id");
    let labels = serde_json::from_str(&read.text("labels")?)
        .map_err(|e| read.corrupt("labels", e.to_string()))?;
    let text = |column| read.opt_text(column).map(Option::unwrap_or_default);
    let acknowledged = match read.opt_time("acknowledged_at")? {
        Some(at) => Some(Acknowledged { at, by: text("acknowledged_by")? }),
        None => None,
    };
    let silenced = match read.opt_time("silenced_until")? {
        Some(until) => {
            Some(Silence { until, by: text("silenced_by")?, reason: text("silence_reason")? })
        }
        None => None,
    };
    Ok(Alert {
        id: read.uuid("id")?,
        version: read.int("version")?,
        rule: read.text("rule")?,
        subject: read.text("subject")?,
        severity: read.word("severity", Severity::parse)?,
        state: read.word("state", AlertState::parse)?,
        message: read.text("message")?,
        count: read.int("count")?,
        fired_at: read.time("fired_at")?,
        seen_at: read.time("seen_at")?,
        resolved_at: read.opt_time("resolved_at")?,
        labels,
        announced: read.word("announced", Announced::parse)?,
        acknowledged,
        silenced,
    })
}

/// Which alerts to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertFilter {
    pub state: Option<AlertState>,
    pub severity: Option<Severity>,
    pub rule: Option<String>,
    /// Only alerts older than this one: the last id of the page before.
    pub before: Option<Uuid>,
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
}

impl Store {
    /// A page of alerts, newest first.
    pub async fn alerts(&self, filter: &AlertFilter, limit: i64) -> Result<Vec<Alert>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("state =", filter.state.map(AlertState::as_str));
        chosen.add("severity =", filter.severity.map(Severity::as_str));
        chosen.add("rule =", filter.rule.as_deref());
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        self.query(format!("{} {conditions}", TABLE.select()), params, parse).await
    }

    pub async fn alert(&self, id: Uuid) -> Result<Option<Alert>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// Everything that fires, and everything that people were not told yet, oldest first.
    pub async fn alerts_open(&self, limit: i64) -> Result<Vec<Alert>, StoreError> {
        let sql = format!(
            "{} where state = 'firing' or announced <> state order by id limit $1",
            TABLE.select()
        );
        self.query(sql, vec![Param::Int(limit)], parse).await
    }

    /// What nobody wants to be told about now.
    pub async fn silences(&self, now: Timestamp) -> Result<BTreeSet<Silenced>, StoreError> {
        let sql = "select distinct rule, subject from alerts where silenced_until > $1";
        let found = self.query(sql.to_owned(), vec![now.into()], |row| {
            let read = Reader::named(row, "alerts", "silenced");
            Ok(Silenced { rule: read.text("rule")?, subject: read.text("subject")? })
        });
        Ok(found.await?.into_iter().collect())
    }

    /// Forgets up to `limit` alerts that were over before `before`.
    pub async fn prune_alerts(&self, before: Timestamp, limit: i64) -> Result<u64, StoreError> {
        let sql = "delete from alerts where id in (
             select id from alerts
              where state = 'resolved' and announced = 'resolved' and id < $1 and resolved_at < $2
                and (silenced_until is null or silenced_until < $2)
              order by id limit $3)";
        // Ids begin with the time they were made.
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        let params = vec![newest, Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }
}
