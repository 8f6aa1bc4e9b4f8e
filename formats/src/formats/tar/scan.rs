//! One pass over the headers of an archive, skipping the payloads.

use super::header::{BLOCK_BYTES, Block, Header, Kind, Pax};
use crate::dataset::SkipReason;
use crate::index::window::{Source, Window};
use uringload_core::{Error, ErrorKind, Result};

/// A regular file in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Its name.
    pub(super) name: &'a [u8],
    /// The place of its header.
    pub(super) header: u64,
    /// Where its bytes begin.
    pub(super) offset: u64,
    /// Number of its bytes, which are all in the archive.
    pub(super) len: u64,
}

/// Receives what a scan finds.
pub(super) trait Sink {
    /// A regular member.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn entry(&mut self, entry: Entry<'_>) -> Result<(), String>;

    /// A regular member with bytes missing from the file; the scan then fails.
    fn cut(&mut self, name: &[u8]);

    /// Something that is not a sample, with the member's name or nothing.
    fn skip(&mut self, reason: SkipReason, name: &[u8]);

    /// A sparse member, at which the scan then fails.
    fn sparse(&mut self) {}

    /// The end of an archive; another archive may follow.
    fn end(&mut self);

    /// The scan has reached this offset.
    fn passed(&mut self, offset: u64);
}

/// The longest name that a GNU header may announce, and the longest PAX header: these are read on the word of a header.
const NAME_BYTES_MAX: u64 = 64 << 10;
const PAX_BYTES_MAX: u64 = 1 << 20;

/// Reports every member of the archive `source` to `sink`. Returns the number of bytes read.
///
/// # Errors
/// `Corrupt`, `Truncated` and `Unavailable` with offset and member, but without the file; errors of `source`.
pub(super) fn scan(source: &mut impl Source, sink: &mut impl Sink) -> Result<u64> {
    let mut scan = Scan {
        window: Window::new(source),
        global: Pax::default(),
        next: Next::default(),
        holds_archives: None,
        inner: None,
    };
    let mut offset = 0;
    let mut zeros = 0;
    loop {
        if let Some(inner) = scan.inner.take_if(|inner| inner.end <= offset) {
            scan.global = inner.outer_global;
            zeros = 0;
            sink.end();
        }
        let bytes = scan.window.bytes(offset, BLOCK_BYTES)?;
        let Ok(block) = Block::try_from(bytes) else {
            match bytes.len() {
                0 if offset == 0 => {
                    return Err(at(ErrorKind::Truncated, "the archive has no bytes", 0));
                }
                0 => break,
                _ if zeros >= END_BLOCKS => sink.skip(SkipReason::TrailingBytes, b""),
                _ => {
                    let error = at(ErrorKind::Truncated, "the archive ends within a header", offset);
                    let remedy = "the file was cut short, or is no tar archive: look at its first bytes";
                    return Err(if offset == 0 { error.with_remedy(remedy) } else { error });
                }
            }
            break;
        };
        match Header::parse(&block) {
            Ok(None) => {
                if scan.next.is_announced() {
                    return Err(at(ErrorKind::Corrupt, "no member follows an extended header", offset));
                }
                if zeros == 0 {
                    sink.end();
                    // An archive appended to this one has global records of its own.
                    scan.global = Pax::default();
                }
                zeros += 1;
                offset += BLOCK_BYTES;
            }
            // What follows the end of an archive need not be an archive.
            Err(_) if zeros >= END_BLOCKS => {
                sink.skip(SkipReason::TrailingBytes, b"");
                let Some(inner) = &scan.inner else { break };
                offset = inner.end;
            }
            Err(fault) => return Err(no_header(&block, offset, fault)),
            Ok(Some(header)) => {
                zeros = 0;
                offset = scan.member(header, offset, sink)?;
            }
        }
        sink.passed(offset);
    }
    if scan.next.is_announced() {
        return Err(at(ErrorKind::Truncated, "the archive ends after an extended header, before its member", offset));
    }
    if let Some(inner) = scan.inner.filter(|inner| inner.end > offset) {
        let what = format!("the file ends within the archive {:?}", String::from_utf8_lossy(&inner.prefix));
        return Err(at(ErrorKind::Truncated, what, offset).with_remedy("the file was cut short: copy it again"));
    }
    if zeros < END_BLOCKS {
        sink.skip(SkipReason::MissingEnd, b"");
    }
    sink.end();
    Ok(scan.window.bytes_read())
}

/// How the name of an archive inside an archive ends.
pub(super) const ARCHIVE: &[u8] = b".tar";

/// Number of zero blocks that end an archive.
const END_BLOCKS: u64 = 2;

struct Scan<'a, S> {
    window: Window<'a, S>,
    /// Records that apply to all following members.
    global: Pax,
    next: Next,
    /// Whether the first regular member is an archive: then all are.
    holds_archives: Option<bool>,
    /// The archive inside this one that the scan is in.
    inner: Option<Inner>,
}

/// An archive that is a member of another. Its members are members of the outer one, below its name.
struct Inner {
    /// Its name and a slash.
    prefix: Vec<u8>,
    /// The offset of the header after it.
    end: u64,
    /// The records that apply after it.
    outer_global: Pax,
}

/// What is known about the next member before its header. If two headers set the same thing the first wins, as in
/// Python's `tarfile`.
#[derive(Debug, Default)]
struct Next {
    name: Option<Vec<u8>>,
    size: Option<Option<u64>>,
    is_sparse: bool,
    is_linked: bool,
    has_records: bool,
}

impl Next {
    fn is_announced(&self) -> bool {
        self.name.is_some() || self.is_linked || self.has_records
    }
}

impl<S: Source> Scan<'_, S> {
    /// Handles the header at `offset`; returns the offset of the next one.
    fn member(&mut self, header: Header<'_>, offset: u64, sink: &mut impl Sink) -> Result<u64> {
        let kind = header.kind();
        let corrupt = |fault: &str| at(ErrorKind::Corrupt, format!("a header cannot be understood: {fault}"), offset);
        let own_size = || header.size().map_err(corrupt);
        // Cannot overflow: the header is in the archive.
        let body = offset + BLOCK_BYTES;
        match kind {
            Kind::LongName | Kind::LongLink => {
                let len = own_size()?;
                let (text, behind) = self.text(body, len, NAME_BYTES_MAX, offset)?;
                if kind == Kind::LongLink {
                    self.next.is_linked = true;
                } else if self.next.name.is_none() {
                    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                    self.next.name = Some(text[..end].to_vec());
                }
                Ok(behind)
            }
            Kind::Extended | Kind::Global => {
                let len = own_size()?;
                let (text, behind) = self.text(body, len, PAX_BYTES_MAX, offset)?;
                if kind == Kind::Global {
                    self.global.read(&text).map_err(corrupt)?;
                } else {
                    let mut pax = Pax::default();
                    pax.read(&text).map_err(corrupt)?;
                    self.next.name = self.next.name.take().or(pax.path);
                    self.next.size = self.next.size.or(pax.size);
                    self.next.is_sparse |= pax.is_sparse;
                    self.next.has_records = true;
                }
                Ok(behind)
            }
            Kind::Regular | Kind::Bodiless | Kind::Unknown | Kind::Sparse => {
                let next = std::mem::take(&mut self.next);
                let mut name = Vec::new();
                // An empty record revokes an earlier one: the header's own name applies.
                match next.name.as_ref().or(self.global.path.as_ref()).filter(|path| !path.is_empty()) {
                    Some(path) => name.clone_from(path),
                    None => header.name(&mut name),
                }
                if kind == Kind::Sparse || next.is_sparse || self.global.is_sparse {
                    sink.sparse();
                    return Err(sparse(&name, offset));
                }
                let len = match (kind, next.size.or(self.global.size).flatten()) {
                    (Kind::Bodiless, _) => 0,
                    (_, Some(len)) => len,
                    (_, None) => own_size()?,
                };
                // Before the end of the member is reached for, because a stream cannot go back.
                if kind == Kind::Regular && self.inner.is_none() && self.is_archive(&name, body, len)? {
                    let outer_global = std::mem::take(&mut self.global);
                    let end = (body + len).next_multiple_of(BLOCK_BYTES);
                    name.push(b'/');
                    self.inner = Some(Inner { prefix: name, end, outer_global });
                    return Ok(body);
                }
                let behind = self.behind(body, len, offset, &name);
                if behind.is_err() && kind == Kind::Regular {
                    sink.cut(&name);
                }
                let behind = behind?;
                if let Some(inner) = &self.inner {
                    name.splice(..0, inner.prefix.iter().copied());
                }
                if kind == Kind::Regular {
                    let entry = Entry { name: &name, header: offset, offset: body, len };
                    sink.entry(entry).map_err(|fault| {
                        let what = format!("{} cannot be part of a sample: {fault}", member(&name));
                        at(ErrorKind::Corrupt, what, offset)
                    })?;
                    self.window.passed_over(len);
                } else {
                    sink.skip(SkipReason::NoRegularMember, &name);
                }
                Ok(behind)
            }
        }
    }

    /// Whether a member is an archive in an archive of archives, as ImageNet's `ILSVRC2012_img_train.tar` is one.
    ///
    /// # Errors
    /// `Corrupt` for a member that is none where the first one is.
    fn is_archive(&mut self, name: &[u8], body: u64, len: u64) -> Result<bool> {
        let is_called = name.len() > ARCHIVE.len() && name.ends_with(ARCHIVE);
        if !is_called && self.holds_archives.is_none() {
            self.holds_archives = Some(false);
        }
        if self.holds_archives == Some(false) {
            return Ok(false);
        }
        let begins = is_called && (BLOCK_BYTES..u64::MAX / 2).contains(&len) && {
            let bytes = self.window.bytes(body, BLOCK_BYTES)?;
            Block::try_from(bytes).is_ok_and(|block| Header::parse(&block).is_ok())
        };
        if !begins && self.holds_archives.is_some() {
            let what = format!("{} is no archive, and the members before it are archives", member(name));
            let error = at(ErrorKind::Corrupt, what, body - BLOCK_BYTES);
            return Err(error.with_remedy("extract the archive, and open the archives in it"));
        }
        Ok(*self.holds_archives.insert(begins))
    }

    /// The `len` bytes of text after a header, and the offset of the block after them.
    fn text(&mut self, body: u64, len: u64, max: u64, header: u64) -> Result<(Vec<u8>, u64)> {
        if len > max {
            let what = format!("an extended header claims {len} bytes; the limit is {max}");
            return Err(at(ErrorKind::Corrupt, what, header));
        }
        // Before checking that the archive has all of it, because a stream cannot go back.
        let text = self.window.bytes(body, len)?.to_vec();
        Ok((text, self.behind(body, len, header, b"")?))
    }

    /// The offset of the block after a body, if the body is in the archive.
    fn behind(&mut self, body: u64, len: u64, header: u64, name: &[u8]) -> Result<u64> {
        let end = body.checked_add(len).and_then(|end| end.checked_next_multiple_of(BLOCK_BYTES));
        let end = end.unwrap_or(u64::MAX);
        if let Some(inner) = self.inner.as_ref().filter(|inner| inner.end < end) {
            let what = format!("{} claims {len} bytes, and the archive around it ends at {}", member(name), inner.end);
            return Err(at(ErrorKind::Truncated, what, header).with_remedy("the archive was cut short: copy it again"));
        }
        let reached = self.window.reach(end)?;
        if reached == end && end < u64::MAX {
            return Ok(end);
        }
        let have = reached.saturating_sub(body);
        let what = format!("{} claims {len} bytes, and the file has {have} of them and their padding", member(name));
        Err(at(ErrorKind::Truncated, what, header).with_remedy("the file was cut short: copy it again"))
    }
}

/// A member's name for a message.
fn member(name: &[u8]) -> String {
    if name.is_empty() {
        return "an extended header".into();
    }
    format!("the member {:?}", String::from_utf8_lossy(name))
}

fn sparse(name: &[u8], offset: u64) -> Error {
    let what = format!("{} is stored with holes (GNU sparse), which cannot be read", member(name));
    at(ErrorKind::Unavailable, what, offset).with_remedy("write the archive again without --sparse")
}

/// The error if the first block is not a header: what else the file may be. Compressions that this crate decodes show
/// up here only if an archive was compressed twice.
fn no_header(block: &Block, offset: u64, fault: &str) -> Error {
    let packed = [
        (&b"\x1f\x8b"[..], "gzip", "gzip -d"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
        (b"BZh", "bzip2", "bzip2 -d"),
        (b"\xfd7zXZ\0", "xz", "xz -d"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    ];
    match packed.iter().find(|(magic, ..)| offset == 0 && block.starts_with(magic)) {
        Some((_, name, tool)) => {
            let what = format!("the archive is compressed with {name}, which cannot be read");
            at(ErrorKind::Unavailable, what, 0).with_remedy(format!("decompress it first: {tool} FILE"))
        }
        None if offset == 0 => {
            at(ErrorKind::Corrupt, format!("this is no tar archive: its first block is no header ({fault})"), 0)
        }
        None => at(ErrorKind::Corrupt, format!("a header is damaged: {fault}"), offset),
    }
}

fn at(kind: ErrorKind, what: impl Into<std::borrow::Cow<'static, str>>, offset: u64) -> Error {
    Error::new(kind, what).with_offset(offset)
}
