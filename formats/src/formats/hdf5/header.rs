//! Object headers: the messages that describe a group or a dataset.

use super::meta::{Block, Meta};
use uringload_core::Result;

// Message types. Source: "HDF5 File Format Specification Version 3.0", section IV.A.2.
pub(super) const DATASPACE: u16 = 0x01;
pub(super) const LINK_INFO: u16 = 0x02;
pub(super) const DATATYPE: u16 = 0x03;
pub(super) const OLD_FILL: u16 = 0x04;
pub(super) const FILL: u16 = 0x05;
pub(super) const LINK: u16 = 0x06;
pub(super) const EXTERNAL_FILES: u16 = 0x07;
pub(super) const LAYOUT: u16 = 0x08;
pub(super) const FILTERS: u16 = 0x0b;
pub(super) const SYMBOL_TABLE: u16 = 0x11;
pub(super) const DRIVER: u16 = 0x14;
pub(super) const CACHE_IMAGE: u16 = 0x18;
const CONTINUATION: u16 = 0x10;
/// The highest message type that the specification names.
const KIND_MAX: u16 = 0x18;

/// The message is stored elsewhere; its body here says where.
const SHARED: u8 = 0x02;
/// A reader that does not know the message must not continue.
const FAIL_IF_UNKNOWN: u8 = 0x80;

const WHAT: &str = "an object header";

/// One message.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u8,
    pub(super) body: Block<'a>,
}

/// All messages of the object at an address.
pub(super) fn messages<'a>(meta: &Meta<'a>, address: u64) -> Result<Vec<Message<'a>>> {
    let mut begin = meta.read(address, 4, WHAT)?;
    let mut reader = match begin.take(4)? {
        b"OHDR" => HeaderReader { meta, new: true, has_order: false, messages: Vec::new(), continued: Vec::new() },
        [1, ..] => HeaderReader { meta, new: false, has_order: false, messages: Vec::new(), continued: Vec::new() },
        _ => return Err(meta.read(address, 4, WHAT)?.corrupt("an object header does not begin as one")),
    };
    if reader.new {
        reader.first_of_new(address)?;
    } else {
        let mut prefix = meta.read(address, 16, WHAT)?;
        prefix.skip(8)?;
        let len = prefix.u32()?;
        reader.run(meta.read(address.saturating_add(16), len.into(), WHAT)?)?;
    }
    while let Some((address, len)) = reader.continued.pop() {
        let mut block = meta.read(address, len, "the continuation of an object header")?;
        if reader.new {
            block.check()?;
            block.sign(b"OCHK")?;
        }
        reader.run(block)?;
    }
    Ok(reader.messages)
}

/// The actual message: if this one is only a reference, the one in the object that it refers to.
///
/// # Errors
/// `Unavailable` if it is in the file's heap of shared messages.
pub(super) fn resolved<'a>(meta: &Meta<'a>, message: Message<'a>) -> Result<Message<'a>> {
    let Message { kind, flags, mut body } = message;
    if flags & SHARED == 0 {
        return Ok(Message { kind, flags, body });
    }
    let (version, place) = (body.u8()?, body.u8()?);
    match (version, place) {
        // What follows is an entry of a group: the name, which means nothing here, then the address.
        (1, _) => body.skip(6 + meta.length_bytes)?,
        (2, _) | (3, 2) => {}
        (3, _) => {
            let error = body.unavailable("messages of object headers are shared through a heap");
            return Err(error.with_remedy("write the file again with h5repack"));
        }
        _ => return Err(body.corrupt(format!("a shared message has the unknown version {version}"))),
    }
    let address = meta.address(&mut body)?.ok_or_else(|| body.corrupt("a shared message is missing"))?;
    let found = messages(meta, address)?.into_iter().find(|found| found.kind == kind && found.flags & SHARED == 0);
    found.ok_or_else(|| body.corrupt("a shared message is not where it should be"))
}

struct HeaderReader<'m, 'a> {
    meta: &'m Meta<'a>,
    /// Version 2: with signatures and checksums.
    new: bool,
    /// Whether each message has a creation order number.
    has_order: bool,
    messages: Vec<Message<'a>>,
    /// Address and length of blocks that remain to be read.
    continued: Vec<(u64, u64)>,
}

impl<'a> HeaderReader<'_, 'a> {
    fn first_of_new(&mut self, address: u64) -> Result<()> {
        let mut prefix = self.meta.signed(address, 6, b"OHDR", 2, WHAT)?;
        let flags = prefix.u8()?;
        self.has_order = flags & 0x04 != 0;
        let times = if flags & 0x20 != 0 { 16 } else { 0 };
        let limits = if flags & 0x10 != 0 { 4 } else { 0 };
        let width = 1 << (flags & 0x03);
        let len_at = 6 + times + limits;
        let mut prefix = self.meta.read(address, len_at + width, WHAT)?;
        prefix.skip(len_at as usize)?;
        let len = prefix.number(width as usize)?;
        let all = len.checked_add(len_at + width + 4).ok_or_else(|| self.meta.source.truncated(WHAT))?;
        let mut block = self.meta.read(address, all, WHAT)?;
        block.check()?;
        block.skip((len_at + width) as usize)?;
        self.run(block)
    }

    /// Messages end to end; a remainder too short for one is a gap.
    fn run(&mut self, mut block: Block<'a>) -> Result<()> {
        let head = match (self.new, self.has_order) {
            (false, _) => 8,
            (true, false) => 4,
            (true, true) => 6,
        };
        while block.left() >= head {
            let kind = if self.new { block.u8()?.into() } else { block.u16()? };
            let len = block.u16()?;
            let flags = block.u8()?;
            block.skip(head - if self.new { 4 } else { 5 })?;
            let mut body = block.part(len.into(), "a message of an object header")?;
            match kind {
                CONTINUATION => {
                    let address = self.meta.address(&mut body)?;
                    let len = self.meta.length(&mut body)?;
                    let address =
                        address.ok_or_else(|| body.corrupt("the continuation of an object header is missing"))?;
                    self.continued.push((address, len));
                }
                0 => {}
                _ if kind > KIND_MAX && flags & FAIL_IF_UNKNOWN != 0 => {
                    return Err(body.unavailable(format!("a message of the unknown kind {kind} must not be skipped")));
                }
                _ => self.messages.push(Message { kind, flags, body }),
            }
        }
        Ok(())
    }
}

impl<'a> Message<'a> {
    /// A copy that is read from the start.
    pub(super) fn copy(&self) -> Message<'a> {
        Message { kind: self.kind, flags: self.flags, body: self.body.copy() }
    }
}
