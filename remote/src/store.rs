//! A bucket, a container or a host: reads of ranges and listings, each in the thread that asks.

use crate::access::{Access, nowhere, peer_of};
use crate::client::{Answer, Asking};
use crate::clock;
use crate::connection::Peer;
use crate::credentials::{Authority, Desk, Granted};
use crate::endpoint::Endpoint;
use crate::exchange::Asked;
use crate::lock::{BRIEF, lock};
use crate::race::Request;
use crate::refusal::{REFUSAL_BYTES_MAX, Refusal, refusal};
use crate::sign::{AZURE_VERSION, Question};
use crate::url::{Scheme, Url, encode_key, encode_path};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use uringload_core::store::Interrupt;
use uringload_core::store::{self, Counts, Known, ListOptions, Listed, Page, Read, Version};
use uringload_core::store::{Class, Failure};
use uringload_core::{Cause, Fallback, Result};

/// Redirections that are followed for one request.
const REDIRECTIONS_MAX: usize = 5;
/// The clock of a server is believed up to a difference of a day, in seconds.
const SKEW_SECONDS_MAX: i64 = 86_400;
/// What is noted, each by the bit of its place.
const NOTED: [Cause; 4] = [Cause::Unversioned, Cause::WeakEtag, Cause::Clock, Cause::Region];

/// A bucket, a container or a host.
#[derive(Debug)]
pub struct Store {
    url: Url,
    access: Access,
    desk: Arc<Desk>,
    account: String,
    base: Mutex<Arc<Base>>,
    notes: AtomicU32,
    /// The time of the server when it refused ours, in seconds since 1970.
    heard: AtomicI64,
    pub(crate) endpoint: Endpoint,
}

/// Where a store is.
#[derive(Debug)]
struct Base {
    peer: Peer,
    host: String,
    /// In front of each key.
    path: String,
    region: String,
}

/// Whom one request goes to, and for what.
pub(crate) struct Target {
    pub peer: Peer,
    pub host: String,
    pub path: String,
    pub query: String,
    /// Whether it is the store itself, and no other host that it pointed to: only that gets credentials.
    is_own: bool,
}

/// A request: by default a GET of the store itself.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub method: &'static str,
    pub key: Option<&'a [u8]>,
    pub query: &'a str,
    /// The range of the object that is wanted.
    pub asked: Option<&'a Asked>,
    /// What is written, if anything may be.
    pub body: Option<&'a [u8]>,
    /// Whether there must be no object of the key yet.
    pub is_first: bool,
    /// Whether it wants a connection of its own.
    pub is_new: bool,
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Wish { method: "GET", key: None, query: "", asked: None, body: None, is_first: false, is_new: false }
    }
}

impl Store {
    /// The store that `url` names. No request is made.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](uringload_core::ErrorKind::InvalidArgument) if the endpoint is none, Azure's account is not
    /// known, or credentials would go to another machine without TLS.
    pub fn open(url: &Url, access: &Access) -> Result<Store> {
        Store::new(url, access).map_err(|failure| failure.into_error(&url.shown(url.key())))
    }

    fn new(url: &Url, access: &Access) -> std::result::Result<Store, Failure> {
        let account = match (url.scheme(), url.account()) {
            (Scheme::Azure, Some(account)) => account.to_owned(),
            (Scheme::Azure, None) => access.azure_account().ok_or_else(|| {
                Failure::new(Class::Invalid, "the account of Azure is not known")
                    .with_remedy("write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY")
            })?,
            _ => String::new(),
        };
        let base = Base::new(url, access, &account, access.region())?;
        let options = &access.inner().options;
        let is_signed =
            url.user().is_some() || !options.anonymous && !matches!(url.scheme(), Scheme::Http | Scheme::Https);
        if is_signed && !base.peer.is_secure && !base.peer.is_loopback() && !options.allow_http {
            let what = format!("credentials would go to {} without TLS", base.host);
            return Err(Failure::new(Class::Invalid, what).with_remedy("use https://, or say allow_http"));
        }
        let desk = access.desk(url.scheme(), &account);
        let (base, notes, heard) = (Mutex::new(Arc::new(base)), AtomicU32::new(0), AtomicI64::new(0));
        let (url, access, endpoint) = (url.clone(), access.clone(), Endpoint::default());
        Ok(Store { url, access, desk, account, base, notes, heard, endpoint })
    }

    /// The URL that it was opened with.
    pub fn url(&self) -> &Url {
        &self.url
    }

    fn read_once(
        &self,
        key: &[u8],
        asked: &Asked,
        into: &mut [u8],
        is_new: bool,
        interrupt: &Interrupt,
    ) -> std::result::Result<Read, Failure> {
        let query = self.url.query(key).unwrap_or_default();
        let mut read = None;
        let refused = self.ask(Some(key), query, Some(asked), is_new, interrupt, &mut |answer| {
            let taken = answer.head.judge(asked)?;
            let (bytes, ended) = answer.receive(&mut into[..taken.bytes as usize]);
            if let Err(error) = ended
                && bytes == 0
            {
                interrupt.check()?;
                return Err(Failure::io("the answer broke off before its first byte", error));
            }
            // Only a chunk of no bytes says where an object ends whose length no one told.
            let is_whole =
                taken.total.is_none() && answer.head.range.is_none() && answer.has_ended() && answer.head.keeps;
            let total = if is_whole { Some(bytes as u64) } else { taken.total };
            if bytes > 0 {
                self.note_version(answer.head.versions.has_weak_etag, taken.version);
            }
            read = Some(Read { bytes, version: taken.version, total });
            Ok(())
        })?;
        match (read, refused) {
            (Some(read), _) => Ok(read),
            (None, Some(Refusal { total: Some(total), .. })) if asked.offset >= total => {
                Ok(Read { bytes: 0, version: None, total: Some(total) })
            }
            (None, Some(refusal)) => Err(refusal.failure),
            (None, None) => Err(Failure::new(Class::Corrupt, "the server gave neither bytes nor a reason")),
        }
    }

    fn note_version(&self, has_weak_etag: bool, version: Option<Version>) {
        match version.map(Version::known_by) {
            None => self.note(Cause::Unversioned),
            Some(Known::Modified) if has_weak_etag => self.note(Cause::WeakEtag),
            _ => {}
        }
    }

    pub(crate) fn note(&self, cause: Cause) {
        let bit = NOTED.iter().position(|noted| *noted == cause).map_or(0, |place| 1 << place);
        // A look first: a write of all threads to one word costs more.
        if self.notes.load(Ordering::Relaxed) & bit == 0 {
            self.notes.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Asks for a range of an object, or for the store itself, and gives `take` an answer of success. What a server
    /// says about the region, its clock, the credentials and other places is followed, each once. A refusal comes back.
    pub(crate) fn ask(
        &self,
        key: Option<&[u8]>,
        query: &str,
        asked: Option<&Asked>,
        is_new: bool,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(&mut Answer) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<Option<Refusal>, Failure> {
        self.request(&Wish { key, query, asked, is_new, ..Wish::default() }, interrupt, take)
    }

    /// As [`ask`](Store::ask), for any request.
    pub(crate) fn request(
        &self,
        wish: &Wish,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(&mut Answer) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<Option<Refusal>, Failure> {
        let &Wish { key, query, is_new, .. } = wish;
        let mut base = self.base()?;
        let mut granted = self.granted()?;
        let mut target = base.target(&self.url, key, query);
        let (mut redirections, mut is_moved, mut is_renewed, mut is_set) = (0, false, false, false);
        loop {
            let head = |from| self.head(&target, &base.region, &granted, wish, from);
            let asking = Asking { peer: &target.peer, endpoint: &self.endpoint, interrupt, is_new };
            let body = wish.body.unwrap_or_default();
            let request = Request { head: &head, asked: wish.asked.copied(), body };
            let mut answer = self.access.inner().client.ask(asking, request)?;
            let status = answer.head.status;
            let has_range = status == 416 && answer.head.range.is_some();
            let is_good = matches!(status, 200 | 206) || wish.body.is_some() && status == 204;
            if (is_good && !(answer.head.is_page && self.is_signed())) || has_range {
                take(&mut answer)?;
                answer.finish();
                return Ok(None);
            }
            let location = answer.head.location.take();
            let body = answer.collect(REFUSAL_BYTES_MAX).unwrap_or_default();
            let is_signed = !matches!(granted.authority, Authority::Anonymous);
            let refusal = refusal(&answer.head, &body, &granted.told, is_signed);
            if refusal.failure.class() == Class::Throttled {
                self.endpoint.note_throttled();
            }
            let date = answer.head.date;
            answer.finish();
            interrupt.check()?;
            if let Some(region) = refusal.region.as_ref().filter(|region| self.is_elsewhere(region, &base, is_moved)) {
                is_moved = true;
                base = Arc::new(Base::new(&self.url, &self.access, &self.account, region.clone())?);
                target = base.target(&self.url, key, query);
                self.note(Cause::Region);
                if let Some(mut kept) = lock(&self.base, BRIEF) {
                    *kept = base.clone();
                }
                continue;
            }
            if let (301 | 302 | 303 | 307 | 308, Some(location)) = (status, location) {
                redirections += 1;
                if redirections > REDIRECTIONS_MAX {
                    return Err(Failure::new(Class::Foreign, "the request is redirected in a circle")
                        .with_remedy("check the endpoint"));
                }
                target = target.redirected(&location)?;
                continue;
            }
            if refusal.is_skewed && !is_set && self.learn_clock(date) {
                is_set = true;
                continue;
            }
            if refusal.failure.class() == Class::Expired && !is_renewed {
                is_renewed = true;
                granted = self.desk.renewed(&granted)?;
                continue;
            }
            return Ok(Some(refusal));
        }
    }

    fn is_signed(&self) -> bool {
        !matches!(self.url.scheme(), Scheme::Http | Scheme::Https)
    }

    /// Whether it is a service of a cloud that lists keys by their bytes, and no other server of its protocol.
    pub(crate) fn is_of_cloud(&self) -> bool {
        let is_known = matches!(self.url.scheme(), Scheme::S3 | Scheme::Gcs);
        is_known && matches!(self.access.endpoint(self.url.scheme()), Ok(None))
    }

    fn is_elsewhere(&self, region: &str, base: &Base, is_moved: bool) -> bool {
        self.url.scheme() == Scheme::S3 && !is_moved && region != base.region
    }

    fn base(&self) -> std::result::Result<Arc<Base>, Failure> {
        match lock(&self.base, BRIEF) {
            Some(base) => Ok(base.clone()),
            // A fork while another thread held it: made anew, without what was learned.
            None => Ok(Arc::new(Base::new(&self.url, &self.access, &self.account, self.access.region())?)),
        }
    }

    fn granted(&self) -> std::result::Result<Arc<Granted>, Failure> {
        self.desk.granted().map_err(|failure| match failure.class() {
            // The machine was the last of the places to look at.
            Class::Storage if failure.to_string().starts_with("the machine") => {
                let looked_at = "environment, profiles, web identity, container, instance";
                nowhere(self.url.scheme(), looked_at).with_source(failure)
            }
            _ => failure,
        })
    }

    /// Notes how far the server's clock is ahead; whether that is new.
    fn learn_clock(&self, date: Option<i64>) -> bool {
        let ahead = |date: i64| (date, date - clock::now());
        let Some((date, ahead)) = date.map(ahead).filter(|(_, ahead)| ahead.abs() <= SKEW_SECONDS_MAX) else {
            return false;
        };
        self.heard.store(date, Ordering::Relaxed);
        self.note(Cause::Clock);
        let before = self.access.inner().skew.swap(ahead, Ordering::Relaxed);
        (before - ahead).abs() > 1
    }

    /// The head of a request. Of a range, as many of its first bytes as are here already are left out.
    fn head(&self, target: &Target, region: &str, granted: &Granted, wish: &Wish, from: u64) -> String {
        let &Wish { method, asked, body, .. } = wish;
        let range = &*asked.map_or(String::new(), |asked| asked.range(from));
        let Target { peer, host, path, query, is_own } = target;
        let inner = self.access.inner();
        let mut query = query.clone();
        if let (true, Authority::Query(signature)) = (*is_own, &granted.authority) {
            query = if query.is_empty() { signature.clone() } else { format!("{query}&{signature}") };
        }
        let mut head = String::with_capacity(768);
        let proxy = inner.client.proxy(peer).filter(|_| !peer.is_secure);
        let place = if proxy.is_some() { format!("http://{host}") } else { String::new() };
        let mark = if query.is_empty() { "" } else { "?" };
        let _ = write!(
            head,
            "{method} {place}{path}{mark}{query} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: uringload/{}\r\n\
             Accept-Encoding: identity\r\n",
            env!("CARGO_PKG_VERSION")
        );
        if !range.is_empty() {
            let _ = write!(head, "Range: {range}\r\n");
        }
        if let Some(body) = body {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        if wish.is_first {
            // GCS has a word of its own for it.
            let is_gcs = self.url.scheme() == Scheme::Gcs;
            head.push_str(if is_gcs { "x-goog-if-generation-match: 0\r\n" } else { "If-None-Match: *\r\n" });
        }
        if let Some(proxy) = proxy {
            head.push_str(&proxy.authorization());
        }
        if *is_own {
            let now = clock::now() + inner.skew.load(Ordering::Relaxed);
            let requester_pays = inner.options.requester_pays && self.url.scheme() == Scheme::S3;
            let question = Question { method, host, path, query: &query, body, requester_pays, range, now };
            self.sign(&question, region, granted, &mut head);
        }
        head.push_str("\r\n");
        head
    }

    fn sign(&self, question: &Question, region: &str, granted: &Granted, head: &mut String) {
        match &granted.authority {
            Authority::Keys(keys) => keys.sign(question, region, head),
            Authority::Shared(key) => key.sign(question, head),
            Authority::Bearer(value) => {
                let _ = write!(head, "Authorization: {value}\r\n");
            }
            Authority::Anonymous | Authority::Query(_) => {
                if question.requester_pays {
                    head.push_str("x-amz-request-payer: requester\r\n");
                }
            }
        }
        if let Some(user) = self.url.user() {
            let user = crate::url::decode(user.as_bytes(), false);
            let _ = write!(head, "Authorization: Basic {}\r\n", BASE64_STANDARD.encode(user));
        }
        if self.url.scheme() == Scheme::Azure && !matches!(granted.authority, Authority::Shared(_)) {
            let _ = write!(head, "x-ms-version: {AZURE_VERSION}\r\n");
        }
    }
}

impl store::Store for Store {
    fn shown(&self, key: &[u8]) -> PathBuf {
        self.url.shown(key)
    }

    /// Nothing is asked twice, except over another connection where one that waited was dead, where the answer
    /// contradicts the question or is none, after one sign of another region, another clock or expired credentials, and
    /// up to five redirections.
    fn read(
        &self,
        key: &[u8],
        offset: u64,
        into: &mut [u8],
        expected: Option<Version>,
        interrupt: &Interrupt,
    ) -> std::result::Result<Read, Failure> {
        if into.is_empty() {
            return Ok(Read { bytes: 0, version: None, total: None });
        }
        let asked = Asked { offset, bytes: into.len() as u64, expected };
        let read = match self.read_once(key, &asked, into, false, interrupt) {
            Err(failure) if matches!(failure.class(), Class::Corrupt | Class::Foreign) => {
                self.read_once(key, &asked, into, true, interrupt)
            }
            read => read,
        };
        // Also where it failed: no one may end a socket that is not this read's any more.
        let stopped = interrupt.watch(None);
        stopped.and(read)
    }

    fn lists(&self) -> bool {
        !matches!(self.url.scheme(), Scheme::Http | Scheme::Https)
    }

    fn list(
        &self,
        prefix: &[u8],
        options: &ListOptions,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> std::result::Result<Listed, Failure> {
        self.pages(prefix, options, interrupt, take)
    }

    fn uploads(&self) -> Option<&dyn store::Uploads> {
        self.takes_objects().then_some(self)
    }

    fn told(&self) -> Option<String> {
        let base = self.base().ok()?;
        let scheme = if base.peer.is_secure { "https" } else { "http" };
        let right = match (self.url.user(), self.granted()) {
            (Some(_), _) => "the user in the URL".to_owned(),
            (None, Ok(granted)) => granted.told.clone(),
            (None, Err(failure)) => failure.to_string(),
        };
        Some(format!("{scheme}://{}, {right}", base.peer.authority()))
    }

    fn counts(&self) -> Option<Counts> {
        Some(self.endpoint.counts(self.base().ok()?.host.clone()))
    }

    fn notes(&self) -> Vec<Fallback> {
        let noted = self.notes.load(Ordering::Relaxed);
        let noted = NOTED.iter().enumerate().filter(|(place, _)| noted & 1 << place != 0);
        let told = noted.map(|(_, &cause)| match cause {
            Cause::Unversioned => Fallback::new(cause, "objects as they come", None),
            Cause::WeakEtag => Fallback::new(cause, "their dates and sizes", None),
            Cause::Clock => {
                let there = self.heard.load(Ordering::Relaxed);
                let here = there - self.access.inner().skew.load(Ordering::Relaxed);
                let reason = format!("here it is {}, and there {}", clock::http(here), clock::http(there));
                Fallback::new(cause, "the server's clock", None).with_reason(reason)
            }
            _ => {
                let region = self.base().map_or(String::new(), |base| base.region.clone());
                Fallback::new(cause, format!("the region {region}"), None)
            }
        });
        told.collect()
    }
}

impl Base {
    fn new(url: &Url, access: &Access, account: &str, region: String) -> std::result::Result<Base, Failure> {
        let bucket = url.bucket();
        let secure = |host: String| Peer { host, port: 443, is_secure: true };
        let endpoint = access.endpoint(url.scheme())?;
        let (peer, path) = match (url.scheme(), endpoint) {
            (Scheme::Http | Scheme::Https, _) => {
                let peer = peer_of(url).ok_or_else(|| Failure::new(Class::Invalid, "the URL names no host"))?;
                (peer, "/".to_owned())
            }
            (_, Some((peer, path))) => (peer, format!("{path}/{bucket}/")),
            (Scheme::Gcs, None) => (secure("storage.googleapis.com".to_owned()), format!("/{bucket}/")),
            (Scheme::Azure, None) => (secure(format!("{account}.blob.core.windows.net")), format!("/{bucket}/")),
            (Scheme::S3, None) => {
                let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
                // The certificate is good for one name in front of the service's, and a dot makes two of a bucket.
                let is_name = bucket.len() >= 3
                    && bucket.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
                if is_name {
                    (secure(format!("{bucket}.s3.{region}.{domain}")), "/".to_owned())
                } else {
                    (secure(format!("s3.{region}.{domain}")), format!("/{bucket}/"))
                }
            }
        };
        Ok(Base { host: peer.authority(), peer, path, region })
    }

    /// An object of the store, or the store itself.
    fn target(&self, url: &Url, key: Option<&[u8]>, query: &str) -> Target {
        let mut path = self.path.clone();
        match (key, url.scheme()) {
            (Some(key), Scheme::Http | Scheme::Https) => encode_path(key, &mut path),
            (Some(key), _) => encode_key(key, &mut path),
            (None, _) if path.len() > 1 => path.truncate(path.len() - 1),
            (None, _) => {}
        }
        Target { peer: self.peer.clone(), host: self.host.clone(), path, query: query.to_owned(), is_own: true }
    }
}

impl Target {
    /// Where `location` points to. Another host gets no credentials, and no TLS is given up.
    fn redirected(&self, location: &str) -> std::result::Result<Target, Failure> {
        let wrong = || {
            Failure::new(Class::Foreign, "the request is redirected to a place that is none")
                .with_remedy("check the endpoint")
        };
        if let Some(path) = location.strip_prefix('/').filter(|path| !path.starts_with('/')) {
            let (path, query) = path.split('#').next().unwrap_or_default().split_once('?').unwrap_or((path, ""));
            let mut target = Target {
                peer: self.peer.clone(),
                host: self.host.clone(),
                path: "/".to_owned(),
                query: query.to_owned(),
                is_own: self.is_own,
            };
            encode_path(path.as_bytes(), &mut target.path);
            return Ok(target);
        }
        let url = Url::parse(location.as_bytes()).map_err(|_| wrong())?;
        if !matches!(url.scheme(), Scheme::Http | Scheme::Https) {
            return Err(wrong());
        }
        let peer = peer_of(&url).ok_or_else(wrong)?;
        if self.peer.is_secure && !peer.is_secure {
            let what = format!("the request is redirected to {}, without TLS", peer.host);
            return Err(Failure::new(Class::Refused, what).with_remedy("check the endpoint"));
        }
        let mut path = "/".to_owned();
        encode_path(url.key(), &mut path);
        let query = url.query(url.key()).unwrap_or_default().to_owned();
        let is_own = self.is_own && peer == self.peer;
        Ok(Target { host: peer.authority(), peer, path, query, is_own })
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
