//! What is a sample, what is left out, and what bad input gets, on real folders.

use super::memory::Limit;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::dataset::{self, DType, Dataset, FileId, FileTable, Options, Sample, SampleId, Shape, Span, Value};

/// A folder with these files, each as long as its number says.
fn folder(files: &[(&[u8], u64)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, size) in files {
        let path = root.path().join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(*size).unwrap();
    }
    root
}

fn keys(dataset: &dyn Dataset) -> Vec<String> {
    let key = |id| {
        let mut key = Vec::new();
        dataset.key(SampleId(id), &mut key);
        String::from_utf8_lossy(&key).into_owned()
    };
    (0..dataset.len()).map(key).collect()
}

fn labels(folder: &dyn Dataset) -> Vec<i64> {
    (0..folder.len()).map(|id| folder.label(SampleId(id)).unwrap().0).collect()
}

fn skipped(folder: &dyn Dataset) -> Vec<(&'static str, u64)> {
    folder.index().left_out.iter().map(|skipped| (skipped.what, skipped.count)).collect()
}

fn required() -> Options {
    Options::new().format("folder").set("labels", true)
}

/// Runs this test again in a child, as another user or with other limits; whether this is the child.
fn in_child(test: &str, prepare: impl FnOnce(&Path) -> Command) -> bool {
    const MARK: &str = "URINGLOAD_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    // A copy where everybody may read it: the folder this was built in may be private.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("test");
    // By a program of its own: were the copy open for writing here, a child that another test starts meanwhile would
    // have it open too, and it could not be executed.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "the test's program cannot be copied");
    let (_crate, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::{test}");
    let output = prepare(&program).args(["--exact", &name, "--nocapture"]).env(MARK, "1").output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{test} did not run in the child");
    false
}

#[test]
fn files_come_in_the_order_of_the_bytes_of_their_paths() {
    let long = [b'n'; 255];
    let nested = [&b"m/"[..], &[b'o'; 255]].concat();
    let root = folder(&[
        (b"b", 3),
        (b"a/c", 2),
        (b"a-c", 1),
        (b"a.c", 0),
        (b"a/b/c", 5),
        (b"line\nbreak", 6),
        (b"\xff\xfe", 7),
        (&long, 8),
        (&nested, 9),
    ]);
    for threads in [1, 2, 16] {
        let options = Options::new().format("folder").threads(threads);
        let folder = dataset::open(&[root.path()], &options).unwrap();
        let names: Vec<&[u8]> = (0..9).map(|file| folder.files().name(FileId(file))).collect();
        assert_eq!(names, [&b"a-c"[..], b"a.c", b"a/b/c", b"a/c", b"b", b"line\nbreak", &nested, &long, b"\xff\xfe"]);
        assert_eq!(folder.files().sizes(), [1, 0, 5, 2, 3, 6, 9, 8, 7]);
        assert_eq!((folder.bytes(), folder.largest(0), folder.largest(2), folder.largest(99)), (41, 0, 17, 41));
        assert!(folder.index().left_out.is_empty() && folder.index().classes.is_empty());
    }
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(folder.files().path(FileId(8)), root.path().join(OsStr::from_bytes(b"\xff\xfe")));
    let mut spans = Vec::new();
    folder.spans(SampleId(2), &mut spans);
    assert_eq!(spans, [Span { file: FileId(2), offset: 0, len: 5 }]);
}

#[test]
fn class_folders_give_labels() {
    let root = folder(&[(b"dog/1", 1), (b"dog/deep/2", 1), (b"cat/3", 1), (b"emu/4", 1), (b".DS_Store", 9)]);
    fs::create_dir(root.path().join("ant")).unwrap();
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(folder.index().classes, ["cat", "dog", "emu"], "an empty folder is no class");
    assert_eq!(keys(&*folder), ["cat/3", "dog/1", "dog/deep/2", "emu/4"]);
    assert_eq!(labels(&*folder), [0, 1, 1, 2]);
    assert_eq!(folder.schema().fields[1].name, "label");
    let mut sample = Sample::default();
    folder.parse(SampleId(3), &[bytes::Bytes::from_static(b"x")], &mut sample).unwrap();
    assert_eq!(sample.values, [Value::Bytes(bytes::Bytes::from_static(b"x")), Value::I64(2)]);

    let none = dataset::open(&[root.path()], &Options::new().format("folder").set("labels", false)).unwrap();
    assert!(none.index().classes.is_empty() && none.label(SampleId(0)).is_none() && none.schema().fields.len() == 1);
    assert_ne!(none.fingerprint(), folder.fingerprint(), "samples with and without labels differ");
}

#[test]
fn a_file_in_the_root_means_no_classes() {
    let root = folder(&[(b"dog/1", 1), (b"README", 1)]);
    assert!(dataset::open(&[root.path()], &Options::new().format("folder")).unwrap().index().classes.is_empty());
    let error = dataset::open(&[root.path()], &required()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*root.path().join("README"))));
}

#[test]
fn classes_of_several_roots_are_merged_by_name() {
    let first = folder(&[(b"dog/1", 1), (b"cat/2", 1)]);
    let second = folder(&[(b"bee/3", 1), (b"dog/4", 1)]);
    let folder = dataset::open(&[first.path(), second.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(folder.index().classes, ["bee", "cat", "dog"]);
    assert_eq!(keys(&*folder), ["cat/2", "dog/1", "bee/3", "dog/4"]);
    assert_eq!(labels(&*folder), [1, 2, 0, 2]);
    assert_eq!((folder.files().root_of(FileId(1)), folder.files().root_of(FileId(2))), (0, 1));
    assert_eq!(folder.files().path(FileId(3)), second.path().join("dog/4"));
}

#[test]
fn links_are_followed_and_loops_are_not() {
    let elsewhere = folder(&[(b"x/1", 4), (b"y", 5)]);
    let root = folder(&[(b"a/real", 1)]);
    let at = |name: &str| root.path().join(name);
    symlink(elsewhere.path().join("y"), at("a/file-link")).unwrap();
    symlink(elsewhere.path().join("x"), at("a/folder-link")).unwrap();
    symlink("..", at("a/parent")).unwrap();
    symlink(".", at("a/itself")).unwrap();
    symlink("knot", at("a/knot")).unwrap();
    symlink("nowhere", at("a/dangling")).unwrap();
    symlink("real/below-a-file", at("a/dangling-too")).unwrap();
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*folder), ["a/file-link", "a/folder-link/1", "a/real"]);
    assert_eq!(folder.files().sizes(), [5, 4, 1]);
    assert_eq!(skipped(&*folder), [("dangling links", 2), ("links in a loop", 3)]);
    assert_eq!(folder.index().left_out[0].first, at("a/dangling"));
}

/// Two folders that link to each other: each is read in each, but not once more inside that.
#[test]
fn folders_that_link_to_each_other_end() {
    let root = folder(&[(b"a/1", 1), (b"b/2", 1)]);
    symlink("../b", root.path().join("a/to-b")).unwrap();
    symlink("../a", root.path().join("b/to-a")).unwrap();
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*folder), ["a/1", "a/to-b/2", "b/2", "b/to-a/1"]);
    assert_eq!(skipped(&*folder), [("links in a loop", 2)]);
}

/// Twenty folders that all link to each other have more paths than there are grains of sand: refused after a while.
#[test]
fn a_maze_of_links_is_refused() {
    let root = folder(&[]);
    for from in 0..20 {
        fs::create_dir(root.path().join(format!("{from}"))).unwrap();
        for to in (0..20).filter(|to| *to != from) {
            symlink(format!("../{to}"), root.path().join(format!("{from}/{to}"))).unwrap();
        }
    }
    let error = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("links to folders"), "{error}");
}

#[test]
fn what_is_no_file_is_left_out_and_counted() {
    let root = folder(&[(b"a", 1), (b".hidden", 1), (b".folder/b", 1)]);
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
    let fifo = root.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    symlink("fifo", root.path().join("link-to-fifo")).unwrap();
    symlink("/dev/null", root.path().join("link-to-device")).unwrap();
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*folder), ["a"]);
    assert_eq!(skipped(&*folder), [("hidden names", 2), ("FIFOs, sockets or devices", 4)]);
    assert_eq!(folder.index().left_out[0].first, root.path().join(".folder"));
    // Asked for by name it is an error, and by name a hidden file is a sample.
    for path in [&fifo, Path::new("/dev/null")] {
        let error = dataset::open(&[path], &Options::new().format("folder")).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::WrongFileType, Some(path)));
    }
    assert_eq!(
        keys(&*dataset::open(&[root.path().join(".hidden")], &Options::new().format("folder")).unwrap()),
        [".hidden"]
    );
    assert_eq!(keys(&*dataset::open(&[root.path().join(".folder")], &Options::new().format("folder")).unwrap()), ["b"]);
}

#[test]
fn missing_and_empty_places_are_errors() {
    let root = folder(&[(b".hidden", 1)]);
    let missing = root.path().join("missing");
    let error = dataset::open(&[root.path(), &missing], &Options::new().format("folder")).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*missing)));
    let remedy =
        format!("check the path, and that its disk is mounted: there is no missing in {}", root.path().display());
    // Whatever the format, and where the format is to be found out.
    let formats = ["folder", "tar", "mds", "litdata", "idx", "beton", "npy", "safetensors", "tfrecord", "jsonl", "csv"];
    let named = formats.map(|format| Options::new().format(format));
    for options in named.into_iter().chain([Options::new(), Options::new().set("record_bytes", 4)]) {
        let error = dataset::open(&[&missing], &options).unwrap_err();
        assert_eq!((error.kind(), error.remedy()), (ErrorKind::NotFound, Some(&*remedy)), "{options:?}: {error}");
    }
    let error = dataset::open(&[missing.join("*.tar")], &Options::new()).unwrap_err();
    assert_eq!((error.kind(), error.remedy()), (ErrorKind::NotFound, Some(&*remedy)), "{error}");
    let error = dataset::open(&[root.path().join("*.tar")], &Options::new()).unwrap_err();
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("check the pattern")), "{error}");
    let error = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Empty, Some(root.path())));
    assert_eq!(error.remedy(), Some("left out: 1 hidden names"), "{error}");
    assert_eq!(
        dataset::open::<PathBuf>(&[], &Options::new().format("folder")).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let error =
        dataset::open(&[root.path().join(".hidden/below-a-file")], &Options::new().format("folder")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongFileType);
}

#[test]
fn a_subfolder_that_cannot_be_read_is_an_error() {
    const NOBODY: u32 = 65534;
    let is_root = rustix::process::geteuid().is_root();
    if is_root
        && !in_child("a_subfolder_that_cannot_be_read_is_an_error", |program| {
            let mut command = Command::new(program);
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
            command
        })
    {
        return;
    }
    let root = folder(&[(b"a/1", 1), (b"locked/2", 1)]);
    let locked = root.path().join("locked");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let error = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("locked"), "{error}");
    // Names can be listed and sizes cannot be taken.
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o444)).unwrap();
    let error = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::PermissionDenied, Some(&*locked.join("2"))));
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

/// More folders than may be open at a time, as neighbours, nested, and behind links.
#[test]
fn few_folders_are_open_at_a_time() {
    let test = "few_folders_are_open_at_a_time";
    let limited = |program: &Path| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\""]).arg(program);
        command
    };
    if !in_child(test, limited) {
        return;
    }
    let elsewhere = folder(&[(b"x", 1)]);
    let root = folder(&[(b"top", 1)]);
    let mut nested = root.path().to_path_buf();
    for number in 0..300 {
        nested.push("d");
        fs::create_dir(&nested).unwrap();
        fs::write(nested.join("file"), "1").unwrap();
        fs::create_dir(root.path().join(format!("n{number}"))).unwrap();
        fs::write(root.path().join(format!("n{number}/file")), "1").unwrap();
        symlink(elsewhere.path(), root.path().join(format!("link{number}"))).unwrap();
    }
    let options = Options::new().format("folder").threads(16);
    assert_eq!(dataset::open(&[root.path()], &options).unwrap().len(), 901);
    // What removes the folders has one open for each level.
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    root.close().unwrap();
}

#[test]
fn a_path_too_long_for_the_kernel_is_an_error() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let root = folder(&[(b"a", 1)]);
    let mut at = openat(CWD, root.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    let name = OsString::from_vec(vec![b'd'; 200]);
    for _ in 0..25 {
        mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = openat(&at, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let error = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap_err();
    assert!(error.to_string().contains("4095 bytes"), "{error}");
}

#[test]
fn sizes_beyond_32_bits_are_exact() {
    const SIZE: u64 = (5 << 30) + 1;
    let root = folder(&[(b"sparse", SIZE), (b"small", 1)]);
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    assert_eq!((folder.bytes(), folder.largest(1)), (SIZE + 1, SIZE));
    let records = Options::new().format("records").set("record_bytes", 1 << 20).set("header_bytes", 1);
    let records = dataset::open(&[root.path().join("sparse")], &records).unwrap();
    let mut spans = Vec::new();
    records.spans(SampleId(5119), &mut spans);
    assert_eq!(spans[0].offset + spans[0].len, SIZE);
}

#[test]
fn files_named_one_by_one_keep_their_order() {
    let root = folder(&[(b"cat/1", 1), (b"dog/2", 2), (b"dog/3", 3), (b"more/x/4", 4)]);
    let at = |name: &str| root.path().join(name);
    let files = dataset::open(&[at("dog/3"), at("cat/1"), at("dog/2")], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*files), ["dog/3", "cat/1", "dog/2"], "relative to the folder that holds them all");
    assert_eq!(files.files().roots().len(), 1);
    assert!(files.index().classes.is_empty(), "these folders were not said to be classes");
    let mixed =
        dataset::open(&[at("dog/3"), at("more"), at("dog/3"), at("dog/2")], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*mixed), ["3", "x/4", "3", "2"]);
    assert_eq!(mixed.files().roots().len(), 3);
}

#[test]
fn patterns_stand_for_what_they_match() {
    let root = folder(&[(b"cat/1.jpg", 1), (b"cat/1.txt", 1), (b"dog/2.jpg", 2), (b"dog/10.jpg", 3), (b"t-09/a", 1)]);
    fs::create_dir(root.path().join("t-10")).unwrap();
    fs::write(root.path().join("t-10/b"), "").unwrap();
    symlink("nowhere", root.path().join("cat/3.jpg")).unwrap();
    let at = |name: &str| root.path().join(name);
    let jpegs = dataset::open(&[at("*/*.jpg")], &Options::new().format("folder")).unwrap();
    assert_eq!(keys(&*jpegs), ["cat/1.jpg", "dog/10.jpg", "dog/2.jpg"]);
    assert_eq!(jpegs.index().classes, ["cat", "dog"]);
    assert_eq!(labels(&*jpegs), [0, 1, 1]);
    assert_eq!(skipped(&*jpegs), [("dangling links", 1)]);
    assert_eq!(keys(&*dataset::open(&[at("t-{09..10}")], &Options::new().format("folder")).unwrap()), ["a", "b"]);
    assert_eq!(keys(&*dataset::open(&[at("t-*")], &Options::new().format("folder")).unwrap()), ["a", "b"]);
    assert_eq!(
        keys(&*dataset::open(&[at("dog/{2,10}.jpg")], &Options::new().format("folder")).unwrap()),
        ["2.jpg", "10.jpg"]
    );
    let error = dataset::open(&[at("t-{09..11}")], &Options::new().format("folder")).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(&*at("t-11"))));
    assert_eq!(
        dataset::open(&[at("*.tar")], &Options::new().format("folder")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_list_keeps_its_order_and_misses_nothing() {
    let root = folder(&[(b"cat/1", 1), (b"dog/2", 2)]);
    let paths = |names: &[&str]| names.iter().map(|name| root.path().join(name)).collect::<Vec<_>>();
    let list = dataset::open(&paths(&["dog/2", "cat/1", "dog/2"]), &required()).unwrap();
    assert_eq!(keys(&*list), ["dog/2", "cat/1", "dog/2"]);
    assert_eq!((list.files().sizes(), labels(&*list)), (&[2, 1, 2][..], vec![1, 0, 1]));
    let open = |names: &[&str]| dataset::open(&paths(names), &required()).unwrap_err().kind();
    assert_eq!((open(&["cat/1", "gone"]), open(&[])), (ErrorKind::NotFound, ErrorKind::InvalidArgument));
    // A list of more files than one task takes, so that several threads measure it.
    let names = vec!["dog/2"; 5000];
    let options = Options::new().format("folder").threads(4);
    assert_eq!(dataset::open(&paths(&names), &options).unwrap().bytes(), 10_000);
}

#[test]
fn many_files_are_found_alike_by_any_number_of_threads() {
    const FILES: u64 = 5000;
    let root = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        let name = if number % 2 == 0 { format!("flat/{number}") } else { format!("{}/{number}", number % 97) };
        fs::create_dir_all(root.path().join(&name).parent().unwrap()).unwrap();
        fs::File::create(root.path().join(&name)).unwrap().set_len(number).unwrap();
    }
    let open = |threads| dataset::open(&[root.path()], &Options::new().format("folder").threads(threads)).unwrap();
    let one = open(1);
    let names = keys(&*one);
    assert!(names.len() as u64 == FILES && names.is_sorted() && one.bytes() == FILES * (FILES - 1) / 2);
    for threads in [2, 3, 8] {
        let many = open(threads);
        assert_eq!(many.fingerprint(), one.fingerprint());
        assert_eq!(keys(&*many), names);
    }
    let beside = one.files().heap_bytes() as u64 - names.iter().map(|name| name.len() as u64).sum::<u64>();
    assert!(beside <= 48 * FILES, "{beside} bytes beside the names");
}

#[test]
fn a_million_files_take_few_bytes() {
    const FILES: u32 = 1_000_000;
    let _limit = Limit::new(32 << 20);
    let mut files = FileTable::new();
    files.push_root("/data");
    let mut name_bytes = 0;
    for number in 0..FILES {
        let name = format!("class-{:03}/{number:07}.jpg", number / 1000);
        name_bytes += name.len();
        files.push(name.as_bytes(), number.into()).unwrap();
    }
    files.shrink_to_fit();
    let beside = files.heap_bytes() - name_bytes;
    assert!(beside <= 48 * FILES as usize, "{beside} bytes beside the names");
    assert_eq!(files.name(FileId(999_999)), b"class-999/0999999.jpg");
}

/// Files come and go while the folder is read: what is gone is counted, and nothing fails.
#[test]
fn a_folder_that_changes_is_read() {
    let root = folder(&[(b"stays", 1)]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..8).cycle() {
                let path = root.path().join(format!("{number}"));
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join("file"), "1").unwrap();
                fs::remove_dir_all(&path).unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        let opened: Vec<_> =
            (0..200).map(|_| dataset::open(&[root.path()], &Options::new().format("folder"))).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for folder in opened {
            let folder = folder.unwrap();
            assert!(keys(&*folder).contains(&"stays".to_string()));
            assert!(skipped(&*folder).iter().all(|skipped| skipped.0 == "names that vanished"));
        }
    });
}

fn records(record_bytes: u64, header_bytes: u64, drop_tail: bool) -> Options {
    Options::new()
        .format("records")
        .set("record_bytes", record_bytes)
        .set("header_bytes", header_bytes)
        .set("drop_tail", drop_tail)
}

#[test]
fn records_of_several_files_are_one_row() {
    let root = folder(&[(b"a.bin", 4 + 30), (b"b.bin", 4), (b"c/d.bin", 4 + 10), (b"e.bin", 4 + 20)]);
    let dataset = dataset::open(&[root.path()], &records(10, 4, false)).unwrap();
    assert_eq!((dataset.len(), dataset.bytes(), dataset.largest(2), dataset.largest(99)), (6, 60, 20, 60));
    assert_eq!(keys(&*dataset), ["a.bin#0", "a.bin#1", "a.bin#2", "c/d.bin#0", "e.bin#0", "e.bin#1"]);
    let mut spans = Vec::new();
    (0..6).for_each(|id| dataset.spans(SampleId(id), &mut spans));
    let places: Vec<(u32, u64, u64)> = spans.iter().map(|span| (span.file.0, span.offset, span.len)).collect();
    assert_eq!(places, [(0, 4, 10), (0, 14, 10), (0, 24, 10), (2, 4, 10), (3, 4, 10), (3, 14, 10)]);
    let paths = ["e.bin", "a.bin"].map(|name| root.path().join(name));
    let listed = dataset::open(&paths, &records(10, 4, false)).unwrap();
    assert_eq!(keys(&*listed)[..3], ["e.bin#0", "e.bin#1", "a.bin#0"]);
    assert_ne!(listed.fingerprint(), dataset.fingerprint());
}

#[test]
fn an_incomplete_record_is_an_error_or_counted() {
    let root = folder(&[(b"a.bin", 34), (b"b.bin", 33)]);
    let error = dataset::open(&[root.path()], &records(10, 4, false)).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Truncated, Some(24)));
    assert_eq!(error.path(), Some(&*root.path().join("b.bin")));
    assert!(error.remedy().unwrap().contains("header size"), "{error}");
    let dataset = dataset::open(&[root.path()], &records(10, 4, true)).unwrap();
    assert_eq!(dataset.len(), 5);
    assert_eq!((dataset.index().left_out[0].what, dataset.index().left_out[0].count), ("incomplete last records", 1));
}

#[test]
fn impossible_records_are_refused() {
    let root = folder(&[(b"a.bin", 30), (b"b.bin", 3)]);
    let kind = |options| dataset::open(&[root.path()], &options).unwrap_err().kind();
    assert_eq!(kind(records(0, 0, false)), ErrorKind::InvalidArgument);
    assert_eq!(kind(records(10, 4, true)), ErrorKind::Truncated, "no room for the header in b.bin");
    assert_eq!(kind(records(31, 0, true)), ErrorKind::Empty);
    assert_eq!(kind(records(u64::MAX, 0, false)), ErrorKind::Truncated);
    let error = dataset::open(&[root.path().join("gone")], &records(1, 0, false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn records_have_the_type_and_shape_that_they_are_given() {
    let root = folder(&[(b"a.bin", 24 * 5), (b"b.bin", 24)]);
    let open = |dtype, shape: &[u64]| {
        let options = records(24, 0, false).set("dtype", dtype).set("shape", shape.to_vec());
        dataset::open(&[root.path()], &options)
    };
    for (dtype, shape, wanted, length) in [
        (DType::U8, &[][..], &[24][..], 24),
        (DType::F32, &[], &[6], 6),
        (DType::F32, &[3, 2], &[3, 2], 6),
        (DType::BF16, &[2, 2, 3], &[2, 2, 3], 12),
        (DType::I64, &[], &[3], 3),
        (DType::F8E4M3, &[4, 6], &[4, 6], 24),
    ] {
        let dataset = open(dtype, shape).unwrap();
        let field = &dataset.schema().fields[0];
        assert_eq!((field.dtype, &field.shape), (dtype, &Shape::Fixed(wanted.to_vec())));
        assert_eq!((dataset.length(SampleId(2), 0), dataset.len()), (Some(length), 6));
    }
    for (dtype, shape, words) in [
        (DType::F32, &[3, 3][..], "36 bytes"),
        (DType::F32, &[0], "0 bytes"),
        (DType::U8, &[u64::MAX, 2], "more than 2^64"),
    ] {
        let error = open(dtype, shape).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    }
    let options = records(5, 0, true).set("dtype", DType::I16);
    let error = dataset::open(&[root.path()], &options).unwrap_err();
    assert!(error.to_string().contains("5 bytes, not a multiple of the 2 bytes of an element (i16)"), "{error}");
}

#[test]
fn files_are_of_whole_elements() {
    let root = folder(&[(b"a.bin", 24), (b"b.bin", 0), (b"c.bin", 8)]);
    let open = |dtype| dataset::open(&[root.path()], &Options::new().format("folder").set("dtype", dtype));
    let dataset = open(DType::F64).unwrap();
    assert_eq!(dataset.schema().fields[0].dtype, DType::F64);
    assert_eq!((0..3).map(|id| dataset.length(SampleId(id), 0).unwrap()).collect::<Vec<_>>(), [3, 0, 1]);
    assert_eq!((dataset.bytes(), dataset.largest(1)), (32, 24), "these are bytes");
    std::fs::write(root.path().join("b.bin"), [0; 6]).unwrap();
    let error = open(DType::I32).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*root.path().join("b.bin"))));
    assert!(
        error.to_string().contains("6 bytes, not a multiple of the 4 bytes of an element (i32)")
            && error.remedy().is_some(),
        "{error}"
    );
    open(DType::U16).unwrap();
}

/// Plain bytes keep the fingerprint that they had before there were types; everything else has one of its own.
#[test]
fn types_and_shapes_show_in_the_fingerprint() {
    let root = folder(&[(b"a.bin", 240), (b"b.bin", 24)]);
    let of_records = |dtype, shape: &[u64]| {
        let options = records(24, 0, false).set("dtype", dtype).set("shape", shape.to_vec());
        dataset::open(&[root.path()], &options).unwrap().fingerprint()
    };
    let plain = dataset::open(&[root.path()], &records(24, 0, false)).unwrap().fingerprint();
    assert_eq!(of_records(DType::U8, &[24]), plain);
    let all = [
        plain,
        of_records(DType::I8, &[]),
        of_records(DType::F32, &[]),
        of_records(DType::F32, &[2, 3]),
        of_records(DType::F32, &[3, 2]),
        of_records(DType::U8, &[4, 6]),
    ];
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    let of_folder = |dtype| {
        dataset::open(&[root.path()], &Options::new().format("folder").set("dtype", dtype)).unwrap().fingerprint()
    };
    assert_eq!(
        of_folder(DType::U8),
        dataset::open(&[root.path()], &Options::new().format("folder")).unwrap().fingerprint()
    );
    assert_eq!(HashSet::from([DType::U8, DType::I8, DType::F16, DType::BF16].map(of_folder)).len(), 4);
}

/// Where the system refuses threads, those that run do all the work.
#[test]
fn without_threads_it_goes_on_alone() {
    const NOBODY: u32 = 65534;
    if !in_child("without_threads_it_goes_on_alone", |program| {
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        command
    }) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    for number in 0..3000 {
        fs::write(root.path().join(format!("{number:04}.dat")), [0; 3]).unwrap();
    }
    fs::create_dir(root.path().join("arrays")).unwrap();
    let array = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays/plain_f4.npy");
    let bytes = fs::read(array)
        .unwrap_or_else(|_| b"\x93NUMPY\x01\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }".to_vec());
    for number in 0..40 {
        fs::write(root.path().join(format!("arrays/{number}.npy")), &bytes).unwrap();
    }
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Nproc, none).unwrap();
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "threads are refused");
    let options = Options::new().format("folder").threads(8);
    assert_eq!(dataset::open(&[root.path()], &options).unwrap().len(), 3040);
    let names: Vec<PathBuf> = (0..3000).map(|number| root.path().join(format!("{number:04}.dat"))).collect();
    assert_eq!(dataset::open(&names, &options).unwrap().len(), 3000);
    let arrays = dataset::open(&[root.path().join("arrays")], &Options::new().format("npy").threads(8));
    assert!(arrays.is_ok() || arrays.is_err_and(|error| error.kind() == ErrorKind::Truncated));
}
