//! From arguments to a dataset: what the user names, or a small real one made for the occasion.

use super::arguments::{Format, FormatName};
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
use uringload::dataset::{Dataset, Folder, RecordOptions, Records, SampleId, Skipped, Tail, Tar};
use uringload::sys::file::evict;
use uringload::{Error, ErrorKind};

/// A dataset, with what only its own type knows.
pub struct Data {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    kind: Kind,
}

enum Kind {
    Folder(Arc<Folder>),
    Records(Arc<Records>),
    Tar(Arc<Tar>),
}

impl Data {
    /// Opens what the user named.
    pub fn open(paths: &[PathBuf], format: &Format) -> Result<Data, Failure> {
        let name = format.format.or(format.record_size.map(|_| FormatName::Records));
        match (name, format.record_size) {
            (Some(FormatName::Folder) | None, None) => {
                let folder = Folder::open(paths)?;
                if name.is_none() && Tar::is_made_of(folder.files()) {
                    return Data::open_tar(paths, format);
                }
                let folder = Arc::new(folder);
                Ok(Data { dataset: Arc::clone(&folder) as Arc<dyn Dataset>, kind: Kind::Folder(folder) })
            }
            (Some(FormatName::Tar), None) => Data::open_tar(paths, format),
            (Some(FormatName::Records) | None, Some(record_bytes)) => {
                let tail = if format.drop_tail { Tail::Drop } else { Tail::Error };
                let header_bytes = format.header_size;
                let options = RecordOptions { record_bytes, header_bytes, tail, ..RecordOptions::default() };
                let records = Arc::new(Records::open(paths, &options)?);
                Ok(Data { dataset: Arc::clone(&records) as Arc<dyn Dataset>, kind: Kind::Records(records) })
            }
            (Some(FormatName::Folder | FormatName::Tar), Some(_)) => {
                Err(usage("--record-size is of use to records only", "use --format records"))
            }
            (Some(FormatName::Records), None) => Err(usage("records need a size", "give --record-size")),
        }
    }

    /// Opens archives; says on stderr what went otherwise than wished.
    fn open_tar(paths: &[PathBuf], format: &Format) -> Result<Data, Failure> {
        let progress = IndexProgress::new();
        let tar = Tar::open_with_progress(paths, &format.tar_options(), &|done| progress.tell(done));
        drop(progress);
        let tar = Arc::new(tar?);
        tar.fallbacks().iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
        tar.damaged().iter().for_each(|error| eprintln_quietly(&format!("uringload: left out from there on: {error}")));
        Ok(Data { dataset: Arc::clone(&tar) as Arc<dyn Dataset>, kind: Kind::Tar(tar) })
    }

    /// Files that were left out, by reason.
    pub fn skipped(&self) -> &[Skipped] {
        match &self.kind {
            Kind::Folder(folder) => folder.skipped(),
            Kind::Records(records) => records.skipped(),
            Kind::Tar(tar) => tar.skipped(),
        }
    }

    /// Samples that lack a field (an index into the schema).
    pub fn lacking(&self, field: usize) -> u64 {
        match &self.kind {
            Kind::Folder(_) | Kind::Records(_) => 0,
            Kind::Tar(tar) => tar.lacking(field),
        }
    }

    /// Number and name of the class of a sample, where the dataset has classes.
    pub fn label(&self, id: SampleId) -> Option<(i64, String)> {
        let Kind::Folder(folder) = &self.kind else { return None };
        let label = folder.label(id)?;
        let name = usize::try_from(label).ok().and_then(|index| folder.classes().get(index));
        Some((label, name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())))
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        match &self.kind {
            Kind::Folder(folder) => folder.classes().len(),
            Kind::Records(_) | Kind::Tar(_) => 0,
        }
    }
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
