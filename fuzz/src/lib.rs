//! What all targets share: files of the bytes that the fuzzer made up, and a walk over whatever dataset comes of them.

use bytes::Bytes;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use uringload::dataset::{Dataset, Sample, SampleId, Span, UnitId};
use uringload::{Error, ErrorKind};

/// Samples and units that are looked at: an index of few bytes may have billions.
const WALKED: u64 = 200;

/// Units that are longer are not decoded: a loader would compare them with its memory limit.
const DECODED_MAX: u64 = 16 << 20;

/// A folder of this process, in memory where there is such.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("uringload-fuzz-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder to write to");
        folder
    })
}

/// A folder with these files and nothing else.
pub fn files(files: &[(&str, &[u8])]) -> &'static Path {
    let folder = folder();
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a file");
    }
    folder
}

/// Cuts the input in two: its first two bytes say where.
pub fn two(data: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else { return (&[], data) };
    rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()))
}

/// An error is an answer, unless it says that we are wrong.
pub fn check(error: &Error) {
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error:?}");
}

/// Looks at everything that the index says, and parses what lies there.
pub fn walk(opened: Result<impl Dataset, Error>) {
    match opened {
        Ok(dataset) => walk_dataset(&dataset),
        Err(error) => check(&error),
    }
}

fn walk_dataset(dataset: &dyn Dataset) {
    assert!(dataset.len() > 0, "a dataset without a sample is refused");
    let (fields, fingerprint) = (dataset.schema().fields.len(), dataset.fingerprint());
    assert_eq!(fingerprint, dataset.fingerprint());
    dataset.bytes();
    dataset.largest(1);
    dataset.largest(dataset.len());
    assert!(dataset.shards().is_sorted());
    assert!(dataset.shards().last().is_none_or(|&end| end == dataset.len()));
    let last = dataset.len().saturating_sub(WALKED / 2);
    let (mut key, mut sample) = (Vec::new(), Sample::default());
    for id in (0..dataset.len().min(WALKED / 2)).chain(last..dataset.len()) {
        let id = SampleId(id);
        key.clear();
        dataset.key(id, &mut key);
        (0..fields).for_each(|field| drop(dataset.length(id, field)));
        let Some(raw) = raw(dataset, id) else { continue };
        sample.values.clear();
        match dataset.parse(id, &raw, &mut sample) {
            Ok(()) => assert_eq!(sample.values.len(), fields),
            Err(error) => check(&error),
        }
    }
}

/// What a sample's parser gets; `None` where some of it cannot be had.
fn raw(dataset: &dyn Dataset, id: SampleId) -> Option<Vec<Bytes>> {
    let mut spans = Vec::new();
    dataset.spans(id, &mut spans);
    let mut raw: Vec<Bytes> = spans.iter().map(|span| read(dataset, span)).collect::<Option<_>>()?;
    let Some(units) = dataset.units() else { return Some(raw) };
    let mut of = Vec::new();
    units.of(id, &mut of);
    for unit in of {
        assert!(unit.0 < units.count());
        raw.push(decoded(dataset, unit)?);
    }
    Some(raw)
}

fn decoded(dataset: &dyn Dataset, unit: UnitId) -> Option<Bytes> {
    let units = dataset.units()?;
    let bytes = units.decoded_bytes(unit);
    assert!((1..=units.largest_decoded()).contains(&bytes));
    let mut spans = Vec::new();
    units.stored(unit, &mut spans);
    let stored: Vec<Bytes> = spans.iter().map(|span| read(dataset, span)).collect::<Option<_>>()?;
    if bytes > DECODED_MAX {
        return None;
    }
    let mut out = vec![0xa5; bytes as usize];
    match units.decode(unit, &stored, &mut out) {
        Ok(len) => {
            assert!(len <= out.len());
            out.truncate(len);
            Some(out.into())
        }
        Err(error) => {
            check(&error);
            None
        }
    }
}

/// The bytes of a span, which must lie in its file.
fn read(dataset: &dyn Dataset, span: &Span) -> Option<Bytes> {
    let size = dataset.files().size(span.file);
    assert!(span.len == 0 || span.offset.checked_add(span.len).is_some_and(|end| end <= size), "{span:?} of {size}");
    let mut bytes = vec![0; span.len as usize];
    if span.len > 0 {
        let file = File::open(dataset.files().path(span.file)).expect("the file is there");
        file.read_exact_at(&mut bytes, span.offset).expect("spans lie in their file");
    }
    Some(bytes.into())
}
