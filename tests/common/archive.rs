//! Tar archives, byte by byte, well-formed or not.

/// An archive under construction.
#[derive(Clone, Debug, Default)]
pub struct Archive(pub Vec<u8>);

impl Archive {
    pub fn new() -> Archive {
        Archive::default()
    }

    /// A regular member in the ustar format.
    #[must_use]
    pub fn file(self, name: &str, content: &[u8]) -> Archive {
        self.member(name.as_bytes(), b'0', content)
    }

    /// A member of any type with content; the name is cut to the length of its field.
    #[must_use]
    pub fn member(self, name: &[u8], kind: u8, content: &[u8]) -> Archive {
        self.header(name, kind, &octal(content.len() as u64), |_| {}).content(content)
    }

    /// GNU tar's `L` or `K` member before a member with a long name.
    #[must_use]
    pub fn long(self, kind: u8, name: &[u8]) -> Archive {
        self.member(b"././@LongLink", kind, &[name, b"\0"].concat())
    }

    /// A PAX header of type `x` or `g`.
    #[must_use]
    pub fn pax(self, kind: u8, records: &[(&str, &str)]) -> Archive {
        let content: String = records.iter().map(|(key, value)| record(key, value)).collect();
        self.member(b"pax", kind, content.as_bytes())
    }

    /// A header with this size field; `change` edits it before its checksum is computed.
    #[must_use]
    pub fn header(mut self, name: &[u8], kind: u8, size: &[u8; 12], change: impl Fn(&mut [u8; 512])) -> Archive {
        let mut block = [0; 512];
        let len = name.len().min(100);
        block[..len].copy_from_slice(&name[..len]);
        block[100..108].copy_from_slice(b"0000444\0");
        block[124..136].copy_from_slice(size);
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        change(&mut block);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(block);
        self
    }

    /// Content after a header, padded to whole blocks.
    #[must_use]
    pub fn content(mut self, content: &[u8]) -> Archive {
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// The end of an archive.
    #[must_use]
    pub fn end(mut self) -> Archive {
        self.0.extend([0; 1024]);
        self
    }
}

/// A PAX record, whose length includes itself.
pub fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let len = (1..6).map(|digits| rest + digits).find(|len| len.to_string().len() == len - rest).unwrap();
    format!("{len} {key}={value}\n")
}

/// A size field in octal.
pub fn octal(size: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[..11].copy_from_slice(format!("{size:011o}").as_bytes());
    field
}

/// A size field in base 256.
pub fn base_256(size: u64) -> [u8; 12] {
    let mut field = [0; 12];
    field[4..].copy_from_slice(&size.to_be_bytes());
    field[0] |= 0x80;
    field
}
