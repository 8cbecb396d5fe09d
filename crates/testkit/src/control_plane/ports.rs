//! Ports for servers that may end and start again at the same one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below it are the ports of well-known services.
const LOWEST: u16 = 10_240;

/// A port on loopback that is free now; a process is given each port once.
///
/// It is none of those that the system gives to clients. Otherwise a server that ends and comes back would
/// sometimes find its port taken by a connection, even by one that was to find out whether it is back.
pub fn free_port() -> io::Result<u16> {
    // Processes at the same time begin at different places.
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish() >> 32));
    let range = LOWEST..first_port_of_clients();
    for _ in range.clone() {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % range.len() as u64;
        let port = LOWEST + u16::try_from(next).unwrap_or_default();
        if is_free(port) {
            return Ok(port);
        }
    }
    // Clients have all ports here.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether no process listens at a port of loopback.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn first_port_of_clients() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    first.unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_not_those_of_clients() {
        let first = first_port_of_clients();
        if first < LOWEST + 1_000 {
            crate::skip(
                &format!("clients have all ports from {first} on, and servers none of their own"),
                "raise the first number in /proc/sys/net/ipv4/ip_local_port_range",
            );
            return;
        }
        let mut ports: Vec<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| *port < first), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
    }
}
