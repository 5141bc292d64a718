//! Throwaway PostgreSQL for tests: a fresh database for each, and whole servers to kill.
//!
//! Called by the tests of every crate. A test that needs a database takes [`TestPostgres::database`]; a test that needs a
//! server to misbehave takes a [`Cluster`] of its own, so that its neighbours do not notice.
//!
//! Guarantees: no server outlives the process that started it, however that process ends, and every database starts empty.
//! Does not guarantee data after a power cut: these servers never flush to the disk.
//!
//! Everything here blocks, so that it works from plain tests, from async ones and from `Drop`. A test that needs its own
//! tasks to go on meanwhile wraps the call in `tokio::task::block_in_place`. A failure panics: in a test that is the report.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, bail};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// A database that Tashika runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// The databases that the tests of this process shall use: both, unless `TASHIKA_TEST_DATABASES` (a comma list of `sqlite` and
/// `postgres`) says otherwise.
///
/// # Panics
///
/// When the variable names no database or an unknown one: better than a run that passes because it tested nothing.
#[must_use]
pub fn databases() -> Vec<Database> {
    match env::var("TASHIKA_TEST_DATABASES") {
        Ok(names) => parse_databases(&names)
            .unwrap_or_else(|error| panic!("TASHIKA_TEST_DATABASES: {error:#}")),
        Err(_) => vec![Database::Sqlite, Database::Postgres],
    }
}

fn parse_databases(names: &str) -> anyhow::Result<Vec<Database>> {
    names
        .split(',')
        .map(|name| match name.trim() {
            "sqlite" => Ok(Database::Sqlite),
            "postgres" => Ok(Database::Postgres),
            other => bail!("`{other}` is neither `sqlite` nor `postgres`"),
        })
        .collect()
}

/// The server that the tests of this process share.
///
/// It is the one at `TASHIKA_TEST_POSTGRES_URL` when that is set, as `scripts/test` does for a whole run; the user named there
/// must be allowed to create databases. Otherwise the first test that asks starts one, which costs about a second per process.
pub struct TestPostgres;

impl TestPostgres {
    /// Creates an empty database, which is dropped with the returned value.
    ///
    /// # Panics
    ///
    /// When there is no server, or it refuses.
    #[must_use]
    pub fn database() -> TestDatabase {
        static SHARED: OnceLock<Cluster> = OnceLock::new();

        let server_url = env::var("TASHIKA_TEST_POSTGRES_URL")
            .unwrap_or_else(|_| SHARED.get_or_init(Cluster::start).url().to_owned());
        TestDatabase::create(server_url)
    }
}

/// An empty database of one test.
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    name: String,
    url: String,
}

impl TestDatabase {
    fn create(server_url: String) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);

        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = format!("test_{}_{number}", std::process::id());
            // template0 is never connected to, and so can always be copied.
            match execute(&server_url, &format!("create database {name} template template0")) {
                Ok(()) => {
                    let url = with_database(&server_url, &name);
                    return Self { server_url, name, url };
                }
                // An earlier process had the same id and was killed before it could drop its databases.
                Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => {}
                Err(error) => panic!("no database for this test: {error:?}"),
            }
        }
    }

    /// Where to connect to: `postgres://…`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let drop = format!("drop database {} with (force)", self.name);
        // The test has had its result by now, and the whole server is about to go: a leftover harms nobody.
        if let Err(error) = execute(&self.server_url, &drop) {
            eprintln!("test database {} is left behind: {error}", self.name);
        }
    }
}

/// A server of a test's own, to be killed, frozen and brought back. It ends with this value, or with the process.
#[derive(Debug)]
pub struct Cluster {
    url: String,
    script: Child,
    /// The script takes the end of this pipe as the order to clean up. `None` only while dropping.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Cluster {
    /// Starts a server on a free loopback port and waits until it can be connected to.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::try_start(&[])
            .unwrap_or_else(|error| panic!("no throwaway PostgreSQL for this test: {error:#}"))
    }

    /// Starts a server for measurements: it flushes as a production server does.
    pub fn start_durable() -> anyhow::Result<Self> {
        Self::try_start(&["--durable"])
    }

    fn try_start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut script = Command::new("sh")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/throwaway-postgres"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Inherited, it would keep the output of the test open for longer than the test runs.
            .stderr(Stdio::null())
            // A test runner that ends the whole process group of a test must not end the clean-up with it.
            .process_group(0)
            .spawn()
            .context("running sh")?;
        let commands = script.stdin.take();
        let mut answers = BufReader::new(script.stdout.take().context("no pipe to sh")?);
        let url = answer(&mut answers)?;
        if !url.starts_with("postgres://") {
            bail!(
                "{url}\n(scripts/test installs PostgreSQL; TASHIKA_TEST_DATABASES=sqlite does without)"
            );
        }
        Ok(Self { url, script, commands, answers })
    }

    /// Where to connect to: the database `postgres`, as its superuser. Stays the same across restarts.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the server as a crash would: connections break, nothing is written back. Does nothing when it has ended.
    pub fn stop_immediately(&mut self) {
        self.command("stop");
    }

    /// Starts the server again with its data, on the same port, after a crash if it is still running.
    pub fn restart(&mut self) {
        self.command("stop");
        self.command("start");
    }

    /// Makes every process of the server stand still (SIGSTOP): connections stay open, and nothing answers. Linux only.
    pub fn freeze(&mut self) {
        self.command("freeze");
    }

    /// Ends [`Self::freeze`] (SIGCONT).
    pub fn thaw(&mut self) {
        self.command("thaw");
    }

    fn command(&mut self, command: &str) {
        let answer = self
            .commands
            .as_mut()
            .context("the pipe is closed")
            .and_then(|commands| Ok(writeln!(commands, "{command}")?))
            .and_then(|()| answer(&mut self.answers));
        match answer {
            Ok(ok) if ok == "ok" => {}
            Ok(failure) => panic!("PostgreSQL: {command}: {failure}"),
            Err(error) => panic!("PostgreSQL: {command}: {error:#}"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Err(error) = self.script.wait() {
            eprintln!("waiting for PostgreSQL to end: {error}");
        }
    }
}

/// The script's next line, or everything that it still has to say when that line is the beginning of a failure.
fn answer(answers: &mut impl BufRead) -> anyhow::Result<String> {
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    if answer.is_empty() {
        bail!("the script has ended");
    }
    if answer.starts_with("failed:") {
        answers.read_to_string(&mut answer)?;
    }
    answer.truncate(answer.trim_end().len());
    Ok(answer)
}

/// The same server and options, another database.
fn with_database(server_url: &str, name: &str) -> String {
    let (address, options) = match server_url.find('?') {
        Some(at) => server_url.split_at(at),
        None => (server_url, ""),
    };
    let host = address.find("://").map_or(0, |at| at + "://".len());
    let end = address[host..].find('/').map_or(address.len(), |at| host + at);
    format!("{}/{name}{options}", &address[..end])
}

/// Runs one statement on a connection of its own. The thread is there because the caller may be inside a runtime, and a
/// runtime must not wait for another one.
fn execute(url: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs nothing but a few file descriptors")
            .block_on(async {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
                let connection = tokio::spawn(connection);
                let result = client.batch_execute(statement).await;
                // Leaving politely keeps "connection reset" out of the server's log.
                drop(client);
                connection.await.expect("the connection does not panic")?;
                result
            })
    };
    thread::scope(|scope| scope.spawn(run).join()).expect("the statement's thread does not panic")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn two_databases_of_one_server_are_isolated() {
        let (one, two) = (TestPostgres::database(), TestPostgres::database());
        execute(one.url(), "create table only_here ()").unwrap();

        let error = execute(two.url(), "table only_here").unwrap_err();

        assert_eq!(error.code(), Some(&SqlState::UNDEFINED_TABLE));
    }

    #[test]
    fn a_database_is_dropped_while_somebody_is_still_connected() {
        let database = TestPostgres::database();
        let url = database.url().to_owned();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(&url, NoTls)).unwrap();
        runtime.spawn(connection);

        drop(database);

        let error = execute(&url, "select 1").unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::UNDEFINED_DATABASE));
        runtime.block_on(client.simple_query("select 1")).unwrap_err();
    }

    #[tokio::test]
    async fn a_database_can_be_had_inside_a_runtime() {
        let database = TestPostgres::database();
        execute(database.url(), "select 1").unwrap();
    }

    #[test]
    fn a_crashed_cluster_refuses_connections_and_comes_back_with_its_data() {
        let mut cluster = Cluster::start();
        execute(cluster.url(), "create table kept as select 1 as one").unwrap();

        cluster.stop_immediately();
        let error = execute(cluster.url(), "table kept").unwrap_err();
        assert_eq!(error.code(), None, "an answer from a dead server: {error}");

        cluster.restart();
        execute(cluster.url(), "table kept").unwrap();
        cluster.restart();
        execute(cluster.url(), "table kept").unwrap();
    }

    /// Silence cannot be waited for, only not be broken for a while: hence the one timeout here.
    #[tokio::test]
    async fn a_frozen_cluster_is_silent_until_it_thaws() {
        let mut cluster = Cluster::start();
        let (client, connection) = tokio_postgres::connect(cluster.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.simple_query("select 1").await.unwrap();

        cluster.freeze();
        let mut query = Box::pin(client.simple_query("select 1"));
        let answer = tokio::time::timeout(Duration::from_millis(100), &mut query).await;
        assert!(answer.is_err(), "a frozen server answered: {answer:?}");

        cluster.thaw();
        query.await.unwrap();
    }

    #[test]
    fn a_cluster_ends_with_its_value_even_when_frozen() {
        let mut cluster = Cluster::start();
        let url = cluster.url().to_owned();
        cluster.freeze();

        drop(cluster);

        let error = execute(&url, "select 1").unwrap_err();
        assert_eq!(error.code(), None, "an answer from a dead server: {error}");
    }

    #[test]
    fn the_address_of_a_database_keeps_server_and_options() {
        for (server, expected) in [
            ("postgres://u:p@h:1/postgres", "postgres://u:p@h:1/name"),
            ("postgres://h", "postgres://h/name"),
            ("postgres://h/?a=b/c", "postgres://h/name?a=b/c"),
        ] {
            assert_eq!(with_database(server, "name"), expected);
        }
    }

    #[test]
    fn databases_are_chosen_by_name() {
        let both = parse_databases("sqlite, postgres").unwrap();
        assert_eq!(both, [Database::Sqlite, Database::Postgres]);
        assert_eq!(parse_databases("sqlite").unwrap(), [Database::Sqlite]);
        parse_databases("").unwrap_err();
        parse_databases("mysql").unwrap_err();
    }
}
