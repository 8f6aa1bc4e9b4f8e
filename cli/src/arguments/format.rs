//! Options of what the files are: their format, and what each format wants to know.

use super::super::units::parse_bytes;
use super::{Failing, LineArguments};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;
use uringload::config::OnError;
use uringload::dataset::{
    DType, Damaged, LineFormat, LineOptions, Missing, TarOptions, TfRecordContent, TfRecordOptions,
};

/// How the dataset's files are to be understood.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Dataset")]
pub struct Format {
    /// How files make samples [default: records with --record-size; else what the files show; else folder].
    #[arg(long)]
    pub format: Option<FormatName>,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub record_size: Option<u64>,
    /// Bytes before the first record or raw token of each file.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    pub header_size: u64,
    /// Leave out bytes at a file's end that do not make a whole record, instead of failing.
    #[arg(long, requires = "record_size")]
    pub drop_tail: bool,
    /// Type of the elements of files and records, such as u16, f32 or bf16 [default: u8].
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    pub dtype: Option<DType>,
    /// Tokens of a sample of a litdata dataset of tokens [default: a document is a sample].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub block_size: Option<u64>,
    /// Open a sharded dataset although shards cannot be had; what becomes of their samples, --on-error says.
    #[arg(long)]
    pub allow_bad_shards: bool,
    /// Check the hashes that an mds dataset lists of its shards when it is opened: it reads all of them.
    #[arg(long)]
    pub verify_hashes: bool,
    /// Take the rows of arrays as samples, instead of files (npy, npz) or tensors (safetensors).
    #[arg(long)]
    pub rows: bool,
    /// An array, tensor or dataset that is wanted, by name; may be given several times, for a column each [default:
    /// all; of HDF5's datasets those with as many rows as most of them].
    #[arg(long, value_name = "NAME")]
    pub tensor: Vec<String>,
    /// Tokens of a sample: the sequence length and one more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub window_tokens: Option<u64>,
    /// Tokens from the start of a window to that of the next [default: one fewer than a window has].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "window_tokens")]
    pub stride: Option<u64>,
    /// Type of raw tokens [default: files are Megatron-LM's, whose index tells it].
    #[arg(long, value_name = "TYPE", requires = "window_tokens")]
    pub token_dtype: Option<TokenType>,
    /// Keep windows within Megatron-LM's documents.
    #[arg(long, requires = "window_tokens", conflicts_with = "token_dtype")]
    pub documents: bool,
    /// Fields of a tar's samples, or features of TFRecord's examples, that are wanted, in this order [default: all
    /// that there are].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub fields: Option<Vec<String>>,
    /// What becomes of a sample of a tar or of TFRecord that lacks a field.
    #[arg(long, default_value = "error")]
    pub missing: MissingName,
    #[command(flatten)]
    pub lines: LineArguments,
    /// Where indexes of archives, TFRecord files and files of lines go whose own folder takes none.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub index_cache: Option<PathBuf>,
    /// Read the whole samples of archives, TFRecord files and files of lines that are cut short or broken instead of
    /// failing [default: with --on-error skip].
    #[arg(long)]
    pub keep_damaged: bool,
    /// Take the records of TFRecord files as they are, also where they are tf.train.Example.
    #[arg(long)]
    pub whole_records: bool,
    /// Do not compare the checksums of TFRecord's records.
    #[arg(long)]
    pub no_crc: bool,
    /// Whether opening writes no index, and leaves it to whoever asked to tell what is wrong.
    #[arg(skip)]
    pub is_verified: bool,
}

impl Format {
    /// Every file a sample.
    pub fn folder() -> Format {
        Format {
            format: Some(FormatName::Folder),
            record_size: None,
            header_size: 0,
            drop_tail: false,
            dtype: None,
            block_size: None,
            allow_bad_shards: false,
            verify_hashes: false,
            rows: false,
            tensor: Vec::new(),
            window_tokens: None,
            stride: None,
            token_dtype: None,
            documents: false,
            fields: None,
            missing: MissingName::Error,
            lines: LineArguments::default(),
            index_cache: None,
            keep_damaged: false,
            whole_records: false,
            no_crc: false,
            is_verified: false,
        }
    }

    /// The same, where samples that cannot be had are treated as `failing` says.
    pub fn under(&self, failing: &Failing) -> Format {
        let keep_damaged = self.keep_damaged || failing.on_error() != OnError::Raise;
        Format { keep_damaged, ..self.clone() }
    }

    /// How files of lines are opened.
    pub fn line_options(&self, format: LineFormat) -> LineOptions {
        LineOptions {
            format,
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            no_sidecars: self.is_verified,
            ..self.lines.options()
        }
    }

    /// How archives are opened.
    pub fn tar_options(&self) -> TarOptions {
        TarOptions {
            fields: self.fields.clone(),
            missing: self.missing(),
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            no_sidecars: self.is_verified,
            ..TarOptions::default()
        }
    }

    /// How TFRecord files are opened.
    pub fn tfrecord_options(&self) -> TfRecordOptions {
        TfRecordOptions {
            content: if self.whole_records { TfRecordContent::Bytes } else { TfRecordContent::Auto },
            fields: self.fields.clone(),
            missing: self.missing(),
            verify_crc: !self.no_crc,
            damaged: self.damaged(),
            cache: self.index_cache.clone(),
            no_sidecars: self.is_verified,
            ..TfRecordOptions::default()
        }
    }

    fn missing(&self) -> Missing {
        match self.missing {
            MissingName::Error => Missing::Error,
            MissingName::Empty => Missing::Empty,
        }
    }

    fn damaged(&self) -> Damaged {
        if self.keep_damaged { Damaged::Keep } else { Damaged::Error }
    }
}

/// Names of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Every file is a sample; folders of folders give labels.
    Folder,
    /// Files of records of one size.
    Records,
    /// Shards of mosaicml-streaming, by their index.json.
    Mds,
    /// Chunks of litdata, by their index.json.
    Litdata,
    /// Files of FFCV.
    Beton,
    /// Arrays that numpy.save wrote.
    Npy,
    /// Archives that numpy.savez or numpy.savez_compressed wrote.
    Npz,
    /// Files of tensors.
    Safetensors,
    /// Rows of the datasets of HDF5 files.
    Hdf5,
    /// Windows of raw or Megatron-LM's tokens; need --window-tokens.
    Tokens,
    /// Tar archives as webdataset has them, compressed or not: neighbours of one name are a sample.
    Tar,
    /// Files of TensorFlow's records, compressed or not.
    Tfrecord,
    /// Lines of JSON, each a sample.
    Jsonl,
    /// Rows of comma separated values, each a sample.
    Csv,
    /// Lines of text, each a sample.
    Text,
    /// Parquet: every row is a sample.
    Parquet,
    /// Arrow IPC files and streams: every row is a sample.
    Arrow,
}

impl FormatName {
    /// The format of lines of this name.
    pub fn of_lines(format: LineFormat) -> FormatName {
        match format {
            LineFormat::Jsonl => FormatName::Jsonl,
            LineFormat::Csv => FormatName::Csv,
            _ => FormatName::Text,
        }
    }
}

/// Types of raw tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TokenType {
    U8,
    U16,
    U32,
    I32,
    I64,
}

/// Names of what becomes of a sample that lacks a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MissingName {
    /// It cannot be had.
    Error,
    /// The field is empty.
    Empty,
}

fn parse_dtype(name: &str) -> Result<DType, String> {
    let names = || DType::ALL.map(DType::name).join(", ");
    DType::named(name).ok_or_else(|| format!("the types are {}", names()))
}
