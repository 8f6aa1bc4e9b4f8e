//! Signatures of requests, version 4 of AWS, in the header or in the query.

use crate::http::Request;
use crate::text::{encode, hex};
use crate::time;
use ring::{digest, hmac};

/// How far the clocks of the two sides may be apart, in seconds.
const SKEW_SECONDS: u64 = 15 * 60;
/// The name of the method.
const METHOD: &str = "AWS4-HMAC-SHA256";

/// Why a request is refused: status, code, and what it means.
pub type Refusal = (u16, &'static str, String);

/// What signatures are checked by.
pub struct Secrets<'a> {
    /// Each id with its secret.
    pub keys: &'a [(String, String)],
    /// Each session token with the time at which it expires; without any, tokens do not matter.
    pub tokens: &'a [(String, u64)],
    pub now: u64,
}

/// What a request says about its signature.
struct Claim<'a> {
    id: &'a str,
    /// Day, region, service, and the last word.
    scope: &'a str,
    signed: &'a str,
    signature: &'a str,
    date: &'a str,
    token: Option<&'a str>,
    body_hash: &'a str,
}

/// Whether the request says that it is signed.
pub fn is_signed(request: &Request) -> bool {
    request.header("authorization").is_some() || request.parameter("X-Amz-Signature").is_some()
}

/// The region that a request is signed for.
pub fn region(request: &Request) -> Option<&str> {
    claim(request)?.scope.split('/').nth(1)
}

/// Checks who signed a request, when, and that it came as it was signed.
pub fn check(request: &Request, secrets: &Secrets) -> Result<(), Refusal> {
    let denied = |text: &str| (403, "AccessDenied", text.to_owned());
    if !is_signed(request) {
        return Err(denied("Access Denied"));
    }
    let malformed = (400, "AuthorizationHeaderMalformed", "The authorization header is malformed".to_owned());
    let claim = claim(request).ok_or(malformed)?;
    let signed_at = time::parse(claim.date).ok_or_else(|| denied("x-amz-date is missing or wrong"))?;
    match request.parameter("X-Amz-Expires").map(str::parse::<u64>) {
        Some(Ok(seconds)) if secrets.now <= signed_at.saturating_add(seconds) => {}
        Some(_) => return Err(denied("Request has expired")),
        None if secrets.now.abs_diff(signed_at) <= SKEW_SECONDS => {}
        None => {
            let told = format!(
                "The difference between the request time and the current time is too large: the request says {}, \
                 here it is {}",
                time::iso(signed_at),
                time::iso(secrets.now)
            );
            return Err((403, "RequestTimeTooSkewed", told));
        }
    }
    let secret = secrets.keys.iter().find(|(id, _)| id == claim.id).map(|(_, secret)| secret).ok_or_else(|| {
        let told = "The AWS Access Key Id you provided does not exist in our records.";
        (403, "InvalidAccessKeyId", told.to_owned())
    })?;
    if !secrets.tokens.is_empty() {
        let known = secrets.tokens.iter().find(|(token, _)| Some(token.as_str()) == claim.token);
        let (_, until) =
            known.ok_or((400, "InvalidToken", "The provided token is malformed or unknown.".to_owned()))?;
        if secrets.now >= *until {
            return Err((400, "ExpiredToken", "The provided token has expired.".to_owned()));
        }
    }
    if signature(request, &claim, secret) != claim.signature {
        let told = "The request signature we calculated does not match the signature you provided.";
        return Err((403, "SignatureDoesNotMatch", told.to_owned()));
    }
    let names_its_body = claim.body_hash.len() == 64;
    if names_its_body && claim.body_hash != hex(digest::digest(&digest::SHA256, &request.body).as_ref()) {
        let told = "The provided x-amz-content-sha256 does not match what was computed.";
        return Err((400, "XAmzContentSHA256Mismatch", told.to_owned()));
    }
    Ok(())
}

fn claim(request: &Request) -> Option<Claim<'_>> {
    let hash = request.header("x-amz-content-sha256");
    if let Some(header) = request.header("authorization") {
        let fields = header.strip_prefix(METHOD)?;
        let field = |name: &str| fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
        let (id, scope) = field("Credential")?.split_once('/')?;
        return Some(Claim {
            id,
            scope,
            signed: field("SignedHeaders")?,
            signature: field("Signature")?,
            date: request.header("x-amz-date")?,
            token: request.header("x-amz-security-token"),
            body_hash: hash?,
        });
    }
    let (id, scope) = request.parameter("X-Amz-Credential")?.split_once('/')?;
    request.parameter("X-Amz-Expires")?;
    Some(Claim {
        id,
        scope,
        signed: request.parameter("X-Amz-SignedHeaders")?,
        signature: request.parameter("X-Amz-Signature")?,
        date: request.parameter("X-Amz-Date")?,
        token: request.parameter("X-Amz-Security-Token"),
        body_hash: hash.unwrap_or("UNSIGNED-PAYLOAD"),
    })
}

/// The signature that the request should have.
fn signature(request: &Request, claim: &Claim, secret: &str) -> String {
    let mut query: Vec<(String, String)> = request
        .query
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| (encode(name, false), encode(value, false)))
        .collect();
    query.sort();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let headers = claim.signed.split(';').map(|name| {
        let values = request.headers.iter().filter(|(known, _)| known == name);
        // Each run of blanks counts as one.
        let values: Vec<String> =
            values.map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        format!("{name}:{}\n", values.join(","))
    });
    let canonical = format!(
        "{}\n{}\n{}\n{}\n{}\n{}",
        request.method,
        encode(&request.path, true),
        query.join("&"),
        headers.collect::<String>(),
        claim.signed,
        claim.body_hash
    );
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("{METHOD}\n{}\n{}\n{hash}", claim.date, claim.scope);
    let first = format!("AWS4{secret}").into_bytes();
    let step =
        |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec();
    hex(&step(&claim.scope.split('/').fold(first, |key, word| step(&key, word)), &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    /// What an empty body hashes to.
    const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// "Example: GET Object" of "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)" in
    /// the API reference of Amazon S3.
    fn example() -> Request {
        let authorization = format!(
            "{METHOD} Credential={ID}/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range;\
             x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("authorization", &authorization),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", NOTHING),
            ("x-amz-date", "20130524T000000Z"),
        ];
        Request {
            method: "GET".into(),
            path: "/test.txt".into(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            ..Request::default()
        }
    }

    /// "Authenticating Requests: Using Query Parameters" there.
    fn presigned() -> Request {
        let query = [
            ("X-Amz-Algorithm", METHOD),
            ("X-Amz-Credential", "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"),
            ("X-Amz-Date", "20130524T000000Z"),
            ("X-Amz-Expires", "86400"),
            ("X-Amz-SignedHeaders", "host"),
            ("X-Amz-Signature", "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"),
        ];
        Request {
            method: "GET".into(),
            path: "/test.txt".into(),
            query: query.map(|(name, value)| (name.into(), value.into())).into(),
            headers: vec![("host".into(), "examplebucket.s3.amazonaws.com".into())],
            ..Request::default()
        }
    }

    fn told(request: &Request, late: u64, tokens: &[(String, u64)]) -> &'static str {
        let keys = [(ID.to_owned(), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned())];
        let now = time::parse("20130524T000000Z").unwrap() + late;
        check(request, &Secrets { keys: &keys, tokens, now }).map_or_else(|(_, code, _)| code, |()| "")
    }

    fn with(name: &str, value: &str) -> Request {
        let mut request = example();
        request.headers.retain(|(known, _)| known != name);
        request.headers.push((name.to_owned(), value.to_owned()));
        request
    }

    #[test]
    fn the_documented_examples_are_right_and_what_differs_is_not() {
        assert_eq!(told(&example(), 0, &[]), "");
        assert_eq!(told(&example(), SKEW_SECONDS, &[]), "");
        assert_eq!(told(&example(), SKEW_SECONDS + 1, &[]), "RequestTimeTooSkewed");
        assert_eq!(told(&with("range", "bytes=0-8"), 0, &[]), "SignatureDoesNotMatch");
        assert_eq!(told(&Request { path: "/other.txt".into(), ..example() }, 0, &[]), "SignatureDoesNotMatch");
        assert_eq!(told(&Request { body: b"more".into(), ..example() }, 0, &[]), "XAmzContentSHA256Mismatch");
        let authorization = example().header("authorization").unwrap().replace(ID, "AKIAIOSFODNN7EXAMPLF");
        assert_eq!(told(&with("authorization", &authorization), 0, &[]), "InvalidAccessKeyId");
        assert_eq!(told(&with("authorization", "Basic eDp5"), 0, &[]), "AuthorizationHeaderMalformed");
        assert_eq!(told(&Request::default(), 0, &[]), "AccessDenied");
        assert_eq!([example(), Request::default()].each_ref().map(region), [Some("us-east-1"), None]);
    }

    #[test]
    fn presigned_requests_hold_until_they_expire() {
        assert_eq!(told(&presigned(), 86_400, &[]), "");
        assert_eq!(told(&presigned(), 86_401, &[]), "AccessDenied");
        let mut changed = presigned();
        changed.query[3].1 = "86401".into();
        assert_eq!(told(&changed, 0, &[]), "SignatureDoesNotMatch");
    }

    #[test]
    fn tokens_expire() {
        let until = time::parse("20130524T000010Z").unwrap();
        let tokens = [("session".to_owned(), until)];
        assert_eq!(told(&example(), 0, &tokens), "InvalidToken");
        assert_eq!(told(&with("x-amz-security-token", "other"), 0, &tokens), "InvalidToken");
        assert_eq!(told(&with("x-amz-security-token", "session"), 9, &tokens), "");
        assert_eq!(told(&with("x-amz-security-token", "session"), 10, &tokens), "ExpiredToken");
    }
}
