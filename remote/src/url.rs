//! URLs of objects: which store, which key. A key is bytes, taken as they stand; what is secret stays out of each text.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use uringload_core::{Error, ErrorKind, Result};

/// Longest key, in bytes: S3, GCS and Azure all end there. Paths of HTTP may be longer.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest path of an HTTP URL, in bytes, so that the head of a request stays bounded.
const PATH_BYTES_MAX: usize = 8192;

/// How an object is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `s3://bucket/key`
    S3,
    /// `gs://bucket/key`
    Gcs,
    /// `az://container/key`, `abfs://container@account.dfs.core.windows.net/key`
    Azure,
    /// `http://host/path`
    Http,
    /// `https://host/path`
    Https,
}

const SCHEMES: [(&str, Scheme); 9] = [
    ("s3", Scheme::S3),
    ("s3a", Scheme::S3),
    ("gs", Scheme::Gcs),
    ("az", Scheme::Azure),
    ("azure", Scheme::Azure),
    ("abfs", Scheme::Azure),
    ("abfss", Scheme::Azure),
    ("http", Scheme::Http),
    ("https", Scheme::Https),
];

/// The URL of an object, or of all objects whose keys begin alike. `Display` and `Debug` show neither user nor query.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    bucket: String,
    /// Of Azure, where the URL names it.
    account: Option<String>,
    key: Vec<u8>,
    secret: Secret,
}

/// What a URL has and no text may show.
#[derive(Clone, Default, PartialEq, Eq)]
struct Secret {
    /// `user:password`, as written.
    user: Option<String>,
    /// Behind the `?`, as written.
    query: Option<String>,
}

impl Url {
    /// Whether `text` begins like a URL of ours. That says nothing about the rest.
    pub fn is_remote(text: &[u8]) -> bool {
        split_scheme(text).is_some()
    }

    /// Takes a URL apart.
    ///
    /// Of stores, everything behind the bucket's slash is the key, byte by byte: nothing is decoded, no `.`, `..` or
    /// `//` is folded, and `?`, `#` belong to it, except for a last `?versionId=ID` (`?generation=N` of `gs://`). Of
    /// HTTP, the path stays encoded as it is written, the query belongs to the object, and a fragment is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] if the scheme is not one of ours, the bucket or host is none, the key is longer
    /// than 1024 bytes; [`ErrorKind::Unavailable`] for stores that are known and not read: S3 Express, the hub of
    /// Hugging Face.
    pub fn parse(text: &[u8]) -> Result<Url> {
        let Some((scheme, rest)) = split_scheme(text) else {
            return Err(no_scheme(text));
        };
        if matches!(scheme, Scheme::Http | Scheme::Https) {
            return parse_http(scheme, rest);
        }
        let (authority, key) = split_at_byte(rest, b'/');
        let (key, query) = split_version(scheme, key.unwrap_or_default());
        let authority = std::str::from_utf8(authority).ok();
        let (bucket, account) = match authority.map(|text| (text, text.split_once('@'))) {
            Some((_, Some((container, host)))) if scheme == Scheme::Azure => {
                let account = host.split('.').next().unwrap_or_default();
                (container, Some(account.to_owned()))
            }
            // What stands before an `@` would be a secret, so it is not repeated.
            Some((_, Some(_))) => return Err(invalid("a URL of a store has no user and no password")),
            Some((bucket, None)) => (bucket, None),
            None => ("", None),
        };
        let is_name = |name: &str| {
            (1..=222).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._$".contains(&byte))
        };
        if !is_name(bucket) || account.as_deref().is_some_and(|account| !is_name(account)) {
            let what = "the URL names no bucket: letters, digits, `-`, `.` and `_` are allowed";
            return Err(invalid(what).with_remedy("write it as s3://BUCKET/KEY"));
        }
        if bucket.ends_with("--x-s3") {
            let error =
                Error::new(ErrorKind::Unavailable, format!("{bucket} is a bucket of S3 Express, which is not read"));
            return Err(error.with_remedy("copy the objects to a general purpose bucket, or to a local disk"));
        }
        if key.len() > KEY_BYTES_MAX {
            let what = format!("the key has {} bytes, {KEY_BYTES_MAX} are allowed", key.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let secret = Secret { user: None, query };
        Ok(Url { scheme, bucket: bucket.to_owned(), account, key: key.to_vec(), secret })
    }

    /// How the object is asked for.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The bucket or container; of HTTP the host, with the port where one is written.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Azure's account, where the URL names it.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The key, or what all keys below begin with: bytes, put in front of names without a separator.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The object `key` of this store as it is named to people: without user, query and fragment.
    pub fn shown(&self, key: &[u8]) -> PathBuf {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Gcs => "gs",
            Scheme::Azure => "az",
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let shown = match &self.account {
            // Two accounts may have containers of one name.
            Some(account) => format!("abfs://{}@{account}.dfs.core.windows.net/", self.bucket),
            None => format!("{scheme}://{}/", self.bucket),
        };
        let mut shown = shown.into_bytes();
        shown.extend_from_slice(key);
        PathBuf::from(OsString::from_vec(shown))
    }

    /// Whether it has a query: a signature or a version, which is of this URL alone.
    pub fn has_query(&self) -> bool {
        self.secret.query.is_some()
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.secret.user.as_deref()
    }

    /// The query that belongs to the URL's own key and to no other.
    pub(crate) fn query(&self, key: &[u8]) -> Option<&str> {
        self.secret.query.as_deref().filter(|_| key == self.key)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shown(&self.key).display())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// `host:port` of a URL's authority, the port given or not.
pub(crate) fn split_port(authority: &str, otherwise: u16) -> Option<(&str, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, otherwise),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port))
}

/// Writes `key` as the path of a request: every byte but the unreserved ones and `/` as `%XX`, as SigV4 wants it.
pub(crate) fn encode_key(key: &[u8], path: &mut String) {
    encode(key, path, |byte| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte));
}

/// Writes `text` as a name or a value of a query: every byte but the unreserved ones as `%XX`.
pub(crate) fn encode_query(text: &[u8], query: &mut String) {
    encode(text, query, |byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
}

/// Writes the path of an HTTP URL: what is encoded stays so, only what no request line may have is encoded.
pub(crate) fn encode_path(written: &[u8], path: &mut String) {
    encode(written, path, |byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#?".contains(&byte));
}

fn encode(bytes: &[u8], text: &mut String, stays: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if stays(byte) {
            text.push(char::from(byte));
        } else {
            text.extend(['%', char::from(DIGITS[usize::from(byte >> 4)]), char::from(DIGITS[usize::from(byte & 15)])]);
        }
    }
}

/// Undoes `%XX`, and `+` for a space where that is asked for. What is no escape stays.
pub(crate) fn decode(text: &[u8], plus: bool) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if plus => decoded.push(b' '),
            (byte, ..) => decoded.push(byte),
        }
        at += 1;
    }
    decoded
}

fn split_scheme(text: &[u8]) -> Option<(Scheme, &[u8])> {
    SCHEMES.iter().find_map(|&(name, scheme)| {
        let (start, rest) = text.split_at_checked(name.len())?;
        let rest = rest.strip_prefix(b"://")?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some((scheme, rest))
    })
}

/// What stands before the first `byte`, and what behind it.
fn split_at_byte(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&other| other == byte) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Takes the version off the end of a key.
fn split_version(scheme: Scheme, key: &[u8]) -> (&[u8], Option<String>) {
    let name = match scheme {
        Scheme::S3 => "versionId",
        Scheme::Gcs => "generation",
        _ => "versionid",
    };
    let Some(at) = key.iter().rposition(|&byte| byte == b'?') else { return (key, None) };
    let value = key[at + 1..].strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
    let Some(value) = value.filter(|value| !value.is_empty() && !value.contains(&b'&')) else { return (key, None) };
    let mut query = format!("{name}=");
    encode_query(&decode(value, false), &mut query);
    (&key[..at], Some(query))
}

fn parse_http(scheme: Scheme, rest: &[u8]) -> Result<Url> {
    let (rest, _fragment) = split_at_byte(rest, b'#');
    let (rest, query) = split_at_byte(rest, b'?');
    let (authority, path) = split_at_byte(rest, b'/');
    let path = path.unwrap_or_default();
    let Some(authority) = std::str::from_utf8(authority).ok() else {
        return Err(invalid("the host of the URL is no text"));
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, authority),
    };
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    if !is_host || split_port(host, 80).is_none() {
        return Err(invalid("the URL names no host").with_remedy("write it as https://HOST/PATH"));
    }
    let query = query.map(|query| {
        let mut text = String::new();
        encode(query, &mut text, |byte| byte.is_ascii_graphic() && !b"\"<>#".contains(&byte));
        text
    });
    if path.len() + query.as_ref().map_or(0, String::len) > PATH_BYTES_MAX {
        return Err(invalid("the path of the URL is longer than 8192 bytes"));
    }
    let bucket = host.to_ascii_lowercase();
    Ok(Url { scheme, bucket, account: None, key: path.to_vec(), secret: Secret { user, query } })
}

fn no_scheme(text: &[u8]) -> Error {
    if text.starts_with(b"hf://") {
        let error = Error::new(ErrorKind::Unavailable, "hf:// is not read");
        return error.with_remedy("take the https:// URL that the hub shows, or `hf download` first");
    }
    invalid("this is no URL of a store").with_remedy("s3://, gs://, az://, abfs://, http:// and https:// are read")
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
#[path = "url/tests.rs"]
mod tests;
