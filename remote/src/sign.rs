//! Signatures of requests: SigV4 of AWS, the shared key of Azure. The library that has the credentials
//! signs too, but takes 36 us a request, as much as a GET of 110 KB; here the key of the day is kept.

use crate::clock::{self, DAY_SECONDS};
use crate::url::decode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, hmac};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Mutex;

/// SHA-256 of no bytes: requests that read have no body.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SERVICE: &str = "s3";
/// The version of Azure's interface that is spoken.
pub(crate) const AZURE_VERSION: &str = "2023-11-03";

/// What a signature is made of.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The method.
    pub method: &'a str,
    /// The `Host` field.
    pub host: &'a str,
    /// The path, encoded.
    pub path: &'a str,
    /// The query, encoded, its names in ascending order; empty without.
    pub query: &'a str,
    /// The body, if there may be one.
    pub body: Option<&'a [u8]>,
    /// Whether the header `x-amz-request-payer: requester` is sent.
    pub requester_pays: bool,
    /// The value of the `Range` field, or nothing.
    pub range: &'a str,
    /// Seconds since 1970, by the server's clock.
    pub now: i64,
}

/// A pair of keys of AWS. `Debug` shows neither secret nor token.
pub struct Keys {
    key_id: String,
    secret: String,
    token: Option<String>,
    /// The day, the region and the key that they give: four hashes less a request.
    of_day: Mutex<Option<(i64, String, hmac::Key)>>,
}

impl Keys {
    pub fn new(key_id: String, secret: String, token: Option<String>) -> Keys {
        Keys { key_id, secret, token: token.filter(|token| !token.is_empty()), of_day: Mutex::new(None) }
    }

    /// The last four letters of the key's name, for messages.
    pub fn last_four(&self) -> String {
        let skip = self.key_id.chars().count().saturating_sub(4);
        self.key_id.chars().skip(skip).collect()
    }

    pub fn is_same(&self, other: &Keys) -> bool {
        self.key_id == other.key_id && self.secret == other.secret && self.token == other.token
    }

    /// Appends the fields that sign a request in `region`, each with its end of line. The range is not signed.
    pub fn sign(&self, question: &Question, region: &str, head: &mut String) {
        let time = clock::compact(question.now);
        let day = &time[..8];
        let Question { method, host, path, query, .. } = *question;
        let body = question.body.filter(|body| !body.is_empty());
        let body: Cow<'_, str> =
            body.map_or(EMPTY_SHA256.into(), |body| Hex(digest::digest(&digest::SHA256, body)).to_string().into());
        let mut canonical = format!("{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{body}\n");
        let _ = writeln!(canonical, "x-amz-date:{time}");
        let mut names = "host;x-amz-content-sha256;x-amz-date".to_owned();
        if question.requester_pays {
            canonical.push_str("x-amz-request-payer:requester\n");
            names.push_str(";x-amz-request-payer");
        }
        if let Some(token) = &self.token {
            let _ = writeln!(canonical, "x-amz-security-token:{token}");
            names.push_str(";x-amz-security-token");
        }
        let _ = write!(canonical, "\n{names}\n{body}");
        let hash = Hex(digest::digest(&digest::SHA256, canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{day}/{region}/{SERVICE}/aws4_request\n{hash}");
        let signature = Hex(hmac::sign(&self.of_day(question.now, day, region), text.as_bytes()));
        let _ = write!(
            head,
            "Authorization: AWS4-HMAC-SHA256 Credential={}/{day}/{region}/{SERVICE}/aws4_request, \
             SignedHeaders={names}, Signature={signature}\r\nx-amz-content-sha256: {body}\r\n\
             x-amz-date: {time}\r\n",
            self.key_id
        );
        if question.requester_pays {
            head.push_str("x-amz-request-payer: requester\r\n");
        }
        if let Some(token) = &self.token {
            let _ = write!(head, "x-amz-security-token: {token}\r\n");
        }
    }

    fn of_day(&self, now: i64, day: &str, region: &str) -> hmac::Key {
        let number = now.div_euclid(DAY_SECONDS);
        // Never waited for: after a fork, whoever held it may be gone.
        let mut kept = self.of_day.try_lock().ok();
        if let Some((of, at, key)) = kept.as_deref().and_then(Option::as_ref)
            && (*of, at.as_str()) == (number, region)
        {
            return key.clone();
        }
        let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{}", self.secret).as_bytes());
        let key = [day, region, SERVICE, "aws4_request"]
            .iter()
            .fold(first, |key, part| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref()));
        if let Some(kept) = kept.as_deref_mut() {
            *kept = Some((number, region.to_owned(), key.clone()));
        }
        key
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(..{})", self.last_four())
    }
}

/// The shared key of an account of Azure. `Debug` shows the account alone.
pub struct SharedKey {
    account: String,
    key: hmac::Key,
}

impl SharedKey {
    /// The key as the portal shows it, in Base64; nothing if it is none.
    pub fn new(account: &str, key: &str) -> Option<SharedKey> {
        let key = BASE64_STANDARD.decode(key).ok()?;
        Some(SharedKey { account: account.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, &key) })
    }

    /// Appends the fields that sign a GET, each with its end of line.
    pub fn sign(&self, question: &Question, head: &mut String) {
        let time = clock::http(question.now);
        let (path, range) = (question.path, question.range);
        let mut text =
            format!("GET\n\n\n\n\n\n{time}\n\n\n\n\n{range}\nx-ms-version:{AZURE_VERSION}\n/{}{path}", self.account);
        for pair in question.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value.as_bytes(), false);
            let _ = write!(text, "\n{name}:{}", String::from_utf8_lossy(&value));
        }
        let signature = BASE64_STANDARD.encode(hmac::sign(&self.key, text.as_bytes()));
        let _ = write!(
            head,
            "Authorization: SharedKey {}:{signature}\r\nDate: {time}\r\nx-ms-version: {AZURE_VERSION}\r\n",
            self.account
        );
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedKey({})", self.account)
    }
}

/// Bytes in hexadecimal digits.
struct Hex<T>(T);

impl<T: AsRef<[u8]>> fmt::Display for Hex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
#[path = "sign/tests.rs"]
mod tests;
