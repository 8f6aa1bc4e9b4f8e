//! What a message looks like, whatever names it has, and which errors are the same.

use super::*;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fn read_failed() -> Error {
    Error::io("cannot read", std::io::Error::from_raw_os_error(5))
}

#[test]
fn a_message_is_a_place_a_sentence_a_cause_and_a_line_of_help() {
    let error = read_failed().with_path("/data/a.tar").with_offset(4096).with_remedy("check the disk");
    let line = "/data/a.tar:4096: cannot read: Input/output error (os error 5)";
    assert_eq!(error.headline().to_string(), line);
    assert_eq!(error.to_string(), format!("{line}\nhelp: check the disk"));
    assert_eq!(format!("{error:?}"), format!("Io: {line}\nhelp: check the disk"));
    assert_eq!((error.kind(), error.what()), (ErrorKind::Io, "cannot read"));
    assert_eq!((error.path(), error.offset()), (Some(Path::new("/data/a.tar")), Some(4096)));
    assert_eq!(error.remedy(), Some("check the disk"));
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.and_then(std::io::Error::raw_os_error), Some(5));
}

#[test]
fn what_is_not_known_is_left_out() {
    let error = Error::new(ErrorKind::Corrupt, "a hash is wrong");
    assert_eq!(error.to_string(), "a hash is wrong");
    assert_eq!(error.clone().with_path("a").to_string(), "a: a hash is wrong");
    assert_eq!(error.clone().with_path("").to_string(), "\"\": a hash is wrong");
    assert_eq!(error.with_offset(7).to_string(), "byte 7: a hash is wrong");
}

#[test]
fn no_part_adds_a_line_or_steers_a_terminal() {
    let cause = std::io::Error::other("in\r\x1b[2Jside\u{2028}");
    let error = Error::new(ErrorKind::Corrupt, "no column \"a\nhelp: b\"").with_source(cause);
    let path = OsStr::from_bytes(b"/x\ny\xff z\xe2\x80\xae\xc3\xbc");
    let error = error.with_path(path).with_remedy("choose \n, \u{85}, ü\t\u{61c}");
    let line = r#"/x\ny\xff z\u{202e}ü: no column "a\nhelp: b": in\r\u{1b}[2Jside\u{2028}"#;
    assert_eq!(error.to_string(), format!("{line}\nhelp: choose \\n, \\u{{85}}, ü\\t\\u{{61c}}"));
    assert_eq!(error.headline().to_string(), line);
    // The parts themselves are as they were.
    assert_eq!((error.path(), error.what()), (Some(Path::new(path)), "no column \"a\nhelp: b\""));
}

#[test]
fn an_error_takes_what_it_lacks_from_its_cause() {
    let cause = read_failed().with_path("a").with_offset(8).with_remedy("check the disk");
    let outer = || Error::new(ErrorKind::TooManyFailures, "2 samples failed");
    let error = outer().with_source(cause.clone());
    assert_eq!((error.path(), error.offset()), (Some(Path::new("a")), Some(8)));
    assert_eq!(error.remedy(), Some("check the disk"));
    // The place is named once.
    let text = "a:8: 2 samples failed: cannot read: Input/output error (os error 5)\nhelp: check the disk";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.with_path("a").to_string(), text);

    let elsewhere = outer().with_path("b").with_remedy("allow more").with_source(cause.clone());
    assert_eq!((elsewhere.path(), elsewhere.offset()), (Some(Path::new("b")), None));
    assert_eq!(elsewhere.remedy(), Some("allow more"));
    assert_eq!(
        elsewhere.to_string(),
        "b: 2 samples failed: a:8: cannot read: Input/output error (os error 5)\nhelp: allow more\nhelp: check the disk"
    );

    let within = Error::new(ErrorKind::Corrupt, "the page is broken").with_offset(3);
    let error = Error::new(ErrorKind::Corrupt, "column \"x\" is broken").with_source(within).with_path("b");
    assert_eq!(error.to_string(), "b:3: column \"x\" is broken: the page is broken");
    assert_eq!(outer().with_offset(9).with_source(cause).offset(), Some(9));
}

#[test]
fn a_chain_of_reporters_tells_the_cause_once() {
    let error = read_failed();
    assert!(std::error::Error::source(&error).is_none() && error.cause().is_some());
}

#[test]
fn errors_are_told_apart_by_kind_and_place() {
    let error = |what: &'static str| Error::new(ErrorKind::Corrupt, what).with_path("a");
    let at = |offset, what| error(what).with_offset(offset);
    let other = Error::new(ErrorKind::Truncated, "x").with_path("a").with_offset(1);
    let all = [at(1, "x"), at(1, "y"), at(2, "x"), other, error("x"), error("x").with_remedy("mend it"), error("y")];
    let distinct: HashSet<Distinct> = all.into_iter().map(Distinct).collect();
    assert_eq!(distinct.len(), 5, "{distinct:?}");
}
