//! Where stores are, and how their requests look.

use super::*;
use crate::access::{AccessOptions, Credentials};
use uringload_core::store::Store as _;

fn store(url: &str, options: AccessOptions) -> Store {
    let url = Url::parse(url.as_bytes()).unwrap();
    Store::open(&url, &Access::new(options).unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn place(url: &str, options: &AccessOptions) -> String {
    let store = store(url, options.clone());
    let base = store.base().unwrap();
    let target = base.target(&store.url, Some(store.url.key()), "");
    format!("{}{}", target.host, target.path)
}

#[test]
fn where_stores_are() {
    let plain = AccessOptions { anonymous: true, region: Some("eu-west-1".into()), ..AccessOptions::default() };
    let endpoint = AccessOptions { endpoint: Some("http://127.0.0.1:9400/x".into()), ..plain.clone() };
    let cases = [
        ("s3://bucket/a b//../%41", "bucket.s3.eu-west-1.amazonaws.com/a%20b//../%2541"),
        ("s3://my.bucket/k", "s3.eu-west-1.amazonaws.com/my.bucket/k"),
        ("gs://b/\u{e4}", "storage.googleapis.com/b/%C3%A4"),
        ("abfs://c@acct.dfs.core.windows.net/k", "acct.blob.core.windows.net/c/k"),
        ("https://h:8443/a%41/b c", "h:8443/a%41/b%20c"),
        ("http://[::1]:80//a", "[::1]//a"),
    ];
    for (url, at) in cases {
        assert_eq!(place(url, &plain), at, "{url}");
    }
    for (url, at) in [("s3://b/k", "127.0.0.1:9400/x/b/k"), ("gs://b/k", "127.0.0.1:9400/x/b/k")] {
        assert_eq!(place(url, &endpoint), at, "{url}");
    }
}

#[test]
fn credentials_do_not_go_without_tls() {
    let keys = Credentials::Keys { key_id: "AKID".into(), secret: "hush".into(), token: None };
    let signed = |endpoint: &str| AccessOptions {
        endpoint: Some(endpoint.into()),
        credentials: Some(keys.clone()),
        ..AccessOptions::default()
    };
    let open = |url: &str, options| Store::open(&Url::parse(url.as_bytes()).unwrap(), &Access::new(options).unwrap());
    let error = open("s3://b/k", signed("http://storage.example")).unwrap_err();
    assert_eq!(error.kind(), uringload_core::ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("without TLS") && error.remedy().unwrap().contains("allow_http"), "{error}");
    assert!(open("http://me:hush@h/x", AccessOptions::default()).is_err());
    assert!(open("http://me:hush@127.0.0.1/x", AccessOptions::default()).is_ok());
    assert!(open("s3://b/k", signed("http://localhost:1")).is_ok());
    let anyway = AccessOptions { allow_http: true, ..signed("http://storage.example") };
    assert!(open("s3://b/k", anyway).is_ok());
}

#[test]
fn without_credentials_the_places_are_named() {
    let failure = store("s3://bucket/k", AccessOptions::default())
        .read(b"k", 0, &mut [0; 1], None, &Interrupt::new())
        .unwrap_err();
    assert_eq!(failure.class(), Class::Refused);
    let error = failure.into_error(std::path::Path::new("s3://bucket/k"));
    assert!(error.to_string().contains("looked at: the options") && error.to_string().contains("anonymous"), "{error}");
}

#[test]
fn another_host_gets_no_credentials() {
    let store = store("s3://bucket/k", AccessOptions { anonymous: true, ..AccessOptions::default() });
    let target = store.base().unwrap().target(&store.url, Some(b"k"), "");
    let to = |location: &str| target.redirected(location).map(|to| (to.host, to.path, to.query, to.is_own));
    let own = "bucket.s3.us-east-1.amazonaws.com";
    assert_eq!(to("/x?y=1#z").unwrap(), (own.into(), "/x".into(), "y=1".into(), true));
    assert_eq!(to(&format!("https://{own}/x")).unwrap(), (own.into(), "/x".into(), String::new(), true));
    assert_eq!(to("https://other/x?y").unwrap(), ("other".into(), "/x".into(), "y".into(), false));
    assert_eq!(to("http://other/x").unwrap_err().class(), Class::Refused);
    for wrong in ["", "//other/x", "ftp://other/x", "https:///x"] {
        assert_eq!(to(wrong).unwrap_err().class(), Class::Foreign, "{wrong}");
    }
    let signed = AccessOptions {
        credentials: Some(Credentials::Keys { key_id: "AKID".into(), secret: "hush".into(), token: None }),
        ..AccessOptions::default()
    };
    let signed = self::store("s3://bucket/k", signed);
    let granted = signed.granted().unwrap();
    let there = target.redirected("https://other/x").unwrap();
    let head = |target| signed.head(target, "us-east-1", &granted, &Wish::default(), 0);
    assert!(head(&target).contains("Authorization") && !head(&there).contains("Authorization"));
}

#[test]
fn a_clock_is_learned_once() {
    let store = store("s3://bucket/k", AccessOptions { anonymous: true, ..AccessOptions::default() });
    let date = clock::now() + 4000;
    assert!(store.learn_clock(Some(date)) && !store.learn_clock(Some(date)));
    let [note] = &store.notes()[..] else { panic!("one is noted: {:?}", store.notes()) };
    let there = clock::http(date);
    let is_told = note.reason.matches(&there).count() == 1 && note.reason.matches(" GMT").count() == 2;
    assert!(note.cause == Cause::Clock && is_told, "both times: {note}");
    assert!(!store.learn_clock(None) && !store.learn_clock(Some(clock::now() + 10 * SKEW_SECONDS_MAX)));
}
