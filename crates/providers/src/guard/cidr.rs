//! Networks, written `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    net: IpAddr,
    prefix: u8,
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    #[error("`{0}` is not a network, such as 10.0.0.0/8 or fd00::/8")]
    Unreadable(String),
    /// Not rounded down: who writes `10.0.0.1/8` may have meant one address, and rounding would
    /// open sixteen million.
    #[error("`{given}` has bits beyond its prefix; write {meant}, or the address without a prefix")]
    Bits { given: String, meant: Cidr },
}

impl Cidr {
    /// Of a prefix that is too long, what fits counts.
    pub(super) const fn new(net: IpAddr, prefix: u8) -> Self {
        Self { net, prefix }
    }

    /// Reads a network, or a single address.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let unreadable = || CidrError::Unreadable(text.to_owned());
        let (net, prefix) = match text.split_once('/') {
            Some((net, prefix)) => (net, Some(prefix)),
            None => (text, None),
        };
        let net: IpAddr = net.parse().map_err(|_| unreadable())?;
        let width = if net.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(unreadable)?
            }
            Some(_) => return Err(unreadable()),
            None => width,
        };
        let meant = Self::new(masked(net, prefix), prefix);
        if meant.net != net {
            return Err(CidrError::Bits { given: text.to_owned(), meant });
        }
        // Addresses are compared in their canonical form, so networks have to have it too.
        Ok(match (net.to_canonical(), prefix) {
            (canonical @ IpAddr::V4(_), 96..) if net.is_ipv6() => Self::new(canonical, prefix - 96),
            _ => meant,
        })
    }

    /// Whether an address is in this network. `::ffff:10.0.0.1` is 10.0.0.1.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        addr.is_ipv4() == self.net.is_ipv4() && masked(addr, self.prefix) == self.net
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.net, self.prefix)
    }
}

/// The address with everything beyond the prefix set to zero.
fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(addr) & mask).into())
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(addr) & mask))
        }
    }
}
