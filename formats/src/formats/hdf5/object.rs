//! The messages of a dataset: its type, shape, storage layout and chunk filters.

use super::filters::{Filter, Filters};
use super::header::{DATASPACE, DATATYPE, EXTERNAL_FILES, FILL, FILTERS, LAYOUT, Message, OLD_FILL, resolved};
use super::meta::{Block, Meta};
use super::types::{Kind, RANK_MAX, Type, type_of};
use crate::dataset::DType;
use crate::formats::arrays::array_bytes;
use uringload_core::{Error, Result};

/// How many rows a dataset has, whatever its type. This decides which datasets are considered.
#[derive(Clone)]
pub(super) struct Extent {
    /// Empty for a scalar.
    pub(super) shape: Vec<u64>,
    /// Maximum length of each dimension; `None` if unlimited.
    pub(super) limits: Vec<Option<u64>>,
    /// Number of dimensions without those of elements that are arrays.
    pub(super) file_rank: usize,
}

/// A dataset as its header describes it.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) of: Type,
    /// Bytes of what is not divided further: a number, or a byte of anything else.
    pub(super) atom_bytes: u64,
    /// In atoms. Includes the dimensions of elements that are arrays, and the bytes of those that are no numbers.
    pub(super) extent: Extent,
    pub(super) layout: Layout,
    pub(super) filters: Filters,
    /// An element that was never written; of an element of zeros, one of them.
    pub(super) fill: Vec<u8>,
}

/// The places of the elements.
#[derive(Clone)]
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
#[derive(Clone, Copy)]
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
    describe_all(meta, name, messages).map_err(|error| of_dataset(name, error))
}

/// Names the dataset in an error: those of inner structures do not.
pub(super) fn of_dataset(name: &str, error: Error) -> Error {
    match error.remedy() {
        Some(remedy) => {
            let remedy = format!("dataset {name:?}: {remedy}");
            error.with_remedy(remedy)
        }
        None => error.with_remedy(format!("this is dataset {name:?}: name other datasets to read")),
    }
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
    let of = type_of(&mut datatype, 0)?;
    let (dtype, inner) = match &of.kind {
        Kind::Plain(plain) => (plain.dtype, plain.shape.clone()),
        _ => (DType::U8, vec![of.bytes]),
    };
    let bytes = array_bytes(dtype, &inner).ok_or_else(|| datatype.corrupt("an element is larger than any file"))?;
    let layout = layout_of(meta, layout, name, extent.shape.len(), bytes, &inner)?;
    extent.limits.extend(inner.iter().copied().map(Some));
    extent.shape.extend(inner);
    array_bytes(dtype, &extent.shape).ok_or_else(|| datatype.corrupt("a dataset is larger than any file"))?;
    let mut value = vec![0];
    if let Some(mut fill) = fill {
        // Of what is shorter than an element, nothing is known.
        let len = fill.left();
        let fill = fill.take(len)?;
        let is_whole = [bytes, dtype.size()].contains(&(len as u64));
        if is_whole && fill.iter().any(|&byte| byte != 0) {
            value = fill.to_vec();
        }
    }
    Ok(Object { of, atom_bytes: dtype.size(), extent, layout, filters, fill: value })
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
        let given = (0..values).map(|_| body.u32()).collect::<Result<Vec<u32>>>()?;
        body.skip(if version == 1 && values % 2 == 1 { 4 } else { 0 })?;
        match Filter::of(id, &given) {
            Some(filter) => {
                filter.check().map_err(|error| body.at_here(error))?;
                filters.push(filter);
            }
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
    if (1..=2).contains(&version) {
        return old_layout_of(meta, body, rank, element_bytes, inner);
    }
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
            let chunk = chunk_of(&body, &sizes, element_bytes, inner)?;
            Ok(Layout::Chunks { chunk, index, plain_edges: flags & 0x01 != 0 })
        }
        3 => {
            let error = body.unavailable(format!("dataset {name:?} is virtual: its elements are in other files"));
            Err(error.with_remedy("open the files that it is made of, or write it out as one"))
        }
        class => Err(body.corrupt(format!("a layout has the unknown class {class}"))),
    }
}

/// A layout of version 1 or 2: libraries before 1.6.3.
fn old_layout_of<'a>(
    meta: &Meta<'a>,
    mut body: Block<'a>,
    rank: usize,
    element_bytes: u64,
    inner: &[u64],
) -> Result<Layout> {
    let (dimensions, class) = (usize::from(body.u8()?), body.u8()?);
    body.skip(5)?;
    let address = if class == 0 { None } else { meta.address(&mut body)? };
    let sizes = sizes(&mut body, dimensions, 4)?;
    match class {
        0 => {
            let len = body.u32()?;
            Ok(Layout::At(body.offset(), len.into()))
        }
        // The sizes have 32 bits, and may be cut off: the dataset's own count. It is compared with the file's end.
        1 => Ok(address.map_or(Layout::Nowhere, |address| Layout::At(meta.base.saturating_add(address), u64::MAX))),
        2 if rank > 0 && dimensions == rank + 1 => {
            let chunk = chunk_of(&body, &sizes, element_bytes, inner)?;
            Ok(Layout::Chunks { chunk, index: address.map_or(Index::Nothing, Index::OldTree), plain_edges: false })
        }
        _ => Err(body.corrupt(format!("a layout of class {class} has {dimensions} dimensions, its dataset {rank}"))),
    }
}

/// The lengths of chunks: the last of `sizes` is that of an element in bytes.
fn chunk_of(body: &Block<'_>, sizes: &[u64], element_bytes: u64, inner: &[u64]) -> Result<Vec<u64>> {
    let (&last, chunk) = sizes.split_last().unwrap_or((&0, &[]));
    if last != element_bytes || chunk.contains(&0) {
        let what = format!("chunks cannot have the sizes {sizes:?} with elements of {element_bytes} bytes");
        return Err(body.corrupt(what));
    }
    Ok(chunk.iter().chain(inner).copied().collect())
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
