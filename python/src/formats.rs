//! From paths and wishes to a dataset: which format files show, and how each is opened. What the command line does by
//! its options, with the same rules.

use crate::errors::invalid;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::config::Fallback;
use uringload::dataset::{
    ArrayFormat, ArrayOptions, ArraySamples, Arrays, ArrowIpc, BadShards, Beton, BetonOptions, ColumnarOptions, DType,
    Damaged, Dataset, Folder, FolderOptions, Hdf5, Hdf5Options, Labels, LineFormat, LineOptions, Lines, LitData,
    LitDataOptions, Mds, MdsOptions, Missing, Parquet, RecordOptions, Records, Skipped, Tail, Tar, TarOptions,
    TfRecord, TfRecordContent, TfRecordOptions, TokenOptions, TokenSource, Tokens,
};
use uringload::{Error, ErrorKind, Result};

/// What is asked of the files. A dictionary in Python, with exactly these keys; `None` where nothing was said.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wishes {
    format: Option<String>,
    record_bytes: Option<u64>,
    header_bytes: Option<u64>,
    drop_tail: Option<bool>,
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    labels: Option<bool>,
    block_size: Option<u64>,
    allow_bad_shards: Option<bool>,
    verify_hashes: Option<bool>,
    rows: Option<bool>,
    tensors: Option<Vec<String>>,
    window_tokens: Option<u64>,
    stride: Option<u64>,
    token_dtype: Option<String>,
    documents: Option<bool>,
    fields: Option<Vec<String>>,
    missing: Option<String>,
    columns: Option<Vec<String>>,
    delimiter: Option<String>,
    header: Option<bool>,
    index_cache: Option<PathBuf>,
    keep_damaged: Option<bool>,
    whole_records: Option<bool>,
    verify_crc: Option<bool>,
}

/// A dataset, with what only its own type knows.
pub(crate) struct Opened {
    pub(crate) dataset: Arc<dyn Dataset>,
    /// How each column is stored, in the words of the format; empty where there are none.
    pub(crate) encodings: Vec<String>,
    pub(crate) skipped: Vec<Skipped>,
    /// What went otherwise than wished, in words.
    pub(crate) remarks: Vec<String>,
    pub(crate) classes: Vec<std::ffi::OsString>,
}

impl Opened {
    fn new(dataset: impl Dataset, encodings: Vec<String>, skipped: &[Skipped]) -> Opened {
        let dataset = Arc::new(dataset);
        Opened { dataset, encodings, skipped: skipped.to_vec(), remarks: Vec::new(), classes: Vec::new() }
    }

    fn remark(mut self, fallbacks: &[Fallback], damaged: &[Error]) -> Opened {
        self.remarks.extend(fallbacks.iter().map(ToString::to_string));
        self.remarks.extend(damaged.iter().map(|error| format!("left out from there on: {error}")));
        self
    }
}

impl Wishes {
    /// Opens the files.
    ///
    /// # Errors
    /// What the format says; `InvalidArgument` for a wish that it has no use for.
    pub(crate) fn open(&self, paths: &[PathBuf]) -> Result<Opened> {
        let format = match (&self.format, self.record_bytes) {
            (Some(format), _) => format.as_str(),
            (None, Some(_)) => "records",
            (None, None) => self.detect(paths),
        };
        self.check(format)?;
        match format {
            "folder" => self.folder(paths),
            "records" => self.records(paths),
            "mds" | "litdata" | "beton" => self.shards(format, paths),
            "npy" => self.arrays(ArrayFormat::Npy, paths),
            "npz" => self.arrays(ArrayFormat::Npz, paths),
            "safetensors" => self.arrays(ArrayFormat::Safetensors, paths),
            "hdf5" => {
                let datasets = self.tensors.clone().unwrap_or_default();
                let hdf5 = Hdf5::open(paths, &Hdf5Options { datasets, ..Hdf5Options::default() })?;
                let (encodings, skipped) = (hdf5.encodings(), hdf5.skipped().to_vec());
                Ok(Opened::new(hdf5, encodings, &skipped))
            }
            "tokens" => self.tokens(paths),
            "tar" => self.tar(paths),
            "tfrecord" => self.tfrecord(paths),
            "jsonl" => self.lines(LineFormat::Jsonl, paths),
            "csv" => self.lines(LineFormat::Csv, paths),
            "text" => self.lines(LineFormat::Text, paths),
            "parquet" | "arrow" => self.tables(format, paths),
            // `check` has refused it.
            _ => Err(self.unknown(format)),
        }
    }

    /// The format that all paths show; a folder of files where they show none.
    fn detect(&self, paths: &[PathBuf]) -> &'static str {
        let all = |shows: &dyn Fn(&Path) -> bool| !paths.is_empty() && paths.iter().all(|path| shows(path));
        let array = |format| all(&|path| ArrayFormat::detect(path) == Some(format));
        let lines = |format| all(&|path| LineFormat::detect(path) == Some(format));
        // Whoever names a type of elements has files of numbers, whatever they are called.
        let any = self.dtype.is_none();
        match () {
            () if any && lines(LineFormat::Jsonl) => "jsonl",
            () if any && lines(LineFormat::Csv) => "csv",
            () if any && lines(LineFormat::Text) => "text",
            () if all(&|path| Mds::detect(path)) => "mds",
            () if all(&|path| LitData::detect(path)) => "litdata",
            () if all(&|path| Beton::detect(path)) => "beton",
            () if array(ArrayFormat::Npy) => "npy",
            () if array(ArrayFormat::Npz) => "npz",
            () if array(ArrayFormat::Safetensors) => "safetensors",
            () if all(&|path| Hdf5::detect(path)) => "hdf5",
            () if all(&|path| Tokens::detect(path)) => "tokens",
            () if all(&|path| Parquet::detect(path)) => "parquet",
            () if all(&|path| ArrowIpc::detect(path)) => "arrow",
            () => "folder",
        }
    }

    /// Refuses wishes that the format has no use for, and formats that there are not.
    fn check(&self, format: &str) -> Result<()> {
        let Some((_, useful)) = USES.iter().find(|(name, _)| *name == format) else {
            return Err(self.unknown(format));
        };
        // What a folder's files are is only seen when it is open: it may be a tar's or TFRecord's.
        let is_open = format == "folder" && self.format.is_none();
        let others = if is_open { [TAR, TFRECORD].concat() } else { Vec::new() };
        let idle = self.given().into_iter().find(|name| !useful.contains(name) && !others.contains(name));
        idle.map_or(Ok(()), |name| {
            let which: Vec<&str> =
                USES.iter().filter(|(_, useful)| useful.contains(&name)).map(|&(format, _)| format).collect();
            let doing = format!("{name} is of no use to format={format:?}");
            let remedy = format!("leave it away; it is for format {}", which.join(", "));
            Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy))
        })
    }

    fn unknown(&self, format: &str) -> Error {
        let names: Vec<&str> = USES.iter().map(|&(name, _)| name).collect();
        let error = Error::new(ErrorKind::InvalidArgument, format!("there is no format {format:?}"));
        error.with_remedy(format!("formats are {}", names.join(", ")))
    }

    /// The names of what was said, beside the format.
    fn given(&self) -> Vec<&'static str> {
        let said = [
            ("record_bytes", self.record_bytes.is_some()),
            ("header_bytes", self.header_bytes.is_some()),
            ("drop_tail", self.drop_tail.is_some()),
            ("dtype", self.dtype.is_some()),
            ("shape", self.shape.is_some()),
            ("labels", self.labels.is_some()),
            ("block_size", self.block_size.is_some()),
            ("allow_bad_shards", self.allow_bad_shards.is_some()),
            ("verify_hashes", self.verify_hashes.is_some()),
            ("rows", self.rows.is_some()),
            ("tensors", self.tensors.is_some()),
            ("window_tokens", self.window_tokens.is_some()),
            ("stride", self.stride.is_some()),
            ("token_dtype", self.token_dtype.is_some()),
            ("documents", self.documents.is_some()),
            ("fields", self.fields.is_some()),
            ("missing", self.missing.is_some()),
            ("columns", self.columns.is_some()),
            ("delimiter", self.delimiter.is_some()),
            ("header", self.header.is_some()),
            ("index_cache", self.index_cache.is_some()),
            ("keep_damaged", self.keep_damaged.is_some()),
            ("whole_records", self.whole_records.is_some()),
            ("verify_crc", self.verify_crc.is_some()),
        ];
        said.into_iter().filter(|&(_, given)| given).map(|(name, _)| name).collect()
    }

    fn folder(&self, paths: &[PathBuf]) -> Result<Opened> {
        let labels = match self.labels {
            None => Labels::Auto,
            Some(true) => Labels::Required,
            Some(false) => Labels::None,
        };
        let options = FolderOptions { labels, dtype: self.dtype()?, ..FolderOptions::default() };
        let folder = Folder::open_with(paths, &options)?;
        // Looked at only where no format was asked for: whoever says folder means it.
        if self.format.is_none() && self.dtype.is_none() {
            if Tar::is_made_of(folder.files()) {
                self.check("tar")?;
                return self.tar(paths);
            }
            if TfRecord::is_made_of(folder.files()) {
                self.check("tfrecord")?;
                return self.tfrecord(paths);
            }
            Wishes { format: Some("folder".into()), ..self.clone() }.check("folder")?;
        }
        let (classes, skipped) = (folder.classes().to_vec(), folder.skipped().to_vec());
        Ok(Opened { classes, ..Opened::new(folder, Vec::new(), &skipped) })
    }

    fn records(&self, paths: &[PathBuf]) -> Result<Opened> {
        let Some(record_bytes) = self.record_bytes else {
            return Err(invalid("format=\"records\" needs the size of a record".into(), "give record_bytes"));
        };
        let options = RecordOptions {
            record_bytes,
            header_bytes: self.header_bytes.unwrap_or(0),
            tail: if self.drop_tail.unwrap_or(false) { Tail::Drop } else { Tail::Error },
            dtype: self.dtype()?,
            shape: self.shape.clone().unwrap_or_default(),
            ..RecordOptions::default()
        };
        let records = Records::open(paths, &options)?;
        let skipped = records.skipped().to_vec();
        Ok(Opened::new(records, Vec::new(), &skipped))
    }

    fn shards(&self, format: &str, paths: &[PathBuf]) -> Result<Opened> {
        let allow = self.allow_bad_shards.unwrap_or(false);
        let bad_shards = if allow { BadShards::FailSamples } else { BadShards::Refuse };
        Ok(match format {
            "mds" => {
                let verify_hashes = self.verify_hashes.unwrap_or(false);
                let mds = Mds::open(paths, &MdsOptions { bad_shards, verify_hashes, ..MdsOptions::default() })?;
                let encodings = mds.encodings();
                Opened::new(mds, encodings, &[])
            }
            "litdata" => {
                let block_size = self.block_size;
                let lit =
                    LitData::open(paths, &LitDataOptions { block_size, bad_shards, ..LitDataOptions::default() })?;
                let (encodings, skipped) = (lit.encodings(), lit.skipped().to_vec());
                Opened::new(lit, encodings, &skipped)
            }
            _ => {
                let beton = Beton::open(paths, &BetonOptions::default())?;
                let encodings = beton.encodings();
                Opened::new(beton, encodings, &[])
            }
        })
    }

    fn arrays(&self, format: ArrayFormat, paths: &[PathBuf]) -> Result<Opened> {
        let names = self.tensors.clone().unwrap_or_default();
        let samples = match (self.rows.unwrap_or(false), format) {
            (true, _) => ArraySamples::Rows,
            // Whoever names tensors wants a column of each.
            (false, ArrayFormat::Safetensors) if names.is_empty() => ArraySamples::Arrays,
            _ => ArraySamples::Files,
        };
        let arrays = Arrays::open(format, paths, &ArrayOptions { samples, names, ..ArrayOptions::default() })?;
        let skipped = arrays.skipped().to_vec();
        Ok(Opened::new(arrays, Vec::new(), &skipped))
    }

    fn tokens(&self, paths: &[PathBuf]) -> Result<Opened> {
        let Some(window_tokens) = self.window_tokens else {
            let doing = "tokens need the length of a sample".into();
            return Err(invalid(doing, "give window_tokens (the sequence length and one more), or format=\"folder\""));
        };
        let source = match &self.token_dtype {
            Some(dtype) => TokenSource::Raw { dtype: named(dtype)?, header_bytes: self.header_bytes.unwrap_or(0) },
            None => TokenSource::Megatron { documents: self.documents.unwrap_or(false) },
        };
        let options = TokenOptions { stride: self.stride, ..TokenOptions::new(source, window_tokens) };
        let tokens = Tokens::open(paths, &options)?;
        let skipped = tokens.skipped().to_vec();
        Ok(Opened::new(tokens, Vec::new(), &skipped))
    }

    fn tar(&self, paths: &[PathBuf]) -> Result<Opened> {
        let options = TarOptions {
            fields: self.fields.clone(),
            missing: self.missing()?,
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            ..TarOptions::default()
        };
        let tar = Tar::open(paths, &options)?;
        let (fallbacks, damaged) = (tar.fallbacks().to_vec(), tar.damaged().to_vec());
        let skipped = tar.skipped().to_vec();
        // The name of a field is its extension, which says how it is encoded.
        let encodings = tar.schema().fields.iter().map(|field| field.name.clone()).collect();
        Ok(Opened::new(tar, encodings, &skipped).remark(&fallbacks, &damaged))
    }

    fn tfrecord(&self, paths: &[PathBuf]) -> Result<Opened> {
        let whole = self.whole_records.unwrap_or(false);
        let options = TfRecordOptions {
            content: if whole { TfRecordContent::Bytes } else { TfRecordContent::Auto },
            fields: self.fields.clone(),
            missing: self.missing()?,
            verify_crc: self.verify_crc.unwrap_or(true),
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            ..TfRecordOptions::default()
        };
        let records = TfRecord::open(paths, &options)?;
        let (fallbacks, damaged) = (records.fallbacks().to_vec(), records.damaged().to_vec());
        let (encodings, skipped) = (records.encodings(), records.skipped().to_vec());
        Ok(Opened::new(records, encodings, &skipped).remark(&fallbacks, &damaged))
    }

    fn lines(&self, format: LineFormat, paths: &[PathBuf]) -> Result<Opened> {
        let typed: Vec<_> = self.columns.iter().flatten().map(|column| typed(column)).collect();
        let delimiter = match self.delimiter.as_deref().map(str::as_bytes) {
            None => None,
            Some(&[byte]) => Some(byte),
            Some(b"tab") => Some(b'\t'),
            Some(_) => return Err(invalid("delimiter is one character".into(), "give \",\", \";\", \"|\" or \"tab\"")),
        };
        let options = LineOptions {
            format,
            columns: typed.iter().map(|(name, _)| (*name).to_owned()).collect(),
            dtypes: typed.iter().filter_map(|&(name, dtype)| Some((name.to_owned(), dtype?))).collect(),
            no_header: !self.header.unwrap_or(true),
            delimiter,
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            ..LineOptions::default()
        };
        let lines = Lines::open(paths, &options)?;
        let (fallbacks, damaged) = (lines.fallbacks().to_vec(), lines.damaged().to_vec());
        let skipped = lines.skipped().to_vec();
        let encodings = lines.schema().fields.iter().map(|_| "text".to_owned()).collect();
        Ok(Opened::new(lines, encodings, &skipped).remark(&fallbacks, &damaged))
    }

    fn tables(&self, format: &str, paths: &[PathBuf]) -> Result<Opened> {
        let columns = self.columns.clone().unwrap_or_default();
        if let Some(column) = columns.iter().find(|column| typed(column).1.is_some()) {
            let doing = format!("a column of {format} has the type that its file says, so {column:?} cannot name one");
            return Err(invalid(doing, "name it without a type"));
        }
        let options = ColumnarOptions { columns, ..ColumnarOptions::default() };
        Ok(if format == "parquet" {
            let parquet = Parquet::open(paths, &options)?;
            let (encodings, skipped) = (parquet.encodings(), parquet.skipped().to_vec());
            Opened::new(parquet, encodings, &skipped)
        } else {
            let arrow = ArrowIpc::open(paths, &options)?;
            let (encodings, skipped) = (arrow.encodings(), arrow.skipped().to_vec());
            Opened::new(arrow, encodings, &skipped)
        })
    }

    fn dtype(&self) -> Result<DType> {
        self.dtype.as_deref().map_or(Ok(DType::default()), named)
    }

    fn missing(&self) -> Result<Missing> {
        match self.missing.as_deref() {
            None | Some("error") => Ok(Missing::Error),
            Some("empty") => Ok(Missing::Empty),
            Some(other) => Err(invalid(format!("missing cannot be {other:?}"), "it is \"error\" or \"empty\"")),
        }
    }

    fn damaged(&self) -> Damaged {
        if self.keep_damaged.unwrap_or(false) { Damaged::Keep } else { Damaged::Error }
    }
}

/// What stands behind the last colon is a type if it is the name of one, and part of the column's name if not.
fn typed(column: &str) -> (&str, Option<DType>) {
    match column.rsplit_once(':').and_then(|(name, dtype)| Some((name, DType::named(dtype)?))) {
        Some((name, dtype)) => (name, Some(dtype)),
        None => (column, None),
    }
}

fn named(name: &str) -> Result<DType> {
    DType::named(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::InvalidArgument, format!("there is no type of elements {name:?}"));
        error.with_remedy(format!("types are {}", DType::ALL.map(DType::name).join(", ")))
    })
}

const TAR: &[&str] = &["fields", "missing", "index_cache", "keep_damaged"];
const TFRECORD: &[&str] = &["fields", "missing", "index_cache", "keep_damaged", "whole_records", "verify_crc"];
const LINES: &[&str] = &["columns", "index_cache", "keep_damaged"];
const ARRAYS: &[&str] = &["rows", "tensors"];

/// What each format has a use for.
const USES: [(&str, &[&str]); 17] = [
    ("folder", &["dtype", "labels"]),
    ("records", &["record_bytes", "header_bytes", "drop_tail", "dtype", "shape"]),
    ("mds", &["allow_bad_shards", "verify_hashes"]),
    ("litdata", &["block_size", "allow_bad_shards"]),
    ("beton", &[]),
    ("npy", ARRAYS),
    ("npz", ARRAYS),
    ("safetensors", ARRAYS),
    ("hdf5", &["tensors"]),
    ("tokens", &["window_tokens", "stride", "token_dtype", "documents", "header_bytes"]),
    ("tar", TAR),
    ("tfrecord", TFRECORD),
    ("jsonl", LINES),
    ("csv", &["columns", "index_cache", "keep_damaged", "delimiter", "header"]),
    ("text", LINES),
    ("parquet", &["columns"]),
    ("arrow", &["columns"]),
];
