//! `flow_controls`: limits on messages that share a key.

use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::message::gate::FlowControl;
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 3] = [("id", Kind::Uuid), ("key", Kind::Text), ("created_at", Kind::Time)];

const CHANGING: [Column; 11] = [
    ("version", Kind::Int),
    ("parallelism", Kind::Int),
    ("rate", Kind::Int),
    ("period_ms", Kind::Int),
    ("period_start", Kind::Time),
    ("period_count", Kind::Int),
    ("paused", Kind::Bool),
    ("pinned_parallelism", Kind::Bool),
    ("pinned_rate", Kind::Bool),
    ("updated_at", Kind::Time),
    ("deleted_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("flow_controls", &FIXED, &CHANGING).unique(Key::Name));

impl Kept for FlowControl {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![Cell::Uuid(self.id), self.key.as_str().into(), Cell::Time(self.created_at)]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let limit = |limit: Option<u32>| limit.map_or(Cell::Null, |n| Cell::Int(i64::from(n)));
        vec![
            Cell::Int(self.version),
            limit(self.parallelism),
            limit(self.rate),
            Cell::Int(i64::try_from(self.period.as_millis()).unwrap_or(i64::MAX)),
            Cell::Time(self.period_start),
            Cell::Int(i64::from(self.period_count)),
            Cell::Bool(self.paused),
            Cell::Bool(self.pinned_parallelism),
            Cell::Bool(self.pinned_rate),
            Cell::Time(self.updated_at),
            self.deleted_at.into(),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<FlowControl, StoreError> {
    let read = Reader::by_uuid(row, "flow_controls", "id");
    Ok(FlowControl {
        id: read.uuid("id")?,
        version: read.int("version")?,
        key: read.text("key")?,
        parallelism: read.opt_number("parallelism")?,
        rate: read.opt_number("rate")?,
        period: Duration::from_millis(read.number("period_ms")?),
        period_start: read.time("period_start")?,
        period_count: read.number("period_count")?,
        paused: read.bool("paused")?,
        pinned_parallelism: read.bool("pinned_parallelism")?,
        pinned_rate: read.bool("pinned_rate")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        deleted_at: read.opt_time("deleted_at")?,
    })
}

impl Store {
    pub async fn flow_control(&self, key: &str) -> Result<Option<FlowControl>, StoreError> {
        let sql = format!("{} where key = $1 and deleted_at is null", TABLE.select());
        Ok(self.query(sql, vec![key.into()], parse).await?.pop())
    }

    pub async fn flow_controls(&self) -> Result<Vec<FlowControl>, StoreError> {
        let sql = format!("{} where deleted_at is null order by key", TABLE.select());
        self.query(sql, vec![], parse).await
    }

    /// Forgets controls that only messages have set and for which none has come since `before`. The
    /// next message brings its limits with it; what somebody paused or pinned stays.
    pub async fn prune_flow_controls(
        &self,
        before: Timestamp,
        limit: i64,
    ) -> Result<u64, StoreError> {
        let sql = "delete from flow_controls where id in (
             select c.id from flow_controls c
              where c.updated_at < $1 and c.period_start < $1
                and not c.paused and not c.pinned_parallelism and not c.pinned_rate
                and not exists (select 1 from messages m
                                 where m.flow_key = c.key and m.state = 'throttled')
                and not exists (select 1 from messages m
                                 where m.flow_key = c.key and m.flow_key is not null
                                   and m.state = 'ready')
              limit $2)";
        let params = vec![Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }
}
