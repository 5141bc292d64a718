//! `SMTP_URL`: no panic, no password in what is shown, and no plain connection to another machine.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tashika_providers::mail::smtp::{Encryption, SmtpUrl};

const PASSWORD: &str = "s3cretWORD";

fuzz_target!(|text: &str| {
    if let Ok(url) = text.parse::<SmtpUrl>()
        && url.encryption == Encryption::None
    {
        let here = url.host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback());
        assert!(here || url.host == "localhost", "{}", url.host);
    }
    // The rest of the text may be anything but the password itself.
    if text.to_ascii_lowercase().contains("s3cret") {
        return;
    }
    let shown = match format!("smtp://user:{PASSWORD}@{text}").parse::<SmtpUrl>() {
        Ok(url) => format!("{url} {url:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(PASSWORD), "{shown}");
});
