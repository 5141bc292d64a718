//! `queues`: gates that let messages through in order.

use tashika_domain::message::gate::Queue;
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::row::{Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 3] = [("id", Kind::Uuid), ("name", Kind::Text), ("created_at", Kind::Time)];

const CHANGING: [Column; 5] = [
    ("version", Kind::Int),
    ("parallelism", Kind::Int),
    ("paused", Kind::Bool),
    ("updated_at", Kind::Time),
    ("deleted_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("queues", &FIXED, &CHANGING).unique(Key::Name));

impl Kept for Queue {
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
        vec![
            Cell::Int(self.version),
            Cell::Int(i64::from(self.parallelism)),
            Cell::Bool(self.paused),
            Cell::Time(self.updated_at),
            self.deleted_at.into(),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Queue, StoreError> {
    let read = Reader::by_uuid(row, "queues", "id");
    Ok(Queue {
        id: read.uuid("id")?,
        version: read.int("version")?,
        name: read.text("name")?,
        parallelism: read.number("parallelism")?,
        paused: read.bool("paused")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        deleted_at: read.opt_time("deleted_at")?,
    })
}

impl Store {
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>, StoreError> {
        let sql = format!("{} where name = $1 and deleted_at is null", TABLE.select());
        Ok(self.query(sql, vec![name.into()], parse).await?.pop())
    }

    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        let sql = format!("{} where deleted_at is null order by name", TABLE.select());
        self.query(sql, vec![], parse).await
    }
}
