//! Statements over whole rows, made from a table's list of columns.
//!
//! Nouns that are read whole, decided about and written back list their columns once. From the list
//! come the insert and the versioned update, for SQLite one row at a time and for PostgreSQL many
//! rows in one statement over arrays.

use std::sync::LazyLock;

use rusqlite::Connection;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{CommitError, Key};
use crate::row::{Param, PgTime};
use crate::step::{Owner, Params, Step, missing};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Uuid,
    Text,
    Json,
    Int,
    Time,
    Bool,
    Bytes,
}

impl Kind {
    const fn array(self) -> &'static str {
        match self {
            Self::Uuid => "uuid[]",
            Self::Text | Self::Json => "text[]",
            Self::Int => "int8[]",
            Self::Time => "timestamptz[]",
            Self::Bool => "bool[]",
            Self::Bytes => "bytea[]",
        }
    }
}

pub(crate) type Column = (&'static str, Kind);

/// A table and its statements.
pub(crate) struct Table {
    name: &'static str,
    columns: Vec<Column>,
    insert_sqlite: String,
    insert_pg: String,
    update_sqlite: String,
    update_pg: String,
    /// What an insert loses to when a row of the same key is there already.
    unique: Option<Key>,
}

/// Tables live as long as the program: their statements are cached by their text.
pub(crate) type Lazy = LazyLock<Table>;

impl Table {
    /// The first column is the key. `fixed` is written once, `changing` by every update. Where
    /// `changing` has a `version`, an update expects the version before its own.
    pub fn new(name: &'static str, fixed: &[Column], changing: &[Column]) -> Self {
        let columns: Vec<Column> = fixed.iter().chain(changing).copied().collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let marks: Vec<String> = (1..=columns.len()).map(|i| format!("?{i}")).collect();
        let arrays: Vec<String> = columns
            .iter()
            .enumerate()
            .map(|(i, (_, kind))| format!("${}::{}", i + 1, kind.array()))
            .collect();
        let selected: Vec<String> = columns.iter().map(|(name, kind)| cast(name, *kind)).collect();
        let list = names.join(", ");
        let rows = format!("unnest({}) as t ({list})", arrays.join(", "));
        let key = names[0];
        let place = |name: &str| names.iter().position(|n| *n == name).map_or(0, |i| i + 1);
        let set = |value: &dyn Fn(&Column) -> String| {
            let pairs: Vec<String> =
                changing.iter().map(|c| format!("{} = {}", c.0, value(c))).collect();
            pairs.join(", ")
        };
        let versioned = changing.iter().any(|(name, _)| *name == "version");
        let set_sqlite = set(&|c| format!("?{}", place(c.0)));
        let set_pg = set(&|c| format!("t.{}", cast(c.0, c.1)));
        let (fence_sqlite, fence_pg) = if versioned {
            (format!(" and version = ?{} - 1", place("version")), " and o.version = t.version - 1")
        } else {
            (String::new(), "")
        };
        Self {
            name,
            insert_sqlite: format!("insert into {name} ({list}) values ({})", marks.join(", ")),
            insert_pg: format!(
                "insert into {name} ({list}) select {} from {rows} returning {key}",
                selected.join(", ")
            ),
            update_sqlite: format!("update {name} set {set_sqlite} where {key} = ?1{fence_sqlite}"),
            update_pg: format!(
                "update {name} o set {set_pg} from {rows} where o.{key} = t.{key}{fence_pg} \
                 returning o.{key}"
            ),
            columns,
            unique: None,
        }
    }

    /// An insert that finds one of its unique keys taken writes nothing and says so.
    pub fn unique(mut self, key: Key) -> Self {
        self.insert_sqlite.push_str(" on conflict do nothing");
        let returning = self.insert_pg.rfind(" returning").unwrap_or(self.insert_pg.len());
        self.insert_pg.insert_str(returning, " on conflict do nothing");
        self.unique = Some(key);
        self
    }

    /// The columns, for reading whole rows. Named, because `*` would change under a prepared statement
    /// when a newer process migrates.
    pub fn select(&self) -> String {
        let names = self.columns.iter().map(|(name, kind)| match kind {
            Kind::Json => format!("cast({name} as text) as {name}"),
            _ => (*name).to_owned(),
        });
        format!("select {} from {}", names.collect::<Vec<_>>().join(", "), self.name)
    }

    fn outdated(&self, id: Uuid) -> CommitError {
        CommitError::Outdated { table: self.name, id }
    }

    /// Rows turned into columns.
    fn arrays(&self, rows: impl ExactSizeIterator<Item = Vec<Param>>) -> Params<'static> {
        let mut columns: Vec<Vec<Param>> =
            self.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        self.columns.iter().zip(columns).map(|((_, kind), values)| array(*kind, values)).collect()
    }
}

/// A noun that is kept as one row, written whole.
pub(crate) trait Kept {
    fn table() -> &'static Table;
    fn id(&self) -> Uuid;
    /// In the order of the table's columns.
    fn values(&self) -> Vec<Param>;
}

pub(crate) fn insert_sqlite<T: Kept>(db: &Connection, row: &T) -> Result<(), CommitError> {
    let (table, values) = (T::table(), row.values());
    debug_assert_eq!(values.len(), table.columns.len());
    let mut statement = db.prepare_cached(&table.insert_sqlite)?;
    let inserted = statement.execute(rusqlite::params_from_iter(values))?;
    match table.unique {
        Some(key) if inserted == 0 => Err(CommitError::Taken(key)),
        _ => Ok(()),
    }
}

pub(crate) fn update_sqlite<T: Kept>(db: &Connection, row: &T) -> Result<(), CommitError> {
    let (table, values) = (T::table(), row.values());
    let mut statement = db.prepare_cached(&table.update_sqlite)?;
    // SQLite counts parameters that a statement does not use only up to the last that it does.
    let count = statement.parameter_count().min(values.len());
    let changed = statement.execute(rusqlite::params_from_iter(&values[..count]))?;
    if changed == 1 { Ok(()) } else { Err(table.outdated(row.id())) }
}

pub(crate) fn insert_pg<T: Kept>(rows: &[(Owner, &T)]) -> Step<'static> {
    let table = T::table();
    let owners: Vec<(Owner, Uuid)> = rows.iter().map(|(owner, row)| (*owner, row.id())).collect();
    let column = table.columns[0].0;
    Step {
        sql: &table.insert_pg,
        params: table.arrays(rows.iter().map(|(_, row)| row.values())),
        judge: Box::new(move |found| match table.unique {
            None => Vec::new(),
            Some(key) => {
                let lost = |_: &Uuid| CommitError::Taken(key);
                missing(owners.into_iter(), found, |row| row.get(column), lost)
            }
        }),
    }
}

pub(crate) fn update_pg<T: Kept>(rows: &[(Owner, &T)]) -> Step<'static> {
    let table = T::table();
    let owners: Vec<(Owner, Uuid)> = rows.iter().map(|(owner, row)| (*owner, row.id())).collect();
    let column = table.columns[0].0;
    Step {
        sql: &table.update_pg,
        params: table.arrays(rows.iter().map(|(_, row)| row.values())),
        judge: Box::new(move |found| {
            let lost = |id: &Uuid| table.outdated(*id);
            missing(owners.into_iter(), found, |row| row.get(column), lost)
        }),
    }
}

fn cast(name: &str, kind: Kind) -> String {
    if kind == Kind::Json { format!("{name}::jsonb") } else { name.to_owned() }
}

/// A value of another kind than its column's becomes null, and the table's constraints speak.
fn array(kind: Kind, values: Vec<Param>) -> Box<dyn ToSql + Sync + Send> {
    macro_rules! typed {
        ($($pattern:pat => $value:expr),+) => {
            Box::new(
                values
                    .into_iter()
                    .map(|value| match value {
                        $($pattern => Some($value),)+
                        _ => None,
                    })
                    .collect::<Vec<_>>(),
            )
        };
    }
    match kind {
        Kind::Uuid => typed!(Param::Uuid(id) => id),
        Kind::Text | Kind::Json => typed!(Param::Text(text) => text),
        Kind::Int => typed!(Param::Int(number) => number),
        Kind::Time => typed!(Param::Time(at) => PgTime(at)),
        Kind::Bool => typed!(Param::Bool(yes) => yes),
        Kind::Bytes => typed!(Param::Bytes(bytes) => bytes),
    }
}
