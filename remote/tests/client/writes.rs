//! Objects that are written: how a server is asked, and what its answers mean.

use crate::server::{Server, answer, refusal};
use crate::{open, options, store};
use uringload_core::store::{Class, Interrupt, Store as _, Uploads};
use uringload_remote::{AccessOptions, Credentials, Store};

fn uploads(store: &Store) -> &dyn Uploads {
    store.uploads().expect("it takes objects")
}

#[test]
fn an_upload_is_begun_sent_and_completed() {
    let server = Server::new(|request| match (request.before, request.query()) {
        (_, "uploads=") => answer("200 OK", "", b"<R><Bucket>b</Bucket><UploadId>a/b&amp;c</UploadId></R>"),
        (_, query) if query.starts_with("partNumber=7&") => answer("200 OK", "ETag: \"t<7\"\r\n", b""),
        _ => answer("200 OK", "", b"<CompleteMultipartUploadResult/>"),
    });
    let store = store(&server);
    let (uploads, interrupt) = (uploads(&store), Interrupt::new());
    let upload = uploads.begin(b"data/a b", &interrupt).unwrap();
    assert_eq!(upload, "a/b&c");
    assert_eq!(uploads.part(b"data/a b", &upload, 7, b"", &interrupt).unwrap(), "\"t<7\"");
    uploads.complete(b"data/a b", &upload, &[], &interrupt).unwrap();
    uploads.abort(b"data/a b", &upload, &interrupt).unwrap();
    let asked = server.asked();
    let targets: Vec<&str> = asked.iter().map(|request| request.target.as_str()).collect();
    let upload = "uploadId=a%2Fb%26c";
    let path = "/bucket/data/a%20b?";
    let wanted = [format!("{path}uploads="), format!("{path}partNumber=7&{upload}"), format!("{path}{upload}")];
    assert_eq!(targets[..3], wanted.each_ref().map(String::as_str));
    assert!(asked.iter().all(|request| request.field("authorization").contains("x-amz-content-sha256")));
    assert_eq!(asked[1].field("content-length"), "0");
}

#[test]
fn what_is_there_is_not_put_again() {
    let taken = Server::new(|_| refusal("412 x", "PreconditionFailed"));
    let failure = uploads(&store(&taken)).put(b"data/pack.json", b"", true, &Interrupt::new()).unwrap_err();
    assert_eq!((failure.class(), taken.asked()[0].field("if-none-match")), (Class::Changed, "*"));
    let gcs = Server::new(|_| answer("200 OK", "", b""));
    let access = AccessOptions { credentials: Some(Credentials::Bearer("hush".into())), ..options(&gcs) };
    let bucket = open("gs://bucket/data/", access);
    uploads(&bucket).put(b"data/pack.json", b"", true, &Interrupt::new()).unwrap();
    assert_eq!(gcs.asked()[0].field("x-goog-if-generation-match"), "0");
}

#[test]
fn answers_that_do_not_say_what_they_should() {
    let server = Server::new(|request| match request.query() {
        "uploads=" => answer("200 OK", "", b"<UploadId></UploadId>"),
        query if query.contains("partNumber") => answer("200 OK", "", b""),
        _ => answer("200 OK", "", b"<Error><Code>InternalError</Code></Error>"),
    });
    let store = store(&server);
    let (uploads, interrupt) = (uploads(&store), Interrupt::new());
    assert_eq!(uploads.begin(b"data/a", &interrupt).unwrap_err().class(), Class::Corrupt);
    assert_eq!(uploads.part(b"data/a", "u", 1, b"", &interrupt).unwrap_err().class(), Class::Corrupt);
    let failure = uploads.complete(b"data/a", "u", &[], &interrupt).unwrap_err();
    assert!(failure.class() == Class::Throttled && failure.to_string().contains("InternalError"), "{failure}");
    let denied = Server::new(|_| refusal("403 x", "AccessDenied"));
    let failure = crate::store(&denied).uploads().unwrap().begin(b"data/a", &interrupt).unwrap_err();
    assert_eq!((failure.class(), failure.code()), (Class::Refused, Some("AccessDenied")));
    let told = failure.into_error(std::path::Path::new("s3://bucket/data/a")).to_string();
    assert!(told.contains("s3:PutObject") && !told.contains("hush"), "{told}");
}

#[test]
fn other_stores_take_nothing() {
    let server = Server::new(|_| answer("200 OK", "", b""));
    let plain = open(&format!("http://{}/a", server.address), AccessOptions::default());
    assert!(plain.uploads().is_none());
    assert!(open("s3://bucket/a?versionId=1", options(&server)).uploads().is_none());
}
