//! `mail_deliveries`: one row for each recipient.

use tashika_domain::Timestamp;
use tashika_domain::mail::batch::BatchStatus;
use tashika_domain::mail::{Delivery, Fault, Locale, OnSent, Sending, Status};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::filter::Filter;
use crate::message::{Order, from_json, json};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 11] = [
    ("id", Kind::Uuid),
    ("batch_id", Kind::Uuid),
    ("recipient", Kind::Text),
    ("recipient_key", Kind::Text),
    ("template", Kind::Text),
    ("locale", Kind::Text),
    ("data", Kind::Json),
    ("key", Kind::Text),
    ("digest", Kind::Text),
    ("on_sent", Kind::Json),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 13] = [
    ("version", Kind::Int),
    ("traceparent", Kind::Text),
    ("status", Kind::Text),
    ("effect_id", Kind::Uuid),
    ("attempts", Kind::Int),
    ("possibly_duplicate", Kind::Bool),
    ("sending_since", Kind::Time),
    ("sending_fence", Kind::Int),
    ("sent_at", Kind::Time),
    ("ended_at", Kind::Time),
    ("fault_class", Kind::Text),
    ("fault_text", Kind::Text),
    ("history", Kind::Json),
];

static TABLE: Lazy =
    Lazy::new(|| Table::new("mail_deliveries", &FIXED, &CHANGING).unique(Key::Mail));

impl Kept for Delivery {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            self.batch_id.map_or(Cell::Null, Cell::Uuid),
            self.to.as_str().into(),
            Cell::Text(self.to.to_lowercase().into()),
            self.template.as_str().into(),
            self.locale.as_str().into(),
            json(&self.data),
            self.key.as_deref().into(),
            self.digest.as_deref().into(),
            self.on_sent.as_ref().map_or(Cell::Null, json),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let fault = self.fault.as_ref();
        vec![
            Cell::Int(self.version),
            self.traceparent.as_deref().into(),
            self.status.as_str().into(),
            self.effect_id.map_or(Cell::Null, Cell::Uuid),
            Cell::Int(self.attempts.into()),
            Cell::Bool(self.possibly_duplicate),
            self.sending.map(|sending| sending.since).into(),
            self.sending.map_or(Cell::Null, |sending| Cell::Int(sending.fence)),
            self.sent_at.into(),
            self.ended_at.into(),
            fault.map(|fault| fault.class.as_str()).into(),
            fault.map(|fault| fault.text.as_str()).into(),
            json(&self.history),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Delivery, StoreError> {
    let read = Reader::by_uuid(row, "mail_deliveries", "id");
    let on_sent: Option<OnSent> = match read.opt_text("on_sent")? {
        Some(_) => Some(from_json(&read, "on_sent")?),
        None => None,
    };
    let sending = match read.opt_time("sending_since")? {
        Some(since) => Some(Sending { since, fence: read.int("sending_fence")? }),
        None => None,
    };
    let fault = match read.opt_text("fault_class")? {
        Some(class) => Some(Fault { class, text: read.text("fault_text")? }),
        None => None,
    };
    Ok(Delivery {
        id: read.uuid("id")?,
        version: read.int("version")?,
        batch_id: read.opt_uuid("batch_id")?,
        to: read.text("recipient")?,
        template: read.text("template")?,
        locale: read.word("locale", |text| text.parse::<Locale>().ok())?,
        data: from_json(&read, "data")?,
        key: read.opt_text("key")?,
        digest: read.opt_text("digest")?,
        on_sent,
        created_at: read.time("created_at")?,
        traceparent: read.opt_text("traceparent")?,
        status: read.word("status", Status::parse)?,
        effect_id: read.opt_uuid("effect_id")?,
        attempts: read.number("attempts")?,
        possibly_duplicate: read.bool("possibly_duplicate")?,
        sending,
        sent_at: read.opt_time("sent_at")?,
        ended_at: read.opt_time("ended_at")?,
        fault,
        history: from_json(&read, "history")?,
    })
}

/// A mail as whoever wants to send it finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct MailInHand {
    pub delivery: Delivery,
    pub batch: Option<BatchStatus>,
    /// The fence of the lease on its effect, if somebody has one.
    pub held: Option<i64>,
}

/// Which deliveries to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MailFilter {
    /// In any case of letters.
    pub to: Option<String>,
    pub batch: Option<Uuid>,
    pub status: Option<Status>,
    /// Only deliveries older than this one: the last id of the page before.
    pub before: Option<Uuid>,
}

/// How many deliveries are in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailCount {
    pub status: Status,
    pub count: i64,
}

impl Store {
    pub async fn mail(&self, id: Uuid) -> Result<Option<Delivery>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// A mail, where its batch stands, and who has its effect in hand.
    pub async fn mail_in_hand(&self, id: Uuid) -> Result<Option<MailInHand>, StoreError> {
        let columns = TABLE.select();
        let columns = columns.trim_end_matches(" from mail_deliveries");
        let sql = format!(
            "{columns}, (select b.status from mail_batches b
                          where b.id = mail_deliveries.batch_id) as batch_status,
                        (select o.fence from outbox o
                          where o.id = mail_deliveries.effect_id and o.status = 'sending') as held
               from mail_deliveries where id = $1"
        );
        let found = self.query(sql, vec![Param::Uuid(id)], |row| {
            let read = Reader::by_uuid(row, "mail_deliveries", "id");
            let batch = match read.opt_text("batch_status")? {
                Some(_) => Some(read.word("batch_status", BatchStatus::parse)?),
                None => None,
            };
            Ok(MailInHand { delivery: parse(row)?, batch, held: read.opt_number("held")? })
        });
        Ok(found.await?.pop())
    }

    pub async fn mail_of_key(&self, key: &str) -> Result<Option<Delivery>, StoreError> {
        let sql = format!("{} where key = $1", TABLE.select());
        Ok(self.query(sql, vec![key.into()], parse).await?.pop())
    }

    /// A page of deliveries, newest first.
    pub async fn mails(
        &self,
        filter: &MailFilter,
        limit: i64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let mut chosen = Filter::default();
        let to = filter.to.as_ref().map(|to| to.to_lowercase());
        chosen.add("recipient_key =", to.as_deref().map(Param::from));
        chosen.add("batch_id =", filter.batch.map(Param::Uuid));
        chosen.add("status =", filter.status.map(Status::as_str));
        chosen.add("id <", filter.before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }

    /// The next deliveries of a batch in a status, in the order in which they came.
    pub async fn mails_of_batch(
        &self,
        batch: Uuid,
        status: Status,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("batch_id =", Some(Param::Uuid(batch)));
        chosen.add("status =", Some(status.as_str()));
        let (conditions, params) = chosen.page("id", after, Order::OldestFirst, limit);
        let sql = format!("{} {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }

    /// How many of a batch are in each status. Reads only the index.
    pub async fn mail_counts(&self, batch: Uuid) -> Result<Vec<MailCount>, StoreError> {
        let sql = "select status, count(*) as n from mail_deliveries where batch_id = $1
             group by status order by status";
        self.query(sql.to_owned(), vec![Param::Uuid(batch)], |row| {
            let read = Reader::named(row, "mail_deliveries", "count");
            Ok(MailCount { status: read.word("status", Status::parse)?, count: read.int("n")? })
        })
        .await
    }

    /// How many mails are queued, and since when the oldest of them is. Reads only the index.
    pub async fn mail_queue(&self) -> Result<(i64, Option<Timestamp>), StoreError> {
        let sql = "select count(*) as n from mail_deliveries where status = 'queued'";
        let count = self.count(sql, vec![]).await?;
        let sql = "select created_at from mail_deliveries where status = 'queued'
             order by id limit 1";
        let oldest = self.query(sql.to_owned(), vec![], |row| {
            Reader::named(row, "mail_deliveries", "oldest").time("created_at")
        });
        Ok((count, oldest.await?.pop()))
    }

    /// Forgets up to `limit` deliveries that ended before `before`.
    pub async fn prune_mails(&self, before: Timestamp, limit: i64) -> Result<u64, StoreError> {
        let sql = "delete from mail_deliveries where id in (
             select id from mail_deliveries where id < $1 and ended_at < $2 order by id limit $3)";
        // Ids begin with the time they were made.
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        let params = vec![newest, Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }
}
