//! Bringing a database to the schema this binary knows.
//!
//! Numbered SQL files, one list, one table that remembers which have run, one lock so that several
//! processes may start at once. A database that is newer than the binary is refused: an old binary
//! must not write into a schema that it does not know.

use rusqlite::Connection;
use tashika_domain::mutant::{self, Mutant};

use crate::error::StoreError;
use crate::postgres::Connector;
use crate::sqlite;

struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "foundation",
        sqlite: include_str!("../migrations/0001_foundation.sqlite.sql"),
        postgres: include_str!("../migrations/0001_foundation.pg.sql"),
    },
    Migration {
        version: 2,
        name: "payments",
        sqlite: include_str!("../migrations/0002_payments.sqlite.sql"),
        postgres: include_str!("../migrations/0002_payments.pg.sql"),
    },
    Migration {
        version: 3,
        name: "webhooks",
        sqlite: include_str!("../migrations/0003_webhooks.sqlite.sql"),
        postgres: include_str!("../migrations/0003_webhooks.pg.sql"),
    },
    Migration {
        version: 4,
        name: "queue",
        sqlite: include_str!("../migrations/0004_queue.sqlite.sql"),
        postgres: include_str!("../migrations/0004_queue.pg.sql"),
    },
    Migration {
        version: 5,
        name: "confirmations",
        sqlite: include_str!("../migrations/0005_confirmations.sqlite.sql"),
        postgres: include_str!("../migrations/0005_confirmations.pg.sql"),
    },
    Migration {
        version: 6,
        name: "mail",
        sqlite: include_str!("../migrations/0006_mail.sqlite.sql"),
        postgres: include_str!("../migrations/0006_mail.pg.sql"),
    },
    Migration {
        version: 7,
        name: "reservations",
        sqlite: include_str!("../migrations/0007_reservations.sqlite.sql"),
        postgres: include_str!("../migrations/0007_reservations.pg.sql"),
    },
    Migration {
        version: 8,
        name: "renders",
        sqlite: include_str!("../migrations/0008_renders.sqlite.sql"),
        postgres: include_str!("../migrations/0008_renders.pg.sql"),
    },
    Migration {
        version: 9,
        name: "watch",
        sqlite: include_str!("../migrations/0009_watch.sqlite.sql"),
        postgres: include_str!("../migrations/0009_watch.pg.sql"),
    },
    Migration {
        version: 10,
        name: "console",
        sqlite: include_str!("../migrations/0010_console.sqlite.sql"),
        postgres: include_str!("../migrations/0010_console.pg.sql"),
    },
    Migration {
        version: 11,
        name: "lists",
        sqlite: include_str!("../migrations/0011_lists.sqlite.sql"),
        postgres: include_str!("../migrations/0011_lists.pg.sql"),
    },
    Migration {
        version: 12,
        name: "spelled_checks",
        sqlite: include_str!("../migrations/0012_spelled_checks.sqlite.sql"),
        postgres: include_str!("../migrations/0012_spelled_checks.pg.sql"),
    },
    Migration {
        version: 13,
        name: "in_hand",
        sqlite: include_str!("../migrations/0013_in_hand.sqlite.sql"),
        postgres: include_str!("../migrations/0013_in_hand.pg.sql"),
    },
    Migration {
        version: 14,
        name: "last_attempt",
        sqlite: include_str!("../migrations/0014_last_attempt.sqlite.sql"),
        postgres: include_str!("../migrations/0014_last_attempt.pg.sql"),
    },
];

/// The newest schema version this binary knows.
pub const KNOWN_VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// The names of the migrations that a run performed.
pub type Applied = Vec<&'static str>;

fn check(found: i64) -> Result<(), StoreError> {
    if found > KNOWN_VERSION {
        return Err(StoreError::TooNew { found, known: KNOWN_VERSION });
    }
    Ok(())
}

fn missing(found: i64) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |migration| migration.version > found)
}

/// What the schema itself keeps, whatever the code believes.
const SLOT_UNIQUE: &str = "unique index reservations_slot_unique";
const EVENT_UNIQUE: &str = "unique index webhook_events_event";
const REFUNDS_WITHIN: &str = "refunded_amount + refunding_amount <= captured_amount";

const VERSION_SQL: &str = "select coalesce(max(version), 0) from tashika_migrations";

pub(crate) fn sqlite(db: &Connection) -> Result<Applied, StoreError> {
    // The write lock of the file is the lock of the migration.
    db.execute_batch("begin immediate")?;
    let result = sqlite_locked(db);
    db.execute_batch(if result.is_ok() { "commit" } else { "rollback" })?;
    result
}

fn sqlite_locked(db: &Connection) -> Result<Applied, StoreError> {
    db.execute_batch(
        "create table if not exists tashika_migrations (
            version integer not null primary key, name text not null,
            applied_at text not null default current_timestamp) strict",
    )?;
    let found: i64 = db.query_row(VERSION_SQL, [], |row| row.get(0))?;
    check(found)?;
    let mut applied = Applied::new();
    for migration in missing(found) {
        let sql = mutant::instead(
            Mutant::SlotNotUnique,
            migration.sqlite,
            SLOT_UNIQUE,
            "index reservations_slot_unique",
        );
        let sql = mutant::instead(
            Mutant::EventIdNotCompared,
            &sql,
            EVENT_UNIQUE,
            "index webhook_events_event",
        );
        let sql = mutant::instead(Mutant::RefundsUnconstrained, &sql, REFUNDS_WITHIN, "true");
        db.execute_batch(&sql)?;
        db.execute(
            "insert into tashika_migrations (version, name) values (?1, ?2)",
            (migration.version, migration.name),
        )?;
        applied.push(migration.name);
    }
    Ok(applied)
}

/// Any number, as long as nobody else in the database uses it for an advisory lock.
const MIGRATION_LOCK: i64 = 0x0074_6173_6869_6b61; // "tashika"

pub(crate) async fn postgres(connector: &Connector) -> Result<Applied, StoreError> {
    let mut db = connector.connect_for_migration().await?;
    let work = db.transaction().await?;
    // Released with the transaction, also if this process dies.
    work.execute("select pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    work.batch_execute(
        "create table if not exists tashika_migrations (
            version bigint not null primary key, name text not null,
            applied_at timestamptz not null default now())",
    )
    .await?;
    let found: i64 = work.query_one(VERSION_SQL, &[]).await?.get(0);
    check(found)?;
    let mut applied = Applied::new();
    for migration in missing(found) {
        work.batch_execute(migration.postgres).await?;
        work.execute(
            "insert into tashika_migrations (version, name) values ($1, $2)",
            &[&migration.version, &migration.name],
        )
        .await?;
        applied.push(migration.name);
    }
    work.commit().await?;
    Ok(applied)
}

/// Opens a SQLite file for writing, with an understandable error.
pub(crate) fn open_sqlite(path: &std::path::Path) -> Result<Connection, StoreError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        && !folder.is_dir()
    {
        return Err(StoreError::BadUrl(format!("the folder {} does not exist", folder.display())));
    }
    sqlite::connect(path, true)
}
