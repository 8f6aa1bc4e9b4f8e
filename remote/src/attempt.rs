//! One attempt at a request, from connecting to the head of its answer, in steps that do not wait. Its stages are
//! explicit, so that several attempts of one thread go on side by side.

use crate::address::Addresses;
use crate::connection::{Connection, Peer, Proxy};
use crate::endpoint::Endpoint;
use crate::exchange::{BUSY, HEAD_BYTES_MAX, Head};
use crate::tls::Trust;
use rustix::event::PollFlags;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::vec;
use uringload_core::store::Interrupt;
use uringload_core::store::{Class, Failure};

/// Longest wait for an address to answer, in all for the addresses of a host.
const CONNECT_LIMIT: Duration = Duration::from_secs(8);
/// The same for one of several addresses.
const ADDRESS_LIMIT: Duration = Duration::from_secs(3);
/// The same for what answers at once or not at all: the metadata of a machine in a cloud.
const METADATA_LIMIT: Duration = Duration::from_secs(1);
/// Bytes received for a head at a time.
const HEAD_BYTES: usize = 4 << 10;
/// What is received for a head at most: what is behind it belongs to the body.
const HEAD_ROOM: usize = HEAD_BYTES_MAX + HEAD_BYTES;

/// What it takes to ask a peer.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    pub peer: &'a Peer,
    pub addresses: &'a Addresses,
    pub trust: &'a Result<Trust, Failure>,
    /// The proxy, if it serves the peer.
    pub proxy: Option<&'a Proxy>,
    /// How long nothing may move.
    pub stall_limit: Duration,
    pub endpoint: &'a Endpoint,
    pub interrupt: &'a Interrupt,
    /// What is sent behind the head of the request.
    pub body: &'a [u8],
}

impl Ways<'_> {
    /// The host and the port that a connection is made to.
    pub fn door(&self) -> (&str, u16) {
        self.proxy.map_or((&self.peer.host, self.peer.port), |proxy| (&proxy.host, proxy.port))
    }

    /// How long nothing may come before it is looked what to do.
    pub fn patience(&self) -> Duration {
        self.endpoint.patience().min(self.limit())
    }

    fn limit(&self) -> Duration {
        if self.peer.is_metadata() { METADATA_LIMIT } else { self.stall_limit }
    }
}

/// Why an attempt ended.
pub enum Broken {
    /// The connection ended or stalled, after a byte of the answer or before.
    Ended { has_begun: bool, error: Option<io::Error> },
    /// What came is no good.
    Bad(Failure),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Broken {
        Broken::Bad(failure)
    }
}

/// Where an attempt stands.
enum Stage {
    /// To an address; those that are left are tried behind it.
    Connecting { address: SocketAddr, left: vec::IntoIter<SocketAddr>, until: Instant },
    /// A proxy is asked for a way to the peer.
    Tunnel,
    /// TLS shakes hands.
    Shaking,
    /// The request is sent, and the head of the answer is to come.
    Asked,
    /// The body comes.
    Answered,
}

/// An attempt.
pub struct Attempt<'a> {
    ways: Ways<'a>,
    pub connection: Connection,
    stage: Stage,
    request: String,
    /// Why not all of the request was sent, though the peer may have answered.
    unsent: Option<io::Error>,
    /// The head of the answer, until it is taken.
    pub head: Option<Head>,
    /// What came with the head, or of chunks, and is not yet taken: from `at` to `have` of the connection's head.
    pub at: usize,
    pub have: usize,
    /// Since when nothing has moved: of a head, since it was asked for.
    pub since: Instant,
    /// When it is given up unless something moves.
    pub until: Instant,
    /// Whether it is a second one, which has not won.
    pub is_hedge: bool,
    /// Whether it is left alone for now, because what it brings drips.
    pub is_resting: bool,
}

impl<'a> Attempt<'a> {
    /// Over a connection that waited. The request is sent.
    pub fn over(connection: Connection, request: String, ways: Ways<'a>) -> Result<Attempt<'a>, Broken> {
        let mut attempt = Attempt::new(connection, Stage::Asked, request, ways);
        ways.interrupt.watch(Some(attempt.connection.socket()))?;
        let patience = attempt.connection.be_patient(ways.patience());
        patience.map_err(|error| Broken::Ended { has_begun: false, error: Some(error) })?;
        attempt.send()?;
        Ok(attempt)
    }

    /// Over a new connection to one of `addresses`, the first of which is tried first.
    pub fn dial(addresses: Vec<SocketAddr>, request: String, ways: Ways<'a>) -> Result<Attempt<'a>, Failure> {
        let until = Instant::now() + if ways.peer.is_metadata() { METADATA_LIMIT } else { CONNECT_LIMIT };
        let mut left = addresses.into_iter();
        let (address, connection) = dial(&mut left, &ways, None)?;
        let stage = Stage::Connecting { address, left, until };
        let mut attempt = Attempt::new(connection, stage, request, ways);
        attempt.enter_address();
        ways.interrupt.watch_also(attempt.connection.socket())?;
        Ok(attempt)
    }

    fn new(connection: Connection, stage: Stage, request: String, ways: Ways<'a>) -> Attempt<'a> {
        let (since, is_hedge, is_resting) = (Instant::now(), false, false);
        let until = since;
        let (unsent, head, at, have) = (None, None, 0, 0);
        Attempt { ways, connection, stage, request, unsent, head, at, have, since, until, is_hedge, is_resting }
    }

    /// What is waited for on the socket.
    pub fn events(&self) -> PollFlags {
        if matches!(self.stage, Stage::Connecting { .. }) { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Whether the request is sent, so that nothing is left but to receive.
    pub fn is_sent(&self) -> bool {
        matches!(self.stage, Stage::Asked | Stage::Answered)
    }

    pub fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered)
    }

    /// The address that it is connected to, or connects to.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.stage {
            Stage::Connecting { address, .. } => Some(address),
            _ => self.connection.socket().peer_addr().ok(),
        }
    }

    /// Goes on until it would wait: whether it has the head now. Where it connects, its socket has to be ready. It
    /// waits only if that is wanted, and only for an answer, as long as its connection is patient.
    pub fn advance(&mut self, waits: bool) -> Result<bool, Broken> {
        loop {
            match self.stage {
                Stage::Connecting { .. } => {
                    if !self.connected()? {
                        return Ok(false);
                    }
                }
                Stage::Tunnel => {
                    let proxy = self.ways.proxy.map_or("", |proxy| &proxy.host);
                    let received = self.receive_head(false).map_err(|broken| no_tunnel(proxy, broken))?;
                    let Some(head) = received else { return Ok(false) };
                    through(proxy, &head, self.have)?;
                    (self.at, self.have) = (0, 0);
                    self.secure()?;
                }
                Stage::Shaking => {
                    if !self.connection.shake(&self.ways.peer.host)? {
                        return Ok(false);
                    }
                    self.send()?;
                }
                Stage::Asked => {
                    let received = self.receive_head(waits);
                    let Some(head) = self.heard(received)? else { return Ok(false) };
                    self.at = head.bytes;
                    self.head = Some(head);
                    self.enter(Stage::Answered);
                    return Ok(true);
                }
                Stage::Answered => return Ok(true),
            }
        }
    }

    /// Receives a part of the body into `into`; 0 where the peer has ended. Fails with `WouldBlock` where nothing is
    /// there, or came for the patience of the connection.
    pub fn receive(&mut self, into: &mut [u8], waits: bool) -> io::Result<usize> {
        let bytes = if self.at < self.have {
            let bytes = into.len().min(self.have - self.at);
            into[..bytes].copy_from_slice(&self.connection.head[self.at..self.at + bytes]);
            self.at += bytes;
            bytes
        } else {
            self.connection.receive(into, waits)?
        };
        self.enter(Stage::Answered);
        Ok(bytes)
    }

    /// What to do when nothing has moved until now: another address, or it ends.
    pub fn expire(&mut self) -> Result<(), Broken> {
        let late = || io::Error::new(ErrorKind::TimedOut, "nothing came for too long");
        match &self.stage {
            Stage::Connecting { .. } => Ok(self.next_address(ErrorKind::TimedOut.into())?),
            Stage::Tunnel => Err(no_answer(self.ways.door().0, late()).into()),
            Stage::Shaking => {
                let what = format!("the handshake for TLS with {} broke off", self.ways.peer.host);
                Err(Failure::io(what, late()).into())
            }
            Stage::Asked if self.have > 0 => Err(self.endless().into()),
            Stage::Asked | Stage::Answered => Err(Broken::Ended { has_begun: self.have > 0, error: Some(late()) }),
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.since = Instant::now();
        self.until = self.since + self.ways.limit();
    }

    fn enter_address(&mut self) {
        let Stage::Connecting { left, until, .. } = &self.stage else { return };
        self.since = Instant::now();
        self.until = if left.len() == 0 { *until } else { (self.since + ADDRESS_LIMIT).min(*until) };
    }

    /// Looks at a socket that is ready: whether it has connected.
    fn connected(&mut self) -> Result<bool, Broken> {
        if let Err(error) = self.connection.begin(self.ways.limit(), self.ways.patience()) {
            self.next_address(error)?;
            return Ok(false);
        }
        self.ways.endpoint.note_connection();
        match self.ways.proxy.filter(|_| self.ways.peer.is_secure) {
            Some(proxy) => {
                let name = format!("{}:{}", self.ways.peer.host, self.ways.peer.port);
                let request = format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{}\r\n", proxy.authorization());
                self.connection.send(request.as_bytes()).map_err(|error| no_answer(&proxy.host, error))?;
                self.enter(Stage::Tunnel);
            }
            None if self.ways.peer.is_secure => self.secure()?,
            None => self.send()?,
        }
        Ok(true)
    }

    fn next_address(&mut self, error: io::Error) -> Result<(), Failure> {
        let Stage::Connecting { address, left, until } = &mut self.stage else { return Ok(()) };
        if Instant::now() >= *until {
            *left = Vec::new().into_iter();
        }
        let (next, connection) = dial(left, &self.ways, Some((*address, error)))?;
        *address = next;
        self.connection = connection;
        self.enter_address();
        self.ways.interrupt.watch_also(self.connection.socket())
    }

    fn secure(&mut self) -> Result<(), Failure> {
        let trust = self.ways.trust.as_ref().map_err(Failure::clone)?;
        self.connection.secure(trust, &self.ways.peer.host)?;
        self.enter(Stage::Shaking);
        Ok(())
    }

    fn send(&mut self) -> Result<(), Broken> {
        self.ways.endpoint.note_request();
        self.enter(Stage::Asked);
        let sent = self.connection.send(self.request.as_bytes());
        sent.map_err(|error| Broken::Ended { has_begun: false, error: Some(error) })?;
        if !self.ways.body.is_empty() {
            // A server may refuse before it has taken all of a body.
            self.unsent = self.connection.send(self.ways.body).err();
            self.enter(Stage::Asked);
        }
        Ok(())
    }

    /// What to make of a head that came though not all of the request was sent.
    fn heard(&mut self, received: Result<Option<Head>, Broken>) -> Result<Option<Head>, Broken> {
        match (received, self.unsent.take()) {
            (Ok(Some(head)), Some(error)) if head.status < 400 => {
                Err(Broken::Ended { has_begun: true, error: Some(error) })
            }
            (Ok(Some(head)), Some(_)) => Ok(Some(Head { keeps: false, ..head })),
            (Err(_), Some(error)) => Err(Broken::Ended { has_begun: false, error: Some(error) }),
            (received, unsent) => {
                self.unsent = unsent;
                received
            }
        }
    }

    /// Receives a head, perhaps with the beginning of its body; nothing as long as it is not complete.
    fn receive_head(&mut self, waits: bool) -> Result<Option<Head>, Broken> {
        loop {
            let head = &mut self.connection.head;
            if head.len() < self.have + HEAD_BYTES {
                head.resize(self.have + HEAD_BYTES, 0);
            }
            let mut into = std::mem::take(head);
            let received = self.connection.receive(&mut into[self.have..], waits);
            self.connection.head = into;
            let has_begun = self.have > 0;
            match received {
                Ok(0) => return Err(Broken::Ended { has_begun, error: None }),
                Ok(bytes) => self.have += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(Broken::Ended { has_begun, error: Some(error) }),
            }
            let received = &self.connection.head[..self.have.min(HEAD_ROOM)];
            if let Some(head) = Head::parse(received)? {
                return Ok(Some(head));
            }
            if Instant::now() >= self.until {
                return Err(self.endless().into());
            }
        }
    }

    fn endless(&self) -> Failure {
        let seconds = self.ways.limit().as_secs();
        Failure::new(Class::Storage, format!("the head of the answer did not end within {seconds} s"))
    }
}

/// Begins to connect to the first address that the system has a way to.
fn dial(
    left: &mut vec::IntoIter<SocketAddr>,
    ways: &Ways,
    mut last: Option<(SocketAddr, io::Error)>,
) -> Result<(SocketAddr, Connection), Failure> {
    let host = ways.door().0;
    loop {
        if let Some((address, _)) = &last {
            ways.addresses.is_dead(host, *address);
        }
        let Some(address) = left.next() else { break };
        match Connection::dial(address) {
            Ok(connection) => return Ok((address, connection)),
            Err(error) => last = Some((address, error)),
        }
    }
    let (what, error) = match last {
        Some((address, error)) => (format!("there is no connection to {host} ({address})"), error),
        None => (format!("there is no connection to {host}"), ErrorKind::TimedOut.into()),
    };
    Err(Failure::io(what, error).with_remedy("check the endpoint, the network and the firewall"))
}

/// Whether the proxy has made a way to the peer: what it says, and how many bytes came.
fn through(proxy: &str, head: &Head, have: usize) -> Result<(), Failure> {
    match head.status {
        200 if head.is_page || have > head.bytes => {
            Err(Failure::new(Class::Foreign, format!("the proxy {proxy} answered 200 text/html"))
                .with_remedy("check the proxy, or name the host in NO_PROXY"))
        }
        200..=299 => Ok(()),
        407 => Err(Failure::new(Class::Refused, format!("the proxy {proxy} asks who you are"))
            .with_remedy("write user and password into the URL of the proxy")),
        status => {
            let is_final = (400..500).contains(&status) && !BUSY.contains(&status);
            let class = if is_final { Class::Foreign } else { Class::Storage };
            let remedy = "check the proxy, or name the host in NO_PROXY";
            Err(Failure::new(class, format!("the proxy {proxy} answered {status}")).with_remedy(remedy))
        }
    }
}

fn no_answer(proxy: &str, error: io::Error) -> Failure {
    Failure::io(format!("the proxy {proxy} did not answer"), error)
}

fn no_tunnel(proxy: &str, broken: Broken) -> Failure {
    match broken {
        Broken::Bad(failure) => failure,
        Broken::Ended { error, .. } => no_answer(proxy, error.unwrap_or_else(|| ErrorKind::UnexpectedEof.into())),
    }
}
