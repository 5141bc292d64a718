//! `billings`: one row per office.

use rusqlite::Connection;
use tashika_domain::billing::{Billing, Status};
use uuid::Uuid;

use crate::Store;
use crate::error::{CommitError, Key, StoreError};
use crate::row::{Param, Reader, Row};
use crate::step::{Owner, Step};
use crate::table::{Column, Kind, Lazy, Table};

const FIXED: [Column; 4] = [
    ("id", Kind::Uuid),
    ("office_id", Kind::Text),
    ("stripe_customer_id", Kind::Text),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 8] = [
    ("version", Kind::Int),
    ("stripe_subscription_id", Kind::Text),
    ("status", Kind::Text),
    ("trial_end_date", Kind::Time),
    ("last_payment_at", Kind::Time),
    ("payment_as_of", Kind::Time),
    ("subscription_as_of", Kind::Time),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("billings", &FIXED, &CHANGING).unique(Key::Billing));

fn values(billing: &Billing) -> Vec<Param> {
    vec![
        Param::Uuid(billing.id),
        billing.office_id.as_str().into(),
        billing.stripe_customer_id.as_str().into(),
        Param::Time(billing.created_at),
        Param::Int(billing.version),
        billing.stripe_subscription_id.as_deref().into(),
        billing.status.as_str().into(),
        billing.trial_end_date.into(),
        billing.last_payment_at.into(),
        billing.payment_as_of.into(),
        billing.subscription_as_of.into(),
        Param::Time(billing.updated_at),
    ]
}

pub(crate) fn insert_sqlite(db: &Connection, billing: &Billing) -> Result<(), CommitError> {
    TABLE.insert_sqlite(db, &values(billing))
}

pub(crate) fn update_sqlite(db: &Connection, billing: &Billing) -> Result<(), CommitError> {
    TABLE.update_sqlite(db, billing.id, &values(billing))
}

pub(crate) fn insert_pg(rows: &[(Owner, &Billing)]) -> Step<'static> {
    let owners = rows.iter().map(|(owner, billing)| (*owner, billing.id)).collect();
    TABLE.insert_pg(owners, rows.iter().map(|(_, billing)| values(billing)).collect())
}

pub(crate) fn update_pg(rows: &[(Owner, &Billing)]) -> Step<'static> {
    let owners = rows.iter().map(|(owner, billing)| (*owner, billing.id)).collect();
    TABLE.update_pg(owners, rows.iter().map(|(_, billing)| values(billing)).collect())
}

fn parse(row: &dyn Row) -> Result<Billing, StoreError> {
    let read = Reader::by_uuid(row, "billings", "id");
    Ok(Billing {
        id: read.uuid("id")?,
        version: read.int("version")?,
        office_id: read.text("office_id")?,
        stripe_customer_id: read.text("stripe_customer_id")?,
        stripe_subscription_id: read.opt_text("stripe_subscription_id")?,
        status: read.word("status", Status::parse)?,
        trial_end_date: read.opt_time("trial_end_date")?,
        last_payment_at: read.opt_time("last_payment_at")?,
        payment_as_of: read.opt_time("payment_as_of")?,
        subscription_as_of: read.opt_time("subscription_as_of")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
    })
}

impl Store {
    pub async fn billing(&self, id: Uuid) -> Result<Option<Billing>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    pub async fn billing_of_customer(&self, customer: &str) -> Result<Option<Billing>, StoreError> {
        let sql = format!("{} where stripe_customer_id = $1", TABLE.select());
        Ok(self.query(sql, vec![customer.into()], parse).await?.pop())
    }

    /// A page of billings, newest first.
    pub async fn billings(
        &self,
        office_id: Option<&str>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Billing>, StoreError> {
        let mut params = vec![Param::Uuid(before.unwrap_or(Uuid::max())), Param::Int(limit)];
        let mut office = "";
        if let Some(id) = office_id {
            office = " and office_id = $3";
            params.push(id.into());
        }
        let sql = format!("{} where id < $1{office} order by id desc limit $2", TABLE.select());
        self.query(sql, params, parse).await
    }
}
