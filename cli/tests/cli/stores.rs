//! What `doctor` and `inspect` say of objects: nothing that is true of files alone.

use super::*;
use uringload_objects::{Options, Server};

const SECRET: &str = "hush-secret";

/// A bucket of one object with 3 MB, and its server.
fn bucket() -> (tempfile::TempDir, Server) {
    let root = folder(&[("bucket/a", 3_000_000)]);
    let given = ["--root", root.path().to_str().unwrap(), "--keys", "AKIDEXAMPLE1234:hush-secret"];
    let server = Server::start(Options::parse(given).unwrap()).unwrap();
    (root, server)
}

fn signed(arguments: &str, server: &Server) -> Command {
    let mut command = uringload(&format!("{arguments} s3://bucket --json"));
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE1234").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("NO_PROXY", "*").args(["--endpoint", server.url()]);
    command
}

#[test]
fn doctor_says_how_a_store_answers() {
    let (_root, server) = bucket();
    let output = run(&mut signed("doctor", &server));
    let text = stdout(&output);
    let told = json(&text);
    let of = |what: &str| told["findings"].as_array().unwrap().iter().find(|finding| finding["what"] == what);
    let found = |what: &str| of(what).unwrap_or_else(|| panic!("{what}: {told:#}"))["found"].as_str().unwrap();
    assert_eq!(found("store"), format!("{}, credentials of the environment, key ..1234", server.url()));
    assert!(found("listing").starts_with("1 objects in ") && found("first byte").starts_with("after "), "{told:#}");
    assert!(found("one read").contains("/s, 3.00 MB in ") && found("versions") == "ETags", "{told:#}");
    assert!(of("filesystem").is_none() && of("device").is_none(), "{told:#}");
    assert!(told["route"]["engine"] == "remote" && !text.contains(SECRET), "{told:#}");
}

#[test]
fn inspect_says_nothing_of_files() {
    let (_root, server) = bucket();
    let (text, _) = expect(signed("inspect", &server).arg("--format=folder"), 0);
    assert_eq!(json(&text)["read_alignment"], 1, "{text}");
    assert!(json(&text)["filesystem"].is_null() && !text.contains(SECRET), "{text}");
}
