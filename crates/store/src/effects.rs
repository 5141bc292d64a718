//! Reading the outbox: counts, lists, one effect.

use tashika_domain::effect::EffectId;
use tashika_domain::{Lane, Status, Timestamp};

use crate::Store;
use crate::error::StoreError;
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};

/// An effect as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectRow {
    pub id: EffectId,
    pub lane: Lane,
    pub kind: String,
    pub key: Option<String>,
    pub digest: Option<String>,
    pub status: Status,
    pub attempts: u32,
    pub in_doubt: bool,
    pub last_error_code: Option<String>,
    pub last_error_msg: Option<String>,
    pub locked_by: Option<String>,
    pub locked_at: Option<Timestamp>,
    pub fence: i64,
    pub next_run_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub expires_at: Timestamp,
}

/// How many effects of a lane are in a status.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectCount {
    pub lane: Lane,
    pub status: Status,
    pub count: i64,
}

/// Which effects to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EffectFilter {
    pub lane: Option<Lane>,
    pub status: Option<Status>,
    pub kind: Option<String>,
    /// Only effects whose last failure had this code.
    pub error_code: Option<String>,
    /// Only effects older than this one: the last id of the page before.
    pub before: Option<EffectId>,
    /// Only effects that are not older than this one: how far back a look may go.
    pub since: Option<EffectId>,
}

pub(crate) const COLUMNS: &str =
    "id, lane, kind, idempotency_key, request_digest, status, attempts, in_doubt,
    last_error_code, last_error_msg, locked_by, locked_at, fence, next_run_at, created_at,
    updated_at, expires_at";

pub(crate) fn parse(row: &dyn Row) -> Result<EffectRow, StoreError> {
    let read = Reader::by_uuid(row, "outbox", "id");
    Ok(EffectRow {
        id: EffectId(read.uuid("id")?),
        lane: read.word("lane", Lane::parse)?,
        kind: read.text("kind")?,
        key: read.opt_text("idempotency_key")?,
        digest: read.opt_text("request_digest")?,
        status: read.word("status", Status::parse)?,
        attempts: read.number("attempts")?,
        in_doubt: read.bool("in_doubt")?,
        last_error_code: read.opt_text("last_error_code")?,
        last_error_msg: read.opt_text("last_error_msg")?,
        locked_by: read.opt_text("locked_by")?,
        locked_at: read.opt_time("locked_at")?,
        fence: read.int("fence")?,
        next_run_at: read.time("next_run_at")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        expires_at: read.time("expires_at")?,
    })
}

impl Store {
    pub async fn effect(&self, id: EffectId) -> Result<Option<EffectRow>, StoreError> {
        let sql = format!("select {COLUMNS} from outbox where id = $1");
        Ok(self.query(sql, vec![Param::Uuid(id.0)], parse).await?.pop())
    }

    pub async fn effect_by_key(
        &self,
        kind: &str,
        key: &str,
    ) -> Result<Option<EffectRow>, StoreError> {
        let sql = format!("select {COLUMNS} from outbox where kind = $1 and idempotency_key = $2");
        Ok(self.query(sql, vec![kind.into(), key.into()], parse).await?.pop())
    }

    /// What an effect is to do, as JSON text.
    pub async fn payload(&self, id: EffectId) -> Result<Option<String>, StoreError> {
        let sql = "select id, cast(payload as text) as payload from outbox where id = $1";
        let rows = self.query(sql.to_owned(), vec![Param::Uuid(id.0)], |row| {
            Reader::by_uuid(row, "outbox", "id").text("payload")
        });
        Ok(rows.await?.pop())
    }

    /// A page of effects, newest first.
    pub async fn effects(
        &self,
        filter: &EffectFilter,
        limit: i64,
    ) -> Result<Vec<EffectRow>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("lane =", filter.lane.as_ref().map(Lane::as_str));
        match filter.status {
            // As a word, so that the index of what was given up fits whatever the plan is made for.
            Some(Status::Aborted) => chosen.require("status = 'aborted'"),
            other => chosen.add("status =", other.map(Status::as_str)),
        }
        chosen.add("kind =", filter.kind.as_deref());
        chosen.add("last_error_code =", filter.error_code.as_deref());
        chosen.add("id <", filter.before.map(|id| Param::Uuid(id.0)));
        chosen.add("id >=", filter.since.map(|id| Param::Uuid(id.0)));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("select {COLUMNS} from outbox {conditions}");
        self.query(sql, params, parse).await
    }

    /// Counts by lane and status. Reads the whole table.
    pub async fn effect_counts(&self) -> Result<Vec<EffectCount>, StoreError> {
        let sql = "select lane, status, count(*) as n from outbox group by lane, status
             order by lane, status"
            .to_owned();
        self.query(sql, vec![], |row| {
            let read = Reader::named(row, "outbox", "count");
            Ok(EffectCount {
                lane: read.word("lane", Lane::parse)?,
                status: read.word("status", Status::parse)?,
                count: read.int("n")?,
            })
        })
        .await
    }

    /// How many effects wait for their turn. Reads only the claim's index.
    pub async fn waiting_count(&self) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from outbox where status in ('pending', 'failed')";
        let rows = self
            .query(sql.to_owned(), vec![], |row| Reader::named(row, "outbox", "count").int("n"));
        Ok(rows.await?.first().copied().unwrap_or(0))
    }

    /// How many effects of a lane wait for their turn. Reads only the claim's index.
    pub async fn waiting_in_lane(&self, lane: &Lane) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from outbox
             where lane = $1 and status in ('pending', 'failed')";
        self.count(sql, vec![lane.as_str().into()]).await
    }

    /// How many effects of a lane are under way.
    pub async fn sending_count(&self, lane: &Lane) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from outbox where lane = $1 and status = 'sending'";
        self.count(sql, vec![lane.as_str().into()]).await
    }

    /// Removes up to `limit` settled effects whose time is over, with their attempts.
    ///
    /// Returns how many went, and up to where it looked: pass that on as `after`, so that a long
    /// table is walked once and not from its beginning again and again.
    pub async fn prune_effects(
        &self,
        now: Timestamp,
        after: Option<EffectId>,
        limit: i64,
    ) -> Result<(u64, Option<EffectId>), StoreError> {
        let after = after.map_or(uuid::Uuid::nil(), |id| id.0);
        let sql = "select id, status, expires_at from outbox where id > $1 order by id limit $2";
        let params = vec![Param::Uuid(after), Param::Int(limit)];
        let seen = self
            .query(sql.to_owned(), params, move |row| {
                let read = Reader::by_uuid(row, "outbox", "id");
                let status = read.word("status", Status::parse)?;
                let over = status.is_settled() && read.time("expires_at")? <= now;
                Ok((read.uuid("id")?, over))
            })
            .await?;
        let last = seen.last().map(|(id, _)| EffectId(*id));
        let gone: Vec<uuid::Uuid> =
            seen.iter().filter(|(_, over)| *over).map(|(id, _)| *id).collect();
        let removed = self.remove_settled(gone, now).await?;
        // Attempts go when their effect has: pruned just now, or replaced under its key.
        let orphans = "delete from outbox_attempts where outbox_id > $1 and outbox_id <= $2
             and not exists (select 1 from outbox where outbox.id = outbox_attempts.outbox_id)";
        let page_is_full = i64::try_from(seen.len()).is_ok_and(|seen| seen == limit);
        let until = last.filter(|_| page_is_full).map_or(uuid::Uuid::max(), |id| id.0);
        self.execute(orphans.to_owned(), vec![Param::Uuid(after), Param::Uuid(until)]).await?;
        Ok((removed, last))
    }
}
