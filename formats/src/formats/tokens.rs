//! Streams of tokens, raw or of Megatron-LM, cut into windows of one length.

mod megatron;

use crate::dataset::{
    DType, Dataset, Field, FileId, FileTable, Fingerprint, Index, Sample, SampleId, Schema, Shape, SkipReason, Skips,
    Span, Value,
};
use crate::detect::refuse_headers;
use crate::find::paths::{FoundFiles, thread_count};
use crate::format::{Format, Paths, Shows};
use crate::index::headers::{Source, head, map_files};
use crate::options::{FormatOptions, options};
use crate::place::Place;
use bytes::Bytes;
use megatron::MegatronIndex;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of tokens.
    pub struct TokenOptions {
        /// Tokens of a sample: the sequence length and one more.
        window_tokens: u64,
        /// Tokens from the start of a window to that of the next; not given: one fewer than a window has, so that each
        /// token but the first is predicted once.
        stride: Option<u64>,
        /// Type of raw tokens; not given: files are Megatron-LM's, whose index has it.
        token_dtype: Option<DType>,
        /// Bytes before the first record, or raw token, of each file.
        header_bytes: u64,
        /// Keep windows within Megatron-LM's documents; otherwise a file is one stream.
        documents: bool,
        /// Fail if tokens are left after the last window of a file or document, instead of leaving them out.
        whole_windows: bool,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "tokens",
    help: "Windows of raw or Megatron-LM's tokens; need window_tokens.",
    options: TokenOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Path(|place, _| detect(place)),
    open: |paths, options| {
        if !options.is_set("window_tokens") {
            let error = Error::new(ErrorKind::InvalidArgument, "tokens need the length of a sample");
            return Err(
                error.with_remedy("give window_tokens (the sequence length and one more), or the format folder")
            );
        }
        Ok(Arc::new(Tokens::open(paths, &options.typed()?)?))
    },
};

/// Whether a place is a pair of Megatron-LM's, by the name of either or by what both names begin with: raw tokens do
/// not show what they are.
fn detect(place: &Place) -> bool {
    let bin = bin_of(place);
    bin.has_extension("bin") && bin.stat().is_ok_and(|stat| stat.is_file) && has_index(&bin)
}

/// Whether an index of Megatron-LM accompanies a file of tokens.
fn has_index(bin: &Place) -> bool {
    head(&bin.with_extension("idx")) == megatron::MAGIC
}

/// Windows of tokens, all of one length. The place of a window is arithmetic and a binary search.
///
/// Memory: 16 bytes for each file, or with `documents` for each document that is long enough for a window.
#[derive(Debug)]
pub struct Tokens {
    /// Every file is a shard.
    index: Index,
    dtype: DType,
    window_tokens: u64,
    stride: u64,
    /// A stretch is a file or a document that has a window: its first byte, and the windows up to and with it.
    starts: Vec<u64>,
    ends: Vec<u64>,
    fingerprint: OnceLock<u64>,
}

impl Tokens {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &TokenOptions) -> Result<Tokens> {
        let (window_tokens, stride) = check(options)?;
        let threads = thread_count(options.common.threads);
        let found = match options.token_dtype {
            Some(_) => paths.files(threads)?,
            None => {
                paths.rename(paths.iter().map(bin_of).collect());
                only_bins(paths.files(threads)?)?
            }
        };
        let FoundFiles { files, mut skips, .. } = found;
        if options.token_dtype.is_some() && options.header_bytes == 0 {
            refuse_headers(&files, "tokens", paths.formats())?;
        }
        let all = 0..files.len() as u32;
        let cut = Cut { window_tokens, stride, whole_windows: options.whole_windows };
        let found = map_files(all, threads, |file| match options.token_dtype {
            Some(dtype) => raw_windows(&files, file, dtype, options.header_bytes, cut),
            None => megatron_windows(&files, file, options.documents, cut),
        })?;
        let dtype = found.first().map_or(DType::U16, |windows| windows.dtype);
        let field = Field { name: "tokens".into(), dtype, shape: Shape::Fixed(vec![window_tokens]) };
        let index = Index::new("tokens", files, Schema { fields: vec![field] }, 0);
        let (starts, ends, fingerprint) = Default::default();
        let mut tokens = Tokens { index, dtype, window_tokens, stride, starts, ends, fingerprint };
        for (file, windows) in found.into_iter().enumerate() {
            tokens.add(FileId(file as u32), windows, &mut skips)?;
        }
        if tokens.is_empty() {
            let place = tokens.files().place();
            let what = format!("no file or document has {window_tokens} tokens, the length of a window");
            return Err(Error::new(ErrorKind::Empty, what).with_path(place).with_remedy("choose shorter windows"));
        }
        tokens.starts.shrink_to_fit();
        tokens.ends.shrink_to_fit();
        let bytes = tokens.len().saturating_mul(tokens.window_bytes());
        let index = &mut tokens.index;
        (index.bytes, index.plain_field, index.parse_reads_bytes) = (bytes, Some(0), false);
        index.left_out = skips.into_vec();
        Ok(tokens)
    }

    /// Adds the windows of the next file.
    fn add(&mut self, file: FileId, windows: Windows, skips: &mut Skips) -> Result<()> {
        if windows.dtype != self.dtype {
            let what = format!("the tokens are {}, and {} in the files before this one", windows.dtype, self.dtype);
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(self.files().path(file));
            return Err(error.with_remedy("open files with different types as different datasets"));
        }
        let before = self.ends.last().copied().unwrap_or(0);
        let count = windows.ends.last().copied().unwrap_or(0);
        // Even strides of 1 leave fewer windows than files have bytes; a table full of sparse files may have more.
        let end = before.checked_add(count).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "the files have more than 2^64 windows")
                .with_path(self.files().path(file))
        })?;
        self.starts.extend(windows.starts);
        self.ends.extend(windows.ends.iter().map(|end| before + end));
        self.index.shards.push(end);
        self.index.samples = end;
        self.index.dropped_elements = self.index.dropped_elements.saturating_add(windows.dropped_tokens);
        if windows.incomplete > 0 {
            skips.add_many(SkipReason::IncompleteWindow, windows.incomplete, &self.files().path(file));
        }
        Ok(())
    }

    /// Where a window begins: the file, and its first byte there.
    fn locate(&self, id: SampleId) -> (FileId, u64) {
        // Files without a window end where they begin, so that the search passes over them.
        let (stretch, number) = crate::dataset::locate(&self.ends, id.0);
        // Fits: the window ends at or before the file's end.
        (self.index.locate(id).0, self.starts[stretch] + number * self.stride * self.dtype.size())
    }

    fn window_bytes(&self) -> u64 {
        // Fits: `check` has seen it.
        self.window_tokens * self.dtype.size()
    }
}

/// The windows' length and stride, if they are sound.
fn check(options: &TokenOptions) -> Result<(u64, u64)> {
    let refuse = |what: String, remedy| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    let window = options.window_tokens;
    let stride = options.stride.unwrap_or(window.saturating_sub(1).max(1));
    if options.documents && options.token_dtype.is_some() {
        return refuse("raw tokens have no documents".into(), "leave out documents, or token_dtype");
    }
    if let Some(dtype) = options.token_dtype.filter(|dtype| !INTEGERS.contains(dtype)) {
        return refuse(format!("tokens cannot be {dtype}"), "choose an integer type: u8, u16, u32 and i32 are usual");
    }
    if window == 0 || window > TOKENS_MAX || stride == 0 || stride > TOKENS_MAX {
        return refuse(
            format!("windows cannot have {window} tokens and begin {stride} apart"),
            "give the model's sequence length plus one",
        );
    }
    Ok((window, stride))
}

/// Types that tokens may have.
const INTEGERS: [DType; 8] =
    [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];
/// Longest window and stride: files are shorter than 2^63 bytes, and so are windows of the largest type then.
const TOKENS_MAX: u64 = i64::MAX as u64 / 8;

/// How a stretch of tokens is cut.
#[derive(Clone, Copy)]
struct Cut {
    window_tokens: u64,
    stride: u64,
    whole_windows: bool,
}

impl Cut {
    /// The number of windows in a stretch, and the number of tokens after them. Tokens that a stride longer than the
    /// windows passes over do not count.
    fn windows(self, tokens: u64) -> (u64, u64) {
        let Some(room) = tokens.checked_sub(self.window_tokens) else { return (0, tokens) };
        let last = room / self.stride;
        let end = last * self.stride + self.window_tokens;
        (last + 1, tokens.saturating_sub(end.max((last + 1).saturating_mul(self.stride))))
    }
}

/// The windows of one file.
struct Windows {
    dtype: DType,
    starts: Vec<u64>,
    /// Counted from the file's first.
    ends: Vec<u64>,
    /// Stretches with tokens after their last window.
    incomplete: u64,
    dropped_tokens: u64,
}

impl Windows {
    fn new(dtype: DType) -> Windows {
        Windows { dtype, starts: Vec::new(), ends: Vec::new(), incomplete: 0, dropped_tokens: 0 }
    }

    /// Adds a stretch of tokens that begins at the byte `start`; if none may be left after the last window, returns
    /// where it begins.
    fn add(&mut self, start: u64, tokens: u64, cut: Cut) -> Option<u64> {
        let (count, rest) = cut.windows(tokens);
        if count > 0 {
            self.starts.push(start);
            self.ends.push(self.ends.last().copied().unwrap_or(0) + count);
        }
        self.incomplete += u64::from(rest > 0);
        self.dropped_tokens += rest;
        (rest > 0 && cut.whole_windows).then(|| start + (tokens - rest) * self.dtype.size())
    }
}

fn raw_windows(files: &FileTable, file: FileId, dtype: DType, header_bytes: u64, cut: Cut) -> Result<Windows> {
    let size = files.size(file);
    let truncated = |what: String| Error::new(ErrorKind::Truncated, what).with_path(files.path(file));
    let Some(payload) = size.checked_sub(header_bytes) else {
        return Err(truncated(format!(
            "a header of {header_bytes} bytes does not fit into the {size} bytes of the file"
        ))
        .with_remedy("check the header size, or leave this file out"));
    };
    let incomplete = payload % dtype.size();
    if incomplete != 0 {
        return Err(truncated(format!("the last token has {incomplete} of {} bytes", dtype.size()))
            .with_offset(size - incomplete)
            .with_remedy("check the type of tokens and the header size"));
    }
    let mut windows = Windows::new(dtype);
    match windows.add(header_bytes, payload / dtype.size(), cut) {
        None => Ok(windows),
        Some(at) => Err(incomplete_window(files, file, at)),
    }
}

fn megatron_windows(files: &FileTable, file: FileId, documents: bool, cut: Cut) -> Result<Windows> {
    let bin = Source::open(files, file)?;
    let index = MegatronIndex::open(bin.place().with_extension("idx").open().map_err(|error| {
        error.with_remedy("put the index of Megatron-LM beside the tokens, or give the type of tokens without an index")
    })?)?;
    let mut windows = Windows::new(index.dtype);
    let mut start = 0;
    index.documents(&bin, |tokens| {
        if documents && let Some(at) = windows.add(start, tokens, cut) {
            return Err(incomplete_window(files, file, at));
        }
        start += tokens * index.dtype.size();
        Ok(())
    })?;
    if !documents && let Some(at) = windows.add(0, start / index.dtype.size(), cut) {
        return Err(incomplete_window(files, file, at));
    }
    Ok(windows)
}

fn incomplete_window(files: &FileTable, file: FileId, at: u64) -> Error {
    Error::new(ErrorKind::Truncated, "the last window is incomplete")
        .with_path(files.path(file))
        .with_offset(at)
        .with_remedy("choose another length of windows, or drop incomplete windows")
}

/// The `.bin` file that is meant: an `.idx` stands for its `.bin`, and so does the beginning of both names.
fn bin_of(place: &Place) -> Place {
    if place.has_extension("idx") {
        return place.with_extension("bin");
    }
    let named = place.and(".bin");
    if !place.is_there() && named.is_there() { named } else { place.clone() }
}

/// Leaves out the files whose names do not end in ".bin"; those that are their indices are not counted.
fn only_bins(index: FoundFiles) -> Result<FoundFiles> {
    let place = index.files.place().to_path_buf();
    let index = index.retain(|name| name.ends_with(b".bin"), |name| !name.ends_with(b".idx"));
    if index.files.is_empty() {
        let error = Error::new(ErrorKind::Empty, "the folder has no .bin file").with_path(place);
        return Err(error
            .with_remedy("tokens of Megatron-LM are pairs of .bin and .idx files: name a folder or files of these"));
    }
    Ok(index)
}

impl Dataset for Tokens {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, offset) = self.locate(id);
        out.push(Span { file, offset, len: self.window_bytes() });
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }

    /// The file, and after a "#" the byte at which the window begins.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, offset) = self.locate(id);
        out.extend_from_slice(self.files().name(file));
        write!(out, "#{offset}").expect("a Vec takes everything");
    }

    fn largest(&self, count: u64) -> u64 {
        count.min(self.len()).saturating_mul(self.window_bytes())
    }

    /// FNV-1a over "tokens", type, window, stride, where all stretches begin and how many windows they have, and names
    /// and sizes of all files in order.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut fingerprint = Fingerprint::new("tokens");
            fingerprint.bytes(self.dtype.name().as_bytes());
            fingerprint.number(self.window_tokens);
            fingerprint.number(self.stride);
            fingerprint.number(self.starts.len() as u64);
            for (&start, &end) in self.starts.iter().zip(&self.ends) {
                fingerprint.number(start);
                fingerprint.number(end);
            }
            fingerprint.files(self.files());
            fingerprint.finish()
        })
    }
}
