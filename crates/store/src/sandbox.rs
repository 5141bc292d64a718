//! `sandbox_payments`: what the sandbox gateway knows.
//!
//! The gateway's side of the world, not ours: nothing else reads it. It is kept here so that the
//! sandbox survives a restart, and is one and the same for several processes, as a real gateway is.

use tashika_domain::Timestamp;
use uuid::Uuid;

use crate::Store;
use crate::error::StoreError;
use crate::row::{Param, Reader, Row};

/// A payment as the sandbox knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxRow {
    pub id: Uuid,
    pub version: i64,
    pub state: String,
}

fn parse(row: &dyn Row) -> Result<SandboxRow, StoreError> {
    let read = Reader::by_uuid(row, "sandbox_payments", "id");
    Ok(SandboxRow {
        id: read.uuid("id")?,
        version: read.int("version")?,
        state: read.text("state")?,
    })
}

impl Store {
    pub async fn sandbox_payment(&self, id: Uuid) -> Result<Option<SandboxRow>, StoreError> {
        let sql = "select id, version, state from sandbox_payments where id = $1".to_owned();
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// Writes the next version of a payment; false if it is not the next one any more. Version 1 is
    /// the first.
    pub async fn save_sandbox_payment(
        &self,
        row: SandboxRow,
        created_at: Timestamp,
    ) -> Result<bool, StoreError> {
        let state = Param::from(row.state.as_str());
        let written = if row.version == 1 {
            let sql = "insert into sandbox_payments (id, version, state, created_at)
                 values ($1, 1, $2, $3) on conflict do nothing";
            let params = vec![Param::Uuid(row.id), state, Param::Time(created_at)];
            self.execute(sql.to_owned(), params).await?
        } else {
            let sql = "update sandbox_payments set version = $2, state = $3
                 where id = $1 and version = $2 - 1";
            let params = vec![Param::Uuid(row.id), Param::Int(row.version), state];
            self.execute(sql.to_owned(), params).await?
        };
        Ok(written == 1)
    }

    /// Payments made in `[from, until)`, by id, after `after`.
    pub async fn sandbox_payments(
        &self,
        from: Timestamp,
        until: Timestamp,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let sql = "select id, version, state from sandbox_payments
             where created_at >= $1 and created_at < $2 and id > $3 order by id limit $4";
        let after = Param::Uuid(after.unwrap_or(Uuid::nil()));
        let params = vec![Param::Time(from), Param::Time(until), after, Param::Int(limit)];
        self.query(sql.to_owned(), params, parse).await
    }
}
