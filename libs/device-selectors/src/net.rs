//! IP addresses and CIDR blocks. No zones, no IPv4-mapped IPv6.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::functions::IpClass;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip(IpAddr);

/// An address with a prefix length; the host bits may be set and count for equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: Ip,
    bits: u8,
}

impl Ip {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let address: IpAddr = text.parse().ok()?;
        match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
            _ => Some(Self(address)),
        }
    }

    pub(crate) fn family(self) -> i64 {
        if self.0.is_ipv4() { 4 } else { 6 }
    }

    /// Bytes of the address: 4 or 16.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.width() / 8)
    }

    fn width(self) -> u8 {
        if self.0.is_ipv4() { 32 } else { 128 }
    }

    pub(crate) fn is(self, class: IpClass) -> bool {
        match class {
            IpClass::Unspecified => self.0.is_unspecified(),
            IpClass::Loopback => self.0.is_loopback(),
            IpClass::LinkLocalUnicast => match self.0 {
                IpAddr::V4(v4) => v4.is_link_local(),
                IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
            },
            IpClass::LinkLocalMulticast => match self.0 {
                IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
                IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
            },
            IpClass::GlobalUnicast => {
                let special = self.0.is_multicast() || self.0 == IpAddr::V4(Ipv4Addr::BROADCAST);
                !special
                    && ![IpClass::Unspecified, IpClass::Loopback, IpClass::LinkLocalUnicast]
                        .iter()
                        .any(|c| self.is(*c))
            }
        }
    }

    /// The address as a number, in the low bits.
    fn number(self) -> u128 {
        match self.0 {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    fn masked(self, bits: u8) -> Self {
        match self.0 {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self(IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask)))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)))
            }
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Cidr {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address = Ip::parse(address)?;
        let canonical = bits == "0" || (bits.starts_with(|c: char| ('1'..='9').contains(&c)) && bits.len() <= 3);
        let bits: u8 = bits.parse().ok().filter(|_| canonical)?;
        (bits <= address.width()).then_some(Self { address, bits })
    }

    pub(crate) fn address(self) -> Ip {
        self.address
    }

    pub(crate) fn prefix_length(self) -> i64 {
        i64::from(self.bits)
    }

    pub(crate) fn masked(self) -> Self {
        Self {
            address: self.address.masked(self.bits),
            bits: self.bits,
        }
    }

    pub(crate) fn contains(self, ip: Ip) -> bool {
        self.address.family() == ip.family() && self.address.masked(self.bits).number() == ip.masked(self.bits).number()
    }

    pub(crate) fn contains_cidr(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// Bytes that the prefix touches, for the cost at run time.
    pub(crate) fn prefix_bytes(self) -> u64 {
        u64::from(self.bits).div_ceil(8)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
