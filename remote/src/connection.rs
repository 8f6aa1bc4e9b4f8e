//! A connection to a server, with or without TLS. It waits as long as it is told to, or not at all.

use crate::tls::{Session, Trust};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use uringload_core::store::Failure;

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

/// A connection.
pub struct Connection {
    socket: Arc<TcpStream>,
    session: Option<Box<Session>>,
    /// Where heads are received: kept from answer to answer.
    pub head: Vec<u8>,
    /// Whether it has served an exchange before.
    pub is_used: bool,
    /// How long a receive waits for a byte.
    patience: Duration,
}

/// A socket, as a session receives from it.
struct Wire<'a> {
    socket: &'a TcpStream,
    waits: bool,
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let flags = if self.waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        Ok(recv(self.socket, into, flags)?.1)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection {
    /// Begins to connect to `address`, and does not wait. When the socket can be written to, [`begin`](Self::begin)
    /// says whether it has worked.
    pub fn dial(address: SocketAddr) -> io::Result<Connection> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = Arc::new(TcpStream::from(socket));
        Ok(Connection { socket, session: None, head: Vec::new(), is_used: false, patience: Duration::ZERO })
    }

    /// Sets up a socket that has connected: no send of it waits longer than `limit`, and no receive longer than
    /// `patience`.
    pub fn begin(&mut self, limit: Duration, patience: Duration) -> io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        self.socket.set_nonblocking(false)?;
        self.socket.set_nodelay(true)?;
        self.socket.set_write_timeout(Some(limit))?;
        self.be_patient(patience)
    }

    /// Waits about this long for bytes from now on. A call of the system is made where it was much less or much more.
    pub fn be_patient(&mut self, patience: Duration) -> io::Result<()> {
        if self.patience < patience || self.patience > patience * 2 {
            self.patience = patience + patience / 4;
            self.socket.set_read_timeout(Some(self.patience))?;
        }
        Ok(())
    }

    /// Begins TLS with `host`.
    pub fn secure(&mut self, trust: &Trust, host: &str) -> Result<(), Failure> {
        self.session = Some(Box::new(Session::new(trust, host)?));
        Ok(())
    }

    /// Goes on with the handshake of TLS, without waiting: whether it is through.
    pub fn shake(&mut self, host: &str) -> Result<bool, Failure> {
        let Some(session) = &mut self.session else { return Ok(true) };
        session.shake(host, Wire { socket: &self.socket, waits: false })
    }

    pub fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Sends all of `bytes`. They are a request, for which an idle connection has room.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.send(Wire { socket: &self.socket, waits: true }, bytes),
            None => (&*self.socket).write_all(bytes),
        }
    }

    /// Receives at least a byte into `into`, which has room; 0 when the peer has ended. Fails with `WouldBlock` where
    /// nothing is there, or came for as long as the connection is patient if it `waits`.
    pub fn receive(&mut self, into: &mut [u8], waits: bool) -> io::Result<usize> {
        loop {
            let mut wire = Wire { socket: &self.socket, waits };
            let received = match &mut self.session {
                Some(session) => session.receive(wire, into),
                None => wire.read(into),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
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
        matches!(peeked, Err(Errno::AGAIN))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", self.socket.peer_addr().ok())
    }
}
