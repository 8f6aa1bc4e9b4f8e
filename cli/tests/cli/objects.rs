//! Datasets by URL: as their folders, whatever the server does, and what is wrong is told without a secret.

mod changes;
mod places;
mod unreachable;
mod ways;

use super::common::archive::Archive;
use super::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};
use uringload_objects::{Options, Server};

const KEY_ID: &str = "AKIDEXAMPLE1234";
/// What no text may show begins so.
const SECRET: &str = "hush-secret";
const TOKEN: &str = "hush-token";
/// A run that waits longer than this for a server has no bound.
const SOON: Duration = Duration::from_secs(10);
const FORMATS: [&str; 9] = ["class", "tar", "mds", "tfrecord", "litdata", "npy", "jsonl", "parquet", "idx"];

/// A folder, the same data as a bucket, and the server of the bucket.
struct Far {
    root: tempfile::TempDir,
    server: Server,
}

impl Far {
    fn new(options: &str) -> Far {
        let root = folder(&[]);
        ["near", "bucket", "empty"].iter().for_each(|name| fs::create_dir(root.path().join(name)).unwrap());
        let given = ["--root", root.path().to_str().unwrap()].into_iter().chain(options.split_whitespace());
        let server = Server::start(Options::parse(given).unwrap()).unwrap();
        Far { root, server }
    }

    /// With this many images in two classes.
    fn of_images(count: usize, options: &str) -> Far {
        let far = Far::new(options);
        for number in 0..count {
            let name = format!("class/{}/{number:03}.jpg", ["cat", "dog"][number % 2]);
            far.write(&name, &content(&name, 20_000 + number));
        }
        far
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        ["near", "bucket"].iter().for_each(|place| write(&self.root.path().join(place).join(name), bytes));
    }

    /// Copies a file, or a folder with all below it, of the data of tests.
    fn copy(&self, from: &Path, name: &str) {
        if from.is_file() {
            return self.write(name, &fs::read(from).unwrap());
        }
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            self.copy(&entry.path(), &format!("{name}/{}", entry.file_name().to_str().unwrap()));
        }
    }

    fn near(&self) -> String {
        self.root.path().join("near").display().to_string()
    }

    /// The command with `AT` for where the data is: the folder, or the bucket.
    fn commands(&self, arguments: &str) -> [Command; 2] {
        [uringload(&arguments.replace("AT", &self.near())), self.far(arguments)]
    }

    fn far(&self, arguments: &str) -> Command {
        signed(&arguments.replace("AT", "s3://bucket"), self.server.url())
    }

    /// What the command prints, the same for the folder and the bucket.
    fn same(&self, arguments: &str) -> String {
        let [near, far] = self.commands(arguments).map(|mut command| expect(&mut command, 0).0);
        let near = near.replace(&self.near(), "AT");
        assert!(near.lines().eq(far.replace("s3://bucket", "AT").lines()), "{arguments}:\n{near}\n{far}");
        near
    }

    /// Asks the server itself something, and returns the head of its answer.
    fn ask(&self, method: &str, target: &str, body: &[u8]) -> String {
        let address = self.server.url().strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close");
        stream.write_all(&[head.as_bytes(), b"\r\n\r\n", body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{method} {target}: {answer}");
        answer
    }
}

/// The command with credentials for this server, and nothing else of the environment.
fn signed(arguments: &str, endpoint: &str) -> Command {
    let mut command = unsigned(arguments, endpoint);
    command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command
}

fn unsigned(arguments: &str, endpoint: &str) -> Command {
    let mut command = uringload(arguments);
    command.env_clear().env("AWS_ENDPOINT_URL", endpoint).env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

/// Runs a command that measures images in two classes, for some seconds, until some batches have come.
fn begun(command: &mut Command) -> Child {
    let pages = tempfile::tempdir().unwrap();
    let options = "--batch-size 2 --emulate-step 20 --memory-limit 512KiB --epochs 1 --no-raw --json -";
    command.args(options.split(' ')).arg(format!("--share-stats={}", pages.path().display()));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_batches(pages.path(), 1);
    child
}

/// A run that says that it waits for its bucket and why, goes on once that is mended, and has read this digest then.
fn waits(mut child: Child, why: &str, mend: impl FnOnce(), whole: (u64, u64)) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("waiting for")).expect("the outage is not told");
    assert!(said.contains("s3://bucket/class") && said.contains(why), "{said}");
    mend();
    let rest: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{rest:?}");
    assert_eq!(digest(&json(&stdout(&output))), whole, "{rest:?}");
}

/// Digest of a `bench` in JSON: sum, and number of samples.
fn digest(told: &Value) -> (u64, u64) {
    let digest = &told["digest"];
    assert_eq!(digest["lost_samples"], 0, "{told}");
    (u64::from_str_radix(digest["sum"].as_str().unwrap(), 16).unwrap(), digest["samples"].as_u64().unwrap())
}

fn bench(command: &mut Command) -> Value {
    json(&expect(command.args(["--no-raw", "--json", "-"]), 0).0)
}

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// Two archives of three samples each.
fn write_archives(far: &Far) {
    for shard in 0..2 {
        let archive = (0..3).fold(Archive::new(), |archive, number| {
            let name = format!("{shard}{number}");
            archive.file(&format!("{name}.jpg"), &content(&name, 30_000)).file(&format!("{name}.cls"), b"7")
        });
        far.write(&format!("tar/{shard}.tar"), &archive.end().0);
    }
}

/// Data of all `FORMATS`, each in a folder of its name.
fn of_formats() -> Far {
    let far = Far::of_images(6, "");
    write_archives(&far);
    for (from, name) in [
        ("mds", "mds"),
        ("tfrecord/examples", "tfrecord"),
        ("litdata", "litdata"),
        ("arrays/plain_f4.npy", "npy/0.npy"),
        ("arrays/plain_f4.npy", "npy/1.npy"),
        ("lines/unicode.jsonl", "jsonl/0.jsonl"),
        ("columnar/types-zstd-v2.parquet", "parquet/0.parquet"),
    ] {
        far.copy(&data(from), name);
    }
    let images = [b"\0\0\x08\x03\0\0\0\x05\0\0\0\x04\0\0\0\x04".to_vec(), content("idx", 80)].concat();
    far.write("idx/train-images-idx3-ubyte", &images);
    far.write("idx/train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x05\x01\x02\x03\x04\x05");
    far
}

#[test]
fn a_url_is_read_as_its_folder() {
    let far = of_formats();
    for format in FORMATS.iter().filter(|format| cfg!(feature = "parquet") || **format != "parquet") {
        let [mut near, mut far_off] = far.commands(&format!("inspect AT/{format} --json")).map(|mut command| {
            let told = expect(&mut command, 0).0;
            json(&told.replace(&far.near(), "AT").replace("s3://bucket", "AT"))
        });
        assert_eq!(far_off["read_alignment"], 1, "a store gives any range");
        for told in [&mut near, &mut far_off] {
            // What a device wants, or a store is asked: the rest is of the data.
            let own = ["/read_alignment", "/read_amplification", "/units/read_amplification", "/epoch_requests"];
            own.iter().filter_map(|own| told.pointer_mut(own).map(Value::take)).for_each(drop);
        }
        assert_eq!(near, far_off);
        assert_eq!(near["format"], if *format == "class" { "folder" } else { format });
        assert!(!far.same(&format!("list AT/{format} --digest sha256")).is_empty());
        let verified = far.commands(&format!("verify AT/{format} --json")).map(|mut command| {
            let told = expect(&mut command, 0).0;
            json(&told.replace(&far.near(), "AT").replace("s3://bucket", "AT"))
        });
        assert_eq!(verified[0], verified[1]);
        let digests =
            far.commands(&format!("bench AT/{format} --shuffle")).map(|mut command| digest(&bench(&mut command)));
        assert_eq!(digests[0], digests[1], "{format}");
    }
}

#[test]
fn a_picture_and_the_order_of_a_url_are_those_of_its_folder() {
    let far = Far::of_images(6, "");
    far.copy(&data("../../images/tests/data/photo.jpg"), "photos/cat/0.jpg");
    let out = tempfile::tempdir().unwrap();
    let pictures = far.commands("show AT/photos --out").map(|mut command| {
        let picture = out.path().join("picture.png");
        expect(command.arg(&picture), 0);
        fs::read(picture).unwrap()
    });
    assert!(pictures[0] == pictures[1] && !pictures[0].is_empty());
    let orders = far.commands("verify-order AT/class --shuffle --world-size 3").map(|mut command| {
        let (told, _) = expect(&mut command, 0);
        told.lines().find(|line| line.starts_with("digest")).unwrap().to_owned()
    });
    assert_eq!(orders[0], orders[1]);
}

#[test]
fn a_url_names_an_object_a_pattern_or_a_part_of_a_dataset() {
    let far = Far::of_images(12, "");
    write_archives(&far);
    for (named, samples) in [
        ("AT/tar/0.tar", 3),
        ("AT/tar/{0..1}.tar", 6),
        ("AT/tar/{1,0}.tar", 6),
        ("AT/tar/*.tar", 6),
        ("AT/tar/1.tar AT/tar/0.tar", 6),
        ("AT/tar/", 6),
        ("AT/class/cat", 6),
        ("AT/class/*/00[0-3].jpg", 4),
        ("AT/class/cat AT/class/dog", 12),
    ] {
        assert_eq!(far.same(&format!("list {named} --digest sha256")).lines().count(), samples, "{named}");
    }
    let wanted = far.same("list AT/tar/0.tar --digest sha256");
    // By HTTP, signed by a query, without credentials.
    let url = far.server.url();
    for named in ["/bucket/tar/0.tar", "/bucket/tar/0.tar?X-Amz-Signature=hush"] {
        let (out, err) = expect(&mut unsigned(&format!("list {url}{named} --digest sha256"), ""), 0);
        assert_eq!(out, wanted, "{named}");
        assert!(!err.contains("hush"), "{err}");
    }
    let gone = fails(&mut unsigned(&format!("list {url}/bucket/gone?X-Amz-Signature=hush"), ""), 1);
    assert!(gone.contains("/bucket/gone: there is no such object"), "{gone}");
    far.ask("POST", "/_reset", b"");
    let arguments = format!("list s3://bucket/tar/0.tar --digest sha256 --endpoint {url} --anonymous");
    assert_eq!(expect(&mut unsigned(&arguments, ""), 0).0, wanted);
    let stats = far.server.stats();
    assert_eq!(stats.unsigned, stats.requests.values().sum::<u64>(), "{stats:?}");
}

#[test]
fn a_state_goes_on_between_a_folder_and_its_url() {
    let far = Far::of_images(120, "");
    let states = tempfile::tempdir().unwrap();
    let [whole, of_url] = far.commands("bench AT/class --shuffle").map(|mut command| digest(&bench(&mut command)));
    assert_eq!(whole, of_url);
    for first in [0, 1] {
        let state = states.path().join("state.json").display().to_string();
        let begin =
            format!("bench AT/class --shuffle --batch-size 1 --emulate-step 10 --duration 0.3s --save-state {state}");
        let begun = digest(&bench(&mut far.commands(&begin)[first]));
        let go_on = format!("bench AT/class --shuffle --resume {state} --epochs 1");
        let rest = digest(&bench(&mut far.commands(&go_on)[1 - first]));
        assert!(begun.1 > 0 && begun.1 < 120, "{begun:?}");
        assert_eq!(rest, whole, "the digest of the state and what came since, after {begun:?}");
        let list = format!("list AT/class --shuffle --resume {state} --digest sha256");
        assert_eq!(far.same(&list).lines().count() as u64, 120 - begun.1);
        let (shown, _) = expect(&mut far.far(&format!("state show {state} AT/class")), 0);
        assert!(shown.contains("it is of this dataset"), "{shown}");
    }
}

#[test]
fn ranks_share_a_url() {
    let far = Far::of_images(51, "");
    let whole = digest(&bench(&mut far.commands("bench AT/class --shuffle")[0]));
    let children: Vec<_> = (0..2)
        .map(|rank| {
            let arguments = format!("bench AT/class --shuffle --rank {rank} --world-size 2 --no-raw --json -");
            far.far(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let parts = children.into_iter().map(|child| digest(&json(&stdout(&child.wait_with_output().unwrap()))));
    let sum = parts.fold((0, 0), |sum: (u64, u64), part| (sum.0.wrapping_add(part.0), sum.1 + part.1));
    assert_eq!(sum, whole);
}

#[test]
fn faults_of_a_server_cost_no_sample() {
    let far = Far::of_images(200, "");
    write_archives(&far);
    let wanted = ["class", "tar"].map(|name| far.same(&format!("list AT/{name} --digest sha256")));
    let whole = digest(&bench(&mut far.commands("bench AT/class --shuffle")[0]));
    far.server.tune("fault", "503=5:1,reset=5,short=5,stall=1:2000").unwrap();
    far.server.tune("attempts", "2").unwrap();
    for (name, wanted) in ["class", "tar"].iter().zip(wanted) {
        let (out, _) = expect(&mut far.far(&format!("list AT/{name} --digest sha256 --on-error raise")), 0);
        assert!(out.replace("s3://bucket", "AT") == wanted, "{name}");
    }
    far.server.tune("seed", "1").unwrap();
    assert_eq!(digest(&bench(&mut far.far("bench AT/class --shuffle"))), whole);
    let faults = far.server.stats().faults;
    assert!(["503", "reset", "short", "stall"].iter().all(|kind| faults.contains_key(kind)), "{faults:?}");
}

/// Of objects that are replaced or removed while it runs, each sample fails: no byte of another version comes.
#[test]
fn objects_that_change_in_mid_run_are_told() {
    for on_error in ["skip", "raise"] {
        let far = Far::of_images(120, "");
        let pages = tempfile::tempdir().unwrap();
        let quarantine = pages.path().join("bad.jsonl");
        let mut command = far.far(&format!("bench AT/class --on-error {on_error}"));
        let child = begun(command.arg("--quarantine").arg(&quarantine));
        far.ask("POST", "/_replace/bucket/class/dog/119.jpg", b"");
        far.ask("POST", "/_replace/bucket/class/dog/117.jpg", b"shorter");
        let output = child.wait_with_output().unwrap();
        let (out, err) = (stdout(&output), stderr(&output));
        if on_error == "raise" {
            assert_eq!(output.status.code(), Some(1), "{out}{err}");
            assert!(err.contains("s3://bucket/class/dog/117.jpg:0: the object was replaced since"), "{err}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        let told = &json(&out)["digest"];
        assert_eq!((&told["samples"], &told["lost_samples"]), (&118.into(), &2.into()), "{told}");
        let bad = fs::read_to_string(&quarantine).unwrap();
        assert!(
            bad.contains("119.jpg") && bad.contains("117.jpg") && bad.matches("\"kind\":\"Changed\"").count() >= 2,
            "{bad}"
        );
    }
}

/// Runs what should fail, in time and without a secret, and returns what it says.
fn fails(command: &mut Command, code: i32) -> String {
    let start = Instant::now();
    let (out, err) = expect(command, code);
    assert!(start.elapsed() < SOON, "{command:?} took {:?}", start.elapsed());
    assert!(!out.contains("hush") && !err.contains("hush"), "a secret is told: {out}{err}");
    assert!(!err.contains("panicked") && err.starts_with("uringload: "), "{err}");
    err
}

#[test]
fn what_is_wrong_is_told_with_a_remedy_and_without_a_secret() {
    let options = format!("--keys {KEY_ID}:{SECRET}");
    let far = Far::of_images(6, &options);
    write_archives(&far);
    let url = far.server.url().to_owned();
    let list = |named: &str| far.far(&format!("list {named} --digest sha256"));
    let with = |variables: &[(&str, &str)], named: &str| {
        let mut command = list(named);
        command.envs(variables.iter().copied());
        command
    };
    let class = "s3://bucket/class";
    assert_eq!(expect(&mut list(class), 0).0.lines().count(), 6, "nothing is wrong");
    let used = "key ..1234";
    let host = url.strip_prefix("http://").unwrap();
    let cases = [
        (unsigned(&format!("list {class}"), &url), 1, vec!["no credentials were found (looked at: ", "anonymous"]),
        (unsigned(&format!("list {class} --anonymous"), &url), 1, vec!["AccessDenied", "  help: "]),
        (with(&[("AWS_SECRET_ACCESS_KEY", "hush")], class), 1, vec!["SignatureDoesNotMatch", used, "check the secret"]),
        (with(&[("AWS_ACCESS_KEY_ID", "AKIDOTHER9876")], class), 1, vec!["InvalidAccessKeyId", "key ..9876"]),
        (with(&[("AWS_SESSION_TOKEN", TOKEN), ("AWS_SECRET_ACCESS_KEY", "hush")], class), 1, vec!["403"]),
        (list("s3://buckte/class"), 1, vec!["s3://buckte", "no such bucket"]),
        (list("s3://bucket/clsas/cat"), 1, vec!["s3://bucket/clsas/cat: ", "there is no clsas in s3://bucket/"]),
        (list("s3://bucket/tar/2.tar"), 1, vec!["s3://bucket/tar/2.tar: ", "there is no 2.tar in s3://bucket/tar"]),
        (list("s3://empty"), 1, vec!["s3://empty"]),
        (list("s3://bucket/tar/{0..9}.tar"), 1, vec!["s3://bucket/tar/2.tar"]),
        (list("s3://bucket--use1-az4--x-s3/class"), 1, vec!["bucket--use1-az4--x-s3 is a bucket of S3 Express"]),
        (list("s3://"), 2, vec!["s3://"]),
        (list("hf://datasets/some"), 2, vec!["hf://datasets/some"]),
        (list(&format!("{url}/bucket/gone?X-Amz-Signature=hush")), 2, vec!["/bucket/gone: ", "400"]),
        (list(&format!("http://me:hush@{host}/bucket/gone")), 2, vec![host, "400"]),
        (
            list("http://me:hush@storage.example/gone"),
            2,
            vec!["http://storage.example/gone: ", "without TLS", "allow_http"],
        ),
        (signed(&format!("list {class}"), "http://storage.example"), 2, vec!["without TLS", "allow_http"]),
        (signed(&format!("list {class}"), "ftp://storage.example"), 2, vec!["endpoint"]),
        (list(&format!("{class} --ca-file {}", far.near())), 2, vec!["near"]),
    ];
    for (mut command, code, words) in cases {
        let told = fails(&mut command, code);
        assert!(words.iter().all(|word| told.contains(word)), "{words:?} are not in {told}");
    }
}

#[test]
fn servers_that_cannot_or_do_not_answer() {
    let far = Far::of_images(6, "");
    write_archives(&far);
    let bench = |named: &str| far.far(&format!("bench AT/{named} --no-raw --on-error raise --outage-timeout 1s"));
    let list = || expect(&mut far.far("list AT/class --digest sha256"), 0).0;
    let wanted = list();
    for (fault, verbs, named, words) in [
        ("403=100", "GET,LIST", "class", "AccessDenied"),
        ("200-for-206=100", "GET", "tar", "does not honour Range"),
        ("gzip=100", "GET", "tar", "gzip"),
        ("cut-xml=100", "LIST", "class", "page 1 of the listing"),
        ("circle=100", "GET", "class", "redirected in a circle"),
        ("garbage=100", "GET", "class", "does not answer in HTTP/1.1"),
    ] {
        far.server.tune("verbs", verbs).unwrap();
        far.server.tune("fault", fault).unwrap();
        let told = fails(&mut bench(named), 1);
        assert!(told.contains(words) && told.contains("s3://bucket/"), "{fault}: {words:?} is not in {told}");
    }
    for fault in ["long=100", "chunked=100", "weak-etag=100", "no-etag=100", "redirect=100"] {
        far.server.tune("verbs", "GET").unwrap();
        far.server.tune("fault", fault).unwrap();
        assert_eq!(list(), wanted, "{fault}");
    }
    // An hour ahead: said by the server, learned from its date.
    let fast = Far::of_images(6, &format!("--keys {KEY_ID}:{SECRET} --clock 3600"));
    assert_eq!(expect(&mut fast.far("list AT/class --digest sha256"), 0).0, wanted);
}

/// A dataset is opened by several questions, and each is asked several times.
#[test]
fn a_server_that_is_away_ends_the_opening_soon() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Instant::now();
    let told = fails(&mut signed("list s3://bucket/class", &format!("http://{closed}")), 1);
    assert!(start.elapsed() < SOON && told.contains("s3://bucket/class"), "{told}");
}

#[test]
fn a_pack_of_a_url_is_that_of_its_folder() {
    let far = Far::of_images(20, "");
    let out = tempfile::tempdir().unwrap();
    let packed = ["near", "far"].map(|name| out.path().join(name));
    for (mut command, folder) in far.commands("pack --shard-samples 7 AT/class").into_iter().zip(&packed) {
        expect(command.arg(folder), 0);
    }
    let shards = |folder: &Path| -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let tars = entries.filter(|path| path.extension().is_some_and(|ending| ending == "tar"));
        tars.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
    };
    let [near, made] = packed.each_ref().map(|folder| shards(folder));
    assert!(near.len() == 3 && near == made, "{:?} {:?}", near.keys(), made.keys());
    // Nothing is packed into a server of HTTP.
    let told = fails(&mut far.far("pack AT/class https://127.0.0.1:1/packed"), 2);
    assert!(told.contains("https://127.0.0.1:1/packed"), "{told}");
}

#[test]
fn an_index_of_objects_goes_into_a_cache_or_nowhere() {
    let far = Far::new("");
    write_archives(&far);
    let (out, err) = expect(&mut far.far("index AT/tar"), 1);
    assert!(err.contains("nothing is written to a store of objects") && err.contains("index_cache"), "{out}{err}");
    assert!(!far.root.path().join("bucket/tar/0.tar.uidx").exists());
    let cache = tempfile::tempdir().unwrap();
    let cache = format!("--index-cache {}", cache.path().display());
    let (out, err) = expect(&mut far.far(&format!("index AT/tar {cache}")), 0);
    assert!(out.contains("2 looked through") && out.contains("2 indexes"), "{out}{err}");
    let (out, err) = expect(&mut far.far(&format!("index AT/tar {cache}")), 0);
    assert!(out.contains("0 looked through, 2 had their index"), "{out}{err}");
    far.ask("POST", "/_reset", b"");
    expect(&mut far.far(&format!("inspect AT/tar {cache}")), 0);
    let bytes = far.server.stats().bytes;
    assert!(bytes < 100_000, "{bytes} bytes are read of 180 000");
    // A URL of a cache is no folder.
    let told = fails(&mut far.far("index AT/tar --index-cache s3://bucket/cache"), 2);
    assert!(told.contains("s3://bucket/cache: indexes are not written to a store"), "{told}");
    // Who replaces an archive makes its index one of another file.
    far.write("tar/0.tar", &Archive::new().file("a.jpg", b"other").end().0);
    let (out, _) = expect(&mut far.far(&format!("index AT/tar {cache}")), 0);
    assert!(out.contains("1 looked through, 1 had their index") && out.contains("replaced"), "{out}");
}

#[test]
fn keys_that_no_path_has_are_read_under_their_names() {
    let far = Far::new("");
    let keys =
        ["cat/a//b", "cat/../x", "cat/a b", "cat/a+b", "dog/%41", "dog/ü", "dog/.", "dog/A", "dog/a", "dog/x?y#z"];
    for key in keys {
        let coded: String = key
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' => (byte as char).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        far.ask("PUT", &format!("/bucket/odd/{coded}"), &content(key, 5000));
    }
    far.ask("PUT", "/bucket/odd/cat/", b"");
    let (out, err) = expect(&mut far.far("list AT/odd --digest sha256"), 0);
    let sha = |key: &str| {
        use sha2::{Digest, Sha256};
        Sha256::digest(content(key, 5000)).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let mut listed: Vec<&str> = Vec::new();
    let lines: Vec<Value> = out.lines().map(json).collect();
    for line in &lines {
        let key = line["key"].as_str().unwrap();
        let columns = line["columns"].to_string();
        assert!(columns.contains(&sha(key)), "{line}");
        listed.push(key);
    }
    listed.sort_unstable();
    let mut wanted = keys.to_vec();
    wanted.sort_unstable();
    assert_eq!(listed, wanted, "{err}");
}

/// Local, remote and cached are one order: the same digest, also where it goes on in another of them.
#[test]
fn a_cache_on_disk_is_read_as_the_folder() {
    let far = of_formats();
    let kept = folder(&[]);
    let cache = format!("--cache-disk {}:64MiB", kept.path().display());
    for format in FORMATS.iter().filter(|format| cfg!(feature = "parquet") || **format != "parquet") {
        let arguments = format!("bench AT/{format} --shuffle --epochs 2");
        let near = digest(&bench(&mut uringload(&arguments.replace("AT", &far.near()))));
        let first = bench(&mut far.far(&format!("{arguments} {cache}")));
        assert_eq!(digest(&first), near, "{format}");
        far.ask("POST", "/_reset", b"");
        let again = bench(&mut far.far(&format!("{arguments} {cache}")));
        assert_eq!(digest(&again), near, "{format}");
        let bytes = |field: &str| again[field].as_u64().unwrap();
        assert!(bytes("bytes_cached") > 0 && bytes("bytes_cached") == bytes("bytes_read"), "{format}: {again}");
    }
    // Filled before, it asks for nothing.
    let filled = folder(&[]);
    let cache = format!("--cache-disk {}:64MiB", filled.path().display());
    let told = json(&expect(&mut far.far(&format!("cache fill AT/class {cache} --json")), 0).0);
    assert_eq!((&told["samples"], &told["failed"], &told["bytes"]), (&6.into(), &0.into(), &120_015.into()));
    far.ask("POST", "/_reset", b"");
    let first = bench(&mut far.far(&format!("bench AT/class --shuffle {cache}")));
    assert_eq!(first["bytes_cached"], first["bytes_read"]);
    let (told, _) = expect(&mut far.far(&format!("cache stat {}", filled.path().display())), 0);
    assert!(told.contains("s3://bucket/class") && told.contains("6 entries"), "{told}");
    let inner: Vec<_> = fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(inner, ["uringload-raw-1"]);
    let (_, err) = expect(&mut far.far("bench AT/tar --cache-disk /tmp"), 2);
    assert!(err.contains("--cache-disk") && err.contains("100GiB"), "{err}");
}
