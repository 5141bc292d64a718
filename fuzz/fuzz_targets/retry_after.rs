//! `Retry-After` from servers of other people: no panic, never longer than we are willing to wait.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tashika_fuzz::now;
use tashika_providers::http::{RETRY_AFTER_MAX, retry_after};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, value)]);
    if let Some(wait) = retry_after(&headers, now()) {
        assert!(wait <= RETRY_AFTER_MAX, "{wait:?}");
    }
});
