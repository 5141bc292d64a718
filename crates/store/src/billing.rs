//! `billings`: one row per office.

use tashika_domain::billing::{Billing, Status};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

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

impl Kept for Billing {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            self.office_id.as_str().into(),
            self.stripe_customer_id.as_str().into(),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.stripe_subscription_id.as_deref().into(),
            self.status.as_str().into(),
            self.trial_end_date.into(),
            self.last_payment_at.into(),
            self.payment_as_of.into(),
            self.subscription_as_of.into(),
            Cell::Time(self.updated_at),
        ]
    }
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
        let mut chosen = Filter::default();
        chosen.add("office_id =", office_id);
        chosen.add("id <", before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }
}
