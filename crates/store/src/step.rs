//! Many callers' writes of one kind, as one PostgreSQL statement.
//!
//! Each noun describes its writes as a [`Step`]: arrays for `unnest`, and how to tell from the rows
//! that come back which of the writes did not find what they expected. The flusher runs the steps.

use std::collections::HashSet;
use std::hash::Hash;

use tokio_postgres::types::ToSql;

use crate::error::CommitError;

/// Who asked: the position of the caller's `Changes` in the batch.
pub(crate) type Owner = usize;
/// A write that did not find what it expected.
pub(crate) type Lost = (Owner, CommitError);

pub(crate) type Params<'a> = Vec<Box<dyn ToSql + Sync + Send + 'a>>;

pub(crate) struct Step<'a> {
    pub sql: &'static str,
    pub params: Params<'a>,
    #[expect(clippy::type_complexity, reason = "a closure from rows to losers, used only here")]
    pub judge: Box<dyn FnOnce(&[tokio_postgres::Row]) -> Vec<Lost> + Send + Sync + 'a>,
}

/// Compares what came back with what was asked; the rest has lost.
pub(crate) fn missing<K: Hash + Eq>(
    asked: impl ExactSizeIterator<Item = (Owner, K)>,
    returned: &[tokio_postgres::Row],
    read: impl Fn(&tokio_postgres::Row) -> K,
    lost: impl Fn(&K) -> CommitError,
) -> Vec<Lost> {
    if returned.len() == asked.len() {
        return Vec::new();
    }
    let found: HashSet<K> = returned.iter().map(read).collect();
    asked
        .filter(|(_, key)| !found.contains(key))
        .map(|(owner, key)| {
            let error = lost(&key);
            (owner, error)
        })
        .collect()
}

/// One column of an `unnest`.
pub(crate) fn column<'a, R, T>(
    rows: &[(Owner, &'a R)],
    read: impl Fn(&'a R) -> T,
) -> Box<dyn ToSql + Sync + Send + 'a>
where
    T: ToSql + Sync + Send + 'a,
{
    Box::new(rows.iter().map(|(_, row)| read(row)).collect::<Vec<T>>())
}
