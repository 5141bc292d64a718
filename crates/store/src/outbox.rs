//! `outbox`: writing effects. The claim is in [`crate::claim`], reads are in [`crate::effects`].

use rusqlite::{Connection, params};
use tashika_domain::changes::{Release, Requeue, Reschedule, Settle, Withdraw};
use tashika_domain::effect::{EffectId, NewEffect, Verdict};
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::outcome::Reason;
use tashika_domain::{Status, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{CommitError, Key};
use crate::row::PgTime;
use crate::step::{Owner, Step, column, missing};

macro_rules! enqueue_conflict {
    () => {
        // A settled row does not block its key for ever: where a ledger decides about the key, it has
        // decided in this very transaction; elsewhere the row's own time decides.
        "on conflict (kind, idempotency_key) where idempotency_key is not null do update set
            id = excluded.id, lane = excluded.lane, request_digest = excluded.request_digest,
            payload = excluded.payload, status = excluded.status, attempts = 0,
            in_doubt = excluded.in_doubt, last_error_code = null, last_error_msg = null,
            locked_by = excluded.locked_by, locked_at = excluded.locked_at, fence = excluded.fence,
            next_run_at = excluded.next_run_at, created_at = excluded.created_at,
            updated_at = excluded.updated_at, expires_at = excluded.expires_at,
            traceparent = excluded.traceparent
         where outbox.status in ('succeeded', 'aborted')
           and (excluded.request_digest is not null or outbox.expires_at <= excluded.created_at)"
    };
}

pub(crate) const ENQUEUE_SQLITE: &str = concat!(
    "insert into outbox (id, lane, kind, idempotency_key, request_digest, payload, status, attempts,
        in_doubt, fence, next_run_at, created_at, updated_at, expires_at, traceparent, locked_by,
        locked_at)
     values (?1, ?2, ?3, ?4, ?5, ?6, iif(?11 is null, 'pending', 'sending'), 0, 0,
        iif(?11 is null, 0, 1), ?7, ?8, ?8, ?9, ?10, ?11, iif(?11 is null, null, ?8)) ",
    enqueue_conflict!()
);

pub(crate) const ENQUEUE_PG: &str = concat!(
    "insert into outbox (id, lane, kind, idempotency_key, request_digest, payload, status, attempts,
        in_doubt, fence, next_run_at, created_at, updated_at, expires_at, traceparent, locked_by,
        locked_at)
     select id, lane, kind, key, digest, payload::jsonb,
            case when held_by is null then 'pending' else 'sending' end, 0, false,
            case when held_by is null then 0 else 1 end, run_at, created,
            created, expires, traceparent, held_by,
            case when held_by is null then null else created end
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                   $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::text[],
                   $11::text[])
         as t (id, lane, kind, key, digest, payload, run_at, created, expires, traceparent,
               held_by) ",
    enqueue_conflict!(),
    " returning id"
);

const SETTLE_SQLITE: &str = "update outbox set status = ?3, attempts = attempts + ?4,
        last_error_code = coalesce(?5, last_error_code),
        last_error_msg = coalesce(?6, last_error_msg),
        next_run_at = coalesce(?7, next_run_at), in_doubt = ?8, locked_by = null, locked_at = null,
        updated_at = ?9, expires_at = ?10
     where id = ?1 and fence = ?2 and status = 'sending' and locked_at <= coalesce(?11, locked_at)";

/// The part of it by which a sign of life keeps the rescuer away.
const UNHEARD_SQLITE: &str = "locked_at <= coalesce(?11, locked_at)";

const SETTLE_PG: &str = "update outbox o set status = t.status, attempts = o.attempts + t.failed,
        last_error_code = coalesce(t.code, o.last_error_code),
        last_error_msg = coalesce(t.message, o.last_error_msg),
        next_run_at = coalesce(t.run_at, o.next_run_at), in_doubt = t.in_doubt,
        locked_by = null, locked_at = null, updated_at = t.now, expires_at = t.expires
      from unnest($1::uuid[], $2::int8[], $3::text[], $4::int[], $5::text[], $6::text[],
                  $7::timestamptz[], $8::bool[], $9::timestamptz[], $10::timestamptz[],
                  $11::timestamptz[])
        as t (id, fence, status, failed, code, message, run_at, in_doubt, now, expires, unheard)
     where o.id = t.id and o.fence = t.fence and o.status = 'sending'
       and o.locked_at <= coalesce(t.unheard, o.locked_at)
     returning o.id";

const RELEASE_SQLITE: &str = "update outbox set status = 'pending', locked_by = null,
        locked_at = null, next_run_at = ?4, updated_at = ?3
     where id = ?1 and fence = ?2 and status = 'sending'";

const RELEASE_PG: &str = "update outbox o set status = 'pending', locked_by = null,
        locked_at = null, next_run_at = t.run_at, updated_at = t.now
      from unnest($1::uuid[], $2::int8[], $3::timestamptz[], $4::timestamptz[])
        as t (id, fence, now, run_at)
     where o.id = t.id and o.fence = t.fence and o.status = 'sending'
     returning o.id";

const REQUEUE_SQLITE: &str = "update outbox set status = 'pending', attempts = 0,
        last_error_code = null, last_error_msg = null, next_run_at = ?2, updated_at = ?2,
        in_doubt = in_doubt and not ?3
     where id = ?1 and status = 'aborted'";

const REQUEUE_PG: &str = "update outbox o set status = 'pending', attempts = 0,
        last_error_code = null, last_error_msg = null, next_run_at = t.now, updated_at = t.now,
        in_doubt = o.in_doubt and not t.without_doubt
      from unnest($1::uuid[], $2::timestamptz[], $3::bool[]) as t (id, now, without_doubt)
     where o.id = t.id and o.status = 'aborted'
     returning o.id";

const RESCHEDULE_SQLITE: &str = "update outbox set next_run_at = ?2
     where id = ?1 and status in ('pending', 'failed')";

const RESCHEDULE_PG: &str = "update outbox o set next_run_at = t.run_at
      from unnest($1::uuid[], $2::timestamptz[]) as t (id, run_at)
     where o.id = t.id and o.status in ('pending', 'failed')
     returning o.id";

const WITHDRAW_SQLITE: &str = "update outbox set status = 'aborted', last_error_code = ?3,
        updated_at = ?2
     where id = ?1 and status in ('pending', 'failed')";

const WITHDRAW_PG: &str = "update outbox o set status = 'aborted', last_error_code = t.code,
        updated_at = t.now
      from unnest($1::uuid[], $2::timestamptz[], $3::text[]) as t (id, now, code)
     where o.id = t.id and o.status in ('pending', 'failed')";

pub(crate) fn enqueue_sqlite(db: &Connection, effect: &NewEffect) -> Result<(), CommitError> {
    let count = db.prepare_cached(ENQUEUE_SQLITE)?.execute(params![
        effect.id.0.as_bytes(),
        effect.lane.as_str(),
        effect.kind,
        effect.key,
        effect.digest,
        effect.payload,
        effect.run_at.as_micros(),
        effect.created_at.as_micros(),
        effect.expires_at.as_micros(),
        effect.traceparent,
        effect.held_by,
    ])?;
    if count == 1 { Ok(()) } else { Err(CommitError::Taken(Key::Effect)) }
}

pub(crate) fn enqueue_pg(rows: Vec<(Owner, &NewEffect)>) -> Step<'_> {
    Step {
        sql: ENQUEUE_PG,
        params: enqueue_params(&rows),
        judge: Box::new(move |found| {
            let asked = rows.iter().map(|(owner, r)| (*owner, r.id.0));
            missing(asked, found, id_of, |_| CommitError::Taken(Key::Effect))
        }),
    }
}

/// Also used to enqueue on a caller's own connection.
pub(crate) fn enqueue_params<'a>(rows: &[(Owner, &'a NewEffect)]) -> crate::step::Params<'a> {
    vec![
        column(rows, |r| r.id.0),
        column(rows, |r| r.lane.as_str()),
        column(rows, |r| r.kind.as_str()),
        column(rows, |r| r.key.as_deref()),
        column(rows, |r| r.digest.as_deref()),
        column(rows, |r| r.payload.as_str()),
        column(rows, |r| PgTime(r.run_at)),
        column(rows, |r| PgTime(r.created_at)),
        column(rows, |r| PgTime(r.expires_at)),
        column(rows, |r| r.traceparent.as_deref()),
        column(rows, |r| r.held_by.as_deref()),
    ]
}

/// The columns that a verdict sets.
struct SettleColumns<'a> {
    status: Status,
    failed: i32,
    reason: Option<&'a Reason>,
    run_at: Option<Timestamp>,
    in_doubt: bool,
}

fn settle_columns(verdict: &Verdict) -> SettleColumns<'_> {
    let status = verdict.status();
    match verdict {
        Verdict::Succeeded => {
            SettleColumns { status, failed: 0, reason: None, run_at: None, in_doubt: false }
        }
        Verdict::Retry { run_at, reason, in_doubt } => SettleColumns {
            status,
            failed: 1,
            reason: Some(reason),
            run_at: Some(*run_at),
            in_doubt: *in_doubt,
        },
        Verdict::Aborted { reason, in_doubt } => SettleColumns {
            status,
            failed: 1,
            reason: Some(reason),
            run_at: None,
            in_doubt: *in_doubt,
        },
    }
}

pub(crate) fn settle_sqlite(db: &Connection, end: &Settle) -> Result<(), CommitError> {
    let set = settle_columns(&end.verdict);
    let sql = mutant::instead(Mutant::FenceNotCompared, SETTLE_SQLITE, "fence = ?2", "true");
    let sql = mutant::instead(Mutant::SignOfLifeIgnored, &sql, UNHEARD_SQLITE, "(true or ?11)");
    let count = db.prepare_cached(&sql)?.execute(params![
        end.lease.id.0.as_bytes(),
        end.lease.fence,
        set.status.as_str(),
        set.failed,
        set.reason.map(|r| r.code.as_str()),
        set.reason.map(|r| r.message.as_str()),
        set.run_at.map(Timestamp::as_micros),
        set.in_doubt,
        end.now.as_micros(),
        end.expires_at.as_micros(),
        end.unheard_since.map(Timestamp::as_micros),
    ])?;
    expect_one(count, end.lease.id)
}

pub(crate) fn settle_pg(rows: Vec<(Owner, &Settle)>) -> Step<'_> {
    Step {
        sql: SETTLE_PG,
        params: vec![
            column(&rows, |r| r.lease.id.0),
            column(&rows, |r| r.lease.fence),
            column(&rows, |r| settle_columns(&r.verdict).status.as_str()),
            column(&rows, |r| settle_columns(&r.verdict).failed),
            column(&rows, |r| settle_columns(&r.verdict).reason.map(|r| r.code.as_str())),
            column(&rows, |r| settle_columns(&r.verdict).reason.map(|r| r.message.as_str())),
            column(&rows, |r| settle_columns(&r.verdict).run_at.map(PgTime)),
            column(&rows, |r| settle_columns(&r.verdict).in_doubt),
            column(&rows, |r| PgTime(r.now)),
            column(&rows, |r| PgTime(r.expires_at)),
            column(&rows, |r| r.unheard_since.map(PgTime)),
        ],
        judge: Box::new(move |found| {
            stale(rows.iter().map(|(owner, r)| (*owner, r.lease.id.0)), found)
        }),
    }
}

pub(crate) fn release_sqlite(db: &Connection, release: &Release) -> Result<(), CommitError> {
    let Release { lease, now, run_at } = release;
    let count = db.prepare_cached(RELEASE_SQLITE)?.execute(params![
        lease.id.0.as_bytes(),
        lease.fence,
        now.as_micros(),
        run_at.as_micros()
    ])?;
    expect_one(count, lease.id)
}

pub(crate) fn release_pg(rows: Vec<(Owner, &Release)>) -> Step<'_> {
    Step {
        sql: RELEASE_PG,
        params: vec![
            column(&rows, |r| r.lease.id.0),
            column(&rows, |r| r.lease.fence),
            column(&rows, |r| PgTime(r.now)),
            column(&rows, |r| PgTime(r.run_at)),
        ],
        judge: Box::new(move |found| {
            stale(rows.iter().map(|(owner, r)| (*owner, r.lease.id.0)), found)
        }),
    }
}

pub(crate) fn requeue_sqlite(db: &Connection, wish: &Requeue) -> Result<(), CommitError> {
    let count = db.prepare_cached(REQUEUE_SQLITE)?.execute(params![
        wish.id.0.as_bytes(),
        wish.now.as_micros(),
        wish.without_doubt
    ])?;
    expect_one(count, wish.id)
}

pub(crate) fn requeue_pg(rows: Vec<(Owner, &Requeue)>) -> Step<'_> {
    Step {
        sql: REQUEUE_PG,
        params: vec![
            column(&rows, |r| r.id.0),
            column(&rows, |r| PgTime(r.now)),
            column(&rows, |r| r.without_doubt),
        ],
        judge: Box::new(move |found| stale(rows.iter().map(|(owner, r)| (*owner, r.id.0)), found)),
    }
}

pub(crate) fn reschedule_sqlite(db: &Connection, wish: &Reschedule) -> Result<(), CommitError> {
    let count = db
        .prepare_cached(RESCHEDULE_SQLITE)?
        .execute(params![wish.id.0.as_bytes(), wish.run_at.as_micros()])?;
    expect_one(count, wish.id)
}

pub(crate) fn reschedule_pg(rows: Vec<(Owner, &Reschedule)>) -> Step<'_> {
    Step {
        sql: RESCHEDULE_PG,
        params: vec![column(&rows, |r| r.id.0), column(&rows, |r| PgTime(r.run_at))],
        judge: Box::new(move |found| stale(rows.iter().map(|(owner, r)| (*owner, r.id.0)), found)),
    }
}

pub(crate) fn withdraw_sqlite(db: &Connection, end: &Withdraw) -> Result<(), CommitError> {
    db.prepare_cached(WITHDRAW_SQLITE)?.execute(params![
        end.id.0.as_bytes(),
        end.now.as_micros(),
        end.code
    ])?;
    Ok(())
}

pub(crate) fn withdraw_pg<'a>(rows: &[(Owner, &'a Withdraw)]) -> Step<'a> {
    Step {
        sql: WITHDRAW_PG,
        params: vec![
            column(rows, |r| r.id.0),
            column(rows, |r| PgTime(r.now)),
            column(rows, |r| r.code),
        ],
        judge: Box::new(|_| Vec::new()),
    }
}

fn expect_one(count: usize, id: EffectId) -> Result<(), CommitError> {
    if count == 1 { Ok(()) } else { Err(CommitError::Stale(id)) }
}

fn stale(
    asked: impl ExactSizeIterator<Item = (Owner, Uuid)>,
    found: &[Row],
) -> Vec<crate::step::Lost> {
    missing(asked, found, id_of, |id| CommitError::Stale(EffectId(*id)))
}

fn id_of(row: &Row) -> Uuid {
    row.get("id")
}
