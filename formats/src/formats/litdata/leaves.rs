//! The leaves of an item: maps the name of a serializer to a field of the schema, and the bytes of an item to its
//! values.

use super::ends::{check_arrow, check_blocks};
use crate::dataset::{DType, Encoding, Field, Fingerprint, Schema, Shape, Value};
use crate::formats::shards::{Layout, OpenFile, Table, Wrong, encoding_of};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;
use uringload_core::{Error, ErrorKind, Result};

/// All leaves, in the order in which an item stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaves {
    leaves: Vec<Leaf>,
    /// Whether an item is just the bytes of its only leaf, without a size.
    tokens: bool,
    /// Tokens per sample. If `None`, every item is a sample.
    block_size: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaf {
    name: String,
    serializer: String,
    kind: Kind,
}

/// How the bytes of a leaf are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Any number of bytes, passed on as they are.
    Bytes,
    Scalar(DType),
    /// Elements of one type.
    Vector(DType),
    /// An array with a header. The first item determines its type and number of dimensions.
    Array {
        order: Order,
        dtype: DType,
        dims: usize,
    },
}

/// Byte order of an array's header. Elements are little endian either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `tensor`: big endian, with torch's type codes.
    Torch,
    /// `numpy`: little endian, with NumPy's.
    NumPy,
}

impl Leaves {
    pub(super) fn new(
        serializers: &[String],
        spec: Option<&str>,
        tokens: bool,
        block_size: Option<u64>,
    ) -> Result<Leaves> {
        if serializers.is_empty() {
            return Err(Error::new(ErrorKind::Corrupt, "the index has no leaves (data_format)"));
        }
        let names = names(serializers.len(), spec, tokens)?;
        let leaf = |(name, serializer): (String, &String)| {
            Ok(Leaf { kind: kind(&name, serializer)?, serializer: serializer.clone(), name })
        };
        let leaves: Vec<Leaf> = names.into_iter().zip(serializers).map(leaf).collect::<Result<_>>()?;
        if tokens && !matches!(leaves[..], [Leaf { kind: Kind::Vector(_), .. }]) {
            let what = format!("tokens are one leaf without a header, not {serializers:?}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(Leaves { leaves, tokens, block_size })
    }

    /// Bytes of a token.
    fn token_bytes(&self) -> u64 {
        match self.leaves[..] {
            [Leaf { kind: Kind::Vector(dtype), .. }] => dtype.size(),
            _ => 1,
        }
    }

    /// Tokens and bytes of a block, if blocks are samples.
    pub(super) fn block(&self) -> Option<(u64, u64)> {
        self.block_size.map(|tokens| (tokens, self.token_bytes().saturating_mul(tokens)))
    }

    /// Checks that items may have the lengths that `offsets` imply.
    pub(super) fn check_items(&self, file: &OpenFile<'_>, offsets: &[u32]) -> Result<()> {
        for (number, pair) in offsets.windows(2).enumerate() {
            let len = u64::from(pair[1] - pair[0]);
            if !self.may_have(len) {
                let what = format!("item {number} has {len} bytes, which its leaves cannot have");
                return Err(file.corrupt(what, pair[0].into()));
            }
        }
        Ok(())
    }

    /// Whether an item may have this many bytes.
    fn may_have(&self, len: u64) -> bool {
        if self.tokens {
            return len.is_multiple_of(self.token_bytes());
        }
        let fixed = |leaf: &Leaf| leaf.kind.bytes();
        let least = self.head_bytes() + self.leaves.iter().filter_map(fixed).sum::<u64>();
        if self.leaves.iter().all(|leaf| fixed(leaf).is_some()) { len == least } else { len >= least }
    }

    /// Bytes of the sizes before an item.
    fn head_bytes(&self) -> u64 {
        if self.tokens { 0 } else { 4 * self.leaves.len() as u64 }
    }
}

impl Layout for Leaves {
    const FORMAT: &'static str = "litdata";

    fn is_open(&self) -> bool {
        self.leaves.iter().any(|leaf| matches!(leaf.kind, Kind::Array { .. }))
    }

    fn learn(&mut self, file: &OpenFile<'_>, place: &Range<u64>) -> Result<()> {
        let mut sizes = vec![0; self.head_bytes() as usize];
        file.read(&mut sizes, place.start)?;
        let mut at = self.head_bytes();
        for (leaf, size) in self.leaves.iter_mut().zip(sizes.chunks_exact(4)) {
            let len = u64::from(number(size, Order::NumPy));
            if let Kind::Array { order, dtype, dims } = &mut leaf.kind {
                let mut header = [0; FIXED_HEADER_BYTES];
                let header = &mut header
                    [..len.min((place.end - place.start).saturating_sub(at)).min(FIXED_HEADER_BYTES as u64) as usize];
                file.read(header, place.start + at)?;
                let (found, rank) = type_and_rank(header, *order).map_err(|wrong| {
                    file.corrupt(format!("leaf {:?} of an item: {wrong}", leaf.name), place.start + at)
                })?;
                (*dtype, *dims) = (found, rank);
            }
            at += len;
        }
        Ok(())
    }

    fn schema(&self) -> Schema {
        let mut fields = Vec::with_capacity(self.leaves.len());
        for Leaf { name, kind, .. } in &self.leaves {
            let (dtype, shape) = match (*kind, self.block_size) {
                (Kind::Bytes, _) => (DType::U8, Shape::Ragged),
                (Kind::Scalar(dtype), _) => (dtype, Shape::Fixed(Vec::new())),
                (Kind::Vector(dtype), Some(block_size)) => (dtype, Shape::Fixed(vec![block_size])),
                (Kind::Vector(dtype) | Kind::Array { dtype, .. }, _) => (dtype, Shape::Ragged),
            };
            fields.push(Field { name: name.clone(), dtype, shape });
            if let Some((dtype, shape)) = kind.shape() {
                fields.push(Field { name: format!("{name}.shape"), dtype, shape: Shape::Fixed(shape) });
            }
        }
        Schema { fields }
    }

    fn encodings(&self) -> Vec<Encoding> {
        let mut encodings = Vec::with_capacity(self.leaves.len());
        for Leaf { serializer, kind, .. } in &self.leaves {
            encodings.push(encoding_of(serializer));
            if kind.shape().is_some() {
                encodings.push(Encoding::raw(format!("shape of {serializer}")));
            }
        }
        encodings
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.number(self.leaves.len() as u64);
        for Leaf { name, serializer, .. } in &self.leaves {
            fingerprint.bytes(name.as_bytes());
            fingerprint.bytes(serializer.as_bytes());
        }
        fingerprint.number(self.block_size.unwrap_or(0));
    }

    fn is_plain(&self) -> bool {
        self.tokens
    }

    fn length(&self, field: usize, len: u64) -> Option<u64> {
        let fixed: u64 = self.leaves.iter().filter_map(|leaf| leaf.kind.bytes()).sum();
        if self.leaves.iter().filter(|leaf| leaf.kind.bytes().is_none()).count() != 1 {
            return None;
        }
        // No leaf before it has a column of shapes, because such a leaf would also be of variable size.
        let bytes = len - self.head_bytes() - fixed;
        match self.leaves.get(field)?.kind {
            Kind::Bytes => Some(bytes),
            Kind::Vector(dtype) => Some(bytes / dtype.size()),
            Kind::Scalar(_) | Kind::Array { .. } => None,
        }
    }

    fn split(&self, item: &Bytes, values: &mut Vec<Value>) -> Result<(), Wrong> {
        let head = 4 * self.leaves.len();
        if item.len() < head {
            return Err((format!("an item of {} bytes has no room for the sizes of its leaves", item.len()), 0));
        }
        let mut at = head;
        for (leaf, size) in self.leaves.iter().zip(item[..head].chunks_exact(4)) {
            let len = number(size, Order::NumPy) as usize;
            let end = at.checked_add(len).filter(|&end| end <= item.len()).ok_or_else(|| {
                let what = format!("leaf {:?} of {len} bytes ends past its item of {}", leaf.name, item.len());
                (what, at as u64)
            })?;
            let wrong = |what: String| (format!("leaf {:?}: {what}", leaf.name), at as u64);
            let value = item.slice(at..end);
            match leaf.kind {
                Kind::Bytes => values.push(Value::Bytes(value)),
                Kind::Scalar(dtype) if value.len() as u64 == dtype.size() => values.push(Value::Bytes(value)),
                Kind::Vector(dtype) if (value.len() as u64).is_multiple_of(dtype.size()) => {
                    values.push(Value::Bytes(value));
                }
                Kind::Scalar(dtype) | Kind::Vector(dtype) => {
                    return Err(wrong(format!("{len} bytes of {dtype}")));
                }
                Kind::Array { order, dtype, dims } => {
                    let found = type_and_rank(&value, order).map_err(wrong)?;
                    if found != (dtype, dims) {
                        return Err(wrong(format!(
                            "an array of {} dimensions of {}, where the first item has {dims} of {dtype}",
                            found.1, found.0
                        )));
                    }
                    let values_at = check_shape(&value, order, dtype, dims).map_err(wrong)?;
                    values.push(Value::Bytes(value.slice(values_at..)));
                    if leaf.kind.shape().is_some() {
                        values.push(Value::Bytes(value.slice(FIXED_HEADER_BYTES..values_at)));
                    }
                }
            }
            at = end;
        }
        if at != item.len() {
            return Err((format!("the leaves have {at} bytes of the {} of an item", item.len()), at as u64));
        }
        Ok(())
    }
    fn read_table(&self, file: &OpenFile<'_>, items: u64, samples: u64) -> Result<Table> {
        let offsets = file.read_offsets(items)?;
        let (first, last) = (u64::from(offsets[0]), u64::from(offsets[offsets.len() - 1]));
        if first != 4 * (offsets.len() as u64 + 1) {
            return Err(file.corrupt(format!("the first item begins at {first}, not right after the table"), 4));
        }
        if last != file.size {
            check_arrow(file, items > 0 && last == first, last)?;
        }
        if let Some((block_size, bytes)) = self.block() {
            let count = (last - first) / bytes;
            check_blocks(file, samples, block_size, count, first)?;
            return Ok(Table::Blocks { start: first, bytes, count });
        }
        self.check_items(file, &offsets)?;
        Ok(Table::Offsets(offsets))
    }
}

impl Kind {
    /// Bytes of a value, if all have the same.
    fn bytes(self) -> Option<u64> {
        match self {
            Kind::Scalar(dtype) => Some(dtype.size()),
            Kind::Bytes | Kind::Vector(_) | Kind::Array { .. } => None,
        }
    }

    /// Type and shape of the column of shapes, if there is one.
    fn shape(self) -> Option<(DType, Vec<u64>)> {
        match self {
            Kind::Array { order: Order::NumPy, dims: dims @ 2.., .. } => Some((DType::U32, vec![dims as u64])),
            Kind::Array { order: Order::Torch, dims: dims @ 2.., .. } => Some((DType::U8, vec![dims as u64, 4])),
            _ => None,
        }
    }
}

/// Bytes of an array's type and number of dimensions, before the lengths.
const FIXED_HEADER_BYTES: usize = 8;

/// As many dimensions as torch (64) and NumPy (64) allow.
const DIMS_MAX: usize = 64;

fn number(bytes: &[u8], order: Order) -> u32 {
    let push = |number, &byte: &u8| number << 8 | u32::from(byte);
    match order {
        Order::Torch => bytes.iter().fold(0, push),
        Order::NumPy => bytes.iter().rev().fold(0, push),
    }
}

fn type_and_rank(value: &[u8], order: Order) -> Result<(DType, usize), String> {
    let Some(header) = value.get(..FIXED_HEADER_BYTES) else {
        return Err(format!("{} bytes are too few for the header of an array", value.len()));
    };
    let code = number(&header[..4], order);
    let dtype = match order {
        Order::Torch => torch_dtype(code),
        Order::NumPy => numpy_dtype(code),
    };
    let dtype = dtype.ok_or_else(|| format!("elements of type {code} cannot be read"))?;
    let rank = number(&header[4..], order) as usize;
    if rank > DIMS_MAX {
        return Err(format!("an array of {rank} dimensions"));
    }
    Ok((dtype, rank))
}

/// Checks that the lengths match the number of bytes; returns where the elements begin.
fn check_shape(value: &[u8], order: Order, dtype: DType, dims: usize) -> Result<usize, String> {
    let values_at = FIXED_HEADER_BYTES + 4 * dims;
    let Some(lengths) = value.get(FIXED_HEADER_BYTES..values_at) else {
        return Err(format!("{} bytes are too few for the header of an array", value.len()));
    };
    let lengths = lengths.chunks_exact(4).map(|length| u64::from(number(length, order)));
    let bytes = { lengths }.try_fold(dtype.size(), u64::checked_mul);
    let rest = (value.len() - values_at) as u64;
    if bytes != Some(rest) {
        return Err(format!("the lengths of an array do not make its {rest} bytes of {dtype}"));
    }
    Ok(values_at)
}

/// Names of the leaves: the path to each.
fn names(count: usize, spec: Option<&str>, tokens: bool) -> Result<Vec<String>> {
    if tokens {
        return Ok(vec!["tokens".into(); count]);
    }
    let Some(spec) = spec else {
        return Ok((0..count).map(|number| number.to_string()).collect());
    };
    let (_, tree): (u64, Tree) = serde_json::from_str(spec).map_err(|source| {
        Error::new(ErrorKind::Corrupt, "the tree of leaves (data_spec) cannot be read").with_source(source)
    })?;
    let mut names = Vec::new();
    tree.names("", &mut names);
    if names.len() != count {
        let what = format!("there are {count} leaves in data_format and {} in data_spec", names.len());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    // A key with a dot may look like a path of two keys.
    let mut seen = HashSet::new();
    for (number, name) in names.iter_mut().enumerate() {
        if name.is_empty() {
            *name = "data".into();
        }
        if !seen.insert(name.clone()) {
            *name = format!("{name}#{number}");
        }
    }
    Ok(names)
}

/// A tree as written by torch's `treespec_dumps`. `serde_json` bounds its depth.
#[derive(Deserialize)]
struct Tree {
    r#type: Option<String>,
    /// JSON within JSON: the keys of a dictionary.
    context: Option<String>,
    #[serde(default)]
    children_spec: Vec<Tree>,
}

impl Tree {
    fn names(&self, way: &str, out: &mut Vec<String>) {
        if self.r#type.is_none() {
            out.push(way.to_owned());
            return;
        }
        let keys: Option<Vec<serde_json::Value>> =
            self.context.as_deref().and_then(|context| serde_json::from_str(context).ok());
        let keys = keys.filter(|keys| keys.len() == self.children_spec.len());
        for (number, child) in self.children_spec.iter().enumerate() {
            let key = match keys.as_ref().map(|keys| &keys[number]) {
                Some(serde_json::Value::String(key)) => key.clone(),
                Some(key) => key.to_string(),
                None => number.to_string(),
            };
            child.names(&if way.is_empty() { key } else { format!("{way}.{key}") }, out);
        }
    }
}

fn kind(name: &str, serializer: &str) -> Result<Kind> {
    let cannot = |what: &str, remedy: &'static str| {
        let what = format!("leaf {name:?} {what}");
        Err(Error::new(ErrorKind::Unavailable, what).with_remedy(remedy))
    };
    let (head, suffix) = serializer.split_once(':').unwrap_or((serializer, ""));
    let vector = |dtype: fn(u32) -> Option<DType>| match suffix.parse().ok().and_then(dtype) {
        Some(dtype) => Ok(Kind::Vector(dtype)),
        None => cannot(&format!("has elements that cannot be read ({serializer:?})"), "write it as another type"),
    };
    let array = |order| Ok(Kind::Array { order, dtype: DType::U8, dims: 1 });
    match head {
        "str" | "text" | "bytes" | "file" | "image" | "jpeg" | "pil" | "jpeg_array" | "json" | "video" | "audio"
        | "nifti" | "mesh" | "pdf" | "tifffile" | "tiff" => Ok(Kind::Bytes),
        "int" => Ok(Kind::Scalar(DType::I64)),
        "float" => Ok(Kind::Scalar(DType::F64)),
        "bool" => Ok(Kind::Scalar(DType::Bool)),
        "no_header_tensor" => vector(torch_dtype),
        "no_header_numpy" => vector(numpy_dtype),
        "tensor" => array(Order::Torch),
        "numpy" => array(Order::NumPy),
        "pickle" => cannot("is pickled, and reading a pickle runs a program", "write it as plain values"),
        "graph" => cannot("is a graph, which may hold a pickle", "write its tensors as leaves"),
        _ => cannot(&format!("has an unknown serializer ({serializer:?})"), "write it as bytes"),
    }
}

/// The type for a torch code (`_TORCH_DTYPES_MAPPING`). Complex numbers have none.
fn torch_dtype(code: u32) -> Option<DType> {
    Some(match code {
        0 | 1 => DType::F32,
        2 | 3 => DType::F64,
        8 | 9 => DType::F16,
        10 => DType::BF16,
        11 => DType::U8,
        12 => DType::I8,
        13 | 14 => DType::I16,
        15 | 16 => DType::I32,
        17 | 18 => DType::I64,
        19 => DType::Bool,
        20 => DType::U16,
        _ => return None,
    })
}

/// The type for a NumPy code (`_NUMPY_DTYPES_MAPPING`). Complex numbers have none.
fn numpy_dtype(code: u32) -> Option<DType> {
    Some(match code {
        0 => DType::I8,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::I64,
        4 => DType::U8,
        5 => DType::U16,
        6 => DType::U32,
        7 => DType::U64,
        8 => DType::F16,
        9 => DType::F32,
        10 => DType::F64,
        13 => DType::Bool,
        _ => return None,
    })
}
