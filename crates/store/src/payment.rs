//! `payments` and `payment_timeline`.

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::changes::PaymentLine;
use tashika_domain::effect::EffectId;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::checkout::Session;
use tashika_domain::payment::{
    CaptureMode, Checkout, Doubt, Operation, OperationKind, Payment, PaymentRequest, RequestKey,
    Status,
};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{CommitError, StoreError};
use crate::filter::Filter;
use crate::row::{Param, PgTime, Reader, Row};
use crate::step::{Owner, Step, column};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 14] = [
    ("id", Kind::Uuid),
    ("booking_id", Kind::Text),
    ("user_id", Kind::Text),
    ("amount", Kind::Int),
    ("currency", Kind::Text),
    ("payment_method", Kind::Text),
    ("customer", Kind::Text),
    ("description", Kind::Text),
    ("capture", Kind::Text),
    ("idempotency_key", Kind::Text),
    ("request_digest", Kind::Text),
    ("gateway", Kind::Text),
    ("traceparent", Kind::Text),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 29] = [
    ("version", Kind::Int),
    ("status", Kind::Text),
    ("captured_amount", Kind::Int),
    ("refunded_amount", Kind::Int),
    ("refunding_amount", Kind::Int),
    ("gateway_transaction_id", Kind::Text),
    ("failure_code", Kind::Text),
    ("failure_reason", Kind::Text),
    ("operation", Kind::Text),
    ("operation_amount", Kind::Int),
    ("operation_effect", Kind::Uuid),
    ("operation_key", Kind::Text),
    ("operation_digest", Kind::Text),
    ("operation_asked_at", Kind::Time),
    ("operations_in_vain", Kind::Int),
    ("pending_verification", Kind::Bool),
    ("verification_failed", Kind::Bool),
    ("verification_code", Kind::Text),
    ("verification_message", Kind::Text),
    ("verification_sent_at", Kind::Time),
    ("verification_attempts", Kind::Int),
    ("last_verification_at", Kind::Time),
    ("operation_given_up", Kind::Bool),
    ("operation_fenced", Kind::Bool),
    ("updated_at", Kind::Time),
    ("checkout_closes_at", Kind::Time),
    ("session_id", Kind::Text),
    ("session_url", Kind::Text),
    ("session_expires_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("payments", &FIXED, &CHANGING));

impl Kept for Payment {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        let request = &self.request;
        vec![
            Cell::Uuid(self.id),
            request.booking_id.as_str().into(),
            request.user_id.as_str().into(),
            Cell::Int(request.amount),
            request.currency.as_str().into(),
            request.payment_method.as_str().into(),
            request.customer.as_deref().into(),
            request.description.as_deref().into(),
            request.capture.as_str().into(),
            self.key.key.as_str().into(),
            self.key.digest.as_str().into(),
            self.gateway.as_str().into(),
            self.traceparent.as_deref().into(),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let operation = self.operation.as_ref();
        let key = operation.and_then(|o| o.key.as_ref());
        let doubt = operation.and_then(|o| o.doubt.as_ref());
        let page = self.checkout.as_ref();
        let session = page.and_then(|page| page.session.as_ref());
        vec![
            Cell::Int(self.version),
            self.status.as_str().into(),
            Cell::Int(self.captured_amount),
            Cell::Int(self.refunded_amount),
            Cell::Int(self.refunding_amount()),
            self.gateway_transaction_id.as_deref().into(),
            self.failure.as_ref().map(|r| r.code.as_str()).into(),
            self.failure.as_ref().map(|r| r.message.as_str()).into(),
            operation.map(|o| o.kind.as_str()).into(),
            operation.map_or(Cell::Null, |o| Cell::Int(o.amount)),
            operation.map_or(Cell::Null, |o| Cell::Uuid(o.effect.0)),
            key.map(|k| k.key.as_str()).into(),
            key.map(|k| k.digest.as_str()).into(),
            operation.map(|o| o.asked_at).into(),
            Cell::Int(i64::from(self.in_vain)),
            Cell::Bool(self.pending_verification()),
            Cell::Bool(self.verification_failed()),
            doubt.map(|d| d.reason.code.as_str()).into(),
            doubt.map(|d| d.reason.message.as_str()).into(),
            doubt.map(|d| d.sent_at).into(),
            Cell::Int(doubt.map_or(0, |d| i64::from(d.checks))),
            doubt.and_then(|d| d.last_check_at).into(),
            Cell::Bool(doubt.is_some_and(|d| d.given_up)),
            Cell::Bool(doubt.is_some_and(|d| d.fenced)),
            Cell::Time(self.updated_at),
            page.map(|page| page.closes_at).into(),
            session.map(|session| session.id.as_str()).into(),
            session.and_then(|session| session.url.as_deref()).into(),
            session.map(|session| session.expires_at).into(),
        ]
    }
}

// A repeat of a commit whose answer was lost does not get here: the payment has moved on.
const LINE_SQLITE: &str = "insert into payment_timeline (payment_id, version, number, at, kind,
        entry)
     values (?1, ?2, ?3, ?4, ?5, ?6)";

const LINE_PG: &str = "insert into payment_timeline (payment_id, version, number, at, kind, entry)
     select payment_id, version, number, at, kind, entry::jsonb
       from unnest($1::uuid[], $2::int8[], $3::int8[], $4::timestamptz[], $5::text[], $6::text[])
         as t (payment_id, version, number, at, kind, entry)";

pub(crate) fn line_sqlite(db: &Connection, line: &PaymentLine) -> Result<(), CommitError> {
    db.prepare_cached(LINE_SQLITE)?.execute(params![
        line.payment_id.as_bytes(),
        line.version,
        line.number,
        line.at.as_micros(),
        line.kind,
        line.entry,
    ])?;
    Ok(())
}

pub(crate) fn line_pg<'a>(rows: &[(Owner, &'a PaymentLine)]) -> Step<'a> {
    Step {
        sql: LINE_PG,
        params: vec![
            column(rows, |r| r.payment_id),
            column(rows, |r| r.version),
            column(rows, |r| i64::from(r.number)),
            column(rows, |r| PgTime(r.at)),
            column(rows, |r| r.kind),
            column(rows, |r| r.entry.as_str()),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

/// The doubt of a row: payments and refunds name the columns alike, except for the last. Only payments
/// are fenced.
pub(crate) fn doubt(
    read: &Reader<'_>,
    given_up: &'static str,
) -> Result<Option<Doubt>, StoreError> {
    let Some(sent_at) = read.opt_time("verification_sent_at")? else { return Ok(None) };
    let code = read.opt_text("verification_code")?.unwrap_or_default();
    let message = read.opt_text("verification_message")?.unwrap_or_default();
    Ok(Some(Doubt {
        reason: Reason { code, message },
        sent_at,
        checks: read.number("verification_attempts")?,
        last_check_at: read.opt_time("last_verification_at")?,
        fenced: false,
        given_up: read.bool(given_up)?,
    }))
}

pub(crate) fn failure(read: &Reader<'_>) -> Result<Option<Reason>, StoreError> {
    let code = read.opt_text("failure_code")?;
    let message = read.opt_text("failure_reason")?.unwrap_or_default();
    Ok(code.map(|code| Reason { code, message }))
}

fn operation(read: &Reader<'_>) -> Result<Option<Operation>, StoreError> {
    let Some(kind) = read.opt_text("operation")? else { return Ok(None) };
    let kind = OperationKind::parse(&kind)
        .ok_or_else(|| read.corrupt("operation", format!("unknown word {kind:?}")))?;
    let effect = read.opt_uuid("operation_effect")?;
    let key = read.opt_text("operation_key")?;
    let digest = read.opt_text("operation_digest")?.unwrap_or_default();
    let mut doubt = doubt(read, "operation_given_up")?;
    if let Some(doubt) = &mut doubt {
        doubt.fenced = read.bool("operation_fenced")?;
    }
    Ok(Some(Operation {
        kind,
        amount: read.int("operation_amount")?,
        effect: EffectId(effect.ok_or_else(|| read.corrupt("operation_effect", "is null"))?),
        key: key.map(|key| RequestKey { key, digest }),
        asked_at: read.time("operation_asked_at")?,
        doubt,
    }))
}

fn checkout(read: &Reader<'_>) -> Result<Option<Checkout>, StoreError> {
    let Some(closes_at) = read.opt_time("checkout_closes_at")? else { return Ok(None) };
    let session = match read.opt_text("session_id")? {
        None => None,
        Some(id) => Some(Session {
            id,
            url: read.opt_text("session_url")?,
            expires_at: read.time("session_expires_at")?,
        }),
    };
    Ok(Some(Checkout { closes_at, session }))
}

/// A payment without its refunds.
fn parse(row: &dyn Row) -> Result<Payment, StoreError> {
    let read = Reader::by_uuid(row, "payments", "id");
    Ok(Payment {
        id: read.uuid("id")?,
        version: read.int("version")?,
        request: PaymentRequest {
            booking_id: read.text("booking_id")?,
            user_id: read.text("user_id")?,
            amount: read.int("amount")?,
            currency: read.text("currency")?,
            payment_method: read.text("payment_method")?,
            customer: read.opt_text("customer")?,
            description: read.opt_text("description")?,
            capture: read.word("capture", CaptureMode::parse)?,
        },
        key: RequestKey {
            key: read.text("idempotency_key")?,
            digest: read.text("request_digest")?,
        },
        gateway: read.text("gateway")?,
        status: read.word("status", Status::parse)?,
        captured_amount: read.int("captured_amount")?,
        refunded_amount: read.int("refunded_amount")?,
        gateway_transaction_id: read.opt_text("gateway_transaction_id")?,
        failure: failure(&read)?,
        operation: operation(&read)?,
        checkout: checkout(&read)?,
        in_vain: read.number("operations_in_vain")?,
        refunds: Vec::new(),
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        traceparent: read.opt_text("traceparent")?,
    })
}

/// Which payments to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaymentFilter {
    pub status: Option<Status>,
    pub pending_verification: Option<bool>,
    pub booking_id: Option<String>,
    pub user_id: Option<String>,
    /// Only payments older than this one: the last id of the page before.
    pub before: Option<Uuid>,
    /// Only rows that are not older than this one: how far back a look may go.
    pub since: Option<Uuid>,
    /// Only payments made in `[from, until)`.
    pub created: Option<(Timestamp, Timestamp)>,
}

/// A line of a timeline as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineLine {
    /// The version of the payment that it was written with.
    pub version: i64,
    pub at: Timestamp,
    pub kind: String,
    /// JSON text.
    pub entry: String,
}

impl Store {
    /// A payment with its refunds, as they were at one moment.
    pub async fn payment(&self, id: Uuid) -> Result<Option<Payment>, StoreError> {
        loop {
            let Some(mut payment) = self.payment_row(id).await? else { return Ok(None) };
            // Nothing captured, nothing to give back.
            if payment.captured_amount == 0 {
                return Ok(Some(payment));
            }
            payment.refunds = self.refunds_of(vec![id]).await?;
            let again = self.payment_row(id).await?;
            // Whoever changes a refund changes its payment: the same version is the same moment.
            if again.is_some_and(|again| again.version == payment.version) {
                return Ok(Some(payment));
            }
        }
    }

    async fn payment_row(&self, id: Uuid) -> Result<Option<Payment>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// A page of payments with their refunds, newest first.
    pub async fn payments(
        &self,
        filter: &PaymentFilter,
        limit: i64,
    ) -> Result<Vec<Payment>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("status =", filter.status.map(Status::as_str));
        chosen.add("booking_id =", filter.booking_id.as_deref());
        chosen.add("user_id =", filter.user_id.as_deref());
        chosen.add("id <", filter.before.map(Param::Uuid));
        chosen.add("id >=", filter.since.map(Param::Uuid));
        chosen.add("created_at >=", filter.created.map(|(from, _)| from));
        chosen.add("created_at <", filter.created.map(|(_, until)| until));
        match filter.pending_verification {
            Some(true) => chosen.require("pending_verification"),
            Some(false) => chosen.require("not pending_verification"),
            None => {}
        }
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
        let mut payments = self.query(sql, params, parse).await?;
        let captured: Vec<Uuid> =
            payments.iter().filter(|p| p.captured_amount > 0).map(|p| p.id).collect();
        for refund in self.refunds_of(captured).await? {
            if let Some(payment) = payments.iter_mut().find(|p| p.id == refund.payment_id) {
                payment.refunds.push(refund);
            }
        }
        Ok(payments)
    }

    /// Everything that happened to a payment, in order.
    pub async fn payment_timeline(&self, id: Uuid) -> Result<Vec<TimelineLine>, StoreError> {
        let sql = "select payment_id, version, at, kind, cast(entry as text) as entry
             from payment_timeline where payment_id = $1 order by version, number";
        self.query(sql.to_owned(), vec![Param::Uuid(id)], |row| {
            let read = Reader::by_uuid(row, "payment_timeline", "payment_id");
            Ok(TimelineLine {
                version: read.int("version")?,
                at: read.time("at")?,
                kind: read.text("kind")?,
                entry: read.text("entry")?,
            })
        })
        .await
    }

    /// How many payments wait for an answer of the gateway.
    pub async fn payments_in_doubt(&self) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from payments where pending_verification".to_owned();
        let rows = self.query(sql, vec![], |row| Reader::named(row, "payments", "count").int("n"));
        Ok(rows.await?.first().copied().unwrap_or(0))
    }

    /// How many payments of a status there are.
    pub async fn payment_count(&self, status: Status) -> Result<i64, StoreError> {
        let sql = "select count(*) as n from payments where status = $1".to_owned();
        let params = vec![status.as_str().into()];
        let rows = self.query(sql, params, |row| Reader::named(row, "payments", "count").int("n"));
        Ok(rows.await?.first().copied().unwrap_or(0))
    }
}
