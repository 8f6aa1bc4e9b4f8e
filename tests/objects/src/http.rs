//! Requests as they come over a connection, plain or with TLS.

use crate::text::decode;
use rustls::{ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Longest head of a request, in bytes.
const HEAD_BYTES: u64 = 64 << 10;
/// Longest body of a request, in bytes: it is held in memory.
const BODY_BYTES: u64 = 1 << 30;

/// One end of a connection. Whoever stops the server has another handle of it.
pub struct Socket(pub Arc<TcpStream>);

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(out)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a connection is written to.
pub enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Stream {
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => &socket.0,
            Stream::Tls(stream) => &stream.sock.0,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(out),
            Stream::Tls(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

pub type Connection = BufReader<Stream>;

/// A request with its body.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// As it came, without the query.
    pub raw_path: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The next request, or `None` where the connection ends.
    pub fn read(connection: &mut Connection) -> io::Result<Option<Request>> {
        let Some(mut request) = head(connection)? else { return Ok(None) };
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            connection.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let length = request.header("content-length").map_or(Ok(0), str::parse).map_err(|_| wrong("its length"))?;
        if request.header("transfer-encoding") == Some("chunked") {
            request.body = chunks(connection)?;
        } else if length > BODY_BYTES {
            return Err(wrong("its length"));
        } else {
            // Not all at once: a length is not yet a body.
            connection.take(length).read_to_end(&mut request.body)?;
            if request.body.len() as u64 != length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        // The chunks of a signed body lie within those of HTTP.
        if request.header("x-amz-content-sha256").is_some_and(|hash| hash.starts_with("STREAMING-")) {
            request.body = chunks(&mut &*std::mem::take(&mut request.body))?;
        }
        Ok(Some(request))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The bucket and the key, which may both be empty. The key is all behind the first `/`, whatever it looks like.
    pub fn place(&self) -> (&str, &str) {
        let path = self.path.strip_prefix('/').unwrap_or(&self.path);
        path.split_once('/').unwrap_or((path, ""))
    }
}

fn head(connection: &mut Connection) -> io::Result<Option<Request>> {
    let mut lines = Vec::new();
    let mut limited = connection.take(HEAD_BYTES);
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return if lines.is_empty() && line.is_empty() { Ok(None) } else { Err(wrong("its head")) };
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let first = lines.first().ok_or_else(|| wrong("its head"))?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0")) = (words.next(), words.next(), words.next()) else {
        return Err(wrong("its first line"));
    };
    let (raw_path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decode(raw_path).ok_or_else(|| wrong("its path"))?;
    let query = query.split('&').filter(|one| !one.is_empty()).map(|one| {
        let (name, value) = one.split_once('=').unwrap_or((one, ""));
        decode(name).zip(decode(value)).ok_or_else(|| wrong("its query"))
    });
    let headers = lines[1..].iter().map(|line| {
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header"))?;
        Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Ok(Some(Request {
        method: method.to_owned(),
        raw_path: raw_path.to_owned(),
        path,
        query: query.collect::<io::Result<_>>()?,
        headers: headers.collect::<io::Result<_>>()?,
        body: Vec::new(),
    }))
}

/// A body in chunks, of HTTP or of S3, whose chunks have a signature behind their length. What follows is dropped.
fn chunks(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        input.take(HEAD_BYTES).read_line(&mut line)?;
        let digits = line.trim_end().split(';').next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).map_err(|_| wrong("a chunk"))?;
        if length == 0 {
            break;
        }
        if body.len() as u64 + length > BODY_BYTES || input.take(length).read_to_end(&mut body)? as u64 != length {
            return Err(wrong("a chunk"));
        }
        line.clear();
        input.take(2).read_line(&mut line)?;
    }
    loop {
        let mut line = String::new();
        if input.take(HEAD_BYTES).read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            return Ok(body);
        }
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("a request whose part is wrong: {what}"))
}
