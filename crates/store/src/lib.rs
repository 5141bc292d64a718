//! What Tashika remembers.
//!
//! One [`Store`] over two databases. [`Store::commit`] is the write verb: a `Changes` in one
//! transaction, or nothing; beside it claim, renew and reads. Called by `engine` only. Guarantees:
//! nothing is acknowledged before it is durable, every write about an effect is fenced, and callers
//! that commit at the same moment share one flush without sharing their failures. It takes no
//! decisions, and it never talks to anybody but its database: the transaction does not leave this
//! crate.

mod alert;
mod attempt;
mod audit;
mod billing;
mod case;
mod cell;
mod claim;
mod console;
mod diagnose;
mod effects;
mod enqueue;
mod error;
mod filter;
mod flow;
mod gate;
mod group;
mod keys;
mod ledger;
mod mail;
mod mail_batch;
mod mail_control;
mod message;
mod message_log;
mod migrate;
mod outbox;
mod payment;
mod postgres;
mod queue;
mod race;
mod refund;
mod render;
mod reservation;
mod row;
mod sandbox;
mod schedule;
mod slot_lock;
mod sqlite;
mod step;
mod table;
mod upkeep;
mod wakeups;
mod webhook;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use tashika_domain::effect::EffectId;
use tashika_domain::ledger::LedgerKey;
use tashika_domain::mail::control::Control;
use tashika_domain::message::keys::SigningKeys;
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::{Changes, NewEffect, Write};
use uuid::Uuid;

pub use alert::AlertFilter;
pub use attempt::AttemptRecord;
pub use audit::{AuditFilter, Seal, SealedLine};
pub use case::CaseFilter;
pub use claim::{Claim, Lapsed};
pub use console::{Counted, LaneCount, LaneDepth, Listed, Newest};
pub use diagnose::{Diagnosis, Pin};
pub use effects::{EffectCount, EffectFilter, EffectRow};
pub use enqueue::enqueue_in;
pub use error::{CommitError, Key, StoreError, Written};
pub use gate::{Gate, Moment, Passing};
pub use mail::{MailCount, MailFilter, MailInHand};
pub use mail_control::{PermitAnswer, PermitWish};
pub use message::{MessageCount, MessageFilter, Order};
pub use migrate::{Applied, KNOWN_VERSION};
pub use payment::{PaymentFilter, TimelineLine};
pub use race::{RaceFilter, RaceRow};
pub use render::RenderFilter;
pub use reservation::ReservationFilter;
pub use sandbox::SandboxRow;
pub use slot_lock::{SLOT_LOCK_TIMEOUT, SlotLockError};
pub use upkeep::WorkerRow;
pub use wakeups::Wakeups;
pub use webhook::{WebhookCount, WebhookFilter};

use row::{Param, Row};
use wakeups::Work;

/// Which of the two databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Reads the kind of database off a URL.
    pub fn of(url: &str) -> Result<Self, StoreError> {
        if url.starts_with("sqlite:") {
            Ok(Self::Sqlite)
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Ok(Self::Postgres)
        } else {
            Err(StoreError::BadUrl(
                "must start with sqlite: or postgres://, e.g. sqlite:tashika.db".into(),
            ))
        }
    }
}

/// The memory of a Tashika process. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    wakeups: Arc<Wakeups>,
    slots: Arc<slot_lock::Slots>,
}

#[derive(Clone)]
enum Backend {
    Sqlite(Arc<sqlite::Sqlite>),
    Postgres(Arc<postgres::Postgres>),
}

impl Store {
    /// Opens a database and brings its schema up to date.
    ///
    /// `connections` is the size of the pool for PostgreSQL.
    pub async fn open(url: &str, connections: usize) -> Result<Self, StoreError> {
        let wakeups = Arc::new(Wakeups::default());
        let backend = match Dialect::of(url)? {
            Dialect::Sqlite => {
                let path = sqlite::path(url)?;
                let writer = migrate::open_sqlite(&path)?;
                migrate::sqlite(&writer)?;
                Backend::Sqlite(Arc::new(sqlite::Sqlite::start(&path, writer)?))
            }
            Dialect::Postgres => {
                let connector = postgres::Connector::new(url)?;
                migrate::postgres(&connector).await?;
                let postgres = postgres::Postgres::start(&connector, connections, &wakeups)?;
                Backend::Postgres(Arc::new(postgres))
            }
        };
        Ok(Self { backend, wakeups, slots: Arc::default() })
    }

    /// Opens a SQLite file for a simulation: no threads, and a gate around every write.
    pub fn open_simulated(path: &Path, gate: Arc<dyn Gate>) -> Result<Self, StoreError> {
        let db = migrate::open_sqlite(path)?;
        // A simulated crash ends the process, not the power: what SQLite has written is there.
        db.pragma_update(None, "synchronous", "off")?;
        migrate::sqlite(&db)?;
        let backend = Backend::Sqlite(Arc::new(sqlite::Sqlite::inline(db, gate)));
        Ok(Self { backend, wakeups: Arc::default(), slots: Arc::default() })
    }

    /// Brings a database's schema up to date; returns what was done.
    pub async fn migrate(url: &str) -> Result<Applied, StoreError> {
        match Dialect::of(url)? {
            Dialect::Sqlite => migrate::sqlite(&migrate::open_sqlite(&sqlite::path(url)?)?),
            Dialect::Postgres => migrate::postgres(&postgres::Connector::new(url)?).await,
        }
    }

    #[must_use]
    pub fn dialect(&self) -> Dialect {
        match self.backend {
            Backend::Sqlite(_) => Dialect::Sqlite,
            Backend::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Where a dispatcher waits for work.
    #[must_use]
    pub fn wakeups(&self) -> Arc<Wakeups> {
        Arc::clone(&self.wakeups)
    }

    /// Writes all of the changes or none, and returns when they are durable.
    ///
    /// Takes them shared, too: whoever may have to try again keeps a copy for nothing.
    pub async fn commit(&self, changes: impl Into<Arc<Changes>>) -> Result<(), CommitError> {
        let changes = changes.into();
        if changes.is_empty() {
            return Ok(());
        }
        if changes.writes().len() > 1
            && let Some(collision) = collision(&changes)
        {
            return Err(collision);
        }
        match &self.backend {
            // The flusher knows what it committed and tells by itself.
            Backend::Postgres(postgres) => postgres.commit(changes).await,
            Backend::Sqlite(sqlite) => {
                let work = Work::of(std::iter::once(&*changes));
                if mutant::on(Mutant::AckBeforeCommit) {
                    let sqlite = Arc::clone(sqlite);
                    tokio::spawn(async move { sqlite.commit(changes).await });
                } else {
                    sqlite.commit(changes).await?;
                }
                work.mark(&self.wakeups);
                Ok(())
            }
        }
    }

    async fn query<T: Send + 'static>(
        &self,
        sql: String,
        params: Vec<Param>,
        parse: impl Fn(&dyn Row) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.query(sql, params, parse).await,
            Backend::Postgres(postgres) => postgres.query(&sql, &params, parse).await,
        }
    }

    async fn execute(&self, sql: String, params: Vec<Param>) -> Result<u64, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                let sql = sqlite::numbered(&sql);
                let count = sqlite.upkeep(move |db| {
                    db.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(&params))
                });
                Ok(count.await? as u64)
            }
            Backend::Postgres(postgres) => postgres.execute(&sql, &params).await,
        }
    }
}

/// Two writes of one kind about one row: the second would not find what it expects. Said here,
/// because one statement over many rows cannot say it.
fn collision(changes: &Changes) -> Option<CommitError> {
    #[derive(PartialEq, Eq, Hash)]
    enum About<'a> {
        Ledger(&'a LedgerKey),
        Key(&'a str, &'a str),
        Effect(EffectId),
        Row(Uuid),
    }
    // Different kinds never collide, and most changes have one write of each.
    let mut kinds = 0_u64;
    let alone = |write: &Write| {
        let kind = 1_u64 << rank(write);
        let first = kinds & kind == 0;
        kinds |= kind;
        first
    };
    if changes.writes().iter().all(alone) {
        return None;
    }
    let effect = |id: EffectId| (About::Effect(id), CommitError::Stale(id));
    let ledger = |key| (About::Ledger(key), CommitError::Taken(Key::Ledger));
    let mut seen = HashSet::new();
    for write in changes.writes() {
        if let Write::Enqueue(NewEffect { id, .. }) = write
            && !seen.insert((rank(write), About::Effect(*id)))
        {
            let twice = format!("effect {id} is enqueued twice");
            return Some(StoreError::Rejected(twice).into());
        }
        let (about, error) = match write {
            Write::LedgerAccept(entry) => ledger(&entry.key),
            Write::LedgerSettle(end) => ledger(&end.key),
            Write::Enqueue(NewEffect { kind, key: Some(key), .. }) => {
                (About::Key(kind, key), CommitError::Taken(Key::Effect))
            }
            Write::Settle(end) => effect(end.lease.id),
            Write::Release(release) => effect(release.lease.id),
            Write::Requeue(wish) => effect(wish.id),
            Write::Reschedule(wish) => effect(wish.id),
            other => match row_of(other) {
                Some((table, id)) => (About::Row(id), CommitError::Outdated { table, id }),
                None => continue,
            },
        };
        if !seen.insert((rank(write), about)) {
            return Some(error);
        }
    }
    None
}

/// The row that a write is about, where it is written whole.
pub(crate) fn row_of(write: &Write) -> Option<(&'static str, Uuid)> {
    Some(match write {
        Write::PaymentInsert(row) | Write::PaymentUpdate(row) => ("payments", row.id),
        Write::RefundInsert(row) | Write::RefundUpdate(row) => ("refunds", row.id),
        Write::ReservationUpdate(row) | Write::ReservationInsert(row) => ("reservations", row.id),
        Write::WebhookInsert(row) | Write::WebhookUpdate(row) => ("webhook_events", row.id),
        Write::BillingInsert(row) | Write::BillingUpdate(row) => ("billings", row.id),
        Write::RenderInsert(row) | Write::RenderUpdate(row) => ("renders", row.id),
        Write::MessageInsert(row) | Write::MessageUpdate(row) => ("messages", row.id),
        Write::LetGo(end) => ("messages", end.id.0),
        Write::QueueInsert(row) | Write::QueueUpdate(row) => ("queues", row.id),
        Write::FlowInsert(row) | Write::FlowUpdate(row) => ("flow_controls", row.id),
        Write::GroupInsert(row) | Write::GroupUpdate(row) => ("url_groups", row.id),
        Write::ScheduleInsert(row) | Write::ScheduleUpdate(row) => ("schedules", row.id),
        Write::KeysInsert(_) | Write::KeysUpdate(_) => ("signing_keys", SigningKeys::ID),
        Write::CloseCase(end) => ("cases", end.id),
        Write::AlertInsert(row) | Write::AlertUpdate(row) => ("alerts", row.id),
        Write::MailInsert(row) | Write::MailUpdate(row) => ("mail_deliveries", row.id),
        Write::MailBatchInsert(row) | Write::MailBatchUpdate(row) => ("mail_batches", row.id),
        Write::MailControlUpdate(_) => ("mail_control", Control::ID),
        _ => return None,
    })
}

/// The order in which the kinds of writes are performed: the ledger first, and rows that expect a version
/// before what is written with them, so that whoever comes second hears that, and not of an id that is taken.
pub(crate) fn rank(write: &Write) -> u8 {
    match write {
        Write::LedgerAccept(_) => 0,
        Write::LedgerSettle(_) => 1,
        Write::LedgerReopen(_) => 2,
        Write::LedgerSeen(_) => 3,
        Write::PaymentInsert(_) => 4,
        Write::PaymentUpdate(_) => 5,
        Write::RefundInsert(_) => 6,
        Write::RefundUpdate(_) => 7,
        Write::ReservationUpdate(_) => 8,
        Write::ReservationInsert(_) => 9,
        Write::WebhookInsert(_) => 10,
        Write::WebhookUpdate(_) => 11,
        Write::BillingInsert(_) => 12,
        Write::BillingUpdate(_) => 13,
        Write::RenderInsert(_) => 14,
        Write::RenderUpdate(_) => 15,
        Write::LetGo(_) => 16,
        Write::MessageUpdate(_) => 17,
        Write::MessageInsert(_) => 18,
        Write::QueueInsert(_) => 19,
        Write::QueueUpdate(_) => 20,
        Write::FlowInsert(_) => 21,
        Write::FlowUpdate(_) => 22,
        Write::GroupInsert(_) => 23,
        Write::GroupUpdate(_) => 24,
        Write::ScheduleInsert(_) => 25,
        Write::ScheduleUpdate(_) => 26,
        Write::KeysInsert(_) => 27,
        Write::KeysUpdate(_) => 28,
        Write::MailBatchUpdate(_) => 29,
        Write::MailBatchInsert(_) => 30,
        Write::MailUpdate(_) => 31,
        Write::MailInsert(_) => 32,
        Write::MailControlUpdate(_) => 33,
        Write::AlertUpdate(_) => 34,
        Write::AlertInsert(_) => 35,
        Write::Enqueue(_) => 36,
        Write::Settle(_) => 37,
        Write::Release(_) => 38,
        Write::Requeue(_) => 39,
        Write::Reschedule(_) => 40,
        Write::Withdraw(_) => 41,
        Write::Attempt(_) => 42,
        Write::CloseCase(_) => 43,
        Write::OpenCase(_) => 44,
        Write::ResolveCase(_) => 45,
        Write::PaymentLine(_) => 46,
        Write::MessageLog(_) => 47,
        Write::FireAlert(_) => 48,
        Write::ResolveAlert(_) => 49,
        Write::Race(_) => 50,
        Write::Audit(_) => 51,
    }
}
