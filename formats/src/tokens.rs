//! Streams of tokens, raw or of Megatron-LM, cut into windows of one length.

use crate::fingerprint::Fingerprint;
use crate::headers::{Source, example, head, map_files};
use crate::megatron::{self, MegatronIndex};
use crate::paths::{Index, index, thread_count};
use crate::skipped::{SkipReason, Skips};
use crate::{DType, Dataset, Field, FileId, FileTable, Sample, SampleId, Schema, Shape, Skipped, Span, Tail, Value};
use bytes::Bytes;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use uringload_core::{Error, ErrorKind, Result};

/// What files of tokens are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSource {
    /// Nothing but tokens, one behind the other, after an optional header: what nanoGPT and its kin write.
    Raw {
        /// Of a token: an integer type.
        dtype: DType,
        /// Bytes before the first token of each file.
        header_bytes: u64,
    },
    /// Megatron-LM's pairs of `.bin` and `.idx`, text only. The index tells type and documents.
    Megatron {
        /// Whether windows keep within documents; otherwise a file is one stream.
        documents: bool,
    },
}

/// How [`Tokens`] are opened.
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// What the files are like.
    pub source: TokenSource,
    /// Tokens of a sample, at least 1: for a model that predicts the next token, its sequence length and one more.
    pub window_tokens: u64,
    /// Tokens from the start of a window to that of the next, at least 1. `None`: one fewer than a window has (at least
    /// 1), so that each token but the first is predicted once.
    pub stride: Option<u64>,
    /// What becomes of tokens behind the last window of a file or document. `Tail::Drop` by [`TokenOptions::new`], as
    /// nearly every document has such a rest; what is dropped is counted.
    pub tail: Tail,
    /// Threads that look for files and read their indices; 0 chooses by the machine.
    pub threads: usize,
}

impl TokenOptions {
    /// Windows of so many tokens, each but the first token predicted once, incomplete windows dropped.
    pub fn new(source: TokenSource, window_tokens: u64) -> TokenOptions {
        TokenOptions { source, window_tokens, stride: None, tail: Tail::Drop, threads: 0 }
    }
}

/// Windows of tokens, all of one length: a sample is the tokens from `start` to `start + window_tokens` of a file or
/// document, and the next sample starts `stride` tokens later. Windows may overlap.
///
/// Where a window lies is arithmetic and a binary search. Memory: 16 bytes for each file, or with
/// [`documents`](TokenSource::Megatron) for each document that is long enough for a window; none for a sample.
///
/// # Paths
/// Folders, files and patterns as for [`Folder`](super::Folder). Of Megatron-LM's pairs either file may be named, or
/// what both names begin with; in folders and patterns, the files whose names end in ".bin" are taken.
#[derive(Debug)]
pub struct Tokens {
    files: FileTable,
    dtype: DType,
    window_tokens: u64,
    stride: u64,
    /// A stretch is a file or a document that has a window: its first byte, and the windows up to and with it.
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// Windows in the files up to and with each.
    file_ends: Vec<u64>,
    schema: Schema,
    skipped: Vec<Skipped>,
    dropped_tokens: u64,
    fingerprint: OnceLock<u64>,
}

impl Tokens {
    /// Whether a path is, or a folder holds nothing but, a pair of Megatron-LM's: raw tokens do not show what they are.
    pub fn detect(path: &Path) -> bool {
        let is_half = |name: &[u8]| name.ends_with(b".bin") || name.ends_with(b".idx");
        let bin = bins(&[path]).into_iter().next().and_then(|path| example(&path, is_half));
        bin.is_some_and(|bin| head(&bin.with_extension("idx")) == megatron::MAGIC)
    }

    /// Opens folders, files and patterns.
    ///
    /// # Errors
    /// As [`Folder::open`](super::Folder::open); `InvalidArgument` for windows or strides of 0 tokens and types that
    /// are no integers; `NotFound` for a `.bin` without its `.idx`; `Corrupt` or `Truncated` for an index that breaks
    /// its format or does not fit its `.bin`, and for a file that is no whole number of tokens; `Truncated` for tokens
    /// behind the last window where [`Tail::Error`] is asked for; `Empty` where there is no window.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &TokenOptions) -> Result<Tokens> {
        let (window_tokens, stride) = check(options)?;
        let threads = thread_count(options.threads);
        let index = match options.source {
            TokenSource::Raw { .. } => index(paths, threads)?,
            TokenSource::Megatron { .. } => only_bins(index(&bins(paths), threads)?)?,
        };
        let Index { files, mut skips, .. } = index;
        let all = 0..files.len() as u32;
        let cut = Cut { window_tokens, stride, tail: options.tail };
        let found = map_files(all, threads, |file| match options.source {
            TokenSource::Raw { dtype, header_bytes } => raw_windows(&files, file, dtype, header_bytes, cut),
            TokenSource::Megatron { documents } => megatron_windows(&files, file, documents, cut),
        })?;
        let dtype = found.first().map_or(DType::U16, |windows| windows.dtype);
        let mut tokens = Tokens {
            dtype,
            window_tokens,
            stride,
            starts: Vec::new(),
            ends: Vec::new(),
            file_ends: Vec::with_capacity(files.len()),
            schema: Schema {
                fields: vec![Field { name: "tokens".into(), dtype, shape: Shape::Fixed(vec![window_tokens]) }],
            },
            skipped: Vec::new(),
            dropped_tokens: 0,
            fingerprint: OnceLock::new(),
            files,
        };
        for (file, windows) in found.into_iter().enumerate() {
            tokens.add(FileId(file as u32), windows, &mut skips)?;
        }
        if tokens.is_empty() {
            let place = tokens.files.roots().first().map_or(Path::new("."), |root| &root.path);
            let doing = format!("no file or document holds a window of {window_tokens} tokens in");
            return Err(Error::new(ErrorKind::Empty, doing).with_file(place).with_remedy("ask for shorter windows"));
        }
        tokens.starts.shrink_to_fit();
        tokens.ends.shrink_to_fit();
        tokens.skipped = skips.into_vec();
        Ok(tokens)
    }

    /// Adds the windows of the next file.
    fn add(&mut self, file: FileId, windows: Windows, skips: &mut Skips) -> Result<()> {
        if windows.dtype != self.dtype {
            let doing = format!("tokens are of {} and not, as before, of {} in", windows.dtype, self.dtype);
            let error = Error::new(ErrorKind::InvalidArgument, doing).with_file(self.files.path(file));
            return Err(error.with_remedy("read files of different types as different datasets"));
        }
        let before = self.ends.last().copied().unwrap_or(0);
        let count = windows.ends.last().copied().unwrap_or(0);
        // Even strides of 1 leave fewer windows than files have bytes; a table full of sparse files may have more.
        let end = before.checked_add(count).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "more than 2^64 windows up to").with_file(self.files.path(file))
        })?;
        self.starts.extend(windows.starts);
        self.ends.extend(windows.ends.iter().map(|end| before + end));
        self.file_ends.push(end);
        self.dropped_tokens = self.dropped_tokens.saturating_add(windows.dropped_tokens);
        if windows.incomplete > 0 {
            skips.add_many(SkipReason::IncompleteWindow, windows.incomplete, &self.files.path(file));
        }
        Ok(())
    }

    /// What was left out, by reason; [`SkipReason::IncompleteWindow`] counts files or documents.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Tokens that are in no window, because they come behind the last one of their file or document.
    pub fn dropped_tokens(&self) -> u64 {
        self.dropped_tokens
    }

    /// Where a window begins: the file, and its first byte there.
    pub fn locate(&self, id: SampleId) -> (FileId, u64) {
        // Files without a window end where they begin, so that the search passes over them.
        let file = self.file_ends.partition_point(|&end| end <= id.0);
        let stretch = self.ends.partition_point(|&end| end <= id.0);
        let before = if stretch == 0 { 0 } else { self.ends[stretch - 1] };
        // Fits: the window ends at or before the file's end.
        (FileId(file as u32), self.starts[stretch] + (id.0 - before) * self.stride * self.dtype.size())
    }

    fn window_bytes(&self) -> u64 {
        // Fits: `check` has seen it.
        self.window_tokens * self.dtype.size()
    }
}

/// The windows' length and stride, if they are sound.
fn check(options: &TokenOptions) -> Result<(u64, u64)> {
    let refuse = |doing: String, remedy| Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy));
    let window = options.window_tokens;
    let stride = options.stride.unwrap_or(window.saturating_sub(1).max(1));
    if let TokenSource::Raw { dtype, .. } = options.source
        && !INTEGERS.contains(&dtype)
    {
        return refuse(format!("tokens of {dtype} are no tokens"), "u8, u16, u32 and i32 are usual");
    }
    if window == 0 || window > TOKENS_MAX || stride == 0 || stride > TOKENS_MAX {
        return refuse(
            format!("windows of {window} tokens, {stride} apart, cannot be"),
            "give the model's sequence length and one more",
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
    tail: Tail,
}

impl Cut {
    /// The number of windows in a stretch, and the number of tokens behind them. Tokens that a stride longer than the
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
    /// Stretches with tokens behind their last window.
    incomplete: u64,
    dropped_tokens: u64,
}

impl Windows {
    fn new(dtype: DType) -> Windows {
        Windows { dtype, starts: Vec::new(), ends: Vec::new(), incomplete: 0, dropped_tokens: 0 }
    }

    /// Adds a stretch of tokens that begins at the byte `start`; if its tail is not to be dropped, returns where it
    /// begins.
    fn add(&mut self, start: u64, tokens: u64, cut: Cut) -> Option<u64> {
        let (count, rest) = cut.windows(tokens);
        if count > 0 {
            self.starts.push(start);
            self.ends.push(self.ends.last().copied().unwrap_or(0) + count);
        }
        self.incomplete += u64::from(rest > 0);
        self.dropped_tokens += rest;
        (rest > 0 && cut.tail == Tail::Error).then(|| start + (tokens - rest) * self.dtype.size())
    }
}

fn raw_windows(files: &FileTable, file: FileId, dtype: DType, header_bytes: u64, cut: Cut) -> Result<Windows> {
    let size = files.size(file);
    let truncated = |doing: String| Error::new(ErrorKind::Truncated, doing).with_file(files.path(file));
    let Some(payload) = size.checked_sub(header_bytes) else {
        return Err(truncated(format!("a header of {header_bytes} bytes does not fit into the {size} bytes of"))
            .with_remedy("check the header size, or leave this file out"));
    };
    let incomplete = payload % dtype.size();
    if incomplete != 0 {
        return Err(truncated(format!("the last token has {incomplete} of {} bytes in", dtype.size()))
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
    let index = MegatronIndex::open(Source::open_path(bin.path().with_extension("idx")).map_err(|error| {
        error.with_remedy("the index of Megatron-LM lies beside the tokens; for tokens without one say their type")
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
    Error::new(ErrorKind::Truncated, "the last window is incomplete in")
        .with_file(files.path(file))
        .with_offset(at)
        .with_remedy("choose another length of windows, or drop incomplete ones")
}

/// The `.bin` files that paths stand for: an `.idx` for its `.bin`, and the beginning of both names for it too.
fn bins<P: AsRef<Path>>(paths: &[P]) -> Vec<PathBuf> {
    let bin = |path: &P| {
        let path = path.as_ref();
        if path.extension().is_some_and(|extension| extension == "idx") {
            return path.with_extension("bin");
        }
        let mut named = OsString::from(path);
        named.push(".bin");
        if !path.exists() && Path::new(&named).exists() { named.into() } else { path.to_path_buf() }
    };
    paths.iter().map(bin).collect()
}

/// Leaves out the files whose names do not end in ".bin"; those that are their indices are not counted.
fn only_bins(index: Index) -> Result<Index> {
    let place = index.files.roots().first().map_or(PathBuf::from("."), |root| root.path.clone());
    let index = index.retain(|name| name.ends_with(b".bin"), |name| !name.ends_with(b".idx"));
    if index.files.is_empty() {
        let error = Error::new(ErrorKind::Empty, "there is no .bin file in").with_file(place);
        return Err(error.with_remedy("tokens of Megatron-LM lie in pairs of .bin and .idx"));
    }
    Ok(index)
}

impl Dataset for Tokens {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn format(&self) -> &'static str {
        "tokens"
    }

    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (file, offset) = self.locate(id);
        out.push(Span { file, offset, len: self.window_bytes() });
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }

    /// The file, and behind a "#" the byte that the window begins at.
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let (file, offset) = self.locate(id);
        out.extend_from_slice(self.files.name(file));
        write!(out, "#{offset}").expect("a Vec takes everything");
    }

    fn bytes(&self) -> u64 {
        self.len().saturating_mul(self.window_bytes())
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
            fingerprint.files(&self.files);
            fingerprint.finish()
        })
    }

    fn plain_field(&self) -> Option<usize> {
        Some(0)
    }

    fn parse_reads_bytes(&self) -> bool {
        false
    }

    /// Every file is a shard.
    fn shards(&self) -> &[u64] {
        &self.file_ends
    }
}
