//! What the console asks: small questions that stay small in a large database.
//!
//! Every statement here reads an index, or a bounded number of rows; none of them counts a table.

use tashika_domain::effect::EffectId;
use tashika_domain::{Lane, Status, Timestamp};
use uuid::Uuid;

use crate::Store;
use crate::effects::{COLUMNS, EffectCount, EffectRow, parse};
use crate::error::StoreError;
use crate::row::{Param, Reader};

/// How many effects of a lane are due and wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneCount {
    pub lane: Lane,
    pub count: i64,
}

/// What waits in a lane, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneDepth {
    pub lane: Lane,
    pub due: i64,
    /// When the one that waits longest was due.
    pub oldest: Timestamp,
}

/// The newest row of a table, by which a change can be noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    pub table: String,
    pub id: Option<Uuid>,
}

/// Messages once more, by the attempts that ended them.
const LAST_ATTEMPTS: &str = "select 'last_attempts' as name, (select last_attempt_id from messages
    where last_attempt_id is not null order by last_attempt_id desc limit 1) as id";

/// Tables whose ids begin with their time, so that the last one is the newest.
const WATCHED: [&str; 12] = [
    "payments",
    "cases",
    "alerts",
    "webhook_events",
    "messages",
    "mail_deliveries",
    "reservations",
    "renders",
    "message_log",
    "outbox",
    "audit_logs",
    "race_conditions",
];

/// What can be counted up to a limit: a name for the caller, and the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    OpenCases,
    FiringAlerts,
    AbortedEffects,
    DeadLetters,
    FailedWebhooks,
    PaymentsInDoubt,
}

impl Counted {
    const fn rows(self) -> &'static str {
        match self {
            Self::OpenCases => "cases where status = 'open'",
            Self::FiringAlerts => "alerts where state = 'firing'",
            Self::AbortedEffects => "outbox where status = 'aborted'",
            Self::DeadLetters => "messages where dlq_id is not null",
            Self::FailedWebhooks => "webhook_events where status = 'failed'",
            Self::PaymentsInDoubt => "payments where pending_verification",
        }
    }
}

/// A list that is looked through from its newest row back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    Effects,
    Messages,
    DeadLetters,
    MessageLog,
    LastAttempts,
    Payments,
    Cases,
    Alerts,
    WebhookEvents,
    AuditLogs,
    Races,
}

impl Listed {
    /// The table, and which of its rows.
    const fn rows(self) -> (&'static str, &'static str) {
        match self {
            Self::Effects => ("outbox", "true"),
            Self::Messages => ("messages", "true"),
            Self::DeadLetters => ("messages", "dlq_id is not null"),
            Self::MessageLog => ("message_log", "true"),
            Self::LastAttempts => ("messages", "last_attempt_id is not null"),
            Self::Payments => ("payments", "true"),
            Self::Cases => ("cases", "true"),
            Self::Alerts => ("alerts", "true"),
            Self::WebhookEvents => ("webhook_events", "true"),
            Self::AuditLogs => ("audit_logs", "true"),
            Self::Races => ("race_conditions", "true"),
        }
    }

    /// By what its rows are in order.
    const fn id(self) -> &'static str {
        if matches!(self, Self::LastAttempts) { "last_attempt_id" } else { "id" }
    }
}

impl Store {
    /// Effects that are due and wait, by lane.
    pub async fn due_by_lane(&self, now: Timestamp) -> Result<Vec<LaneCount>, StoreError> {
        let depths = self.depth_by_lane(now).await?;
        Ok(depths
            .into_iter()
            .map(|LaneDepth { lane, due: count, .. }| LaneCount { lane, count })
            .collect())
    }

    /// The same, with the moment at which the first of each lane was due.
    ///
    /// Goes from lane to lane along the claim's index: what is not due yet is not read, however much there is.
    pub async fn depth_by_lane(&self, now: Timestamp) -> Result<Vec<LaneDepth>, StoreError> {
        let sql = "with recursive lanes (lane) as (
                 select min(lane) from outbox where status in ('pending', 'failed')
                 union all
                 select (select min(o.lane) from outbox o
                          where o.status in ('pending', 'failed') and o.lane > lanes.lane)
                   from lanes where lanes.lane is not null)
             select lane, n, oldest
               from (select lanes.lane,
                            (select count(*) from outbox o
                              where o.lane = lanes.lane and o.status in ('pending', 'failed')
                                and o.next_run_at <= $1) as n,
                            (select min(o.next_run_at) from outbox o
                              where o.lane = lanes.lane and o.status in ('pending', 'failed')
                                and o.next_run_at <= $1) as oldest
                       from lanes) depths
              where n > 0 order by lane";
        self.query(sql.to_owned(), vec![Param::Time(now)], |row| {
            let read = Reader::named(row, "outbox", "count");
            let lane = read.word("lane", Lane::parse)?;
            Ok(LaneDepth { lane, due: read.int("n")?, oldest: read.time("oldest")? })
        })
        .await
    }

    /// What is under way, and what changed since a moment, by lane and status. Only the newest `look`
    /// effects and messages are looked at: the tables have no index on their times.
    ///
    /// Deliveries are counted by their messages: most have left no effect behind.
    pub async fn recent_by_lane(
        &self,
        since: Timestamp,
        look: i64,
    ) -> Result<Vec<EffectCount>, StoreError> {
        let sql = "select lane, status, count(*) as n
              from (select lane, status, updated_at
                      from (select lane, status, updated_at from outbox order by id desc limit $2) o
                     where lane <> 'deliveries' or status <> 'succeeded'
                    union all
                    select 'deliveries', case state when 'delivered' then 'succeeded' else 'sending' end,
                           coalesce(ended_at, held_at)
                      from (select state, ended_at, held_by, held_at from messages
                             order by id desc limit $2) m
                     where state = 'delivered' or held_by is not null) t
             where status = 'sending' or updated_at >= $1
             group by lane, status order by lane, status";
        let params = vec![Param::Time(since), Param::Int(look)];
        self.query(sql.to_owned(), params, |row| {
            let read = Reader::named(row, "outbox", "count");
            Ok(EffectCount {
                lane: read.word("lane", Lane::parse)?,
                status: read.word("status", Status::parse)?,
                count: read.int("n")?,
            })
        })
        .await
    }

    /// The newest row of every table that the console watches.
    pub async fn newest(&self) -> Result<Vec<Newest>, StoreError> {
        let parts = WATCHED.map(|table| {
            format!(
                "select '{table}' as name, (select id from {table} order by id desc limit 1) as id"
            )
        });
        let sql = format!("{} union all {LAST_ATTEMPTS}", parts.join(" union all "));
        self.query(sql, vec![], |row| {
            let read = Reader::named(row, "newest", "name");
            Ok(Newest { table: read.text("name")?, id: read.opt_uuid("id")? })
        })
        .await
    }

    /// How many there are, counted up to a limit.
    pub async fn counted(&self, what: Counted, limit: i64) -> Result<i64, StoreError> {
        let sql =
            format!("select count(*) as n from (select 1 as one from {} limit $1) t", what.rows());
        self.count(&sql, vec![Param::Int(limit)]).await
    }

    /// The effects under an idempotency key, one per kind at most.
    ///
    /// The index begins with the kind, so the kinds are walked first: each step of the recursion is a
    /// look into the index.
    pub async fn effects_of_key(&self, key: &str) -> Result<Vec<EffectRow>, StoreError> {
        let sql = format!(
            "with recursive kinds (name) as (
                 select min(kind) from outbox where idempotency_key is not null
                 union all
                 select (select min(kind) from outbox
                          where idempotency_key is not null and kind > kinds.name)
                   from kinds where kinds.name is not null)
             select {COLUMNS} from outbox
              where idempotency_key = $1 and kind in (select name from kinds where name is not null)
              order by id desc"
        );
        self.query(sql, vec![key.into()], parse).await
    }

    /// The effect that is `rows` before another one (or before the newest), as far as a look may go.
    /// `None` if there are fewer.
    pub async fn effect_before(
        &self,
        before: Option<EffectId>,
        rows: i64,
    ) -> Result<Option<EffectId>, StoreError> {
        let id = self.row_before(Listed::Effects, before.map(|id| id.0), rows).await?;
        Ok(id.map(EffectId))
    }

    /// The same among messages.
    pub async fn message_before(
        &self,
        before: Option<Uuid>,
        rows: i64,
    ) -> Result<Option<Uuid>, StoreError> {
        self.row_before(Listed::Messages, before, rows).await
    }

    /// The row of a list that is `rows` before another one (or before the newest), as far as a look may
    /// go. `None` if there are fewer.
    pub async fn row_before(
        &self,
        list: Listed,
        before: Option<Uuid>,
        rows: i64,
    ) -> Result<Option<Uuid>, StoreError> {
        let ((table, which), id) = (list.rows(), list.id());
        let mut params = vec![Param::Int(rows)];
        let mut condition = String::new();
        if let Some(before) = before {
            params.push(Param::Uuid(before));
            condition = format!("and {id} < $2");
        }
        let sql = format!(
            "select {id} from {table} where {which} {condition} order by {id} desc limit 1 offset $1"
        );
        let found = self.query(sql, params, move |row| Reader::by_uuid(row, table, id).uuid(id));
        Ok(found.await?.pop())
    }
}
