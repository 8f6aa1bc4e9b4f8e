//! The types of elements, and which of them a column can hold.

use super::meta::Block;
use crate::dataset::DType;
use crate::formats::arrays::array_bytes;
use uringload_core::Result;

/// Maximum number of dimensions (`H5S_MAX_RANK`).
pub(super) const RANK_MAX: u8 = 32;
/// Maximum nesting of arrays, enumerations and compounds.
const DEPTH_MAX: usize = 8;

/// The type of an element, with its bytes.
#[derive(Clone, Debug)]
pub(super) struct Type {
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Plain(Plain),
    /// A vector of any length, of elements of one dimension less; it is elsewhere in the file.
    Sequence(Plain),
    Compound(Vec<Member>),
    /// What no column can hold, in words.
    Odd(String),
}

/// Numbers, or the bytes of a text of fixed length.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) dtype: DType,
    /// Empty for a scalar.
    pub(super) shape: Vec<u64>,
    pub(super) is_big_endian: bool,
}

/// A field of a compound.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where it begins in the compound.
    pub(super) at: u64,
    pub(super) of: Type,
}

/// What a column takes of each element.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) plain: Plain,
    /// Where it begins in the element.
    pub(super) at: u64,
    /// Whether the element only holds the places of values.
    pub(super) is_elsewhere: bool,
}

impl Type {
    /// All fields that a column can hold, with their names after that of the dataset; one if it is not a compound.
    pub(super) fn columns(&self) -> Vec<(String, Taken)> {
        let mut columns = Vec::new();
        self.add_columns(String::new(), 0, &mut columns);
        columns
    }

    fn add_columns(&self, name: String, at: u64, columns: &mut Vec<(String, Taken)>) {
        match &self.kind {
            Kind::Plain(plain) => columns.push((name, Taken { plain: plain.clone(), at, is_elsewhere: false })),
            Kind::Sequence(plain) if at == 0 && name.is_empty() => {
                columns.push((name, Taken { plain: plain.clone(), at, is_elsewhere: true }));
            }
            Kind::Compound(members) => {
                members.iter().for_each(|member| {
                    member.of.add_columns(format!("{name}/{}", member.name), at + member.at, columns);
                });
            }
            Kind::Sequence(_) | Kind::Odd(_) => {}
        }
    }

    /// The fields that no column can hold, with their names after that of the dataset.
    pub(super) fn odd_fields(&self) -> Vec<String> {
        let Kind::Compound(members) = &self.kind else { return Vec::new() };
        let of_member = |member: &Member| match &member.of.kind {
            Kind::Sequence(_) | Kind::Odd(_) => vec![format!("/{}", member.name)],
            _ => member.of.odd_fields().iter().map(|odd| format!("/{}{odd}", member.name)).collect(),
        };
        members.iter().flat_map(of_member).collect()
    }

    /// The type of a field, whether or not a column can hold it.
    pub(super) fn field(&self, fields: &str) -> Option<&Type> {
        if fields.is_empty() {
            return Some(self);
        }
        let (Kind::Compound(members), Some(fields)) = (&self.kind, fields.strip_prefix('/')) else { return None };
        members.iter().find_map(|member| member.of.field(fields.strip_prefix(&*member.name)?))
    }

    /// What no column can hold of it, in words.
    pub(super) fn in_words(&self) -> String {
        match &self.kind {
            Kind::Odd(what) => what.clone(),
            Kind::Compound(_) => "compounds".into(),
            Kind::Sequence(_) => "of variable length within a compound".into(),
            Kind::Plain(plain) => plain.dtype.name().into(),
        }
    }
}

/// The type in a datatype message.
///
/// # Errors
/// `Corrupt` for what breaks the format, `Unavailable` for a class without a name.
pub(super) fn type_of(body: &mut Block<'_>, depth: usize) -> Result<Type> {
    let class = body.u8()?;
    let (version, class) = (class >> 4, class & 0x0f);
    let flags = body.number(3)?;
    let bytes = body.u32()?;
    if depth > DEPTH_MAX {
        return Err(body.corrupt("types are nested too deep"));
    }
    let is_big_endian = flags & 0x01 != 0 && bytes > 1;
    let plain = |dtype| Kind::Plain(Plain { dtype, shape: Vec::new(), is_big_endian });
    let kind = match class {
        0 => match integer(body, bytes, flags & 0x08 != 0)? {
            Ok(dtype) => plain(dtype),
            Err(bits) => Kind::Odd(format!("integers of {bits} bits in {bytes} bytes")),
        },
        1 => match float(body, bytes)? {
            // The other byte order of old machines has both halves swapped.
            Ok(dtype) if flags & 0x40 == 0 => plain(dtype),
            Ok(_) => Kind::Odd("floating-point numbers in VAX order".into()),
            Err(bits) => Kind::Odd(format!("floating-point numbers of {bits} bits in an unusual form")),
        },
        3 => Kind::Plain(Plain { dtype: DType::U8, shape: vec![bytes.into()], is_big_endian: false }),
        6 => compound(body, version, flags & 0xffff, bytes, depth)?,
        8 => enumeration(body, version, flags & 0xffff, depth)?,
        9 => {
            let base = type_of(body, depth + 1)?;
            match base.kind {
                Kind::Plain(plain) if plain.shape.iter().product::<u64>() == 1 => Kind::Sequence(plain),
                _ => Kind::Odd("of variable length, of something that is no number".into()),
            }
        }
        10 => array(body, version, bytes, depth)?,
        2 => odd(body, 2, "times")?,
        4 => match integer(body, bytes, false)? {
            Ok(dtype) => plain(dtype),
            Err(bits) => Kind::Odd(format!("fields of {bits} bits in {bytes} bytes")),
        },
        5 => odd(body, (flags & 0xff) as usize, "opaque")?,
        7 => Kind::Odd("references".into()),
        11 => {
            type_of(body, depth + 1)?;
            Kind::Odd("complex numbers".into())
        }
        _ => {
            let what = format!("elements are of the unknown class {class}, which no column can hold");
            return Err(body.unavailable(what));
        }
    };
    Ok(Type { bytes: bytes.into(), kind })
}

/// Passes over what describes the type.
fn odd(body: &mut Block<'_>, described_by: usize, what: &str) -> Result<Kind> {
    body.skip(described_by)?;
    Ok(Kind::Odd(what.into()))
}

/// An integer; its bits if it has an unusual number of them.
fn integer(body: &mut Block<'_>, bytes: u32, is_signed: bool) -> Result<Result<DType, u32>> {
    let (first_bit, bits) = (body.u16()?, u32::from(body.u16()?));
    Ok(match (bytes, is_signed) {
        _ if first_bit != 0 || bits != bytes.saturating_mul(8) => Err(bits),
        (1, false) => Ok(DType::U8),
        (1, true) => Ok(DType::I8),
        (2, false) => Ok(DType::U16),
        (2, true) => Ok(DType::I16),
        (4, false) => Ok(DType::U32),
        (4, true) => Ok(DType::I32),
        (8, false) => Ok(DType::U64),
        (8, true) => Ok(DType::I64),
        _ => Err(bits),
    })
}

/// A floating-point number; its bits if it has an unusual form.
fn float(body: &mut Block<'_>, bytes: u32) -> Result<Result<DType, u32>> {
    let (first_bit, bits) = (body.u16()?, u32::from(body.u16()?));
    let form = [body.u8()?, body.u8()?, body.u8()?, body.u8()?];
    let bias = body.u32()?;
    // Position and width in bits of the exponent, then of the mantissa, and the bias.
    Ok(match (bytes, form, bias) {
        _ if first_bit != 0 || bits != bytes.saturating_mul(8) => Err(bits),
        (1, [3, 4, 0, 3], 7) => Ok(DType::F8E4M3),
        (1, [2, 5, 0, 2], 15) => Ok(DType::F8E5M2),
        (2, [10, 5, 0, 10], 15) => Ok(DType::F16),
        (2, [7, 8, 0, 7], 127) => Ok(DType::BF16),
        (4, [23, 8, 0, 23], 127) => Ok(DType::F32),
        (8, [52, 11, 0, 52], 1023) => Ok(DType::F64),
        _ => Err(bits),
    })
}

fn array(body: &mut Block<'_>, version: u8, bytes: u32, depth: usize) -> Result<Kind> {
    let rank = body.u8()?;
    body.skip(if version < 3 { 3 } else { 0 })?;
    let shape = (0..rank).map(|_| Ok(body.u32()?.into())).collect::<Result<Vec<u64>>>()?;
    body.skip(if version < 3 { 4 * usize::from(rank) } else { 0 })?;
    let base = type_of(body, depth + 1)?;
    arrayed(body, base, shape, bytes.into())
}

/// An array of elements of a type.
fn arrayed(body: &Block<'_>, base: Type, mut shape: Vec<u64>, bytes: u64) -> Result<Kind> {
    let Kind::Plain(plain) = base.kind else { return Ok(Kind::Odd(format!("arrays of {}", base.in_words()))) };
    shape.extend(plain.shape);
    match array_bytes(plain.dtype, &shape) {
        Some(all) if all == bytes && shape.len() <= RANK_MAX.into() => Ok(Kind::Plain(Plain { shape, ..plain })),
        _ => Err(body.corrupt(format!("an array {shape:?} cannot have {bytes} bytes"))),
    }
}

fn compound(body: &mut Block<'_>, version: u8, count: u64, bytes: u32, depth: usize) -> Result<Kind> {
    let mut members = Vec::new();
    // As many bytes as the size of a compound takes.
    let offset_bytes = (bytes.max(1).ilog2() / 8 + 1) as usize;
    for _ in 0..count {
        let name = name_of(body, version)?;
        let at = if version < 3 { body.u32()?.into() } else { body.number(offset_bytes)? };
        let mut shape = Vec::new();
        if version == 1 {
            let rank = usize::from(body.u8()?);
            body.skip(11)?;
            shape = (0..4).map(|_| Ok(body.u32()?.into())).collect::<Result<Vec<u64>>>()?;
            if rank > shape.len() {
                return Err(body.corrupt(format!("field {name:?} of a compound has {rank} dimensions")));
            }
            shape.truncate(rank);
        }
        let mut of = type_of(body, depth + 1)?;
        if !shape.is_empty() {
            let all = shape.iter().try_fold(of.bytes, |all, &len| all.checked_mul(len)).unwrap_or(u64::MAX);
            of = Type { bytes: all, kind: arrayed(body, of, shape, all)? };
        }
        if at.checked_add(of.bytes).is_none_or(|end| end > bytes.into()) {
            return Err(body.corrupt(format!("field {name:?} reaches over the end of its compound")));
        }
        members.push(Member { name, at, of });
    }
    Ok(Kind::Compound(members))
}

/// A name with its NUL and, before version 3, padding to a multiple of eight.
fn name_of(body: &mut Block<'_>, version: u8) -> Result<String> {
    let rest = &body.all()[body.all().len() - body.left()..];
    let len = rest.iter().position(|&byte| byte == 0);
    let len = len.ok_or_else(|| body.corrupt("a name in a type has no end"))?;
    let name = body.text(len)?;
    body.skip(if version < 3 { (len + 1).next_multiple_of(8) - len } else { 1 })?;
    Ok(name)
}

/// An enumeration reads as its integers. The exception is FALSE and TRUE in one byte, which is how h5py writes
/// booleans.
fn enumeration(body: &mut Block<'_>, version: u8, count: u64, depth: usize) -> Result<Kind> {
    let base = type_of(body, depth + 1)?;
    let names = (0..count).map(|_| name_of(body, version)).collect::<Result<Vec<_>>>()?;
    let values = body.take(usize::try_from(count.saturating_mul(base.bytes)).unwrap_or(usize::MAX))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_bool = matches!((&*names, values), (["FALSE", "TRUE"], [0, 1]) | (["TRUE", "FALSE"], [1, 0]));
    match base.kind {
        Kind::Plain(plain) if plain.shape.is_empty() => {
            Ok(Kind::Plain(Plain { dtype: if is_bool { DType::Bool } else { plain.dtype }, ..plain }))
        }
        Kind::Odd(what) => Ok(Kind::Odd(format!("enumerations of {what}"))),
        _ => Err(body.corrupt("an enumeration is of no numbers")),
    }
}
