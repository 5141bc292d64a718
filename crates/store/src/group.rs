//! `url_groups`: one name, several destinations.

use tashika_domain::message::group::Group;
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::message::{from_json, json};
use crate::row::{Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 3] = [("id", Kind::Uuid), ("name", Kind::Text), ("created_at", Kind::Time)];

const CHANGING: [Column; 5] = [
    ("version", Kind::Int),
    ("endpoints", Kind::Json),
    ("headers", Kind::Json),
    ("updated_at", Kind::Time),
    ("deleted_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("url_groups", &FIXED, &CHANGING).unique(Key::Name));

impl Kept for Group {
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
            json(&self.endpoints),
            json(&self.headers),
            Cell::Time(self.updated_at),
            self.deleted_at.into(),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Group, StoreError> {
    let read = Reader::by_uuid(row, "url_groups", "id");
    Ok(Group {
        id: read.uuid("id")?,
        version: read.int("version")?,
        name: read.text("name")?,
        endpoints: from_json(&read, "endpoints")?,
        headers: from_json(&read, "headers")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        deleted_at: read.opt_time("deleted_at")?,
    })
}

impl Store {
    pub async fn url_group(&self, name: &str) -> Result<Option<Group>, StoreError> {
        let sql = format!("{} where name = $1 and deleted_at is null", TABLE.select());
        Ok(self.query(sql, vec![name.into()], parse).await?.pop())
    }

    pub async fn url_groups(&self) -> Result<Vec<Group>, StoreError> {
        let sql = format!("{} where deleted_at is null order by name", TABLE.select());
        self.query(sql, vec![], parse).await
    }
}
