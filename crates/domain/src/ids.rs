//! Ids that follow from what they name.
//!
//! A decision that creates rows needs ids for them, and must give the same answer when it is taken
//! again. These are made of the moment and of what is named, and look like every other id here.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::time::Timestamp;

/// A `UUIDv7` of `now` whose random part is a digest of `parts`.
#[must_use]
pub fn derived(now: Timestamp, parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that ("ab", "c") and ("a", "bc") differ.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut random = [0; 10];
    random.copy_from_slice(&digest[..10]);
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// The smallest id that can have been made at a moment: where a search by time begins.
#[must_use]
pub fn floor(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_names_give_the_same_id() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let id = derived(now, &[b"ab", b"c"]);
        assert_eq!(id, derived(now, &[b"ab", b"c"]));
        assert_ne!(id, derived(now, &[b"a", b"bc"]));
        assert_eq!(id.get_version_num(), 7);
    }
}
