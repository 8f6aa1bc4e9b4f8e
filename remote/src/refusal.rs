//! What a server means that gives nothing: its status, its own word in the body, and what to do about it. Of the body
//! nothing but that word is repeated: it may quote the request, with its secrets.

use crate::exchange::{Head, word};
use uringload_core::store::{Class, Failure};

/// Longest body of a refusal that is read, in bytes.
pub const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// A refusal, and what another request may cure.
#[derive(Debug)]
pub struct Refusal {
    pub failure: Failure,
    /// Where the bucket is instead.
    pub region: Option<String>,
    /// Whether the clock of this machine is wrong.
    pub is_skewed: bool,
    /// How long the object is, where the server says so although it gives none of it.
    pub total: Option<u64>,
}

/// What the refusal `head` with `body` means to a request that was made `as_whom`, with credentials or without.
pub fn refusal(head: &Head, body: &[u8], as_whom: &str, is_signed: bool) -> Refusal {
    let body = String::from_utf8_lossy(body);
    let code = element(&body, "Code").map_or(String::new(), word);
    let region =
        head.region.as_deref().or_else(|| element(&body, "Region")).map(word).filter(|region| !region.is_empty());
    let total = element(&body, "ActualObjectSize").and_then(|size| size.trim().parse().ok());
    let is_skewed = code == "RequestTimeTooSkewed";
    let status = head.status;
    let said = if code.is_empty() { status.to_string() } else { format!("{status} {code}") };
    let failure = match (status, code.as_str()) {
        (408 | 429 | 500 | 502 | 503 | 504, _) | (_, "RequestTimeout" | "SlowDown" | "ServerBusy") => {
            Failure::new(Class::Throttled, format!("the server cannot answer now ({said})")).with_after(head.after)
        }
        (401, _) if !is_signed => refused(&said, as_whom, "give credentials: a user in the URL, or a signed URL"),
        (401, _) | (_, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken") => {
            Failure::new(Class::Expired, format!("the credentials are not valid any more ({said}; {as_whom})"))
                .with_remedy("renew them: they are read again before each attempt")
        }
        (_, "InvalidObjectState" | "BlobArchived") => {
            let kept = element(&body, "StorageClass").map_or("an archive".to_owned(), word);
            Failure::new(Class::Unavailable, format!("the object is kept in {kept} ({said})"))
                .with_remedy("restore the object first")
        }
        (_, "RequestTimeTooSkewed") => {
            Failure::new(Class::Refused, format!("the clock of this machine is wrong ({said})"))
                .with_remedy("set the clock: chronyd, systemd-timesyncd")
        }
        (_, "SignatureDoesNotMatch") => refused(&said, as_whom, "check the secret that belongs to this key"),
        (_, "InvalidAccessKeyId") => refused(&said, as_whom, "check the key, and whether it is one of this endpoint"),
        (400, "InvalidRequest") if body.contains("Server Side Encryption") => Failure::new(
            Class::Unavailable,
            format!("the object is encrypted by a key of the customer, SSE-C ({said})"),
        )
        .with_remedy("copy it to an object without SSE-C, or to a local disk"),
        (403, "AccessDenied") => {
            let remedy =
                "ask for the right to get and list these objects; or give requester_pays, if the bucket wants that";
            refused(&said, as_whom, remedy)
        }
        (403, _) => refused(&said, as_whom, "ask for the right to get and list these objects"),
        (407, _) => Failure::new(Class::Refused, "the proxy asks who you are")
            .with_remedy("write user and password into the URL of the proxy"),
        (404 | 410, "NoSuchBucket" | "ContainerNotFound") => {
            Failure::new(Class::NoBucket, format!("there is no such bucket ({said})"))
                .with_remedy("check its name and the endpoint")
        }
        (404 | 410, _) => Failure::new(Class::Missing, format!("there is no such object ({said})")),
        (412, _) => Failure::new(Class::Changed, format!("the object was replaced since it was listed ({said})")),
        (301 | 400, _) if region.is_some() => {
            let place = region.as_deref().unwrap_or_default();
            Failure::new(Class::Invalid, format!("the bucket is in the region {place} ({said})"))
                .with_remedy(format!("give region={place}"))
        }
        (200..=299, _) if head.is_page => page(),
        (400..=499, _) if head.is_page && code.is_empty() => page(),
        (300..=399 | 405 | 501, _) => Failure::new(Class::Unavailable, format!("the server does not do that ({said})")),
        (416, _) => Failure::new(Class::Corrupt, format!("the server has no such range ({said})")),
        (400..=499, _) => Failure::new(Class::Invalid, format!("the server does not accept the request ({said})")),
        _ => Failure::new(Class::Storage, format!("the server answers with status {said}")),
    };
    Refusal { failure: failure.with_code(&code), region, is_skewed, total }
}

fn refused(said: &str, as_whom: &str, remedy: &'static str) -> Failure {
    Failure::new(Class::Refused, format!("the server refuses it ({said}; {as_whom})")).with_remedy(remedy)
}

fn page() -> Failure {
    Failure::new(Class::Foreign, "the answer is a page for people (text/html), perhaps a proxy's")
        .with_remedy("check the endpoint and the proxy")
}

/// The text of the first element `name`.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let start = body.find(&format!("<{name}>"))? + name.len() + 2;
    let rest = &body[start..];
    Some(&rest[..rest.find("</")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, fields: &str, code: &str) -> Refusal {
        let body =
            format!("<Error><Code>{code}</Code><Message>hush</Message><StorageClass>GLACIER</StorageClass></Error>");
        let text = format!("HTTP/1.1 {status} x\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        let head = Head::parse(text.as_bytes()).unwrap().unwrap();
        refusal(&head, body.as_bytes(), "the environment, key ..MPLE", true)
    }

    #[test]
    fn classes() {
        let cases = [
            (503, "SlowDown", Class::Throttled),
            (400, "RequestTimeout", Class::Throttled),
            (408, "", Class::Throttled),
            (429, "", Class::Throttled),
            (500, "InternalError", Class::Throttled),
            (502, "", Class::Throttled),
            (504, "", Class::Throttled),
            (403, "AccessDenied", Class::Refused),
            (403, "SignatureDoesNotMatch", Class::Refused),
            (403, "InvalidAccessKeyId", Class::Refused),
            (403, "ExpiredToken", Class::Expired),
            (400, "ExpiredToken", Class::Expired),
            (401, "", Class::Expired),
            (404, "NoSuchKey", Class::Missing),
            (404, "NoSuchBucket", Class::NoBucket),
            (403, "InvalidObjectState", Class::Unavailable),
            (409, "BlobArchived", Class::Unavailable),
            (412, "PreconditionFailed", Class::Changed),
            (400, "InvalidRequest", Class::Invalid),
            (405, "MethodNotAllowed", Class::Unavailable),
            (599, "", Class::Storage),
        ];
        for (status, code, class) in cases {
            let refusal = told(status, "", code);
            assert_eq!(refusal.failure.class(), class, "{status} {code}");
            assert!(!refusal.failure.to_string().contains("hush"), "the body is repeated: {}", refusal.failure);
        }
        assert!(told(403, "", "AccessDenied").failure.to_string().contains("the environment, key ..MPLE"));
        assert!(told(403, "", "InvalidObjectState").failure.to_string().contains("GLACIER"));
        assert!(told(403, "", "RequestTimeTooSkewed").is_skewed);
    }

    #[test]
    fn what_is_not_signed_does_not_expire() {
        let head = Head::parse(b"HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n").unwrap().unwrap();
        assert_eq!(refusal(&head, b"", "no one", false).failure.class(), Class::Refused);
        let body = "<Code>InvalidRequest</Code><Message>stored using a form of Server Side Encryption</Message>";
        let head = Head::parse(b"HTTP/1.1 400 x\r\nContent-Length: 99\r\n\r\n").unwrap().unwrap();
        let failure = refusal(&head, body.as_bytes(), "no one", false).failure;
        assert!(failure.class() == Class::Unavailable && failure.to_string().contains("SSE-C"), "{failure}");
    }

    #[test]
    fn regions_and_waits() {
        let moved = told(301, "x-amz-bucket-region: eu-west-1\r\n", "PermanentRedirect");
        assert_eq!((moved.region.as_deref(), moved.failure.class()), (Some("eu-west-1"), Class::Invalid));
        let after = told(503, "Retry-After: 4\r\n", "SlowDown").failure.after();
        assert_eq!(after, Some(std::time::Duration::from_secs(4)));
    }

    #[test]
    fn a_page_is_told_as_one() {
        for status in [200, 403, 400] {
            let text = format!("HTTP/1.1 {status} x\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap().unwrap();
            let failure = refusal(&head, b"<html>", "no one", false).failure;
            assert!(status == 403 || failure.to_string().contains("text/html"), "{status}: {failure}");
        }
    }
}
