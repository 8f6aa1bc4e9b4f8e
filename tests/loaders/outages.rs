//! Storage that goes away and comes back: no sample is lost under any policy, and an outage that does not end is one
//! error. The servers are FUSE filesystems (root only, `skipped:` otherwise); a folder that loses its files needs none.

use crate::common::check::drain;
use crate::common::content::write_file;
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::{HANG, skip, within};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{EngineChoice, IoChoice, OnError};
use uringload::dataset::{self, Dataset, Options};
use uringload::{Builder, Error, ErrorKind, Loader};

const FILES: u64 = 60;
const BOUND: Duration = Duration::from_secs(120);

/// What is no outage is told long before one would be, which is after 300 s, on a busy machine too.
const AT_ONCE: Duration = Duration::from_secs(30);
/// How long an outage lasts here. The slow tests have longer ones.
const SHORT: Duration = Duration::from_millis(1200);
const POLICIES: [OnError; 4] = [OnError::Raise, OnError::Warn, OnError::Skip, OnError::Replace];
/// FUSE is read by threads, past the page cache and through it.
const WAYS: [IoChoice; 2] = [IoChoice::Direct, IoChoice::Buffered];

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;
const EHOSTDOWN: i32 = 112;
const ESTALE: i32 = 116;

fn specs() -> Vec<Spec> {
    let spec = |number| Spec { name: format!("f{number:03}"), size: 20_000 + number * 1000, fault: Fault::None };
    (0..FILES).map(spec).collect()
}

fn folder(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new().format("folder")).expect("a folder")
}

fn builder(dataset: &Arc<dyn Dataset>, on_error: OnError, io: IoChoice) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(4).shuffle(true).memory_limit(1 << 20).on_error(on_error).io(io)
}

/// Reads all with an outage in the middle: `begin` it after the first batches, and `end` it after `lasting`. Every
/// sample must come, and nothing may be said of any.
fn reads_all<T>(
    (dataset, builder): (&Arc<dyn Dataset>, Builder),
    server: &mut T,
    (begin, end): (impl Fn(&mut T), impl Fn(&mut T) + Send),
    lasting: Duration,
) where
    T: Send,
{
    let list = TempDir::new().expect("a folder");
    let list = list.path().join("bad.jsonl");
    let mut loader = builder.quarantine(&list).build().expect("a loader");
    let mut ids = Vec::new();
    for batch in loader.by_ref().take(2) {
        ids.extend(crate::common::check::checked(&**dataset, &batch.expect("it begins well")));
    }
    begin(server);
    let start = Instant::now();
    let stats = loader.stats();
    let seen = &stats;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let told = std::iter::repeat_with(|| {
                std::thread::sleep(lasting / 4);
                seen.snapshot().outage
            });
            let outage = told.take(4 * 10).flatten().next();
            std::thread::sleep(lasting.saturating_sub(start.elapsed()));
            end(server);
            let outage = outage.expect("it is told meanwhile");
            assert!(outage.to_string().contains("waiting for \""), "{outage}");
        });
        let (rest, errors) = drain(&**dataset, &mut loader);
        assert!(errors.is_empty(), "{errors:?}");
        ids.extend(rest);
    });
    assert!(start.elapsed() >= lasting, "there was no outage");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len() as u64, FILES, "samples are lost");
    let stats = stats.snapshot();
    assert_eq!((stats.count.samples_failed, stats.count.samples_skipped, stats.count.samples_replaced), (0, 0, 0));
    assert_eq!(stats.outage, None, "it is over");
    assert_eq!(fs::read(&list).expect("a list"), b"", "good samples are in quarantine");
}

/// Every policy and every errno of a server that is down for `lasting`, all at once.
fn servers_that_come_back(errnos: &[i32], lasting: Duration) {
    let case = |on_error, io, errno: i32| {
        let mut faulty = match Faulty::mount(specs()) {
            Ok(faulty) => faulty,
            Err(reason) => return skip(reason),
        };
        let dataset = folder(faulty.path());
        let builder = builder(&dataset, on_error, io).outage_timeout(lasting * 2 + Duration::from_secs(20));
        let outage = (|faulty: &mut Faulty| faulty.fail_all(errno), |faulty: &mut Faulty| faulty.fail_all(0));
        reads_all((&dataset, builder), &mut faulty, outage, lasting);
    };
    std::thread::scope(|scope| {
        for (number, &errno) in errnos.iter().enumerate() {
            for (turn, on_error) in POLICIES.into_iter().enumerate() {
                scope.spawn(move || case(on_error, WAYS[(number + turn) % 2], errno));
            }
        }
    });
}

#[test]
fn a_server_that_comes_back_costs_no_sample() {
    within(BOUND, || servers_that_come_back(&[EIO, ESTALE, ETIMEDOUT, ENOTCONN], SHORT));
}

#[test]
#[ignore = "slow: outages of 10 s"]
fn a_server_that_comes_back_after_10_s_costs_no_sample() {
    let errnos = [EIO, ESTALE, ETIMEDOUT, ENOTCONN, ENOENT, ENODEV, EHOSTDOWN];
    within(BOUND, move || servers_that_come_back(&errnos, Duration::from_secs(10)));
}

#[test]
#[ignore = "slow: outages of 10 min"]
fn a_server_that_comes_back_after_10_min_costs_no_sample() {
    within(Duration::from_secs(900), || servers_that_come_back(&[EIO, ESTALE], Duration::from_secs(600)));
}

/// The server ends, what is below its mount shows, and another server comes to the same path: the folder that was
/// opened never works again, and the one at its path does.
#[test]
fn a_mount_that_is_lost_and_made_again_costs_no_sample() {
    within(BOUND, || {
        let case = |on_error, io| {
            let mut faulty = match Faulty::mount(specs()) {
                Ok(faulty) => faulty,
                Err(reason) => return skip(reason),
            };
            let dataset = folder(faulty.path());
            let outage = (Faulty::go, |faulty: &mut Faulty| faulty.come_back().expect("it mounts again"));
            reads_all((&dataset, builder(&dataset, on_error, io)), &mut faulty, outage, SHORT);
        };
        std::thread::scope(|scope| {
            for (turn, on_error) in POLICIES.into_iter().enumerate() {
                scope.spawn(move || case(on_error, WAYS[turn % 2]));
            }
        });
    });
}

/// A folder of files that is moved out of its root, and back later. The files themselves stay what they are: moving
/// them one by one would look like writing to them (their ctime).
fn moving(root: &Path) -> (impl Fn(&mut ()) + use<'_>, impl Fn(&mut ()) + Send + use<'_>) {
    let away = root.with_extension("away");
    let back = away.clone();
    let files = root.join("files");
    let home = files.clone();
    (
        move |_: &mut ()| fs::rename(&files, &away).expect("rename"),
        move |_: &mut ()| fs::rename(&back, &home).expect("rename"),
    )
}

/// All at once: most of their time they wait.
fn each_engine(check: impl Fn(EngineChoice, IoChoice, OnError) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for (turn, engine) in [EngineChoice::Auto, EngineChoice::Threads, EngineChoice::Uring].into_iter().enumerate() {
            scope.spawn(move || check(engine, [IoChoice::Auto, IoChoice::Buffered][turn % 2], POLICIES[turn]));
        }
    });
}

/// A folder of more files than an engine keeps open: they must be opened by their names.
fn write_folder(root: &Path) -> Arc<dyn Dataset> {
    fs::create_dir_all(root.join("files")).expect("a folder");
    for number in 0..FILES {
        write_file(&root.join(format!("files/f{number:03}")), 20_000 + number * 1000).expect("a file");
    }
    folder(root)
}

#[test]
fn files_that_come_back_cost_no_sample() {
    within(BOUND, || {
        each_engine(|engine, io, on_error| {
            let home = TempDir::new().expect("a folder");
            let root = home.path().join("data");
            let dataset = write_folder(&root);
            let builder = builder(&dataset, on_error, io).engine(engine);
            if let Err(error) = builder.clone().build() {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                return skip(error);
            }
            reads_all((&dataset, builder), &mut (), moving(&root), SHORT);
        });
    });
}

/// What is gone for good is one error, whatever the policy: no epoch of errors, and no good sample in quarantine.
#[test]
fn files_that_are_all_gone_are_one_error() {
    within(BOUND, || {
        let case = |on_error, (is_whole_folder, wanted): (bool, &str)| {
            let home = TempDir::new().expect("a folder");
            let root = home.path().join("data");
            let dataset = write_folder(&root);
            let list = home.path().join("bad.jsonl");
            let builder = builder(&dataset, on_error, IoChoice::Auto).quarantine(&list).epochs(3);
            let mut loader = builder.outage_timeout(Duration::from_millis(500)).build().expect("a loader");
            let mut came = loader.next().expect("a batch").expect("no error").len() as u64;
            fs::remove_dir_all(&root).expect("remove");
            if !is_whole_folder {
                fs::create_dir(&root).expect("a folder");
                // As if it had been emptied: the folder that was opened is gone, and another has its name.
            }
            let (ids, errors) = drain(&*dataset, &mut loader);
            came += ids.len() as u64;
            let [error] = &errors[..] else { panic!("one error is expected: {errors:?}") };
            assert_lasting(error, &root);
            let text = error.to_string();
            assert!(text.contains(wanted) || text.contains("another folder is in the place"), "{text}");
            assert!(came < FILES, "{came}");
            assert_eq!(fs::read(&list).expect("a list"), b"", "good samples are in quarantine");
        };
        // All at once: most of their time they wait.
        std::thread::scope(|scope| {
            for on_error in POLICIES {
                for how in [(true, "the folder is gone"), (false, "other files of the folder")] {
                    scope.spawn(move || case(on_error, how));
                }
            }
        });
    });
}

fn assert_lasting(error: &Error, root: &Path) {
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Some(root)), "{error}");
    let text = error.what().strip_prefix("no file of this folder could be read for ").expect("how long");
    let lasted: Option<f64> = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
    assert!(lasted.is_some_and(|seconds| (0.5..HANG.as_secs_f64()).contains(&seconds)), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("outage_timeout")), "{error}");
}

/// One file that is gone is the failure of its sample, at once, though all that fails may pass.
#[test]
fn a_single_missing_file_is_a_failed_sample() {
    within(BOUND, || {
        let home = TempDir::new().expect("a folder");
        let root = home.path().join("data");
        let dataset = write_folder(&root);
        fs::remove_file(root.join("files/f007")).expect("remove");
        let start = Instant::now();
        let mut loader = builder(&dataset, OnError::Skip, IoChoice::Auto).build().expect("a loader");
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert_eq!((ids.len() as u64, errors.len()), (FILES - 1, 1), "{errors:?}");
        assert_eq!(errors[0].kind(), ErrorKind::NotFound, "{}", errors[0]);
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    });
}

/// There is no other file to ask, so its folder is: a file that is gone is no outage, whoever opens it when. One that
/// is open can be read on.
#[test]
fn the_only_file_of_a_dataset_that_is_gone_is_told_at_once() {
    within(BOUND, || {
        for engine in [EngineChoice::Auto, EngineChoice::Threads] {
            for (is_begun, io) in
                [IoChoice::Auto, IoChoice::Direct, IoChoice::Buffered].map(|io| [(false, io), (true, io)]).concat()
            {
                let home = TempDir::new().expect("a folder");
                let path = home.path().join("records.dat");
                write_file(&path, 100 * 4096).expect("a file");
                let options = Options::new().format("records").set("record_bytes", 4096_u64);
                let dataset: Arc<dyn Dataset> = dataset::open(&[&path], &options).expect("records");
                let builder = builder(&dataset, OnError::Raise, io).engine(engine).epochs(3);
                let start = Instant::now();
                let (came, error) = if is_begun {
                    let mut loader = builder.memory_limit(128 << 10).build().expect("a loader");
                    loader.next().expect("a batch").expect("it begins well");
                    fs::remove_file(&path).expect("remove");
                    let (ids, errors) = drain(&*dataset, &mut loader);
                    (ids.len() + 4, errors.into_iter().next())
                } else {
                    fs::remove_file(&path).expect("remove");
                    (0, builder.build().map_or_else(Some, |loader| loader.into_iter().find_map(Result::err)))
                };
                assert!(error.is_some() || came == 300, "{came}");
                let is_told = |error: &Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Changed);
                assert!(error.as_ref().is_none_or(is_told), "{error:?}");
                assert!(start.elapsed() < AT_ONCE, "{:?}: {error:?}", start.elapsed());
            }
        }
    });
}

struct Found(std::sync::Mutex<Vec<Error>>);

impl uringload::verify::Watch for Found {
    fn found(&self, finding: &uringload::verify::Finding) {
        self.0.lock().expect("no panic").push(finding.error.clone());
    }
}

#[test]
fn verifying_a_dataset_whose_only_file_is_gone_ends_at_once() {
    within(BOUND, || {
        let home = TempDir::new().expect("a folder");
        let path = home.path().join("records.dat");
        write_file(&path, 100 * 4096).expect("a file");
        let options = Options::new().format("records").set("record_bytes", 4096_u64);
        let dataset: Arc<dyn Dataset> = dataset::open(&[&path], &options).expect("records");
        fs::remove_file(&path).expect("remove");
        let (found, start) = (Found(std::sync::Mutex::default()), Instant::now());
        let summary = Loader::builder(dataset).verify(&found).expect("a summary");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        assert_eq!((summary.samples, summary.samples_lost), (0, 100));
        let found = found.0.into_inner().expect("no panic");
        assert!(found.iter().any(|error| error.kind() == ErrorKind::NotFound), "{found:?}");
    });
}

/// Files that cannot be read one and all are no bad samples: the breaker ends the loader, and what it broke for is not
/// in the list that `exclude` takes back.
#[test]
fn a_breaker_that_breaks_leaves_a_handful_of_lines() {
    /// Lines that may be written before anybody can tell.
    const HANDFUL: usize = 4;
    within(BOUND, || {
        for batch_size in [1, 4, 64] {
            for good in [0, 20] {
                let home = TempDir::new().expect("a folder");
                let root = home.path().join("data");
                fs::create_dir(&root).expect("a folder");
                (0..400).for_each(|number| write_file(&root.join(format!("f{number:03}")), 5000).expect("a file"));
                let dataset = folder(&root);
                // As where a copy broke off: they are there, and short.
                for number in good..400 {
                    let file = fs::File::options().write(true).open(root.join(format!("f{number:03}")));
                    file.and_then(|file| file.set_len(100)).expect("shorter");
                }
                let list = home.path().join("bad.jsonl");
                let builder = builder(&dataset, OnError::Skip, IoChoice::Auto).batch_size(batch_size).shuffle(false);
                let (_, errors) = drain(&*dataset, &mut builder.quarantine(&list).build().expect("a loader"));
                let last = errors.last().expect("it breaks");
                assert_eq!(last.kind(), ErrorKind::TooManyFailures, "{last}");
                assert!(last.what().contains("lacks the last"), "{last}");
                let lines = fs::read_to_string(&list).expect("a list").lines().count();
                assert!(lines <= HANDFUL, "{lines} lines, {batch_size} {good}");
            }
        }
    });
}

/// Some files that cannot be read are: each is in the list once the loader has ended, whoever ended it.
#[test]
fn what_the_breaker_did_not_break_for_is_listed() {
    within(BOUND, || {
        for is_dropped in [false, true] {
            let home = TempDir::new().expect("a folder");
            let root = home.path().join("data");
            fs::create_dir(&root).expect("a folder");
            (0..400).for_each(|number| write_file(&root.join(format!("f{number:03}")), 5000).expect("a file"));
            let dataset = folder(&root);
            // Every third, up to the last ones.
            for number in (0..400).step_by(3) {
                let file = fs::File::options().write(true).open(root.join(format!("f{number:03}")));
                file.and_then(|file| file.set_len(100)).expect("shorter");
            }
            let list = home.path().join("bad.jsonl");
            let builder = builder(&dataset, OnError::Skip, IoChoice::Auto).shuffle(false).quarantine(&list);
            let mut loader = builder.build().expect("a loader");
            if is_dropped {
                let failed: usize = loader.by_ref().take(50).map(|batch| batch.expect("a batch").failed.len()).sum();
                drop(loader);
                let lines = fs::read_to_string(&list).expect("a list").lines().count();
                assert!(lines >= failed, "{lines} lines of {failed}");
            } else {
                let (ids, errors) = drain(&*dataset, &mut loader);
                assert_eq!((ids.len(), errors.len()), (266, 134), "{errors:?}");
                let lines = fs::read_to_string(&list).expect("a list").lines().count();
                assert_eq!(lines, 134, "before the loader is dropped");
            }
        }
    });
}

/// A read that missed its time is waited for once more where its sample would be listed as bad.
#[test]
fn a_read_that_takes_too_long_gets_a_second_look() {
    within(BOUND, || {
        let case = |(is_listed, wanted)| {
            // A good read may miss its time on a busy machine: then it is tried again with more.
            let times = std::iter::successors(Some(Duration::from_millis(500)), |time| Some(2 * *time));
            let mut tries = times.take(6).map(|timeout| second_look(timeout, is_listed));
            assert!(tries.any(|came| came == wanted), "{is_listed}");
        };
        std::thread::scope(|scope| [(true, 20), (false, 18)].map(|one| scope.spawn(move || case(one))).map(drop));
    });
}

/// How many of 20 samples come, of which two are stuck until they are late.
fn second_look(timeout: Duration, is_listed: bool) -> usize {
    let mut specs: Vec<Spec> = specs().into_iter().take(20).collect();
    specs[3].fault = Fault::Stuck;
    specs[9].fault = Fault::Stuck;
    let faulty = match Faulty::mount(specs) {
        Ok(faulty) => faulty,
        Err(reason) => {
            skip(reason);
            return if is_listed { 20 } else { 18 };
        }
    };
    let dataset = folder(faulty.path());
    let home = TempDir::new().expect("a folder");
    let list = home.path().join("bad.jsonl");
    let builder = builder(&dataset, OnError::Skip, IoChoice::Auto).timeout(timeout).shuffle(false);
    let builder = if is_listed { builder.quarantine(&list) } else { builder };
    let mut loader = builder.build().expect("a loader");
    let came = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(timeout * 3 / 2);
            faulty.release();
        });
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert_eq!(ids.len() + errors.len(), 20, "{errors:?}");
        ids.len()
    });
    assert_eq!(fs::read(&list).unwrap_or_default(), b"", "a good sample is in quarantine");
    came
}
