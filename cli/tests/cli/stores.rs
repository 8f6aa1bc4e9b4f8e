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
    sign(&mut command, server);
    command
}

fn sign(command: &mut Command, server: &Server) {
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE1234").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("NO_PROXY", "*").args(["--endpoint", server.url()]);
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
    assert_eq!(json(&text)["epoch_requests"]["in_order"], 1, "{text}");
}

#[test]
fn what_an_epoch_costs_is_said_before_and_after() {
    let root = folder(&[("bucket/a", 20_000_000), ("bucket/b", 1_000)]);
    let given = ["--root", root.path().to_str().unwrap(), "--keys", "AKIDEXAMPLE1234:hush-secret"];
    let server = Server::start(Options::parse(given).unwrap()).unwrap();
    let records = ["--format=records", "--record-bytes=1000"];
    let (text, _) = expect(signed("inspect", &server).args(records), 0);
    assert_eq!(json(&text)["epoch_requests"], serde_json::json!({ "in_order": 4, "in_any_order": 20_001 }));
    server.tune("fault", "503=20:0").unwrap();
    server.tune("attempts", "1").unwrap();
    let before = server.stats();
    let mut bench = uringload("bench s3://bucket --batch-size 100 --no-raw --json -");
    sign(&mut bench, &server);
    let output = run(bench.args(records));
    let text = stdout(&output);
    let (told, after) = (json(&text), server.stats());
    let [endpoint] = &told["endpoints"].as_array().unwrap()[..] else { panic!("{text}") };
    assert_eq!(endpoint["endpoint"], server.url().trim_start_matches("http://"), "{text}");
    let of = |name: &str| endpoint[name].as_u64().unwrap();
    let gets = |stats: &uringload_objects::Stats| stats.requests.get("GET").copied().unwrap_or(0);
    assert!(of("requests") >= 4 && of("requests") <= gets(&after) - gets(&before), "{endpoint} {after:?}");
    assert!(of("bytes") >= 20_000_000 && of("lists") == 0 && of("hedges") >= of("hedges_won"), "{endpoint}");
    // What was refused before the measurement began, such as a look at the content, is the server's alone.
    let refused = after.faults.get("503").copied().unwrap_or(0);
    assert!(of("throttled") > 20 && of("throttled") <= refused, "{endpoint}, {refused}");
    assert!(!text.contains(SECRET));
}
