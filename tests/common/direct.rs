//! Reads samples without a loader: only through a dataset's index and its parser.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use tempfile::TempDir;
use uringload::dataset::{Dataset, IndexReport, Sample, SampleId, Span, UnitId, Units, Value};
use uringload::{Error, ErrorKind};

/// The values of a sample by column name; numbers as 8 bytes.
pub type Row = BTreeMap<String, Vec<u8>>;

/// Where the indexes of the files came from.
pub fn report(dataset: &dyn Dataset) -> &IndexReport {
    dataset.index().report.as_ref().expect("a format with indexes")
}

/// A folder of these files.
pub fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    folder
}

/// The key of a sample.
pub fn key(dataset: &dyn Dataset, id: u64) -> String {
    let mut key = Vec::new();
    dataset.key(SampleId(id), &mut key);
    String::from_utf8(key).expect("names of tests are UTF-8")
}

/// What was left out, and how often.
pub fn left_out(dataset: &dyn Dataset) -> Vec<(&'static str, u64)> {
    dataset.index().left_out.iter().map(|skipped| (skipped.what, skipped.count)).collect()
}

/// An error of this kind, with these words, and in the form that errors have.
pub fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = result.expect_err("it is refused");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!text.contains("  ") && text.lines().count() == 1 + usize::from(error.remedy().is_some()), "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} in {text}"));
    error
}

/// Reads and parses one sample; decodes its units just for it.
pub fn sample(dataset: &dyn Dataset, id: u64) -> Result<Row, Error> {
    let mut spans = Vec::new();
    dataset.spans(SampleId(id), &mut spans);
    let mut raw: Vec<Bytes> = spans.iter().map(|span| read(dataset, span)).collect();
    if let Some(units) = dataset.units() {
        let mut of = Vec::new();
        units.of(SampleId(id), &mut of);
        for unit in of {
            raw.push(decoded(dataset, units, unit)?);
        }
    }
    let mut sample = Sample::default();
    dataset.parse(SampleId(id), &raw, &mut sample)?;
    let fields = &dataset.schema().fields;
    assert_eq!(sample.values.len(), fields.len(), "a value for each field");
    for (number, (field, value)) in fields.iter().zip(&sample.values).enumerate() {
        if let (Some(length), Value::Bytes(bytes)) = (dataset.length(SampleId(id), number), value) {
            assert_eq!(length * field.dtype.size(), bytes.len() as u64, "{} of sample {id}", field.name);
        }
    }
    let value = |value: Value| match value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::I64(number) => number.to_le_bytes().to_vec(),
    };
    Ok(fields.iter().map(|field| field.name.clone()).zip(sample.values.into_iter().map(value)).collect())
}

/// The number of the file that a sample begins in, and the byte there.
pub fn place(dataset: &dyn Dataset, id: u64) -> (u32, u64) {
    let mut spans = Vec::new();
    dataset.spans(SampleId(id), &mut spans);
    (spans[0].file.0, spans[0].offset)
}

/// All samples.
pub fn samples(dataset: &dyn Dataset) -> Vec<Result<Row, Error>> {
    (0..dataset.len()).map(|id| sample(dataset, id)).collect()
}

/// A unit, read and decoded.
pub fn decoded(dataset: &dyn Dataset, units: &dyn Units, unit: UnitId) -> Result<Bytes, Error> {
    assert!(unit.0 < units.count());
    let mut spans = Vec::new();
    units.stored(unit, &mut spans);
    let stored: Vec<Bytes> = spans.iter().map(|span| read(dataset, span)).collect();
    assert!(stored.iter().map(|bytes| bytes.len() as u64).sum::<u64>() <= units.largest_stored());
    let bytes = units.decoded_bytes(unit);
    assert!((1..=units.largest_decoded()).contains(&bytes));
    // Stale bytes, so that a decoder that leaves bytes unwritten is found.
    let mut out = vec![0xa5; bytes as usize];
    let len = units.decode(unit, &stored, &mut out)?;
    out.truncate(len);
    Ok(out.into())
}

fn read(dataset: &dyn Dataset, span: &Span) -> Bytes {
    let mut bytes = vec![0; span.len as usize];
    if span.len > 0 {
        let file = File::open(dataset.files().path(span.file)).expect("the file is there");
        file.read_exact_at(&mut bytes, span.offset).expect("spans lie in their file");
    }
    bytes.into()
}
