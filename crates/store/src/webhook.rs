//! `webhook_events`: what came in.

use rusqlite::Connection;
use tashika_domain::Timestamp;
use tashika_domain::webhook::{Status, WebhookEvent};
use uuid::Uuid;

use crate::Store;
use crate::error::{CommitError, Key, StoreError};
use crate::row::{Param, Reader, Row};
use crate::step::{Owner, Step};
use crate::table::{Column, Kind, Lazy, Table};

const FIXED: [Column; 10] = [
    ("id", Kind::Uuid),
    ("source", Kind::Text),
    ("event_id", Kind::Text),
    ("event_type", Kind::Text),
    ("payload", Kind::Json),
    ("body", Kind::Bytes),
    ("content_type", Kind::Text),
    ("occurred_at", Kind::Time),
    ("created_at", Kind::Time),
    ("traceparent", Kind::Text),
];

const CHANGING: [Column; 6] = [
    ("version", Kind::Int),
    ("billing_id", Kind::Uuid),
    ("office_id", Kind::Text),
    ("status", Kind::Text),
    ("error_message", Kind::Text),
    ("processed_at", Kind::Time),
];

static TABLE: Lazy =
    Lazy::new(|| Table::new("webhook_events", &FIXED, &CHANGING).unique(Key::Event));

fn values(event: &WebhookEvent) -> Vec<Param> {
    vec![
        Param::Uuid(event.id),
        event.source.as_str().into(),
        event.event_id.as_str().into(),
        event.event_type.as_str().into(),
        Param::Text(event.payload.to_string()),
        Param::Bytes(event.body.clone()),
        event.content_type.as_deref().into(),
        event.occurred_at.into(),
        Param::Time(event.created_at),
        event.traceparent.as_deref().into(),
        Param::Int(event.version),
        event.billing_id.map_or(Param::Null, Param::Uuid),
        event.office_id.as_deref().into(),
        event.status.as_str().into(),
        event.error_message.as_deref().into(),
        event.processed_at.into(),
    ]
}

pub(crate) fn insert_sqlite(db: &Connection, event: &WebhookEvent) -> Result<(), CommitError> {
    TABLE.insert_sqlite(db, &values(event))
}

pub(crate) fn update_sqlite(db: &Connection, event: &WebhookEvent) -> Result<(), CommitError> {
    TABLE.update_sqlite(db, event.id, &values(event))
}

pub(crate) fn insert_pg(rows: &[(Owner, &WebhookEvent)]) -> Step<'static> {
    let owners = rows.iter().map(|(owner, event)| (*owner, event.id)).collect();
    TABLE.insert_pg(owners, rows.iter().map(|(_, event)| values(event)).collect())
}

pub(crate) fn update_pg(rows: &[(Owner, &WebhookEvent)]) -> Step<'static> {
    let owners = rows.iter().map(|(owner, event)| (*owner, event.id)).collect();
    TABLE.update_pg(owners, rows.iter().map(|(_, event)| values(event)).collect())
}

fn parse(row: &dyn Row) -> Result<WebhookEvent, StoreError> {
    let read = Reader::by_uuid(row, "webhook_events", "id");
    let payload = serde_json::from_str(&read.text("payload")?)
        .map_err(|e| read.corrupt("payload", e.to_string()))?;
    Ok(WebhookEvent {
        id: read.uuid("id")?,
        version: read.int("version")?,
        source: read.text("source")?,
        event_id: read.text("event_id")?,
        event_type: read.text("event_type")?,
        billing_id: read.opt_uuid("billing_id")?,
        office_id: read.opt_text("office_id")?,
        payload,
        body: read.bytes("body")?,
        content_type: read.opt_text("content_type")?,
        occurred_at: read.opt_time("occurred_at")?,
        status: read.word("status", Status::parse)?,
        error_message: read.opt_text("error_message")?,
        processed_at: read.opt_time("processed_at")?,
        created_at: read.time("created_at")?,
        traceparent: read.opt_text("traceparent")?,
    })
}

/// Which events to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookFilter {
    pub status: Option<Status>,
    pub event_type: Option<String>,
    pub source: Option<String>,
    pub office_id: Option<String>,
    /// Received in `[from, to)`.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only events older than this one: the last id of the page before.
    pub before: Option<Uuid>,
}

/// How many events of a type are in a status.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCount {
    pub event_type: String,
    pub status: Status,
    pub count: i64,
}

impl Store {
    pub async fn webhook_event(&self, id: Uuid) -> Result<Option<WebhookEvent>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    pub async fn webhook_event_of(
        &self,
        source: &str,
        event_id: &str,
    ) -> Result<Option<WebhookEvent>, StoreError> {
        let sql = format!("{} where source = $1 and event_id = $2", TABLE.select());
        Ok(self.query(sql, vec![source.into(), event_id.into()], parse).await?.pop())
    }

    /// A page of events, newest first.
    pub async fn webhook_events(
        &self,
        filter: &WebhookFilter,
        limit: i64,
    ) -> Result<Vec<WebhookEvent>, StoreError> {
        let mut conditions = vec!["true".to_owned()];
        let mut params = Vec::new();
        let mut add = |condition: &str, param: Param| {
            params.push(param);
            conditions.push(format!("{condition} ${}", params.len()));
        };
        if let Some(status) = filter.status {
            add("status =", status.as_str().into());
        }
        for (column, value) in [
            ("event_type =", &filter.event_type),
            ("source =", &filter.source),
            ("office_id =", &filter.office_id),
        ] {
            if let Some(value) = value {
                add(column, value.as_str().into());
            }
        }
        if let Some(from) = filter.from {
            add("created_at >=", Param::Time(from));
        }
        if let Some(to) = filter.to {
            add("created_at <", Param::Time(to));
        }
        if let Some(before) = filter.before {
            add("id <", Param::Uuid(before));
        }
        params.push(Param::Int(limit));
        let sql = format!(
            "{} where {} order by id desc limit ${}",
            TABLE.select(),
            conditions.join(" and "),
            params.len(),
        );
        self.query(sql, params, parse).await
    }

    /// Counts by type and status. Reads the whole table.
    pub async fn webhook_counts(&self) -> Result<Vec<WebhookCount>, StoreError> {
        let sql = "select event_type, status, count(*) as n from webhook_events
             group by event_type, status order by event_type, status";
        self.query(sql.to_owned(), vec![], |row| {
            let read = Reader::named(row, "webhook_events", "count");
            Ok(WebhookCount {
                event_type: read.text("event_type")?,
                status: read.word("status", Status::parse)?,
                count: read.int("n")?,
            })
        })
        .await
    }

    /// Forgets up to `limit` events that ended well before `before`. What failed or waits stays.
    pub async fn prune_webhook_events(
        &self,
        before: Timestamp,
        limit: i64,
    ) -> Result<u64, StoreError> {
        let sql = "delete from webhook_events where id in (
             select id from webhook_events
              where status in ('success', 'skipped') and processed_at < $1 order by id limit $2)";
        self.execute(sql.to_owned(), vec![Param::Time(before), Param::Int(limit)]).await
    }
}
