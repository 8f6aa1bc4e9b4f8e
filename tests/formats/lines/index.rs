//! The life of indexes: written, used, rebuilt.

use super::*;
use crate::common::direct::report;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use uringload::dataset::{self, IndexProgress, Options};

pub fn with_sidecars(format: &str) -> Options {
    quiet(format).sidecars(true)
}

const FILES: [(&str, &[u8]); 3] = [
    ("a.txt", b"one\n\nthree\nfour"),
    ("a.jsonl", b"{\"a\": 1}\n\n{\"a\": 2}\n3"),
    ("a.csv", b"a,b\n1,\"2\n3\"\n\n4,5\n"),
];

#[test]
fn a_second_start_looks_through_nothing() {
    for ((name, bytes), format) in FILES.into_iter().zip(FORMATS) {
        let place = folder(&[(name, bytes)]);
        let options = with_sidecars(format);
        let first = dataset::open(&[place.path()], &options).unwrap();
        let told = report(&*first);
        assert_eq!((told.scanned, told.written, told.bytes_read), (1, 1, bytes.len() as u64));
        let second = dataset::open(&[place.path()], &options).unwrap();
        assert_eq!((report(&*second).scanned, report(&*second).current, report(&*second).bytes_read), (0, 1, 0));
        let rebuilt = dataset::open(&[place.path()], &options.rebuild(true)).unwrap();
        assert_eq!(report(&*rebuilt).scanned, 1);
        let without = folder(&[(name, bytes)]);
        let without = dataset::open(&[without.path()], &quiet(format)).unwrap();
        for other in [second, rebuilt, without] {
            assert_eq!((other.fingerprint(), other.bytes()), (first.fingerprint(), first.bytes()));
            assert_eq!((left_out(&*other), other.shards()), (left_out(&*first), first.shards()));
            let rows = |lines| samples(lines).into_iter().map(Result::unwrap).collect::<Vec<_>>();
            assert_eq!(rows(&*other), rows(&*first));
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "no temporary file is left");
    }
}

#[test]
fn a_sidecar_that_is_not_the_files_is_rebuilt() {
    for ((name, bytes), format) in FILES.into_iter().zip(FORMATS) {
        let place = folder(&[(name, bytes)]);
        let (path, index) = (place.path().join(name), place.path().join(format!("{name}.uidx")));
        let open = || dataset::open(&[place.path()], &with_sidecars(format)).unwrap();
        let rows = |lines: &dyn Dataset| samples(lines).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let wanted = rows(&*open());
        let whole = fs::read(&index).unwrap();
        let rebuilt = |what: &str| {
            let lines = open();
            assert_eq!((report(&*lines).scanned, report(&*lines).refused.len()), (1, 1), "{name}: {what}");
            assert_eq!(rows(&*lines), wanted, "{name}: {what}");
            assert_eq!(report(&*open()).current, 1, "{name}, {what}: the new one is used");
        };
        for at in [0, 8, 12, 40, 100, 4097, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&index, &bytes).unwrap();
            rebuilt(&format!("byte {at}"));
        }
        for len in [0, 1, 100, 4096, whole.len() - 1] {
            fs::write(&index, &whole[..len]).unwrap();
            rebuilt(&format!("torn at {len}"));
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
        rebuilt("another time");
        // That of another file of the same size and time.
        let other = folder(&[("b.txt", &vec![b'\n'; bytes.len()])]);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options().write(true).open(other.path().join("b.txt")).unwrap().set_modified(modified).unwrap();
        dataset::open(&[other.path()], &with_sidecars("text")).unwrap();
        fs::copy(other.path().join("b.txt.uidx"), &index).unwrap();
        rebuilt("another file");
        fs::write(&path, [bytes, b"\n7,8\n"].concat()).unwrap();
        assert_eq!((report(&*open()).scanned, open().len()), (1, wanted.len() as u64 + 1));
    }
}

/// The same file as another format, or with another delimiter, has other lines.
#[test]
fn an_index_is_that_of_one_format() {
    let place = folder(&[("file", b"a,\"b\n\nc\"\n1;\"2\"\n")]);
    let path = place.path().join("file");
    for _ in 0..2 {
        let of =
            |options: &Options| dataset::open(&[&path], options).map(|lines| (lines.len(), report(&*lines).scanned));
        let rows = with_sidecars("csv").set("header", false);
        assert_eq!(of(&with_sidecars("text")).unwrap(), (4, 1));
        assert_eq!(of(&with_sidecars("jsonl")).unwrap(), (3, 1));
        assert_eq!(of(&rows).unwrap(), (2, 1));
        // Whether there is a header makes no other index.
        assert_eq!(of(&with_sidecars("csv")).unwrap(), (1, 0));
        assert_eq!(of(&rows.set("delimiter", ";")).unwrap(), (3, 1));
    }
}

#[test]
fn where_a_folder_takes_no_index() {
    let place = folder(&[("a.txt", b"one\n")]);
    fs::create_dir(place.path().join("a.txt.uidx")).unwrap();
    let path = place.path().join("a.txt");
    let lines = dataset::open(&[&path], &with_sidecars("text")).unwrap();
    let [fallback] = &*lines.index().fallbacks else { panic!("{:?}", lines.index().fallbacks) };
    let line = fallback.to_string();
    assert!(line.contains("indexes in memory") && line.contains("--index-cache") && fallback.errno.is_some(), "{line}");
    let cache = tempfile::tempdir().unwrap();
    let options = with_sidecars("text").set("index_cache", cache.path().join("sub"));
    let lines = dataset::open(&[&path], &options).unwrap();
    assert!(lines.index().fallbacks[0].to_string().contains("indexes in \""), "{}", lines.index().fallbacks[0]);
    assert_eq!(report(&*dataset::open(&[&path], &options).unwrap()).current, 1);
}

/// Lines of every length, over several reads of a pass.
#[test]
fn an_index_has_at_most_sixteen_bytes_a_line() {
    let mut text = Vec::new();
    for number in 0..40_000_usize {
        text.resize(text.len() + number * number % 97, b'x');
        text.push(b'\n');
    }
    text.resize(text.len() + 300_000, b'y');
    let place = folder(&[("a.txt", &text)]);
    let lines = dataset::open(&[place.path()], &with_sidecars("text")).unwrap();
    assert_eq!(lines.len(), 40_001);
    let bytes = fs::metadata(place.path().join("a.txt.uidx")).unwrap().len();
    let each = bytes as f64 / lines.len() as f64;
    println!("{each:.2} bytes a line");
    assert!(each <= 16.0, "{each}");
    let mut wanted = text.split(|&byte| byte == b'\n');
    assert!(samples(&*lines).into_iter().all(|row| row.unwrap()["text"] == wanted.next().unwrap()));
}

#[test]
fn damage_is_refused_or_left_out() {
    let bad = b"a,b\n1,2\n3,\"4\n5,6\n";
    let place = folder(&[("0.csv", b"a,b\n7,8\n"), ("1.csv", bad), ("2.csv", b"a,b\n9,0\n")]);
    let options = with_sidecars("csv");
    let error = dataset::open(&[place.path()], &options).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(10)));
    assert_error(Err::<(), _>(error.clone()), ErrorKind::Corrupt, &["1.csv", "never closed"]);
    let keep = options.set("keep_damaged", true);
    for _ in 0..2 {
        let lines = dataset::open(&[place.path()], &keep).unwrap();
        let values: Vec<Vec<u8>> = samples(&*lines).into_iter().map(|row| row.unwrap()["a"].clone()).collect();
        assert_eq!(values, [b"7", b"1", b"9"]);
        assert_eq!(lines.index().damage[0].to_string(), error.to_string());
        assert_eq!(left_out(&*lines), [("rests of damaged shards", 1)]);
        assert!(!place.path().join("1.csv.uidx").exists(), "no index of a damaged file is kept");
    }
}

/// A file with holes, of which nothing but zeros is read.
#[test]
fn a_line_of_more_than_a_gibibyte_is_refused() {
    // What begins with zeros is no text.
    let text = b"short\n".repeat(200_000);
    let place = folder(&[("a.txt", &text)]);
    let path = place.path().join("a.txt");
    fs::File::options().write(true).open(&path).unwrap().set_len(3 << 30).unwrap();
    let refused = dataset::open(&[&path], &quiet("text"));
    let error = assert_error(refused, ErrorKind::Corrupt, &["more than 1073741824 bytes", "a.txt:1200000: "]);
    assert_eq!(error.offset(), Some(1_200_000));
}

#[test]
fn progress_comes_to_its_end() {
    let names: Vec<String> = (0..9).map(|number| format!("{number}.txt")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b"a\nb\n"[..])).collect();
    let place = folder(&files);
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let (calls, most) = &*seen;
    let told = Arc::clone(&seen);
    let progress = move |progress: IndexProgress| {
        told.0.fetch_add(1, Ordering::Relaxed);
        told.1.fetch_max(progress.bytes, Ordering::Relaxed);
        assert!(progress.shards <= progress.shards_total && progress.shards_total == 9);
        assert!(progress.bytes <= progress.bytes_total);
    };
    let options = quiet("text").progress(progress);
    let lines = dataset::open(&[place.path()], &options);
    assert_eq!((calls.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (9, 36));
    assert_eq!(lines.unwrap().shards(), [2, 4, 6, 8, 10, 12, 14, 16, 18]);
}
