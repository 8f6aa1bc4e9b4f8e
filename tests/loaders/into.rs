//! Ranges of files into memory that exists: every way to read, any offset and length, faults, and bad requests.

use crate::common::check::WAYS;
use crate::common::content::{first_wrong, key_of, name_of, write_file};
use crate::common::faulty::{Fault, Faulty, Spec};
use crate::common::random::Random;
use crate::common::{HANG, skip, within};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::config::IoChoice;
use uringload::dataset::{FileId, Span};
use uringload::{ErrorKind, FileRange, Reader, ReaderOptions, read_into};

const BOUND: Duration = Duration::from_secs(60);

/// Longer than a piece, and of no round length.
const LARGE: u64 = 9_437_213;
const SIZES: [u64; 4] = [LARGE, 0, 5_000, 300_001];

/// What memory holds before anything is read into it.
const UNTOUCHED: u8 = 0xa5;

fn folder() -> (TempDir, Vec<PathBuf>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let paths: Vec<PathBuf> = (0..SIZES.len()).map(|file| root.path().join(format!("{file}"))).collect();
    paths.iter().zip(SIZES).for_each(|(path, size)| write_file(path, size).expect("a file"));
    (root, paths)
}

fn span(file: u32, offset: u64, len: u64) -> Span {
    Span { file: FileId(file), offset, len }
}

/// Memory for these spans, each after a few bytes so that it has any address.
fn memory(spans: &[Span]) -> Vec<Vec<u8>> {
    spans.iter().map(|span| vec![UNTOUCHED; (span.offset % 64 + span.len) as usize]).collect()
}

fn with<'a>(spans: &[Span], memory: &'a mut [Vec<u8>]) -> Vec<(Span, &'a mut [u8])> {
    spans.iter().zip(memory).map(|(span, memory)| (*span, &mut memory[(span.offset % 64) as usize..])).collect()
}

fn check(paths: &[PathBuf], spans: &[Span], memory: &[Vec<u8>], about: &str) {
    for (span, memory) in spans.iter().zip(memory) {
        let (before, bytes) = memory.split_at((span.offset % 64) as usize);
        assert!(before.iter().all(|&byte| byte == UNTOUCHED), "{about}: {span:?} wrote before its memory");
        let wrong = first_wrong(key_of(name_of(&paths[span.file.0 as usize])), span.offset, bytes);
        assert_eq!(wrong, None, "{about}: {span:?}");
    }
}

/// Whole files, their ends, pieces at odd places, and nothing.
fn spans_of(seed: u64) -> Vec<Span> {
    let mut random = Random::new(seed);
    let whole = (0..SIZES.len() as u32).map(|file| span(file, 0, SIZES[file as usize]));
    let mut spans: Vec<Span> = whole.chain([span(0, LARGE - 1, 1), span(3, 300_001, 0), span(0, 4 << 20, 1)]).collect();
    for _ in 0..40 {
        let file = random.one_of(&[0, 0, 2, 3]);
        let offset = random.below(SIZES[file as usize]);
        let most = (SIZES[file as usize] - offset).min(random.one_of(&[100, 70_000, LARGE]));
        spans.push(span(file, offset, random.below(most + 1)));
    }
    spans
}

#[test]
fn ranges_come_by_every_way_into_any_memory() {
    within(BOUND, || {
        let (_root, paths) = folder();
        for (engine, io) in WAYS {
            for memory_limit in [1 << 20, 64 << 20] {
                let options = ReaderOptions::default().engine(engine).io(io).memory_limit(memory_limit);
                let mut reader = match Reader::open(&paths, &options) {
                    Ok(reader) => reader,
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        skip(format!("{engine:?} {io:?}: {error}"));
                        continue;
                    }
                    Err(error) => panic!("{engine:?} {io:?}: {error}"),
                };
                for seed in 0..2 {
                    let (spans, about) = (spans_of(seed), format!("{engine:?} {io:?} {memory_limit} seed {seed}"));
                    let mut memory = memory(&spans);
                    reader.read_into(&mut with(&spans, &mut memory)).unwrap_or_else(|error| panic!("{about}: {error}"));
                    check(&paths, &spans, &memory, &about);
                }
                // It is a reader as before.
                reader.submit(1, &[span(2, 0, 10)]).expect("a request");
                assert!(reader.next().is_some_and(|(id, bytes)| id == 1 && bytes.is_ok()));
            }
        }
    });
}

/// What is in the page cache is read without the engine, and so is little.
#[test]
fn ranges_by_path_come_from_the_page_cache_and_from_the_disk() {
    within(BOUND, || {
        let (_root, paths) = folder();
        for (seed, io) in [(0, IoChoice::Auto), (1, IoChoice::Auto), (2, IoChoice::Direct), (3, IoChoice::Buffered)] {
            let mut spans = spans_of(seed);
            if seed == 1 {
                spans.retain(|span| span.len < 10_000);
            }
            let mut memory = memory(&spans);
            let range = |(span, memory)| {
                let Span { file, offset, .. } = span;
                FileRange { path: &paths[file.0 as usize], offset, memory }
            };
            let ranges = with(&spans, &mut memory).into_iter().map(range);
            match read_into(ranges, &ReaderOptions::default().io(io)) {
                Err(error) if error.kind() == ErrorKind::Unavailable => skip(format!("{io:?}: {error}")),
                read => {
                    read.expect("no error");
                    check(&paths, &spans, &memory, &format!("{io:?} seed {seed}"));
                }
            }
        }
    });
}

#[test]
fn bad_ranges_are_refused_before_anything_is_read() {
    let (root, paths) = folder();
    let mut reader = Reader::open(&paths, &ReaderOptions::default()).expect("a reader");
    let mut good = vec![UNTOUCHED; 100];
    for (wrong, len) in [
        (span(4, 0, 10), 10),
        (span(2, 4_991, 10), 10),
        (span(2, 5_001, 0), 0),
        (span(1, 0, 1), 1),
        (span(0, u64::MAX, 2), 2),
        (span(2, 0, 10), 9),
        (span(2, 0, 9), 10),
    ] {
        let mut bad = vec![UNTOUCHED; len];
        let error =
            reader.read_into(&mut [(span(2, 0, 100), &mut good), (wrong, &mut bad)]).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{wrong:?}: {error}");
        assert!(error.remedy().is_some(), "{error}");
        assert!(good.iter().chain(&bad).all(|&byte| byte == UNTOUCHED), "{wrong:?}");
    }
    reader.submit(7, &[span(2, 0, 10)]).expect("a request");
    let error = reader.read_into(&mut [(span(2, 0, 100), &mut good)]).expect_err("a request is in flight");
    assert!(error.to_string().contains("in flight"), "{error}");
    assert!(reader.next().is_some_and(|(id, bytes)| id == 7 && bytes.is_ok()), "it is not lost");
    reader.read_into(&mut [(span(2, 0, 100), &mut good)]).expect("it goes on");
    check(&paths, &[span(2, 0, 100)], &[good.clone()], "after errors");
    // By path: what is missing, what is no file, and what ends before.
    let missing = root.path().join("missing");
    for (path, kind) in [(&*missing, ErrorKind::NotFound), (root.path(), ErrorKind::WrongFileType)] {
        let range = FileRange { path, offset: 0, memory: &mut good };
        let error = read_into([range], &ReaderOptions::default()).expect_err("there is no such file");
        assert_eq!((error.kind(), error.path()), (kind, Some(path)), "{error}");
    }
    let range = FileRange { path: &paths[2], offset: 4_950, memory: &mut good };
    let error = read_into([range], &ReaderOptions::default()).expect_err("it ends before");
    assert!(error.to_string().contains("the file has 5000"), "{error}");
    assert_eq!((error.path(), error.offset()), (Some(&*paths[2]), Some(4_950)));
    assert!(read_into([], &ReaderOptions::default()).is_ok(), "nothing is nothing");
}

/// A file that has become shorter, or has gone, since its size was looked up: small and large, cached and not.
#[test]
fn files_that_change_are_errors_and_the_reader_goes_on() {
    within(BOUND, || {
        for io in [IoChoice::Auto, IoChoice::Direct, IoChoice::Buffered] {
            let (_root, paths) = folder();
            let Ok(mut reader) = Reader::open(&paths, &ReaderOptions::default().io(io)) else {
                skip(format!("{io:?} is not available"));
                continue;
            };
            std::fs::OpenOptions::new().write(true).open(&paths[0]).expect("a file").set_len(6 << 20).expect("shorter");
            std::fs::remove_file(&paths[3]).expect("a file");
            for (bad, kind) in [(span(0, 0, LARGE), ErrorKind::Truncated), (span(3, 0, 300_000), ErrorKind::NotFound)] {
                let (mut large, mut small) = (vec![0; bad.len as usize], vec![0; 5_000]);
                let read = reader.read_into(&mut [(bad, &mut large), (span(2, 0, 5_000), &mut small)]);
                let error = read.expect_err("it is another file");
                assert!([kind, ErrorKind::Changed].contains(&error.kind()), "{io:?} {bad:?}: {error}");
                assert_eq!(error.path(), Some(&*paths[bad.file.0 as usize]), "{error}");
                assert_eq!(reader.in_flight(), 0);
                reader.read_into(&mut [(span(2, 0, 5_000), &mut small)]).expect("another file is as it was");
                check(&paths, &[span(2, 0, 5_000)], &[small], "another file");
            }
        }
    });
}

#[test]
fn a_disk_that_fails_or_hangs_ends_the_read_with_its_error() {
    within(BOUND, || {
        let faults = [Fault::None, Fault::BrokenOnce, Fault::Short(4096), Fault::Broken(2_000_000), Fault::Stuck];
        let spec = |(number, &fault): (usize, &Fault)| Spec { name: format!("{number}"), size: 3_000_000, fault };
        let disk = match Faulty::mount(faults.iter().enumerate().map(spec).collect()) {
            Ok(disk) => disk,
            Err(why) => return skip(why),
        };
        let paths: Vec<PathBuf> = (0..faults.len()).map(|number| disk.path().join(format!("{number}"))).collect();
        let options = ReaderOptions::default().timeout(Duration::from_secs(1));
        let mut reader = Reader::open(&paths, &options).expect("a reader");
        let good: Vec<Span> = (0..3).map(|file| span(file, 5, 2_999_995)).collect();
        for (bad, kind) in [(None, None), (Some(3), Some(ErrorKind::Io)), (Some(4), Some(ErrorKind::Timeout))] {
            let spans: Vec<Span> = bad.into_iter().map(|file| span(file, 0, 3_000_000)).chain(good.clone()).collect();
            let (mut memory, start) = (memory(&spans), Instant::now());
            match reader.read_into(&mut with(&spans, &mut memory)) {
                Ok(()) => {
                    assert_eq!(kind, None);
                    check(&paths, &spans, &memory, "faults that pass");
                }
                Err(error) => {
                    assert_eq!(Some(error.kind()), kind, "{error}");
                    assert_eq!(error.path(), bad.map(|file| &*paths[file as usize] as &Path), "{error}");
                }
            }
            assert!(start.elapsed() < HANG && reader.in_flight() == 0);
        }
        disk.release();
    });
}
