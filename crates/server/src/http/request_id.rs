//! The id under which a request is found again: in the answer, in the log, in problem documents.
//!
//! Taken from `X-Request-Id` when the caller sends a sane one, else made here. The edge sets it as a
//! request extension and echoes it. It is not an idempotency key and has no meaning beyond the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Long enough for every tracing system's ids, short enough for every log line.
const MAX_LENGTH: usize = 128;

/// A request's id; a request extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only visible ASCII gets in.
        self.0.to_str().unwrap_or_default()
    }

    #[must_use]
    pub const fn header(&self) -> &HeaderValue {
        &self.0
    }

    /// The id that a caller sent, if it is 1 to 128 visible ASCII characters.
    fn sent(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(X_REQUEST_ID)?;
        let sane = (1..=MAX_LENGTH).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic);
        sane.then(|| Self(value.clone()))
    }
}

impl From<Uuid> for RequestId {
    fn from(id: Uuid) -> Self {
        let text = id.to_string();
        // A UUID's text is always a valid header.
        Self(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("unknown")))
    }
}

/// Where ids come from when the caller sends none.
#[derive(Clone)]
pub struct RequestIds {
    make: Arc<dyn Fn() -> Uuid + Send + Sync>,
}

impl RequestIds {
    /// Ids from a generator, e.g. the engine's.
    pub fn new(make: impl Fn() -> Uuid + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make) }
    }

    /// Ids from a seed and a counter: different processes need different seeds, and the same seed
    /// gives the same ids again.
    #[must_use]
    pub fn from_seed(seed: u128) -> Self {
        let count = AtomicU64::new(0);
        Self::new(move || {
            let n = count.fetch_add(1, Ordering::Relaxed);
            let mut hash = Sha256::new();
            hash.update(seed.to_be_bytes());
            hash.update(n.to_be_bytes());
            let hash = hash.finalize();
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hash[..16]);
            uuid::Builder::from_custom_bytes(bytes).into_uuid()
        })
    }

    /// The id of a request with these headers.
    #[must_use]
    pub fn of(&self, headers: &HeaderMap) -> RequestId {
        RequestId::sent(headers).unwrap_or_else(|| (self.make)().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
        headers
    }

    #[test]
    fn sane_ids_are_kept_and_others_replaced() {
        let ids = RequestIds::from_seed(1);
        assert_eq!(ids.of(&with(b"req-42_A:b/c")).as_str(), "req-42_A:b/c");
        assert_eq!(ids.of(&with(&[b'x'; 128])).as_str().len(), 128);
        for bad in [&b""[..], b"a b", "確か".as_bytes(), &[b'x'; 129], b"a\tb"] {
            let made = ids.of(&with(bad));
            assert!(Uuid::try_parse(made.as_str()).is_ok(), "{bad:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_distinct_ids_again() {
        let (one, two) = (RequestIds::from_seed(7), RequestIds::from_seed(7));
        let none = HeaderMap::new();
        let first = one.of(&none);
        assert_eq!(first, two.of(&none));
        assert_ne!(first, one.of(&none));
        assert_ne!(first, RequestIds::from_seed(8).of(&none));
    }
}
