//! Looking at the database itself, for `tashika doctor`.

use std::time::Duration;

use tashika_domain::Timestamp;

use crate::error::StoreError;
use crate::row::PgTime;
use crate::{Backend, Store};

/// What the database says about itself.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    pub version: String,
    /// The database's clock, where it has one of its own.
    pub time: Option<Timestamp>,
    /// The session that keeps the server from cleaning up, if one has for a while.
    pub pin: Option<Pin>,
    /// Bytes on disk.
    pub size: i64,
}

/// A session whose open transaction keeps dead rows from being removed.
#[derive(Clone, Debug, PartialEq)]
pub struct Pin {
    pub pid: i32,
    pub application: String,
    pub state: String,
    pub open_for: Duration,
}

impl Store {
    pub async fn diagnose(&self) -> Result<Diagnosis, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                sqlite
                    .upkeep(|db| {
                        let size = db.query_row(
                            "select page_count * page_size
                               from pragma_page_count(), pragma_page_size()",
                            [],
                            |row| row.get(0),
                        )?;
                        let version = format!("SQLite {}", rusqlite::version());
                        Ok(Diagnosis { version, time: None, pin: None, size })
                    })
                    .await
            }
            Backend::Postgres(postgres) => {
                let db = postgres.reader().await?;
                let row = db
                    .query_one(
                        "select 'PostgreSQL ' || current_setting('server_version'),
                                clock_timestamp(), pg_database_size(current_database())",
                        &[],
                    )
                    .await?;
                let pin = db
                    .query_opt(
                        "select pid, coalesce(application_name, ''), coalesce(state, ''),
                                extract(epoch from clock_timestamp() - xact_start)::float8
                           from pg_stat_activity
                          where backend_xmin is not null and pid <> pg_backend_pid()
                            and backend_type = 'client backend'
                            and xact_start < clock_timestamp() - interval '10 seconds'
                          order by age(backend_xmin) desc limit 1",
                        &[],
                    )
                    .await?;
                Ok(Diagnosis {
                    version: row.get(0),
                    time: Some(row.get::<_, PgTime>(1).0),
                    size: row.get(2),
                    pin: pin.map(|row| Pin {
                        pid: row.get(0),
                        application: row.get(1),
                        state: row.get(2),
                        open_for: Duration::try_from_secs_f64(row.get(3)).unwrap_or_default(),
                    }),
                })
            }
        }
    }
}
