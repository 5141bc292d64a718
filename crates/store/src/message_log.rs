//! `message_log`: every attempt to deliver a message, and how it ended. The last one of a message is told by the message's
//! own row, and stands among these lines where it belongs.

use tashika_domain::Timestamp;
use tashika_domain::message::{LogLine, Logged};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::StoreError;
use crate::message::{MessageFilter, Order, json, response};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 8] = [
    ("id", Kind::Uuid),
    ("message_id", Kind::Uuid),
    ("at", Kind::Time),
    ("what", Kind::Text),
    ("started_at", Kind::Time),
    ("retried", Kind::Int),
    ("next_at", Kind::Time),
    ("response", Kind::Json),
];

static TABLE: Lazy = Lazy::new(|| Table::new("message_log", &FIXED, &[]));

impl Kept for LogLine {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            Cell::Uuid(self.message_id),
            Cell::Time(self.at),
            self.what.as_str().into(),
            Cell::Time(self.started_at),
            Cell::Int(i64::from(self.retried)),
            self.next_at.into(),
            self.response.as_ref().map_or(Cell::Null, json),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        Vec::new()
    }
}

fn parse(row: &dyn Row) -> Result<LogLine, StoreError> {
    let read = Reader::by_uuid(row, "message_log", "id");
    Ok(LogLine {
        id: read.uuid("id")?,
        message_id: read.uuid("message_id")?,
        at: read.time("at")?,
        what: read.word("what", Logged::parse)?,
        started_at: read.time("started_at")?,
        retried: read.number("retried")?,
        next_at: read.opt_time("next_at")?,
        response: response(&read)?,
    })
}

/// A line as the row of its message tells it.
const LAST: &str = "
    select m.last_attempt_id as id, m.id as message_id, m.ended_at as at, m.state as what,
           m.last_started_at as started_at, m.last_retried as retried,
           cast(null as timestamptz) as next_at, cast(m.response as text) as response
      from messages m";

impl Store {
    /// A page of lines about messages that the filter names. Its time is that of the lines, from the
    /// beginning of an attempt to its end.
    pub async fn message_log(
        &self,
        filter: &MessageFilter,
        limit: i64,
    ) -> Result<Vec<LogLine>, StoreError> {
        let columns = FIXED.map(|(name, kind)| match kind {
            Kind::Json => format!("cast(l.{name} as text) as {name}"),
            _ => format!("l.{name} as {name}"),
        });
        let rows = format!(
            "select {} from message_log l join messages m on m.id = l.message_id",
            columns.join(", ")
        );
        let names = ["l.id", "l.what", "l.at", "l.started_at"];
        let mut lines = self.lines(&rows, names, filter, limit).await?;
        let names = ["m.last_attempt_id", "m.state", "m.ended_at", "m.last_started_at"];
        lines.extend(self.lines(LAST, names, filter, limit).await?);
        lines.sort_unstable_by_key(|line| line.id);
        if filter.order == Order::NewestFirst {
            lines.reverse();
        }
        lines.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(lines)
    }

    /// A page of lines from one of the two places. `names`: what a line's id, its kind, its end and its beginning are called there.
    async fn lines(
        &self,
        rows: &str,
        [id, what, at, started_at]: [&str; 4],
        filter: &MessageFilter,
        limit: i64,
    ) -> Result<Vec<LogLine>, StoreError> {
        let mut chosen = filter.conditions(self.dialect());
        let logged = filter.logged.iter().map(|what| what.as_str().into()).collect();
        chosen.any(&format!("{what} = ?"), logged);
        chosen.add(&format!("{at} >="), filter.from);
        chosen.add(&format!("{started_at} <="), filter.to);
        chosen.add(&format!("{id} >="), filter.since.map(Param::Uuid));
        chosen.require(&format!("{id} is not null"));
        let (conditions, params) = chosen.page(id, filter.after, filter.order, limit);
        self.query(format!("{rows} {conditions}"), params, parse).await
    }

    /// How many workers have disappeared over a message.
    pub async fn lapses(&self, message: Uuid) -> Result<u32, StoreError> {
        let sql = "select count(*) as n from message_log where message_id = $1 and what = 'lapsed'";
        let count = self.count(sql, vec![Param::Uuid(message)]).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Forgets up to `limit` lines from before `before`, of messages that are gone.
    pub async fn prune_message_log(
        &self,
        before: Timestamp,
        limit: i64,
    ) -> Result<u64, StoreError> {
        let sql = "delete from message_log where id in (
             select l.id from message_log l
              where l.id < $1 and not exists (select 1 from messages m where m.id = l.message_id)
              order by l.id limit $2)";
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        self.execute(sql.to_owned(), vec![newest, Param::Int(limit)]).await
    }
}
