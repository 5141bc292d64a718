//! PostgreSQL: connections, and the tasks that use them.
//!
//! Two pools: *writers* for claims and small writes, *readers* for everything that only looks. The
//! flushers ([`flusher`]) and the listener ([`listener`]) have connections of their own.

pub(crate) mod flusher;
pub(crate) mod listener;

use std::net::IpAddr;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tashika_domain::{Changes, Write};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::claim::Floors;
use crate::error::{CommitError, StoreError};
use crate::row::{Param, Row};
use crate::wakeups::Wakeups;

/// Nothing Tashika asks of the database takes long; what does is stuck.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longer than PostgreSQL takes to find a deadlock (1 s), so that only locks of strangers are left.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1500);
/// Transactions are written in one go. One that is left open is that of a process that stands still, or is cut off, and
/// nobody can take back what it has locked.
const OPEN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that does not answer at all does not watch its own time limit either.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Jobs waiting for a flusher. More means that the database cannot keep up: better to say so.
const QUEUE_MAX: usize = 16_384;
/// Two keep the database busy while one waits for its flush; more were slower.
const FLUSHERS: usize = 2;
/// For messages that change: nobody but their worker waits for that, and what comes meanwhile goes together.
const FLUSHERS_OF_MESSAGES: usize = 1;

/// No statement runs long enough to be worth compiling. Without this, one that has to read a small table as a whole is
/// compiled each time it runs, for tens of milliseconds: with [`POINT_PLANS`] its cost looks enormous.
const SHORT_STATEMENTS: &str = "-c jit=off";

/// The statements of the machinery touch few rows by index, whatever the statistics of the moment
/// say about the tables: a plan that reads a whole table is never right for them.
const POINT_PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off \
     -c enable_mergejoin=off -c plan_cache_mode=force_generic_plan";

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let detail = describe(&error);
        match error.code() {
            // Classes 22 (data), 23 (integrity) and 42 (syntax or schema) will not go away by
            // waiting; everything else may.
            Some(code) if ["22", "23", "42"].iter().any(|c| code.code().starts_with(c)) => {
                Self::Rejected(detail)
            }
            _ => Self::unavailable(detail),
        }
    }
}

/// The driver's own text hides the server's message in its source.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// How to reach the database.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Connector {
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let mut config = Config::from_str(url)
            .map_err(|error| StoreError::BadUrl(format!("not a PostgreSQL URL: {error}")))?;
        config.application_name("tashika");
        config.connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(STATEMENT_TIMEOUT);
        let tls = if wants_tls(&config) {
            let config = rustls::ClientConfig::with_platform_verifier()
                .map_err(|error| StoreError::BadUrl(format!("TLS is not usable: {error}")))?;
            Some(MakeRustlsConnect::new(config))
        } else {
            None
        };
        Ok(Self { config, tls })
    }

    fn with_options(&self, extra: &str) -> Config {
        let mut config = self.config.clone();
        let own = config.get_options().unwrap_or_default().to_owned();
        let [statement, lock, open] = [STATEMENT_TIMEOUT, LOCK_TIMEOUT, OPEN_TRANSACTION_TIMEOUT]
            .map(|limit| limit.as_millis());
        config.options(format!(
            "{own} -c statement_timeout={statement} -c lock_timeout={lock} \
             -c idle_in_transaction_session_timeout={open} {SHORT_STATEMENTS} {extra}"
        ));
        config
    }

    fn pool(&self, extra: &str, size: usize) -> Result<Pool, StoreError> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let config = self.with_options(extra);
        let manager = match &self.tls {
            Some(tls) => Manager::from_config(config, tls.clone(), manager),
            None => Manager::from_config(config, NoTls, manager),
        };
        Pool::builder(manager)
            .max_size(size)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(StoreError::unavailable)
    }

    /// A connection without time limits.
    pub async fn connect_for_migration(&self) -> Result<Client, StoreError> {
        Ok(match &self.tls {
            Some(tls) => drive(self.config.connect(tls.clone()).await?),
            None => drive(self.config.connect(NoTls).await?),
        })
    }
}

/// TLS, unless the URL says no, or says nothing and the server is on this very machine: there is
/// nobody on the way, and a distribution's default certificate would not be trusted.
fn wants_tls(config: &Config) -> bool {
    let local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        Host::Unix(_) => true,
    };
    match config.get_ssl_mode() {
        SslMode::Disable => false,
        SslMode::Prefer => !config.get_hosts().iter().all(local),
        _ => true,
    }
}

fn drive<S, T>((client, connection): (Client, tokio_postgres::Connection<S, T>)) -> Client
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a database connection ended");
        }
    });
    client
}

pub(crate) struct Postgres {
    writers: Pool,
    readers: Pool,
    jobs: mpsc::Sender<Job>,
    /// Changes of messages, apart from the rest: new ones are then one statement, in a transaction of its own, and
    /// whoever publishes does not wait for what became of others.
    messages: mpsc::Sender<Job>,
    pub floors: Arc<Floors>,
    connector: Connector,
}

/// One caller's changes, and where to tell the result.
pub(crate) struct Job {
    pub changes: Arc<Changes>,
    pub tell: oneshot::Sender<Result<(), CommitError>>,
}

impl Postgres {
    pub fn start(
        connector: &Connector,
        connections: usize,
        wakeups: &Arc<Wakeups>,
    ) -> Result<Self, StoreError> {
        let floors = Arc::new(Floors::default());
        let flushers = FLUSHERS + FLUSHERS_OF_MESSAGES;
        let writers = connector.pool(POINT_PLANS, flushers + connections.max(2) / 2)?;
        let readers = connector.pool("", connections.max(1))?;
        let announcer = listener::Announcer::start(writers.clone());
        let after = flusher::AfterCommit {
            wakeups: Arc::clone(wakeups),
            floors: Arc::clone(&floors),
            announcer,
        };
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        flusher::start(FLUSHERS, &writers, queue, &after);
        let (messages, queue) = mpsc::channel(QUEUE_MAX);
        flusher::start(FLUSHERS_OF_MESSAGES, &writers, queue, &after);
        listener::start(connector.clone(), Arc::clone(wakeups), Arc::clone(&floors), &jobs);
        Ok(Self { writers, readers, jobs, messages, floors, connector: connector.clone() })
    }

    /// A connection of the caller's own; it ends when it is dropped.
    pub async fn connect_alone(&self) -> Result<Client, StoreError> {
        self.connector.connect_for_migration().await
    }

    pub async fn commit(&self, changes: Arc<Changes>) -> Result<(), CommitError> {
        let (tell, told) = oneshot::channel();
        let is_change = |write: &Write| matches!(write, Write::MessageUpdate(_));
        let queue =
            if changes.writes().iter().any(is_change) { &self.messages } else { &self.jobs };
        queue.try_send(Job { changes, tell }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::unavailable("too many writes are waiting for the database")
            }
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::unavailable("the flushers have stopped")
            }
        })?;
        told.await.map_err(|_| StoreError::unknown("the flushers have stopped"))?
    }

    pub async fn writer(&self) -> Result<Object, StoreError> {
        self.writers.get().await.map_err(StoreError::unavailable)
    }

    pub async fn reader(&self) -> Result<Object, StoreError> {
        self.readers.get().await.map_err(StoreError::unavailable)
    }

    pub async fn query<T>(
        &self,
        sql: &str,
        params: &[Param],
        parse: impl Fn(&dyn Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let client = self.reader().await?;
        let read = async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, &borrowed(params)).await
        };
        let Ok(rows) = tokio::time::timeout(READ_TIMEOUT, read).await else {
            // The connection is in the middle of something: it must not be used again.
            drop(Object::take(client));
            return Err(StoreError::unavailable("no answer from the database in time"));
        };
        rows?.iter().map(|row| parse(row)).collect()
    }

    pub async fn execute(&self, sql: &str, params: &[Param]) -> Result<u64, StoreError> {
        let client = self.writer().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.execute(&statement, &borrowed(params)).await?)
    }
}

fn borrowed(params: &[Param]) -> Vec<&(dyn tokio_postgres::types::ToSql + Sync)> {
    params.iter().map(|param| param as &(dyn tokio_postgres::types::ToSql + Sync)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_wanted_wherever_somebody_could_be_on_the_way() {
        for (url, wanted) in [
            ("postgres://localhost/t", false),
            ("postgres://127.0.0.1:5433/t", false),
            ("postgres://[::1]/t", false),
            ("postgres:///t?host=/run/postgresql", false),
            ("postgres://localhost/t?sslmode=require", true),
            ("postgres://db.example/t", true),
            ("postgres://db.example/t?sslmode=disable", false),
            ("postgres://localhost,db.example/t", true),
        ] {
            assert_eq!(wants_tls(&Config::from_str(url).unwrap()), wanted, "{url}");
        }
    }
}
