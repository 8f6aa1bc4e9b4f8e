//! Samples that cannot be read: what each policy does with them, how many may be, where they are listed, and
//! reads that never end.

use crate::common::check::{checked, drain, ways_to};
use crate::common::content::write_file;
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::fixture;
use crate::common::{HANG, skip, within};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::batch::{Batch, FailedSample};
use uringload::config::{EngineChoice, IoChoice, MaxFailures, OnError};
use uringload::dataset::{self, Dataset, Options, SampleId};
use uringload::inspect::replacement;
use uringload::sampler::{Cursor, OrderId, Sampler};
use uringload::{Builder, Loader};
use uringload::{Error, ErrorKind, quarantine};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 60;

/// The files that go wrong: one for each rank of three, whatever the order, and neighbours.
const BAD: [u64; 5] = [3, 10, 11, 30, 59];

type Way = (EngineChoice, IoChoice);

/// A folder of [`FILES`] files of which those of [`BAD`] were cut, removed, or are no files any more.
fn folder_with_bad_files() -> (TempDir, Arc<dyn Dataset>) {
    let (root, dataset) = fixture::files((0..FILES).map(|number| (path(Path::new(""), number), 5_000 + number)));
    for number in BAD {
        let file = path(root.path(), number);
        match number % 3 {
            0 => File::options().write(true).open(&file).and_then(|file| file.set_len(1000)).expect("cut"),
            1 => fs::remove_file(&file).expect("remove"),
            _ => fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("a folder in its place"),
        }
    }
    (root, dataset)
}

fn path(root: &Path, number: u64) -> PathBuf {
    root.join(format!("file_{number:02}"))
}

fn builder(dataset: &Arc<dyn Dataset>, (engine, io): Way) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(4).engine(engine).io(io).seed(7)
}

/// Runs `check` for every way to read the folder with the bad files here.
fn each_way(check: impl Fn(&Arc<dyn Dataset>, Way) + Send + 'static) {
    within(2 * BOUND, move || {
        let (_root, dataset) = folder_with_bad_files();
        ways_to(&dataset).into_iter().for_each(|way| check(&dataset, way));
    });
}

fn batches(loader: Loader) -> Vec<Result<Batch, Error>> {
    loader.collect()
}

fn bad() -> Vec<SampleId> {
    BAD.map(SampleId).to_vec()
}

fn failed_of<'a>(batches: impl IntoIterator<Item = &'a Result<Batch, Error>>) -> Vec<&'a FailedSample> {
    batches.into_iter().flat_map(|batch| &batch.as_ref().expect("a batch").failed).collect()
}

#[test]
fn raised_errors_stand_in_the_place_of_their_batches() {
    each_way(|dataset, way| {
        let all = batches(builder(dataset, way).build().expect("a loader"));
        assert_eq!(all.len() as u64, FILES / 4);
        for (index, batch) in (0_u64..).zip(&all) {
            let is_bad = BAD.iter().any(|bad| bad / 4 == index);
            assert_eq!(batch.is_err(), is_bad, "{way:?}, batch {index}: {batch:?}");
        }
    });
}

#[test]
fn warnings_are_told_where_the_batches_are_taken() {
    each_way(|dataset, way| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        let here = std::thread::current().id();
        let on_failed = move |failed: &FailedSample| {
            assert_eq!(std::thread::current().id(), here);
            list.lock().expect("no panic").push(failed.id);
        };
        let loader = builder(dataset, way).on_error(OnError::Warn).on_failed(on_failed).build().expect("a loader");
        let mut seen = Vec::new();
        for batch in loader {
            let batch = batch.expect("a batch");
            seen.extend(batch.failed.iter().map(|failed| failed.id));
            assert_eq!(*told.lock().expect("no panic"), seen, "told with the batch, not before");
            checked(&**dataset, &batch);
        }
        assert_eq!(seen, bad(), "{way:?}");
    });
}

/// What takes the place of each bad sample here: the first of its replacements that is good.
fn replacements(seed: u64) -> BTreeMap<SampleId, SampleId> {
    let good = |id: SampleId| {
        let tries = (0..16).filter_map(|attempt| replacement(seed, id, attempt, FILES));
        tries.into_iter().find(|other| !BAD.contains(&other.0)).expect("some are good")
    };
    bad().into_iter().map(|id| (id, good(id))).collect()
}

/// Three ranks meet different numbers of bad samples and keep as many samples as each other, in every batch; and what
/// replaces a sample hangs on no rank, engine or world.
#[test]
fn replaced_samples_keep_ranks_aligned() {
    each_way(|dataset, way| {
        let wanted = replacements(7);
        for world in [1, 3] {
            let mut met = BTreeMap::new();
            let mut sizes = BTreeSet::new();
            for rank in 0..world {
                let builder = builder(dataset, way).on_error(OnError::Replace).rank(rank, world).shuffle(true);
                let all = batches(builder.build().expect("a loader"));
                sizes.insert(all.iter().map(|batch| batch.as_ref().map_or(0, Batch::len)).collect::<Vec<_>>());
                let of_rank = failed_of(&all);
                met.extend(of_rank.iter().map(|failed| (failed.id, failed.replaced_by.expect("replaced"))));
                for batch in all.iter().flatten() {
                    let ids = checked(&**dataset, batch);
                    let replaced = batch.failed.iter().filter_map(|failed| failed.replaced_by);
                    assert!(replaced.into_iter().all(|by| ids.contains(&by)), "it is there: {batch:?}");
                    assert_eq!(batch.digest.samples + batch.lost.samples, ids.len() as u64);
                }
            }
            assert_eq!(sizes.len(), 1, "{way:?}: ranks differ: {sizes:?}");
            assert_eq!(met, wanted, "{way:?}, {world} ranks");
        }
    });
}

#[test]
fn where_nothing_is_good_an_error_ends_the_attempts() {
    each_way(|_, way| {
        for files in [1, 40] {
            let (root, dataset) = fixture::files((0..files).map(|number| (path(Path::new(""), number), 5_000)));
            (0..files).for_each(|number| drop(File::create(path(root.path(), number)).expect("empty")));
            let all = batches(builder(&dataset, way).on_error(OnError::Replace).build().expect("a loader"));
            assert_eq!(all.len() as u64, files.div_ceil(4));
            for (batch, first) in all.iter().zip((0..files).step_by(4)) {
                let error = batch.as_ref().expect_err("no sample is good");
                assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
                assert_eq!(error.path(), Some(path(root.path(), first).as_path()), "{error}");
                let last = replacement(7, SampleId(first), 15, files);
                let words = last.map_or("no other".into(), |last| format!("the last of them sample {}", last.0));
                assert!(error.to_string().contains(&words), "{words}: {error}");
            }
        }
    });
}

#[test]
fn a_loader_ends_after_too_many_failures() {
    // Policies and ways take turns.
    ends_after_too_many_failures(|way| {
        let turn = usize::from(way.0 == EngineChoice::Uring) + usize::from(way.1 == IoChoice::Direct);
        vec![[OnError::Raise, OnError::Skip, OnError::Replace][turn]]
    });
}

#[test]
#[ignore = "slow: every policy by every way"]
fn a_loader_ends_after_too_many_failures_whatever_the_policy() {
    ends_after_too_many_failures(|_| vec![OnError::Raise, OnError::Skip, OnError::Replace]);
}

fn ends_after_too_many_failures(policies: fn(Way) -> Vec<OnError>) {
    each_way(move |dataset, way| {
        for on_error in policies(way) {
            let list = TempDir::new().expect("a folder").path().with_extension("jsonl");
            let builder = builder(dataset, way).on_error(on_error).quarantine(&list).batch_size(1);
            let limited = builder.clone().max_failures(MaxFailures::Count(2));
            let mut all = batches(limited.build().expect("a loader"));
            let error = all.pop().expect("an end").expect_err("the third is one too many");
            assert_eq!(all.len() as u64, BAD[2], "in the place of its batch");
            assert_eq!(error.kind(), ErrorKind::TooManyFailures, "{error}");
            assert!(error.path().is_some_and(|file| file.ends_with("file_11")) && error.offset() == Some(0), "{error}");
            for words in ["3 samples failed", "allows 2", "sample 11", list.to_str().expect("a name")] {
                assert!(error.to_string().contains(words), "{words} is missing: {error}");
            }
            assert_eq!(quarantine::read(&list, &**dataset).expect("a list"), bad()[..3]);
            let other = list.with_extension("other");
            fs::write(&other, format!("{}\n0\n", BAD[1])).expect("a list");
            let both = quarantine::read_all(&[&list, &other], &**dataset).expect("two lists");
            assert_eq!(both, [0, BAD[0], BAD[1], BAD[2]], "ascending, each once");
            fs::remove_file(other).expect("remove");
            let all = batches(builder.max_failures(MaxFailures::Count(5)).build().expect("a loader"));
            assert_eq!(all.len() as u64, FILES, "as many as are allowed");
            fs::remove_file(list).expect("remove");
        }
    });
}

/// What stands behind a loader cannot use some samples of what it took ahead: these fail as those that cannot be read.
#[test]
fn samples_of_no_use_count_and_are_listed_with_those_that_cannot_be_read() {
    let (root, dataset) = folder_with_bad_files();
    let list = root.path().with_extension("jsonl");
    let builder =
        Loader::builder(Arc::clone(&dataset)).on_error(OnError::Skip).quarantine(&list).epochs(3).batch_size(10);
    let builder = builder.shuffle(true).seed(3).rank(1, 2);
    let bad = |loader: &mut Loader, batch: &Batch, id| {
        let error = Error::new(ErrorKind::Transform, "no image");
        loader.fail(batch.cursor, (id, error), None, false)
    };
    let mut loader = builder.clone().build().expect("a loader");
    let (mut of_no_use, mut unread, mut in_first) = (0, 0, 0);
    while let Some(batch) = loader.next() {
        let batch = batch.expect("a batch");
        unread += batch.failed.len() as u64;
        in_first += if batch.cursor.epoch == 0 { batch.failed.len() as u64 } else { 0 };
        let order = builder.clone().order().expect("an order").at(batch.cursor);
        let planned = order.batches().next().expect("this batch");
        let (failed, beside) = bad(&mut loader, &batch, batch.ids[1]).expect("no limit");
        of_no_use += 1;
        let index = planned.ids.iter().position(|&id| id == failed.id).expect("in the plan");
        assert_eq!(failed.position, planned.positions[index].position);
        assert!(beside.is_none() && failed.error.kind() == ErrorKind::Transform);
    }
    assert_eq!(loader.stats().snapshot().count.samples_skipped, of_no_use + unread);
    let listed = fs::read_to_string(&list).expect("a list");
    assert!(listed.contains("\"kind\":\"Transform\"") && listed.contains("no image"), "{listed}");
    fs::remove_file(&list).expect("remove");
    // What the reactor met in epochs to come does not count yet.
    let mut loader = builder.max_failures(MaxFailures::Count(in_first + 1)).build().expect("a loader");
    let first = loader.next().expect("one").expect("a batch");
    while loader.cursor().epoch == 0 {
        loader.next().expect("one").expect("a batch");
    }
    bad(&mut loader, &first, first.ids[0]).expect("as many as are allowed");
    let error = bad(&mut loader, &first, first.ids[1]).expect_err("one too many");
    assert_eq!((error.kind(), loader.remaining()), (ErrorKind::TooManyFailures, Some(0)), "{error}");
    assert!(loader.next().is_none(), "nothing comes after it");
    fs::remove_file(&list).expect("remove");
}

#[test]
fn a_share_of_failures_is_of_each_epoch() {
    each_way(|dataset, way| {
        let builder = builder(dataset, way).on_error(OnError::Skip).epochs(3).batch_size(1);
        let share = BAD.len() as f64 / FILES as f64;
        let all = batches(builder.clone().max_failures(MaxFailures::Fraction(share)).build().expect("a loader"));
        assert_eq!(all.len() as u64, 3 * FILES, "no more than that in any epoch");
        let mut loader = builder.max_failures(MaxFailures::Fraction(share * 0.9)).build().expect("a loader");
        let last = loader.by_ref().last().expect("an end").expect_err("one too many");
        assert_eq!(last.kind(), ErrorKind::TooManyFailures, "{last}");
        assert!(last.to_string().contains("5 of the 60 samples of this rank failed in epoch 0"), "{last}");
        assert_eq!(loader.remaining(), Some(0));
    });
}

#[test]
fn what_cannot_work_is_refused() {
    let (_root, dataset) = folder_with_bad_files();
    let builder = || Loader::builder(Arc::clone(&dataset));
    let refused = |builder: Builder| builder.build().expect_err("it is refused");
    for share in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        let error = refused(builder().max_failures(MaxFailures::Fraction(share)));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(refused(builder().timeout(Duration::ZERO)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused(builder().on_failed(|_| ())).kind(), ErrorKind::InvalidArgument);
    let error = refused(builder().quarantine("/nowhere/list.jsonl"));
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(Path::new("/nowhere/list.jsonl"))));
}

/// What an error has beside its sentence: the kind, the path and the offset, whether a cause, whether a remedy.
type Parts = (ErrorKind, Option<PathBuf>, Option<u64>, bool, bool);

/// The parts of an error, of which its text consists.
fn parts(error: &Error) -> Parts {
    let place = match (error.path(), error.offset()) {
        (None, _) => String::new(),
        (Some(path), None) => format!("{}: ", path.display()),
        (Some(path), Some(offset)) => format!("{}:{offset}: ", path.display()),
    };
    let (what, line) = (error.what(), error.headline().to_string());
    let rest = line.strip_prefix(&format!("{place}{what}")).unwrap_or_else(|| panic!("{place}{what} begins {line}"));
    let has_cause = error.cause().is_some();
    assert!(rest.is_empty() != has_cause && (rest.is_empty() || rest.starts_with(": ")), "{line}");
    // A statement, which needs no file name behind it.
    assert!(!what.ends_with(|last: char| !last.is_alphanumeric() && !"\")]%".contains(last)), "{what}");
    let help = error.remedy().map_or_else(String::new, |remedy| format!("\nhelp: {remedy}"));
    assert_eq!(error.to_string(), line + &help);
    (error.kind(), error.path().map(Path::to_owned), error.offset(), has_cause, error.remedy().is_some())
}

/// `Timeout` is with the reads that never end below, `Internal` with the loader, `Device` with the driver that fails.
#[test]
fn errors_of_every_kind_have_their_parts() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let put = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).map(|()| at(name)).expect("a file");
    let records = Options::new().format("records").set("record_bytes", 300);
    let (_root, dataset) = folder_with_bad_files();
    let good: Arc<dyn Dataset> =
        dataset::open(&[put("good", &[7; 100])], &Options::new().format("folder")).expect("a file");
    let builder = |dataset: &Arc<dyn Dataset>| Loader::builder(Arc::clone(dataset)).batch_size(1);
    let refused = |builder: Builder| builder.build().expect_err("it is refused");
    let state = builder(&good).build().expect("a loader").state();
    fs::create_dir(at("empty")).expect("a folder");
    let list = put("list", b"3\nthree\n");
    let xz = put("a.tar", &[&b"\xfd7zXZ\0"[..], &[0; 600]].concat());
    let cases: [(Error, Parts); 10] = [
        (refused(builder(&good).timeout(Duration::ZERO)), (ErrorKind::InvalidArgument, None, None, false, true)),
        (
            dataset::open(&[at("none")], &Options::new().format("folder")).expect_err("nothing is there"),
            (ErrorKind::NotFound, Some(at("none")), None, true, true),
        ),
        (
            dataset::open(&[at("empty")], &Options::new().format("folder")).expect_err("nothing is in it"),
            (ErrorKind::Empty, Some(at("empty")), None, false, false),
        ),
        (
            state.write(at("empty")).expect_err("a folder is there"),
            (ErrorKind::WrongFileType, Some(at("empty")), None, false, false),
        ),
        (
            dataset::open(&[put("records", &[0; 1000])], &records).expect_err("a record is cut"),
            (ErrorKind::Truncated, Some(at("records")), Some(900), false, true),
        ),
        (
            quarantine::read(&list, &*dataset).expect_err("a line is wrong"),
            (ErrorKind::Corrupt, Some(list.clone()), Some(2), false, true),
        ),
        (
            dataset::open(&[&xz], &Options::new().format("tar")).expect_err("xz is not read"),
            (ErrorKind::Unavailable, Some(xz.clone()), Some(0), false, true),
        ),
        (refused(builder(&good).memory_limit(1)), (ErrorKind::MemoryLimit, None, None, false, true)),
        (refused(builder(&dataset).resume(&state)), (ErrorKind::StateMismatch, None, None, false, true)),
        (
            Error::io("cannot open the folder", std::io::Error::from_raw_os_error(13)).with_path("a"),
            (ErrorKind::PermissionDenied, Some("a".into()), None, true, false),
        ),
    ];
    for (error, wanted) in cases {
        assert_eq!(parts(&error), wanted, "{error}");
    }
}

#[test]
fn errors_of_a_loader_that_runs_have_their_parts() {
    let (root, dataset) = folder_with_bad_files();
    let builder = Loader::builder(dataset).batch_size(1).on_error(OnError::Skip);
    // The first bad file is shorter than it was: its error is the cause.
    let loader = builder.clone().max_failures(MaxFailures::Count(0)).build().expect("a loader");
    let error = loader.last().expect("an end").expect_err("one is too many");
    let of_sample = error.cause().and_then(|cause| cause.downcast_ref::<Error>()).expect("the error of the sample");
    let (file, offset) = (path(root.path(), BAD[0]), of_sample.offset());
    assert_eq!(parts(of_sample), (ErrorKind::Truncated, Some(file.clone()), offset, false, true));
    assert!(offset.is_some() && of_sample.remedy() != error.remedy(), "{error}");
    assert_eq!((error.kind(), error.path(), error.offset()), (ErrorKind::TooManyFailures, Some(&*file), offset));
    // Its place is said once, and both remedies are.
    let text = error.to_string();
    assert_eq!((text.matches("file_03").count(), text.lines().count()), (1, 3), "{text}");
    if Path::new("/dev/full").exists() {
        let mut loader = builder.quarantine("/dev/full").build().expect("a loader");
        let error = loader.find_map(Result::err).expect("the list cannot be written");
        assert_eq!(parts(&error), (ErrorKind::Io, Some("/dev/full".into()), None, true, true), "{error}");
    }
    let large = TempDir::new().expect("a folder");
    (0..40).for_each(|number| write_file(&path(large.path(), number), 200_000).expect("a file"));
    let dataset: Arc<dyn Dataset> = dataset::open(&[large.path()], &Options::new().format("folder")).expect("a folder");
    let loader = Loader::builder(dataset).batch_size(4).memory_limit(2 << 20).starved_after(Duration::from_millis(50));
    let (mut loader, mut held) = (loader.build().expect("a loader"), Vec::new());
    let starved = loader.find_map(|batch| batch.map(|batch| held.push(batch)).err()).expect("batches hold all memory");
    assert_eq!(parts(&starved), (ErrorKind::Starved, None, None, false, true), "{starved}");
}

/// The samples of a dataset but for some, in order.
struct Without(Vec<SampleId>);

impl Sampler for Without {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        self.0[cursor.position as usize]
    }

    fn id(&self) -> OrderId {
        let ids: Vec<u64> = self.0.iter().map(|id| id.0).collect();
        OrderId::custom("without", 1, &ids)
    }
}

/// Two ranks list what they meet in two epochs; what they list is left out of the next run, which meets nothing.
#[test]
fn a_list_of_bad_samples_goes_round() {
    each_way(|dataset, way| {
        let folder = TempDir::new().expect("a folder");
        let list = folder.path().join("bad.jsonl");
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let builder = builder(dataset, way).on_error(OnError::Skip).quarantine(&list).epochs(2).rank(rank, 2);
                let loader = builder.shuffle(true).build().expect("a loader");
                std::thread::spawn(move || failed_of(&batches(loader)).len())
            })
            .collect();
        let met: usize = ranks.into_iter().map(|rank| rank.join().expect("no panic")).sum();
        assert_eq!(met, 2 * BAD.len());
        let excluded = quarantine::read(&list, &**dataset).expect("a list");
        assert_eq!(excluded, bad());
        let text = fs::read_to_string(&list).expect("a list");
        // In another order the other rank may meet a sample in the second epoch: a line each.
        assert!((BAD.len()..=met).contains(&text.lines().count()), "{text}");
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let id = line["id"].as_u64().expect("an id");
            assert_eq!(line["key"], format!("file_{id:02}"));
            assert!(line["file"].as_str().is_some_and(|file| file.ends_with(&format!("file_{id:02}"))), "{line}");
            assert_eq!((line["offset"].as_u64(), line["length"].as_u64()), (Some(0), Some(5000 + id)), "{line}");
            assert_eq!(line["dataset"], format!("{:016x}", dataset.fingerprint()));
            let kind = ["Truncated", "NotFound"].get(id as usize % 3);
            assert!(kind.is_none_or(|kind| line["kind"] == *kind), "{line}");
            assert!(line["reason"].as_str().is_some_and(|reason| reason.contains("file_")), "{line}");
            let error = &line["error"];
            assert!(error["kind"] == line["kind"] && error["file"] == line["file"], "{line}");
            assert!(error["what"].is_string() && error["remedy"].is_string() != error["cause"].is_string(), "{line}");
            assert!(line["position"].is_u64() && line["epoch"].is_u64() && line.get("replaced_by").is_none(), "{line}");
        }
        let rest = (0..FILES).map(SampleId).filter(|id| !excluded.contains(id)).collect();
        let again = builder(dataset, way).sampler(Arc::new(Without(rest)));
        let (ids, errors) = drain(&**dataset, &mut again.build().expect("a loader"));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(ids.len() as u64, FILES - BAD.len() as u64);
    });
}

#[test]
fn replacements_and_odd_names_are_listed() {
    let root = TempDir::new().expect("a folder");
    let odd = root.path().join(OsStr::from_bytes(b"odd\xff\n"));
    (0..4).for_each(|number| write_file(&path(root.path(), number), 100).expect("a file"));
    write_file(&odd, 100).expect("a file");
    let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &Options::new().format("folder")).expect("a folder");
    fs::remove_file(&odd).expect("remove");
    let list = root.path().join("list");
    let loader = Loader::builder(Arc::clone(&dataset)).on_error(OnError::Replace).quarantine(&list).build();
    let all = batches(loader.expect("a loader"));
    let failed = failed_of(&all);
    let line: serde_json::Value = serde_json::from_slice(&fs::read(&list).expect("a list")).expect("one line");
    assert_eq!(line["key_hex"], "6f6464ff0a");
    assert!(line["file_hex"].as_str().is_some_and(|hex| hex.ends_with("6f6464ff0a")), "{line}");
    assert_eq!(line["replaced_by"].as_u64(), failed[0].replaced_by.map(|by| by.0));
    assert_eq!(quarantine::read(&list, &*dataset).expect("a list"), [failed[0].id]);
}

#[test]
fn a_list_that_cannot_be_written_is_told_once() {
    if !Path::new("/dev/full").exists() {
        return skip("there is no /dev/full");
    }
    let (_root, dataset) = folder_with_bad_files();
    let builder = Loader::builder(dataset).batch_size(4).on_error(OnError::Skip).quarantine("/dev/full").epochs(2);
    let mut loader = builder.build().expect("a loader");
    let (mut came, mut errors) = (0, Vec::new());
    for batch in loader.by_ref() {
        match batch {
            Ok(batch) => came += batch.len() + batch.failed.len(),
            Err(error) => errors.push(error),
        }
    }
    let [error] = &errors[..] else { panic!("once: {errors:?}") };
    assert_eq!(error.path(), Some(Path::new("/dev/full")), "{error}");
    assert_eq!((came as u64, loader.remaining()), (2 * FILES, Some(0)), "beside the batches, in the place of none");
}

/// FUSE is read by threads; a ring is covered by the tests of its engine.
const FUSE_WAYS: [Way; 3] = [
    (EngineChoice::Auto, IoChoice::Auto),
    (EngineChoice::Auto, IoChoice::Direct),
    (EngineChoice::Threads, IoChoice::Buffered),
];

/// After what a read is given up, at first: where the machine is so busy that a good one misses it, it is twice as
/// much.
const TIMEOUT: Duration = Duration::from_millis(300);
const TIMEOUT_MAX: Duration = Duration::from_secs(40);

/// Whether a good read was given up, because the machine is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slow(bool);

impl Slow {
    fn of<'a>(errors: impl IntoIterator<Item = &'a Error>) -> Slow {
        let is_good = |error: &Error| error.path().is_some_and(|file| file.to_string_lossy().contains("good_"));
        Slow(errors.into_iter().any(|error| error.kind() == ErrorKind::Timeout && is_good(error)))
    }
}

/// Runs `check` over twenty good files and `stuck` whose reads do not end, in every way, and again with more time where
/// the machine is too slow for it.
fn each_way_of_stuck(stuck: u64, check: fn(&Faulty, Arc<dyn Dataset>, Builder) -> Slow) {
    let by_way = |way| {
        let mut times =
            std::iter::successors(Some(TIMEOUT), |time| Some(2 * *time).filter(|time| *time <= TIMEOUT_MAX));
        assert!(times.any(|time| stuck_within(stuck, way, time, check) == Slow(false)), "{way:?}");
    };
    // All at once: most of their time they wait.
    std::thread::scope(|scope| FUSE_WAYS.map(|way| scope.spawn(move || by_way(way))).map(drop));
}

fn stuck_within(
    stuck: u64,
    (engine, io): Way,
    timeout: Duration,
    check: fn(&Faulty, Arc<dyn Dataset>, Builder) -> Slow,
) -> Slow {
    let spec = |name: String, size, fault| Spec { name, size, fault };
    let good = (0..20).map(|number| spec(format!("good_{number:02}"), 1000 + number * 7_777, Fault::None));
    let bad = (0..stuck).map(|number| spec(format!("stuck_{number:02}"), 30_000, Fault::Stuck));
    // The stuck ones come first.
    let faulty = match Faulty::mount(bad.chain(good).collect()) {
        Ok(faulty) => faulty,
        Err(reason) => {
            skip(reason);
            return Slow(false);
        }
    };
    within(BOUND, move || {
        let dataset: Arc<dyn Dataset> =
            dataset::open(&[faulty.path()], &Options::new().format("folder")).expect("a folder");
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).engine(engine).io(io).shuffle(true);
        check(&faulty, dataset, builder.timeout(timeout))
    })
}

fn assert_timeout(error: &Error, stage: &str) {
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.path().is_some_and(|file| file.to_string_lossy().contains("stuck_")), "{error}");
    assert!(error.offset() == Some(0) && error.remedy().is_some(), "{error}");
    let text = error.what();
    let age = text.split_once(" given up after ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(age.is_some_and(|age| age >= TIMEOUT.as_secs_f64()), "{text}");
    assert!(text.contains(stage) && text.contains(" bytes"), "{text}");
}

#[test]
fn a_read_that_never_ends_is_given_up_and_the_others_come() {
    each_way_of_stuck(2, |faulty, dataset, builder| given_up(faulty, &*dataset, builder, HANG));
}

/// Reads that are known to be stuck are not waited for. Others are, for 5 s.
#[test]
#[ignore = "slow: measures time"]
fn a_loader_does_not_wait_for_reads_that_it_gave_up() {
    each_way_of_stuck(2, |faulty, dataset, builder| given_up(faulty, &*dataset, builder, Duration::from_secs(4)));
}

fn given_up(faulty: &Faulty, dataset: &dyn Dataset, builder: Builder, bound: Duration) -> Slow {
    let mut loader = builder.on_error(OnError::Skip).epochs(2).build().expect("a loader");
    let (ids, errors) = drain(dataset, &mut loader);
    if Slow::of(&errors) == Slow(true) {
        return Slow(true);
    }
    assert_eq!((ids.len(), errors.len()), (40, 4), "{errors:?}");
    errors.iter().for_each(|error| assert_timeout(error, "being read"));
    let start = Instant::now();
    drop(loader);
    assert!(start.elapsed() < bound, "{:?}", start.elapsed());
    faulty.release();
    Slow(false)
}

#[test]
fn a_read_that_never_ends_takes_the_place_of_its_batch_or_is_replaced() {
    each_way_of_stuck(1, |_, dataset, builder| {
        let all = batches(builder.clone().batch_size(1).build().expect("a loader"));
        let errors: Vec<&Error> = all.iter().filter_map(|batch| batch.as_ref().err()).collect();
        if Slow::of(errors.iter().copied()) == Slow(true) {
            return Slow(true);
        }
        assert_eq!((all.len(), errors.len()), (21, 1), "{errors:?}");
        assert_timeout(errors[0], "being read");
        let all = batches(builder.on_error(OnError::Replace).build().expect("a loader"));
        let failed = all.iter().flatten().flat_map(|batch| &batch.failed).map(|failed| &failed.error);
        if Slow::of(failed) == Slow(true) {
            return Slow(true);
        }
        let came: usize = all.iter().flatten().map(|batch| checked(&*dataset, batch).len()).sum();
        assert_eq!(came, 21, "{all:?}");
        assert_timeout(&failed_of(&all)[0].error, "being read");
        Slow(false)
    });
}

/// More reads never end than there are threads: each lost thread has a successor.
#[test]
fn more_stuck_reads_than_threads() {
    each_way_of_stuck(20, |_, dataset, builder| {
        let narrow = builder.clone().queue_depth(8).engine(EngineChoice::Threads);
        for builder in [builder, narrow] {
            let mut loader = builder.on_error(OnError::Skip).build().expect("a loader");
            let (ids, errors) = drain(&*dataset, &mut loader);
            if Slow::of(&errors) == Slow(true) {
                return Slow(true);
            }
            assert_eq!((ids.len(), errors.len()), (20, 20), "{errors:?}");
            errors.iter().for_each(|error| assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"));
        }
        Slow(false)
    });
}

/// Reads that end late bring their memory home: an epoch after the storage has come back is whole.
#[test]
fn storage_that_comes_back_is_read_again() {
    each_way_of_stuck(3, |faulty, dataset, builder| {
        let mut loader = builder.on_error(OnError::Skip).epochs(None).memory_limit(2 << 20).build().expect("a loader");
        let mut lost = 0;
        while lost < 3 {
            lost += loader.next().expect("endless").expect("a batch").failed.len();
        }
        faulty.release();
        let mut whole = 0;
        let end = Instant::now() + Duration::from_secs(10);
        while whole < 12 {
            if Instant::now() >= end {
                // It stays broken, or good reads miss their time again and again.
                return Slow(true);
            }
            let batch = loader.next().expect("endless").expect("a batch");
            checked(&*dataset, &batch);
            whole = if batch.failed.is_empty() { whole + 1 } else { 0 };
        }
        Slow(false)
    });
}
