//! The keys that deliveries are signed with, and how busy deliveries are.

use tashika_domain::Lane;
use tashika_domain::message::keys::SigningKeys;
use tashika_store::StoreError;

use super::message::{Messages, QueueError};
use crate::keyring::RotateError;

impl Messages {
    pub async fn signing_keys(&self) -> Result<SigningKeys, StoreError> {
        self.keys.keys(self.clock.now()).await
    }

    /// The next key becomes the current one.
    pub async fn rotate_keys(&self) -> Result<SigningKeys, RotateError> {
        self.keys.rotate(self.clock.now()).await
    }

    /// Deliveries under way in all processes.
    pub async fn in_flight(&self) -> Result<i64, QueueError> {
        Ok(self.store.sending_count(&Lane::DELIVERIES).await?)
    }
}
