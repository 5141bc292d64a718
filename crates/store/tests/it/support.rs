//! What every case stands on: a database of its own, and short words for writes and results.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tashika_domain::changes::{Attempt, Lease, Release, Requeue, Settle};
use tashika_domain::effect::{Effect, EffectId, NewEffect, Verdict};
use tashika_domain::ledger::{LedgerKey, LedgerSettlement, LedgerStatus, NewLedgerEntry};
use tashika_domain::outcome::Reason;
use tashika_domain::{Changes, Lane, Timestamp, Write};
use tashika_store::{
    Claim, CommitError, Dialect, EffectFilter, EffectRow, Key, Store, StoreError, Written,
};
use tashika_testkit::postgres::{Cluster, Database, TestDatabase, TestPostgres, databases};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};
use uuid::Uuid;

/// Makes two tests of each case. A case that is not listed is dead code, and the linter says so.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        $(mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$case($crate::support::Db::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$case($crate::support::Db::postgres()).await;
            }
        })+
    };
}

/// An empty database, which ends with this value.
pub struct Db(Kind);

enum Kind {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

impl Db {
    pub fn sqlite() -> Self {
        Self(Kind::Sqlite(tempfile::tempdir().expect("a temporary folder")))
    }

    pub fn postgres() -> Self {
        insist_on_postgres();
        Self(Kind::Postgres(TestPostgres::database()))
    }

    pub fn dialect(&self) -> Dialect {
        match self.0 {
            Kind::Sqlite(_) => Dialect::Sqlite,
            Kind::Postgres(_) => Dialect::Postgres,
        }
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> PathBuf {
        match &self.0 {
            Kind::Sqlite(folder) => folder.path().join("tashika.db"),
            Kind::Postgres(_) => panic!("PostgreSQL has no file"),
        }
    }

    pub fn url(&self) -> String {
        match &self.0 {
            Kind::Sqlite(_) => format!("sqlite:{}", self.file().display()),
            Kind::Postgres(database) => database.url().to_owned(),
        }
    }

    pub async fn open(&self) -> Store {
        Store::open(&self.url(), 4).await.expect("the store opens")
    }

    /// Says the same to either database.
    pub fn pick(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self.dialect() {
            Dialect::Sqlite => sqlite,
            Dialect::Postgres => postgres,
        }
    }

    /// Runs a statement past the store, as an operator would; returns the rows as text.
    pub async fn sql(&self, statement: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        match &self.0 {
            Kind::Sqlite(_) => sqlite_rows(&self.file(), statement).map_err(|e| e.to_string()),
            Kind::Postgres(database) => {
                let client = connect(database.url()).await;
                let messages = client.simple_query(statement).await.map_err(|error| {
                    error.as_db_error().map_or(error.to_string(), ToString::to_string)
                })?;
                Ok(messages.iter().filter_map(text_row).collect())
            }
        }
    }

    /// The one number that a statement returns.
    pub async fn number(&self, statement: &str) -> i64 {
        let rows = self.sql(statement).await.expect("the statement is understood");
        rows[0][0].as_deref().expect("not null").parse().expect("a number")
    }

    /// Everything that is in the tables, for "nothing was written".
    pub async fn content(&self) -> BTreeMap<&'static str, Vec<Vec<Option<String>>>> {
        let mut content = BTreeMap::new();
        for table in [
            "idempo_ledger",
            "outbox",
            "outbox_attempts",
            "cases",
            "workers",
            "quotas",
            "messages",
            "message_log",
            "queues",
            "flow_controls",
            "url_groups",
            "schedules",
            "signing_keys",
            "mail_batches",
            "mail_deliveries",
            "mail_control",
            "mail_permits",
            "mail_quota",
        ] {
            let mut rows = self.sql(&format!("select * from {table}")).await.expect("a table");
            rows.sort();
            content.insert(table, rows);
        }
        content
    }
}

/// Fails where PostgreSQL is not wanted: a test that returned early would count as passed.
fn insist_on_postgres() {
    assert!(
        databases().contains(&Database::Postgres),
        "TASHIKA_TEST_DATABASES leaves PostgreSQL out: leave the tests out as well, \
         e.g. cargo nextest run -E 'not test(postgres)'"
    );
}

/// A PostgreSQL server of a test's own.
pub fn cluster() -> Cluster {
    insist_on_postgres();
    Cluster::start()
}

fn sqlite_rows(
    file: &std::path::Path,
    statement: &str,
) -> rusqlite::Result<Vec<Vec<Option<String>>>> {
    use rusqlite::types::ValueRef;
    let db = rusqlite::Connection::open(file)?;
    db.busy_timeout(Duration::from_secs(5))?;
    let mut statement = db.prepare(statement)?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let cells = (0..columns).map(|i| {
            Ok(match row.get_ref(i)? {
                ValueRef::Null => None,
                ValueRef::Integer(number) => Some(number.to_string()),
                ValueRef::Real(number) => Some(number.to_string()),
                ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Some(match Uuid::from_slice(bytes) {
                    Ok(id) => id.to_string(),
                    Err(_) => format!("{bytes:?}"),
                }),
            })
        });
        cells.collect()
    });
    rows?.collect()
}

fn text_row(message: &SimpleQueryMessage) -> Option<Vec<Option<String>>> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    Some((0..row.len()).map(|i| row.get(i).map(ToOwned::to_owned)).collect())
}

/// An application's own connection to PostgreSQL.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Waits for something that must happen, and fails instead of hanging when it does not.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let patience = Duration::from_secs(30);
    let Ok(value) = tokio::time::timeout(patience, event).await else {
        panic!("{what}: not within {patience:?}");
    };
    value
}

/// Waits until the store hears PostgreSQL's notifications: it then marks all lanes it knows.
pub async fn listening(store: &Store) {
    let wakeups = store.wakeups();
    let mut expected: BTreeSet<Lane> = Lane::OWN.into();
    while !expected.is_empty() {
        soon("the store listens", wakeups.wait()).await;
        for lane in wakeups.take() {
            expected.remove(&lane);
        }
    }
}

/// Waits until a lane is marked.
pub async fn woken_for(store: &Store, lane: &Lane) {
    let wakeups = store.wakeups();
    while !wakeups.take().contains(lane) {
        soon("a wake-up", wakeups.wait()).await;
    }
}

/// `seconds` after the moment at which all cases begin.
pub fn at(seconds: i64) -> Timestamp {
    millis(seconds * 1000)
}

pub fn millis(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + millis * 1000)
}

/// Ids that sort as their numbers do.
pub fn id(number: u64) -> EffectId {
    let millis = 1_700_000_000_000 + number;
    EffectId(uuid::Builder::from_unix_timestamp_millis(millis, &[7; 10]).into_uuid())
}

pub const FOREVER: i64 = 1_000_000;

/// An order without a key that is due at once.
pub fn effect(number: u64) -> NewEffect {
    NewEffect {
        id: id(number),
        lane: Lane::ORDERS,
        kind: "order".into(),
        key: None,
        digest: None,
        payload: format!(r#"{{"n":{number}}}"#),
        run_at: at(0),
        created_at: at(0),
        expires_at: at(FOREVER),
        traceparent: None,
        held_by: None,
    }
}

pub fn keyed(number: u64, key: &str) -> NewEffect {
    NewEffect { key: Some(key.into()), ..effect(number) }
}

pub fn ledger_key(key: &str) -> LedgerKey {
    LedgerKey::new("order", key)
}

pub fn accept(key: &str) -> NewLedgerEntry {
    NewLedgerEntry {
        key: ledger_key(key),
        request_digest: format!("sha256:{key}"),
        http_status: 201,
        response: r#"{"status":"accepted"}"#.into(),
        now: at(0),
        expires_at: at(FOREVER),
    }
}

/// How the request that [`accept`] began has ended.
pub fn ended(key: &str, status: LedgerStatus, now: Timestamp) -> LedgerSettlement {
    LedgerSettlement {
        key: ledger_key(key),
        request_digest: format!("sha256:{key}"),
        status,
        http_status: 200,
        response: r#"{"status":"filled"}"#.into(),
        result_digest: Some("sha256:result".into()),
        now,
        expires_at: at(FOREVER),
    }
}

pub fn lease(effect: &Effect) -> Lease {
    Lease { id: effect.id, fence: effect.fence }
}

pub fn settle(lease: Lease, verdict: Verdict, now: Timestamp) -> Write {
    Write::Settle(Settle { lease, verdict, now, expires_at: at(FOREVER), unheard_since: None })
}

pub fn succeed(lease: Lease, now: Timestamp) -> Write {
    settle(lease, Verdict::Succeeded, now)
}

pub fn retry(lease: Lease, run_at: Timestamp, now: Timestamp) -> Write {
    let reason = Reason::new("BROKER_5XX", "busy");
    settle(lease, Verdict::Retry { run_at, reason, in_doubt: false }, now)
}

pub fn abort(lease: Lease, in_doubt: bool, now: Timestamp) -> Write {
    let reason = Reason::new("BROKER_TIMEOUT", "no answer");
    settle(lease, Verdict::Aborted { reason, in_doubt }, now)
}

pub fn release(lease: Lease, now: Timestamp) -> Write {
    Write::Release(Release { lease, now, run_at: now })
}

pub fn requeue(id: EffectId, without_doubt: bool, now: Timestamp) -> Write {
    Write::Requeue(Requeue { id, without_doubt, now })
}

pub fn attempt(lease: Lease) -> Attempt {
    Attempt {
        lease,
        worker: "host:1:a".into(),
        started_at: at(1),
        finished_at: at(2),
        outcome: "busy",
        code: Some("BROKER_5XX".into()),
        message: Some("busy".into()),
        exchange: None,
    }
}

/// A settlement that no schema takes: its message is longer than a row may keep.
pub fn refused(lease: Lease) -> Write {
    let reason = Reason { code: "TOO_LONG".into(), message: "x".repeat(513) };
    settle(lease, Verdict::Aborted { reason, in_doubt: false }, at(1))
}

/// What a commit said, in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Done,
    Taken(Key),
    Stale(EffectId),
    Outdated(&'static str),
    Rejected,
    Unavailable(Written),
    Other(String),
}

pub fn said(result: &Result<(), CommitError>) -> Said {
    match result {
        Ok(()) => Said::Done,
        Err(CommitError::Taken(key)) => Said::Taken(*key),
        Err(CommitError::Outdated { table, .. }) => Said::Outdated(table),
        Err(CommitError::Stale(id)) => Said::Stale(*id),
        Err(CommitError::Store(StoreError::Rejected(_))) => Said::Rejected,
        Err(CommitError::Store(StoreError::Unavailable { written, .. })) => {
            Said::Unavailable(*written)
        }
        Err(error) => Said::Other(error.to_string()),
    }
}

pub fn changes(writes: impl IntoIterator<Item = Write>) -> Changes {
    let mut changes = Changes::new();
    for write in writes {
        changes.push(write);
    }
    changes
}

pub async fn commit(store: &Store, writes: impl IntoIterator<Item = Write>) -> Said {
    said(&store.commit(changes(writes)).await)
}

/// Commits what must succeed.
pub async fn done(store: &Store, writes: impl IntoIterator<Item = Write>) {
    store.commit(changes(writes)).await.expect("the commit succeeds");
}

pub async fn enqueue(store: &Store, effects: impl IntoIterator<Item = NewEffect>) {
    done(store, effects.into_iter().map(Write::Enqueue)).await;
}

pub async fn claim(store: &Store, now: Timestamp, limit: usize) -> Vec<Effect> {
    claim_as(store, &Lane::ORDERS, "host:1:a", now, limit).await
}

pub async fn claim_as(
    store: &Store,
    lane: &Lane,
    worker: &str,
    now: Timestamp,
    limit: usize,
) -> Vec<Effect> {
    store.claim(Claim { lane, worker, now, limit }).await.expect("the claim succeeds")
}

/// Enqueues one effect and claims it.
pub async fn held(store: &Store, number: u64) -> Lease {
    enqueue(store, [effect(number)]).await;
    let claimed = claim(store, at(1), 1).await;
    assert_eq!(ids(&claimed), [id(number)], "somebody else's work was waiting");
    lease(&claimed[0])
}

pub fn ids(effects: &[Effect]) -> Vec<EffectId> {
    effects.iter().map(|effect| effect.id).collect()
}

pub async fn row(store: &Store, id: EffectId) -> EffectRow {
    store.effect(id).await.expect("the read succeeds").expect("the effect exists")
}

/// All effects, oldest first.
pub async fn all(store: &Store) -> Vec<EffectRow> {
    let mut rows =
        store.effects(&EffectFilter::default(), 1_000_000).await.expect("the read succeeds");
    rows.reverse();
    rows
}
