//! Reading rows of either database through one pair of eyes.
//!
//! Reads are written once: the SQL text, its parameters as [`Param`]s, and a function that parses a
//! [`Row`]. A value that cannot be read is reported with its address (table, column, row).

use rusqlite::types::{ToSqlOutput, ValueRef};
use tashika_domain::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use uuid::Uuid;

use crate::error::StoreError;

/// A parameter of a shared statement.
#[derive(Clone, Debug)]
pub(crate) enum Param {
    Uuid(Uuid),
    Text(String),
    Texts(Vec<String>),
    Int(i64),
    Time(Timestamp),
    Null,
}

impl From<Timestamp> for Param {
    fn from(at: Timestamp) -> Self {
        Self::Time(at)
    }
}

impl From<Option<&str>> for Param {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::from)
    }
}

impl From<Option<Timestamp>> for Param {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::Null, Self::Time)
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl rusqlite::ToSql for Param {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Uuid(id) => ToSqlOutput::Borrowed(ValueRef::Blob(id.as_bytes())),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            // SQLite has no arrays: a JSON list, taken apart by json_each.
            Self::Texts(texts) => ToSqlOutput::from(serde_json::json!(texts).to_string()),
            Self::Int(number) => ToSqlOutput::from(*number),
            Self::Time(at) => ToSqlOutput::from(at.as_micros()),
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
        })
    }
}

/// A moment as PostgreSQL sends it: microseconds since 2000.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PgTime(pub Timestamp);

const MICROS_1970_TO_2000: i64 = 946_684_800_000_000;

impl ToSql for PgTime {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let micros = self.0.as_micros().saturating_sub(MICROS_1970_TO_2000);
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgTime {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Timestamp::from_micros(micros.saturating_add(MICROS_1970_TO_2000))))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}

impl ToSql for Param {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Uuid(id) => id.to_sql_checked(kind, out),
            Self::Text(text) => text.to_sql_checked(kind, out),
            Self::Texts(texts) => texts.to_sql_checked(kind, out),
            Self::Int(number) if *kind == Type::INT4 => {
                i32::try_from(*number)?.to_sql_checked(kind, out)
            }
            Self::Int(number) => number.to_sql_checked(kind, out),
            Self::Time(at) => PgTime(*at).to_sql_checked(kind, out),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A row of either database. Columns are named, so that an unreadable one can be.
pub(crate) trait Row {
    fn uuid(&self, column: &'static str) -> Result<Uuid, String>;
    fn opt_uuid(&self, column: &'static str) -> Result<Option<Uuid>, String>;
    fn opt_text(&self, column: &'static str) -> Result<Option<String>, String>;
    fn opt_int(&self, column: &'static str) -> Result<Option<i64>, String>;
    fn opt_time(&self, column: &'static str) -> Result<Option<Timestamp>, String>;
    fn opt_bool(&self, column: &'static str) -> Result<Option<bool>, String>;
    fn bytes(&self, column: &'static str) -> Result<Vec<u8>, String>;
}

impl Row for tokio_postgres::Row {
    fn uuid(&self, column: &'static str) -> Result<Uuid, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }

    fn opt_uuid(&self, column: &'static str) -> Result<Option<Uuid>, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }

    fn opt_text(&self, column: &'static str) -> Result<Option<String>, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }

    fn opt_int(&self, column: &'static str) -> Result<Option<i64>, String> {
        let kind = self.columns().iter().find(|c| c.name() == column).map(|c| c.type_().clone());
        if kind == Some(Type::INT4) {
            let number: Option<i32> = self.try_get(column).map_err(|e| e.to_string())?;
            return Ok(number.map(i64::from));
        }
        self.try_get(column).map_err(|e| e.to_string())
    }

    fn opt_time(&self, column: &'static str) -> Result<Option<Timestamp>, String> {
        let at: Option<PgTime> = self.try_get(column).map_err(|e| e.to_string())?;
        Ok(at.map(|at| at.0))
    }

    fn opt_bool(&self, column: &'static str) -> Result<Option<bool>, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }

    fn bytes(&self, column: &'static str) -> Result<Vec<u8>, String> {
        self.try_get(column).map_err(|e| e.to_string())
    }
}

impl Row for rusqlite::Row<'_> {
    fn uuid(&self, column: &'static str) -> Result<Uuid, String> {
        let bytes: [u8; 16] = self.get(column).map_err(|e| e.to_string())?;
        Ok(Uuid::from_bytes(bytes))
    }

    fn opt_uuid(&self, column: &'static str) -> Result<Option<Uuid>, String> {
        let bytes: Option<[u8; 16]> = self.get(column).map_err(|e| e.to_string())?;
        Ok(bytes.map(Uuid::from_bytes))
    }

    fn opt_text(&self, column: &'static str) -> Result<Option<String>, String> {
        self.get(column).map_err(|e| e.to_string())
    }

    fn opt_int(&self, column: &'static str) -> Result<Option<i64>, String> {
        self.get(column).map_err(|e| e.to_string())
    }

    fn opt_time(&self, column: &'static str) -> Result<Option<Timestamp>, String> {
        Ok(self.opt_int(column)?.map(Timestamp::from_micros))
    }

    fn opt_bool(&self, column: &'static str) -> Result<Option<bool>, String> {
        Ok(self.opt_int(column)?.map(|number| number != 0))
    }

    fn bytes(&self, column: &'static str) -> Result<Vec<u8>, String> {
        self.get(column).map_err(|e| e.to_string())
    }
}

/// A row being parsed: knows its table and how to name itself when something is wrong.
pub(crate) struct Reader<'a> {
    pub row: &'a dyn Row,
    pub table: &'static str,
    pub name: String,
}

type Read<T> = Result<T, StoreError>;

impl<'a> Reader<'a> {
    /// For tables whose rows are named by a UUID column.
    pub fn by_uuid(row: &'a dyn Row, table: &'static str, column: &'static str) -> Self {
        let name = row.uuid(column).map_or_else(|e| format!("? ({e})"), |id| id.to_string());
        Self { row, table, name }
    }

    /// For rows that are named by something else.
    pub fn named(row: &'a dyn Row, table: &'static str, name: impl Into<String>) -> Self {
        Self { row, table, name: name.into() }
    }

    pub fn corrupt(&self, column: &'static str, cause: impl Into<String>) -> StoreError {
        StoreError::Corrupt {
            table: self.table,
            column,
            row: self.name.clone(),
            cause: cause.into(),
        }
    }

    fn present<T>(&self, column: &'static str, value: Result<Option<T>, String>) -> Read<T> {
        match value {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(self.corrupt(column, "is null")),
            Err(cause) => Err(self.corrupt(column, cause)),
        }
    }

    pub fn uuid(&self, column: &'static str) -> Read<Uuid> {
        self.row.uuid(column).map_err(|cause| self.corrupt(column, cause))
    }

    pub fn opt_uuid(&self, column: &'static str) -> Read<Option<Uuid>> {
        self.row.opt_uuid(column).map_err(|cause| self.corrupt(column, cause))
    }

    pub fn text(&self, column: &'static str) -> Read<String> {
        self.present(column, self.row.opt_text(column))
    }

    pub fn opt_text(&self, column: &'static str) -> Read<Option<String>> {
        self.row.opt_text(column).map_err(|cause| self.corrupt(column, cause))
    }

    pub fn int(&self, column: &'static str) -> Read<i64> {
        self.present(column, self.row.opt_int(column))
    }

    /// An integer that must fit a smaller type.
    pub fn number<T: TryFrom<i64>>(&self, column: &'static str) -> Read<T> {
        let number = self.int(column)?;
        T::try_from(number).map_err(|_| self.corrupt(column, format!("{number} is out of range")))
    }

    pub fn opt_number<T: TryFrom<i64>>(&self, column: &'static str) -> Read<Option<T>> {
        let found = self.row.opt_int(column).map_err(|cause| self.corrupt(column, cause))?;
        found.map(|_| self.number(column)).transpose()
    }

    pub fn time(&self, column: &'static str) -> Read<Timestamp> {
        self.present(column, self.row.opt_time(column))
    }

    pub fn opt_time(&self, column: &'static str) -> Read<Option<Timestamp>> {
        self.row.opt_time(column).map_err(|cause| self.corrupt(column, cause))
    }

    pub fn bool(&self, column: &'static str) -> Read<bool> {
        self.present(column, self.row.opt_bool(column))
    }

    pub fn bytes(&self, column: &'static str) -> Read<Vec<u8>> {
        self.row.bytes(column).map_err(|cause| self.corrupt(column, cause))
    }

    /// A word of an enumeration.
    pub fn word<T>(&self, column: &'static str, parse: impl Fn(&str) -> Option<T>) -> Read<T> {
        let text = self.text(column)?;
        parse(&text).ok_or_else(|| self.corrupt(column, format!("unknown word {text:?}")))
    }
}
