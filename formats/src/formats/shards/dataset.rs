//! The dataset over shards, for samples of any content: the common part of MDS and LitData.

use super::{Listed, Listing, OpenFile, Shards, Table};
use crate::dataset::sizes::Largest;
use crate::dataset::{
    Check, Dataset, Encoding, FileId, Fingerprint, Index, Role, Sample, SampleId, Schema, Shape, Span, Units, Value,
};
use bytes::Bytes;
use std::fmt::Debug;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// What is wrong with a sample, and at which of its bytes.
pub(crate) type Wrong = (String, u64);

/// How the bytes of a sample are interpreted: all that distinguishes two formats of shards once their indexes are read.
pub(crate) trait Layout: Debug + Send + Sync + 'static {
    /// Short name of the format.
    const FORMAT: &'static str;

    /// Whether some columns take their type or number of dimensions from the samples.
    fn is_open(&self) -> bool;

    /// Learns types and numbers of dimensions from the sample at `place`.
    fn learn(&mut self, file: &OpenFile<'_>, place: &Range<u64>) -> Result<()>;

    /// The columns.
    fn schema(&self) -> Schema;

    /// How each column is stored, in the order of the schema.
    fn encodings(&self) -> Vec<Encoding>;

    /// Adds the columns.
    fn fingerprint(&self, fingerprint: &mut Fingerprint);

    /// Whether a sample is just the value of the only column.
    fn is_plain(&self) -> bool;

    /// Number of elements in field `field` of a sample of `len` bytes; known if its column is the only one of variable
    /// size.
    fn length(&self, field: usize, len: u64) -> Option<u64>;

    /// Appends the values of a sample that is not [plain](Layout::is_plain).
    fn split(&self, sample: &Bytes, values: &mut Vec<Value>) -> Result<(), Wrong>;

    /// Reads and checks the header of a raw shard with `items` items, which make `samples` samples.
    fn read_table(&self, file: &OpenFile<'_>, items: u64, samples: u64) -> Result<Table>;
}

/// The shards, and the layout of their samples.
#[derive(Debug)]
pub(crate) struct Sharded<L> {
    pub(super) shards: Shards,
    pub(super) layout: L,
    /// For each shard's file: algorithm and hexadecimal digits.
    hashes: Vec<Vec<(String, String)>>,
    fingerprint: u64,
}

impl<L: Layout> Sharded<L> {
    /// Opens the shards of `listings`, laid out as `layout`, which is `None` if no shard is listed.
    pub(crate) fn open(
        listings: Vec<Listing>,
        layout: Option<L>,
        threads: usize,
        allow_bad: bool,
        read: impl Fn(&L, &OpenFile<'_>, &Listed, usize) -> Result<Table> + Sync,
    ) -> Result<Sharded<L>> {
        let Some(mut layout) = layout else {
            let place = listings.first().map_or(Path::new("."), |listing| listing.root.path());
            return Err(Error::new(ErrorKind::Empty, "the index lists no shard").with_path(place));
        };
        let read = |file: &OpenFile<'_>, listed: &Listed, listing| read(&layout, file, listed, listing);
        let mut shards = Shards::open(L::FORMAT, &listings, threads, allow_bad, read)?;
        if layout.is_open() {
            shards.learn(allow_bad, |file, place| layout.learn(file, &place))?;
        }
        shards.index.schema = layout.schema();
        shards.index.plain_field = (layout.is_plain() && !shards.has_units()).then_some(0);
        shards.index.encodings = layout.encodings();
        let packing = shards.packing();
        shards.index.encodings.iter_mut().for_each(|encoding| encoding.words.push_str(&packing));
        let mut fingerprint = Fingerprint::new(L::FORMAT);
        layout.fingerprint(&mut fingerprint);
        shards.fingerprint(&mut fingerprint);
        let hashes = listings.into_iter().flat_map(|listing| listing.shards).map(|listed| listed.hashes).collect();
        Ok(Sharded { shards, layout, hashes, fingerprint: fingerprint.finish() })
    }

    pub(crate) fn index_mut(&mut self) -> &mut Index {
        &mut self.shards.index
    }
}

impl<L: Layout> Dataset for Sharded<L> {
    fn index(&self) -> &Index {
        &self.shards.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        out.extend(self.shards.span(id));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let Sharded { shards, layout, .. } = self;
        let bytes = shards.cut(id, raw)?;
        if layout.is_plain() {
            out.values.push(Value::Bytes(bytes.into_owned()));
            return Ok(());
        }
        layout.split(&bytes, &mut out.values).map_err(|(what, at)| shards.corrupt(id, raw, what, at))
    }

    fn units(&self) -> Option<&dyn Units> {
        self.shards.has_units().then_some(self)
    }

    /// The name of the shard without compression, and the number of the sample in it: "shard.00000.mds#17".
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let shards = &self.shards;
        let (shard, number) = shards.locate(id);
        let file = FileId(shard as u32);
        let name = shards.raw.get(&file).map_or(self.files().name(file), |(name, _)| name.as_bytes());
        out.extend_from_slice(name);
        write!(out, "#{number}").expect("a Vec takes everything");
    }

    fn largest(&self, count: u64) -> u64 {
        let shards = &self.shards;
        if count >= self.len() && !shards.has_units() {
            return self.bytes();
        }
        let mut largest = Largest::new(count);
        for table in &shards.tables {
            match table {
                Table::Offsets(offsets) => {
                    offsets.windows(2).for_each(|pair| largest.add(u64::from(pair[1] - pair[0]), 1));
                }
                Table::Blocks { bytes, count, .. } => largest.add(*bytes, *count),
                Table::Whole(_) | Table::Frames(_) | Table::Bad(_) => {}
            }
        }
        largest.sum()
    }

    /// FNV-1a over the format's name, the columns with their encodings, and the name, size and number of samples of
    /// each shard.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        let Sharded { shards, layout, .. } = self;
        match &self.schema().fields[field].shape {
            Shape::Fixed(shape) => Some(shape.iter().product()),
            Shape::Ragged => layout.length(field, shards.sample_bytes(id)?),
        }
    }

    /// The hashes that the index lists.
    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        let Sharded { shards, hashes, .. } = self;
        let number = file.0 as usize;
        // A bad shard is reported as a fault.
        if !matches!(shards.tables[number], Table::Bad(_)) {
            out.extend(checks_of(&hashes[number], Span { file, offset: 0, len: self.files().size(file) }));
        }
        Ok(())
    }

    /// One error for each missing or broken shard.
    fn faults(&self) -> Vec<Error> {
        let why = |table: &Table| match table {
            Table::Bad(error) => Some(error.clone()),
            _ => None,
        };
        self.shards.tables.iter().filter_map(why).collect()
    }
}

/// The checks for the hashes of a whole shard.
pub(crate) fn checks_of(hashes: &[(String, String)], span: Span) -> Vec<Check> {
    let check = |(algorithm, expected): &(String, String)| {
        let (algorithm, expected) = (algorithm.clone().into(), expected.clone());
        Check { span, what: "the shard".into(), algorithm, expected }
    };
    hashes.iter().map(check).collect()
}

/// The meaning of an encoding's or serializer's name: "str", "list[jpeg]", "video:mp4".
pub(crate) fn encoding_of(name: &str) -> Encoding {
    let role = match name.rsplit(':').next().unwrap_or(name) {
        "str" | "str_int" | "str_float" | "str_decimal" => Role::Text,
        kind @ ("pil" | "jpegarray" | "jpeg_array" | "list[pil]" | "list[jpeg]" | "list[png]") => {
            Role::Encoded(kind.into())
        }
        kind => Encoding::of_extension(kind).role,
    };
    Encoding { words: name.into(), role }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_encodings_say_what_the_bytes_are() {
        for text in ["str", "text", "json", "str_int", "file:txt"] {
            assert_eq!(encoding_of(text), Encoding::text(text));
        }
        for (name, role) in [("jpeg", "jpeg"), ("list[png]", "list[png]"), ("pil", "pil"), ("video:mp4", "mp4")] {
            assert_eq!(encoding_of(name), Encoding::encoded(name, role));
        }
        for raw in ["int", "bytes", "ndarray:int8:2", "no_header_tensor:18", "file:bin"] {
            assert_eq!(encoding_of(raw), Encoding::raw(raw));
        }
    }
}
