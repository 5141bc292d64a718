//! `mail_batches`: many mails at once.

use tashika_domain::Timestamp;
use tashika_domain::mail::batch::{Batch, BatchStatus};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::filter::Filter;
use crate::message::{from_json, json};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 3] =
    [("id", Kind::Uuid), ("template", Kind::Text), ("created_at", Kind::Time)];

const CHANGING: [Column; 8] = [
    ("version", Kind::Int),
    ("status", Kind::Text),
    ("key", Kind::Text),
    ("digest", Kind::Text),
    ("total", Kind::Int),
    ("work", Kind::Json),
    ("run", Kind::Int),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("mail_batches", &FIXED, &CHANGING).unique(Key::Mail));

impl Kept for Batch {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![Cell::Uuid(self.id), self.template.as_str().into(), Cell::Time(self.created_at)]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.status.as_str().into(),
            self.key.as_deref().into(),
            self.digest.as_deref().into(),
            Cell::Int(self.total),
            json(&self.work),
            Cell::Int(self.run),
            Cell::Time(self.updated_at),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Batch, StoreError> {
    let read = Reader::by_uuid(row, "mail_batches", "id");
    Ok(Batch {
        id: read.uuid("id")?,
        version: read.int("version")?,
        template: read.text("template")?,
        created_at: read.time("created_at")?,
        status: read.word("status", BatchStatus::parse)?,
        key: read.opt_text("key")?,
        digest: read.opt_text("digest")?,
        total: read.int("total")?,
        work: from_json(&read, "work")?,
        run: read.int("run")?,
        updated_at: read.time("updated_at")?,
    })
}

impl Store {
    pub async fn mail_batch(&self, id: Uuid) -> Result<Option<Batch>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    pub async fn mail_batch_of_key(&self, key: &str) -> Result<Option<Batch>, StoreError> {
        let sql = format!("{} where key = $1", TABLE.select());
        Ok(self.query(sql, vec![key.into()], parse).await?.pop())
    }

    /// A page of batches, newest first.
    pub async fn mail_batches(
        &self,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Batch>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("id <", before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }

    /// Forgets up to `limit` batches that nothing has happened to since `before` and of which no
    /// delivery is left.
    pub async fn prune_mail_batches(
        &self,
        before: Timestamp,
        limit: i64,
    ) -> Result<u64, StoreError> {
        let sql = "delete from mail_batches where id in (
             select b.id from mail_batches b
              where b.id < $1 and b.updated_at < $2 and b.status not in ('scheduled', 'receiving')
                and not exists (select 1 from mail_deliveries d where d.batch_id = b.id)
              order by b.id limit $3)";
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        let params = vec![newest, Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }
}
