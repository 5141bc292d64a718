//! `schedules`: messages that are sent again and again.

use std::time::Duration;

use tashika_domain::message::schedule::Schedule;
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::message::{from_json, json};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 3] = [("id", Kind::Uuid), ("name", Kind::Text), ("created_at", Kind::Time)];

const CHANGING: [Column; 13] = [
    ("version", Kind::Int),
    ("cron", Kind::Text),
    ("destination", Kind::Text),
    ("asked", Kind::Json),
    ("body", Kind::Bytes),
    ("delay_ms", Kind::Int),
    ("paused", Kind::Bool),
    ("updated_at", Kind::Time),
    ("last_at", Kind::Time),
    ("next_at", Kind::Time),
    ("last_messages", Kind::Json),
    ("error", Kind::Text),
    ("deleted_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("schedules", &FIXED, &CHANGING).unique(Key::Name));

impl Kept for Schedule {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![Cell::Uuid(self.id), self.name.as_str().into(), Cell::Time(self.created_at)]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        vec![
            Cell::Int(self.version),
            self.cron.as_str().into(),
            self.destination.as_str().into(),
            json(&self.asked),
            Cell::Bytes(&self.body),
            self.delay.map_or(Cell::Null, |delay| Cell::Int(millis(delay))),
            Cell::Bool(self.paused),
            Cell::Time(self.updated_at),
            self.last_at.into(),
            self.next_at.into(),
            json(&self.last_messages),
            self.error.as_deref().into(),
            self.deleted_at.into(),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Schedule, StoreError> {
    let read = Reader::by_uuid(row, "schedules", "id");
    Ok(Schedule {
        id: read.uuid("id")?,
        version: read.int("version")?,
        name: read.text("name")?,
        cron: read.text("cron")?,
        destination: read.text("destination")?,
        asked: from_json(&read, "asked")?,
        body: read.bytes("body")?.into(),
        delay: read.opt_number("delay_ms")?.map(Duration::from_millis),
        paused: read.bool("paused")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        last_at: read.opt_time("last_at")?,
        next_at: read.opt_time("next_at")?,
        last_messages: from_json(&read, "last_messages")?,
        error: read.opt_text("error")?,
        deleted_at: read.opt_time("deleted_at")?,
    })
}

impl Store {
    /// By its name outside.
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        let sql = format!("{} where name = $1 and deleted_at is null", TABLE.select());
        Ok(self.query(sql, vec![name.into()], parse).await?.pop())
    }

    pub async fn schedule_by_id(&self, id: Uuid) -> Result<Option<Schedule>, StoreError> {
        let sql = format!("{} where id = $1 and deleted_at is null", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    pub async fn schedules(&self) -> Result<Vec<Schedule>, StoreError> {
        let sql = format!("{} where deleted_at is null order by id", TABLE.select());
        self.query(sql, vec![], parse).await
    }
}
