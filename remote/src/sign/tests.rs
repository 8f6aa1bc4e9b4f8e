//! Signatures, held against those of the library that has the credentials.

use super::*;
use crate::draws::Draws;
use crate::url::{encode_key, encode_query};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody};

fn asked(uri: &str) -> HttpRequest {
    http::Request::get(uri).body(HttpRequestBody::empty()).unwrap()
}

/// A GET of nothing.
fn asked_of() -> Question<'static> {
    Question { method: "GET", host: "", path: "", query: "", body: None, requester_pays: false, range: "", now: 0 }
}

fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))
}

/// A path and a query in canonical form, from keys and values drawn at random.
fn drawn(draws: &mut Draws) -> (String, String) {
    let mut path = "/".to_owned();
    // A library for URLs folds `.` and `..`, which are no part of the question here.
    encode_key(draws.text(1..=40).replace('.', "-").as_bytes(), &mut path);
    let mut query = String::new();
    for name in ["list-type", "prefix", "start-after"].iter().filter(|_| draws.flips()).collect::<Vec<_>>() {
        query.push_str(if query.is_empty() { "" } else { "&" });
        query.push_str(name);
        query.push('=');
        encode_query(draws.text(0..=20).as_bytes(), &mut query);
    }
    (path, query)
}

#[test]
fn signatures_are_those_of_the_library() {
    let mut draws = Draws::new(11);
    for round in 0..500 {
        let (path, query) = drawn(&mut draws);
        let host = ["b.s3.eu-west-1.amazonaws.com", "127.0.0.1:9400"][draws.below(0..=1)];
        let region = ["us-east-1", "eu-west-1"][draws.below(0..=1)];
        let token = (draws.flips()).then(|| "to/ken+==".to_owned());
        let secret = draws.text(20..=40);
        let requester_pays = draws.flips();
        let credential =
            AwsCredential { key_id: "AKIDEXAMPLE".to_owned(), secret_key: secret.clone(), token: token.clone() };
        let mut request = asked(&format!("https://{host}{path}?{query}"));
        let oracle = AwsAuthorizer::new(&credential, "s3", region).with_request_payer(requester_pays);
        oracle.try_authorize(&mut request, None).unwrap();
        let theirs = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let now = parse_compact(&theirs("x-amz-date"));
        let question = Question { host, path: &path, query: &query, requester_pays, range: "", now, ..asked_of() };
        let keys = Keys::new("AKIDEXAMPLE".to_owned(), secret, token.clone());
        // Twice: the second signature is made with the day's key that is kept.
        for _ in 0..2 {
            let mut head = String::new();
            keys.sign(&question, region, &mut head);
            assert_eq!(field(&head, "Authorization"), theirs("authorization"), "round {round}: {path}?{query}");
            assert_eq!(field(&head, "x-amz-date"), theirs("x-amz-date"));
            assert_eq!(head.contains("x-amz-security-token: to/ken+==\r\n"), token.is_some());
        }
    }
}

#[test]
fn shared_keys_sign_as_the_library_does() {
    let mut draws = Draws::new(12);
    for _ in 0..300 {
        let (path, query) = drawn(&mut draws);
        let key = BASE64_STANDARD.encode(draws.bytes(32..=64));
        let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(&key).unwrap());
        let mut request = asked(&format!("https://acct.blob.core.windows.net{path}?{query}"));
        request.headers_mut().insert("range", "bytes=0-9".parse().unwrap());
        AzureAuthorizer::new(&credential, "acct").try_authorize(&mut request).unwrap();
        let theirs = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(theirs("x-ms-version"), AZURE_VERSION);
        let now = clock::parse_http(&theirs("date")).unwrap();
        let question = Question { path: &path, query: &query, range: "bytes=0-9", now, ..asked_of() };
        let mut head = String::new();
        SharedKey::new("acct", &key).unwrap().sign(&question, &mut head);
        assert_eq!(field(&head, "Authorization"), theirs("authorization"), "{path}?{query}");
    }
}

#[test]
fn another_day_and_another_region_have_another_key() {
    let keys = Keys::new("AKID".to_owned(), "secret".to_owned(), None);
    let mut seen = std::collections::HashSet::new();
    for (day, region) in [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (0, "a")] {
        let now = day * DAY_SECONDS;
        let mut head = String::new();
        keys.sign(&Question { host: "h", path: "/", now, ..asked_of() }, region, &mut head);
        seen.insert(head);
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn debug_shows_no_secret() {
    let keys = Keys::new("AKIDEXAMPLE".to_owned(), "hush".to_owned(), Some("hush".to_owned()));
    let shared = SharedKey::new("acct", "aHVzaA==").unwrap();
    assert_eq!(format!("{keys:?} {shared:?}"), "Keys(..MPLE) SharedKey(acct)");
}

fn parse_compact(text: &str) -> i64 {
    let (d, t) = (&text[..8], &text[9..15]);
    let iso = format!("{}-{}-{}T{}:{}:{}Z", &d[..4], &d[4..6], &d[6..], &t[..2], &t[2..4], &t[4..]);
    clock::parse_iso(&iso).unwrap()
}

#[test]
fn bodies_are_signed_as_the_library_signs_them() {
    let mut draws = Draws::new(12);
    let credential = AwsCredential { key_id: "AKIDEXAMPLE".to_owned(), secret_key: "hush".to_owned(), token: None };
    for (method, query) in [("PUT", "partNumber=3&uploadId=a%2Fb"), ("POST", "uploads="), ("DELETE", "uploadId=x")] {
        let body = draws.bytes(0..=100);
        let builder = http::Request::builder().method(method).uri(format!("https://h/k?{query}"));
        let mut request: HttpRequest = builder.body(HttpRequestBody::from(body.clone())).unwrap();
        AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None).unwrap();
        let theirs = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let now = parse_compact(&theirs("x-amz-date"));
        let question = Question { method, host: "h", path: "/k", query, body: Some(&body), now, ..asked_of() };
        let mut head = String::new();
        Keys::new("AKIDEXAMPLE".to_owned(), "hush".to_owned(), None).sign(&question, "us-east-1", &mut head);
        assert_eq!(field(&head, "Authorization"), theirs("authorization"), "{method}");
        assert_eq!(field(&head, "x-amz-content-sha256"), theirs("x-amz-content-sha256"));
    }
}
