//! A database for one test, on either of the two, and the macro that makes two tests of one case.

use std::path::PathBuf;

use tashika_domain::{EffectId, Timestamp};
use tashika_store::{Dialect, Store};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::postgres::{Database, TestDatabase, TestPostgres, databases};

/// Makes two tests of each `async fn case(db: TestDb)`: `case::sqlite` and `case::postgres`.
///
/// A case that is not listed is dead code, and the compiler says so. The names matter: `scripts/test --sqlite` leaves out
/// what has `postgres` in its name.
#[macro_export]
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        $(mod $case {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Box::pin(super::$case($crate::database::TestDb::sqlite())).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Box::pin(super::$case($crate::database::TestDb::postgres())).await;
            }
        })+
    };
}

/// An empty database, which ends with this value.
#[derive(Debug)]
pub struct TestDb(Kind);

#[derive(Debug)]
enum Kind {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

impl TestDb {
    /// A file of its own.
    ///
    /// # Panics
    ///
    /// When there is no place for temporary files.
    #[must_use]
    pub fn sqlite() -> Self {
        Self(Kind::Sqlite(tempfile::tempdir().expect("a temporary folder")))
    }

    /// A fresh database on the server that the tests share.
    ///
    /// # Panics
    ///
    /// Where PostgreSQL is not wanted: a test that returned early would count as passed.
    #[must_use]
    pub fn postgres() -> Self {
        assert!(
            databases().contains(&Database::Postgres),
            "TASHIKA_TEST_DATABASES leaves PostgreSQL out: leave the tests out as well, \
             e.g. cargo nextest run -E 'not test(postgres)'"
        );
        Self(Kind::Postgres(TestPostgres::database()))
    }

    #[must_use]
    pub fn dialect(&self) -> Dialect {
        match self.0 {
            Kind::Sqlite(_) => Dialect::Sqlite,
            Kind::Postgres(_) => Dialect::Postgres,
        }
    }

    /// What `TASHIKA_DATABASE_URL` would say.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.0 {
            Kind::Sqlite(folder) => format!("sqlite:{}", file(folder).display()),
            Kind::Postgres(database) => database.url().to_owned(),
        }
    }

    /// Opens the database as one more process would.
    ///
    /// # Panics
    ///
    /// When it does not open.
    pub async fn open(&self) -> Store {
        Store::open(&self.url(), 4).await.expect("the store opens")
    }

    /// Makes the store believe that a worker was last heard of at `at`. A renewal cannot do that: it
    /// never turns a lease back.
    pub async fn last_heard(&self, id: EffectId, at: Timestamp) {
        self.sql(&match self.dialect() {
            Dialect::Sqlite => {
                let (id, at) = (id.0.simple(), at.as_micros());
                format!("update outbox set locked_at = {at} where id = x'{id}'")
            }
            Dialect::Postgres => {
                format!("update outbox set locked_at = '{at}' where id = '{id}'")
            }
        })
        .await;
    }

    /// Runs a statement past the store, as an operator or an application would.
    ///
    /// # Panics
    ///
    /// When the database refuses it.
    pub async fn sql(&self, statement: &str) {
        match &self.0 {
            Kind::Sqlite(folder) => {
                let db = rusqlite::Connection::open(file(folder)).expect("the file opens");
                db.busy_timeout(crate::gate::PATIENCE).expect("a timeout can be set");
                db.execute_batch(statement).expect("the statement is taken");
            }
            Kind::Postgres(database) => {
                let (client, connection) =
                    tokio_postgres::connect(database.url(), NoTls).await.expect("a connection");
                let connection = tokio::spawn(connection);
                client.batch_execute(statement).await.expect("the statement is taken");
                drop(client);
                connection.await.expect("no panic").expect("a clean end");
            }
        }
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("tashika.db")
}
