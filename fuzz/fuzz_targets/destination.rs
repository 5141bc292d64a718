//! Destinations from strangers, and the guard: no panic, and a URL that both let pass leads to a public
//! address or to a name, which is vetted when it is resolved.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tashika_domain::message::address::{Destination, check_url, destination, split_query};
use tashika_providers::courier::target::Target;
use tashika_providers::guard::Guard;
use url::Host;

/// An opinion of one's own, from the standard library's words.
fn inside(addr: IpAddr) -> bool {
    match addr.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || v4.is_documentation()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6.to_ipv4().is_some_and(|v4| inside(v4.into()))
        }
    }
}

fuzz_target!(|text: &str| {
    let (pairs, rest) = split_query(text);
    assert!(pairs.len() <= text.len() + 1 && rest.len() <= text.len());
    if let Ok(Destination::Url(url)) = destination(text) {
        assert_eq!(check_url(&url), Ok(()));
    }
    if Guard::default().check_url(text).is_err() {
        return;
    }
    let target = Target::parse(text).expect("what the guard lets pass can be read");
    match target.host {
        Host::Ipv4(addr) => assert!(!inside(addr.into()), "{text}: {addr}"),
        Host::Ipv6(addr) => assert!(!inside(addr.into()), "{text}: {addr}"),
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            assert!(name != "localhost" && !name.ends_with(".localhost"), "{text}");
            assert!(name.parse::<IpAddr>().is_err(), "{text}: {name} is dialled as an address");
        }
    }
});
