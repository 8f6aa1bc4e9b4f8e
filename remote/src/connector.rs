//! object_store's requests for credentials, over our own connections. Each blocks the thread that asks, so none of its
//! futures is ever pending, and no runtime is needed.

use crate::client::{Asking, Client};
use crate::connection::Peer;
use crate::endpoint::Endpoint;
use crate::race::Request;
use crate::url::split_port;
use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use uringload_core::store::Interrupt;
use uringload_core::store::{Class, Failure};

/// Longest answer with credentials, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Times that a future may say that it is not ready, though nothing in it waits.
const POLLS_MAX: usize = 64;

/// Connects object_store to our client.
#[derive(Clone)]
pub struct Connector {
    pub client: Arc<Client>,
    /// A host that may be asked without TLS beside this machine and its metadata: that of container credentials.
    pub plain_host: Option<String>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.exchange(&request).map_err(|failure| {
            let kind = if failure.class() == Class::Storage { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, failure)
        })
    }
}

impl Connector {
    fn exchange(&self, request: &HttpRequest) -> Result<HttpResponse, Failure> {
        let uri = request.uri();
        let is_secure = uri.scheme_str() == Some("https");
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let Some((host, port)) = split_port(authority, if is_secure { 443 } else { 80 }) else {
            return Err(Failure::new(Class::Invalid, "where credentials are asked for has no host"));
        };
        let peer = Peer { host: host.to_owned(), port, is_secure };
        let may_be_plain = peer.is_loopback() || peer.is_metadata() || self.plain_host.as_deref() == Some(host);
        if !is_secure && !may_be_plain {
            return Err(Failure::new(Class::Invalid, format!("{host} would be asked for credentials without TLS")));
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut bytes =
            format!("{} {target} HTTP/1.1\r\nHost: {}\r\n", request.method(), peer.authority()).into_bytes();
        for (name, value) in request.headers() {
            if ["host", "content-length", "connection"].contains(&name.as_str()) {
                continue;
            }
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let body = request.body().as_bytes().map_or(&b""[..], |body| body);
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::new(Class::Invalid, "a request for credentials has bytes that are no text"))?;
        let (endpoint, interrupt) = (Endpoint::default(), Interrupt::new());
        let asking = Asking { peer: &peer, endpoint: &endpoint, interrupt: &interrupt, is_new: false };
        let head = |_| text.clone();
        let mut answer = self.client.ask(asking, Request { head: &head, asked: None, body: &[] })?;
        let body = answer.collect(ANSWER_BYTES_MAX)?;
        let status = answer.head.status;
        answer.finish();
        let response = http::Response::builder().status(status).body(body.into());
        response.map_err(|error| Failure::new(Class::Storage, "the answer has no status").with_source(error))
    }
}

/// Waits for `future` in this thread. What it asks for is asked for while it is polled.
pub fn wait<F: Future>(future: F) -> Result<F::Output, Failure> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
    }
    Err(Failure::new(Class::Storage, "what asks for credentials waits for something that does not come"))
}
