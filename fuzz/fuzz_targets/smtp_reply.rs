//! What mail servers say: no panic, and however the bytes arrive they say the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_providers::mail::smtp::reply::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some((reply, length))) = parse(bytes) else { return };
    assert!((200..600).contains(&reply.code));
    assert!(bytes[..length].ends_with(b"\n"), "a reply ends where a line ends");
    assert_eq!(reply.lines.len(), bytes[..length].iter().filter(|byte| **byte == b'\n').count());
    // Nothing is read before its end, and nothing behind it matters.
    for cut in 0..length {
        assert_eq!(parse(&bytes[..cut]), Ok(None));
    }
    assert_eq!(parse(&bytes[..length]), Ok(Some((reply, length))));
});
