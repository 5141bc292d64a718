//! Statements over whole rows, made from a table's list of columns.
//!
//! Nouns that are read whole, decided about and written back list their columns once. From the list
//! come the insert and the versioned update, for SQLite one row at a time and for PostgreSQL many
//! rows in one statement over arrays.

use std::sync::LazyLock;

use rusqlite::Connection;
use tashika_domain::mutant::{self, Mutant};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::cell::Cell;
use crate::error::{CommitError, Key, StoreError};
use crate::row::PgTime;
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
    fixed: Vec<Column>,
    changing: Vec<Column>,
    insert_sqlite: String,
    insert_pg: Wide,
    /// The same for rows that no other keeps out.
    insert_alone_sqlite: String,
    insert_alone_pg: Wide,
    update_sqlite: String,
    update_pg: Wide,
    /// What an insert loses to when a row of the same key is there already.
    unique: Option<Key>,
}

/// Tables live as long as the program: their statements are cached by their text.
pub(crate) type Lazy = LazyLock<Table>;

impl Table {
    /// The first column is the key. `fixed` is written once, `changing` by every update. Where
    /// `changing` has a `version`, an update expects the version before its own.
    pub fn new(name: &'static str, fixed: &[Column], changing: &[Column]) -> Self {
        let all: Vec<Column> = fixed.iter().chain(changing).copied().collect();
        let key = fixed[0].0;
        let marks: Vec<String> = (1..=all.len()).map(|i| format!("?{i}")).collect();
        // The key is the first parameter of an update.
        let set_sqlite: Vec<String> =
            changing.iter().zip(2..).map(|((name, _), i)| format!("{name} = ?{i}")).collect();
        let version = changing.iter().position(|(name, _)| *name == "version");
        let fence_sqlite = version.map(|i| format!(" and version = ?{} - 1", i + 2));
        let insert_sqlite =
            format!("insert into {name} ({}) values ({})", names(&all), marks.join(", "));
        Self {
            name,
            insert_alone_sqlite: insert_sqlite.clone(),
            insert_sqlite,
            insert_alone_pg: Wide::insert(name, &all, &[]),
            insert_pg: Wide::insert(name, &all, &[]),
            update_sqlite: format!(
                "update {name} set {} where {key} = ?1{}",
                set_sqlite.join(", "),
                fence_sqlite.unwrap_or_default(),
            ),
            update_pg: Wide::update(name, key, changing, &[]),
            fixed: fixed.to_vec(),
            changing: changing.to_vec(),
            unique: None,
        }
    }

    /// An insert that finds one of its unique keys taken writes nothing and says so.
    pub fn unique(mut self, key: Key) -> Self {
        self.insert_sqlite.push_str(" on conflict do nothing");
        let id = self.fixed[0].0;
        self.insert_pg.end_with(&format!(" on conflict do nothing returning {id}"));
        self.unique = Some(key);
        self
    }

    /// Columns that most rows leave empty: when they are inserted, and when they change. They must not have defaults.
    pub fn seldom(mut self, inserted: &[&str], changed: &[&str]) -> Self {
        debug_assert!(self.unique.is_none(), "what is seldom is said before what is unique");
        let all: Vec<Column> = self.fixed.iter().chain(&self.changing).copied().collect();
        self.insert_pg = Wide::insert(self.name, &all, inserted);
        self.insert_alone_pg = Wide::insert(self.name, &all, inserted);
        self.update_pg = Wide::update(self.name, self.fixed[0].0, &self.changing, changed);
        self
    }

    /// The columns, for reading whole rows. Named, because `*` would change under a prepared statement
    /// when a newer process migrates.
    pub fn select(&self) -> String {
        let columns = self.fixed.iter().chain(&self.changing);
        let names = columns.map(|(name, kind)| match kind {
            Kind::Json => format!("cast({name} as text) as {name}"),
            _ => (*name).to_owned(),
        });
        format!("select {} from {}", names.collect::<Vec<_>>().join(", "), self.name)
    }

    fn outdated(&self, id: Uuid) -> CommitError {
        CommitError::Outdated { table: self.name, id }
    }
}

fn names(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Arrays as a table `t`.
fn unnest(columns: &[Column]) -> String {
    let arrays: Vec<String> =
        columns.iter().zip(1..).map(|((_, kind), i)| format!("${i}::{}", kind.array())).collect();
    format!("unnest({}) as t ({})", arrays.join(", "), names(columns))
}

/// A statement of PostgreSQL over many rows.
///
/// Each array costs something, for the statement and for every row, also if there is nothing in it. So there is a second text
/// for rows that have nothing in the columns that are seldom used. No more than that: every text is a statement that each
/// connection keeps.
struct Wide {
    columns: Vec<Column>,
    seldom: Vec<bool>,
    whole: String,
    /// Without the seldom ones.
    narrow: String,
}

impl Wide {
    fn new(columns: Vec<Column>, seldom: &[&str], text: impl Fn(&[Column]) -> String) -> Self {
        debug_assert!(seldom.iter().all(|name| columns.iter().any(|(known, _)| known == name)));
        let seldom: Vec<bool> = columns.iter().map(|(name, _)| seldom.contains(name)).collect();
        let often = columns.iter().zip(&seldom).filter(|(_, seldom)| !**seldom);
        let often: Vec<Column> = often.map(|(column, _)| *column).collect();
        Self { whole: text(&columns), narrow: text(&often), columns, seldom }
    }

    fn insert(table: &str, columns: &[Column], seldom: &[&str]) -> Self {
        Self::new(columns.to_vec(), seldom, |columns| {
            let selected = columns.iter().map(|(name, kind)| cast(name, *kind));
            let selected = selected.collect::<Vec<_>>().join(", ");
            format!(
                "insert into {table} ({}) select {selected} from {}",
                names(columns),
                unnest(columns)
            )
        })
    }

    fn update(table: &str, key: &'static str, changing: &[Column], seldom: &[&str]) -> Self {
        let columns: Vec<Column> = [(key, Kind::Uuid)].iter().chain(changing).copied().collect();
        let is_versioned = changing.iter().any(|(name, _)| *name == "version");
        let fence = if is_versioned { " and o.version = t.version - 1" } else { "" };
        Self::new(columns, seldom, |columns| {
            let set = changing.iter().map(|column @ (name, kind)| {
                let is_sent = columns.contains(column);
                let value = is_sent.then(|| format!("t.{}", cast(name, *kind)));
                format!("{name} = {}", value.as_deref().unwrap_or("null"))
            });
            format!(
                "update {table} o set {} from {} where o.{key} = t.{key}{fence} returning o.{key}",
                set.collect::<Vec<_>>().join(", "),
                unnest(columns)
            )
        })
    }

    fn end_with(&mut self, more: &str) {
        self.whole.push_str(more);
        self.narrow.push_str(more);
    }

    /// The text for these rows, and the rows turned into columns.
    fn over<'a>(&self, rows: impl ExactSizeIterator<Item = Vec<Cell<'a>>>) -> (&str, Params<'a>) {
        let mut values: Vec<Vec<Cell<'_>>> =
            self.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            debug_assert_eq!(row.len(), self.columns.len());
            for (column, value) in values.iter_mut().zip(row) {
                column.push(value);
            }
        }
        let is_empty =
            |values: &Vec<Cell<'_>>| values.iter().all(|cell| matches!(cell, Cell::Null));
        let is_narrow = values.iter().zip(&self.seldom).all(|(of, seldom)| !seldom || is_empty(of));
        let columns = self.columns.iter().zip(&self.seldom).zip(values);
        let named = columns.filter(|((_, seldom), _)| !(is_narrow && **seldom));
        let params = named.map(|(((_, kind), _), values)| array(*kind, values)).collect();
        (if is_narrow { &self.narrow } else { &self.whole }, params)
    }
}

/// A noun that is kept as one row, written whole.
pub(crate) trait Kept {
    fn table() -> &'static Table;
    fn id(&self) -> Uuid;
    /// What is written once, the key first, in the order of the table's columns.
    fn fixed(&self) -> Vec<Cell<'_>>;
    /// What every update writes.
    fn changing(&self) -> Vec<Cell<'_>>;
    /// Whether it may find one of its unique keys taken, beside its id. Looking for that costs something for each row.
    fn may_be_kept_out(&self) -> bool {
        Self::table().unique.is_some()
    }
}

fn whole<T: Kept>(row: &T) -> Vec<Cell<'_>> {
    let mut values = row.fixed();
    values.extend(row.changing());
    values
}

fn changed<T: Kept>(row: &T) -> Vec<Cell<'_>> {
    let mut values = vec![Cell::Uuid(row.id())];
    values.extend(row.changing());
    values
}

pub(crate) fn insert_sqlite<T: Kept>(db: &Connection, row: &T) -> Result<(), CommitError> {
    let table = T::table();
    let taken = table.unique.filter(|_| row.may_be_kept_out());
    let sql = if taken.is_some() { &table.insert_sqlite } else { &table.insert_alone_sqlite };
    let mut statement = db.prepare_cached(sql)?;
    let inserted = statement.execute(rusqlite::params_from_iter(whole(row)))?;
    match taken {
        Some(key) if inserted == 0 => Err(CommitError::Taken(key)),
        _ => Ok(()),
    }
}

pub(crate) fn update_sqlite<T: Kept>(db: &Connection, row: &T) -> Result<(), CommitError> {
    let table = T::table();
    let expecting = (" and version = ", " and version >= ");
    let sql = &table.update_sqlite;
    let sql = mutant::instead(Mutant::VersionNotCompared, sql, expecting.0, expecting.1);
    let mut statement = db.prepare_cached(&sql)?;
    let updated = statement.execute(rusqlite::params_from_iter(changed(row)))?;
    if updated == 1 { Ok(()) } else { Err(table.outdated(row.id())) }
}

fn owners<T: Kept>(rows: &[(Owner, &T)]) -> Vec<(Owner, Uuid)> {
    rows.iter().map(|(owner, row)| (*owner, row.id())).collect()
}

pub(crate) fn insert_pg<'a, T: Kept>(rows: &[(Owner, &'a T)]) -> Step<'a> {
    let (table, owners) = (T::table(), owners(rows));
    let key = table.fixed[0].0;
    let taken = table.unique.filter(|_| rows.iter().any(|(_, row)| row.may_be_kept_out()));
    // What nobody keeps out was refused, in whatever company it came.
    let alone = rows.iter().filter(|(_, row)| taken.is_some() && !row.may_be_kept_out());
    let alone: Vec<Uuid> = alone.map(|(_, row)| row.id()).collect();
    let statement = if taken.is_some() { &table.insert_pg } else { &table.insert_alone_pg };
    let (sql, params) = statement.over(rows.iter().map(|(_, row)| whole(*row)));
    Step {
        sql,
        params,
        judge: Box::new(move |found| match taken {
            None => Vec::new(),
            Some(taken) => {
                let lost = |id: &Uuid| {
                    if alone.contains(id) {
                        let refusal = format!("{}: {id} is there already", table.name);
                        return StoreError::Rejected(refusal).into();
                    }
                    CommitError::Taken(taken)
                };
                missing(owners.into_iter(), found, |row| row.get(key), lost)
            }
        }),
    }
}

pub(crate) fn update_pg<'a, T: Kept>(rows: &[(Owner, &'a T)]) -> Step<'a> {
    let (table, owners) = (T::table(), owners(rows));
    let key = table.fixed[0].0;
    let (sql, params) = table.update_pg.over(rows.iter().map(|(_, row)| changed(*row)));
    Step {
        sql,
        params,
        judge: Box::new(move |found| {
            let lost = |id: &Uuid| table.outdated(*id);
            missing(owners.into_iter(), found, |row| row.get(key), lost)
        }),
    }
}

fn cast(name: &str, kind: Kind) -> String {
    if kind == Kind::Json { format!("{name}::jsonb") } else { name.to_owned() }
}

/// A value of another kind than its column's becomes null, and the table's constraints speak.
fn array(kind: Kind, values: Vec<Cell<'_>>) -> Box<dyn ToSql + Sync + Send + '_> {
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
        Kind::Uuid => typed!(Cell::Uuid(id) => id),
        Kind::Text | Kind::Json => typed!(Cell::Text(text) => text),
        Kind::Int => typed!(Cell::Int(number) => number),
        Kind::Time => typed!(Cell::Time(at) => PgTime(at)),
        Kind::Bool => typed!(Cell::Bool(yes) => yes),
        Kind::Bytes => typed!(Cell::Bytes(bytes) => bytes),
    }
}
