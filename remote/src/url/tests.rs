//! URLs: what a key is, and what no text shows.

use super::*;
use crate::draws::Draws;

fn parse(text: &str) -> Url {
    Url::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn stores_and_keys() {
    let cases: [(&str, Scheme, &str, &[u8]); 9] = [
        ("s3://b/k", Scheme::S3, "b", b"k"),
        ("S3://b", Scheme::S3, "b", b""),
        ("s3://b//a//b/../x/.", Scheme::S3, "b", b"/a//b/../x/."),
        ("s3://b/a b+c%41?x#y\\", Scheme::S3, "b", b"a b+c%41?x#y\\"),
        ("gs://my.bucket/\u{e4}", Scheme::Gcs, "my.bucket", "\u{e4}".as_bytes()),
        ("az://c/k", Scheme::Azure, "c", b"k"),
        ("abfss://c@acct.dfs.core.windows.net/k", Scheme::Azure, "c", b"k"),
        ("http://H:80/a%41//b", Scheme::Http, "h:80", b"a%41//b"),
        ("https://[::1]:9/x#fragment", Scheme::Https, "[::1]:9", b"x"),
    ];
    for (text, scheme, bucket, key) in cases {
        let url = parse(text);
        assert_eq!((url.scheme(), url.bucket(), url.key()), (scheme, bucket, key), "{text}");
    }
    let azure = parse("abfss://c@acct.dfs.core.windows.net/k");
    assert_eq!((azure.account(), &*azure.to_string()), (Some("acct"), "abfs://c@acct.dfs.core.windows.net/k"));
}

#[test]
fn a_version_belongs_to_its_key() {
    let url = parse("s3://b/a?b?versionId=x/+y");
    assert_eq!((url.key(), url.query(b"a?b")), (b"a?b".as_slice(), Some("versionId=x%2F%2By")));
    assert_eq!(url.query(b"other"), None);
    assert_eq!(parse("s3://b/a?versionId=").key(), b"a?versionId=");
    assert_eq!(parse("gs://b/a?generation=7").query(b"a"), Some("generation=7"));
}

#[test]
fn no_text_shows_what_is_secret() {
    let url = parse("https://me:hush@h/p/q?X-Amz-Signature=hush#hush");
    let texts = format!("{url} {url:?} {:?} {}", url.shown(b"z"), url.bucket());
    assert!(!texts.contains("hush") && !texts.contains("me:"), "{texts}");
    assert_eq!((url.user(), url.query(b"p/q")), (Some("me:hush"), Some("X-Amz-Signature=hush")));
    let told = Url::parse(b"s3://AKIA:hush@b/k").unwrap_err().to_string();
    assert!(!told.contains("hush"), "{told}");
}

#[test]
fn what_is_no_url_is_told_so() {
    let long = format!("s3://b/{}", "x".repeat(KEY_BYTES_MAX + 1));
    for text in
        ["", "s3:/b/k", "s3://", "s3:///k", "ftp://h/x", "http://", "http:///x", "http://a b/", "s3://a b/k", &long]
    {
        assert_eq!(Url::parse(text.as_bytes()).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
    }
    for (text, word) in [("hf://datasets/x", "hf download"), ("s3://b--use1-az4--x-s3/k", "S3 Express")] {
        let error = Url::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn any_key_comes_back_from_its_path() {
    let mut draws = Draws::new(7);
    for _ in 0..2000 {
        let key = draws.bytes(1..=64);
        let mut text = b"s3://b/".to_vec();
        text.extend_from_slice(&key);
        let url = Url::parse(&text).unwrap();
        assert_eq!(url.key(), key);
        let mut path = String::new();
        encode_key(&key, &mut path);
        assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#'), "{path}");
        assert_eq!(decode(path.as_bytes(), true), key);
    }
}
