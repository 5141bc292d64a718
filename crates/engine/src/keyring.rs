//! The keys that deliveries are signed with, as every process knows them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::message::keys::SigningKeys;
use tashika_domain::{Changes, Timestamp, Write};
use tashika_store::{CommitError, Store, StoreError};

/// How long a process may sign with a key after another one has rotated it. A receiver that has fetched
/// the new pair by then refuses such a delivery, and gets it again.
const FRESH: Duration = Duration::from_secs(1);

pub struct KeyRing {
    store: Store,
    /// Keys that the operator has set; they are never rotated.
    fixed: Option<SigningKeys>,
    known: Mutex<Option<(SigningKeys, Timestamp)>>,
}

/// Why keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("the signing keys are set by the configuration")]
    Fixed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl KeyRing {
    #[must_use]
    pub fn new(store: Store, fixed: Option<(String, String)>) -> Self {
        let fixed = fixed.map(|(current, next)| SigningKeys { version: 1, current, next });
        Self { store, fixed, known: Mutex::default() }
    }

    /// The key to sign with.
    pub async fn current(&self, now: Timestamp) -> Result<String, StoreError> {
        Ok(self.keys(now).await?.current)
    }

    /// Both keys. Made when they are first asked for.
    pub async fn keys(&self, now: Timestamp) -> Result<SigningKeys, StoreError> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        if let Some((keys, since)) = self.lock().as_ref()
            && now < since.plus(FRESH)
        {
            return Ok(keys.clone());
        }
        let keys = match self.store.signing_keys().await? {
            Some(keys) => keys,
            None => self.first().await?,
        };
        *self.lock() = Some((keys.clone(), now));
        Ok(keys)
    }

    /// The next key becomes the current one, and there is a new next one.
    pub async fn rotate(&self, now: Timestamp) -> Result<SigningKeys, RotateError> {
        if self.fixed.is_some() {
            return Err(RotateError::Fixed);
        }
        loop {
            *self.lock() = None;
            let rotated = self.keys(now).await?.rotated(new_key()?);
            match self
                .store
                .commit(Changes::from(Write::KeysUpdate(Box::new(rotated.clone()))))
                .await
            {
                Ok(()) => {
                    *self.lock() = Some((rotated.clone(), now));
                    return Ok(rotated);
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                // Somebody else rotated at the same moment.
                Err(_) => {}
            }
        }
    }

    async fn first(&self) -> Result<SigningKeys, StoreError> {
        let keys = SigningKeys { version: 1, current: new_key()?, next: new_key()? };
        match self.store.commit(Changes::from(Write::KeysInsert(Box::new(keys.clone())))).await {
            Ok(()) => Ok(keys),
            Err(CommitError::Store(error)) => Err(error),
            // Another process was faster.
            Err(_) => Ok(self.store.signing_keys().await?.unwrap_or(keys)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(SigningKeys, Timestamp)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `sig_` and 28 letters and digits, from the operating system's randomness.
fn new_key() -> Result<String, StoreError> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut key = "sig_".to_owned();
    let mut random = [0; 64];
    while key.len() < 32 {
        getrandom::fill(&mut random)
            .map_err(|error| StoreError::Rejected(format!("no randomness: {error}")))?;
        // Bytes beyond a multiple of the alphabet would favour its first letters.
        let fair =
            random.iter().filter(|byte| usize::from(**byte) < 256 / LETTERS.len() * LETTERS.len());
        for byte in fair.take(32 - key.len()) {
            key.push(char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_look_like_the_hosted_ones_and_differ() {
        let (one, other) = (new_key().expect("a key"), new_key().expect("a key"));
        for key in [&one, &other] {
            assert!(key.starts_with("sig_") && key.len() == 32);
            assert!(key[4..].chars().all(|letter| letter.is_ascii_alphanumeric()));
        }
        assert_ne!(one, other);
    }
}
