//! A connection to a server, with or without TLS, through a proxy or not. It blocks, and gives up where nothing moves.

use crate::address::Addresses;
use crate::exchange::{HEAD_BYTES_MAX, Head};
use crate::tls::{Session, Trust};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::net::{RecvFlags, recv};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload_core::store::Interrupt;
use uringload_core::store::{Class, Failure};

/// Longest wait for an address to answer, in all for the addresses of a host.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The same for one of several addresses.
const ADDRESS_LIMIT: Duration = Duration::from_secs(3);
/// The same for what answers at once or not at all: the metadata of a machine in a cloud.
const METADATA_LIMIT: Duration = Duration::from_secs(1);
/// Bytes received for a head at a time.
const HEAD_BYTES: usize = 4 << 10;

/// Whom a connection is to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub host: String,
    pub port: u16,
    pub is_secure: bool,
}

impl Peer {
    /// The `Host` field: the port is left out where it goes without saying.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether it is this machine.
    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is where clouds tell a machine about itself: by addresses and names that lead nowhere else.
    pub fn is_metadata(&self) -> bool {
        let is_local = self.host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_link_local());
        is_local || ["fd00:ec2::254", "fd00:ec2::23", "metadata.google.internal", "metadata"].contains(&&*self.host)
    }
}

/// A proxy, and who goes past it.
#[derive(Clone)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    /// `user:password`
    pub user: Option<String>,
    /// Hosts, and domains with what is below them, that are asked directly; `*` is all.
    pub past: Vec<String>,
}

impl Proxy {
    /// Whether `peer` is asked through it.
    pub fn serves(&self, peer: &Peer) -> bool {
        let is_past = |name: &String| {
            let name = name.trim().trim_start_matches('.');
            let is_below = || {
                let front = peer.host.len().checked_sub(name.len() + 1);
                front.is_some_and(|front| {
                    peer.host.as_bytes()[front] == b'.'
                        && peer.host.as_bytes()[front + 1..].eq_ignore_ascii_case(name.as_bytes())
                })
            };
            name == "*" || !name.is_empty() && (peer.host.eq_ignore_ascii_case(name) || is_below())
        };
        !peer.is_loopback() && !peer.is_metadata() && !self.past.iter().any(is_past)
    }

    /// The field that names the user, with its end of line.
    pub fn authorization(&self) -> String {
        let user = self.user.as_ref();
        user.map_or(String::new(), |user| format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(user)))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// What it takes to connect.
pub struct Ways<'a> {
    pub addresses: &'a Addresses,
    pub trust: &'a Result<Trust, Failure>,
    /// The proxy, if it serves the peer.
    pub proxy: Option<&'a Proxy>,
    /// How long nothing may move.
    pub stall_limit: Duration,
}

/// A connection.
pub struct Connection {
    socket: Arc<TcpStream>,
    session: Option<Box<Session>>,
    /// Where heads are received: kept from answer to answer.
    pub head: Vec<u8>,
    /// Whether it has served an exchange before.
    pub is_used: bool,
}

impl Connection {
    /// Connects to `peer`.
    pub fn open(peer: &Peer, ways: &Ways, interrupt: &Interrupt) -> Result<Connection, Failure> {
        let (host, port) = ways.proxy.map_or((&*peer.host, peer.port), |proxy| (&*proxy.host, proxy.port));
        let socket = connect(host, port, peer.is_metadata(), ways.addresses)?;
        let limit = if peer.is_metadata() { METADATA_LIMIT } else { ways.stall_limit };
        let set = socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(limit)));
        set.and_then(|()| socket.set_write_timeout(Some(limit)))
            .map_err(|error| Failure::io(format!("a socket to {host} cannot be set up"), error))?;
        let mut connection = Connection { socket: Arc::new(socket), session: None, head: Vec::new(), is_used: false };
        interrupt.watch(Some(&connection.socket))?;
        if peer.is_secure {
            if let Some(proxy) = ways.proxy {
                connection.tunnel(peer, proxy, limit)?;
            }
            let trust = ways.trust.as_ref().map_err(Failure::clone)?;
            let session = Session::open(trust, &peer.host, &*connection.socket);
            connection.session = Some(Box::new(session.map_err(|failure| interrupt.check().err().unwrap_or(failure))?));
        }
        Ok(connection)
    }

    pub fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.send(&*self.socket, bytes),
            None => (&*self.socket).write_all(bytes),
        }
    }

    /// Receives at least a byte into `into`, which has room; 0 when the peer has ended.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match &mut self.session {
                Some(session) => session.receive(&*self.socket, into),
                None => (&*self.socket).read(into),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came for too long"));
                }
                received => return received,
            }
        }
    }

    /// Receives the head of an answer into `self.head`, perhaps with the beginning of its body: the head, and how many
    /// bytes are there. A head that drips ends with `limit`.
    pub fn receive_head(&mut self, limit: Duration) -> Result<(Head, usize), HeadFailure> {
        let until = Instant::now() + limit;
        let mut have = 0;
        loop {
            if self.head.len() < have + HEAD_BYTES {
                self.head.resize(have + HEAD_BYTES, 0);
            }
            let mut into = std::mem::take(&mut self.head);
            let received = self.receive(&mut into[have..]);
            self.head = into;
            match received {
                Ok(0) => return Err(HeadFailure::Ended { has_begun: have > 0, error: None }),
                Ok(bytes) => have += bytes,
                Err(error) => return Err(HeadFailure::Ended { has_begun: have > 0, error: Some(error) }),
            }
            let room = have.min(HEAD_BYTES_MAX + HEAD_BYTES);
            if let Some(head) = Head::parse(&self.head[..room]).map_err(HeadFailure::Bad)? {
                return Ok((head, have));
            }
            if Instant::now() >= until {
                let what = format!("the head of the answer did not end within {} s", limit.as_secs());
                return Err(HeadFailure::Bad(Failure::new(Class::Storage, what)));
            }
        }
    }

    /// Whether nothing waits on it, neither bytes nor an end: what waits is not the answer to the next request.
    pub fn is_quiet(&self) -> bool {
        if self.session.as_ref().is_some_and(|session| session.has_bytes()) {
            return false;
        }
        let mut byte = [0u8; 1];
        let peeked = recv(&*self.socket, byte.as_mut_slice(), RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// Asks the proxy for a way to `peer`.
    fn tunnel(&mut self, peer: &Peer, proxy: &Proxy, limit: Duration) -> Result<(), Failure> {
        let name = format!("{}:{}", peer.host, peer.port);
        let request = format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{}\r\n", proxy.authorization());
        let broke = |error| Failure::io(format!("the proxy {} did not answer", proxy.host), error);
        self.send(request.as_bytes()).map_err(broke)?;
        let (head, have) = self.receive_head(limit).map_err(|failure| match failure {
            HeadFailure::Bad(failure) => failure,
            HeadFailure::Ended { error, .. } => broke(error.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        })?;
        match head.status {
            200 if head.is_page || have > head.bytes => {
                Err(Failure::new(Class::Storage, format!("the proxy {} answered 200 text/html", proxy.host))
                    .with_remedy("check the proxy, or name the host in NO_PROXY"))
            }
            200..=299 => Ok(()),
            407 => Err(Failure::new(Class::Refused, format!("the proxy {} asks who you are", proxy.host))
                .with_remedy("write user and password into the URL of the proxy")),
            status => Err(Failure::new(Class::Storage, format!("the proxy {} answered {status}", proxy.host))),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", self.socket.peer_addr().ok())
    }
}

/// Why there is no head.
pub enum HeadFailure {
    /// The connection ended or stalled, after a byte of it or before.
    Ended { has_begun: bool, error: Option<io::Error> },
    /// What came is no good.
    Bad(Failure),
}

fn connect(host: &str, port: u16, is_metadata: bool, addresses: &Addresses) -> Result<TcpStream, Failure> {
    let until = Instant::now() + if is_metadata { METADATA_LIMIT } else { CONNECT_LIMIT };
    let candidates = addresses.of(host, port)?;
    let mut last: Option<(SocketAddr, io::Error)> = None;
    for (at, address) in candidates.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let limit = if at + 1 == candidates.len() { left } else { left.min(ADDRESS_LIMIT) };
        if limit.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, limit) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                addresses.is_dead(host, *address);
                last = Some((*address, error));
            }
        }
    }
    let (what, error) = match last {
        Some((address, error)) => (format!("there is no connection to {host} ({address})"), error),
        None => (format!("there is no connection to {host}"), io::ErrorKind::TimedOut.into()),
    };
    Err(Failure::io(what, error).with_remedy("check the endpoint, the network and the firewall"))
}
