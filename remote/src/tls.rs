//! TLS over a socket, by rustls without its buffers: what arrives is decrypted where it lies and copied once, to where
//! it belongs.

use crate::lock::{BRIEF, lock};
use rustls::Error::InvalidCertificate as Invalid;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CertificateError as Wrong, ClientConfig, RootCertStore};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex};
use uringload_core::store::{Class, Failure};

/// What is received at a time: two of the longest records.
const INCOMING_BYTES: usize = 36 << 10;
/// The longest that a message of a handshake may make it.
const INCOMING_BYTES_MAX: usize = 256 << 10;
/// What is encrypted at a time: a record.
const RECORD_BYTES: usize = 16 << 10;
/// What to do where TLS is not spoken.
const NO_TLS: &str = "check the port, or whether the endpoint is http://";
/// What a record is longer than what it holds, at most.
const OVERHEAD_BYTES: usize = 256;

/// Whose certificates are good.
pub struct Trust {
    roots: Arc<RootCertStore>,
    /// With the sessions to resume, which stand behind a lock of their own: each process has its own.
    config: Mutex<Option<(u32, Arc<ClientConfig>)>>,
}

impl Trust {
    /// The system's certificates, and those of a file in PEM.
    ///
    /// # Errors
    ///
    /// The file cannot be read or has no certificate, or there are none at all.
    pub fn load(ca_file: Option<&Path>) -> Result<Trust, Failure> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca_file {
            let told = |why: String| {
                let what = format!("the certificates of {} cannot be used", path.display());
                Failure::new(Class::Invalid, what).with_source(io::Error::other(why))
            };
            let read = CertificateDer::pem_file_iter(path).map_err(|error| told(error.to_string()))?;
            let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| told(error.to_string()))?;
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(told("there is none in PEM".to_owned()));
            }
        }
        if roots.is_empty() {
            let failure = Failure::new(Class::Unavailable, "this system has no certificates to trust");
            return Err(failure.with_remedy("install the package ca-certificates, or give ca_file="));
        }
        Ok(Trust { roots: Arc::new(roots), config: Mutex::new(None) })
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let mut kept = lock(&self.config, BRIEF);
        if let Some((of, config)) = kept.as_deref().and_then(Option::as_ref)
            && *of == process::id()
        {
            return Ok(config.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| broken("the versions of TLS", error))?;
        let mut config = config.with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        if let Some(kept) = kept.as_deref_mut() {
            *kept = Some((process::id(), config.clone()));
        }
        Ok(config)
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trust({} roots)", self.roots.len())
    }
}

/// One session.
pub struct Session {
    state: UnbufferedClientConnection,
    /// Received and not yet decrypted: from `start` to `end`.
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted and not yet taken: from `taken` on.
    plain: Vec<u8>,
    taken: usize,
    /// Encrypted and not yet sent.
    outgoing: Vec<u8>,
    has_ended: bool,
}

/// What a step of a session wants next.
enum Next {
    /// Bytes from the peer.
    Bytes,
    /// Nothing: another step is possible.
    Step,
    /// Nothing: what was asked for is there, or what can be sent may be.
    Ready,
}

impl Session {
    /// One with `host`, which has still to [`shake`](Session::shake) hands.
    pub fn new(trust: &Trust, host: &str) -> Result<Session, Failure> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| {
            Failure::new(Class::Invalid, format!("{host} is no name for a certificate")).with_source(error)
        })?;
        let state = UnbufferedClientConnection::new(trust.config()?, name).map_err(|error| broken(host, error))?;
        Ok(Session {
            state,
            incoming: vec![0; INCOMING_BYTES],
            start: 0,
            end: 0,
            plain: Vec::new(),
            taken: 0,
            outgoing: Vec::new(),
            has_ended: false,
        })
    }

    /// Shakes hands over `socket`: whether that is done, or it has to go on when more bytes are there.
    pub fn shake<S: Read + Write>(&mut self, host: &str, mut socket: S) -> Result<bool, Failure> {
        loop {
            match self.step(&mut socket, &mut [], &mut 0).map_err(|error| told(host, error))? {
                Next::Ready => return Ok(true),
                Next::Step => continue,
                Next::Bytes => {}
            }
            match self.fill(&mut socket) {
                Ok(0) => {
                    let what = format!("{host} ended the connection while shaking hands for TLS");
                    return Err(Failure::new(Class::Storage, what).with_remedy(NO_TLS));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(told(host, error)),
            }
        }
    }

    /// Sends all of `bytes`.
    pub fn send<S: Read + Write>(&mut self, mut socket: S, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(RECORD_BYTES) {
            let mut step = 0;
            while !self.encrypt(piece)? {
                // Of what arrived before, such as tickets, only a few steps stand between.
                self.step(&mut socket, &mut [], &mut 0)?;
                step += 1;
                if step > 64 {
                    return Err(io::Error::other("TLS does not become ready to send"));
                }
            }
        }
        self.flush(&mut socket)
    }

    /// Receives into `into`, at least a byte; 0 when the peer has ended in order. Fails with `WouldBlock` where the
    /// socket does, and goes on later: what came is kept.
    pub fn receive<S: Read + Write>(&mut self, mut socket: S, into: &mut [u8]) -> io::Result<usize> {
        let mut given = self.take(into);
        while given < into.len() {
            match self.step(&mut socket, into, &mut given)? {
                Next::Step => {}
                Next::Bytes | Next::Ready if given > 0 || self.has_ended => break,
                // Who cut the connection may not be the peer, so this is no end of a body.
                Next::Bytes | Next::Ready if self.fill(&mut socket)? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Next::Bytes | Next::Ready => {}
            }
        }
        Ok(given)
    }

    /// Whether bytes of the peer are here that no one asked for.
    pub fn has_bytes(&self) -> bool {
        self.taken < self.plain.len() || self.start < self.end || self.has_ended
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let bytes = (self.plain.len() - self.taken).min(into.len());
        into[..bytes].copy_from_slice(&self.plain[self.taken..self.taken + bytes]);
        self.taken += bytes;
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        bytes
    }

    /// Encrypts a piece, if the session is ready to.
    fn encrypt(&mut self, piece: &[u8]) -> io::Result<bool> {
        let UnbufferedStatus { discard, state, .. } =
            self.state.process_tls_records(&mut self.incoming[self.start..self.end]);
        let is_ready = match state.map_err(io::Error::other)? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let at = self.outgoing.len();
                self.outgoing.resize(at + piece.len() + OVERHEAD_BYTES, 0);
                let bytes = traffic.encrypt(piece, &mut self.outgoing[at..]).map_err(io::Error::other)?;
                self.outgoing.truncate(at + bytes);
                true
            }
            ConnectionState::ReadTraffic(mut traffic) => {
                // It came before it was asked for, and is kept.
                while let Some(record) = traffic.next_record() {
                    self.plain.extend_from_slice(record.map_err(io::Error::other)?.payload);
                }
                false
            }
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(&mut self.outgoing, |room| data.encode(room))?;
                false
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                false
            }
            _ => false,
        };
        self.start += discard;
        Ok(is_ready)
    }

    /// One step: decrypts into `into` from `given` on what is there.
    fn step<S: Read + Write>(&mut self, socket: &mut S, into: &mut [u8], given: &mut usize) -> io::Result<Next> {
        let UnbufferedStatus { mut discard, state, .. } =
            self.state.process_tls_records(&mut self.incoming[self.start..self.end]);
        let next = match state.map_err(io::Error::other)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(io::Error::other)?;
                    discard += record.discard;
                    let bytes = record.payload.len().min(into.len() - *given);
                    into[*given..*given + bytes].copy_from_slice(&record.payload[..bytes]);
                    *given += bytes;
                    self.plain.extend_from_slice(&record.payload[bytes..]);
                }
                Next::Step
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(&mut self.outgoing, |room| data.encode(room))?;
                Next::Step
            }
            ConnectionState::TransmitTlsData(data) => {
                socket.write_all(&self.outgoing)?;
                self.outgoing.clear();
                data.done();
                Next::Step
            }
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                self.has_ended = true;
                Next::Ready
            }
            ConnectionState::WriteTraffic(_) => Next::Ready,
            _ => Next::Bytes,
        };
        self.start += discard;
        self.flush(socket)?;
        Ok(next)
    }

    fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<()> {
        if !self.outgoing.is_empty() {
            socket.write_all(&self.outgoing)?;
            self.outgoing.clear();
        }
        Ok(())
    }

    /// Receives once behind what is there; 0 at the end.
    fn fill<S: Read>(&mut self, socket: &mut S) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.incoming.len() - self.end < RECORD_BYTES / 4 {
            self.incoming.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.incoming.len() {
            if self.end >= INCOMING_BYTES_MAX {
                return Err(io::Error::other("a message of TLS does not end"));
            }
            self.incoming.resize(self.end * 2, 0);
        }
        loop {
            match socket.read(&mut self.incoming[self.end..]) {
                // A socket with a limit for silence is not restarted after a signal.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => {
                    let bytes = received?;
                    self.end += bytes;
                    return Ok(bytes);
                }
            }
        }
    }
}

fn encode(outgoing: &mut Vec<u8>, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) -> io::Result<()> {
    let at = outgoing.len();
    let bytes = match write(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => {
            outgoing.resize(at + size.required_size, 0);
            write(&mut outgoing[at..]).map_err(io::Error::other)?
        }
        other => other.map_err(io::Error::other)?,
    };
    outgoing.truncate(at + bytes);
    Ok(())
}

/// The failure of a handshake.
fn told(host: &str, error: io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => broken(host, error.clone()),
        None => Failure::io(format!("the handshake for TLS with {host} broke off"), error),
    }
}

fn broken(host: &str, error: rustls::Error) -> Failure {
    let (class, what, remedy) = match &error {
        Invalid(_) | rustls::Error::NoCertificatesPresented => {
            let remedy = match &error {
                Invalid(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
                    "the server needs a newer one, if this clock is right"
                }
                Invalid(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
                    "check the clocks of this machine and of it"
                }
                Invalid(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
                    "name the endpoint as the certificate does"
                }
                _ => "give the certificate of its authority as ca_file= (--ca-file), in PEM",
            };
            (Class::Untrusted, format!("the certificate of {host} is not trusted"), remedy)
        }
        rustls::Error::InvalidMessage(_) => (Class::Untrusted, format!("{host} does not speak TLS there"), NO_TLS),
        _ => {
            let remedy = "check the endpoint, its port, and which versions of TLS it speaks";
            (Class::Foreign, format!("TLS with {host} failed"), remedy)
        }
    };
    Failure::new(class, what).with_source(error).with_remedy(remedy)
}
