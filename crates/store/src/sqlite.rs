//! SQLite: one writer that commits in groups, a few readers.
//!
//! All writes go through one connection on a thread of its own. It takes whatever is waiting, runs
//! it in one transaction, flushes once, and only then answers everybody. The commit under way is the
//! only linger: when nobody else is writing, a write is flushed at once.
//!
//! Somebody who fails must not take the others along. Mostly there is nothing to undo, because the
//! first write was the one that lost. If there is, the transaction is rolled back and run again with a
//! savepoint for each caller: a savepoint keeps a copy of every page that is written, too much to
//! pay when all goes well.
//!
//! A simulated store has no threads: writes and reads run where they are called, so that a run is a
//! function of its seed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::{Changes, Timestamp, Write};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::error::{CommitError, StoreError, Written};
use crate::gate::{Gate, Moment};
use crate::row::{Param, Row};
use crate::{alert, attempt, case, ledger, message, outbox, payment, race, table};

/// Jobs per transaction: enough for one flush to serve everybody who waits, few enough to keep the
/// first of them from waiting for more than some 20 ms.
const GROUP_MAX: usize = 2048;
/// Jobs waiting for the writer. More means that the disk cannot keep up: better to say so.
const QUEUE_MAX: usize = 16_384;
/// From this many callers on, they are told by the runtime instead of the writer.
const TELL_ELSEWHERE: usize = 16;
const READERS: usize = 2;
const STATEMENT_CACHE: usize = 128;

type Reading = Box<dyn FnOnce(&Connection) + Send>;

pub(crate) struct Sqlite {
    mode: Mode,
}

enum Mode {
    Threads { writer: mpsc::Sender<Box<dyn Job>>, readers: mpsc::Sender<Reading> },
    Inline { connection: Arc<Mutex<Connection>>, gate: Arc<dyn Gate> },
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                rusqlite::ErrorCode::ConstraintViolation
                | rusqlite::ErrorCode::TypeMismatch
                | rusqlite::ErrorCode::ApiMisuse
                | rusqlite::ErrorCode::Unknown,
            ) => Self::Rejected(error.to_string()),
            _ => Self::unavailable(error),
        }
    }
}

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        Self::refused(error.into())
    }
}

/// Opens a connection with the settings every connection has.
pub(crate) fn connect(path: &Path, write: bool) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    flags |= if write {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    } else {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(Duration::from_secs(5))?;
    db.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    db.pragma_update(None, "cache_size", -16_384)?;
    db.pragma_update(None, "temp_store", "memory")?;
    if write {
        switch_to_wal(&db)?;
        // A commit is acknowledged: it must survive the loss of power, not only of the process.
        db.pragma_update(None, "synchronous", "full")?;
        // Small checkpoints on the writer itself had the best tail of all that was measured.
        db.pragma_update(None, "wal_autocheckpoint", 1000)?;
        // Otherwise the plan depends on the numbers given (a `limit` above all), and a claim is compiled again
        // each time it runs, which takes longer than running it.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    }
    Ok(db)
}

/// Another process may be making the same file at this moment, and for this one lock SQLite does
/// not wait by itself.
fn switch_to_wal(db: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match db.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if tries < 500
                    && error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) =>
            {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

impl Sqlite {
    /// Starts the writer and the readers of a migrated database.
    pub fn start(path: &Path, writer: Connection) -> Result<Self, StoreError> {
        let (writer_jobs, queue) = mpsc::channel(QUEUE_MAX);
        let runtime = Handle::current();
        spawn("sqlite-writer", move || run_writer(&writer, queue, &runtime))?;
        let (readings, queue) = mpsc::channel::<Reading>(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..READERS {
            let reader = connect(path, false)?;
            let queue = Arc::clone(&queue);
            spawn("sqlite-reader", move || run_reader(&reader, &queue))?;
        }
        Ok(Self { mode: Mode::Threads { writer: writer_jobs, readers: readings } })
    }

    /// A store without threads, whose commits pass through a gate.
    pub fn inline(connection: Connection, gate: Arc<dyn Gate>) -> Self {
        Self { mode: Mode::Inline { connection: Arc::new(Mutex::new(connection)), gate } }
    }

    pub async fn commit(&self, changes: Arc<Changes>) -> Result<(), CommitError> {
        let (tell, told) = oneshot::channel();
        // Kept by the caller until the end: taking it apart is not the writer's work.
        let kept = Arc::clone(&changes);
        let job = Waiting::boxed(tell, move |db| apply_all(db, &changes));
        if let Mode::Inline { connection, gate } = &self.mode {
            return commit_inline(connection, &**gate, job, told, &kept).await;
        }
        self.submit(job, Moment::BeforeCommit, Moment::AfterCommit).await?;
        let answer = told.await.map_err(|_| StoreError::unknown("the writer has stopped"))?;
        drop(kept);
        answer
    }

    /// What the time is for the database, given that of the process. On SQLite both are of one machine;
    /// a simulated store may have a clock of its own, as PostgreSQL has.
    pub fn clock(&self) -> impl Fn(Timestamp) -> Timestamp + Send + 'static {
        let gate = match &self.mode {
            Mode::Inline { gate, .. } => Some(Arc::clone(gate)),
            Mode::Threads { .. } => None,
        };
        move |here| gate.as_ref().and_then(|gate| gate.time()).unwrap_or(here)
    }

    /// A write of the machinery itself, in the same transaction as everything else that waits.
    pub async fn upkeep<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let job = Waiting::boxed(tell, move |db| {
            let result = work(db).map_err(StoreError::from);
            let sound = result.is_ok();
            Ran { result, sound }
        });
        self.submit(job, Moment::BeforeUpkeep, Moment::AfterUpkeep).await?;
        told.await.map_err(|_| StoreError::unknown("the writer has stopped"))?
    }

    async fn submit(
        &self,
        job: Box<dyn Job>,
        before: Moment,
        after: Moment,
    ) -> Result<(), StoreError> {
        match &self.mode {
            Mode::Threads { writer, .. } => writer.try_send(job).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => {
                    StoreError::unavailable("too many writes are waiting for the disk")
                }
                mpsc::error::TrySendError::Closed(_) => {
                    StoreError::unavailable("the writer has stopped")
                }
            }),
            Mode::Inline { connection, gate } => {
                gate.pass(before).await?;
                run_inline(connection, job);
                gate.pass(after).await
            }
        }
    }

    pub async fn query<T: Send + 'static>(
        &self,
        sql: String,
        params: Vec<Param>,
        parse: impl Fn(&dyn Row) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let read = move |db: &Connection| read_rows(db, &numbered(&sql), &params, parse);
        match &self.mode {
            Mode::Inline { connection, .. } => {
                read(&connection.lock().unwrap_or_else(PoisonError::into_inner))
            }
            Mode::Threads { readers, .. } => {
                let (tell, told) = oneshot::channel();
                let reading: Reading = Box::new(move |db| drop(tell.send(read(db))));
                readers
                    .send(reading)
                    .await
                    .map_err(|_| StoreError::unavailable("the readers have stopped"))?;
                told.await.map_err(|_| StoreError::unavailable("the readers have stopped"))?
            }
        }
    }
}

/// A commit of a simulated store: the gate hears how it ended.
async fn commit_inline(
    connection: &Mutex<Connection>,
    gate: &dyn Gate,
    job: Box<dyn Job>,
    mut told: oneshot::Receiver<Result<(), CommitError>>,
    changes: &Changes,
) -> Result<(), CommitError> {
    gate.pass(Moment::BeforeCommit).await?;
    run_inline(connection, job);
    let answer = told.try_recv().map_err(|_| StoreError::unknown("the writer has stopped"))?;
    gate.ended(changes, answer.as_ref().copied());
    gate.pass(Moment::AfterCommit).await?;
    answer
}

fn run_inline(connection: &Mutex<Connection>, job: Box<dyn Job>) {
    let db = connection.lock().unwrap_or_else(PoisonError::into_inner);
    run_group(&db, vec![job]).tell();
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
        .map_err(StoreError::unavailable)
}

fn run_writer(db: &Connection, mut queue: mpsc::Receiver<Box<dyn Job>>, runtime: &Handle) {
    let mut jobs = Vec::new();
    while queue.blocking_recv_many(&mut jobs, GROUP_MAX) > 0 {
        let group = run_group(db, std::mem::take(&mut jobs));
        if group.jobs.len() < TELL_ELSEWHERE {
            group.tell();
        } else {
            // Waking hundreds of callers takes as long as writing for some of them: the writer goes
            // on writing meanwhile.
            runtime.spawn(async move { group.tell() });
        }
    }
    // The last one out leaves a clean file: everything in the database, nothing in the log.
    if let Err(error) = db.pragma_update(None, "wal_checkpoint", "truncate") {
        tracing::debug!(%error, "the last checkpoint was left to the next start");
    }
}

fn run_reader(db: &Connection, queue: &Mutex<mpsc::Receiver<Reading>>) {
    loop {
        let reading = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        match reading {
            Some(reading) => reading(db),
            None => return,
        }
    }
}

/// A write that waits for its turn. It may be run twice; the last time counts.
trait Job: Send {
    /// Runs in the writer's transaction. False if it failed and may have left something behind.
    fn run(&mut self, db: &Connection) -> bool;
    /// It could not be undone alone, or not be kept.
    fn spoil(&mut self, error: StoreError);
    /// Says how it went, once the transaction has ended.
    fn tell(self: Box<Self>, flushed: Result<(), &StoreError>);
}

/// How one run of a job went.
struct Ran<T, E> {
    result: Result<T, E>,
    /// It succeeded, or has written nothing.
    sound: bool,
}

struct Waiting<T, E, W> {
    work: W,
    result: Option<Result<T, E>>,
    tell: oneshot::Sender<Result<T, E>>,
}

impl<T, E, W> Waiting<T, E, W>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
    W: Fn(&Connection) -> Ran<T, E> + Send + 'static,
{
    fn boxed(tell: oneshot::Sender<Result<T, E>>, work: W) -> Box<dyn Job> {
        Box::new(Self { work, result: None, tell })
    }
}

impl<T, E, W> Job for Waiting<T, E, W>
where
    T: Send,
    E: From<StoreError> + Send,
    W: Fn(&Connection) -> Ran<T, E> + Send,
{
    fn run(&mut self, db: &Connection) -> bool {
        let ran = (self.work)(db);
        self.result = Some(ran.result);
        ran.sound
    }

    fn spoil(&mut self, error: StoreError) {
        self.result = Some(Err(error.into()));
    }

    fn tell(self: Box<Self>, flushed: Result<(), &StoreError>) {
        let answer = match (flushed, self.result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(StoreError::unavailable("the write was not run").into()),
            (Err(error), _) => Err(copy(error).into()),
        };
        // A caller that is gone no longer wants to know.
        drop(self.tell.send(answer));
    }
}

/// A transaction that has ended, and everybody who waits to hear how.
struct Group {
    jobs: Vec<Box<dyn Job>>,
    flushed: Result<(), StoreError>,
}

impl Group {
    fn tell(self) {
        let flushed = self.flushed.as_ref().copied();
        for job in self.jobs {
            job.tell(flushed);
        }
    }
}

/// Many jobs, one transaction, one flush.
fn run_group(db: &Connection, mut jobs: Vec<Box<dyn Job>>) -> Group {
    let flushed = flush(db, &mut jobs);
    if flushed.is_err() && !db.is_autocommit() {
        // What failed stays behind otherwise, and would swallow the next group.
        if let Err(error) = db.execute_batch("rollback") {
            tracing::error!(%error, "a failed transaction could not be rolled back");
        }
    }
    Group { jobs, flushed }
}

fn flush(db: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
    db.execute_batch("begin immediate").map_err(StoreError::unavailable)?;
    // A full disk makes SQLite undo the whole transaction in the middle of the group. Whatever ran
    // after that would be a transaction of its own, committed and yet reported as failed.
    let within = || !db.is_autocommit();
    let sound = jobs.iter_mut().all(|job| job.run(db) && within());
    if !sound && within() {
        db.execute_batch("rollback; begin immediate").map_err(StoreError::unavailable)?;
        for job in jobs.iter_mut().take_while(|_| within()) {
            run_apart(db, &mut **job);
        }
    }
    if !within() {
        return Err(StoreError::unavailable(
            "SQLite has undone the transaction: is the disk full?",
        ));
    }
    // If only the flush failed, a crash now would leave the transaction in the log.
    db.execute_batch("commit").map_err(StoreError::unknown)
}

/// Runs a job so that its failure undoes only itself.
fn run_apart(db: &Connection, job: &mut dyn Job) {
    let order = |sql: &str| db.prepare_cached(sql)?.execute([]);
    let ended = order("savepoint caller").and_then(|_| {
        if !job.run(db) {
            order("rollback to caller")?;
        }
        order("release caller")
    });
    if let Err(error) = ended {
        job.spoil(error.into());
    }
}

/// Applies one caller's changes, up to the first that fails.
fn apply_all(db: &Connection, changes: &Changes) -> Ran<(), CommitError> {
    let mut writes: Vec<&Write> = changes.writes().iter().collect();
    writes.sort_by_key(|write| crate::rank(write));
    for (done, write) in writes.into_iter().enumerate() {
        if let Err(error) = apply(db, write) {
            // One statement undoes itself when it fails.
            return Ran { result: Err(error), sound: done == 0 };
        }
    }
    Ran { result: Ok(()), sound: true }
}

fn apply(db: &Connection, write: &Write) -> Result<(), CommitError> {
    match write {
        Write::LedgerAccept(entry) => ledger::accept_sqlite(db, entry),
        Write::LedgerSettle(end) => ledger::settle_sqlite(db, end),
        Write::LedgerReopen(touch) => ledger::reopen_sqlite(db, touch),
        Write::LedgerSeen(touch) => ledger::seen_sqlite(db, touch),
        Write::Enqueue(effect) => outbox::enqueue_sqlite(db, effect),
        Write::Settle(end) => outbox::settle_sqlite(db, end),
        Write::Release(release) => outbox::release_sqlite(db, release),
        Write::Requeue(wish) => outbox::requeue_sqlite(db, wish),
        Write::Reschedule(wish) => outbox::reschedule_sqlite(db, wish),
        Write::Withdraw(end) => outbox::withdraw_sqlite(db, end),
        Write::Attempt(attempt) => attempt::record_sqlite(db, attempt),
        Write::CloseCase(end) => case::close_sqlite(db, end),
        Write::OpenCase(new) => case::open_sqlite(db, new),
        Write::ResolveCase(end) => case::resolve_sqlite(db, end),
        Write::PaymentInsert(new) => table::insert_sqlite(db, &**new),
        Write::PaymentUpdate(now) => table::update_sqlite(db, &**now),
        Write::RefundInsert(new) => table::insert_sqlite(db, &**new),
        Write::RefundUpdate(now) => table::update_sqlite(db, &**now),
        Write::ReservationUpdate(now) => table::update_sqlite(db, &**now),
        Write::ReservationInsert(new) => table::insert_sqlite(db, &**new),
        Write::WebhookInsert(new) => table::insert_sqlite(db, &**new),
        Write::WebhookUpdate(now) => table::update_sqlite(db, &**now),
        Write::BillingInsert(new) => table::insert_sqlite(db, &**new),
        Write::BillingUpdate(now) => table::update_sqlite(db, &**now),
        Write::RenderInsert(new) => table::insert_sqlite(db, &**new),
        Write::RenderUpdate(now) => table::update_sqlite(db, &**now),
        Write::LetGo(end) => message::let_go_sqlite(db, end),
        Write::MessageUpdate(now) => table::update_sqlite(db, &**now),
        Write::MessageInsert(new) => table::insert_sqlite(db, &**new),
        Write::MessageLog(line) => table::insert_sqlite(db, &**line),
        Write::QueueInsert(new) => table::insert_sqlite(db, &**new),
        Write::QueueUpdate(now) => table::update_sqlite(db, &**now),
        Write::FlowInsert(new) => table::insert_sqlite(db, &**new),
        Write::FlowUpdate(now) => table::update_sqlite(db, &**now),
        Write::GroupInsert(new) => table::insert_sqlite(db, &**new),
        Write::GroupUpdate(now) => table::update_sqlite(db, &**now),
        Write::ScheduleInsert(new) => table::insert_sqlite(db, &**new),
        Write::ScheduleUpdate(now) => table::update_sqlite(db, &**now),
        Write::KeysInsert(new) => table::insert_sqlite(db, &**new),
        Write::KeysUpdate(now) => table::update_sqlite(db, &**now),
        Write::Audit(_) if mutant::on(Mutant::AuditForgotten) => Ok(()),
        Write::Audit(line) => table::insert_sqlite(db, &**line),
        Write::PaymentLine(line) => payment::line_sqlite(db, line),
        Write::AlertUpdate(alert) => table::update_sqlite(db, &**alert),
        Write::AlertInsert(alert) => table::insert_sqlite(db, &**alert),
        Write::FireAlert(alert) => alert::fire_sqlite(db, alert),
        Write::ResolveAlert(end) => alert::resolve_sqlite(db, end),
        Write::Race(race) => race::record_sqlite(db, race),
        Write::MailInsert(new) => table::insert_sqlite(db, &**new),
        Write::MailUpdate(now) => table::update_sqlite(db, &**now),
        Write::MailBatchInsert(new) => table::insert_sqlite(db, &**new),
        Write::MailBatchUpdate(now) => table::update_sqlite(db, &**now),
        Write::MailControlUpdate(now) => table::update_sqlite(db, &**now),
    }
}

/// Shared statements number their parameters as PostgreSQL does. To SQLite `$1` is only a name, and
/// names are counted in the order in which they appear.
pub(crate) fn numbered(sql: &str) -> String {
    sql.replace('$', "?")
}

fn read_rows<T>(
    db: &Connection,
    sql: &str,
    params: &[Param],
    parse: impl Fn(&dyn Row) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(params))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(parse(row)?);
    }
    Ok(found)
}

/// Each caller of a failed group gets an error of its own.
fn copy(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { detail, written } => {
            StoreError::Unavailable { detail: detail.clone(), written: *written }
        }
        other => StoreError::Unavailable { detail: other.to_string(), written: Written::No },
    }
}

/// The file behind a `sqlite:` URL.
pub(crate) fn path(url: &str) -> Result<PathBuf, StoreError> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.contains(":memory:") || path.starts_with('?') {
        return Err(StoreError::BadUrl(
            "sqlite: needs the path of a file, e.g. sqlite:tashika.db".into(),
        ));
    }
    Ok(PathBuf::from(path))
}
