//! Faults of cuFile, files and devices while files are read straight into device memory: each sample comes once, byte
//! for byte, or has its error; nothing hangs, nothing is lost.

use crate::common::case::Case;
use crate::common::cufile::{self, Cufile};
use crate::common::{Mock, Random};
use bytes::Bytes;
use mock_cufile::Knob;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::DeviceLoader;
use uringload::batch::Data;
use uringload::config::Config;
use uringload::config::GdsCause;
use uringload::config::{Cause, Collate, EngineKind, Gds, IoChoice, OnError};
use uringload::dataset::{Dataset, SampleId};
use uringload::device::{DeviceBatch, DeviceForm};
use uringload::{ErrorKind, Loader};
use uringload_content::first_difference;

const BOUND: Duration = Duration::from_secs(400);
/// Longer than any bound here, in milliseconds.
const HANGS: i64 = 300_000;
/// Whoever waits for what hangs takes longer.
const AT_ONCE: Duration = Duration::from_secs(60);

fn config() -> Config {
    // The dataset does not fit, so most of it is read after the loader was built.
    Config { batch_size: 4, memory_limit: Some(6 << 20), on_error: OnError::Skip, ..Config::default() }
}

/// The bytes of every sample, as the host reads them.
fn truth(dataset: &Arc<dyn Dataset>) -> HashMap<SampleId, Bytes> {
    let config = Config { collate: Collate::Views, ..Config::default() };
    let mut samples = HashMap::new();
    for batch in Loader::builder(Arc::clone(dataset)).config(config).build().unwrap() {
        let batch = batch.unwrap();
        let Data::Views(views) = &batch.columns[0].data else { panic!("no views") };
        samples.extend(batch.ids.iter().copied().zip(views.iter().map(|view| Bytes::copy_from_slice(view))));
    }
    samples
}

/// The result of each sample.
#[derive(Default)]
struct Came {
    good: usize,
    failed: Vec<(SampleId, String)>,
    errors: Vec<ErrorKind>,
}

/// Reads the rest of a loader and checks that every sample comes once.
fn drain(loader: &mut DeviceLoader, truth: &HashMap<SampleId, Bytes>) -> Came {
    let (mut came, mut seen) = (Came::default(), std::collections::HashSet::new());
    for item in loader.by_ref() {
        let batch = match item {
            Ok(batch) => batch,
            Err(error) => {
                came.errors.push(error.kind());
                continue;
            }
        };
        for failed in &batch.host.failed {
            assert!(seen.insert(failed.id), "{:?} twice", failed.id);
            came.failed.push((failed.id, failed.error.to_string()));
        }
        let Some(values) = values(&batch, &mut came) else { continue };
        for (id, value) in batch.host.ids.iter().zip(values) {
            assert!(seen.insert(*id), "{id:?} twice");
            let at = first_difference(&value, &truth[id]);
            let more = || at.map(|at| (&value[at..][..16.min(value.len() - at)], value.len()));
            assert!(at.is_none(), "{id:?} has other bytes at {at:?}: {:?}, {}", more(), truth[id].len());
            came.good += 1;
        }
    }
    if came.errors.is_empty() {
        assert_eq!(seen.len(), truth.len(), "each sample once");
    }
    came
}

fn values(batch: &DeviceBatch, came: &mut Came) -> Option<Vec<Bytes>> {
    let column = &batch.columns[0];
    let bytes = match column.memory.to_host() {
        Ok(bytes) => bytes,
        Err(error) => {
            came.errors.push(error.kind());
            return None;
        }
    };
    Some(match &column.form {
        DeviceForm::Ragged { offsets } => {
            offsets.windows(2).map(|pair| bytes.slice(pair[0] as usize..pair[1] as usize)).collect()
        }
        DeviceForm::Dense { .. } => {
            let len = bytes.len() / batch.len().max(1);
            (0..bytes.len() / len.max(1)).map(|index| bytes.slice(index * len..(index + 1) * len)).collect()
        }
        other => panic!("{other:?}"),
    })
}

fn causes(loader: &DeviceLoader) -> Vec<Cause> {
    loader.route().fallbacks.iter().map(|step| step.cause).collect()
}

/// What descriptor 0 refers to, if that is known.
fn standard_input() -> Option<std::path::PathBuf> {
    std::fs::read_link("/proc/self/fd/0").ok()
}

#[test]
fn whatever_cufile_says_of_a_read_or_a_file_the_host_reads_it() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(21));
        let made = cufile::files(40, &mut random);
        let truth = truth(&made.dataset);
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config()) };
        let codes: Vec<i64> = (5001..=5049).step_by(4).chain([5011, 5036, 5043, 5049, 6000, i64::MAX]).collect();
        for (knob, cause, sign) in
            [(Knob::ReadError, Cause::Gds(GdsCause::Read), -1), (Knob::HandleError, Cause::Gds(GdsCause::File), 1)]
        {
            for &code in &codes {
                let mut loader = case.build(&mock);
                cufile.set(knob, sign * code.min(i64::from(i32::MAX)));
                let came = drain(&mut loader, &truth);
                assert_eq!((came.good, came.failed.len(), came.errors.len()), (truth.len(), 0, 0), "{code}");
                assert_eq!(causes(&loader), [cause], "{code}: said once");
                cufile.set(knob, 0);
            }
            // Before the first read: requested by name it fails with the number, else the pinned path serves.
            cufile.set(knob, sign * 5030);
            let error = case.builder(&mock).build().map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("5030"), "{error}");
            let auto = Config { io: IoChoice::Direct, ..case.config.clone() };
            let auto = Case { gds: cufile.choice(Gds::Auto), config: auto, ..case.clone() };
            let mut loader = auto.build(&mock);
            assert!(loader.route().engine != EngineKind::Gds && causes(&loader).contains(&cause));
            assert_eq!(drain(&mut loader, &truth).good, truth.len());
            drop(loader);
            cufile.set(knob, 0);
        }
        mock.assert_clean();
        cufile.assert_closed();
    });
}

#[test]
fn a_disk_that_fails_for_good_ends_the_loader() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(22));
        let made = cufile::records(40, 300_001, &mut random);
        let truth = truth(&made.dataset);
        let config = Config { outage_timeout: Some(Duration::from_millis(300)), ..config() };
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config) };
        // No read works any more: that is no fault of samples, and ends the loader.
        for errno in [libc::EIO, libc::ENODEV, libc::EAGAIN, libc::EINTR] {
            let mut loader = case.build(&mock);
            cufile.set(Knob::ReadErrno, errno.into());
            cufile.set(Knob::ReadError, -1);
            let came = drain(&mut loader, &truth);
            cufile.set(Knob::ReadError, 0);
            assert_eq!(came.errors.len(), 1, "{errno}: {:?}", came.errors);
            assert!(came.failed.iter().all(|(_, error)| error.contains(&format!("os error {errno}"))), "{errno}");
        }
        mock.assert_clean();
        cufile.assert_closed();
    });
}

/// The device is reset while files are read into it, and cuFile blames the files. That is no outage of the storage: the
/// loader ends at once, however long it would wait for one.
#[test]
fn a_device_that_is_gone_ends_the_loader_at_once() {
    const UNAVAILABLE: u32 = 46;
    cufile::on_direct(BOUND, || {
        for errno in [libc::EIO, libc::ENODEV, libc::ENXIO] {
            let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(28));
            let made = cufile::records(40, 300_001, &mut random);
            let list = tempfile::NamedTempFile::new().unwrap();
            let quarantine = Some(list.path().to_owned());
            let config = Config { outage_timeout: Some(BOUND), quarantine, ..config() };
            let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config) };
            let mut loader = case.build(&mock);
            cufile.set(Knob::ReadErrno, errno.into());
            cufile.set(Knob::ReadError, -1);
            mock.configure(&format!("fail=*@1+:{UNAVAILABLE}"));
            let start = Instant::now();
            let errors: Vec<_> = loader.by_ref().filter_map(Result::err).collect();
            assert!(start.elapsed() < AT_ONCE, "{errno}: {:?}", start.elapsed());
            let last = errors.last().expect("it is told");
            assert_eq!(last.kind(), ErrorKind::Device, "{errno}: {last}");
            assert_eq!(std::fs::read(list.path()).unwrap(), b"", "{errno}: good samples are in quarantine");
        }
    });
}

#[test]
fn a_read_that_hangs_is_given_up_and_its_memory_comes_back() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(23));
        let made = cufile::records(40, 300_001, &mut random);
        let truth = truth(&made.dataset);
        let config = Config { timeout: Some(Duration::from_millis(300)), io: IoChoice::Direct, ..config() };
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config) };
        let input = standard_input();
        let mut loader = case.build(&mock);
        cufile.set(Knob::ReadHangs, HANGS);
        let mut came = Came::default();
        for item in loader.by_ref().take(10) {
            match item {
                Ok(batch) => came.failed.extend(batch.host.failed.iter().map(|one| (one.id, one.error.to_string()))),
                // What was given up holds all memory by then: each of the others would wait as long as this one did.
                Err(error) => {
                    came.errors.push(error.kind());
                    break;
                }
            }
        }
        assert!(came.failed.iter().any(|(_, error)| error.contains("given up")) || !came.errors.is_empty());
        let start = Instant::now();
        drop(loader);
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        cufile.set(Knob::ReadHangs, 0);
        cufile.assert_closed();
        mock.assert_soon_clean();
        // Hangs from the first read on: noticed while the loader is built.
        cufile.set(Knob::ReadHangs, HANGS);
        let start = Instant::now();
        let error = case.builder(&mock).build().map(drop).unwrap_err();
        assert!(error.to_string().contains("did not return from a first read"), "{error}");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        cufile.set(Knob::ReadHangs, 0);
        cufile.assert_closed();
        // A limit that a good read does not miss on a busy machine either.
        let config = Config { timeout: Some(Duration::from_secs(3)), ..case.config.clone() };
        let case = Case { config, ..case };
        assert_eq!(drain(&mut case.build(&mock), &truth).good, truth.len());
        // The driver does not open.
        cufile.set(Knob::OpenHangs, HANGS);
        let auto = Case { gds: cufile.choice(Gds::Auto), ..case };
        let start = Instant::now();
        let mut loader = auto.build(&mock);
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        assert!(causes(&loader).contains(&Cause::Gds(GdsCause::Timeout)));
        assert_eq!(drain(&mut loader, &truth).good, truth.len());
        drop(loader);
        cufile.set(Knob::OpenHangs, 0);
        cufile.assert_closed();
        mock.assert_soon_clean();
        assert_eq!(standard_input(), input);
    });
}

#[test]
fn wrong_bytes_are_found_before_anything_is_delivered() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(24));
        let made = cufile::records(20, 300_001, &mut random);
        let truth = truth(&made.dataset);
        let config = Config { io: IoChoice::Direct, ..config() };
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config) };
        cufile.set(Knob::NoOffset, 1);
        let error = case.builder(&mock).build().map(drop).unwrap_err();
        assert!(error.to_string().contains("is another one on the GPU"), "{error}");
        let auto = Case { gds: cufile.choice(Gds::Auto), ..case };
        let mut loader = auto.build(&mock);
        assert!(causes(&loader).contains(&Cause::Gds(GdsCause::Proof)));
        assert_eq!(drain(&mut loader, &truth).good, truth.len());
        drop(loader);
        mock.assert_clean();
        cufile.assert_closed();
    });
}

/// One read in some is compared while a loader runs, whatever the memory held before.
#[test]
fn reads_that_do_nothing_are_found_in_mid_epoch_and_the_way_is_left() {
    const EVERY: u64 = 16;
    cufile::on_direct(BOUND, || {
        let mut random = Random::new(27);
        // Where all bytes are the same, what earlier reads left is right wherever it is.
        for made in [cufile::records(240, 300_001, &mut random), cufile::records_of(240, 300_001, |len| vec![7; len])] {
            let (mock, cufile) = (Mock::new(""), Cufile::new());
            let truth = truth(&made.dataset);
            let gds = (Gds::On, cufile.search().check_every(EVERY));
            let case = Case { gds, ..Case::new(&made.dataset, config()) };
            let mut loader = case.build(&mock);
            assert_eq!(loader.by_ref().take(15).filter(Result::is_ok).count(), 15);
            assert!(!causes(&loader).contains(&Cause::Gds(GdsCause::Proof)), "they are right so far");
            let begin = cufile.get(Knob::Reads) + 1;
            cufile.set(Knob::SilentFrom, begin);
            let (mut came, mut right) = (Came::default(), Vec::new());
            for batch in loader.by_ref() {
                let batch = batch.expect("a batch");
                let values = values(&batch, &mut came).expect("values");
                right.push(batch.host.ids.iter().zip(values).all(|(id, value)| value == truth[id]));
            }
            assert_eq!(right.len(), 45);
            let wrong = right.iter().filter(|right| !**right).count();
            let step = loader.route().fallbacks.into_iter().find(|step| step.cause == Cause::Gds(GdsCause::Proof));
            let step = step.expect("it is told");
            assert!(step.is_degraded() && step.reason.contains("one read in 16 is compared"), "{step}");
            // Those that were under way beside the read that was found are not compared.
            let reads = cufile.get(Knob::Reads) - begin;
            assert!(reads <= EVERY as i64 + 32, "{reads} reads by cuFile since");
            // A read that is not compared may be a part of two batches.
            assert!(right[30..].iter().all(|right| *right) && wrong < 25, "{right:?}");
            drop(loader);
            mock.assert_clean();
            cufile.assert_closed();
        }
    });
}

#[test]
fn files_that_change_under_it_are_errors_of_their_samples() {
    cufile::on_direct(BOUND, || {
        for what in ["replaced", "deleted", "truncated"] {
            let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(25));
            let made = cufile::records(120, 300_001, &mut random);
            let truth = truth(&made.dataset);
            let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config()) };
            cufile.set(Knob::ClosesZero, 3);
            let input = standard_input();
            let mut loader = case.build(&mock);
            let path = made.folder.path().join("b");
            match what {
                "replaced" => {
                    // In mid-epoch, when the file is registered.
                    let middle = loader.by_ref().take(17).map(Result::unwrap).count();
                    assert_eq!(middle, 17);
                    let other = made.folder.path().join("other");
                    std::fs::write(&other, vec![0; 60 * 300_001]).unwrap();
                    std::fs::rename(other, &path).unwrap();
                }
                "deleted" => std::fs::remove_file(&path).unwrap(),
                _ => std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(300_001 * 10 + 5).unwrap(),
            }
            let mut failed = Vec::new();
            for batch in loader.by_ref() {
                let batch = batch.unwrap();
                for (id, value) in batch.host.ids.iter().zip(values(&batch, &mut Came::default()).unwrap()) {
                    assert!(value == truth[id], "{what}: {id:?} has other bytes");
                }
                failed.extend(batch.host.failed.iter().map(|failed| failed.error.to_string()));
            }
            assert!(failed.len() > 10, "{what}: {}", failed.len());
            let word = if what == "truncated" { "ends before byte" } else { "replaced by another" };
            let word = if what == "deleted" { "No such file" } else { word };
            // A file replaced before the first read of the new one is as good as any other.
            assert!(failed.iter().any(|error| error.contains(word)), "{what}: {failed:?}");
            drop(loader);
            mock.assert_clean();
            cufile.assert_closed();
            assert_eq!(standard_input(), input, "{what}");
        }
    });
}

#[test]
fn a_device_that_is_reset_ends_the_loader() {
    cufile::on_direct(BOUND, || {
        for settings in ["destroy=0", "lose=0@0:46", "fault=3:700"] {
            let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(26));
            let made = cufile::files(40, &mut random);
            let truth = truth(&made.dataset);
            let config = Config { outage_timeout: Some(Duration::from_secs(1)), ..config() };
            let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config) };
            let mut loader = case.build(&mock);
            assert!(loader.next().is_some_and(|batch| batch.is_ok()));
            mock.configure(settings);
            let mut came = Came::default();
            for item in loader.by_ref().take(100) {
                match item {
                    Ok(batch) => {
                        if let Some(values) = values(&batch, &mut came) {
                            for (id, value) in batch.host.ids.iter().zip(values) {
                                assert!(value == truth[id], "{settings}: {id:?} has other bytes");
                            }
                        }
                        came.failed.extend(batch.host.failed.iter().map(|one| (one.id, one.error.to_string())));
                    }
                    Err(error) => came.errors.push(error.kind()),
                }
            }
            assert!(came.errors.contains(&ErrorKind::Device), "{settings}: {:?} {:?}", came.errors, came.failed);
            drop(loader);
            cufile.assert_closed();
        }
    });
}

/// Each seed gives another dataset and other random faults of reads and files.
fn seeds(first: u64, count: u64) {
    let (mock, cufile) = (Mock::new("jitter_us=50"), Cufile::new());
    let mut data = Random::new(27);
    let made = [cufile::files(24, &mut data), cufile::records(24, 300_001, &mut data), cufile::arrays(12, &mut data)];
    let truths = [0, 1, 2].map(|index| truth(&made[index].dataset));
    let input = standard_input();
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let which = random.below(3);
        let (dataset, truth) = (&made[which].dataset, &truths[which]);
        let config = Config {
            batch_size: 1 + random.below(5) as u64,
            shuffle: random.chance(2).into(),
            seed,
            io_threads: Some(1 + random.below(12)),
            timeout: random.chance(2).then_some(Duration::from_millis(15 + random.below(400) as u64)),
            memory_limit: Some((5 + random.below(12) as u64) << 20),
            collate: [Collate::Ragged, Collate::Auto][random.below(2)],
            ..config()
        };
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(dataset, config) };
        let told = format!("seed {seed}: {:?}", case.config);
        cufile.set(Knob::BarBytes, if random.chance(3) { 3 << 20 } else { 0 });
        let mut loader = case.builder(&mock).build().unwrap_or_else(|error| panic!("{told}: {error}"));
        cufile.set(Knob::FaultShare, [5, 50, 300, 900][random.below(4)]);
        cufile.set(Knob::FaultSeed, seed as i64 + 1);
        let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drain(&mut loader, truth)));
        cufile.set(Knob::FaultSeed, 0);
        let came = came.unwrap_or_else(|panic| {
            eprintln!("{told}");
            std::panic::resume_unwind(panic)
        });
        assert!(came.errors.is_empty(), "{told}: {:?}", came.errors);
        assert!(came.failed.iter().all(|(_, error)| !error.is_empty()) && came.good + came.failed.len() == truth.len());
        drop(loader);
        if random.chance(5) {
            drop(case.build(&mock));
        }
        cufile.assert_closed();
        assert_eq!(mock.violations(), Vec::<String>::new(), "{told}");
        assert_eq!(standard_input(), input, "{told}");
    }
    assert!(cufile.get(Knob::Faults) > count as i64);
    mock.assert_given_back();
}

#[test]
fn faults_of_some_seeds() {
    cufile::on_direct(BOUND, || seeds(0, 30));
}

#[test]
#[ignore = "slow: a thousand seeds"]
fn faults_of_a_thousand_seeds() {
    cufile::on_direct(Duration::from_secs(3600), || seeds(1000, 1000));
}
