//! One header block of a tar archive, and the records of a PAX header.
//!
//! Sources: POSIX.1-2017 `pax` ("ustar Interchange Format", "pax Extended Header"), GNU tar manual ("Basic Tar
//! Format"), Python's `tarfile`, which decides how webdataset reads corner cases.

/// Bytes of a header. Everything in an archive is aligned to it.
pub(super) const BLOCK_BYTES: u64 = 512;

/// A block of an archive.
pub(super) type Block = [u8; BLOCK_BYTES as usize];

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file with its bytes.
    Regular,
    /// A folder, link, FIFO or device: no data follows.
    Bodiless,
    /// Of an unknown type; its bytes are skipped.
    Unknown,
    /// GNU `L`: the name of the next member follows.
    LongName,
    /// GNU `K`: the link target of the next member follows.
    LongLink,
    /// PAX `x`: records for the next member follow.
    Extended,
    /// PAX `g`: records for all following members follow.
    Global,
    /// GNU `S`: a sparse file, whose stored bytes are not those of the file.
    Sparse,
}

/// A header with a valid checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a>(&'a Block);

impl Header<'_> {
    /// Parses a block; `None` for a block of zeros, which ends an archive.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(block: &Block) -> Result<Option<Header<'_>>, &'static str> {
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let claimed = octal(&block[CHECKSUM]).ok_or("its checksum is no number")?;
        // The checksum counts its own field as blanks. Some old programs summed signed bytes.
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (at, &byte) in block.iter().enumerate() {
            let byte = if CHECKSUM.contains(&at) { b' ' } else { byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        // Fits: 11 octal digits at most.
        if ![unsigned, signed].contains(&(claimed as i64)) {
            return Err("its checksum is wrong");
        }
        Ok(Some(Header(block)))
    }

    /// The type of the member.
    pub(super) fn kind(self) -> Kind {
        match self.0[TYPE] {
            // Before POSIX, a folder was a file whose name ends in a slash.
            0 if text(&self.0[NAME]).ends_with(b"/") => Kind::Bodiless,
            b'0' | 0 | b'7' => Kind::Regular,
            b'1'..=b'6' => Kind::Bodiless,
            b'L' => Kind::LongName,
            b'K' => Kind::LongLink,
            b'x' | b'X' => Kind::Extended,
            b'g' => Kind::Global,
            b'S' => Kind::Sparse,
            _ => Kind::Unknown,
        }
    }

    /// Bytes that follow: in octal, or from 8 GiB on in base-256, as GNU tar and star write it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn size(self) -> Result<u64, &'static str> {
        octal_or_binary(&self.0[SIZE])
    }

    /// Writes the name to `out`.
    pub(super) fn name(self, out: &mut Vec<u8>) {
        out.clear();
        // GNU tar's own format says "ustar  " and stores times where POSIX has the start of the name.
        if self.0[MAGIC] == *b"ustar\0" && self.0[PREFIX][0] != 0 {
            out.extend(text(&self.0[PREFIX]));
            out.push(b'/');
        }
        out.extend(text(&self.0[NAME]));
    }
}

/// A size in octal, or in base-256.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn octal_or_binary(field: &[u8]) -> Result<u64, &'static str> {
    if field[0] & 0x80 == 0 {
        return octal(field).ok_or("its size is no number");
    }
    if field[0] & 0x40 != 0 {
        return Err("its size is negative");
    }
    let mut size = u64::from(field[0] & 0x3f);
    for &byte in &field[1..] {
        if size >> 55 != 0 {
            return Err("its size is larger than a file can be");
        }
        size = size << 8 | u64::from(byte);
    }
    Ok(size)
}

/// The same header with another size and, if one is given, of another type.
pub(super) fn with_size(block: &Block, size: u64, kind: Option<u8>) -> Block {
    let mut block = *block;
    let digits = format!("{size:011o}\0");
    if digits.len() == SIZE.len() {
        block[SIZE].copy_from_slice(digits.as_bytes());
    } else {
        block[SIZE].fill(0);
        block[SIZE.start] = 0x80;
        block[SIZE.end - 8..SIZE.end].copy_from_slice(&size.to_be_bytes());
    }
    block[TYPE] = kind.unwrap_or(block[TYPE]);
    block[CHECKSUM].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    // At most 6 digits: 512 bytes of 255.
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..263;
const PREFIX: std::ops::Range<usize> = 345..500;

/// The PAX records that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    /// The member's name; empty if a record revokes an earlier one.
    pub(super) path: Option<Vec<u8>>,
    /// The member's size; the inner `None` if a record revokes an earlier one.
    pub(super) size: Option<Option<u64>>,
    /// Whether the member is a sparse file (GNU.sparse.*).
    pub(super) is_sparse: bool,
    /// The name of the sparse file, where the header has another.
    pub(super) sparse_name: Option<Vec<u8>>,
    /// Its size with its holes.
    pub(super) sparse_size: Option<u64>,
    /// The version of its map, if that comes before its data.
    pub(super) sparse_version: Option<(u64, u64)>,
    /// Its map, where that is in the records: offsets and lengths of the data, in turn.
    pub(super) sparse_map: Vec<u64>,
}

impl Pax {
    /// Adds the records in `bytes`, each "LENGTH KEY=VALUE\n"; later ones win.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        // Some programs pad the block with zeros and count these as content.
        while let Some(&first) = bytes.first().filter(|&&first| first != 0) {
            let blank =
                bytes.iter().take(DIGITS_MAX).position(|&byte| byte == b' ').ok_or("a PAX record has no length")?;
            let len =
                decimal(&bytes[..blank]).filter(|_| first != b'0').ok_or("the length of a PAX record is no number")?;
            let len = usize::try_from(len).ok().filter(|&len| len > blank + 1 && len <= bytes.len());
            let (record, rest) = bytes.split_at(len.ok_or("a PAX record is longer than its header")?);
            let record = record[blank + 1..].strip_suffix(b"\n").ok_or("a PAX record does not end with its line")?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or("a PAX record has no value")?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"size" if value.is_empty() => self.size = Some(None),
                b"size" => self.size = Some(Some(decimal(value).ok_or("the size in a PAX record is no number")?)),
                _ => self.sparse(key, value)?,
            }
            bytes = rest;
        }
        Ok(())
    }
}

impl Pax {
    /// Adds a record of a sparse member; passes over others.
    fn sparse(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let Some(key) = key.strip_prefix(b"GNU.sparse.") else { return Ok(()) };
        self.is_sparse = true;
        let number = || decimal(value).ok_or("a number in a PAX record of a sparse member is none");
        let (major, minor) = self.sparse_version.unwrap_or((0, 0));
        match key {
            b"name" => self.sparse_name = Some(value.to_vec()),
            b"size" | b"realsize" => self.sparse_size = Some(number()?),
            b"major" => self.sparse_version = Some((number()?, minor)),
            b"minor" => self.sparse_version = Some((major, number()?)),
            b"offset" | b"numbytes" => {
                // They take turns; an order of its own would be another map.
                if (key == b"offset") != self.sparse_map.len().is_multiple_of(2) {
                    return Err("the offsets and lengths of a sparse member do not take turns");
                }
                self.sparse_map.push(number()?);
            }
            b"map" => {
                let numbers = value.split(|&byte| byte == b',').filter(|_| !value.is_empty()).map(decimal);
                let map = numbers.collect::<Option<Vec<u64>>>();
                self.sparse_map = map.ok_or("the map of a sparse member is none")?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Digits of the largest 64-bit number, and a blank.
const DIGITS_MAX: usize = 21;

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Octal digits between blanks, up to a NUL; an empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0_u64, |number, &digit| match digit {
        // At most twelve digits, so nothing overflows.
        b'0'..=b'7' => Some(number << 3 | u64::from(digit - b'0')),
        _ => None,
    })
}

/// A field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}
