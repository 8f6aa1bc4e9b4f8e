//! Asks one peer one thing: over a connection that waits, else over a new one.

use crate::address::Addresses;
use crate::attempt::{Attempt, Broken, Ways};
use crate::connection::{Peer, Proxy};
use crate::endpoint::Endpoint;
use crate::exchange::{Chunks, Ends, FIELDS_MAX, Head};
use crate::pool::Pool;
use crate::race::{Race, Request};
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

/// Who is asked, on whose account, and who may end it.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    pub peer: &'a Peer,
    pub endpoint: &'a Endpoint,
    pub interrupt: &'a Interrupt,
    /// Whether a new connection is wanted.
    pub is_new: bool,
}

/// An answer whose body is still to come.
pub struct Answer<'a> {
    pub head: Head,
    client: &'a Client,
    asking: Asking<'a>,
    race: Race<'a>,
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

    /// Sends a request and receives the head of the answer. A connection that waited and turns out to be dead before a
    /// byte came is given up for a new one. A request for a range may be asked by several attempts, see [`Race`].
    pub fn ask<'a>(&'a self, asking: Asking<'a>, request: Request<'a>) -> Result<Answer<'a>, Failure> {
        let Asking { peer, endpoint, interrupt, is_new } = asking;
        interrupt.check()?;
        let (addresses, trust, stall_limit) = (&self.addresses, &self.trust, self.stall_limit);
        let ways = Ways {
            peer,
            addresses,
            trust,
            proxy: self.proxy(peer),
            stall_limit,
            endpoint,
            interrupt,
            body: request.body,
        };
        let answer = |mut race: Race<'a>| {
            let head = race.head()?;
            let rest = match head.ends {
                Ends::After(0) => Rest::Ended,
                Ends::After(bytes) => Rest::Bytes(bytes),
                Ends::Chunked => Rest::Chunks(Chunks::default()),
                Ends::WithConnection => Rest::ToEnd,
            };
            Ok(Answer { head, client: self, asking, race, rest })
        };
        if let Some(connection) = if is_new { None } else { self.pool.take(peer) } {
            let first = Attempt::over(connection, (request.head)(0), ways);
            match first.and_then(|first| answer(Race::new(request, ways, first))) {
                Err(Broken::Ended { has_begun: false, error }) if !is_stall(error.as_ref()) => {}
                asked => return asked.map_err(|broken| failed(broken, peer, interrupt)),
            }
            interrupt.check()?;
        }
        let (host, port) = ways.door();
        let first = Attempt::dial(addresses.of(host, port)?, (request.head)(0), ways);
        let first = first.map_err(|failure| failed(failure.into(), peer, interrupt))?;
        answer(Race::new(request, ways, first)).map_err(|broken| failed(broken, peer, interrupt))
    }
}

/// A silence, which another connection does not cure: the request may be at work.
fn is_stall(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn failed(broken: Broken, peer: &Peer, interrupt: &Interrupt) -> Failure {
    if let Err(stopped) = interrupt.check() {
        return stopped;
    }
    match broken {
        Broken::Bad(failure) => failure,
        Broken::Ended { error: Some(error), .. } => Failure::io(format!("{} did not answer", peer.host), error),
        Broken::Ended { error: None, .. } => {
            Failure::new(Class::Storage, format!("{} ended the connection instead of answering", peer.host))
                .with_remedy("check the endpoint, its port, and whether it wants https")
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
        let (bytes, head) = self.race.receive(&mut into[..most])?;
        if let Some(head) = head {
            self.head = head;
        }
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
        let lead = self.race.lead();
        if lead.at == lead.have {
            let mut buffer = std::mem::take(&mut lead.connection.head);
            let received = self.race.receive(&mut buffer);
            let lead = self.race.lead();
            lead.connection.head = buffer;
            (lead.at, lead.have) = (0, received?.0);
            if lead.have == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let lead = self.race.lead();
        let (taken, given) = chunks.take(&lead.connection.head[lead.at..lead.have], into).map_err(io::Error::other)?;
        lead.at += taken;
        if chunks.has_ended() {
            self.rest = Rest::Ended;
        }
        Ok(given)
    }

    /// A field of the head that the head itself does not keep.
    pub fn field(&mut self, name: &str) -> Option<String> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        answer.parse(&self.race.lead().connection.head[..self.head.bytes]).ok()?;
        let field = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(std::str::from_utf8(field.value).ok()?.trim().to_owned())
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
    pub fn finish(mut self) {
        let lead = self.race.lead();
        if matches!(self.rest, Rest::Chunks(_)) && lead.at < lead.have {
            // The last chunk was read without the line that ends it, which is here already.
            let _ = self.receive(&mut [0]);
        }
        let is_stopped = self.asking.interrupt.watch(None).is_err();
        if is_stopped || !self.head.keeps || !matches!(self.rest, Rest::Ended) {
            return;
        }
        if let Some(lead) = self.race.into_lead().filter(|lead| lead.at == lead.have) {
            self.client.pool.give(self.asking.peer, lead.connection);
        }
    }

    /// Whether the body was read to its end.
    pub fn has_ended(&self) -> bool {
        matches!(self.rest, Rest::Ended)
    }
}

#[cfg(test)]
mod tests;
