//! A value on its way into a column.
//!
//! Borrowed from its noun wherever it is a text or bytes: a row is written from where it stands, also
//! when it is large.

use std::borrow::Cow;

use rusqlite::types::{ToSqlOutput, ValueRef};
use tashika_domain::Timestamp;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub(crate) enum Cell<'a> {
    Uuid(Uuid),
    Text(Cow<'a, str>),
    Int(i64),
    Time(Timestamp),
    Bool(bool),
    Bytes(&'a [u8]),
    Null,
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<Option<&'a str>> for Cell<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::from)
    }
}

impl From<Option<Timestamp>> for Cell<'_> {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::Null, Self::Time)
    }
}

impl rusqlite::ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Uuid(id) => ToSqlOutput::Borrowed(ValueRef::Blob(id.as_bytes())),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Int(number) => ToSqlOutput::from(*number),
            Self::Time(at) => ToSqlOutput::from(at.as_micros()),
            Self::Bool(yes) => ToSqlOutput::from(*yes),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
        })
    }
}
