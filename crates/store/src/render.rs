//! `renders`: one row per video that somebody has paid for.

use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::render::{Render, RenderStatus, Why};
use uuid::Uuid;

use crate::Store;
use crate::cell::Cell;
use crate::error::StoreError;
use crate::filter::Filter;
use crate::row::{Param, Reader, Row};
use crate::table::{Column, Kept, Kind, Lazy, Table};

const FIXED: [Column; 6] = [
    ("id", Kind::Uuid),
    ("reservation_id", Kind::Uuid),
    ("video_id", Kind::Int),
    ("provider", Kind::Text),
    ("traceparent", Kind::Text),
    ("created_at", Kind::Time),
];

const CHANGING: [Column; 15] = [
    ("version", Kind::Int),
    ("status", Kind::Text),
    ("attempts", Kind::Int),
    ("allowed", Kind::Int),
    ("step", Kind::Int),
    ("provider_id", Kind::Text),
    ("submitted_at", Kind::Time),
    ("output_url", Kind::Text),
    ("output_expires_at", Kind::Time),
    ("output_path", Kind::Text),
    ("error_code", Kind::Text),
    ("error_message", Kind::Text),
    ("closed_at", Kind::Time),
    ("closed_why", Kind::Text),
    ("updated_at", Kind::Time),
];

static TABLE: Lazy = Lazy::new(|| Table::new("renders", &FIXED, &CHANGING));

impl Kept for Render {
    fn table() -> &'static Table {
        &TABLE
    }

    fn id(&self) -> Uuid {
        self.id
    }

    fn fixed(&self) -> Vec<Cell<'_>> {
        vec![
            Cell::Uuid(self.id),
            Cell::Uuid(self.reservation_id),
            Cell::Int(self.video_id),
            self.provider.as_str().into(),
            self.traceparent.as_deref().into(),
            Cell::Time(self.created_at),
        ]
    }

    fn changing(&self) -> Vec<Cell<'_>> {
        let error = self.error.as_ref();
        vec![
            Cell::Int(self.version),
            self.status.as_str().into(),
            Cell::Int(self.attempts.into()),
            Cell::Int(self.allowed.into()),
            Cell::Int(self.step),
            self.provider_id.as_deref().into(),
            self.submitted_at.into(),
            self.output_url.as_deref().into(),
            self.output_expires_at.into(),
            self.output_path.as_deref().into(),
            error.map(|reason| reason.code.as_str()).into(),
            error.map(|reason| reason.message.as_str()).into(),
            self.closed.map(|(at, _)| at).into(),
            self.closed.map(|(_, why)| why.as_str()).into(),
            Cell::Time(self.updated_at),
        ]
    }
}

fn parse(row: &dyn Row) -> Result<Render, StoreError> {
    let read = Reader::by_uuid(row, "renders", "id");
    let error = match (read.opt_text("error_code")?, read.opt_text("error_message")?) {
        (Some(code), Some(message)) => Some(Reason { code, message }),
        _ => None,
    };
    let closed = match read.opt_time("closed_at")? {
        Some(at) => Some((at, read.word("closed_why", Why::parse)?)),
        None => None,
    };
    Ok(Render {
        id: read.uuid("id")?,
        version: read.int("version")?,
        reservation_id: read.uuid("reservation_id")?,
        video_id: read.int("video_id")?,
        provider: read.text("provider")?,
        status: read.word("status", RenderStatus::parse)?,
        attempts: read.number("attempts")?,
        allowed: read.number("allowed")?,
        step: read.int("step")?,
        provider_id: read.opt_text("provider_id")?,
        submitted_at: read.opt_time("submitted_at")?,
        output_url: read.opt_text("output_url")?,
        output_expires_at: read.opt_time("output_expires_at")?,
        output_path: read.opt_text("output_path")?,
        error,
        closed,
        traceparent: read.opt_text("traceparent")?,
        created_at: read.time("created_at")?,
        updated_at: read.time("updated_at")?,
    })
}

/// Which renders to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderFilter {
    pub status: Option<RenderStatus>,
    pub reservation_id: Option<Uuid>,
    pub before: Option<Uuid>,
}

impl Store {
    pub async fn render(&self, id: Uuid) -> Result<Option<Render>, StoreError> {
        let sql = format!("{} where id = $1", TABLE.select());
        Ok(self.query(sql, vec![Param::Uuid(id)], parse).await?.pop())
    }

    /// The render that its provider knows under this id.
    pub async fn render_of_provider(
        &self,
        provider: &str,
        provider_id: &str,
    ) -> Result<Option<Render>, StoreError> {
        let sql = format!("{} where provider = $1 and provider_id = $2", TABLE.select());
        Ok(self.query(sql, vec![provider.into(), provider_id.into()], parse).await?.pop())
    }

    /// The renders of a reservation, newest first.
    pub async fn renders_of(&self, reservation_id: Uuid) -> Result<Vec<Render>, StoreError> {
        let filter =
            RenderFilter { reservation_id: Some(reservation_id), ..RenderFilter::default() };
        self.renders(&filter, 100).await
    }

    /// Forgets up to `limit` renders that are done or closed, and were when `before` came. What waits for
    /// a person is not over.
    pub async fn prune_renders(&self, before: Timestamp, limit: i64) -> Result<u64, StoreError> {
        let sql = "delete from renders where id in (
             select id from renders where id < $1 and updated_at < $2
                and (status = 'done' or closed_at is not null)
              order by id limit $3)";
        // Ids begin with the time they were made.
        let newest = Param::Uuid(tashika_domain::ids::floor(before));
        let params = vec![newest, Param::Time(before), Param::Int(limit)];
        self.execute(sql.to_owned(), params).await
    }

    /// A page of renders, newest first.
    pub async fn renders(
        &self,
        filter: &RenderFilter,
        limit: i64,
    ) -> Result<Vec<Render>, StoreError> {
        let mut chosen = Filter::default();
        chosen.add("status =", filter.status.map(RenderStatus::as_str));
        chosen.add("reservation_id =", filter.reservation_id.map(Param::Uuid));
        chosen.add("id <", filter.before.map(Param::Uuid));
        let (conditions, params) = chosen.newest(limit);
        let sql = format!("{} {conditions}", TABLE.select());
        self.query(sql, params, parse).await
    }
}
