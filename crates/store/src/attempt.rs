//! `outbox_attempts`: what was sent, when, and what came back.

use rusqlite::{Connection, params};
use tashika_domain::Timestamp;
use tashika_domain::changes::Attempt;
use tashika_domain::effect::EffectId;
use tashika_domain::outcome::Exchange;

use crate::Store;
use crate::error::{CommitError, StoreError};
use crate::row::{Param, PgTime, Reader};
use crate::step::{Owner, Step, column};

// A repeat of a commit whose answer was lost writes the same row again.
const RECORD_SQLITE: &str = "insert into outbox_attempts (outbox_id, fence, worker, started_at,
        finished_at, outcome, code, message, request, reply, reference, sent)
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
     on conflict do nothing";

const RECORD_PG: &str = "insert into outbox_attempts (outbox_id, fence, worker, started_at,
        finished_at, outcome, code, message, request, reply, reference, sent)
     select * from unnest($1::uuid[], $2::int8[], $3::text[], $4::timestamptz[], $5::timestamptz[],
        $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bool[])
     on conflict do nothing";

pub(crate) fn record_sqlite(db: &Connection, attempt: &Attempt) -> Result<(), CommitError> {
    let exchange = attempt.exchange.as_ref();
    db.prepare_cached(RECORD_SQLITE)?.execute(params![
        attempt.lease.id.0.as_bytes(),
        attempt.lease.fence,
        attempt.worker,
        attempt.started_at.as_micros(),
        attempt.finished_at.as_micros(),
        attempt.outcome,
        attempt.code,
        attempt.message,
        exchange.map(|e| e.request.as_str()),
        exchange.map(|e| e.reply.as_str()),
        exchange.and_then(|e| e.reference.as_deref()),
        exchange.map(|e| e.sent),
    ])?;
    Ok(())
}

pub(crate) fn record_pg<'a>(rows: &[(Owner, &'a Attempt)]) -> Step<'a> {
    fn exchange(attempt: &Attempt) -> Option<&Exchange> {
        attempt.exchange.as_ref()
    }
    Step {
        sql: RECORD_PG,
        params: vec![
            column(rows, |r| r.lease.id.0),
            column(rows, |r| r.lease.fence),
            column(rows, |r| r.worker.as_str()),
            column(rows, |r| PgTime(r.started_at)),
            column(rows, |r| PgTime(r.finished_at)),
            column(rows, |r| r.outcome),
            column(rows, |r| r.code.as_deref()),
            column(rows, |r| r.message.as_deref()),
            column(rows, |r| exchange(r).map(|e| e.request.as_str())),
            column(rows, |r| exchange(r).map(|e| e.reply.as_str())),
            column(rows, |r| exchange(r).and_then(|e| e.reference.as_deref())),
            column(rows, |r| exchange(r).map(|e| e.sent)),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

/// One try of an effect, as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    pub fence: i64,
    pub worker: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub outcome: String,
    pub code: Option<String>,
    pub message: Option<String>,
    pub exchange: Option<Exchange>,
}

impl Store {
    /// The recorded attempts of an effect, oldest first.
    pub async fn attempts(&self, id: EffectId) -> Result<Vec<AttemptRecord>, StoreError> {
        let sql =
            "select outbox_id, fence, worker, started_at, finished_at, outcome, code, message,
                request, reply, reference, sent
             from outbox_attempts where outbox_id = $1 order by fence"
                .to_owned();
        self.query(sql, vec![Param::Uuid(id.0)], |row| {
            let read = Reader::by_uuid(row, "outbox_attempts", "outbox_id");
            let exchange = match read.opt_text("request")? {
                None => None,
                Some(request) => Some(Exchange {
                    request,
                    reply: read.text("reply")?,
                    reference: read.opt_text("reference")?,
                    sent: read.bool("sent")?,
                }),
            };
            Ok(AttemptRecord {
                fence: read.int("fence")?,
                worker: read.text("worker")?,
                started_at: read.time("started_at")?,
                finished_at: read.time("finished_at")?,
                outcome: read.text("outcome")?,
                code: read.opt_text("code")?,
                message: read.opt_text("message")?,
                exchange,
            })
        })
        .await
    }
}
