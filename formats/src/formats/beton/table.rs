//! The table of samples of a .beton, checked against its table of allocations.

use super::Head;
use super::fields::{CHANNELS, Descriptor, Descriptors, Kind};
use crate::index::headers::{Source, u16_at, u64_at};
use bytes::Bytes;
use uringload_core::{Error, ErrorKind, Result};

/// The places of one file's samples. All were checked: each is in one page and matches an allocation.
#[derive(Debug)]
pub(super) struct Table {
    /// The records, as stored in the file.
    records: Bytes,
    record_bytes: usize,
    len: usize,
    /// For each image field: the size of each image, or empty if all are raw. Pages are shorter than 4 GiB.
    image_bytes: Vec<Vec<u32>>,
}

/// An image, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) is_raw: bool,
}

/// A range of the pages that the writer allocated for a sample.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    offset: u64,
    sample: u64,
    len: u64,
}

/// Bytes of an allocation in the file: sample, offset, size.
const ALLOCATION_BYTES: usize = 24;

/// Bytes per read: a multiple of [`ALLOCATION_BYTES`].
const PIECE_BYTES: usize = ALLOCATION_BYTES << 14;

impl Table {
    pub(super) fn read(file: &Source, head: &Head, fields: &Descriptors) -> Result<Table> {
        let bytes = head.samples.checked_mul(fields.record_bytes);
        let end = bytes.and_then(|bytes| bytes.checked_add(fields.end)).filter(|&end| end <= head.allocations_at);
        let Some(end) = end else {
            let what =
                format!("a table of {} samples does not fit into the {} bytes of the file", head.samples, file.size());
            return Err(Error::new(ErrorKind::Truncated, what).with_path(file.path()).with_offset(8));
        };
        // `None` only beyond 2^63, which is longer than any file.
        let pages_at = end.checked_next_multiple_of(head.page_bytes).unwrap_or(u64::MAX);
        let pages = Pages { start: pages_at, end: head.allocations_at, page_bytes: head.page_bytes };
        let pointers = fields.all.iter().filter(|field| field.kind.is_pointer()).count() as u64;
        let allocations = read_allocations(file, head, &pages, head.samples.saturating_mul(pointers))?;
        // A sparse file may be larger than memory.
        let mut records = Vec::new();
        records.try_reserve_exact((end - fields.end) as usize).map_err(|source| {
            Error::new(ErrorKind::MemoryLimit, "there is no memory for the table of samples")
                .with_path(file.path())
                .with_source(source)
        })?;
        records.resize((end - fields.end) as usize, 0);
        file.read(fields.end, &mut records, "the table of samples")?;
        let mut table = Table {
            records: records.into(),
            record_bytes: fields.record_bytes as usize,
            len: head.samples as usize,
            image_bytes: Vec::new(),
        };
        for field in fields.all.iter().filter(|field| field.kind.is_pointer()) {
            table.check(file, field, fields.end, (&pages, &allocations))?;
        }
        Ok(table)
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(super) fn int(&self, field: &Descriptor, number: usize) -> i64 {
        u64_at(&self.records, self.at(field, number)).cast_signed()
    }

    /// The 8 bytes of a number.
    pub(super) fn scalar(&self, field: &Descriptor, number: usize) -> Bytes {
        let at = self.at(field, number);
        self.records.slice(at..at + 8)
    }

    pub(super) fn image(&self, field: &Descriptor, number: usize) -> Image {
        let at = self.at(field, number);
        let (width, height) = (u16_at(&self.records, at + 1), u16_at(&self.records, at + 3));
        Image { width, height, is_raw: self.records[at] == RAW }
    }

    /// Offset and length of a field's value; `None` for numbers.
    pub(super) fn place(&self, field: &Descriptor, number: usize) -> Option<(u64, u64)> {
        let at = self.at(field, number);
        Some(match &field.kind {
            Kind::Int | Kind::Float => return None,
            Kind::Image => {
                let sizes = self.image_bytes.get(field.image);
                let len = sizes
                    .and_then(|sizes| sizes.get(number))
                    .map_or_else(|| self.image(field, number).raw_bytes(), |&bytes| bytes.into());
                (u64_at(&self.records, at + 5), len)
            }
            Kind::Bytes | Kind::Json => (u64_at(&self.records, at), u64_at(&self.records, at + 8)),
            Kind::Array { bytes, .. } => (u64_at(&self.records, at), *bytes),
        })
    }

    /// Where a field of a sample begins in the records.
    fn at(&self, field: &Descriptor, number: usize) -> usize {
        number * self.record_bytes + field.at
    }

    /// Checks a field in all samples, and collects the sizes of images.
    fn check(
        &mut self,
        file: &Source,
        field: &Descriptor,
        records_at: u64,
        (pages, allocations): (&Pages, &[Allocation]),
    ) -> Result<()> {
        let mut sizes = Vec::new();
        let mut has_jpeg = false;
        for number in 0..self.len {
            let at = self.at(field, number);
            let wrong = |what: String| {
                let what = format!("field {:?} of sample {number} {what}", field.name);
                file.corrupt(records_at + at as u64, what)
            };
            let is_jpeg = field.kind == Kind::Image && self.records[at] == JPEG;
            if field.kind == Kind::Image && !is_jpeg && self.records[at] != RAW {
                return Err(wrong(format!("is an image of mode {}, which is neither 0 nor 1", self.records[at])));
            }
            // The image sizes are not in the table yet, so this is what the record itself says.
            let (offset, len) = self.place(field, number).unwrap_or_default();
            let first = allocations.partition_point(|allocation| allocation.offset < offset);
            let found = allocations.get(first).filter(|found| (found.offset, found.sample) == (offset, number as u64));
            let len = match found {
                _ if len == 0 && !is_jpeg && pages.hold(offset, 0) => 0,
                None => return Err(wrong(format!("is at {offset}, where nothing was allocated for it"))),
                Some(found) if is_jpeg || found.len == len => found.len,
                Some(found) => return Err(wrong(format!("has {len} bytes, and {} were allocated", found.len))),
            };
            if field.kind == Kind::Image {
                has_jpeg |= is_jpeg;
                // Fits: an allocation is in a page.
                sizes.push(len as u32);
            }
        }
        if field.kind == Kind::Image {
            self.image_bytes.push(if has_jpeg { sizes } else { Vec::new() });
        }
        Ok(())
    }
}

const JPEG: u8 = 0;
const RAW: u8 = 1;

impl Image {
    fn raw_bytes(self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * CHANNELS
    }
}

/// The allowed places of values.
struct Pages {
    start: u64,
    end: u64,
    page_bytes: u64,
}

impl Pages {
    /// Whether a range is within one page. An empty value may be before the pages: the writer allocates nothing for it.
    fn hold(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.end) else { return false };
        if len == 0 {
            return true;
        }
        offset >= self.start && (offset - self.start) / self.page_bytes == (end - 1 - self.start) / self.page_bytes
    }
}

/// Reads the table of allocations: those that are not empty, sorted by offset. None may overlap.
fn read_allocations(file: &Source, head: &Head, pages: &Pages, most: u64) -> Result<Vec<Allocation>> {
    let bytes = file.size() - head.allocations_at;
    let count = bytes / ALLOCATION_BYTES as u64;
    if !bytes.is_multiple_of(ALLOCATION_BYTES as u64) {
        let what = format!("the table of allocations ends in {} bytes of an entry", bytes % ALLOCATION_BYTES as u64);
        return Err(Error::new(ErrorKind::Truncated, what).with_path(file.path()).with_offset(file.size()));
    }
    if count > most {
        let what = format!("there are {count} allocations for {most} values");
        return Err(file.corrupt(head.allocations_at, what));
    }
    let mut allocations = Vec::new();
    let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
    let mut at = head.allocations_at;
    while at < file.size() {
        let len = piece.len().min((file.size() - at) as usize);
        file.read(at, &mut piece[..len], "the table of allocations")?;
        for (number, entry) in piece[..len].chunks_exact(ALLOCATION_BYTES).enumerate() {
            let (sample, offset, len) = (u64_at(entry, 0), u64_at(entry, 8), u64_at(entry, 16));
            if sample >= head.samples || !pages.hold(offset, len) {
                let what = format!("{len} bytes at {offset} for sample {sample} were allocated outside of a page");
                return Err(file.corrupt(at + (number * ALLOCATION_BYTES) as u64, what));
            }
            if len > 0 {
                allocations.push(Allocation { offset, sample, len });
            }
        }
        at += len as u64;
    }
    allocations.sort_unstable_by_key(|allocation| allocation.offset);
    for pair in allocations.windows(2) {
        if pair[0].offset + pair[0].len > pair[1].offset {
            let what = format!("samples {} and {} share bytes", pair[0].sample, pair[1].sample);
            return Err(file.corrupt(pair[1].offset, what));
        }
    }
    Ok(allocations)
}
