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

/// Effects without a row of their own, as the outbox would have them.
const IN_HAND: &str = "(select id, 'deliveries' as lane, 'message' as kind,
            cast(null as text) as idempotency_key, cast(null as text) as request_digest,
            'sending' as status, 0 as attempts, false as in_doubt,
            cast(null as text) as last_error_code, cast(null as text) as last_error_msg,
            held_by as locked_by, held_at as locked_at, cast(1 as bigint) as fence,
            due_at as next_run_at, created_at, held_at as updated_at, held_at as expires_at
       from messages where held_by is not null) as in_hand";

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
        // In one look: it may be about to get its row.
        let sql = format!(
            "select {COLUMNS} from outbox where id = $1
             union all select {COLUMNS} from {IN_HAND} where id = $1"
        );
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
        let sql = "select id, cast(payload as text) as payload from outbox where id = $1
             union all select id, '{}' from messages where id = $1 and held_by is not null";
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
        // Each by its own index: over both at once, SQLite would sort all there are. Those without a row first: one that
        // gets its row meanwhile is then seen twice, and not missed.
        let sql = format!("select {COLUMNS} from {IN_HAND} {conditions}");
        let in_hand = self.query(sql, params.clone(), parse).await?;
        let sql = format!("select {COLUMNS} from outbox {conditions}");
        let mut found = self.query(sql, params, parse).await?;
        found.extend(in_hand);
        // Stable: of two, the row comes first and stays.
        found.sort_by_key(|effect| std::cmp::Reverse(effect.id));
        found.dedup_by_key(|effect| effect.id);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Counts by lane and status. Reads the whole table. A message that was delivered by its first holder
    /// has left no effect behind.
    pub async fn effect_counts(&self) -> Result<Vec<EffectCount>, StoreError> {
        let sql = format!(
            "select lane, status, count(*) as n
               from (select lane, status from outbox
                     union all select lane, status from {IN_HAND}) t
              group by lane, status order by lane, status"
        );
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
        let sql = format!(
            "select count(*) as n
               from (select lane, status from outbox
                     union all select lane, status from {IN_HAND}) t
              where lane = $1 and status = 'sending'"
        );
        self.count(&sql, vec![lane.as_str().into()]).await
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
