//! A server that answers by a script, to the byte: over TCP, with TLS or without.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Path and query, as sent.
    pub target: String,
    /// The fields, their names in lower case.
    pub fields: HashMap<String, String>,
    /// Requests before this one, on all connections.
    pub before: usize,
    /// Connections before the one that it came on.
    pub connection: usize,
}

impl Request {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// First and last byte that are asked for.
    pub fn range(&self) -> (usize, usize) {
        let range = self.field("range").strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        let (first, last) = range.unwrap_or_else(|| panic!("no range: {self:?}"));
        (first.parse().unwrap(), last.parse().unwrap())
    }
}

/// A step of an answer.
pub enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    Close,
    /// Closes so that the other side sees a reset.
    Reset,
}

pub fn text(answer: impl Into<String>) -> Vec<Step> {
    vec![Step::Send(answer.into().into_bytes())]
}

/// An answer with a status, fields (each with its end of line) and a body whose length is told.
pub fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<Step> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    vec![Step::Send([head.as_bytes(), body].concat())]
}

/// The range that is asked for, as good servers give it.
pub fn part(request: &Request, data: &[u8], fields: &str) -> Vec<Step> {
    let (first, last) = request.range();
    if first >= data.len() {
        let fields = format!("Content-Range: bytes */{}\r\n", data.len());
        return answer("416 Range Not Satisfiable", &fields, b"");
    }
    let last = last.min(data.len() - 1);
    let fields = format!("Content-Range: bytes {first}-{last}/{}\r\n{fields}", data.len());
    answer("206 Partial Content", &fields, &data[first..=last])
}

/// A refusal as S3 writes it.
pub fn refusal(status: &str, code: &str) -> Vec<Step> {
    let quoted = "<CanonicalRequest>x-amz-security-token:hush</CanonicalRequest>";
    answer(
        status,
        "Content-Type: application/xml\r\n",
        format!("<Error><Code>{code}</Code>{quoted}</Error>").as_bytes(),
    )
}

/// What carries bytes: a socket, or TLS over one.
pub trait Carry: Read + Write + Send {}
impl<T: Read + Write + Send> Carry for T {}

type Script = dyn Fn(&Request) -> Vec<Step> + Send + Sync;
type Wrap = dyn Fn(TcpStream) -> Option<Box<dyn Carry>> + Send + Sync;

/// A server, and what it was asked.
pub struct Server {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn new(script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Server {
        Server::wrapped(|stream| Some(Box::new(stream)), script)
    }

    /// One whose sockets are wrapped, in TLS.
    pub fn wrapped(
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Carry>> + Send + Sync + 'static,
        script: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (wrap, script): (Arc<Wrap>, Arc<Script>) = (Arc::new(wrap), Arc::new(script));
        let asks = asked.clone();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (asks, wrap, script) = (asks.clone(), wrap.clone(), script.clone());
                thread::spawn(move || {
                    let socket = stream.try_clone().unwrap();
                    if let Some(carrier) = wrap(stream) {
                        serve(carrier, &socket, connection, &asks, &*script);
                    }
                });
            }
        });
        Server { address, asked }
    }

    /// One object behind all keys.
    pub fn of(data: Vec<u8>) -> Server {
        Server::new(move |request| part(request, &data, "ETag: \"one\"\r\n"))
    }

    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.asked().iter().map(|request| request.connection).collect::<std::collections::HashSet<_>>().len()
    }
}

fn serve(
    mut carrier: Box<dyn Carry>,
    socket: &TcpStream,
    connection: usize,
    asked: &Mutex<Vec<Request>>,
    script: &Script,
) {
    while let Some(mut request) = receive(&mut *carrier) {
        request.connection = connection;
        {
            let mut asked = asked.lock().unwrap();
            request.before = asked.len();
            asked.push(request.clone());
        }
        for step in script(&request) {
            match step {
                Step::Send(bytes) => {
                    if carrier.write_all(&bytes).and_then(|()| carrier.flush()).is_err() {
                        return;
                    }
                }
                Step::Wait(time) => thread::sleep(time),
                Step::Close => return,
                Step::Reset => {
                    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
                    return;
                }
            }
        }
    }
}

fn receive(carrier: &mut dyn Carry) -> Option<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if carrier.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let target = lines.next()?.split(' ').nth(1)?.to_owned();
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Some(Request { target, fields, ..Request::default() })
}
