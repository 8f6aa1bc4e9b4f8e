//! Asks one peer one thing: over a connection that waits, else over a new one.

use crate::address::Addresses;
use crate::connection::{Connection, HeadFailure, Peer, Proxy, Ways};
use crate::exchange::{Chunks, Ends, Head};
use crate::pool::Pool;
use crate::tls::Trust;
use std::io;
use std::time::Duration;
use uringload_core::store::Interrupt;
use uringload_core::store::{Class, Failure};

/// Bytes of a body that is collected at a time.
const PIECE_BYTES: usize = 64 << 10;

/// The connections of one dataset's stores.
#[derive(Debug)]
pub struct Client {
    pool: Pool,
    addresses: Addresses,
    /// Or why there is none, which only connections with TLS need to know.
    trust: Result<Trust, Failure>,
    proxies: Proxies,
    stall_limit: Duration,
}

/// The proxies for peers with TLS and for those without.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    pub secure: Option<Proxy>,
    pub plain: Option<Proxy>,
}

/// An answer whose body is still to come.
pub struct Answer<'a> {
    pub head: Head,
    client: &'a Client,
    peer: &'a Peer,
    connection: Connection,
    /// What of the body came with the head: from `at` to `have` of the connection's head.
    at: usize,
    have: usize,
    rest: Rest,
}

/// What of a body is to come.
enum Rest {
    Bytes(u64),
    Chunks(Chunks),
    ToEnd,
    Ended,
}

impl Client {
    pub fn new(trust: Result<Trust, Failure>, proxies: Proxies, stall_limit: Duration) -> Client {
        Client { pool: Pool::default(), addresses: Addresses::default(), trust, proxies, stall_limit }
    }

    /// The proxy that `peer` is asked through.
    pub fn proxy(&self, peer: &Peer) -> Option<&Proxy> {
        let proxy = if peer.is_secure { &self.proxies.secure } else { &self.proxies.plain };
        proxy.as_ref().filter(|proxy| proxy.serves(peer))
    }

    /// Sends `request` to `peer` and receives the head of the answer. A connection that waited and turns out to be
    /// dead before a byte came is given up for a new one; there is no other second attempt. `is_new` wants a new one.
    pub fn ask<'a>(
        &'a self,
        peer: &'a Peer,
        request: &[u8],
        is_new: bool,
        interrupt: &Interrupt,
    ) -> Result<Answer<'a>, Failure> {
        interrupt.check()?;
        let waited = if is_new { None } else { self.pool.take(peer) };
        if let Some(connection) = waited {
            interrupt.watch(Some(connection.socket()))?;
            match self.ask_over(connection, peer, request) {
                Err(HeadFailure::Ended { has_begun: false, error }) if !is_stall(error.as_ref()) => {}
                asked => return asked.map_err(|failure| failed(failure, peer, interrupt)),
            }
            interrupt.check()?;
        }
        let ways = Ways {
            addresses: &self.addresses,
            trust: &self.trust,
            proxy: self.proxy(peer),
            stall_limit: self.stall_limit,
        };
        let connection = Connection::open(peer, &ways, interrupt)?;
        self.ask_over(connection, peer, request).map_err(|failure| failed(failure, peer, interrupt))
    }

    fn ask_over<'a>(
        &'a self,
        mut connection: Connection,
        peer: &'a Peer,
        request: &[u8],
    ) -> Result<Answer<'a>, HeadFailure> {
        if let Err(error) = connection.send(request) {
            return Err(HeadFailure::Ended { has_begun: false, error: Some(error) });
        }
        let (head, have) = connection.receive_head(self.stall_limit)?;
        let rest = match head.ends {
            Ends::After(0) => Rest::Ended,
            Ends::After(bytes) => Rest::Bytes(bytes),
            Ends::Chunked => Rest::Chunks(Chunks::default()),
            Ends::WithConnection => Rest::ToEnd,
        };
        Ok(Answer { at: head.bytes, head, client: self, peer, connection, have, rest })
    }
}

/// A silence, which another connection does not cure: the request may be at work.
fn is_stall(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn failed(failure: HeadFailure, peer: &Peer, interrupt: &Interrupt) -> Failure {
    if let Err(stopped) = interrupt.check() {
        return stopped;
    }
    match failure {
        HeadFailure::Bad(failure) => failure,
        HeadFailure::Ended { error: Some(error), .. } => Failure::io(format!("{} did not answer", peer.host), error),
        HeadFailure::Ended { error: None, .. } => {
            Failure::new(Class::Storage, format!("{} ended the connection instead of answering", peer.host))
        }
    }
}

impl Answer<'_> {
    /// Receives the body into `into` until that is full or the body has ended: how many bytes, and why it broke off
    /// if it did.
    pub fn receive(&mut self, into: &mut [u8]) -> (usize, Result<(), io::Error>) {
        let mut given = 0;
        while given < into.len() && !matches!(self.rest, Rest::Ended) {
            match self.receive_some(&mut into[given..]) {
                Ok(bytes) => given += bytes,
                Err(error) => return (given, Err(error)),
            }
        }
        (given, Ok(()))
    }

    fn receive_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if matches!(self.rest, Rest::Chunks(_)) {
            return self.receive_chunks(into);
        }
        let most = match self.rest {
            Rest::Bytes(left) => usize::try_from(left).unwrap_or(usize::MAX).min(into.len()),
            _ => into.len(),
        };
        let bytes = if self.at < self.have {
            let bytes = most.min(self.have - self.at);
            into[..bytes].copy_from_slice(&self.connection.head[self.at..self.at + bytes]);
            self.at += bytes;
            bytes
        } else {
            self.connection.receive(&mut into[..most])?
        };
        match &mut self.rest {
            Rest::Bytes(_) if bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Rest::Bytes(left) => {
                *left -= bytes as u64;
                if *left == 0 {
                    self.rest = Rest::Ended;
                }
            }
            _ if bytes == 0 => self.rest = Rest::Ended,
            _ => {}
        }
        Ok(bytes)
    }

    fn receive_chunks(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Rest::Chunks(chunks) = &mut self.rest else { return Ok(0) };
        if self.at == self.have {
            let mut buffer = std::mem::take(&mut self.connection.head);
            let received = self.connection.receive(&mut buffer);
            self.connection.head = buffer;
            (self.at, self.have) = (0, received?);
            if self.have == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let (taken, given) = chunks.take(&self.connection.head[self.at..self.have], into).map_err(io::Error::other)?;
        self.at += taken;
        if chunks.has_ended() {
            self.rest = Rest::Ended;
        }
        Ok(given)
    }

    /// Receives the whole body, of at most `most` bytes.
    pub fn collect(&mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while !matches!(self.rest, Rest::Ended) {
            let at = body.len();
            if at >= most {
                return Err(Failure::new(Class::Storage, format!("the answer is longer than {most} bytes")));
            }
            let left = match self.rest {
                Rest::Bytes(left) => usize::try_from(left).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            body.resize(at + left.min(PIECE_BYTES).min(most - at), 0);
            let (bytes, ended) = self.receive(&mut body[at..]);
            body.truncate(at + bytes);
            ended.map_err(|error| Failure::io("the answer broke off", error))?;
        }
        Ok(body)
    }

    /// Hands the connection back if the body was read to its end and nothing came behind it; else it is closed.
    pub fn finish(mut self, interrupt: &Interrupt) {
        if matches!(self.rest, Rest::Chunks(_)) && self.at < self.have {
            // The last chunk was read without the line that ends it, which is here already.
            let _ = self.receive(&mut [0]);
        }
        let is_stopped = interrupt.watch(None).is_err();
        if !is_stopped && self.head.keeps && matches!(self.rest, Rest::Ended) && self.at == self.have {
            self.client.pool.give(self.peer, self.connection);
        }
    }

    /// Whether the body was read to its end.
    pub fn has_ended(&self) -> bool {
        matches!(self.rest, Rest::Ended)
    }
}
