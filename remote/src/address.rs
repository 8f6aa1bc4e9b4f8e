//! Addresses of hosts: asked for anew every minute, without those that did not answer.

use crate::lock::{BRIEF, lock};
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure};

/// How long what a name server said is used.
const FRESH: Duration = Duration::from_secs(60);
/// How long an address that did not answer is left out.
const DEAD: Duration = Duration::from_secs(60);
/// Most addresses of a host that are used.
const ADDRESSES_MAX: usize = 64;

/// The addresses of hosts.
#[derive(Debug, Default)]
pub struct Addresses {
    hosts: Mutex<HashMap<(String, u16), Found>>,
}

#[derive(Debug, Default)]
struct Found {
    addresses: Vec<SocketAddr>,
    at: Option<Instant>,
    /// Whose turn it is: connections are spread over all.
    turn: usize,
    dead: Vec<(SocketAddr, Instant)>,
}

impl Addresses {
    /// The addresses of `host` in the order in which to try them: another first each time, dead ones only where there
    /// are no others. The system is asked in this thread; while it fails, what it said before is used.
    pub fn of(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
        self.of_by(host, port, Instant::now(), |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn of_by(
        &self,
        host: &str,
        port: u16,
        now: Instant,
        resolve: impl FnOnce(&str, u16) -> std::io::Result<Vec<SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let key = (host.to_owned(), port);
        if let Some(mut hosts) = lock(&self.hosts, BRIEF)
            && let Some(found) = hosts.get_mut(&key)
            && found.at.is_some_and(|at| now.duration_since(at) < FRESH)
        {
            return Ok(found.in_turn(now));
        }
        let resolved = resolve(host, port);
        let mut hosts = lock(&self.hosts, BRIEF);
        match (resolved, hosts.as_mut()) {
            (Ok(mut addresses), hosts) if !addresses.is_empty() => {
                addresses.truncate(ADDRESSES_MAX);
                let Some(hosts) = hosts else { return Ok(addresses) };
                let found = hosts.entry(key).or_default();
                (found.addresses, found.at) = (addresses, Some(now));
                Ok(found.in_turn(now))
            }
            (resolved, hosts) => {
                if let Some(found) = hosts.and_then(|hosts| hosts.get_mut(&key)) {
                    return Ok(found.in_turn(now));
                }
                let failure = Failure::new(Class::Storage, format!("the name {host} is not resolved"));
                let failure = failure.with_remedy("check the endpoint, the network and the name servers");
                Err(resolved.err().map_or(failure.clone(), |error| failure.with_source(error)))
            }
        }
    }

    /// For tests: these are the addresses of `host`.
    #[cfg(test)]
    pub fn put(&self, host: &str, port: u16, addresses: Vec<SocketAddr>) {
        self.of_by(host, port, Instant::now(), |_, _| Ok(addresses)).unwrap();
    }

    /// The addresses of `host` as they are known, without asking for them: those first that are not `other`.
    pub fn known(&self, host: &str, port: u16, other: Option<SocketAddr>) -> Vec<SocketAddr> {
        let Some(mut hosts) = lock(&self.hosts, BRIEF) else { return Vec::new() };
        let found = hosts.get_mut(&(host.to_owned(), port));
        let mut addresses = found.map_or_else(Vec::new, |found| found.in_turn(Instant::now()));
        addresses.sort_by_key(|address| Some(*address) == other);
        addresses
    }

    /// Notes that an address did not answer.
    pub fn is_dead(&self, host: &str, address: SocketAddr) {
        self.is_dead_at(host, address, Instant::now());
    }

    fn is_dead_at(&self, host: &str, address: SocketAddr, now: Instant) {
        let Some(mut hosts) = lock(&self.hosts, BRIEF) else { return };
        if let Some(found) = hosts.get_mut(&(host.to_owned(), address.port())) {
            found.dead.retain(|&(other, _)| other != address);
            found.dead.push((address, now));
        }
    }
}

impl Found {
    fn in_turn(&mut self, now: Instant) -> Vec<SocketAddr> {
        self.dead.retain(|&(_, since)| now.duration_since(since) < DEAD);
        self.turn = self.turn.wrapping_add(1);
        let mut addresses = self.addresses.clone();
        let count = addresses.len();
        addresses.rotate_left(self.turn % count.max(1));
        let is_dead = |address: &SocketAddr| self.dead.iter().any(|(other, _)| other == address);
        if !addresses.iter().all(is_dead) {
            addresses.retain(|address| !is_dead(address));
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    #[test]
    fn dead_ones_are_left_out_for_a_minute() {
        let addresses = Addresses::default();
        let start = Instant::now();
        let eight = || Ok((1..=8).map(address).collect());
        let at = |seconds| start + Duration::from_secs(seconds);
        let all = addresses.of_by("h", 80, start, |_, _| eight()).unwrap();
        assert_eq!(all.len(), 8);
        addresses.is_dead_at("h", address(3), start);
        for _ in 0..16 {
            assert!(!addresses.of_by("h", 80, at(59), |_, _| eight()).unwrap().contains(&address(3)));
        }
        assert!(addresses.of_by("h", 80, at(61), |_, _| eight()).unwrap().contains(&address(3)));
        (1..=8).for_each(|last| addresses.is_dead_at("h", address(last), at(61)));
        assert_eq!(addresses.of_by("h", 80, at(62), |_, _| eight()).unwrap().len(), 8, "all are dead: all are tried");
    }

    #[test]
    fn another_one_comes_first() {
        let addresses = Addresses::default();
        assert_eq!(addresses.known("h", 80, None), [], "nothing is asked for");
        addresses.of_by("h", 80, Instant::now(), |_, _| Ok((1..=3).map(address).collect())).unwrap();
        for one in (1..=3).map(address) {
            let known = addresses.known("h", 80, Some(one));
            assert_eq!((known.len(), known[2]), (3, one));
        }
    }

    #[test]
    fn each_is_first_in_turn() {
        let addresses = Addresses::default();
        let first = |_| addresses.of_by("h", 80, Instant::now(), |_, _| Ok((1..=4).map(address).collect())).unwrap()[0];
        let seen: std::collections::HashSet<SocketAddr> = (0..4).map(first).collect();
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_was_said_before_is_used_while_the_system_fails() {
        let addresses = Addresses::default();
        let start = Instant::now();
        let fails = || Err(std::io::Error::other("no network"));
        let failure = addresses.of_by("h", 80, start, |_, _| fails()).unwrap_err();
        assert_eq!(failure.class(), Class::Storage);
        assert!(failure.to_string().contains("the name h is not resolved: no network"), "{failure}");
        addresses.of_by("h", 80, start, |_, _| Ok(vec![address(1)])).unwrap();
        let later = start + FRESH * 2;
        assert_eq!(addresses.of_by("h", 80, later, |_, _| fails()).unwrap(), [address(1)]);
        assert_eq!(addresses.of_by("h", 80, later, |_, _| Ok(vec![address(2)])).unwrap(), [address(2)]);
    }
}
