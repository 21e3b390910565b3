//! Addresses that the operator must never connect to, neither for an ISO nor as a vCenter. Both checks use this one list.
//! Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This machine.
    Loopback,
    /// This link; cloud metadata services are mostly here.
    LinkLocal,
    /// A cloud's metadata service at another address.
    Metadata,
    /// No host at all: unspecified, multicast, broadcast.
    NoHost,
}

impl Refused {
    /// Allowed in labs.
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Loopback | Self::LinkLocal)
    }

    /// Text for messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud metadata service",
            Self::NoHost => "not the address of a host",
        }
    }
}

/// Metadata services of the clouds. The first is link-local and serves most clouds. The others are the services of single
/// clouds, the credential services of ECS and EKS, and Azure's `WireServer`. Not even labs need them.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Is this address refused, and why?
#[must_use]
pub fn refused(ip: IpAddr) -> Option<Refused> {
    match ip {
        IpAddr::V4(ip) => refused_v4(ip),
        IpAddr::V6(ip) => embedded_v4(ip)
            .and_then(refused_v4)
            .or_else(|| locally_translated(ip))
            .or_else(|| refused_v6(ip)),
    }
}

/// Is this name refused, whatever it resolves to, and why?
#[must_use]
pub fn refused_name(name: &str) -> Option<Refused> {
    let name = name.trim_end_matches('.').to_lowercase();
    let is = |known: &str| {
        let below = name.strip_suffix(known);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    };
    if is("localhost") || is("localhost.localdomain") || is("localhost6.localdomain6") {
        Some(Refused::Loopback)
    } else if is("metadata.google.internal") {
        Some(Refused::Metadata)
    } else {
        None
    }
}

fn refused_v4(ip: Ipv4Addr) -> Option<Refused> {
    if METADATA_V4.contains(&ip) {
        Some(Refused::Metadata)
    } else if ip.is_loopback() {
        Some(Refused::Loopback)
    } else if ip.is_link_local() {
        Some(Refused::LinkLocal)
    } else if ip.is_unspecified() || ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast() {
        Some(Refused::NoHost)
    } else {
        None
    }
}

fn refused_v6(ip: Ipv6Addr) -> Option<Refused> {
    if METADATA_V6.contains(&ip) {
        Some(Refused::Metadata)
    } else if ip.is_loopback() {
        Some(Refused::Loopback)
    } else if ip.is_unicast_link_local() {
        Some(Refused::LinkLocal)
    } else if ip.is_unspecified() || ip.is_multicast() {
        Some(Refused::NoHost)
    } else {
        None
    }
}

/// The IPv4 address inside a mapped, compatible, translated (SIIT, NAT64's well-known prefix) or 6to4 address.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

/// Why an address of NAT64's prefix for local use (64:ff9b:1::/48, RFC 8215) is refused.
///
/// A site may use a longer prefix than /48. The length decides where the IPv4 address is (RFC 6052, 2.2), and the address
/// does not show it. So the function checks every possible place. It ignores results that name no host: the zeros of another
/// prefix length look like that.
fn locally_translated(ip: Ipv6Addr) -> Option<Refused> {
    if !matches!(ip.segments(), [0x64, 0xff9b, 1, ..]) {
        return None;
    }
    let o = ip.octets();
    let places = [
        [o[6], o[7], o[9], o[10]],
        [o[7], o[9], o[10], o[11]],
        [o[9], o[10], o[11], o[12]],
        [o[12], o[13], o[14], o[15]],
    ];
    let why = places.map(|octets| refused_v4(Ipv4Addr::from(octets)));
    let mut found = why.into_iter().flatten();
    found.find(|why| *why != Refused::NoHost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_this_machine_everywhere_are_refused() {
        for (name, wanted) in [
            ("localhost", Some(Refused::Loopback)),
            ("LocalHost.", Some(Refused::Loopback)),
            ("x.localhost", Some(Refused::Loopback)),
            ("metadata.google.internal", Some(Refused::Metadata)),
            ("notlocalhost", None),
            ("localhost.example.com", None),
        ] {
            assert_eq!(refused_name(name), wanted, "{name}");
        }
    }

    #[test]
    fn inner_addresses_are_refused_in_every_notation() {
        for (text, wanted) in [
            ("127.0.0.1", Some(Refused::Loopback)),
            ("127.8.8.8", Some(Refused::Loopback)),
            ("::1", Some(Refused::Loopback)),
            ("::ffff:127.0.0.1", Some(Refused::Loopback)),
            ("::127.0.0.1", Some(Refused::Loopback)),
            ("64:ff9b::7f00:1", Some(Refused::Loopback)),
            ("64:ff9b::a9fe:a9fe", Some(Refused::Metadata)),
            ("64:ff9b:1::7f00:1", Some(Refused::Loopback)),
            ("64:ff9b:1::a9fe:a9fe", Some(Refused::Metadata)),
            ("64:ff9b:1:fffe::a9fe:a9fe", Some(Refused::Metadata)),
            ("64:ff9b:1:7f00:0:100::", Some(Refused::Loopback)),
            ("64:ff9b:1:a9fe:a9:fe00::", Some(Refused::Metadata)),
            ("64:ff9b:1:a9:fe:a9fe::", Some(Refused::Metadata)),
            ("64:ff9b:1:0:a9:fea9:fe00:0", Some(Refused::Metadata)),
            ("64:ff9b:1::a9fe:101", Some(Refused::LinkLocal)),
            ("::ffff:0:7f00:1", Some(Refused::Loopback)),
            ("::ffff:0:a9fe:a9fe", Some(Refused::Metadata)),
            ("168.63.129.16", Some(Refused::Metadata)),
            ("::ffff:168.63.129.16", Some(Refused::Metadata)),
            ("64:ff9b::a83f:8110", Some(Refused::Metadata)),
            ("2002:7f00:1::", Some(Refused::Loopback)),
            ("169.254.1.1", Some(Refused::LinkLocal)),
            ("fe80::1", Some(Refused::LinkLocal)),
            ("169.254.169.254", Some(Refused::Metadata)),
            ("::ffff:169.254.169.254", Some(Refused::Metadata)),
            ("fd00:ec2::254", Some(Refused::Metadata)),
            ("fd00:ec2::23", Some(Refused::Metadata)),
            ("169.254.170.2", Some(Refused::Metadata)),
            ("169.254.170.23", Some(Refused::Metadata)),
            ("0.0.0.0", Some(Refused::NoHost)),
            ("::", Some(Refused::NoHost)),
            ("224.0.0.1", Some(Refused::NoHost)),
            ("255.255.255.255", Some(Refused::NoHost)),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("203.0.113.5", None),
            ("168.63.129.17", None),
            ("64:ff9b::cb00:7105", None),
            ("64:ff9b:1::cb00:7105", None),
            ("64:ff9b:1:fffe::cb00:7105", None),
            ("::ffff:0:cb00:7105", None),
            ("fd12::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(refused(text.parse().expect(text)), wanted, "{text}");
        }
    }
}
