//! `list-objects`, and `pack` into a bucket: what is there afterwards, and what a server sees.

use super::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uringload_objects::{Options, Server};

const SECRET: &str = "hush-secret";

/// A server of a folder of buckets.
fn served(root: &Path) -> Server {
    let given = ["--root", root.to_str().unwrap(), "--keys", "AKIDEXAMPLE1234:hush-secret"];
    Server::start(Options::parse(given).unwrap()).unwrap()
}

/// A folder of buckets, of which `out` is empty, and a source of large samples beside them.
fn buckets() -> (tempfile::TempDir, tempfile::TempDir, Server) {
    let root = folder(&[("data/a.bin", 10)]);
    fs::create_dir(root.path().join("out")).unwrap();
    let source = folder(&[]);
    for number in 0..40 {
        write(&source.path().join(format!("{number:03}.dat")), &content(&number.to_string(), 900_000 + number * 1000));
    }
    let server = served(root.path());
    (root, source, server)
}

fn signed(arguments: &str, server: &Server) -> Command {
    let mut command = uringload(arguments);
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE1234").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("NO_PROXY", "*").args(["--endpoint", server.url()]);
    command
}

/// The shards below a folder, and what they are made of, with their bytes.
fn shards(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let wanted = names.filter(|name| !name.ends_with(".uidx"));
    wanted.map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}

fn pack(source: &Path, more: &str, server: &Server) -> Command {
    let source = source.display();
    signed(&format!("pack {source} s3://out/set --json --shard-size 12MB --prefix s {more}"), server)
}

#[test]
fn a_packed_bucket_is_a_packed_folder() {
    for layout in ["tar", "mds"] {
        let (root, source, server) = buckets();
        let near = tempfile::tempdir().unwrap();
        let staging = tempfile::tempdir().unwrap();
        let folder = near.path().join("set");
        let arguments = format!("--shard-size 12MB --prefix s --layout {layout} --json");
        expect(&mut uringload(&format!("pack {} {} {arguments}", source.path().display(), folder.display())), 0);
        let more = format!("--layout {layout} --staging {}", staging.path().display());
        let (text, _) = expect(&mut pack(source.path(), &more, &server), 0);
        assert_eq!(
            (json(&text)["samples"].as_u64(), json(&text)["shards_kept"].as_u64()),
            (Some(40), Some(0)),
            "{text}"
        );
        let (far, near) = (shards(&root.path().join("out/set")), shards(&folder));
        assert_eq!(far.keys().collect::<Vec<_>>(), near.keys().collect::<Vec<_>>(), "{layout}");
        assert!(far == near && far.len() >= 4, "{layout}: the same bytes");
        assert_eq!(fs::read_dir(staging.path()).unwrap().count(), 0, "nothing stays");
        let asked = server.stats().requests;
        // What was told before.
        let (text, _) = expect(&mut pack(source.path(), &format!("--layout {layout} --dry-run"), &server), 0);
        let told = |what: &str| json(&text)["requests"][what].as_u64().unwrap() as f64;
        let puts = ["PUT", "PART", "CREATE", "COMPLETE"].map(|verb| asked.get(verb).copied().unwrap_or(0) as f64);
        assert!((0.8..1.25).contains(&(told("put") / puts.iter().sum::<f64>())), "{text} {asked:?}");
        assert!((0.4..2.5).contains(&(told("get") / asked["GET"] as f64)), "{text} {asked:?}");
        assert!((0.4..2.5).contains(&(told("list") / asked["LIST"] as f64)), "{text} {asked:?}");
        assert!(asked["PART"] >= 2 * asked["COMPLETE"] && asked["CREATE"] == asked["COMPLETE"], "{asked:?}");
        // Shards that are there are kept, and the proof holds.
        let (text, _) = expect(&mut pack(source.path(), &more, &server), 0);
        assert_eq!(json(&text)["samples_written"].as_u64(), Some(0), "{text}");
        let finish = format!("--layout {layout} --finish");
        let (text, error) = expect(&mut pack(source.path(), &finish, &server), 0);
        assert!(json(&text)["samples"].as_u64() == Some(40) && !error.contains(SECRET), "{text}");
        fs::remove_file(root.path().join("out/set").join(format!("s-000001.{layout}"))).unwrap();
        let (_, error) = expect(&mut pack(source.path(), &finish, &server), 1);
        assert!(error.contains("1 of") && error.contains("numbers 1"), "{error}");
        // Other settings are not mixed in.
        let (_, error) = expect(&mut pack(source.path(), &format!("{more} --align 512"), &server), 2);
        assert!(error.contains("made with other settings: align") && !error.contains("--overwrite"), "{error}");
    }
}

#[test]
fn two_jobs_pack_a_bucket_while_a_server_refuses_some() {
    let (root, source, server) = buckets();
    server.tune("fault", "503=5:0,reset=2").unwrap();
    server.tune("verbs", "PUT,PART,CREATE,COMPLETE,LIST,GET").unwrap();
    let staging = tempfile::tempdir().unwrap();
    let jobs = ["0/2", "1/2"].map(|part| {
        let more = format!("--part {part} --staging {}", staging.path().display());
        pack(source.path(), &more, &server).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for job in jobs {
        let output = job.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let (text, _) = expect(&mut pack(source.path(), "--finish", &server), 0);
    assert_eq!(json(&text)["samples"].as_u64(), Some(40), "{text}");
    server.tune("fault", "").ok();
    let near = tempfile::tempdir().unwrap();
    let folder = near.path().join("set");
    let arguments = "--shard-size 12MB --prefix s --json";
    expect(&mut uringload(&format!("pack {} {} {arguments}", source.path().display(), folder.display())), 0);
    assert!(shards(&root.path().join("out/set")) == shards(&folder));
}

#[test]
fn who_is_killed_leaves_no_part_of_a_shard() {
    let (root, source, server) = buckets();
    server.tune("delay-ms", "40").unwrap();
    let out = root.path().join("out/set");
    let whole = tempfile::tempdir().unwrap();
    let folder = whole.path().join("set");
    let arguments = "--shard-size 12MB --prefix s --json";
    expect(&mut uringload(&format!("pack {} {} {arguments}", source.path().display(), folder.display())), 0);
    let wanted = shards(&folder);
    let staging = tempfile::tempdir().unwrap();
    let more = format!("--staging {}", staging.path().display());
    for round in 0..4 {
        let mut job = pack(source.path(), &more, &server).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let before = server.stats().requests.get("PART").copied().unwrap_or(0);
        let begun = Instant::now();
        while server.stats().requests.get("PART").copied().unwrap_or(0) < before + 1 + round {
            assert!(begun.elapsed() < common::HANG);
            if job.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        job.kill().unwrap();
        job.wait().unwrap();
        for (name, bytes) in shards(&out) {
            assert!(wanted[&name] == bytes, "{name} is there and is not whole");
        }
    }
    expect(&mut pack(source.path(), &more, &server), 0);
    assert!(shards(&out) == wanted);
    assert_eq!(fs::read_dir(staging.path()).unwrap().count(), 0, "what was killed is cleared away");
}

#[test]
fn what_cannot_be_written_is_told() {
    let (_root, source, server) = buckets();
    server.tune("fault", "403=100").unwrap();
    server.tune("verbs", "PUT,PART,CREATE").unwrap();
    let (_, error) = expect(&mut pack(source.path(), "", &server), 1);
    assert!(
        error.contains("AccessDenied") && error.contains("s3:PutObject") && error.contains("key ..1234"),
        "{error}"
    );
    assert!(error.contains("s3://out/set/pack.json") && !error.contains(SECRET), "{error}");
    server.tune("fault", "403=0").unwrap();
    let source = source.path().display();
    for (folder, words, code) in [
        ("https://127.0.0.1:1/set", "not written to this store", 2),
        ("foo://bucket/set", "not written to this store", 2),
        ("s3://none/set", "no such bucket", 1),
        ("s3://data", "has files that no pack has made", 2),
    ] {
        let (_, error) = expect(&mut signed(&format!("pack {source} {folder}"), &server), code);
        assert!(error.contains(words), "{folder}: {error}");
    }
    let (_, error) = expect(&mut signed(&format!("pack {source} s3://out/set --overwrite"), &server), 2);
    assert!(error.contains("not replaced in a store"), "{error}");
    // The next look at the source would find the shards.
    let (_, error) = expect(&mut signed("pack s3://data s3://data --format folder", &server), 2);
    assert!(error.contains("apart from the source"), "{error}");
}

#[test]
fn a_listing_is_written_and_brought_up_to_date() {
    let root = folder(&[("data/train/cat/1.jpg", 10), ("data/train/dog/2.jpg", 20), ("data/other", 30)]);
    let server = served(root.path());
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("train.uls");
    let (file, list) = (file.display(), "list-objects --json");
    let (text, _) = expect(&mut signed(&format!("{list} s3://data/train -o {file}"), &server), 0);
    assert_eq!((json(&text)["objects"].as_u64(), json(&text)["bytes"].as_u64()), (Some(2), Some(30)), "{text}");
    let lists = server.stats().requests["LIST"];
    let (text, _) = expect(&mut signed(&format!("inspect {file} --json"), &server), 0);
    assert_eq!((json(&text)["samples"].as_u64(), server.stats().requests["LIST"]), (Some(2), lists), "{text}");
    let (text, _) = expect(&mut signed(&format!("list {file}"), &server), 0);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(server.stats().requests["LIST"], lists, "a listing needs no listing");
    let (text, _) = expect(&mut signed(&format!("pack {file} s3://data/packed --json"), &server), 0);
    assert_eq!((json(&text)["samples"].as_u64(), json(&text)["shards"].as_u64()), (Some(2), Some(1)), "{text}");
    write(&root.path().join("data/train/dog/3.jpg"), b"new");
    let (text, _) = expect(&mut signed(&format!("{list} --update {file}"), &server), 0);
    assert_eq!(json(&text)["added"]["count"].as_u64(), Some(1), "{text}");
    assert_eq!(json(&text)["added"]["first"][0].as_str(), Some("s3://data/train/dog/3.jpg"), "{text}");
    let bytes = fs::read(out.path().join("train.uls")).unwrap();
    assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
    assert!(!String::from_utf8_lossy(&bytes).contains(server.url()), "where the server is, is given again");
    let (_, error) = expect(&mut signed(&format!("{list} s3://data/train -o {file}.txt"), &server), 2);
    assert!(error.contains("ends in .uls"), "{error}");
}
