//! Responses, and how they are sent: right, or with a fault.

use crate::fault::{Hit, Kind};
use crate::http::Stream;
use crate::server::Shared;
use crate::store::{Object, Source};
use crate::text::escape;
use rustix::net::SendFlags;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Bytes that are sent at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// The same where the rate is limited, or where bytes drip.
const PACED_BYTES: u64 = 16 << 10;
/// Longest time that an endless head goes on.
const ENDLESS: Duration = Duration::from_secs(3600);

/// What is sent behind the head.
pub enum Body {
    Text(Vec<u8>),
    /// A part of an object: its first byte and how many.
    Part(Source, u64, u64),
}

/// A response.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Body,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Text(body.into()) }
    }

    pub fn xml(status: u16, body: &str) -> Reply {
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
        Reply::new(status, text).with("Content-Type", "application/xml")
    }

    /// An error as S3 tells it.
    pub fn error(status: u16, code: &str, message: &str, resource: &str) -> Reply {
        let resource = escape(resource);
        let message = escape(message);
        Reply::xml(
            status,
            &format!(
                "<Error><Code>{code}</Code><Message>{message}</Message><Resource>{resource}</Resource>\
                 <RequestId>0</RequestId></Error>"
            ),
        )
    }

    /// `length` bytes of an object from `first` on, as a whole where `status` is 200.
    pub fn object(status: u16, object: Object, first: u64, length: u64) -> Reply {
        let range = format!("bytes {first}-{}/{}", first + length.saturating_sub(1), object.size);
        let reply = Reply { status, headers: Vec::new(), body: Body::Part(object.source, first, length) }
            .with("ETag", format!("\"{}\"", object.etag))
            .with("Last-Modified", crate::time::http(object.modified))
            .with("Accept-Ranges", "bytes")
            .with("Content-Type", "application/octet-stream");
        if status == 206 { reply.with("Content-Range", range) } else { reply }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Reply {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    fn header(&mut self, name: &str) -> Option<&mut String> {
        self.headers.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn length(&self) -> u64 {
        match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Part(_, _, length) => *length,
        }
    }

    /// Sends the response; `Ok(false)` where the connection ends with it.
    pub fn send(mut self, to: &mut Stream, bare: bool, hit: Option<&Hit>, shared: &Shared) -> io::Result<bool> {
        let kind = hit.map(|hit| hit.kind);
        if let Some(hit) = hit
            && let Some(kept) = instead(to, hit, shared)?
        {
            return Ok(kept);
        }
        let length = self.length();
        let sent = if bare { 0 } else { length };
        let framed = match kind {
            Some(Kind::NoLength) => String::new(),
            Some(Kind::Chunked) => "Transfer-Encoding: chunked\r\n".to_owned(),
            Some(Kind::TwoLengths) => format!("Content-Length: {length}\r\nContent-Length: {}\r\n", length + 1),
            // 204 and 304 have none.
            _ if matches!(self.status, 204 | 304) => String::new(),
            _ => format!("Content-Length: {length}\r\n"),
        };
        if let Some(kind) = kind {
            self.alter(kind);
        }
        let mut head = format!("HTTP/1.1 {} {}\r\nServer: uringload-objects\r\n{framed}", self.status, self.reason());
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let keeps = !matches!(kind, Some(Kind::NoLength | Kind::TwoLengths | Kind::Long | Kind::Short));
        head += if kind == Some(Kind::NoLength) { "Connection: close\r\n\r\n" } else { "\r\n" };
        // The head waits for the body, so that a client wakes up once; where the body may not come, it does not.
        match to {
            Stream::Plain(socket) if sent > 0 && hit.is_none() => send_more(&socket.0, head.as_bytes())?,
            _ => to.write_all(head.as_bytes())?,
        }
        self.send_body(to, sent, hit, shared)?;
        to.flush()?;
        Ok(keeps)
    }

    /// What a fault changes about the head.
    fn alter(&mut self, kind: Kind) {
        match kind {
            Kind::Gzip => self.headers.push(("Content-Encoding".into(), "gzip".into())),
            Kind::ChangedEtag => self.header("ETag").into_iter().for_each(|etag| etag.insert_str(1, "changed-")),
            Kind::WeakEtag => self.header("ETag").into_iter().for_each(|etag| etag.insert_str(0, "W/")),
            Kind::NoEtag => self.headers.retain(|(name, _)| name != "ETag"),
            Kind::NoStamp => self.headers.retain(|(name, _)| name != "ETag" && name != "Last-Modified"),
            Kind::BigHead => self.headers.extend((0..200).map(|at| (format!("X-Field-{at}"), "x".repeat(100)))),
            // A range of the same length at another place.
            Kind::WrongRange => {
                if let Body::Part(_, first, length) = self.body
                    && let Some(range) = self.header("Content-Range")
                {
                    let total = range.rsplit('/').next().unwrap_or_default();
                    *range = format!("bytes {}-{}/{total}", first + 1, first + length);
                }
            }
            _ => {}
        }
    }

    fn send_body(&self, to: &mut Stream, length: u64, hit: Option<&Hit>, shared: &Shared) -> io::Result<()> {
        let (kind, place) = (hit.map(|hit| hit.kind), hit.map_or(0, |hit| hit.place) % length.max(1));
        let bandwidth = shared.tuning().bandwidth;
        let drips = hit.filter(|hit| hit.kind == Kind::Drip);
        let end = if matches!(kind, Some(Kind::Short | Kind::Reset)) { place } else { length };
        let mut at = 0;
        while at < end {
            let most = if bandwidth > 0 { PACED_BYTES } else { PIECE_BYTES };
            let mut piece = if drips.is_some() { 1 } else { most.min(end - at) };
            if let Some(hit) = hit.filter(|hit| hit.kind == Kind::Stall && at <= place) {
                if at == place {
                    shared.pause(hit.pause())?;
                } else {
                    piece = piece.min(place - at);
                }
            }
            if kind == Some(Kind::Chunked) {
                to.write_all(format!("{piece:x}\r\n").as_bytes())?;
            }
            // Counted first: who has received them finds them counted.
            shared.count(|stats| stats.bytes += piece);
            self.send_piece(to, at, piece)?;
            if kind == Some(Kind::Chunked) {
                to.write_all(b"\r\n")?;
            }
            at += piece;
            if bandwidth > 0 {
                shared.pause(Duration::from_secs_f64(piece as f64 / bandwidth as f64))?;
            }
            if let Some(hit) = drips {
                shared.pause(hit.pause())?;
            }
        }
        match kind {
            Some(Kind::Chunked) => to.write_all(b"0\r\n\r\n"),
            Some(Kind::Long) => to.write_all(&[b'x'; 1000]),
            Some(Kind::Reset) => {
                // Closed with a time to linger of zero, a socket sends RST.
                rustix::net::sockopt::set_socket_linger(to.socket(), Some(Duration::ZERO))?;
                Err(ErrorKind::ConnectionReset.into())
            }
            _ => Ok(()),
        }
    }

    fn send_piece(&self, to: &mut Stream, at: u64, length: u64) -> io::Result<()> {
        let (source, start) = match &self.body {
            Body::Text(text) => return to.write_all(&text[at as usize..(at + length) as usize]),
            Body::Part(source, first, _) => (source, first + at),
        };
        match (source, &mut *to) {
            (Source::File(file), Stream::Plain(socket)) => {
                let (mut offset, end) = (start, start + length);
                while offset < end {
                    let left = (end - offset) as usize;
                    if rustix::fs::sendfile(&*socket.0, &**file, Some(&mut offset), left)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(())
            }
            (source, _) => to.write_all(&source.read(start, length as usize)?),
        }
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            204 => "No Content",
            206 => "Partial Content",
            304 => "Not Modified",
            307 => "Temporary Redirect",
            400..=499 => "Refused",
            _ => "Failed",
        }
    }
}

/// Faults that send something other than a response, or wait before it. `Some` tells whether the connection is kept.
fn instead(to: &mut Stream, hit: &Hit, shared: &Shared) -> io::Result<Option<bool>> {
    match hit.kind {
        Kind::SlowStart => shared.pause(hit.pause())?,
        Kind::Garbage => {
            let bytes: Vec<u8> = (0..64).map(|at| (hit.place >> (at % 57)) as u8).collect();
            to.write_all(&bytes)?;
            return Ok(Some(false));
        }
        Kind::Http2 => {
            // An empty SETTINGS frame, with which each server of HTTP/2 begins.
            to.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
            return Ok(Some(false));
        }
        Kind::EndlessHead => {
            let step = Duration::from_millis(hit.number.unwrap_or(1).max(1));
            to.write_all(b"HTTP/1.1 206 Partial Content\r\nX-Field: ")?;
            for _ in 0..ENDLESS.as_millis() / step.as_millis() {
                shared.pause(step)?;
                to.write_all(b"x")?;
            }
            return Ok(Some(false));
        }
        _ => {}
    }
    Ok(None)
}

fn send_more(socket: &std::net::TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += rustix::net::send(socket, &bytes[sent..], SendFlags::MORE | SendFlags::NOSIGNAL)?;
    }
    Ok(())
}
