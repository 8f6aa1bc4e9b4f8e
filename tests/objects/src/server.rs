//! The server: a thread that accepts, and one for each connection.

use crate::fault::{Hit, Kind, draw, hash};
use crate::http::{Connection, Request, Socket, Stream};
use crate::options::{Certificate, Options, Tuning};
use crate::reply::Reply;
use crate::s3;
use crate::sign::{self, Secrets};
use crate::stats::Stats;
use crate::store::{Store, lock};
use crate::text::encode;
use crate::time;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::HashMap;
use std::io::{self, BufReader, Error, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Memory of a thread for its stack.
const STACK_BYTES: usize = 512 << 10;
/// Seconds of `Retry-After` where none are given, and with `--limit`.
const RETRY_SECONDS: u64 = 1;

/// A server that runs until it is dropped.
pub struct Server {
    url: String,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What all threads share.
pub struct Shared {
    pub store: Store,
    options: Options,
    /// Since 1970, by the server's clock.
    started: u64,
    tuning: Mutex<Arc<Tuning>>,
    stats: Mutex<Stats>,
    /// Attempts at a key and range so far.
    attempts: Mutex<HashMap<u64, u64>>,
    at_once: AtomicUsize,
    connections: Mutex<HashMap<u64, Weak<TcpStream>>>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// Says which of the options cannot be met: the folder, the address, or the file of the certificate.
    pub fn start(options: Options) -> io::Result<Server> {
        let tls = options.tls.map(|kind| certificate(kind, &options)).transpose()?;
        let listen = options.listen.as_deref().unwrap_or("127.0.0.1:0");
        let listener =
            TcpListener::bind(listen).map_err(|error| Error::new(error.kind(), format!("{listen}: {error}")))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            store: Store::new(options.root.clone(), options.synthetic)?,
            started: time::now() + options.clock,
            tuning: Mutex::new(Arc::new(options.tuning.clone())),
            options,
            stats: Mutex::default(),
            attempts: Mutex::default(),
            at_once: AtomicUsize::new(0),
            connections: Mutex::default(),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, tls.as_ref(), &accepting));
        Ok(Server { url, shared, acceptor: Some(acceptor) })
    }

    /// `http://127.0.0.1:PORT`, without a slash behind it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it was asked for so far.
    pub fn stats(&self) -> Stats {
        lock(&self.shared.stats).clone()
    }

    /// Sets an option, as `/_fault` does.
    ///
    /// # Errors
    /// Says what is wrong with it, and sets nothing.
    pub fn tune(&self, name: &str, value: &str) -> Result<(), String> {
        self.shared.tune([(name, value)])
    }

    /// Ends it: no one listens any more, and its connections break off.
    pub fn stop(&mut self) {
        *lock(&self.shared.stopped) = true;
        self.shared.stop.notify_all();
        // Wakes the thread that accepts.
        let address = self.url.split("://").nth(1).unwrap_or_default();
        let _ = TcpStream::connect(address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for socket in lock(&self.shared.connections).values().filter_map(Weak::upgrade) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until the server stops, which takes a signal.
    pub fn wait(mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    pub fn tuning(&self) -> Arc<Tuning> {
        Arc::clone(&lock(&self.tuning))
    }

    fn tune<'a>(&self, options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
        let mut tuning = lock(&self.tuning);
        let mut tuned = tuning.as_ref().clone();
        options.into_iter().try_for_each(|(name, value)| tuned.set(name, value))?;
        *tuning = Arc::new(tuned);
        Ok(())
    }

    pub fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut lock(&self.stats));
    }

    /// Waits, unless the server stops: then it fails.
    pub fn pause(&self, duration: Duration) -> io::Result<()> {
        let until = Instant::now() + duration;
        let mut stopped = lock(&self.stopped);
        while !*stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            stopped = self.stop.wait_timeout(stopped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Err(ErrorKind::ConnectionAborted.into())
    }

    fn now(&self) -> u64 {
        time::now() + self.options.clock
    }

    fn refusal(&self, request: &Request) -> Option<Reply> {
        if self.options.keys.is_empty() {
            return None;
        }
        if let (Some(here), Some(named)) = (self.options.region.as_deref(), sign::region(request))
            && named != here
        {
            let message = "The bucket you are attempting to access must be addressed using the specified endpoint.";
            let moved = Reply::error(301, "PermanentRedirect", message, &request.raw_path);
            return Some(moved.with("x-amz-bucket-region", here));
        }
        let tokens: Vec<(String, u64)> =
            self.options.tokens.iter().map(|(token, seconds)| (token.clone(), self.started + seconds)).collect();
        let secrets = Secrets { keys: &self.options.keys, tokens: &tokens, now: self.now() };
        let (status, code, message) = sign::check(request, &secrets).err()?;
        Some(Reply::error(status, code, &message, &request.raw_path))
    }

    /// The fault of this attempt, if it gets one.
    fn hit(&self, request: &Request, verb: &str) -> Option<Hit> {
        let tuning = self.tuning();
        if tuning.faults.is_empty() || !tuning.verbs.iter().any(|known| known == verb) {
            return None;
        }
        // The query of a GET may be a signature, which is another one each time.
        let what = match verb {
            "GET" => hash(&request.path, request.header("range").unwrap_or_default()),
            _ => hash(&request.path, &format!("{verb} {:?}", request.query)),
        };
        let mut attempts = lock(&self.attempts);
        let attempt = attempts.entry(what).or_default();
        *attempt += 1;
        if tuning.attempts > 0 && *attempt > tuning.attempts {
            return None;
        }
        let hit = draw(&tuning.faults, tuning.seed, what, *attempt - 1)?;
        // Where a redirect has led is no further one.
        if hit.kind == Kind::Redirect && request.parameter("redirected").is_some() {
            return None;
        }
        self.count(|stats| *stats.faults.entry(hit.kind.name()).or_default() += 1);
        Some(hit)
    }
}

fn accept(listener: &TcpListener, tls: Option<&Arc<ServerConfig>>, shared: &Arc<Shared>) {
    for (number, socket) in (0..).zip(listener.incoming()) {
        if *lock(&shared.stopped) {
            return;
        }
        let Ok(socket) = socket.map(Arc::new) else {
            // As long as there are too many open files.
            let _ = shared.pause(Duration::from_millis(10));
            continue;
        };
        let _ = socket.set_nodelay(true);
        lock(&shared.connections).insert(number, Arc::downgrade(&socket));
        shared.count(|stats| stats.connections += 1);
        let (own, tls) = (Arc::clone(shared), tls.cloned());
        // Where the system gives no thread, the connection is closed.
        let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // Clients break off as they like.
            let _ = serve(socket, tls, &own);
            lock(&own.connections).remove(&number);
        });
    }
}

fn serve(socket: Arc<TcpStream>, tls: Option<Arc<ServerConfig>>, shared: &Shared) -> io::Result<()> {
    let stream = match tls {
        None => Stream::Plain(Socket(socket)),
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(Error::other)?;
            Stream::Tls(Box::new(StreamOwned::new(connection, Socket(socket))))
        }
    };
    let mut connection: Connection = BufReader::new(stream);
    while let Some(request) = Request::read(&mut connection)? {
        let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let turn = Turn::take(&shared.at_once);
        shared.count(|stats| stats.most_at_once = stats.most_at_once.max(turn.at_once as u64));
        let (reply, hit) = respond(&request, turn.at_once, shared)?;
        shared.count(|stats| *stats.statuses.entry(reply.status).or_default() += 1);
        let reply = reply.with("Date", time::http(shared.now()));
        let kept = reply.send(connection.get_mut(), request.method == "HEAD", hit.as_ref(), shared)?;
        if closes || !kept {
            break;
        }
    }
    if let Stream::Tls(stream) = connection.get_mut() {
        stream.conn.send_close_notify();
        stream.conn.complete_io(&mut stream.sock)?;
    }
    connection.get_ref().socket().shutdown(Shutdown::Write)
}

/// One of the requests that are answered now.
struct Turn<'a> {
    all: &'a AtomicUsize,
    at_once: usize,
}

impl Turn<'_> {
    fn take(all: &AtomicUsize) -> Turn<'_> {
        Turn { all, at_once: all.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

fn respond(request: &Request, at_once: usize, shared: &Shared) -> io::Result<(Reply, Option<Hit>)> {
    if let Some(command) = request.path.strip_prefix("/_") {
        return Ok((administer(command, request, shared), None));
    }
    let verb = s3::verb(request);
    shared.count(|stats| {
        *stats.requests.entry(verb).or_default() += 1;
        stats.unsigned += u64::from(!sign::is_signed(request));
    });
    let tuning = shared.tuning();
    if !tuning.delay.is_zero() {
        shared.pause(tuning.delay)?;
    }
    if tuning.limit > 0 && at_once > tuning.limit {
        return Ok((throttled(503, RETRY_SECONDS, request), None));
    }
    if let Some(refusal) = shared.refusal(request) {
        return Ok((refusal, None));
    }
    let hit = shared.hit(request, verb);
    let refusal = hit.as_ref().and_then(|hit| refused_by(hit, request));
    let reply = refusal.unwrap_or_else(|| s3::answer(request, verb, hit.as_ref().map(|hit| hit.kind), shared));
    Ok((reply, hit))
}

fn throttled(status: u16, seconds: u64, request: &Request) -> Reply {
    let told = "Please reduce your request rate.";
    Reply::error(status, "SlowDown", told, &request.raw_path).with("Retry-After", seconds.to_string())
}

/// The response of a fault that is one by itself.
fn refused_by(hit: &Hit, request: &Request) -> Option<Reply> {
    let error = |status, code, told| Reply::error(status, code, told, &request.raw_path);
    let seconds = hit.number.unwrap_or(RETRY_SECONDS);
    let coded = |(name, value): &(String, String)| format!("&{}={}", encode(name, false), encode(value, false));
    let query: String = request.query.iter().map(coded).collect();
    Some(match hit.kind {
        Kind::Throttled => throttled(503, seconds, request),
        Kind::TooMany => throttled(429, seconds, request),
        Kind::Internal => error(500, "InternalError", "We encountered an internal error. Please try again."),
        Kind::Denied => error(403, "AccessDenied", "Access Denied"),
        Kind::Expired => error(400, "ExpiredToken", "The provided token has expired."),
        Kind::Redirect => {
            let to = hit.text.as_deref().unwrap_or_default();
            let place = format!("{to}{}?redirected=1{query}", request.raw_path);
            error(307, "TemporaryRedirect", "Please re-send this request to the specified temporary endpoint.")
                .with("Location", place)
        }
        Kind::Circle => error(307, "TemporaryRedirect", "Please re-send this request to the specified endpoint.")
            .with("Location", request.raw_path.clone()),
        _ => return None,
    })
}

/// What the tests ask the server itself: `/_stats`, `/_reset`, `/_fault` and `/_replace`.
fn administer(command: &str, request: &Request, shared: &Shared) -> Reply {
    let (name, place) = command.split_once('/').unwrap_or((command, ""));
    match name {
        "stats" => {
            let json = lock(&shared.stats).json(request.parameter("ranges").is_some());
            Reply::new(200, json).with("Content-Type", "application/json")
        }
        "reset" => {
            *lock(&shared.stats) = Stats::default();
            lock(&shared.attempts).clear();
            *lock(&shared.tuning) = Arc::new(shared.options.tuning.clone());
            Reply::new(200, "")
        }
        "fault" => {
            let options = request.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            shared.tune(options).map_or_else(|error| Reply::new(400, error), |()| Reply::new(200, ""))
        }
        "replace" => match place.split_once('/') {
            Some((bucket, key)) => replace(bucket, key, request, shared),
            None => Reply::new(400, "/_replace/BUCKET/KEY"),
        },
        _ => Reply::new(404, "there are /_stats, /_reset, /_fault and /_replace"),
    }
}

/// Another object under the same key: the body, or else the same number of bytes with every bit turned around.
fn replace(bucket: &str, key: &str, request: &Request, shared: &Shared) -> Reply {
    let Ok(Some(object)) = shared.store.find(bucket, key) else {
        return Reply::new(404, "there is no such object");
    };
    let put = if request.body.is_empty() {
        object.source.read(0, object.size as usize).map(|bytes| bytes.iter().map(|byte| !byte).collect())
    } else {
        Ok(request.body.clone())
    };
    match put.and_then(|bytes| shared.store.put(bucket, key, &bytes)) {
        Ok(etag) => Reply::new(200, "").with("ETag", format!("\"{etag}\"")),
        Err(error) => Reply::new(400, error.to_string()),
    }
}

/// What the server shows over TLS, made now, for `localhost` and `127.0.0.1`.
fn certificate(kind: Certificate, options: &Options) -> io::Result<Arc<ServerConfig>> {
    let names: &[&str] = if kind == Certificate::OtherName { &["other.invalid"] } else { &["localhost", "127.0.0.1"] };
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut parameters = rcgen::CertificateParams::new(names).map_err(Error::other)?;
    if kind == Certificate::Expired {
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let key = rcgen::KeyPair::generate().map_err(Error::other)?;
    let made = parameters.self_signed(&key).map_err(Error::other)?;
    if let Some(path) = &options.cert_out {
        std::fs::write(path, made.pem())
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.der().clone()], private)
        .map_err(Error::other)?;
    Ok(Arc::new(config))
}
