//! The keys that deliveries are signed with.

use uuid::Uuid;

/// The key in use, and the one that follows it. Receivers know both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeys {
    pub version: i64,
    pub current: String,
    pub next: String,
}

impl SigningKeys {
    /// There is one row.
    pub const ID: Uuid = Uuid::nil();

    /// The next key becomes the current one.
    #[must_use]
    pub fn rotated(&self, new: String) -> Self {
        Self { version: self.version + 1, current: self.next.clone(), next: new }
    }
}
