//! The header of a sidecar, byte by byte. All numbers are little endian.
//!
//! ```text
//! 0   magic[8], u32 version, u32 bytes of the header
//! 16  u64 bytes of the sidecar, u64 bytes of the shard, i64 seconds and u32 nanoseconds of its mtime, u32 unit
//! 48  u64 samples, u64 content, u64 groups_at, u64 keys_at, u64 checks_at, u32 check of the checks
//! 92  u8 width and u64 base of starts, then texts of u16 length: format, name of the shard
//!     u16 columns, each: text name, i64 base and u8 width of gaps, u64 base and u8 width of lengths, u64 missing,
//!                        u64 bytes, u8 steps, u64 steps[]
//!     u16 things left out, each: u8 code, u64 count, text first
//!     u32 major and u32 minor number of the shard's device, u64 inode, i64 seconds and u32 nanoseconds of its ctime,
//!     i64 seconds when it was opened, u8 pieces of it, each: u64 offset, u32 bytes, u32 CRC-32C
//!     for a shard that is decoded only: u8 coding, u64 decoded bytes
//!     u32 CRC-32C of everything before it
//! the body, at the next multiple of 4096:
//!     records: for each sample its start, then gap and length of each column
//!     groups:  for each 16 keys a u64, their start relative to keys_at
//!     keys:    u16 bytes shared with the previous key, u16 bytes of its own, then the latter
//!     8 bytes of 0
//! checks: a u32 CRC-32C for each 4096 bytes of the body
//! ```

use super::pieces::CHECKED_BYTES;
use super::proof::Proof;
use super::shard::{Own, Shard};
use crate::compression::{Coding, Compression};
use crate::index::object::NO_TIME;

pub(super) const MAGIC: [u8; 8] = *b"UIDX\r\n\x1a\n";
/// Incremented whenever a reader of the previous version would misunderstand the file. Version 1 knew a shard by its
/// name, size and time of modification alone.
pub(super) const VERSION: u32 = 2;
/// More than the largest header that is ever written; a header's claimed length is checked against this first.
const HEADER_BYTES_MAX: u32 = 1 << 24;
const PREFIX_BYTES: usize = 16;

/// Keys are stored without the prefix shared with their predecessor, except each 16th, which is complete.
pub(super) const KEYS_PER_GROUP: u64 = 16;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Most columns of a shard.
pub const COLUMNS_MAX: usize = 1024;
/// Most kinds of things that a scan may leave out.
const LEFT_OUT_MAX: u16 = 64;

/// One column of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Number of samples that lack it.
    pub(crate) missing: u64,
    /// Total bytes of all its values.
    pub(crate) bytes: u64,
    /// Lengths of its longest value, its 2nd longest, 4th, 8th and so on.
    pub(crate) steps: Vec<u64>,
    pub(super) gap_base: i64,
    pub(super) gap_width: u8,
    pub(super) len_base: u64,
    pub(super) len_width: u8,
}

impl Column {
    /// An upper bound of the lengths of the values of `samples` samples: pairs of a length and the number of values
    /// that it bounds.
    pub(crate) fn runs(&self, samples: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut left = samples.saturating_sub(self.missing);
        self.steps.iter().enumerate().map(move |(step, &len)| {
            // The longest value is itself, the 2nd too and the 3rd, the 4th represents four.
            let run = left.min(1 << step);
            left -= run;
            (len, run)
        })
    }
}

/// The content of a header.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) shard_bytes: u64,
    /// How the shard is compressed, and its decoded length; offsets then refer to decoded bytes.
    pub(super) decoded: Option<(Coding, u64)>,
    pub(super) unit: u64,
    pub(super) samples: u64,
    pub(super) content: u64,
    pub(super) start_base: u64,
    pub(super) start_width: u8,
    pub(super) columns: Vec<Column>,
    pub(super) left_out: Vec<(u8, u64, Vec<u8>)>,
    /// Of the shard, when it was indexed.
    pub(super) own: Own,
    pub(super) seen: i64,
    pub(super) proof: Proof,
    pub(super) body_at: u64,
    pub(super) records_at: u64,
    pub(super) record_bytes: u64,
    pub(super) groups_at: u64,
    pub(super) keys_at: u64,
    pub(super) checks_at: u64,
    pub(super) checks_check: u32,
}

impl Head {
    /// Bytes of a sample's record.
    pub(super) fn record_bytes_of(start_width: u8, columns: &[Column]) -> u64 {
        let widths = columns.iter().map(|column| u64::from(column.gap_width) + u64::from(column.len_width));
        u64::from(start_width) + widths.sum::<u64>()
    }

    /// Bytes of the content that contains values.
    pub(super) fn content_bytes(&self) -> u64 {
        self.decoded.map_or(self.shard_bytes, |(_, bytes)| bytes)
    }

    /// Pieces of the body, each with a checksum of its own.
    pub(super) fn pieces(&self) -> u64 {
        (self.checks_at - self.body_at).div_ceil(CHECKED_BYTES)
    }

    /// The header, as bytes, of a sidecar of `len` bytes for `shard`.
    pub(super) fn write(&self, shard: &Shard, len: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 4]);
        out.extend(len.to_le_bytes());
        out.extend(shard.size.to_le_bytes());
        out.extend(shard.modified.0.to_le_bytes());
        out.extend(shard.modified.1.to_le_bytes());
        out.extend((self.unit as u32).to_le_bytes());
        for number in [self.samples, self.content, self.groups_at, self.keys_at, self.checks_at] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.checks_check.to_le_bytes());
        out.push(self.start_width);
        out.extend(self.start_base.to_le_bytes());
        put_text(&mut out, shard.format.as_bytes());
        put_text(&mut out, &shard.name);
        // Builders bound both counts.
        out.extend((self.columns.len() as u16).to_le_bytes());
        for column in &self.columns {
            put_text(&mut out, column.name.as_bytes());
            out.extend(column.gap_base.to_le_bytes());
            out.push(column.gap_width);
            out.extend(column.len_base.to_le_bytes());
            out.push(column.len_width);
            out.extend(column.missing.to_le_bytes());
            out.extend(column.bytes.to_le_bytes());
            out.push(column.steps.len() as u8);
            column.steps.iter().for_each(|step| out.extend(step.to_le_bytes()));
        }
        out.extend((self.left_out.len() as u16).to_le_bytes());
        for (code, count, first) in &self.left_out {
            out.push(*code);
            out.extend(count.to_le_bytes());
            put_text(&mut out, first);
        }
        out.extend(shard.own.device.0.to_le_bytes());
        out.extend(shard.own.device.1.to_le_bytes());
        out.extend(shard.own.inode.to_le_bytes());
        out.extend(shard.own.changed.0.to_le_bytes());
        out.extend(shard.own.changed.1.to_le_bytes());
        out.extend(shard.seen.to_le_bytes());
        // Fits: there are few pieces.
        out.push(self.proof.0.len() as u8);
        for (offset, len, check) in &self.proof.0 {
            out.extend(offset.to_le_bytes());
            out.extend(len.to_le_bytes());
            out.extend(check.to_le_bytes());
        }
        if let Some((coding, bytes)) = self.decoded {
            out.push(code_of(coding));
            out.extend(bytes.to_le_bytes());
        }
        let header_bytes = out.len() as u32 + 4;
        out[12..16].copy_from_slice(&header_bytes.to_le_bytes());
        out.extend(crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Reads the header of a sidecar of `len` bytes through `copy`, if it belongs to `shard`, and the checksums of the
    /// body's pieces.
    pub(super) fn read(
        copy: impl Fn(u64, &mut [u8]) -> bool,
        len: u64,
        shard: &Shard,
    ) -> Result<(Head, Vec<u8>), String> {
        let mut prefix = [0; PREFIX_BYTES];
        if !copy(0, &mut prefix) || prefix[..8] != MAGIC {
            return Err("it does not begin as an index".into());
        }
        let version = le_u32(&prefix[8..12]);
        if version != VERSION {
            return Err(format!("it has version {version}, not {VERSION}"));
        }
        let header_bytes = le_u32(&prefix[12..16]);
        if header_bytes > HEADER_BYTES_MAX
            || u64::from(header_bytes) > len
            || (header_bytes as usize) < PREFIX_BYTES + 4
        {
            return Err("its header claims a length that cannot be".into());
        }
        let mut bytes = vec![0; header_bytes as usize];
        let whole = copy(0, &mut bytes);
        let (bytes, check) = bytes.split_at(bytes.len() - 4);
        if !whole || crc32c::crc32c(bytes) != le_u32(check) {
            return Err("the checksum of its header is wrong".into());
        }
        let body_at = u64::from(header_bytes).next_multiple_of(CHECKED_BYTES);
        let mut head = Head { body_at, ..Head::default() };
        head.parse(&mut Rest(&bytes[PREFIX_BYTES..]), len, shard).ok_or("its header contradicts itself")??;
        // Bounded by the length of the file, which `is_consistent` has checked.
        let mut checks = vec![0; (4 * head.pieces()) as usize];
        if !copy(head.checks_at, &mut checks) || crc32c::crc32c(&checks) != head.checks_check {
            return Err("the checksum of its checksums is wrong".into());
        }
        Ok((head, checks))
    }

    /// `None` if the header is malformed; an inner error if it belongs to something else.
    fn parse(&mut self, rest: &mut Rest<'_>, len: u64, shard: &Shard) -> Option<Result<(), String>> {
        if rest.u64()? != len {
            return Some(Err("it is torn: its length is not what its header says".into()));
        }
        self.shard_bytes = rest.u64()?;
        let modified = (rest.u64()? as i64, rest.u32()?);
        self.unit = rest.u32()?.into();
        self.samples = rest.u64()?;
        self.content = rest.u64()?;
        self.groups_at = rest.u64()?;
        self.keys_at = rest.u64()?;
        self.checks_at = rest.u64()?;
        self.checks_check = rest.u32()?;
        self.start_width = rest.width()?;
        self.start_base = rest.u64()?;
        let (format, name) = (rest.text()?, rest.text()?);
        if format != shard.format.as_bytes() {
            return Some(Err(format!("it is the index of a file of another format than {}", shard.format)));
        }
        if name != shard.name {
            return Some(Err("it is the index of a file of another name".into()));
        }
        // A copy in a store has no time: its content is compared.
        let is_other = modified != shard.modified && shard.modified != NO_TIME;
        if self.shard_bytes != shard.size || is_other {
            return Some(Err("the file has changed since".into()));
        }
        for _ in 0..rest.u16().filter(|&count| usize::from(count) <= COLUMNS_MAX)? {
            self.columns.push(rest.column()?);
        }
        for _ in 0..rest.u16().filter(|&count| count <= LEFT_OUT_MAX)? {
            self.left_out.push((rest.u8()?, rest.u64()?, rest.text()?.to_vec()));
        }
        let device = (rest.u32()?, rest.u32()?);
        self.own = Own { device, inode: rest.u64()?, changed: (rest.u64()? as i64, rest.u32()?) };
        self.seen = rest.u64()? as i64;
        let pieces = rest.u8()?;
        let pieces = (0..pieces).map(|_| Some((rest.u64()?, rest.u32()?, rest.u32()?)));
        self.proof = Proof(pieces.collect::<Option<_>>()?);
        if !self.proof.is_sane() {
            return None;
        }
        if !rest.0.is_empty() {
            self.decoded = Some((rest.coding()?, rest.u64()?));
        }
        self.record_bytes = Head::record_bytes_of(self.start_width, &self.columns);
        self.records_at = self.body_at;
        (rest.0.is_empty() && self.is_consistent(len)?).then_some(Ok(()))
    }

    /// Whether the sections follow each other and fill `len` bytes; `None` if their sizes overflow.
    fn is_consistent(&self, len: u64) -> Option<bool> {
        let records_end = self.records_at.checked_add(self.samples.checked_mul(self.record_bytes)?)?;
        let groups_end = self.groups_at.checked_add(self.samples.div_ceil(KEYS_PER_GROUP).checked_mul(8)?)?;
        let ordered = self.unit > 0
            && records_end == self.groups_at
            && groups_end == self.keys_at
            && self.keys_at.checked_add(PADDING_BYTES)? <= self.checks_at
            && self.checks_at <= len;
        Some(ordered && self.checks_at.checked_add(4 * self.pieces())? == len)
    }
}

/// Zeros after the keys, so that eight bytes can be copied from wherever a number begins.
pub(super) const PADDING_BYTES: u64 = 8;

/// Compressions of shards with the codes for them in files. A code is never reused.
const COMPRESSIONS: [(u8, Compression); 4] =
    [(1, Compression::Gzip), (2, Compression::Zstd), (3, Compression::Bzip2), (4, Compression::Zlib)];

/// Of a shard with holes that are put back, beside the code of its compression, which is 0 if it has none.
const EXPANDED: u8 = 0x40;

fn code_of(coding: Coding) -> u8 {
    let known = |compression| COMPRESSIONS.iter().find(|(_, known)| *known == compression);
    // No format compresses its shards in another way; readers refuse 0.
    let code = coding.compression().and_then(known).map_or(0, |&(code, _)| code);
    match coding {
        Coding::Packed(_) => code,
        Coding::Expanded(_) => EXPANDED | code,
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    // Names of files, fields and members are far shorter. A longer one is truncated rather than misread.
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text);
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The rest of a header.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(le_u32)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn coding(&mut self) -> Option<Coding> {
        let code = self.u8()?;
        if code == EXPANDED {
            return Some(Coding::Expanded(None));
        }
        let known = COMPRESSIONS.iter().find(|(known, _)| *known == code & !EXPANDED);
        known.map(
            |&(_, compression)| {
                if code & EXPANDED == 0 { Coding::Packed(compression) } else { Coding::Expanded(Some(compression)) }
            },
        )
    }

    /// The width of a number in bytes.
    fn width(&mut self) -> Option<u8> {
        self.u8().filter(|&width| width <= 8)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    fn column(&mut self) -> Option<Column> {
        Some(Column {
            name: String::from_utf8(self.text()?.to_vec()).ok()?,
            gap_base: self.u64()? as i64,
            gap_width: self.width()?,
            len_base: self.u64()?,
            len_width: self.width()?,
            missing: self.u64()?,
            bytes: self.u64()?,
            steps: {
                let steps = self.u8().filter(|&steps| steps <= 64)?;
                (0..steps).map(|_| self.u64()).collect::<Option<Vec<u64>>>()?
            },
        })
    }
}
