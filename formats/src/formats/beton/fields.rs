//! The fields that a .beton header describes, and the columns they become.

use super::HEAD_BYTES;
use crate::dataset::{DType, Encoding, Field, Fingerprint, Schema, Shape};
use crate::index::headers::{Source, u64_at};
use uringload_core::{Error, ErrorKind, Result};

/// The fields of a file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    pub(super) all: Vec<Descriptor>,
    /// Bytes of a record in the table of samples.
    pub(super) record_bytes: u64,
    /// Where that table begins.
    pub(super) end: u64,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Offset of the field in a record.
    pub(super) at: usize,
    /// For an image field, its number among the image fields.
    pub(super) image: usize,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `i64`.
    Int,
    /// `f64`.
    Float,
    /// `u8` mode, `u16` width, `u16` height, `u64` place.
    Image,
    /// `u64` place, `u64` size.
    Bytes,
    /// Stored like `Bytes`.
    Json,
    /// `u64` place.
    Array { dtype: DType, shape: Vec<u64>, bytes: u64 },
}

/// Bytes of the description of one field: type, name, arguments.
const DESCRIPTOR_BYTES: usize = 1 + NAME_BYTES + ARGUMENT_BYTES;
const NAME_BYTES: usize = 16;
const ARGUMENT_BYTES: usize = 1024;

/// Dimensions that the arguments of an array have room for; the text of its type follows them.
const DIMS_MAX: usize = 32;

impl Descriptors {
    pub(super) fn read(file: &Source, count: u16) -> Result<Descriptors> {
        let end = HEAD_BYTES + u64::from(count) * DESCRIPTOR_BYTES as u64;
        if end > file.size() {
            let what =
                format!("the descriptions of {count} fields do not fit into the {} bytes of the file", file.size());
            return Err(Error::new(ErrorKind::Truncated, what).with_path(file.path()).with_offset(2));
        }
        let (mut all, mut at, mut images, mut alignment) = (Vec::new(), 0, 0, 1);
        for number in 0..u64::from(count) {
            let place = HEAD_BYTES + number * DESCRIPTOR_BYTES as u64;
            let mut bytes = [0; DESCRIPTOR_BYTES];
            file.read(place, &mut bytes, "the descriptions of fields")?;
            let (name, arguments) = bytes[1..].split_at(NAME_BYTES);
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            if all.iter().any(|field: &Descriptor| field.name == name) {
                return Err(file.corrupt(place, format!("two fields are called {name:?}")));
            }
            let kind = kind(bytes[0], arguments).map_err(|(kind, what)| {
                Error::new(kind, format!("field {name:?} {what}"))
                    .with_path(file.path())
                    .with_offset(place)
                    .with_remedy("write the file again with fields that FFCV has itself")
            })?;
            // Laid out like a NumPy structure with align=True; fields that are structures themselves are packed.
            let (size, aligned) = kind.layout();
            at = usize::next_multiple_of(at, aligned);
            alignment = alignment.max(aligned);
            let image = images;
            images += usize::from(kind == Kind::Image);
            all.push(Descriptor { name, kind, at, image });
            at += size;
        }
        Ok(Descriptors { all, record_bytes: at.next_multiple_of(alignment) as u64, end })
    }

    /// The columns. For each field, `uniform` says whether its images are all of one size.
    pub(super) fn schema(&self, uniform: &[Option<(u16, u16)>]) -> Schema {
        let mut fields = Vec::with_capacity(self.all.len());
        for (Descriptor { name, kind, .. }, uniform) in self.all.iter().zip(uniform) {
            let (dtype, shape) = match (kind, uniform) {
                (Kind::Int, _) => (DType::I64, Shape::Fixed(Vec::new())),
                (Kind::Float, _) => (DType::F64, Shape::Fixed(Vec::new())),
                (Kind::Image, Some((height, width))) => {
                    (DType::U8, Shape::Fixed(vec![u64::from(*height), u64::from(*width), CHANNELS]))
                }
                (Kind::Image | Kind::Bytes | Kind::Json, _) => (DType::U8, Shape::Ragged),
                (Kind::Array { dtype, shape, .. }, _) => (*dtype, Shape::Fixed(shape.clone())),
            };
            fields.push(Field { name: name.clone(), dtype, shape });
            if *kind == Kind::Image && uniform.is_none() {
                for what in IMAGE_NUMBERS {
                    let name = format!("{name}.{what}");
                    fields.push(Field { name, dtype: DType::I64, shape: Shape::Fixed(Vec::new()) });
                }
            }
        }
        Schema { fields }
    }

    /// The field whose value a column is; `None` for the numbers that accompany an image.
    pub(super) fn of_column(&self, column: usize, uniform: &[Option<(u16, u16)>]) -> Option<usize> {
        let mut first = 0;
        for (number, (field, uniform)) in self.all.iter().zip(uniform).enumerate() {
            if first == column {
                return Some(number);
            }
            let beside = field.kind == Kind::Image && uniform.is_none();
            first += 1 + if beside { IMAGE_NUMBERS.len() } else { 0 };
        }
        None
    }

    /// The only field that is not a number. `None` if it is JSON: its last byte is not part of the value.
    pub(super) fn only_plain(&self) -> Option<usize> {
        let mut pointers = self.all.iter().enumerate().filter(|(_, field)| field.kind.is_pointer());
        let (number, _) = pointers.next().filter(|(_, field)| field.kind != Kind::Json)?;
        // No field before it has more than one column.
        pointers.next().is_none().then_some(number)
    }

    pub(super) fn encodings(&self, uniform: &[Option<(u16, u16)>]) -> Vec<Encoding> {
        let mut encodings = Vec::with_capacity(self.all.len());
        for (field, uniform) in self.all.iter().zip(uniform) {
            let name = field.kind.name();
            encodings.push(if field.kind == Kind::Json { Encoding::text(name) } else { Encoding::raw(name) });
            if field.kind == Kind::Image && uniform.is_none() {
                encodings.extend(IMAGE_NUMBERS.map(|what| Encoding::raw(format!("{what} of {name}"))));
            }
        }
        encodings
    }

    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.number(self.all.len() as u64);
        for Descriptor { name, kind, .. } in &self.all {
            fingerprint.bytes(name.as_bytes());
            fingerprint.bytes(kind.name().as_bytes());
            if let Kind::Array { dtype, shape, .. } = kind {
                fingerprint.bytes(dtype.name().as_bytes());
                fingerprint.number(shape.len() as u64);
                shape.iter().for_each(|&length| fingerprint.number(length));
            }
        }
    }
}

/// Columns that accompany a column of images.
const IMAGE_NUMBERS: [&str; 3] = ["height", "width", "mode"];

/// Bytes of a pixel.
pub(super) const CHANNELS: u64 = 3;

impl Kind {
    /// Whether its values are stored in the pages.
    pub(super) fn is_pointer(&self) -> bool {
        !matches!(self, Kind::Int | Kind::Float)
    }

    /// Size in a record, and alignment.
    fn layout(&self) -> (usize, usize) {
        match self {
            Kind::Int | Kind::Float | Kind::Array { .. } => (8, 8),
            Kind::Image => (13, 1),
            Kind::Bytes | Kind::Json => (16, 1),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Kind::Int => "IntField",
            Kind::Float => "FloatField",
            Kind::Image => "RGBImageField",
            Kind::Bytes => "BytesField",
            Kind::Json => "JSONField",
            Kind::Array { .. } => "NDArrayField",
        }
    }
}

/// The meaning of a type number and its arguments, or why they are not supported.
fn kind(number: u8, arguments: &[u8]) -> Result<Kind, (ErrorKind, String)> {
    match number {
        0 => Ok(Kind::Float),
        1 => Ok(Kind::Int),
        2 => Ok(Kind::Image),
        3 => Ok(Kind::Bytes),
        // A torch tensor is written as its NumPy array.
        4 | 6 => array(arguments),
        5 => Ok(Kind::Json),
        255 => Err((ErrorKind::Unavailable, "has a class that the writer defined".into())),
        other => Err((ErrorKind::Corrupt, format!("has the unknown type {other}"))),
    }
}

fn array(arguments: &[u8]) -> Result<Kind, (ErrorKind, String)> {
    let corrupt = |what: &str| (ErrorKind::Corrupt, what.to_owned());
    let mut shape: Vec<u64> = (0..DIMS_MAX).map(|number| u64_at(arguments, 8 * number)).collect();
    while shape.last() == Some(&0) {
        shape.pop();
    }
    let text_at = 8 * (DIMS_MAX + 1);
    let len = usize::try_from(u64_at(arguments, 8 * DIMS_MAX)).unwrap_or(usize::MAX);
    let text = text_at.checked_add(len).and_then(|end| arguments.get(text_at..end));
    let text = text.ok_or_else(|| corrupt("has a type that is longer than its arguments"))?;
    // `dtype.descr`, which describes a plain type as a structure with one nameless field.
    let fields: Vec<(String, String)> =
        serde_json::from_slice(text).map_err(|_| corrupt("has a type that NumPy does not have"))?;
    let [(_, name)] = &fields[..] else {
        return Err((ErrorKind::Unavailable, "has elements that are structures".into()));
    };
    let dtype = dtype(name).ok_or_else(|| (ErrorKind::Unavailable, format!("has elements of type {name:?}")))?;
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length));
    match bytes {
        Some(bytes) if bytes > 0 => Ok(Kind::Array { dtype, shape, bytes }),
        _ => Err(corrupt("has an impossible shape")),
    }
}

/// A little-endian type by its NumPy name.
fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "|u1" => DType::U8,
        "|i1" => DType::I8,
        "|b1" => DType::Bool,
        "<u2" => DType::U16,
        "<i2" => DType::I16,
        "<f2" => DType::F16,
        "<u4" => DType::U32,
        "<i4" => DType::I32,
        "<f4" => DType::F32,
        "<u8" => DType::U64,
        "<i8" => DType::I64,
        "<f8" => DType::F64,
        _ => return None,
    })
}
