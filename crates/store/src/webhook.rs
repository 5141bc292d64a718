//! `webhook_events`: what came in.

use tashika_domain::Timestamp;
use tashika_domain::webhook::{Payload, Status, WebhookEvent};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 11] = [
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
    ("confirm_by", Kind::Text),
];

const CHANGING: [Column; 7] = [
    ("version", Kind::Int),
    ("billing_id", Kind::Uuid),
    ("office_id", Kind::Text),
    ("status", Kind::Text),
    ("error_message", Kind::Text),
    ("processed_at", Kind::Time),
    ("confirmed", Kind::Json),
];

static TABLE: Lazy =
    Lazy::new(|| Table::new("webhook_events", &FIXED, &CHANGING).unique(Key::Event));

impl Kept for WebhookEvent {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        let payload = match &self.payload {
            Payload::Apart(value) => Cell::Text(value.to_string().into()),
            // A body that is no text is no payload either: null, which the table refuses.
            Payload::Body => std::str::from_utf8(&self.body).ok().into(),
        };
        vec![
            Cell::Uuid(self.id),
            self.source.as_str().into(),
            self.event_id.as_str().into(),
            self.event_type.as_str().into(),
            payload,
            Cell::Bytes(&self.body),
            self.content_type.as_deref().into(),
            self.occurred_at.into(),
            Cell::Time(self.created_at),
            self.traceparent.as_deref().into(),
            self.confirm_by.as_deref().into(),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.billing_id.map_or(Cell::Null, Cell::Uuid),
            self.office_id.as_deref().into(),
            self.status.as_str().into(),
            self.error_message.as_deref().into(),
            self.processed_at.into(),
            self.confirmed
                .as_ref()
                .map_or(Cell::Null, |value| Cell::Text(value.to_string().into())),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<WebhookEvent, StoreError> {
    let read = Reader::by_uuid(row, "webhook_events", "id");
    let json = |column, text: &str| {
        serde_json::from_str(text)
            .map_err(|e: serde_json::Error| read.corrupt(column, e.to_string()))
    };
    let confirmed = read.opt_text("confirmed")?;
    Ok(WebhookEvent {
        id: read.uuid("id")?,
        version: read.int("version")?,
        source: read.text("source")?,
        event_id: read.text("event_id")?,
        event_type: read.text("event_type")?,
        billing_id: read.opt_uuid("billing_id")?,
        office_id: read.opt_text("office_id")?,
        payload: Payload::Apart(json("payload", &read.text("payload")?)?),
        confirm_by: read.opt_text("confirm_by")?,
        confirmed: confirmed.map(|text| json("confirmed", &text)).transpose()?,
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
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
    /// Only those that nobody will process any more: the effect was given up, or is gone.
    pub given_up: bool,
}

/// How many events of a type are in a status.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCount {
    pub event_type: String,
    pub status: Status,
    pub count: i64,
}

const GIVEN_UP: &str = "not exists (
    select 1 from outbox o where o.id = webhook_events.id and o.status <> 'aborted')";

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
        let mut chosen = Filter::default();
        chosen.add("status =", filter.status.map(Status::as_str));
        chosen.add("event_type =", filter.event_type.as_deref());
        chosen.add("source =", filter.source.as_deref());
        chosen.add("office_id =", filter.office_id.as_deref());
        chosen.add("created_at >=", filter.from);
        chosen.add("created_at <", filter.to);
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        if filter.given_up {
            chosen.require(GIVEN_UP);
        }
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
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
