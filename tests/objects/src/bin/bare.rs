//! What a client is measured by: a receive loop over the objects of a bucket that does nothing with the bytes.
//!
//! Each connection is a blocking thread that sends a request, reads the head, and receives the body into memory of its
//! own, which it uses again: at once, so that it stays in the processor's cache, or after `--keep` bytes, as who hands
//! them on has to. Over TLS, records are decrypted where they were received, and copied once. Requests are
//! not signed. A range that fails ends the program.
#![forbid(unsafe_code)]

use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore};
use std::io::{Error, ErrorKind, Result, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: bare URL/BUCKET[/PREFIX] [OPTION VALUE]...

  --conns N      connections, each with a thread (16)
  --size N       bytes of a request, at multiples of it (8388608)
  --random       in random order; in the order of the keys without
  --keep N       bytes of memory that the answers go round in (those of one request for each connection)
  --requests N   ends after as many
  --duration S   ends after as many seconds (10)
  --ca-file PEM  what the certificate of https is checked by";

/// Bytes that a head may have, and that TLS receives at a time.
const HEAD_BYTES: usize = 16 << 10;
const RECORDS_BYTES: usize = 64 << 10;
/// What a signed request has more than ours, in bytes.
const PADDING: &str = "authorization-of-the-length-that-a-signature-has-in-a-request-to-a-store-";

fn main() -> ExitCode {
    match Settings::parse(std::env::args().skip(1)).and_then(|settings| measure(&Arc::new(settings))) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bare: {error}");
            ExitCode::from(2)
        }
    }
}

struct Settings {
    host: String,
    bucket: String,
    prefix: String,
    conns: u64,
    size: u64,
    random: bool,
    keep: u64,
    requests: u64,
    duration: Duration,
    tls: Option<Arc<ClientConfig>>,
}

impl Settings {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Settings> {
        let usage = |told: String| Error::new(ErrorKind::InvalidInput, format!("{told}\n\n{USAGE}"));
        let url = arguments.next().ok_or_else(|| usage("no URL".into()))?;
        let (scheme, rest) = url.split_once("://").ok_or_else(|| usage(format!("{url:?} is no URL")))?;
        let (host, place) = rest.split_once('/').ok_or_else(|| usage(format!("{url} names no bucket")))?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let mut settings = Settings {
            host: host.to_owned(),
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            conns: 16,
            size: 8 << 20,
            random: false,
            keep: 0,
            requests: u64::MAX,
            duration: Duration::MAX,
            tls: None,
        };
        let mut roots = RootCertStore::empty();
        while let Some(name) = arguments.next() {
            if name == "--random" {
                settings.random = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| usage(format!("{name} needs a value")))?;
            let number = || value.parse::<u64>().map_err(|_| usage(format!("{name}: {value:?} is no number")));
            match name.as_str() {
                "--conns" => settings.conns = number()?.clamp(1, 4096),
                "--size" => settings.size = number()?.max(1),
                "--keep" => settings.keep = number()?,
                "--requests" => settings.requests = number()?,
                "--duration" => settings.duration = Duration::from_secs(number()?),
                "--ca-file" => {
                    let found =
                        CertificateDer::from_pem_file(&value).map_err(|error| usage(format!("{value}: {error}")))?;
                    roots.add(found).map_err(Error::other)?;
                }
                _ => return Err(usage(format!("there is no option {name}"))),
            }
        }
        if settings.requests == u64::MAX && settings.duration == Duration::MAX {
            settings.duration = Duration::from_secs(10);
        }
        if scheme == "https" {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let config = config.map_err(Error::other)?.with_root_certificates(roots).with_no_client_auth();
            settings.tls = Some(Arc::new(config));
        }
        Ok(settings)
    }
}

/// A part of an object: the path, the first byte, and how many.
type Piece = (Arc<str>, u64, u64);

fn measure(settings: &Arc<Settings>) -> Result<String> {
    let pieces = Arc::new(pieces(settings)?);
    if pieces.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "no object has a byte there"));
    }
    let next = Arc::new(AtomicU64::new(0));
    let (start, processor) = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    let threads: Vec<_> = (0..settings.conns)
        .map(|_| {
            let (settings, pieces, next) = (Arc::clone(settings), Arc::clone(&pieces), Arc::clone(&next));
            std::thread::spawn(move || receive(&settings, &pieces, &next, start))
        })
        .collect();
    let (mut requests, mut bytes) = (0, 0);
    for thread in threads {
        let (more, received) = thread.join().map_err(|_| Error::other("a thread panicked"))??;
        (requests, bytes) = (requests + more, bytes + received);
    }
    let (seconds, ended) = (start.elapsed().as_secs_f64(), clock_gettime(ClockId::ProcessCPUTime));
    // The same as the sum of the times of getrusage.
    let cpu = (ended.tv_sec - processor.tv_sec) as f64 + (ended.tv_nsec - processor.tv_nsec) as f64 / 1e9;
    Ok(format!(
        "{{\"conns\":{},\"size\":{},\"random\":{},\"tls\":{},\"requests\":{requests},\"bytes\":{bytes},\
         \"seconds\":{seconds:.3},\"mb_s\":{:.1},\"requests_s\":{:.1},\"cpu_s\":{cpu:.3},\"cpu_s_per_gb\":{:.4},\
         \"cpu_us_per_request\":{:.2}}}",
        settings.conns,
        settings.size,
        settings.random,
        settings.tls.is_some(),
        bytes as f64 / seconds / 1e6,
        requests as f64 / seconds,
        cpu / (bytes as f64 / 1e9),
        cpu / requests as f64 * 1e6,
    ))
}

/// Takes piece after piece until there are enough, and tells how many requests and bytes those were.
fn receive(settings: &Settings, pieces: &[Piece], next: &AtomicU64, start: Instant) -> Result<(u64, u64)> {
    let mut client = Client::new(settings)?;
    let size = settings.size as usize;
    let places = (settings.keep / settings.conns / settings.size).max(1) as usize;
    let mut memory = vec![0; places * size];
    let (mut requests, mut bytes) = (0, 0);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= settings.requests || start.elapsed() >= settings.duration {
            return Ok((requests, bytes));
        }
        let order = if settings.random { uringload_content::key_of(&number.to_le_bytes()) } else { number };
        let at = order % pieces.len() as u64;
        let (path, first, length) = &pieces[at as usize];
        let body = &mut memory[requests as usize % places * size..][..*length as usize];
        let got = client.get(&request(settings, path, Some((*first, first + length - 1))), body)?;
        if got != *length {
            return Err(Error::other(format!("{path}: {got} bytes instead of {length} from {first} on")));
        }
        (requests, bytes) = (requests + 1, bytes + length);
    }
}

fn request(settings: &Settings, path: &str, range: Option<(u64, u64)>) -> String {
    let range = range.map_or_else(String::new, |(first, last)| format!("Range: bytes={first}-{last}\r\n"));
    let padding = PADDING.repeat(4);
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{range}X-Padding: {padding}\r\n\r\n", settings.host)
}

/// Every piece of every object below the prefix.
fn pieces(settings: &Settings) -> Result<Vec<Piece>> {
    let mut client = Client::new(settings)?;
    let (mut pieces, mut token) = (Vec::new(), String::new());
    // A page of 1000 keys, each with what a listing says about it, has less.
    let mut body = vec![0; 4 << 20];
    loop {
        let path = format!("/{}?list-type=2&encoding-type=url&prefix={}{token}", settings.bucket, settings.prefix);
        let length = client.get(&request(settings, &path, None), &mut body)? as usize;
        let xml = String::from_utf8_lossy(&body[..length]);
        let texts = |name: &str| -> Vec<String> {
            let (open, close) = (format!("<{name}>"), format!("</{name}>"));
            let found = xml.split(&open).skip(1).filter_map(|rest| rest.split(&close).next());
            found.map(str::to_owned).collect()
        };
        for (key, size) in texts("Key").iter().zip(texts("Size")) {
            let size: u64 = size.parse().map_err(Error::other)?;
            let path: Arc<str> = format!("/{}/{key}", settings.bucket).into();
            let firsts = (0..size.div_ceil(settings.size)).map(|piece| piece * settings.size);
            pieces.extend(firsts.map(|first| (Arc::clone(&path), first, settings.size.min(size - first))));
        }
        match texts("NextContinuationToken").first() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => return Ok(pieces),
        }
    }
}

/// A connection.
struct Client {
    socket: TcpStream,
    tls: Option<Tls>,
}

impl Client {
    fn new(settings: &Settings) -> Result<Client> {
        let socket = TcpStream::connect(&settings.host)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", settings.host)))?;
        socket.set_nodelay(true)?;
        let name = settings.host.rsplit_once(':').map_or(&*settings.host, |(name, _)| name).to_owned();
        let tls = settings.tls.clone().map(|config| Tls::new(config, name)).transpose()?;
        Ok(Client { socket, tls })
    }

    /// Sends a request, receives the body into `body`, and returns its length.
    fn get(&mut self, request: &str, body: &mut [u8]) -> Result<u64> {
        match &mut self.tls {
            Some(tls) => tls.send(&self.socket, request.as_bytes())?,
            None => (&self.socket).write_all(request.as_bytes())?,
        }
        let mut head = [0; HEAD_BYTES];
        let mut have = 0;
        let end = loop {
            // Little, as what is behind the head must be copied.
            let free = have + 1024;
            let room = head.get_mut(have..free).ok_or_else(|| Error::other("the head has no end"))?;
            have += self.receive(room, false)?;
            if let Some(end) = head[..have].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = std::str::from_utf8(&head[..end]).map_err(Error::other)?;
        if !text.starts_with("HTTP/1.1 20") {
            return Err(Error::other(format!("the server answers {}", text.lines().next().unwrap_or_default())));
        }
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
        let length = length.ok_or_else(|| Error::other("the body has no length"))?;
        let body = body.get_mut(..length).ok_or_else(|| Error::other(format!("a body of {length} bytes")))?;
        let early = &head[end..have];
        body[..early.len()].copy_from_slice(early);
        let mut at = early.len();
        while at < body.len() {
            at += self.receive(&mut body[at..], true)?;
        }
        Ok(length as u64)
    }

    /// Receives some bytes, or all of `out` if the system can wait for them.
    fn receive(&mut self, out: &mut [u8], all: bool) -> Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.receive(&self.socket, out);
        }
        let flags = if all { RecvFlags::WAITALL } else { RecvFlags::empty() };
        some(recv(&self.socket, out, flags)?.0)
    }
}

/// The state of TLS with the records that were received and not yet decrypted.
struct Tls {
    connection: UnbufferedClientConnection,
    records: Vec<u8>,
    have: usize,
    /// Decrypted bytes that found no room.
    rest: Vec<u8>,
    taken: usize,
}

impl Tls {
    fn new(config: Arc<ClientConfig>, name: String) -> Result<Tls> {
        let name = ServerName::try_from(name).map_err(Error::other)?;
        let connection = UnbufferedClientConnection::new(config, name).map_err(Error::other)?;
        Ok(Tls { connection, records: vec![0; RECORDS_BYTES], have: 0, rest: Vec::new(), taken: 0 })
    }

    fn send(&mut self, socket: &TcpStream, bytes: &[u8]) -> Result<()> {
        self.drive(socket, Some(bytes), &mut []).map(|_| ())
    }

    fn receive(&mut self, socket: &TcpStream, out: &mut [u8]) -> Result<usize> {
        if self.taken < self.rest.len() {
            let length = out.len().min(self.rest.len() - self.taken);
            out[..length].copy_from_slice(&self.rest[self.taken..self.taken + length]);
            self.taken += length;
            return Ok(length);
        }
        self.drive(socket, None, out)
    }

    /// Goes on until `bytes` are sent, or until something was received into `out`.
    fn drive(&mut self, mut socket: &TcpStream, bytes: Option<&[u8]>, out: &mut [u8]) -> Result<usize> {
        let mut outgoing = Vec::new();
        loop {
            let mut got = 0;
            let mut sent = false;
            let mut blocked = false;
            let UnbufferedStatus { mut discard, state, .. } =
                self.connection.process_tls_records(&mut self.records[..self.have]);
            match state.map_err(Error::other)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(Error::other)?;
                        discard += record.discard;
                        let length = record.payload.len().min(out.len() - got);
                        out[got..got + length].copy_from_slice(&record.payload[..length]);
                        got += length;
                        if length < record.payload.len() {
                            self.rest.clear();
                            self.rest.extend_from_slice(&record.payload[length..]);
                            self.taken = 0;
                            break;
                        }
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut record = vec![0; HEAD_BYTES];
                    let length = data.encode(&mut record).map_err(Error::other)?;
                    outgoing.extend_from_slice(&record[..length]);
                }
                ConnectionState::TransmitTlsData(data) => {
                    socket.write_all(&outgoing)?;
                    outgoing.clear();
                    data.done();
                }
                ConnectionState::WriteTraffic(mut traffic) => match bytes {
                    Some(bytes) => {
                        let mut record = vec![0; bytes.len() + 1024];
                        let told = |error: EncryptError| Error::other(format!("{error:?}"));
                        let length = traffic.encrypt(bytes, &mut record).map_err(told)?;
                        socket.write_all(&record[..length])?;
                        sent = true;
                    }
                    None => blocked = true,
                },
                ConnectionState::BlockedHandshake => blocked = true,
                _ => return Err(ErrorKind::UnexpectedEof.into()),
            }
            self.records.copy_within(discard..self.have, 0);
            self.have -= discard;
            if sent || got > 0 {
                return Ok(got);
            }
            if blocked {
                self.have += some(recv(socket, &mut self.records[self.have..], RecvFlags::empty())?.0)?;
            }
        }
    }
}

/// A number of bytes that were received: none is the end.
fn some(length: usize) -> Result<usize> {
    if length == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(length) }
}
