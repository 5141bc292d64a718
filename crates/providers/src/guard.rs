//! Which addresses a caller's destination may have.
//!
//! A queue that delivers to whatever address it is given can be used to reach what only its own
//! network can reach: the database next door, the cloud's metadata service. Asked twice: by the
//! server when a message is published ([`Guard::check_url`], which looks at literal addresses and at
//! `localhost`), and by the [courier](crate::courier) when it connects ([`Guard::check`], for every
//! address that a name resolves to). Only the second is protection; the first is an early answer.
//!
//! Everything that is not a public unicast address is refused, unless the operator's list allows it.
//! Addresses that carry an IPv4 address inside (mapped, 6to4, Teredo, NAT64) are judged by it too,
//! because what is in between takes it out again. It does not resolve names, and it says nothing of
//! ports.

mod cidr;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Host;

use crate::courier::target::{BadUrl, Target};

pub use cidr::{Cidr, CidrError};

/// Who may be delivered to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Without it nothing is refused.
    pub enabled: bool,
    /// Networks that are not refused, whatever they are.
    pub allow: Vec<Cidr>,
    /// For workers on the same machine.
    pub allow_loopback: bool,
}

impl Default for Guard {
    /// The strictest: whoever forgets to say what is allowed allows nothing.
    fn default() -> Self {
        Self { enabled: true, allow: Vec::new(), allow_loopback: false }
    }
}

/// Why a destination is refused: the answer of the QStash API, word for word where it is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("invalid destination url: endpoint resolves to {kind}: {addr}")]
    Address { kind: Kind, addr: IpAddr },
    #[error("invalid destination url: endpoint resolves to {}: {host}", Kind::Loopback)]
    Localhost { host: String },
    #[error(transparent)]
    Url(#[from] BadUrl),
}

/// What is special about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unspecified,
    Loopback,
    Private,
    Shared,
    LinkLocal,
    Metadata,
    Documentation,
    Benchmarking,
    Multicast,
    Reserved,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "a shared address (carrier-grade NAT)",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud metadata address",
            Self::Documentation => "a documentation address",
            Self::Benchmarking => "a benchmarking address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

impl Guard {
    /// Refuses nothing.
    #[must_use]
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }

    /// Whether this address may be connected to.
    pub fn check(&self, addr: IpAddr) -> Result<(), Refusal> {
        // `::ffff:10.0.0.1` is 10.0.0.1 to the kernel as well.
        match self.kind(addr.to_canonical()) {
            Some(kind) => Err(Refusal::Address { kind, addr }),
            None => Ok(()),
        }
    }

    /// Whether this destination can be refused without asking a resolver.
    ///
    /// Hosts are read as browsers read them, so that `2130706433`, `0x7f.1`, `0177.0.0.1` and `127.1`
    /// are the address that they mean; the courier dials what is read here, not the text.
    pub fn check_url(&self, url: &str) -> Result<(), Refusal> {
        if !self.enabled {
            return Ok(());
        }
        match Target::parse(url)?.host {
            Host::Ipv4(addr) => self.check(addr.into()),
            Host::Ipv6(addr) => self.check(addr.into()),
            Host::Domain(host) => self.check_name(host),
        }
    }

    /// `localhost` is loopback by decree (RFC 6761), whatever a resolver says.
    fn check_name(&self, host: String) -> Result<(), Refusal> {
        let name = host.trim_end_matches('.');
        let is_local = name == "localhost" || name.ends_with(".localhost");
        let reachable = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        if is_local && reachable.into_iter().all(|addr| self.kind(addr).is_some()) {
            return Err(Refusal::Localhost { host });
        }
        Ok(())
    }

    /// Why a canonical address is refused, if it is.
    fn kind(&self, addr: IpAddr) -> Option<Kind> {
        if !self.enabled || self.allow.iter().any(|net| net.contains(addr)) {
            return None;
        }
        let kind = match addr {
            IpAddr::V4(addr) => v4(addr),
            IpAddr::V6(addr) => {
                let inner = embedded(addr).into_iter().flatten();
                let mut kinds = inner.filter_map(|inner| self.kind(inner.into()));
                return kinds.next().or_else(|| self.unless_loopback(v6(addr)));
            }
        };
        self.unless_loopback(kind)
    }

    fn unless_loopback(&self, kind: Option<Kind>) -> Option<Kind> {
        kind.filter(|kind| *kind != Kind::Loopback || !self.allow_loopback)
    }
}

/// The IANA registry of special IPv4 addresses, and one address that is not in it: Azure's agent
/// answers on a public one. Narrower nets come before those that contain them.
const V4: [([u8; 4], u8, Kind); 19] = [
    ([0, 0, 0, 0], 8, Kind::Unspecified),
    ([10, 0, 0, 0], 8, Kind::Private),
    ([100, 100, 100, 200], 32, Kind::Metadata),
    ([100, 64, 0, 0], 10, Kind::Shared),
    ([127, 0, 0, 0], 8, Kind::Loopback),
    ([168, 63, 129, 16], 32, Kind::Metadata),
    ([169, 254, 169, 254], 32, Kind::Metadata),
    ([169, 254, 0, 0], 16, Kind::LinkLocal),
    ([172, 16, 0, 0], 12, Kind::Private),
    ([192, 0, 0, 0], 24, Kind::Reserved),
    ([192, 0, 2, 0], 24, Kind::Documentation),
    // Relays of 6to4, given up in 2015.
    ([192, 88, 99, 0], 24, Kind::Reserved),
    ([192, 168, 0, 0], 16, Kind::Private),
    ([198, 18, 0, 0], 15, Kind::Benchmarking),
    ([198, 51, 100, 0], 24, Kind::Documentation),
    ([203, 0, 113, 0], 24, Kind::Documentation),
    ([233, 252, 0, 0], 24, Kind::Documentation),
    ([224, 0, 0, 0], 4, Kind::Multicast),
    ([240, 0, 0, 0], 4, Kind::Reserved),
];

fn v4(addr: Ipv4Addr) -> Option<Kind> {
    let found = V4.iter().find(|(net, prefix, _)| {
        Cidr::new(Ipv4Addr::from(*net).into(), *prefix).contains(addr.into())
    });
    found.map(|(_, _, kind)| *kind)
}

/// Only `2000::/3` has been given out, so all the rest is refused, named or not.
const V6: [([u16; 8], u8, Kind); 15] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Kind::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Kind::Loopback),
    // The operator's own translation: where the IPv4 address sits is known only to whoever runs it.
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Kind::Private),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Kind::Reserved),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, Kind::Metadata),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Kind::Private),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Kind::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Kind::Private),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Kind::Multicast),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Kind::Benchmarking),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Kind::Documentation),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Kind::Documentation),
    // ORCHIDs: names that look like addresses.
    ([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, Kind::Reserved),
    ([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, Kind::Reserved),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Kind::Reserved),
];

fn v6(addr: Ipv6Addr) -> Option<Kind> {
    let found = V6.iter().find(|(net, prefix, _)| {
        Cidr::new(Ipv6Addr::from(*net).into(), *prefix).contains(addr.into())
    });
    let global = addr.segments()[0] & 0xe000 == 0x2000 || is_nat64(addr);
    found.map(|(_, _, kind)| *kind).or_else(|| (!global).then_some(Kind::Reserved))
}

fn is_nat64(addr: Ipv6Addr) -> bool {
    addr.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
}

/// The IPv4 addresses inside an IPv6 address, where its range has any.
fn embedded(addr: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let segments = addr.segments();
    let pair = |at: usize| {
        let [a, b] = segments[at].to_be_bytes();
        let [c, d] = segments[at + 1].to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // Unspecified and loopback look like "compatible" addresses; they are not.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        // Compatible (given up), and NAT64.
        [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(pair(6)), None],
        // 6to4.
        [0x2002, ..] => [Some(pair(1)), None],
        // Teredo: the server, and the client, whose bits are flipped.
        [0x2001, 0, ..] => [Some(pair(2)), Some(Ipv4Addr::from(!u32::from(pair(6))))],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests;
