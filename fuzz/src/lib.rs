//! What all targets share: files of the bytes that the fuzzer made up, and a walk over whatever dataset comes of them.

use bytes::Bytes;
use flate2::Compression as Level;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use uringload::dataset::{Dataset, Sample, SampleId, Span, UnitId};
use uringload::{Error, ErrorKind};

/// Samples and units that are looked at: an index of few bytes may have billions.
const WALKED: u64 = 200;

/// Units that are longer are not decoded: a loader would compare them with its memory limit.
const DECODED_MAX: u64 = 16 << 20;

/// Decoded units that are kept, of which no sample needs more at a time than it has columns.
const UNITS_KEPT: usize = 4;

/// A folder of this process, in memory where there is such and no other place is asked for. It stays behind.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let shm = Path::new("/dev/shm");
        let is_free = std::env::var_os("TMPDIR").is_none() && shm.is_dir();
        let base = if is_free { shm.to_owned() } else { std::env::temp_dir() };
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

/// The input behind its first byte, which says how it is compressed on the way: a fuzzer that has to compress finds
/// nothing but wrong checksums.
pub fn compressed(data: &[u8]) -> Vec<u8> {
    let Some((how, data)) = data.split_first() else { return Vec::new() };
    match how {
        b'g' => gzip(data),
        b'l' => {
            let mut out = ZlibEncoder::new(Vec::new(), Level::none());
            out.write_all(data).and_then(|()| out.finish()).expect("memory takes it")
        }
        b'z' => zstd(data),
        _ => data.to_vec(),
    }
}

/// A frame of Zstandard.
pub fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(data, 1).expect("memory takes it")
}

/// A member of gzip.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Level::none());
    out.write_all(data).and_then(|()| out.finish()).expect("memory takes it")
}

/// An index in which `$raw` and `$zip` stand for lengths that would be wrong after each change of what they tell.
pub fn with_lengths(index: &[u8], raw: usize, zip: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(index.len() + 16);
    let mut rest = index;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"$raw") {
            write!(out, "{raw}").expect("memory takes it");
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix(b"$zip") {
            write!(out, "{zip}").expect("memory takes it");
            rest = tail;
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

/// A record of TFRecord with the checksums that it should have.
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let len = (payload.len() as u64).to_le_bytes();
    [&len[..], &masked(&len), payload, &masked(payload)].concat()
}

/// Makes a sidecar that of the file at `path`, with right checksums: see `dataset/sidecar/layout.rs`. What is too short
/// for that stays as it is.
pub fn adopt(sidecar: &mut [u8], path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).expect("the file is there");
    let len = sidecar.len();
    if len < 96 {
        return;
    }
    let header_bytes = u32::from_le_bytes(sidecar[12..16].try_into().expect("4 bytes")) as usize;
    if !(96..=len).contains(&header_bytes) {
        return;
    }
    sidecar[16..24].copy_from_slice(&(len as u64).to_le_bytes());
    sidecar[24..32].copy_from_slice(&metadata.size().to_le_bytes());
    sidecar[32..40].copy_from_slice(&metadata.mtime().to_le_bytes());
    sidecar[40..44].copy_from_slice(&(metadata.mtime_nsec() as u32).to_le_bytes());
    let (body, checks) = (header_bytes.next_multiple_of(4096), sidecar[80..88].try_into().expect("8 bytes"));
    let checks = u64::from_le_bytes(checks);
    if let Some(checks) = usize::try_from(checks).ok().filter(|checks| (body..=len).contains(checks)) {
        let (head, tail) = sidecar.split_at_mut(checks);
        for (piece, check) in head[body..].chunks(4096).zip(tail.chunks_exact_mut(4)) {
            check.copy_from_slice(&crc32c::crc32c(piece).to_le_bytes());
        }
        let checked = 4 * (checks - body).div_ceil(4096);
        if let Some(check) = tail.get(..checked).map(crc32c::crc32c) {
            sidecar[88..92].copy_from_slice(&check.to_le_bytes());
        }
    }
    let check = crc32c::crc32c(&sidecar[..header_bytes - 4]);
    sidecar[header_bytes - 4..header_bytes].copy_from_slice(&check.to_le_bytes());
}

/// An error is an answer, unless it says that we are wrong. With SHOW in the environment it is printed: whether a seed
/// is understood shows no other way.
pub fn check(error: &Error) {
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{error:?}");
    }
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    assert_eq!(error.headline().to_string().lines().count(), 1, "{error:?}");
}

/// Looks at everything that the index says, and parses what lies there.
pub fn walk(opened: Result<Arc<dyn Dataset>, Error>) {
    match opened {
        Ok(dataset) => walk_dataset(&*dataset),
        Err(error) => check(&error),
    }
}

fn walk_dataset(dataset: &dyn Dataset) {
    assert!(!dataset.is_empty(), "a dataset without a sample is refused");
    let (fields, fingerprint) = (dataset.schema().fields.len(), dataset.fingerprint());
    assert_eq!(fingerprint, dataset.fingerprint());
    dataset.bytes();
    dataset.largest(1);
    dataset.largest(dataset.len());
    assert!(dataset.shards().is_sorted());
    assert!(dataset.shards().last().is_none_or(|&end| end == dataset.len()));
    let last = dataset.len().saturating_sub(WALKED / 2);
    let (mut key, mut sample, mut decoded) = (Vec::new(), Sample::default(), Decoded::default());
    for id in (0..dataset.len().min(WALKED / 2)).chain(last..dataset.len()) {
        let id = SampleId(id);
        key.clear();
        dataset.key(id, &mut key);
        for field in 0..fields {
            let _ = (dataset.length(id, field), dataset.has_field(id, field));
        }
        let Some(raw) = raw(dataset, id, &mut decoded) else { continue };
        sample.values.clear();
        match dataset.parse(id, &raw, &mut sample) {
            Ok(()) => assert_eq!(sample.values.len(), fields),
            Err(error) => check(&error),
        }
    }
}

/// What a sample's parser gets; `None` where some of it cannot be had.
fn raw(dataset: &dyn Dataset, id: SampleId, decoded: &mut Decoded) -> Option<Vec<Bytes>> {
    let mut spans = Vec::new();
    dataset.spans(id, &mut spans);
    let mut raw: Vec<Bytes> = spans.iter().map(|span| read(dataset, span)).collect::<Option<_>>()?;
    let Some(units) = dataset.units() else { return Some(raw) };
    let mut of = Vec::new();
    units.of(id, &mut of);
    for unit in of {
        assert!(unit.0 < units.count());
        raw.push(decoded.unit(dataset, unit)?);
    }
    Some(raw)
}

/// The units that were decoded last: samples lie side by side in them, and to decode one for each would take minutes.
#[derive(Default)]
struct Decoded(VecDeque<(UnitId, Option<Bytes>)>);

impl Decoded {
    fn unit(&mut self, dataset: &dyn Dataset, unit: UnitId) -> Option<Bytes> {
        if let Some((_, bytes)) = self.0.iter().find(|(other, _)| *other == unit) {
            return bytes.clone();
        }
        let bytes = decode(dataset, unit);
        self.0.truncate(UNITS_KEPT - 1);
        self.0.push_front((unit, bytes.clone()));
        bytes
    }
}

fn decode(dataset: &dyn Dataset, unit: UnitId) -> Option<Bytes> {
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
