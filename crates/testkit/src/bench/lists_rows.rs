//! Very many rows for every list, written by the database itself.
//!
//! Row `n` of a table has an id that begins with its time, as Tashika's own have, so that a place deep
//! in a list can be computed. Values repeat as they do in life: a handful of kinds and statuses, some
//! thousands of offices, and names of which each is there once.

use tashika_domain::Timestamp;
use uuid::Uuid;

use super::{World, limit_postgres};
use crate::postgres::Database;

/// Mails that belong to one batch; the newest batches have all of them.
const PER_BATCH: i64 = 10_000;

/// How many rows each list has, and when the first of them was made, in milliseconds: a second later
/// comes the next.
#[derive(Clone, Copy)]
pub(crate) struct Since {
    pub rows: i64,
    first: i64,
}

impl Since {
    /// The last of `rows` rows is made now.
    pub fn before(now: Timestamp, rows: i64) -> Self {
        Self { rows, first: now.as_millis() - rows * 1000 }
    }

    /// The id of the `n`th row.
    pub fn id(self, n: i64) -> Uuid {
        let millis = u128::try_from(self.first + n * 1000).unwrap_or_default();
        let number = u128::try_from(n).unwrap_or_default();
        Uuid::from_u128(millis << 80 | 0x7000_a000 << 48 | number)
    }

    /// The time of the `n`th row.
    pub fn at(self, n: i64) -> Timestamp {
        Timestamp::from_micros((self.first + n * 1000) * 1000)
    }
}

/// A table, its columns, and an expression over `n` for each.
///
/// `@id`, `@at` are the row's id and time, `@id(x)` the id of the row `x`, `@last` an id next to the row's
/// own; `@no` is false, `@empty` no bytes, `@day` the day of a slot.
type Filled = (&'static str, &'static [(&'static str, &'static str)]);

const TABLES: [Filled; 13] = [
    (
        "payments",
        &[
            ("id", "@id"),
            ("booking_id", "'b-' || n"),
            ("user_id", "'u-' || n % 1000"),
            ("amount", "5000"),
            ("currency", "'JPY'"),
            ("payment_method", "'sandbox_ok'"),
            ("capture", "'manual'"),
            ("idempotency_key", "'k-' || n"),
            ("request_digest", "'d'"),
            ("gateway", "'sandbox'"),
            ("created_at", "@at"),
            ("version", "1"),
            (
                "status",
                "case when n % 1000 = 999 then 'PENDING' when n % 10 = 0 then 'FAILED'
                 when n % 10 = 1 then 'AUTHORIZED' else 'CAPTURED' end",
            ),
            ("captured_amount", "case when n % 1000 = 999 or n % 10 < 2 then 0 else 5000 end"),
            ("refunded_amount", "0"),
            ("refunding_amount", "0"),
            ("operations_in_vain", "0"),
            ("pending_verification", "n % 1000 = 999"),
            ("verification_failed", "@no"),
            ("verification_attempts", "0"),
            ("operation_given_up", "@no"),
            ("operation_fenced", "@no"),
            ("updated_at", "@at"),
        ],
    ),
    (
        "cases",
        &[
            ("id", "@id"),
            (
                "kind",
                "case when n = 1 then 'order_unanswered' when n % 3 = 0 then 'payment_unknown'
                 else 'dead_letter' end",
            ),
            ("status", "case when n % 20 = 0 then 'open' else 'resolved' end"),
            ("subject_type", "case when n % 3 = 0 then 'payment' else 'message' end"),
            ("subject_id", "'s-' || n"),
            ("summary", "'somebody has to look'"),
            ("actions", "'[\"verify\"]'"),
            ("details", "'{}'"),
            ("opened_at", "@at"),
            ("resolved_at", "case when n % 20 <> 0 then @at end"),
            ("resolution", "case when n % 20 <> 0 then 'charged' end"),
        ],
    ),
    (
        "webhook_events",
        &[
            ("id", "@id"),
            (
                "source",
                "case when n = 1 then 'slack' when n % 3 = 0 then 'github' else 'stripe' end",
            ),
            ("event_id", "'evt_' || n"),
            ("event_type", "'type.' || n % 20"),
            ("payload", "'{}'"),
            ("body", "@empty"),
            ("created_at", "@at"),
            ("version", "1"),
            ("office_id", "'office-' || n % 5000"),
            ("status", "case when n % 50 = 0 then 'failed' else 'success' end"),
            ("processed_at", "@at"),
        ],
    ),
    (
        // Twice as many, of which every second is a dead letter: those are a list of their own.
        "messages",
        &[
            ("id", "@id"),
            ("url", "'https://example.com/' || n % 100"),
            ("host", "'example.com'"),
            ("path", "'/' || n % 100"),
            ("asked", "'{\"retries\":3}'"),
            ("body", "@empty"),
            ("queue_name", "'q-' || n % 10"),
            ("caller_ip", "'127.0.0.1'"),
            ("not_before", "@at"),
            ("created_at", "@at"),
            ("version", "1"),
            ("state", "case when n % 2 = 0 then 'failed' else 'delivered' end"),
            ("due_at", "@at"),
            ("dlq_id", "case when n % 2 = 0 then 'dlq-' || n end"),
            ("ended_at", "@at"),
            ("last_attempt_id", "@last"),
            ("last_started_at", "@at"),
            ("last_retried", "1"),
        ],
    ),
    (
        "message_log",
        &[
            ("id", "@id"),
            ("message_id", "@id"),
            ("at", "@at"),
            ("what", "'error'"),
            ("started_at", "@at"),
            ("retried", "0"),
        ],
    ),
    (
        "outbox",
        &[
            ("id", "@id"),
            ("lane", "case when n % 3 = 0 then 'orders' else 'events' end"),
            ("kind", "case when n % 3 = 0 then 'order' else 'event' end"),
            ("idempotency_key", "'k-' || n"),
            ("payload", "'{}'"),
            ("status", "case when n % 100 = 0 then 'aborted' else 'succeeded' end"),
            ("attempts", "1"),
            ("in_doubt", "@no"),
            ("last_error_code", "case when n % 100 = 0 then 'BROKER_DOWN' end"),
            ("fence", "1"),
            ("next_run_at", "@at"),
            ("created_at", "@at"),
            ("updated_at", "@at"),
            ("expires_at", "@at"),
        ],
    ),
    (
        "mail_batches",
        &[
            ("id", "@id"),
            ("template", "'reservation-expired-refunded'"),
            ("created_at", "@at"),
            ("version", "1"),
            ("status", "'accepted'"),
            ("total", "10000"),
            ("work", "'{\"do\":\"nothing\"}'"),
            ("run", "1"),
            ("updated_at", "@at"),
        ],
    ),
    (
        "mail_deliveries",
        &[
            ("id", "@id"),
            ("batch_id", "@id(@batch)"),
            ("recipient", "'u' || n % 100000 || '@example.com'"),
            ("recipient_key", "'u' || n % 100000 || '@example.com'"),
            ("template", "'reservation-expired-refunded'"),
            ("locale", "'ja'"),
            ("data", "'{}'"),
            ("created_at", "@at"),
            ("version", "1"),
            (
                "status",
                "case when n % 100 = 0 then 'failed' when n % 10 = 1 then 'queued' else 'sent' end",
            ),
            ("attempts", "1"),
            ("possibly_duplicate", "@no"),
            ("sent_at", "case when n % 100 <> 0 and n % 10 <> 1 then @at end"),
            ("ended_at", "case when n % 10 <> 1 then @at end"),
            ("history", "'[]'"),
        ],
    ),
    (
        "reservations",
        &[
            ("id", "@id"),
            ("user_id", "'u-' || n % 1000"),
            ("user_email", "'somebody@example.com'"),
            ("locale", "'ja'"),
            ("video_id", "n"),
            ("projection_date", "@day"),
            ("slot_number", "n % 20 + 1"),
            ("amount", "1500"),
            ("currency", "'JPY'"),
            ("idempotency_key", "'k-' || n"),
            ("request_digest", "'d'"),
            ("hold_expires_at", "@at"),
            ("created_at", "@at"),
            ("version", "1"),
            (
                "status",
                "case when n % 100 = 0 then 'cancelled' when n % 10 = 1 then 'expired' else 'confirmed' end",
            ),
            ("confirmed_at", "case when n % 10 <> 1 then @at end"),
            ("expired_at", "case when n % 10 = 1 then @at end"),
            ("cancelled_at", "case when n % 100 = 0 then @at end"),
            ("updated_at", "@at"),
        ],
    ),
    (
        "renders",
        &[
            ("id", "@id"),
            ("reservation_id", "@id"),
            ("video_id", "n"),
            ("provider", "'sandbox'"),
            ("created_at", "@at"),
            ("version", "1"),
            ("status", "case when n % 100 = 0 then 'failed' else 'done' end"),
            ("attempts", "1"),
            ("allowed", "3"),
            ("step", "1"),
            ("updated_at", "@at"),
        ],
    ),
    (
        "alerts",
        &[
            ("id", "@id"),
            (
                "rule",
                "case when n = 1 then 'store_slow' when n % 3 = 0 then 'manual_case' else 'outbox_pending' end",
            ),
            ("subject", "'s-' || n"),
            (
                "severity",
                "case when n = 1 then 'high' when n % 3 = 0 then 'critical' else 'warning' end",
            ),
            ("state", "case when n % 1000 = 0 then 'firing' else 'resolved' end"),
            ("message", "'look'"),
            ("count", "1"),
            ("fired_at", "@at"),
            ("resolved_at", "case when n % 1000 <> 0 then @at end"),
            ("labels", "'{}'"),
            ("version", "1"),
            ("seen_at", "@at"),
            ("announced", "case when n % 1000 = 0 then 'firing' else 'resolved' end"),
        ],
    ),
    (
        "audit_logs",
        &[
            ("id", "@id"),
            ("actor_id", "'somebody'"),
            ("actor_role", "'operator'"),
            ("action", "case when n = 1 then 'rare' else 'action.' || n % 30 end"),
            (
                "target_type",
                "case when n = 1 then 'rare' when n % 3 = 0 then 'payment' else 'message' end",
            ),
            ("target_id", "'t-' || n"),
            ("office_id", "case when n % 10 = 0 then 'office-' || n % 5000 end"),
            ("details", "'{}'"),
            ("created_at", "@at"),
        ],
    ),
    (
        "race_conditions",
        &[
            ("id", "@id"),
            (
                "scenario",
                "case when n = 1 then 'DUPLICATE_CANCEL' when n % 3 = 0 then 'SLOT_CONFLICT' else 'EXPIRED_AFTER_PAYMENT' end",
            ),
            ("subject_type", "'reservation'"),
            ("subject_id", "'s-' || n"),
            (
                "resolution",
                "case when n = 1 then 'VOIDED' when n % 3 = 0 then 'RETRY' else 'REFUNDED' end",
            ),
            ("details", "'{}'"),
            ("detected_at", "@at"),
        ],
    ),
];

const BILLINGS: Filled = (
    "billings",
    &[
        ("id", "@id"),
        ("office_id", "'office-' || n"),
        ("stripe_customer_id", "'cus_' || n"),
        ("created_at", "@at"),
        ("version", "1"),
        ("status", "'active'"),
        ("updated_at", "@at"),
    ],
);

/// Fills every table.
pub(crate) async fn fill(world: &World, since: Since) -> anyhow::Result<()> {
    drop(world.store().await?);
    for table in TABLES.iter().chain([&BILLINGS]) {
        let sql = insert(world.database, since, table);
        match world.database {
            Database::Sqlite => {
                let path = world.url.trim_start_matches("sqlite:").to_owned();
                tokio::task::spawn_blocking(move || run_sqlite(&path, &sql)).await??;
            }
            Database::Postgres => {
                limit_postgres::connect(&world.url).await?.batch_execute(&sql).await?;
            }
        }
    }
    world.tidy().await
}

fn run_sqlite(path: &str, sql: &str) -> anyhow::Result<()> {
    let db = rusqlite::Connection::open(path)?;
    db.pragma_update(None, "synchronous", "off")?;
    db.pragma_update(None, "cache_size", -262_144)?;
    db.execute_batch(sql)?;
    Ok(())
}

fn insert(database: Database, since: Since, (table, columns): &Filled) -> String {
    let rows = if *table == "messages" { 2 * since.rows } else { since.rows };
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let values: Vec<String> =
        columns.iter().map(|(_, value)| expression(database, since, value)).collect();
    let (names, values) = (names.join(", "), values.join(", "));
    match database {
        Database::Sqlite => format!(
            "insert into {table} ({names})
             with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {rows})
             select {values} from numbers"
        ),
        Database::Postgres => format!(
            "insert into {table} ({names}) select {values} from generate_series(1::bigint, {rows}) n"
        ),
    }
}

fn expression(database: Database, since: Since, value: &str) -> String {
    let batch = format!("({} - (n - 1) / {PER_BATCH})", since.rows);
    let value = value.replace("@batch", &batch);
    let other = value.strip_prefix("@id(").and_then(|rest| rest.strip_suffix(')'));
    let own = id(database, since, other.unwrap_or("n"));
    let value = match other {
        Some(_) => own,
        None => value.replace("@last", &own.replace("a000", "b000")).replace("@id", &own),
    };
    let base = since.first;
    let (at, no, empty, day) = match database {
        Database::Sqlite => (
            format!("(({base} + n * 1000) * 1000)"),
            "0",
            "x''",
            "date('2030-01-01', '+' || (n / 20) || ' days')",
        ),
        Database::Postgres => (
            format!("to_timestamp({base} / 1000.0 + n)"),
            "false",
            "''::bytea",
            "to_char(date '2030-01-01' + (n / 20)::int, 'YYYY-MM-DD')",
        ),
    };
    value.replace("@at", &at).replace("@no", no).replace("@empty", empty).replace("@day", day)
}

/// The id of a row, as [`Since::id`] computes it.
fn id(database: Database, since: Since, row: &str) -> String {
    let base = since.first;
    match database {
        Database::Sqlite => {
            format!("unhex(printf('%012x7000a000%012x', {base} + {row} * 1000, {row}))")
        }
        Database::Postgres => format!(
            "(lpad(to_hex({base} + {row} * 1000), 12, '0') || '7000a000' || lpad(to_hex({row}), 12, '0'))::uuid"
        ),
    }
}
