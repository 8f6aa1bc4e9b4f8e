//! What goes wrong without a disk that lies: files that change, consumers that keep batches, memory that is too small,
//! and loaders that are dropped while they read.
//!
//! A binary of its own, because `.ci/run memory` builds it once more for AddressSanitizer.

mod common;

use common::check::{checked, drain, ways_to};
use common::content::{content, key_of, name_of, write_file};
use common::fixture::files;
use common::within;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{Collate, EngineChoice, IoChoice, OnError};
use uringload::dataset::{Dataset, FileId, Span};
use uringload::{Builder, Loader, Reader, ReaderOptions};
use uringload::{Error, ErrorKind};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 60;

/// A folder of [`FILES`] files of 100 kB and more.
fn folder() -> (TempDir, Arc<dyn Dataset>) {
    files((0..FILES).map(|number| (path(Path::new(""), number), 100_000 + number)))
}

fn path(root: &Path, number: u64) -> std::path::PathBuf {
    root.join(format!("file_{number:02}"))
}

type Way = (EngineChoice, IoChoice);

fn builder(dataset: &Arc<dyn Dataset>, (engine, io): Way) -> Builder {
    Loader::builder(Arc::clone(dataset)).engine(engine).io(io)
}

/// Runs `check` for every way to read such a folder here.
fn each_way(check: impl Fn(Way) + Send + 'static) {
    within(2 * BOUND, move || {
        let (_root, dataset) = folder();
        ways_to(&dataset).into_iter().for_each(check);
    });
}

/// Reads all after `change` was done to the folder behind the index's back.
fn read_changed(way: Way, on_error: OnError, change: impl FnOnce(&Path)) -> (u64, Vec<Error>) {
    let (root, dataset) = folder();
    change(root.path());
    let mut loader = builder(&dataset, way).batch_size(1).on_error(on_error).build().expect("a loader");
    let (ids, errors) = drain(&*dataset, &mut loader);
    (ids.len() as u64, errors)
}

fn assert_about(errors: &[Error], kinds: &[ErrorKind], file: &str) {
    let [error] = errors else { panic!("one error is expected: {errors:?}") };
    assert!(kinds.contains(&error.kind()), "{kinds:?} is expected: {error}");
    assert!(error.path().is_some_and(|path| path.ends_with(file)), "{error}");
}

/// Does `change` to file 7 and expects one error of `kinds` for it and every other sample, whatever the engine.
fn costs_one_sample(kinds: &'static [ErrorKind], change: fn(&Path)) {
    each_way(move |way| {
        for on_error in [OnError::Raise, OnError::Skip] {
            let (came, errors) = read_changed(way, on_error, |root| change(&path(root, 7)));
            assert_about(&errors, kinds, "file_07");
            assert_eq!(came, FILES - 1, "{way:?} {on_error:?}");
        }
    });
}

#[test]
fn a_file_that_shrank() {
    costs_one_sample(&[ErrorKind::Truncated], |file| {
        File::options().write(true).open(file).and_then(|file| file.set_len(50_001)).expect("shrink");
    });
}

#[test]
fn a_file_that_became_empty() {
    costs_one_sample(&[ErrorKind::Truncated], |file| drop(File::create(file).expect("truncate")));
}

#[test]
fn a_file_that_vanished() {
    costs_one_sample(&[ErrorKind::NotFound], |file| fs::remove_file(file).expect("remove"));
}

#[test]
fn a_file_that_became_a_folder() {
    // Opening a folder with O_DIRECT is EINVAL before anybody could see that it is a folder.
    costs_one_sample(&[ErrorKind::WrongFileType, ErrorKind::Io], |file| {
        fs::remove_file(file).and_then(|()| fs::create_dir(file)).expect("a folder in its place");
    });
}

#[test]
fn a_file_that_became_shorter_by_a_new_one() {
    costs_one_sample(&[ErrorKind::Truncated], |file| {
        let new = file.with_extension("new");
        write_file(&new, 512).and_then(|()| fs::rename(&new, file)).expect("replace");
    });
}

#[test]
fn a_file_that_grew() {
    costs_one_sample(&[ErrorKind::Changed], |file| {
        write_file(file, 3_000_000).expect("grow");
    });
}

#[test]
fn a_file_that_was_replaced_by_one_of_the_same_size() {
    costs_one_sample(&[ErrorKind::Changed], |file| {
        let new = file.with_extension("new");
        let len = fs::metadata(file).expect("a file").len();
        write_file(&new, len).and_then(|()| fs::rename(&new, file)).expect("replace");
    });
}

/// An empty file has no byte to read. It is opened and looked at all the same: it may be gone, or have bytes by now.
#[test]
fn empty_files_that_are_gone_or_have_bytes() {
    each_way(|way| {
        let size = |number| if number % 2 == 0 { 0 } else { 5000 + number };
        let (root, dataset) = files((0..FILES).map(|number| (path(Path::new(""), number), size(number))));
        let reader = Reader::of(Arc::clone(&dataset), &ReaderOptions::default()).expect("a reader");
        fs::remove_file(path(root.path(), 2)).expect("remove");
        fs::write(path(root.path(), 4), b"bytes").expect("it grows");
        fs::remove_file(path(root.path(), 6)).and_then(|()| fs::create_dir(path(root.path(), 6))).expect("a folder");
        let kinds = |number| match number {
            2 => &[ErrorKind::NotFound][..],
            4 => &[ErrorKind::Changed],
            _ => &[ErrorKind::WrongFileType, ErrorKind::Io, ErrorKind::Changed],
        };
        for (batch_size, collate) in [(1, Collate::Views), (7, Collate::Views), (20, Collate::Ragged)] {
            let builder = builder(&dataset, way).batch_size(batch_size).collate(collate).on_error(OnError::Skip);
            let (ids, errors) = drain(&*dataset, &mut builder.build().expect("a loader"));
            assert_eq!(ids.len() as u64, FILES - 3, "{way:?}: {errors:?}");
            assert_eq!(errors.len(), 3, "{way:?}: {errors:?}");
            for (number, error) in [2, 4, 6].into_iter().zip(&errors) {
                assert_about(std::slice::from_ref(error), kinds(number), &format!("file_{number:02}"));
            }
        }
        for number in [0, 2, 4, 6] {
            let read = reader.read(&[Span { file: FileId(number), offset: 0, len: 0 }]);
            match read {
                Ok(bytes) => assert!(number == 0 && bytes.is_empty()),
                Err(error) => assert!(kinds(u64::from(number)).contains(&error.kind()) && number > 0, "{error}"),
            }
        }
    });
}

/// While files are cut and restored all the time, a sample is either whole and right, or an error: never stale bytes.
#[test]
fn files_that_change_while_they_are_read() {
    const EPOCHS_MIN: u64 = 15;
    /// How long epochs go on until a read meets a file that is cut.
    const PATIENCE: Duration = Duration::from_secs(100);
    each_way(|way| {
        let (root, dataset) = folder();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (stop, root) = (Arc::clone(&stop), root.path().to_owned());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    for number in (0..FILES).step_by(3) {
                        let path = path(&root, number);
                        let file = File::options().write(true).open(&path).expect("open");
                        file.set_len(512 * (number % 90)).expect("cut");
                        drop(file);
                        write_file(&path, 100_000 + number).expect("restore");
                    }
                }
            }
        });
        let builder = builder(&dataset, way).batch_size(3).epochs(1 << 20).shuffle(true).on_error(OnError::Skip);
        let mut loader = builder.build().expect("a loader");
        let (mut came, mut failed) = (0, 0);
        let start = Instant::now();
        for epoch in 1.. {
            for batch in loader.by_ref().take(FILES as usize / 3) {
                let batch = batch.expect("errors cost samples, not batches");
                (0..batch.len()).for_each(|at| assert_current(&*dataset, &batch, at));
                came += batch.len() as u64;
                failed += batch.failed.len() as u64;
            }
            assert_eq!(came + failed, epoch * FILES, "every sample comes or is counted");
            if epoch >= EPOCHS_MIN && failed > 0 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{way:?}: no read met a change in {epoch} epochs");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer");
    });
}

/// Fails where a sample has bytes that its file has never had. A file that is restored at that moment, which is each
/// third, may have zeros where nothing was written yet.
fn assert_current(dataset: &dyn Dataset, batch: &Batch, at: usize) {
    let id = batch.ids[at];
    let bytes = batch.columns[0].bytes_of(at).expect("bytes");
    if !id.0.is_multiple_of(3) {
        assert_eq!(common::check::wrong_in(dataset, id, &bytes), None);
        return;
    }
    let path = dataset.files().path(FileId(id.0 as u32));
    let right = content(key_of(name_of(&path)), 0, 100_000 + id.0 as usize);
    assert_eq!(bytes.len(), right.len(), "{path:?}");
    let stale = bytes.iter().zip(&right).position(|(byte, right)| byte != right && *byte != 0);
    assert_eq!(stale, None, "{path:?} never had this byte there");
}

#[test]
fn a_consumer_that_keeps_batches_is_told() {
    const WAIT: Duration = Duration::from_millis(50);
    each_way(|way| {
        let (_root, dataset) = folder();
        let builder = builder(&dataset, way).batch_size(4).memory_limit(4 << 20);
        let mut loader = builder.starved_after(WAIT).build().expect("a loader");
        let mut kept = Vec::new();
        let start = Instant::now();
        let error = loop {
            match loader.next().expect("it cannot end while batches are kept") {
                Ok(batch) => kept.push(batch),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Starved, "{error}");
        assert!(error.remedy().is_some(), "{error}");
        assert!(start.elapsed() >= WAIT, "{:?}", start.elapsed());
        let mut came: u64 = kept.iter().map(|batch| checked(&*dataset, batch).len() as u64).sum();
        assert!(came < FILES, "the limit is hard: {came}");
        // Once the consumer lets go, nothing was lost.
        kept.clear();
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Starved), "{errors:?}");
        came += ids.len() as u64;
        assert_eq!(came, FILES);
    });
}

#[test]
fn a_batch_that_cannot_fit_is_refused_with_the_sum() {
    let (_root, dataset) = folder();
    let refused = Loader::builder(Arc::clone(&dataset)).batch_size(32).memory_limit(1 << 20).build();
    let Err(error) = refused else { panic!("32 files of 100 kB do not fit 1 MiB") };
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    let (message, largest) = (error.to_string(), dataset.largest(32).to_string());
    for part in ["1048576", "32", largest.as_str()] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("memory_limit") && remedy.contains("batch_size")));
}

/// Under AddressSanitizer in `.ci/run`: no read may land in memory that is gone.
#[test]
fn drop_mid_flight() {
    each_way(|way| {
        let (_root, dataset) = folder();
        for batches in 0..8 {
            let builder = builder(&dataset, way).batch_size(4).shuffle(true).seed(batches).epochs(100);
            let mut loader = builder.memory_limit(8 << 20).build().expect("a loader");
            let kept: Vec<_> = loader.by_ref().take(batches as usize).map(|batch| batch.expect("a batch")).collect();
            let start = Instant::now();
            drop(loader);
            assert!(start.elapsed() < common::HANG, "{way:?}: {:?}", start.elapsed());
            for batch in &kept {
                assert_eq!(checked(&*dataset, batch).len(), 4, "batches outlive their loader");
            }
        }
    });
}
