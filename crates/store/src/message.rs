//! `messages`: what the queue was given.

use std::sync::Arc;

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::changes::LetGo;
use tashika_domain::effect::EffectId;
use tashika_domain::message::asked::{Asked, WORKER, host_of, path_of};
use tashika_domain::message::{
    Held, LastAttempt, Logged, Message, Response, State, effect_in_hand,
};
use uuid::Uuid;

use crate::cell::Cell;
use crate::claim::Lapsed;
use crate::error::{CommitError, Key, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column, missing};
use crate::table::{Column, Kept, Kind, Lazy, Table};
use crate::{Dialect, Store};

const FIXED: [Column; 16] = [
    ("id", Kind::Uuid),
    ("url", Kind::Text),
    ("host", Kind::Text),
    ("path", Kind::Text),
    ("asked", Kind::Json),
    ("body", Kind::Bytes),
    ("topic_name", Kind::Text),
    ("queue_name", Kind::Text),
    ("schedule_id", Kind::Text),
    ("flow_key", Kind::Text),
    ("caller_ip", Kind::Text),
    ("labels", Kind::Text),
    ("slot", Kind::Text),
    ("not_before", Kind::Time),
    ("created_at", Kind::Time),
    ("traceparent", Kind::Text),
];

const CHANGING: [Column; 12] = [
    ("version", Kind::Int),
    ("state", Kind::Text),
    ("due_at", Kind::Time),
    ("dedup_key", Kind::Text),
    ("dlq_id", Kind::Text),
    ("ended_at", Kind::Time),
    ("response", Kind::Json),
    ("held_by", Kind::Text),
    ("held_at", Kind::Time),
    ("last_attempt_id", Kind::Uuid),
    ("last_started_at", Kind::Time),
    ("last_retried", Kind::Int),
];

/// What a message that goes straight to its destination has no use for, when it comes and when it is delivered.
const SELDOM_INSERTED: [&str; 13] = [
    "topic_name",
    "queue_name",
    "schedule_id",
    "flow_key",
    "labels",
    "slot",
    "dedup_key",
    "dlq_id",
    "ended_at",
    "response",
    "last_attempt_id",
    "last_started_at",
    "last_retried",
];
const SELDOM_CHANGED: [&str; 4] = ["dedup_key", "dlq_id", "held_by", "held_at"];

static TABLE: Lazy = Lazy::new(|| {
    let table = Table::new("messages", &FIXED, &CHANGING);
    table.seldom(&SELDOM_INSERTED, &SELDOM_CHANGED).unique(Key::Message)
});

impl Kept for Message {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        let asked = &self.asked;
        let labels = (!asked.labels.is_empty()).then(|| format!("\n{}\n", asked.labels.join("\n")));
        vec![
            Cell::Uuid(self.id),
            asked.url.as_str().into(),
            Cell::Text(host_of(&asked.url).into()),
            path_of(&asked.url).into(),
            json(&**asked),
            Cell::Bytes(&self.body),
            asked.topic.as_deref().into(),
            asked.queue.as_deref().into(),
            asked.schedule.as_deref().into(),
            asked.flow.as_ref().map(|flow| flow.key.as_str()).into(),
            asked.caller_ip.as_deref().into(),
            labels.map_or(Cell::Null, |text| Cell::Text(text.into())),
            self.slot.as_deref().into(),
            Cell::Time(self.not_before),
            Cell::Time(self.created_at),
            self.traceparent.as_deref().into(),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.state.as_str().into(),
            Cell::Time(self.due_at),
            self.dedup_key.as_deref().into(),
            self.dlq_id.as_deref().into(),
            self.ended_at.into(),
            self.response.as_ref().map_or(Cell::Null, json),
            self.held.as_ref().map(|held| held.by.as_str()).into(),
            self.held.as_ref().map(|held| held.at).into(),
            self.last.map_or(Cell::Null, |last| Cell::Uuid(last.id)),
            self.last.map(|last| last.started_at).into(),
            self.last.map_or(Cell::Null, |last| Cell::Int(i64::from(last.retried))),
        ]
    }

    fn may_be_kept_out(&self) -> bool {
        self.dedup_key.is_some()
    }
}

/// A value as JSON text. What is kept here can always be written as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Cell<'static> {
    serde_json::to_string(value).map_or(Cell::Null, |text| Cell::Text(text.into()))
}

/// Reads a JSON column.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(
    read: &Reader<'_>,
    column: &'static str,
) -> Result<T, StoreError> {
    let text = read.text(column)?;
    serde_json::from_str(&text).map_err(|e| read.corrupt(column, e.to_string()))
}

const LET_GO_SQLITE: &str = "update messages set held_by = null, held_at = null,
        version = version + 1
     where id = ?1 and held_by is not null and held_at <= coalesce(?2, held_at)";

const LET_GO_PG: &str = "update messages m set held_by = null, held_at = null,
        version = m.version + 1
      from unnest($1::uuid[], $2::timestamptz[]) as t (id, unheard)
     where m.id = t.id and m.held_by is not null and m.held_at <= coalesce(t.unheard, m.held_at)
     returning m.id";

pub(crate) fn let_go_sqlite(db: &Connection, end: &LetGo) -> Result<(), CommitError> {
    let count = db
        .prepare_cached(LET_GO_SQLITE)?
        .execute(params![end.id.0.as_bytes(), end.unheard_since.map(Timestamp::as_micros)])?;
    if count == 1 { Ok(()) } else { Err(CommitError::Stale(end.id)) }
}

pub(crate) fn let_go_pg(rows: Vec<(Owner, &LetGo)>) -> Step<'_> {
    Step {
        sql: LET_GO_PG,
        params: vec![
            column(&rows, |end| end.id.0),
            column(&rows, |end| end.unheard_since.map(PgTime)),
        ],
        judge: Box::new(move |found| {
            let asked = rows.iter().map(|(owner, end)| (*owner, end.id.0));
            let stale = |id: &Uuid| CommitError::Stale(EffectId(*id));
            missing(asked, found, |row| row.get("id"), stale)
        }),
    }
}

pub(crate) fn response(read: &Reader<'_>) -> Result<Option<Response>, StoreError> {
    match read.opt_text("response")? {
        Some(_) => Ok(Some(from_json(read, "response")?)),
        None => Ok(None),
    }
}

fn parse(row: &dyn Row) -> Result<Message, StoreError> {
    let read = Reader::by_uuid(row, "messages", "id");
    let asked: Asked = from_json(&read, "asked")?;
    let held = match (read.opt_text("held_by")?, read.opt_time("held_at")?) {
        (Some(by), Some(at)) => Some(Held { by, at }),
        _ => None,
    };
    let last = match read.opt_uuid("last_attempt_id")? {
        Some(id) => {
            let started_at = read.time("last_started_at")?;
            Some(LastAttempt { id, started_at, retried: read.number("last_retried")? })
        }
        None => None,
    };
    Ok(Message {
        id: read.uuid("id")?,
        version: read.int("version")?,
        asked: Arc::new(Asked { url: read.text("url")?, ..asked }),
        body: read.bytes("body")?.into(),
        slot: read.opt_text("slot")?,
        not_before: read.time("not_before")?,
        created_at: read.time("created_at")?,
        traceparent: read.opt_text("traceparent")?,
        state: read.word("state", State::parse)?,
        due_at: read.time("due_at")?,
        dedup_key: read.opt_text("dedup_key")?,
        dlq_id: read.opt_text("dlq_id")?,
        ended_at: read.opt_time("ended_at")?,
        last,
        response: response(&read)?,
        held,
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// Which messages to list. A list that is empty matches all; what is in one list is meant as "or".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageFilter {
    pub ids: Vec<Uuid>,
    pub states: Vec<State>,
    pub urls: Vec<String>,
    pub hosts: Vec<String>,
    pub paths: Vec<String>,
    pub topics: Vec<String>,
    pub queues: Vec<String>,
    pub schedules: Vec<String>,
    pub labels: Vec<String>,
    pub flow_keys: Vec<String>,
    pub caller_ips: Vec<String>,
    pub dlq_ids: Vec<String>,
    /// The status that a dead letter was answered with.
    pub response_statuses: Vec<String>,
    /// Only dead letters that are still there.
    pub dead: bool,
    /// Without messages of Tashika's own, unless the filter names them: whoever means "all" means all of
    /// his own.
    pub spare_own: bool,
    /// Accepted in `[from, to]`. For dead letters: died.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only these lines of the log.
    pub logged: Vec<Logged>,
    /// Only what comes after this one in the order of the list.
    pub after: Option<Uuid>,
    /// Only messages that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
    pub order: Order,
}

impl MessageFilter {
    /// Conditions on the columns of `messages`, without time and place in the list.
    pub(crate) fn conditions(&self, dialect: Dialect) -> Filter {
        let mut chosen = Filter::default();
        let uuids = |ids: &[Uuid]| ids.iter().map(|id| Param::Uuid(*id)).collect();
        let texts = |list: &[String]| list.iter().map(|text| text.as_str().into()).collect();
        chosen.any("m.id = ?", uuids(&self.ids));
        let states = self.states.iter().map(|state| state.as_str().into()).collect();
        chosen.any("m.state = ?", states);
        chosen.any("m.url = ?", texts(&self.urls));
        chosen.any("m.host = ?", texts(&self.hosts));
        chosen.any("m.path = ?", texts(&self.paths));
        chosen.any("m.topic_name = ?", texts(&self.topics));
        chosen.any("m.queue_name = ?", texts(&self.queues));
        chosen.any("m.schedule_id = ?", texts(&self.schedules));
        chosen.any("m.flow_key = ?", texts(&self.flow_keys));
        chosen.any("m.caller_ip = ?", texts(&self.caller_ips));
        chosen.any("m.dlq_id = ?", texts(&self.dlq_ids));
        let labels = self.labels.iter().map(|label| Param::Text(format!("\n{label}\n"))).collect();
        let (holds, status) = match dialect {
            Dialect::Sqlite => {
                ("instr(m.labels, ?) > 0", "cast(m.response ->> 'status' as text) = ?")
            }
            Dialect::Postgres => ("strpos(m.labels, ?) > 0", "m.response ->> 'status' = ?"),
        };
        chosen.any(holds, labels);
        chosen.any(status, texts(&self.response_statuses));
        if self.dead {
            chosen.require("m.dlq_id is not null");
        }
        let named = [&self.dlq_ids, &self.urls, &self.labels].iter().any(|list| !list.is_empty());
        if self.spare_own && self.ids.is_empty() && !named {
            chosen.require(&format!("substr(m.url, 1, {}) <> '{WORKER}'", WORKER.len()));
        }
        chosen
    }
}

/// How many messages are in a state.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageCount {
    pub state: State,
    pub count: i64,
}

impl Store {
    pub async fn message(&self, id: Uuid) -> Result<Option<Message>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// The message that keeps others of its key out.
    pub async fn message_of_key(&self, key: &str) -> Result<Option<Message>, StoreError> {
        let sql = format!("{} where dedup_key = $1", TABLE.select());
        Ok(self.query(sql, vec![key.into()], parse).await?.pop())
    }

    /// A page of messages.
    pub async fn messages(
        &self,
        filter: &MessageFilter,
        limit: i64,
    ) -> Result<Vec<Message>, StoreError> {
        let mut chosen = filter.conditions(self.dialect());
        let moment = if filter.dead { "m.ended_at" } else { "m.created_at" };
        chosen.add(&format!("{moment} >="), filter.from);
        chosen.add(&format!("{moment} <="), filter.to);
        chosen.add("m.id >=", filter.since.map(Param::Uuid));
        let (conditions, params) = chosen.page("m.id", filter.after, filter.order, limit);
        let sql = format!("{} m {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }

    /// The first messages that wait for their turn in a queue and whose time has come.
    pub async fn queued(
        &self,
        slot: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<Message>, StoreError> {
        let sql = format!(
            "{} where slot = $1 and state = 'queued' and due_at <= $2
              order by due_at, id limit $3",
            TABLE.select()
        );
        self.query(sql, vec![slot.into(), Param::Time(now), Param::Int(limit)], parse).await
    }

    /// The first messages that wait for a flow control and whose time has come.
    pub async fn throttled(
        &self,
        key: &str,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<Message>, StoreError> {
        let sql = format!(
            "{} where flow_key = $1 and state = 'throttled' and due_at <= $2
              order by due_at, id limit $3",
            TABLE.select()
        );
        self.query(sql, vec![key.into(), Param::Time(now), Param::Int(limit)], parse).await
    }

    /// Messages that carry their lease themselves and whose holder was last heard of before `cutoff`. Not
    /// their bodies: whoever has died may have had many in hand.
    pub(crate) async fn messages_left(
        &self,
        cutoff: Timestamp,
        limit: i64,
    ) -> Result<Vec<Lapsed>, StoreError> {
        let sql = "select id, created_at, due_at, traceparent, held_by, held_at from messages
             where held_by is not null and held_at <= $1 order by id limit $2";
        let params = vec![Param::Time(cutoff), Param::Int(limit)];
        self.query(sql.to_owned(), params, |row| {
            let read = Reader::by_uuid(row, "messages", "id");
            let effect = effect_in_hand(
                read.uuid("id")?,
                read.time("created_at")?,
                read.time("due_at")?,
                read.opt_text("traceparent")?,
            );
            Ok(Lapsed { effect, worker: read.text("held_by")?, locked_at: read.time("held_at")? })
        })
        .await
    }

    /// How many occupy a place in a queue.
    pub async fn active_in_queue(&self, slot: &str) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from messages
             where slot = $1 and slot is not null and state in ('throttled', 'ready')";
        self.count(sql, vec![slot.into()]).await
    }

    /// How many of a flow control are let through and not done.
    pub async fn active_in_flow(&self, key: &str) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from messages
             where flow_key = $1 and flow_key is not null and state = 'ready'";
        self.count(sql, vec![key.into()]).await
    }

    /// How many wait for their turn in a queue.
    pub async fn waiting_in_queue(&self, slot: &str) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from messages where slot = $1 and state = 'queued'";
        self.count(sql, vec![slot.into()]).await
    }

    /// How many wait for a flow control.
    pub async fn waiting_in_flow(&self, key: &str) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from messages where flow_key = $1 and state = 'throttled'";
        self.count(sql, vec![key.into()]).await
    }

    /// The queues in which somebody waits whose time has come by `now`.
    pub async fn queues_waiting(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        self.gates_waiting("slot", "queued", now).await
    }

    /// The flow controls for which somebody waits whose time has come by `now`.
    pub async fn flows_waiting(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        self.gates_waiting("flow_key", "throttled", now).await
    }

    /// From name to name along the index, however many wait at each.
    async fn gates_waiting(
        &self,
        name: &'static str,
        state: &'static str,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let sql = format!(
            "with recursive names (name) as (
                 select min({name}) from messages where state = '{state}'
                 union all
                 select (select min(m.{name}) from messages m
                          where m.state = '{state}' and m.{name} > names.name)
                   from names where names.name is not null)
             select name from names
              where name is not null
                and exists (select 1 from messages m
                             where m.{name} = names.name and m.state = '{state}' and m.due_at <= $1)"
        );
        self.query(sql, vec![Param::Time(now)], |row| {
            Reader::named(row, "messages", "name").text("name")
        })
        .await
    }

    /// How many messages are in each state. Reads the whole table.
    pub async fn message_counts(&self) -> Result<Vec<MessageCount>, StoreError> {
        let sql = "select state, count(*) as n from messages group by state order by state";
        self.query(sql.to_owned(), vec![], |row| {
            let read = Reader::named(row, "messages", "count");
            Ok(MessageCount { state: read.word("state", State::parse)?, count: read.int("n")? })
        })
        .await
    }

    /// How many dead letters there are, and when the oldest of them died.
    pub async fn dead_letters(&self) -> Result<(i64, Option<Timestamp>), StoreError> {
        let sql = "select count(*) as n, min(ended_at) as oldest from messages
             where dlq_id is not null";
        let found = self.query(sql.to_owned(), vec![], |row| {
            let read = Reader::named(row, "messages", "dead");
            Ok((read.int("n")?, read.opt_time("oldest")?))
        });
        Ok(found.await?.pop().unwrap_or((0, None)))
    }

    /// Forgets up to `limit` messages that ended before `before`, and are no dead letters.
    pub async fn prune_messages(&self, before: Timestamp, limit: i64) -> Result<u64, StoreError> {
        let sql = "delete from messages where id in (
             select id from messages
              where id < $1 and ended_at < $2 and dlq_id is null order by id limit $3)";
        // Ids begin with the time they were made.
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        let params = vec![newest, Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }

    pub(crate) async fn count(&self, sql: &str, params: Vec<Param>) -> Result<i64, StoreError> {
        let found = self
            .query(sql.to_owned(), params, |row| Reader::named(row, "messages", "count").int("n"));
        Ok(found.await?.pop().unwrap_or(0))
    }
}
