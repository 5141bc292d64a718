use proptest::prelude::*;

use super::*;

fn refused(addr: &str) -> Option<Kind> {
    match Guard::default().check(addr.parse().unwrap()) {
        Ok(()) => None,
        Err(Refusal::Address { kind, .. }) => Some(kind),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn each_range_is_refused_from_its_first_to_its_last_address() {
    for (first, last, kind) in [
        ("0.0.0.0", "0.255.255.255", Kind::Unspecified),
        ("10.0.0.0", "10.255.255.255", Kind::Private),
        ("100.64.0.0", "100.127.255.255", Kind::Shared),
        ("127.0.0.0", "127.255.255.255", Kind::Loopback),
        ("169.254.0.0", "169.254.255.255", Kind::LinkLocal),
        ("172.16.0.0", "172.31.255.255", Kind::Private),
        ("192.0.0.0", "192.0.0.255", Kind::Reserved),
        ("192.0.2.0", "192.0.2.255", Kind::Documentation),
        ("192.88.99.0", "192.88.99.255", Kind::Reserved),
        ("192.168.0.0", "192.168.255.255", Kind::Private),
        ("198.18.0.0", "198.19.255.255", Kind::Benchmarking),
        ("198.51.100.0", "198.51.100.255", Kind::Documentation),
        ("203.0.113.0", "203.0.113.255", Kind::Documentation),
        ("224.0.0.0", "239.255.255.255", Kind::Multicast),
        ("240.0.0.0", "255.255.255.255", Kind::Reserved),
        ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Kind::Private),
        ("100::", "100::ffff:ffff:ffff:ffff", Kind::Reserved),
        ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", Kind::Benchmarking),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Kind::Documentation),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Kind::Documentation),
        ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Kind::Private),
        ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Kind::LinkLocal),
        ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Kind::Multicast),
    ] {
        assert_eq!(refused(first), Some(kind), "{first}");
        assert_eq!(refused(last), Some(kind), "{last}");
    }
}

#[test]
fn neighbours_of_refused_ranges_are_public() {
    for addr in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "8.8.8.8",
        "168.63.129.15",
        "2000::",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2001:db7::1",
        "2001:db9::1",
        "3ffe::1",
    ] {
        assert_eq!(refused(addr), None, "{addr}");
    }
}

#[test]
fn single_addresses_and_what_carries_them_are_refused() {
    for (addr, kind) in [
        ("169.254.169.254", Kind::Metadata),
        ("168.63.129.16", Kind::Metadata),
        ("100.100.100.200", Kind::Metadata),
        ("fd00:ec2::254", Kind::Metadata),
        ("::", Kind::Unspecified),
        ("::1", Kind::Loopback),
        ("::ffff:10.0.0.1", Kind::Private),
        ("::ffff:127.0.0.1", Kind::Loopback),
        ("::ffff:0.0.0.0", Kind::Unspecified),
        ("::127.0.0.1", Kind::Loopback),
        ("::8.8.8.8", Kind::Reserved),
        ("64:ff9b::169.254.169.254", Kind::Metadata),
        ("64:ff9b::10.0.0.1", Kind::Private),
        ("2002:7f00:1::", Kind::Loopback),
        ("2002:a00:1::1", Kind::Private),
        // Teredo: a private server, then a private client (10.0.0.1 with its bits flipped).
        ("2001:0:a00:1::f7f7:f7f7", Kind::Private),
        ("2001:0:808:808::f5ff:fffe", Kind::Private),
        ("fec0::1", Kind::Private),
        ("4000::1", Kind::Reserved),
        ("5f00::1", Kind::Reserved),
        ("2001:10::1", Kind::Reserved),
    ] {
        assert_eq!(refused(addr), Some(kind), "{addr}");
    }
    // The same ways around a public address are as public as it is.
    for addr in
        ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7"]
    {
        assert_eq!(refused(addr), None, "{addr}");
    }
}

#[test]
fn what_is_allowed_is_not_refused() {
    let allow = |nets: &[&str]| Guard {
        allow: nets.iter().map(|net| Cidr::parse(net).unwrap()).collect(),
        ..Guard::default()
    };
    let check = |guard: &Guard, addr: &str| guard.check(addr.parse().unwrap()).is_ok();
    let guard = allow(&["10.1.0.0/16", "fd00::/8", "127.0.0.1"]);
    for (addr, ok) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("64:ff9b::10.1.2.3", true),
        ("10.2.0.0", false),
        ("fd12::1", true),
        ("fc00::1", false),
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("::1", false),
    ] {
        assert_eq!(check(&guard, addr), ok, "{addr}");
    }
    assert_eq!(guard.check_url("http://localhost/"), Ok(()));
    assert!(check(&allow(&["::ffff:10.0.0.0/104"]), "10.9.9.9"));

    let local = Guard { allow_loopback: true, ..Guard::default() };
    for addr in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert!(check(&local, addr), "{addr}");
    }
    assert!(!check(&local, "0.0.0.0") && !check(&local, "10.0.0.1") && !check(&local, "::"));
    assert_eq!(local.check_url("http://x.localhost/"), Ok(()));

    for url in ["http://127.0.0.1/", "http://localhost/", "http://169.254.169.254/", "nonsense"] {
        assert_eq!(Guard::off().check_url(url), Ok(()), "{url}");
    }
}

#[test]
fn urls_that_mean_an_internal_address_are_refused_however_they_are_written() {
    for (url, addr) in [
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("https://127.1:8443/x?y", "127.0.0.1"),
        ("http://2130706433", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0x7F000001/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://%31%32%37.0.0.1/", "127.0.0.1"),
        ("http://①②⑦.0.0.1/", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1"),
        ("HTTP://user:pw@10.0.0.1/", "10.0.0.1"),
        ("http://example.com@10.0.0.1/", "10.0.0.1"),
        ("http://[::1]/", "::1"),
        ("http://[::ffff:169.254.169.254]/latest", "::ffff:169.254.169.254"),
        ("http://[fd00:ec2::254]/", "fd00:ec2::254"),
        ("http://0/", "0.0.0.0"),
    ] {
        let Err(Refusal::Address { addr: found, .. }) = Guard::default().check_url(url) else {
            panic!("{url}");
        };
        assert_eq!(found, addr.parse::<IpAddr>().unwrap(), "{url}");
    }
    for url in
        ["http://localhost/", "http://LOCALHOST:80/", "http://a.localhost./", "http://localhost."]
    {
        let refused = Guard::default().check_url(url);
        assert!(matches!(refused, Err(Refusal::Localhost { .. })), "{url}");
    }
    for url in
        ["http://example.com/?u=http://127.0.0.1/", "https://notlocalhost/", "http://8.8.8.8/"]
    {
        assert_eq!(Guard::default().check_url(url), Ok(()), "{url}");
    }
}

#[test]
fn refusals_say_what_the_real_service_says() {
    let text = |url| Guard::default().check_url(url).unwrap_err().to_string();
    let start = "invalid destination url: endpoint";
    assert_eq!(text("http://[::1]/"), format!("{start} resolves to a loopback address: ::1"));
    assert_eq!(
        text("http://localhost/?token=s3cret"),
        format!("{start} resolves to a loopback address: localhost")
    );
    assert_eq!(text("ftp://x/"), format!("{start} has invalid scheme, add http:// or https://"));
}

#[test]
fn networks_are_read_strictly() {
    for (text, printed) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("fd00::/8", "fd00::/8"),
        ("::1", "::1/128"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
    ] {
        assert_eq!(Cidr::parse(text).unwrap().to_string(), printed);
    }
    for text in
        ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "x/8", "10.0.0.0/8/8"]
    {
        assert!(matches!(Cidr::parse(text), Err(CidrError::Unreadable(_))), "{text}");
    }
    assert_eq!(
        Cidr::parse("10.0.0.1/8").unwrap_err().to_string(),
        "`10.0.0.1/8` has bits beyond its prefix; write 10.0.0.0/8, or the address without a prefix"
    );
}

/// One of the ways to write an IPv4 address that resolvers and URL parsers take.
fn spelled(addr: u32, parts: usize, bases: [u8; 4]) -> String {
    let number = |value: u32, base: u8| match base {
        0 => format!("{value}"),
        1 => format!("{value:#x}"),
        2 => format!("0{value:o}"),
        _ => format!("{value:#X}").replace("0X", "0x"),
    };
    let mut pieces: Vec<String> =
        (0..parts - 1).map(|at| number(u32::from(addr.to_be_bytes()[at]), bases[at])).collect();
    let rest = if parts == 1 { addr } else { addr & (u32::MAX >> (8 * (parts - 1))) };
    pieces.push(number(rest, bases[parts - 1]));
    pieces.join(".")
}

proptest! {
    #[test]
    fn odd_spellings_are_judged_like_the_address(
        addr in prop_oneof![
            any::<u32>(),
            (0x7f00_0000_u32..0x8000_0000),
            (0x0a00_0000_u32..0x0b00_0000),
            Just(0xa9fe_a9fe_u32),
        ],
        parts in 1_usize..=4,
        bases in any::<[u8; 4]>(),
        dot in any::<bool>(),
    ) {
        let bases = bases.map(|base| base % 4);
        let host = spelled(addr, parts, bases) + if dot { "." } else { "" };
        let guard = Guard::default();
        let plain = guard.check(Ipv4Addr::from(addr).into());
        prop_assert_eq!(guard.check_url(&format!("http://{host}:8080/a")), plain, "{}", host);
    }

    #[test]
    fn a_network_contains_exactly_what_shares_its_prefix(
        net in any::<u32>(), other in any::<u32>(), prefix in 0_u8..=32,
    ) {
        let shift = 32 - u32::from(prefix);
        let masked = |addr: u32| u64::from(addr) >> shift << shift;
        let text = format!("{}/{prefix}", Ipv4Addr::from(u32::try_from(masked(net)).unwrap()));
        let cidr = Cidr::parse(&text).unwrap();
        prop_assert_eq!(cidr.to_string(), text);
        prop_assert!(cidr.contains(Ipv4Addr::from(net).into()));
        // Random pairs rarely share a prefix, so one bit at a time as well.
        for bit in 0..32 {
            let near = net ^ (1 << bit);
            prop_assert_eq!(cidr.contains(Ipv4Addr::from(near).into()), bit < shift);
        }
        prop_assert_eq!(
            cidr.contains(Ipv4Addr::from(other).into()),
            masked(net) == masked(other)
        );
        prop_assert!(cidr.contains(Ipv4Addr::from(net).to_ipv6_mapped().into()));
    }

    #[test]
    fn the_same_holds_for_ipv6(net in any::<u128>(), prefix in 0_u8..=128) {
        let shift = 128 - u32::from(prefix);
        // Not among the mapped addresses, which are IPv4 networks.
        let net = net | 1 << 127;
        let masked = if shift == 128 { 0 } else { net >> shift << shift };
        let cidr = Cidr::parse(&format!("{}/{prefix}", Ipv6Addr::from(masked))).unwrap();
        prop_assert!(cidr.contains(Ipv6Addr::from(net).into()));
        for bit in 0..128 {
            let near = Ipv6Addr::from(net ^ (1 << bit));
            prop_assert_eq!(cidr.contains(near.into()), bit < shift);
        }
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in ".*") {
        drop(Cidr::parse(&text));
        drop(Guard::default().check_url(&text));
        drop(Guard::default().check_url(&format!("http://{text}")));
    }
}
