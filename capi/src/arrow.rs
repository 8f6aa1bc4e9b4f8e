//! Exports columns as Arrow arrays, by its C Data and C Device interfaces, without copying their values. The crate
//! `uringload-arrow` has the same mapping in Rust.
//!
//! An exported array holds the batch, and so do its children, which an importer may move out of it.

use crate::seen::{Form, Seen, Whole};
use crate::{invalid, owned};
use bytes::Bytes;
use std::ffi::{CString, c_char, c_void};
use std::mem::take;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use uringload::dataset::DType;
use uringload::{Error, Result};

/// Arrow's `struct ArrowSchema`.
#[repr(C)]
pub struct ArrowSchema {
    /// The type: "f", "+L", ...
    pub format: *const c_char,
    /// The column's name.
    pub name: *const c_char,
    /// Keys and values, each after its length; null if there are none.
    pub metadata: *const c_char,
    /// 0: values are never null.
    pub flags: i64,
    /// Number of children.
    pub n_children: i64,
    /// The types of the children.
    pub children: *mut *mut ArrowSchema,
    /// Null.
    pub dictionary: *mut ArrowSchema,
    /// Frees the owned data; null once that is done.
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    /// The owned data.
    pub private_data: *mut c_void,
}

/// Arrow's `struct ArrowArray`.
#[repr(C)]
pub struct ArrowArray {
    /// Number of values.
    pub length: i64,
    /// 0.
    pub null_count: i64,
    /// 0.
    pub offset: i64,
    /// Number of buffers.
    pub n_buffers: i64,
    /// Number of children.
    pub n_children: i64,
    /// The buffers. The first one, which would mark nulls, is null.
    pub buffers: *mut *const c_void,
    /// The children.
    pub children: *mut *mut ArrowArray,
    /// Null.
    pub dictionary: *mut ArrowArray,
    /// Releases the batch; null once that is done.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    /// The owned data.
    pub private_data: *mut c_void,
}

/// Arrow's `struct ArrowDeviceArray`.
#[repr(C)]
pub struct ArrowDeviceArray {
    /// The array.
    pub array: ArrowArray,
    /// The GPU's number, or -1, Arrow's value for the host.
    pub device_id: i64,
    /// `ARROW_DEVICE_CPU`: 1, or `ARROW_DEVICE_CUDA`: 2.
    pub device_type: i32,
    /// Null: there is nothing to wait for.
    pub sync_event: *mut c_void,
    /// Zeros.
    pub reserved: [i64; 3],
}

impl ArrowSchema {
    /// Writes it to `out`, or frees it if that is null.
    ///
    /// # Safety
    /// `out` is null or can be written to.
    pub(crate) unsafe fn give_or_release(mut self, out: *mut ArrowSchema) {
        if out.is_null() {
            // SAFETY: it was just made, by `schema_of`, and no other code has it.
            unsafe { release_schema(&raw mut self) };
        } else {
            // SAFETY: not null, and the caller promises that it can be written to.
            unsafe { out.write(self) };
        }
    }
}

impl ArrowDeviceArray {
    /// An array in the memory of such a device.
    pub(crate) fn new(array: ArrowArray, (device_type, device_id): (i32, i64)) -> ArrowDeviceArray {
        ArrowDeviceArray { array, device_id, device_type, sync_event: null_mut(), reserved: [0; 3] }
    }
}

/// The metadata key for the type of elements that Arrow lacks, as in `uringload-arrow`.
const DTYPE: &str = "uringload:dtype";

/// An array and its type before they are exported. Nothing of it needs to be released.
#[derive(Default)]
struct Node {
    format: String,
    name: String,
    metadata: Vec<(&'static str, String)>,
    length: u64,
    /// Pointers into the batch, or into the two fields below.
    buffers: Vec<*const c_void>,
    children: Vec<Node>,
    /// The views of a column of bytes, 16 bytes each, and the lengths of their buffers.
    views: Vec<u128>,
    lengths: Vec<i64>,
}

/// The location of the values of a column, or of all: the number of a GPU, or `None` for the host.
///
/// # Errors
/// `InvalidArgument` if the columns are in several places.
pub(crate) fn place(batch: &Whole, column: Option<&Seen<'_>>) -> Result<Option<u32>> {
    if let Some(column) = column {
        return Ok(column.device);
    }
    let mut columns = batch.columns();
    let first = columns.next().and_then(|column| column.device);
    match columns.find(|column| column.device != first) {
        None => Ok(first),
        Some(column) => Err(refused(&column, "others are on a GPU, and it is not", "export each column by itself")),
    }
}

/// A column, or all of them as the fields of a struct.
///
/// # Errors
/// `InvalidArgument` for a column that Arrow cannot express.
pub(crate) fn export(batch: &Arc<Whole>, column: Option<Seen<'_>>) -> Result<(ArrowArray, ArrowSchema)> {
    let node = match column {
        Some(column) => node_of(&column)?,
        None => rows(batch)?,
    };
    let schema = schema_of(&node);
    Ok((array_of(node, batch), schema))
}

/// A struct of all columns.
fn rows(batch: &Whole) -> Result<Node> {
    let (mut children, samples) = (Vec::new(), batch.host().len() as u64);
    for column in batch.columns() {
        let node = node_of(&column)?;
        if node.length != samples {
            return Err(refused(&column, "its rows are not samples", "export each column by itself"));
        }
        children.push(node);
    }
    Ok(Node { format: "+s".into(), length: samples, buffers: vec![null()], children, ..Node::default() })
}

fn node_of(column: &Seen<'_>) -> Result<Node> {
    let mut metadata = Vec::new();
    let node = match column.form {
        Form::Dense([]) => elements(column),
        Form::Dense(shape) => {
            if shape.len() > 1 {
                let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
                metadata.push(("ARROW:extension:name", "arrow.fixed_shape_tensor".into()));
                metadata.push(("ARROW:extension:metadata", format!("{{\"shape\":[{}]}}", shape.join(","))));
            }
            lists(column, shape.iter().product())?
        }
        Form::Padded { length, .. } => lists(column, length)?,
        Form::Packed(packed) => lists(column, packed.seq_len)?,
        Form::Ragged(_) if column.device.is_some() => {
            return Err(refused(column, "its offsets are on the host", "take it by UL_DLPACK, with `places`"));
        }
        Form::Ragged(offsets) => Node {
            format: "+L".into(),
            length: (offsets.len() as u64).saturating_sub(1),
            // Offsets of 64 bits, which fit in signed ones: nothing in memory has 2^63 elements.
            buffers: vec![null(), offsets.as_ptr().cast()],
            children: vec![elements(column)],
            ..Node::default()
        },
        Form::Views(views) if column.dtype == DType::U8 => binary(column, views)?,
        Form::Views(_) => {
            return Err(refused(column, "it has a buffer for each value", "set \"collate\": \"ragged\" for it"));
        }
    };
    if !is_arrows(column.dtype) {
        metadata.push((DTYPE, column.dtype.name().into()));
    }
    Ok(Node { name: column.name.to_owned(), metadata, ..node })
}

/// Arrow's letter for the elements. Types that it lacks are numbers of the same size; `bool` is a bit there.
fn letter(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 => "c",
        DType::U16 | DType::BF16 => "S",
        DType::I16 => "s",
        DType::U32 => "I",
        DType::I32 => "i",
        DType::U64 => "L",
        DType::I64 => "l",
        DType::F16 => "e",
        DType::F32 => "f",
        DType::F64 => "g",
        // Bytes, and types of the same size.
        _ => "C",
    }
}

fn is_arrows(dtype: DType) -> bool {
    !matches!(dtype, DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::Bool)
}

/// The elements of a column, one by one.
fn elements(column: &Seen<'_>) -> Node {
    Node {
        format: letter(column.dtype).into(),
        name: "item".into(),
        length: column.elements,
        buffers: vec![null(), column.values],
        ..Node::default()
    }
}

/// Lists of one length.
fn lists(column: &Seen<'_>, length: u64) -> Result<Node> {
    if length == 0 || i32::try_from(length).is_err() {
        let why = format!("its values have {length} elements, and lists of Arrow 1 to 2^31 - 1");
        return Err(refused(column, &why, "take it as a tensor"));
    }
    let item = elements(column);
    Ok(Node {
        format: format!("+w:{length}"),
        length: item.length / length,
        buffers: vec![null()],
        children: vec![item],
        ..Node::default()
    })
}

/// Values of up to this many bytes are stored in their views.
const INLINE_BYTES: usize = 12;

/// Views of bytes: a buffer for each value that is longer than a view can hold.
fn binary(column: &Seen<'_>, values: &[Bytes]) -> Result<Node> {
    let mut node = Node { format: "vz".into(), length: values.len() as u64, ..Node::default() };
    let mut data = Vec::new();
    for value in values {
        let Ok(len) = i32::try_from(value.len()) else {
            return Err(refused(column, "a value has 2 GiB or more", "take its views"));
        };
        // The length; then the value, or its first four bytes, the number of its buffer, and its place there.
        let mut view = [0; 16];
        view[..4].copy_from_slice(&len.to_ne_bytes());
        if value.len() <= INLINE_BYTES {
            view[4..4 + value.len()].copy_from_slice(value);
        } else {
            view[4..8].copy_from_slice(&value[..4]);
            // A batch has fewer than 2^31 samples that are longer than 12 bytes.
            view[8..12].copy_from_slice(&(data.len() as i32).to_ne_bytes());
            data.push(address(value));
            node.lengths.push(len.into());
        }
        node.views.push(u128::from_ne_bytes(view));
    }
    node.buffers = vec![null(), node.views.as_ptr().cast()];
    node.buffers.extend(data);
    node.buffers.push(node.lengths.as_ptr().cast());
    Ok(node)
}

fn address(bytes: &Bytes) -> *const c_void {
    if bytes.is_empty() { null() } else { bytes.as_ptr().cast() }
}

fn refused(column: &Seen<'_>, why: &str, remedy: &'static str) -> Error {
    invalid(format!("column {:?} as an array of Arrow: {why}", column.name), remedy)
}

/// The owned data of an array.
struct KeptArray {
    /// The owner of the buffers.
    _batch: Arc<Whole>,
    buffers: Vec<*const c_void>,
    /// Each from `Box::into_raw`.
    children: Vec<*mut ArrowArray>,
    _views: Vec<u128>,
    _lengths: Vec<i64>,
}

// The last array may be released by any thread.
const _: () = {
    const fn is_of_any_thread<T: Send + Sync>() {}
    is_of_any_thread::<Arc<Whole>>();
};

fn array_of(mut node: Node, batch: &Arc<Whole>) -> ArrowArray {
    let child = |node| Box::into_raw(Box::new(array_of(node, batch)));
    let children: Vec<*mut ArrowArray> = take(&mut node.children).into_iter().map(child).collect();
    let mut kept = Box::new(KeptArray {
        _batch: Arc::clone(batch),
        buffers: node.buffers,
        children,
        _views: node.views,
        _lengths: node.lengths,
    });
    ArrowArray {
        length: node.length.cast_signed(),
        null_count: 0,
        offset: 0,
        n_buffers: kept.buffers.len() as i64,
        n_children: kept.children.len() as i64,
        buffers: kept.buffers.as_mut_ptr(),
        children: if kept.children.is_empty() { null_mut() } else { kept.children.as_mut_ptr() },
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(kept).cast(),
    }
}

/// Releases an array, and its children that were not moved out.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: whoever has the array calls its callback with it, once, as Arrow's specification says; it may have been
    // moved in memory, and nothing here depends on where it lies.
    let array = unsafe { &mut *array };
    // SAFETY: `array_of` put it there by `Box::into_raw`, and this callback, the only one to take it back, runs once.
    let kept = unsafe { Box::from_raw(array.private_data.cast::<KeptArray>()) };
    for &child in &kept.children {
        // SAFETY: `array_of` made it by `Box::into_raw`. Whoever takes a child copies the struct and marks this one as
        // released, but leaves its memory to us.
        let mut child = unsafe { Box::from_raw(child) };
        if let Some(release) = child.release {
            // SAFETY: it has not been released, and is here for the last time.
            unsafe { release(&raw mut *child) };
        }
    }
    (array.release, array.private_data) = (None, null_mut());
}

/// The owned data of a type.
struct KeptSchema {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    /// Each from `Box::into_raw`.
    children: Vec<*mut ArrowSchema>,
}

fn schema_of(node: &Node) -> ArrowSchema {
    let children = node.children.iter().map(|child| Box::into_raw(Box::new(schema_of(child))));
    let mut kept = Box::new(KeptSchema {
        format: owned(&node.format),
        name: owned(&node.name),
        metadata: encoded(&node.metadata),
        children: children.collect(),
    });
    ArrowSchema {
        format: kept.format.as_ptr(),
        name: kept.name.as_ptr(),
        metadata: if kept.metadata.is_empty() { null() } else { kept.metadata.as_ptr().cast() },
        flags: 0,
        n_children: kept.children.len() as i64,
        children: if kept.children.is_empty() { null_mut() } else { kept.children.as_mut_ptr() },
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(kept).cast(),
    }
}

/// Releases a type, and its children that were not moved out.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as in `release_array`.
    let schema = unsafe { &mut *schema };
    // SAFETY: as in `release_array`: `schema_of` put it there.
    let kept = unsafe { Box::from_raw(schema.private_data.cast::<KeptSchema>()) };
    for &child in &kept.children {
        // SAFETY: as in `release_array`: `schema_of` made it.
        let mut child = unsafe { Box::from_raw(child) };
        if let Some(release) = child.release {
            // SAFETY: as in `release_array`.
            unsafe { release(&raw mut *child) };
        }
    }
    (schema.release, schema.private_data) = (None, null_mut());
}

/// Keys and values in Arrow's format: their number, then each after its length, in the processor's byte order.
fn encoded(metadata: &[(&'static str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    if !metadata.is_empty() {
        // A handful of short texts.
        out.extend((metadata.len() as i32).to_ne_bytes());
        for text in metadata.iter().flat_map(|(key, value)| [*key, value]) {
            out.extend((text.len() as i32).to_ne_bytes());
            out.extend(text.as_bytes());
        }
    }
    out
}
