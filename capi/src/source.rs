//! Datasets made of callbacks: the caller says where samples are, and the library reads them.

use crate::{all, call, give_dataset, given, invalid, read, ul_dataset, ul_error};
use bytes::Bytes;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use uringload::dataset::{
    DType, Dataset, Field, FileId, FileTable, Index, Sample, SampleId, Schema, Shape, Span, Value, largest_of,
};
use uringload::{Error, ErrorKind, Result};

/// The most spans that a sample may have.
const SPANS_MAX: usize = 4096;

/// A piece of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ul_span {
    /// Number of the file, from 0.
    pub file: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Bytes in memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ul_bytes {
    /// The first one.
    pub data: *const u8,
    /// Their number.
    pub len: usize,
}

/// One column.
#[repr(C)]
pub struct ul_field {
    /// Its name.
    pub name: *const c_char,
    /// The type of its elements: "u8", "f32", ...
    pub dtype: *const c_char,
    /// The shape of a value; null: it has one dimension of any length.
    pub shape: *const u64,
    /// Number of dimensions, if `shape` is not null.
    pub dimensions: usize,
}

/// A sample's value of one column, filled in by `parse`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ul_value {
    /// The bytes, copied when `parse` returns; null: they are in what was read.
    pub data: *const u8,
    /// Index of the span that contains them.
    pub span: usize,
    /// Their first byte in that span.
    pub offset: usize,
    /// Their number.
    pub len: usize,
}

type Spans = unsafe extern "C" fn(*mut c_void, u64, *mut ul_span, usize, *mut usize) -> c_int;
type Parse = unsafe extern "C" fn(*mut c_void, u64, *const ul_bytes, usize, *mut ul_value, usize) -> c_int;
type Drops = unsafe extern "C" fn(*mut c_void);

/// A dataset of the caller's.
#[repr(C)]
pub struct ul_source {
    /// Bytes of this struct, set by the caller.
    pub size: usize,
    /// Passed to each callback.
    pub context: *mut c_void,
    /// Paths of the files.
    pub paths: *const *const c_char,
    /// Their number.
    pub path_count: usize,
    /// The columns.
    pub fields: *const ul_field,
    /// Their number.
    pub field_count: usize,
    /// Number of samples.
    pub samples: u64,
    /// Identifies everything that order and content depend on; 0: made of the files and columns.
    pub fingerprint: u64,
    /// Fills in the spans of a sample.
    pub spans: Option<Spans>,
    /// Fills in the values of a sample; null: value i is span i.
    pub parse: Option<Parse>,
    /// Called once, when the context is no longer used; may be null.
    pub drop: Option<Drops>,
    /// Bytes of all samples; 0: computed from the spans of every sample.
    pub bytes: u64,
    /// Maximum bytes of a sample; 0: computed from the spans of every sample.
    pub largest: u64,
}

/// Maximum number of samples whose lengths are computed one by one.
const ASKED_MAX: u64 = 1 << 32;

/// The caller's context and callbacks.
struct Callbacks {
    context: *mut c_void,
    spans: Spans,
    parse: Option<Parse>,
    drop: Option<Drops>,
}

// SAFETY: the header says that callbacks are called from threads of the library, several at a time, and `ul_dataset_of`
// requires of its caller that context and callbacks bear that.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the caller's callback with the caller's context, called once, when no other call is under way.
            unsafe { drop(self.context) };
        }
    }
}

struct Source {
    index: Index,
    callbacks: Callbacks,
    fingerprint: u64,
    /// 0: unknown.
    largest: u64,
}

/// Makes a dataset of callbacks.
///
/// # Safety
/// Pointers are null or what the header says of them. The callbacks may be called from any thread, several at a time,
/// until `drop` was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ul_dataset_of(
    source: *const ul_source,
    out: *mut *mut ul_dataset,
    error: *mut *mut ul_error,
) -> i32 {
    let work = || {
        // SAFETY: by the caller's promise; zeros are null pointers, numbers, and callbacks that are not there. Programs
        // of the first header end their struct before `bytes`.
        let source = &unsafe { read(source, offset_of!(ul_source, bytes), "source") }?;
        let spans = source.spans.ok_or_else(|| invalid("source.spans is null", "give a callback"))?;
        // SAFETY: by the caller's promise.
        let files = unsafe { files(source) }?;
        // SAFETY: by the caller's promise.
        let fields = unsafe { fields(source) }?;
        let is_plain = source.parse.is_none() && fields.len() == 1;
        let mut index = Index::new("callbacks", files, Schema { fields }, source.samples);
        // Without `parse`, no callback looks at bytes; a sample's only piece is the value of its only column.
        index.parse_reads_bytes = source.parse.is_some();
        index.plain_field = is_plain.then_some(0);
        let is_asked = source.bytes == 0 || source.largest == 0;
        if is_asked && source.samples > ASKED_MAX {
            let what = format!("each of {} samples would be asked how long it is", source.samples);
            return Err(invalid(what, "set source.bytes and source.largest"));
        }
        let callbacks = Callbacks { context: source.context, spans, parse: source.parse, drop: None };
        let mut dataset = Source { index, callbacks, fingerprint: source.fingerprint, largest: source.largest };
        dataset.index.bytes = match source.bytes {
            0 => (0..dataset.len()).map(|id| dataset.bytes_of(SampleId(id))).fold(0, u64::saturating_add),
            known => known,
        };
        if out.is_null() {
            return Err(invalid("out is null", "give the address of a variable for the result"));
        }
        // From here on nothing fails, so the context is the library's to drop.
        dataset.callbacks.drop = source.drop;
        // SAFETY: by the caller's promise.
        unsafe { give_dataset(ul_dataset { dataset: Arc::new(dataset), mixture: None }, out) }
    };
    // SAFETY: by the caller's promise.
    unsafe { call(error, work) }
}

/// # Safety
/// As `ul_dataset_of`.
unsafe fn files(source: &ul_source) -> Result<FileTable> {
    // SAFETY: by the caller's promise, here and for each path.
    let paths = unsafe { all(source.paths, source.path_count, "source.paths") }?;
    let (mut files, mut folder) = (FileTable::new(), None);
    for &path in paths {
        // SAFETY: null or a text, by the caller's promise.
        let text = unsafe { given(path, "a path") }.map(|_| unsafe { CStr::from_ptr(path) })?;
        let path = Path::new(OsStr::from_bytes(text.to_bytes()));
        let failed = |source| {
            let error = Error::io("cannot look at the file", source).with_path(path);
            error.with_remedy("check the path, and that this user may look into its folder")
        };
        let whole = std::path::absolute(path).map_err(failed)?;
        let size = whole.metadata().map_err(failed)?.len();
        let (parent, name) = (whole.parent().unwrap_or(Path::new("/")), whole.file_name().unwrap_or_default());
        if folder.as_deref() != Some(parent) {
            files.push_root(parent);
            folder = Some(parent.to_owned());
        }
        files.push(name.as_bytes(), size).ok_or_else(|| invalid("these are more than 2^32 files", "name fewer"))?;
    }
    Ok(files)
}

/// # Safety
/// As `ul_dataset_of`.
unsafe fn fields(source: &ul_source) -> Result<Vec<Field>> {
    // SAFETY: by the caller's promise, here and for each field.
    let fields = unsafe { all(source.fields, source.field_count, "source.fields") }?;
    let field = |field: &ul_field| {
        // SAFETY: by the caller's promise.
        let name = unsafe { crate::text(field.name, "a field's name") }?;
        // SAFETY: by the caller's promise.
        let dtype = unsafe { crate::text(field.dtype, "a field's dtype") }?;
        let name = name.ok_or_else(|| invalid("a field has no name", "name it"))?.to_owned();
        let dtype = dtype.and_then(DType::named).ok_or_else(|| {
            invalid(format!("{name} has the type {dtype:?}"), "give u8, i8, u16, i16, i32, i64, f16, bf16, f32, ...")
        })?;
        let shape = if field.shape.is_null() {
            Shape::Ragged
        } else {
            // SAFETY: by the caller's promise.
            Shape::Fixed(unsafe { all(field.shape, field.dimensions, "a field's shape") }?.to_vec())
        };
        Ok(Field { name, dtype, shape })
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<Field>>>()?;
    if fields.is_empty() {
        return Err(invalid("source has no fields", "give one or more"));
    }
    Ok(fields)
}

impl Source {
    fn bytes_of(&self, id: SampleId) -> u64 {
        let mut spans = Vec::new();
        self.spans(id, &mut spans);
        spans.iter().map(|span| span.len).fold(0, u64::saturating_add)
    }

    fn wrong(&self, id: SampleId, what: String) -> Error {
        Error::new(ErrorKind::Corrupt, format!("{what} for sample {}", id.0))
            .with_remedy("see the callbacks of the program that made the dataset")
    }
}

impl Dataset for Source {
    fn index(&self) -> &Index {
        &self.index
    }

    /// A sample that the callback refuses has no spans, and `parse` fails.
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (first, nothing) = (out.len(), ul_span { file: 0, offset: 0, len: 0 });
        let mut told = [nothing; 8].to_vec();
        for _ in 0..2 {
            let mut count = 0;
            // SAFETY: the caller's callback with its context; it may write `told.len()` spans, and the count.
            let status = unsafe {
                (self.callbacks.spans)(self.callbacks.context, id.0, told.as_mut_ptr(), told.len(), &raw mut count)
            };
            if status != 0 || count > SPANS_MAX {
                return;
            }
            if count <= told.len() {
                // A file number that does not fit belongs to no file: the loader reports that.
                let file = |file: u64| FileId(u32::try_from(file).unwrap_or(u32::MAX));
                out.extend(told[..count].iter().map(|&ul_span { file: at, offset, len }| Span {
                    file: file(at),
                    offset,
                    len,
                }));
                return;
            }
            told.resize(count, nothing);
        }
        out.truncate(first);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let fields = self.index.schema.fields.len();
        let Some(parse) = self.callbacks.parse else {
            if raw.len() != fields {
                let what = format!("\"spans\" gave {} pieces for {fields} columns,", raw.len());
                return Err(self.wrong(id, what));
            }
            out.values.extend(raw.iter().map(|bytes| Value::Bytes(bytes.clone())));
            return Ok(());
        };
        let read: Vec<ul_bytes> = raw.iter().map(|bytes| ul_bytes { data: bytes.as_ptr(), len: bytes.len() }).collect();
        let mut values = vec![ul_value { data: std::ptr::null(), span: 0, offset: 0, len: 0 }; fields];
        // SAFETY: the caller's callback with its context; it may read what was read and write `fields` values.
        let status = unsafe {
            parse(self.callbacks.context, id.0, read.as_ptr(), read.len(), values.as_mut_ptr(), values.len())
        };
        if status != 0 {
            return Err(self.wrong(id, format!("\"parse\" returned {status}")));
        }
        for ul_value { data, span, offset, len } in values {
            let bytes = if data.is_null() {
                let of = raw.get(span).filter(|bytes| offset.checked_add(len).is_some_and(|end| end <= bytes.len()));
                let told = || self.wrong(id, format!("\"parse\" gave bytes {offset}.. of piece {span}"));
                of.ok_or_else(told)?.slice(offset..offset + len)
            } else if isize::try_from(len).is_err() {
                return Err(self.wrong(id, format!("\"parse\" gave a value of {len} bytes, which is too long,")));
            } else {
                // SAFETY: the callback says that there are `len` bytes, until its next call for this thread.
                Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(data, len) })
            };
            out.values.push(Value::Bytes(bytes));
        }
        Ok(())
    }

    fn largest(&self, count: u64) -> u64 {
        match self.largest {
            0 => largest_of((0..self.len()).map(|id| self.bytes_of(SampleId(id))), count),
            known => known.saturating_mul(count.min(self.len())),
        }
    }

    fn fingerprint(&self) -> u64 {
        match self.fingerprint {
            0 => uringload::dataset::Fingerprint::of(&self.index).finish(),
            own => own,
        }
    }
}
