//! Shared by all targets: files with the fuzzer's bytes, and a walk over whatever dataset they make.

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

/// Most samples and units to look at: a small index may claim billions.
const WALKED: u64 = 200;

/// Longer units are not decoded: a loader would compare them with its memory limit.
const DECODED_MAX: u64 = 16 << 20;

/// Decoded units to keep. No sample needs more at a time than it has columns.
const UNITS_KEPT: usize = 4;

/// This process's folder: in memory if possible and no other place is set. It is not removed.
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

/// Fills the folder with these files and nothing else.
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

/// Cuts the input in two, at the offset in its first two bytes.
pub fn two(data: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = data.split_first_chunk() else { return (&[], data) };
    rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()))
}

/// Compresses the input after its first byte, which chooses the compression. A fuzzer that had to compress for itself
/// would find nothing but wrong checksums.
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

/// A Zstandard frame.
pub fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(data, 1).expect("memory takes it")
}

/// A gzip member.
pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Level::none());
    out.write_all(data).and_then(|()| out.finish()).expect("memory takes it")
}

/// Replaces `$raw` and `$zip` in an index by lengths, which would be wrong after any mutation of the data.
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

/// A TFRecord record with correct checksums.
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let len = (payload.len() as u64).to_le_bytes();
    [&len[..], &masked(&len), payload, &masked(payload)].concat()
}

/// Makes a sidecar fit the file at `path` and corrects its checksums: see `formats/src/index/sidecar/layout.rs`. A
/// sidecar too short for that stays as it is.
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

/// Accepts any error that does not blame us. With SHOW in the environment it prints the error: there is no other way
/// to see whether the parser accepts a seed.
pub fn check(error: &Error) {
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{error:?}");
    }
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    assert_eq!(error.headline().to_string().lines().count(), 1, "{error:?}");
}

/// Asks the index everything, and parses the bytes it points to.
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

/// The parser's input for a sample; `None` if a part cannot be read or decoded.
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

/// The last decoded units. Neighbouring samples share units, and decoding one for each sample would take minutes.
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
    if bytes.max(units.largest_scratch()) > DECODED_MAX {
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

/// The bytes of a span, which must lie within its file.
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
