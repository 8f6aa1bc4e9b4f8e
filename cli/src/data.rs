//! From arguments to a dataset: what the user names, or a small real one made for the occasion.

use super::arguments::{Chosen, Format, FormatName, TokenType};
use super::columnar::{self, Columnar};
use super::failure::Failure;
use super::index::IndexProgress;
use super::interrupt::{Interrupt, eprintln_quietly};
use super::units;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::config::{Config, Fallback};
use uringload::dataset::{
    ArrayFormat, ArrayOptions, ArraySamples, Arrays, BadShards, Beton, BetonOptions, Concat, DType, Dataset, Folder,
    FolderOptions, Hdf5, Hdf5Options, LineFormat, Lines, LitData, LitDataOptions, Mds, MdsOptions, RecordOptions,
    Records, SampleId, Skipped, Subset, Tail, Tar, TfRecord, TokenOptions, TokenSource, Tokens,
};
use uringload::quarantine;
use uringload::sampler::{Mixed, Sampler, for_dataset};
use uringload::sys::file::evict;
use uringload::{Error, ErrorKind};

/// A dataset, with what only its own type knows.
pub struct Data {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// How each column is stored, in the words of the format; empty where there are none.
    pub encodings: Vec<String>,
    kind: Kind,
}

enum Kind {
    Folder(Arc<Folder>),
    Records(Arc<Records>),
    Mds(Arc<Mds>),
    LitData(Arc<LitData>),
    Beton(Arc<Beton>),
    Arrays(Arc<Arrays>),
    Hdf5(Arc<Hdf5>),
    Tokens(Arc<Tokens>),
    Tar(Arc<Tar>),
    Lines(Arc<Lines>),
    TfRecord(Arc<TfRecord>),
    Columnar(Columnar),
    /// Several, each opened by itself.
    Mixture(Vec<Data>, Arc<Concat>),
}

impl Data {
    /// Opens what the user named, less what is not to be read; with weights, each path is a dataset of its own.
    pub fn choose(paths: &[PathBuf], format: &Format, chosen: &Chosen) -> Result<Data, Failure> {
        if chosen.weights.is_empty() {
            let mut data = Data::open(paths, format)?;
            if let Some(only) = &chosen.only {
                let ids = quarantine::read(only, &*data.dataset)?.into_iter().map(|id| id.0).collect();
                data.dataset = Arc::new(Subset::of(Arc::clone(&data.dataset), ids)?);
            }
            return data.without(&chosen.exclude);
        }
        if chosen.weights.len() != paths.len() {
            let (weights, paths) = (chosen.weights.len(), paths.len());
            let doing = format!("there are {weights} weights for {paths} datasets");
            let error = Error::new(ErrorKind::InvalidArgument, doing);
            return Err(error.with_remedy("give one number for each DIR").into());
        }
        let open = |path: &PathBuf| Data::open(std::slice::from_ref(path), format);
        let parts: Vec<Data> = paths.iter().map(open).collect::<Result<_, _>>()?;
        let concat = Arc::new(Concat::new(parts.iter().map(|part| Arc::clone(&part.dataset)).collect())?);
        let encodings = parts.first().map_or_else(Vec::new, |part| part.encodings.clone());
        let dataset = Arc::clone(&concat) as Arc<dyn Dataset>;
        Ok(Data { dataset, encodings, kind: Kind::Mixture(parts, concat) })
    }

    /// The order that was asked for.
    pub fn sampler(&self, config: &Config, chosen: &Chosen) -> Result<Arc<dyn Sampler>, Failure> {
        let Config { shuffle, seed, .. } = *config;
        match &self.kind {
            Kind::Mixture(_, concat) => {
                Ok(Arc::new(Mixed::of(concat, shuffle, &chosen.weights, chosen.stopping, seed)?))
            }
            _ => Ok(for_dataset(&*self.dataset, shuffle, seed)?),
        }
    }

    fn without(mut self, lists: &[PathBuf]) -> Result<Data, Failure> {
        let mut excluded: Vec<u64> = Vec::new();
        for list in lists {
            excluded.extend(quarantine::read(list, &*self.dataset)?.into_iter().map(|id| id.0));
        }
        if !excluded.is_empty() {
            self.dataset = Arc::new(Subset::without(Arc::clone(&self.dataset), excluded)?);
        }
        Ok(self)
    }

    /// The format that was asked for, or that the paths show.
    pub fn format_of(paths: &[PathBuf], format: &Format) -> FormatName {
        format.format.unwrap_or_else(|| match format.record_size {
            Some(_) => FormatName::Records,
            None => detect(paths, format),
        })
    }

    /// Opens what the user named.
    pub fn open(paths: &[PathBuf], format: &Format) -> Result<Data, Failure> {
        let name = Data::format_of(paths, format);
        check_use(name, format)?;
        let bad_shards = if format.allow_bad_shards { BadShards::FailSamples } else { BadShards::Refuse };
        let kind = match name {
            FormatName::Folder => {
                let options = FolderOptions { dtype: format.dtype.unwrap_or_default(), ..FolderOptions::default() };
                let folder = Folder::open_with(paths, &options)?;
                // Looked at only where no format was asked for: whoever says folder means it.
                let is_open = format.format.is_none() && format.dtype.is_none();
                match is_open {
                    true if Tar::is_made_of(folder.files()) => Data::open_tar(paths, format)?,
                    true if TfRecord::is_made_of(folder.files()) => open_tfrecord(paths, format)?,
                    _ if format.whole_records || format.no_crc => return Err(no_tfrecord()),
                    _ => Kind::Folder(Arc::new(folder)),
                }
            }
            FormatName::Records => {
                let Some(record_bytes) = format.record_size else {
                    return Err(usage("records need a size", "give --record-size"));
                };
                let tail = if format.drop_tail { Tail::Drop } else { Tail::Error };
                let header_bytes = format.header_size;
                let dtype = format.dtype.unwrap_or_default();
                let options = RecordOptions { record_bytes, header_bytes, tail, dtype, ..RecordOptions::default() };
                Kind::Records(Arc::new(Records::open(paths, &options)?))
            }
            FormatName::Mds => {
                let verify_hashes = format.verify_hashes;
                let options = MdsOptions { bad_shards, verify_hashes, ..MdsOptions::default() };
                Kind::Mds(Arc::new(Mds::open(paths, &options)?))
            }
            FormatName::Litdata => {
                let options = LitDataOptions { block_size: format.block_size, bad_shards, ..LitDataOptions::default() };
                Kind::LitData(Arc::new(LitData::open(paths, &options)?))
            }
            FormatName::Beton => Kind::Beton(Arc::new(Beton::open(paths, &BetonOptions::default())?)),
            FormatName::Npy => arrays(ArrayFormat::Npy, paths, format)?,
            FormatName::Npz => arrays(ArrayFormat::Npz, paths, format)?,
            FormatName::Safetensors => arrays(ArrayFormat::Safetensors, paths, format)?,
            FormatName::Hdf5 => {
                let options = Hdf5Options { datasets: format.tensor.clone(), ..Hdf5Options::default() };
                Kind::Hdf5(Arc::new(Hdf5::open(paths, &options)?))
            }
            FormatName::Tokens => tokens(paths, format)?,
            FormatName::Tar => Data::open_tar(paths, format)?,
            FormatName::Jsonl => lines(LineFormat::Jsonl, paths, format)?,
            FormatName::Csv => lines(LineFormat::Csv, paths, format)?,
            FormatName::Text => lines(LineFormat::Text, paths, format)?,
            FormatName::Tfrecord => open_tfrecord(paths, format)?,
            FormatName::Parquet | FormatName::Arrow => Kind::Columnar(columnar::open(name, paths, format)?),
        };
        Ok(Data { dataset: kind.dataset(), encodings: kind.encodings(), kind })
    }

    /// Opens archives; says on stderr what went otherwise than wished.
    fn open_tar(paths: &[PathBuf], format: &Format) -> Result<Kind, Failure> {
        let progress = IndexProgress::new();
        let tar = Tar::open_with_progress(paths, &format.tar_options(), &|done| progress.tell(done));
        drop(progress);
        let tar = Arc::new(tar?);
        tell(format, tar.fallbacks(), tar.damaged());
        Ok(Kind::Tar(tar))
    }

    /// Files that were left out, by reason; of a mixture, those of its first dataset that left any out.
    pub fn skipped(&self) -> &[Skipped] {
        match &self.kind {
            Kind::Mixture(parts, _) => parts.iter().map(Data::skipped).find(|part| !part.is_empty()).unwrap_or(&[]),
            Kind::Folder(folder) => folder.skipped(),
            Kind::Records(records) => records.skipped(),
            Kind::LitData(lit) => lit.skipped(),
            Kind::Mds(_) | Kind::Beton(_) => &[],
            Kind::Arrays(arrays) => arrays.skipped(),
            Kind::Hdf5(hdf5) => hdf5.skipped(),
            Kind::Tokens(tokens) => tokens.skipped(),
            Kind::Tar(tar) => tar.skipped(),
            Kind::Lines(lines) => lines.skipped(),
            Kind::TfRecord(records) => records.skipped(),
            Kind::Columnar(columnar) => &columnar.skipped,
        }
    }

    /// Samples that lack a field (an index into the schema).
    pub fn lacking(&self, field: usize) -> u64 {
        match &self.kind {
            Kind::Tar(tar) => tar.lacking(field),
            _ => 0,
        }
    }

    /// Number and name of the class of a sample, where the dataset has classes.
    pub fn label(&self, id: SampleId) -> Option<(i64, String)> {
        let folder = match &self.kind {
            Kind::Folder(folder) => folder,
            Kind::Mixture(parts, concat) => {
                let (part, id) = concat.locate(id);
                return parts[part].label(id);
            }
            _ => return None,
        };
        // The dataset may be a choice of the folder's samples.
        let label = folder.label(self.dataset.origin(id).id)?;
        let name = usize::try_from(label).ok().and_then(|index| folder.classes().get(index));
        Some((label, name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())))
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        match &self.kind {
            Kind::Folder(folder) => folder.classes().len(),
            _ => 0,
        }
    }

    /// Tokens that are in no window, because they come behind the last one of their file or document.
    pub fn dropped_tokens(&self) -> u64 {
        match &self.kind {
            Kind::Tokens(tokens) => tokens.dropped_tokens(),
            _ => 0,
        }
    }
}

impl Kind {
    fn encodings(&self) -> Vec<String> {
        match self {
            Kind::Mds(mds) => mds.encodings(),
            Kind::LitData(lit) => lit.encodings(),
            Kind::Beton(beton) => beton.encodings(),
            Kind::Hdf5(hdf5) => hdf5.encodings(),
            Kind::TfRecord(records) => records.encodings(),
            Kind::Columnar(columnar) => columnar.encodings.clone(),
            _ => Vec::new(),
        }
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        match self {
            Kind::Folder(folder) => Arc::clone(folder) as Arc<dyn Dataset>,
            Kind::Records(records) => Arc::clone(records) as Arc<dyn Dataset>,
            Kind::Mds(mds) => Arc::clone(mds) as Arc<dyn Dataset>,
            Kind::LitData(lit) => Arc::clone(lit) as Arc<dyn Dataset>,
            Kind::Beton(beton) => Arc::clone(beton) as Arc<dyn Dataset>,
            Kind::Arrays(arrays) => Arc::clone(arrays) as Arc<dyn Dataset>,
            Kind::Hdf5(hdf5) => Arc::clone(hdf5) as Arc<dyn Dataset>,
            Kind::Tokens(tokens) => Arc::clone(tokens) as Arc<dyn Dataset>,
            Kind::Tar(tar) => Arc::clone(tar) as Arc<dyn Dataset>,
            Kind::Lines(lines) => Arc::clone(lines) as Arc<dyn Dataset>,
            Kind::TfRecord(records) => Arc::clone(records) as Arc<dyn Dataset>,
            Kind::Columnar(columnar) => Arc::clone(&columnar.dataset),
            Kind::Mixture(_, concat) => Arc::clone(concat) as Arc<dyn Dataset>,
        }
    }
}

/// The format that all paths show; a folder of files where they show none.
fn detect(paths: &[PathBuf], asked: &Format) -> FormatName {
    let is_all = |is_one: &dyn Fn(&Path) -> bool| !paths.is_empty() && paths.iter().all(|path| is_one(path));
    let is_array = |format| is_all(&|path| ArrayFormat::detect(path) == Some(format));
    // Whoever names a type of elements has files of numbers, whatever they are called.
    if let Some(format) = detect_lines(paths).filter(|_| asked.dtype.is_none()) {
        return FormatName::of_lines(format);
    }
    match () {
        () if is_all(&|path| Mds::detect(path)) => FormatName::Mds,
        () if is_all(&|path| LitData::detect(path)) => FormatName::Litdata,
        () if is_all(&|path| Beton::detect(path)) => FormatName::Beton,
        () if is_array(ArrayFormat::Npy) => FormatName::Npy,
        () if is_array(ArrayFormat::Npz) => FormatName::Npz,
        () if is_array(ArrayFormat::Safetensors) => FormatName::Safetensors,
        () if is_all(&|path| Hdf5::detect(path)) => FormatName::Hdf5,
        () if is_all(&|path| Tokens::detect(path)) => FormatName::Tokens,
        () if is_all(&|path| columnar::is_parquet(path)) => FormatName::Parquet,
        () if is_all(&|path| columnar::is_arrow(path)) => FormatName::Arrow,
        () => FormatName::Folder,
    }
}

/// The format of lines that all paths show.
pub fn detect_lines(paths: &[PathBuf]) -> Option<LineFormat> {
    let first = LineFormat::detect(paths.first()?)?;
    paths[1..].iter().all(|path| LineFormat::detect(path) == Some(first)).then_some(first)
}

/// Refuses options that the format has no use for.
fn check_use(name: FormatName, format: &Format) -> Result<(), Failure> {
    use FormatName::{Arrow, Csv, Folder, Hdf5, Jsonl, Litdata, Mds, Npy, Npz, Parquet};
    use FormatName::{Records, Safetensors, Text, Tfrecord, Tokens};
    let is_array = matches!(name, Npy | Npz | Safetensors);
    // Of HDF5, rows are what there is.
    if (format.rows || !format.tensor.is_empty()) && !is_array && name != Hdf5 {
        let remedy = "use --format npy, npz, safetensors or hdf5";
        return Err(usage("--rows and --tensor are of use to arrays alone", remedy));
    }
    if format.record_size.is_some() && name != Records {
        return Err(usage("--record-size is of use to records alone", "use --format records, or leave it away"));
    }
    if format.block_size.is_some() && name != Litdata {
        return Err(usage("--block-size is of use to litdata alone", "use --format litdata, or leave it away"));
    }
    if format.verify_hashes && name != Mds {
        return Err(usage(
            "--verify-hashes is of use to mds alone",
            "use `uringload verify`, which checks what there is",
        ));
    }
    if format.dtype.is_some() && !matches!(name, Folder | Records) {
        return Err(usage(
            "--dtype is of use to folders and records alone",
            "leave it away: the files tell their type",
        ));
    }
    if !format.lines.is_empty() && !matches!(name, Jsonl | Csv | Text | Parquet | Arrow) {
        return Err(usage(
            "--columns, --delimiter and --no-header are of use to lines and tables alone",
            "use --format jsonl, csv, text, parquet or arrow",
        ));
    }
    if (format.lines.delimiter.is_some() || format.lines.no_header) && name != Csv {
        return Err(usage("--delimiter and --no-header are of use to csv alone", "use --format csv"));
    }
    if format.window_tokens.is_some() && name != Tokens {
        return Err(usage("--window-tokens is of use to tokens alone", "use --format tokens"));
    }
    if (format.whole_records || format.no_crc) && !matches!(name, Tfrecord | Folder) {
        return Err(no_tfrecord());
    }
    if format.header_size > 0 && name != Records && format.token_dtype.is_none() {
        return Err(usage(
            "--header-size is of use to records and raw tokens alone",
            "give --record-size or --token-dtype",
        ));
    }
    Ok(())
}

/// Opens TFRecord files; says on stderr what went otherwise than wished.
fn open_tfrecord(paths: &[PathBuf], format: &Format) -> Result<Kind, Failure> {
    let progress = IndexProgress::new();
    let records = TfRecord::open_with_progress(paths, &format.tfrecord_options(), &|done| progress.tell(done));
    drop(progress);
    let records = Arc::new(records?);
    tell(format, records.fallbacks(), records.damaged());
    Ok(Kind::TfRecord(records))
}

fn arrays(array_format: ArrayFormat, paths: &[PathBuf], format: &Format) -> Result<Kind, Failure> {
    let samples = match (format.rows, array_format) {
        (true, _) => ArraySamples::Rows,
        // Whoever names tensors wants a column of each.
        (false, ArrayFormat::Safetensors) if format.tensor.is_empty() => ArraySamples::Arrays,
        _ => ArraySamples::Files,
    };
    let options = ArrayOptions { samples, names: format.tensor.clone(), ..ArrayOptions::default() };
    let opened = match Arrays::open(array_format, paths, &options) {
        // Tensors of several types are no samples, and sound all the same: their files can be read as a whole.
        Err(error) if format.is_verified && error.kind() == ErrorKind::InvalidArgument => {
            Arrays::open(array_format, paths, &ArrayOptions { samples: ArraySamples::Files, ..options })
        }
        opened => opened,
    };
    Ok(Kind::Arrays(Arc::new(opened?)))
}

/// Opens files of lines; says on stderr what went otherwise than wished.
fn lines(line_format: LineFormat, paths: &[PathBuf], format: &Format) -> Result<Kind, Failure> {
    let progress = IndexProgress::new();
    let lines = Lines::open_with_progress(paths, &format.line_options(line_format), &|done| progress.tell(done));
    drop(progress);
    let lines = Arc::new(lines?);
    tell(format, lines.fallbacks(), lines.damaged());
    Ok(Kind::Lines(lines))
}

/// Says what went otherwise than wished when files were looked through, unless that is asked for anyhow.
fn tell(format: &Format, fallbacks: &[Fallback], damaged: &[Error]) {
    if format.is_verified {
        return;
    }
    fallbacks.iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    damaged.iter().for_each(|error| eprintln_quietly(&format!("uringload: left out from there on: {error}")));
}

fn tokens(paths: &[PathBuf], format: &Format) -> Result<Kind, Failure> {
    let Some(window_tokens) = format.window_tokens else {
        return Err(usage("tokens need the length of a sample", "give --window-tokens, or --format folder"));
    };
    let dtype = format.token_dtype.map(|dtype| match dtype {
        TokenType::U8 => DType::U8,
        TokenType::U16 => DType::U16,
        TokenType::U32 => DType::U32,
        TokenType::I32 => DType::I32,
        TokenType::I64 => DType::I64,
    });
    let source = match dtype {
        Some(dtype) => TokenSource::Raw { dtype, header_bytes: format.header_size },
        None => TokenSource::Megatron { documents: format.documents },
    };
    let options = TokenOptions { stride: format.stride, ..TokenOptions::new(source, window_tokens) };
    Ok(Kind::Tokens(Arc::new(Tokens::open(paths, &options)?)))
}

/// Options of TFRecord where there is something else.
fn no_tfrecord() -> Failure {
    usage("--whole-records and --no-crc are of use to tfrecord alone", "use --format tfrecord")
}

fn usage(doing: &'static str, remedy: &'static str) -> Failure {
    Failure::Loader(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy))
}

/// A dataset in a temporary folder, deleted on drop (and by the second Ctrl-C).
pub struct Made {
    folder: tempfile::TempDir,
    interrupt: Interrupt,
}

/// Files of the dataset that is made: enough for some hundred milliseconds of a fast disk, few enough to be written
/// while one waits.
const MADE_FILES: u32 = 1024;
const MADE_CLASSES: u32 = 8;
/// The natural logarithms of sizes are normal with this mean and deviation: photos of around 110 KB.
const MADE_LOG_MEAN: f64 = 11.5;
const MADE_LOG_DEVIATION: f64 = 0.45;
/// Sizes are held within these, so that no draw makes a file that surprises.
const MADE_BYTES_MIN: f64 = 4e3;
const MADE_BYTES_MAX: f64 = 1e6;

impl Made {
    /// Writes the files and has the disk take them. `None` if interrupted.
    pub fn new(interrupt: &Interrupt) -> Result<Option<Made>, Failure> {
        let folder = tempfile::Builder::new().prefix("uringload-bench-").tempdir();
        let folder =
            folder.map_err(|source| failed("cannot make a temporary folder in", source, &std::env::temp_dir()))?;
        interrupt.set_folder(Some(folder.path().to_path_buf()));
        let made = Made { folder, interrupt: interrupt.clone() };
        let note = format!(
            "no DIR given: making {} files of around 110 KB in {} (deleted at the end)",
            units::count(MADE_FILES.into()),
            made.path().display()
        );
        eprintln_quietly(&note);
        match made.write() {
            Ok(true) => Ok(Some(made)),
            Ok(false) => Ok(None),
            Err(source) => Err(failed("cannot write a dataset to", source, made.path())),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self) -> io::Result<bool> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut bytes = Vec::new();
        let mut files = Vec::with_capacity(MADE_FILES as usize);
        for class in 0..MADE_CLASSES {
            fs::create_dir(self.path().join(format!("class-{class}")))?;
        }
        for index in 0..MADE_FILES {
            if self.interrupt.is_set() {
                return Ok(false);
            }
            let size = (MADE_LOG_MEAN + MADE_LOG_DEVIATION * normal(&mut random)).exp();
            bytes.resize(size.clamp(MADE_BYTES_MIN, MADE_BYTES_MAX) as usize, 0);
            // Random bytes: what compresses would flatter a device or filesystem that does.
            random.fill_bytes(&mut bytes);
            let path = self.path().join(format!("class-{}/{index:04}.bin", index % MADE_CLASSES));
            let mut file = File::create(path)?;
            file.write_all(&bytes)?;
            // Sixty-four at a time stay open, to be synced together: one journal commit serves them all.
            files.push(file);
            if files.len() == 64 {
                sync(&mut files)?;
            }
        }
        sync(&mut files)?;
        Ok(true)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.interrupt.set_folder(None);
    }
}

/// Has the disk take the files, and leaves nothing of them in memory: the first bench shows the disk.
fn sync(files: &mut Vec<File>) -> io::Result<()> {
    files.drain(..).try_for_each(|file| {
        file.sync_all()?;
        evict(file.as_fd())
    })
}

/// A draw from the standard normal distribution, as a sum of twelve uniform ones: close enough for sizes of files.
fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| f64::from(random.next_u32()) / f64::from(u32::MAX)).sum::<f64>() - 6.0
}

fn failed(doing: &'static str, source: io::Error, path: &Path) -> Failure {
    Failure::Loader(Error::io(doing, source).with_file(path).with_remedy("name a folder of samples, or set TMPDIR"))
}
