//! `audit_logs`: who did what to what. Append-only: triggers refuse everything else.
//!
//! Lines are sealed in batches: `audit_sealed` keeps the digest of each sealed line, `audit_seals` a
//! chain over the batches. What was changed, removed or slipped in afterwards no longer fits, and
//! [`Store::audit_lines_of_seal`] with the chain tells which line it was.

use tashika_domain::audit::{Audit, NewAudit};
use tashika_domain::{Timestamp, ids};
use uuid::Uuid;

use crate::cell::Cell;
use crate::error::StoreError;
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};
use crate::{Backend, Store};

const COLUMNS: [Column; 9] = [
    ("id", Kind::Uuid),
    ("actor_id", Kind::Text),
    ("actor_role", Kind::Text),
    ("action", Kind::Text),
    ("target_type", Kind::Text),
    ("target_id", Kind::Text),
    ("office_id", Kind::Text),
    ("details", Kind::Json),
    ("created_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("audit_logs", &COLUMNS, &[]));

impl Kept for NewAudit {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            self.actor.id.as_deref().into(),
            self.actor.role.into(),
            self.action.as_str().into(),
            self.target_type.into(),
            self.target_id.as_str().into(),
            self.office_id.as_deref().into(),
            self.details.as_str().into(),
            Cell::Time(self.now),
        ]
    }

    /// A line is never changed.
    fn changing(&self) -> Vec<Cell<'_>> {
        Vec::new()
    }
}

fn parse(row: &dyn Row) -> Result<Audit, StoreError> {
    let read = Reader::by_uuid(row, "audit_logs", "id");
    Ok(Audit {
        id: read.uuid("id")?,
        actor_id: read.opt_text("actor_id")?,
        actor_role: read.text("actor_role")?,
        action: read.text("action")?,
        target_type: read.text("target_type")?,
        target_id: read.text("target_id")?,
        office_id: read.opt_text("office_id")?,
        details: read.text("details")?,
        created_at: read.time("created_at")?,
    })
}

/// Which lines to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditFilter {
    pub action: Option<String>,
    pub target_type: Option<String>,
    pub target_id: Option<String>,
    pub office_id: Option<String>,
    /// Written in `[from, to)`.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only lines older than this one: the last id of the page before.
    pub before: Option<Uuid>,
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
}

/// A batch of sealed lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Seal {
    /// 1, 2, …
    pub number: i64,
    pub lines: i64,
    /// Over the lines' digests and the seal before.
    pub digest: String,
    pub sealed_at: Timestamp,
}

/// A sealed line: its digest then, and the line as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedLine {
    pub id: Uuid,
    pub digest: String,
    /// `None`: it is gone.
    pub line: Option<Audit>,
}

const SEAL_COLUMNS: &str = "select number, lines, digest, sealed_at from audit_seals";

fn parse_seal(row: &dyn Row) -> Result<Seal, StoreError> {
    let number = row.opt_int("number").ok().flatten().unwrap_or_default();
    let read = Reader::named(row, "audit_seals", number.to_string());
    Ok(Seal {
        number: read.int("number")?,
        lines: read.int("lines")?,
        digest: read.text("digest")?,
        sealed_at: read.time("sealed_at")?,
    })
}

impl Store {
    /// A page of lines, newest first.
    pub async fn audit_logs(
        &self,
        filter: &AuditFilter,
        limit: i64,
    ) -> Result<Vec<Audit>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("action =", filter.action.as_deref());
        chosen.add("target_type =", filter.target_type.as_deref());
        chosen.add("target_id =", filter.target_id.as_deref());
        chosen.add("office_id =", filter.office_id.as_deref());
        chosen.add("created_at >=", filter.from);
        chosen.add("created_at <", filter.to);
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", select(""));
        self.query(sql, params, parse).await
    }

    /// Lines of `[since, until)` that no seal covers yet, oldest first.
    pub async fn unsealed_audit(
        &self,
        since: Timestamp,
        until: Option<Timestamp>,
        limit: i64,
    ) -> Result<Vec<Audit>, StoreError> {
        let sql = format!(
            "{} where l.id >= $1 and l.id < $2
               and not exists (select 1 from audit_sealed s where s.audit_id = l.id)
             order by l.id limit $3",
            select("l"),
        );
        let end = until.map_or(Uuid::max(), ids::floor);
        let params = vec![Param::Uuid(ids::floor(since)), Param::Uuid(end), Param::Int(limit)];
        self.query(sql, params, parse).await
    }

    pub async fn last_seal(&self) -> Result<Option<Seal>, StoreError> {
        let sql = format!("{SEAL_COLUMNS} order by number desc limit 1");
        Ok(self.query(sql, vec![], parse_seal).await?.pop())
    }

    /// The number of the last seal that any line is listed under, 0 if there is none.
    pub async fn last_sealed(&self) -> Result<i64, StoreError> {
        let sql = "select coalesce(max(seal), 0) as seal from audit_sealed".to_owned();
        let found =
            self.query(sql, vec![], |row| Reader::named(row, "audit_sealed", "max").int("seal"));
        Ok(found.await?.pop().unwrap_or(0))
    }

    /// Seals after a number, in order.
    pub async fn seals(&self, after: i64, limit: i64) -> Result<Vec<Seal>, StoreError> {
        let sql = format!("{SEAL_COLUMNS} where number > $1 order by number limit $2");
        self.query(sql, vec![Param::Int(after), Param::Int(limit)], parse_seal).await
    }

    /// The lines that a seal covers, in the order of their ids.
    pub async fn audit_lines_of_seal(&self, number: i64) -> Result<Vec<SealedLine>, StoreError> {
        let columns: Vec<String> =
            COLUMNS.iter().map(|(name, kind)| column("l", name, *kind)).collect();
        let sql = format!(
            "select s.audit_id, s.digest, l.created_at as present, {} from audit_sealed s
             left join audit_logs l on l.id = s.audit_id where s.seal = $1 order by s.audit_id",
            columns.join(", "),
        );
        self.query(sql, vec![Param::Int(number)], |row| {
            let read = Reader::by_uuid(row, "audit_sealed", "audit_id");
            let line = match read.opt_time("present")? {
                Some(_) => Some(parse(row)?),
                None => None,
            };
            Ok(SealedLine { id: read.uuid("audit_id")?, digest: read.text("digest")?, line })
        })
        .await
    }

    /// Writes the next seal and the digests of its lines. False if somebody else has written it.
    pub async fn write_seal(
        &self,
        seal: &Seal,
        lines: Vec<(Uuid, String)>,
    ) -> Result<bool, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                let seal = seal.clone();
                sqlite
                    .upkeep(move |db| {
                        let written = db.execute(
                            "insert into audit_seals (number, lines, digest, sealed_at)
                             values (?1, ?2, ?3, ?4) on conflict do nothing",
                            rusqlite::params![
                                seal.number,
                                seal.lines,
                                seal.digest,
                                seal.sealed_at.as_micros()
                            ],
                        )?;
                        if written == 0 {
                            return Ok(false);
                        }
                        let mut insert = db.prepare_cached(
                            "insert into audit_sealed (audit_id, seal, digest) values (?1, ?2, ?3)",
                        )?;
                        for (id, digest) in &lines {
                            insert.execute(rusqlite::params![
                                id.as_bytes(),
                                seal.number,
                                digest
                            ])?;
                        }
                        Ok(true)
                    })
                    .await
            }
            Backend::Postgres(postgres) => {
                let (ids, digests): (Vec<Uuid>, Vec<String>) = lines.into_iter().unzip();
                let db = postgres.writer().await?;
                // One statement: the chain and its lines, or neither.
                let written = db
                    .execute(
                        "with seal as (
                            insert into audit_seals (number, lines, digest, sealed_at)
                            values ($1, $2, $3, $4) on conflict do nothing returning number)
                         insert into audit_sealed (audit_id, seal, digest)
                         select t.id, seal.number, t.digest
                           from seal, unnest($5::uuid[], $6::text[]) as t (id, digest)",
                        &[
                            &seal.number,
                            &seal.lines,
                            &seal.digest,
                            &crate::row::PgTime(seal.sealed_at),
                            &ids,
                            &digests,
                        ],
                    )
                    .await?;
                Ok(written > 0)
            }
        }
    }

    /// Moves the horizon, and removes up to `limit` lines from before it. It never moves back.
    pub async fn prune_audit(&self, horizon: Timestamp, limit: i64) -> Result<u64, StoreError> {
        // Ids count milliseconds: whether a line that is gone was older can be told by its id alone.
        let horizon = Timestamp::from_micros(horizon.as_micros().div_euclid(1000) * 1000);
        let sql = "insert into audit_retention (one, horizon) values (1, $1)
             on conflict (one) do update set horizon = excluded.horizon
             where audit_retention.horizon < excluded.horizon";
        self.execute(sql.to_owned(), vec![Param::Time(horizon)]).await?;
        let sql = "delete from audit_logs where id in (
             select id from audit_logs where created_at < $1 order by id limit $2)";
        self.execute(sql.to_owned(), vec![Param::Time(horizon), Param::Int(limit)]).await
    }

    /// Lines before this moment may be gone.
    pub async fn audit_horizon(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = "select horizon from audit_retention where one = 1".to_owned();
        let found = self
            .query(sql, vec![], |row| Reader::named(row, "audit_retention", "1").time("horizon"));
        Ok(found.await?.pop())
    }
}

fn column(table: &str, name: &str, kind: Kind) -> String {
    let place = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
    match kind {
        Kind::Json => format!("cast({place} as text) as {name}"),
        _ => place,
    }
}

fn select(table: &str) -> String {
    let columns: Vec<String> =
        COLUMNS.iter().map(|(name, kind)| column(table, name, *kind)).collect();
    format!("select {} from audit_logs {table}", columns.join(", "))
}
