//! `reservations`: who has which slot.

use tashika_domain::payment::RequestKey;
use tashika_domain::reservation::{Reservation, ReservationRequest, Status};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::{Key, StoreError};
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 14] = [
    ("id", Kind::Uuid),
    ("user_id", Kind::Text),
    ("user_email", Kind::Text),
    ("locale", Kind::Text),
    ("video_id", Kind::Int),
    ("projection_date", Kind::Text),
    ("slot_number", Kind::Int),
    ("amount", Kind::Int),
    ("currency", Kind::Text),
    ("idempotency_key", Kind::Text),
    ("request_digest", Kind::Text),
    ("hold_expires_at", Kind::Time),
    ("traceparent", Kind::Text),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 7] = [
    ("version", Kind::Int),
    ("status", Kind::Text),
    ("payment_id", Kind::Uuid),
    ("confirmed_at", Kind::Time),
    ("expired_at", Kind::Time),
    ("cancelled_at", Kind::Time),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy =
    Lazy::new(|| Table::new("reservations", &FIXED, &CHANGING).unique(Key::Reservation));

impl Kept for Reservation {
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
            request.user_id.as_str().into(),
            request.user_email.as_str().into(),
            request.locale.as_str().into(),
            Cell::Int(request.video_id),
            request.projection_date.as_str().into(),
            Cell::Int(request.slot_number),
            Cell::Int(request.amount),
            request.currency.as_str().into(),
            self.key.key.as_str().into(),
            self.key.digest.as_str().into(),
            Cell::Time(self.hold_expires_at),
            self.traceparent.as_deref().into(),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Int(self.version),
            self.status.as_str().into(),
            self.payment_id.map_or(Cell::Null, Cell::Uuid),
            self.confirmed_at.into(),
            self.expired_at.into(),
            self.cancelled_at.into(),
            Cell::Time(self.updated_at),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Reservation, StoreError> {
    let read = Reader::by_uuid(row, "reservations", "id");
    Ok(Reservation {
        id: read.uuid("id")?,
        version: read.int("version")?,
        request: ReservationRequest {
            video_id: read.int("video_id")?,
            projection_date: read.text("projection_date")?,
            slot_number: read.int("slot_number")?,
            user_id: read.text("user_id")?,
            user_email: read.text("user_email")?,
            locale: read.word("locale", |text| text.parse().ok())?,
            amount: read.int("amount")?,
            currency: read.text("currency")?,
        },
        key: RequestKey {
            key: read.text("idempotency_key")?,
            digest: read.text("request_digest")?,
        },
        status: read.word("status", Status::parse)?,
        hold_expires_at: read.time("hold_expires_at")?,
        payment_id: read.opt_uuid("payment_id")?,
        confirmed_at: read.opt_time("confirmed_at")?,
        expired_at: read.opt_time("expired_at")?,
        cancelled_at: read.opt_time("cancelled_at")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
        traceparent: read.opt_text("traceparent")?,
    })
}

/// Which reservations to list. Empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationFilter {
    pub projection_date: Option<String>,
    pub status: Option<Status>,
    pub user_id: Option<String>,
    /// Only reservations older than this one: the last id of the page before.
    pub before: Option<Uuid>,
}

impl Store {
    pub async fn reservation(&self, id: Uuid) -> Result<Option<Reservation>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    pub async fn reservation_of_key(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        let sql = format!("{} where idempotency_key = $1", TABLE.select());
        Ok(self.query(sql, vec![key.into()], parse).await?.pop())
    }

    /// Whoever has a slot, also if that one's time is over and nobody has noticed.
    pub async fn reservation_of_slot(
        &self,
        date: &str,
        slot: i64,
    ) -> Result<Option<Reservation>, StoreError> {
        let sql = format!(
            "{} where projection_date = $1 and slot_number = $2
                and status not in ('expired', 'cancelled')",
            TABLE.select()
        );
        Ok(self.query(sql, vec![date.into(), Param::Int(slot)], parse).await?.pop())
    }

    /// Everybody who has a slot of a day, by slot.
    pub async fn reservations_of_day(&self, date: &str) -> Result<Vec<Reservation>, StoreError> {
        let sql = format!(
            "{} where projection_date = $1 and status not in ('expired', 'cancelled')
              order by slot_number",
            TABLE.select()
        );
        self.query(sql, vec![date.into()], parse).await
    }

    /// A page of reservations, newest first.
    pub async fn reservations(
        &self,
        filter: &ReservationFilter,
        limit: i64,
    ) -> Result<Vec<Reservation>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("projection_date =", filter.projection_date.as_deref());
        chosen.add("status =", filter.status.map(Status::as_str));
        chosen.add("user_id =", filter.user_id.as_deref());
        chosen.add("id <", filter.before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        self.query(format!("{} {conditions}", TABLE.select()), params, parse).await
    }
}
