//! Mails and batches from strangers: no panic, and an address that was taken is one and no more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tashika_domain::mail::Address;
use tashika_domain::mail::deadline::Deadlines;
use tashika_domain::mail::request::{BatchHead, MailRequest, read_recipient};

fn check(address: &str) {
    let parsed: Address = address.parse().expect("what was taken");
    assert_eq!(parsed.as_str(), address, "taken in its final form");
    assert!(address.is_ascii() && address.len() <= 254);
    assert!(!address.bytes().any(|byte| byte <= b' ' || b"<>,;:\"()[]\\".contains(&byte)));
    assert_eq!(address.matches('@').count(), 1);
    let (masked, local) = (parsed.masked(), parsed.local_part());
    // Only what stands before the @ is hidden: a domain may bear the same name, and who calls himself `f***` is not hidden by stars.
    let (shown, _) = masked.split_once('@').expect("an address, masked or not");
    assert!(local.len() < 2 || local.contains('*') || !shown.contains(local), "{masked}");
}

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(address) = text.parse::<Address>()
    {
        check(address.as_str());
    }
    let Ok(body) = serde_json::from_slice::<Value>(data) else { return };
    if let Ok(recipient) = read_recipient(&body, None) {
        check(&recipient.to);
    }
    if let Ok(mail) = MailRequest::parse(&body) {
        check(&mail.recipient.to);
    }
    drop(BatchHead::parse(&body));
    drop(Deadlines::parse(&body));
});
