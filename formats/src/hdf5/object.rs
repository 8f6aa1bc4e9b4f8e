//! The messages of a dataset: its type, shape, storage layout and chunk filters.

use super::filters::{Filter, Filters};
use super::header::{DATASPACE, DATATYPE, EXTERNAL_FILES, FILL, FILTERS, LAYOUT, Message, OLD_FILL, resolved};
use super::meta::{Block, Meta};
use crate::DType;
use crate::arrays::array_bytes;
use uringload_core::{Error, Result};

/// Maximum number of dimensions (`H5S_MAX_RANK`).
const RANK_MAX: u8 = 32;
/// Maximum nesting of arrays and enumerations.
const TYPE_DEPTH_MAX: usize = 8;

/// How many rows a dataset has, whatever its type. This decides which datasets are considered.
pub(super) struct Extent {
    /// Empty for a scalar.
    pub(super) shape: Vec<u64>,
    /// Maximum length of each dimension; `None` if unlimited.
    pub(super) limits: Vec<Option<u64>>,
    /// Number of dimensions without those of elements that are arrays.
    pub(super) file_rank: usize,
}

/// A dataset as its header describes it.
pub(super) struct Object {
    pub(super) dtype: DType,
    /// Includes the dimensions of elements that are arrays.
    pub(super) extent: Extent,
    pub(super) layout: Layout,
    pub(super) filters: Filters,
    /// One element of a chunk that was never written.
    pub(super) fill: [u8; 8],
}

/// Where the elements lie.
pub(super) enum Layout {
    /// At this file offset, with this many bytes reserved.
    At(u64, u64),
    /// Nowhere: nothing was ever written.
    Nowhere,
    Chunks {
        /// Chunk length in each dimension.
        chunk: Vec<u64>,
        index: Index,
        /// Whether chunks that reach past the end of the dataset are unfiltered.
        plain_edges: bool,
    },
}

/// How chunks are found. Every kind has an address, except if nothing was ever written.
pub(super) enum Index {
    Nothing,
    /// Layouts up to version 3.
    OldTree(u64),
    /// One chunk at an address; if filtered, with its length and a mask of the filters that were skipped.
    Single(u64, Option<(u64, u32)>),
    /// All chunks end to end.
    Implicit(u64),
    FixedArray(u64),
    ExtensibleArray(u64),
    Tree(u64),
}

/// The extent of a dataset; `None` if the messages are not those of a dataset.
pub(super) fn extent<'a>(meta: &Meta<'a>, messages: &[Message<'a>]) -> Result<Option<Extent>> {
    if !messages.iter().any(|message| message.kind == LAYOUT) {
        return Ok(None);
    }
    let dataspace = messages.iter().find(|message| message.kind == DATASPACE);
    dataspace.map(|message| dataspace_of(meta, message.copy())).transpose()
}

fn dataspace_of<'a>(meta: &Meta<'a>, message: Message<'a>) -> Result<Extent> {
    let mut body = resolved(meta, message)?.body;
    let (version, rank, flags) = (body.u8()?, body.u8()?, body.u8()?);
    match version {
        1 => body.skip(5)?,
        2 => {
            // Type 2 is a dataspace without elements.
            if body.u8()? == 2 {
                return Ok(Extent { shape: Vec::new(), limits: Vec::new(), file_rank: 0 });
            }
        }
        _ => return Err(body.unavailable(format!("a dataspace has the unknown version {version}"))),
    }
    if rank > RANK_MAX {
        return Err(body.corrupt(format!("a dataset has {rank} dimensions")));
    }
    let shape = (0..rank).map(|_| meta.length(&mut body)).collect::<Result<Vec<_>>>()?;
    let unlimited = u64::MAX >> (64 - 8 * meta.length_bytes);
    let limits = match flags & 0x01 {
        0 => shape.iter().copied().map(Some).collect(),
        _ => (0..rank)
            .map(|_| Ok(Some(meta.length(&mut body)?).filter(|&limit| limit != unlimited)))
            .collect::<Result<Vec<_>>>()?,
    };
    if shape.iter().zip(&limits).any(|(&len, limit)| limit.is_some_and(|limit| limit < len)) {
        return Err(body.corrupt("a dataset is larger than it may grow"));
    }
    Ok(Extent { shape, limits, file_rank: rank.into() })
}

/// Everything about a dataset.
///
/// # Errors
/// `Unavailable` for what is sound but not supported, by name.
pub(super) fn describe<'a>(meta: &Meta<'a>, name: &str, messages: Vec<Message<'a>>) -> Result<Object> {
    // Errors of inner structures do not name the dataset.
    let of_dataset = |error: Error| match error.remedy() {
        Some(remedy) => {
            let remedy = format!("dataset {name:?}: {remedy}");
            error.with_remedy(remedy)
        }
        None => error.with_remedy(format!("this is dataset {name:?}: name other datasets to read")),
    };
    describe_all(meta, name, messages).map_err(of_dataset)
}

fn describe_all<'a>(meta: &Meta<'a>, name: &str, messages: Vec<Message<'a>>) -> Result<Object> {
    let not_one = || meta.source.unavailable(meta.base, format!("{name:?} is not a dataset"));
    let Some(mut extent) = extent(meta, &messages)? else { return Err(not_one()) };
    let (mut datatype, mut layout, mut filters, mut fill) = (None, None, Filters::default(), None);
    for message in messages {
        match message.kind {
            DATATYPE => datatype = Some(resolved(meta, message)?.body),
            LAYOUT => layout = Some(message.body),
            FILTERS => filters = filters_of(resolved(meta, message)?.body)?,
            FILL => fill = fill_of(resolved(meta, message)?.body)?.or(fill),
            OLD_FILL if fill.is_none() => {
                let mut body = resolved(meta, message)?.body;
                let len = body.u32()?;
                fill = Some(body.part(len as usize, "a fill value")?);
            }
            EXTERNAL_FILES => {
                let what = format!("the elements of dataset {name:?} are in external files");
                return Err(message.body.unavailable(what).with_remedy("write the file again with h5repack"));
            }
            _ => {}
        }
    }
    let (Some(mut datatype), Some(layout)) = (datatype, layout) else { return Err(not_one()) };
    let (dtype, inner) = type_of(&mut datatype, 0)?;
    let bytes = array_bytes(dtype, &inner).ok_or_else(|| datatype.corrupt("an element is larger than any file"))?;
    let layout = layout_of(meta, layout, name, extent.shape.len(), bytes, &inner)?;
    extent.limits.extend(inner.iter().copied().map(Some));
    extent.shape.extend(inner);
    array_bytes(dtype, &extent.shape).ok_or_else(|| datatype.corrupt("a dataset is larger than any file"))?;
    let mut value = [0; 8];
    if let Some(mut fill) = fill {
        let len = (dtype.size() as usize).min(fill.left());
        value[..len].copy_from_slice(fill.take(len)?);
    }
    Ok(Object { dtype, extent, layout, filters, fill: value })
}

/// The type in a datatype message, and the dimensions of an element if it is an array.
fn type_of(body: &mut Block<'_>, depth: usize) -> Result<(DType, Vec<u64>)> {
    let class = body.u8()?;
    let (version, class) = (class >> 4, class & 0x0f);
    let flags = body.number(3)?;
    let bytes = body.u32()?;
    let refuse =
        |body: &Block<'_>, what: &str| Err(body.unavailable(format!("elements are {what}, which no column can hold")));
    if depth > TYPE_DEPTH_MAX {
        return Err(body.corrupt("types are nested too deep"));
    }
    match class {
        0 | 1 if flags & 0x01 != 0 && bytes > 1 => {
            let error = body.unavailable("elements are big endian");
            Err(error.with_remedy("write them little endian: numpy's astype(array.dtype.newbyteorder(\"<\"))"))
        }
        0 => {
            let (first_bit, bits) = (body.u16()?, u32::from(body.u16()?));
            let dtype = match (bytes, flags & 0x08 != 0) {
                _ if first_bit != 0 || bits != bytes.saturating_mul(8) => None,
                (1, false) => Some(DType::U8),
                (1, true) => Some(DType::I8),
                (2, false) => Some(DType::U16),
                (2, true) => Some(DType::I16),
                (4, false) => Some(DType::U32),
                (4, true) => Some(DType::I32),
                (8, false) => Some(DType::U64),
                (8, true) => Some(DType::I64),
                _ => None,
            };
            match dtype {
                Some(dtype) => Ok((dtype, Vec::new())),
                None => refuse(body, &format!("integers of {bits} bits in {bytes} bytes")),
            }
        }
        1 => {
            let (first_bit, bits) = (body.u16()?, u32::from(body.u16()?));
            let form = [body.u8()?, body.u8()?, body.u8()?, body.u8()?];
            let bias = body.u32()?;
            // Position and width in bits of the exponent, then of the mantissa, and the bias.
            let dtype = match (bytes, form, bias) {
                _ if first_bit != 0 || bits != bytes.saturating_mul(8) => None,
                (1, [3, 4, 0, 3], 7) => Some(DType::F8E4M3),
                (1, [2, 5, 0, 2], 15) => Some(DType::F8E5M2),
                (2, [10, 5, 0, 10], 15) => Some(DType::F16),
                (2, [7, 8, 0, 7], 127) => Some(DType::BF16),
                (4, [23, 8, 0, 23], 127) => Some(DType::F32),
                (8, [52, 11, 0, 52], 1023) => Some(DType::F64),
                _ => None,
            };
            match dtype {
                Some(dtype) => Ok((dtype, Vec::new())),
                None => refuse(body, &format!("floating-point numbers of {bits} bits in an unusual form")),
            }
        }
        8 => enumeration(body, version, flags & 0xffff, depth),
        10 => {
            let rank = body.u8()?;
            body.skip(if version < 3 { 3 } else { 0 })?;
            let mut shape = (0..rank).map(|_| Ok(body.u32()?.into())).collect::<Result<Vec<u64>>>()?;
            body.skip(if version < 3 { 4 * usize::from(rank) } else { 0 })?;
            let (dtype, inner) = type_of(body, depth + 1)?;
            shape.extend(inner);
            match array_bytes(dtype, &shape) {
                Some(all) if all == u64::from(bytes) && shape.len() <= RANK_MAX.into() => Ok((dtype, shape)),
                _ => Err(body.corrupt(format!("an array {shape:?} cannot have {bytes} bytes"))),
            }
        }
        2 => refuse(body, "times"),
        3 => refuse(body, "strings"),
        4 => refuse(body, "fields of bits"),
        5 => refuse(body, "opaque"),
        6 => refuse(body, "compounds"),
        7 => refuse(body, "references"),
        9 => refuse(body, "of variable length"),
        11 => refuse(body, "complex numbers"),
        _ => refuse(body, &format!("of the unknown class {class}")),
    }
}

/// An enumeration reads as its integers. The exception is FALSE and TRUE in one byte, which is how h5py writes
/// booleans.
fn enumeration(body: &mut Block<'_>, version: u8, members: u64, depth: usize) -> Result<(DType, Vec<u64>)> {
    let (dtype, inner) = type_of(body, depth + 1)?;
    if !inner.is_empty() {
        return Err(body.corrupt("an enumeration has arrays"));
    }
    if members != 2 || dtype.size() != 1 {
        return Ok((dtype, inner));
    }
    let mut names = Vec::new();
    for _ in 0..members {
        let rest = &body.all()[body.all().len() - body.left()..];
        let len = rest.iter().position(|&byte| byte == 0);
        let len = len.ok_or_else(|| body.corrupt("a name of an enumeration has no end"))?;
        names.push(body.text(len)?);
        // Includes its NUL and, before version 3, padding to a multiple of eight.
        body.skip(if version < 3 { (len + 1).next_multiple_of(8) - len } else { 1 })?;
    }
    let is_bool = names == ["FALSE", "TRUE"] && body.take(2)? == [0, 1];
    Ok((if is_bool { DType::Bool } else { dtype }, inner))
}

fn fill_of(mut body: Block<'_>) -> Result<Option<Block<'_>>> {
    let version = body.u8()?;
    let is_defined = match version {
        1 | 2 => {
            body.skip(2)?;
            body.u8()? != 0 || version == 1
        }
        3 => body.u8()? & 0x20 != 0,
        _ => return Err(body.unavailable(format!("a fill value has the unknown version {version}"))),
    };
    if !is_defined {
        return Ok(None);
    }
    let len = body.u32()?;
    // A length of -1 or 0 means the default.
    Ok(match i32::try_from(len) {
        Ok(len @ 1..) => Some(body.part(len as usize, "a fill value")?),
        _ => None,
    })
}

fn filters_of(mut body: Block<'_>) -> Result<Filters> {
    let (version, count) = (body.u8()?, body.u8()?);
    if !(1..=2).contains(&version) {
        return Err(body.unavailable(format!("filters have the unknown version {version}")));
    }
    body.skip(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = body.u16()?;
        let name_bytes = if version == 1 || id >= 256 { usize::from(body.u16()?) } else { 0 };
        body.skip(2)?;
        let values = body.u16()?;
        let name = body.text(if version == 1 { name_bytes.next_multiple_of(8) } else { name_bytes })?;
        let first = (0..values).map(|_| body.u32()).collect::<Result<Vec<u32>>>()?.first().copied();
        body.skip(if version == 1 && values % 2 == 1 { 4 } else { 0 })?;
        match Filter::of(id, first) {
            Some(filter) => filters.push(filter),
            None => {
                let name = if name.is_empty() { Filter::name_of(id) } else { &name };
                let error = body.unavailable(format!("chunks went through the unknown filter {id} ({name})"));
                let remedy = "write the file again with gzip, lzf, lz4 or zstd: h5repack -f GZIP=4";
                return Err(error.with_remedy(remedy));
            }
        }
    }
    Ok(Filters(filters))
}

fn layout_of<'a>(
    meta: &Meta<'a>,
    mut body: Block<'a>,
    name: &str,
    rank: usize,
    element_bytes: u64,
    inner: &[u64],
) -> Result<Layout> {
    let version = body.u8()?;
    if !(3..=5).contains(&version) {
        let error = body.unavailable(format!("the layout of dataset {name:?} has the unknown version {version}"));
        return Err(error.with_remedy("write the file again with h5repack"));
    }
    match body.u8()? {
        0 => {
            let len = body.u16()?;
            Ok(Layout::At(body.offset(), len.into()))
        }
        1 => {
            let address = meta.address(&mut body)?;
            let len = meta.length(&mut body)?;
            Ok(address.map_or(Layout::Nowhere, |address| Layout::At(meta.base.saturating_add(address), len)))
        }
        2 => {
            let flags = if version == 3 { 0 } else { body.u8()? };
            let dimensions = usize::from(body.u8()?);
            // The last dimension is the element's size in bytes.
            if rank == 0 || dimensions != rank + 1 {
                return Err(body.corrupt(format!("chunks have {dimensions} dimensions, and their dataset has {rank}")));
            }
            let (index, sizes) = if version == 3 {
                let address = meta.address(&mut body)?;
                (address.map_or(Index::Nothing, Index::OldTree), sizes(&mut body, dimensions, 4)?)
            } else {
                let width = usize::from(body.u8()?);
                let sizes = sizes(&mut body, dimensions, width)?;
                (index_of(meta, &mut body, flags)?, sizes)
            };
            let (&last, chunk) = sizes.split_last().unwrap_or((&0, &[]));
            if last != element_bytes || chunk.contains(&0) {
                return Err(body.corrupt(format!(
                    "chunks cannot have the sizes {sizes:?} with elements of {element_bytes} bytes"
                )));
            }
            let chunk = chunk.iter().chain(inner).copied().collect();
            Ok(Layout::Chunks { chunk, index, plain_edges: flags & 0x01 != 0 })
        }
        3 => {
            let error = body.unavailable(format!("dataset {name:?} is virtual: its elements are in other files"));
            Err(error.with_remedy("open the files that it is made of, or write it out as one"))
        }
        class => Err(body.corrupt(format!("a layout has the unknown class {class}"))),
    }
}

fn sizes(body: &mut Block<'_>, count: usize, width: usize) -> Result<Vec<u64>> {
    (0..count).map(|_| body.number(width)).collect()
}

/// The index of a layout of version 4 or 5; skips its creation parameters.
fn index_of<'a>(meta: &Meta<'a>, body: &mut Block<'a>, flags: u8) -> Result<Index> {
    let kind = body.u8()?;
    let mut filtered = None;
    match kind {
        1 if flags & 0x02 != 0 => filtered = Some((meta.length(body)?, body.u32()?)),
        1 | 2 => {}
        3 => body.skip(1)?,
        4 => body.skip(5)?,
        5 => body.skip(6)?,
        _ => return Err(body.unavailable(format!("an index of chunks has the unknown type {kind}"))),
    }
    let Some(address) = meta.address(body)? else { return Ok(Index::Nothing) };
    Ok(match kind {
        1 => Index::Single(address, filtered),
        2 => Index::Implicit(address),
        3 => Index::FixedArray(address),
        4 => Index::ExtensibleArray(address),
        _ => Index::Tree(address),
    })
}
