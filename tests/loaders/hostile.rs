//! Datasets of other programs that panic, lie and fail in every method: each error is that of its sample, and nothing
//! hangs.

use crate::common::random::Random;
use crate::common::within;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::{EngineChoice, IoChoice, OnError, Packing};
use uringload::dataset::{
    DType, Dataset, Field, FileId, FileTable, Index, Sample, SampleId, Schema, Shape, Span, UnitId, Units, Value,
};
use uringload::{Builder, Error, ErrorKind, Loader, Result};

const BOUND: Duration = Duration::from_secs(240);
const SAMPLES: u64 = 40;
const SAMPLE_BYTES: u64 = 64;
const UNIT_SAMPLES: u64 = 5;
const UNITS: u64 = SAMPLES / UNIT_SAMPLES;
const UNIT_BYTES: u64 = UNIT_SAMPLES * SAMPLE_BYTES;
const BATCH: u64 = 8;
const SEEDS: u64 = 200;
const SEEDS_OF_THE_SLOW_SUITE: u64 = 3000;

/// What is wrong with a sample, or with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// `spans`, `units` or `stored` panics.
    Panics,
    /// It panics with something that is no text.
    PanicsWithoutText,
    /// It names a file, or a unit, that there is not.
    Nowhere,
    /// Its end is no number.
    Endless,
    /// It is longer than the dataset says.
    Long,
    ParsePanics,
    ParseFails,
    NoValue,
    OtherKind,
    OtherLength,
    DecodePanics,
    DecodeFails,
    /// `decode` says that it has written more than there was room for.
    DecodedTooMuch,
    /// `decoded_bytes` is more than `largest_decoded`.
    DecodedLong,
}

use Wrong::*;

const OF_SAMPLE: [Wrong; 10] =
    [Panics, PanicsWithoutText, Nowhere, Endless, Long, ParsePanics, ParseFails, NoValue, OtherKind, OtherLength];
const OF_UNIT: [Wrong; 9] =
    [Panics, PanicsWithoutText, Nowhere, Endless, Long, DecodePanics, DecodeFails, DecodedTooMuch, DecodedLong];

impl Wrong {
    fn is_corrupt(self) -> bool {
        matches!(self, ParseFails | NoValue | OtherKind | OtherLength | DecodeFails)
    }
}

/// Which method panics that has no sample to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Fingerprint,
    Largest,
    Length,
    Key,
    Units,
}

struct Hostile {
    index: Index,
    samples: Vec<Wrong>,
    units: Option<Vec<Wrong>>,
    method: Option<Method>,
}

impl Hostile {
    fn new(root: &TempDir, shape: Shape) -> Hostile {
        let mut files = FileTable::new();
        files.push_root(root.path());
        files.push(b"samples", SAMPLES * SAMPLE_BYTES).expect("room for one");
        let field = Field { name: "data".into(), dtype: DType::U8, shape };
        let index = Index::new("hostile", files, Schema { fields: vec![field] }, SAMPLES);
        Hostile { index, samples: vec![Nothing; SAMPLES as usize], units: None, method: None }
    }

    /// With about a quarter of its samples and units wrong.
    fn of_seed(root: &TempDir, seed: u64) -> Hostile {
        let mut random = Random::new(seed);
        let mut hostile = Hostile::new(root, Shape::Fixed(vec![SAMPLE_BYTES]));
        let is_unit = seed % 3 == 1;
        let mut choose = |wrong: &[Wrong]| if random.below(4) == 0 { random.one_of(wrong) } else { Nothing };
        // No spans to be wrong about where samples are cut from units.
        let of_sample = if is_unit { [&OF_SAMPLE[..3], &OF_SAMPLE[5..]].concat() } else { OF_SAMPLE.to_vec() };
        hostile.samples.iter_mut().for_each(|sample| *sample = choose(&of_sample));
        hostile.units = is_unit.then(|| (0..UNITS).map(|_| choose(&OF_UNIT)).collect());
        hostile
    }

    fn is(&self, method: Method) {
        assert_ne!(self.method, Some(method), "made up");
    }

    /// What is wrong with a sample, and what its error names.
    fn wrong_with(&self, id: u64) -> Option<(Wrong, String)> {
        let unit = id / UNIT_SAMPLES;
        let of_unit = self.units.as_ref().map_or(Nothing, |units| units[unit as usize]);
        match self.samples[id as usize] {
            // Found before the unit is.
            wrong @ (Panics | PanicsWithoutText | Nowhere) => Some((wrong, format!("sample {id}"))),
            _ if of_unit != Nothing => Some((of_unit, format!("unit {unit}"))),
            Nothing => None,
            wrong => Some((wrong, format!("sample {id}"))),
        }
    }

    /// A span, or its opposite.
    fn span(wrong: Wrong, offset: u64, len: u64) -> Span {
        match wrong {
            Panics => panic!("made up"),
            PanicsWithoutText => std::panic::panic_any(7),
            Nowhere => Span { file: FileId(9), offset, len },
            Endless => Span { file: FileId(0), offset: u64::MAX - 3, len },
            Long => Span { file: FileId(0), offset, len: 1 << 40 },
            _ => Span { file: FileId(0), offset, len },
        }
    }
}

fn content() -> Vec<u8> {
    (0..SAMPLES * SAMPLE_BYTES).map(|byte| (byte * 7 + byte / SAMPLE_BYTES) as u8).collect()
}

fn root() -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::write(root.path().join("samples"), content()).expect("a file");
    root
}

impl Dataset for Hostile {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        if self.units.is_none() {
            out.push(Hostile::span(self.samples[id.0 as usize], id.0 * SAMPLE_BYTES, SAMPLE_BYTES));
        }
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let at = if self.units.is_some() { (id.0 % UNIT_SAMPLES * SAMPLE_BYTES) as usize } else { 0 };
        let bytes = raw[0].slice(at..at + SAMPLE_BYTES as usize);
        match self.samples[id.0 as usize] {
            ParsePanics => panic!("made up"),
            ParseFails => return Err(Error::new(ErrorKind::Corrupt, format!("sample {} is made up", id.0))),
            NoValue => {}
            OtherKind => out.values.push(Value::I64(1)),
            OtherLength => out.values.push(Value::Bytes(bytes.slice(1..))),
            _ => out.values.push(Value::Bytes(bytes)),
        }
        Ok(())
    }

    fn units(&self) -> Option<&dyn Units> {
        self.is(Method::Units);
        self.units.as_ref().map(|_| self as &dyn Units)
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.is(Method::Key);
        out.push(id.0 as u8);
    }

    fn largest(&self, count: u64) -> u64 {
        self.is(Method::Largest);
        if self.units.is_some() { 0 } else { count * SAMPLE_BYTES }
    }

    fn fingerprint(&self) -> u64 {
        self.is(Method::Fingerprint);
        7
    }

    fn length(&self, id: SampleId, _field: usize) -> Option<u64> {
        if id.0 == SAMPLES / 2 {
            self.is(Method::Length);
        }
        Some(SAMPLE_BYTES)
    }
}

impl Units for Hostile {
    fn count(&self) -> u32 {
        UNITS as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        match self.samples[id.0 as usize] {
            Panics => panic!("made up"),
            PanicsWithoutText => std::panic::panic_any(7),
            Nowhere => out.push(UnitId(UNITS as u32)),
            _ => out.push(UnitId((id.0 / UNIT_SAMPLES) as u32)),
        }
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let wrong = self.units.as_ref().map_or(Nothing, |units| units[unit.0 as usize]);
        out.push(Hostile::span(wrong, u64::from(unit.0) * UNIT_BYTES, UNIT_BYTES));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        let is_long = self.units.as_ref().is_some_and(|units| units[unit.0 as usize] == DecodedLong);
        if is_long { 1 << 40 } else { UNIT_BYTES }
    }

    fn largest_decoded(&self) -> u64 {
        UNIT_BYTES
    }

    fn largest_stored(&self) -> u64 {
        UNIT_BYTES
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let wrong = self.units.as_ref().map_or(Nothing, |units| units[unit.0 as usize]);
        match wrong {
            DecodePanics => panic!("made up"),
            DecodeFails => return Err(Error::new(ErrorKind::Corrupt, format!("unit {} is made up", unit.0))),
            DecodedTooMuch => return Ok(out.len() + 1),
            _ => out[..stored[0].len()].copy_from_slice(&stored[0]),
        }
        Ok(stored[0].len())
    }
}

fn builder(dataset: Hostile, seed: u64) -> Builder {
    let engine = if seed.is_multiple_of(2) { EngineChoice::Auto } else { EngineChoice::Threads };
    Loader::builder(Arc::new(dataset)).batch_size(BATCH).engine(engine).io(IoChoice::Buffered)
}

/// The samples of a batch, whose bytes are what they should be.
fn checked(batch: &Batch, content: &[u8]) -> Vec<u64> {
    for (index, id) in batch.ids.iter().enumerate() {
        let at = (id.0 * SAMPLE_BYTES) as usize;
        let bytes = batch.columns[0].bytes_of(index).expect("bytes");
        assert_eq!(bytes, content[at..at + SAMPLE_BYTES as usize], "sample {id:?}");
    }
    batch.ids.iter().map(|id| id.0).collect()
}

fn is_told(error: &Error, (wrong, named): &(Wrong, String), seed: u64) {
    let kind = if wrong.is_corrupt() { ErrorKind::Corrupt } else { ErrorKind::Internal };
    assert_eq!(error.kind(), kind, "seed {seed}: {wrong:?}: {error}");
    let is_ours = error.what().contains("bug of uringload");
    assert!(error.what().contains(named) && !is_ours, "seed {seed}: {wrong:?} of {named}: {error}");
    if kind == ErrorKind::Internal {
        assert!(error.what().contains("hostile") && error.remedy().is_some(), "seed {seed}: {wrong:?}: {error}");
    }
}

#[test]
fn whatever_a_dataset_does_is_an_error_of_that_sample() {
    is_an_error_of_that_sample(SEEDS);
}

#[test]
#[ignore = "slow: more seeds"]
fn whatever_many_datasets_do_is_an_error_of_that_sample() {
    is_an_error_of_that_sample(SEEDS_OF_THE_SLOW_SUITE);
}

fn is_an_error_of_that_sample(seeds: u64) {
    within(BOUND, move || {
        let (root, content) = (root(), content());
        let seeds = std::env::var("URINGLOAD_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(seeds);
        for seed in 0..seeds {
            let wrong: Vec<Option<(Wrong, String)>> = {
                let hostile = Hostile::of_seed(&root, seed);
                (0..SAMPLES).map(|id| hostile.wrong_with(id)).collect()
            };
            let on_error = match seed % 3 {
                0 => OnError::Replace,
                _ if seed % 2 == 0 => OnError::Raise,
                _ => OnError::Skip,
            };
            let loader = builder(Hostile::of_seed(&root, seed), seed).on_error(on_error).build();
            let loader = loader.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let (mut batches, mut first) = (0, 0);
            for batch in loader {
                let ids: Vec<u64> = (first..first + BATCH).collect();
                let good = |id: &u64| wrong[*id as usize].is_none();
                let good_ids: Vec<u64> = ids.iter().copied().filter(good).collect();
                match batch {
                    Ok(batch) => {
                        let came = checked(&batch, &content);
                        for failed in &batch.failed {
                            let why = wrong[failed.id.0 as usize].as_ref().unwrap_or_else(|| panic!("seed {seed}"));
                            is_told(&failed.error, why, seed);
                        }
                        assert_eq!(batch.failed.len(), ids.len() - good_ids.len(), "seed {seed}");
                        match on_error {
                            OnError::Replace => assert!(came.len() == 8 && came.iter().all(good), "seed {seed}"),
                            OnError::Raise => assert_eq!(came, ids, "seed {seed}"),
                            _ => assert_eq!(came, good_ids, "seed {seed}"),
                        }
                    }
                    Err(error) => {
                        assert_eq!(on_error, OnError::Raise, "seed {seed}: {error}");
                        let bad = ids.iter().find_map(|&id| wrong[id as usize].as_ref());
                        is_told(&error, bad.unwrap_or_else(|| panic!("seed {seed}: {error}")), seed);
                    }
                }
                (batches, first) = (batches + 1, first + BATCH);
            }
            assert_eq!(batches, SAMPLES / BATCH, "seed {seed}");
        }
    });
}

/// A method that is about no sample ends the loader, or the call that makes it, with an error that names the method.
#[test]
fn what_is_no_samples_is_an_error_of_the_loader() {
    within(BOUND, || {
        let root = root();
        for (method, told) in [
            (Method::Fingerprint, "method that describes"),
            (Method::Largest, "method that describes"),
            (Method::Units, "method that describes"),
            (Method::Length, "\"length\""),
            (Method::Key, "\"key\""),
        ] {
            for engine in [EngineChoice::Auto, EngineChoice::Threads] {
                let mut hostile = Hostile::new(&root, Shape::Ragged);
                hostile.method = Some(method);
                let builder = Loader::builder(Arc::new(hostile)).batch_size(2).key(true).engine(engine);
                let builder = if method == Method::Length {
                    builder.batching(Packing::new(SAMPLE_BYTES * 2).window(3)).key(false)
                } else {
                    builder
                };
                let errors: Vec<Error> = match builder.io(IoChoice::Buffered).build() {
                    Ok(loader) => loader.filter_map(Result::err).collect(),
                    Err(error) => vec![error],
                };
                assert_eq!(errors.len(), 1, "{method:?}: {errors:?}");
                let what = errors[0].what();
                assert!(what.contains(told) && what.contains("hostile") && what.contains("made up"), "{what}");
                assert_eq!(errors[0].kind(), ErrorKind::Internal);
            }
        }
    });
}

/// One whose `largest` is right for a sample and wrong for a batch would wait for memory that there never is.
#[test]
fn a_dataset_that_lies_about_the_largest_batch_is_found_out() {
    /// Of a sample; a batch of them is more than the memory limit.
    const LONG: u64 = 200_000;
    struct Liar(Hostile);

    impl Dataset for Liar {
        fn index(&self) -> &Index {
            self.0.index()
        }
        fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
            out.push(Span { file: FileId(0), offset: id.0 * LONG, len: LONG });
        }
        fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
            out.values.push(Value::Bytes(raw[0].clone()));
            Ok(())
        }
        fn largest(&self, _count: u64) -> u64 {
            LONG
        }
    }

    within(BOUND, || {
        let root = root();
        let liar = Liar(Hostile::new(&root, Shape::Fixed(vec![SAMPLE_BYTES])));
        let builder = Loader::builder(Arc::new(liar)).batch_size(BATCH).memory_limit(1 << 20).io(IoChoice::Buffered);
        let errors: Vec<Error> = builder.build().expect("a loader").filter_map(Result::err).collect();
        assert_eq!(errors.len() as u64, SAMPLES / BATCH, "{errors:?}");
        assert!(errors[0].what().contains("\"largest\""), "{}", errors[0]);
    });
}
