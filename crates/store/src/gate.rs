//! Where a test may stand between a decision and its commit.

use std::future::Future;
use std::pin::Pin;

/// Called around every write of a simulated store: the place where a simulated process dies, or
/// where another task gets its turn. Production stores have none.
pub trait Gate: Send + Sync {
    fn pass(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    BeforeCommit,
    AfterCommit,
    /// A claim or another write of the machinery itself.
    BeforeUpkeep,
    AfterUpkeep,
}
