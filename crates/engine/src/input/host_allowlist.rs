//! The list of hosts that rules may ask, and addresses that are not reached by a name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use kiln_text::wildcard;

/// The hosts that rules may ask. None at all unless users say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAllowlist {
    hosts: Vec<AllowedHost>,
}

/// A host, or several by wildcards, and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    name: String,
    /// The address itself, when that is what is written.
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// Why an address is not connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    name: String,
    address: IpAddr,
    why: &'static str,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RefusedAddress { name, address, why } = self;
        write!(
            f,
            "{name} leads to {address}, {why}; only a list that names the address itself allows that"
        )
    }
}

impl std::error::Error for RefusedAddress {}

impl HostAllowlist {
    /// Reads hosts, apart by commas or spaces: `api.example.com`, `*.shop.svc:8080`, `10.0.0.7`, `[::1]:80`.
    ///
    /// # Errors
    /// What cannot be a host.
    pub fn read(text: &str) -> Result<Self, String> {
        let words = text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
        Ok(HostAllowlist { hosts: words.map(AllowedHost::read).collect::<Result<_, _>>()? })
    }

    /// Adds the hosts of another list.
    #[must_use]
    pub fn and(mut self, other: &HostAllowlist) -> Self {
        self.hosts.extend(other.hosts.iter().cloned());
        self
    }

    /// Whether no host is allowed.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Why an address may not be asked, as far as its text says; none when it may.
    pub fn keeps_from(&self, address: &str) -> Option<String> {
        match address.parse::<Uri>() {
            Ok(uri) => self.permits(&uri).err(),
            Err(_) => Some(format!("{address} is not an address")),
        }
    }

    /// The entry that allows an address to be asked.
    ///
    /// # Errors
    /// Why it may not be asked.
    pub fn permits(&self, uri: &Uri) -> Result<AllowedHost, String> {
        let usual = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err(format!("{uri} is neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| format!("{uri} has no host"))?;
        if authority.as_str().contains('@') {
            return Err(format!("{uri} holds a user's name, which is not sent"));
        }
        let port = authority.port_u16().unwrap_or(usual);
        let name = authority.host().trim_matches(['[', ']']).trim_end_matches('.').to_lowercase();
        let address: Option<IpAddr> = name.parse().ok();
        if self.hosts.is_empty() {
            return Err(format!("the service {name} is not called: no services are allowed"));
        }
        let takes = |host: &&AllowedHost| {
            host.port.is_none_or(|wanted| wanted == port)
                && match (host.address, address) {
                    (Some(wanted), Some(address)) => wanted == address,
                    (Some(_), None) => false,
                    // Wildcards are for names: `*` must not allow addresses.
                    (None, Some(_)) => false,
                    (None, None) => wildcard::matches(&host.name, &name),
                }
        };
        let entry = self.hosts.iter().find(takes);
        let entry = entry.ok_or_else(|| {
            format!("the service {name}:{port} is not called: it is not on the allowlist")
        })?;
        Ok(AllowedHost { name, ..entry.clone() })
    }
}

impl AllowedHost {
    fn read(word: &str) -> Result<Self, String> {
        let wrong =
            || format!("{word:?} is not a host, such as api.example.com or *.shop.svc:8080");
        if let Ok(address) = word.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(AllowedHost {
                name: address.to_string(),
                address: Some(address),
                port: None,
            });
        }
        let (name, port) = match word.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| wrong())?)),
            None => (word, None),
        };
        let name = name.trim_matches(['[', ']']).to_lowercase();
        let address: Option<IpAddr> = name.parse().ok();
        let good = |c: char| c.is_ascii_alphanumeric() || "-._*?".contains(c);
        if address.is_none() && (name.is_empty() || !name.chars().all(good)) {
            return Err(wrong());
        }
        Ok(AllowedHost { name, address, port })
    }

    /// Whether an address that the name leads to may be connected to.
    ///
    /// # Errors
    /// Why not.
    pub fn leads_to(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let address = unmapped(address);
        if self.address.map(unmapped) == Some(address) {
            // An address that is written out is intended.
            return Ok(());
        }
        match kept(address) {
            None => Ok(()),
            Some(why) => Err(RefusedAddress { name: self.name.clone(), address, why }),
        }
    }
}

/// An address of IPv4 in the clothes of IPv6 is what it is: mapped (`::ffff:a.b.c.d`), compatible (`::a.b.c.d`), or what
/// a translator makes of it (NAT64, 6to4).
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if v6.is_loopback() || v6.is_unspecified() {
        return address;
    }
    let inner = match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, _, _, _, _, _] => [high, low].map(u16::to_be_bytes),
        _ => return address,
    };
    let [[a, b], [c, d]] = inner;
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// What is wrong with an address that a name leads to; none when nothing is.
fn kept(address: IpAddr) -> Option<&'static str> {
    let metadata = [
        IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
        // Alibaba, Azure and Oracle have some that are not of the link.
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
        // EC2 and the Pod identities of EKS, Google, Oracle.
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023)),
        IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    ];
    if metadata.contains(&address) {
        return Some("where clouds keep credentials");
    }
    if address.is_loopback() {
        return Some("which is this machine");
    }
    if address.is_unspecified() || address.is_multicast() {
        return Some("which is not the address of a host");
    }
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[0] == 0 || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    link_local.then_some("which is only good on one link")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_slips_named() {
        let read =
            HostAllowlist::read("api.example.com, *.shop.svc:8080\n10.0.0.7 [::1]:80").unwrap();
        assert_eq!(read.hosts.len(), 4);
        assert!(HostAllowlist::read("").unwrap().is_empty());
        for wrong in ["http://a", "a:b", "a/b", ":80", "a b@c"] {
            assert!(HostAllowlist::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_is_on_the_list_is_asked() {
        let list =
            HostAllowlist::read("api.example.com *.shop.svc:8080 10.0.0.7 [::1]:80 localhost")
                .unwrap();
        for (url, yes) in [
            ("http://api.example.com/a", true),
            ("https://API.example.com:8443/", true),
            ("https://api.example.com./", true),
            ("https://api.example.com.evil.org/", false),
            ("https://evil.org/api.example.com", false),
            ("https://a@api.example.com/", false),
            ("https://api.example.com@evil.org/", false),
            ("http://stock.shop.svc:8080/", true),
            ("http://stock.shop.svc/", false),
            ("http://shop.svc:8080/", false),
            ("http://10.0.0.7/", true),
            ("http://10.0.0.8/", false),
            ("http://[::1]/", true),
            ("http://[::1]:81/", false),
            ("http://localhost/", true),
            ("ftp://api.example.com/", false),
            ("/a", false),
        ] {
            let uri: Uri = url.parse().unwrap();
            assert_eq!(list.permits(&uri).is_ok(), yes, "{url}: {:?}", list.permits(&uri));
        }
        let any = HostAllowlist::read("*").unwrap();
        assert!(any.permits(&"http://a.b/".parse().unwrap()).is_ok());
        assert!(
            any.permits(&"http://169.254.169.254/".parse().unwrap()).is_err(),
            "an address is not a name"
        );
        let none = HostAllowlist::default().permits(&"http://a.b/".parse().unwrap());
        assert!(none.unwrap_err().contains("no services are allowed"));
    }

    #[test]
    fn names_do_not_lead_where_nobody_means_them_to() {
        let list = HostAllowlist::read("* 127.0.0.1 169.254.169.254:80").unwrap();
        let of = |url: &str| list.permits(&url.parse::<Uri>().unwrap()).unwrap();
        let named = of("http://inner.example.com/");
        for (address, yes) in [
            ("10.1.2.3", true),
            ("192.168.0.1", true),
            ("93.184.216.34", true),
            ("2606:2800:220:1::1", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("169.254.1.1", false),
            ("100.100.100.200", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("::", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("fd00:ec2::23", false),
            ("fd20:ce::254", false),
            ("fd00:c1::a9fe:a9fe", false),
            ("168.63.129.16", false),
            ("192.0.0.192", false),
            ("::ffff:168.63.129.16", false),
            ("::169.254.169.254", false),
            ("::192.0.0.192", false),
            ("64:ff9b::169.254.169.254", false),
            ("64:ff9b::127.0.0.1", false),
            ("64:ff9b::168.63.129.16", false),
            ("64:ff9b:1::169.254.169.254", false),
            ("2002:a9fe:a9fe::1", false),
            ("64:ff9b::93.184.216.34", true),
            ("2002:5db8:d822::1", true),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(named.leads_to(address).is_ok(), yes, "{address}");
        }
        assert!(of("http://127.0.0.1/").leads_to("127.0.0.1".parse().unwrap()).is_ok());
        assert!(of("http://169.254.169.254/").leads_to("169.254.169.254".parse().unwrap()).is_ok());
    }
}
