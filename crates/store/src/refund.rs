//! `refunds`: one row each, written together with their payment.

use tashika_domain::effect::EffectId;
use tashika_domain::payment::{Refund, RefundStatus, RequestKey};
use uuid::Uuid;

use crate::cell::Cell;
use crate::error::StoreError;
use crate::payment::{doubt, failure};
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};
use crate::{Dialect, Store};

const FIXED: [Column; 9] = [
    ("id", Kind::Uuid),
    ("payment_id", Kind::Uuid),
    ("number", Kind::Int),
    ("amount", Kind::Int),
    ("reason", Kind::Text),
    ("effect", Kind::Uuid),
    ("idempotency_key", Kind::Text),
    ("request_digest", Kind::Text),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 11] = [
    ("status", Kind::Text),
    ("gateway_refund_id", Kind::Text),
    ("failure_code", Kind::Text),
    ("failure_reason", Kind::Text),
    ("verification_code", Kind::Text),
    ("verification_message", Kind::Text),
    ("verification_sent_at", Kind::Time),
    ("verification_attempts", Kind::Int),
    ("last_verification_at", Kind::Time),
    ("given_up", Kind::Bool),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("refunds", &FIXED, &CHANGING));

impl Kept for Refund {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            Cell::Uuid(self.payment_id),
            Cell::Int(i64::from(self.number)),
            Cell::Int(self.amount),
            self.reason.as_deref().into(),
            Cell::Uuid(self.effect.0),
            self.key.key.as_str().into(),
            self.key.digest.as_str().into(),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let doubt = self.doubt.as_ref();
        vec![
            self.status.as_str().into(),
            self.gateway_refund_id.as_deref().into(),
            self.failure.as_ref().map(|r| r.code.as_str()).into(),
            self.failure.as_ref().map(|r| r.message.as_str()).into(),
            doubt.map(|d| d.reason.code.as_str()).into(),
            doubt.map(|d| d.reason.message.as_str()).into(),
            doubt.map(|d| d.sent_at).into(),
            Cell::Int(doubt.map_or(0, |d| i64::from(d.checks))),
            doubt.and_then(|d| d.last_check_at).into(),
            Cell::Bool(doubt.is_some_and(|d| d.given_up)),
            Cell::Time(self.updated_at),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Refund, StoreError> {
    let read = Reader::by_uuid(row, "refunds", "id");
    Ok(Refund {
        id: read.uuid("id")?,
        payment_id: read.uuid("payment_id")?,
        number: read.number("number")?,
        amount: read.int("amount")?,
        reason: read.opt_text("reason")?,
        status: read.word("status", RefundStatus::parse)?,
        gateway_refund_id: read.opt_text("gateway_refund_id")?,
        failure: failure(&read)?,
        effect: EffectId(read.uuid("effect")?),
        key: RequestKey {
            key: read.text("idempotency_key")?,
            digest: read.text("request_digest")?,
        },
        doubt: doubt(&read, "given_up")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
    })
}

impl Store {
    /// The refunds of some payments, in the order in which they were made.
    pub(crate) async fn refunds_of(&self, payments: Vec<Uuid>) -> Result<Vec<Refund>, StoreError> {
        if payments.is_empty() {
            return Ok(Vec::new());
        }
        let listed = match self.dialect() {
            // No arrays: a JSON list, whose elements are the ids in hexadecimal.
            Dialect::Sqlite => "lower(hex(payment_id)) in (select value from json_each($1))",
            Dialect::Postgres => "payment_id = any(cast($1::text[] as uuid[]))",
        };
        // One payment is the common case, and its index must be used.
        let (listed, param) = match payments[..] {
            [one] => ("payment_id = $1", Param::Uuid(one)),
            _ => {
                (listed, Param::Texts(payments.iter().map(|id| id.simple().to_string()).collect()))
            }
        };
        let sql = format!("{} where {listed} order by payment_id, number", TABLE.select());
        self.query(sql, vec![param], parse).await
    }
}
