//! IP addresses and CIDR ranges, as Kubernetes and the network extension have them.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Registry;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::value::Opaque;
use crate::{Type, Val};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ip(IpAddr);

/// An address with a prefix length; host bits stay as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Opaque for Ip {
    fn type_name(&self) -> &'static str {
        "net.IP"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        // An IPv4 address written in IPv6 is that IPv4 address.
        let other = other.as_any().downcast_ref::<Ip>();
        other.is_some_and(|other| self.0.to_canonical() == other.0.to_canonical())
    }
    fn to_text(&self) -> Option<String> {
        Some(print(self.0))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Cidr {
    fn type_name(&self) -> &'static str {
        "net.CIDR"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Cidr>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        Some(format!("{}/{}", print(self.address), self.prefix))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Go prints IPv4 in IPv6 as `::ffff:1.2.3.4`, other addresses as Rust does.
fn print(address: IpAddr) -> String {
    address.to_string()
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("net.IP"));
    registry.type_name(Type::opaque("net.CIDR"));
    registry.add(ip, &["ip(string): net.IP", "ip(net.CIDR): net.IP", "(net.CIDR).ip(): net.IP"]);
    registry.add(
        |context, args| Ok(Val::Bool(parse_ip(text(context, args)?).is_ok())),
        &["isIP(string): bool"],
    );
    registry.add(
        |context, args| {
            let text = text(context, args)?;
            Ok(Val::Bool(print(parse_ip(text)?) == text))
        },
        &["ip.isCanonical(string): bool"],
    );
    registry.add(
        |_, args| match address(args)? {
            IpAddr::V4(_) => Ok(Val::Int(4)),
            IpAddr::V6(_) => Ok(Val::Int(6)),
        },
        &["(net.IP).family(): int"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(address(args)?.is_unspecified())),
        &["(net.IP).isUnspecified(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(address(args)?.is_loopback())),
        &["(net.IP).isLoopback(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(is_link_local_multicast(address(args)?))),
        &["(net.IP).isLinkLocalMulticast(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(is_link_local_unicast(address(args)?))),
        &["(net.IP).isLinkLocalUnicast(): bool"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(is_global_unicast(address(args)?))),
        &["(net.IP).isGlobalUnicast(): bool"],
    );
    registry.add(
        |context, args| Ok(Arc::new(parse_cidr(text(context, args)?)?).into()),
        &["cidr(string): net.CIDR"],
    );
    registry.add(
        |context, args| Ok(Val::Bool(parse_cidr(text(context, args)?).is_ok())),
        &["isCIDR(string): bool"],
    );
    registry.add(
        contains_ip,
        &["(net.CIDR).containsIP(net.IP): bool", "(net.CIDR).containsIP(string): bool"],
    );
    registry.add(
        contains_cidr,
        &["(net.CIDR).containsCIDR(net.CIDR): bool", "(net.CIDR).containsCIDR(string): bool"],
    );
    registry.add(
        |_, args| {
            let cidr = range(&args[0])?;
            let address = masked(cidr.address, cidr.prefix);
            Ok(Arc::new(Cidr { address, prefix: cidr.prefix }).into())
        },
        &["(net.CIDR).masked(): net.CIDR"],
    );
    registry.add(
        |_, args| Ok(Val::Int(i64::from(range(&args[0])?.prefix))),
        &["(net.CIDR).prefixLength(): int"],
    );
    registry.add(
        |_, args| {
            let cidr = range(&args[0])?;
            Ok(Val::Bool(masked(cidr.address, cidr.prefix) == cidr.address))
        },
        &["(net.CIDR).isMask(): bool"],
    );
}

fn text<'a>(context: &mut Context<'_>, args: &'a [Val]) -> Result<&'a str, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Ok(text)
}

fn address(args: &[Val]) -> Result<IpAddr, EvalFailure> {
    args[0].as_opaque::<Ip>().map(|ip| ip.0).ok_or_else(no_such_overload)
}

fn range(value: &Val) -> Result<Cidr, EvalFailure> {
    value.as_opaque::<Cidr>().copied().ok_or_else(no_such_overload)
}

fn ip(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    if let Some(cidr) = args[0].as_opaque::<Cidr>() {
        return Ok(Arc::new(Ip(cidr.address)).into());
    }
    Ok(Arc::new(Ip(parse_ip(text(context, args)?)?)).into())
}

/// Strict: no zones, and no dotted IPv4 inside IPv6.
fn parse_ip(text: &str) -> Result<IpAddr, EvalFailure> {
    let problem = |why: &str| failure(format!("IP Address {text:?} parse error: {why}"));
    if text.contains('%') {
        return Err(problem("IPv6 zones are not allowed"));
    }
    let address: IpAddr = text.parse().map_err(|_| problem("unable to parse IP"))?;
    if text.contains(':') && text.contains('.') {
        return Err(problem("IPv4-mapped IPv6 address is not allowed"));
    }
    Ok(address)
}

fn parse_cidr(text: &str) -> Result<Cidr, EvalFailure> {
    let problem =
        || failure(format!("network address parse error during conversion from string: {text:?}"));
    let (address, prefix) = text.split_once('/').ok_or_else(problem)?;
    let address = parse_ip(address)?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let digits = !prefix.is_empty()
        && prefix.bytes().all(|b| b.is_ascii_digit())
        && (prefix == "0" || !prefix.starts_with('0'));
    let prefix = prefix.parse().ok().filter(|prefix| digits && *prefix <= widest);
    Ok(Cidr { address, prefix: prefix.ok_or_else(problem)? })
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

impl Cidr {
    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && masked(self.address, self.prefix) == masked(address, self.prefix)
    }
}

fn contains_ip(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let cidr = range(&args[0])?;
    let address = match args[1].as_opaque::<Ip>() {
        Some(ip) => ip.0,
        None => parse_ip(text(context, &args[1..])?)?,
    };
    Ok(Val::Bool(cidr.contains(address)))
}

fn contains_cidr(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let outer = range(&args[0])?;
    let inner = match args[1].as_opaque::<Cidr>() {
        Some(cidr) => *cidr,
        None => parse_cidr(text(context, &args[1..])?)?,
    };
    let contained =
        outer.prefix <= inner.prefix && outer.contains(masked(inner.address, inner.prefix));
    Ok(Val::Bool(contained))
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

// Go: private addresses are global unicast too.
fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local_unicast(address))
}
