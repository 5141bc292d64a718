//! Where a test may stand between a decision and its commit.

use std::future::Future;
use std::pin::Pin;

use tashika_domain::{Changes, Timestamp};

use crate::error::{CommitError, StoreError};

/// Called around every write of a simulated store: the place where a simulated process dies, where
/// another task gets its turn, or where the disk fails. Production stores have none.
pub trait Gate: Send + Sync {
    /// An error before a write keeps it from being made; one after it is told to the caller, although
    /// the write has been made.
    fn pass(&self, moment: Moment) -> Passing<'_>;

    /// The database's own time, where the processes that use it have other clocks.
    fn time(&self) -> Option<Timestamp> {
        None
    }

    /// A commit was made or refused. Told before [`Moment::AfterCommit`], and whoever dies there.
    fn ended(&self, changes: &Changes, result: Result<(), &CommitError>) {
        let _: &Changes = changes;
        result.ok();
    }
}

/// On the way through a [`Gate`].
pub type Passing<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    BeforeCommit,
    AfterCommit,
    /// A claim or another write of the machinery itself.
    BeforeUpkeep,
    AfterUpkeep,
}
