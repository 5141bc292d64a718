//! `TASHIKA_SSRF_ALLOW`: no panic, and what is read is written and read again as the same network.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tashika_providers::guard::{Cidr, Guard};

fuzz_target!(|text: &str| {
    let Ok(cidr) = Cidr::parse(text) else { return };
    let written = cidr.to_string();
    assert_eq!(Cidr::parse(&written).as_ref(), Ok(&cidr));
    let (net, prefix) = written.split_once('/').expect("a network has a prefix");
    let first: IpAddr = net.parse().expect("an address");
    assert!(cidr.contains(first));
    let guard = Guard { allow: vec![cidr], ..Guard::default() };
    assert_eq!(guard.check(first), Ok(()), "{written}");
    // It allows nothing of the other family, unless it is everything.
    let other: IpAddr = if first.is_ipv4() { "::1" } else { "127.0.0.1" }.parse().expect("one");
    assert!(guard.check(other).is_err() || prefix == "0", "{written} allows {other}");
});
