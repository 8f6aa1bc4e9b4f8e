//! The columns of an MDS dataset: maps the name of an encoding to a field of the schema, and the bytes of a sample to
//! its values.

use crate::dataset::{DType, Encoding, Field, Fingerprint, Schema, Shape, Value};
use crate::formats::shards::{Layout, OpenFile, Table, Wrong, encoding_of};
use bytes::Bytes;
use std::collections::HashSet;
use std::ops::Range;
use uringload_core::{Error, ErrorKind, Result};

/// All columns, in the order in which a sample stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    columns: Vec<Column>,
    /// Number of columns whose size is stored before every sample.
    sized: usize,
    /// Total bytes of all other columns.
    fixed_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    encoding: String,
    kind: Kind,
}

/// How the bytes of a column are interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Any number of bytes, passed on as they are.
    Bytes,
    /// Values of one size.
    Fixed { dtype: DType, shape: Vec<u64>, bytes: u64 },
    /// An array with a header. The first sample determines what the encoding leaves open.
    Array { named: Option<DType>, dtype: DType, dims: usize },
}

impl Columns {
    pub(super) fn new(names: &[String], encodings: &[String], sizes: &[Option<u64>]) -> Result<Columns> {
        if names.is_empty() || names.len() != encodings.len() || names.len() != sizes.len() {
            let (names, encodings, sizes) = (names.len(), encodings.len(), sizes.len());
            let what = format!("the index has {names} names, {encodings} encodings and {sizes} sizes of columns");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let mut columns: Vec<Column> = Vec::with_capacity(names.len());
        let (mut sized, mut fixed_bytes) = (0, 0_u64);
        let mut seen = HashSet::with_capacity(names.len());
        for ((name, encoding), &size) in names.iter().zip(encodings).zip(sizes) {
            if !seen.insert(name) {
                return Err(Error::new(ErrorKind::Corrupt, format!("two columns are called {name:?}")));
            }
            let kind = kind(name, encoding)?;
            let own = match &kind {
                Kind::Fixed { bytes, .. } => Some(*bytes),
                Kind::Bytes | Kind::Array { .. } => None,
            };
            if size != own {
                let what = format!("column {name:?} of {encoding:?} has {own:?} bytes, and the index says {size:?}");
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            match own {
                // Samples are shorter than a shard, and a shard is shorter than 4 GiB: a larger total is an error
                // wherever it occurs.
                Some(bytes) => fixed_bytes = fixed_bytes.saturating_add(bytes),
                None => sized += 1,
            }
            columns.push(Column { name: name.clone(), encoding: encoding.clone(), kind });
        }
        Ok(Columns { columns, sized, fixed_bytes })
    }

    /// Whether a sample may have this many bytes.
    fn may_have(&self, len: u64) -> bool {
        let least = self.fixed_bytes.saturating_add(SIZE_BYTES * self.sized as u64);
        if self.sized == 0 { len == least } else { len >= least }
    }
}

impl Layout for Columns {
    const FORMAT: &'static str = "mds";

    fn is_open(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.kind, Kind::Array { .. }))
    }

    fn learn(&mut self, file: &OpenFile<'_>, place: &Range<u64>) -> Result<()> {
        let mut sizes = vec![0; SIZE_BYTES as usize * self.sized];
        file.read(&mut sizes, place.start)?;
        let mut sizes = sizes.chunks_exact(4).map(|size| u64::from(u32_of(size)));
        let mut at = SIZE_BYTES * self.sized as u64;
        for column in &mut self.columns {
            let len = match &column.kind {
                Kind::Fixed { bytes, .. } => *bytes,
                Kind::Bytes | Kind::Array { .. } => sizes.next().unwrap_or(0),
            };
            if let Kind::Array { named, dtype, dims } = &mut column.kind {
                let mut header = [0; HEADER_BYTES_MAX];
                let header = &mut header
                    [..len.min((place.end - place.start).saturating_sub(at)).min(HEADER_BYTES_MAX as u64) as usize];
                file.read(header, place.start + at)?;
                let found = Header::parse(header, *named).map_err(|wrong| {
                    file.corrupt(format!("column {:?} of a sample: {wrong}", column.name), place.start + at)
                })?;
                (*dtype, *dims) = (found.dtype, found.dims);
            }
            at = at.saturating_add(len);
        }
        Ok(())
    }

    fn schema(&self) -> Schema {
        let mut fields = Vec::with_capacity(self.columns.len());
        for Column { name, kind, .. } in &self.columns {
            let (dtype, shape) = match kind {
                Kind::Bytes => (DType::U8, Shape::Ragged),
                Kind::Fixed { dtype, shape, .. } => (*dtype, Shape::Fixed(shape.clone())),
                Kind::Array { dtype, .. } => (*dtype, Shape::Ragged),
            };
            fields.push(Field { name: name.clone(), dtype, shape });
            if kind.has_shape() {
                fields.push(Field { name: format!("{name}.shape"), dtype: DType::U8, shape: Shape::Ragged });
            }
        }
        Schema { fields }
    }

    fn encodings(&self) -> Vec<Encoding> {
        let mut encodings = Vec::with_capacity(self.columns.len());
        for Column { encoding, kind, .. } in &self.columns {
            encodings.push(encoding_of(encoding));
            if kind.has_shape() {
                encodings.push(Encoding::raw(format!("shape of {encoding}")));
            }
        }
        encodings
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.number(self.columns.len() as u64);
        for Column { name, encoding, .. } in &self.columns {
            fingerprint.bytes(name.as_bytes());
            fingerprint.bytes(encoding.as_bytes());
        }
    }

    fn is_plain(&self) -> bool {
        self.columns.len() == 1 && self.sized == 0
    }

    fn length(&self, field: usize, len: u64) -> Option<u64> {
        if self.sized != 1 {
            return None;
        }
        let field_of = |column: &Column| 1 + usize::from(column.kind.has_shape());
        let mut first = 0;
        let is_it = |column: &&Column| {
            let here = first == field;
            first += field_of(column);
            here
        };
        let bytes = len - SIZE_BYTES - self.fixed_bytes;
        match &self.columns.iter().find(is_it)?.kind {
            Kind::Bytes => Some(bytes),
            Kind::Array { named, dtype, dims: 1 } => {
                elements_in(bytes.checked_sub(1 + u64::from(named.is_none()))?, dtype.size())
            }
            Kind::Fixed { .. } | Kind::Array { .. } => None,
        }
    }

    fn split(&self, sample: &Bytes, values: &mut Vec<Value>) -> Result<(), Wrong> {
        let head = SIZE_BYTES as usize * self.sized;
        if sample.len() < head {
            return Err((format!("a sample of {} bytes has no room for its {} sizes", sample.len(), self.sized), 0));
        }
        let mut sizes = sample[..head].chunks_exact(4).map(|size| u32_of(size) as usize);
        let mut at = head;
        for column in &self.columns {
            let len = match &column.kind {
                // Fits: `new` compared the sum of all of them with the sample's length, which fits.
                Kind::Fixed { bytes, .. } => usize::try_from(*bytes).unwrap_or(usize::MAX),
                Kind::Bytes | Kind::Array { .. } => sizes.next().unwrap_or(0),
            };
            let end = at.checked_add(len).filter(|&end| end <= sample.len()).ok_or_else(|| {
                let what = format!("column {:?} of {len} bytes ends past its sample of {}", column.name, sample.len());
                (what, at as u64)
            })?;
            let value = sample.slice(at..end);
            match &column.kind {
                Kind::Bytes | Kind::Fixed { .. } => values.push(Value::Bytes(value)),
                Kind::Array { named, dtype, dims } => {
                    let wrong = |what: String| (format!("column {:?}: {what}", column.name), at as u64);
                    let header = Header::parse(&value, *named).map_err(wrong)?;
                    if (header.dtype, header.dims) != (*dtype, *dims) {
                        return Err(wrong(format!(
                            "an array of {} dimensions of {}, where the first sample has {dims} of {dtype}",
                            header.dims, header.dtype
                        )));
                    }
                    header.check(&value).map_err(wrong)?;
                    values.push(Value::Bytes(value.slice(header.values_at..)));
                    if column.kind.has_shape() {
                        values.push(Value::Bytes(value.slice(header.shape_at..header.values_at)));
                    }
                }
            }
            at = end;
        }
        if at != sample.len() {
            return Err((format!("the columns have {at} bytes of the {} of a sample", sample.len()), at as u64));
        }
        Ok(())
    }
    fn read_table(&self, file: &OpenFile<'_>, items: u64, _samples: u64) -> Result<Table> {
        let offsets = file.read_offsets(items)?;
        let last = offsets[offsets.len() - 1];
        if u64::from(last) != file.size {
            let place = 4 * offsets.len() as u64;
            return Err(file.corrupt(format!("the last sample ends at {last}, and the file at {}", file.size), place));
        }
        for (number, pair) in offsets.windows(2).enumerate() {
            let len = u64::from(pair[1] - pair[0]);
            if !self.may_have(len) {
                let what = format!("sample {number} has {len} bytes, which its columns cannot have");
                return Err(file.corrupt(what, pair[0].into()));
            }
        }
        Ok(Table::Offsets(offsets))
    }
}

impl Kind {
    /// Whether there is a column of shapes.
    fn has_shape(&self) -> bool {
        matches!(self, Kind::Array { dims: 2.., .. })
    }
}

/// Bytes of a size before a sample.
const SIZE_BYTES: u64 = 4;

/// A type, a byte for the dimensions, and up to 63 lengths of 8 bytes.
const HEADER_BYTES_MAX: usize = 2 + 63 * 8;

/// How many elements of `size` bytes a vector has that takes this many bytes with its length, which has as few bytes as
/// it can: 1, 2, 4 or 8. No other number takes as many.
fn elements_in(bytes: u64, size: u64) -> Option<u64> {
    [1_u32, 2, 4, 8].into_iter().find_map(|width| {
        let elements = bytes.checked_sub(width.into()).filter(|values| values % size == 0)? / size;
        let fits = width == 8 || elements >> (8 * width) == 0;
        (fits && (width == 1 || elements >> (4 * width) > 0)).then_some(elements)
    })
}

/// The header of an array: `[u8 dtype]`, unless the encoding names it; `u8 dims << 2 | width`; the lengths.
struct Header {
    dtype: DType,
    dims: usize,
    /// Offset of the byte for the dimensions.
    shape_at: usize,
    values_at: usize,
}

impl Header {
    fn parse(value: &[u8], named: Option<DType>) -> Result<Header, String> {
        let short = || format!("{} bytes are too few for the header of an array", value.len());
        let shape_at = usize::from(named.is_none());
        let dtype = match named {
            Some(dtype) => dtype,
            None => {
                let code = *value.first().ok_or_else(short)?;
                dtype_of_code(code).ok_or_else(|| format!("{code} is no type of an array"))?
            }
        };
        let (dims, width) = dims_and_width(*value.get(shape_at).ok_or_else(short)?);
        let values_at = shape_at + 1 + dims * width;
        if values_at > value.len() {
            return Err(short());
        }
        Ok(Header { dtype, dims, shape_at, values_at })
    }

    /// Whether the lengths match the number of bytes.
    fn check(&self, value: &[u8]) -> Result<(), String> {
        let shape = &value[self.shape_at..self.values_at];
        let elements = lengths(shape).try_fold(1, u64::checked_mul);
        let bytes = elements.and_then(|elements| elements.checked_mul(self.dtype.size()));
        let rest = (value.len() - self.values_at) as u64;
        if bytes == Some(rest) {
            return Ok(());
        }
        let elements = elements.map_or_else(|| "more than 2^64".to_owned(), |elements| elements.to_string());
        Err(format!("an array of {elements} elements of {} in {rest} bytes", self.dtype))
    }
}

/// The shape in a header, as `NAME.shape` stores it.
pub fn array_shape(header: &[u8]) -> Option<Vec<u64>> {
    let (dims, width) = dims_and_width(*header.first()?);
    (header.len() == 1 + dims * width).then(|| lengths(header).collect())
}

fn dims_and_width(byte: u8) -> (usize, usize) {
    (usize::from(byte >> 2), 1 << (byte & 3))
}

/// The lengths after the byte for the dimensions.
fn lengths(header: &[u8]) -> impl Iterator<Item = u64> {
    let width = dims_and_width(header[0]).1;
    header[1..]
        .chunks_exact(width)
        .map(|bytes| bytes.iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte)))
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn kind(name: &str, encoding: &str) -> Result<Kind> {
    let scalar = |dtype: DType| Kind::Fixed { dtype, shape: Vec::new(), bytes: dtype.size() };
    let bad = || {
        let what = format!("column {name:?} has the unknown encoding {encoding:?}");
        Error::new(ErrorKind::Unavailable, what)
            .with_remedy("write the dataset again with an encoding that MDSWriter has itself")
    };
    Ok(match encoding {
        "bytes" | "str" | "json" | "jpeg" | "png" | "str_int" | "str_float" | "str_decimal" | "pil" | "jpegarray"
        | "jpeg_array" | "list[pil]" | "list[jpeg]" | "list[png]" => Kind::Bytes,
        "int" => scalar(DType::I64),
        "pkl" => {
            let what = format!("column {name:?} is pickled, and reading a pickle runs a program");
            return Err(Error::new(ErrorKind::Unavailable, what)
                .with_remedy("write the dataset again with another encoding, such as json or ndarray"));
        }
        _ => match encoding.strip_prefix("ndarray") {
            None => scalar(dtype_named(encoding).ok_or_else(bad)?),
            Some(rest) => array(rest).ok_or_else(bad)?,
        },
    })
}

/// Parses what follows "ndarray": nothing, ":dtype", or ":dtype:d0,d1,...".
fn array(rest: &str) -> Option<Kind> {
    let open = |named: Option<DType>| Kind::Array { named, dtype: named.unwrap_or(DType::U8), dims: 1 };
    let rest = match rest.strip_prefix(':') {
        None => return rest.is_empty().then(|| open(None)),
        Some("") => return Some(open(None)),
        Some(rest) => rest,
    };
    let Some((dtype, shape)) = rest.split_once(':') else { return Some(open(Some(dtype_named(rest)?))) };
    let dtype = dtype_named(dtype)?;
    let shape: Vec<u64> = shape.split(',').map(|length| length.trim().parse().ok()).collect::<Option<_>>()?;
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length))?;
    (bytes > 0).then_some(Kind::Fixed { dtype, shape, bytes })
}

/// Types of scalars and arrays, with their codes in array headers.
const DTYPES: [(&str, u8, DType); 11] = [
    ("uint8", 8, DType::U8),
    ("int8", 9, DType::I8),
    ("uint16", 16, DType::U16),
    ("int16", 17, DType::I16),
    ("float16", 18, DType::F16),
    ("uint32", 32, DType::U32),
    ("int32", 33, DType::I32),
    ("float32", 34, DType::F32),
    ("uint64", 64, DType::U64),
    ("int64", 65, DType::I64),
    ("float64", 66, DType::F64),
];

fn dtype_named(name: &str) -> Option<DType> {
    DTYPES.iter().find(|dtype| dtype.0 == name).map(|dtype| dtype.2)
}

fn dtype_of_code(code: u8) -> Option<DType> {
    DTYPES.iter().find(|dtype| dtype.1 == code).map(|dtype| dtype.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_the_number_of_elements_that_their_bytes_leave() {
        for size in [1, 2, 4, 8] {
            for elements in (0..600).chain(65_000..66_000).chain([(1 << 32) - 1, 1 << 32, 1 << 40]) {
                let width = [1_u32, 2, 4].into_iter().find(|width| elements >> (8 * width) == 0).unwrap_or(8);
                assert_eq!(elements_in(u64::from(width) + elements * size, size), Some(elements), "{size}");
            }
        }
        assert_eq!((elements_in(0, 1), elements_in(2, 8), elements_in(2 + 255, 1)), (None, None, None));
    }
}
