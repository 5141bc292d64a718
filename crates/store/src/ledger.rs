//! `idempo_ledger`: what was asked under a key, and how it ended.

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::changes::LedgerTouch;
use tashika_domain::ledger::{
    LedgerEntry, LedgerKey, LedgerSettlement, LedgerStatus, NewLedgerEntry,
};

use crate::error::{CommitError, Key, StoreError};
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column, missing};
use crate::{Dialect, Store};

macro_rules! accept_conflict {
    () => {
        // A settled entry whose time is over counts as never seen; an open one never expires.
        "on conflict (idempotency_key, scope) do update set
            request_digest = excluded.request_digest, result_digest = null, status = 'accepted',
            http_status = excluded.http_status,
            response_payload_json = excluded.response_payload_json,
            first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at,
            expires_at = excluded.expires_at
         where idempo_ledger.status <> 'accepted'
           and idempo_ledger.expires_at <= excluded.first_seen_at"
    };
}

const ACCEPT_SQLITE: &str = concat!(
    "insert into idempo_ledger (scope, idempotency_key, request_digest, status, http_status,
        response_payload_json, first_seen_at, last_seen_at, expires_at)
     values (?1, ?2, ?3, 'accepted', ?4, ?5, ?6, ?6, ?7) ",
    accept_conflict!()
);

const ACCEPT_PG: &str = concat!(
    "insert into idempo_ledger (scope, idempotency_key, request_digest, status, http_status,
        response_payload_json, first_seen_at, last_seen_at, expires_at)
     select scope, key, digest, 'accepted', http_status, response::jsonb, now, now, expires
       from unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[],
                   $6::timestamptz[], $7::timestamptz[])
         as t (scope, key, digest, http_status, response, now, expires) ",
    accept_conflict!(),
    " returning scope, idempotency_key"
);

macro_rules! settle_conflict {
    () => {
        // What has succeeded stays as it is, and another request's entry is not ours to touch.
        "on conflict (idempotency_key, scope) do update set
            status = excluded.status, http_status = excluded.http_status,
            response_payload_json = excluded.response_payload_json,
            result_digest = excluded.result_digest, last_seen_at = excluded.last_seen_at,
            expires_at = excluded.expires_at
         where idempo_ledger.request_digest = excluded.request_digest
           and idempo_ledger.status <> 'succeeded'"
    };
}

const SETTLE_SQLITE: &str = concat!(
    "insert into idempo_ledger (scope, idempotency_key, request_digest, status, http_status,
        response_payload_json, result_digest, first_seen_at, last_seen_at, expires_at)
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9) ",
    settle_conflict!()
);

const SETTLE_PG: &str = concat!(
    "insert into idempo_ledger (scope, idempotency_key, request_digest, status, http_status,
        response_payload_json, result_digest, first_seen_at, last_seen_at, expires_at)
     select scope, key, digest, status, http_status, response::jsonb, result, now, now, expires
       from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[],
                   $7::text[], $8::timestamptz[], $9::timestamptz[])
         as t (scope, key, digest, status, http_status, response, result, now, expires) ",
    settle_conflict!(),
    " returning scope, idempotency_key"
);

const REOPEN_SQLITE: &str = "update idempo_ledger set status = 'accepted', last_seen_at = ?3
     where scope = ?1 and idempotency_key = ?2 and status = 'failed'";

const REOPEN_PG: &str = "update idempo_ledger l set status = 'accepted', last_seen_at = t.now
      from unnest($1::text[], $2::text[], $3::timestamptz[]) as t (scope, key, now)
     where l.scope = t.scope and l.idempotency_key = t.key and l.status = 'failed'";

const SEEN_SQLITE: &str = "update idempo_ledger set last_seen_at = ?3
     where scope = ?1 and idempotency_key = ?2 and last_seen_at < ?3";

const SEEN_PG: &str = "update idempo_ledger l set last_seen_at = t.now
      from unnest($1::text[], $2::text[], $3::timestamptz[]) as t (scope, key, now)
     where l.scope = t.scope and l.idempotency_key = t.key and l.last_seen_at < t.now";

const TAKEN: CommitError = CommitError::Taken(Key::Ledger);

pub(crate) fn accept_sqlite(db: &Connection, entry: &NewLedgerEntry) -> Result<(), CommitError> {
    let count = db.prepare_cached(ACCEPT_SQLITE)?.execute(params![
        entry.key.scope,
        entry.key.key,
        entry.request_digest,
        entry.http_status,
        entry.response,
        entry.now.as_micros(),
        entry.expires_at.as_micros(),
    ])?;
    if count == 1 { Ok(()) } else { Err(TAKEN) }
}

pub(crate) fn accept_pg(rows: Vec<(Owner, &NewLedgerEntry)>) -> Step<'_> {
    Step {
        sql: ACCEPT_PG,
        params: vec![
            column(&rows, |r| r.key.scope.as_str()),
            column(&rows, |r| r.key.key.as_str()),
            column(&rows, |r| r.request_digest.as_str()),
            column(&rows, |r| i32::from(r.http_status)),
            column(&rows, |r| r.response.as_str()),
            column(&rows, |r| PgTime(r.now)),
            column(&rows, |r| PgTime(r.expires_at)),
        ],
        judge: Box::new(move |found| {
            let asked = rows.iter().map(|(owner, r)| (*owner, r.key.clone()));
            missing(asked, found, key_of, |_| TAKEN)
        }),
    }
}

pub(crate) fn settle_sqlite(db: &Connection, end: &LedgerSettlement) -> Result<(), CommitError> {
    let count = db.prepare_cached(SETTLE_SQLITE)?.execute(params![
        end.key.scope,
        end.key.key,
        end.request_digest,
        end.status.as_str(),
        end.http_status,
        end.response,
        end.result_digest,
        end.now.as_micros(),
        end.expires_at.as_micros(),
    ])?;
    if count == 1 { Ok(()) } else { Err(TAKEN) }
}

pub(crate) fn settle_pg(rows: Vec<(Owner, &LedgerSettlement)>) -> Step<'_> {
    Step {
        sql: SETTLE_PG,
        params: vec![
            column(&rows, |r| r.key.scope.as_str()),
            column(&rows, |r| r.key.key.as_str()),
            column(&rows, |r| r.request_digest.as_str()),
            column(&rows, |r| r.status.as_str()),
            column(&rows, |r| i32::from(r.http_status)),
            column(&rows, |r| r.response.as_str()),
            column(&rows, |r| r.result_digest.as_deref()),
            column(&rows, |r| PgTime(r.now)),
            column(&rows, |r| PgTime(r.expires_at)),
        ],
        judge: Box::new(move |found| {
            let asked = rows.iter().map(|(owner, r)| (*owner, r.key.clone()));
            missing(asked, found, key_of, |_| TAKEN)
        }),
    }
}

/// Neither expects to find the entry: it may have been pruned, or be open already.
fn touch_sqlite(db: &Connection, sql: &str, touch: &LedgerTouch) -> Result<(), CommitError> {
    let LedgerTouch { key, now } = touch;
    db.prepare_cached(sql)?.execute(params![key.scope, key.key, now.as_micros()])?;
    Ok(())
}

pub(crate) fn reopen_sqlite(db: &Connection, touch: &LedgerTouch) -> Result<(), CommitError> {
    touch_sqlite(db, REOPEN_SQLITE, touch)
}

pub(crate) fn seen_sqlite(db: &Connection, touch: &LedgerTouch) -> Result<(), CommitError> {
    touch_sqlite(db, SEEN_SQLITE, touch)
}

fn touch_pg<'a>(sql: &'static str, rows: &[(Owner, &'a LedgerTouch)]) -> Step<'a> {
    Step {
        sql,
        params: vec![
            column(rows, |r| r.key.scope.as_str()),
            column(rows, |r| r.key.key.as_str()),
            column(rows, |r| PgTime(r.now)),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

pub(crate) fn reopen_pg<'a>(rows: &[(Owner, &'a LedgerTouch)]) -> Step<'a> {
    touch_pg(REOPEN_PG, rows)
}

pub(crate) fn seen_pg<'a>(rows: &[(Owner, &'a LedgerTouch)]) -> Step<'a> {
    touch_pg(SEEN_PG, rows)
}

fn key_of(row: &tokio_postgres::Row) -> LedgerKey {
    LedgerKey::new(row.get::<_, String>("scope"), row.get::<_, String>("idempotency_key"))
}

const COLUMNS: &str = "scope, idempotency_key, request_digest, result_digest, status, http_status,
    cast(response_payload_json as text) as response, first_seen_at, last_seen_at, expires_at";

fn parse(row: &dyn Row) -> Result<LedgerEntry, StoreError> {
    let name = row.opt_text("idempotency_key").ok().flatten().unwrap_or_default();
    let read = Reader::named(row, "idempo_ledger", name);
    Ok(LedgerEntry {
        key: LedgerKey::new(read.text("scope")?, read.text("idempotency_key")?),
        request_digest: read.text("request_digest")?,
        result_digest: read.opt_text("result_digest")?,
        status: read.word("status", LedgerStatus::parse)?,
        http_status: read.number("http_status")?,
        response: read.text("response")?,
        first_seen_at: read.time("first_seen_at")?,
        last_seen_at: read.time("last_seen_at")?,
        expires_at: read.time("expires_at")?,
    })
}

impl Store {
    /// What the ledger remembers under a key.
    pub async fn ledger_entry(&self, key: &LedgerKey) -> Result<Option<LedgerEntry>, StoreError> {
        let sql = format!(
            "select {COLUMNS} from idempo_ledger where scope = $1 and idempotency_key = $2"
        );
        let params = vec![Param::Text(key.scope.clone()), Param::Text(key.key.clone())];
        Ok(self.query(sql, params, parse).await?.pop())
    }

    /// What the ledger remembers under several keys of one scope, in no particular order.
    pub async fn ledger_entries(
        &self,
        scope: &str,
        keys: Vec<String>,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let listed = match self.dialect() {
            Dialect::Sqlite => "idempotency_key in (select value from json_each($2))",
            Dialect::Postgres => "idempotency_key = any($2::text[])",
        };
        let sql = format!("select {COLUMNS} from idempo_ledger where scope = $1 and {listed}");
        self.query(sql, vec![scope.into(), Param::Texts(keys)], parse).await
    }

    /// How many entries the ledger holds.
    pub async fn ledger_rows(&self) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from idempo_ledger".to_owned();
        let rows =
            self.query(sql, vec![], |row| Reader::named(row, "idempo_ledger", "count").int("n"));
        Ok(rows.await?.first().copied().unwrap_or(0))
    }

    /// Forgets up to `limit` settled entries whose time is over.
    pub async fn prune_ledger(&self, now: Timestamp, limit: i64) -> Result<u64, StoreError> {
        let chosen = "select idempotency_key, scope from idempo_ledger
             where status <> 'accepted' and expires_at <= $1 order by expires_at limit $2";
        let sql = format!("delete from idempo_ledger where (idempotency_key, scope) in ({chosen})");
        self.execute(sql, vec![Param::Time(now), Param::Int(limit)]).await
    }
}
