//! Bytes in the user's own order: every way to read, faults, requests that are taken back, limits, bad requests.

use crate::common::check::WAYS;
use crate::common::content::{content, key_of, name_of, write_file};
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::{HANG, skip, within};
use bytes::Bytes;
use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::{EngineChoice, IoChoice};
use uringload::dataset::{FileId, FileTable, Span};
use uringload::{ErrorKind, Reader, ReaderOptions, Result};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u32 = 20;

fn size_of(file: u32) -> u64 {
    30_000 + 5_003 * u64::from(file)
}

fn table(root: &Path, sizes: &[(String, u64)]) -> FileTable {
    let mut files = FileTable::new();
    files.push_root(root);
    sizes.iter().for_each(|(name, size)| assert!(files.push(name.as_bytes(), *size).is_some()));
    files
}

/// Twenty files of their names' content.
fn folder() -> (TempDir, FileTable) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let sizes: Vec<(String, u64)> = (0..FILES).map(|file| (format!("{file:02}"), size_of(file))).collect();
    sizes.iter().for_each(|(name, size)| write_file(&root.path().join(name), *size).expect("a file"));
    let files = table(root.path(), &sizes);
    (root, files)
}

fn span(file: u32, offset: u64, len: u64) -> Span {
    Span { file: FileId(file), offset, len }
}

fn expected(files: &FileTable, spans: &[Span]) -> Vec<u8> {
    let of = |span: &Span| content(key_of(name_of(&files.path(span.file))), span.offset, span.len as usize);
    spans.iter().flat_map(of).collect()
}

/// Spans of request `id`: one or several, any length and alignment, also none.
fn spans_of(id: u64) -> Vec<Span> {
    let one = |n: u64| {
        let file = (id * 7 + n * 3) % u64::from(FILES);
        let offset = (id * 977 + n * 131) % 20_000;
        span(file as u32, offset, (id * 4_099 + n * 555) % (size_of(file as u32) - offset))
    };
    (0..[1, 1, 1, 3, 0][(id % 5) as usize]).map(one).collect()
}

/// The reader, unless this way is not available here.
fn reader_by((engine, io): (EngineChoice, IoChoice), files: &FileTable, options: ReaderOptions) -> Option<Reader> {
    match Reader::new(files.clone(), &options.engine(engine).io(io)) {
        Ok(reader) => Some(reader),
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            skip(format!("{engine:?} {io:?}: {error}"));
            None
        }
        Err(error) => panic!("{engine:?} {io:?}: {error}"),
    }
}

#[test]
fn every_request_is_answered_by_every_way() {
    within(BOUND, || {
        let (_root, files) = folder();
        for way in WAYS {
            // Little memory, so that requests wait for it.
            let Some(mut reader) = reader_by(way, &files, ReaderOptions::default().memory_limit(1 << 20)) else {
                continue;
            };
            let mut left: BTreeSet<u64> = (0..500).collect();
            left.iter().for_each(|&id| reader.submit(id, &spans_of(id)).expect("a request"));
            assert_eq!(reader.in_flight(), 500);
            while let Some((id, bytes)) = reader.next() {
                assert!(left.remove(&id), "{id} came twice");
                let (spans, bytes) = (spans_of(id), bytes.expect("no error"));
                assert!(bytes[..] == expected(&files, &spans)[..], "{id} by {way:?}");
                assert!(bytes[..] == reader.read(&spans).expect("no error")[..], "{id} read in this thread");
            }
            assert!(left.is_empty() && reader.in_flight() == 0 && reader.next().is_none());
            // It goes on after the end.
            reader.submit(3, &spans_of(1)).expect("a request");
            assert_eq!(reader.next().map(|(id, bytes)| (id, bytes.is_ok())), Some((3, true)));
        }
    });
}

#[test]
fn bad_requests_are_refused_and_harm_nothing() {
    let (root, files) = folder();
    let mut reader = Reader::new(files.clone(), &ReaderOptions::default().memory_limit(1 << 20)).expect("a reader");
    let refused = |reader: &mut Reader, spans: &[Span]| {
        let error = reader.submit(1, spans).expect_err("it is refused");
        assert_eq!(reader.in_flight(), 0);
        assert!(error.remedy().is_some(), "{error}");
        error
    };
    for wrong in [span(FILES, 0, 1), span(0, u64::MAX, 1), span(0, size_of(0), 1), span(0, 1, size_of(0))] {
        assert_eq!(refused(&mut reader, &[span(1, 0, 5), wrong]).kind(), ErrorKind::InvalidArgument, "{wrong:?}");
        assert_eq!(reader.read(&[wrong]).expect_err("it is refused").kind(), ErrorKind::InvalidArgument);
    }
    let large: Vec<Span> = (0..FILES).map(|file| span(file, 0, size_of(file))).collect();
    let error = refused(&mut reader, &large);
    assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    assert!(error.to_string().contains("the memory limit is 1048576"), "{error}");
    reader.submit(1, &[span(0, 0, 5)]).expect("a request");
    let error = reader.submit(1, &[span(0, 0, 5)]).expect_err("it is in flight");
    assert!(error.to_string().contains("request 1 is in flight"), "{error}");
    assert!(reader.cancel(1) && !reader.cancel(1) && reader.next().is_none());
    // A file that is not what the table says.
    std::fs::write(root.path().join("05"), b"short").expect("a file");
    std::fs::remove_file(root.path().join("06")).expect("a file");
    for (file, kind) in [(5, ErrorKind::Truncated), (6, ErrorKind::NotFound)] {
        reader.submit(9, &[span(file, 0, 10)]).expect("a request");
        let (id, bytes) = reader.next().expect("an answer");
        let error = bytes.expect_err("it is another file");
        assert_eq!((id, error.kind(), error.path()), (9, kind, Some(&*root.path().join(format!("{file:02}")))));
    }
    let none = Reader::new(table(Path::new("/nowhere/at/all"), &[("a".into(), 1)]), &ReaderOptions::default());
    assert_eq!(none.expect_err("no folder").kind(), ErrorKind::NotFound);
}

#[test]
fn waits_end_by_time_descriptor_and_task() {
    within(BOUND, || {
        let (_root, files) = folder();
        let mut reader = Reader::new(files.clone(), &ReaderOptions::default()).expect("a reader");
        assert!(reader.try_next().is_none() && reader.next_timeout(BOUND).is_none(), "nothing is in flight");
        let readable = |reader: &Reader, wait: i64| {
            let fd = reader.ready_fd().expect("a descriptor");
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: wait, tv_nsec: 0 })).expect("poll works") > 0
        };
        assert!(!readable(&reader, 0));
        for id in 0..50 {
            reader.submit(id, &spans_of(id)).expect("a request");
        }
        let mut came = 0;
        while came < 50 {
            assert!(readable(&reader, 20), "{came} came");
            while let Some((id, bytes)) = reader.try_next() {
                assert!(bytes.expect("no error")[..] == expected(&files, &spans_of(id))[..]);
                came += 1;
            }
        }
        (0..50).for_each(|id| reader.submit(id, &spans_of(id)).expect("a request"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let all: Vec<(u64, Result<Bytes>)> = runtime.block_on(reader.stream().collect());
        assert_eq!(all.len(), 50);
        (0..50).for_each(|id| reader.submit(id, &spans_of(id)).expect("a request"));
        assert_eq!(std::iter::from_fn(|| reader.next_timeout(BOUND)).count(), 50);
    });
}

#[test]
fn memory_that_answers_hold_is_waited_for_and_then_told() {
    within(BOUND, || {
        let (_root, files) = folder();
        let options = ReaderOptions::default().memory_limit(256 << 10).starved_after(Duration::from_millis(100));
        let mut reader = Reader::new(files, &options).expect("a reader");
        let (mut held, mut starved) = (Vec::new(), None);
        for id in 0..10 {
            reader.submit(id, &[span(19, 0, 100_000)]).expect("a request");
        }
        for (id, bytes) in reader.by_ref() {
            match bytes {
                Ok(bytes) => held.push(bytes),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Starved, "{error}");
                    assert!(error.to_string().contains("answers that were not dropped hold"), "{error}");
                    starved = Some(id);
                    break;
                }
            }
        }
        assert!(held.len() < 3, "{} of 256 KiB", held.len() * 100_000);
        assert!(starved.is_some());
        held.clear();
        assert!(reader.all(|(_, bytes)| bytes.is_ok()), "memory is back");
    });
}

#[test]
fn dropped_in_flight_it_ends_soon_and_answers_outlive_it() {
    within(BOUND, || {
        let (_root, files) = folder();
        for way in WAYS {
            let Some(mut reader) = reader_by(way, &files, ReaderOptions::default()) else { continue };
            (0..400).for_each(|id| reader.submit(id, &spans_of(id)).expect("a request"));
            let (id, bytes) = reader.next().expect("an answer");
            (0..400).filter(|other| other % 3 == 0).for_each(|other| assert!(reader.cancel(other) || other == id));
            let start = Instant::now();
            drop(reader);
            assert!(start.elapsed() < HANG, "{way:?}");
            assert!(bytes.expect("no error")[..] == expected(&files, &spans_of(id))[..]);
        }
    });
}

/// A disk with a file of each fault, and its files.
fn broken_disk(faults: &[Fault]) -> std::result::Result<(Faulty, FileTable), String> {
    let spec = |(number, &fault): (usize, &Fault)| Spec { name: format!("f{number}"), size: 100_000, fault };
    let specs: Vec<Spec> = faults.iter().enumerate().map(spec).collect();
    let sizes: Vec<(String, u64)> = specs.iter().map(|spec| (spec.name.clone(), spec.size)).collect();
    let disk = Faulty::mount(specs)?;
    let files = table(disk.path(), &sizes);
    Ok((disk, files))
}

/// Beside reads that never end, and without a deadline: what is bad is told, and what is good comes. Nothing that is
/// read to tell the two apart waits for those reads.
#[test]
fn faults_are_those_of_their_requests() {
    within(BOUND, || {
        let faults = [Fault::Broken(5000), Fault::BrokenOnce, Fault::Short(4096), Fault::None, Fault::Stuck];
        let (disk, files) = match broken_disk(&faults) {
            Ok(both) => both,
            Err(why) => return skip(why),
        };
        let mut reader = Reader::new(files.clone(), &ReaderOptions::default()).expect("a reader");
        // The stuck ones first, so that they are in flight when something is looked for elsewhere.
        for id in (0..20).rev() {
            reader.submit(id, &[span(id as u32 / 4, id % 4 * 25_000, 25_000)]).expect("a request");
        }
        for (id, bytes) in reader.by_ref().take(16) {
            match (faults[id as usize / 4], bytes) {
                (Fault::Broken(_), Err(error)) => assert_eq!((error.kind(), id), (ErrorKind::Io, 0), "{error}"),
                (Fault::Stuck, bytes) => panic!("it does not end: {bytes:?}"),
                (_, bytes) => {
                    let spans = [span(id as u32 / 4, id % 4 * 25_000, 25_000)];
                    assert!(bytes.expect("no error")[..] == expected(&files, &spans)[..], "{id}");
                }
            }
        }
        // Stuck ones are taken back: they are not waited for, and others go on.
        reader.submit(2, &[span(3, 0, 10)]).expect("a request");
        assert_eq!(reader.next().map(|(id, bytes)| (id, bytes.is_ok())), Some((2, true)));
        assert!((16..20).all(|id| reader.cancel(id)) && reader.next().is_none());
        disk.release();
    });
}

/// A read that failed is told as that, and not as late, whatever is slow or stuck elsewhere while it is looked at.
#[test]
fn reads_that_do_not_end_are_late_and_no_others() {
    within(BOUND, || {
        let faults = [Fault::Stuck, Fault::Stuck, Fault::Broken(0), Fault::Stuck, Fault::Stuck];
        let (_disk, files) = match broken_disk(&faults) {
            Ok(both) => both,
            Err(why) => return skip(why),
        };
        let options = ReaderOptions::default().timeout(Duration::from_millis(500));
        let mut reader = Reader::new(files, &options).expect("a reader");
        let mut told = Vec::new();
        // A machine that is busy may itself take too long, now and then.
        for files in [0..5, 2..3, 2..3] {
            files.for_each(|file| reader.submit(u64::from(file), &[span(file, 0, 100)]).expect("a request"));
            for (id, bytes) in reader.by_ref() {
                let error = bytes.expect_err("nothing can be read");
                match id {
                    2 => told.push(error.kind()),
                    _ => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
                }
            }
        }
        assert!(told.len() == 3 && told.contains(&ErrorKind::Io), "{told:?}");
    });
}

#[test]
fn an_outage_fails_what_was_asked_and_no_more() {
    within(BOUND, || {
        let disk = match Faulty::mount(vec![Spec { name: "f".into(), size: 50_000, fault: Fault::None }]) {
            Ok(disk) => disk,
            Err(why) => return skip(why),
        };
        let files = table(disk.path(), &[("f".into(), 50_000)]);
        let options = ReaderOptions::default().outage_timeout(Duration::from_millis(300));
        let mut reader = Reader::new(files, &options).expect("a reader");
        disk.fail_all(5);
        reader.submit(1, &[span(0, 0, 10)]).expect("a request");
        let (_, bytes) = reader.next().expect("an answer");
        let error = bytes.expect_err("nothing can be read");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("outage_timeout")), "{error}");
        disk.fail_all(0);
        reader.submit(1, &[span(0, 0, 10)]).expect("a request");
        assert!(reader.next().is_some_and(|(_, bytes)| bytes.is_ok()), "it goes on");
    });
}
