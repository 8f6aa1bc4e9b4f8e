//! The directory of a zip archive: its members, and the place of each one's bytes.
//!
//! Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3 to 4.5. Archives of one disk, with the 64-bit forms. Deflated
//! members are inflated here from their beginning, up to the requested byte.

use crate::compression::Compression;
use crate::dataset::{Check, FileId, Span};
use crate::index::headers::{Source, u16_at, u32_at, u64_at};
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use uringload_core::Result;

/// Method of members that are stored unchanged.
pub(crate) const STORED: u16 = 0;
/// Method of members that are deflated (RFC 1951).
pub(crate) const DEFLATED: u16 = 8;
/// What deflate can make of a byte at most: its shortest code for the longest copy, of 258 bytes, has two bits.
const DEFLATED_MAX: u64 = 1032;
/// Bytes that are read at once to inflate the beginning of a member.
const INFLATED_READ_BYTES: usize = 4096;
/// Largest directory, in bytes: some million members.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

const END_BYTES: usize = 22;
const END_SIGNATURE: &[u8] = b"PK\x05\x06";
/// A comment may follow the end's record.
const COMMENT_BYTES_MAX: usize = 65_535;
const LOCATOR_BYTES: usize = 20;
const LOCATOR_SIGNATURE: &[u8] = b"PK\x06\x07";
const END_64_BYTES: usize = 56;
const END_64_SIGNATURE: &[u8] = b"PK\x06\x06";
const ENTRY_BYTES: usize = 46;
const ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const HEADER_BYTES: usize = 30;
const HEADER_SIGNATURE: &[u8] = b"PK\x03\x04";
/// Extra field with the 64-bit forms of what does not fit into 32 bits.
const EXTRA_64: u16 = 1;
const FLAG_ENCRYPTED: u16 = 1;
/// Marks a 16-bit or 32-bit field whose value does not fit.
const NONE_16: u16 = u16::MAX;
const NONE_32: u32 = u32::MAX;

/// A member of an archive, as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// How it is compressed; [`STORED`]: not at all.
    pub(crate) method: u16,
    flags: u16,
    /// CRC-32 of its bytes when they are not compressed.
    pub(crate) crc: u32,
    /// Bytes when it is not compressed.
    pub(crate) bytes: u64,
    /// Bytes in the archive.
    stored_bytes: u64,
    /// The place of the member's own header.
    pub(crate) header: u64,
    /// Where the next header, or the directory, begins.
    pub(super) limit: u64,
}

impl Member {
    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags & FLAG_ENCRYPTED != 0
    }

    /// Its method in words, for messages.
    pub(crate) fn method_name(&self) -> Cow<'static, str> {
        match self.method {
            STORED => "none".into(),
            1 => "shrink".into(),
            6 => "implode".into(),
            DEFLATED => "deflate".into(),
            9 => "deflate64".into(),
            12 => "bzip2".into(),
            14 => "lzma".into(),
            20 | 93 => "zstd".into(),
            95 => "xz".into(),
            99 => "AES encryption".into(),
            method => format!("zip method {method}").into(),
        }
    }
}

/// The bytes of a deflated member from the first on, up to the requested byte.
pub(crate) struct Inflated<'a> {
    reader: Box<dyn Read + 'a>,
    /// Bytes that were inflated.
    at: u64,
}

impl<'a> Inflated<'a> {
    /// For the member at `place`.
    pub(crate) fn new(source: &'a Source, place: Range<u64>) -> io::Result<Inflated<'a>> {
        let stored = BufReader::with_capacity(INFLATED_READ_BYTES, Extent { source, place });
        Ok(Inflated { reader: Compression::Deflate.reader(stored)?, at: 0 })
    }

    /// The `len` bytes from `at` on; later calls ask for no earlier bytes. Fewer if the member ends.
    ///
    /// # Errors
    /// What the decoder says, or reading.
    pub(crate) fn bytes(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::copy(&mut (&mut self.reader).take(at.saturating_sub(self.at)), &mut io::sink())?;
        (&mut self.reader).take(len as u64).read_to_end(&mut bytes)?;
        self.at = at + bytes.len() as u64;
        Ok(bytes)
    }
}

/// A part of a file, from the first byte to the last.
struct Extent<'a> {
    source: &'a Source,
    place: Range<u64>,
}

impl Read for Extent<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.place.end.saturating_sub(self.place.start);
        let len = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.source.read(self.place.start, &mut into[..len], "a deflated member").map_err(io::Error::other)?;
        self.place.start += len as u64;
        Ok(len)
    }
}

/// The checks of an archive's stored members, which is the file of that number: of deflated ones those that are wanted
/// are checked when they are inflated, and all others cannot be.
pub(crate) fn checks(source: &Source, file: FileId, wanted: impl Fn(&str) -> bool, out: &mut Vec<Check>) -> Result<()> {
    for member in members(source)? {
        let Range { start, end } = content(source, &member)?;
        let is_plain = member.method == STORED && !member.is_encrypted();
        if member.method == DEFLATED && wanted(&member.name) {
            continue;
        }
        out.push(Check {
            span: Span { file, offset: start, len: end - start },
            what: format!("the member {:?}", member.name),
            // The sum is of other bytes than those in the file.
            algorithm: if is_plain { "crc32".into() } else { "crc32 before compression or encryption".into() },
            expected: format!("{:08x}", member.crc),
        });
    }
    Ok(())
}

/// What the end of an archive says of its directory.
struct Directory {
    /// Bytes before the archive, which its offsets do not count: a program that unpacks it, for instance.
    before: u64,
    start: u64,
    bytes: u64,
    members: u64,
}

/// The members of an archive, in the order of its directory.
pub(crate) fn members(source: &Source) -> Result<Vec<Member>> {
    let directory = directory(source)?;
    let Directory { before, start, bytes, members: count } = directory;
    if bytes > DIRECTORY_BYTES_MAX || count > bytes / ENTRY_BYTES as u64 {
        let what = format!("the zip directory cannot have {count} members in {bytes} bytes");
        return Err(source.corrupt(start, what));
    }
    // Fits: the bytes are below the limit above, and no more members than they hold.
    let raw = source.bytes(start, bytes as usize, "the zip directory")?;
    let mut members: Vec<Member> = Vec::with_capacity(count as usize);
    let mut at = 0;
    for _ in 0..count {
        let member = entry(source, &raw, &mut at, start)?;
        let header = member.header.saturating_add(before);
        members.push(Member { header, ..member });
    }
    if at != raw.len() {
        return Err(source.corrupt(start + at as u64, "bytes follow the last member in the zip directory"));
    }
    let mut names = HashSet::with_capacity(members.len());
    if let Some(twice) = members.iter().find(|member| !names.insert(member.name.as_str())) {
        return Err(source.corrupt(start, format!("two members of the archive are called {:?}", twice.name)));
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_unstable_by_key(|&index| members[index].header);
    let mut limit = start;
    for index in order.into_iter().rev() {
        let member = &mut members[index];
        let least = member.header.checked_add((HEADER_BYTES + member.name.len()) as u64);
        if least.and_then(|least| least.checked_add(member.stored_bytes)).is_none_or(|end| end > limit) {
            let what = format!("member {:?} reaches into what follows it", member.name);
            return Err(source.corrupt(member.header, what));
        }
        member.limit = limit;
        limit = member.header;
    }
    Ok(members)
}

/// The place of a member's bytes, as they are stored.
pub(crate) fn content(source: &Source, member: &Member) -> Result<Range<u64>> {
    let broken = |what: &str| source.corrupt(member.header, format!("the header of member {:?} {what}", member.name));
    let header = source.bytes(member.header, HEADER_BYTES, "a zip member's header")?;
    if !header.starts_with(HEADER_SIGNATURE) {
        return Err(broken("does not begin as one"));
    }
    let name_bytes = usize::from(u16_at(&header, 26));
    let name = source.bytes(member.header + HEADER_BYTES as u64, name_bytes, "a zip member's header")?;
    if name != member.name.as_bytes() || u16_at(&header, 8) != member.method {
        return Err(broken("is not what the directory says"));
    }
    let extra_bytes = u64::from(u16_at(&header, 28));
    let start = member.header + (HEADER_BYTES + name_bytes) as u64 + extra_bytes;
    // Does not overflow: `members` has seen the same sum without the extra field, which is short.
    match start.checked_add(member.stored_bytes) {
        Some(end) if end <= member.limit => Ok(start..end),
        _ => Err(broken("leaves no room for its bytes")),
    }
}

/// The place of a member's bytes in what was read from its header on.
///
/// # Errors
/// What is wrong with the header, in words.
pub(super) fn content_in(member: &Member, read: &[u8]) -> Result<Range<usize>, &'static str> {
    let (name, header) = (member.name.as_bytes(), read.get(..HEADER_BYTES).ok_or("has no header")?);
    let name_end = HEADER_BYTES + usize::from(u16_at(header, 26));
    let is_its = header.starts_with(HEADER_SIGNATURE) && u16_at(header, 8) == member.method;
    if !is_its || read.get(HEADER_BYTES..name_end) != Some(name) {
        return Err("has another header than the directory says");
    }
    let start = name_end + usize::from(u16_at(header, 28));
    // Fits: it is no longer than what was read, or refused.
    let end = start.saturating_add(usize::try_from(member.stored_bytes).unwrap_or(usize::MAX));
    if end <= read.len() { Ok(start..end) } else { Err("has a header that leaves no room for its bytes") }
}

/// Inflates a member of this many bytes into `out`, which is at least as long.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn inflate(stored: &[u8], out: &mut [u8], bytes: u64, crc: u32) -> Result<(), String> {
    let len = Compression::Deflate.decode(stored, out).map_err(|error| format!("cannot be inflated: {error}"))?;
    if len as u64 != bytes {
        return Err(format!("inflates to {len} bytes, and the directory says {bytes}"));
    }
    let mut found = flate2::Crc::new();
    found.update(out.get(..len).unwrap_or_default());
    match found.sum() {
        sum if sum == crc => Ok(()),
        sum => Err(format!("has the checksum {sum:08x}, and the directory says {crc:08x}")),
    }
}

fn directory(source: &Source) -> Result<Directory> {
    let size = source.size();
    // Fits: at most some 64 KiB.
    let tail_bytes = size.min((LOCATOR_BYTES + END_BYTES + COMMENT_BYTES_MAX) as u64) as usize;
    let tail_start = size - tail_bytes as u64;
    let tail = source.bytes(tail_start, tail_bytes, "the archive")?;
    let is_end = |&at: &usize| {
        tail[at..].starts_with(END_SIGNATURE)
            && tail.len() - at >= END_BYTES
            && tail.len() - at - END_BYTES == usize::from(u16_at(&tail, at + 20))
    };
    let Some(at) = (0..=tail_bytes.saturating_sub(END_BYTES)).rev().find(is_end) else {
        let is_archive =
            [HEADER_SIGNATURE, END_SIGNATURE].contains(&&source.bytes(0, 4.min(size as usize), "the archive")?[..]);
        return Err(if is_archive {
            source.truncated("the zip archive, before its directory, or goes on after it")
        } else {
            source.corrupt(0, "this is no zip archive")
        });
    };
    let end = &tail[at..];
    let end_start = tail_start + at as u64;
    let (disk, members_here, members) = (u16_at(end, 4), u16_at(end, 8), u16_at(end, 10));
    let (bytes, start) = (u32_at(end, 12), u32_at(end, 16));
    // Python writes the 64-bit record from 2 GiB on, when all still fits into the fields of the other.
    let locator_start = at.checked_sub(LOCATOR_BYTES);
    let has_64 = locator_start.is_some_and(|start| tail[start..].starts_with(LOCATOR_SIGNATURE));
    let (mut directory, limit) = if has_64 || members == NONE_16 || bytes == NONE_32 || start == NONE_32 {
        directory_64(source, end_start)?
    } else {
        if disk != 0 || members_here != members {
            return Err(source.unavailable(end_start, "the archive is split over several disks"));
        }
        (Directory { before: 0, start: start.into(), bytes: bytes.into(), members: members.into() }, end_start)
    };
    // The directory ends where the record of its end begins. If that is later than it says, other data was put before
    // the archive.
    let before = directory.start.checked_add(directory.bytes).and_then(|end| limit.checked_sub(end));
    let Some(before) = before else {
        let what = format!("the zip directory does not end at {limit}, where the record of its end begins");
        return Err(source.corrupt(end_start, what));
    };
    directory.before = before;
    directory.start += before;
    Ok(directory)
}

/// The directory as the 64-bit record before the end's record has it, and where that record begins.
fn directory_64(source: &Source, end_start: u64) -> Result<(Directory, u64)> {
    let broken = |at, what: &str| source.corrupt(at, format!("the 64-bit end of the zip archive {what}"));
    let Some(locator_start) = end_start.checked_sub(LOCATOR_BYTES as u64) else {
        return Err(broken(end_start, "is missing"));
    };
    let locator = source.bytes(locator_start, LOCATOR_BYTES, "the zip archive's end")?;
    if !locator.starts_with(LOCATOR_SIGNATURE) {
        return Err(broken(locator_start, "is missing"));
    }
    let mut start = u64_at(&locator, 8);
    if start.checked_add(END_64_BYTES as u64).is_none_or(|end| end > locator_start) {
        return Err(broken(locator_start, "is after its place"));
    }
    let mut end = source.bytes(start, END_64_BYTES, "the zip archive's end")?;
    if !end.starts_with(END_64_SIGNATURE) {
        // It is right before its locator, if other data comes before the archive.
        start = locator_start - END_64_BYTES as u64;
        end = source.bytes(start, END_64_BYTES, "the zip archive's end")?;
    }
    if !end.starts_with(END_64_SIGNATURE) {
        return Err(broken(start, "does not begin as one"));
    }
    let members = u64_at(&end, 32);
    if u32_at(&end, 16) != 0 || u64_at(&end, 24) != members {
        return Err(source.unavailable(start, "the archive is split over several disks"));
    }
    Ok((Directory { before: 0, members, bytes: u64_at(&end, 40), start: u64_at(&end, 48) }, start))
}

/// The member at `at` of the directory `raw`, which starts at `start` of the file; moves `at` past it.
fn entry(source: &Source, raw: &[u8], at: &mut usize, start: u64) -> Result<Member> {
    let place = start + *at as u64;
    let ends_early = || source.corrupt(place, "the zip directory ends within a member");
    let entry = &raw[*at..];
    if entry.len() < ENTRY_BYTES {
        return Err(ends_early());
    }
    if !entry.starts_with(ENTRY_SIGNATURE) {
        return Err(source.corrupt(place, "the zip directory has no member where one should be"));
    }
    let [name_bytes, extra_bytes, comment_bytes] = [28, 30, 32].map(|at| usize::from(u16_at(entry, at)));
    let name_end = ENTRY_BYTES + name_bytes;
    let extra_end = name_end + extra_bytes;
    let end = extra_end + comment_bytes;
    if entry.len() < end {
        return Err(ends_early());
    }
    let Ok(name) = std::str::from_utf8(&entry[ENTRY_BYTES..name_end]) else {
        return Err(source.corrupt(place, "the name of a member is not UTF-8"));
    };
    let (flags, method) = (u16_at(entry, 8), u16_at(entry, 10));
    let [mut stored_bytes, mut bytes, mut header] = [20, 24, 42].map(|at| u64::from(u32_at(entry, at)));
    // The 64-bit forms of those fields that need them, in this order.
    let mut wide = extra_64(&entry[name_end..extra_end]);
    for field in [&mut bytes, &mut stored_bytes, &mut header] {
        if *field == u64::from(NONE_32) {
            let Some((value, rest)) = wide.split_at_checked(8) else {
                return Err(source.corrupt(place, format!("a 64-bit size or offset of member {name:?} is missing")));
            };
            (*field, wide) = (u64_at(value, 0), rest);
        }
    }
    if method == STORED && stored_bytes != bytes && flags & FLAG_ENCRYPTED == 0 {
        return Err(source.corrupt(place, format!("member {name:?} is stored without compression and has two sizes")));
    }
    // A reader that trusted it would allocate that memory.
    if method == DEFLATED && bytes > stored_bytes.saturating_mul(DEFLATED_MAX) {
        let what = format!("member {name:?} claims {bytes} bytes, which {stored_bytes} deflated bytes cannot hold");
        return Err(source.corrupt(place, what));
    }
    *at += end;
    let crc = u32_at(entry, 16);
    Ok(Member { name: name.to_owned(), method, flags, crc, bytes, stored_bytes, header, limit: 0 })
}

/// The content of the extra field with 64-bit forms; empty where there is none.
fn extra_64(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let (kind, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(field) = extra.get(4..4 + len) else { break };
        if kind == EXTRA_64 {
            return field;
        }
        extra = &extra[4 + len..];
    }
    &[]
}
